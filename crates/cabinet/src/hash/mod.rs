//! The hash database (`.tch`): an index in memory over a log on disk.
//!
//! A key's hash names its shard (10 bits), its place in the shard's [`table`](table) and its tag
//! there (24 bits). A get is one probe of the table and one read of the log, which also holds
//! the key and so tells whether it is the right one. Writers of different shards meet only at
//! the tail of the log.
//!
//! # Locks
//!
//! Each shard has one. A change of a key appends to the log under the lock of the key's shard:
//! so the order of the log is the order of changes of each key, and replaying it gives the same
//! index. Readers hold it only while they look the location up; what a location points to does
//! not change, and stays readable for as long as the reader holds the set of segments that it
//! loaded under the lock.

mod batch;
mod keep;
mod recover;
mod table;

use crate::compress;
use crate::engine::{DurableListener, LogPosition};
use crate::io::Storage;
use crate::log::record::{Kind, Record};
use crate::log::{Background, Check, Location, Log, Purpose, Segments, Usage, with_record};
use crate::{
    Batch, Change, Clock, Compression, Durability, Engine, Entry, Error, Meta, Options, Position,
    Result, Version, Wait,
};
use parking_lot::{Mutex, RwLock};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use table::{Slot, TAG_BITS, Table};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SHARD_BITS: u32 = 10;
const SHARDS: usize = 1 << SHARD_BITS;

/// Bits of a hash that matter: a position of a scan.
const POSITION_BITS: u32 = SHARD_BITS + TAG_BITS;

/// Records that one step of a scan visits, about.
const SCAN_STEP: usize = 256;

/// Keys whose cache misses overlap: about as many as a processor has in flight.
const PREFETCH_KEYS: usize = 16;

/// How long a writer waits, once in so many writes, when compaction cannot keep up.
const BEHIND_PAUSE: Duration = Duration::from_millis(6);
const BEHIND_WRITES: u32 = 64;

/// A hash database. Closed when dropped.
pub struct HashDatabase {
    shared: Arc<Shared>,
    background: Mutex<Option<Background>>,
}

struct Shared {
    log: Log,
    shards: Box<[Shard]>,
    compression: Compression,
    clock: Clock,
    /// Writes made while compaction could not keep up.
    paused: AtomicU32,
}

/// Aligned so that two shards' locks are never on one cache line.
#[repr(align(64))]
#[derive(Default)]
struct Shard(RwLock<Table>);

/// The bits of a key's hash that the index uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Hash {
    shard: usize,
    tag: u32,
}

impl Hash {
    #[inline]
    fn of(key: &[u8], seed: u64) -> Self {
        Self::from_position(xxh3_64_with_seed(key, seed) >> (64 - POSITION_BITS))
    }

    #[inline]
    fn from_position(position: u64) -> Self {
        Self {
            shard: (position >> TAG_BITS) as usize,
            tag: (position & ((1 << TAG_BITS) - 1)) as u32,
        }
    }

    fn position(self) -> u64 {
        (self.shard as u64) << TAG_BITS | u64::from(self.tag)
    }
}

/// What the index has under a key.
struct Found {
    slot: Slot,
    location: Location,
    /// Bytes of the record in the log.
    total: usize,
}

impl HashDatabase {
    /// Opens the database in a directory, or creates it there.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        let storage = Arc::new(crate::io::RealStorage);
        Self::open_on(storage, path, options, true)
    }

    /// As `open`, on a storage of the caller's. Without the background threads the caller does
    /// their work through [`HashDatabase::tend`].
    pub fn open_on(
        storage: Arc<dyn Storage>,
        path: &Path,
        options: &Options,
        background: bool,
    ) -> Result<Self> {
        let shared = Arc::new(recover::open(storage, path, options)?);
        if options.truncate {
            shared.clear()?;
        }
        let background = if background {
            let started = Background::start(&shared);
            Some(started.map_err(|source| Error::Io {
                operation: "start threads for",
                path: path.to_owned(),
                source,
            })?)
        } else {
            None
        };
        Ok(Self { shared, background: Mutex::new(background) })
    }

    /// Does one round of what the background threads would do: cuts sealed segments, sweeps
    /// expired records, compacts what is due.
    pub fn tend(&self) -> Result<()> {
        keep::tend(&self.shared)
    }

    /// Writes a checkpoint, so that the next opening need not replay what was written so far.
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.write_index()
    }
}

impl Drop for HashDatabase {
    fn drop(&mut self) {
        if let Some(background) = self.background.lock().as_mut() {
            background.stop(&self.shared.log);
        }
        if let Err(error) = self.shared.close() {
            tracing::error!("closing {}: {error}", self.shared.log.directory().display());
        }
    }
}

