//! Script records: the operations that a function of an extension can call.
//!
//! Each one is an operation of the executor, as if a client had sent it: it passes the write gate,
//! is logged and replicated, and has the limits of replies. It has the rights of the user who calls
//! the function. Only the command mask does not apply,
//! as in Tokyo Tyrant: it limits the requests of clients, among them `ext` itself.
//!
//! All methods may wait for the disk. Changes are durable as soon as the reply to the call is sent.

mod transaction;

use crate::counters::{Count, Counters};
use crate::ops::command_mask::Command;
use crate::ops::conditional::{Action, Precondition, Presence, Write, Written};
use crate::ops::execute::{
    Collected, Lend, NoReply, Number, Outcome, Reply, ReplyLimit, Stop, execute,
};
use crate::ops::expiry::{expires_after, unmarked};
use crate::ops::failure::Failure;
use crate::ops::iterator::Iterators;
use crate::ops::operation::Operation;
use crate::ops::rights::Rights;
use crate::ops::scans;
use crate::processors;
use crate::protocol::session::Session;
use crate::protocol::tokyo_tyrant::functions::{Call, last_failure};
use crate::protocol::{Context, Halt};
use crate::shared::Shared;
use crate::store::{Store, StoreTransaction, strings};
use cabinet::{Error, Meta, RecordRef, Version};
use parking_lot::{Mutex, MutexGuard};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::binary::Function;

/// Longest time of a call on an event loop. A call that takes longer leaves it.
pub(crate) const LOOP_TIME: Duration = Duration::from_micros(50);

/// Longest value that a function writes on an event loop, in bytes.
const LOOP_VALUE_BYTES_MAX: usize = 64 << 10;

/// Hands an event loop to another thread, which serves its connections from then on. Returns
/// whether there is such a thread.
pub(crate) type Leave = Arc<dyn Fn() -> bool + Send + Sync>;

/// Reason why an operation of a function failed.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The database has failed, or refused the operation. On a read-only replica it is
    /// [`cabinet::Error::ReadOnly`], at the commit of a transaction also
    /// [`cabinet::Error::Conflict`], within the closure of another operation
    /// [`cabinet::Error::Reentrant`].
    #[error(transparent)]
    Database(#[from] cabinet::Error),
    /// The result is longer than a reply may be.
    #[error("the result is too long")]
    TooLong,
    /// The operation is invalid in this database, for this reason.
    #[error("{0}")]
    Invalid(Box<str>),
}

type Result<T> = std::result::Result<T, ScriptError>;

impl From<Stop> for ScriptError {
    fn from(stop: Stop) -> Self {
        match stop {
            // These threads may wait.
            Stop::Blocked => Self::Database(Error::WouldBlock),
            Stop::TooLong => Self::TooLong,
            Stop::Forbidden(right) => Self::Invalid(
                format!("the caller lacks the right {right}, or has it for other keys only").into(),
            ),
            Stop::Failed(error @ Error::Unsupported { .. }) => {
                Self::Invalid(error.to_string().into())
            }
            Stop::Failed(error) => Self::Database(error),
        }
    }
}

/// A record as a function sees it.
#[derive(Clone, Copy, Debug)]
pub struct ScriptRecord<'a> {
    /// The value, the first one if there are several.
    pub value: &'a [u8],
    /// Version for [`ScriptRecords::put_if_version`]; within a transaction it has no meaning beyond
    /// it.
    pub version: Version,
    /// Expiry in milliseconds since 1970; 0 is never.
    pub expires_at_ms: u64,
}

/// Result of [`ScriptRecords::put_if_version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutIf {
    /// The value is stored, and has this version.
    Stored(Version),
    /// The record has another version.
    Changed,
    /// There is no such record, or there is one although none was expected.
    Missing,
}

