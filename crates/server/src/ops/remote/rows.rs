//! Rows: records of a store that is a table, their columns, and requests on all of them.
//!
//! Such a store keeps rows as [`cabinet::table::Row::encode`] encodes them. Other operations see
//! the columns joined by NUL, as with a table of this process.

use super::record::Wanted;
use super::{Decision, FoundRecord, RecordRequest};
use crate::ops::conditional::{Action, Precondition, bits_of_int};
use crate::ops::execute::Outcome;
use crate::ops::operation::Columns;
use crate::ops::rows::changes_of;
use crate::store::RowMode;
use cabinet::table::outside::replace_joined;
use cabinet::table::{IndexChange, Row, RowView, SearchRequest};
use cabinet::{Change, Error, Meta};
use std::sync::Arc;
use wire::binary::Strings;

/// A request on the rows and indexes of a table.
#[derive(Clone, Debug)]
pub enum TableRequest {
    /// Sets or removes indexes, up to the first that fails. Answered with
    /// [`StoreAnswer::Done`](super::StoreAnswer::Done).
    SetIndexes(Vec<(Vec<u8>, IndexChange)>),
    /// Searches rows. Answered with [`StoreAnswer::Elements`](super::StoreAnswer::Elements).
    Search {
        /// The search.
        request: Box<SearchRequest>,
        /// Bytes of elements after which the answer ends, incomplete.
        bytes_max: usize,
    },
    /// Returns an identifier that no server has generated before. Answered with
    /// [`StoreAnswer::Elements`](super::StoreAnswer::Elements), of which it is the only one.
    GenerateUid,
}

/// Reason why a store of rows or ids refuses a request, of which nothing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowRefusal {
    /// See [`Error::NoId`].
    NoId {
        /// The key, shortened.
        key: String,
        /// The greatest id.
        max: u64,
    },
    /// See [`Error::BadColumn`].
    BadColumn(String),
    /// See [`Error::BadSearch`].
    BadSearch(String),
    /// See [`Error::IndexExists`].
    IndexExists,
    /// See [`Error::NoIndex`].
    NoIndex,
    /// See [`Error::NotANumber`].
    NotANumber {
        /// Length of a number in bytes.
        width: usize,
    },
    /// See [`Error::Unsupported`].
    Unsupported {
        /// The operation.
        operation: &'static str,
        /// Name of that which lacks it.
        kind: &'static str,
        /// Advice on what to do instead.
        advice: &'static str,
    },
    /// See [`Error::InvalidArgument`].
    InvalidArgument(String),
}

impl From<Error> for RowRefusal {
    fn from(error: Error) -> Self {
        match error {
            Error::NoId { key, max } => Self::NoId { key, max },
            Error::BadColumn(reason) => Self::BadColumn(reason),
            Error::BadSearch(reason) => Self::BadSearch(reason),
            Error::IndexExists => Self::IndexExists,
            Error::NoIndex => Self::NoIndex,
            Error::NotANumber { width } => Self::NotANumber { width },
            Error::Unsupported { operation, kind, advice } => {
                Self::Unsupported { operation, kind, advice }
            }
            Error::InvalidArgument(reason) => Self::InvalidArgument(reason),
            error => Self::InvalidArgument(error.to_string()),
        }
    }
}

impl From<RowRefusal> for Error {
    fn from(refusal: RowRefusal) -> Self {
        match refusal {
            RowRefusal::NoId { key, max } => Self::NoId { key, max },
            RowRefusal::BadColumn(reason) => Self::BadColumn(reason),
            RowRefusal::BadSearch(reason) => Self::BadSearch(reason),
            RowRefusal::IndexExists => Self::IndexExists,
            RowRefusal::NoIndex => Self::NoIndex,
            RowRefusal::NotANumber { width } => Self::NotANumber { width },
            RowRefusal::Unsupported { operation, kind, advice } => {
                Self::Unsupported { operation, kind, advice }
            }
            RowRefusal::InvalidArgument(reason) => Self::InvalidArgument(reason),
        }
    }
}

impl TableRequest {
    /// Returns whether the request changes no row and no index.
    pub(super) fn is_read(&self) -> bool {
        match self {
            Self::SetIndexes(_) | Self::GenerateUid => false,
            Self::Search { request, .. } => !request.out,
        }
    }

    /// Returns whether the time of the request grows with the number of rows.
    pub(super) fn is_long(&self) -> bool {
        !matches!(self, Self::GenerateUid)
    }

