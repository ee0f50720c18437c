//! The fixed-length database (`.tcf`): an array of values over a log on disk.
//!
//! In Tokyo Cabinet, which the name comes from, all values had the same size. Here each uses the
//! bytes it needs, but Tokyo Cabinet's limits remain: the [`parameters`](parameters) limit the
//! length of values and the ids. Keys are [`id`](id)s, in the log and on the wire. The index is a
//! [`page_index`](page_index) of consecutive ids. It has the location and length of each record, so
//! a change reads nothing. [`crate::keyed`] has the parts that engines share, including the locks.
//! The lock of the directory of pages comes after those of the shards.

mod id;
mod id_scan;
mod interval;
#[cfg(feature = "internals")]
pub mod outside;
mod page_index;
mod page_map;
mod parameters;

use crate::batch::BatchChange;
use crate::io::Storage;
use crate::keyed::{EngineHandle, Index, IndexKey, KeyedEngine, ShardIndex as _};
use crate::log::{EngineParameters, StoredKind};
use crate::{
    Batch, Change, Compression, Decide, Engine, Error, Family, FullScan, KeyReports, Maintenance,
    Medium, Meta, Numbered, Options, Persistence, RecordRef, Result, ScanCursor, Version, Visit,
    Visitor, Wait, Wanted,
};
use id::{Key, Text};
use page_index::{Directory, PageIndex, page_of, shard_of};
use parameters::Parameters;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys whose cache misses overlap: about as many as a processor has in flight.
const PREFETCH_KEYS: usize = 16;

/// A fixed-length database; see [`Numbered`] for its keys. Dropping it closes it.
pub struct FixedDatabase {
    engine: EngineHandle<FixedIndex>,
    width: AtomicU64,
    id_max: AtomicU64,
    /// Parameters that determine `width` and `id_max`. Locked while they change.
    parameters: Mutex<Parameters>,
}

/// Maps ids to shards by their page.
#[derive(Default)]
pub(crate) struct FixedIndex {
    directory: Arc<Directory>,
}

impl Index for FixedIndex {
    type ShardIndex = PageIndex;

    const SHARDS: usize = page_index::SHARDS;

    fn new_shard_index(&self) -> PageIndex {
        PageIndex::new(Arc::clone(&self.directory))
    }

    #[inline]
    fn name(&self, key: &[u8]) -> Option<u64> {
        id::parse_canonical(key)
    }

    #[inline]
    fn index_key_of_name(&self, name: u64) -> IndexKey<Self> {
        index_key_of(name)
    }
}

#[inline]
fn index_key_of(id: u64) -> IndexKey<FixedIndex> {
    IndexKey { shard: shard_of(page_of(id)), tag: id }
}

