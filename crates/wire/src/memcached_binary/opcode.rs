//! Opcodes of the commands.

pub(super) const GET: u8 = 0x00;
pub(super) const SET: u8 = 0x01;
pub(super) const ADD: u8 = 0x02;
pub(super) const REPLACE: u8 = 0x03;
pub(super) const DELETE: u8 = 0x04;
pub(super) const INCREMENT: u8 = 0x05;
pub(super) const DECREMENT: u8 = 0x06;
pub(super) const QUIT: u8 = 0x07;
pub(super) const FLUSH: u8 = 0x08;
pub(super) const GET_QUIET: u8 = 0x09;
pub(super) const NO_OP: u8 = 0x0a;
pub(super) const VERSION: u8 = 0x0b;
pub(super) const GET_KEY: u8 = 0x0c;
pub(super) const GET_KEY_QUIET: u8 = 0x0d;
pub(super) const APPEND: u8 = 0x0e;
pub(super) const PREPEND: u8 = 0x0f;
pub(super) const STAT: u8 = 0x10;
pub(super) const SET_QUIET: u8 = 0x11;
pub(super) const ADD_QUIET: u8 = 0x12;
pub(super) const REPLACE_QUIET: u8 = 0x13;
pub(super) const DELETE_QUIET: u8 = 0x14;
pub(super) const INCREMENT_QUIET: u8 = 0x15;
pub(super) const DECREMENT_QUIET: u8 = 0x16;
pub(super) const QUIT_QUIET: u8 = 0x17;
pub(super) const FLUSH_QUIET: u8 = 0x18;
pub(super) const APPEND_QUIET: u8 = 0x19;
pub(super) const PREPEND_QUIET: u8 = 0x1a;
pub(super) const VERBOSITY: u8 = 0x1b;
pub(super) const TOUCH: u8 = 0x1c;
pub(super) const GET_AND_TOUCH: u8 = 0x1d;
pub(super) const GET_AND_TOUCH_QUIET: u8 = 0x1e;
pub(super) const SASL_MECHANISMS: u8 = 0x20;
pub(super) const SASL_AUTHENTICATE: u8 = 0x21;
pub(super) const SASL_STEP: u8 = 0x22;
pub(super) const GET_KEY_AND_TOUCH: u8 = 0x23;
pub(super) const GET_KEY_AND_TOUCH_QUIET: u8 = 0x24;

/// Returns the opcode of the same command that is not quiet, and whether this one is quiet.
#[inline]
pub(super) fn without_quiet(opcode: u8) -> (u8, bool) {
    let base = match opcode {
        GET_QUIET => GET,
        GET_KEY_QUIET => GET_KEY,
        SET_QUIET => SET,
        ADD_QUIET => ADD,
        REPLACE_QUIET => REPLACE,
        DELETE_QUIET => DELETE,
        INCREMENT_QUIET => INCREMENT,
        DECREMENT_QUIET => DECREMENT,
        QUIT_QUIET => QUIT,
        FLUSH_QUIET => FLUSH,
        APPEND_QUIET => APPEND,
        PREPEND_QUIET => PREPEND,
        GET_AND_TOUCH_QUIET => GET_AND_TOUCH,
        GET_KEY_AND_TOUCH_QUIET => GET_KEY_AND_TOUCH,
        opcode => return (opcode, false),
    };
    (base, true)
}