/// The records of a server for the functions of an extension, on one script thread.
pub struct ScriptRecords {
    shared: Arc<Shared>,
    /// Counters of the thread.
    counters: Arc<Counters>,
    thread: usize,
    threads: usize,
    state: Mutex<CallState>,
    /// Whether the present call runs on an event loop.
    is_on_loop: AtomicBool,
    /// Time at which it began, in nanoseconds since the server started.
    began_ns: AtomicU64,
    /// Time since when it has had its processor most of the time, as far as is known.
    running_since_ns: AtomicU64,
    /// Thread of the last call on an event loop, as the system numbers it.
    call_thread: AtomicI32,
    /// Time for which this thread had waited for a processor when a call was late the last time.
    waited_ns: AtomicU64,
    leave: Mutex<Option<Leave>>,
    /// Whether a call has used a record.
    has_used_records: AtomicBool,
    /// Held during each call, and while another thread executes something in its name.
    turn: Mutex<()>,
}

/// Guard of rights that are not those of the caller.
struct OtherRights<'r> {
    records: &'r ScriptRecords,
    before: Option<Arc<Rights>>,
}

impl Drop for OtherRights<'_> {
    fn drop(&mut self) {
        self.records.begin_call(self.before.take());
    }
}

/// State of the present call.
#[derive(Default)]
struct CallState {
    session: Session,
    /// Whether a record has changed, so that the reply has to wait for the log.
    has_changed: bool,
    transaction: Option<StoreTransaction>,
}

impl ScriptRecords {
    /// Returns the records for the script thread `thread` of `threads`.
    pub(crate) fn new(
        shared: Arc<Shared>,
        counters: Arc<Counters>,
        thread: usize,
        threads: usize,
    ) -> Self {
        Self {
            shared,
            counters,
            thread,
            threads,
            state: Mutex::default(),
            is_on_loop: AtomicBool::new(false),
            began_ns: AtomicU64::new(0),
            running_since_ns: AtomicU64::new(0),
            call_thread: AtomicI32::new(0),
            waited_ns: AtomicU64::new(0),
            leave: Mutex::default(),
            has_used_records: AtomicBool::new(false),
            turn: Mutex::default(),
        }
    }

    /// Begins a call on an event loop. `leave` hands over the loop.
    pub(crate) fn begin_on_loop(&self, now: Instant, leave: &Leave) {
        // The watch sees all of it or nothing.
        let mut slot = self.leave.lock();
        *slot = Some(Arc::clone(leave));
        let now_ns = self.nanoseconds_at(now);
        self.began_ns.store(now_ns, Ordering::Relaxed);
        self.running_since_ns.store(now_ns, Ordering::Relaxed);
        self.call_thread.store(processors::own_thread(), Ordering::Relaxed);
        self.is_on_loop.store(true, Ordering::Relaxed);
    }

    /// Ends a call on an event loop. Returns whether it has not left the loop.
    pub(crate) fn end_on_loop(&self) -> bool {
        let has_stayed = self.leave.lock().take().is_some();
        self.is_on_loop.store(false, Ordering::Relaxed);
        has_stayed
    }

    fn nanoseconds_at(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.shared.started);
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the time at which the present call began, or now if it runs on no event loop.
    pub fn call_began(&self) -> Instant {
        if self.is_on_loop() {
            let began = Duration::from_nanos(self.began_ns.load(Ordering::Relaxed));
            return self.shared.started + began;
        }
        Instant::now()
    }

    /// Returns whether one of the last calls has used a record, since this was asked last.
    pub(crate) fn take_has_used_records(&self) -> bool {
        self.has_used_records.swap(false, Ordering::Relaxed)
    }

    /// Returns whether the call runs on an event loop, where nothing may wait.
    pub fn is_on_loop(&self) -> bool {
        self.is_on_loop.load(Ordering::Relaxed)
    }

    /// Leaves the event loop, if the call runs on one: another thread serves its connections from
    /// now on. An extension that [runs on event loops](crate::Extension::runs_on_loops) calls this
    /// before anything that may wait or take long. Operations on records do so themselves.
    pub fn leave_loop(&self) {
        if self.is_on_loop() {
            self.leave_loop_if(|| true);
        }
    }

