//! View of a database: all methods that read, and none that changes a record.

use super::reserved::{count_records, hidden_in};
use crate::update_log::KeyPartitioning;
use cabinet::table::{IndexDescription, RowView, Table};
use cabinet::{
    Damage, Database, Durability, Error, GoOn, Iteration, KeyOrder, LargeValue, LogPosition,
    Numbered, RecordRef, ReportedKeys, Result, ScanCursor, SteppedScan, Verified, Wanted,
};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Most keys that are looked up together, so that their cache misses overlap.
pub(crate) const KEYS_AHEAD_MAX: usize = 16;

/// A read-only database. The methods are those of [`Database`] by the same name. Lists, scans and
/// the number of records leave out the [reserved](super::reserved) ones.
#[derive(Clone)]
pub(crate) struct View {
    pub(super) database: Database,
}

impl From<Database> for View {
    fn from(database: Database) -> Self {
        Self { database }
    }
}

/// Declares methods that call the methods of the database by the same name.
macro_rules! forward {
    ($(fn $name:ident $(<$($generic:tt),*>)? (&self $(, $argument:ident: $type:ty)*) -> $result:ty;)*) => {
        $(
            #[inline]
            pub(crate) fn $name $(<$($generic),*>)? (&self $(, $argument: $type)*) -> $result {
                self.database.$name($($argument),*)
            }
        )*
    };
}

