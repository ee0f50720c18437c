//! Identifiers for new rows, the same for all servers: each server reserves some in one
//! transaction, and gives out its own.

use super::PAUSES;
use super::cassandra::ClusterTables;
use crate::session::Failure;
use server::StoreFailure;
use tokio::sync::Mutex;
use tokio::time::sleep;

/// Identifiers that are reserved together. Those that a server has not given out when it stops are
/// lost.
const RESERVED: i64 = 1000;

/// Attempts to reserve identifiers while other servers do.
const ATTEMPTS_MAX: usize = 50;

/// Identifiers that this server may give out.
#[derive(Debug, Default)]
pub(super) struct Identifiers {
    /// Last one given out, and last one reserved.
    own: Mutex<(i64, i64)>,
}

impl Identifiers {
    /// Returns the next identifier.
    pub(super) async fn next(&self, tables: &ClusterTables) -> Result<i64, StoreFailure> {
        let mut own = self.own.lock().await;
        let mut pause = PAUSES.0;
        for _ in 0..ATTEMPTS_MAX {
            if own.0 < own.1 {
                own.0 += 1;
                return Ok(own.0);
            }
            match tables.reserve(RESERVED).await {
                Ok(Some(before)) => *own = (before, before + RESERVED),
                Ok(None) => {
                    sleep(pause).await;
                    pause = PAUSES.1.min(pause * 2);
                }
                // If they were reserved nevertheless, they are lost, and the client has got none.
                Err(Failure::NotDone | Failure::Refused | Failure::GivenUp | Failure::Lost) => {
                    return Err(StoreFailure::Unavailable);
                }
            }
        }
        Err(StoreFailure::Unavailable)
    }
}
