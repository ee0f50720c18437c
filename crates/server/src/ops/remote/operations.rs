//! Operations as requests to a store, or the reasons why it cannot execute them.

use super::record::Wanted;
use super::rows::WantedRow;
use super::{KeysBegin, RecordRequest, Remote, StoreRequest, TableRequest};
use crate::ops::cas_numbers::CasNumbers;
use crate::ops::conditional::{Action, Precondition, Presence, Write};
use crate::ops::decode::row_to_store;
use crate::ops::entity_tag::EntityTags;
use crate::ops::operation::Operation;
use crate::ops::touch::{Claim, Touch};
use cabinet::ids::Key;
use cabinet::{Error, Meta};
use std::sync::Arc;
use wire::http::Conditions;

/// Key of the least id.
const FIRST_ID: &[u8] = b"1";

/// State of the server that decisions on records refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparing<'a> {
    pub(crate) cas_numbers: &'a Arc<CasNumbers>,
    pub(crate) entity_tags: EntityTags,
}

impl Remote {
    /// Returns the owned request for an operation, or the reason why the store cannot execute it.
    /// A reply has at most `bytes_max` bytes.
    pub(crate) fn request(
        &self,
        operation: &Operation<'_>,
        comparing: Comparing<'_>,
        bytes_max: usize,
    ) -> Result<StoreRequest, Error> {
        self.check_value(operation.value_bytes())?;
        if let Operation::GetMany { .. } = operation {
            let keys = operation.keys().filter(|key| self.may_have_record(key));
            return Ok(StoreRequest::GetMany {
                keys: keys.map(<[u8]>::to_vec).collect(),
                bytes_max,
            });
        }
        let reads = operation.is_read();
        operation.keys().try_for_each(|key| match reads {
            true => self.check_key_to_read(key),
            false => self.check_key(key),
        })?;
        let has_rows = self.capabilities.has_rows;
        let wanted = match operation {
            Operation::Get { .. }
            | Operation::Open { .. }
            | Operation::GetPart { .. }
            | Operation::ValueSize { .. } => Wanted::Read,
            // Without changes that depend on the record, no client can win the right to renew it.
            Operation::Touch { touch, .. }
                if touch.is_read() && !self.capabilities.changes_conditionally =>
            {
                Wanted::Touch(Touch { claim: Claim::Never, ..*touch })
            }
            Operation::Touch { touch, .. } => Wanted::Touch(*touch),
            Operation::Write(write) => self.wanted(write),
            Operation::GetRow { .. } if has_rows => Wanted::Row(WantedRow::Get),
            Operation::PutRow { columns, mode, .. } if has_rows => {
                Wanted::Row(WantedRow::put(columns, *mode)?)
            }
            Operation::SetIndices { pairs } if has_rows => {
                return Ok(StoreRequest::Table(TableRequest::set_indexes(*pairs)?));
            }
            Operation::Search(request) if has_rows => {
                let request = request.clone();
                return Ok(StoreRequest::Table(TableRequest::Search { request, bytes_max }));
            }
            Operation::GenerateUid if has_rows => {
                return Ok(StoreRequest::Table(TableRequest::GenerateUid));
            }
            Operation::GetList { every_value: false, .. } => {
                let keys = operation.keys().map(<[u8]>::to_vec).collect();
                return Ok(StoreRequest::GetMany { keys, bytes_max });
            }
            Operation::PutList { pairs, adds: false, rows } => {
                let mut words = pairs.iter();
                let mut puts = Vec::with_capacity(pairs.len() / 2);
                while let (Some(key), Some(value)) = (words.next(), words.next()) {
                    self.check_value(value.len())?;
                    let value = rows.map_or(value, |sender| row_to_store(value, sender));
                    let action = Action::put(Presence::Any, value, Meta::NONE);
                    let put = self.wanted(&Write::new(key, action));
                    puts.push(self.of_record(key, put, comparing)?);
                }
                return Ok(StoreRequest::Changes(puts));
            }
            Operation::RemoveList { keys, every_value: false } => {
                let remove = |key| self.wanted(&Write::new(key, Action::Remove));
                let removals = keys.iter().map(|key| self.of_record(key, remove(key), comparing));
                return Ok(StoreRequest::Changes(removals.collect::<Result<_, _>>()?));
            }
            Operation::KeysWithPrefix { prefix, max } if self.capabilities.ids.is_some() => {
                if !self.capabilities.lists_keys {
                    return Err(lacks("lists of keys"));
                }
                let (interval, max) = (prefix.to_vec(), *max);
                return Ok(StoreRequest::KeysWithin { interval, max, bytes_max });
            }
            Operation::KeysWithPrefix { prefix, max } => {
                return self.keys(prefix, KeysBegin::First, *max, bytes_max);
            }
            Operation::KeyPage { prefix, after, max } => {
                let begin = after.map_or(KeysBegin::First, |after| KeysBegin::After(after.into()));
                // One key more tells whether there is a further page.
                return self.keys(prefix, begin, max.saturating_add(1), bytes_max);
            }
            Operation::Range { begin, max, end } => {
                if !self.capabilities.is_ordered {
                    return Err(lacks("ranges of keys"));
                }
                [*begin, *end].iter().flatten().try_for_each(|key| self.check_length(key))?;
                // An empty key is no id.
                let first = if self.capabilities.ids.is_some() { FIRST_ID } else { b"" };
                let begin = begin.unwrap_or(first).to_vec();
                let end = end.map(<[u8]>::to_vec);
                return Ok(StoreRequest::Range { begin, end, max: *max, bytes_max });
            }
            Operation::Count => {
                if !self.capabilities.counts {
                    return Err(lacks("an exact count"));
                }
                return Ok(StoreRequest::Count);
            }
            Operation::Clear => {
                if !self.capabilities.clears {
                    return Err(lacks("removal of all records"));
                }
                return Ok(StoreRequest::Clear);
            }
            other => return Err(lacks(other.name())),
        };
        let key = operation.key().unwrap_or_default();
        Ok(StoreRequest::Record(self.of_record(key, wanted, comparing)?))
    }

