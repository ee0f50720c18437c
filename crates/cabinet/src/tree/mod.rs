//! The B+ tree database (`.tcb`): keys in order, over a log on disk.
//!
//! Only leaves are [pages](page). They are records of the log, beside the [redo](redo) records of
//! the changes since. The inner levels are the [directory](directory), in memory. The page of a
//! leaf is either only in the log, and a read searches it in the mapping, or in memory, and can be
//! changed. The memory of pages and leaves has a [budget](cache). A [checkpoint](checkpoint) lists
//! all leaves. Before it, the log has nothing but these pages that is still needed.
//!
//! # Locks
//!
//! Each leaf has a lock, so writers of different leaves contend only at the tail of the log. A
//! change appends to the log under the lock of its leaf. So the log has the changes of each leaf in
//! order, and one sequence number tells which of them a page contains. The directory's lock is held
//! for searches, and while leaves are divided and joined, but never while waiting for another lock.
//! A thread locks several leaves in ascending order of keys.
//!
//! Order: `structure`, the log's `maintenance`, leaves, directory, the other locks of the log.
//! [`crate::base::locks`] lists the locks that an event loop waits for.
//!
//! # Cost
//!
//! A read is a search of two arrays of 8-byte heads, one of 4-byte heads, and a record: about ten
//! cache misses in a large tree. A write costs a read, one append, and a move of the later heads
//! and slots in the leaf. A leaf whose page is only in the log takes about 180 bytes of memory.

mod admission;
mod batch;
mod cache;
mod capacity;
mod cell;
mod checkpoint;
mod cover;
mod directory;
mod evict;
mod full_scan;
mod key_scan;
mod leaf;
mod leaf_access;
mod leaf_scan;
mod maintenance;
mod page;
mod read_ahead;
mod rebuild;
mod recover;
mod redo;
mod replace_all;
mod seek;
mod signs;
#[cfg(test)]
mod wait_tests;

pub(crate) use checkpoint::listed_pages;
#[cfg(feature = "table")]
pub(crate) use evict::{bytes_kept, records_bytes_max};
#[cfg(feature = "table")]
pub(crate) use rebuild::Rebuilt;
pub(crate) use rebuild::{Target, rebuild};
pub(crate) use recover::order_of;
pub(crate) use signs::Signs;

use crate::base::expired::ExpiryStats;
use crate::engine::ordered::{Eviction, Ordered, PlaceChange, Seek, Side};
use crate::io::Storage;
use crate::limits::VALUE_BYTES_MAX;
use crate::log::record::RECORD_BYTES_MAX;
use crate::log::{Background, Log, Pressure, StoredKind, Usage};
use crate::{
    Batch, Change, Clock, Compression, Decide, Engine, Error, Family, FullScan, KeyOrder,
    KeyReports, Maintenance, Medium, Meta, Options, Persistence, Result, ScanCursor, Version,
    Visit, VisitPlaced, Visitor, Wait, Wanted,
};
use cache::Cache;
use capacity::RecordCap;
use checkpoint::Reclaimed;
use directory::Directory;
use evict::ByteCap;
use leaf::{Handle, State};
use parking_lot::{Mutex, RwLock};
use redo::Operation;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of a leaf's page above which the leaf is divided.
const LEAF_BYTES: usize = 8 << 10;

/// Expiry time of leaves in which no record expires, in milliseconds since the Unix epoch.
const NEVER_MS: u64 = u64::MAX;

/// Value of the next expiry time during a sweep, which finds out whether any record expires.
const SWEEPING_MS: u64 = NEVER_MS - 1;

/// Time that a writer waits once in [`BEHIND_WRITES`] writes while checkpoints cannot keep up.
const BEHIND_PAUSE: Duration = Duration::from_millis(6);
/// Writes per pause.
const BEHIND_WRITES: u32 = 64;

/// A B+ tree database. Closed when dropped.
pub struct TreeDatabase {
    engine: Arc<TreeEngine>,
    background: Mutex<Option<Background>>,
    is_read_only: bool,
}

