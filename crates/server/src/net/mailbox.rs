//! Mailbox of an event loop: messages from other threads, a waker, and the load of the loop.

use crate::net::connection::Connection;
use crate::net::slab::Token;
use crate::net::worker_pool::Completion;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Age from which a measured load is stale, in milliseconds: the loop has been asleep since.
const BUSY_STALE_MS: u64 = 500;

/// A message to an event loop.
pub(crate) enum Message {
    /// The loop owns this connection from now on.
    Adopt(Box<Connection>),
    /// The pool has executed a request.
    Completion(Token, Completion),
    /// The log has become durable up to the position asked for, or has failed.
    Durable {
        /// The log has failed: nothing more becomes durable.
        failed: bool,
    },
}

/// The part of an event loop that other threads use.
pub(crate) struct Mailbox {
    waker: OwnedFd,
    woken: AtomicBool,
    messages: Mutex<Vec<Message>>,
    /// Whether a connection has pending replies.
    pub(crate) has_pending_replies: AtomicBool,
    /// Whether a connection waits for a place in the pool's queue.
    pub(crate) has_parked: AtomicBool,
    /// Number of connections that the loop has or is about to adopt.
    pub(crate) connections: AtomicUsize,
    busy_percent: AtomicU32,
    measured_at_ms: AtomicU64,
}

impl Mailbox {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        Ok(Self {
            waker: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            woken: AtomicBool::new(false),
            messages: Mutex::new(Vec::new()),
            has_pending_replies: AtomicBool::new(false),
            has_parked: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            busy_percent: AtomicU32::new(0),
            measured_at_ms: AtomicU64::new(0),
        })
    }

    /// Adds a message and wakes the loop.
    pub(crate) fn post(&self, message: Message) {
        self.messages.lock().push(message);
        self.wake();
    }

    /// Wakes the loop. Further calls do nothing until it has taken its messages.
    pub(crate) fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            wake(&self.waker);
        }
    }

    /// Removes and returns all messages. A later message wakes the loop again.
    pub(crate) fn take(&self) -> Vec<Message> {
        self.woken.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.messages.lock())
    }

    /// Stores the load of the loop in its last window.
    pub(crate) fn set_busy(&self, percent: u32, now_ms: u64) {
        self.busy_percent.store(percent, Ordering::Relaxed);
        self.measured_at_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Returns the load of the loop in its last window, in percent; 0 if that is stale.
    pub(crate) fn busy_percent(&self, now_ms: u64) -> u32 {
        let age_ms = now_ms.saturating_sub(self.measured_at_ms.load(Ordering::Relaxed));
        if age_ms > BUSY_STALE_MS { 0 } else { self.busy_percent.load(Ordering::Relaxed) }
    }
}

impl AsFd for Mailbox {
    /// Returns the waker. It is watched edge-triggered, so it is never read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

/// Makes an eventfd readable. Safe to call in a signal handler.
pub(crate) fn wake(waker: &OwnedFd) {
    // This fails only if the counter is full, and then the eventfd is readable.
    let _ = rustix::io::write(waker, &1_u64.to_ne_bytes());
}
