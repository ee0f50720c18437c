//! A store outside of this process, in place of the database: it is sent operations as owned
//! requests, and answers later, from threads of its own.
//!
//! An event loop submits a request and serves other connections. With the answer it executes the
//! client's request again from its first byte: an operation that was answered takes its answer, so
//! none is submitted twice. A worker of the pool waits for each answer.

use super::cas_numbers::CasNumbers;
use super::conditional::{Action, Comparison, Precondition, Presence, Write, Written};
use super::entity_tag::EntityTags;
use super::execute::{Number, Outcome, Reply, ReplyLimit, TooLong, part_of};
use super::media_types;
use super::operation::Operation;
use super::served::Served;
use super::touch::{Touch, Touched};
use crate::ops::acknowledgement::RefusalReason;
use crate::ops::budget::{Budget, Charge};
use cabinet::{Change, Entry, Error, Meta, Version};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use wire::http::Conditions;

/// Time after which a worker that waits for an answer looks whether the server stops.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Longest wait for a request that [is long](StoreRequest::is_long), as a multiple of that for
/// others.
pub const LONG_REQUEST_FACTOR: u32 = 12;

/// A store that answers from threads of its own.
pub trait RemoteStore: fmt::Debug + Send + Sync {
    /// Returns what the store can do. Operations that need more are refused with an error that
    /// names it.
    fn capabilities(&self) -> Capabilities;

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
    /// Its keys are in the order of their bytes, and it reads the records between two of them.
    pub is_ordered: bool,
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

/// A request to a store.
#[derive(Debug)]
pub enum StoreRequest {
    /// Reads or changes one record. Answered with [`StoreAnswer::Record`].
    Record(RecordRequest),
    /// Reads records. Answered with [`StoreAnswer::Records`].
    GetMany {
        /// The keys; at least one.
        keys: Vec<Vec<u8>>,
    },
    /// Lists keys in the order of the store. Answered with [`StoreAnswer::Keys`].
    Keys {
        /// Bytes with which the keys begin.
        prefix: Vec<u8>,
        /// Key after which the list begins, if it does not begin at the first one. There may be no
        /// record under it any more.
        after: Option<Vec<u8>>,
        /// Most keys of the answer.
        max: usize,
        /// Bytes of keys after which the answer ends, incomplete.
        bytes_max: usize,
    },
    /// Reads records in the order of their keys. Answered with [`StoreAnswer::Range`].
    Range {
        /// First key.
        begin: Vec<u8>,
        /// Key before which the answer ends, if it ends before the last one.
        end: Option<Vec<u8>>,
        /// Most records of the answer.
        max: usize,
        /// Bytes of keys and values after which the answer ends, incomplete.
        bytes_max: usize,
    },
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
    Records(Vec<Option<FoundRecord>>),
    /// Nothing was done, since the changed record would have a value over the limit.
    ValueTooLong {
        /// Length of the value, in bytes.
        bytes: usize,
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

/// A record of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRecord {
    /// The value.
    pub value: Vec<u8>,
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
    /// The request may have been executed, or may be executed later.
    Unknown,
}

/// An answer, or the reason why a client gets none.
pub(crate) type Answered = Result<StoreAnswer, RefusalReason>;

/// Takes the answer to a request. If it is dropped without one, the client gets an error.
pub struct Completion {
    deliver: Option<Box<dyn FnOnce(Answered) + Send>>,
    if_dropped: StoreFailure,
    /// Memory of the request, and its place among those in flight.
    held: Option<(Charge, InFlight)>,
}

impl Completion {
    /// Passes on the answer. May be called by any thread, also before `submit` has returned.
    pub fn complete(mut self, answer: Result<StoreAnswer, StoreFailure>) {
        self.deliver(answer);
    }