impl View {
    forward! {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
        fn get_all(&self, key: &[u8]) -> Result<Vec<Vec<u8>>>;
        fn read<T>(&self, key: &[u8], visit: impl FnOnce(RecordRef<'_>) -> T) -> Result<Option<T>>;
        fn read_each(
            &self,
            keys: &[&[u8]],
            visit: impl FnMut(Result<Option<RecordRef<'_>>>) -> ControlFlow<()>
        ) -> Result<()>;
        fn read_row<T>(
            &self,
            key: &[u8],
            visit: impl FnOnce(RowView<'_>) -> T
        ) -> Result<Option<T>>;
        fn read_duplicate<T>(
            &self,
            key: &[u8],
            index: usize,
            visit: impl FnOnce(RecordRef<'_>) -> T
        ) -> Result<Option<T>>;
        fn iteration_from(&self, key: &[u8]) -> Result<Iteration>;
        fn verify<'r>(
            &self,
            go_on: &'r mut GoOn<'r>,
            report: &'r mut dyn FnMut(Damage)
        ) -> Result<Verified>;
        fn count(&self, key: &[u8]) -> Result<usize>;
        fn value_size(&self, key: &[u8]) -> Result<Option<usize>>;
        fn large_value(&self, key: &[u8], bytes_min: usize) -> Result<Option<LargeValue>>;
        fn prefetch(&self, keys: &[&[u8]]) -> ();
        fn scan_cursor_of(&self, key: &[u8]) -> ScanCursor;
        fn as_numbered(&self) -> Option<&dyn Numbered>;
        fn order(&self) -> Option<KeyOrder>;
        fn has_duplicates(&self) -> bool;
        fn evicts(&self) -> bool;
        fn record_bytes(&self, record: &RecordRef<'_>) -> u64;
        fn is_empty(&self) -> bool;
        fn size_bytes(&self) -> u64;
        fn path(&self) -> PathBuf;
        fn appended(&self) -> LogPosition;
        fn durability(&self) -> Durability;
        fn durable(&self) -> LogPosition;
        fn wait_durable(&self, position: LogPosition) -> Result<()>;
        fn expired_keys(&self) -> Option<&ReportedKeys>;
        fn evicted_keys(&self) -> Option<&ReportedKeys>;
        fn report_evicted(&self) -> ();
        fn hand_over_expired(&self) -> ();
        fn stats(&self) -> Vec<(&'static str, String)>;
    }

    pub(crate) fn for_each_key_with_prefix(
        &self,
        prefix: &[u8],
        visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.database.for_each_key_with_prefix(prefix, each_key(self.hidden(), visit))
    }

    pub(crate) fn for_each(
        &self,
        visit: impl FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.database.for_each(each_record(self.hidden(), visit))
    }

    pub(crate) fn for_each_match(
        &self,
        pattern: &[u8],
        visit: impl FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.database.for_each_match(pattern, each_record(self.hidden(), visit))
    }

    pub(crate) fn scan(
        &self,
        from: &ScanCursor,
        mut visit: impl FnMut(RecordRef<'_>),
    ) -> Result<Option<ScanCursor>> {
        let is_hidden = self.hidden();
        self.database.scan(from, |entry| {
            if !is_hidden(entry.key) {
                visit(entry);
            }
        })
    }

    pub(crate) fn scan_keys(
        &self,
        from: &ScanCursor,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<Option<ScanCursor>> {
        let is_hidden = self.hidden();
        self.database.scan_keys(from, |key| {
            if !is_hidden(key) {
                visit(key);
            }
        })
    }

    pub(crate) fn step_iteration(
        &self,
        iteration: &mut Iteration,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<bool> {
        let is_hidden = self.hidden();
        self.database.step_iteration(iteration, |key| {
            if !is_hidden(key) {
                visit(key);
            }
        })
    }

    /// Starts a scan of all records, the reserved ones too.
    pub(crate) fn scan_all(&self, wanted: Wanted) -> Result<SteppedScan<'_>> {
        self.database.full_scan(wanted)
    }

    /// Returns the number of records. If this view must not wait, and a reserved record is only on
    /// the disk, the reserved ones are included.
    pub(crate) fn len(&self) -> u64 {
        self.count_records().unwrap_or_else(|_| self.all_records())
    }

    /// Returns a test of whether a key is that of a reserved record, which is left out.
    pub(crate) fn hidden(&self) -> impl Fn(&[u8]) -> bool + use<> {
        hidden_in(&self.database)
    }

    /// Returns the number of records, or fails where this view must not wait.
    pub(crate) fn count_records(&self) -> Result<u64> {
        match count_records(&self.database) {
            Err(Error::WouldBlock) => Err(Error::WouldBlock),
            // Damage of a reserved record must not hide the number of all others.
            counted => Ok(counted.unwrap_or_else(|_| self.all_records())),
        }
    }

    /// Returns the number of records, the reserved ones included.
    pub(crate) fn all_records(&self) -> u64 {
        self.database.len()
    }

    /// Returns how keys are partitioned.
    pub(crate) fn partitioning(&self) -> KeyPartitioning {
        KeyPartitioning::of(&self.database)
    }

    /// Returns which of `count` partitions a key has, or `None` if it may mean any record.
    /// `partitioning` is that of this database.
    #[inline]
    pub(crate) fn partition_of(
        &self,
        partitioning: KeyPartitioning,
        key: &[u8],
        count: usize,
    ) -> Option<usize> {
        partitioning.partition(&self.database, key, count)
    }

    /// Returns whether records are rows.
    pub(crate) fn has_rows(&self) -> bool {
        self.database.table().is_some()
    }

    /// Returns the last identifier that the table has generated, 0 for other engines.
    pub(crate) fn last_uid(&self) -> u64 {
        self.database.table().map_or(0, Table::last_uid)
    }

    /// Returns the indexes of the table.
    pub(crate) fn indices(&self) -> Vec<IndexDescription> {
        self.database.table().map_or_else(Vec::new, Table::indices)
    }

    /// Makes all changes so far durable.
    pub(crate) fn make_durable(&self) -> Result<()> {
        self.database.sync()
    }
}

/// Returns a visitor of all keys that passes those that are not hidden to `visit`.
fn each_key(
    is_hidden: impl Fn(&[u8]) -> bool,
    mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> impl FnMut(&[u8]) -> ControlFlow<()> {
    move |key| if is_hidden(key) { ControlFlow::Continue(()) } else { visit(key) }
}

/// Returns a visitor of all records that passes those that are not hidden to `visit`.
fn each_record(
    is_hidden: impl Fn(&[u8]) -> bool,
    mut visit: impl FnMut(RecordRef<'_>) -> ControlFlow<()>,
) -> impl FnMut(RecordRef<'_>) -> ControlFlow<()> {
    move |entry| if is_hidden(entry.key) { ControlFlow::Continue(()) } else { visit(entry) }
}