impl Shared {
    #[inline]
    fn hash(&self, key: &[u8]) -> Hash {
        Hash::of(key, self.log.identity().hash_seed)
    }

    fn with<T>(
        &self,
        segments: &Segments,
        location: Location,
        wait: Wait,
        check: Check,
        visit: impl FnOnce(&Record<'_>) -> T,
    ) -> Result<T> {
        with_record(segments, self.log.identity().salt, location, wait, check, visit)
    }

    /// Looks a key up in its shard's table.
    #[inline]
    fn find(
        &self,
        table: &Table,
        segments: &Segments,
        hash: Hash,
        key: &[u8],
        wait: Wait,
    ) -> Result<Option<Found>> {
        for (slot, location) in table.find(hash.tag) {
            let total = self.with(segments, location, wait, Check::Lengths, |record| {
                (record.key == key).then_some(record.total)
            })?;
            if let Some(total) = total {
                return Ok(Some(Found { slot, location, total }));
            }
        }
        Ok(None)
    }

    /// Appends a put and makes the index point to it. The caller holds the shard's lock.
    fn store(
        &self,
        table: &mut Table,
        hash: Hash,
        found: Option<Found>,
        stored: &Stored<'_>,
    ) -> Result<Version> {
        let Stored { key, value, meta, compression } = *stored;
        let record = self.log.prepare(Kind::Put, key, value, meta, compression);
        let total = record.total();
        let appended = self.log.append(record, Purpose::Store)?;
        let segments = self.log.segments();
        if let Some(segment) = segments.get(appended.location) {
            segment.add_live(total);
            segment.note_expiry(meta.expires_at_ms);
        }
        match found {
            Some(found) => {
                table.replace(found.slot, appended.location);
                self.log.remove_live(&segments, found.location, found.total);
            }
            None => table.insert(hash.tag, appended.location),
        }
        Ok(appended.sequence)
    }

    /// Appends a tombstone and takes the entry out. The caller holds the shard's lock.
    fn delete(&self, table: &mut Table, found: &Found, key: &[u8]) -> Result<()> {
        self.log.append_tombstone(key)?;
        self.log.remove_live(&self.log.segments(), found.location, found.total);
        table.remove(found.slot);
        Ok(())
    }

    /// Runs `attempt`, which must not read the disk, under a lock. Where it would have to, and
    /// may, the record is first read without the lock, so that others do not wait for it.
    fn without_reading_locked<T>(
        &self,
        key: &[u8],
        wait: Wait,
        mut attempt: impl FnMut(Wait) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..3 {
            match attempt(Wait::Never) {
                Err(Error::WouldBlock) if wait == Wait::Block => {
                    self.read_entry(key, Wait::Block, &mut |_| ())?;
                }
                result => return result,
            }
        }
        attempt(Wait::Block)
    }

    /// First the slots of all keys are fetched, then the records that they name.
    fn prefetch(&self, keys: &[&[u8]]) {
        let mut hashes = [Hash { shard: 0, tag: 0 }; PREFETCH_KEYS];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.hash(key);
            self.shards[hash.shard].0.read().prefetch(hash.tag);
        }
        let segments = self.log.segments();
        for hash in &hashes[..keys.len().min(PREFETCH_KEYS)] {
            let location = self.shards[hash.shard].0.read().find(hash.tag).next();
            if let Some((_, location)) = location
                && let Some(segment) = segments.get(location)
            {
                segment.map.prefetch(location.offset());
                segment.map.prefetch(location.offset() + 64);
                segment.map.prefetch(location.offset() + 128);
            }
        }
    }