    fn deliver(&mut self, answer: Result<StoreAnswer, StoreFailure>) {
        // The client may send its next request as soon as it has the reply.
        self.held = None;
        if let Some(deliver) = self.deliver.take() {
            deliver(answer.map_err(RefusalReason::from));
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.deliver(Err(self.if_dropped));
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Completion").finish_non_exhaustive()
    }
}

/// A request on one record.
///
/// A store reads the record, calls [`RecordRequest::decide`], and makes the change if the record
/// has not changed since; otherwise it begins again.
#[derive(Debug)]
pub struct RecordRequest {
    key: Vec<u8>,
    wanted: Wanted,
    numbers: Arc<CasNumbers>,
    tags: EntityTags,
    value_bytes_max: usize,
}

/// Owned operation on one record.
#[derive(Debug)]
enum Wanted {
    Read,
    Touch(Touch),
    Write {
        action: Action<Vec<u8>>,
        precondition: Precondition<'static>,
        conditions: Option<Conditions<'static>>,
        assign: Option<u64>,
    },
    AddInt(i32),
}

/// Change of a record, and the answer once the change is made.
#[derive(Debug)]
pub struct Decision {
    /// Change to make.
    pub change: Change,
    answer: RecordAnswer,
    /// CAS number that the changed record keeps or gets, 0 if it is the version.
    number: u64,
    numbers: Arc<CasNumbers>,
    /// Length of the value that is too long, in bytes.
    too_long: Option<usize>,
}

/// Answer to a request on one record.
#[derive(Debug)]
pub struct RecordAnswer {
    outcome: Outcome,
    /// The record before the change.
    found: Option<FoundRecord>,
    touched: Option<Touched>,
    written: Written,
}

impl RecordRequest {
    /// Returns the key of the record.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns whether the request changes no record. One that was claimed may have become stale,
    /// and is then changed nevertheless.
    pub fn is_read(&self) -> bool {
        match &self.wanted {
            Wanted::Read => true,
            Wanted::Touch(touch) => touch.is_read(),
            Wanted::Write { .. } | Wanted::AddInt(_) => false,
        }
    }

    /// Returns what is to be done, if that is the same for each record and for none.
    pub fn decide_unread(&self) -> Option<Decision> {
        self.wanted.is_put().then(|| self.decide(None))
    }

