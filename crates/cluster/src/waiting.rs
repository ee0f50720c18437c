//! Requests on records that wait for their answers.

use server::{Completion, RecordRequest, StoreAnswer, StoreFailure};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Answer to a request.
pub(crate) type Answer = Result<StoreAnswer, StoreFailure>;

/// A change that waits for its turn.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) request: RecordRequest,
    pub(crate) reply: Reply,
    pub(crate) deadline: Instant,
}

/// Taker of an answer.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The client of a request on one record.
    Client(Completion),
    /// A request on several records.
    Part(Part),
}

/// Part of a request on several records. If the request has ended, the answer is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) answer: oneshot::Sender<Answer>,
    /// Whether a part of the same request has failed.
    pub(crate) has_failed: Arc<AtomicBool>,
}

impl Reply {
    /// Returns whether there is memory for a value that a change reads, which counts until the
    /// answer. Requests on several records have 64 under way, which do not count.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        match self {
            Self::Client(completion) => completion.reserve(bytes),
            Self::Part(_) => true,
        }
    }

    /// Returns whether this is a part of a request of which another part has failed.
    pub(crate) fn is_after_failure(&self) -> bool {
        matches!(self, Self::Part(part) if part.has_failed.load(Ordering::Relaxed))
    }

    /// Passes on the answer.
    pub(crate) fn complete(self, answer: Answer) {
        match self {
            Self::Client(completion) => completion.complete(answer),
            Self::Part(part) => {
                if answer.is_err() {
                    part.has_failed.store(true, Ordering::Relaxed);
                }
                drop(part.answer.send(answer));
            }
        }
    }
}