impl FixedDatabase {
    /// Opens the database in a directory, or creates it. An existing one keeps its width and its
    /// greatest id.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        Self::open_on(crate::io::storage(options.read_only), path, options, !options.read_only)
    }

    /// Like `open`, on a given storage. Without background threads the caller does their work with
    /// `run_maintenance`.
    pub fn open_on(
        storage: Arc<dyn Storage>,
        path: &Path,
        options: &Options,
        background: bool,
    ) -> Result<Self> {
        let encoded = Parameters::new(options)?.encode();
        let engine_parameters = EngineParameters { kind: StoredKind::Fixed, encoded };
        let mut parameters = Parameters::decode(&encoded);
        // Short values do not compress.
        let options = Options { compression: Compression::None, ..options.clone() };
        let engine = EngineHandle::open(
            storage,
            path,
            &options,
            background,
            engine_parameters,
            |_, engine_parameters| {
                parameters = Parameters::decode(&engine_parameters.encoded);
                Ok(FixedIndex::default())
            },
        )?;
        let wanted = parameters.changed(&options)?;
        if wanted != parameters {
            tracing::warn!(
                "{} keeps its width of {} bytes and its limit of {} bytes: optimize changes them",
                path.display(),
                parameters.width,
                parameters.limit_bytes
            );
        }
        Ok(Self {
            engine,
            width: AtomicU64::new(parameters.width),
            id_max: AtomicU64::new(parameters.id_max()),
            parameters: Mutex::new(parameters),
        })
    }

    /// Does one round of the background threads' work: truncates sealed segments, sweeps expired
    /// records and compacts the segments that are due.
    #[cfg(feature = "testing")]
    pub fn run_maintenance(&self) -> Result<()> {
        self.engine.run_maintenance()
    }

    /// Writes a checkpoint, so that the next opening need not replay the log so far.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine.write_index()
    }

    /// Returns the id, or an error if it is out of range.
    #[inline]
    fn check(&self, id: u64, key: &[u8]) -> Result<u64> {
        id::check(id, self.id_max.load(Ordering::Relaxed), key)
    }

    fn no_id(&self, key: &[u8]) -> Error {
        id::no_id(key, self.id_max.load(Ordering::Relaxed))
    }

    /// Returns the part of a value that is stored: at most its first `width` bytes.
    #[inline]
    fn cut<'v>(&self, value: &'v [u8]) -> &'v [u8] {
        let width = usize::try_from(self.width.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        &value[..value.len().min(width)]
    }

    fn cut_change(&self, change: Change) -> Change {
        match change {
            Change::Put(mut value, meta) => {
                value.truncate(self.cut(&value).len());
                Change::Put(value, meta)
            }
            change => change,
        }
    }

    fn update_id(&self, id: u64, wait: Wait, decide: &mut Decide<'_>) -> Result<Version> {
        let mut decide = |entry: Option<RecordRef<'_>>| self.cut_change(decide(entry));
        self.engine.update(index_key_of(id), Text::of(id).as_bytes(), wait, &mut decide)
    }

    /// Updates the first or the last record.
    fn update_edge(
        &self,
        edge: Key,
        key: &[u8],
        wait: Wait,
        decide: &mut Decide<'_>,
    ) -> Result<Version> {
        let mut next = self.edge(edge, wait)?;
        while let Some(id) = next {
            let mut is_there = true;
            let version = self.update_id(id, wait, &mut |entry| match entry {
                Some(entry) => decide(Some(entry)),
                None => {
                    is_there = false;
                    Change::Keep
                }
            })?;
            if is_there {
                return Ok(version);
            }
            // The record has expired or was removed meanwhile.
            next = self.inward(edge, id, wait)?;
        }
        Err(self.no_id(key))
    }

    /// Adds a record before the first or after the last one.
    fn update_beyond(
        &self,
        beyond: Key,
        key: &[u8],
        wait: Wait,
        decide: &mut Decide<'_>,
    ) -> Result<Version> {
        loop {
            let id = self.check(self.beyond(beyond, wait)?, key)?;
            let mut is_free = true;
            let version = self.update_id(id, wait, &mut |entry| match entry {
                None => decide(None),
                Some(_) => {
                    is_free = false;
                    Change::Keep
                }
            })?;
            // Otherwise another thread took the id, and the edge has moved.
            if is_free {
                return Ok(version);
            }
        }
    }

    /// Changes the width and the greatest id, which must cover all records.
    fn change_shape(&self, options: &Options) -> Result<()> {
        let mut parameters = self.parameters.lock();
        let changed = parameters.changed(options)?;
        if self.max().is_some_and(|max| max > changed.id_max()) {
            let (max, id_max) = (self.max().unwrap_or(0), changed.id_max());
            let what =
                format!("limsiz allows ids up to {id_max}, but there is a record {max}: raise it");
            return Err(Error::InvalidArgument(what));
        }
        if changed == *parameters {
            return Ok(());
        }
        self.engine.log.change_parameters(changed.encode())?;
        self.width.store(changed.width, Ordering::Relaxed);
        self.id_max.store(changed.id_max(), Ordering::Relaxed);
        let is_narrower = changed.width < parameters.width;
        *parameters = changed;
        if is_narrower { self.cut_all() } else { Ok(()) }
    }

    /// Truncates the values that are longer than the width.
    fn cut_all(&self) -> Result<()> {
        let mut from = ScanCursor::Start;
        loop {
            let mut long = Vec::new();
            let mut note = |entry: RecordRef<'_>| {
                if self.cut(entry.value).len() < entry.value.len() {
                    long.extend(id::parse_canonical(entry.key));
                }
            };
            let next = self.scan(&from, Visitor::Records(&mut note))?;
            for id in long {
                self.update_id(id, Wait::Block, &mut |entry| match entry {
                    Some(entry) => Change::Put(entry.value.to_vec(), entry.meta),
                    None => Change::Keep,
                })?;
            }
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    /// Returns the batch with canonical keys and truncated values.
    fn normalized<'b>(&self, batch: &'b Batch) -> Result<Cow<'b, Batch>> {
        let fits = |(key, change): (&[u8], BatchChange<'_>)| {
            let value_fits = match change {
                BatchChange::Put(value, _) => self.cut(value).len() == value.len(),
                BatchChange::Remove => true,
            };
            Ok::<_, Error>(value_fits && matches!(self.canonical_key(key)?, Cow::Borrowed(_)))
        };
        let mut is_normal = true;
        for change in batch.changes() {
            is_normal &= fits(change)?;
        }
        for (key, _) in &batch.expected {
            is_normal &= matches!(self.canonical_key(key)?, Cow::Borrowed(_));
        }
        if is_normal {
            return Ok(Cow::Borrowed(batch));
        }
        let mut normal = Batch::new();
        normal.removes = batch.removes;
        for (key, change) in batch.changes() {
            let key = self.canonical_key(key)?;
            match change {
                BatchChange::Put(value, meta) => normal.put(&key, self.cut(value), meta),
                BatchChange::Remove => normal.remove(&key),
            }
        }
        for (key, version) in batch.expected() {
            normal.expect(&self.canonical_key(key)?, version);
        }
        Ok(Cow::Owned(normal))
    }

    /// Finds all records before fetching the first of them.
    fn prefetch_some(&self, keys: &[&[u8]]) {
        let mut found = [None; PREFETCH_KEYS];
        for (found, key) in found.iter_mut().zip(keys) {
            if let Key::Id(id) = Key::parse(key) {
                let table = self.engine.table_at_once(index_key_of(id).shard);
                *found = table.and_then(|table| table.matches(id).next());
            }
        }
        let segments = self.engine.log.segments();
        for found in found.iter().flatten() {
            KeyedEngine::<FixedIndex>::prefetch_record(&segments, found.location);
        }
    }
}

