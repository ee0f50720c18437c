//! What other threads see of an event loop: an messages, a waker, and how busy it is.

use crate::net::connection::Connection;
use crate::net::slab::Token;
use crate::net::worker_pool::Completion;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Age of a figure, in milliseconds, from which it says nothing: the loop has been asleep since.
const BUSY_STALE_MS: u64 = 500;

/// Something for an event loop to take care of.
pub(crate) enum Message {
    /// A connection that is this loop's from now on.
    Adopt(Box<Connection>),
    /// What the pool made of a request.
    Completion(Token, Completion),
    /// The log moved on, or failed for good.
    Durable {
        /// Nothing more becomes durable.
        failed: bool,
    },
}

/// The outside of an event loop.
pub(crate) struct Mailbox {
    waker: OwnedFd,
    woken: AtomicBool,
    messages: Mutex<Vec<Message>>,
    /// Some connection waits for the durable position to move.
    pub(crate) has_pending_replies: AtomicBool,
    /// Some connection waits for room in the queue of the pool.
    pub(crate) has_parked: AtomicBool,
    /// Connections that the loop has or is about to have.
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

    /// Leaves a message and wakes the loop.
    pub(crate) fn post(&self, message: Message) {
        self.messages.lock().push(message);
        self.wake();
    }

    /// Wakes the loop, once however often it is called meanwhile.
    pub(crate) fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            wake(&self.waker);
        }
    }

    /// Takes all messages. What is posted from now on rings the waker again.
    pub(crate) fn take(&self) -> Vec<Message> {
        self.woken.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.messages.lock())
    }

    /// Tells how busy the loop was lately.
    pub(crate) fn set_busy(&self, percent: u32, now_ms: u64) {
        self.busy_percent.store(percent, Ordering::Relaxed);
        self.measured_at_ms.store(now_ms, Ordering::Relaxed);
    }

    /// How busy the loop was lately, in percent of the time.
    pub(crate) fn busy_percent(&self, now_ms: u64) -> u32 {
        let age_ms = now_ms.saturating_sub(self.measured_at_ms.load(Ordering::Relaxed));
        if age_ms > BUSY_STALE_MS { 0 } else { self.busy_percent.load(Ordering::Relaxed) }
    }
}

impl AsFd for Mailbox {
    /// The waker. It is watched for edges, so nobody needs to read it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

/// Makes an eventfd readable. Safe to call in a signal handler.
pub(crate) fn wake(waker: &OwnedFd) {
    // It can only fail when the counter is full, and then the waker is ringing.
    let _ = rustix::io::write(waker, &1_u64.to_ne_bytes());
}
