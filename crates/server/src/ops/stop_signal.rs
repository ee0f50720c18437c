//! Stop signal: stops all threads of a server.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag, and an eventfd that becomes readable when the flag is set.
pub(crate) struct StopSignal {
    is_set: AtomicBool,
    waker: OwnedFd,
}

impl StopSignal {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        let waker = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { is_set: AtomicBool::new(false), waker })
    }

    /// Stops the threads. Takes no lock and allocates nothing, so a signal handler may call it.
    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        wake(&self.waker);
    }

    /// Returns whether the threads are to stop.
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }
}

impl AsFd for StopSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

/// Makes an eventfd readable. Safe to call in a signal handler.
pub(crate) fn wake(waker: &OwnedFd) {
    // This fails only if the counter is full, and then the eventfd is readable.
    let _ = rustix::io::write(waker, &1_u64.to_ne_bytes());
}