    /// Returns what is to be done with the record, given as it is now. `None` stands for no record.
    pub fn decide(&self, record: Option<Entry<'_>>) -> Decision {
        let mut written = Written::default();
        let mut touched = None;
        let mut number = 0;
        let found_or = |outcome| if record.is_some() { Outcome::Done } else { outcome };
        let mut outcome = found_or(Outcome::NoRecord);
        let mut change = Change::Keep;
        match &self.wanted {
            Wanted::Read => {}
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
                (change, outcome) = comparison.decide(&write, record, &mut written);
                number = assign.unwrap_or(0);
            }
            Wanted::AddInt(addend) => {
                let present = record.map_or(Some([0; 4]), |record| record.value.try_into().ok());
                outcome = Outcome::RecordExists;
                if let Some(present) = present {
                    let sum = i32::from_le_bytes(present).wrapping_add(*addend);
                    written.number = u64::from(sum.cast_unsigned());
                    let meta = record.map_or(Meta::NONE, |record| record.meta);
                    change = Change::Put(sum.to_le_bytes().to_vec(), meta);
                    outcome = Outcome::Done;
                }
            }
        }
        let reads = matches!(self.wanted, Wanted::Read | Wanted::Touch(_));
        let found = record.filter(|_| reads).map(|Entry { value, meta, version, .. }| {
            FoundRecord { value: value.to_vec(), meta, version }
        });
        let answer = RecordAnswer { outcome, found, touched, written };
        let too_long = match &change {
            Change::Put(value, _) => Some(value.len()).filter(|len| *len > self.value_bytes_max),
            Change::Keep | Change::Remove => None,
        };
        if too_long.is_some() {
            change = Change::Keep;
        }
        Decision { change, answer, number, numbers: Arc::clone(&self.numbers), too_long }
    }
}

impl Wanted {
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
    fn is_conditional(&self) -> bool {
        match self {
            Self::Read => false,
            Self::Touch(touch) => !touch.is_read(),
            Self::Write {
                action: Action::Remove,
                precondition: Precondition::None,
                conditions: None,
                ..
            } => false,
            Self::Write { .. } => !self.is_put(),
            Self::AddInt(_) => true,
        }
    }
}

impl Decision {
    /// Returns the answer, once the change is made. `version` is the one that the record got, 0 if
    /// none was put.
    pub fn answer(self, version: Version) -> StoreAnswer {
        let Self { mut answer, number, numbers, too_long, .. } = self;
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

/// The store in place of a database, and its requests in flight.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) store: Arc<dyn RemoteStore>,
    capabilities: Capabilities,
    in_flight: Arc<AtomicUsize>,
    requests_max: usize,
    /// Longest wait for an answer, unless the request is long.
    pub(crate) timeout: Duration,
    /// No thread waits for an answer any more.
    is_closed: AtomicBool,
}

/// Counts a request until it is dropped.
struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers to the operations of a client's request so far.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    answers: Vec<Answered>,
    /// Number of answers that the present execution of the request has taken.
    taken: usize,
    /// Operation whose answer is missing.
    pub(crate) wanted: Option<StoreRequest>,
    /// Whether that operation changes records.
    changes: bool,
    /// Whether that operation is long.
    is_long: bool,
    /// Number of the request for that operation, and the time since its answer is awaited.
    awaited: Option<(u64, Instant)>,
    /// Memory of the answers, in bytes.
    bytes: usize,
    charge: Option<Charge>,
}

impl Answers {
    /// Begins another execution of the same request.
    pub(crate) fn rewind(&mut self) {
        self.taken = 0;
        self.wanted = None;
    }

    /// Takes the request for the operation whose answer is missing. Its answer is awaited from now
    /// on, with `number`.
    pub(crate) fn take_wanted(&mut self, number: u64, now: Instant) -> Option<StoreRequest> {
        let request = self.wanted.take()?;
        self.changes = !request.is_read();
        self.is_long = request.is_long();
        self.awaited = Some((number, now));
        Some(request)
    }

    /// Returns the number of the request whose answer has been awaited for longer than `timeout`,
    /// or than its multiple for long requests, and the reason for the client.
    pub(crate) fn overdue(&self, now: Instant, timeout: Duration) -> Option<(u64, RefusalReason)> {
        let (number, since) = self.awaited?;
        let is_overdue = now.saturating_duration_since(since) > longest(timeout, self.is_long);
        is_overdue.then_some((number, if_lost(!self.changes).into()))
    }

    /// Returns whether the answer to a request is waited for.
    pub(crate) fn awaits(&self, number: u64) -> bool {
        self.awaited.is_some_and(|(awaited, _)| awaited == number)
    }

    /// Adds the answer to the operation that was wanted, unless the budget has no room for it.
    pub(crate) fn add(&mut self, answer: Answered, budget: &Arc<Budget>) {
        self.awaited = None;
        self.bytes += answer.as_ref().map_or(0, StoreAnswer::bytes);
        let charge = self.charge.get_or_insert_with(|| Charge::none(budget));
        self.answers.push(match answer {
            Ok(_) if !charge.set(self.bytes) && self.changes => Err(RefusalReason::Unknown),
            Ok(_) if !charge.set(self.bytes) => Err(RefusalReason::TooMany),
            answer => answer,
        });
    }

    /// Returns the answer to the next operation.
    pub(crate) fn next(&mut self) -> Option<&Answered> {
        let answer = self.answers.get(self.taken)?;
        self.taken += 1;
        Some(answer)
    }
}

impl Remote {
    pub(crate) fn new(store: Arc<dyn RemoteStore>, requests_max: usize, timeout: Duration) -> Self {
        let capabilities = store.capabilities();
        let is_closed = AtomicBool::new(false);
        Self { store, capabilities, in_flight: Arc::default(), requests_max, timeout, is_closed }
    }

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