struct TreeEngine {
    log: Log,
    order: KeyOrder,
    compression: Compression,
    clock: Clock,
    expired: ExpiryStats,
    leaf_bytes: usize,
    /// Cap on records, enforced when a leaf is divided.
    record_cap: RecordCap,
    /// Cap on the bytes of all pages.
    cap: ByteCap,
    directory: RwLock<Directory<Handle>>,
    /// Bytes of the list of leaves in the last checkpoint.
    list_bytes: AtomicU64,
    cache: Cache,
    records: AtomicU64,
    next_id: AtomicU64,
    /// Lower bound of the time at which a record expires next, in milliseconds since the Unix
    /// epoch.
    next_expiry_ms: AtomicU64,
    /// Bytes that the opening replayed, until the next checkpoint.
    replayed_bytes: AtomicU64,
    /// Bytes among those of a replay that are not redo: pages, and changes before the last clear.
    passed_bytes: AtomicU64,
    /// Held by walks through all leaves during which none may be joined or cleared.
    structure: Mutex<()>,
    /// Whether there are background threads.
    is_maintained: AtomicBool,
    /// Whether the tree is not opened again, so that closing it need not write anything.
    is_scratch: AtomicBool,
    /// Bytes of redo above which writers are slowed down, as last computed.
    behind_bytes: AtomicU64,
    /// Number of writes made while checkpoints could not keep up.
    paused: AtomicU32,
    pages_read: AtomicU64,
    pages_written: AtomicU64,
    evictions: AtomicU64,
    /// Pages that scans have brought into memory.
    brought: read_ahead::Brought,
    reclaimed: Mutex<Reclaimed>,
}

impl TreeDatabase {
    /// Opens the database in a directory, or creates it there. Fails if the database is already
    /// open, damaged, of another kind or in another order.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        Self::open_on(crate::io::storage(options.read_only), path, options, !options.read_only)
    }

    /// Like `open`, on a storage of the caller's. Without background threads, the caller does their
    /// work with `run_maintenance`.
    pub fn open_on(
        storage: Arc<dyn Storage>,
        path: &Path,
        options: &Options,
        background: bool,
    ) -> Result<Self> {
        Self::open_kind(storage, path, options, background, StoredKind::Tree)
    }

    /// Like `open_on`, for a tree that [`crate::table::Table::new`] makes a table of.
    pub fn open_table_on(
        storage: Arc<dyn Storage>,
        path: &Path,
        options: &Options,
        background: bool,
    ) -> Result<Self> {
        let options = Options { order: Some(KeyOrder::Lexical), ..options.clone() };
        Self::open_kind(storage, path, &options, background, StoredKind::Table)
    }

    /// Creates an empty tree that is used once and never opened again.
    pub(crate) fn scratch(storage: Arc<dyn Storage>, path: &Path, order: KeyOrder) -> Result<Self> {
        let options = Options { order: Some(order), ..Options::default() };
        let tree = Self::open_on(storage, path, &options, false)?;
        tree.engine.is_scratch.store(true, Ordering::Relaxed);
        Ok(tree)
    }

    fn open_kind(
        storage: Arc<dyn Storage>,
        path: &Path,
        options: &Options,
        background: bool,
        kind: StoredKind,
    ) -> Result<Self> {
        let note = (kind == StoredKind::Table).then(crate::base::table_keys::suspicion);
        let engine = Arc::new(recover::open(storage, path, options, kind, note.as_deref())?);
        engine.log.space().quota().keep_space_for_checkpoints();
        if options.truncate {
            engine.clear()?;
        }
        let background = background.then(|| Background::start(&engine)).transpose()?;
        engine.is_maintained.store(background.is_some(), Ordering::Relaxed);
        engine.note_due_bytes();
        let is_read_only = options.read_only;
        Ok(Self { engine, background: Mutex::new(background), is_read_only })
    }

    /// Does one round of the background threads' work: sweeps expired records, evicts records over
    /// the cap, and writes a checkpoint if one is due.
    #[cfg(feature = "testing")]
    pub fn run_maintenance(&self) -> Result<()> {
        maintenance::run_maintenance(&self.engine)
    }

    /// Writes a checkpoint, so that the next opening need not replay the changes so far, and frees
    /// dead space.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine.checkpoint(false)
    }

    /// Returns the bytes of the pages in memory, see [`Options::cache_bytes`].
    #[cfg(feature = "testing")]
    pub fn cached_bytes(&self) -> usize {
        self.engine.cache.bytes()
    }
}

