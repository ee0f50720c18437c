//! Whether clients may write: those of a read-only replica may not, and those who wait for replicas
//! not while there are too few.
//!
//! [`crate::store::Store`] asks at each change. What comes from the master goes around it.

use cabinet::{Error, Result};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Open, or closed with the reason.
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
    /// An open one, which cannot be closed if it `stays_open`.
    pub(crate) fn new(stays_open: bool, condition: Option<Arc<dyn WriteCondition>>) -> Self {
        let is_closed = AtomicBool::new(false);
        Self { stays_open, is_closed, reason: Mutex::default(), condition }
    }

    /// Refuses the writes of clients from now on: this server is a replica of `master`.
    pub(crate) fn close(&self, master: &str) {
        if self.stays_open {
            return;
        }
        *self.reason.lock() = format!("this is a read-only replica of {master}");
        self.is_closed.store(true, Ordering::Release);
    }

    /// Lets clients write.
    pub(crate) fn open(&self) {
        self.is_closed.store(false, Ordering::Release);
    }

    /// Why writes are refused, if they are.
    pub(crate) fn reason(&self) -> Option<String> {
        self.is_closed.load(Ordering::Acquire).then(|| self.reason.lock().clone())
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
