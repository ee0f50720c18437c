//! One shard of an index: its table, the table's lock, and numbers that are read without the lock.

use super::ShardIndex;
use crate::base::locks;
use crate::base::sync::note_taken;
use crate::{Result, Wait};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Memory of all tables, without that of their runs.
#[derive(Default)]
pub(super) struct Growth(AtomicUsize);

impl Growth {
    /// Returns the bytes, as of when each table was last unlocked.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed) as u64
    }

    fn change(&self, before: usize, now: usize) {
        self.0.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

/// A table and its lock, aligned so that the locks of two shards never share a cache line.
#[repr(align(64))]
pub(super) struct Shard<T: ShardIndex> {
    table: RwLock<T>,
    /// Outline of the table, as of when it was last unlocked.
    outline: [AtomicUsize; 2],
    /// Entries of the table, as of when it was last unlocked. A callback that runs under the lock
    /// may ask for them.
    entries: AtomicUsize,
    /// Bytes of memory of the table, as of when it was last unlocked; 0 if it never has a run.
    bytes: AtomicUsize,
    growth: Arc<Growth>,
    /// LSN of the last record that made the table forget a key: a tombstone, or one that expired. A
    /// put of a key that the table lacks must exceed it. Changes under the lock.
    pub(super) forgot: AtomicU64,
}

impl<T: ShardIndex> Shard<T> {
    pub(super) fn new(table: T, growth: &Arc<Growth>) -> Self {
        let entries = AtomicUsize::new(table.len());
        let bytes = if T::HAS_RUNS { table.changed_bytes() } else { 0 };
        growth.change(0, bytes);
        Self {
            outline: table.outline().map(AtomicUsize::new),
            table: table.into(),
            entries,
            bytes: AtomicUsize::new(bytes),
            growth: Arc::clone(growth),
            forgot: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn read(&self) -> RwLockReadGuard<'_, T> {
        note_taken(self);
        self.table.read()
    }

    #[inline]
    pub(super) fn write(&self) -> Locked<'_, T> {
        note_taken(self);
        Locked { table: self.table.write(), shard: self }
    }

    #[inline]
    pub(super) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        note_taken(self);
        self.table.try_read()
    }

    #[inline]
    pub(super) fn read_for(&self, wait: Wait) -> Result<RwLockReadGuard<'_, T>> {
        note_taken(self);
        locks::read(&self.table, wait)
    }

    #[inline]
    pub(super) fn write_for(&self, wait: Wait) -> Result<Locked<'_, T>> {
        note_taken(self);
        let table = locks::write(&self.table, wait)?;
        Ok(Locked { table, shard: self })
    }

    /// Fetches the shard itself into the processor's cache.
    #[inline]
    pub(super) fn prefetch(&self) {
        crate::io::prefetch(&raw const self.table);
        crate::io::prefetch(&raw const self.outline);
    }

    /// Fetches the start of a search for a tag into the processor's cache, without the lock.
    #[inline]
    pub(super) fn prefetch_slot(&self, tag: T::Tag) {
        T::prefetch_in(self.outline.each_ref().map(|word| word.load(Ordering::Relaxed)), tag);
    }

    /// Number of entries, without the lock.
    pub(super) fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }
}

/// The table of a shard, locked for writing.
pub(super) struct Locked<'s, T: ShardIndex> {
    table: RwLockWriteGuard<'s, T>,
    shard: &'s Shard<T>,
}

impl<T: ShardIndex> Drop for Locked<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.shard.entries.store(self.table.len(), Ordering::Relaxed);
        for (word, now) in self.shard.outline.iter().zip(self.table.outline()) {
            word.store(now, Ordering::Relaxed);
        }
        if T::HAS_RUNS {
            let now = self.table.changed_bytes();
            let before = self.shard.bytes.load(Ordering::Relaxed);
            if now != before {
                self.shard.bytes.store(now, Ordering::Relaxed);
                self.shard.growth.change(before, now);
            }
        }
    }
}

impl<T: ShardIndex> Deref for Locked<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.table
    }
}

impl<T: ShardIndex> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.table
    }
}
