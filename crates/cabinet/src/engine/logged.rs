//! Operations on a database whose records are in a log, in the order of which all keys can be
//! visited, in addition to those on any database.

use crate::{IterationState, LargeValue, Result, VisitKey, Wait};

/// A database of records that are stored one by one in a log.
pub trait Logged {
    /// Opens the value of a key for reading in pieces, if it has `bytes_min` bytes or more and is
    /// stored in one piece on the disk. Otherwise returns `None`, and [`crate::Engine::read`] reads
    /// it.
    fn large_value(&self, key: &[u8], bytes_min: usize, wait: Wait) -> Result<Option<LargeValue>>;

    /// Returns an iteration over all keys in the order of the log, or from the record of a key on.
    /// Returns `None` if the steps of [`crate::Engine::scan`] are faster.
    fn iteration(&self, from: Option<&[u8]>) -> Result<Option<IterationState>>;

    /// Calls `visit` with some keys of an iteration of this database, perhaps none. Returns whether
    /// there may be more.
    fn step_iteration(
        &self,
        iteration: &mut IterationState,
        visit: &mut VisitKey<'_>,
    ) -> Result<bool>;
}
