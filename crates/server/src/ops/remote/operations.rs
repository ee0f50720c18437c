//! Operations as requests to a store, or the reasons why it cannot execute them.

use super::record::Wanted;
use super::{RecordRequest, Remote, StoreRequest};
use crate::ops::cas_numbers::CasNumbers;
use crate::ops::conditional::Precondition;
use crate::ops::entity_tag::EntityTags;
use crate::ops::operation::Operation;
use cabinet::Error;
use std::sync::Arc;
use wire::http::Conditions;

impl Remote {
    /// Returns the owned request for an operation, or the reason why the store cannot execute it.
    /// A reply has at most `bytes_max` bytes.
    pub(crate) fn request(
        &self,
        operation: &Operation<'_>,
        numbers: &Arc<CasNumbers>,
        tags: EntityTags,
        bytes_max: usize,
    ) -> Result<StoreRequest, Error> {
        let (bytes, max) = (operation.value_bytes(), self.capabilities.value_bytes_max);
        if bytes > max {
            return Err(Error::ValueTooLong { bytes, max });
        }
        if let Operation::GetMany { .. } = operation {
            let max = self.capabilities.key_bytes_max;
            let keys = operation.keys().filter(|key| key.len() <= max).map(<[u8]>::to_vec);
            return Ok(StoreRequest::GetMany { keys: keys.collect() });
        }
        operation.keys().try_for_each(|key| self.check_key(key))?;
        let wanted = match operation {
            Operation::Get { .. }
            | Operation::Open { .. }
            | Operation::GetPart { .. }
            | Operation::ValueSize { .. } => Wanted::Read,
            Operation::Touch { touch, .. } => Wanted::Touch(*touch),
            Operation::Write(write) => {
                let (precondition, conditions) = match write.precondition {
                    Precondition::None => (Precondition::None, None),
                    Precondition::CasNumber(number) => (Precondition::CasNumber(number), None),
                    Precondition::Version(version) => (Precondition::Version(version), None),
                    Precondition::EntityTags(conditions) => {
                        let own = |list: &std::borrow::Cow<'_, [u8]>| list.to_vec().into();
                        let conditions = Conditions {
                            matching: conditions.matching.as_ref().map(own),
                            none_matching: conditions.none_matching.as_ref().map(own),
                        };
                        (Precondition::None, Some(conditions))
                    }
                };
                let action = write.action.map(|bytes| bytes.to_vec());
                Wanted::Write { action, precondition, conditions, assign: write.assign }
            }
            Operation::AddInt { addend, .. } => Wanted::AddInt(*addend),
            Operation::KeysWithPrefix { prefix, max } => {
                return self.keys(prefix, None, *max, bytes_max);
            }
            // One key more tells whether there is a further page.
            Operation::KeyPage { prefix, after, max } => {
                return self.keys(prefix, *after, max.saturating_add(1), bytes_max);
            }
            Operation::Range { begin, max, end } => {
                if !self.capabilities.is_ordered {
                    return Err(lacks("order of keys"));
                }
                [*begin, *end].iter().flatten().try_for_each(|key| self.check_key(key))?;
                let begin = begin.unwrap_or_default().to_vec();
                let end = end.map(<[u8]>::to_vec);
                return Ok(StoreRequest::Range { begin, end, max: *max, bytes_max });
            }
            Operation::Count => {
                if !self.capabilities.counts {
                    return Err(lacks("exact count"));
                }
                return Ok(StoreRequest::Count);
            }
            Operation::Clear => {
                if !self.capabilities.clears {
                    return Err(lacks("removal of all records"));
                }
                return Ok(StoreRequest::Clear);
            }
            Operation::Records => return Err(lacks("lists of records")),
            other => return Err(lacks(other.name())),
        };
        if wanted.is_conditional() && !self.capabilities.changes_conditionally {
            return Err(lacks("changes that depend on the record"));
        }
        let key = operation.key().unwrap_or_default().to_vec();
        let numbers = Arc::clone(numbers);
        let value_bytes_max = self.capabilities.value_bytes_max;
        Ok(StoreRequest::Record(RecordRequest { key, wanted, numbers, tags, value_bytes_max }))
    }

    /// Returns the error for a value that a change would make too long.
    pub(crate) fn value_too_long(&self, bytes: usize) -> Error {
        Error::ValueTooLong { bytes, max: self.capabilities.value_bytes_max }
    }

    fn check_key(&self, key: &[u8]) -> Result<(), Error> {
        let (bytes, max) = (key.len(), self.capabilities.key_bytes_max);
        if bytes > max { Err(Error::KeyTooLong { bytes, max }) } else { Ok(()) }
    }

    fn keys(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        max: usize,
        bytes_max: usize,
    ) -> Result<StoreRequest, Error> {
        if !self.capabilities.lists_keys {
            return Err(lacks("lists of keys"));
        }
        [Some(prefix), after].iter().flatten().try_for_each(|key| self.check_key(key))?;
        let (prefix, after) = (prefix.to_vec(), after.map(<[u8]>::to_vec));
        Ok(StoreRequest::Keys { prefix, after, max, bytes_max })
    }
}

fn lacks(what: &str) -> Error {
    Error::NotSupported(format!("the store has no {what}"))
}
