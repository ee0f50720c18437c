//! Full scans: all records in the order of the log.
//!
//! A scan reads the log segment by segment, from its beginning to the end that it had when the scan
//! began. It visits a record if the index points to it. Records that move before the scan reaches
//! them are visited at the end, or once there are [`MOVED_MAX`] of them; see [`super::scans`].
//! Records that are removed before the scan reaches them are not visited. Records that were added
//! after its beginning are ignored.
//!
//! # Locks
//!
//! The lock of a record's shard is held while the record is looked up in the index, and while the
//! frontier passes it. Records of a segment that has lost none are passed without the lock, see
//! [`super::scans`]. No lock is held while the log is read, or while a visitor runs.
//!
//! # Damage
//!
//! If a part of the log is unreadable, the index shows which records are lost. The scan reads the
//! rest of the segment through the entries that point into it. An unreadable record of these fails
//! the step with its error, and the next step goes on after it. At the end the scan looks for
//! entries that point beyond the records of their segments. Damage to records that no entry points
//! to is ignored.

use super::scans::{ITERATION_NAMES_MAX, Progress, Registered};
use super::{Index, IndexKey, KeyedEngine, ShardIndex, Stretch, Tag, find_location, visit_record};
use crate::log::record::{ALIGNMENT, Kind, Record};
use crate::log::{
    Check, Location, Lsn, PausedReader, RECORD_BATCH_BYTES, ReadOutcome, Reader, RecordBatch,
    Segment, Segments,
};
use crate::{FullScan, Result, Visit, VisitKey, Wait};
use std::sync::Arc;

/// Approximate number of records that a step looks at.
pub(super) const STEP_RECORDS: usize = 256;

/// Approximate number of bytes of the log that a step reads.
const STEP_BYTES: u64 = 1 << 20;

/// Records whose entries are fetched together.
const BATCH_RECORDS: usize = 64;

/// More moved records than this are visited before others.
const MOVED_MAX: usize = 1 << 20;

/// Like [`MOVED_MAX`], for an iteration, which is given up at twice as many.
const ITERATION_MOVED_MAX: usize = ITERATION_NAMES_MAX / 2;

/// Most records of one batch of the log that an iteration visits in a step. A step that continues
/// within the batch reads it again from its beginning.
pub(super) const ITERATION_RECORDS_MAX: usize = 64 << 10;

/// Entries of a segment that are collected at a time where the log is damaged.
const ENTRIES_MAX: usize = 64 << 10;

/// Average bytes per record from which on keys are not read in the order of the log. Reading the
/// values would take longer than skipping to the next record.
const LARGE_RECORD_BYTES: u64 = 16 << 10;

/// Function that a step calls for each record.
pub(super) enum Visitor<'v> {
    Entries(&'v mut Visit<'v>),
    Keys(&'v mut VisitKey<'v>),
}

/// A scan in progress.
pub(crate) struct LogScan<'e, I: Index> {
    engine: &'e KeyedEngine<I>,
    progress: Registered,
    stage: Stage<I>,
    /// Records that were read and not yet visited.
    batch: RecordBatch,
    /// Whether a failed step has ended the scan.
    is_cut: bool,
}

/// An engine and the progress of a scan of it.
struct Cursor<'s, I: Index> {
    engine: &'s KeyedEngine<I>,
    progress: &'s Progress,
}

/// Position of a scan that holds no file between its steps.
pub(super) enum Paused {
    /// Before the first segment with at least this number.
    Before(u64),
    /// In the segment with this number, and whether the index has pointed to each of its records so
    /// far.
    Within(u64, PausedReader, bool),
    /// After the last segment.
    AfterLast,
    Finished,
}

enum Stage<I: Index> {
    /// Before the first segment with at least this number.
    Before(u64),
    Within(Reading),
    /// In the part of a segment that is read through the index.
    Damaged(Entries<I>),
    /// After the last segment.
    AfterLast,
    Finished,
}

/// A segment being read.
struct Reading {
    reader: Reader,
    /// Whether the index has pointed to each record so far.
    are_all_live: bool,
}

/// Entries that point into a segment, from an offset on.
struct Entries<I: Index> {
    segment: Arc<Segment>,
    /// Offset up to which entries were collected.
    collected: usize,
    end: usize,
    /// Sorted by location, the first one last.
    entries: Vec<(Location, usize, Tag<I>)>,
}

