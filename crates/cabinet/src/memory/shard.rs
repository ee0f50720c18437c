//! Shard: a part of the on-memory hash with its own lock.
//!
//! Records are in a list of places, which an [`Index`] finds by hash. A place keeps its number
//! until its record is removed, and is then reused.
//!
//! Eviction is CLOCK. A hand goes around the places, and evicts the first record that was not read
//! or overwritten since the hand last passed it. A new record gets the place that was vacated last,
//! just after the hand. If nothing is ever read, the oldest record is evicted first.

use super::capacity::Capacity;
use super::expiry::{Expiries, LOOKS_PER_WRITE};
use super::index::{Index, RECORDS_MAX};
use super::record::Record;
use crate::{Clock, Error, Meta, Result, Version};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Used records that the hand passes before it evicts one regardless. Bounds the work of a write.
const PASSED_MAX: usize = 64;

/// Records whose hashes are in one range.
#[derive(Debug, Default)]
pub(super) struct Shard {
    index: Index,
    records: Vec<Option<Record>>,
    vacant: Vec<u32>,
    /// Whether the record in a place was used since the hand last passed it; empty without a cap.
    access_bits: Vec<AtomicBool>,
    hand: usize,
    sweep: usize,
    expiries: Expiries,
}

impl Shard {
    /// Returns the place of a record.
    pub(super) fn find(&self, tag: u32, key: &[u8]) -> Option<u32> {
        self.index.find(tag, |id| self.holds(id, key)).map(|(_, id)| id)
    }

    /// Returns the record in a place that [`Shard::find`] or [`Shard::from`] has just returned.
    pub(super) fn record(&self, id: u32) -> Option<&Record> {
        self.records[id as usize].as_ref()
    }

