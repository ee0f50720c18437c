//! On-memory ordered map, `+`.
//!
//! It is one B-tree under one lock: readers run in parallel, writers one at a time. A step of a
//! scan visits, under the lock, records from a key on, and the next step continues after the last
//! of them. Keys do not move, so a record that exists throughout is visited exactly once.
//!
//! Eviction is CLOCK. A hand goes through the keys in order, around and around, and evicts the
//! first record that was not read or overwritten since the hand last passed it. If nothing is read,
//! and keys rise, the oldest record is evicted first.

use super::capacity::{Added, Capacity, Profile};
use super::copy::copy_records;
use super::expiry::{Expiries, LOOKS_PER_WRITE, SEARCHES};
use super::record::Record;
use super::{MemoryEngine, ScanBudget};
use crate::base::locks;
use crate::{
    Batch, Change, Clock, Engine, Family, Meta, Options, Result, ScanCursor, Version, Visitor,
    Wait, engine::batch_plan,
};
use crate::{Decide, Visit};
use parking_lot::RwLock;
use std::borrow::Borrow;
use std::cmp::Ordering as KeyOrder;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Used records that the hand passes before it evicts one regardless. Bounds the work of a write.
const PASSED_MAX: usize = 64;

/// Bytes that a node of the tree uses per record: nodes are two thirds full on average.
const NODE_BYTES_PER_RECORD: u64 = (size_of::<Item>() + size_of::<Item>() / 2) as u64;

/// Name of the engine, and the memory of its records beyond the bytes that the cap counts: nodes
/// are half full if keys are stored in ascending order.
const PROFILE: Profile = Profile { kind: "on-memory tree", path: "+", overhead_bytes: 48 };

/// On-memory database in the order of keys, with optional caps, above which records not used lately
/// are evicted.
#[derive(Debug)]
pub struct MemoryTree {
    tree: RwLock<Tree>,
    capacity: Capacity,
    options: Options,
}

#[derive(Debug, Default)]
struct Tree {
    items: BTreeSet<Item>,
    version: Version,
    /// Key that the eviction has reached.
    hand: Vec<u8>,
    /// Key that the search for expired records has reached.
    sweep: Vec<u8>,
    expiries: Expiries,
}

/// A record, ordered by its key.
#[derive(Debug)]
struct Item {
    record: Record,
    /// Whether the record was used since the hand last passed it.
    access_bit: AtomicBool,
}

impl Borrow<[u8]> for Item {
    fn borrow(&self) -> &[u8] {
        self.record.key()
    }
}

impl Ord for Item {
    fn cmp(&self, other: &Self) -> KeyOrder {
        self.record.key().cmp(other.record.key())
    }
}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<KeyOrder> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == KeyOrder::Equal
    }
}

impl Eq for Item {}

impl Tree {
    fn from(&self, key: &[u8]) -> impl Iterator<Item = &Item> {
        self.items.range::<[u8], _>((Bound::Included(key), Bound::Unbounded))
    }

    /// Returns the bytes of the record of a key, if there is one.
    fn bytes_of(&self, key: &[u8]) -> Option<usize> {
        self.items.get(key).map(|item| item.record.size_bytes())
    }

    fn put(&mut self, mut record: Record, capacity: &Capacity) -> Version {
        self.version += 1;
        record.set_version(self.version);
        self.expiries.note(record.meta());
        let bytes = record.size_bytes();
        match self.items.replace(Item { record, access_bit: AtomicBool::new(false) }) {
            Some(old) => {
                capacity.exchange(old.record.size_bytes(), bytes);
                if capacity.is_capped()
                    && let Some(item) = self.items.get(old.record.key())
                {
                    item.access_bit.store(true, Ordering::Relaxed);
                }
            }
            None => capacity.add(bytes),
        }
        self.version
    }

    fn remove(&mut self, key: &[u8], capacity: &Capacity) {
        if let Some(item) = self.items.take(key) {
            capacity.subtract(item.record.size_bytes());
        }
    }

    /// Evicts down to the caps, except one key.
    fn evict(&mut self, spare: Option<&[u8]>, capacity: &Capacity) {
        while capacity.is_over() && self.items.len() > usize::from(spare.is_some()) {
            let hand = std::mem::take(&mut self.hand);
            let around = self.from(&hand).chain(self.items.iter()).chain(self.items.iter());
            let mut passed = 0;
            let victim = around.filter(|item| Some(item.record.key()) != spare).find(|item| {
                let was_accessed = item.access_bit.swap(false, Ordering::Relaxed);
                passed += 1;
                !was_accessed || passed > PASSED_MAX
            });
            let Some(victim) = victim else { return };
            self.hand = victim.record.key().to_vec();
            let victim = self.hand.clone();
            self.remove(&victim, capacity);
            capacity.note_evicted(&victim);
        }
    }