impl Engine for FixedDatabase {
    fn read(&self, key: &[u8], wait: Wait, visit: &mut Visit<'_>) -> Result<bool> {
        let edge = match Key::parse(key) {
            Key::Id(id) => {
                let index_key = index_key_of(self.check(id, key)?);
                if id::is_canonical(key) {
                    return self.engine.read(index_key, key, wait, visit);
                }
                return self.engine.read(index_key, Text::of(id).as_bytes(), wait, visit);
            }
            Key::Prev | Key::Next => return Err(self.no_id(key)),
            edge => edge,
        };
        let mut next = self.edge(edge, wait)?;
        while let Some(id) = next {
            if self.engine.read(index_key_of(id), Text::of(id).as_bytes(), wait, visit)? {
                return Ok(true);
            }
            next = self.inward(edge, id, wait)?;
        }
        Ok(false)
    }

    fn prefetch(&self, keys: &[&[u8]]) {
        for keys in keys.chunks(PREFETCH_KEYS) {
            self.prefetch_some(keys);
        }
    }

    fn put(&self, key: &[u8], value: &[u8], meta: Meta, wait: Wait) -> Result<Version> {
        if let Key::Id(id) = Key::parse(key) {
            let (index_key, value) = (index_key_of(self.check(id, key)?), self.cut(value));
            if id::is_canonical(key) {
                return self.engine.put(index_key, key, value, meta, wait);
            }
            return self.engine.put(index_key, Text::of(id).as_bytes(), value, meta, wait);
        }
        self.update(key, wait, &mut |_| Change::Put(value.to_vec(), meta))
    }

    fn update(&self, key: &[u8], wait: Wait, decide: &mut Decide<'_>) -> Result<Version> {
        match Key::parse(key) {
            Key::Id(id) => self.update_id(self.check(id, key)?, wait, decide),
            edge @ (Key::Min | Key::Max) => self.update_edge(edge, key, wait, decide),
            beyond @ (Key::Prev | Key::Next) => self.update_beyond(beyond, key, wait, decide),
        }
    }

    fn write(&self, batch: &Batch, wait: Wait) -> Result<()> {
        self.engine.write_batch(&*self.normalized(batch)?, wait)
    }

    fn scan(&self, from: &ScanCursor, visitor: Visitor<'_>) -> Result<Option<ScanCursor>> {
        match visitor {
            Visitor::Records(visit) => {
                self.some_stretches(from, |stretch| self.engine.visit_entries(stretch, visit))
            }
            Visitor::Keys(visit) => {
                self.some_stretches(from, |stretch| self.engine.visit_keys(stretch, visit))
            }
        }
    }

