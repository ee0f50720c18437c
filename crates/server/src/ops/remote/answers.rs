//! Answers that a connection keeps until its request is executed with them.

use super::completion::{Waiter, if_lost};
use super::waits::longest;
use super::{Answered, StoreRequest};
use crate::ops::acknowledgement::RefusalReason;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Answers to the operations of a client's request so far.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    answers: Vec<Answered>,
    /// Number of answers that the present execution of the request has taken.
    taken: usize,
    /// Request for the operation whose answer is missing.
    pub(crate) wanted: Option<StoreRequest>,
    awaited: Option<Awaited>,
}

/// A request whose answer is awaited.
#[derive(Debug)]
struct Awaited {
    number: u64,
    since: Instant,
    is_read: bool,
    may_change: bool,
    is_long: bool,
    /// Tells the store that there is a client.
    _waiter: Waiter,
}

impl Answers {
    /// Begins another execution of the same request.
    pub(crate) fn rewind(&mut self) {
        self.taken = 0;
        self.wanted = None;
    }

    /// Takes the request for the operation whose answer is missing. Its answer is awaited from now
    /// on, with `number`, until the second result has no owner.
    pub(crate) fn take_wanted(
        &mut self,
        number: u64,
        now: Instant,
    ) -> Option<(StoreRequest, Weak<()>)> {
        let request = self.wanted.take()?;
        let waiter = Waiter::default();
        let weak = Arc::downgrade(&waiter);
        self.awaited = Some(Awaited {
            number,
            since: now,
            is_read: request.is_read(),
            may_change: request.may_change(),
            is_long: request.is_long(),
            _waiter: waiter,
        });
        Some((request, weak))
    }

    /// Returns the number of the request whose answer has been awaited for longer than `timeout`,
    /// or than its multiple for long requests, and the reason for the client.
    pub(crate) fn overdue(&self, now: Instant, timeout: Duration) -> Option<(u64, RefusalReason)> {
        let awaited = self.awaited.as_ref()?;
        let is_overdue =
            now.saturating_duration_since(awaited.since) > longest(timeout, awaited.is_long);
        is_overdue.then(|| (awaited.number, if_lost(awaited.may_change).into()))
    }

    /// Returns whether an answer was not taken by the present execution.
    pub(crate) fn has_left(&self) -> bool {
        self.taken < self.answers.len()
    }

    /// Returns whether the answer to a request is waited for.
    pub(crate) fn awaits(&self, number: u64) -> bool {
        self.awaited.as_ref().is_some_and(|awaited| awaited.number == number)
    }

    /// Returns whether the answer to a request that changes nothing is waited for.
    pub(crate) fn awaits_read(&self) -> bool {
        self.awaited.as_ref().is_some_and(|awaited| awaited.is_read)
    }

    /// Adds the answer to the operation that was wanted.
    pub(crate) fn add(&mut self, answer: Answered) {
        self.awaited = None;
        self.answers.push(answer);
    }

    /// Returns the answer to the next operation.
    pub(crate) fn next(&mut self) -> Option<&Answered> {
        let answer = self.answers.get(self.taken)?;
        self.taken += 1;
        Some(answer)
    }

    /// Removes the answer to the next operation: a further execution of the request does without
    /// it, since it has become state of the connection.
    pub(crate) fn remove_next(&mut self) -> Option<Answered> {
        (self.taken < self.answers.len()).then(|| self.answers.remove(self.taken))
    }
}

#[cfg(test)]
mod tests {
    use super::super::LONG_REQUEST_FACTOR;
    use super::*;

    #[test]
    fn an_answer_is_taken_only_while_it_is_awaited() {
        let timeout = Duration::from_secs(2);
        let now = Instant::now();
        let mut answers = Answers::default();
        let get = StoreRequest::GetMany { keys: vec![Vec::new()], bytes_max: 1 };
        for (number, request, reason, longest) in [
            (1, get, RefusalReason::Unavailable, timeout),
            (2, StoreRequest::Count, RefusalReason::Unavailable, timeout * LONG_REQUEST_FACTOR),
            (3, StoreRequest::Clear, RefusalReason::Unknown, timeout * LONG_REQUEST_FACTOR),
        ] {
            answers.wanted = Some(request);
            let (_, waiter) = answers.take_wanted(number, now).expect("a request");
            assert_eq!(waiter.strong_count(), 1);
            assert_eq!([1, 2, 3].map(|one| answers.awaits(one)), [1, 2, 3].map(|n| n == number));
            assert_eq!(answers.overdue(now + longest, timeout), None);
            let late = now + longest + Duration::from_nanos(1);
            assert_eq!(answers.overdue(late, timeout), Some((number, reason)));
            answers.add(reason.into());
            assert_eq!(waiter.strong_count(), 0);
            assert!(!answers.awaits(number));
            assert_eq!(answers.overdue(late, timeout), None);
        }
    }
}
