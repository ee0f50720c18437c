//! Repair of damaged parts of runs from the log.
//!
//! The entries of a damaged piece are the latest live records in the log of keys with its tags.
//! Keys that changed since the run was written are excluded: the table has them in memory. The log
//! is read once for all damaged pieces. Then each table switches to its run without these pieces,
//! and keeps their entries in memory. The next checkpoint, which is written at once, has undamaged
//! runs.
//!
//! Until then reads and changes of these keys fail. A damaged piece is not read again, so no change
//! of such a key can interfere. The compactor may still move a record whose entry it had read
//! before. The table then has both locations in memory. So no lock is held while the log is read.
//! Afterwards one table at a time is locked, with `maintenance`, so that no merge runs between two
//! reads of a table.
//!
//! # If the log is damaged too
//!
//! The last change of a key may be in a gap of the log, and an older record of it before the gap.
//! That record must not come back. So a record found before the last gap counts only if the index
//! is known to have had it:
//!
//! - All entries of the piece were found, including those in memory that are dead: the checksum of
//!   the piece then matches.
//! - Or the damaged page has the entry, bit by bit.
//!
//! Otherwise the key gets an entry that points to the gap. It is read as a damaged record of the
//! key (see [`super::damaged`]): a read fails, and a put or a removal replaces it. The segment of
//! the older record is kept for `salvage`.

use super::backoff::Backoff;
use super::run::{Before, Run, tag_of};
use super::{Index, KeyedEngine, ShardIndex};
use crate::log::record::Kind;
use crate::log::{Check, Gap, Location, Lsn, peek_record};
use crate::{Meta, Result, Wait};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes of memory per entry of a damaged piece during its repair, and entries of a piece.
const FOUND_BYTES: u64 = 96;
const PIECE_ENTRIES: u64 = 512;

/// Damaged pieces that are repaired even if the memory budget of the index is smaller.
const PIECES_MIN: u64 = 256;

/// Delay after a repair that failed or was incomplete.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Damaged pieces of one run.
struct Lost {
    run: Arc<Run>,
    pieces: BTreeSet<usize>,
    /// Tags of their entries, in order.
    tags: Vec<RangeInclusive<u32>>,
    /// Entries of other pieces with these tags.
    beside: Vec<u64>,
}

/// Last change of a key in the log.
struct Found {
    shard: usize,
    entry: u64,
    location: Location,
    /// Number of the record's segment.
    number: u64,
    /// Bytes of the record in the log.
    total: usize,
    meta: Meta,
    is_put: bool,
}

/// Changes in the log of the keys of damaged pieces.
#[derive(Default)]
struct Changes {
    /// The last change of each key, by its name.
    last: HashMap<u64, Found>,
    /// Number of unreadable places.
    gaps: u64,
    /// LSN of the last gap.
    last_gap: Lsn,
    /// Last gap that an entry can point to.
    target: Option<(Lsn, Location)>,
}

/// Evidence that the entries found are those of a damaged piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// All entries were found.
    Whole,
    /// All entries were found, without those that had expired and were removed.
    WithoutExpired,
    /// Some entries are unknown.
    None,
}

impl Lost {
    /// Returns `None` if `go_on` returned false.
    fn of(run: Arc<Run>, go_on: &dyn Fn() -> bool) -> Result<Option<Self>> {
        let pieces = run.damaged();
        let tags: Vec<_> = pieces.iter().map(|piece| run.tags_of(*piece)).collect();
        let ends: BTreeSet<u32> =
            tags.iter().flat_map(|tags| [*tags.start(), *tags.end()]).collect();
        let ends: Vec<u32> = ends.into_iter().collect();
        let mut lost = Self { run, pieces, tags, beside: Vec::new() };
        let mut beside = Vec::new();
        let is_whole = lost.run.for_each_with(&ends, &mut |_| go_on(), &mut |part| {
            beside.extend(part.iter().copied().filter(|entry| lost.has(tag_of(*entry))));
        })?;
        // Adjacent ranges of pieces may share one piece.
        beside.sort_unstable();
        beside.dedup();
        lost.beside = beside;
        Ok(is_whole.then_some(lost))
    }

