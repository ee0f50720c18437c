//! Live entries of runs that point into some segments, by offset.
//!
//! The compactor, the sweeper and scans check for each record of a segment whether the index points
//! to it. If the index is in runs, each check would be a random read. So the locations in these
//! segments that runs have are kept: one bit per 8 bytes of the log.
//!
//! For a scan, all runs are read once, from beginning to end, for several segments together. For
//! one segment, its keys are read first, then the pages of runs that may have them. They are read
//! in the order of hashes, so each page is read at most once. If a segment has more than
//! [`LOOKUPS_MAX`] records, all runs are read, since few pages could be skipped.

use super::{Index, KeyedEngine, Run, Seen, ShardIndex as _};
use crate::Result;
use crate::log::record::{ALIGNMENT, Kind};
use crate::log::{Location, ReadOutcome, Reader, Segment, Spend};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Bytes of the log that are handled together: 4 MiB of bits.
const GROUP_BYTES: u64 = 256 << 20;

/// Records of a segment whose keys are looked up together: 2 MiB of memory.
const LOOKUPS_MAX: usize = 1 << 17;

/// Lookups that go to runs written meanwhile, before all are read again.
const MISSES_MAX: usize = 512;

/// Live entries that point into some segments, see the module.
pub(super) struct Alive {
    /// Numbers of the segments.
    segments: Vec<u64>,
    /// By slot of a segment, one bit per possible location of a record.
    bits: BTreeMap<usize, Vec<u64>>,
    /// Run of each shard at the time.
    runs: Vec<Weak<Run>>,
    /// Offset in the segment up to which locations are known, if there is one segment.
    covered: usize,
    misses: AtomicUsize,
}

impl Alive {
    fn of(segments: &[(u64, usize)], covered: usize) -> Self {
        Self {
            segments: segments.iter().map(|(number, _)| *number).collect(),
            bits: segments.iter().map(|(_, slot)| (*slot, Vec::new())).collect(),
            runs: Vec::new(),
            covered,
            misses: AtomicUsize::new(0),
        }
    }

    /// Returns whether the run of a shard has an entry for a location; `None` if unknown.
    pub(super) fn is_in_run(
        &self,
        shard: usize,
        run: &Arc<Run>,
        location: Location,
    ) -> Option<bool> {
        let bits = self.bits.get(&location.slot())?;
        if location.offset() >= self.covered {
            self.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if !std::ptr::eq(self.runs.get(shard)?.as_ptr(), Arc::as_ptr(run)) {
            self.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let bit = location.offset() / ALIGNMENT;
        Some(bits.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1))
    }

    fn note(&mut self, location: Location) {
        if let Some(bits) = self.bits.get_mut(&location.slot()) {
            let bit = location.offset() / ALIGNMENT;
            if bits.len() <= bit / 64 {
                bits.resize(bit / 64 + 1, 0);
            }
            bits[bit / 64] |= 1 << (bit % 64);
        }
    }

    fn serves(&self, segment: &Segment) -> bool {
        self.segments.contains(&segment.number) && self.misses.load(Ordering::Relaxed) < MISSES_MAX
    }
}

impl<I: Index> KeyedEngine<I> {
    /// Returns the entries that point into a segment: `known` if it has them. Calls `spend` with
    /// the bytes of each read before it. Returns `None` if the index is in memory, or if `spend`
    /// returned false. Skips damaged parts of runs, see [`KeyedEngine::slot_of`].
    pub(super) fn alive_in(
        &self,
        segment: &Segment,
        known: Option<Arc<Alive>>,
        spend: &mut Spend<'_>,
    ) -> Result<Option<Arc<Alive>>> {
        if !self.is_over_runs() {
            return Ok(None);
        }
        if let Some(known) = known.filter(|known| known.serves(segment)) {
            return Ok(Some(known));
        }
        let runs = (0..I::SHARDS).map(|shard| self.table(shard).run().map(Arc::downgrade));
        let runs: Vec<Weak<Run>> = runs.map(Option::unwrap_or_default).collect();
        let alive = match self.lookups_of(segment, spend)? {
            Some(Lookups { keys, covered }) => {
                let alive = Alive::of(&[(segment.number, segment.slot)], covered);
                self.look_all_up(alive, &runs, &keys, spend)?
            }
            None => self.read_alive(&[(segment.number, segment.slot)], spend)?,
        };
        Ok(alive.map(Arc::new))
    }

    /// Returns the entries that point into a segment: `known` if it has them. Otherwise reads them,
    /// with those of the segments after it in its group. Returns `None` if the index is in memory.
    pub(super) fn alive_from(
        &self,
        segment: &Segment,
        known: Option<Arc<Alive>>,
    ) -> Result<Option<Arc<Alive>>> {
        if !self.is_over_runs() {
            return Ok(None);
        }
        match known.filter(|known| known.serves(segment)) {
            Some(known) => Ok(Some(known)),
            None => Ok(self.read_alive(&self.group_from(segment), &mut |_| true)?.map(Arc::new)),
        }
    }

