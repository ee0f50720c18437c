//! Requests on records that wait for their answers.

use server::{Completion, RecordRequest, StoreAnswer, StoreFailure};
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
    /// A request on several records. If it has ended, the answer is dropped.
    Part(oneshot::Sender<Answer>),
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

    /// Passes on the answer.
    pub(crate) fn complete(self, answer: Answer) {
        match self {
            Self::Client(completion) => completion.complete(answer),
            Self::Part(sender) => drop(sender.send(answer)),
        }
    }
}
