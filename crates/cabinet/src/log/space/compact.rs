//! Compaction: reclaims the space of records that the index does not point to.
//!
//! The engine moves the live records of a sealed segment to the end of the log. It does so under
//! the lock that its writers take, so that the order of the log stays the order of changes. The
//! emptied segment is removed once the moved records are synced. Counts show which segments are
//! worth compacting, but only the index shows which records are live.
//!
//! A tombstone must outlive every older record of its key. Those are in the segment in which the
//! tombstone was born, or before. So the tombstone is dropped when no such segment is left. If
//! tombstones pile up because old segments have few dead bytes, the oldest segment is compacted.
//!
//! Work per reclaimed byte: with a share d of dead bytes, 1/d bytes are read and (1-d)/d written.
//! Dead records of the oldest segment, which is usually the one, mask nothing. So they are not even
//! read if the index can name the others at little cost.

use crate::log::record::Record;
use crate::log::scan::{ScanError, UNWRITTEN};
use crate::log::segments::{Location, Segment};
use crate::log::{Check, Log, RECORD_BATCH_BYTES, RecordBatch, error_at, with_record};
use crate::{Error, Result, Wait};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Emptied segments are removed once they have more bytes than this together.
const EMPTIED_BYTES_MAX: u64 = 16 << 20;

/// Number of records whose parts of the index are prefetched together. Index look-ups are random:
/// otherwise most of the time would be spent waiting for one cache line after another.
const BATCH_RECORDS: usize = 32;

/// The log may have this many times the live bytes that a segment has bytes, if live records are
/// found through the index: to pass over its entries must cost less than to scan the segment.
const LIVE_SHARE_MAX: u64 = 32;

/// Policy for emptied segments while records that were moved from them are in the active segment,
/// which is hardly filled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsealed {
    /// Sync the active segment.
    Sync,
    /// Remove the emptied segments another time.
    Wait,
}

/// Callback that is asked before this number of bytes is read, and returns whether to go on.
pub(crate) type Spend<'s> = dyn FnMut(u64) -> bool + 's;

/// Operations of an engine on the records of a segment that will be removed.
pub(crate) trait Relocate {
    /// Moves the record if the index points to it. Keeps a tombstone while an older record of its
    /// key may exist. `bytes` are the bytes of the record. `oldest` is the lowest number among the
    /// other segments that stay.
    fn relocate(
        &self,
        segment: &Segment,
        location: Location,
        record: &Record<'_>,
        bytes: &[u8],
        oldest: u64,
    ) -> Result<()>;

    /// Prefetches the part of the index that [`Relocate::relocate`] reads for a record.
    fn prefetch(&self, _record: &Record<'_>) {}

    /// Removes a record from the index, if the index points to it. Returns whether it did and the
    /// record had not expired.
    fn forget(&self, segment: &Segment, location: Location, record: &Record<'_>) -> Result<bool>;

    /// Removes all records of a segment from the index. Returns their number.
    fn forget_segment(&self, segment: &Segment) -> Result<u64>;

    /// Looks up which records of a segment the index points to, for later calls. Calls `spend` with
    /// the number of bytes before each read, and stops when `spend` returns false. Returns whether
    /// the look-up is complete.
    fn look_up(&self, _segment: &Segment, _spend: &mut Spend<'_>) -> Result<bool> {
        Ok(true)
    }

    /// Returns the offsets of the records of a segment that the index points to, in order; `None`
    /// if it costs less to look each record up.
    fn live_in(&self, _segment: &Segment) -> Option<Vec<u32>> {
        None
    }

    /// Frees memory, if the index uses too much of it. The caller holds `maintenance`.
    fn relieve(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the number of bytes that a checkpoint would take.
    fn checkpoint_bytes(&self) -> u64;
}

/// Records of a segment that were read but not relocated yet, and the engine that relocates them.
struct Batch<'b> {
    engine: &'b dyn Relocate,
    segment: &'b Segment,
    oldest: u64,
    records: RecordBatch,
}

impl Batch<'_> {
    /// Adds a record. Relocates those before it first if the batch is full.
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

    /// Relocates the records of the batch in their order.
    fn relocate_all(&mut self) -> Result<()> {
        for (offset, record, bytes) in self.records.records() {
            let location = self.segment.at(offset);
            self.engine.relocate(self.segment, location, &record, bytes, self.oldest)?;
        }
        self.records.clear();
        Ok(())
    }
}

/// Lets the engine make its index smaller. Ignores a full disk, because space for that is being
/// made, and damage, because damaged parts of the index are rebuilt later.
pub(super) fn relieve(engine: &dyn Relocate) -> Result<()> {
    match engine.relieve() {
        Err(Error::NoSpace { .. } | Error::Corrupted { .. }) => Ok(()),
        relieved => relieved,
    }
}

impl Log {
    /// Returns the segment whose compaction is due, if any.
    pub(crate) fn due_for_compaction(&self) -> Option<Arc<Segment>> {
        self.space.due_for_compaction(&self.segments)
    }

