//! Compaction: giving back the space of records that nothing points to.
//!
//! A sealed segment is scanned; the engine moves what is alive to the end of the log, under the
//! lock that its writers take, so that the order of the log stays the order of changes; the
//! moved records are synced; the segment is removed. What is worth compacting is told from
//! counts, but what is alive only from the index.
//!
//! A tombstone must outlive every older record of its key. Those lie in the segment it was
//! first written to or before, so it goes when no such segment is left. Should tombstones pile
//! up over old segments that nothing else would touch, the oldest segment is compacted.
//!
//! Work per reclaimed byte: with a share d of dead bytes, 1/d bytes are read and (1-d)/d written.

use super::record::Record;
use super::scan::{ScanError, Scanner};
use super::segment::{Location, Segment, Segments};
use super::{Log, count_timed, error_at};
use crate::{Error, Result};
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Points of dead share above the limit from which on compaction is not held back.
const HURRY_PERCENT: u64 = 2;

/// Points above the limit from which on writers are held back.
const BEHIND_PERCENT: u64 = 6;

/// Logs smaller than this do not hold writers back.
const BEHIND_BYTES_MIN: u64 = 128 << 20;

/// Dead bytes for which a segment is compacted on a full disk, be they a small share of it.
const SCARCE_DEAD_BYTES: u64 = 64 << 10;

/// Share of tombstones above which the oldest segment is compacted.
const TOMBSTONE_PERCENT_MAX: u64 = 25;

/// Snapshots seal segments that are short: so many may be there at a time, as each takes a file, a
/// mapping and a slot.
pub(crate) const SHORT_SEGMENTS_MAX: u64 = 128;

/// A segment below this is short, if it has room for four times as much; or below this share of the
/// log.
const SHORT_BYTES: u64 = 1 << 20;
const SHORT_SHARE: u64 = 8192;

/// A segment is not gone through for expired records more often than this, in milliseconds.
const SWEEP_INTERVAL_MS: u64 = 30_000;

/// Emptied segments are removed once they have more bytes than this.
const EMPTIED_BYTES_MAX: u64 = 16 << 20;

/// What is said of a place where a record should be and nothing was ever written.
pub(super) const NOTHING_WRITTEN: &str = "nothing is written where a record should be";

/// What the engine does for each record of a segment that is to go.
pub(crate) trait Rescue {
    /// Moves the record if the index points to it; keeps a tombstone that still has something to
    /// hold down. `bytes` are the record's own. `oldest` is the lowest number among the other
    /// segments.
    fn rescue(
        &self,
        segment: &Segment,
        location: Location,
        record: &Record<'_>,
        bytes: &[u8],
        oldest: u64,
    ) -> Result<()>;

    /// Takes a record out of the index, if the index points to it; says whether it did, and the
    /// record had not expired.
    fn forget(&self, segment: &Segment, location: Location, record: &Record<'_>) -> Result<bool>;

    /// Takes all records of a segment out of the index; answers how many there were.
    fn forget_segment(&self, segment: &Segment) -> Result<u64>;

    /// Gives memory back, if the index takes too much of it. The caller holds `maintenance`.
    fn relieve(&self) -> Result<()> {
        Ok(())
    }

    /// Bytes that a checkpoint would take.
    fn checkpoint_bytes(&self) -> u64;
}

/// Lets the engine make its index smaller. A full disk has no room for that: it comes with the
/// space that is being made.
pub(super) fn relieve(rescue: &dyn Rescue) -> Result<()> {
    match rescue.relieve() {
        Err(Error::NoSpace { .. }) => Ok(()),
        relieved => relieved,
    }
}

/// How the space of a log is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) total_bytes: u64,
    pub(crate) live_bytes: u64,
    pub(crate) tombstone_bytes: u64,
}

impl Usage {
    /// Sums up what will be there when the emptied segments are removed.
    pub(crate) fn of(segments: &Segments) -> Self {
        let mut usage = Self::default();
        for segment in segments.iter().filter(|segment| !segment.is_emptied()) {
            usage.total_bytes += segment.bytes();
            usage.live_bytes += segment.live_bytes.get();
            usage.tombstone_bytes += segment.tombstone_bytes.load(Ordering::Relaxed);
        }
        usage
    }