impl<I: Index> KeyedEngine<I> {
    /// Begins a scan of all records in the order of the log.
    pub(crate) fn scan_in_log_order(&self) -> LogScan<'_, I> {
        let progress = self.scans.begin(|set_end| self.log.at_end(set_end));
        let batch = RecordBatch::new(BATCH_RECORDS);
        LogScan { engine: self, progress, stage: Stage::Before(0), batch, is_cut: false }
    }

    /// Makes a step of a scan that is paused between steps. Returns its new position, or `None` if
    /// the log is damaged there and the caller must continue through the index.
    pub(super) fn step_paused(
        &self,
        progress: &Progress,
        paused: Paused,
        visitor: &mut Visitor<'_>,
    ) -> Result<Option<Paused>> {
        let cursor = Cursor { engine: self, progress };
        let batch = &mut RecordBatch::new(BATCH_RECORDS);
        let stage = cursor.advance(cursor.resumed(paused), batch, visitor)?;
        Ok(Paused::of(stage))
    }

    /// Returns whether records are so large that reading keys without the values is faster.
    pub(crate) fn has_large_records(&self) -> bool {
        let live: u64 = self.log.segments().iter().map(|one| one.live_bytes.get()).sum();
        live / self.len().max(1) >= LARGE_RECORD_BYTES
    }
}

impl<I: Index> FullScan for LogScan<'_, I> {
    fn step(&mut self, visit: &mut Visit<'_>) -> Result<bool> {
        self.some(&mut Visitor::Entries(visit))
    }

    fn step_keys(&mut self, visit: &mut VisitKey<'_>) -> Result<bool> {
        self.some(&mut Visitor::Keys(visit))
    }

    fn passes_damage(&self) -> bool {
        !self.is_cut
    }
}

impl<I: Index> LogScan<'_, I> {
    /// Visits some records. Returns whether there may be more. After a failure the scan is over,
    /// unless that is a damaged record to which the index points.
    fn some(&mut self, visitor: &mut Visitor<'_>) -> Result<bool> {
        let cursor = Cursor { engine: self.engine, progress: &self.progress };
        if let Stage::Damaged(entries) = &mut self.stage
            && self.progress.moved() <= MOVED_MAX
        {
            let before = (entries.collected, entries.entries.len());
            let shown = cursor.show_some(entries, visitor);
            let number = entries.segment.number;
            if shown.is_err() && before == (entries.collected, entries.entries.len()) {
                // No entry was passed: the index cannot be read.
                (self.stage, self.is_cut) = (Stage::Finished, true);
            }
            if !shown? {
                self.stage = Stage::Before(number + 1);
            }
            return Ok(true);
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Finished);
        // The last look finds records that are lost, and there are no further ones.
        let is_last = matches!(stage, Stage::AfterLast) && self.progress.moved() == 0;
        let next = cursor.advance(stage, &mut self.batch, visitor);
        self.stage = next.inspect_err(|_| self.is_cut = !is_last)?;
        Ok(!matches!(self.stage, Stage::Finished))
    }
}

impl Paused {
    fn of<I: Index>(stage: Stage<I>) -> Option<Self> {
        Some(match stage {
            Stage::Before(number) => Self::Before(number),
            Stage::Within(Reading { reader, are_all_live }) => {
                Self::Within(reader.segment().number, reader.pause(), are_all_live)
            }
            Stage::Damaged(_) => return None,
            Stage::AfterLast => Self::AfterLast,
            Stage::Finished => Self::Finished,
        })
    }
}

