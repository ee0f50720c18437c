//! Names of blocks: the prefix of the index, and the last key that belongs to the block.
//!
//! A block has the postings after the name of the previous block and up to its own name. So a
//! posting belongs to the first block at or after it. The last part of a divided block keeps the
//! block's name. The last block of an index has all remaining postings.

/// Byte after the prefix of the index, in the name of a block.
const UP_TO: u8 = 0;
const LAST: u8 = 1;

/// Returns the name of the block of an index whose last posting is this one. If the posting is
/// after all postings of the index, returns the name of the last block.
pub(super) fn name(index: &[u8], posting: &[u8]) -> Vec<u8> {
    match posting.strip_prefix(index) {
        Some(rest) => [index, &[UP_TO], rest].concat(),
        None => last_of(index),
    }
}

/// Returns the name of the last block of an index.
pub(super) fn last_of(index: &[u8]) -> Vec<u8> {
    [index, &[LAST]].concat()
}

/// Returns the last key that belongs to the block of an index with this name; `Some(None)` for the
/// last block. Returns `None` if the name is not that of a block of the index.
pub(super) fn last(index: &[u8], name: &[u8]) -> Option<Option<Vec<u8>>> {
    match name.strip_prefix(index)?.split_first()? {
        (&UP_TO, rest) => Some(Some([index, rest].concat())),
        _ => Some(None),
    }
}
