//! The executor: carries out an operation, whichever protocol or log it came from.
//!
//! Records are handed to the [`Reply`] of the protocol one by one as they are found, and are
//! encoded in place. Every other result is an [`Outcome`].

use super::cas_numbers::CasNumbers;
use super::conditional::{Comparison, Writer, Written};
use super::entity_tag::EntityTags;
use super::iterator::{Iterators, Place};
use super::operation::{KeyList, Operation};
use super::rights::{Right, Rights};
use super::scan_places::ScanPlaces;
use super::touch::Touched;
use super::{events, lists, media_types, open, pages, random_key, rows, scans, touch};
use crate::ops::budget::{Budget, Charge};
use crate::store::Store;
use crate::store::events::Event;
use cabinet::{Error, LargeValue, RecordRef};
use std::sync::Arc;

/// Most keys that an operation looks up on an event loop. Longer operations go to the pool, so that
/// the other connections of the loop get their turn.
pub(crate) const INLINE_KEYS_MAX: usize = 1024;

/// Length of a reply, in bytes, above which an operation on many keys goes to the pool, for the
/// same reason.
pub(crate) const INLINE_REPLY_BYTES_MAX: usize = 1 << 20;

/// Length of a reply, in bytes, above which the reply counts against the memory of all connections
/// while it is made. It is counted in steps of the same length.
const COUNTED_REPLY_BYTES: usize = 1 << 20;

/// The encoder of a protocol, which appends to its output. It ignores parts that its request does
/// not ask for.
pub(crate) trait Reply {
    /// Returns the length of the reply so far, in bytes.
    fn len(&self) -> usize {
        0
    }

    /// Appends a key, or another part of the result.
    fn element(&mut self, _element: &[u8]) {}

    /// Appends the one requested record.
    #[inline]
    fn value(&mut self, record: &RecordRef<'_>) {
        self.element(record.value);
    }

    /// Appends the one requested record, which has a media type.
    fn typed(&mut self, _record: &RecordRef<'_>, _media_type: &str) {}

    /// Takes the one requested value, which has a media type, and is read while it is sent.
    fn large_value(&mut self, _value: LargeValue, _media_type: &str) {}

    /// Appends the one requested record as it was before it was touched.
    #[inline]
    fn touched(&mut self, record: &RecordRef<'_>, _touched: Touched) {
        self.value(record);
    }

    /// Appends one record of many, requested by `key`.
    #[inline]
    fn record(&mut self, key: &[u8], record: &RecordRef<'_>) {
        self.element(key);
        self.element(record.value);
    }

    /// Notes that one of many requested keys has no record.
    fn absent(&mut self) {}

    /// Appends a number.
    fn number(&mut self, _number: Number) {}

    /// Appends the key after which the next page of keys begins.
    fn next_page(&mut self, _after: &[u8]) {}

    /// Takes the number of the place at which a scan continues.
    fn next_place(&mut self, _number: u64) {}

    /// Returns whether values are a part of the reply. Otherwise their lengths have no limit.
    fn shows_values(&self) -> bool {
        true
    }

    /// Returns whether the reply takes no further results, so that a scan ends.
    #[inline]
    fn is_full(&self) -> bool {
        false
    }

    /// Returns whether the reply depends on the record that a write has made. Otherwise the write
    /// may be quicker.
    fn wants_written(&self) -> bool {
        false
    }

    /// Takes the record that a write has made.
    fn written(&mut self, _written: &Written) {}
}

/// A reply that is discarded.
pub(crate) struct NoReply;

impl Reply for NoReply {}

/// A reply that passes the one requested record to a closure.
pub(crate) struct Lend<F>(pub(crate) F);

impl<F: FnMut(&RecordRef<'_>)> Reply for Lend<F> {
    fn value(&mut self, record: &RecordRef<'_>) {
        (self.0)(record);
    }
}

/// Bytes that an element takes in addition to its length.
const ELEMENT_BYTES: usize = size_of::<Vec<u8>>() + 16;

/// A reply whose elements are collected.
#[derive(Default)]
pub(crate) struct Collected<'c> {
    pub(crate) elements: Vec<Vec<u8>>,
    bytes: usize,
    /// Returns whether there is memory for so many bytes more.
    charge: Option<&'c mut dyn FnMut(usize) -> bool>,
    /// Whether there was none for an element, so that elements are missing.
    pub(crate) is_refused: bool,
}

/// Length of a reply that no limit allows, in bytes.
const REFUSED_BYTES: usize = usize::MAX / 2;

