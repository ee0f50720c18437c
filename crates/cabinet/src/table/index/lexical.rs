//! Lexical index: one posting per row. Its key is the escaped value, and then the primary key.

use super::{Index, put_bare};
use crate::table::keys;
use crate::table::postings::Changes;

pub(super) fn put(index: &Index, primary: &[u8], value: &[u8], postings: &mut Changes) -> bool {
    let (prefix, is_cut) = whole(index, value);
    put_bare(postings, &prefix, primary);
    !is_cut
}

/// Returns the prefix of the keys of postings of exactly this value, and whether other values share
/// it because the value is too long.
pub(in crate::table) fn whole(index: &Index, value: &[u8]) -> (Vec<u8>, bool) {
    let mut prefix = index.prefix();
    let is_cut = keys::push_escaped(&mut prefix, value);
    (prefix, is_cut)
}