    fn read_entry(&self, key: &[u8], wait: Wait, visit: &mut dyn FnMut(Entry<'_>)) -> Result<bool> {
        let hash = self.hash(key);
        let mut locations = [None; 4];
        let (segments, more) = {
            let table = self.shards[hash.shard].0.read();
            let mut matches = table.find(hash.tag).map(|(_, location)| location);
            for place in &mut locations {
                *place = matches.next();
            }
            (self.log.segments(), matches.collect::<Vec<_>>())
        };
        for location in locations.into_iter().flatten().chain(more) {
            let found = self.with(&segments, location, wait, Check::Whole, |record| {
                if record.key != key {
                    return Ok(None);
                }
                if record.meta.is_expired(self.now_ms(record.meta)) {
                    return Ok(Some(false));
                }
                lend(record, &segments, location, visit)?;
                Ok::<_, Error>(Some(true))
            })??;
            if let Some(found) = found {
                return Ok(found);
            }
        }
        Ok(false)
    }

    /// The time, if the record has any interest in it.
    fn now_ms(&self, meta: Meta) -> u64 {
        if meta.expires_at_ms == 0 { 0 } else { self.clock.now_ms() }
    }

    /// Slows a writer down that compaction cannot keep up with: that is what bounds the space.
    fn pause_if_behind(&self, wait: Wait) -> Result<()> {
        if self.log.is_behind() {
            if wait == Wait::Never {
                return Err(Error::WouldBlock);
            }
            // Few long pauses rather than many short ones: each end of one would interrupt a
            // reader, where processors are scarce.
            if self.paused.fetch_add(1, Ordering::Relaxed).is_multiple_of(BEHIND_WRITES) {
                std::thread::sleep(BEHIND_PAUSE);
            }
        }
        Ok(())
    }

    fn compress<'a>(&self, value: &'a [u8], buffer: &'a mut Vec<u8>) -> (&'a [u8], Compression) {
        match compress::compress(value, self.compression) {
            Some(smaller) => {
                *buffer = smaller;
                (buffer, self.compression)
            }
            None => (value, Compression::None),
        }
    }

    /// Entries from a position on: some, all of one hash together; and where to go on.
    fn step(
        &self,
        from: &Position,
    ) -> (Vec<Location>, arc_swap::Guard<Arc<Segments>>, Option<u64>) {
        let start = match from {
            Position::Hash(position) => *position,
            Position::Start | Position::Key(_) => 0,
        };
        let mut hash = Hash::from_position(start);
        while hash.shard < SHARDS {
            let table = self.shards[hash.shard].0.read();
            let mut locations = Vec::new();
            let mut last = None;
            let mut next = None;
            for (tag, location) in table.entries_from(hash.tag) {
                if locations.len() >= SCAN_STEP && last != Some(tag) {
                    next = Some(Hash { shard: hash.shard, tag }.position());
                    break;
                }
                locations.push(location);
                last = Some(tag);
            }
            if !locations.is_empty() {
                let next = next.unwrap_or(Hash { shard: hash.shard + 1, tag: 0 }.position());
                return (locations, self.log.segments(), Some(next));
            }
            hash = Hash { shard: hash.shard + 1, tag: 0 };
        }
        (Vec::new(), self.log.segments(), None)
    }

    /// Lets the disk fetch what a step will read, all at once rather than one by one.
    /// They are then read in the order of hashes all the same: a scan that begins at a key meets
    /// that key first.
    fn announce(&self, locations: &[Location], segments: &Segments) {
        let mut sorted = locations.to_vec();
        sorted.sort_unstable();
        for location in &sorted {
            if let Some(segment) = segments.get(*location)
                && !segment.resident.load(Ordering::Relaxed)
            {
                segment.file.will_read(location.offset() as u64, 1);
            }
        }
    }
}

/// A put, as it goes into the log.
struct Stored<'a> {
    key: &'a [u8],
    value: &'a [u8],
    meta: Meta,
    compression: Compression,
}