    /// Moves the live records of a sealed segment and removes it. Stops when `go_on` returns false.
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

    /// Like [`Log::compact`], gently, for callers that compact one segment after the other and then
    /// call [`Log::remove_emptied`]. The files of several small segments are removed together, with
    /// one sync of the moved records and one of the manifest.
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
        if is_needed || emptied > EMPTIED_BYTES_MAX {
            self.remove_emptied_held(Unsealed::Sync)
        } else {
            Ok(())
        }
    }

    /// Removes the segments that compaction has emptied, after making durable what was moved.
    pub(crate) fn remove_emptied(&self, unsealed: Unsealed) -> Result<()> {
        let _maintenance = self.maintenance.pause();
        self.remove_emptied_held(unsealed)
    }

    /// Like [`Log::remove_emptied`]. An error is logged, for callers that work without it.
    pub(crate) fn try_to_remove_emptied(&self, unsealed: Unsealed) {
        let _maintenance = self.maintenance.pause();
        self.try_to_remove_emptied_held(unsealed);
    }

    /// Like [`Log::remove_emptied`]. The caller holds `maintenance`.
    pub(in crate::log) fn remove_emptied_held(&self, unsealed: Unsealed) -> Result<()> {
        let is_any = self.segments().iter().any(|segment| segment.is_emptied());
        if is_any && self.sync_moved(unsealed)? {
            self.remove(&self.take_emptied())?;
        }
        Ok(())
    }

    /// Returns the emptied segments, which are removed together. Compaction counted on that: it has
    /// moved no tombstone whose older records are in another of them. So if damage was found since
    /// in one, which stays as evidence, those after it are compacted again.
    fn take_emptied(&self) -> Vec<Arc<Segment>> {
        let mut emptied = self.segments().in_order();
        emptied.retain(|segment| segment.is_emptied());
        let kept = emptied.iter().position(|segment| segment.is_kept());
        for segment in emptied.drain(kept.unwrap_or(emptied.len())..) {
            segment.emptied.store(false, Ordering::Relaxed);
        }
        emptied
    }

    /// Like [`Log::try_to_remove_emptied`]. The caller holds `maintenance`.
    pub(in crate::log) fn try_to_remove_emptied_held(&self, unsealed: Unsealed) {
        if let Err(error) = self.remove_emptied_held(unsealed) {
            tracing::warn!("emptied segments are not removed: {error}");
        }
    }

    /// Returns whether emptied segments may wait for the next round of maintenance: nothing else
    /// needs their space soon.
    pub(in crate::log) fn may_keep_emptied(&self) -> bool {
        !self.space.is_wanted() && self.free_bytes() > 4 * EMPTIED_BYTES_MAX
    }

