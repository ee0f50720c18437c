//! The command byte of each request.

pub(super) const PUT: u8 = 0x10;
pub(super) const PUT_KEEP: u8 = 0x11;
pub(super) const PUT_CAT: u8 = 0x12;
pub(super) const PUT_SHIFT: u8 = 0x13;
pub(super) const PUT_NO_REPLY: u8 = 0x18;
pub(super) const OUT: u8 = 0x20;
pub(super) const GET: u8 = 0x30;
pub(super) const GET_MANY: u8 = 0x31;
pub(super) const VALUE_SIZE: u8 = 0x38;
pub(super) const ITER_INIT: u8 = 0x50;
pub(super) const ITER_NEXT: u8 = 0x51;
pub(super) const KEYS_WITH_PREFIX: u8 = 0x58;
pub(super) const ADD_INT: u8 = 0x60;
pub(super) const ADD_DOUBLE: u8 = 0x61;
pub(super) const EXT: u8 = 0x68;
pub(super) const SYNC: u8 = 0x70;
pub(super) const OPTIMIZE: u8 = 0x71;
pub(super) const VANISH: u8 = 0x72;
pub(super) const COPY: u8 = 0x73;
pub(super) const RESTORE: u8 = 0x74;
pub(super) const SET_MASTER: u8 = 0x78;
pub(super) const COUNT: u8 = 0x80;
pub(super) const SIZE: u8 = 0x81;
pub(super) const STAT: u8 = 0x88;
pub(super) const MISC: u8 = 0x90;
pub(super) const REPLICATE: u8 = 0xa0;
