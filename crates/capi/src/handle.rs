//! Handles: databases, transactions, and what depends on them, which may be closed while other
//! threads use them.
//!
//! # Locks
//!
//! A call holds a guard of the target of its handle. `close` takes the target out, so that later
//! calls fail, waits until no call has a guard, closes the dependents, and then the target. The
//! lock of a closing is held for all of that, and for the commit of a transaction, so that a thread
//! that closes the same handle or an ancestor meanwhile returns after it. `close` fails in a
//! callback of the database, whose call has a guard. The locks of dependents and visitors are held
//! for moments, and no other lock is taken under them, but the one of a dependent during its calls.

use crate::border::{Call, run, run_plain};
use crate::fork;
use crate::status::{
    CABINET_FORKED, CABINET_OK, CABINET_REENTRANT, CABINET_UNSUPPORTED, Failure, Result,
    cabinet_error, cabinet_status,
};
use arc_swap::{ArcSwapOption, Guard};
use cabinet_rs::{Database, Error, Transaction};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Interval at which a closing thread looks whether the calls of other threads have ended.
const CLOSE_POLL: Duration = Duration::from_micros(200);

/// Handle of an open database, or of a transaction. All threads may use one handle at once.
pub struct cabinet_database {
    target: ArcSwapOption<Target>,
    /// Held by the thread that closes the handle, until that is done.
    closing: Mutex<()>,
    /// Weak handles of what was made of this one.
    dependents: Mutex<Vec<Weak<dyn Dependent>>>,
    family: Arc<Family>,
    /// Numbers within the family of this handle and of those that it was made of.
    lineage: Vec<u64>,
}

/// Target of a handle.
pub(crate) enum Target {
    Database(Database),
    Transaction(Transaction),
}

impl Deref for Target {
    type Target = Database;

    fn deref(&self) -> &Database {
        match self {
            Self::Database(database) => database,
            Self::Transaction(transaction) => transaction,
        }
    }
}

/// The handles of one opening.
struct Family {
    /// Forks before the opening, see [`fork`].
    generation: u32,
    /// Threads that are in a visitor of the results of a query, each with the lineage of the handle
    /// that it searches by.
    visitors: Mutex<Vec<(ThreadId, Vec<u64>)>>,
    /// Number of the next handle.
    next: AtomicU64,
}

