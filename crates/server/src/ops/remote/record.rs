//! Requests on one record: the owned operation, the decision over the record as it is, the answer.

use super::rows::{self, WantedRow};
use super::{FoundRecord, RowRefusal, StoreAnswer};
use crate::ops::cas_numbers::CasNumbers;
use crate::ops::conditional::{Action, Comparison, Precondition, Presence, Write, Written};
use crate::ops::entity_tag::EntityTags;
use crate::ops::execute::Outcome;
use crate::ops::touch::{Touch, Touched};
use cabinet::ids::IdLimits;
use cabinet::{Change, Error, Version};
use std::sync::Arc;
use wire::http::Conditions;

/// A request on one record.
///
/// A store reads the record, calls [`RecordRequest::decide`], and makes the change if the record
/// has not changed since; otherwise it begins again.
#[derive(Debug)]
pub struct RecordRequest {
    pub(super) key: Vec<u8>,
    pub(super) wanted: Wanted,
    pub(super) numbers: Arc<CasNumbers>,
    pub(super) tags: EntityTags,
    pub(super) value_bytes_max: usize,
    /// Whether the record is a row of a table.
    pub(super) has_rows: bool,
    /// Limits of a fixed-length database.
    pub(super) ids: Option<IdLimits>,
}

/// Owned operation on one record.
#[derive(Debug)]
pub(super) enum Wanted {
    Read,
    Touch(Touch),
    Write {
        action: Action<Vec<u8>>,
        precondition: Precondition<'static>,
        conditions: Option<Conditions<'static>>,
        assign: Option<u64>,
    },
    Row(WantedRow),
}

/// Change of a record, and the answer once the change is made.
#[derive(Debug)]
pub struct Decision {
    /// Change to make.
    pub change: Change,
    pub(super) answer: RecordAnswer,
    /// CAS number that the changed record keeps or gets, 0 if it is the version.
    number: u64,
    numbers: Arc<CasNumbers>,
    /// Length of the value that is too long, in bytes.
    pub(super) too_long: Option<usize>,
    /// Reason why nothing is done.
    pub(super) refusal: Option<RowRefusal>,
}

/// Answer to a request on one record.
#[derive(Debug)]
pub struct RecordAnswer {
    pub(super) outcome: Outcome,
    /// The record before the change.
    pub(super) found: Option<FoundRecord>,
    pub(super) touched: Option<Touched>,
    pub(super) written: Written,
}

impl RecordRequest {
    /// Returns the key of the record.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the memory of the key and the value, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.wanted.value_bytes()
    }

    /// Returns whether the request changes no record. One that was claimed may have become stale,
    /// and is then changed nevertheless.
    pub fn is_read(&self) -> bool {
        match &self.wanted {
            Wanted::Read | Wanted::Row(WantedRow::Get) => true,
            Wanted::Touch(touch) => touch.is_read(),
            Wanted::Write { .. } | Wanted::Row(_) => false,
        }
    }

    /// Returns whether the request may change the record: also if it is one that reads unless the
    /// record has become stale.
    pub(super) fn may_change(&self) -> bool {
        match &self.wanted {
            Wanted::Touch(touch) => touch.may_change(),
            _ => !self.is_read(),
        }
    }

    /// Returns what is to be done, if that is the same for each record and for none.
    pub fn decide_unread(&self) -> Option<Decision> {
        self.wanted.is_put().then(|| self.decide(None))
    }

    /// Returns whether a row is put under the empty key. Then the request is to be given an
    /// identifier as its key, with [`RecordRequest::set_key`].
    pub fn needs_key(&self) -> bool {
        self.has_rows && self.key.is_empty() && matches!(self.decide(None).change, Change::Put(..))
    }

    /// Sets the key of the record.
    pub fn set_key(&mut self, key: Vec<u8>) {
        self.key = key;
    }

    /// Returns what is to be done with the record, given as it is now. `None` stands for no record.
    pub fn decide(&self, found: Option<&FoundRecord>) -> Decision {
        if self.has_rows { rows::decide(self, found) } else { self.decide_value(found) }
    }

    /// Returns a decision that changes nothing.
    pub(super) fn no_decision(&self) -> Decision {
        let answer = RecordAnswer {
            outcome: Outcome::Done,
            found: None,
            touched: None,
            written: Written::default(),
        };
        let numbers = Arc::clone(&self.numbers);
        let (too_long, refusal) = (None, None);
        Decision { change: Change::Keep, answer, number: 0, numbers, too_long, refusal }
    }

    /// Returns the decision that nothing is done, for the reason of an error.
    fn refuse(&self, error: Error) -> Decision {
        let mut decision = self.no_decision();
        match error {
            Error::ValueTooLong { bytes, .. } => decision.too_long = Some(bytes),
            error => decision.refusal = Some(error.into()),
        }
        decision
    }

    /// Returns what is to be done with a record that is no row, or whose columns are joined.
    pub(super) fn decide_value(&self, found: Option<&FoundRecord>) -> Decision {
        let record = found.map(|found| found.entry(&self.key));
        let mut written = Written::default();
        let mut touched = None;
        let mut number = 0;
        let found_or = |outcome| if record.is_some() { Outcome::Done } else { outcome };
        let mut outcome = found_or(Outcome::NoRecord);
        let mut change = Change::Keep;
        match &self.wanted {
            Wanted::Read | Wanted::Row(_) => {}
            Wanted::Touch(touch) => {
                (change, touched) = touch.decide(record.as_ref());
                outcome = match touched {
                    Some(touched) if touched.wins && !touch.is_allowed() => Outcome::Unmet,
                    Some(_) => Outcome::Done,
                    None => Outcome::NoRecord,
                };
                if outcome == Outcome::Unmet {
                    change = Change::Keep;
                }
                let old = record.map(|record| self.numbers.number(record.version));
                number = old.or(touch.assign).unwrap_or(0);
            }
            Wanted::Write { action, precondition, conditions, assign } => {
                let precondition = match conditions {
                    Some(conditions) => Precondition::EntityTags(conditions),
                    None => *precondition,
                };
                let action = action.map(Vec::as_slice);
                let write = Write { key: &self.key, action, precondition, assign: *assign };
                let comparison = Comparison { cas_numbers: &self.numbers, entity_tags: self.tags };
                (change, outcome) = match comparison.decide(&write, record, &mut written) {
                    Ok(decided) => decided,
                    Err(error) => return self.refuse(error),
                };
                number = assign.unwrap_or(0);
            }
        }
        let reads = matches!(self.wanted, Wanted::Read | Wanted::Touch(_));
        // Requests that are answered together share the value.
        let found = found.filter(|_| reads).cloned();
        let answer = RecordAnswer { outcome, found, touched, written };
        if let (Some(ids), Change::Put(value, _)) = (self.ids, &mut change) {
            value.truncate(ids.cut(value).len());
        }
        let too_long = match &change {
            Change::Put(value, _) => Some(value.len()).filter(|len| *len > self.value_bytes_max),
            Change::Keep | Change::Remove => None,
        };
        if too_long.is_some() {
            change = Change::Keep;
        }
        let numbers = Arc::clone(&self.numbers);
        Decision { change, answer, number, numbers, too_long, refusal: None }
    }
}