impl Drop for TreeDatabase {
    fn drop(&mut self) {
        if let Some(background) = self.background.lock().as_mut() {
            background.stop(&self.engine.log);
        }
        if self.is_read_only || self.engine.is_scratch.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.engine.close() {
            tracing::error!("closing {}: {error}", self.engine.log.directory().display());
        }
    }
}

impl TreeEngine {
    /// Slows a writer down if checkpoints cannot keep up. This bounds the space, and the time that
    /// an opening takes. Also removes the records over a cap.
    #[inline]
    fn pause_if_behind(&self, wait: Wait) -> Result<()> {
        let is_free = self.log.space().pressure() == 0
            && self.replay_bytes() <= self.behind_bytes.load(Ordering::Relaxed)
            && !self.record_cap.is_due()
            && !self.cap.is_over();
        if is_free { Ok(()) } else { self.pause(wait) }
    }

    #[cold]
    fn pause(&self, wait: Wait) -> Result<()> {
        if wait == Wait::Never
            && self.log.space().pressure() & (Pressure::LARGE_CHANGE | Pressure::ENDING) != 0
        {
            return Err(Error::WouldBlock);
        }
        if self.log.space().pressure() & Pressure::SCARCE != 0 {
            if wait == Wait::Never {
                return Err(Error::WouldBlock);
            }
            self.reclaim();
        }
        if self.replay_bytes() > self.behind_bytes.load(Ordering::Relaxed) {
            if wait == Wait::Never {
                return Err(Error::WouldBlock);
            }
            if self.cap.is_capped() {
                self.catch_up()?;
            } else if self.paused.fetch_add(1, Ordering::Relaxed).is_multiple_of(BEHIND_WRITES) {
                std::thread::sleep(BEHIND_PAUSE);
            }
        }
        self.catch_up_with_capacity(wait)?;
        self.evict_for_writer(wait)
    }

    /// Implements [`Maintenance::remove_expired`].
    fn remove_expired_under(&self, key: &[u8], wait: Wait) -> Result<bool> {
        if self.next_expiry_ms.load(Ordering::Relaxed) == NEVER_MS {
            return Ok(false);
        }
        self.pause_if_behind(wait)?;
        self.change(key, wait, |state| {
            let before = self.group(state, key).len();
            self.remove_expired_of(state, key)?;
            Ok(self.group(state, key).len() < before)
        })
    }

    fn put(&self, key: &[u8], value: &[u8], meta: Meta, wait: Wait) -> Result<Version> {
        self.pause_if_behind(wait)?;
        self.change(key, wait, |state| {
            self.remove_expired_of(state, key)?;
            let group = self.group(state, key);
            self.put_first(state, group, key, value, meta)
        })
    }

    /// Replaces the value of a key's first duplicate, or stores the value as the key's only one.
    fn put_first(
        &self,
        state: &mut State,
        group: Range<usize>,
        key: &[u8],
        value: &[u8],
        meta: Meta,
    ) -> Result<Version> {
        let operation = if group.is_empty() { Operation::Insert(0) } else { Operation::Replace(0) };
        self.make(state, operation, group, key, value, meta)
    }

    /// Fails if another duplicate would make the page too long for a record of the log. All
    /// duplicates of a key are in one page.
    fn check_page_size(&self, state: &mut State, key: &[u8], value: &[u8]) -> Result<()> {
        let Some(loaded) = state.loaded() else { return Ok(()) };
        let bytes = loaded.page.bytes() + page::PLACE_BYTES + cell::OVERHEAD_BYTES_MAX;
        let bytes = bytes + page::OVERHEAD_BYTES_MAX + key.len() + value.len();
        if bytes > RECORD_BYTES_MAX {
            return Err(Error::ValueTooLong { bytes, max: VALUE_BYTES_MAX });
        }
        Ok(())
    }

