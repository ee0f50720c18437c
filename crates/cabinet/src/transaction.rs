//! Transactions: changes that are collected, and then written together or not at all.
//!
//! A transaction is optimistic: it takes no locks. It notes the version of every record that it
//! reads. On commit it passes the changes with these versions to [`Engine::write`], which refuses
//! all of them if one of these records has changed since. So transactions are serializable as far
//! as single records are concerned. A scan sees the database without the transaction's own changes,
//! and is not checked on commit.

use crate::limits::BATCH_BYTES_MAX;
use crate::{
    Batch, BatchChange, Change, Database, Engine, Error, Family, FullScan, IterationState,
    LargeValue, Logged, Maintenance, Medium, Meta, Options, RecordRef, Result, ScanCursor,
    SnapshotBarrier, Version, Visitor, Wait, Wanted, engine::batch_plan,
};
use crate::{Decide, Visit, VisitKey};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// First of the versions that records have within the transaction that has put them.
const PROVISIONAL_VERSIONS: Version = 1 << 63;

/// Bytes that a change or a noted version takes besides the key and the value.
const ENTRY_BYTES: usize = 64;

/// Changes that become visible to other handles all at once, on [`Transaction::commit`]. Dropping
/// the transaction discards them.
///
/// All operations on records of [`Database`] work within the transaction, and see its own changes.
///
/// ```
/// # fn main() -> cabinet::Result<()> {
/// let database = cabinet::Database::open("*")?;
/// database.add_int(b"alice", 10)?;
///
/// let transfer = database.transaction();
/// transfer.add_int(b"alice", -3)?;
/// transfer.add_int(b"bob", 3)?;
/// assert_eq!(database.get(b"bob")?, None);
/// transfer.commit()?;
/// assert_eq!(database.add_int(b"bob", 0)?, 3);
/// # Ok(())
/// # }
/// ```
pub struct Transaction {
    target: Database,
    buffer: Arc<Buffer>,
    /// The buffer, with the operations of a database.
    within: Database,
}

impl Database {
    /// Begins a transaction. It may hold [`BATCH_BYTES_MAX`] bytes. Operations beyond that fail
    /// with [`Error::BatchTooLong`], and leave the transaction as it was.
    pub fn transaction(&self) -> Transaction {
        self.transaction_up_to(BATCH_BYTES_MAX)
    }

    /// Begins a transaction that may hold `bytes_max` bytes of keys and values, with 64 bytes for
    /// each record.
    pub fn transaction_up_to(&self, bytes_max: usize) -> Transaction {
        self.transaction_within(bytes_max, |_| true)
    }

    /// Begins a transaction that may hold `bytes_max` bytes, and calls `has_room` with their number
    /// before it takes more. If that returns `false`, the operation fails with
    /// [`Error::NoRoom`]. The function is dropped with the last handle on the transaction,
    /// which may be after the commit.
    pub fn transaction_within(
        &self,
        bytes_max: usize,
        has_room: impl FnMut(usize) -> bool + Send + 'static,
    ) -> Transaction {
        let has_room = Box::new(has_room);
        let state = State {
            changes: BTreeMap::new(),
            expected: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            has_room,
            puts: 0,
        };
        let state = Mutex::new(state);
        let buffer = Arc::new(Buffer { target: self.clone(), state });
        Transaction {
            target: self.clone(),
            // Callbacks of the transaction count as callbacks of the database, and the reverse.
            within: Database::with_engine_id(Arc::clone(&buffer) as _, self.engine_id()),
            buffer,
        }
    }
}

impl Transaction {
    /// Writes the changes. Fails with [`Error::Conflict`], having written nothing, if another
    /// writer has changed a record that the transaction has read.
    pub fn commit(self) -> Result<()> {
        let target = self.target.clone();
        target.enter()?;
        target.write(&self.into_batch())
    }

