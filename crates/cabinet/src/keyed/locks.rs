//! The locks of shards, for threads that may wait and for those that must not.

use super::shard::Locked;
use super::{Index, IndexKey, KeyedEngine, ShardIndex as _};
use crate::{Result, Wait};
use parking_lot::RwLockReadGuard;

impl<I: Index> KeyedEngine<I> {
    /// The table of a shard, locked for reading.
    #[inline]
    pub(crate) fn table(&self, shard: usize) -> RwLockReadGuard<'_, I::ShardIndex> {
        self.shards[shard].read()
    }

    /// The same, unless it is being written to.
    #[inline]
    pub(crate) fn table_at_once(&self, shard: usize) -> Option<RwLockReadGuard<'_, I::ShardIndex>> {
        self.shards[shard].try_read()
    }

    /// Fetches what a search for an entry begins with into the processor's cache, unless its table
    /// is being written to.
    pub(super) fn prefetch_entry(&self, index_key: IndexKey<I>) {
        if let Some(table) = self.table_at_once(index_key.shard) {
            table.prefetch(index_key.tag);
        }
    }

    /// As `table`. Fails with [`crate::Error::WouldBlock`] where another thread holds it for long,
    /// and that must not be waited for.
    #[inline]
    pub(crate) fn table_for(
        &self,
        shard: usize,
        wait: Wait,
    ) -> Result<RwLockReadGuard<'_, I::ShardIndex>> {
        self.shards[shard].read_for(wait)
    }

    /// The same for writing.
    #[inline]
    pub(super) fn table_mut(&self, shard: usize, wait: Wait) -> Result<Locked<'_, I::ShardIndex>> {
        self.shards[shard].write_for(wait)
    }

    /// Holds a shard as a change does.
    #[cfg(test)]
    pub(crate) fn hold(&self, shard: usize) -> impl Drop {
        self.shards[shard].write()
    }
}
