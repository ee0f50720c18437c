//! Requests in flight, and the waits for their answers.

use super::completion::{InFlight, Waiter, if_lost};
use super::{Answered, Capabilities, Completion, RemoteStore, StoreRequest};
use crate::ops::acknowledgement::RefusalReason;
use crate::ops::budget::{Budget, Charge};
use crate::ops::served::Served;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Time after which a worker that waits for an answer looks whether the server stops.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Longest wait for a request that [is long](StoreRequest::is_long), as a multiple of that for
/// others.
pub const LONG_REQUEST_FACTOR: u32 = 12;

/// The store in place of a database, and its requests in flight.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) store: Arc<dyn RemoteStore>,
    pub(super) capabilities: Capabilities,
    in_flight: Arc<AtomicUsize>,
    requests_max: usize,
    /// Longest wait for an answer, unless the request is long.
    pub(crate) timeout: Duration,
    /// No thread waits for an answer any more.
    is_closed: AtomicBool,
}

impl Remote {
    pub(crate) fn new(store: Arc<dyn RemoteStore>, requests_max: usize, timeout: Duration) -> Self {
        let capabilities = store.capabilities();
        let is_closed = AtomicBool::new(false);
        Self { store, capabilities, in_flight: Arc::default(), requests_max, timeout, is_closed }
    }

    /// Submits a request for a client that waits. Returns whether there is room for it.
    pub(crate) fn submit(
        &self,
        request: StoreRequest,
        waiter: Weak<()>,
        budget: &Arc<Budget>,
        deliver: impl FnOnce(Answered) + Send + Sync + 'static,
    ) -> bool {
        let in_flight = InFlight(Arc::clone(&self.in_flight));
        let mut charge = Charge::none(budget);
        let request_bytes = request.bytes();
        if self.in_flight.fetch_add(1, Ordering::Relaxed) >= self.requests_max
            || !charge.set(request_bytes)
        {
            return false;
        }
        let completion = Completion {
            deliver: Some(Box::new(deliver)),
            is_read: request.is_read(),
            waiter,
            charge: Some(charge),
            request_bytes,
            in_flight: Some(in_flight),
        };
        self.store.submit(request, completion);
        true
    }

    /// Returns whether the records of the store are rows.
    pub(crate) fn has_rows(&self) -> bool {
        self.capabilities.has_rows
    }

    /// Returns the number of requests that wait for an answer.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Ends all waits for answers, when the time for the last requests is over.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Executes a request on a thread that may wait.
    pub(crate) fn wait_for(&self, request: StoreRequest, served: &Served) -> Answered {
        if self.is_closed.load(Ordering::Relaxed) {
            return RefusalReason::Unavailable.into();
        }
        let if_lost = RefusalReason::from(if_lost(request.is_read()));
        let timeout = longest(self.timeout, request.is_long());
        let since = Instant::now();
        let (sender, receiver) = mpsc::channel();
        let waiter = Waiter::default();
        // The receiver is gone if the server has stopped.
        let deliver = move |answer| drop(sender.send(answer));
        if !self.submit(request, Arc::downgrade(&waiter), &served.budget, deliver) {
            return RefusalReason::TooMany.into();
        }
        loop {
            let left = timeout.saturating_sub(since.elapsed());
            let may_wait = !left.is_zero() && !self.is_closed.load(Ordering::Relaxed);
            match receiver.recv_timeout(STOP_CHECK_INTERVAL.min(left)) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) if may_wait => {}
                Err(_) => return if_lost.into(),
            }
        }
    }
}

pub(super) fn longest(timeout: Duration, is_long: bool) -> Duration {
    if is_long { timeout * LONG_REQUEST_FACTOR } else { timeout }
}