impl<'c> Collected<'c> {
    /// Makes a reply whose elements are charged.
    pub(crate) fn charged_to(charge: &'c mut dyn FnMut(usize) -> bool) -> Self {
        Self { charge: Some(charge), ..Self::default() }
    }
}

impl Reply for Collected<'_> {
    fn len(&self) -> usize {
        if self.is_refused { REFUSED_BYTES } else { self.bytes }
    }

    fn element(&mut self, element: &[u8]) {
        let bytes = element.len() + ELEMENT_BYTES;
        if self.is_refused || self.charge.as_mut().is_some_and(|charge| !charge(bytes)) {
            // The length makes the operation end.
            self.is_refused = true;
            return;
        }
        self.bytes += bytes;
        self.elements.push(element.to_vec());
    }
}

/// A reply that is a number.
impl Reply for Option<Number> {
    fn number(&mut self, number: Number) {
        *self = Some(number);
    }
}

/// A number that is the result of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    /// The new value of an integer.
    Sum(i32),
    /// The new value of a fixed-point number.
    DoubleSum(f64),
    /// Length of the value, in bytes.
    Size(usize),
    /// Number of records, or of values.
    Count(u64),
    /// Flags of a value.
    Flags(u32),
}

/// Outcome of an operation that has not failed. It is a word so that results stay in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Outcome {
    /// The operation succeeded.
    Done,
    /// There is no such record, or no further one.
    NoRecord,
    /// There is a record already.
    RecordExists,
    /// The value ends before the requested part.
    NoPart,
    /// The record does not meet the precondition.
    Unmet,
    /// The absence of a record does not meet the precondition.
    UnmetByAbsence,
    /// The value, or what is to be added to it, is no number. Nothing was changed.
    NotNumeric,
}

/// The reply would be longer than [`crate::Config::reply_bytes_max`], or than there is memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Reason why an operation has no outcome.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The operation would have to wait. It has changed nothing that would be changed a second
    /// time.
    Blocked,
    /// See [`TooLong`].
    TooLong,
    /// The database has failed, or refuses the operation.
    Failed(Error),
    /// The user lacks this right, at least for a key of the operation. It has changed nothing.
    Forbidden(Right),
}

impl From<Error> for Stop {
    #[inline]
    fn from(error: Error) -> Self {
        match error {
            Error::WouldBlock => Self::Blocked,
            error => Self::Failed(error),
        }
    }
}

impl From<TooLong> for Stop {
    #[inline]
    fn from(_: TooLong) -> Self {
        Self::TooLong
    }
}

/// Limits of a reply.
pub(crate) struct ReplyLimit<'a> {
    pub(crate) bytes_max: usize,
    /// Bytes of earlier parts of the reply, of other operations.
    pub(crate) earlier_bytes: usize,
    /// Memory of all connections.
    pub(crate) budget: &'a Arc<Budget>,
    /// Memory that the reply takes from the budget.
    pub(crate) charge: &'a mut Option<Charge>,
}

impl ReplyLimit<'_> {
    /// Fails if a reply has become too long.
    #[inline]
    pub(crate) fn check(&mut self, bytes: usize) -> Result<(), TooLong> {
        let bytes = self.earlier_bytes + bytes;
        let is_within =
            bytes <= self.bytes_max && (bytes <= COUNTED_REPLY_BYTES || self.charge_for(bytes));
        if is_within { Ok(()) } else { Err(TooLong) }
    }

    /// Returns whether there is memory for a reply.
    #[cold]
    fn charge_for(&mut self, bytes: usize) -> bool {
        let charge = self.charge.get_or_insert_with(|| Charge::none(self.budget));
        charge.set(bytes.next_multiple_of(COUNTED_REPLY_BYTES))
    }

    /// Calls `append` to add a part of `bytes` to a reply, if there is memory for it.
    #[inline]
    pub(crate) fn append<R: Reply>(
        &mut self,
        reply: &mut R,
        bytes: usize,
        append: impl FnOnce(&mut R),
    ) -> Result<(), TooLong> {
        // The memory is charged before the part is copied.
        self.check(reply.len() + bytes)?;
        append(reply);
        self.check(reply.len())
    }
}

/// Context of an operation.
pub(crate) struct Executor<'a> {
    pub(crate) store: &'a Store,
    /// Whether this thread may wait.
    pub(crate) may_wait: bool,
    pub(crate) limit: ReplyLimit<'a>,
    pub(crate) cas_numbers: &'a CasNumbers,
    pub(crate) entity_tags: EntityTags,
    /// Places at which clients may continue their scans; a log has none.
    pub(crate) scan_places: Option<&'a ScanPlaces>,
    /// The iterators that the client may use; a log has none.
    pub(crate) iterators: Option<Iterators<'a>>,
    /// Rights of the client, unless it has all; a log has.
    pub(crate) rights: Option<&'a Rights>,
    /// Whether an operation that reads, or one of several steps that failed, has made a change.
    pub(crate) has_changed: bool,
    /// Event of a record that is put, if the request is not known by its operation.
    pub(crate) cause: Option<Event>,
}