    /// Returns the memory of the request beside its own, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::SetIndexes(changes) => changes
                .iter()
                .map(|(column, _)| size_of::<(Vec<u8>, IndexChange)>() + column.len())
                .sum(),
            Self::Search { request, .. } => {
                let conditions = request.queries.iter().flat_map(|query| &query.conditions);
                let of = |condition: &cabinet::table::Condition| {
                    // Tokens of the operand are taken apart.
                    size_of_val(condition) + condition.column.len() + 16 * condition.operand.len()
                };
                let columns = request.columns.iter().flatten();
                conditions.map(of).sum::<usize>()
                    + columns.map(|column| size_of_val(column) + column.len()).sum::<usize>()
                    + size_of_val(&request.queries[..])
            }
            Self::GenerateUid => 0,
        }
    }

    /// Returns the request that sets or removes indexes. Fails if a kind is invalid.
    pub(super) fn set_indexes(pairs: Strings<'_>) -> Result<Self, Error> {
        let changes = changes_of(pairs)?;
        let own = |(column, _, change): (&[u8], &[u8], IndexChange)| (column.to_vec(), change);
        Ok(Self::SetIndexes(changes.into_iter().map(own).collect()))
    }
}

/// Owned operation on one row, of those that only tables have.
#[derive(Debug)]
pub(super) enum WantedRow {
    /// Returns the row as it is stored.
    Get,
    Put(Row, RowMode),
}

impl WantedRow {
    /// Returns the operation that stores a row. Fails if the columns are none.
    pub(super) fn put(columns: &Columns<'_>, mode: RowMode) -> Result<Self, Error> {
        Ok(Self::Put(Row::from_parts(columns.clone())?, mode))
    }

    /// Returns the length of the value, in bytes.
    pub(super) fn value_bytes(&self) -> usize {
        match self {
            Self::Put(row, _) => row.columns().map(|(name, value)| name.len() + value.len()).sum(),
            Self::Get => 0,
        }
    }
}

/// Returns what is to be done with a row, which is given as it is stored.
pub(super) fn decide(request: &RecordRequest, found: Option<&FoundRecord>) -> Decision {
    let old = found.map(|found| RowView::new(&found.value));
    let mut decision = match &request.wanted {
        Wanted::Row(wanted) => return decide_row(request, wanted, found),
        Wanted::Write {
            action:
                Action::Extend { part, is_front: false, create: Some(Meta::NONE), unmarks: false },
            precondition: Precondition::None,
            conditions: None,
            ..
        } => {
            let merged = Row::from_joined(part).and_then(|added| merge(old, &added));
            let mut decision = request.decide_value(None);
            decision.set_row(request, merged);
            return decision;
        }
        Wanted::Write { action: Action::AddInt(addend), .. } => {
            return add(request, old, f64::from(*addend), |sum| bits_of_int(sum as i32));
        }
        Wanted::Write { action: Action::AddDouble(addend), .. } if !addend.is_nan() => {
            return add(request, old, *addend, f64::to_bits);
        }
        _ => request.decide_value(found.map(FoundRecord::joined).as_ref()),
    };
    if let Change::Put(value, _) = &decision.change {
        let row = replace_joined(old, value).and_then(|row| row.encode());
        decision.set_row(request, row);
    }
    decision
}

/// Returns the decision to add to the number of a row. `bits` are those of the sum in the answer.
fn add(
    request: &RecordRequest,
    old: Option<RowView<'_>>,
    addend: f64,
    bits: impl FnOnce(f64) -> u64,
) -> Decision {
    let mut decision = request.no_decision();
    let mut row = old.map(|old| old.to_row()).unwrap_or_default();
    let added = row.add_number(addend).and_then(|sum| {
        decision.answer.written.number = bits(sum);
        row.encode()
    });
    decision.set_row(request, added);
    decision
}

fn merge(old: Option<RowView<'_>>, added: &Row) -> Result<Vec<u8>, Error> {
    let mut whole = old.map(|old| old.to_row()).unwrap_or_default();
    whole.add_missing(added);
    whole.encode()
}

fn decide_row(
    request: &RecordRequest,
    wanted: &WantedRow,
    found: Option<&FoundRecord>,
) -> Decision {
    let old = found.map(|found| RowView::new(&found.value));
    let mut decision = request.no_decision();
    let row = match wanted {
        WantedRow::Get => {
            decision.answer.found = found.cloned();
            decision.answer.outcome =
                if found.is_some() { Outcome::Done } else { Outcome::NoRecord };
            return decision;
        }
        WantedRow::Put(_, RowMode::Keep) if old.is_some() => {
            decision.answer.outcome = Outcome::RecordExists;
            return decision;
        }
        WantedRow::Put(row, RowMode::Replace | RowMode::Keep) => row.encode(),
        WantedRow::Put(row, RowMode::Merge) => merge(old, row),
    };
    decision.set_row(request, row);
    decision
}

impl FoundRecord {
    /// Returns the record whose value is the joined columns of this row.
    pub fn joined(&self) -> Self {
        let value = RowView::new(&self.value).to_joined();
        Self { value: Arc::new(value), meta: Meta::NONE, version: self.version }
    }
}

