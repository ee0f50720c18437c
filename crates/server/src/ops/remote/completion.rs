//! The way of an answer from the threads of a store to the client.

use super::{StoreAnswer, StoreFailure};
use crate::ops::acknowledgement::RefusalReason;
use crate::ops::budget::Charge;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// An answer, or the reason why a client gets none; with the memory that it takes.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) result: Result<StoreAnswer, RefusalReason>,
    /// Returned to the budget when the answer is dropped.
    _charge: Option<Charge>,
}

impl From<RefusalReason> for Answered {
    fn from(reason: RefusalReason) -> Self {
        Self { result: Err(reason), _charge: None }
    }
}

impl Answered {
    /// Returns the answer to a request for the records under no key.
    pub(crate) fn records_of_no_key() -> Self {
        let answer = StoreAnswer::Records { records: Vec::new(), is_complete: true };
        Self { result: Ok(answer), _charge: None }
    }
}

/// A client that waits for an answer. It waits no more once this is dropped.
pub(crate) type Waiter = Arc<()>;

/// Takes the answer to a request. If it is dropped without one, the client gets an error.
pub struct Completion {
    pub(super) deliver: Option<Box<dyn FnOnce(Answered) + Send + Sync>>,
    /// Whether the request changes nothing, unless its record is stale.
    pub(super) is_read: bool,
    /// Whether the request may have changed something if its answer is lost.
    pub(super) may_change: bool,
    pub(super) waiter: Weak<()>,
    /// Memory of the request, and then of its answer.
    pub(super) charge: Option<Charge>,
    /// Bytes of the request.
    pub(super) request_bytes: usize,
    /// Place of the request among those in flight.
    pub(super) in_flight: Option<InFlight>,
}

impl Completion {
    /// Passes on the answer. May be called by any thread, also before `submit` has returned.
    pub fn complete(mut self, answer: Result<StoreAnswer, StoreFailure>) {
        self.deliver(answer);
    }

    /// Returns whether there is memory for an answer of so many bytes, which counts from now on.
    /// Without it the request has to end with [`StoreFailure::NoMemory`].
    pub fn reserve(&mut self, bytes: usize) -> bool {
        let bytes = self.request_bytes + bytes;
        self.charge.as_mut().is_some_and(|charge| charge.set(bytes))
    }

    /// Returns whether the client still waits. If it does not, a request that changes nothing may
    /// end with any failure.
    pub fn is_awaited(&self) -> bool {
        self.waiter.strong_count() > 0
    }

    fn deliver(&mut self, answer: Result<StoreAnswer, StoreFailure>) {
        let Some(deliver) = self.deliver.take() else { return };
        let bytes = answer.as_ref().map_or(0, StoreAnswer::bytes);
        let has_room = self.charge.as_mut().is_some_and(|charge| charge.set(bytes));
        let result = match answer {
            Ok(answer) if !has_room && self.is_read && !answer.has_claimed() => {
                Err(RefusalReason::TooMany)
            }
            Ok(_) if !has_room => Err(RefusalReason::Unknown),
            answer => answer.map_err(RefusalReason::from),
        };
        // The client may send its next request as soon as it has the reply.
        let charge = self.charge.take().filter(|_| result.is_ok());
        self.in_flight = None;
        deliver(Answered { result, _charge: charge });
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.deliver(Err(if_lost(self.may_change)));
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Completion").finish_non_exhaustive()
    }
}

/// Returns what is known of a request whose answer is lost.
pub(super) fn if_lost(may_change: bool) -> StoreFailure {
    if may_change { StoreFailure::Unknown } else { StoreFailure::Unavailable }
}

/// Counts a request until it is dropped.
pub(super) struct InFlight(pub(super) Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::budget::Budget;
    use crate::ops::conditional::Written;
    use crate::ops::execute::Outcome;
    use crate::ops::remote::{FoundRecord, RecordAnswer};
    use crate::ops::touch::Touched;
    use cabinet::Meta;
    use std::sync::mpsc;

    #[test]
    fn an_answer_counts_against_the_budget_until_it_is_dropped() {
        let record = |bytes| {
            let value = Arc::new(vec![0; bytes]);
            let records = vec![Some(FoundRecord { value, meta: Meta::NONE, version: 1 })];
            StoreAnswer::Records { records, is_complete: true }
        };
        let budget = Budget::new(10_000);
        let waiter = Waiter::default();
        let (sender, answers) = mpsc::channel();
        let completion = |is_read| {
            let sender = sender.clone();
            let mut charge = Charge::none(&budget);
            assert!(charge.set(10));
            Completion {
                deliver: Some(Box::new(move |answer| sender.send(answer).expect("a receiver"))),
                is_read,
                may_change: !is_read,
                waiter: Arc::downgrade(&waiter),
                charge: Some(charge),
                request_bytes: 10,
                in_flight: None,
            }
        };
        let mut reading = completion(true);
        assert!(reading.reserve(9990));
        assert!(!reading.reserve(9991));
        assert!(reading.is_awaited());
        reading.complete(Ok(record(1000)));
        let answer = answers.recv().expect("an answer");
        assert!(answer.result.is_ok());
        assert!((1000..2000).contains(&budget.used_bytes()));
        drop(answer);
        assert_eq!(budget.used_bytes(), 0);
        for (is_read, reason) in [(true, RefusalReason::TooMany), (false, RefusalReason::Unknown)] {
            completion(is_read).complete(Ok(record(10_000)));
            assert_eq!(answers.recv().expect("an answer").result.unwrap_err(), reason);
            assert_eq!(budget.used_bytes(), 0);
        }
        // A read that has won the right to renew its record was not without effect.
        for (wins, reason) in [(true, RefusalReason::Unknown), (false, RefusalReason::TooMany)] {
            let found =
                FoundRecord { value: Arc::new(vec![0; 10_000]), meta: Meta::NONE, version: 1 };
            let answer = RecordAnswer {
                outcome: Outcome::Done,
                found: Some(found),
                touched: Some(Touched { wins, is_new: false }),
                written: Written::default(),
            };
            completion(true).complete(Ok(StoreAnswer::Record(answer)));
            assert_eq!(answers.recv().expect("an answer").result.unwrap_err(), reason);
        }
        let left = completion(true);
        drop(waiter);
        assert!(!left.is_awaited());
        drop(left);
        let answer = answers.recv().expect("an answer").result;
        assert_eq!(answer.unwrap_err(), RefusalReason::Unavailable);
    }
}
