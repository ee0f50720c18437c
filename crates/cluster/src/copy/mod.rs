//! Copies of whole databases into a cluster and out of it. A copy that ends early can go on where
//! it was: records that are copied twice do no harm.

mod bulk;
mod input;
mod output;
mod state;
mod tables;

pub use input::CopyIn;
pub use output::{CopiedRecord, CopyOut, Page};
pub use state::CopyState;
pub use tables::CopiedIndexes;

use crate::error::{Error, Result};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// First and longest pause between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// Attempts of one step of a copy, with pauses between them.
struct Attempts {
    patience: Duration,
    since: Instant,
    pause: Duration,
}

impl Attempts {
    fn begin(patience: Duration) -> Self {
        Self { patience, since: Instant::now(), pause: PAUSES.0 }
    }

    /// Returns the result of a successful attempt, or `None` for another attempt after a pause.
    /// Fails once all have failed for longer than the patience.
    async fn take<T, E>(&mut self, attempt: Result<T, E>) -> Result<Option<T>> {
        if let Ok(done) = attempt {
            return Ok(Some(done));
        }
        if self.since.elapsed() > self.patience {
            return Err(Error::Away { seconds: self.patience.as_secs() });
        }
        sleep(self.pause).await;
        self.pause = PAUSES.1.min(self.pause * 2);
        Ok(None)
    }
}

/// Evaluates an attempt until one is successful, or the patience ends.
macro_rules! repeat {
    ($patience:expr, $attempt:expr) => {{
        let mut attempts = $crate::copy::Attempts::begin($patience);
        loop {
            let attempt = $attempt.await;
            match attempts.take(attempt).await {
                Ok(Some(done)) => break Ok(done),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
        }
    }};
}

use repeat;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Failure;

    #[test]
    fn attempts_are_repeated_until_the_patience_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut left = 3;
            let mut attempt = async || {
                left -= 1;
                if left == 0 { Ok(left) } else { Err(Failure::Lost) }
            };
            assert_eq!(repeat!(Duration::from_secs(3600), attempt()).unwrap(), 0);
            let never = repeat!(Duration::ZERO, async { Err::<(), _>(Failure::NotDone) });
            assert!(matches!(never, Err(Error::Away { seconds: 0 })));
        });
    }
}