    /// Returns whether an entry with a tag may have been in one of the pieces.
    fn has(&self, tag: u32) -> bool {
        let index = self.tags.partition_point(|tags| *tags.end() < tag);
        self.tags.get(index).is_some_and(|tags| tags.contains(&tag))
    }

    /// Returns whether an entry of the run was in one of the pieces.
    fn had(&self, entry: u64) -> bool {
        self.has(tag_of(entry)) && self.beside.binary_search(&entry).is_err()
    }

    /// Returns the piece that had an entry, if it is one of these.
    fn piece_of(&self, entry: u64) -> Option<usize> {
        let tag = tag_of(entry);
        let index = self.tags.partition_point(|tags| *tags.start() <= tag).checked_sub(1)?;
        self.pieces.iter().nth(index).copied()
    }

    /// Returns the live entries with a tag, of other pieces and in memory.
    fn entries_with<'l>(
        &'l self,
        tag: u32,
        added: &'l [u64],
        dead: &'l [u64],
    ) -> impl Iterator<Item = u64> + 'l {
        let is_alive = move |entry: &&u64| dead.binary_search(entry).is_err();
        let beside = with_tag(&self.beside, tag).iter().filter(is_alive);
        beside.chain(with_tag(added, tag)).copied()
    }

    /// Returns the words of the damaged pages, as far as the disk can read them, sorted.
    fn words(&self) -> Vec<u64> {
        let mut words: Vec<u64> =
            self.pieces.iter().flat_map(|piece| self.run.words_of(*piece)).collect();
        words.sort_unstable();
        words
    }

    /// Returns for each piece whether the entries `found`, and those of `dead` that it had, are all
    /// of its entries.
    fn prove(&self, found: &[&Found], dead: &[u64], now_ms: u64) -> BTreeMap<usize, Proof> {
        let mut own: BTreeMap<usize, Vec<(u64, bool)>> = BTreeMap::new();
        let gone = dead.iter().filter(|entry| self.had(**entry)).map(|entry| (*entry, false));
        let found = found.iter().map(|one| (one.entry, one.meta.is_expired(now_ms)));
        for one in gone.chain(found) {
            if let Some(piece) = self.piece_of(one.0) {
                own.entry(piece).or_default().push(one);
            }
        }
        let prove = |piece: &usize| {
            let mut own = own.remove(piece).unwrap_or_default();
            own.sort_unstable();
            let entries = |with_expired: bool| {
                let kept = own.iter().filter(|(_, is_expired)| with_expired || !is_expired);
                kept.map(|(entry, _)| *entry).collect::<Vec<_>>()
            };
            let proof = if self.run.had_in_piece(*piece, &entries(true)) {
                Proof::Whole
            } else if self.run.had_in_piece(*piece, &entries(false)) {
                Proof::WithoutExpired
            } else {
                Proof::None
            };
            (*piece, proof)
        };
        self.pieces.iter().map(prove).collect()
    }
}

/// Returns those of some sorted entries that have a tag.
fn with_tag(entries: &[u64], tag: u32) -> &[u64] {
    let start = entries.partition_point(|entry| tag_of(*entry) < tag);
    let end = entries.partition_point(|entry| tag_of(*entry) <= tag);
    &entries[start..end]
}

impl<I: Index> KeyedEngine<I> {
    /// Repairs the damaged parts of runs. The caller holds no lock.
    pub(super) fn repair_runs(&self, go_on: &dyn Fn() -> bool) -> Result<()> {
        if !self.is_over_runs() {
            return Ok(());
        }
        let is_suspected = self.log.maintenance().suspects_checkpoint();
        if !is_suspected && self.damaged_pieces() == 0 {
            return Ok(());
        }
        if self.repair_after.lock().is_some_and(|after| Instant::now() < after) {
            return Ok(());
        }
        let repaired = self.repair_all(go_on);
        if is_suspected && matches!(repaired, Ok(true)) {
            // The damage may be in another part of the checkpoint.
            self.needs_checkpoint.store(true, Ordering::Relaxed);
            self.log.maintenance().suspect_checkpoint(false);
        }
        let is_repaired = repaired.is_ok() && self.damaged_pieces() == 0;
        if is_repaired {
            *self.merge_backoff.lock() = Backoff::default();
        }
        *self.repair_after.lock() =
            if is_repaired { None } else { Instant::now().checked_add(RETRY_INTERVAL) };
        repaired.map(drop)
    }