    /// Adds a duplicate before or after those of a key.
    fn add(&self, key: &[u8], value: &[u8], meta: Meta, side: Side, wait: Wait) -> Result<Version> {
        self.pause_if_behind(wait)?;
        self.change(key, wait, |state| {
            self.remove_expired_of(state, key)?;
            let group = self.group(state, key);
            if !group.is_empty() {
                self.check_page_size(state, key, value)?;
            }
            let number = if side == Side::Before { 0 } else { group.len() };
            self.make(state, Operation::Insert(number), group, key, value, meta)
        })
    }

    fn remove_all(&self, key: &[u8], wait: Wait) -> Result<usize> {
        self.pause_if_behind(wait)?;
        self.change(key, wait, |state| {
            self.remove_expired_of(state, key)?;
            let group = self.group(state, key);
            let count = group.len();
            if count > 0 {
                self.make(state, Operation::RemoveAll, group, key, &[], Meta::NONE)?;
            }
            Ok(count)
        })
    }

    fn change_at(
        &self,
        key: &[u8],
        index: usize,
        change: PlaceChange<'_>,
        wait: Wait,
    ) -> Result<bool> {
        self.pause_if_behind(wait)?;
        self.change(key, wait, |state| {
            self.remove_expired_of(state, key)?;
            let group = self.group(state, key);
            if index >= group.len() {
                return Ok(false);
            }
            let meta = state
                .loaded()
                .map_or(Meta::NONE, |loaded| loaded.page.view().record(group.start + index).meta);
            let (operation, value, meta) = match change {
                PlaceChange::Replace(value) => (Operation::Replace(index), value, meta),
                PlaceChange::InsertBefore(value) => (Operation::Insert(index), value, Meta::NONE),
                PlaceChange::InsertAfter(value) => {
                    (Operation::Insert(index + 1), value, Meta::NONE)
                }
                PlaceChange::Remove => (Operation::Remove(index), &[][..], Meta::NONE),
            };
            if !operation.removes() {
                self.check_page_size(state, key, value)?;
            }
            self.make(state, operation, group, key, value, meta)?;
            Ok(true)
        })
    }

    fn update(&self, key: &[u8], wait: Wait, decide: &mut Decide<'_>) -> Result<Version> {
        self.pause_if_behind(wait)?;
        self.change(key, wait, |state| {
            self.remove_expired_of(state, key)?;
            let Some(loaded) = state.loaded() else { return Ok(0) };
            let view = loaded.page.view();
            let group = view.group(self.order, key);
            let first = (!group.is_empty()).then(|| view.record(group.start));
            let exists = first.is_some();
            let change = decide(first);
            if exists {
                state.note_read();
            }
            match change {
                Change::Keep => Ok(0),
                Change::Remove => {
                    if !group.is_empty() {
                        self.make(state, Operation::Remove(0), group, key, &[], Meta::NONE)?;
                    }
                    Ok(0)
                }
                Change::Put(value, meta) => self.put_first(state, group, key, &value, meta),
            }
        })
    }

    fn stats(&self) -> Vec<(&'static str, String)> {
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed).to_string();
        let leaves = self.directory.read().len();
        let mut stats = vec![
            ("order", self.order.name().to_owned()),
            ("leaves", leaves.to_string()),
            ("directory_bytes", self.cache.directory_bytes().to_string()),
            ("cache_bytes", self.cache.bytes().to_string()),
            ("cache_budget_bytes", self.cache.budget_bytes().to_string()),
            ("cache_pages_max_bytes", self.cache.pages_bytes_max().to_string()),
            ("pages_read", count(&self.pages_read)),
            ("pages_written", count(&self.pages_written)),
            ("cache_evictions", count(&self.evictions)),
            ("limit_bytes", self.cap.limit_bytes().to_string()),
            ("evicted", self.cap.evicted().to_string()),
            ("replay_bytes", self.replay_bytes().to_string()),
            ("live_bytes", Usage::of(&self.log.segments()).live_bytes.to_string()),
        ];
        if self.cap.is_capped() {
            stats.push(("page_bytes", self.cap.bytes().to_string()));
        }
        stats.extend(self.expired.report());
        stats.extend(self.log.report(self.redo_bytes()));
        stats
    }
}

impl Engine for TreeDatabase {
    fn read(&self, key: &[u8], wait: Wait, visit: &mut Visit<'_>) -> Result<bool> {
        self.engine.read(key, wait, visit)
    }