    /// Returns the keys of a segment that runs may have; `None` if there are too many.
    fn lookups_of(&self, segment: &Segment, spend: &mut Spend<'_>) -> Result<Option<Lookups>> {
        let segments = self.log.segments();
        let own = segments.iter().find(|one| one.number == segment.number).cloned();
        drop(segments);
        let Some(own) = own.filter(|own| own.is_sealed() && !own.is_missing) else {
            return Ok(None);
        };
        let bytes = own.bytes();
        let mut reader = Reader::of_kept(own, bytes);
        let mut lookups = Vec::new();
        loop {
            let before = reader.offset();
            let next = reader.next(&mut |offset, record, _| {
                let index_key =
                    self.index.index_key(record.key).filter(|_| record.kind == Kind::Put);
                let Some(index_key) = index_key else { return Ok(()) };
                let seen =
                    self.table(index_key.shard).look_in_memory(index_key.tag, segment.at(offset));
                if matches!(seen, Seen::IfInRun(_)) {
                    lookups
                        .push((index_key.shard as u32, I::ShardIndex::tag_in_run(index_key.tag)));
                }
                Ok(())
            })?;
            let is_at_end = next != ReadOutcome::Record;
            if lookups.len() > LOOKUPS_MAX || !spend(reader.offset() - before) {
                return Ok(None);
            }
            if is_at_end {
                let covered = if next == ReadOutcome::End { u64::MAX } else { before };
                lookups.sort_unstable();
                lookups.dedup();
                let covered = usize::try_from(covered).unwrap_or(usize::MAX);
                return Ok(Some(Lookups { keys: lookups, covered }));
            }
        }
    }

    /// Reads the parts of runs that may have some keys. Skips shards whose run has changed since
    /// the keys were collected, because memory had other entries then.
    fn look_all_up(
        &self,
        mut alive: Alive,
        runs: &[Weak<Run>],
        lookups: &[(u32, u32)],
        spend: &mut Spend<'_>,
    ) -> Result<Option<Alive>> {
        alive.runs.resize_with(I::SHARDS, Weak::new);
        for own in lookups.chunk_by(|one, other| one.0 == other.0) {
            let shard = own[0].0 as usize;
            let tags: Vec<u32> = own.iter().map(|(_, tag)| *tag).collect();
            let read = self.read_alive_of(shard, &mut alive, &mut |run, visit| {
                run.for_each_with(&tags, spend, visit)
            })?;
            match read {
                Some(run) if run.ptr_eq(&runs[shard]) => alive.runs[shard] = run,
                Some(_) => {}
                None => return Ok(None),
            }
        }
        Ok(Some(alive))
    }

    /// Returns the numbers and slots of a segment and the following ones that are read together.
    fn group_from(&self, segment: &Segment) -> Vec<(u64, usize)> {
        let mut bytes = 0;
        let all = self.log.segments().in_order();
        let after = all.iter().filter(|one| one.number >= segment.number);
        let group = after.take_while(|one| {
            bytes += one.bytes();
            one.number == segment.number || bytes <= GROUP_BYTES
        });
        group.map(|one| (one.number, one.slot)).collect()
    }

    fn read_alive(
        &self,
        segments: &[(u64, usize)],
        spend: &mut Spend<'_>,
    ) -> Result<Option<Alive>> {
        let mut alive = Alive::of(segments, usize::MAX);
        for shard in 0..I::SHARDS {
            let read = self.read_alive_of(shard, &mut alive, &mut |run, visit| {
                run.for_each_whole(spend, visit)
            })?;
            match read {
                Some(run) => alive.runs.push(run),
                None => return Ok(None),
            }
        }
        Ok(Some(alive))
    }

    /// Notes the locations of the live entries of a shard's run. Dead entries are skipped: the
    /// slots of their segments may have been reused. Returns the run, or `None` if `read` stopped
    /// early.
    fn read_alive_of(
        &self,
        shard: usize,
        alive: &mut Alive,
        read: &mut ReadRun<'_>,
    ) -> Result<Option<Weak<Run>>> {
        loop {
            let Some(run) = self.table(shard).run().cloned() else { return Ok(Some(Weak::new())) };
            let mut in_run = Vec::new();
            if !read(&run, &mut |part| in_run.extend_from_slice(part))? {
                return Ok(None);
            }
            let table = self.table(shard);
            if table.run().is_some_and(|now| Arc::ptr_eq(now, &run)) {
                table.alive_in_run(&in_run).into_iter().for_each(|location| alive.note(location));
                return Ok(Some(Arc::downgrade(&run)));
            }
        }
    }
}

/// Keys of a segment that runs may have.
struct Lookups {
    /// Shards and tags of the keys, sorted.
    keys: Vec<(u32, u32)>,
    /// Offset in the segment before which the keys are complete.
    covered: usize,
}

/// Reads parts of a run and visits their entries. Returns whether it reached the end.
type ReadRun<'r> = dyn FnMut(&Run, &mut dyn FnMut(&[u64])) -> Result<bool> + 'r;
