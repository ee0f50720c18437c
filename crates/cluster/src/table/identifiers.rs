//! Identifiers for new rows, the same for all servers: each server reserves some in one
//! transaction, and gives out its own.
//!
//! A copy into the table brings identifiers that its source has given out. It lets those that are
//! reserved from now on follow them, and then records the last one. A server whose own identifiers
//! are not after it gives them up. It reads the record again before an identifier if it has not
//! done so for [`RECORD_AGE`].

use super::PAUSES;
use super::cassandra::ClusterTables;
use crate::session::Failure;
use server::StoreFailure;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

/// Identifiers that are reserved together. Those that a server has not given out when it stops are
/// lost.
const RESERVED: i64 = 1000;

/// Time after which a server reads the last identifier of copies again.
pub(super) const RECORD_AGE: Duration = Duration::from_secs(1);

/// Attempts to reserve identifiers while other servers do.
const ATTEMPTS_MAX: usize = 50;

/// Identifiers that this server may give out.
#[derive(Debug, Default)]
pub(super) struct Identifiers {
    own: Mutex<Own>,
}

#[derive(Debug, Default)]
struct Own {
    /// Last one given out, or before the first one.
    given: i64,
    /// Last one reserved.
    reserved: i64,
    /// When the last one of copies was read.
    read_at: Option<Instant>,
}

impl Own {
    /// Returns the next identifier, if one is left.
    fn take(&mut self) -> Option<i64> {
        let next = (self.given < self.reserved).then_some(self.given + 1)?;
        self.given = next;
        Some(next)
    }

    /// Gives up identifiers that were reserved before a copy that has brought `copied` and all
    /// before it.
    fn give_up(&mut self, copied: i64) {
        if self.given < copied {
            self.given = self.reserved;
        }
    }
}

impl Identifiers {
    /// Returns the next identifier.
    pub(super) async fn next(&self, tables: &ClusterTables) -> Result<i64, StoreFailure> {
        let mut own = self.own.lock().await;
        if own.read_at.is_none_or(|at| at.elapsed() >= RECORD_AGE) {
            let now = Instant::now();
            let copied = tables.copied_identifier().await;
            own.give_up(copied.map_err(|_| StoreFailure::Unavailable)?);
            own.read_at = Some(now);
        }
        let mut pause = PAUSES.0;
        for _ in 0..ATTEMPTS_MAX {
            if let Some(next) = own.take() {
                return Ok(next);
            }
            match tables.reserve(RESERVED).await {
                Ok(Some(before)) => (own.given, own.reserved) = (before, before + RESERVED),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_that_a_copy_may_have_brought_are_given_up() {
        for (copied, next) in [(0, Some(11)), (10, Some(11)), (11, None), (15, None), (99, None)] {
            let mut own = Own { given: 10, reserved: 20, read_at: None };
            own.give_up(copied);
            assert_eq!(own.take(), next, "{copied}");
        }
        let mut own = Own { given: 0, reserved: 2, read_at: None };
        assert_eq!([own.take(), own.take(), own.take()], [Some(1), Some(2), None]);
    }
}