impl<I: Index> Cursor<'_, I> {
    /// Visits some records. Returns the next stage.
    fn advance(
        &self,
        stage: Stage<I>,
        batch: &mut RecordBatch,
        visitor: &mut Visitor<'_>,
    ) -> Result<Stage<I>> {
        let is_iteration = self.progress.is_iteration();
        let moved_max = if is_iteration { ITERATION_MOVED_MAX } else { MOVED_MAX };
        if self.progress.moved() > moved_max && !matches!(stage, Stage::Finished) {
            self.show_moved(visitor)?;
            return Ok(stage);
        }
        match stage {
            Stage::Before(number) => Ok(self.enter(number)),
            Stage::Within(reading) => self.read_some(reading, batch, visitor),
            Stage::Damaged(mut entries) => Ok(match self.show_some(&mut entries, visitor)? {
                true => Stage::Damaged(entries),
                false => Stage::Before(entries.segment.number + 1),
            }),
            Stage::AfterLast if self.progress.moved() > 0 => {
                self.show_moved(visitor)?;
                Ok(Stage::AfterLast)
            }
            Stage::AfterLast => {
                self.check_reach(visitor)?;
                Ok(Stage::Finished)
            }
            Stage::Finished => Ok(Stage::Finished),
        }
    }

    /// Resumes a scan from where it was paused.
    fn resumed(&self, paused: Paused) -> Stage<I> {
        match paused {
            Paused::Before(number) => Stage::Before(number),
            Paused::Within(number, reader, are_all_live) => {
                let segments = self.engine.log.segments();
                let segment = segments.iter().find(|one| one.number == number);
                // The live records of a removed segment have moved.
                let Some(segment) = segment else { return Stage::Before(number + 1) };
                let upto = self.end_within(segment);
                let reader = Reader::resumed(Arc::clone(segment), reader, upto);
                Stage::Within(Reading { reader, are_all_live })
            }
            Paused::AfterLast => Stage::AfterLast,
            Paused::Finished => Stage::Finished,
        }
    }

    /// Returns the offset in a segment up to which the scan reads.
    fn end_within(&self, segment: &Segment) -> u64 {
        let end = self.progress.end();
        let is_last = segment.number == end.number();
        if is_last { end.offset() as u64 } else { segment.bytes() }
    }

    /// Enters the first segment with at least this number. Live records of segments removed before
    /// it have moved.
    fn enter(&self, number: u64) -> Stage<I> {
        let end = self.progress.end();
        let segments = self.engine.log.segments();
        let is_before_end = |one: &Segment| {
            one.number < end.number() || one.number == end.number() && end.offset() > 0
        };
        let rest = segments.iter().filter(|one| one.number >= number && is_before_end(one));
        let Some(segment) = rest.min_by_key(|one| one.number) else {
            self.progress.pass_to(end);
            return Stage::AfterLast;
        };
        self.progress.pass_to(Lsn::new(segment.number, 0).max(self.progress.from()));
        if segment.is_missing {
            return Stage::Damaged(self.entries_of(segment, 0));
        }
        let upto = self.end_within(segment);
        let reader = if self.progress.is_iteration() {
            Reader::resumed(Arc::clone(segment), PausedReader::default(), upto)
        } else {
            Reader::new(Arc::clone(segment), upto)
        };
        Stage::Within(Reading { reader, are_all_live: true })
    }

    /// Reads some records of a segment and visits the live ones.
    fn read_some(
        &self,
        reading: Reading,
        batch: &mut RecordBatch,
        visitor: &mut Visitor<'_>,
    ) -> Result<Stage<I>> {
        let Reading { mut reader, mut are_all_live } = reading;
        let segment = Arc::clone(reader.segment());
        let upto = reader.offset() + STEP_BYTES;
        // The scan may begin within the segment, or the last step may have ended within a batch.
        let passed = self.progress.frontier();
        let skipped_to = if passed.number() == segment.number { passed.offset() as u64 } else { 0 };
        let puts_max = match self.progress.is_iteration() {
            true => ITERATION_RECORDS_MAX,
            false => usize::MAX,
        };
        let (mut looked_at, mut puts, mut is_cut) = (0, 0, false);
        let next = loop {
            if segment.all_live.get() && reader.offset() >= skipped_to {
                are_all_live &= self.show_batch(&segment, batch, visitor)?;
                looked_at += self.show_puts(&mut reader, visitor)?;
            }
            let scan_position = reader.scan_position();
            let next = reader.next(&mut |offset, record, bytes| {
                if offset < skipped_to {
                    are_all_live = false;
                    return Ok(());
                }
                if is_cut {
                    return Ok(());
                }
                looked_at += 1;
                if record.kind != Kind::Put {
                    return Ok(());
                }
                is_cut = puts == puts_max;
                if is_cut {
                    return Ok(());
                }
                puts += 1;
                if !batch.fits(bytes.len()) {
                    are_all_live &= self.show_batch(&segment, batch, visitor)?;
                }
                if bytes.len() <= RECORD_BATCH_BYTES {
                    batch.push(offset, bytes);
                    return Ok(());
                }
                let location = segment.at(offset);
                let is_live = self.passes_whole(&segment, location)
                    || self.is_live(&segment, location, record)?;
                are_all_live &= is_live;
                match is_live {
                    true => self.show(record, &self.engine.log.segments(), location, visitor),
                    false => Ok(()),
                }
            })?;
            if is_cut {
                reader.go_back(scan_position);
            }
            if next != ReadOutcome::Record || looked_at >= STEP_RECORDS || reader.offset() >= upto {
                break next;
            }
        };
        are_all_live &= self.show_batch(&segment, batch, visitor)?;
        Ok(match next {
            ReadOutcome::Record => Stage::Within(Reading { reader, are_all_live }),
            ReadOutcome::End => {
                if are_all_live && segment.is_sealed() && reader.offset() >= segment.bytes() {
                    segment.all_live.find_all();
                }
                Stage::Before(segment.number + 1)
            }
            ReadOutcome::NoRecord(offset) => {
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                Stage::Damaged(self.entries_of(&segment, offset))
            }
        })
    }

    /// Visits puts that the reader has in memory, if the index points to each record of its
    /// segment. Returns how many.
    fn show_puts(&self, reader: &mut Reader, visitor: &mut Visitor<'_>) -> Result<usize> {
        let segment = Arc::clone(reader.segment());
        let mut shown = 0;
        while shown < STEP_RECORDS {
            let puts = reader.puts_at_hand(BATCH_RECORDS);
            let Some((last, _)) = puts.records.last() else { break };
            if !self.passes_whole(&segment, segment.at(*last)) {
                break;
            }
            self.show_all(&segment, puts.records.iter().copied(), visitor)?;
            shown += puts.records.len();
            let end = puts.end;
            reader.pass(end);
        }
        Ok(shown)
    }

    /// Visits the records of a batch that the index points to. Returns whether it points to all.
    fn show_batch(
        &self,
        segment: &Segment,
        batch: &mut RecordBatch,
        visitor: &mut Visitor<'_>,
    ) -> Result<bool> {
        let Some(last) = batch.last() else { return Ok(true) };
        let are_all_live = if self.passes_whole(segment, segment.at(last)) {
            let records = batch.records().map(|(offset, record, _)| (offset, record));
            self.show_all(segment, records, visitor)?;
            true
        } else {
            self.show_live(segment, batch, visitor)?
        };
        batch.clear();
        Ok(are_all_live)
    }

    /// Visits the records of a batch that the index points to, looking each up. Returns whether it
    /// points to all.
    fn show_live(
        &self,
        segment: &Segment,
        batch: &RecordBatch,
        visitor: &mut Visitor<'_>,
    ) -> Result<bool> {
        let index = &self.engine.index;
        self.read_alive(segment)?;
        let mut index_keys = Vec::with_capacity(BATCH_RECORDS);
        for (_, record, _) in batch.records() {
            let index_key = index.index_key(record.key);
            index_key.iter().for_each(|index_key| self.engine.prefetch_entry(*index_key));
            index_keys.push(index_key);
        }
        let mut are_all_live = true;
        for ((offset, record, _), index_key) in batch.records().zip(index_keys) {
            let location = segment.at(offset);
            let is_live = match index_key {
                Some(index_key) => self.passes(segment, location, index_key)?,
                None => false,
            };
            are_all_live &= is_live;
            if is_live {
                self.show(&record, &self.engine.log.segments(), location, visitor)?;
            }
        }
        Ok(are_all_live)
    }

    /// Moves the frontier past a record and those before it, if the segment has lost none. Returns
    /// whether it did.
    fn passes_whole(&self, segment: &Segment, last: Location) -> bool {
        let end = Lsn::new(segment.number, last.offset()).next();
        self.progress.pass_all_to(end, || segment.all_live.get() && !segment.is_taken_out())
    }

    /// Moves the frontier past a record. Returns whether the index points to it.
    fn is_live(&self, segment: &Segment, location: Location, record: &Record<'_>) -> Result<bool> {
        self.read_alive(segment)?;
        match self.engine.index.index_key(record.key) {
            Some(index_key) => self.passes(segment, location, index_key),
            None => Ok(false),
        }
    }

    /// Moves the frontier past a record. Returns whether the index points to it.
    #[inline]
    fn passes(
        &self,
        segment: &Segment,
        location: Location,
        index_key: IndexKey<I>,
    ) -> Result<bool> {
        let table = self.engine.table(index_key.shard);
        let is_there = match table.run() {
            None => find_location(&*table, index_key.tag, location).is_some(),
            Some(_) => {
                let alive = self.progress.alive().lock().clone();
                self.engine.slot_of(&table, index_key, location, alive.as_deref())?.is_some()
            }
        };
        // A record whose lookup failed is not passed.
        self.progress.pass_to(Lsn::new(segment.number, location.offset()).next());
        Ok(is_there && !segment.is_taken_out())
    }

    /// Reads which records of a segment and its successors the runs have, if the index is in runs.
    /// The caller holds no lock of a shard.
    fn read_alive(&self, segment: &Segment) -> Result<()> {
        if self.engine.is_over_runs() {
            let known = self.progress.alive().lock().take();
            let alive = self.engine.alive_from(segment, known)?;
            *self.progress.alive().lock() = alive;
        }
        Ok(())
    }

    /// Visits records of a segment that the frontier has passed.
    fn show_all<'r>(
        &self,
        segment: &Segment,
        records: impl Iterator<Item = (u64, Record<'r>)>,
        visitor: &mut Visitor<'_>,
    ) -> Result<()> {
        let segments = self.engine.log.segments();
        for (offset, record) in records {
            self.show(&record, &segments, segment.at(offset), visitor)?;
        }
        Ok(())
    }

    /// Visits a record that was read, unless it has expired.
    fn show(
        &self,
        record: &Record<'_>,
        segments: &Segments,
        location: Location,
        visitor: &mut Visitor<'_>,
    ) -> Result<()> {
        if record.meta.is_expired(self.engine.now_ms(record.meta)) {
            return Ok(());
        }
        match visitor {
            Visitor::Entries(visit) => visit_record(record, segments, location, visit),
            Visitor::Keys(visit) => {
                visit(record.key);
                Ok(())
            }
        }
    }

    /// Returns the part of a segment from an offset on, to be read through the index.
    fn entries_of(&self, segment: &Arc<Segment>, offset: usize) -> Entries<I> {
        let end = self.progress.end();
        let is_last = segment.number == end.number();
        let end = if is_last { end.offset() } else { usize::MAX };
        let collected = offset.next_multiple_of(ALIGNMENT);
        Entries { segment: Arc::clone(segment), collected, end, entries: Vec::new() }
    }

    /// Visits some of the records that the index has in a part of a segment. Returns whether there
    /// may be more. A record that cannot be read is passed.
    fn show_some(&self, entries: &mut Entries<I>, visitor: &mut Visitor<'_>) -> Result<bool> {
        if entries.entries.is_empty() {
            if entries.collected >= entries.end {
                return Ok(false);
            }
            self.collect(entries)?;
        }
        for _ in 0..STEP_RECORDS {
            let Some((location, shard, tag)) = entries.entries.pop() else { break };
            let table = self.engine.table(shard);
            let lsn = Lsn::new(entries.segment.number, location.offset());
            self.progress.pass_to(lsn.next());
            let index_key = IndexKey { shard, tag };
            let is_there = self.engine.slot_of(&table, index_key, location, None)?.is_some();
            if is_there && !entries.segment.is_taken_out() {
                let segments = self.engine.log.segments();
                drop(table);
                self.show_entry(segments, shard, tag, location, visitor)?;
            }
        }
        Ok(true)
    }

    /// Collects the next entries of a part of a segment.
    fn collect(&self, part: &mut Entries<I>) -> Result<()> {
        let mut end = part.end;
        let mut found = Vec::new();
        for shard in 0..I::SHARDS {
            self.engine.with_entries(shard, |entries| {
                if part.segment.is_taken_out() {
                    return;
                }
                for (tag, location) in entries {
                    let is_within = (part.collected..end).contains(&location.offset());
                    if location.slot() == part.segment.slot && is_within {
                        found.push((location, shard, tag));
                    }
                }
            })?;
            if found.len() > 2 * ENTRIES_MAX {
                found.select_nth_unstable_by_key(ENTRIES_MAX, |(location, ..)| *location);
                end = found[ENTRIES_MAX].0.offset();
                found.truncate(ENTRIES_MAX);
            }
        }
        found.sort_unstable_by_key(|(location, ..)| std::cmp::Reverse(*location));
        part.collected = end;
        part.entries = found;
        Ok(())
    }

    /// Visits the record of an entry.
    fn show_entry(
        &self,
        segments: arc_swap::Guard<Arc<Segments>>,
        shard: usize,
        tag: Tag<I>,
        location: Location,
        visitor: &mut Visitor<'_>,
    ) -> Result<()> {
        let stretch = Stretch { shard, entries: vec![(tag, location)], segments };
        match visitor {
            Visitor::Entries(visit) => self.engine.visit_entries(&stretch, visit),
            Visitor::Keys(visit) => self.engine.visit_keys(&stretch, visit),
        }
    }

    /// Visits some of the records that have moved, in the order of their new locations.
    fn show_moved(&self, visitor: &mut Visitor<'_>) -> Result<()> {
        let names = self.progress.take_moved(STEP_RECORDS);
        let mut places = Vec::with_capacity(names.len());
        for name in names {
            let index_key = self.engine.index.index_key_of_name(name);
            let (_, locations) = self.engine.locations(index_key, Wait::Block)?;
            places.extend(locations.min().map(|location| (location, name)));
        }
        places.sort_unstable();
        let segments = self.engine.log.segments();
        for (location, _) in &places {
            KeyedEngine::<I>::announce_record(&segments, *location);
        }
        drop(segments);
        places.into_iter().try_for_each(|(_, name)| self.show_named(name, visitor))
    }

    /// Visits the record with a name, wherever it is now.
    fn show_named(&self, name: u64, visitor: &mut Visitor<'_>) -> Result<()> {
        let engine = self.engine;
        let index_key = engine.index.index_key_of_name(name);
        let (segments, locations) = engine.locations(index_key, Wait::Block)?;
        for location in locations {
            // A record that has not moved was already visited.
            if segments.lsn(location) < self.progress.end() {
                continue;
            }
            engine.with(&segments, location, Wait::Block, Check::Whole, |record| {
                if engine.index.name(record.key) == Some(name) {
                    self.show(record, &segments, location, visitor)
                } else {
                    Ok(())
                }
            })??;
        }
        Ok(())
    }

    /// Fails if the index points beyond the records of a segment, which means that records are
    /// lost. Records before the beginning of the scan are ignored.
    fn check_reach(&self, visitor: &mut Visitor<'_>) -> Result<()> {
        for shard in 0..I::SHARDS {
            let (segments, lost) = self.engine.with_entries(shard, |entries| {
                let segments = self.engine.log.segments();
                let from = self.progress.from();
                let mut lost = entries.filter(|(_, location)| segments.is_lost(*location, from));
                let lost = lost.next();
                (segments, lost)
            })?;
            if let Some((tag, location)) = lost {
                self.show_entry(segments, shard, tag, location, visitor)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::hash::HashDatabase;
    use crate::io::FaultyStorage;
    use crate::{Engine, Error, Maintenance, Meta, Options, Wanted};
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    const SEGMENT_BYTES: u32 = 64 << 10;

    pub(in crate::keyed) fn open(storage: &FaultyStorage) -> HashDatabase {
        let options = Options { segment_bytes: Some(SEGMENT_BYTES), ..Options::default() };
        let storage = Arc::new(storage.clone());
        HashDatabase::open_on(storage, Path::new("casket.tch"), &options, false).unwrap()
    }

    pub(in crate::keyed) fn put(database: &HashDatabase, number: u32, value: &[u8]) {
        database.put(&number.to_be_bytes(), value, Meta::NONE, Wait::Block).unwrap();
    }

    pub(in crate::keyed) fn number(key: &[u8]) -> u32 {
        u32::from_be_bytes(key.try_into().unwrap())
    }

    /// Puts 60 of 3000 records between two steps of a scan: different ones after each step, before
    /// and after the scan's position, some twice. Compacts after every fourth step.
    pub(in crate::keyed) fn change_between_steps(database: &HashDatabase, step: u32, turn: u32) {
        for number in (step * 37 % 50..3000).step_by(50) {
            put(database, number, &step.to_be_bytes());
        }
        if step % 4 == turn % 4 {
            database.optimize(None).unwrap();
        }
    }

    /// Calls `scan` again and again, beside a thread that changes `records` records and another
    /// that compacts.
    pub(in crate::keyed) fn scan_beside_writers_and_the_compactor(
        database: &HashDatabase,
        records: u32,
        scan: impl Fn(),
    ) {
        const PASSES: u32 = 8;
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..PASSES * records {
                    put(database, number.wrapping_mul(7919) % records, &[1; 100]);
                }
                is_done.store(true, Ordering::Relaxed);
            });
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    database.run_maintenance().unwrap();
                    std::thread::yield_now();
                }
            });
            while !is_done.load(Ordering::Relaxed) {
                scan();
            }
        });
    }

    /// Returns the records of the rest of a scan, and checks that each is visited once.
    fn rest(scan: &mut dyn FullScan) -> BTreeMap<u32, Vec<u8>> {
        let mut met = BTreeMap::new();
        while some(scan, &mut met) {}
        met
    }

    fn some(scan: &mut dyn FullScan, met: &mut BTreeMap<u32, Vec<u8>>) -> bool {
        let met_before = met.len();
        let mut count = 0;
        let goes_on = scan
            .step(&mut |entry| {
                count += 1;
                met.insert(number(entry.key), entry.value.to_vec());
            })
            .unwrap();
        assert_eq!(met.len(), met_before + count, "met twice");
        goes_on
    }

    #[test]
    fn records_are_met_in_the_order_in_which_they_were_stored() {
        let database = open(&FaultyStorage::new());
        let numbers: Vec<u32> = (0..3000).map(|number: u32| number.wrapping_mul(0x9e37)).collect();
        for (index, number) in numbers.iter().enumerate() {
            // Some fill a batch of the scan alone.
            let bytes = if index % 100 == 0 { RECORD_BATCH_BYTES + 100 } else { 50 };
            put(&database, *number, &vec![1; bytes]);
        }
        for wanted in [Wanted::Records, Wanted::Keys] {
            let mut met = Vec::new();
            let mut scan = database.full_scan(wanted, true).unwrap();
            if wanted == Wanted::Keys {
                while scan.step_keys(&mut |key| met.push(number(key))).unwrap() {}
            } else {
                while scan.step(&mut |entry| met.push(number(entry.key))).unwrap() {}
            }
            assert!(met == numbers, "{wanted:?}");
            assert!(!scan.step_keys(&mut |_| panic!("it was over")).unwrap());
        }
    }

    #[test]
    fn each_record_is_met_once_wherever_it_goes_between_the_steps() {
        let storage = FaultyStorage::new();
        for turn in 0..12 {
            let database = open(&storage);
            for number in 0..3000 {
                put(&database, number, &[0; 100]);
            }
            let mut scan = database.full_scan(Wanted::Records, true).unwrap();
            let mut met = BTreeMap::new();
            let mut step = 0_u32;
            while some(&mut *scan, &mut met) {
                step += 1;
                change_between_steps(&database, step, turn);
                assert!(step < 1000, "it comes to an end");
            }
            assert!(met.keys().copied().eq(0..3000), "{turn}");
            database.replace_all(&crate::Batch::new()).unwrap();
        }
    }

    #[test]
    fn each_record_is_met_once_beside_writers_and_the_compactor() {
        const RECORDS: u32 = 3000;
        let database = open(&FaultyStorage::new());
        for number in 0..RECORDS {
            put(&database, number, &[0; 100]);
        }
        scan_beside_writers_and_the_compactor(&database, RECORDS, || {
            let mut scan = database.full_scan(Wanted::Records, true).unwrap();
            assert!(rest(&mut *scan).into_keys().eq(0..RECORDS));
        });
    }

    #[test]
    fn a_scan_learns_which_segments_of_another_process_have_lost_no_record() {
        const RECORDS: u32 = 3000;
        let storage = FaultyStorage::new();
        let database = open(&storage);
        for number in 0..RECORDS {
            put(&database, number, &[0; 100]);
        }
        drop(database);
        let database = open(&storage);
        let known = || {
            let segments = database.engine().log.segments().in_order();
            segments.iter().filter(|one| one.is_sealed() && one.all_live.get()).count()
        };
        let scan = || {
            let mut scan = database.full_scan(Wanted::Records, true).unwrap();
            assert!(rest(&mut *scan).into_keys().eq(0..RECORDS));
        };
        assert_eq!(known(), 0);
        scan();
        let sealed = database.engine().log.segments().iter().filter(|one| one.is_sealed()).count();
        assert!(sealed > 3);
        assert_eq!(known(), sealed);
        scan();
        // The first record of the first segment.
        put(&database, 0, b"new");
        assert_eq!(known(), sealed - 1);
        scan();
        scan();
        assert_eq!(known(), sealed - 1);
    }

    #[test]
    fn a_record_is_met_with_its_latest_value_unless_it_was_removed() {
        let database = open(&FaultyStorage::new());
        for number in 0..2000 {
            put(&database, number, b"old");
        }
        let mut scan = database.full_scan(Wanted::Records, true).unwrap();
        for number in 1000..2000 {
            put(&database, number, b"new");
        }
        for number in (0..2000_u32).filter(|number| number % 3 == 0) {
            database
                .update(&number.to_be_bytes(), Wait::Block, &mut |_| crate::Change::Remove)
                .unwrap();
        }
        let met = rest(&mut *scan);
        let expected = (0..2000).filter(|number| number % 3 > 0);
        let value = |number: u32| if number < 1000 { b"old" } else { b"new" };
        assert!(met.into_iter().eq(expected.map(|number| (number, value(number).to_vec()))));
    }

    #[test]
    fn records_stored_after_all_were_removed_are_not_taken_for_older_ones() {
        let database = open(&FaultyStorage::new());
        let mut scan = None;
        for value in [b"old", b"new"] {
            for number in 0..2000 {
                put(&database, number, value);
            }
            if scan.is_none() {
                let scan = scan.insert(database.full_scan(Wanted::Records, true).unwrap());
                let mut met = BTreeMap::new();
                while met.is_empty() {
                    some(&mut **scan, &mut met);
                }
                // The same slots, offsets and keys come again.
                database.replace_all(&crate::Batch::new()).unwrap();
            }
        }
        let met = rest(&mut *scan.unwrap());
        assert!(met.is_empty(), "{} records that were not there at the beginning", met.len());
    }

    #[test]
    fn records_that_moved_are_met_before_they_take_more_memory() {
        const COUNT: u32 = MOVED_MAX as u32 + 300_000;
        let storage = FaultyStorage::new();
        let options = Options::default();
        let path = Path::new("casket.tch");
        let database = HashDatabase::open_on(Arc::new(storage), path, &options, false).unwrap();
        for number in 0..COUNT {
            put(&database, number, b"");
        }
        let scan = &mut database.engine().scan_in_log_order();
        let mut met = vec![false; COUNT as usize];
        let mut note = |key: &[u8]| {
            assert!(!std::mem::replace(&mut met[number(key) as usize], true), "met twice");
        };
        for number in 0..COUNT {
            put(&database, number, b"");
        }
        assert_eq!(scan.progress.moved(), COUNT as usize);
        while scan.progress.moved() > MOVED_MAX {
            assert!(scan.step_keys(&mut note).unwrap());
            assert!(matches!(scan.stage, Stage::Before(0)));
        }
        while scan.step_keys(&mut note).unwrap() {}
        assert_eq!(scan.progress.moved(), 0);
        assert!(met.into_iter().all(|is_met| is_met));
    }

    #[test]
    fn no_lock_is_held_while_the_log_is_read() {
        let storage = FaultyStorage::new();
        let database = Arc::new(open(&storage));
        for number in 0..100 {
            put(&database, number, b"value");
        }
        let faults = storage.faults();
        faults.stall_all();
        let reader = Arc::clone(&database);
        let reader = std::thread::spawn(move || {
            let mut scan = reader.full_scan(Wanted::Records, true).unwrap();
            rest(&mut *scan).len()
        });
        faults.await_stalled();
        for number in 0..100 {
            let key = u32::to_be_bytes(number);
            database.put(&key, b"other", Meta::NONE, Wait::Never).unwrap();
        }
        faults.go_on();
        assert_eq!(reader.join().unwrap(), 100);
    }

    #[test]
    fn damage_fails_a_step_only_where_a_record_is_lost_and_the_next_one_goes_on() {
        let storage = FaultyStorage::new();
        let database = open(&storage);
        for number in 0..2000 {
            put(&database, number, &[number as u8; 100]);
        }
        let first = database.engine().log.segments().in_order()[0].path.clone();
        drop(database);
        // About the third record.
        storage.lose_sectors(&first, 512..1024).unwrap();
        let database = open(&storage);
        let mut scan = database.full_scan(Wanted::Records, true).unwrap();
        let mut met = BTreeMap::new();
        let mut lost = 0;
        loop {
            match scan.step(&mut |entry| {
                assert!(met.insert(number(entry.key), ()).is_none(), "a record is met twice");
            }) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    assert!(matches!(error, Error::Corrupted { .. }), "{error}");
                    assert!(!met.is_empty(), "the records before the damage are met");
                    lost += 1;
                }
            }
            assert!(scan.passes_damage());
        }
        assert!(lost > 0 && lost + met.len() == 2000, "{lost} lost, {} met", met.len());
        assert!(met.contains_key(&0) && met.contains_key(&1999));
        assert!(!scan.step(&mut |_| panic!("it has ended")).unwrap());
        drop(scan);
        // Rewritten records are found, and the damage no longer matters.
        for number in 0..20 {
            put(&database, number, b"again");
        }
        let mut scan = database.full_scan(Wanted::Records, true).unwrap();
        assert!(rest(&mut *scan).into_keys().eq(0..2000));
    }
}
