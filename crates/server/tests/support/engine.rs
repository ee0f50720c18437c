//! Engine whose disk the test controls.

use cabinet::{
    Batch, Change, Damage, Decide, Durability, DurableListener, Engine, Error, Family, GoOn,
    KeyOrder, LogPosition, Maintenance, Medium, Meta, Options, Persistence, RecordRef, Result,
    ScanCursor, SnapshotBarrier, Verified, Version, Visit, Visitor, Wait,
};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

/// Engine with records in memory, in the order of their keys, and a simulated disk that can be
/// slow, full or broken.
#[derive(Default)]
pub(crate) struct ManualEngine {
    state: Mutex<State>,
    changed: Condvar,
    durability: Durability,
    path: PathBuf,
}

/// A key and a value.
type Record = (Vec<u8>, Vec<u8>);

#[derive(Default)]
struct State {
    records: BTreeMap<Vec<u8>, (Vec<u8>, Meta, Version)>,
    appended: LogPosition,
    durable: LogPosition,
    failed: bool,
    full: bool,
    /// Keys whose records are only on the disk.
    cold: HashSet<Vec<u8>>,
    /// Whether the disk answers.
    stalled: bool,
    /// Number of reads that wait for the disk.
    waiting: usize,
    /// A key, and the record that another client puts right after a put under that key.
    next: Option<(Vec<u8>, Record)>,
    listeners: Vec<DurableListener>,
}

impl ManualEngine {
    pub(crate) fn new(path: impl Into<PathBuf>, durability: Durability) -> Arc<Self> {
        Arc::new(Self { durability, path: path.into(), ..Self::default() })
    }

    /// Moves the record under `key` from memory to the disk.
    pub(crate) fn cool(&self, key: &[u8]) {
        self.state.lock().unwrap().cold.insert(key.to_vec());
    }

    /// Blocks or releases reads from the disk.
    pub(crate) fn set_stalled(&self, stalled: bool) {
        self.state.lock().unwrap().stalled = stalled;
        self.changed.notify_all();
    }

    /// Number of reads that wait for the disk.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().unwrap().waiting
    }

    /// Puts another record right after the next put under `key`.
    pub(crate) fn put_after(&self, key: &[u8], (other, value): (&[u8], &[u8])) {
        let next = (key.to_vec(), (other.to_vec(), value.to_vec()));
        self.state.lock().unwrap().next = Some(next);
    }

    /// Refuses writes for lack of space from now on, or accepts them.
    pub(crate) fn set_full(&self, full: bool) {
        self.state.lock().unwrap().full = full;
    }

    /// Makes all writes so far durable.
    pub(crate) fn make_durable(&self) {
        let mut state = self.state.lock().unwrap();
        state.durable = state.appended;
        self.notify(state);
    }

    /// Makes the writes before `position` durable.
    pub(crate) fn make_durable_up_to(&self, position: LogPosition) {
        let mut state = self.state.lock().unwrap();
        state.durable = position;
        self.notify(state);
    }

    /// Breaks the disk: no further write becomes durable.
    pub(crate) fn fail(&self) {
        let mut state = self.state.lock().unwrap();
        state.failed = true;
        self.notify(state);
    }

    fn notify(&self, state: std::sync::MutexGuard<'_, State>) {
        let (listeners, durable) = (state.listeners.clone(), state.durable);
        drop(state);
        self.changed.notify_all();
        for listener in listeners {
            listener(durable);
        }
    }

    /// Returns the state once the record under `key` may be read.
    fn wait_for_record(&self, key: &[u8], wait: Wait) -> Result<std::sync::MutexGuard<'_, State>> {
        let mut state = self.state.lock().unwrap();
        if !state.cold.contains(key) {
            return Ok(state);
        }
        if wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        state.waiting += 1;
        while state.stalled {
            state = self.changed.wait(state).unwrap();
        }
        state.waiting -= 1;
        Ok(state)
    }

    fn check_write(&self, state: &State) -> Result<()> {
        if state.failed {
            return Err(Error::Poisoned("the disk is gone".into()));
        }
        if state.full {
            return Err(Error::NoSpace { path: self.path.clone() });
        }
        Ok(())
    }
}

impl State {
    fn apply(&mut self, key: &[u8], change: Change) -> Version {
        match change {
            Change::Keep => 0,
            Change::Put(value, meta) => {
                self.appended += 1;
                self.records.insert(key.to_vec(), (value, meta, self.appended));
                self.appended
            }
            Change::Remove => {
                self.appended += 1;
                self.records.remove(key);
                0
            }
        }
    }
}