    /// Submits a request. Returns whether there is room for it.
    pub(crate) fn submit(
        &self,
        request: StoreRequest,
        budget: &Arc<Budget>,
        deliver: impl FnOnce(Answered) + Send + 'static,
    ) -> bool {
        let in_flight = InFlight(Arc::clone(&self.in_flight));
        let mut charge = Charge::none(budget);
        if self.in_flight.fetch_add(1, Ordering::Relaxed) >= self.requests_max
            || !charge.set(request.bytes())
        {
            return false;
        }
        let if_dropped = if_lost(request.is_read());
        let completion = Completion {
            deliver: Some(Box::new(deliver)),
            if_dropped,
            held: Some((charge, in_flight)),
        };
        self.store.submit(request, completion);
        true
    }

    /// Returns the number of requests that wait for an answer.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Ends all waits for answers, when the time for the last requests is over.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Executes a request on a thread that may wait.
    pub(crate) fn wait_for(&self, request: StoreRequest, served: &Served) -> Answered {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(RefusalReason::Unavailable);
        }
        let if_lost = if_lost(request.is_read()).into();
        let timeout = longest(self.timeout, request.is_long());
        let since = Instant::now();
        let (sender, receiver) = mpsc::channel();
        // The receiver is gone if the server has stopped.
        let deliver = move |answer| drop(sender.send(answer));
        if !self.submit(request, &served.budget, deliver) {
            return Err(RefusalReason::TooMany);
        }
        loop {
            let left = timeout.saturating_sub(since.elapsed());
            let may_wait = !left.is_zero() && !self.is_closed.load(Ordering::Relaxed);
            match receiver.recv_timeout(STOP_CHECK_INTERVAL.min(left)) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) if may_wait => {}
                Err(_) => return Err(if_lost),
            }
        }
    }
}

fn lacks(what: &str) -> Error {
    Error::NotSupported(format!("the store has no {what}"))
}

fn longest(timeout: Duration, is_long: bool) -> Duration {
    if is_long { timeout * LONG_REQUEST_FACTOR } else { timeout }
}

/// Returns what is known of a request whose answer is lost.
fn if_lost(is_read: bool) -> StoreFailure {
    if is_read { StoreFailure::Unavailable } else { StoreFailure::Unknown }
}

impl StoreRequest {
    /// Returns whether the request changes no record.
    pub fn is_read(&self) -> bool {
        match self {
            Self::Record(request) => request.is_read(),
            Self::GetMany { .. } | Self::Keys { .. } | Self::Range { .. } | Self::Count => true,
            Self::Clear => false,
        }
    }

    /// Returns whether the time of the request grows with the number of records.
    pub fn is_long(&self) -> bool {
        match self {
            Self::Record(_) | Self::GetMany { .. } => false,
            Self::Keys { .. } | Self::Range { .. } | Self::Count | Self::Clear => true,
        }
    }

    /// Returns the memory of the request, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let owned = match self {
            Self::Record(RecordRequest { key, wanted, .. }) => {
                let value = match wanted {
                    Wanted::Write { action, .. } => action.bytes().map_or(0, Vec::len),
                    _ => 0,
                };
                key.len() + value
            }
            Self::GetMany { keys } => keys.iter().map(|key| key.len() + size_of::<Vec<u8>>()).sum(),
            Self::Keys { prefix, after, .. } => prefix.len() + after.as_ref().map_or(0, Vec::len),
            Self::Range { begin, end, .. } => begin.len() + end.as_ref().map_or(0, Vec::len),
            Self::Count | Self::Clear => 0,
        };
        size_of::<Self>() + owned
    }
}