    /// Notes that the record in a place was read.
    pub(super) fn mark_accessed(&self, id: u32) {
        if let Some(bit) = self.access_bits.get(id as usize)
            && !bit.load(Ordering::Relaxed)
        {
            bit.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the places from a tag on, in the order of tags.
    pub(super) fn from(&self, tag: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.index.from(tag)
    }

    /// Fails if `more` records would not fit.
    pub(super) fn check_capacity(&self, more: usize) -> Result<()> {
        if RECORDS_MAX - self.records.len() < more {
            return Err(Error::NoSpace { path: PathBuf::from("*") });
        }
        Ok(())
    }

    /// Stores a record, over the one that [`Shard::find`] found in `place`, if any. Returns its
    /// place.
    pub(super) fn put(
        &mut self,
        tag: u32,
        place: Option<u32>,
        record: Record,
        capacity: &Capacity,
    ) -> u32 {
        self.expiries.note(record.meta());
        if let Some(id) = place
            && let Some(old) = &mut self.records[id as usize]
        {
            capacity.exchange(old.size_bytes(), record.size_bytes());
            *old = record;
            self.mark_accessed(id);
            return id;
        }
        capacity.add(record.size_bytes());
        let id = self.vacant.pop().unwrap_or_else(|| {
            if self.records.len() == self.records.capacity() {
                // Grows by a quarter, since doubling would leave half of it unused.
                self.records.reserve_exact((self.records.len() / 4).max(4));
            }
            self.records.push(None);
            self.records.len() as u32 - 1
        });
        if capacity.is_capped() {
            while self.access_bits.len() < self.records.len() {
                self.access_bits.push(AtomicBool::new(false));
            }
            self.access_bits[id as usize].store(false, Ordering::Relaxed);
        }
        self.records[id as usize] = Some(record);
        self.index.insert(tag, id);
        id
    }

    /// Overwrites the value in a place without moving anything, if possible.
    pub(super) fn overwrite(
        &mut self,
        id: u32,
        value: &[u8],
        meta: Meta,
        version: Version,
    ) -> bool {
        let Some(record) = &mut self.records[id as usize] else { return false };
        let done = record.overwrite(value, meta);
        if done {
            record.set_version(version);
            self.mark_accessed(id);
        }
        done
    }

    /// Removes a record. Returns whether there was one.
    pub(super) fn remove(&mut self, tag: u32, key: &[u8], capacity: &Capacity) -> bool {
        let found = self.index.find(tag, |id| self.holds(id, key));
        if let Some((slot, id)) = found {
            self.vacate(slot, id, capacity);
        }
        found.is_some()
    }

    /// Returns the number of records that are not in the places `spare`.
    pub(super) fn others(&self, spare: &[u32]) -> usize {
        let spared = spare.iter().filter(|id| self.record(**id).is_some()).count();
        self.records.len() - self.vacant.len() - spared
    }

    /// Evicts a little used record, but none in the places `spare`, which are sorted and unique.
    /// There must be [others](Self::others). `tag_of` hashes a key.
    pub(super) fn evict(
        &mut self,
        spare: &[u32],
        tag_of: impl Fn(&[u8]) -> u32,
        capacity: &Capacity,
    ) {
        let mut passed = 0;
        loop {
            let id = self.hand as u32;
            self.hand = (self.hand + 1) % self.records.len();
            if self.record(id).is_none() || spare.binary_search(&id).is_ok() {
                continue;
            }
            // Records stored before there was a cap count as unused.
            let bit = self.access_bits.get(id as usize);
            let was_accessed = bit.is_some_and(|bit| bit.swap(false, Ordering::Relaxed));
            if was_accessed && passed < PASSED_MAX {
                passed += 1;
                continue;
            }
            if let Some(record) = self.record(id) {
                capacity.note_evicted(record.key());
            }
            self.remove_at(id, tag_of, capacity);
            return;
        }
    }

    /// Returns whether a record may expire, so that [`Shard::sweep`] may find some.
    pub(super) fn may_expire(&self) -> bool {
        self.expiries.any()
    }

    /// Checks a few records, if any may have expired, and removes those that have.
    pub(super) fn sweep(
        &mut self,
        now_ms: u64,
        tag_of: impl Fn(&[u8]) -> u32,
        capacity: &Capacity,
        clock: &Clock,
    ) {
        if !self.expiries.is_due(now_ms) {
            return;
        }
        for _ in 0..LOOKS_PER_WRITE {
            if self.sweep >= self.records.len() {
                self.sweep = 0;
                self.expiries.finish_round();
                return;
            }
            let id = self.sweep as u32;
            self.sweep += 1;
            let Some(record) = self.record(id) else { continue };
            let meta = record.meta();
            if meta.is_expired(now_ms) && !clock.hand_over(record.key()) {
                self.remove_at(id, &tag_of, capacity);
                capacity.expired.count_removed();
            } else {
                self.expiries.note(meta);
            }
        }
    }

    /// Frees memory that is not needed.
    pub(super) fn shrink(&mut self, tag_of: impl Fn(&[u8]) -> u32) {
        let mut kept = Self::default();
        for (id, record) in std::mem::take(&mut self.records).into_iter().enumerate() {
            let Some(record) = record else { continue };
            kept.index.insert(tag_of(record.key()), kept.records.len() as u32);
            kept.expiries.note(record.meta());
            if let Some(bit) = self.access_bits.get(id) {
                kept.access_bits.push(AtomicBool::new(bit.load(Ordering::Relaxed)));
            }
            kept.records.push(Some(record));
        }
        kept.index.shrink();
        kept.records.shrink_to_fit();
        *self = kept;
    }

    /// Removes all records.
    pub(super) fn clear(&mut self, capacity: &Capacity) {
        for record in self.records.iter().flatten() {
            capacity.subtract(record.size_bytes());
        }
        *self = Self::default();
    }

    /// Returns the bytes of the tables, without the records.
    pub(super) fn table_bytes(&self) -> usize {
        self.index.size_bytes()
            + self.records.capacity() * size_of::<Option<Record>>()
            + self.vacant.capacity() * size_of::<u32>()
            + self.access_bits.capacity()
    }

    fn holds(&self, id: u32, key: &[u8]) -> bool {
        self.record(id).is_some_and(|record| record.key() == key)
    }

    fn remove_at(&mut self, id: u32, tag_of: impl Fn(&[u8]) -> u32, capacity: &Capacity) {
        let Some(tag) = self.record(id).map(|record| tag_of(record.key())) else { return };
        if let Some((slot, _)) = self.index.find(tag, |found| found == id) {
            self.vacate(slot, id, capacity);
        }
    }

    fn vacate(&mut self, slot: usize, id: u32, capacity: &Capacity) {
        self.index.remove(slot);
        if let Some(record) = self.records[id as usize].take() {
            capacity.subtract(record.size_bytes());
        }
        self.vacant.push(id);
    }
}
