//! Compaction: giving back the space of records that nothing points to.
//!
//! A sealed segment is scanned; the engine moves what is alive to the end of the log, under the
//! lock that its writers take, so that the order of the log stays the order of changes; the
//! moved records are synced; the segment is removed. Counts tell which segments are worth
//! compacting, but only the index tells which records are alive.
//!
//! A tombstone must outlive every older record of its key. Those lie in the segment it was
//! first written to or before, so it goes when no such segment is left. Should tombstones pile
//! up over old segments that nothing else would touch, the oldest segment is compacted.
//!
//! Work per reclaimed byte: with a share d of dead bytes, 1/d bytes are read and (1-d)/d written.

use crate::log::record::Record;
use crate::log::scan::{ScanError, Scanner, UNWRITTEN};
use crate::log::segments::{Location, Segment};
use crate::log::{Log, RECORD_BATCH_BYTES, RecordBatch, error_at};
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Emptied segments are removed once they have more bytes than this.
const EMPTIED_BYTES_MAX: u64 = 16 << 20;

/// Records of which the parts of the index are fetched together: the index is looked up at random,
/// and most of the time of compaction would be spent waiting for one cache line after the other.
const BATCH_RECORDS: usize = 32;

/// Operations of the engine on the records of a segment that is to be removed.
pub(crate) trait Relocate {
    /// Moves the record if the index points to it; keeps a tombstone that still has something to
    /// hold down. `bytes` are the record's own. `oldest` is the lowest number among the other
    /// segments.
    fn relocate(
        &self,
        segment: &Segment,
        location: Location,
        record: &Record<'_>,
        bytes: &[u8],
        oldest: u64,
    ) -> Result<()>;

    /// Has the processor fetch the part of the index that [`Relocate::relocate`] of a record reads.
    fn prefetch(&self, _record: &Record<'_>) {}

    /// Takes a record out of the index, if the index points to it; says whether it did, and the
    /// record had not expired.
    fn forget(&self, segment: &Segment, location: Location, record: &Record<'_>) -> Result<bool>;

    /// Takes all records of a segment out of the index; answers how many there were.
    fn forget_segment(&self, segment: &Segment) -> Result<u64>;

    /// Looks up which records of a segment the index points to, for the questions to come. `spend`
    /// is told how many bytes are read before they are, and ends it by returning false. Returns
    /// whether it came to the end.
    fn look_up(&self, _segment: &Segment, _spend: &mut dyn FnMut(u64) -> bool) -> Result<bool> {
        Ok(true)
    }

    /// Gives memory back, if the index takes too much of it. The caller holds `maintenance`.
    fn relieve(&self) -> Result<()> {
        Ok(())
    }

    /// Bytes that a checkpoint would take.
    fn checkpoint_bytes(&self) -> u64;
}

/// Records of a segment that were read and not relocated yet, and the engine that relocates them.
struct Batch<'b> {
    engine: &'b dyn Relocate,
    segment: &'b Segment,
    oldest: u64,
    records: RecordBatch,
}

impl Batch<'_> {
    /// Takes the next record, and relocates those before it once there are enough of them.
    fn push(&mut self, offset: u64, record: &Record<'_>, bytes: &[u8]) -> Result<()> {
        if !self.records.fits(bytes.len()) {
            self.relocate_all()?;
        }
        if bytes.len() > RECORD_BATCH_BYTES {
            let location = self.segment.at(offset);
            return self.engine.relocate(self.segment, location, record, bytes, self.oldest);
        }
        self.engine.prefetch(record);
        self.records.push(offset, bytes);
        Ok(())
    }

    /// Relocates the records that were taken, in their order.
    fn relocate_all(&mut self) -> Result<()> {
        for (offset, record, bytes) in self.records.records() {
            let location = self.segment.at(offset);
            self.engine.relocate(self.segment, location, &record, bytes, self.oldest)?;
        }
        self.records.clear();
        Ok(())
    }
}