thread_local! {
    /// Addresses of the families of the calls that this thread is in. More than one are calls in
    /// callbacks.
    static CALLED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Object that is closed with its database.
pub(crate) trait Dependent: Send + Sync {
    /// Closes it, after the calls that use it have ended.
    fn close(&self);
}

/// The target of a handle during a call.
pub(crate) struct Opened {
    guard: Guard<Option<Arc<Target>>>,
    _called: Called,
}

/// Notes that this thread is in a call, until it is dropped by the same thread.
struct Called {
    family: usize,
    not_send: PhantomData<*const ()>,
}

impl Called {
    fn note(family: &Arc<Family>) -> Self {
        let family = Arc::as_ptr(family).addr();
        // A thread that ends may have dropped its list: destructors of C++ may still call.
        let _ = CALLED.try_with(|called| called.borrow_mut().push(family));
        Self { family, not_send: PhantomData }
    }

    /// Returns whether this thread is in a call of a family.
    fn is_in(family: &Arc<Family>) -> bool {
        let family = Arc::as_ptr(family).addr();
        CALLED.try_with(|called| called.borrow().contains(&family)).unwrap_or(false)
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        let _ = CALLED.try_with(|called| {
            let mut called = called.borrow_mut();
            if let Some(at) = called.iter().rposition(|family| *family == self.family) {
                called.swap_remove(at);
            }
        });
    }
}

impl Deref for Opened {
    type Target = Target;

    fn deref(&self) -> &Target {
        // `open` makes it of a guard that has a target.
        self.guard.as_ref().expect("an open handle has a target")
    }
}

/// Locks a mutex. No state under these locks is left half changed by a panic.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl cabinet_database {
    /// Opens a database. Returns its handle.
    pub(crate) fn of(open: impl FnOnce() -> cabinet_rs::Result<Database>) -> Result<Arc<Self>> {
        // Before it: a child that is forked off meanwhile lets go of the lock.
        let generation = fork::watched();
        let family = Family { generation, visitors: Mutex::default(), next: AtomicU64::new(0) };
        Ok(Arc::new(Self::new(Target::Database(open()?), Arc::new(family), &[])))
    }

    fn new(target: Target, family: Arc<Family>, ancestors: &[u64]) -> Self {
        let number = family.next.fetch_add(1, Ordering::Relaxed);
        let lineage = [ancestors, &[number]].concat();
        let target = ArcSwapOption::from_pointee(target);
        let (closing, dependents) = (Mutex::default(), Mutex::default());
        Self { target, closing, dependents, family, lineage }
    }

    /// Returns another handle, which is closed with this one.
    pub(crate) fn derive(&self, make: impl FnOnce(&Database) -> Target) -> Result<Arc<Self>> {
        let opened = self.open()?;
        let family = Arc::clone(&self.family);
        let derived = Arc::new(Self::new(make(&opened), family, &self.lineage));
        self.depend(Arc::downgrade(&derived) as Weak<dyn Dependent>);
        Ok(derived)
    }

    /// Adds what is closed with this handle. The caller has it open.
    pub(crate) fn depend(&self, dependent: Weak<dyn Dependent>) {
        let mut dependents = lock(&self.dependents);
        if dependents.len() == dependents.capacity() {
            dependents.retain(|dependent| dependent.strong_count() > 0);
        }
        dependents.push(dependent);
    }

    /// Returns the database for a call.
    #[inline]
    pub(crate) fn open(&self) -> Result<Opened> {
        self.check_process()?;
        let guard = self.target.load();
        if guard.is_none() {
            return Err(Failure::closed("handle of the database"));
        }
        Ok(Opened { guard, _called: Called::note(&self.family) })
    }

    fn is_forked(&self) -> bool {
        self.family.generation != fork::generation()
    }

    /// Fails in a process that was forked off after the database was opened.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_forked() {
            let text = "the database was opened before this process was forked off: \
                        open databases after the fork";
            return Err(Failure::new(CABINET_FORKED, text));
        }
        Ok(())
    }

    /// Runs a call that calls back with results of a query, which may call the database.
    pub(crate) fn visiting<T>(&self, run: impl FnOnce() -> T) -> T {
        /// Forgets the thread, even after a panic.
        struct Leave<'f>(&'f Family);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                let mut visitors = lock(&self.0.visitors);
                let this = thread::current().id();
                // The innermost one ends first.
                if let Some(at) = visitors.iter().rposition(|(visitor, _)| *visitor == this) {
                    visitors.remove(at);
                }
            }
        }
        lock(&self.family.visitors).push((thread::current().id(), self.lineage.clone()));
        let _leave = Leave(&self.family);
        run()
    }

    /// Fails in a callback of this handle, or of one that was made of it.
    fn check_callback(&self, opened: &Opened) -> Result<()> {
        let this = thread::current().id();
        let number = self.lineage.last();
        let is_of_this = |(visitor, lineage): &(ThreadId, Vec<u64>)| {
            *visitor == this && lineage.iter().any(|of| Some(of) == number)
        };
        let is_within = lock(&self.family.visitors).iter().any(is_of_this)
            // It waits for nothing, and fails in a callback that borrows a record.
            || matches!(opened.wait_durable(0), Err(Error::Reentrant));
        if is_within { Err(closes_in_callback()) } else { Ok(()) }
    }

    /// Takes the target out, after the calls of other threads have ended, and ends it. If another
    /// thread does so, returns `None` after that. `None` if it is closed.
    pub(crate) fn shut<T>(&self, end: impl FnOnce(Target) -> T) -> Result<Option<T>> {
        self.check_process()?;
        if let Ok(opened) = self.open() {
            self.check_callback(&opened)?;
        }
        let _closing = match self.closing.try_lock() {
            Ok(closing) => closing,
            // The other thread may wait for the call that has called this thread back.
            Err(TryLockError::WouldBlock) if Called::is_in(&self.family) => {
                return Err(closes_in_callback());
            }
            Err(_) => lock(&self.closing),
        };
        let Some(mut target) = self.target.swap(None) else { return Ok(None) };
        let target = loop {
            match Arc::try_unwrap(target) {
                Ok(target) => break target,
                Err(used) => target = used,
            }
            thread::sleep(CLOSE_POLL);
        };
        let dependents = std::mem::take(&mut *lock(&self.dependents));
        for dependent in dependents.iter().filter_map(Weak::upgrade) {
            dependent.close();
        }
        Ok(Some(end(target)))
    }
}

