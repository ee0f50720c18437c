//! The way of an answer from the threads of a store to the client.

use super::{Answered, StoreAnswer, StoreFailure};
use crate::ops::acknowledgement::RefusalReason;
use crate::ops::budget::Charge;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Takes the answer to a request. If it is dropped without one, the client gets an error.
pub struct Completion {
    pub(super) deliver: Option<Box<dyn FnOnce(Answered) + Send>>,
    pub(super) if_dropped: StoreFailure,
    /// Memory of the request, and its place among those in flight.
    pub(super) held: Option<(Charge, InFlight)>,
}

impl Completion {
    /// Passes on the answer. May be called by any thread, also before `submit` has returned.
    pub fn complete(mut self, answer: Result<StoreAnswer, StoreFailure>) {
        self.deliver(answer);
    }

    fn deliver(&mut self, answer: Result<StoreAnswer, StoreFailure>) {
        // The client may send its next request as soon as it has the reply.
        self.held = None;
        if let Some(deliver) = self.deliver.take() {
            deliver(answer.map_err(RefusalReason::from));
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.deliver(Err(self.if_dropped));
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Completion").finish_non_exhaustive()
    }
}

/// Counts a request until it is dropped.
pub(super) struct InFlight(pub(super) Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
