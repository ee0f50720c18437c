//! Requests in flight, and the waits for their answers.

use super::completion::{InFlight, Waiter, if_lost};
use super::{Answered, Capabilities, Completion, RemoteStore, StoreRequest};
use crate::ops::acknowledgement::RefusalReason;
use crate::ops::budget::{Budget, Charge};
use crate::ops::operation::Model;
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
    scans: AtomicUsize,
    scans_max: usize,
    /// Longest wait for an answer, unless the request is long.
    pub(crate) timeout: Duration,
    /// No thread waits for an answer any more.
    is_closed: AtomicBool,
}

impl Remote {
    /// Returns a store without requests. At most `threads` of the server may wait for an answer.
    pub(crate) fn new(
        store: Arc<dyn RemoteStore>,
        requests_max: usize,
        threads: usize,
        timeout: Duration,
    ) -> Self {
        Self {
            capabilities: store.capabilities(),
            store,
            in_flight: Arc::default(),
            requests_max,
            scans: AtomicUsize::new(0),
            // Other requests that may wait need threads, too.
            scans_max: (threads / 2).max(1),
            timeout,
            is_closed: AtomicBool::new(false),
        }
    }

    /// Counts an operation that reads all records on a thread that may wait, until the result is
    /// dropped. Returns `None` if half of these threads do so already.
    pub(crate) fn begin_scan(&self) -> Option<Scan<'_>> {
        let scan = Scan(&self.scans);
        (self.scans.fetch_add(1, Ordering::Relaxed) < self.scans_max).then_some(scan)
    }

    /// Returns the time by which a client's request on a thread that may wait has to end.
    pub(crate) fn end_of_request(&self) -> Instant {
        Instant::now() + longest(self.timeout, true)
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
            may_change: request.may_change(),
            waiter,
            charge: Some(charge),
            request_bytes,
            in_flight: Some(in_flight),
        };
        self.store.submit(request, completion);
        true
    }

    /// Returns the properties of the store that change the meaning of requests, if they are not
    /// those of the server's own database.
    pub(crate) fn model(&self) -> Option<Model> {
        match (self.capabilities.has_rows, self.capabilities.ids) {
            (true, _) => Some(Model::TABLE),
            (false, Some(_)) => Some(Model::FIXED),
            (false, None) => None,
        }
    }

    /// Returns the number of requests that wait for an answer.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Ends all waits for answers, when the time for the last requests is over.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Executes a request on a thread that may wait. None begins after `until`, and one that reads
    /// ends then, or once `client` has no owner.
    pub(crate) fn wait_for(
        &self,
        request: StoreRequest,
        client: Option<&Weak<()>>,
        until: Instant,
        served: &Served,
    ) -> Answered {
        let is_read = request.is_read();
        let is_gone = || is_read && client.is_some_and(|client| client.strong_count() == 0);
        let since = Instant::now();
        if self.is_closed.load(Ordering::Relaxed) || since >= until || is_gone() {
            return RefusalReason::Unavailable.into();
        }
        let if_lost = RefusalReason::from(if_lost(request.may_change()));
        let longest = since + longest(self.timeout, request.is_long());
        let until = if is_read { longest.min(until) } else { longest };
        let (sender, receiver) = mpsc::channel();
        let own = Waiter::default();
        let waiter = client.cloned().unwrap_or_else(|| Arc::downgrade(&own));
        // The receiver is gone if the server has stopped.
        let deliver = move |answer| drop(sender.send(answer));
        if !self.submit(request, waiter, &served.budget, deliver) {
            return RefusalReason::TooMany.into();
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_closed = self.is_closed.load(Ordering::Relaxed);
            let may_wait = !left.is_zero() && !is_closed && !is_gone();
            match receiver.recv_timeout(STOP_CHECK_INTERVAL.min(left)) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) if may_wait => {}
                Err(_) => return if_lost.into(),
            }
        }
    }
}

/// Counts an operation that reads all records until it is dropped.
#[derive(Debug)]
pub(crate) struct Scan<'a>(&'a AtomicUsize);

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) fn longest(timeout: Duration, is_long: bool) -> Duration {
    if is_long { timeout * LONG_REQUEST_FACTOR } else { timeout }
}