impl StoreAnswer {
    /// Returns the memory of the answer, in bytes.
    fn bytes(&self) -> usize {
        let of = |record: &FoundRecord| size_of::<FoundRecord>() + record.value.len();
        match self {
            Self::Record(answer) => answer.found.as_ref().map_or(0, of),
            Self::Records(records) => records.iter().flatten().map(of).sum(),
            Self::Keys { keys, .. } => {
                keys.iter().map(|key| size_of::<Vec<u8>>() + key.len()).sum()
            }
            Self::Range { records, .. } => {
                records.iter().map(|(key, record)| key.len() + of(record)).sum()
            }
            Self::Count(_) | Self::Done | Self::ValueTooLong { .. } => 0,
        }
    }
}

impl From<StoreFailure> for RefusalReason {
    fn from(failure: StoreFailure) -> Self {
        match failure {
            StoreFailure::Unavailable => Self::Unavailable,
            StoreFailure::Unknown => Self::Unknown,
        }
    }
}

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
        (Operation::GetMany { .. }, StoreAnswer::Records(records)) => {
            let mut records = records.iter();
            for key in operation.keys() {
                // Keys that are too long were not asked for.
                let is_valid = key.len() <= remote.capabilities.key_bytes_max;
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
            let made = Entry { key, value: b"", meta: Meta::NONE, version: answer.written.version };
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
        (Operation::AddInt { .. }, _) => {
            let sum = u32::try_from(answer.written.number).unwrap_or_default();
            reply.number(Number::Sum(sum.cast_signed()));
        }
        (Operation::Write(_), _) => reply.written(&answer.written),
        _ => return Ok(None),
    }
    Ok(Some(Outcome::Done))
}

impl FoundRecord {
    fn entry<'a>(&'a self, key: &'a [u8]) -> Entry<'a> {
        Entry { key, value: &self.value, meta: self.meta, version: self.version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touches_that_are_made_in_one_step_keep_the_cas_number_of_the_record() {
        let numbers = Arc::<CasNumbers>::default();
        numbers.set(1, 50);
        let request = |expires_at_ms| RecordRequest {
            key: b"k".to_vec(),
            wanted: Wanted::Touch(Touch { expires_at_ms: Some(expires_at_ms), ..Touch::default() }),
            numbers: Arc::clone(&numbers),
            tags: EntityTags::new(None),
            value_bytes_max: 1,
        };
        let decide = |version| {
            let entry = Entry { key: b"k", value: b"v", meta: Meta::NONE, version };
            request(u64::MAX >> version).decide(Some(entry))
        };
        let decisions = [decide(1), decide(2)];
        for (decision, version) in decisions.into_iter().zip([2, 3]) {
            assert!(matches!(decision.change, Change::Put(..)));
            decision.answer(version);
        }
        assert_eq!([2, 3].map(|version| numbers.number(version)), [50, 50]);
    }

    #[test]
    fn an_answer_is_taken_only_while_it_is_awaited() {
        let timeout = Duration::from_secs(2);
        let budget = Budget::new(1000);
        let now = Instant::now();
        let mut answers = Answers::default();
        let get = StoreRequest::GetMany { keys: vec![Vec::new()] };
        for (number, request, reason, longest) in [
            (1, get, RefusalReason::Unavailable, timeout),
            (2, StoreRequest::Count, RefusalReason::Unavailable, timeout * LONG_REQUEST_FACTOR),
            (3, StoreRequest::Clear, RefusalReason::Unknown, timeout * LONG_REQUEST_FACTOR),
        ] {
            answers.wanted = Some(request);
            assert!(answers.take_wanted(number, now).is_some());
            assert_eq!([1, 2, 3].map(|one| answers.awaits(one)), [1, 2, 3].map(|n| n == number));
            assert_eq!(answers.overdue(now + longest, timeout), None);
            let late = now + longest + Duration::from_nanos(1);
            assert_eq!(answers.overdue(late, timeout), Some((number, reason)));
            answers.add(Err(reason), &budget);
            assert!(!answers.awaits(number));
            assert_eq!(answers.overdue(late, timeout), None);
        }
    }
}