    /// Makes the records durable that were moved from emptied segments, and the records, wherever
    /// they are, that replaced those that were not moved. Returns whether they are.
    ///
    /// A sync of a page that is mapped for writing interrupts every processor that runs a thread of
    /// the process. So the active segment is not synced if all of these records are in sealed
    /// segments, or if it is worth sealing. The last sealed segment then stays: records were
    /// appended to it after the emptied segments had been sealed.
    fn sync_moved(&self, unsealed: Unsealed) -> Result<bool> {
        let active = self.writer.lock().segment().number;
        let are_sealed = active > self.space.emptied_at.load(Ordering::Relaxed);
        if are_sealed || self.seal_if_worth_it()? {
            self.sync_all_sealed()?;
        } else if unsealed == Unsealed::Wait {
            return Ok(false);
        } else {
            self.cut_sealed()?;
            self.sync()?;
        }
        Ok(true)
    }

    /// Reclaims the dead bytes of one segment on a full disk, for a writer. An error here does not
    /// fail the write.
    pub(crate) fn reclaim(&self, engine: &dyn Relocate) {
        let _maintenance = self.maintenance.pause();
        // The last holder of the lock may already have reclaimed space.
        if !self.space.is_wanted() {
            return;
        }
        let reclaimed = self.due_for_compaction().map_or_else(
            || self.remove_emptied_held(Unsealed::Sync),
            |segment| self.compact_held(&segment, false, engine, &|| true),
        );
        if let Err(error) = reclaimed {
            tracing::debug!("no space was reclaimed on a full disk: {error}");
        }
        self.segments.drop_retired();
        self.space.give_up_reclaiming();
    }

    /// Like [`Log::compact`]. The caller holds `maintenance`.
    pub(super) fn compact_held(
        &self,
        segment: &Arc<Segment>,
        gently: bool,
        engine: &dyn Relocate,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        // An earlier removal may have failed, or waits.
        self.remove_emptied_held(Unsealed::Sync)?;
        self.empty(segment, gently, engine, go_on)?;
        self.remove_emptied_held(Unsealed::Sync)
    }