    /// Returns the changes, with the versions of the records that were read. [`Database::write`]
    /// of the batch commits them.
    pub fn into_batch(self) -> Batch {
        self.buffer.state.lock().take_batch()
    }

    /// Discards the changes, as dropping the transaction does.
    pub fn abort(self) {}
}

impl Deref for Transaction {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.within
    }
}

/// The changes of a transaction, over the contents of the database.
struct Buffer {
    target: Database,
    state: Mutex<State>,
}

struct State {
    changes: BTreeMap<Vec<u8>, Pending>,
    /// Versions of the records that were read from the database.
    expected: BTreeMap<Vec<u8>, Option<Version>>,
    bytes: usize,
    bytes_max: usize,
    /// Returns whether there is memory for this many bytes.
    has_room: Box<dyn FnMut(usize) -> bool + Send>,
    puts: u64,
}

/// Change of a record that the commit will make.
enum Pending {
    Put { value: Vec<u8>, meta: Meta, version: Version },
    Remove,
}

impl Pending {
    fn bytes(&self) -> usize {
        match self {
            Self::Put { value, .. } => value.len(),
            Self::Remove => 0,
        }
    }
}

impl State {
    /// Sets the change of a record. Returns its provisional version, or 0.
    fn set(&mut self, key: &[u8], change: Change) -> Result<Version> {
        let (pending, version) = match change {
            Change::Keep => return Ok(0),
            Change::Remove => (Pending::Remove, 0),
            Change::Put(value, meta) => {
                let version = PROVISIONAL_VERSIONS + self.puts;
                (Pending::Put { value, meta, version }, version)
            }
        };
        let old = self.changes.get(key).map_or(0, |old| entry_bytes(key) + old.bytes());
        let bytes = self.bytes - old + entry_bytes(key) + pending.bytes();
        self.check_bytes(bytes)?;
        self.bytes = bytes;
        self.puts += 1;
        self.changes.insert(key.to_vec(), pending);
        Ok(version)
    }

    /// Records that a record was read. The version of the first read counts.
    fn expect(&mut self, key: &[u8], version: Option<Version>) -> Result<()> {
        if !self.expected.contains_key(key) {
            let bytes = self.bytes + entry_bytes(key);
            self.check_bytes(bytes)?;
            self.bytes = bytes;
            self.expected.insert(key.to_vec(), version);
        }
        Ok(())
    }

    /// Fails if the transaction may not hold this many bytes.
    fn check_bytes(&mut self, bytes: usize) -> Result<()> {
        if bytes > self.bytes_max {
            return Err(Error::BatchTooLong { bytes, max: self.bytes_max });
        }
        if bytes > self.bytes && !(self.has_room)(bytes) {
            return Err(Error::NoRoom { bytes });
        }
        Ok(())
    }

    /// Takes the changes, one after the other, so that two copies of all are never there.
    fn take_batch(&mut self) -> Batch {
        let bytes = self.changes.iter().map(|(key, pending)| key.len() + pending.bytes()).sum();
        let mut batch = Batch::with_capacity(self.changes.len(), bytes);
        batch.expected.extend(std::mem::take(&mut self.expected));
        for (key, pending) in std::mem::take(&mut self.changes) {
            match pending {
                Pending::Put { value, meta, .. } => batch.put(&key, &value, meta),
                Pending::Remove => batch.remove(&key),
            }
        }
        batch
    }
}

fn entry_bytes(key: &[u8]) -> usize {
    key.len() + ENTRY_BYTES
}