    /// Leaves the event loop if the call holds one and this is so. Without a thread for the loop,
    /// the call holds it, but may wait as if it had left it.
    fn leave_loop_if(&self, is_to: impl FnOnce() -> bool) {
        // No call begins or ends meanwhile.
        let mut slot = self.leave.lock();
        if let Some(leave) = &*slot
            && is_to()
        {
            if leave() {
                *slot = None;
            }
            self.is_on_loop.store(false, Ordering::Relaxed);
        }
    }

    /// Leaves the event loop if the call has run on it for long at `now`. An extension that runs on
    /// event loops calls this every few microseconds.
    pub fn leave_loop_if_late(&self, now: Instant) {
        if self.is_on_loop() {
            let now_ns = self.nanoseconds_at(now);
            let since_ns = self.running_since_ns.load(Ordering::Relaxed);
            let took_ns = now_ns.saturating_sub(since_ns);
            if u128::from(took_ns) >= LOOP_TIME.as_nanos() {
                self.leave_loop_if_running(now_ns, took_ns);
            }
        }
    }

    /// Leaves the event loop, unless the thread had no processor for most of this time until now.
    #[cold]
    fn leave_loop_if_running(&self, now_ns: u64, took_ns: u64) {
        let waited_ns = processors::waited_ns(processors::own_thread()).unwrap_or(0);
        // A wait before the call counts for its first look.
        let before_ns = self.waited_ns.swap(waited_ns, Ordering::Relaxed);
        if waited_ns.saturating_sub(before_ns) > took_ns / 2 {
            self.running_since_ns.store(now_ns, Ordering::Relaxed);
        } else {
            self.leave_loop();
        }
    }

    /// Leaves the event loop if the call has been on it for so long at `now`. Other threads than
    /// that of the call may call this.
    pub(crate) fn leave_loop_if_held(&self, now: Instant, longest: Duration) {
        self.leave_loop_if(|| self.is_held(now, longest));
    }

    /// Returns whether the last call on an event loop began so long before `now`.
    pub(crate) fn is_held(&self, now: Instant, longest: Duration) -> bool {
        let held_ns = self.nanoseconds_at(now).saturating_sub(self.began_ns());
        u128::from(held_ns) >= longest.as_nanos()
    }

    /// Returns the thread of the last call on an event loop, as the system numbers it.
    pub(crate) fn call_thread(&self) -> i32 {
        self.call_thread.load(Ordering::Relaxed)
    }

    /// Returns whether a call holds an event loop.
    pub(crate) fn holds_loop(&self) -> bool {
        self.leave.lock().is_some()
    }

    /// Returns the time at which the last call on an event loop began, in nanoseconds since the
    /// server started.
    pub(crate) fn began_ns(&self) -> u64 {
        self.began_ns.load(Ordering::Relaxed)
    }

