//! A store outside of this process, in place of the database: it is sent operations as owned
//! requests, and answers later, from threads of its own.
//!
//! An event loop submits a request and serves other connections. With the answer it executes the
//! client's request again from its first byte: an operation that was answered takes its answer, so
//! none is submitted twice. A worker of the pool waits for each answer.

mod answers;
mod completion;
mod cursor;
mod encode;
mod in_turn;
mod messages;
mod operations;
mod record;
mod rows;
mod waits;

pub(crate) use answers::Answers;
use cabinet::ids::IdLimits;
pub(crate) use completion::Answered;
pub use completion::Completion;
pub(crate) use cursor::{KeyCursor, PAGE_KEY_BYTES, PAGE_KEYS};
pub(crate) use encode::encode;
pub use in_turn::DecidedInTurn;
pub use messages::{FoundRecord, KeysBegin, StoreAnswer, StoreFailure, StoreRequest};
pub(crate) use operations::Comparing;
pub use record::{Decision, RecordAnswer, RecordRequest};
pub use rows::{RowRefusal, TableRequest};
use std::fmt;
pub use waits::LONG_REQUEST_FACTOR;
pub(crate) use waits::Remote;

/// A store that answers from threads of its own.
pub trait RemoteStore: fmt::Debug + Send + Sync {
    /// Returns what the store can do. Operations that need more are refused with an error that
    /// names it.
    fn capabilities(&self) -> Capabilities;

    /// Returns the name of the store, for statistics and the slow log.
    fn name(&self) -> String {
        "store outside".into()
    }

    /// Begins to execute a request, and returns without waiting. The answer goes to `completion`.
    ///
    /// Requests on one key that are submitted one after the other may take effect in any order:
    /// a client's next request is submitted once the one before is answered.
    fn submit(&self, request: StoreRequest, completion: Completion);

    /// Returns the state of the store, for metrics and readiness.
    fn status(&self) -> StoreStatus {
        StoreStatus::default()
    }
}

/// State of a store, and counts since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Reason why clients should not be sent to this server, if there is one.
    pub unready: Option<String>,
    /// Nodes of the store that are known.
    pub nodes: usize,
    /// Nodes to which there is a connection.
    pub nodes_connected: usize,
    /// Statements that were executed.
    pub statements: u64,
    /// Statements that have failed and were not executed.
    pub refused: u64,
    /// Statements that have failed and may have been executed.
    pub unknown: u64,
    /// Changes that another change came before, so that they were decided again.
    pub conflicts: u64,
    /// Changes that were made in one step with another change of the same record.
    pub folded: u64,
}

/// Abilities and limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// It lists keys by their prefix, in pages.
    pub lists_keys: bool,
    /// Its keys are in an order, and it reads the records between two of them.
    pub is_ordered: bool,
    /// It is a fixed-length database: its keys are ids within these limits, in their order, and
    /// longer values are cut. It resolves `min`, `max`, `prev` and `next`, and answers
    /// [`RowRefusal::NoId`] if they mean no id.
    pub ids: Option<IdLimits>,
    /// It is a table: its values are rows as [`cabinet::table::Row::encode`] encodes them, which it
    /// finds by their columns, and it generates identifiers. A row under the empty key is put under
    /// a new identifier. Answers with many records have [`FoundRecord::joined`].
    pub has_rows: bool,
    /// It knows how many records it has.
    pub counts: bool,
    /// It removes all records at once.
    pub clears: bool,
    /// It changes a record depending on what the record is. A store that does not can put records,
    /// and remove them.
    pub changes_conditionally: bool,
    /// Longest key, in bytes.
    pub key_bytes_max: usize,
    /// Longest value, in bytes.
    pub value_bytes_max: usize,
}