    /// Share of dead bytes, in percent.
    pub(crate) fn dead_percent(&self) -> u64 {
        percent(
            self.total_bytes.saturating_sub(self.live_bytes + self.tombstone_bytes),
            self.total_bytes,
        )
    }
}

pub(super) fn percent(part: u64, whole: u64) -> u64 {
    (part * 100).checked_div(whole).unwrap_or(0)
}

/// Whether a sealed segment is short, in a log of so many bytes.
pub(crate) fn is_short(segment: &Segment, total_bytes: u64) -> bool {
    let short_bytes = SHORT_BYTES.max(total_bytes / SHORT_SHARE);
    segment.bytes() < short_bytes.min(segment.capacity as u64 / 4)
}

impl Log {
    /// The segment whose compaction is due, if one is.
    pub(crate) fn due_for_compaction(&self) -> Option<Arc<Segment>> {
        let guard = self.segments();
        let usage = Usage::of(&guard);
        let limit = u64::from(self.settings.dead_percent_max);
        let dead = usage.dead_percent();
        let in_order = guard.in_order();
        let oldest = in_order.first().map_or(0, |segment| segment.number);
        let sealed = in_order
            .iter()
            .filter(|segment| segment.is_sealed() && !segment.is_kept() && !segment.is_emptied());
        // Behind a damaged segment, which stays, they have to stay as well.
        if percent(usage.tombstone_bytes, usage.total_bytes) > TOMBSTONE_PERCENT_MAX
            && let Some(segment) = sealed.clone().next()
            && segment.number == oldest
        {
            return Some(Arc::clone(segment));
        }
        let share = |segment: &Segment| segment.dead_percent(segment.number == oldest);
        let best = sealed.clone().max_by_key(|segment| share(segment))?;
        let worth = if self.space_wanted.load(Ordering::Relaxed) {
            1
        } else if dead > limit {
            limit / 2
        } else if self.is_short() {
            // Before something is evicted.
            50
        } else {
            // Next to nothing is left in it: it is nearly free to take away.
            90
        };
        let is_scarce = self.space_wanted.load(Ordering::Relaxed);
        let dead = best.dead_bytes(best.number == oldest);
        if share(best) >= worth || is_scarce && dead >= SCARCE_DEAD_BYTES {
            return Some(Arc::clone(best));
        }
        // What is alive in one goes to the end of the log, where the segment goes on to grow.
        let mut short = sealed.filter(|segment| is_short(segment, usage.total_bytes));
        let first = short.next()?;
        (short.count() as u64 >= SHORT_SEGMENTS_MAX).then(|| Arc::clone(first))
    }

    /// Whether compaction does not keep up with the writers.
    pub(super) fn is_behind(&self) -> bool {
        let usage = Usage::of(&self.segments());
        let limit = u64::from(self.settings.dead_percent_max);
        usage.dead_percent() >= limit + BEHIND_PERCENT
            && usage.total_bytes >= BEHIND_BYTES_MIN
            && self.background.is_running()
    }

    /// Whether compaction need not be gentle.
    fn is_in_hurry(&self) -> bool {
        let limit = u64::from(self.settings.dead_percent_max);
        self.space_wanted.load(Ordering::Relaxed)
            || self.is_short()
            || Usage::of(&self.segments()).dead_percent() > limit + HURRY_PERCENT
    }

    /// Moves what is alive in a sealed segment and removes it. `go_on` is asked now and then.
    pub(crate) fn compact(
        &self,
        segment: &Arc<Segment>,
        gently: bool,
        rescue: &dyn Rescue,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let _maintenance = self.maintenance.lock();
        self.compact_held(segment, gently, rescue, go_on)
    }