    /// Returns the number of damaged parts of runs that are known.
    pub(super) fn damaged_pieces(&self) -> usize {
        if self.log.maintenance().index_faults().count() == 0 {
            return 0;
        }
        // A table locked for a large change is skipped rather than waited for.
        let tables = (0..I::SHARDS).filter_map(|shard| self.table_for(shard, Wait::Never).ok());
        tables.map(|table| table.run().map_or(0, |run| run.damaged().len())).sum()
    }

    fn runs(&self) -> impl Iterator<Item = (usize, Arc<Run>)> {
        (0..I::SHARDS).filter_map(|shard| Some((shard, self.table(shard).run().cloned()?)))
    }

    /// Returns whether it reached the end.
    fn repair_all(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        // All runs are checked first, so that the log is read once.
        let mut lost = BTreeMap::new();
        for (shard, run) in self.runs() {
            if !run.for_each_whole(&mut |_| go_on(), &mut |_| ())? {
                return Ok(false);
            }
            if run.is_damaged() {
                let Some(own) = Lost::of(run, go_on)? else { return Ok(false) };
                lost.insert(shard, own);
            }
        }
        if lost.is_empty() {
            return Ok(true);
        }
        let pieces: u64 = lost.values().map(|lost| lost.pieces.len() as u64).sum();
        let most = (self.index_bytes_max / (FOUND_BYTES * PIECE_ENTRIES)).max(PIECES_MIN);
        if pieces > most {
            tracing::error!(
                "{pieces} pages of the index of {} are damaged, more than the {most} that can be \
                 rebuilt while it is in use: close the database and remove its file `checkpoint`, \
                 then the next opening rebuilds the index from the log",
                self.log.directory().display()
            );
            return Ok(true);
        }
        // Wait for changes in progress that have read these pieces before.
        lost.keys().for_each(|shard| drop(self.shards[*shard].write()));
        let mut changes = Changes::default();
        if !self.find_changes(&lost, go_on, &mut changes)? {
            return Ok(false);
        }
        let last = std::mem::take(&mut changes.last);
        let mut by_shard: BTreeMap<usize, Vec<Found>> = BTreeMap::new();
        for one in last.into_values().filter(|one| one.is_put) {
            by_shard.entry(one.shard).or_default().push(one);
        }
        let (mut repaired, mut missing, mut is_whole) = (0, 0, true);
        for (shard, lost) in &lost {
            is_whole = go_on();
            if !is_whole {
                break;
            }
            let found = by_shard.remove(shard).unwrap_or_default();
            // Other maintenance may run between two shards.
            let _maintenance = self.log.maintenance().pause();
            if let Some(records) = self.take_found(*shard, lost, &found, &changes) {
                repaired += lost.pieces.len() as u64;
                missing += records;
            }
        }
        self.needs_checkpoint.store(true, Ordering::Relaxed);
        {
            let _maintenance = self.log.maintenance().pause();
            self.alive.lock().take();
            // An earlier repair may have left records in doubt, if there are gaps.
            if changes.gaps == 0 {
                self.log.segments().unspare();
            }
        }
        self.note_repaired(repaired, missing, changes.gaps);
        Ok(is_whole)
    }

    fn note_repaired(&self, pieces: u64, lost: u64, gaps: u64) {
        self.repaired_pieces.fetch_add(pieces, Ordering::Relaxed);
        let path = self.log.directory().display();
        if gaps == 0 {
            tracing::warn!(
                "{pieces} damaged pages of the index of {path} were rebuilt from the log"
            );
            return;
        }
        self.lost_records.fetch_add(lost, Ordering::Relaxed);
        self.log.maintenance().index_faults().count_lost(lost);
        tracing::error!(
            "{pieces} damaged pages of the index of {path} were rebuilt from the log, which is \
             unreadable in {gaps} places: {lost} of their records are lost, and older records of \
             their keys are not shown"
        );
    }

