//! Writes of one record under a precondition: one value and one function for all protocols.
//!
//! A write that depends on nothing in the record calls the store's own method. Every other write is
//! decided under the record's lock.

use crate::ops::budget::{Budget, Charge};
use crate::ops::cas_numbers::CasNumbers;
use crate::ops::decode::{Sender, row_to_store};
use crate::ops::entity_tag::EntityTags;
use crate::ops::execute::{Number, Outcome, Reply};
use crate::ops::expiry::{Marks, marked, marks, unmarked};
use crate::ops::long::LONG_BYTES_MIN;
use crate::ops::number::{Arithmetic, Sum};
use crate::store::{Store, is_success_of_add_int};
use cabinet::{Change, Meta, RecordRef, Result, Version};
use std::sync::Arc;
use wire::binary::{Request, double_to_parts};
use wire::http::Conditions;

/// A write of one record under a precondition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) action: Action<&'a [u8]>,
    pub(crate) precondition: Precondition<'a>,
    /// CAS number that the record gets, in place of its version.
    pub(crate) assign: Option<u64>,
}

/// The change of a record, with its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action<B> {
    Put {
        value: B,
        meta: Meta,
        presence: Presence,
        /// Whether a value for an older CAS number is stored too, as a stale one.
        takes_stale: bool,
    },
    /// Adds to the end or the front of the value.
    Extend {
        part: B,
        is_front: bool,
        /// Flags and expiry of the record that is made if there is none.
        create: Option<Meta>,
        /// Whether the record loses the marks of the meta commands.
        unmarks: bool,
    },
    Count(Counting),
    /// Adds to the end of the value, and keeps the last `width` bytes.
    Shift {
        part: B,
        width: usize,
        /// Whether another server has logged it for a row: what is not a column is left out.
        is_logged_row: bool,
    },
    /// Adds to a binary integer.
    AddInt(i32),
    /// Adds to a binary fixed-point number. Fails if the addend is not a number.
    AddDouble(f64),
    /// Marks the record as stale, with another expiry if there is one here.
    Invalidate {
        expires_at_ms: Option<u64>,
    },
    Remove,
}

/// Whether a record must be there for a value to be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Any,
    Absent,
    Present,
}

/// Arithmetic on a number in decimal text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counting {
    pub(crate) arithmetic: Arithmetic,
    /// Number and expiry of the record that is made if there is none.
    pub(crate) create: Option<(u64, u64)>,
    /// Expiry that a present record gets.
    pub(crate) expires_at_ms: Option<u64>,
}

/// A condition on the record before the write. An absent record has no number and no version: it
/// meets a condition on these.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Precondition<'a> {
    None,
    CasNumber(u64),
    Version(Version),
    EntityTags(&'a Conditions<'a>),
}

/// The record that was written. All is 0 if none was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) version: Version,
    /// Length of the whole value.
    pub(crate) value_bytes: usize,
    /// The number, after arithmetic; of [`Action::AddInt`] and [`Action::AddDouble`] its bits.
    pub(crate) number: u64,
    /// Expiry before arithmetic, 0 of a new record.
    pub(crate) old_expires_at_ms: u64,
    /// Whether arithmetic made the record.
    pub(crate) is_new: bool,
    /// Whether arithmetic left everything but the value as it was, see [`Sum`].
    pub(crate) is_in_place: bool,
}

/// Executes writes, with what they depend on.
#[derive(Clone, Copy)]
pub(super) struct Writer<'a> {
    pub(super) store: &'a Store,
    pub(super) comparison: Comparison<'a>,
}

/// Decides writes by the record before the write.
#[derive(Clone, Copy)]
pub(super) struct Comparison<'a> {
    pub(super) cas_numbers: &'a CasNumbers,
    pub(super) entity_tags: EntityTags,
}

impl Reply for Written {
    fn wants_written(&self) -> bool {
        true
    }

    fn written(&mut self, written: &Written) {
        *self = *written;
    }
}

impl<'a> Write<'a> {
    /// Returns a write without a precondition.
    #[inline(always)]
    pub(crate) fn new(key: &'a [u8], action: Action<&'a [u8]>) -> Self {
        Self { key, action, precondition: Precondition::None, assign: None }
    }

    /// Returns the write that stores a value without flags and expiry.
    #[inline(always)]
    pub(crate) fn put(key: &'a [u8], value: &'a [u8], presence: Presence) -> Self {
        Self::new(key, Action::put(presence, value, Meta::NONE))
    }

    /// Returns the write that adds to the end of a value, or stores it.
    #[inline(always)]
    pub(crate) fn append(key: &'a [u8], part: &'a [u8]) -> Self {
        let create = Some(Meta::NONE);
        Self::new(key, Action::Extend { part, is_front: false, create, unmarks: false })
    }