/// Shows a record to a visitor, decompressed. Where it lies is for the error.
fn lend(
    record: &Record<'_>,
    segments: &Segments,
    location: Location,
    visit: &mut dyn FnMut(Entry<'_>),
) -> Result<()> {
    let decompressed;
    let value = match record.compression {
        Compression::None => record.value,
        compression => {
            decompressed = compress::decompress(record.value, compression).map_err(|error| {
                Error::Corrupted {
                    file: segments.get(location).map_or_else(PathBuf::new, |s| s.path.clone()),
                    offset: location.offset() as u64,
                    what: error.to_string(),
                }
            })?;
            &decompressed
        }
    };
    let (key, meta, version) = (record.key, record.meta, record.sequence);
    visit(Entry { key, value, meta, version });
    Ok(())
}

impl Engine for HashDatabase {
    fn read(&self, key: &[u8], wait: Wait, visit: &mut dyn FnMut(Entry<'_>)) -> Result<bool> {
        self.shared.read_entry(key, wait, visit)
    }

    fn prefetch(&self, keys: &[&[u8]]) {
        for keys in keys.chunks(PREFETCH_KEYS) {
            self.shared.prefetch(keys);
        }
    }

    fn put(&self, key: &[u8], value: &[u8], meta: Meta, wait: Wait) -> Result<Version> {
        let shared = &self.shared;
        let hash = shared.hash(key);
        let mut buffer = Vec::new();
        let (value, compression) = shared.compress(value, &mut buffer);
        let stored = Stored { key, value, meta, compression };
        shared.pause_if_behind(wait)?;
        shared.without_reading_locked(key, wait, |wait| {
            let mut table = shared.shards[hash.shard].0.write();
            let segments = shared.log.segments();
            let found = shared.find(&table, &segments, hash, key, wait)?;
            shared.store(&mut table, hash, found, &stored)
        })
    }

    fn update(
        &self,
        key: &[u8],
        wait: Wait,
        decide: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
    ) -> Result<Version> {
        let shared = &self.shared;
        let hash = shared.hash(key);
        shared.pause_if_behind(wait)?;
        shared.without_reading_locked(key, wait, |wait| {
            let mut table = shared.shards[hash.shard].0.write();
            let segments = shared.log.segments();
            let found = shared.find(&table, &segments, hash, key, wait)?;
            let mut change = None;
            let mut exists = false;
            if let Some(found) = &found {
                shared.with(&segments, found.location, wait, Check::Whole, |record| {
                    if record.meta.is_expired(shared.now_ms(record.meta)) {
                        return Ok(());
                    }
                    exists = true;
                    lend(record, &segments, found.location, &mut |entry| {
                        change = Some(decide(Some(entry)));
                    })
                })??;
            }
            match change.unwrap_or_else(|| decide(None)) {
                Change::Keep => Ok(0),
                Change::Remove => {
                    if let (Some(found), true) = (found, exists) {
                        shared.delete(&mut table, &found, key)?;
                    }
                    Ok(0)
                }
                Change::Put(value, meta) => {
                    let mut buffer = Vec::new();
                    let (value, compression) = shared.compress(&value, &mut buffer);
                    let stored = Stored { key, value, meta, compression };
                    shared.store(&mut table, hash, found, &stored)
                }
            }
        })
    }

    fn write(&self, batch: &Batch) -> Result<()> {
        self.shared.write_batch(batch)
    }

    fn scan(&self, from: &Position, visit: &mut dyn FnMut(Entry<'_>)) -> Result<Option<Position>> {
        let (locations, segments, next) = self.shared.step(from);
        self.shared.announce(&locations, &segments);
        for location in locations {
            self.shared.with(&segments, location, Wait::Block, Check::Whole, |record| {
                if record.meta.is_expired(self.shared.now_ms(record.meta)) {
                    return Ok(());
                }
                lend(record, &segments, location, visit)
            })??;
        }
        Ok(next.map(Position::Hash))
    }

    fn scan_keys(&self, from: &Position, visit: &mut dyn FnMut(&[u8])) -> Result<Option<Position>> {
        let (locations, segments, next) = self.shared.step(from);
        self.shared.announce(&locations, &segments);
        for location in locations {
            self.shared.with(&segments, location, Wait::Block, Check::Lengths, |record| {
                if !record.meta.is_expired(self.shared.now_ms(record.meta)) {
                    visit(record.key);
                }
            })?;
        }
        Ok(next.map(Position::Hash))
    }

    fn position_of(&self, key: &[u8]) -> Position {
        Position::Hash(self.shared.hash(key).position())
    }

    fn len(&self) -> u64 {
        self.shared.shards.iter().map(|shard| shard.0.read().len() as u64).sum()
    }

    fn size_bytes(&self) -> u64 {
        self.shared.log.disk_bytes()
    }

    fn path(&self) -> PathBuf {
        self.shared.log.directory().to_owned()
    }

    fn sync(&self) -> Result<()> {
        self.shared.log.sync().map(|_| ())
    }

    fn optimize(&self) -> Result<()> {
        self.shared.optimize()
    }

    fn clear(&self) -> Result<()> {
        self.shared.clear()
    }

    fn copy_to(&self, path: &Path) -> Result<()> {
        self.shared.log.snapshot(path)
    }

    fn durability(&self) -> Durability {
        self.shared.log.settings().durability
    }

    fn appended(&self) -> LogPosition {
        self.shared.log.appended()
    }

    fn durable(&self) -> LogPosition {
        self.shared.log.commit().durable()
    }

    fn wait_durable(&self, position: LogPosition) -> Result<()> {
        self.shared.log.wait_durable(position)
    }

    fn on_durable(&self, listener: DurableListener) {
        self.shared.log.commit().listen(listener);
    }

    fn figures(&self) -> Vec<(&'static str, String)> {
        self.shared.figures()
    }
}

impl Shared {
    fn figures(&self) -> Vec<(&'static str, String)> {
        let usage = Usage::of(&self.log.segments());
        let index: usize = self.shards.iter().map(|shard| shard.0.read().memory_bytes()).sum();
        let mut figures = vec![
            ("index_bytes", index.to_string()),
            ("live_bytes", usage.live_bytes.to_string()),
            ("dead_percent", usage.dead_percent().to_string()),
        ];
        figures.extend(self.log.report());
        figures
    }
}