    fn put(&self, key: &[u8], value: &[u8], meta: Meta, wait: Wait) -> Result<Version> {
        self.engine.put(key, value, meta, wait)
    }

    fn update(&self, key: &[u8], wait: Wait, decide: &mut Decide<'_>) -> Result<Version> {
        self.engine.update(key, wait, decide)
    }

    fn write(&self, batch: &Batch, wait: Wait) -> Result<()> {
        self.engine.write_batch(batch, wait)
    }

    fn scan(&self, from: &ScanCursor, visitor: Visitor<'_>) -> Result<Option<ScanCursor>> {
        visitor.of_records(|visit| self.engine.scan(from, visit))
    }

    fn full_scan(&self, _wanted: Wanted, is_in_order: bool) -> Result<Box<dyn FullScan + '_>> {
        Ok(if is_in_order {
            Box::new(self.engine.scan_keys_in_order(None, None))
        } else {
            Box::new(self.engine.scan_pages(None, None))
        })
    }

    fn scan_cursor_of(&self, key: &[u8]) -> ScanCursor {
        ScanCursor::Key(key.to_vec())
    }

    fn family(&self) -> Family<'_> {
        Family::Ordered(self)
    }
}

impl Maintenance for TreeDatabase {
    fn len(&self) -> u64 {
        self.engine.records.load(Ordering::Relaxed)
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn evicts(&self) -> bool {
        self.engine.cap.is_capped()
    }

    fn stats(&self) -> Vec<(&'static str, String)> {
        self.engine.stats()
    }

    fn optimize(&self, options: Option<&Options>) -> Result<()> {
        match options {
            Some(options) if options.capacity_bytes != 0 => {
                self.engine.retune(options.capacity_bytes)
            }
            _ => self.engine.optimize(),
        }
    }

    fn replace_all(&self, batch: &Batch) -> Result<()> {
        if batch.is_empty() { self.engine.clear() } else { self.engine.replace_all(batch) }
    }

    fn remove_expired(&self, key: &[u8], wait: Wait) -> Result<bool> {
        self.engine.remove_expired_under(key, wait)
    }

    fn reports(&self) -> Option<&KeyReports> {
        self.engine.clock.reports()
    }

    fn medium(&self) -> &dyn Medium {
        &self.engine.log
    }

    fn persistence(&self) -> Option<&dyn Persistence> {
        Some(&self.engine.log)
    }
}

impl Ordered for TreeDatabase {
    fn order(&self) -> KeyOrder {
        self.engine.order
    }

    fn add(&self, key: &[u8], value: &[u8], meta: Meta, side: Side, wait: Wait) -> Result<Version> {
        self.engine.add(key, value, meta, side, wait)
    }

    fn read_all(&self, key: &[u8], wait: Wait, visit: &mut Visit<'_>) -> Result<usize> {
        self.engine.read_all(key, wait, visit)
    }

    fn remove_all(&self, key: &[u8], wait: Wait) -> Result<usize> {
        self.engine.remove_all(key, wait)
    }

    fn seek(&self, seek: Seek<'_>, wait: Wait, visit: &mut VisitPlaced<'_>) -> Result<bool> {
        self.engine.seek(seek, wait, visit)
    }

    fn beyond(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.engine.upper_of(Some(key))
    }

    fn scan_range(
        &self,
        from: Option<&[u8]>,
        end: Option<&[u8]>,
        is_in_order: bool,
    ) -> Option<Box<dyn FullScan + '_>> {
        Some(if is_in_order {
            Box::new(self.engine.scan_keys_in_order(from, end))
        } else {
            Box::new(self.engine.scan_pages(from, end))
        })
    }

    fn owned_cap(&self) -> Option<(u64, u64)> {
        self.engine.cap.owned()
    }

    fn evict(&self, eviction: Eviction<'_>) -> Result<bool> {
        self.engine.evict_for_owner(eviction)
    }

    fn change_at(
        &self,
        key: &[u8],
        index: usize,
        change: PlaceChange<'_>,
        wait: Wait,
    ) -> Result<bool> {
        self.engine.change_at(key, index, change, wait)
    }
}
