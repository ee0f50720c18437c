//! Names of blocks: the number of their index, and the key up to which they go.
//!
//! A block has the postings up to its name that are behind the name of the block before it. So the
//! block that a posting belongs to is the first one at or after it, and a block that is divided
//! keeps its name for its last part. The last block of an index goes up to the end.

/// The byte behind the number of the index.
const UP_TO: u8 = 0;
const LAST: u8 = 1;

/// The name of a block of an index whose last posting is this one, or of its last block if the
/// posting is behind all of the index.
pub(super) fn name(index: &[u8], posting: &[u8]) -> Vec<u8> {
    match posting.strip_prefix(index) {
        Some(rest) => [index, &[UP_TO], rest].concat(),
        None => last_of(index),
    }
}

/// The name of the last block of an index.
pub(super) fn last_of(index: &[u8]) -> Vec<u8> {
    [index, &[LAST]].concat()
}

/// Returns the key up to which a block of an index goes, `Some(None)` if it is the last one. `None`
/// if the record of this name is not a block of the index.
pub(super) fn last(index: &[u8], name: &[u8]) -> Option<Option<Vec<u8>>> {
    match name.strip_prefix(index)?.split_first()? {
        (&UP_TO, rest) => Some(Some([index, rest].concat())),
        _ => Some(None),
    }
}
