//! Token index: one posting per different token of a row. Its key is the token, and then the
//! primary key.
//!
//! If a value has very many tokens, only the first ones are indexed. A posting of another kind
//! marks that the row has more: such rows are candidates for every token.

use super::{Index, key, put_bare};
use crate::limits::INDEXED_TOKENS_MAX;
use crate::table::keys;
use crate::table::postings::Changes;
use crate::table::tokens::{before_nul, of_text};
use std::collections::BTreeSet;

/// Kinds of postings.
pub(super) const MORE: u8 = 1;
pub(super) const PART: u8 = 2;

pub(super) fn put(index: &Index, primary: &[u8], value: &[u8], postings: &mut Changes) {
    let mut tokens = BTreeSet::new();
    for token in of_text(before_nul(value)) {
        if tokens.len() == INDEXED_TOKENS_MAX && !tokens.contains(token) {
            put_bare(postings, &more(index), primary);
            break;
        }
        tokens.insert(token);
    }
    for token in tokens {
        put_bare(postings, &whole(index, token).0, primary);
    }
}

/// Returns the prefix of the keys of this token's postings, and whether other tokens share it
/// because the token is too long.
pub(in crate::table) fn whole(index: &Index, token: &[u8]) -> (Vec<u8>, bool) {
    let mut prefix = key(index.prefix(), &[&[PART]]);
    let is_cut = keys::push_escaped(&mut prefix, token);
    (prefix, is_cut)
}

/// Returns the prefix of the keys of postings of rows whose values are only partly indexed.
pub(in crate::table) fn more(index: &Index) -> Vec<u8> {
    key(index.prefix(), &[&[MORE]])
}