    /// Waits until no other thread executes anything in the name of these records, and keeps others
    /// from it. An event loop is left before it waits.
    pub(crate) fn turn(&self) -> impl Drop + '_ {
        self.turn.try_lock().unwrap_or_else(|| {
            self.leave_loop();
            self.turn.lock()
        })
    }

    /// Does the same, unless a call has the turn.
    pub fn try_turn(&self) -> Option<impl Drop + '_> {
        self.turn.try_lock()
    }

    /// Returns the rights that limit the operations of the present call; `None` is all.
    pub fn rights(&self) -> Option<Arc<Rights>> {
        self.state.lock().session.rights.clone()
    }

    /// Limits the operations to these rights until the guard is dropped; `None` is all. Then the
    /// limit is again that of before.
    pub fn with_rights(&self, rights: Option<Arc<Rights>>) -> impl Drop + '_ {
        let before = std::mem::replace(&mut self.state.lock().session.rights, rights);
        OtherRights { records: self, before }
    }

    /// Takes over the changes of other records, which this call has made in their name.
    pub fn absorb(&self, other: &Self) {
        let has_changed = other.end_call();
        self.state.lock().has_changed |= has_changed;
    }

    /// Returns the number of the script thread, from 0 on.
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// Returns the number of script threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the records for a further thread that works for the present call. It shares neither
    /// the transaction nor the iterator of the call.
    pub fn helper(&self) -> Arc<Self> {
        let counters = Arc::new(Counters::default());
        let helper = Self::new(Arc::clone(&self.shared), counters, self.thread, self.threads);
        helper.begin_call(self.state.lock().session.rights.clone());
        Arc::new(helper)
    }

    /// Ends the work of a helper: its changes and counts are those of the present call.
    pub fn join(&self, helper: &Self) {
        for &count in Count::ALL {
            self.counters.add(count, helper.counters.value(count));
        }
        self.absorb(helper);
    }

    /// Begins a call for a client with these rights, which limit the operations of the function.
    /// Without rights the client has all.
    pub(crate) fn begin_call(&self, rights: Option<Arc<Rights>>) {
        self.state.lock().session.rights = rights;
    }

    /// Ends a call, and abandons its transaction. Returns whether records have changed. Only a
    /// caller outside of the server needs it.
    pub fn end_call(&self) -> bool {
        let mut state = self.state.lock();
        std::mem::take(&mut *state).has_changed
    }

    /// Returns the id of the server among its replication peers, 0 if it has none.
    pub fn server_id(&self) -> u32 {
        self.shared.served.settings.server_id
    }

    /// Returns whether the server stops, so that long functions should end.
    pub fn is_stopping(&self) -> bool {
        self.shared.served.is_stopping()
    }

    /// Returns the number of records.
    pub fn count(&self) -> u64 {
        self.counters.count(Count::Records);
        self.database().len()
    }

    /// Returns the size of the database, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.counters.count(Count::Size);
        self.database().size_bytes()
    }

    /// Returns whether records are rows. A value of a row is its columns, joined by zero bytes.
    pub fn has_rows(&self) -> bool {
        self.database().has_rows()
    }

    /// Returns whether keys are in an order, as [`Self::range`] requires.
    pub fn is_ordered(&self) -> bool {
        self.database().order().is_some() || self.database().as_numbered().is_some()
    }

    /// Calls `visit` with the value under a key, if there is one. `visit` must not call other
    /// operations.
    pub fn get<T>(&self, key: &[u8], visit: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let mut visit = Some(visit);
        let mut result = None;
        let lend = |entry: &RecordRef<'_>| result = visit.take().map(|visit| visit(entry.value));
        self.execute(&Operation::Get { key }, Lend(lend))?;
        Ok(result)
    }

    /// Calls `visit` with a record, if there is one. `visit` must not call other operations.
    pub fn get_record<T>(
        &self,
        key: &[u8],
        visit: impl FnOnce(ScriptRecord<'_>) -> T,
    ) -> Result<Option<T>> {
        let mut visit = Some(visit);
        let mut result = None;
        let lend = |entry: &RecordRef<'_>| {
            let expires_at_ms = unmarked(entry.meta.expires_at_ms);
            let record = ScriptRecord { value: entry.value, version: entry.version, expires_at_ms };
            result = visit.take().map(|visit| visit(record));
        };
        self.execute(&Operation::Get { key }, Lend(lend))?;
        Ok(result)
    }

    /// Returns the length of a value in bytes, if there is one.
    pub fn value_size(&self, key: &[u8]) -> Result<Option<usize>> {
        let mut size = None;
        self.execute_into(&Operation::ValueSize { key }, &mut size)?;
        Ok(match size {
            Some(Number::Size(bytes)) => Some(bytes),
            _ => None,
        })
    }

    /// Stores a record. With `expires_in` it expires after that time.
    pub fn put(&self, key: &[u8], value: &[u8], expires_in: Option<Duration>) -> Result<()> {
        let put = Action::put(Presence::Any, value, meta(expires_in));
        self.execute(&Operation::Write(Write::new(key, put)), NoReply).map(drop)
    }

    /// Stores a record if there is none. Returns whether it was stored.
    pub fn put_keep(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.is_done(&Operation::put(key, value, Presence::Absent))
    }

    /// Adds to the end of a value, or stores it.
    pub fn append(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.execute(&Operation::append(key, value), NoReply).map(drop)
    }

    /// Removes a record, the first value if there are several. Returns whether there was one.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.is_done(&Operation::remove(key))
    }

    /// Adds to a binary integer, as the command `addint`. Returns the sum.
    pub fn add_int(&self, key: &[u8], addend: i32) -> Result<i32> {
        let mut sum = None;
        self.execute_into(&Operation::write(key, Action::AddInt(addend)), &mut sum)?;
        match sum {
            Some(Number::Sum(sum)) => Ok(sum),
            _ => Err(ScriptError::Invalid("no sum".into())),
        }
    }

    /// Adds to a binary number, as the command `adddouble`. Returns the sum. With NaN nothing is
    /// added.
    pub fn add_double(&self, key: &[u8], addend: f64) -> Result<f64> {
        let mut sum = None;
        self.execute_into(&Operation::write(key, Action::AddDouble(addend)), &mut sum)?;
        match sum {
            Some(Number::DoubleSum(sum)) => Ok(sum),
            _ => Ok(f64::NAN),
        }
    }

    /// Stores a value if the record has this version, or with `None` if there is no record.
    pub fn put_if_version(
        &self,
        key: &[u8],
        value: &[u8],
        version: Option<Version>,
        expires_in: Option<Duration>,
    ) -> Result<PutIf> {
        let presence = if version.is_some() { Presence::Present } else { Presence::Absent };
        let action = Action::put(presence, value, meta(expires_in));
        let precondition = version.map_or(Precondition::None, Precondition::Version);
        let write = Write { precondition, ..Write::new(key, action) };
        let mut written = Written::default();
        let budget = &self.shared.served.budget;
        let _charge = write.charge(budget).ok_or(ScriptError::TooLong)?;
        Ok(match self.execute_into(&Operation::Write(write), &mut written)? {
            Outcome::Done => PutIf::Stored(written.version),
            Outcome::Unmet => PutIf::Changed,
            _ => PutIf::Missing,
        })
    }

    /// Starts the iterator: that of this call, and the one that clients share. Returns whether it
    /// was started.
    pub fn iter_begin(&self) -> Result<bool> {
        self.is_done(&Operation::IterBegin { from: None })
    }

    /// Returns the next key of the iterator, `None` at the end. A call that has started none uses
    /// the one that clients share.
    pub fn iter_next(&self) -> Result<Option<Vec<u8>>> {
        let key = self.collect(&Operation::IterKey, &mut |_| true)?;
        Ok(key.and_then(|mut keys| keys.pop()))
    }

    /// Returns at most `max` keys that begin with a prefix. `charge` is called with the bytes that
    /// each of them takes, before it is copied, and returns whether there is memory for it.
    pub fn keys_with_prefix(
        &self,
        prefix: &[u8],
        max: usize,
        charge: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Vec<Vec<u8>>> {
        let operation = Operation::KeysWithPrefix { prefix, max };
        Ok(self.collect(&operation, charge)?.unwrap_or_default())
    }

    /// Returns at most `max` records from the key `begin` on, until `end`, as keys and values in
    /// turn. Fails if the keys are in no order. `charge` is as of [`Self::keys_with_prefix`].
    pub fn range(
        &self,
        begin: Option<&[u8]>,
        max: usize,
        end: Option<&[u8]>,
        charge: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Vec<Vec<u8>>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let operation = Operation::Range { begin, max, end };
        Ok(self.collect(&operation, charge)?.unwrap_or_default())
    }

    /// Removes all records.
    pub fn clear(&self) -> Result<()> {
        self.execute(&Operation::Clear, NoReply).map(drop)
    }

    /// Calls a function of `misc`. Returns its results, or `None` if there is no such record, or
    /// one although none was expected. Without `is_logged` its changes are not replicated. `charge`
    /// is as of [`Self::keys_with_prefix`].
    pub fn misc(
        &self,
        name: &[u8],
        arguments: &[&[u8]],
        is_logged: bool,
        charge: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        self.leave_loop();
        let too_long = || ScriptError::Invalid("an argument is too long".into());
        let arguments = strings(arguments).map_err(|_| too_long())?;
        let mut state = self.lock()?;
        if state.transaction.is_some() {
            return Err(transaction::not_within("misc"));
        }
        let mut context = Context::new(&self.shared, true, &self.counters, &mut state.session, 0);
        if !is_logged {
            context.database = self.shared.served.unlogged(true);
        }
        let call = Call::new(&context, Function::from_name(name), arguments.strings());
        let mut reply = Collected::charged_to(charge);
        let done = call.run(&mut context, &mut reply);
        let (has_changed, reason) = (context.mutated, last_failure(&context));
        let failure = context.session.last_failure;
        state.has_changed |= has_changed;
        match done {
            _ if reply.is_refused => Err(ScriptError::TooLong),
            Ok(true) => Ok(Some(reply.elements)),
            Ok(false) if matches!(failure, Some(Failure::NoRecord | Failure::ExistingRecord)) => {
                Ok(None)
            }
            Ok(false) => Err(ScriptError::Invalid(reason.into())),
            Err(Halt::TooLong) => Err(ScriptError::TooLong),
            Err(Halt::Forbidden) => Err(ScriptError::Invalid(reason.into())),
            Err(Halt::Called) => {
                state.session.call = None;
                Err(ScriptError::Invalid("a function cannot load the functions again".into()))
            }
            // Extensions have a database of this process.
            Err(Halt::Blocked | Halt::Postponed | Halt::Refused(_)) => {
                Err(ScriptError::Database(Error::WouldBlock))
            }
        }
    }

    /// Calls `visit` with all records until it breaks. `visit` may call other operations: a record
    /// that exists from beginning to end is visited once, others may be visited.
    pub fn for_each(&self, visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        self.leave_loop();
        let rights = self.lock()?.session.rights.clone();
        let has_ids = self.shared.served.model.has_ids;
        if let Some(right) = rights.and_then(|it| it.missing(&Operation::Records, has_ids)) {
            return Err(Stop::Forbidden(right).into());
        }
        Ok(scans::for_each(self.database(), visit)?)
    }

    fn database(&self) -> &Store {
        &self.shared.served.database
    }

    /// Locks the state of the call. Fails within the closure of another operation.
    fn lock(&self) -> Result<MutexGuard<'_, CallState>> {
        Ok(self.state.try_lock().ok_or(Error::Reentrant)?)
    }

    fn execute(&self, operation: &Operation<'_>, mut reply: impl Reply) -> Result<Outcome> {
        self.execute_into(operation, &mut reply)
    }

    fn execute_into(&self, operation: &Operation<'_>, reply: &mut impl Reply) -> Result<Outcome> {
        if !is_short(operation) {
            self.leave_loop();
        }
        let state = &mut *self.lock()?;
        if self.is_on_loop() && state.transaction.is_none() {
            self.has_used_records.store(true, Ordering::Relaxed);
            let store = &self.shared.served.nonblocking;
            let mut charge = None;
            let rights = state.session.rights.as_deref();
            let mut executor = self.shared.executor(store, false, &mut charge, None, rights);
            executor.limit.bytes_max = bytes_max(operation, &executor.limit);
            let result = execute(&mut executor, operation, reply);
            if !matches!(result, Err(Stop::Blocked)) {
                state.has_changed |=
                    executor.has_changed || result.is_ok() && operation.changes_records();
                self.count_operation(operation, &result);
                return Ok(result?);
            }
            self.leave_loop();
        }
        let store = match &state.transaction {
            None => self.database(),
            Some(transaction) => {
                transaction::check(self.database(), operation)?;
                transaction.store()
            }
        };
        let iterators = Iterators {
            own: &mut state.session.cursor,
            shared: &self.shared.cursor,
            may_wait: true,
        };
        let mut charge = None;
        let rights = state.session.rights.as_deref();
        let mut executor = self.shared.executor(store, true, &mut charge, Some(iterators), rights);
        executor.limit.bytes_max = bytes_max(operation, &executor.limit);
        let result = execute(&mut executor, operation, reply);
        let has_changed = executor.has_changed || result.is_ok() && operation.changes_records();
        state.has_changed |= has_changed && state.transaction.is_none();
        self.count_operation(operation, &result);
        Ok(result?)
    }

    /// Counts an operation as the command that does the same.
    fn count_operation(
        &self,
        operation: &Operation<'_>,
        result: &std::result::Result<Outcome, Stop>,
    ) {
        let is_missing = matches!(result, Ok(Outcome::NoRecord));
        let (count, miss) = match operation.access() {
            _ if matches!(
                operation,
                Operation::Write(Write { precondition: Precondition::Version(_), .. })
            ) =>
            {
                (Count::CompareAndSwap, None)
            }
            Some(Command::Get) => (Count::Get, is_missing.then_some(Count::GetMiss)),
            Some(Command::Out) => (Count::Out, is_missing.then_some(Count::OutMiss)),
            Some(command) => (command_count(command), None),
            None => return,
        };
        self.counters.count(count);
        if let Some(miss) = miss {
            self.counters.count(miss);
        }
    }

    fn is_done(&self, operation: &Operation<'_>) -> Result<bool> {
        Ok(self.execute(operation, NoReply)? == Outcome::Done)
    }

    fn collect(
        &self,
        operation: &Operation<'_>,
        charge: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let mut reply = Collected::charged_to(charge);
        let outcome = self.execute_into(operation, &mut reply)?;
        if reply.is_refused {
            return Err(ScriptError::TooLong);
        }
        Ok((outcome == Outcome::Done).then_some(reply.elements))
    }
}