    /// Moves the live records of a sealed segment. They are not durable yet.
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
        // If only a part of a batch is live, it must not be durable before the rest: a loss of
        // power would leave half of the batch.
        if self.commit.unsynced().iter().any(|one| Arc::ptr_eq(one, segment)) {
            self.sync_sealed(std::slice::from_ref(segment))?;
        }
        let oldest = self.oldest_beside(segment);
        let began = Instant::now();
        let mut pace = self.space.pace(gently);
        let is_in_hurry = || self.space.is_in_hurry(&self.segments);
        if !engine.look_up(segment, &mut |bytes| !pace.spent(bytes, is_in_hurry) || go_on())? {
            return Ok(());
        }
        let mut after = |bytes| {
            if pace.spent(bytes, is_in_hurry) {
                self.space.note_pressure(&self.segments);
                relieve(engine)?;
                return Ok(go_on());
            }
            Ok(true)
        };
        let records = RecordBatch::new(BATCH_RECORDS);
        let mut batch = Batch { engine, segment, oldest, records };
        let moved = match self.live_in(segment, oldest, engine) {
            Some(offsets) => self.move_records(&mut batch, &offsets, &mut after),
            None => self.scan(&mut batch, &mut after),
        };
        match moved {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            // Damage elsewhere, which is noted there, hides whether a record here is still needed.
            Err(Error::Corrupted { .. }) => {
                segment.spare();
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        // A merge of the index removes emptied segments, and may have found one that stays.
        if self.oldest_beside(segment) < oldest {
            return Ok(());
        }
        let active = self.writer.lock().segment().number;
        self.space.emptied_at.store(active, Ordering::Relaxed);
        self.space.compactions.count_since(began);
        self.space.compacted_bytes.fetch_add(segment.bytes(), Ordering::Relaxed);
        segment.emptied.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the lowest number among the other segments. Those that were emptied before do not
    /// count, because they are removed together with this one.
    fn oldest_beside(&self, segment: &Segment) -> u64 {
        let segments = self.segments();
        let others =
            segments.iter().filter(|other| other.number != segment.number && !other.is_emptied());
        others.map(|other| other.number).min().unwrap_or(u64::MAX)
    }

    /// Returns the offsets of the live records of the oldest segment, if it costs little to find
    /// them. `oldest` is of [`Log::oldest_beside`].
    fn live_in(&self, segment: &Segment, oldest: u64, engine: &dyn Relocate) -> Option<Vec<u32>> {
        // The flag of residency may be of some time ago, and an unreadable page of the mapping ends
        // the process.
        let is_wanted = oldest > segment.number
            && segment.live_bytes.get() <= segment.bytes() / 2
            && self.segments().live_bytes() <= LIVE_SHARE_MAX * segment.bytes()
            && segment.map.is_resident();
        if is_wanted { engine.live_in(segment) } else { None }
    }

    /// Moves the records at some offsets if they are still live. Calls `after` with the bytes of
    /// each, and stops when it returns false. Returns whether all were looked at and none is
    /// damaged.
    fn move_records(
        &self,
        batch: &mut Batch<'_>,
        offsets: &[u32],
        after: &mut dyn FnMut(u64) -> Result<bool>,
    ) -> Result<bool> {
        let segment = batch.segment;
        for &offset in offsets {
            let location = segment.at(offset.into());
            let begin = offset as usize;
            let push = |record: &Record<'_>| {
                let bytes = segment.map.get(begin, begin + record.total)?;
                Some(batch.push(offset.into(), record, bytes).map(|()| bytes.len()))
            };
            let pushed =
                match with_record(&self.segments(), location, Wait::Block, Check::Whole, push) {
                    Ok(Some(pushed)) => pushed?,
                    // The file is kept.
                    Ok(None) | Err(Error::Corrupted { .. }) => return Ok(false),
                    Err(error) => return Err(error),
                };
            if !after(pushed as u64)? {
                return Ok(false);
            }
        }
        batch.relocate_all()?;
        Ok(true)
    }

    /// Moves all live records, like `move_records`. Tombstones, and expired records that are not in
    /// the index, stay while they mask older records.
    fn scan(
        &self,
        batch: &mut Batch<'_>,
        after: &mut dyn FnMut(u64) -> Result<bool>,
    ) -> Result<bool> {
        let segment = batch.segment;
        let mut scanner = segment.scanner(0, segment.bytes());
        loop {
            let before = scanner.offset();
            let mut next =
                scanner.next(&mut |offset, record, bytes| batch.push(offset, record, bytes));
            if !matches!(next, Ok(Ok(true)) | Err(ScanError::Visit(_))) {
                next = batch.relocate_all().map_err(ScanError::Visit).and(next);
            }
            match next {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Ok(true),
                Ok(Err(stop))
                    if scanner
                        .is_at_unused_end(&stop)
                        .map_err(|error| error_at("read", &segment.path, error))? =>
                {
                    return Ok(true);
                }
                Ok(Err(stop)) => {
                    // Records after the damage cannot be told apart any more, so the file is kept.
                    segment.note_fault(stop.offset, stop.what.unwrap_or(UNWRITTEN));
                    return Ok(false);
                }
                Err(ScanError::Read(error)) => {
                    segment.note_fault(scanner.offset(), &format!("it cannot be read: {error}"));
                    return Ok(false);
                }
                Err(ScanError::Visit(error)) => return Err(error),
            }
            if !after(scanner.offset() - before)? {
                return Ok(false);
            }
        }
    }

    /// Returns a closure that holds background reads to their rate, unless there is a hurry. It is
    /// called with the number of bytes before each read, and returns false when the background is
    /// being stopped.
    pub(crate) fn pacer(&self) -> impl FnMut(u64) -> bool {
        let mut pace = self.space.pace(true);
        let in_hurry =
            || !self.space.signals.is_running() || self.space.is_in_hurry(&self.segments);
        move |bytes| !pace.spent(bytes, in_hurry) || !self.space.signals.stopping()
    }

    /// Removes the segments before a segment that clears, after making that one durable.
    pub(crate) fn remove_before(&self, number: u64) -> Result<()> {
        let _maintenance = self.maintenance.pause();
        self.sync()?;
        self.remove_matching(&|segment| segment.number < number)
    }

    /// Removes the sealed segments for which `is_dead` returns true.
    pub(crate) fn remove_segments(&self, is_dead: &dyn Fn(&Segment) -> bool) -> Result<()> {
        let _maintenance = self.maintenance.pause();
        self.remove_matching(&|segment| segment.is_sealed() && is_dead(segment))
    }

    fn remove_matching(&self, is_removed: &dyn Fn(&Segment) -> bool) -> Result<()> {
        let mut removed = self.segments().in_order();
        removed.retain(|segment| is_removed(segment));
        self.remove(&removed)
    }

    /// Removes segments, in their order.
    fn remove(&self, removed: &[Arc<Segment>]) -> Result<()> {
        self.manifest.forget_names(removed)?;
        removed.iter().try_for_each(|segment| self.remove_segment(segment))
    }

    /// Removes a segment that the manifest no longer names.
    fn remove_segment(&self, segment: &Arc<Segment>) -> Result<()> {
        self.segments.directory().unlink(segment)?;
        self.take_out(segment);
        // Readers may still hold the segment's space. A later call then completes the reserve.
        self.space.keep_reserve(&self.segments);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::FaultyStorage;
    use crate::{Change, Engine as _, HashDatabase, Meta, Options, RecordRef};
    use std::path::Path;

    #[test]
    fn a_segment_whose_tombstones_an_emptied_one_needs_is_compacted_again_if_that_stays() {
        let storage = FaultyStorage::new();
        let open = |storage: &FaultyStorage| {
            let options = Options { segment_bytes: Some(1 << 20), ..Options::default() };
            let path = Path::new("casket.tch");
            HashDatabase::open_on(Arc::new(storage.clone()), path, &options, false).unwrap()
        };
        let database = open(&storage);
        let (engine, log) = (database.engine(), &database.engine().log);
        let put = |key: &[u8]| {
            database.put(key, &[1; 100], Meta::NONE, Wait::Block).unwrap();
        };
        let has_sealed = |count: usize| log.segments().in_order().len() > count;
        put(b"removed");
        while !has_sealed(1) {
            put(b"key");
        }
        let mut remove = |_: Option<RecordRef<'_>>| Change::Remove;
        database.update(b"removed", Wait::Block, &mut remove).unwrap();
        // Live records, so that the second segment is read and moved step by step.
        (0_u32..).take_while(|_| !has_sealed(2)).for_each(|number| put(&number.to_le_bytes()));
        let [first, second] = [0, 1].map(|place| Arc::clone(&log.segments().in_order()[place]));
        log.compact_next(&first, engine, &|| true).unwrap();
        assert!(first.is_emptied());
        first.note_fault(0, "a test");
        // As a merge of the index in the middle of a compaction does.
        let merge = || log.remove_emptied_held(Unsealed::Sync).is_ok();
        log.compact_next(&second, engine, &merge).unwrap();
        assert!(!first.is_emptied() && !second.is_emptied());
        log.compact_next(&second, engine, &|| true).unwrap();
        log.remove_emptied(Unsealed::Sync).unwrap();
        assert!(log.segments().has(&first) && !log.segments().has(&second));
        let left = open(&storage.kill());
        assert!(!left.read(b"removed", Wait::Block, &mut |_| ()).unwrap());
    }
}