    /// Returns the request of the binary protocol that makes the same change, if there is one. To
    /// a row, an append in that protocol adds columns.
    fn as_request(&self, has_rows: bool) -> Option<Request<'a>> {
        let Self { key, action, .. } = *self;
        if !matches!(self.precondition, Precondition::None) {
            return None;
        }
        match action {
            Action::Put { value, presence: Presence::Absent, .. } => {
                Some(Request::PutKeep { key, value })
            }
            Action::Extend { part, is_front: false, create, unmarks: false }
                if !has_rows && create.is_none_or(|meta| meta == Meta::NONE) =>
            {
                Some(Request::PutCat { key, value: part })
            }
            Action::Shift { part, width, .. } => {
                let width = u32::try_from(width).unwrap_or(u32::MAX).min(i32::MAX as u32);
                Some(Request::PutShift { key, value: part, width })
            }
            Action::AddInt(addend) => Some(Request::AddInt { key, addend }),
            Action::AddDouble(addend) => {
                let (integral, fractional) = double_to_parts(addend);
                Some(Request::AddDouble { key, integral, fractional })
            }
            _ => None,
        }
    }

    /// Returns the success with which the request that makes the same change is logged, or `None`
    /// if it is not.
    fn is_logged_as_success(&self, (outcome, number): (Outcome, u64)) -> Option<bool> {
        match self.action {
            Action::AddInt(_) => Some(is_success_of_add_int(number as i32)),
            Action::Put { .. } => Some(outcome == Outcome::Done),
            _ => (outcome == Outcome::Done).then_some(true),
        }
    }

    /// Charges the budget for the database's copy of a long value; `None` if there is no room.
    pub(crate) fn charge(&self, budget: &Arc<Budget>) -> Option<Charge> {
        let copied = match (self.precondition, self.action) {
            (Precondition::None, Action::Put { presence: Presence::Any, .. }) => b"",
            (_, action) => action.bytes().copied().unwrap_or_default(),
        };
        let mut charge = Charge::none(budget);
        (copied.len() < LONG_BYTES_MIN || charge.set(copied.len())).then_some(charge)
    }
}

impl<B> Action<B> {
    /// Returns the action that stores a client's value.
    #[inline(always)]
    pub(crate) fn put(presence: Presence, value: B, meta: Meta) -> Self {
        Self::Put { value, meta, presence, takes_stale: false }
    }

    /// Returns the bytes of the action.
    pub(crate) fn bytes(&self) -> Option<&B> {
        match self {
            Self::Put { value: bytes, .. }
            | Self::Extend { part: bytes, .. }
            | Self::Shift { part: bytes, .. } => Some(bytes),
            Self::Count(_)
            | Self::AddInt(_)
            | Self::AddDouble(_)
            | Self::Invalidate { .. }
            | Self::Remove => None,
        }
    }

    /// Returns the same action with its bytes in another form.
    pub(crate) fn map<'b, C>(&'b self, map: impl FnOnce(&'b B) -> C) -> Action<C> {
        match self {
            Self::Put { value, meta, presence, takes_stale } => Action::Put {
                value: map(value),
                meta: *meta,
                presence: *presence,
                takes_stale: *takes_stale,
            },
            Self::Extend { part, is_front, create, unmarks } => Action::Extend {
                part: map(part),
                is_front: *is_front,
                create: *create,
                unmarks: *unmarks,
            },
            Self::Count(counting) => Action::Count(*counting),
            Self::Shift { part, width, is_logged_row } => {
                Action::Shift { part: map(part), width: *width, is_logged_row: *is_logged_row }
            }
            Self::AddInt(addend) => Action::AddInt(*addend),
            Self::AddDouble(addend) => Action::AddDouble(*addend),
            Self::Invalidate { expires_at_ms } => {
                Action::Invalidate { expires_at_ms: *expires_at_ms }
            }
            Self::Remove => Action::Remove,
        }
    }

    /// Returns whether the action adds what is not a number. Tokyo Tyrant's only sign of failure is
    /// a sum that is not a number, so that this is told apart from a record that is none.
    pub(super) fn adds_no_number(&self) -> bool {
        matches!(self, Self::AddDouble(addend) if addend.is_nan())
    }

    /// Returns whether the action adds to a number, which the reply has.
    pub(crate) fn is_arithmetic(&self) -> bool {
        matches!(self, Self::Count(_) | Self::AddInt(_) | Self::AddDouble(_))
    }

    /// Returns the sum of a binary number, which the reply has.
    pub(super) fn sum(&self, written: &Written) -> Option<Number> {
        match self {
            Self::AddInt(_) => Some(Number::Sum(written.number as i32)),
            Self::AddDouble(_) => Some(Number::DoubleSum(f64::from_bits(written.number))),
            _ => None,
        }
    }
}

