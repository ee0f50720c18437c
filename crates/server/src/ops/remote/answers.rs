//! Answers that a connection keeps until its request is executed with them.

use super::waits::{if_lost, longest};
use super::{Answered, StoreAnswer, StoreRequest};
use crate::ops::acknowledgement::RefusalReason;
use crate::ops::budget::{Budget, Charge};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Answers to the operations of a client's request so far.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    answers: Vec<Answered>,
    /// Number of answers that the present execution of the request has taken.
    taken: usize,
    /// Operation whose answer is missing.
    pub(crate) wanted: Option<StoreRequest>,
    /// Whether that operation changes records.
    changes: bool,
    /// Whether that operation is long.
    is_long: bool,
    /// Number of the request for that operation, and the time since its answer is awaited.
    awaited: Option<(u64, Instant)>,
    /// Memory of the answers, in bytes.
    bytes: usize,
    charge: Option<Charge>,
}

impl Answers {
    /// Begins another execution of the same request.
    pub(crate) fn rewind(&mut self) {
        self.taken = 0;
        self.wanted = None;
    }

    /// Takes the request for the operation whose answer is missing. Its answer is awaited from now
    /// on, with `number`.
    pub(crate) fn take_wanted(&mut self, number: u64, now: Instant) -> Option<StoreRequest> {
        let request = self.wanted.take()?;
        self.changes = !request.is_read();
        self.is_long = request.is_long();
        self.awaited = Some((number, now));
        Some(request)
    }

    /// Returns the number of the request whose answer has been awaited for longer than `timeout`,
    /// or than its multiple for long requests, and the reason for the client.
    pub(crate) fn overdue(&self, now: Instant, timeout: Duration) -> Option<(u64, RefusalReason)> {
        let (number, since) = self.awaited?;
        let is_overdue = now.saturating_duration_since(since) > longest(timeout, self.is_long);
        is_overdue.then_some((number, if_lost(!self.changes).into()))
    }

    /// Returns whether the answer to a request is waited for.
    pub(crate) fn awaits(&self, number: u64) -> bool {
        self.awaited.is_some_and(|(awaited, _)| awaited == number)
    }

    /// Adds the answer to the operation that was wanted, unless the budget has no room for it.
    pub(crate) fn add(&mut self, answer: Answered, budget: &Arc<Budget>) {
        self.awaited = None;
        self.bytes += answer.as_ref().map_or(0, StoreAnswer::bytes);
        let charge = self.charge.get_or_insert_with(|| Charge::none(budget));
        self.answers.push(match answer {
            Ok(_) if !charge.set(self.bytes) && self.changes => Err(RefusalReason::Unknown),
            Ok(_) if !charge.set(self.bytes) => Err(RefusalReason::TooMany),
            answer => answer,
        });
    }

    /// Returns the answer to the next operation.
    pub(crate) fn next(&mut self) -> Option<&Answered> {
        let answer = self.answers.get(self.taken)?;
        self.taken += 1;
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::LONG_REQUEST_FACTOR;
    use super::*;

    #[test]
    fn an_answer_is_taken_only_while_it_is_awaited() {
        let timeout = Duration::from_secs(2);
        let budget = Budget::new(1000);
        let now = Instant::now();
        let mut answers = Answers::default();
        let get = StoreRequest::GetMany { keys: vec![Vec::new()] };
        for (number, request, reason, longest) in [
            (1, get, RefusalReason::Unavailable, timeout),
            (2, StoreRequest::Count, RefusalReason::Unavailable, timeout * LONG_REQUEST_FACTOR),
            (3, StoreRequest::Clear, RefusalReason::Unknown, timeout * LONG_REQUEST_FACTOR),
        ] {
            answers.wanted = Some(request);
            assert!(answers.take_wanted(number, now).is_some());
            assert_eq!([1, 2, 3].map(|one| answers.awaits(one)), [1, 2, 3].map(|n| n == number));
            assert_eq!(answers.overdue(now + longest, timeout), None);
            let late = now + longest + Duration::from_nanos(1);
            assert_eq!(answers.overdue(late, timeout), Some((number, reason)));
            answers.add(Err(reason), &budget);
            assert!(!answers.awaits(number));
            assert_eq!(answers.overdue(late, timeout), None);
        }
    }
}