impl<'a> Executor<'a> {
    /// Fails on a thread that must not wait.
    #[inline]
    pub(super) fn wait(&self) -> Result<(), Stop> {
        if self.may_wait { Ok(()) } else { Err(Stop::Blocked) }
    }

    /// Fails if an operation on many keys has become too long for an event loop, after so many keys
    /// and so many bytes of its reply.
    #[inline]
    pub(super) fn check_inline(&self, keys: usize, bytes: usize) -> Result<(), Stop> {
        if keys < INLINE_KEYS_MAX && bytes <= INLINE_REPLY_BYTES_MAX { Ok(()) } else { self.wait() }
    }

    pub(super) fn writer(&self) -> Writer<'a> {
        let (cas_numbers, entity_tags) = (self.cas_numbers, self.entity_tags);
        Writer { store: self.store, comparison: Comparison { cas_numbers, entity_tags } }
    }

    pub(super) fn scan_places(&self) -> Result<&'a ScanPlaces, Stop> {
        self.scan_places.ok_or_else(no_iterator)
    }

    pub(super) fn iterators(&mut self) -> Result<&mut Iterators<'a>, Stop> {
        self.iterators.as_mut().ok_or_else(no_iterator)
    }
}

#[cold]
fn no_iterator() -> Stop {
    Stop::Failed(Error::Unsupported {
        operation: "iterators",
        kind: "an update log",
        advice: "call them as a client",
    })
}

/// Carries out an operation, and raises its events. If the kind of operation is known, only its
/// part is compiled.
#[inline(always)]
pub(crate) fn execute(
    executor: &mut Executor<'_>,
    operation: &Operation<'_>,
    reply: &mut impl Reply,
) -> Result<Outcome, Stop> {
    let result = carry_out(executor, operation, reply);
    if !matches!(operation, Operation::Get { .. } | Operation::GetMany { .. })
        && executor.store.raises_events()
        && matches!(result, Ok(Outcome::Done))
    {
        events::raise(executor, operation)?;
    }
    result
}