    fn full_scan(&self, wanted: Wanted, _is_in_order: bool) -> Result<Box<dyn FullScan + '_>> {
        Ok(self.engine.full_scan(self, wanted))
    }

    fn scan_cursor_of(&self, key: &[u8]) -> ScanCursor {
        // A key that names no id has no records at or after it.
        ScanCursor::Id(self.id(key).unwrap_or(u64::MAX))
    }

    /// A batch is not written at once, so `min` and `max` are not known yet.
    fn canonical_key<'k>(&self, key: &'k [u8]) -> Result<Cow<'k, [u8]>> {
        match Key::parse(key) {
            Key::Id(id) => {
                let id = self.check(id, key)?;
                Ok(if id::is_canonical(key) {
                    Cow::Borrowed(key)
                } else {
                    Cow::Owned(Text::of(id).as_bytes().to_vec())
                })
            }
            _ => Err(Error::Unsupported {
                operation: "min, max, prev and next as keys",
                kind: "a batch",
                advice: "give ids as numbers",
            }),
        }
    }

    fn family(&self) -> Family<'_> {
        Family::Numbered(self)
    }
}

impl Maintenance for FixedDatabase {
    fn len(&self) -> u64 {
        self.engine.len()
    }

    fn is_read_only(&self) -> bool {
        self.engine.is_read_only()
    }

    fn evicts(&self) -> bool {
        self.engine.log.space().quota().is_capped()
    }

    fn stats(&self) -> Vec<(&'static str, String)> {
        let mut stats =
            vec![("width", self.width().to_string()), ("id_max", self.id_max().to_string())];
        stats.extend(self.engine.stats());
        stats
    }

    /// Also changes the width and the greatest id, if the options give them.
    fn optimize(&self, options: Option<&Options>) -> Result<()> {
        if let Some(options) = options {
            self.change_shape(options)?;
        }
        self.engine.optimize(options)
    }

    fn replace_all(&self, batch: &Batch) -> Result<()> {
        self.engine.replace_all(&*self.normalized(batch)?)
    }

    fn remove_expired(&self, key: &[u8], wait: Wait) -> Result<bool> {
        let Key::Id(id) = Key::parse(key) else { return Ok(false) };
        let index_key = index_key_of(self.check(id, key)?);
        self.engine.remove_expired(index_key, Text::of(id).as_bytes(), wait)
    }

    fn reports(&self) -> Option<&KeyReports> {
        self.engine.clock.reports()
    }

    fn remove_damaged(&self, key: &[u8], wait: Wait) -> Result<bool> {
        let Some(id) = self.id(key) else { return Ok(false) };
        self.engine.remove_damaged(index_key_of(id), Text::of(id).as_bytes(), wait)
    }

    fn medium(&self) -> &dyn Medium {
        &self.engine.log
    }

    fn persistence(&self) -> Option<&dyn Persistence> {
        Some(&self.engine.log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::locks::at_once;
    use crate::io::FaultyStorage;

    #[test]
    fn the_shard_of_the_first_or_last_id_is_not_waited_for() {
        let storage = Arc::new(FaultyStorage::new());
        let path = Path::new("casket.tcf");
        let database = FixedDatabase::open_on(storage, path, &Options::default(), false).unwrap();
        let database = Arc::new(database);
        database.put(b"1", b"value", Meta::NONE, Wait::Never).unwrap();
        let held = database.engine.hold(index_key_of(1).shard);
        type Act = fn(&FixedDatabase) -> Result<bool>;
        let acts: [(&str, Act); 4] = [
            ("read min", |it| it.read(b"min", Wait::Never, &mut |_| ())),
            ("read max", |it| it.read(b"max", Wait::Never, &mut |_| ())),
            ("put next", |it| it.put(b"next", b"v", Meta::NONE, Wait::Never).map(|_| true)),
            ("update max", |it| {
                it.update(b"max", Wait::Never, &mut |_| Change::Keep).map(|_| true)
            }),
        ];
        for (name, act) in acts {
            let shared = Arc::clone(&database);
            let result = at_once(move || act(&shared));
            assert!(matches!(result, Err(Error::WouldBlock)), "{name}: {result:?}");
        }
        drop(held);
        assert!(database.read(b"max", Wait::Never, &mut |_| ()).unwrap());
    }
}
