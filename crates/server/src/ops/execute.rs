//! The executor: carries out an operation, whichever protocol or log it came from.
//!
//! Records are handed to the [`Reply`] of the protocol one by one as they are found, and are
//! encoded in place. Every other result is an [`Outcome`].

use super::iterator::{Iterators, Place};
use super::operation::Operation;
use super::{lists, rows, scans};
use crate::budget::{Budget, Charge};
use crate::store::Store;
use cabinet::{Entry, Error, Meta};
use std::sync::Arc;

/// Most keys that an operation looks up on an event loop. Longer operations go to the pool, so that
/// the other connections of the loop get their turn.
const INLINE_KEYS_MAX: usize = 1024;

/// Length of a reply, in bytes, above which an operation on many keys goes to the pool, for the
/// same reason.
const INLINE_REPLY_BYTES_MAX: usize = 1 << 20;

/// Length of a reply, in bytes, above which the reply counts against the memory of all connections
/// while it is made. It is counted in steps of the same length.
const COUNTED_REPLY_BYTES: usize = 1 << 20;

/// The encoder of a protocol, which appends to its output.
pub(crate) trait Reply {
    /// Returns the length of the reply so far, in bytes.
    fn len(&self) -> usize;

    /// Appends a key, a number, or another part of the result.
    fn element(&mut self, element: &[u8]);

    /// Appends the one requested value.
    #[inline]
    fn value(&mut self, record: &Entry<'_>) {
        self.element(record.value);
    }

    /// Appends one record of many, requested by `key`.
    #[inline]
    fn record(&mut self, key: &[u8], value: &[u8]) {
        self.element(key);
        self.element(value);
    }
}

/// A reply that is discarded.
pub(crate) struct NoReply;

impl Reply for NoReply {
    fn len(&self) -> usize {
        0
    }

    fn element(&mut self, _element: &[u8]) {}
}

/// Result of an operation that was carried out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The operation succeeded.
    Done,
    /// There is no such record, or no further one.
    NoRecord,
    /// There is a record already.
    RecordExists,
    /// The value ends before the requested part.
    NoPart,
    /// The new value of an integer.
    Sum(i32),
    /// The new value of a fixed-point number. With NaN nothing was added.
    DoubleSum(f64),
    /// Length of the value, in bytes.
    Size(usize),
}

/// Reason why an operation has no outcome.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The operation would have to wait. It has changed nothing that would be changed a second
    /// time.
    Blocked,
    /// The reply would be longer than [`crate::Config::reply_bytes_max`], or than there is memory
    /// for.
    TooLong,
    /// The database has failed.
    Failed(Error),
    /// The operation is invalid, for this reason.
    Invalid(Box<str>),
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

/// Limits of a reply.
pub(crate) struct ReplyLimit<'a> {
    pub(crate) bytes_max: usize,
    /// Memory of all connections.
    pub(crate) budget: &'a Arc<Budget>,
    /// Memory that the reply takes from the budget.
    pub(crate) charge: &'a mut Option<Charge>,
}

impl ReplyLimit<'_> {
    /// Fails if a reply has become too long.
    #[inline]
    pub(crate) fn check(&mut self, bytes: usize) -> Result<(), Stop> {
        if self.is_within(bytes) { Ok(()) } else { Err(Stop::TooLong) }
    }

    /// Returns whether a reply is within its limits.
    #[inline]
    pub(crate) fn is_within(&mut self, bytes: usize) -> bool {
        bytes <= self.bytes_max && (bytes <= COUNTED_REPLY_BYTES || self.charge_for(bytes))
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
    ) -> Result<(), Stop> {
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
    /// The iterators that the client may use; a log has none.
    pub(crate) iterators: Option<Iterators<'a>>,
    /// Whether an operation of several steps has made a change. One of a single step has made none
    /// if it failed.
    pub(crate) has_changed: bool,
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
        if is_inline(keys, bytes) { Ok(()) } else { self.wait() }
    }

    pub(super) fn iterators(&mut self) -> Result<&mut Iterators<'a>, Stop> {
        self.iterators.as_mut().ok_or_else(|| Stop::Invalid("a log has no iterator".into()))
    }
}

/// Returns whether an event loop may go on with an operation on many keys, after so many keys and
/// so many bytes of its reply.
#[inline]
pub(crate) fn is_inline(keys: usize, bytes: usize) -> bool {
    keys < INLINE_KEYS_MAX && bytes <= INLINE_REPLY_BYTES_MAX
}