impl Buffer {
    /// Calls `visit` with a record, or with `None` if there is none, as the transaction has it.
    fn look<T>(
        &self,
        state: &mut State,
        key: &[u8],
        visit: impl FnOnce(Option<RecordRef<'_>>) -> T,
    ) -> Result<T> {
        match state.changes.get(key) {
            Some(Pending::Remove) => return Ok(visit(None)),
            Some(&Pending::Put { ref value, meta, version }) => {
                return Ok(visit(Some(RecordRef { key, value, meta, version })));
            }
            None => {}
        }
        let mut visit = Some(visit);
        let (mut version, mut result) = (None, None);
        self.target.engine().read(key, self.target.wait(), &mut |entry| {
            version = Some(entry.version);
            result = visit.take().map(|visit| visit(Some(entry)));
        })?;
        state.expect(key, version)?;
        match (result, visit) {
            (Some(result), _) => Ok(result),
            (None, Some(visit)) => Ok(visit(None)),
            // `read` calls its closure at most once.
            (None, None) => Err(Error::Internal("a read has called no closure".into())),
        }
    }
}

impl Engine for Buffer {
    fn read(&self, key: &[u8], _wait: Wait, visit: &mut Visit<'_>) -> Result<bool> {
        let key = &*self.target.engine().canonical_key(key)?;
        self.look(&mut self.state.lock(), key, |entry| entry.map(visit).is_some())
    }

    fn put(&self, key: &[u8], value: &[u8], meta: Meta, _wait: Wait) -> Result<Version> {
        let key = &*self.target.engine().canonical_key(key)?;
        self.state.lock().set(key, Change::Put(value.to_vec(), meta))
    }

    fn update(&self, key: &[u8], _wait: Wait, decide: &mut Decide<'_>) -> Result<Version> {
        let key = &*self.target.engine().canonical_key(key)?;
        let mut state = self.state.lock();
        let change = self.look(&mut state, key, decide)?;
        state.set(key, change)
    }

    /// Adds a batch, or a transaction within this one, to the changes.
    fn write(&self, batch: &Batch, _wait: Wait) -> Result<()> {
        let mut state = self.state.lock();
        batch_plan::check_expected(&batch.expected, |key| {
            let key = &*self.target.engine().canonical_key(key)?;
            self.look(&mut state, key, |entry| entry.map(|entry| entry.version))
        })?;
        let more = |(key, change): (&[u8], BatchChange<'_>)| match change {
            BatchChange::Put(value, _) => entry_bytes(key) + value.len(),
            BatchChange::Remove => entry_bytes(key),
        };
        let bytes = state.bytes + batch.changes().map(more).sum::<usize>();
        state.check_bytes(bytes)?;
        for (key, change) in batch.changes() {
            let change = match change {
                BatchChange::Put(value, meta) => Change::Put(value.to_vec(), meta),
                BatchChange::Remove => Change::Remove,
            };
            state.set(&self.target.engine().canonical_key(key)?, change)?;
        }
        Ok(())
    }

    fn scan(&self, from: &ScanCursor, visitor: Visitor<'_>) -> Result<Option<ScanCursor>> {
        self.target.engine().scan(from, visitor)
    }

    fn full_scan(&self, wanted: Wanted, is_in_order: bool) -> Result<Box<dyn FullScan + '_>> {
        self.target.engine().full_scan(wanted, is_in_order)
    }

    fn scan_cursor_of(&self, key: &[u8]) -> ScanCursor {
        self.target.scan_cursor_of(key)
    }

    fn canonical_key<'k>(&self, key: &'k [u8]) -> Result<Cow<'k, [u8]>> {
        self.target.engine().canonical_key(key)
    }

    /// Returns the family of operations. A transaction has no duplicates, and does not know ids
    /// before the commit.
    fn family(&self) -> Family<'_> {
        match self.target.engine().family() {
            Family::Ordered(engine) => Family::Sorted(engine.order()),
            Family::Sorted(order) => Family::Sorted(order),
            Family::Logged(_) => Family::Logged(self),
            Family::Unordered | Family::Numbered(_) => Family::Unordered,
        }
    }
}

/// An iteration sees the database as it is, as a scan does.
impl Logged for Buffer {
    /// The transaction may have changed the value.
    fn large_value(&self, _: &[u8], _: usize, _: Wait) -> Result<Option<LargeValue>> {
        Ok(None)
    }

