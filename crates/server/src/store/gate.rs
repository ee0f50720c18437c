//! Write gate: refuses the writes of clients on a read-only replica, and while too few replicas
//! acknowledge.
//!
//! [`crate::store::Store`] checks it at each change. Changes from the master bypass it.

use cabinet::{Error, Result};
use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

// States of the gate.
const OPEN: u8 = 0;
/// Open, and the first change is to be noted before it is made.
const OPEN_UNNOTED: u8 = 1;
const CLOSED: u8 = 2;

/// The gate is open, or closed with a reason.
#[derive(Debug)]
pub(crate) struct Gate {
    stays_open: bool,
    state: AtomicU8,
    reason: Mutex<String>,
    condition: Option<Arc<dyn WriteCondition>>,
    note: OnceLock<Box<dyn FirstChange>>,
}

/// A condition under which clients may write while the gate is open.
pub(crate) trait WriteCondition: fmt::Debug + Send + Sync {
    /// Fails while clients may not write.
    fn check(&self) -> Result<()>;
}

/// Note that clients have changed records since a master was followed.
pub(crate) trait FirstChange: fmt::Debug + Send + Sync {
    /// Makes the note durable, before the first such change.
    fn note(&self) -> Result<()>;
}

impl Gate {
    /// Returns an open gate. With `stays_open` it cannot be closed.
    pub(crate) fn new(stays_open: bool, condition: Option<Arc<dyn WriteCondition>>) -> Self {
        let (state, reason) = (AtomicU8::new(OPEN), Mutex::default());
        Self { stays_open, state, reason, condition, note: OnceLock::new() }
    }

    /// Returns whether clients may write while a master is followed.
    pub(crate) fn stays_open(&self) -> bool {
        self.stays_open
    }

    /// Has the first change noted after each time that the gate is opened.
    pub(crate) fn note_changes(&self, note: Box<dyn FirstChange>) {
        // There is one note for a server.
        let _ = self.note.set(note);
    }

    /// Refuses the writes of clients from now on: this server is a replica of `master`.
    pub(crate) fn close(&self, master: &str) {
        if self.stays_open {
            return self.open();
        }
        *self.reason.lock() =
            format!("this is a read-only replica of {master}: write to that server");
        self.state.store(CLOSED, Ordering::Release);
    }

    /// Lets clients write.
    pub(crate) fn open(&self) {
        let state = if self.note.get().is_some() { OPEN_UNNOTED } else { OPEN };
        self.state.store(state, Ordering::Release);
    }

    /// Returns why writes are refused, if they are.
    pub(crate) fn reason(&self) -> Option<String> {
        self.is_closed().then(|| self.reason.lock().clone())
    }

    /// Returns why a write is refused at present, if it is: by the gate, or by its condition.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.pass().err().map(|error| error.to_string())
    }

    /// Fails if writes are refused.
    pub(crate) fn pass(&self) -> Result<()> {
        match self.is_closed() {
            false => self.check(),
            true => Err(Error::ReadOnly(self.reason.lock().clone())),
        }
    }

    /// Lets a change pass, or fails if writes are refused. Fails with [`Error::WouldBlock`] if the
    /// change is to be noted, and the thread may not wait for the disk.
    #[inline]
    pub(crate) fn pass_change(&self, may_wait: bool) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            OPEN => self.check(),
            _ => self.pass_noted(may_wait),
        }
    }

    #[cold]
    fn pass_noted(&self, may_wait: bool) -> Result<()> {
        self.pass()?;
        let Some(note) = self.note.get() else { return Ok(()) };
        if !may_wait {
            return Err(Error::WouldBlock);
        }
        note.note()?;
        // The gate may have been closed meanwhile.
        let (noted, other) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.state.compare_exchange(OPEN_UNNOTED, OPEN, noted, other);
        self.pass()
    }

    fn check(&self) -> Result<()> {
        self.condition.as_ref().map_or(Ok(()), |condition| condition.check())
    }

    fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }
}
