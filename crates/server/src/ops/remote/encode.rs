//! Replies: the answer of a store, passed to the encoder of a protocol.

use super::{FoundRecord, RecordAnswer, Remote, StoreAnswer};
use crate::ops::execute::{Number, Outcome, Reply, ReplyLimit, TooLong, part_of};
use crate::ops::media_types;
use crate::ops::operation::Operation;
use crate::ops::touch::Touched;
use cabinet::table::RowView;
use cabinet::{Meta, RecordRef};

/// Appends the answer to an operation to its reply. Returns no outcome for an answer of another
/// kind.
pub(crate) fn encode(
    remote: &Remote,
    operation: &Operation<'_>,
    answer: &StoreAnswer,
    limit: &mut ReplyLimit<'_>,
    reply: &mut impl Reply,
) -> Result<Option<Outcome>, TooLong> {
    match (operation, answer) {
        (_, StoreAnswer::Record(answer)) => {
            return encode_record(operation, answer, limit, reply);
        }
        (
            Operation::GetMany { .. } | Operation::GetList { .. },
            StoreAnswer::Records { records, is_complete },
        ) => {
            if !is_complete {
                return Err(TooLong);
            }
            let mut records = records.iter();
            for key in operation.keys() {
                // Invalid keys were not asked for.
                let is_valid = remote.may_have_record(key);
                match is_valid.then(|| records.next()).flatten().and_then(Option::as_ref) {
                    Some(record) => limit.append(reply, record.value.len(), |reply| {
                        reply.record(key, &record.entry(key));
                    })?,
                    None => reply.absent(),
                }
            }
        }
        (Operation::KeysWithPrefix { max, .. }, StoreAnswer::Keys { keys, is_complete }) => {
            for key in keys {
                limit.append(reply, key.len(), |reply| reply.element(key))?;
            }
            if !is_complete && keys.len() < *max {
                return Err(TooLong);
            }
        }
        (Operation::KeyPage { max, .. }, StoreAnswer::Keys { keys, is_complete }) => {
            let mut last = None;
            for key in keys.iter().take(*max) {
                if !reply.is_full() {
                    limit.append(reply, key.len(), |reply| reply.element(key))?;
                    last = Some(key);
                }
            }
            let is_last = *is_complete && last == keys.last();
            if let Some(last) = last.filter(|_| !is_last) {
                reply.next_page(last);
            }
        }
        (Operation::Range { max, .. }, StoreAnswer::Range { records, is_complete }) => {
            for (key, record) in records {
                limit.append(reply, record.value.len(), |reply| {
                    reply.record(key, &record.entry(key));
                })?;
            }
            if !is_complete && records.len() < *max {
                return Err(TooLong);
            }
        }
        (_, StoreAnswer::Elements { elements, is_complete }) => {
            for element in elements {
                limit.append(reply, element.len(), |reply| reply.element(element))?;
            }
            if !is_complete {
                return Err(TooLong);
            }
        }
        (_, StoreAnswer::Count(count)) => reply.number(Number::Count(*count)),
        (_, StoreAnswer::Done) => {}
        _ => return Ok(None),
    }
    Ok(Some(Outcome::Done))
}

fn encode_record(
    operation: &Operation<'_>,
    answer: &RecordAnswer,
    limit: &mut ReplyLimit<'_>,
    reply: &mut impl Reply,
) -> Result<Option<Outcome>, TooLong> {
    let key = operation.key().unwrap_or_default();
    let found = answer.found.as_ref().map(|found| found.entry(key));
    let shows_values = reply.shows_values();
    match (operation, found) {
        _ if answer.outcome != Outcome::Done => return Ok(Some(answer.outcome)),
        (Operation::Touch { touch, .. }, found) => {
            let made =
                RecordRef { key, value: b"", meta: Meta::NONE, version: answer.written.version };
            let (entry, touched) = (found.unwrap_or(made), answer.touched);
            let touched = touched.unwrap_or(Touched { wins: false, is_new: false });
            touch.show(&entry, touched, limit, reply)?;
        }
        (Operation::Get { .. }, Some(entry)) => {
            limit.append(reply, entry.value.len(), |reply| reply.value(&entry))?;
        }
        (Operation::Open { .. }, Some(entry)) => {
            let media_type = media_types::known_name(entry.meta.flags);
            let media_type = media_type.as_deref().unwrap_or(media_types::UNKNOWN);
            let bytes = if shows_values { entry.value.len() } else { 0 };
            limit.append(reply, bytes, |reply| reply.typed(&entry, media_type))?;
        }
        (Operation::GetPart { start, length, .. }, Some(entry)) => {
            let part = part_of(entry.value, *start, *length);
            let Some(part) = part else { return Ok(Some(Outcome::NoPart)) };
            limit.append(reply, part.len(), |reply| reply.element(part))?;
        }
        (Operation::ValueSize { .. }, Some(entry)) => {
            reply.number(Number::Size(entry.value.len()));
        }
        (Operation::GetRow { .. }, Some(entry)) => {
            for (name, value) in RowView::new(entry.value).columns() {
                for element in [name, value] {
                    limit.append(reply, element.len(), |reply| reply.element(element))?;
                }
            }
        }
        (Operation::PutRow { .. }, _) => {}
        (Operation::Write(write), _) => {
            reply.written(&answer.written);
            if let Some(sum) = write.action.sum(&answer.written) {
                reply.number(sum);
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(Outcome::Done))
}

impl FoundRecord {
    /// Returns the record as encoders and decisions take it.
    pub(crate) fn entry<'a>(&'a self, key: &'a [u8]) -> RecordRef<'a> {
        RecordRef { key, value: &self.value, meta: self.meta, version: self.version }
    }
}
