//! Admission: decides which changes a replay may apply after a loss.
//!
//! The lost parts of a log may have contained changes of any key. Parts that a power failure has
//! lost were never promised. After them nothing is applied, so the tree has an earlier state. After
//! damage, a replay applies changes that define a key's records by themselves
//! ([`Operation::is_absolute`]), and then the later changes of that key. Another change may depend
//! on a lost one: the removal of the third duplicate could hit another record than it did. Then the
//! tree does not open.

use super::redo::Operation;
use crate::log::holes::Fate;
use crate::log::segments::segment_path;
use crate::log::{Recovery, SegmentOffset};
use crate::{Error, Result};
use std::collections::{BTreeSet, HashSet};
use std::path::Path;

/// Losses of the log from the checkpoint's position on.
#[derive(Default)]
pub(super) struct Losses {
    /// Offsets at which promised changes are lost, in order.
    pub(super) damages: Vec<SegmentOffset>,
    /// First offset at which changes were lost with the power.
    pub(super) power_from: Option<SegmentOffset>,
}

impl Losses {
    /// Returns the losses that the replay has found, those in missing segments, and those that an
    /// earlier opening has kept aside without finishing.
    pub(super) fn of(recovery: &Recovery) -> Result<Self> {
        let mut losses = Self::default();
        let met = recovery.holes.iter().map(|hole| ((hole.number, hole.offset), hole.fate));
        let gap = first_gap(recovery).map(|number| ((number, 0), Fate::Lost));
        let met = met.chain(gap).chain(recovery.missing());
        for (place, fate) in recovery.kept_aside()?.into_iter().chain(met) {
            match fate {
                Fate::Damaged => losses.damages.push(place),
                Fate::Lost => {
                    let first = losses.power_from.map_or(place, |first| first.min(place));
                    losses.power_from = Some(first);
                }
                Fate::Unfilled | Fate::Torn => {}
            }
        }
        losses.damages.sort_unstable();
        Ok(losses)
    }

    pub(super) fn are_any(&self) -> bool {
        !self.damages.is_empty() || self.power_from.is_some()
    }
}

/// Returns the number of the first missing segment between the start of the replay and the last
/// segment. A promised segment that is missing has a placeholder, and a segment without changes is
/// not missed.
fn first_gap(recovery: &Recovery) -> Option<u64> {
    let there: BTreeSet<u64> = recovery.segments.iter().map(|segment| segment.number).collect();
    let from = recovery.checkpoint.as_ref().map(|checkpoint| checkpoint.replay_segment);
    let first = from.or(recovery.whole_from).or(there.first().copied())?;
    let last = *there.last()?;
    (first..=last).find(|number| !there.contains(number) && !recovery.is_without_changes(*number))
}

/// Decides for each change of the log, in order, whether it may be applied.
pub(super) struct Admission<'l> {
    losses: &'l Losses,
    has_duplicates: bool,
    /// Number of damages before the current change.
    passed: usize,
    /// Keys whose records are known, because of an absolute change after the last damage.
    known: HashSet<Vec<u8>>,
}

impl<'l> Admission<'l> {
    /// Begins before the first change. Without duplicates, every change is absolute.
    pub(super) fn new(losses: &'l Losses, has_duplicates: bool) -> Self {
        Self { losses, has_duplicates, passed: 0, known: HashSet::new() }
    }

    /// Moves to the next change, which is at `place`.
    pub(super) fn advance_to(&mut self, place: SegmentOffset) {
        let damages = &self.losses.damages;
        while damages.get(self.passed).is_some_and(|damage| *damage <= place) {
            self.passed += 1;
            self.known.clear();
        }
    }

    /// Returns the operation to apply. Fails with [`Error::Corrupted`] if it may depend on a lost
    /// one.
    pub(super) fn admit(
        &mut self,
        key: &[u8],
        operation: Operation,
        directory: &Path,
    ) -> Result<Operation> {
        let Some(last) = self.passed.checked_sub(1) else { return Ok(operation) };
        if !self.has_duplicates {
            return Ok(operation.on_single());
        }
        if operation.is_absolute() {
            if !self.known.contains(key) {
                self.known.insert(key.to_vec());
            }
            return Ok(operation);
        }
        if self.known.contains(key) {
            return Ok(operation);
        }
        let (number, offset) = self.losses.damages[last];
        let file = segment_path(directory, number);
        let what =
            "the part lost here may have changed duplicates that later changes depend on".into();
        Err(Error::Corrupted { file, offset, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(damages: &[SegmentOffset]) -> Losses {
        Losses { damages: damages.to_vec(), power_from: None }
    }

    #[test]
    fn after_damage_a_key_continues_with_its_first_absolute_change() {
        let losses = losses(&[(1, 100), (2, 64)]);
        let mut admission = Admission::new(&losses, true);
        let mut admit = |place, key: &[u8], operation| {
            admission.advance_to(place);
            admission.admit(key, operation, Path::new("")).ok()
        };
        let (number, first) = (Operation::Remove(2), Operation::Insert(0));
        assert_eq!(admit((1, 80), b"a", number), Some(number));
        assert_eq!(admit((1, 200), b"a", number), None);
        assert_eq!(admit((1, 208), b"a", first), None);
        assert_eq!(admit((1, 216), b"a", Operation::Set), Some(Operation::Set));
        assert_eq!(admit((1, 224), b"a", first), Some(first));
        assert_eq!(admit((1, 232), b"b", first), None);
        assert_eq!(admit((1, 240), b"b", Operation::RemoveAll), Some(Operation::RemoveAll));
        assert_eq!(admit((1, 248), b"b", first), Some(first));
        assert_eq!(admit((2, 72), b"b", first), None);
    }

    #[test]
    fn without_duplicates_every_change_is_absolute() {
        let losses = losses(&[(1, 100)]);
        let mut admission = Admission::new(&losses, false);
        admission.advance_to((1, 200));
        let mut admit = |operation| admission.admit(b"a", operation, Path::new("")).unwrap();
        assert_eq!(admit(Operation::Insert(0)), Operation::Set);
        assert_eq!(admit(Operation::Remove(0)), Operation::RemoveAll);
    }
}
