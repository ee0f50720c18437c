//! Indexes of a table, as the keyspace records them for all servers.

use cabinet::table::outside::indexed_values;
use cabinet::table::{IndexKind, RowView};

/// Most indexes of a table.
pub(crate) const INDEXES_MAX: usize = 64;

/// Most values under which an index has a row. For rows with more, the index leads to the row
/// whatever is sought. A row is always found by the entries that it was given, so another limit
/// would need another format.
const VALUES_MAX: usize = 16 * 1024;

/// Most bytes of the entries of a row in one index, about.
const ENTRIES_BYTES_MAX: usize = 1 << 20;

/// Bytes of an entry without its key: in q-gram indexes, and the most in others.
const GRAM_BYTES: usize = 32;
const VALUE_BYTES: usize = 1056;

/// All indexes of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Definitions {
    /// Grows with each change of the indexes.
    pub(crate) number: i32,
    pub(crate) indexes: Vec<Definition>,
}

/// An index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    /// Number of the definitions with which it was added. No other index has it.
    pub(crate) id: i32,
    /// Name of the column; empty is the primary key.
    pub(crate) column: Vec<u8>,
    pub(crate) kind: IndexKind,
    /// Whether all rows have their entries, so that queries may use it. Before that, only changes
    /// of rows do.
    pub(crate) is_ready: bool,
}

impl Definitions {
    pub(crate) fn find(&self, id: i32) -> Option<&Definition> {
        self.indexes.iter().find(|index| index.id == id)
    }

    /// Returns whether queries may use an index.
    pub(crate) fn is_ready(&self, id: i32) -> bool {
        self.find(id).is_some_and(|index| index.is_ready)
    }
}

impl Definition {
    /// Returns whether the order of the keys is the index, which has no entries then.
    pub(crate) fn is_of_keys(&self) -> bool {
        self.column.is_empty() && self.kind == IndexKind::Lexical
    }

    /// Returns the value of a row in the column.
    pub(crate) fn value<'r>(&self, key: &'r [u8], row: RowView<'r>) -> Option<&'r [u8]> {
        if self.column.is_empty() { Some(key) } else { row.get(&self.column) }
    }

    /// Returns the values under which the index has a row, in their order. The row is given as it
    /// is stored.
    pub(crate) fn values(&self, key: &[u8], stored: &[u8]) -> Vec<Vec<u8>> {
        let Some(value) = self.value(key, RowView::new(stored)) else { return Vec::new() };
        let bytes = if self.kind == IndexKind::Gram { GRAM_BYTES } else { VALUE_BYTES };
        let max = (ENTRIES_BYTES_MAX / (bytes + key.len())).clamp(1, VALUES_MAX);
        indexed_values(self.kind, &self.column, value, max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cabinet::table::Row;

    #[test]
    fn the_entries_of_a_row_are_limited() {
        let words = |count: usize| {
            let words: Vec<String> = (0..count).map(|number| format!("w{number}")).collect();
            Row::new().with(b"c", words.join(" ").as_bytes()).unwrap().encode().unwrap()
        };
        let index = |kind| Definition { id: 1, column: b"c".to_vec(), kind, is_ready: true };
        let max = ENTRIES_BYTES_MAX / (VALUE_BYTES + 1);
        for (count, values) in [(max - 1, max - 1), (max, max), (max + 1, max + 1)] {
            assert_eq!(index(IndexKind::Token).values(b"k", &words(count)).len(), values);
        }
        // One value more leads to all rows that have too many.
        assert_eq!(index(IndexKind::Token).values(b"k", &words(max + 2)).len(), max + 1);
        let long = vec![b'k'; 65_534];
        assert_eq!(index(IndexKind::Token).values(&long, &words(100)).len(), 16);
        assert_eq!(index(IndexKind::Lexical).values(&long, &words(100)).len(), 1);
        assert!(index(IndexKind::Lexical).values(b"k", b"").is_empty());
    }
}