impl<'a> From<&'a Conditions<'a>> for Precondition<'a> {
    fn from(conditions: &'a Conditions<'a>) -> Self {
        if conditions.is_empty() { Self::None } else { Self::EntityTags(conditions) }
    }
}

impl Writer<'_> {
    /// Executes a write, and fills in `written`. With `written` the store's quickest methods cannot
    /// be used.
    #[inline(always)]
    pub(super) fn write(self, write: &Write<'_>, written: Option<&mut Written>) -> Result<Outcome> {
        match write.assign {
            None => self.execute(write, written),
            Some(number) => self.assign(write, number, written),
        }
    }

    /// Executes a write, and sets the CAS number of the record that was put.
    #[cold]
    fn assign(
        self,
        write: &Write<'_>,
        number: u64,
        written: Option<&mut Written>,
    ) -> Result<Outcome> {
        let mut own = Written::default();
        let written = written.unwrap_or(&mut own);
        let outcome = self.execute(write, Some(written))?;
        if written.version != 0 {
            self.comparison.cas_numbers.set(written.version, number);
        }
        Ok(outcome)
    }

    #[inline(always)]
    fn execute(self, write: &Write<'_>, written: Option<&mut Written>) -> Result<Outcome> {
        let store = self.store;
        let Write { key, action, precondition, .. } = *write;
        match (precondition, action) {
            (
                Precondition::None,
                Action::Put { value, meta, presence: Presence::Any, takes_stale: _ },
            ) => {
                let version = store.put_with(key, value, meta)?;
                if let Some(written) = written {
                    *written = Written { version, value_bytes: value.len(), ..Written::default() };
                }
                Ok(Outcome::Done)
            }
            (Precondition::None, Action::Remove) => {
                Ok(if store.remove(key)? { Outcome::Done } else { Outcome::NoRecord })
            }
            _ if action.adds_no_number() => Ok(Outcome::NotNumeric),
            _ if store.has_rows() => self.change_row(write, written),
            _ => self.change(write, written),
        }
    }

    /// Changes a row. Some writes are about its columns.
    #[cold]
    fn change_row(self, write: &Write<'_>, written: Option<&mut Written>) -> Result<Outcome> {
        let store = self.store;
        let changes_columns = !matches!(write.action, Action::Put { .. } | Action::Remove);
        if changes_columns {
            store.check_columns_change()?;
        }
        let number = match (write.precondition, write.action) {
            (
                Precondition::None,
                Action::Extend { part, is_front: false, create: Some(Meta::NONE), unmarks: false },
            ) => {
                store.add_columns(write.key, part)?;
                return Ok(Outcome::Done);
            }
            (_, Action::AddInt(addend)) => bits_of_int(store.add_int_to_row(write.key, addend)?),
            (_, Action::AddDouble(addend)) => store.add_double_to_row(write.key, addend)?.to_bits(),
            _ => return self.change(write, written),
        };
        if let Some(written) = written {
            written.number = number;
        }
        Ok(Outcome::Done)
    }

    /// Decides a write under the record's lock.
    #[inline(never)]
    fn change(self, write: &Write<'_>, written: Option<&mut Written>) -> Result<Outcome> {
        let mut own = Written::default();
        let written = written.unwrap_or(&mut own);
        let request = || write.as_request(self.store.has_rows());
        let succeeded = |decided: &(Outcome, u64)| write.is_logged_as_success(*decided);
        let decide = |entry: Option<RecordRef<'_>>| {
            let (change, outcome) = self.comparison.decide(write, entry, written)?;
            Ok((change, (outcome, written.number)))
        };
        let ((outcome, _), version) = self.store.change(write.key, request, succeeded, decide)?;
        written.version = version;
        Ok(outcome)
    }
}

