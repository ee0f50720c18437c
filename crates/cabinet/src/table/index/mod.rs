//! Indices: postings that lead from the values of a column to the rows that have them.
//!
//! The postings of an index are in blocks: records of the table's engine under the number of the
//! index (`docs/formats/table.md`). A batch changes a row together with a pending-change record,
//! from which its postings are restored after a crash. The postings themselves are changed in
//! memory first (`super::postings`).

pub(super) mod build;
mod check;
mod decimal;
pub(super) mod gram;
pub(super) mod lexical;
pub(super) mod token;

pub(super) use decimal::prefix as decimal_prefix;

use super::keys;
use super::postings::Changes;
use crate::base::column_index::IndexKind;
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// An index of a table, in memory.
#[derive(Debug)]
pub(super) struct Index {
    /// Number under which the postings are stored. Never used twice.
    pub(super) id: u32,
    /// Name of the column; empty for the primary key.
    pub(super) column: Vec<u8>,
    pub(super) kind: IndexKind,
    /// Whether all rows have their postings. Until then only writers use the index.
    pub(super) is_ready: AtomicBool,
    /// Whether the index has postings of values that were cut because they were too long.
    pub(super) has_cut_values: AtomicBool,
    /// Held for reading by queries that may use the index, and for writing while its postings are
    /// removed.
    pub(super) in_use: RwLock<()>,
}

impl Index {
    pub(super) fn new(id: u32, column: &[u8], kind: IndexKind, is_ready: bool) -> Self {
        Self {
            id,
            column: column.to_vec(),
            kind,
            is_ready: AtomicBool::new(is_ready),
            has_cut_values: AtomicBool::new(false),
            in_use: RwLock::new(()),
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Returns whether the rows themselves, which are in the order of primary keys, are this index.
    pub(super) fn is_rows(&self) -> bool {
        self.kind == IndexKind::Lexical && self.column.is_empty()
    }

    /// Returns the prefix of the keys of the index's postings.
    pub(super) fn prefix(&self) -> Vec<u8> {
        if self.is_rows() { vec![keys::ROWS] } else { keys::postings(self.id) }
    }

    /// Adds the postings of a row with this value in the column to `postings`. Returns whether they
    /// have the whole value.
    pub(super) fn put_postings(
        &self,
        primary: &[u8],
        value: &[u8],
        postings: &mut Changes,
    ) -> bool {
        match self.kind {
            _ if self.is_rows() => {}
            IndexKind::Lexical => return lexical::put(self, primary, value, postings),
            IndexKind::Decimal => decimal::put(self, primary, value, postings),
            IndexKind::Token => token::put(self, primary, value, postings),
            IndexKind::Gram => gram::put(self, primary, value, postings),
        }
        true
    }
}

/// Puts a posting with an empty value under a prefix and the primary key.
fn put_bare(postings: &mut Changes, prefix: &[u8], primary: &[u8]) {
    let key = |bytes: &mut Vec<u8>| {
        bytes.extend_from_slice(prefix);
        bytes.extend_from_slice(primary);
    };
    postings.put(key, |_| {});
}

/// Returns a prefix with more parts appended.
pub(super) fn key(mut prefix: Vec<u8>, parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().for_each(|part| prefix.extend_from_slice(part));
    prefix
}