    /// Notes the last changes of keys that belong to lost pieces. Returns whether it reached the
    /// end.
    fn find_changes(
        &self,
        lost: &BTreeMap<usize, Lost>,
        go_on: &dyn Fn() -> bool,
        changes: &mut Changes,
    ) -> Result<bool> {
        let mut gaps = Vec::new();
        let end = self.log.end_lsn();
        let is_whole = self.log.for_each_record(
            end,
            go_on,
            &mut |segment, location, record| {
                if !matches!(record.kind, Kind::Put | Kind::Tombstone) {
                    return;
                }
                let Some(name) = self.index.name(record.key) else { return };
                let index_key = self.index.index_key_of_name(name);
                let tag = I::ShardIndex::tag_in_run(index_key.tag);
                if lost.get(&index_key.shard).is_some_and(|lost| lost.has(tag)) {
                    let entry = u64::from(tag) << Location::BITS | location.bits();
                    let (shard, number, total) = (index_key.shard, segment.number, record.total);
                    let (meta, is_put) = (record.meta, record.kind == Kind::Put);
                    let found = Found { shard, entry, location, number, total, meta, is_put };
                    changes.last.insert(name, found);
                }
            },
            &mut |gap| gaps.push(gap),
        )?;
        let segments = self.log.segments();
        for Gap { lsn, location } in gaps {
            changes.gaps += 1;
            changes.last_gap = changes.last_gap.max(lsn);
            // A valid record there would be taken for another key's.
            let peek =
                |location| peek_record(&segments, location, Wait::Block, Check::Whole, |_| ());
            if let Some(location) = location
                && changes.target.is_none_or(|(last, _)| last < lsn)
                && segments.get(location).is_some_and(|segment| segment.number == lsn.number())
                && peek(location)?.is_none()
            {
                changes.target = Some((lsn, location));
            }
        }
        Ok(is_whole)
    }