fn closes_in_callback() -> Failure {
    let text = "a callback of the database closes it: close it after the callback returns";
    Failure::new(CABINET_REENTRANT, text)
}

impl Dependent for cabinet_database {
    fn close(&self) {
        // It fails in a callback only, in which its database has not been shut.
        let _ = self.shut(drop);
    }
}

/// Closes a database after the calls of other threads on it have ended, and with it its
/// transactions, further handles, cursors and iterators. All of them must still be freed. Later
/// calls on them fail with CABINET_CLOSED, so other threads may still try some. The handle of a
/// transaction discards its changes. A handle that is closed already is left as it is.
///
/// If another thread is closing the handle, or commits or closes one of its transactions, returns
/// after that. `cabinet_sync` before it shows whether the last writes are on the disk.
///
/// @param database The handle. It is not freed.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_REENTRANT in a callback of this database; CABINET_FORKED in a child
///         of the process that has opened it.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_close(
    database: *mut cabinet_database,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        call.handle("database", database)?.shut(drop)?;
        Ok(CABINET_OK)
    })
}

/// Frees a handle, and closes it if it is open. No thread may use it any more. NULL is allowed.
///
/// Never free a handle in a callback of the same database: it stays open until the process ends,
/// so that every later opening is CABINET_IN_USE, and its memory is not given back. In a forked
/// child of the process that has opened it the memory is not given back either, and the database
/// of the parent is left alone.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_database_free(database: *mut cabinet_database) {
    run_plain((), |call| {
        let Some(handle) = call.take_shared(database) else { return Ok(()) };
        if handle.shut(drop).is_err() {
            // Dropping it would close the database below the caller, or wait for threads that a
            // child does not have.
            std::mem::forget(handle);
        }
        Ok(())
    });
}

/// Writes return before they are durable, whatever the durability of the database. The caller
/// reads `cabinet_log_position` after a write, and waits by `cabinet_wait_durable`.
pub const CABINET_DEFERRED: u32 = 1;
/// Calls on single records and batches, movements of cursors and iterators backwards fail with
/// CABINET_WOULD_BLOCK in place of waiting for the disk, or for another thread that holds a record
/// for long. All other functions wait: those of rows, indices and queries, iterators forwards,
/// `cabinet_for_each`, `cabinet_for_each_match`, and those of the whole database.
pub const CABINET_NONBLOCKING: u32 = 2;

/// Makes another handle of the same database, whose calls behave differently. It is closed with
/// the first one, or before it.
///
/// @param database A handle that is not of a transaction.
/// @param flags CABINET_DEFERRED, CABINET_NONBLOCKING, both (by |), or 0.
/// @param handle Set to the new handle, which is freed by `cabinet_database_free`.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_handle(
    database: *mut cabinet_database,
    flags: u32,
    handle: *mut *mut cabinet_database,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("handle", handle)?;
        let first = call.handle("database", database)?;
        if flags & !(CABINET_DEFERRED | CABINET_NONBLOCKING) != 0 {
            return Err(Failure::invalid(format!(
                "flags {flags:#x} are unknown: pass those of the header"
            )));
        }
        if let Target::Transaction(_) = &*first.open()? {
            let text = "a transaction has one handle: make another one of the database";
            return Err(Failure::new(CABINET_UNSUPPORTED, text));
        }
        out.share(first.derive(|database| {
            let mut derived = database.clone();
            if flags & CABINET_DEFERRED != 0 {
                derived = derived.deferred();
            }
            if flags & CABINET_NONBLOCKING != 0 {
                derived = derived.nonblocking();
            }
            Target::Database(derived)
        })?);
        Ok(CABINET_OK)
    })
}