    /// Checks a few records, if any may have expired, and removes those that have.
    fn sweep(&mut self, now_ms: u64, capacity: &Capacity, clock: &Clock) {
        if !self.expiries.is_due(now_ms) {
            return;
        }
        for _ in 0..LOOKS_PER_WRITE {
            let next = self.from(&self.sweep).next();
            let Some((key, meta)) =
                next.map(|item| (item.record.key().to_vec(), item.record.meta()))
            else {
                self.sweep.clear();
                self.expiries.finish_round();
                return;
            };
            if meta.is_expired(now_ms) && !clock.hand_over(&key) {
                self.remove(&key, capacity);
                capacity.expired.count_removed();
            } else {
                self.expiries.note(meta);
            }
            self.sweep = key;
            self.sweep.push(0); // The least key after it.
        }
    }
}

impl MemoryTree {
    /// Returns an empty database. Uses the caps, the compression and the clock of the options.
    pub fn new(options: &Options) -> Self {
        let capacity = Capacity::new(options, PROFILE);
        Self { tree: RwLock::default(), capacity, options: options.clone() }
    }

    fn live<'a>(&self, tree: &'a Tree, key: &[u8]) -> Option<&'a Item> {
        tree.items.get(key).filter(|item| self.is_live(item.record.meta()))
    }

    /// Refuses a change if there is no memory for it. Then also removes some expired records, so
    /// that a later write may fit.
    fn check_memory(&self, tree: &mut Tree, added: Added) -> Result<()> {
        self.capacity.check_memory(added).inspect_err(|_| self.sweep(tree))
    }

    fn check_record(&self, tree: &mut Tree, record: &Record) -> Result<()> {
        let mut added = Added::default();
        added.change(tree.bytes_of(record.key()), Some(record.size_bytes()));
        self.check_memory(tree, added)
    }

    fn sweep(&self, tree: &mut Tree) {
        if tree.expiries.any() {
            let clock = &self.options.clock;
            tree.sweep(clock.now_ms(), &self.capacity, clock);
        }
    }

    /// Ends a write: removes some expired records, and evicts down to the caps, except the record
    /// just written.
    fn complete_write(&self, tree: &mut Tree, spare: Option<&[u8]>) {
        self.sweep(tree);
        tree.evict(spare, &self.capacity);
    }

    /// Does one step of a scan.
    fn scan_records(&self, from: &ScanCursor, visit: &mut Visit<'_>) -> Result<Option<ScanCursor>> {
        let from = match from {
            ScanCursor::Start => &[][..],
            ScanCursor::Key(key) => key,
            ScanCursor::Hash(_) | ScanCursor::Id(_) => {
                return Err(from.foreign());
            }
        };
        let tree = self.tree.read();
        let mut budget = ScanBudget::default();
        for item in tree.from(from) {
            if budget.is_spent() {
                return Ok(Some(ScanCursor::Key(item.record.key().to_vec())));
            }
            if self.is_live(item.record.meta()) {
                budget.spend(item.record.size_bytes());
                item.record.visit(&mut *visit)?;
            }
        }
        Ok(None)
    }
}

impl Engine for MemoryTree {
    fn read(&self, key: &[u8], wait: Wait, visit: &mut Visit<'_>) -> Result<bool> {
        let tree = locks::read(&self.tree, wait)?;
        let Some(item) = tree.items.get(key) else { return Ok(false) };
        if !self.is_live(item.record.meta()) {
            self.capacity.expired.count_read();
            return Ok(false);
        }
        // Written only if it changes, because readers of one record share its cache line.
        if self.capacity.is_capped() && !item.access_bit.load(Ordering::Relaxed) {
            item.access_bit.store(true, Ordering::Relaxed);
        }
        item.record.visit(visit)?;
        Ok(true)
    }

    fn put(&self, key: &[u8], value: &[u8], meta: Meta, wait: Wait) -> Result<Version> {
        let record = self.record(key, value, meta)?;
        let mut tree = locks::write(&self.tree, wait)?;
        self.check_record(&mut tree, &record)?;
        let version = tree.put(record, &self.capacity);
        self.complete_write(&mut tree, Some(key));
        Ok(version)
    }