/// Lets the engine make its index smaller. A full disk has no room for that: it comes with the
/// space that is being made. Damaged parts of the index are made again later.
pub(super) fn relieve(engine: &dyn Relocate) -> Result<()> {
    match engine.relieve() {
        Err(Error::NoSpace { .. } | Error::Corrupted { .. }) => Ok(()),
        relieved => relieved,
    }
}

impl Log {
    /// The segment whose compaction is due, if one is.
    pub(crate) fn due_for_compaction(&self) -> Option<Arc<Segment>> {
        self.space.due_for_compaction(&self.segments)
    }

    /// Moves what is alive in a sealed segment and removes it. `go_on` is asked now and then.
    pub(crate) fn compact(
        &self,
        segment: &Arc<Segment>,
        gently: bool,
        engine: &dyn Relocate,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let _maintenance = self.maintenance.pause();
        self.compact_held(segment, gently, engine, go_on)
    }

    /// As [`Log::compact`], gently, for callers that compact one segment after the other and then
    /// call [`Log::remove_emptied`]: the files of several small segments are removed together, with
    /// one sync of the manifest.
    pub(in crate::log) fn compact_next(
        &self,
        segment: &Arc<Segment>,
        engine: &dyn Relocate,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let _maintenance = self.maintenance.pause();
        self.empty(segment, true, engine, go_on)?;
        let segments = self.segments();
        let emptied = segments.iter().filter(|segment| segment.is_emptied());
        let emptied: u64 = emptied.map(|segment| segment.bytes()).sum();
        let is_needed = self.space.is_wanted() || self.space.quota.is_capped();
        if is_needed || emptied > EMPTIED_BYTES_MAX { self.remove_emptied_held() } else { Ok(()) }
    }

    /// Removes the segments that compaction has emptied.
    pub(in crate::log) fn remove_emptied(&self) -> Result<()> {
        let _maintenance = self.maintenance.pause();
        self.remove_emptied_held()
    }

    fn remove_emptied_held(&self) -> Result<()> {
        self.remove_those(&Segment::is_emptied)
    }

    /// Gives space back on a full disk, for a writer: as much as there is dead in one segment. An
    /// error that prevents that is no failure of the write.
    pub(crate) fn reclaim(&self, engine: &dyn Relocate) {
        let _maintenance = self.maintenance.pause();
        // The last holder of the lock may have done it.
        if !self.space.is_wanted() {
            return;
        }
        if let Some(segment) = self.due_for_compaction()
            && let Err(error) = self.compact_held(&segment, false, engine, &|| true)
        {
            tracing::debug!("nothing is gained on a full disk: {error}");
        }
        self.segments.drop_retired();
        self.space.give_up_reclaiming();
    }

    /// As [`Log::compact`], where the caller holds `maintenance`.
    pub(super) fn compact_held(
        &self,
        segment: &Arc<Segment>,
        gently: bool,
        engine: &dyn Relocate,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        // If a removal has failed before, its space is not given back yet.
        self.remove_emptied_held()?;
        self.empty(segment, gently, engine, go_on)?;
        self.remove_emptied_held()
    }

