//! Statements that the upkeep of rows and indexes needs of the cluster: a few, each of which is
//! executed alone. Tests execute them in an order of their own.

use super::definitions::Definitions;
use crate::order::Part;
use crate::records::Changed;
use crate::session::Failure;
use cabinet::Meta;
use server::FoundRecord;
use std::sync::Arc;
use tokio::time::Instant;

/// A row as it was read, or is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRow {
    /// Number that no other change of a row has.
    pub(crate) version: i64,
    /// Number of definitions: indexes with a greater one may lack their entries of this row.
    pub(crate) number: i32,
    /// Names of its entries, for those indexes in which they are not the version.
    pub(crate) names: Names,
    /// Name of its entry in the order of the keys.
    pub(crate) entry: Option<i64>,
    /// The row, encoded. Without it the row was removed.
    pub(crate) value: Option<Vec<u8>>,
}

impl StoredRow {
    /// Returns the row as a record.
    pub(crate) fn record(&self) -> Option<FoundRecord> {
        let (value, version) = (Arc::new(self.value.clone()?), self.version.cast_unsigned());
        Some(FoundRecord { value, meta: Meta::NONE, version })
    }

    /// Returns the name of its entries in an index.
    pub(crate) fn name(&self, index: i32) -> i64 {
        let named = self.names.0.iter().find(|(id, _)| *id == index);
        named.map_or(self.version, |(_, name)| *name)
    }
}

/// Names of the entries of a row, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names(pub(crate) Vec<(i32, i64)>);

/// Bytes of an encoded name.
pub(crate) const NAME_BYTES: usize = size_of::<i32>() + size_of::<i64>();

impl Names {
    /// Returns the bytes that are stored: number of the index and name in turn, little-endian.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let each =
            |(index, name): &(i32, i64)| [&index.to_le_bytes()[..], &name.to_le_bytes()].concat();
        self.0.iter().flat_map(each).collect()
    }

    /// Reads stored bytes. Bytes at the end that are fewer than a name are left out.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let each = |bytes: &[u8; NAME_BYTES]| {
            let [a, b, c, d, name @ ..] = *bytes;
            (i32::from_le_bytes([a, b, c, d]), i64::from_le_bytes(name))
        };
        Self(bytes.as_chunks().0.iter().map(each).collect())
    }
}

/// Entries of a row in one index, all in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entries {
    pub(crate) index: i32,
    pub(crate) name: i64,
    pub(crate) values: Vec<Vec<u8>>,
}

/// The tables of a database. A read sees each change that was acknowledged before.
pub(crate) trait Tables: Send + Sync {
    /// Reads a row.
    fn read(&self, key: &[u8]) -> impl Future<Output = Result<Option<StoredRow>, Failure>> + Send;

    /// Replaces a row in one transaction, if its version and its number are those that were read.
    fn swap(
        &self,
        until: Instant,
        key: &[u8],
        read: Option<&StoredRow>,
        new: &StoredRow,
    ) -> impl Future<Output = Changed> + Send;

    /// Adds an entry to the order of the keys.
    fn add_key(
        &self,
        until: Instant,
        key: &[u8],
        name: i64,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Removes an entry from the order of the keys. One that stays costs readers time.
    fn remove_key(&self, key: &[u8], name: i64) -> impl Future<Output = ()> + Send;

    /// Returns a part of the keys in their order, after one of them.
    fn keys(&self, after: Option<&[u8]>) -> impl Future<Output = Result<Part, Failure>> + Send;

    /// Adds entries of a row.
    fn add_entries(
        &self,
        until: Instant,
        key: &[u8],
        entries: &[Entries],
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Removes entries of a row. Those that stay cost readers time.
    fn remove_entries(&self, key: &[u8], entries: &[Entries]) -> impl Future<Output = ()> + Send;

    /// Removes all entries of an index. Those that stay take space.
    fn remove_index(&self, index: i32) -> impl Future<Output = ()> + Send;

    /// Reads the definitions.
    fn definitions(&self) -> impl Future<Output = Result<Definitions, Failure>> + Send;

    /// Replaces the definitions in one transaction, if their number is `old`.
    fn swap_definitions(&self, old: i32, new: &Definitions)
    -> impl Future<Output = Changed> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_entries_come_back() {
        let names = Names(vec![(1, -2), (i32::MAX, i64::MAX)]);
        assert_eq!(Names::decode(&names.encode()), names);
        assert_eq!(Names::decode(&names.encode()[..23]), Names(vec![(1, -2)]));
        assert_eq!(Names::decode(b""), Names::default());
        let row = StoredRow { version: 7, number: 0, names, entry: None, value: None };
        assert_eq!((row.name(1), row.name(2)), (-2, 7));
    }
}
