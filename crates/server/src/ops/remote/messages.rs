//! Requests to a store, and its answers.

use super::{RecordAnswer, RecordRequest, RowRefusal, TableRequest};
use crate::ops::acknowledgement::RefusalReason;
use cabinet::{Meta, Version};
use std::sync::Arc;

/// Most keys of a get that has no more time than one of a single key.
const KEYS_OF_SHORT_GET: usize = 10_000;

/// A request to a store.
#[derive(Debug)]
pub enum StoreRequest {
    /// Reads or changes one record. Answered with [`StoreAnswer::Record`].
    Record(RecordRequest),
    /// Executes requests, each of which changes one record, those on one key in this order.
    /// Answered with [`StoreAnswer::Done`] if all were executed. It fails as unavailable only if
    /// none was.
    Changes(Vec<RecordRequest>),
    /// Reads records. Answered with [`StoreAnswer::Records`].
    GetMany {
        /// The keys; at least one.
        keys: Vec<Vec<u8>>,
        /// Bytes of values after which the answer ends, incomplete.
        bytes_max: usize,
    },
    /// Lists keys in the order of the store. Answered with [`StoreAnswer::Keys`].
    Keys {
        /// Bytes with which the keys begin.
        prefix: Vec<u8>,
        /// Beginning of the list.
        begin: KeysBegin,
        /// Most keys of the answer.
        max: usize,
        /// Bytes of keys after which the answer ends, incomplete.
        bytes_max: usize,
    },
    /// Lists the keys within an interval of ids, none if the text is no
    /// [interval](cabinet::ids::Interval). Answered with [`StoreAnswer::Keys`].
    KeysWithin {
        /// Text of the interval.
        interval: Vec<u8>,
        /// Most keys of the answer.
        max: usize,
        /// Bytes of keys after which the answer ends, incomplete.
        bytes_max: usize,
    },
    /// Reads records in the order of their keys. Answered with [`StoreAnswer::Range`].
    Range {
        /// First key. If keys are ids and this is none, the answer is empty.
        begin: Vec<u8>,
        /// Key before which the answer ends, if it ends before the last one. If keys are ids, one
        /// without digits is no limit.
        end: Option<Vec<u8>>,
        /// Most records of the answer.
        max: usize,
        /// Bytes of keys and values after which the answer ends, incomplete.
        bytes_max: usize,
    },
    /// Searches rows or sets indexes of a table.
    Table(TableRequest),
    /// Counts all records. Answered with [`StoreAnswer::Count`].
    Count,
    /// Removes all records. Answered with [`StoreAnswer::Done`].
    Clear,
}

/// An answer to a request.
#[derive(Debug)]
pub enum StoreAnswer {
    /// See [`Decision::answer`].
    Record(RecordAnswer),
    /// The record under each key, in the order of the keys.
    Records {
        /// The records, those under the first keys if not under all.
        records: Vec<Option<FoundRecord>>,
        /// Whether there is one for each key.
        is_complete: bool,
    },
    /// Nothing was done, since the changed record would have a value over the limit.
    ValueTooLong {
        /// Length of the value, in bytes.
        bytes: usize,
    },
    /// Nothing was done, or less than all of a list or a search, for a reason that another attempt
    /// does not change.
    Refused(RowRefusal),
    /// Elements of a reply, in their order.
    Elements {
        /// The elements.
        elements: Vec<Vec<u8>>,
        /// Whether no element is missing.
        is_complete: bool,
    },
    /// Keys in the order of the store.
    Keys {
        /// The keys.
        keys: Vec<Vec<u8>>,
        /// Whether no key is missing, for whatever reason but the number of keys.
        is_complete: bool,
    },
    /// Keys and records in the order of the keys.
    Range {
        /// The records.
        records: Vec<(Vec<u8>, FoundRecord)>,
        /// Whether no record is missing, for whatever reason but the number of records.
        is_complete: bool,
    },
    /// A number of records.
    Count(u64),
    /// The request is executed.
    Done,
}

/// Beginning of a list of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysBegin {
    /// The first key.
    First,
    /// This key. If there is no record under it, the list begins at the next one in a store that
    /// has an order, and is empty otherwise.
    At(Vec<u8>),
    /// The next key after this one. There may be no record under it any more.
    After(Vec<u8>),
}

