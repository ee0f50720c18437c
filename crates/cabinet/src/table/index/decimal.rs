//! Decimal index: one posting per row. Its key is the number, in an encoding that keeps the order
//! of numbers, and then the primary key.

use super::{Index, put_bare};
use crate::table::number::Number;
use crate::table::postings::Changes;
use crate::table::tokens::before_nul;

pub(super) fn put(index: &Index, primary: &[u8], value: &[u8], postings: &mut Changes) {
    put_bare(postings, &prefix(index, &Number::parse(before_nul(value))), primary);
}

/// Returns the prefix of the keys of this number's postings.
pub(in crate::table) fn prefix(index: &Index, number: &Number) -> Vec<u8> {
    let mut prefix = index.prefix();
    number.encode(&mut prefix);
    prefix
}