    /// Returns the request on one record.
    fn of_record(
        &self,
        key: &[u8],
        wanted: Wanted,
        comparing: Comparing<'_>,
    ) -> Result<RecordRequest, Error> {
        if wanted.is_conditional() && !self.capabilities.changes_conditionally {
            return Err(lacks("changes that depend on the record"));
        }
        Ok(RecordRequest {
            key: key.to_vec(),
            wanted,
            numbers: Arc::clone(comparing.cas_numbers),
            tags: comparing.entity_tags,
            value_bytes_max: self.capabilities.value_bytes_max,
            has_rows: self.capabilities.has_rows,
            ids: self.capabilities.ids,
        })
    }

    /// Returns the error for a value that a change would make too long.
    pub(crate) fn value_too_long(&self, bytes: usize) -> Error {
        Error::ValueTooLong { bytes, max: self.capabilities.value_bytes_max }
    }

    /// Checks the length of a value. Those of a fixed-length database are cut first.
    fn check_value(&self, bytes: usize) -> Result<(), Error> {
        let width = self.capabilities.ids.map(|ids| usize::try_from(ids.width()));
        let kept = width.and_then(Result::ok).map_or(bytes, |width| bytes.min(width));
        let is_within = kept <= self.capabilities.value_bytes_max;
        if is_within { Ok(()) } else { Err(self.value_too_long(kept)) }
    }

    fn check_length(&self, key: &[u8]) -> Result<(), Error> {
        let (bytes, max) = (key.len(), self.capabilities.key_bytes_max);
        if bytes > max { Err(Error::KeyTooLong { bytes, max }) } else { Ok(()) }
    }

    /// Checks a key under which a record is put.
    fn check_key(&self, key: &[u8]) -> Result<(), Error> {
        self.check_length(key)?;
        self.capabilities.ids.map_or(Ok(()), |ids| ids.key(key).map(drop))
    }

    fn check_key_to_read(&self, key: &[u8]) -> Result<(), Error> {
        self.check_length(key)?;
        match self.capabilities.ids.map(|ids| (ids, ids.key(key))) {
            Some((ids, Ok(Key::Prev | Key::Next))) => Err(ids.no_id(key)),
            Some((_, Err(error))) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns whether there can be a record under a key.
    pub(super) fn may_have_record(&self, key: &[u8]) -> bool {
        self.check_key_to_read(key).is_ok()
    }

    /// Returns the request for a list of keys.
    pub(crate) fn keys(
        &self,
        prefix: &[u8],
        begin: KeysBegin,
        max: usize,
        bytes_max: usize,
    ) -> Result<StoreRequest, Error> {
        if !self.capabilities.lists_keys {
            return Err(lacks("lists of keys"));
        }
        self.check_length(prefix)?;
        match &begin {
            KeysBegin::First => {}
            KeysBegin::At(key) | KeysBegin::After(key) => self.check_length(key)?,
        }
        Ok(StoreRequest::Keys { prefix: prefix.to_vec(), begin, max, bytes_max })
    }

    /// Returns the owned form of a write. Bytes that a fixed-length database would cut are left
    /// out.
    fn wanted(&self, write: &Write<'_>) -> Wanted {
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
        let ids = self.capabilities.ids;
        // The end of one that is shifted may become the beginning of the value.
        let ids = ids.filter(|_| !matches!(write.action, Action::Shift { .. }));
        let action = write.action.map(|bytes| ids.map_or(*bytes, |ids| ids.cut(bytes)).to_vec());
        Wanted::Write { action, precondition, conditions, assign: write.assign }
    }
}

fn lacks(operation: &'static str) -> Error {
    Error::Unsupported { operation, kind: "the store", advice: "serve a database on a disk for it" }
}