/// Returns the most bytes that an operation may return. A value that is only lent to the function
/// takes no memory here: the extension has a limit of its own.
fn bytes_max(operation: &Operation<'_>, limit: &ReplyLimit<'_>) -> usize {
    if matches!(operation, Operation::Get { .. }) { usize::MAX } else { limit.bytes_max }
}

/// Returns whether an operation is one that an event loop executes unless it would have to wait.
fn is_short(operation: &Operation<'_>) -> bool {
    operation.value_bytes() <= LOOP_VALUE_BYTES_MAX
        && matches!(
            operation,
            Operation::Get { .. } | Operation::ValueSize { .. } | Operation::Write(_)
        )
}

/// Returns the count of a command.
fn command_count(command: Command) -> Count {
    match command {
        Command::PutKeep => Count::PutKeep,
        Command::PutCat => Count::PutCat,
        Command::ValueSize => Count::ValueSize,
        Command::IterInit => Count::IterInit,
        Command::IterNext => Count::IterNext,
        Command::KeysWithPrefix => Count::KeysWithPrefix,
        Command::AddInt => Count::AddInt,
        Command::AddDouble => Count::AddDouble,
        Command::Vanish => Count::Vanish,
        Command::GetMany => Count::GetMany,
        _ => Count::Put,
    }
}

/// Returns flags and expiry of a value.
fn meta(expires_in: Option<Duration>) -> Meta {
    Meta { flags: 0, expires_at_ms: expires_in.map_or(0, expires_after) }
}
