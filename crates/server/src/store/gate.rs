//! Write gate: refuses the writes of clients on a read-only replica, and while too few replicas
//! acknowledge.
//!
//! [`crate::store::Store`] checks it at each change. Changes from the master bypass it.

use cabinet::{Error, Result};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The gate is open, or closed with a reason.
#[derive(Debug)]
pub(crate) struct Gate {
    stays_open: bool,
    is_closed: AtomicBool,
    reason: Mutex<String>,
    condition: Option<Arc<dyn WriteCondition>>,
}

/// A condition under which clients may write while the gate is open.
pub(crate) trait WriteCondition: fmt::Debug + Send + Sync {
    /// Fails while clients may not write.
    fn check(&self) -> Result<()>;
}

impl Gate {
    /// Returns an open gate. With `stays_open` it cannot be closed.
    pub(crate) fn new(stays_open: bool, condition: Option<Arc<dyn WriteCondition>>) -> Self {
        let is_closed = AtomicBool::new(false);
        Self { stays_open, is_closed, reason: Mutex::default(), condition }
    }

    /// Refuses the writes of clients from now on: this server is a replica of `master`.
    pub(crate) fn close(&self, master: &str) {
        if self.stays_open {
            return;
        }
        *self.reason.lock() =
            format!("this is a read-only replica of {master}: write to that server");
        self.is_closed.store(true, Ordering::Release);
    }

    /// Lets clients write.
    pub(crate) fn open(&self) {
        self.is_closed.store(false, Ordering::Release);
    }

    /// Returns why writes are refused, if they are.
    pub(crate) fn reason(&self) -> Option<String> {
        self.is_closed.load(Ordering::Acquire).then(|| self.reason.lock().clone())
    }

    /// Returns why a write is refused at present, if it is: by the gate, or by its condition.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.pass().err().map(|error| match error {
            Error::ReadOnly(reason) => reason,
            error => error.to_string(),
        })
    }

    /// Fails if writes are refused.
    #[inline]
    pub(crate) fn pass(&self) -> Result<()> {
        match self.is_closed.load(Ordering::Acquire) {
            false => self.condition.as_ref().map_or(Ok(()), |condition| condition.check()),
            true => Err(Error::ReadOnly(self.reason.lock().clone())),
        }
    }
}
