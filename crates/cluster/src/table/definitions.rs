//! Indexes of a table, as the keyspace records them for all servers.

use cabinet::table::outside::{ValueLimits, indexed_values};
use cabinet::table::{IndexKind, RowView};

/// Most indexes of a table.
pub(crate) const INDEXES_MAX: usize = 64;

/// Most values under which an index has a row. For rows with more, the index leads to the row
/// whatever is sought. A row is always found by the entries that it was given, so another limit
/// would need another format.
const VALUES_MAX: usize = 16 * 1024;

/// Most bytes of the entries of a row in one index.
const ENTRIES_BYTES_MAX: usize = 1 << 20;

/// Bytes of an entry beside its key and value.
const ENTRY_BYTES: usize = 16;

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

    /// Returns whether there was an index of this number, and will be none any more.
    pub(crate) fn is_gone(&self, id: i32) -> bool {
        id <= self.number && self.find(id).is_none()
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
        let limits = ValueLimits {
            count: VALUES_MAX,
            bytes: ENTRIES_BYTES_MAX,
            bytes_beside: key.len() + ENTRY_BYTES,
        };
        indexed_values(self.kind, &self.column, value, limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cabinet::table::Row;

    #[test]
    fn an_index_that_another_server_may_have_added_is_not_gone() {
        let kind = IndexKind::Lexical;
        let index = |id| Definition { id, column: b"c".to_vec(), kind, is_ready: false };
        let definitions = Definitions { number: 5, indexes: vec![index(2), index(5)] };
        let gone: Vec<i32> = (1..9).filter(|id| definitions.is_gone(*id)).collect();
        assert_eq!(gone, [1, 3, 4]);
    }

    #[test]
    fn the_entries_of_a_row_are_limited() {
        let words = |count: usize| {
            let words: Vec<String> = (0..count).map(|number| format!("w{number:05}")).collect();
            Row::new().with(b"c", words.join(" ").as_bytes()).unwrap().encode().unwrap()
        };
        let index = |kind| Definition { id: 1, column: b"c".to_vec(), kind, is_ready: true };
        let max = VALUES_MAX;
        // One value more leads to all rows that have too many.
        for (count, values) in [(max - 1, max - 1), (max, max), (max + 1, max), (max + 2, max)] {
            assert_eq!(index(IndexKind::Token).values(b"k", &words(count)).len(), values);
        }
        let long = vec![b'k'; 65_534];
        assert_eq!(index(IndexKind::Token).values(&long, &words(15)).len(), 15);
        assert_eq!(index(IndexKind::Token).values(&long, &words(100)).len(), 15 + 1);
        assert_eq!(index(IndexKind::Lexical).values(&long, &words(100)).len(), 1);
        assert!(index(IndexKind::Lexical).values(b"k", b"").is_empty());
    }
}
