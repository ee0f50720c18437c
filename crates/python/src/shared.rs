//! Open database behind its objects of Python: who may use it, and when the GIL is released.
//!
//! An operation first runs with the GIL and without waiting, on a handle that is nonblocking. Only
//! if it would wait is the GIL released, and the operation runs again on one that waits.
//!
//! Each operation holds the lock of the handle for reading, and closing takes it for writing: so a
//! database is closed after the operations that are running, and no later one finds it. An
//! operation never waits for this lock: it would do so with the GIL, which the one that it waits
//! for may need. While it is held, no code of Python runs, except for handlers of signals: only
//! objects of bytes are made.

use crate::errors::Failure;
use crate::fork::Generation;
use cabinet::{Database, Durability, Error, Transaction};
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Time between two checks for signals in a scan or query.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

thread_local! {
    /// Number of operations of this thread that are interrupted to run code of Python.
    static INTERRUPTED: Cell<u32> = const { Cell::new(0) };
    /// Time of the next check for signals in a scan or query, and what one has raised.
    static NEXT_CHECK: Cell<Option<Instant>> = const { Cell::new(None) };
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs an operation whose scans and queries end when a handler of a signal raises an exception.
pub(crate) fn interruptible<T>(run: impl FnOnce() -> Result<T, Failure>) -> PyResult<T> {
    let done = cabinet::with_interruption(is_interrupted, run);
    match RAISED.take() {
        Some(raised) => Err(raised),
        None => Ok(done?),
    }
}

fn is_interrupted() -> bool {
    let now = Instant::now();
    if NEXT_CHECK.get().is_some_and(|next| now < next) {
        return false;
    }
    NEXT_CHECK.set(Some(now + CHECK_INTERVAL));
    let mut raised = None;
    if go_on(&mut raised) {
        return false;
    }
    RAISED.set(raised);
    true
}

/// Runs the handlers of signals, within an operation that was begun without the GIL. Returns
/// whether the operation may go on, and keeps the exception if not.
pub(crate) fn go_on(raised: &mut Option<PyErr>) -> bool {
    INTERRUPTED.set(INTERRUPTED.get() + 1);
    let checked = Python::attach(|py| py.check_signals());
    INTERRUPTED.set(INTERRUPTED.get() - 1);
    *raised = checked.err();
    raised.is_none()
}

/// Number of weak references to children from which dead ones are removed.
const CHILDREN_KEPT: usize = 64;

/// Handles of an open database, or of a transaction in it.
pub(crate) struct Handle {
    /// Handle whose operations do not wait, and whose writes are not acknowledged yet.
    fast: Database,
    /// Handle whose operations wait.
    pub(crate) slow: Database,
    is_always_durable: bool,
    pub(crate) transaction: Option<Transaction>,
}

impl Handle {
    pub(crate) fn of_database(database: Database) -> Self {
        Self {
            fast: database.nonblocking().deferred(),
            is_always_durable: database.durability() == Durability::Always,
            slow: database,
            transaction: None,
        }
    }

    /// Returns handles whose operations fail instead of waiting.
    pub(crate) fn nonblocking(&self) -> Self {
        Self {
            fast: self.fast.clone(),
            slow: self.fast.clone(),
            is_always_durable: false,
            transaction: None,
        }
    }

    pub(crate) fn of_transaction(transaction: Transaction) -> Self {
        Self {
            fast: transaction.nonblocking(),
            slow: Database::clone(&transaction),
            is_always_durable: false,
            transaction: Some(transaction),
        }
    }
}

/// Something that uses the database of a [`Shared`], and ends with it.
pub(crate) trait Child: Send + Sync {
    /// Ends it. Waits for an operation of it that is running.
    fn end(&self);
}

/// An open database or transaction.
pub(crate) struct Shared {
    handle: RwLock<Option<Handle>>,
    generation: Generation,
    children: Mutex<Vec<Weak<dyn Child>>>,
}

impl Shared {
    pub(crate) fn new(handle: Handle) -> Arc<Self> {
        Arc::new(Self {
            handle: RwLock::new(Some(handle)),
            generation: Generation::of_process(),
            children: Mutex::default(),
        })
    }

    /// Returns the handles. Fails if the database is closed, or belongs to another process.
    #[inline]
    pub(crate) fn enter(&self) -> Result<MappedRwLockReadGuard<'_, Handle>, Failure> {
        if !self.generation.is_here() {
            return Err(Failure::Forked);
        }
        // It fails only while another thread closes.
        let guard = self.handle.try_read().ok_or(Failure::Closed)?;
        RwLockReadGuard::try_map(guard, Option::as_ref).map_err(|_| Failure::Closed)
    }

    /// Returns whether operations fail.
    pub(crate) fn is_closed(&self) -> bool {
        self.enter().is_err()
    }

    /// Runs an operation that does not wait, with the GIL. Returns `None` if it would wait.
    #[inline]
    pub(crate) fn try_now<T>(
        &self,
        run: impl FnOnce(&Database) -> cabinet::Result<T>,
    ) -> Result<Option<T>, Failure> {
        let handle = self.enter()?;
        match run(&handle.fast) {
            Ok(done) => Ok(Some(done)),
            Err(Error::WouldBlock) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs an operation that may wait, without the GIL.
    pub(crate) fn wait<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&Database) -> cabinet::Result<T> + Send,
    ) -> Result<T, Failure> {
        py.detach(|| Ok(run(&self.enter()?.slow)?))
    }

    /// Runs an operation with the GIL, and again without it if it would wait.
    #[inline]
    pub(crate) fn read<T: Send>(
        &self,
        py: Python<'_>,
        run: impl Fn(&Database) -> cabinet::Result<T> + Send,
    ) -> Result<T, Failure> {
        match self.try_now(&run)? {
            Some(done) => Ok(done),
            None => self.wait(py, run),
        }
    }

    /// Like [`read`](Self::read), for a change, which is durable then if the database is to be.
    #[inline]
    pub(crate) fn change<T: Send>(
        &self,
        py: Python<'_>,
        run: impl Fn(&Database) -> cabinet::Result<T> + Send,
    ) -> Result<T, Failure> {
        let (changed, is_always_durable) = {
            let handle = self.enter()?;
            match run(&handle.fast) {
                Ok(done) => (Some(done), handle.is_always_durable),
                Err(Error::WouldBlock) => (None, false),
                Err(error) => return Err(error.into()),
            }
        };
        match changed {
            None => self.wait(py, run),
            Some(done) => {
                if is_always_durable {
                    self.wait(py, |database| database.wait_durable(database.appended()))?;
                }
                Ok(done)
            }
        }
    }

    /// Notes something that ends when the database is closed.
    pub(crate) fn adopt(&self, child: Weak<dyn Child>) {
        let mut children = self.children.lock();
        if children.len() >= CHILDREN_KEPT && children.len().is_power_of_two() {
            children.retain(|child| child.strong_count() > 0);
        }
        children.push(child);
    }

    /// Closes it, after the operations that are running. The child of a fork only forgets it. Fails
    /// in the handler of a signal that interrupts an operation: it would wait for that.
    pub(crate) fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        if !self.generation.is_here() {
            return Ok(());
        }
        if INTERRUPTED.get() > 0 {
            return Err(Error::Reentrant.into());
        }
        py.detach(|| self.end());
        Ok(())
    }

    /// Takes the transaction out of it, which is closed then.
    pub(crate) fn take(&self, py: Python<'_>) -> Result<Handle, Failure> {
        if !self.generation.is_here() {
            return Err(Failure::Forked);
        }
        py.detach(|| {
            self.end_children();
            self.handle.write().take()
        })
        .ok_or(Failure::Closed)
    }
}

impl Shared {
    fn end_children(&self) {
        let children = std::mem::take(&mut *self.children.lock());
        for child in children.iter().filter_map(Weak::upgrade) {
            child.end();
        }
    }
}

impl Child for Shared {
    fn end(&self) {
        self.end_children();
        // The lock is held until the database is closed, so that a second call waits for that.
        let mut handle = self.handle.write();
        drop(handle.take());
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Some(handle) = self.handle.get_mut().take() else { return };
        if !self.generation.is_here() {
            // Closing would write into the files of the parent, and wait for threads that only the
            // parent has.
            std::mem::forget(handle);
            return;
        }
        // Closing may wait.
        let mut handle = Some(handle);
        Python::try_attach(|py| {
            let handle = handle.take();
            py.detach(|| drop(handle));
        });
    }
}
