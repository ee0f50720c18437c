//! Operations on records beyond a single put or get of the database: sessions, long values, media
//! types, and the numbers that clients compare.

pub(crate) mod cas_numbers;
pub(crate) mod draft;
pub(crate) mod entity_tag;
pub(crate) mod failure;
pub(crate) mod hits;
pub(crate) mod long;
pub(crate) mod media_types;
pub(crate) mod records;
pub(crate) mod reserved;
pub(crate) mod session;
pub(crate) mod spool;
pub(crate) mod value;