impl Decision {
    /// Stores a row, unless there is none for the reason given, or it is too long.
    fn set_row(&mut self, request: &RecordRequest, row: Result<Vec<u8>, Error>) {
        self.change = Change::Keep;
        match row {
            Ok(row) if row.len() > request.value_bytes_max => self.too_long = Some(row.len()),
            Ok(row) => self.change = Change::Put(row, Meta::NONE),
            Err(error) => self.refusal = Some(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::cas_numbers::CasNumbers;
    use crate::ops::entity_tag::EntityTags;
    use crate::ops::remote::StoreAnswer;

    const VALUE_BYTES_MAX: usize = 100;

    fn request(wanted: Wanted) -> RecordRequest {
        RecordRequest {
            key: b"k".to_vec(),
            wanted,
            numbers: Arc::<CasNumbers>::default(),
            tags: EntityTags::new(None),
            value_bytes_max: VALUE_BYTES_MAX,
            has_rows: true,
            ids: None,
        }
    }

    fn row(joined: &[u8]) -> Row {
        Row::from_joined(joined).unwrap()
    }

    /// Returns the row that a request makes of a row.
    fn changed(wanted: Wanted, old: Option<&Row>) -> Result<Option<Row>, StoreAnswer> {
        let stored = old.map(|old| old.encode().unwrap());
        let found = stored.map(|value| FoundRecord {
            value: Arc::new(value),
            meta: Meta::NONE,
            version: 1,
        });
        let decision = request(wanted).decide(found.as_ref());
        match &decision.change {
            Change::Put(value, meta) => {
                assert_eq!(*meta, Meta::NONE);
                Ok(Some(RowView::new(value).to_row()))
            }
            Change::Remove => Ok(None),
            Change::Keep => Err(decision.answer(0)),
        }
    }

    fn write(action: Action<Vec<u8>>) -> Wanted {
        Wanted::Write { action, precondition: Precondition::None, conditions: None, assign: None }
    }

    fn append(part: &[u8], create: Option<Meta>) -> Wanted {
        write(Action::Extend { part: part.to_vec(), is_front: false, create, unmarks: false })
    }

    #[test]
    fn a_row_is_put_kept_merged_and_counted_as_in_a_table() {
        let old = row(b"a\x001");
        let put = |joined: &[u8], mode| Wanted::Row(WantedRow::Put(row(joined), mode));
        assert_eq!(
            changed(put(b"b\x002", RowMode::Replace), Some(&old)).unwrap(),
            Some(row(b"b\x002"))
        );
        assert_eq!(changed(put(b"b\x002", RowMode::Keep), None).unwrap(), Some(row(b"b\x002")));
        assert!(changed(put(b"b\x002", RowMode::Keep), Some(&old)).is_err());
        let merged = Some(row(b"a\x001\0b\x002"));
        assert_eq!(changed(put(b"a\x009\0b\x002", RowMode::Merge), Some(&old)).unwrap(), merged);
        assert_eq!(
            changed(append(b"a\x009\0b\x002", Some(Meta::NONE)), Some(&old)).unwrap(),
            merged
        );
        let counted = changed(write(Action::AddDouble(1.5)), Some(&row(b"_num\x002"))).unwrap();
        assert_eq!(counted, Some(row(b"_num\x003.5")));
        assert_eq!(changed(write(Action::Remove), Some(&old)).unwrap(), None);
    }

    #[test]
    fn a_value_that_is_no_row_is_refused() {
        let old = Row::new().with(b"a", b"x\0y").unwrap();
        for wanted in [
            append(b"only", Some(Meta::NONE)),
            write(Action::put(
                crate::ops::conditional::Presence::Any,
                b"only".to_vec(),
                Meta::NONE,
            )),
            // The ends of columns with NUL are lost.
            append(b"z", None),
        ] {
            let refused = changed(wanted, Some(&old));
            let is_refused = matches!(refused, Err(StoreAnswer::Refused(RowRefusal::BadColumn(_))));
            assert!(is_refused, "{refused:?}");
        }
        let refused =
            changed(write(Action::AddDouble(f64::NEG_INFINITY)), Some(&row(b"_num\0inf")));
        assert!(matches!(refused, Err(StoreAnswer::Refused(RowRefusal::NotANumber { width: 8 }))));
    }

    #[test]
    fn rows_have_at_most_the_longest_value() {
        for length in [VALUE_BYTES_MAX - 4, VALUE_BYTES_MAX - 3, VALUE_BYTES_MAX - 2] {
            let long = Row::new().with(b"c", &vec![b'x'; length]).unwrap();
            let is_too_long = long.encode().unwrap().len() > VALUE_BYTES_MAX;
            let put = Wanted::Row(WantedRow::Put(long.clone(), RowMode::Replace));
            match changed(put, None) {
                Ok(stored) => assert_eq!((stored, is_too_long), (Some(long), false)),
                Err(StoreAnswer::ValueTooLong { .. }) => assert!(is_too_long),
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}