impl RecordAnswer {
    /// Returns whether a request that mostly reads has changed the record.
    pub(super) fn has_claimed(&self) -> bool {
        let is_claim = |touched: Touched| touched.wins || touched.is_new;
        self.outcome == Outcome::Done && self.touched.is_some_and(is_claim)
    }

    /// Returns the record before the change, if the request reads it.
    pub(crate) fn found(&self) -> Option<&FoundRecord> {
        self.found.as_ref()
    }
}

impl Wanted {
    /// Returns the length of the value, in bytes.
    fn value_bytes(&self) -> usize {
        match self {
            Self::Write { action, .. } => action.bytes().map_or(0, Vec::len),
            Self::Row(wanted) => wanted.value_bytes(),
            Self::Read | Self::Touch(_) => 0,
        }
    }

    /// Returns whether a value is put, whatever the record is.
    fn is_put(&self) -> bool {
        let put =
            |action: &Action<_>| matches!(action, Action::Put { presence: Presence::Any, .. });
        matches!(
            self,
            Self::Write { action, precondition: Precondition::None, conditions: None, .. }
                if put(action)
        )
    }

    /// Returns whether the change of a record depends on the record.
    pub(super) fn is_conditional(&self) -> bool {
        match self {
            Self::Read => false,
            Self::Row(wanted) => !matches!(wanted, WantedRow::Get),
            Self::Touch(touch) => !touch.is_read(),
            Self::Write {
                action: Action::Remove,
                precondition: Precondition::None,
                conditions: None,
                ..
            } => false,
            Self::Write { .. } => !self.is_put(),
        }
    }
}

impl Decision {
    /// Returns the answer, once the change is made. `version` is the one that the record got, 0 if
    /// none was put.
    pub fn answer(self, version: Version) -> StoreAnswer {
        let Self { mut answer, number, numbers, too_long, refusal, .. } = self;
        if let Some(refusal) = refusal {
            return StoreAnswer::Refused(refusal);
        }
        if let Some(bytes) = too_long {
            return StoreAnswer::ValueTooLong { bytes };
        }
        answer.written.version = version;
        if version != 0 && number != 0 {
            // The number may be the version of a touch that was made in the same step.
            numbers.set(version, numbers.number(number));
        }
        StoreAnswer::Record(answer)
    }
}

/// Returns a request of a test.
#[cfg(test)]
pub(super) fn request_of(wanted: Wanted) -> RecordRequest {
    RecordRequest {
        key: b"k".to_vec(),
        wanted,
        numbers: Arc::default(),
        tags: EntityTags::new(None),
        value_bytes_max: 64 << 20,
        has_rows: false,
        ids: None,
    }
}

/// Returns a write of a test.
#[cfg(test)]
pub(super) fn write_of(action: Action<Vec<u8>>) -> Wanted {
    Wanted::Write { action, precondition: Precondition::None, conditions: None, assign: None }
}

/// Returns a put of a test.
#[cfg(test)]
pub(super) fn put_of(presence: Presence, value: &[u8], meta: cabinet::Meta) -> RecordRequest {
    request_of(write_of(Action::put(presence, value.to_vec(), meta)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cabinet::Meta;

    #[test]
    fn touches_that_are_made_in_one_step_keep_the_cas_number_of_the_record() {
        let numbers = Arc::<CasNumbers>::default();
        numbers.set(1, 50);
        let request = |expires_at_ms| RecordRequest {
            numbers: Arc::clone(&numbers),
            ..request_of(Wanted::Touch(Touch {
                expires_at_ms: Some(expires_at_ms),
                ..Touch::default()
            }))
        };
        let decide = |version| {
            let found = FoundRecord { value: Arc::new(b"v".to_vec()), meta: Meta::NONE, version };
            request(u64::MAX >> version).decide(Some(&found))
        };
        let decisions = [decide(1), decide(2)];
        for (decision, version) in decisions.into_iter().zip([2, 3]) {
            assert!(matches!(decision.change, Change::Put(..)));
            decision.answer(version);
        }
        assert_eq!([2, 3].map(|version| numbers.number(version)), [50, 50]);
    }
}
