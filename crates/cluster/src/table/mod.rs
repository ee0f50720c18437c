//! Table databases: rows, secondary indexes over their columns, and queries.
//!
//! Rows are records whose value is a row as `cabinet` encodes it. [`upkeep`] changes them with the
//! entries of their indexes, and argues why no row misses one; [`indexes`] adds and removes
//! indexes; [`query`] finds rows, and [`search`] answers requests with them. [`tables`] is what the
//! upkeep needs of the cluster, and [`cassandra`] has the statements. [`copies`] is for copies of
//! whole tables.

mod cassandra;
mod copies;
mod definitions;
mod identifiers;
mod indexes;
mod met;
#[cfg(test)]
mod on_nodes;
mod page;
mod query;
mod search;
#[cfg(test)]
mod simulation;
mod tables;
mod upkeep;

pub(crate) use cassandra::is_there;
pub(crate) use copies::IDENTIFIER_MAX;
pub(crate) use tables::{StoredRow, Tables};
pub(crate) use upkeep::NewRow;

use crate::error::Result;
use crate::name::Name;
use crate::order::Order;
use crate::session::{Cluster, Failure};
use cabinet::Error;
use cassandra::ClusterTables;
use identifiers::Identifiers;
use server::{Completion, RowRefusal, StoreAnswer, StoreFailure, TableRequest};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use upkeep::Upkeep;

/// Rows that one request reads at the same time.
const READS_AT_ONCE: usize = 64;

/// First and longest pause before something that met a change of another server is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// Rows of a table database.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) upkeep: Upkeep<ClusterTables>,
    identifiers: Identifiers,
    timeout: Duration,
}

/// Reason why a request on a table has no answer.
#[derive(Debug)]
enum Stop {
    Failed(StoreFailure),
    Refused(Error),
    /// The answer has as many bytes as it may have.
    Full,
}

impl From<Failure> for Stop {
    /// Returns the reason of a request that has changed nothing.
    fn from(_: Failure) -> Self {
        Self::Failed(StoreFailure::Unavailable)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Rows {
    /// Prepares the statements.
    pub(crate) async fn prepare(
        cluster: &Arc<Cluster>,
        order: &Arc<Order>,
        name: &Name,
    ) -> Result<Arc<Self>> {
        let tables = ClusterTables::prepare(cluster, order, name).await?;
        let (upkeep, identifiers) = (Upkeep::new(tables), Identifiers::default());
        Ok(Arc::new(Self { upkeep, identifiers, timeout: name.timeout }))
    }

    /// Executes a request that is not on one row.
    pub(crate) async fn execute(
        self: &Arc<Self>,
        request: TableRequest,
        completion: &mut Completion,
    ) -> Result<StoreAnswer, StoreFailure> {
        let executed = match request {
            TableRequest::SetIndexes(changes) => self.set_indexes(changes).await,
            TableRequest::Search { request, bytes_max } => {
                self.search(&request, bytes_max, completion).await
            }
            TableRequest::GenerateUid => {
                let identifier = self.generate().await?;
                let elements = vec![identifier.to_string().into_bytes()];
                return Ok(StoreAnswer::Elements { elements, is_complete: true });
            }
        };
        match executed {
            Ok(answer) => Ok(answer),
            Err(Stop::Failed(failure)) => Err(failure),
            Err(Stop::Full) => {
                Ok(StoreAnswer::Elements { elements: Vec::new(), is_complete: false })
            }
            Err(Stop::Refused(error)) => Ok(StoreAnswer::Refused(RowRefusal::from(error))),
        }
    }

    /// Returns an identifier that no server has returned before.
    pub(crate) async fn generate(&self) -> Result<i64, StoreFailure> {
        self.identifiers.next(&self.upkeep.tables).await
    }

    /// Removes all entries of the indexes, once no row is there.
    pub(crate) async fn clear_entries(&self) -> Result<(), Failure> {
        self.upkeep.tables.clear().await
    }

    /// Reads rows at the same time, in the order of the keys.
    async fn read_all(
        self: &Arc<Self>,
        keys: &[Vec<u8>],
    ) -> Result<Vec<Option<StoredRow>>, Failure> {
        let mut reads = JoinSet::new();
        for (number, key) in keys.iter().enumerate() {
            let (rows, key) = (Arc::clone(self), key.clone());
            reads.spawn(async move { (number, rows.upkeep.tables.read(&key).await) });
        }
        let mut found = vec![None; keys.len()];
        while let Some(read) = reads.join_next().await {
            let (number, row) = read.map_err(|_| Failure::Lost)?;
            found[number] = row?;
        }
        Ok(found)
    }
}