/// A record of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRecord {
    /// The value.
    pub value: Arc<Vec<u8>>,
    /// Flags and expiry.
    pub meta: Meta,
    /// Number that the store gave to its last change, above 0. No other change has the same.
    pub version: Version,
}

/// Reason why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// The request has changed nothing, and will not.
    Unavailable,
    /// There is no memory for the answer to a request that changes nothing.
    NoMemory,
    /// The request may have been executed, or may be executed later.
    Unknown,
}

impl StoreRequest {
    /// Returns whether the request changes no record.
    pub fn is_read(&self) -> bool {
        match self {
            Self::Record(request) => request.is_read(),
            Self::GetMany { .. }
            | Self::Keys { .. }
            | Self::KeysWithin { .. }
            | Self::Range { .. }
            | Self::Count => true,
            Self::Table(request) => request.is_read(),
            Self::Changes(_) | Self::Clear => false,
        }
    }

    /// Returns whether the request may change a record, so that it is unknown what was done if its
    /// answer is lost. A read that may claim a stale record is one.
    pub(super) fn may_change(&self) -> bool {
        match self {
            Self::Record(request) => request.may_change(),
            _ => !self.is_read(),
        }
    }

    /// Returns whether the time of the request grows with the number of records.
    pub fn is_long(&self) -> bool {
        match self {
            Self::Record(_) => false,
            Self::GetMany { keys, .. } => keys.len() > KEYS_OF_SHORT_GET,
            Self::Table(request) => request.is_long(),
            Self::Changes(_)
            | Self::Keys { .. }
            | Self::KeysWithin { .. }
            | Self::Range { .. }
            | Self::Count
            | Self::Clear => true,
        }
    }

    /// Returns the memory of the request, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let owned = match self {
            Self::Record(request) => request.bytes(),
            Self::Changes(requests) => {
                let of = |request: &RecordRequest| size_of::<RecordRequest>() + request.bytes();
                // The store sorts them by their keys, of which it makes a copy.
                2 * requests.iter().map(of).sum::<usize>()
            }
            Self::GetMany { keys, .. } => {
                keys.iter().map(|key| key.len() + size_of::<Vec<u8>>()).sum()
            }
            Self::Keys { prefix, begin, .. } => {
                let begin = match begin {
                    KeysBegin::First => 0,
                    KeysBegin::At(key) | KeysBegin::After(key) => key.len(),
                };
                prefix.len() + begin
            }
            Self::KeysWithin { interval, .. } => interval.len(),
            Self::Range { begin, end, .. } => begin.len() + end.as_ref().map_or(0, Vec::len),
            Self::Table(request) => request.bytes(),
            Self::Count | Self::Clear => 0,
        };
        size_of::<Self>() + owned
    }
}

impl StoreAnswer {
    /// Returns whether an event loop should not encode the answer: a list of more bytes.
    pub(crate) fn is_longer(&self, bytes_max: usize) -> bool {
        !matches!(self, Self::Record(_)) && self.bytes() > bytes_max
    }

    /// Returns whether a request that mostly reads has changed a record.
    pub(super) fn has_claimed(&self) -> bool {
        matches!(self, Self::Record(answer) if answer.has_claimed())
    }

    /// Returns the memory of the answer, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let of = |record: &FoundRecord| size_of::<FoundRecord>() + record.value.len();
        match self {
            Self::Record(answer) => answer.found.as_ref().map_or(0, of),
            Self::Records { records, .. } => records.iter().flatten().map(of).sum(),
            Self::Keys { keys, .. } | Self::Elements { elements: keys, .. } => {
                keys.iter().map(|key| size_of::<Vec<u8>>() + key.len()).sum()
            }
            Self::Range { records, .. } => {
                records.iter().map(|(key, record)| key.len() + of(record)).sum()
            }
            Self::Count(_) | Self::Done | Self::ValueTooLong { .. } | Self::Refused(_) => 0,
        }
    }
}

impl From<StoreFailure> for RefusalReason {
    fn from(failure: StoreFailure) -> Self {
        match failure {
            StoreFailure::Unavailable => Self::Unavailable,
            StoreFailure::NoMemory => Self::TooMany,
            StoreFailure::Unknown => Self::Unknown,
        }
    }
}