    /// Gives a table the entries of its lost pieces. Returns how many records are lost, or are only
    /// readable in an older version. Returns `None` if the table is over another run by now. The
    /// caller holds `maintenance`.
    fn take_found(
        &self,
        shard: usize,
        lost: &Lost,
        found: &[Found],
        changes: &Changes,
    ) -> Option<u64> {
        // A record that is left for another component to remove still exists after it expires.
        let now_ms = if self.clock.expired_keys().is_some() { 0 } else { self.clock.now_ms() };
        let has_gaps = changes.gaps > 0;
        let words = if has_gaps { lost.words() } else { Vec::new() };
        let mut table = self.shards[shard].write();
        if !table.run().is_some_and(|run| Arc::ptr_eq(run, &lost.run)) {
            return None;
        }
        let segments = self.log.segments();
        let Before { added, dead, .. } = table.before();
        let known: HashSet<u64> = found.iter().map(|one| one.entry).collect();
        let lsn = |entry: u64| segments.lsn(Location::from_bits(entry));
        let is_in_doubt = |one: &&Found| {
            let segment = segments.get(one.location);
            let is_there = segment.is_some_and(|segment| segment.number == one.number);
            let is_known = |entries: &[u64]| entries.binary_search(&one.entry).is_ok();
            is_there && !is_known(&lost.beside) && !is_known(&added) && !is_known(&dead)
        };
        // The newer record is in a gap, but the index has it at another location.
        let is_superseded = |one: &Found| {
            lost.entries_with(tag_of(one.entry), &added, &dead)
                .any(|entry| !known.contains(&entry) && lsn(entry) > lsn(one.entry))
        };
        let found = found.iter().filter(is_in_doubt);
        let (superseded, found): (Vec<&Found>, Vec<&Found>) =
            found.partition(|one| has_gaps && is_superseded(one));
        superseded.iter().for_each(|one| segments.note_loss(one.location));
        let proofs = lost.prove(&found, &dead, now_ms);
        let target = changes.target.filter(|(lsn, location)| segments.lsn(*location) == *lsn);
        let (mut entries, mut expired, mut doubtful) = (Vec::new(), 0, 0);
        for one in found {
            let proof = lost.piece_of(one.entry).and_then(|piece| proofs.get(&piece).copied());
            let segment = segments.get(one.location);
            if one.meta.is_expired(now_ms) {
                segments.note_loss(one.location);
                self.note_forgotten(shard, &segments, one.location);
                if proof != Some(Proof::WithoutExpired) {
                    expired += 1;
                    segment.into_iter().for_each(|segment| segment.remove_live(one.total));
                }
                continue;
            }
            let is_proven = proof.is_some_and(|proof| proof != Proof::None)
                || lsn(one.entry) > changes.last_gap
                || words.binary_search(&one.entry).is_ok();
            if is_proven {
                entries.push(one.entry);
                continue;
            }
            // The segment's file stays, although the index does not point into it.
            segment.into_iter().for_each(|segment| {
                segment.all_live.lose();
                segment.spare();
            });
            if let Some((_, location)) = target.filter(|(gap, _)| *gap > lsn(one.entry)) {
                doubtful += 1;
                entries.push(u64::from(tag_of(one.entry)) << Location::BITS | location.bits());
            }
        }
        entries.sort_unstable();
        entries.dedup();
        let before = table.len();
        let rest = Arc::new(lost.run.without(&lost.pieces));
        table.replace_lost(rest, &entries, &|entry| lost.had(entry));
        let missing = before.saturating_sub(table.len()).saturating_sub(expired);
        Some(if has_gaps { missing as u64 + doubtful } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use crate::io::{FaultyStorage, Open, Storage};
    use crate::{Engine, HashDatabase, Maintenance, Meta, Options, Wait};
    use std::cell::Cell;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    const RECORDS: u32 = 20_000;

    fn open(storage: &FaultyStorage, index_bytes: u64) -> HashDatabase {
        let options = Options { index_bytes: Some(index_bytes), ..Options::default() };
        let path = Path::new("casket.tch");
        HashDatabase::open_on(Arc::new(storage.clone()), path, &options, false).unwrap()
    }

    #[test]
    fn it_can_be_stopped_at_any_step_and_holds_no_lock_between_them() {
        let whole = FaultyStorage::new();
        let database = open(&whole, u64::MAX);
        for number in 0..RECORDS {
            database.put(&number.to_be_bytes(), &[7; 100], Meta::NONE, Wait::Block).unwrap();
        }
        drop(database);
        let mut partly = 0;
        let mut steps = 0;
        loop {
            let storage = whole.kill();
            let file = storage.open(Path::new("casket.tch/checkpoint"), Open::Existing).unwrap();
            for offset in [30_000, 60_000, 90_000] {
                file.write_at(&[0xff; 16], offset).unwrap();
            }
            let database = open(&storage, 0);
            let engine = database.engine();
            let asked = Cell::new(0);
            let go_on = || {
                drop(engine.log.maintenance().try_pause().expect("it is not held"));
                asked.set(asked.get() + 1);
                asked.get() <= steps
            };
            engine.log.maintenance().suspect_checkpoint(true);
            engine.repair_runs(&go_on).unwrap();
            let repaired = engine.repaired_pieces.load(Ordering::Relaxed);
            partly += u32::from((1..3).contains(&repaired));
            *engine.repair_after.lock() = None;
            engine.repair_runs(&|| true).unwrap();
            assert_eq!(engine.damaged_pieces(), 0);
            database.run_maintenance().unwrap();
            assert_eq!(database.len(), u64::from(RECORDS));
            for number in (0..RECORDS).step_by(7) {
                assert!(database.read(&number.to_be_bytes(), Wait::Block, &mut |_| ()).unwrap());
            }
            if asked.get() <= steps {
                break;
            }
            // The first steps read the runs.
            steps += if steps < 1024 { 128 } else { 1 };
        }
        assert_eq!(partly, 2);
    }
}
