//! Open database behind its objects of Python: who may use it, and when the GIL is released.
//!
//! It is one that this process has open, or one that a server has open for several processes. Only
//! this module knows which.
//!
//! An operation first runs with the GIL and without waiting, on a handle that is nonblocking. Only
//! if it would wait is the GIL released, and the operation runs again on one that waits.
//!
//! Each operation holds the lock of the handle for reading, and closing takes it for writing: so a
//! database is closed after the operations that are running, and no later one finds it. An
//! operation never waits for this lock: it would do so with the GIL, which the one that it waits
//! for may need. While it is held, no code of Python runs, except for handlers of signals: only
//! objects of bytes are made.

use crate::client::Remote;
use crate::errors::{Failure, Fault};
use crate::fork::Generation;
use crate::operation::{FromReply, Operation, Properties};
use crate::portion::{self, Limits, Portion, Position, Wanted};
use crate::signals;
use cabinet::{Database, Durability, Error, Transaction};
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};
use pyo3::prelude::*;
use std::borrow::Cow;
use std::sync::{Arc, Weak};

/// Number of weak references to children from which dead ones are removed.
const CHILDREN_KEPT: usize = 64;

/// An open database, or a transaction in one.
pub(crate) enum Handle {
    /// This process has it open.
    Local(Local),
    /// A server has it open.
    Remote(Remote),
}

/// Handles of a database that this process has open, or of a transaction in it.
pub(crate) struct Local {
    /// Handle whose operations do not wait, and whose writes are not acknowledged yet.
    fast: Database,
    /// Handle whose operations wait.
    slow: Database,
    is_always_durable: bool,
    transaction: Option<Transaction>,
}

impl Handle {
    pub(crate) fn of_database(database: Database) -> Self {
        Self::Local(Local {
            fast: database.nonblocking().deferred(),
            is_always_durable: database.durability() == Durability::Always,
            slow: database,
            transaction: None,
        })
    }

    /// Returns handles whose operations fail instead of waiting.
    pub(crate) fn nonblocking(&self) -> Self {
        match self {
            Self::Local(local) => Self::Local(Local {
                fast: local.fast.clone(),
                slow: local.fast.clone(),
                is_always_durable: false,
                transaction: None,
            }),
            Self::Remote(remote) => Self::Remote(remote.refusing()),
        }
    }

    /// Begins a transaction.
    pub(crate) fn begin(&self, py: Python<'_>) -> Result<Self, Failure> {
        Ok(match self {
            Self::Local(local) => {
                let transaction = local.slow.transaction();
                Self::Local(Local {
                    fast: transaction.nonblocking(),
                    slow: Database::clone(&transaction),
                    is_always_durable: false,
                    transaction: Some(transaction),
                })
            }
            Self::Remote(remote) => Self::Remote(remote.begin(py)?),
        })
    }

    /// Commits the transaction.
    pub(crate) fn commit(self, py: Python<'_>) -> Result<(), Failure> {
        match self {
            Self::Local(local) => {
                let transaction = local.transaction.ok_or(Failure::Closed)?;
                Ok(py.detach(|| transaction.commit())?)
            }
            Self::Remote(remote) => remote.commit(py),
        }
    }

