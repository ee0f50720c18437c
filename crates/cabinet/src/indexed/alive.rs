//! Entries of runs that point into some segments, by offset.
//!
//! The compactor, the sweeper and scans ask of each record of a segment whether the index points to
//! it. If the index is in runs, that would be a read at random for each record. So all runs are
//! read once, from the beginning to the end, and the locations in these segments are kept: a bit
//! for each 8 bytes of the log.

use super::{Index, Indexed, Run, Table as _};
use crate::Result;
use crate::log::record::ALIGNMENT;
use crate::log::{Location, Segment};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Bytes of the log that are looked at together: 4 MiB of bits.
const GROUP_BYTES: u64 = 256 << 20;

/// Questions that runs answer which were written since, before all are read again.
const MISSES_MAX: usize = 512;

/// See the module.
pub(super) struct Alive {
    /// Numbers of the segments.
    segments: Vec<u64>,
    /// By slot of a segment, a bit for each place of a record.
    bits: BTreeMap<usize, Vec<u64>>,
    /// The run that each shard had.
    runs: Vec<Weak<Run>>,
    misses: AtomicUsize,
}

impl Alive {
    /// Whether the run of a shard has an entry for a location; `None` if that is not known.
    pub(super) fn is_in_run(
        &self,
        shard: usize,
        run: &Arc<Run>,
        location: Location,
    ) -> Option<bool> {
        let bits = self.bits.get(&location.slot())?;
        if !std::ptr::eq(self.runs.get(shard)?.as_ptr(), Arc::as_ptr(run)) {
            self.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let place = location.offset() / ALIGNMENT;
        Some(bits.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1))
    }

    fn serves(&self, segment: &Segment) -> bool {
        self.segments.contains(&segment.number) && self.misses.load(Ordering::Relaxed) < MISSES_MAX
    }
}

impl<I: Index> Indexed<I> {
    /// Returns the entries that point into a segment: `known` if it has them. `None` if the index
    /// is in memory.
    pub(super) fn alive_in(
        &self,
        segment: &Segment,
        known: Option<Arc<Alive>>,
    ) -> Result<Option<Arc<Alive>>> {
        self.alive(segment, known, || vec![(segment.number, segment.slot)])
    }

    /// As `alive_in`. If `known` does not have them, the segments after it in its group are read as
    /// well.
    pub(super) fn alive_from(
        &self,
        segment: &Segment,
        known: Option<Arc<Alive>>,
    ) -> Result<Option<Arc<Alive>>> {
        self.alive(segment, known, || self.group_from(segment))
    }

    fn alive(
        &self,
        segment: &Segment,
        known: Option<Arc<Alive>>,
        segments: impl FnOnce() -> Vec<(u64, usize)>,
    ) -> Result<Option<Arc<Alive>>> {
        if !self.is_over_runs() {
            return Ok(None);
        }
        match known.filter(|known| known.serves(segment)) {
            Some(known) => Ok(Some(known)),
            None => Ok(Some(Arc::new(self.read_alive(&segments())?))),
        }
    }

    /// Returns the numbers and slots of a segment and of those after it that are read together.
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

    fn read_alive(&self, segments: &[(u64, usize)]) -> Result<Alive> {
        let mut bits: BTreeMap<usize, Vec<u64>> =
            segments.iter().map(|(_, slot)| (*slot, Vec::new())).collect();
        let mut runs = Vec::with_capacity(I::SHARDS);
        for shard in 0..I::SHARDS {
            runs.push(self.read_alive_of(shard, &mut |location| {
                if let Some(bits) = bits.get_mut(&location.slot()) {
                    let place = location.offset() / ALIGNMENT;
                    if bits.len() <= place / 64 {
                        bits.resize(place / 64 + 1, 0);
                    }
                    bits[place / 64] |= 1 << (place % 64);
                }
            })?);
        }
        let segments = segments.iter().map(|(number, _)| *number).collect();
        Ok(Alive { segments, bits, runs, misses: AtomicUsize::new(0) })
    }

    /// Shows where the entries of a shard's run point to, except those that are there no more: the
    /// slots of their segments may be those of others by now. Returns the run.
    fn read_alive_of(&self, shard: usize, visit: &mut dyn FnMut(Location)) -> Result<Weak<Run>> {
        loop {
            let Some(run) = self.table(shard).run().cloned() else { return Ok(Weak::new()) };
            let in_run = run.read_all()?;
            let table = self.table(shard);
            if table.run().is_some_and(|now| Arc::ptr_eq(now, &run)) {
                table.alive_in_run(&in_run).into_iter().for_each(visit);
                return Ok(Arc::downgrade(&run));
            }
        }
    }
}
