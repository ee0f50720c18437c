//! State of the requests of a store.

use crate::dead_entries::DeadEntries;
use crate::key_queues::KeyQueues;
use crate::name::Name;
use crate::records::Records;
use crate::session::{Cluster, Failure};
use crate::table::Rows;
use crate::waiting::Waiting;
use server::StoreFailure;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// State of the requests of a store.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) records: Arc<Records>,
    /// The rows of a table.
    pub(crate) rows: Option<Arc<Rows>>,
    pub(crate) queues: KeyQueues<Waiting>,
    pub(crate) dead_entries: DeadEntries,
    pub(crate) name: Name,
    pub(crate) conflicts: AtomicU64,
    pub(crate) folded: AtomicU64,
}

impl Shared {
    /// Lets the entries of keys be removed that have no record. Rows have other rules.
    pub(crate) fn note_dead(&self, keys: impl IntoIterator<Item = Vec<u8>>) {
        if self.rows.is_none() {
            self.dead_entries.note(&self.records, &self.cluster, keys);
        }
    }
}

/// Returns the failure of a request that changes nothing.
pub(crate) fn of_read(_: Failure) -> StoreFailure {
    StoreFailure::Unavailable
}