    /// Moves what is alive in a sealed segment, durably.
    fn empty(
        &self,
        segment: &Arc<Segment>,
        gently: bool,
        engine: &dyn Relocate,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let present = self.segments().has(segment);
        if !present || !segment.is_sealed() || segment.is_kept() {
            return Ok(());
        }
        // Only a part of a batch may be alive. If that were on the disk before the rest is, a loss
        // of power would leave half of the batch.
        if self.commit.unsynced().iter().any(|one| Arc::ptr_eq(one, segment)) {
            self.sync_sealed(std::slice::from_ref(segment))?;
        }
        let oldest = self
            .segments()
            .iter()
            .filter(|one| one.number != segment.number)
            .map(|one| one.number)
            .min()
            .unwrap_or(u64::MAX);
        let began = Instant::now();
        let mut pace = self.space.pace(gently);
        let mut spend =
            |bytes| !pace.spent(bytes, || self.space.is_in_hurry(&self.segments)) || go_on();
        if !engine.look_up(segment, &mut spend)? {
            return Ok(());
        }
        let file = Arc::clone(&segment.file);
        let mut scanner = Scanner::new(file, self.database_id.salt, 0, segment.bytes());
        let records = RecordBatch::new(BATCH_RECORDS);
        let mut batch = Batch { engine, segment, oldest, records };
        loop {
            let before = scanner.offset();
            let mut next =
                scanner.next(&mut |offset, record, bytes| batch.push(offset, record, bytes));
            if !matches!(next, Ok(Ok(true)) | Err(ScanError::Visit(_))) {
                next = batch.relocate_all().map_err(ScanError::Visit).and(next);
            }
            match next {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => break,
                Ok(Err(stop))
                    if scanner
                        .is_at_unused_end(&stop)
                        .map_err(|error| error_at("read", &segment.path, error))? =>
                {
                    break;
                }
                Ok(Err(stop)) => {
                    // Records after it cannot be told apart any more: the file is kept.
                    segment.note_fault(stop.offset, stop.what.unwrap_or(UNWRITTEN));
                    return Ok(());
                }
                Err(ScanError::Read(error)) => {
                    segment.note_fault(scanner.offset(), &format!("it cannot be read: {error}"));
                    return Ok(());
                }
                // It is not known of a record here whether it has something to hold down: damage
                // is in the way, elsewhere, and noted there.
                Err(ScanError::Visit(Error::Corrupted { .. })) => {
                    segment.spare();
                    return Ok(());
                }
                Err(ScanError::Visit(error)) => return Err(error),
            }
            let bytes = scanner.offset() - before;
            if pace.spent(bytes, || self.space.is_in_hurry(&self.segments)) {
                self.space.note_pressure(&self.segments);
                relieve(engine)?;
                if !go_on() {
                    return Ok(());
                }
            }
        }
        // Moved records must be on the disk before the segment they came from is removed, and so
        // must the records that replaced those that were not moved, wherever they are.
        // If the active segment was sealed now, sealed segments have all of these, and the last of
        // them stays. The new active one is not synced: to sync a page that is mapped for writing,
        // the system first interrupts every processor that runs a thread of the process.
        if self.seal_if_worth_it()? {
            self.sync_all_sealed()?;
        } else {
            self.cut_sealed()?;
            self.sync()?;
        }
        self.space.compactions.count_since(began);
        self.space.compacted_bytes.fetch_add(segment.bytes(), Ordering::Relaxed);
        segment.emptied.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns what holds reads of the background to its rate, unless there is a hurry. It is told
    /// of bytes before they are read, and returns false when the background is being stopped.
    pub(crate) fn pacer(&self) -> impl FnMut(u64) -> bool {
        let mut pace = self.space.pace(true);
        let in_hurry =
            || !self.space.signals.is_running() || self.space.is_in_hurry(&self.segments);
        move |bytes| !pace.spent(bytes, in_hurry) || !self.space.signals.stopping()
    }

    /// Removes segments before the last one that clears. The clearing segment is durable first.
    pub(crate) fn remove_before(&self, number: u64) -> Result<()> {
        let _maintenance = self.maintenance.pause();
        self.sync()?;
        self.remove_those(&|segment| segment.number < number)
    }

    /// Removes the sealed segments that are dead, as the engine has it.
    pub(crate) fn remove_segments(&self, is_dead: &dyn Fn(&Segment) -> bool) -> Result<()> {
        let _maintenance = self.maintenance.pause();
        self.remove_those(&|segment| segment.is_sealed() && is_dead(segment))
    }

    fn remove_those(&self, goes: &dyn Fn(&Segment) -> bool) -> Result<()> {
        let mut going = self.segments().in_order();
        going.retain(|segment| goes(segment));
        self.manifest.forget_names(&going)?;
        going.iter().try_for_each(|segment| self.remove_segment(segment))
    }

    /// Removes a segment that the manifest does not name any more.
    fn remove_segment(&self, segment: &Arc<Segment>) -> Result<()> {
        self.segments.directory().unlink(segment)?;
        self.take_out(segment);
        // Readers may still hold its space: later calls find that.
        self.space.keep_reserve(&self.segments);
        Ok(())
    }
}