    /// As [`Log::compact`], gently, for callers that compact one segment after the other and then
    /// call [`Log::remove_emptied`]: the files of several small segments are removed together, with
    /// one sync of the manifest.
    pub(crate) fn compact_next(
        &self,
        segment: &Arc<Segment>,
        rescue: &dyn Rescue,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let _maintenance = self.maintenance.lock();
        self.empty(segment, true, rescue, go_on)?;
        let segments = self.segments();
        let emptied = segments.iter().filter(|segment| segment.is_emptied());
        let emptied: u64 = emptied.map(|segment| segment.bytes()).sum();
        let is_needed = self.space_wanted.load(Ordering::Relaxed) || self.capacity.is_capped();
        if is_needed || emptied > EMPTIED_BYTES_MAX { self.remove_emptied_held() } else { Ok(()) }
    }

    /// Removes the segments that compaction has emptied.
    pub(crate) fn remove_emptied(&self) -> Result<()> {
        let _maintenance = self.maintenance.lock();
        self.remove_emptied_held()
    }

    fn remove_emptied_held(&self) -> Result<()> {
        self.remove_those(&Segment::is_emptied)
    }

    /// Gives space back on a full disk, for a writer: as much as there is dead in one segment. What
    /// prevents that is no failure of the write.
    pub(crate) fn reclaim(&self, rescue: &dyn Rescue) {
        let _maintenance = self.maintenance.lock();
        // The last holder of the lock may have done it.
        if !self.space_wanted.load(Ordering::Relaxed) {
            return;
        }
        if let Some(segment) = self.due_for_compaction()
            && let Err(error) = self.compact_held(&segment, false, rescue, &|| true)
        {
            tracing::debug!("nothing is gained on a full disk: {error}");
        }
        self.drop_retired();
        self.give_up_reclaiming();
    }

    /// As [`Log::compact`], where the caller holds `maintenance`.
    pub(super) fn compact_held(
        &self,
        segment: &Arc<Segment>,
        gently: bool,
        rescue: &dyn Rescue,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.empty(segment, gently, rescue, go_on)?;
        self.remove_emptied_held()
    }

