//! Work accounting: operations that blocking threads run for a connection.

use hyper::Method;
use server::Records;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Counts the operations of a connection's requests, and its responses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// Duration of the ended operations, in microseconds.
    busy_us: AtomicU64,
    answered: AtomicUsize,
}

/// An operation in progress, until it is dropped.
#[derive(Debug)]
pub(crate) struct Operation(Work, Instant);

/// A response in progress, until it is dropped.
#[derive(Debug)]
pub(crate) struct Responding(Work);

/// A request, which is counted with the time of its operations once its response has ended.
pub(crate) struct Counted {
    work: Work,
    before: Duration,
    method: Method,
    records: Arc<Records>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let time = self.work.busy().saturating_sub(self.before);
        self.records.count_webdav(self.method.as_str(), time);
    }
}

impl Work {
    /// Counts a request before whose operations the work had taken `before`.
    pub(crate) fn count(
        &self,
        before: Duration,
        method: Method,
        records: &Arc<Records>,
    ) -> Counted {
        Counted { work: self.clone(), before, method, records: Arc::clone(records) }
    }

    pub(crate) fn begin(&self) -> Operation {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        Operation(self.clone(), Instant::now())
    }

    /// Returns whether an operation is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        let ended = self.0.ended.load(Ordering::Acquire);
        self.0.begun.load(Ordering::Relaxed) != ended
    }

    /// Returns the duration of the ended operations.
    pub(crate) fn busy(&self) -> Duration {
        Duration::from_micros(self.0.busy_us.load(Ordering::Relaxed))
    }

    /// Returns the duration of the ended operations, in milliseconds.
    pub(crate) fn busy_ms(&self) -> u64 {
        self.0.busy_us.load(Ordering::Relaxed) / 1000
    }

    /// Returns a guard whose drop is the end of a response.
    pub(crate) fn respond(&self) -> Responding {
        Responding(self.clone())
    }

    /// Returns the number of responses that have ended.
    pub(crate) fn responses_ended(&self) -> usize {
        self.0.answered.load(Ordering::Relaxed)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let Self(work, begun) = self;
        let busy_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        work.0.busy_us.fetch_add(busy_us, Ordering::Relaxed);
        work.0.ended.fetch_add(1, Ordering::Release);
    }
}

impl Drop for Responding {
    fn drop(&mut self) {
        self.0.0.answered.fetch_add(1, Ordering::Relaxed);
    }
}