/// Begins a transaction: a handle on which all functions of records work, and see its changes.
/// They become visible to others all at once by `cabinet_transaction_commit`. It takes no locks:
/// if another writer has changed a record that the transaction has read, the commit fails.
/// Iterations in it see the database without its changes. Columns of rows, tables and cursors are
/// not for transactions.
///
/// @param database The database. A transaction of a transaction is allowed.
/// @param transaction Set to the handle, which is freed by `cabinet_database_free`. Closing or
///        freeing it discards the changes.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_transaction_begin(
    database: *mut cabinet_database,
    transaction: *mut *mut cabinet_database,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let out = call.out("transaction", transaction)?;
        let begun = call.handle("database", database)?;
        let transaction = |database: &Database| Target::Transaction(database.transaction());
        out.share(begun.derive(transaction)?);
        Ok(CABINET_OK)
    })
}

/// Writes the changes of a transaction, all or none, and closes its handle, which must still be
/// freed, also after an error.
///
/// @param transaction Handle of `cabinet_transaction_begin`.
/// @param error Set to an error of the caller's, or to NULL; may be NULL.
/// @return CABINET_OK; CABINET_CONFLICT if another writer has changed a record that was read, and
///         nothing was written: begin again; CABINET_UNSUPPORTED if the handle is not of a
///         transaction, which stays open; or another error.
#[unsafe(no_mangle)]
pub extern "C" fn cabinet_transaction_commit(
    transaction: *mut cabinet_database,
    error: *mut *mut cabinet_error,
) -> cabinet_status {
    run(error, |call| {
        let handle = call.handle("transaction", transaction)?;
        if let Target::Database(_) = &*handle.open()? {
            let text = "the handle is not of a transaction: begin one by cabinet_transaction_begin";
            return Err(Failure::new(CABINET_UNSUPPORTED, text));
        }
        let committed = handle.shut(|target| match target {
            Target::Transaction(transaction) => Some(transaction.commit()),
            Target::Database(_) => None,
        })?;
        committed.flatten().ok_or_else(|| Failure::closed("transaction"))??;
        Ok(CABINET_OK)
    })
}

/// Returns an owner of a handle for objects that outlive the call.
pub(crate) fn owner(
    call: &Call,
    database: *const cabinet_database,
) -> Result<Arc<cabinet_database>> {
    call.shared("database", database)
}

/// Object of a database that is used by one thread at a time, but closed by any.
pub(crate) struct Slot<T>(Mutex<Option<T>>);

/// Owner of a slot.
pub(crate) struct OwnSlot<T: Send> {
    slot: Arc<Slot<T>>,
    generation: u32,
}

impl<T: Send + 'static> OwnSlot<T> {
    /// Returns a slot that is closed with a database, which the caller has open.
    pub(crate) fn of(database: &cabinet_database, content: T) -> Self {
        let slot = Arc::new(Slot(Mutex::new(Some(content))));
        database.depend(Arc::downgrade(&slot) as Weak<dyn Dependent>);
        Self { slot, generation: database.family.generation }
    }
}

impl<T: Send> Deref for OwnSlot<T> {
    type Target = Slot<T>;

    fn deref(&self) -> &Slot<T> {
        &self.slot
    }
}

impl<T: Send> Drop for OwnSlot<T> {
    fn drop(&mut self) {
        // Under its lock, while the database still finds it: a thread that closes that waits for
        // the end of the content. A child may find the lock taken by a thread that it does not
        // have.
        if self.generation == fork::generation() {
            self.slot.close();
        }
    }
}

impl<T: Send> Slot<T> {
    /// Uses the content. Fails if it is closed.
    pub(crate) fn with<R>(&self, what: &str, work: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        match &mut *lock(&self.0) {
            Some(content) => work(content),
            None => Err(Failure::closed(what)),
        }
    }
}

impl<T: Send> Dependent for Slot<T> {
    fn close(&self) {
        drop(lock(&self.0).take());
    }
}