/// Carries out an operation.
#[inline]
pub(crate) fn execute(
    executor: &mut Executor<'_>,
    operation: &Operation<'_>,
    reply: &mut impl Reply,
) -> Result<Outcome, Stop> {
    if operation.needs_pool() {
        executor.wait()?;
    }
    let store = executor.store;
    let outcome = match *operation {
        Operation::Get { key } => {
            let limit = &mut executor.limit;
            let found = store.read(key, |entry| {
                limit.append(reply, entry.value.len(), |reply| reply.value(&entry))
            })?;
            return found.transpose().map(if_found);
        }
        Operation::GetPart { key, start, length } => {
            let limit = &mut executor.limit;
            let found = store.read(key, |entry| {
                let part = entry.value.get(start..).filter(|part| !part.is_empty());
                let part = part.map(|part| &part[..part.len().min(length)]);
                part.map(|part| limit.append(reply, part.len(), |reply| reply.element(part)))
            })?;
            match found {
                None => Outcome::NoRecord,
                Some(None) => Outcome::NoPart,
                Some(Some(taken)) => taken.map(|()| Outcome::Done)?,
            }
        }
        Operation::ValueSize { key } => {
            store.value_size(key)?.map_or(Outcome::NoRecord, Outcome::Size)
        }
        Operation::GetAll { key } => lists::get_all(executor, key, reply)?,
        Operation::GetMany { keys } => lists::get_many(executor, keys, reply)?,
        Operation::GetList { keys, every_value } => {
            lists::get_list(executor, keys, every_value, reply)?
        }
        Operation::Put { key, value, meta } => {
            store.put_with(key, value, meta)?;
            Outcome::Done
        }
        Operation::PutKeep { key, value } => {
            let is_stored = store.put_keep(key, value, Meta::NONE)?;
            if is_stored { Outcome::Done } else { Outcome::RecordExists }
        }
        Operation::Append { key, value } => {
            store.put_cat(key, value)?;
            Outcome::Done
        }
        Operation::AppendShift { key, value, width } => {
            store.put_shift(key, value, width)?;
            Outcome::Done
        }
        Operation::PutDuplicate { key, value, side } => {
            store.put_duplicate(key, value, side)?;
            Outcome::Done
        }
        Operation::PutList { pairs, adds, rows } => {
            lists::put_list(executor, pairs, adds, rows)?;
            Outcome::Done
        }
        Operation::Remove { key } => {
            if store.remove(key)? {
                Outcome::Done
            } else {
                Outcome::NoRecord
            }
        }
        Operation::RemoveList { keys, every_value } => {
            lists::remove_list(executor, keys, every_value)?;
            Outcome::Done
        }
        Operation::AddInt { key, addend } => Outcome::Sum(store.add_int(key, addend)?),
        // Tokyo Tyrant's only sign of failure is a sum that is not a number.
        Operation::AddDouble { addend, .. } if addend.is_nan() => Outcome::DoubleSum(addend),
        Operation::AddDouble { key, addend } => Outcome::DoubleSum(store.add_double(key, addend)?),
        Operation::GetRow { key } => rows::get_row(executor, key, reply)?,
        Operation::PutRow { key, ref columns, mode } => {
            let is_stored = rows::put_row(executor, key, columns, mode)?;
            if is_stored { Outcome::Done } else { Outcome::RecordExists }
        }
        Operation::SetIndices { pairs } => rows::set_indices(executor, pairs)?,
        Operation::Search { arguments, is_replayed, .. } => {
            rows::search(executor, arguments, is_replayed, reply)?
        }
        Operation::GenerateUid => {
            let uid = store.generate_uid()?;
            reply.element(uid.to_string().as_bytes());
            Outcome::Done
        }
        Operation::IterBegin { from } => {
            let is_begun = executor.iterators()?.begin(store, from)?;
            if is_begun { Outcome::Done } else { Outcome::NoRecord }
        }
        Operation::IterKey => match executor.iterators()?.next(store)? {
            Some(Place { key, .. }) => {
                reply.element(&key);
                Outcome::Done
            }
            None => Outcome::NoRecord,
        },
        Operation::IterRecord => scans::next_record(executor, reply)?,
        Operation::KeysWithPrefix { prefix, max } => {
            scans::keys_with_prefix(executor, prefix, max, reply)?
        }
        Operation::Match { pattern, max } => scans::matches(executor, pattern, max, reply)?,
        Operation::Range { begin, max, end } => scans::range(executor, begin, max, end, reply)?,
        Operation::Sync => {
            store.sync()?;
            Outcome::Done
        }
        Operation::Retune { tuning } => {
            store.retune(&String::from_utf8_lossy(tuning))?;
            Outcome::Done
        }
        Operation::Clear => {
            store.clear()?;
            Outcome::Done
        }
        Operation::Defragment | Operation::ClearCache => Outcome::Done,
    };
    Ok(outcome)
}

/// Returns the outcome of a lookup.
#[inline]
pub(super) fn if_found(found: Option<()>) -> Outcome {
    found.map_or(Outcome::NoRecord, |()| Outcome::Done)
}