    fn update(&self, key: &[u8], wait: Wait, decide: &mut Decide<'_>) -> Result<Version> {
        let mut tree = locks::write(&self.tree, wait)?;
        let change = match self.live(&tree, key) {
            Some(item) => item.record.visit(|entry| decide(Some(entry)))?,
            None => decide(None),
        };
        match change {
            Change::Keep => Ok(0),
            Change::Remove => {
                tree.remove(key, &self.capacity);
                self.complete_write(&mut tree, None);
                Ok(0)
            }
            Change::Put(value, meta) => {
                let record = self.record(key, &value, meta)?;
                self.check_record(&mut tree, &record)?;
                let version = tree.put(record, &self.capacity);
                self.complete_write(&mut tree, Some(key));
                Ok(version)
            }
        }
    }

    fn write(&self, batch: &Batch, wait: Wait) -> Result<()> {
        // Everything that can fail comes before the first change.
        let changes = self.records(batch)?;
        let mut tree = locks::write(&self.tree, wait)?;
        batch_plan::check_expected(&batch.expected, |key| {
            Ok(self.live(&tree, key).map(|item| item.record.version()))
        })?;
        let mut added = Added::default();
        for (key, record) in &changes {
            added.change(tree.bytes_of(key), record.as_ref().map(Record::size_bytes));
        }
        self.check_memory(&mut tree, added)?;
        for (key, record) in changes {
            match record {
                Some(record) => {
                    tree.put(record, &self.capacity);
                }
                None => tree.remove(key, &self.capacity),
            }
        }
        self.complete_write(&mut tree, None);
        Ok(())
    }

    fn scan(&self, from: &ScanCursor, visitor: Visitor<'_>) -> Result<Option<ScanCursor>> {
        visitor.of_records(|visit| self.scan_records(from, visit))
    }

    fn scan_cursor_of(&self, key: &[u8]) -> ScanCursor {
        ScanCursor::Key(key.to_vec())
    }

    fn family(&self) -> Family<'_> {
        Family::Sorted(crate::KeyOrder::Lexical)
    }
}

impl MemoryEngine for MemoryTree {
    fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn table_bytes(&self) -> u64 {
        self.capacity.records() * NODE_BYTES_PER_RECORD
    }

    fn copy_to(&self, path: &Path) -> Result<()> {
        let tree = self.tree.read();
        let records = tree.items.iter().map(|item| &item.record);
        copy_records(path, records.filter(|record| self.is_live(record.meta())))
    }

    fn fit(&self, has_new_caps: bool) {
        if has_new_caps {
            self.tree.write().evict(None, &self.capacity);
        }
    }

    fn clear(&self) {
        let mut tree = self.tree.write();
        for item in &tree.items {
            self.capacity.subtract(item.record.size_bytes());
        }
        // Versions continue.
        *tree = Tree { version: tree.version, ..Tree::default() };
    }

    fn remove_if_expired(&self, key: &[u8], wait: Wait) -> Result<bool> {
        let mut tree = locks::write(&self.tree, wait)?;
        let is_expired = tree.items.contains(key) && self.live(&tree, key).is_none();
        if is_expired {
            tree.remove(key, &self.capacity);
            self.capacity.expired.count_removed();
        }
        Ok(is_expired)
    }

    fn sweep_parts(&self) {
        (0..SEARCHES).for_each(|_| self.sweep(&mut self.tree.write()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::Maintenance as _;

    #[test]
    fn a_thread_that_must_not_wait_does_not_wait_for_the_tree_that_is_held() {
        let database = std::sync::Arc::new(MemoryTree::new(&Options::default()));
        let held = database.tree.write();
        let waiter = std::sync::Arc::clone(&database);
        let mut batch = Batch::new();
        batch.put(b"key", b"value", Meta::NONE);
        let refused = locks::at_once(move || {
            [
                waiter.read(b"key", Wait::Never, &mut |_| ()),
                waiter.put(b"key", b"value", Meta::NONE, Wait::Never).map(|_| true),
                waiter.update(b"key", Wait::Never, &mut |_| Change::Keep).map(|_| true),
                waiter.remove_expired(b"key", Wait::Never),
                waiter.write(&batch, Wait::Never).map(|()| true),
            ]
            .map(|result| matches!(result, Err(Error::WouldBlock)))
        });
        assert_eq!(refused, [true; 5]);
        drop(held);
        database.put(b"key", b"value", Meta::NONE, Wait::Never).expect("a put");
    }
}
