//! Operations on records: decoding and execution, sessions, long values, media types, CAS numbers.

pub(crate) mod cas_numbers;
pub(crate) mod command_mask;
pub(crate) mod conditional;
pub(crate) mod decode;
pub(crate) mod entity_tag;
pub(crate) mod execute;
pub(crate) mod expiry;
pub(crate) mod failure;
pub(crate) mod hits;
pub(crate) mod iterator;
mod lists;
pub(crate) mod long;
pub(crate) mod media_types;
pub(crate) mod number;
mod open;
pub(crate) mod operation;
pub(crate) mod prefetch;
pub(crate) mod remote;
pub(crate) mod replay;
pub(crate) mod reserved;
mod rows;
mod scans;
pub(crate) mod scrub;
pub(crate) mod served;
pub(crate) mod spool;
pub(crate) mod touch;
