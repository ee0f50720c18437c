//! The decimal index: one entry a row, the number in an encoding that keeps the order of numbers,
//! and then the primary key.

use super::{Entries, Index, key};
use crate::table::number::Number;
use crate::table::tokens::before_nul;

pub(super) fn entries(index: &Index, primary: &[u8], value: &[u8]) -> Entries {
    let prefix = prefix(index, &Number::parse(before_nul(value)));
    Entries::from([(key(prefix, &[primary]), Vec::new())])
}

/// What entries of this number begin with.
pub(in crate::table) fn prefix(index: &Index, number: &Number) -> Vec<u8> {
    let mut prefix = index.prefix();
    number.encode(&mut prefix);
    prefix
}
