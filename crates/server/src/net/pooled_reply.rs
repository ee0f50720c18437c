//! Pooled reply: the reply that a thread apart from the event loop has made.

use crate::net::pending_reply::FirstAcknowledgement;
use crate::ops::acknowledgement::AcknowledgementPoint;
use crate::ops::budget::Charge;
use crate::protocol::Next;
use crate::shared::slow_log::{SlowLog, SlowRequest};
use std::time::{Duration, Instant};

/// A reply to be sent by the event loop of its connection.
#[derive(Debug)]
pub(crate) struct PooledReply {
    pub(crate) output: Vec<u8>,
    /// Charge for the bytes of a large reply.
    pub(crate) charge: Option<Charge>,
    pub(crate) next: Next,
    /// The request, if it was slow; its client is missing.
    pub(crate) slow: Option<Box<SlowRequest>>,
    /// Point to reach before the reply is sent, if it acknowledges a change.
    pub(crate) acknowledgement: Option<(AcknowledgementPoint, FirstAcknowledgement)>,
}

/// Measures a request that a thread apart from the event loop executes, if any can be slow.
#[derive(Debug)]
pub(crate) struct Stopwatch<'l> {
    log: &'l SlowLog,
    submitted: Instant,
    /// Time and CPU time of the thread when the execution began.
    began: Option<(Instant, Duration)>,
}

impl<'l> Stopwatch<'l> {
    /// Begins with the execution of a request that was submitted before.
    pub(crate) fn begin(log: &'l SlowLog, submitted: Instant) -> Self {
        let began = log.is_on().then(|| (Instant::now(), cpu_time()));
        Self { log, submitted, began }
    }

    /// Ends with the execution. Returns what `describe` returns with its times, if it was slow.
    pub(crate) fn end(
        &self,
        reply_bytes: usize,
        describe: impl FnOnce() -> SlowRequest,
    ) -> Option<Box<SlowRequest>> {
        let (began, cpu_before) = self.began?;
        let now = Instant::now();
        if !self.log.is_slow(now.saturating_duration_since(self.submitted)) {
            return None;
        }
        let run = now.saturating_duration_since(began);
        let cpu = cpu_time().saturating_sub(cpu_before).min(run);
        let queue = began.saturating_duration_since(self.submitted);
        let wait = run - cpu;
        Some(Box::new(SlowRequest { queue, cpu, wait, reply_bytes, ..describe() }))
    }
}

/// Returns the CPU time of the calling thread.
fn cpu_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