    /// Returns properties of the database.
    pub(crate) fn properties(&self) -> Properties {
        match self {
            Self::Local(local) => Properties::of(&local.slow),
            Self::Remote(remote) => remote.properties.clone(),
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
    /// Whether the children of a fork may use it.
    is_inherited: bool,
    /// Children, which end with it; `None` once it ends.
    children: Mutex<Option<Vec<Weak<dyn Child>>>>,
}

impl Shared {
    pub(crate) fn new(handle: Handle) -> Arc<Self> {
        let is_inherited = matches!(&handle, Handle::Remote(remote) if !remote.is_transaction());
        Arc::new(Self {
            is_inherited,
            handle: RwLock::new(Some(handle)),
            generation: Generation::of_process(),
            children: Mutex::new(Some(Vec::new())),
        })
    }

    /// Returns the handles. Fails if the database is closed, or belongs to another process.
    #[inline]
    pub(crate) fn enter(&self) -> Result<MappedRwLockReadGuard<'_, Handle>, Failure> {
        if !self.generation.is_here() && !self.is_inherited {
            return Err(Failure::Forked);
        }
        // It fails only while another thread closes.
        let guard = self.handle.try_read().ok_or(Failure::Closed)?;
        let is_open = |handle: &&Handle| match handle {
            Handle::Local(_) => true,
            Handle::Remote(remote) => !remote.is_closed(),
        };
        RwLockReadGuard::try_map(guard, |handle| handle.as_ref().filter(is_open))
            .map_err(|_| Failure::Closed)
    }

    /// Returns whether operations fail.
    pub(crate) fn is_closed(&self) -> bool {
        self.enter().is_err()
    }

    /// Runs a function that does not wait, with the GIL. Returns `None` if it would wait, and for a
    /// database that a server has open.
    #[inline]
    pub(crate) fn try_now<T>(
        &self,
        run: impl FnOnce(&Database) -> cabinet::Result<T>,
    ) -> Result<Option<T>, Failure> {
        match &*self.enter()? {
            Handle::Local(local) => or_would_wait(run(&local.fast)),
            Handle::Remote(_) => Ok(None),
        }
    }

    /// Runs an operation that may wait, without the GIL.
    pub(crate) fn wait<T: FromReply + Send>(
        &self,
        py: Python<'_>,
        operation: &Operation<'_>,
    ) -> Result<T, Failure> {
        match &*self.enter()? {
            Handle::Local(local) => wait_locally(py, &local.slow, operation),
            Handle::Remote(remote) => remote.call(py, operation),
        }
    }

    /// Runs an operation with the GIL, and again without it if it would wait.
    #[inline]
    pub(crate) fn read<T: FromReply + Send>(
        &self,
        py: Python<'_>,
        operation: &Operation<'_>,
    ) -> Result<T, Failure> {
        let handle = self.enter()?;
        let local = match &*handle {
            Handle::Local(local) => local,
            Handle::Remote(remote) => return remote.call(py, operation),
        };
        match or_would_wait(operation.run(&local.fast, || false))? {
            Some(reply) => T::take(reply),
            None => wait_locally(py, &local.slow, operation),
        }
    }

    /// Like [`read`](Self::read), for a change, which is durable then if the database is to be.
    #[inline]
    pub(crate) fn change<T: FromReply + Send>(
        &self,
        py: Python<'_>,
        operation: &Operation<'_>,
    ) -> Result<T, Failure> {
        let handle = self.enter()?;
        let local = match &*handle {
            Handle::Local(local) => local,
            Handle::Remote(remote) => return remote.call(py, operation),
        };
        let Some(reply) = or_would_wait(operation.run(&local.fast, || false))? else {
            return wait_locally(py, &local.slow, operation);
        };
        if local.is_always_durable {
            let slow = &local.slow;
            py.detach(|| slow.wait_durable(slow.appended()))?;
        }
        T::take(reply)
    }

    /// Runs a function that may wait, without the GIL, for a database that this process has open.
    pub(crate) fn wait_here<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&Database) -> cabinet::Result<T> + Send,
    ) -> Result<T, Failure> {
        match &*self.enter()? {
            Handle::Local(local) => {
                let slow = &local.slow;
                Ok(py.detach(|| run(slow))?)
            }
            Handle::Remote(_) => {
                let text = "records are imported by the process that has the database open: open \
                            it without shared=True meanwhile";
                Err(Fault::new("UnsupportedError", text).into())
            }
        }
    }

    /// Reads the next portion of an iteration, without the GIL.
    pub(crate) fn fill(
        &self,
        py: Python<'_>,
        limits: &Limits,
        wanted: Wanted,
        position: &mut Position,
        portion: &mut Portion,
    ) -> Result<(), Failure> {
        match &*self.enter()? {
            Handle::Local(local) => {
                let slow = &local.slow;
                Ok(py.detach(|| portion::fill(slow, limits, wanted, position, portion))?)
            }
            Handle::Remote(remote) => {
                // After an error the iteration has ended.
                let from = std::mem::replace(position, Position::Ended);
                let scan = Operation::Scan(Cow::Borrowed(limits), wanted, from);
                (*portion, *position) = remote.call(py, &scan)?;
                Ok(())
            }
        }
    }

    /// Lets changes whose reply was lost be repeated, see [`Remote::repeat_changes`].
    pub(crate) fn repeat_changes(&self) -> Result<(), Failure> {
        if let Handle::Remote(remote) = &*self.enter()? {
            remote.repeat_changes();
        }
        Ok(())
    }

    /// Returns properties of the database.
    pub(crate) fn properties(&self) -> Result<Properties, Failure> {
        Ok(self.enter()?.properties())
    }

    /// Notes something that ends when the database is closed. The caller has entered it, so the
    /// closing waits for this; if it has begun, the child ends at once.
    pub(crate) fn adopt(&self, child: Weak<dyn Child>) {
        let mut children = self.children.lock();
        let Some(children) = &mut *children else {
            if let Some(child) = child.upgrade() {
                child.end();
            }
            return;
        };
        if children.len() >= CHILDREN_KEPT && children.len().is_power_of_two() {
            children.retain(|child| child.strong_count() > 0);
        }
        children.push(child);
    }

    /// Closes it, after the operations that are running. The child of a fork only forgets it. Fails
    /// in the handler of a signal that interrupts an operation: it would wait for that.
    pub(crate) fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        if !self.generation.is_here() {
            if let Ok(handle) = self.enter()
                && let Handle::Remote(remote) = &*handle
            {
                remote.close();
            }
            return Ok(());
        }
        if signals::is_within_operation() {
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
        let children = self.children.lock().take();
        for child in children.iter().flatten().filter_map(Weak::upgrade) {
            child.end();
        }
    }
}

impl Child for Shared {
    fn end(&self) {
        self.end_children();
        // The lock is held until the database is closed, so that a second call waits for that.
        let mut handle = self.handle.write();
        if let Some(Handle::Remote(remote)) = &*handle {
            remote.close();
        }
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

/// Returns `None` for what would have waited.
#[inline]
fn or_would_wait<T>(done: cabinet::Result<T>) -> Result<Option<T>, Failure> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(Error::WouldBlock) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn wait_locally<T: FromReply + Send>(
    py: Python<'_>,
    database: &Database,
    operation: &Operation<'_>,
) -> Result<T, Failure> {
    let reply = py.detach(|| operation.run(database, signals::is_interrupted));
    match signals::take_raised() {
        Some(raised) => Err(raised.into()),
        None => T::take(reply?),
    }
}
