//! Index: an open-addressing table of record numbers, in the order of their hashes.
//!
//! Homes are proportional to the hash, collisions go to the following slots, and a run of occupied
//! slots is sorted by hash (Amble and Knuth, "Ordered hash tables", 1974). So the table is a sorted
//! list with gaps at any size. A scan by hash continues at its position even if the table has
//! grown, and growing is one sequential merge that reads no records. The array does not wrap
//! around: entries that spill over its end make it longer.

/// One slot of the table.
#[derive(Clone, Copy, Debug)]
struct Slot {
    tag: u32,
    id: u32,
}

const EMPTY: u32 = u32::MAX;

/// Most records of one index.
pub(super) const RECORDS_MAX: usize = u32::MAX as usize;

const HOMES_MIN: usize = 16;

/// Slots after the last home for runs that spill over.
const SPILL: usize = 32;

/// Record numbers by a 32-bit hash, the tag.
#[derive(Debug, Default)]
pub(super) struct Index {
    slots: Vec<Slot>,
    homes: usize,
    len: usize,
}

impl Index {
    /// Returns the slot and number of the record with this tag for which `is` returns true.
    pub(super) fn find(&self, tag: u32, mut is: impl FnMut(u32) -> bool) -> Option<(usize, u32)> {
        for (at, slot) in self.slots.iter().enumerate().skip(self.home(tag)) {
            if slot.id == EMPTY || slot.tag > tag {
                break;
            }
            if slot.tag == tag && is(slot.id) {
                return Some((at, slot.id));
            }
        }
        None
    }

    /// Adds a record that does not exist yet.
    pub(super) fn insert(&mut self, tag: u32, id: u32) {
        // Grows by half when it is seven eighths full.
        if self.len >= self.homes / 8 * 7 {
            self.resize((self.homes + self.homes / 2).max(HOMES_MIN));
        }
        let mut at = self.home(tag);
        while self.slots[at].id != EMPTY && self.slots[at].tag <= tag {
            at += 1;
            self.ensure(at);
        }
        let mut gap = at;
        while self.slots[gap].id != EMPTY {
            gap += 1;
            self.ensure(gap);
        }
        self.slots.copy_within(at..gap, at + 1);
        self.slots[at] = Slot { tag, id };
        self.len += 1;
    }

    /// Removes the record in a slot that [`Index::find`] has just returned.
    pub(super) fn remove(&mut self, at: usize) {
        let mut end = at + 1;
        // The following records move up, unless one would move before its home.
        while end < self.slots.len()
            && self.slots[end].id != EMPTY
            && self.home(self.slots[end].tag) < end
        {
            end += 1;
        }
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1].id = EMPTY;
        self.len -= 1;
    }

    /// Returns the records from a tag on, in the order of their tags.
    pub(super) fn from(&self, tag: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.slots
            .iter()
            .skip(self.home(tag))
            .filter(move |slot| slot.id != EMPTY && slot.tag >= tag)
            .map(|slot| (slot.tag, slot.id))
    }

    /// Frees memory that is not needed.
    pub(super) fn shrink(&mut self) {
        if self.len == 0 {
            *self = Self::default();
        } else {
            self.resize((self.len / 7 * 8 + 8).max(HOMES_MIN));
        }
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    fn home(&self, tag: u32) -> usize {
        ((tag as u64 * self.homes as u64) >> 32) as usize
    }

    fn ensure(&mut self, at: usize) {
        if at == self.slots.len() {
            self.slots.reserve_exact(SPILL);
            self.slots.resize(at + SPILL, Slot { tag: 0, id: EMPTY });
        }
    }

    fn resize(&mut self, homes: usize) {
        let mut slots = Vec::with_capacity(homes + SPILL);
        slots.resize(homes + SPILL, Slot { tag: 0, id: EMPTY });
        let old = std::mem::replace(&mut self.slots, slots);
        self.homes = homes;
        let mut next = 0;
        for slot in old.into_iter().filter(|slot| slot.id != EMPTY) {
            let at = self.home(slot.tag).max(next);
            self.ensure(at);
            self.slots[at] = slot;
            next = at + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn check(index: &Index, model: &BTreeSet<(u32, u32)>) {
        let met: Vec<_> = index.from(0).collect();
        assert!(met.is_sorted_by_key(|&(tag, _)| tag), "in the order of tags");
        assert_eq!(met.iter().copied().collect::<BTreeSet<_>>(), *model);
        assert_eq!(met.len(), model.len(), "each once");
        for &(tag, id) in model {
            assert!(index.find(tag, |found| found == id).is_some());
        }
    }

    proptest! {
        #[test]
        fn finds_and_lists_what_was_inserted_and_not_removed(
            // Few tags, many of them at the ends, so that runs are long and spill over.
            changes in proptest::collection::vec(
                (prop_oneof![0u32..4, u32::MAX - 3..=u32::MAX, any::<u32>()], 0u32..50),
                1..600,
            ),
            from in any::<u32>(),
        ) {
            let mut index = Index::default();
            let mut model = BTreeSet::new();
            for (step, (tag, id)) in changes.into_iter().enumerate() {
                match index.find(tag, |found| found == id) {
                    Some((at, _)) => {
                        prop_assert!(model.remove(&(tag, id)));
                        index.remove(at);
                    }
                    None => {
                        prop_assert!(model.insert((tag, id)));
                        index.insert(tag, id);
                    }
                }
                if step % 100 == 99 {
                    index.shrink();
                }
            }
            check(&index, &model);
            let expected: Vec<_> = model.iter().filter(|&&(tag, _)| tag >= from).collect();
            prop_assert_eq!(index.from(from).count(), expected.len());
        }
    }

    #[test]
    fn equal_tags_are_slow_but_right() {
        let mut index = Index::default();
        let model: BTreeSet<_> = (0..300).map(|id| (u32::MAX, id)).collect();
        for &(tag, id) in &model {
            index.insert(tag, id);
        }
        check(&index, &model);
        index.shrink();
        check(&index, &model);
    }

    #[test]
    fn takes_at_most_sixteen_bytes_a_record_once_it_is_large() {
        let mut index = Index::default();
        let mut tag = 1u32;
        for id in 0..100_000 {
            tag = tag.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            index.insert(tag, id);
            assert!(id < 1000 || index.size_bytes() <= 16 * (id as usize + 1));
        }
    }
}
