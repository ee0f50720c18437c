//! The locks of shards, for threads that may wait for long changes and for those that must not.

use super::shard::Locked;
use super::{Index, Indexed};
use crate::{Error, Result, Wait};
use parking_lot::RwLockReadGuard;
use std::time::Duration;

/// How often a thread that must not wait looks whether it is for a long change that it does.
const LOOK: Duration = Duration::from_millis(1);

impl<I: Index> Indexed<I> {
    /// The table of a shard, locked for reading.
    #[inline]
    pub(crate) fn table(&self, shard: usize) -> RwLockReadGuard<'_, I::Table> {
        self.shards[shard].read()
    }

    /// The same, unless it is being written to.
    #[inline]
    pub(crate) fn table_at_once(&self, shard: usize) -> Option<RwLockReadGuard<'_, I::Table>> {
        self.shards[shard].try_read()
    }

    /// The same. Fails with [`Error::WouldBlock`] where a long change is to be waited for, and that
    /// must not be.
    #[inline]
    pub(super) fn table_for(
        &self,
        shard: usize,
        wait: Wait,
    ) -> Result<RwLockReadGuard<'_, I::Table>> {
        match self.table_at_once(shard) {
            Some(table) => Ok(table),
            None if wait == Wait::Block => Ok(self.table(shard)),
            None => self.look_for(|| self.shards[shard].try_read_for(LOOK)),
        }
    }

    /// The same for writing.
    #[inline]
    pub(super) fn table_mut(&self, shard: usize, wait: Wait) -> Result<Locked<'_, I::Table>> {
        let shard = &self.shards[shard];
        match shard.try_write() {
            Some(table) => Ok(table),
            None if wait == Wait::Block => Ok(shard.write()),
            None => self.look_for(|| shard.try_write_for(LOOK)),
        }
    }

    #[cold]
    fn look_for<T>(&self, lock: impl Fn() -> Option<T>) -> Result<T> {
        loop {
            if let Some(locked) = lock() {
                return Ok(locked);
            }
            if self.log.is_long_under_way() {
                return Err(Error::WouldBlock);
            }
        }
    }

    /// Holds a shard as a change does.
    #[cfg(test)]
    pub(crate) fn hold(&self, shard: usize) -> impl Drop {
        self.shards[shard].write()
    }
}