impl Comparison<'_> {
    /// Returns the change of a record, and the outcome. Fills in all of `written` but the version.
    /// Fails if the value is not a number and is added to, or becomes too long.
    pub(super) fn decide(
        self,
        write: &Write<'_>,
        entry: Option<RecordRef<'_>>,
        written: &mut Written,
    ) -> Result<(Change, Outcome)> {
        let keep = |outcome| Ok((Change::Keep, outcome));
        if write.action.adds_no_number() {
            return keep(Outcome::NotNumeric);
        }
        let mut put = |value: Vec<u8>, meta| {
            written.value_bytes = value.len();
            Ok((Change::Put(value, meta), Outcome::Done))
        };
        if !self.is_met(write, entry.as_ref()) {
            return match (write.action, write.precondition, entry) {
                (
                    Action::Put { value, meta, takes_stale: true, .. },
                    Precondition::CasNumber(number),
                    Some(entry),
                ) if number != 0 && number < self.cas_numbers.number(entry.version) => {
                    put(value.to_vec(), stale(entry.meta, meta))
                }
                (.., Some(_)) => keep(Outcome::Unmet),
                (.., None) => keep(Outcome::UnmetByAbsence),
            };
        }
        match (write.action, entry) {
            (Action::Put { presence: Presence::Absent, .. }, Some(_)) => {
                keep(Outcome::RecordExists)
            }
            (Action::Put { presence: Presence::Present, .. }, None) => keep(Outcome::NoRecord),
            (Action::Put { value, meta, .. }, _) => put(value.to_vec(), meta),
            (Action::Extend { part, create: Some(meta), .. }, None) => put(part.to_vec(), meta),
            (Action::Extend { part, is_front, unmarks, .. }, Some(entry)) => {
                let mut change = Change::extend(&entry, part, is_front)?;
                if let Change::Put(value, meta) = &mut change {
                    written.value_bytes = value.len();
                    if unmarks {
                        meta.expires_at_ms = unmarked(meta.expires_at_ms);
                    }
                }
                Ok((change, Outcome::Done))
            }
            (Action::Shift { part, width, is_logged_row }, entry) => {
                let mut change = Change::shift(entry.as_ref(), part, width)?;
                if let (Change::Put(value, _), true) = (&mut change, is_logged_row) {
                    value.truncate(row_to_store(value, Sender::Log).len());
                }
                Ok((change, Outcome::Done))
            }
            (Action::Count(counting), entry) => Ok(count(counting, entry, written)),
            (Action::AddInt(addend), entry) => {
                let (change, sum) = Change::add_int(entry.as_ref(), addend)?;
                written.number = bits_of_int(sum);
                Ok((change, Outcome::Done))
            }
            (Action::AddDouble(addend), entry) => {
                let (change, sum) = Change::add_double(entry.as_ref(), addend)?;
                written.number = sum.to_bits();
                Ok((change, Outcome::Done))
            }
            (Action::Invalidate { expires_at_ms }, Some(RecordRef { value, meta, .. })) => {
                let marks = Marks { is_stale: true, is_won: false, ..marks(meta.expires_at_ms) };
                let expires_at_ms = marked(expires_at_ms.unwrap_or(meta.expires_at_ms), marks);
                put(value.to_vec(), Meta { expires_at_ms, ..meta })
            }
            (Action::Remove, Some(_)) => Ok((Change::Remove, Outcome::Done)),
            (_, None) => keep(Outcome::NoRecord),
        }
    }

    /// Returns whether the precondition is met.
    fn is_met(self, write: &Write<'_>, entry: Option<&RecordRef<'_>>) -> bool {
        match write.precondition {
            Precondition::None => true,
            Precondition::CasNumber(number) => entry.is_none_or(|entry| {
                // memcached finds that an empty value is no number before it compares.
                let is_empty = entry.value.is_empty() && matches!(write.action, Action::Count(_));
                is_empty || self.cas_numbers.matches(entry.version, number)
            }),
            Precondition::Version(version) => entry.is_none_or(|entry| entry.version == version),
            Precondition::EntityTags(conditions) => {
                let tag = entry.map(|entry| self.entity_tags.of(entry.version));
                conditions.check(tag.as_deref()).is_ok()
            }
        }
    }
}

/// Returns the sum of an integer as the number of what was written.
pub(super) fn bits_of_int(sum: i32) -> u64 {
    u64::from(sum.cast_unsigned())
}

/// Returns flags and expiry of a value that comes too late. The record keeps its expiry, and the
/// right of a client to renew it.
fn stale(old: Meta, new: Meta) -> Meta {
    let is_won = marks(old.expires_at_ms).is_won;
    let is_base64 = marks(new.expires_at_ms).is_base64;
    let marks = Marks { is_stale: true, is_won, is_base64 };
    Meta { expires_at_ms: marked(old.expires_at_ms, marks), ..new }
}

/// Returns the change of a number, and the outcome.
fn count(
    counting: Counting,
    entry: Option<RecordRef<'_>>,
    written: &mut Written,
) -> (Change, Outcome) {
    let Some(entry) = entry else {
        let Some((number, expires_at_ms)) = counting.create else {
            return (Change::Keep, Outcome::NoRecord);
        };
        *written = Written { number, is_new: true, ..Written::default() };
        let meta = Meta { flags: 0, expires_at_ms };
        return (Change::Put(number.to_string().into_bytes(), meta), Outcome::Done);
    };
    let Some(Sum { number, text, is_in_place }) = counting.arithmetic.apply(entry.value) else {
        return (Change::Keep, Outcome::NotNumeric);
    };
    let old = entry.meta.expires_at_ms;
    let old = if is_in_place { old } else { unmarked(old) };
    *written = Written { number, old_expires_at_ms: old, is_in_place, ..Written::default() };
    let expires_at_ms = counting.expires_at_ms.map_or(old, |new| marked(new, marks(old)));
    (Change::Put(text, Meta { expires_at_ms, ..entry.meta }), Outcome::Done)
}