impl Engine for ManualEngine {
    fn read(&self, key: &[u8], wait: Wait, visit: &mut Visit<'_>) -> Result<bool> {
        let state = self.wait_for_record(key, wait)?;
        let Some((value, meta, version)) = state.records.get(key) else { return Ok(false) };
        visit(RecordRef { key, value, meta: *meta, version: *version });
        Ok(true)
    }

    fn put(&self, key: &[u8], value: &[u8], meta: Meta, _wait: Wait) -> Result<Version> {
        let mut state = self.state.lock().unwrap();
        self.check_write(&state)?;
        let version = state.apply(key, Change::Put(value.to_vec(), meta));
        if let Some((_, (other, value))) = state.next.take_if(|(after, _)| after == key) {
            state.apply(&other, Change::Put(value, Meta::NONE));
        }
        Ok(version)
    }

    fn update(&self, key: &[u8], wait: Wait, decide: &mut Decide<'_>) -> Result<Version> {
        let mut state = self.wait_for_record(key, wait)?;
        self.check_write(&state)?;
        let change = decide(state.records.get(key).map(|(value, meta, version)| RecordRef {
            key,
            value,
            meta: *meta,
            version: *version,
        }));
        Ok(state.apply(key, change))
    }

    fn write(&self, _batch: &Batch, _wait: Wait) -> Result<()> {
        Err(Error::Unsupported {
            operation: "batches",
            kind: "this engine",
            advice: "write one by one",
        })
    }

    fn scan(&self, from: &ScanCursor, visitor: Visitor<'_>) -> Result<Option<ScanCursor>> {
        let state = self.state.lock().unwrap();
        let from = match from {
            ScanCursor::Key(key) => key.clone(),
            _ => Vec::new(),
        };
        let mut range = state.records.range(from..);
        visitor.of_records(|visit| {
            // Few records per call, so that tests cover the seams.
            for (key, (value, meta, version)) in range.by_ref().take(2) {
                visit(RecordRef { key, value, meta: *meta, version: *version });
            }
        });
        Ok(range.next().map(|(key, _)| ScanCursor::Key(key.clone())))
    }

    fn scan_cursor_of(&self, key: &[u8]) -> ScanCursor {
        ScanCursor::Key(key.to_vec())
    }

    fn family(&self) -> Family<'_> {
        Family::Sorted(KeyOrder::Lexical)
    }
}

impl Maintenance for ManualEngine {
    fn len(&self) -> u64 {
        self.state.lock().unwrap().records.len() as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn stats(&self) -> Vec<(&'static str, String)> {
        let is_full = self.state.lock().unwrap().full;
        is_full.then(|| ("write_refusal", "the disk is full".to_owned())).into_iter().collect()
    }

    fn optimize(&self, _options: Option<&Options>) -> Result<()> {
        Ok(())
    }

    fn replace_all(&self, batch: &Batch) -> Result<()> {
        assert!(batch.is_empty(), "the server removes all records, and does no more");
        let mut state = self.state.lock().unwrap();
        state.appended += 1;
        state.records.clear();
        Ok(())
    }

    fn medium(&self) -> &dyn Medium {
        self
    }

    fn persistence(&self) -> Option<&dyn Persistence> {
        Some(self)
    }
}

impl Medium for ManualEngine {
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn size_bytes(&self) -> u64 {
        0
    }

    fn copy_at(&self, _path: &Path, _barrier: &mut SnapshotBarrier<'_>) -> Result<()> {
        Err(Error::Unsupported { operation: "copies", kind: "this engine", advice: "copy by hand" })
    }

    fn sync(&self) -> Result<()> {
        self.make_durable();
        Ok(())
    }
}

impl Persistence for ManualEngine {
    fn damages(&self) -> Vec<Damage> {
        Vec::new()
    }

    fn verify<'r>(
        &self,
        _go_on: &'r mut GoOn<'r>,
        _report: &'r mut dyn FnMut(Damage),
    ) -> Result<Verified> {
        Ok(Verified { is_complete: true, ..Verified::default() })
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn appended(&self) -> LogPosition {
        self.state.lock().unwrap().appended
    }

    fn durable(&self) -> LogPosition {
        self.state.lock().unwrap().durable
    }

    fn wait_durable(&self, position: LogPosition) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        while state.durable < position {
            if state.failed {
                return Err(Error::Poisoned("the disk is gone".into()));
            }
            state = self.changed.wait(state).unwrap();
        }
        Ok(())
    }

    fn on_durable(&self, listener: DurableListener) {
        self.state.lock().unwrap().listeners.push(listener);
    }
}