    fn iteration(&self, from: Option<&[u8]>) -> Result<Option<IterationState>> {
        let logged = self.target.engine().as_logged();
        logged.map_or(Ok(None), |engine| engine.iteration(from))
    }

    fn step_iteration(
        &self,
        iteration: &mut IterationState,
        visit: &mut VisitKey<'_>,
    ) -> Result<bool> {
        let engine = self.target.engine().as_logged().ok_or_else(IterationState::foreign)?;
        engine.step_iteration(iteration, visit)
    }
}

impl Maintenance for Buffer {
    fn len(&self) -> u64 {
        self.target.len()
    }

    fn record_bytes(&self, record: &RecordRef<'_>) -> u64 {
        self.target.engine().record_bytes(record)
    }

    fn is_read_only(&self) -> bool {
        self.target.is_read_only()
    }

    fn optimize(&self, _options: Option<&Options>) -> Result<()> {
        Err(not_within("optimize"))
    }

    fn replace_all(&self, _batch: &Batch) -> Result<()> {
        Err(not_within("clear"))
    }

    fn medium(&self) -> &dyn Medium {
        self
    }
}

impl Medium for Buffer {
    fn path(&self) -> PathBuf {
        self.target.path()
    }

    fn size_bytes(&self) -> u64 {
        self.target.size_bytes()
    }

    fn copy_at(&self, _path: &Path, _barrier: &mut SnapshotBarrier<'_>) -> Result<()> {
        Err(not_within("copy"))
    }

    fn sync(&self) -> Result<()> {
        Err(not_within("sync"))
    }
}

fn not_within(operation: &'static str) -> Error {
    Error::Unsupported { operation, kind: "a transaction", advice: "call it before or after" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_beyond_the_limit_are_refused_and_the_transaction_continues() {
        let database = Database::open("*").unwrap();
        let transaction = database.transaction_up_to(2 * ENTRY_BYTES + 100);
        let refused = |result: Result<Version>| matches!(result, Err(Error::BatchTooLong { .. }));
        transaction.put(b"a", &[0; 50]).unwrap();
        assert!(refused(transaction.put(b"b", &[0; 49])));
        transaction.put(b"b", &[0; 48]).unwrap();
        transaction.put(b"b", &[0; 47]).unwrap();
        assert!(matches!(transaction.get(b"c"), Err(Error::BatchTooLong { .. })));
        assert!(refused(transaction.put(b"a", &[0; 52])));
        transaction.put(b"a", &[0; 51]).unwrap();
        transaction.commit().unwrap();
        assert_eq!(database.value_size(b"a").unwrap(), Some(51));
        assert_eq!(database.value_size(b"b").unwrap(), Some(47));
    }

    #[test]
    fn memory_is_asked_for_before_it_is_taken_and_held_until_the_commit_is_over() {
        let database = Database::open("*").unwrap();
        let room = Arc::new(Mutex::new(0));
        let asked = Arc::clone(&room);
        let transaction = database.transaction_within(1 << 20, move |bytes| {
            *asked.lock() = bytes;
            bytes <= 2 * (ENTRY_BYTES + 51)
        });
        transaction.put(b"a", &[0; 50]).unwrap();
        assert_eq!(*room.lock(), ENTRY_BYTES + 51);
        transaction.put(b"a", &[0; 40]).unwrap();
        let refused = |result: Result<Version>| matches!(result, Err(Error::NoRoom { .. }));
        assert!(refused(transaction.put(b"b", &[0; 62])));
        transaction.put(b"b", &[0; 60]).unwrap();
        assert!(matches!(transaction.get(b"c"), Err(Error::NoRoom { .. })));
        let within = transaction.clone();
        assert_eq!(transaction.into_batch().changes().len(), 2);
        assert_eq!(Arc::strong_count(&room), 2);
        drop(within);
        assert_eq!(Arc::strong_count(&room), 1);
    }
}