    /// Moves what is alive in a sealed segment, durably.
    fn empty(
        &self,
        segment: &Arc<Segment>,
        gently: bool,
        rescue: &dyn Rescue,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let present = self.segments().iter().any(|one| Arc::ptr_eq(one, segment));
        if !present || !segment.is_sealed() || segment.is_kept() {
            return Ok(());
        }
        // Only a part of a batch may be alive. If that were on the disk before the rest is, a loss
        // of power would leave half of the batch.
        if self.unsynced.lock().iter().any(|one| Arc::ptr_eq(one, segment)) {
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
        let mut pace = Pace::new(gently.then_some(self.settings.compaction_bytes_per_second));
        let file = Arc::clone(&segment.file);
        let mut scanner = Scanner::new(file, self.identity.salt, 0, segment.bytes());
        loop {
            let before = scanner.offset();
            let next = scanner.next(&mut |offset, record, bytes| {
                rescue.rescue(segment, segment.at(offset), record, bytes, oldest)
            });
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
                    // What lies behind cannot be told apart any more: the file is kept.
                    segment.note_fault(stop.offset, stop.what.unwrap_or(NOTHING_WRITTEN));
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
            if pace.spent(bytes, || self.is_in_hurry()) {
                self.note_pressure();
                relieve(rescue)?;
                if !go_on() {
                    return Ok(());
                }
            }
        }
        // What was moved must be on the disk before the place it came from goes, and so must what
        // took the place of that which was not moved, wherever it is.
        // Frozen segments are synced without disturbing anybody; it is worth a new segment.
        self.seal_if_worth_it()?;
        self.cut_sealed()?;
        self.sync()?;
        count_timed(&self.figures.compactions, &self.figures.compaction_us, began);
        self.figures.compacted_bytes.fetch_add(segment.bytes(), Ordering::Relaxed);
        segment.emptied.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Shows the expired records of a segment to `visit`, which says whether one stays, and notes
    /// when to look again.
    pub(crate) fn sweep_segment(
        &self,
        segment: &Arc<Segment>,
        now_ms: u64,
        visit: &dyn Fn(Location, &Record<'_>) -> bool,
    ) -> Result<()> {
        segment.next_expiry_ms.store(u64::MAX, Ordering::Relaxed);
        if !segment.is_sealed() {
            // So that no open block is in the way.
            drop(self.settle());
        }
        let failed = |error| {
            // The rest is still to be looked at.
            segment.note_expiry(now_ms);
            error_at("read", &segment.path, error)
        };
        let mut pace = Pace::new(Some(self.settings.compaction_bytes_per_second));
        let file = Arc::clone(&segment.file);
        let mut scanner = Scanner::new(file, self.identity.salt, 0, segment.bytes());
        loop {
            let before = scanner.offset();
            let next = scanner.next(&mut |offset, record, _| {
                let stays = !record.meta.is_expired(now_ms) || visit(segment.at(offset), record);
                if stays && record.meta.expires_at_ms != 0 {
                    let again = now_ms.saturating_add(SWEEP_INTERVAL_MS);
                    segment.note_expiry(record.meta.expires_at_ms.max(again));
                }
                Ok(())
            });
            match next {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Ok(()),
                Ok(Err(stop)) => {
                    // Zeros at the end are what a process leaves that was killed.
                    if let Some(what) = stop.what {
                        segment.note_fault(stop.offset, what);
                    }
                    if !scanner.find_next().map_err(failed)? {
                        return Ok(());
                    }
                }
                Err(ScanError::Read(error)) => return Err(failed(error)),
                Err(ScanError::Visit(error)) => return Err(error),
            }
            if pace.spent(scanner.offset() - before, || false) && self.background.stopping() {
                // The rest is still to be looked at.
                segment.note_expiry(now_ms);
                return Ok(());
            }
        }
    }

    /// Removes segments before the last one that clears. The clearing segment is durable first.
    pub(crate) fn remove_before(&self, number: u64) -> Result<()> {
        let _maintenance = self.maintenance.lock();
        self.sync()?;
        self.remove_those(&|segment| segment.number < number)
    }

    /// Keeps maintenance from running until the guard is dropped. It is taken before the locks of
    /// an index.
    pub(crate) fn pause_maintenance(&self) -> MutexGuard<'_, ()> {
        self.maintenance.lock()
    }

    /// Removes the sealed segments that are dead, as the engine has it.
    pub(crate) fn remove_segments(&self, is_dead: &dyn Fn(&Segment) -> bool) -> Result<()> {
        let _maintenance = self.maintenance.lock();
        self.remove_those(&|segment| segment.is_sealed() && is_dead(segment))
    }

    fn remove_those(&self, goes: &dyn Fn(&Segment) -> bool) -> Result<()> {
        let mut going = self.segments().in_order();
        going.retain(|segment| goes(segment));
        self.forget_names(&going)?;
        going.iter().try_for_each(|segment| self.remove_segment(segment))
    }

    /// Removes a segment that the manifest does not name any more.
    fn remove_segment(&self, segment: &Arc<Segment>) -> Result<()> {
        self.unlink(segment)?;
        // Before a writer takes what was freed.
        self.keep_reserve();
        self.take_out(segment);
        Ok(())
    }
}

/// Holds work to so many bytes a second.
struct Pace {
    bytes_per_second: Option<u64>,
    started: Instant,
    bytes: u64,
    unchecked: u64,
}

impl Pace {
    /// Bytes between two looks at the clock.
    const STEP_BYTES: u64 = 256 << 10;

    fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, started: Instant::now(), bytes: 0, unchecked: 0 }
    }

    /// Counts bytes and sleeps if they came too soon, unless there is a hurry. True once a step.
    fn spent(&mut self, bytes: u64, in_hurry: impl Fn() -> bool) -> bool {
        self.unchecked += bytes;
        if self.unchecked < Self::STEP_BYTES {
            return false;
        }
        self.bytes += self.unchecked;
        self.unchecked = 0;
        if let Some(rate) = self.bytes_per_second {
            let due = Duration::from_secs_f64(self.bytes as f64 / rate.max(1) as f64);
            let early = due.saturating_sub(self.started.elapsed());
            if !early.is_zero() && !in_hurry() {
                std::thread::sleep(early.min(Duration::from_millis(100)));
            }
        }
        true
    }
}
