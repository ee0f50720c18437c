//! Locks of the shards, for threads that may wait and for threads that must not.

use super::shard::Locked;
use super::{Index, IndexKey, KeyedEngine, ShardIndex as _};
use crate::{Result, Wait};
use parking_lot::RwLockReadGuard;

impl<I: Index> KeyedEngine<I> {
    /// Locks the table of a shard for reading.
    #[inline]
    pub(crate) fn table(&self, shard: usize) -> RwLockReadGuard<'_, I::ShardIndex> {
        self.shards[shard].read()
    }

    /// Locks the table of a shard for reading, unless a writer holds it.
    #[inline]
    pub(crate) fn table_at_once(&self, shard: usize) -> Option<RwLockReadGuard<'_, I::ShardIndex>> {
        self.shards[shard].try_read()
    }

    /// Fetches the start of a search for an entry into the processor's cache, unless a writer holds
    /// its table.
    pub(super) fn prefetch_entry(&self, index_key: IndexKey<I>) {
        if let Some(table) = self.table_at_once(index_key.shard) {
            table.prefetch(index_key.tag);
        }
    }

    /// Like `table`. Fails with [`crate::Error::WouldBlock`] if another thread holds the lock for
    /// long and `wait` forbids waiting.
    #[inline]
    pub(crate) fn table_for(
        &self,
        shard: usize,
        wait: Wait,
    ) -> Result<RwLockReadGuard<'_, I::ShardIndex>> {
        self.shards[shard].read_for(wait)
    }

    /// Like `table_for`, for writing.
    #[inline]
    pub(super) fn table_mut(&self, shard: usize, wait: Wait) -> Result<Locked<'_, I::ShardIndex>> {
        self.shards[shard].write_for(wait)
    }

    /// Locks a shard as a change does.
    #[cfg(test)]
    pub(crate) fn hold(&self, shard: usize) -> impl Drop {
        self.shards[shard].write()
    }
}