#[inline(always)]
fn carry_out(
    executor: &mut Executor<'_>,
    operation: &Operation<'_>,
    reply: &mut impl Reply,
) -> Result<Outcome, Stop> {
    if let Some(rights) = executor.rights
        && let Some(right) = rights.missing(operation, executor.store.as_numbered().is_some())
    {
        return Err(Stop::Forbidden(right));
    }
    if operation.needs_pool() {
        executor.wait()?;
    }
    let store = executor.store;
    match operation {
        Operation::Get { key } => {
            let limit = &mut executor.limit;
            let found = store.read(key, |entry| {
                let bytes = if reply.shows_values() { entry.value.len() } else { 0 };
                limit.append(reply, bytes, |reply| reply.value(&entry))
            })?;
            return if_found(found);
        }
        Operation::Open { key, in_pieces } => return open::open(executor, key, *in_pieces, reply),
        Operation::Touch { key, touch } => return touch::touch(executor, key, touch, reply),
        Operation::Write(write) => {
            let writer = executor.writer();
            if !reply.wants_written() && !write.action.is_arithmetic() {
                return Ok(writer.write(write, None)?);
            }
            let mut written = Written::default();
            let outcome = writer.write(write, Some(&mut written))?;
            reply.written(&written);
            if let (Outcome::Done, Some(sum)) = (outcome, write.action.sum(&written)) {
                reply.number(sum);
            }
            return Ok(outcome);
        }
        Operation::GetPart { key, start, length } => {
            let limit = &mut executor.limit;
            let found = store.read(key, |entry| {
                let part = part_of(entry.value, *start, *length);
                part.map(|part| limit.append(reply, part.len(), |reply| reply.element(part)))
            })?;
            return match found {
                None => Ok(Outcome::NoRecord),
                Some(None) => Ok(Outcome::NoPart),
                Some(Some(taken)) => if_found(Some(taken)),
            };
        }
        Operation::ValueSize { key } => match store.value_size(key)? {
            Some(bytes) => reply.number(Number::Size(bytes)),
            None => return Ok(Outcome::NoRecord),
        },
        Operation::CountValues { key } => match store.count(key)? {
            0 => return Ok(Outcome::NoRecord),
            values => reply.number(Number::Count(values as u64)),
        },
        Operation::GetAll { key } => return lists::get_all(executor, key, reply),
        Operation::GetMany { keys } => match keys {
            KeyList::Strings(keys) => lists::get_many(executor, keys.iter(), reply)?,
            KeyList::Words(keys) => lists::get_many(executor, keys.iter(), reply)?,
        },
        Operation::GetList { keys, every_value } => {
            lists::get_list(executor, *keys, *every_value, reply)?;
        }
        Operation::PutDuplicate { key, value, side } => {
            store.put_duplicate(key, value, *side)?;
        }
        Operation::RemoveAll { key } if store.remove_all(key)? == 0 => {
            return Ok(Outcome::NoRecord);
        }
        Operation::RemoveAll { .. } => {}
        Operation::PutList { pairs, adds, rows } => {
            lists::put_list(executor, *pairs, *adds, *rows)?;
        }
        Operation::RemoveList { keys, every_value } => {
            lists::remove_list(executor, *keys, *every_value)?;
        }
        Operation::GetRow { key } => return rows::get_row(executor, key, reply),
        Operation::PutRow { key, columns, mode } => {
            if !rows::put_row(executor, key, columns, *mode)? {
                return Ok(Outcome::RecordExists);
            }
        }
        Operation::SetIndices { pairs } => rows::set_indices(executor, *pairs)?,
        Operation::Search(request) => rows::search(executor, request, reply)?,
        Operation::NameMediaType { name } => {
            let (flags, is_new) = media_types::flags(store, name)?;
            executor.has_changed |= is_new;
            reply.number(Number::Flags(flags));
        }
        Operation::Count => reply.number(Number::Count(store.count_records()?)),
        Operation::GenerateUid => reply.element(store.generate_uid()?.to_string().as_bytes()),
        Operation::IterBegin { from } => {
            if !executor.iterators()?.begin(store, *from)? {
                return Ok(Outcome::NoRecord);
            }
        }
        Operation::IterKey => match executor.iterators()?.next(store)? {
            Some(Place { key, .. }) => reply.element(&key),
            None => return Ok(Outcome::NoRecord),
        },
        Operation::IterRecord => return scans::next_record(executor, reply),
        Operation::KeysWithPrefix { prefix, max } => {
            return scans::keys_with_prefix(executor, prefix, *max, reply);
        }
        Operation::KeysFrom { prefix, from } => {
            return scans::keys_from(executor, prefix, from, reply);
        }
        Operation::KeyPage { prefix, after, max } => {
            pages::page(store, &mut executor.limit, prefix, *after, *max, reply)?;
        }
        Operation::KeyScan { prefix, from, min } => {
            pages::scan(executor, prefix, *from, *min, reply)?;
        }
        Operation::RandomKey => return random_key::append(store, &mut executor.limit, reply),
        Operation::Records => return scans::records(executor, reply),
        Operation::Match { pattern, max } => {
            return scans::matches(executor, pattern, *max, reply);
        }
        Operation::Range { begin, max, end } => {
            return scans::range(executor, *begin, *max, *end, reply);
        }
        Operation::Sync => store.sync()?,
        Operation::Retune { tuning } => store.retune(&String::from_utf8_lossy(tuning))?,
        Operation::Clear => store.clear()?,
        Operation::Defragment | Operation::ClearCache => {}
    }
    Ok(Outcome::Done)
}

/// Returns at most `length` bytes of a value from byte `start` on, unless it ends before.
pub(super) fn part_of(value: &[u8], start: usize, length: usize) -> Option<&[u8]> {
    let part = value.get(start..).filter(|part| !part.is_empty())?;
    Some(&part[..part.len().min(length)])
}

/// Returns the outcome of a lookup, whose record was appended to the reply.
#[inline]
pub(super) fn if_found(appended: Option<Result<(), TooLong>>) -> Result<Outcome, Stop> {
    match appended {
        None => Ok(Outcome::NoRecord),
        Some(appended) => Ok(appended.map(|()| Outcome::Done)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_parts_of_a_reply_count_before_a_part_is_copied() {
        let budget = Budget::new(4 << 20);
        let mut charge = None;
        let mut limit = ReplyLimit {
            bytes_max: 10 << 20,
            earlier_bytes: 2 << 20,
            budget: &budget,
            charge: &mut charge,
        };
        let mut appended = 0;
        let mut append = |bytes| limit.append(&mut NoReply, bytes, |_| appended += 1).is_ok();
        assert!(append(2 << 20));
        assert!(!append((2 << 20) + 1));
        // The reply of this test stays empty.
        assert_eq!((appended, budget.used_bytes()), (1, 2 << 20));
    }
}
