//! Which changes may be made behind a loss.
//!
//! The lost parts of a log may have held changes of any key. Behind parts that were lost with the
//! power, and so had never been promised, nothing is applied: the tree is as it was once. Behind
//! damage it goes on with changes that say by themselves what a key has afterwards
//! ([`Operation::is_absolute`]), and from there on with the other changes of that key. A change
//! that may rest on one that is lost (the third of the duplicates is removed) could hit another
//! record than it did, so there the tree does not open.

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
    /// Places at which something is lost that had been promised, in order.
    pub(super) damages: Vec<SegmentOffset>,
    /// First place at which something is lost that went with the power.
    pub(super) power_from: Option<SegmentOffset>,
}

impl Losses {
    /// Those that a replay has met, those in segments that are missing, and those that an earlier
    /// opening has kept aside, which did not come to its end.
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

/// The first number that no segment has, from where the replay begins up to the last. One that had
/// been promised has a placeholder, and one that held no change is not missed.
fn first_gap(recovery: &Recovery) -> Option<u64> {
    let there: BTreeSet<u64> = recovery.segments.iter().map(|segment| segment.number).collect();
    let from = recovery.checkpoint.as_ref().map(|checkpoint| checkpoint.replay_segment);
    let first = from.or(recovery.whole_from).or(there.first().copied())?;
    let last = *there.last()?;
    (first..=last).find(|number| !there.contains(number) && !recovery.is_without_changes(*number))
}

/// Goes through the log, and says of each change whether it may be made.
pub(super) struct Admission<'l> {
    losses: &'l Losses,
    has_duplicates: bool,
    /// How many damages are before the change at hand.
    passed: usize,
    /// Keys of which it is known what they had, by a change behind the last damage.
    known: HashSet<Vec<u8>>,
}

impl<'l> Admission<'l> {
    /// Begins before the first change. Without duplicates, every change says what its key has
    /// afterwards.
    pub(super) fn new(losses: &'l Losses, has_duplicates: bool) -> Self {
        Self { losses, has_duplicates, passed: 0, known: HashSet::new() }
    }

    /// The next change is at this place.
    pub(super) fn come_to(&mut self, place: SegmentOffset) {
        let damages = &self.losses.damages;
        while damages.get(self.passed).is_some_and(|damage| *damage <= place) {
            self.passed += 1;
            self.known.clear();
        }
    }

    /// The operation as it is to be made.
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
            "what is lost here may have changed duplicates that are changed again after it".into();
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
    fn behind_damage_a_key_goes_on_with_what_says_all_of_it() {
        let losses = losses(&[(1, 100), (2, 64)]);
        let mut admission = Admission::new(&losses, true);
        let mut admit = |place, key: &[u8], operation| {
            admission.come_to(place);
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
    fn where_there_are_no_duplicates_every_change_says_all() {
        let losses = losses(&[(1, 100)]);
        let mut admission = Admission::new(&losses, false);
        admission.come_to((1, 200));
        let mut admit = |operation| admission.admit(b"a", operation, Path::new("")).unwrap();
        assert_eq!(admit(Operation::Insert(0)), Operation::Set);
        assert_eq!(admit(Operation::Remove(0)), Operation::RemoveAll);
    }
}
