//! Requests on one record that are decided one after the other, for a store that makes their
//! changes in one step.

use super::{Decision, FoundRecord, RecordRequest};
use crate::ops::expiry::now_ms;
use cabinet::{Change, Version};
use std::mem;
use std::sync::Arc;

/// Bytes of values after which no further request is decided in one step, since each may copy the
/// whole value.
const STEP_BYTES: usize = 16 << 20;

/// Decisions on requests, each on the record that the one before has left.
#[derive(Debug)]
pub struct DecidedInTurn {
    /// Those on the first requests, all unless their values are long, and at least one. Each with
    /// the version that the record got, 0 if none was put.
    pub decisions: Vec<(Decision, Version)>,
    /// The record after the last one. It may have expired.
    pub record: Option<FoundRecord>,
    /// Whether any of them changes the record.
    pub changes: bool,
}

impl DecidedInTurn {
    /// Decides requests on a record, given as it is now. `version_after` returns the version of a
    /// record that is put, from that of the record before or of the last one, 0 for none.
    pub fn decide(
        requests: &[RecordRequest],
        mut record: Option<FoundRecord>,
        mut last: Version,
        mut version_after: impl FnMut(Version) -> Version,
    ) -> Self {
        let mut changes = false;
        let mut bytes = 0;
        let mut decisions = Vec::with_capacity(requests.len());
        for request in requests {
            if bytes >= STEP_BYTES {
                break;
            }
            // The request before may have put a record that has expired already.
            let found = record.as_ref().filter(|record| !record.meta.is_expired(now_ms()));
            let mut decision = request.decide(found);
            let mut version = 0;
            match mem::replace(&mut decision.change, Change::Keep) {
                Change::Keep => {}
                Change::Put(value, meta) => {
                    bytes += value.len();
                    // A record that was touched shares its value with the answers.
                    let value = match &record {
                        Some(found) if *found.value == value => Arc::clone(&found.value),
                        _ => Arc::new(value),
                    };
                    version = version_after(last);
                    last = version;
                    record = Some(FoundRecord { value, meta, version });
                    changes = true;
                }
                Change::Remove => {
                    record = None;
                    changes = true;
                }
            }
            decisions.push((decision, version));
        }
        Self { decisions, record, changes }
    }
}

#[cfg(test)]
mod tests {
    use super::super::StoreAnswer;
    use super::super::record::{put_of, request_of, write_of};
    use super::*;
    use crate::ops::conditional::{Action, Presence};
    use crate::ops::execute::Outcome;
    use cabinet::Meta;

    #[test]
    fn long_values_are_decided_in_steps() {
        let value = vec![0; STEP_BYTES / 4];
        let puts = || (0..10).map(|_| put_of(Presence::Any, &value, Meta::NONE));
        let all: Vec<RecordRequest> = puts().collect();
        let decide = |requests| DecidedInTurn::decide(requests, None, 0, |last| last + 1);
        assert_eq!(decide(&all).decisions.len(), 4);
        assert_eq!(decide(&all[8..]).decisions.len(), 2);
        let long = [put_of(Presence::Any, &vec![0; STEP_BYTES], Meta::NONE)];
        assert_eq!(decide(&long).decisions.len(), 1);
    }

    #[test]
    fn a_record_that_was_put_expired_is_none_for_the_requests_after_it() {
        let expired = Meta { flags: 0, expires_at_ms: 1000 };
        let requests = [
            put_of(Presence::Any, b"old", expired),
            request_of(write_of(Action::AddInt(5))),
            put_of(Presence::Any, b"old", expired),
            put_of(Presence::Absent, b"new", Meta::NONE),
            put_of(Presence::Absent, b"late", Meta::NONE),
        ];
        let decided = DecidedInTurn::decide(&requests, None, 0, |last| last + 1);
        assert!(decided.changes);
        let record = decided.record.expect("a record");
        assert_eq!((&**record.value, record.version), (&b"new"[..], 4));
        let outcomes = decided.decisions.into_iter().map(|(decision, version)| {
            match decision.answer(version) {
                StoreAnswer::Record(answer) => answer.outcome,
                other => panic!("{other:?}"),
            }
        });
        let (done, exists) = (Outcome::Done, Outcome::RecordExists);
        assert_eq!(outcomes.collect::<Vec<_>>(), [done, done, done, done, exists]);
    }
}
