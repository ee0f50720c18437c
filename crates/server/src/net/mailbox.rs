//! Mailbox of an event loop: messages from other threads, a waker, and the load of the loop.

use crate::access::logins::Verdict;
use crate::net::connection::Connection;
use crate::net::script_pool::CallCompletion;
use crate::net::slab::Token;
use crate::net::worker_pool::Completion;
use crate::ops::remote::Answered;
use crate::ops::stop_signal::wake;
use crate::shared::clients::Visit;
use crate::shared::loop_load::LoopLoad;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A message to an event loop.
pub(crate) enum Message {
    /// The loop owns this connection from now on.
    Adopt(Box<Connection>),
    /// The pool has executed a request.
    Completion(Token, Completion),
    /// A script thread has called a function.
    Called(Token, CallCompletion),
    /// The store outside of this process has answered.
    Answer(Token, u64, Answered),
    /// There are messages for the subscriber of this connection.
    Published(Token),
    /// The connections are described, and may be closed.
    Visit(Arc<Visit>),
    /// A password was verified.
    LoggedIn(Token, Box<Verdict>),
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
    pub(crate) load: Arc<LoopLoad>,
}

impl Mailbox {
    pub(crate) fn new(load: Arc<LoopLoad>) -> rustix::io::Result<Self> {
        Ok(Self {
            waker: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            woken: AtomicBool::new(false),
            messages: Mutex::new(Vec::new()),
            has_pending_replies: AtomicBool::new(false),
            has_parked: AtomicBool::new(false),
            load,
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
}

impl AsFd for Mailbox {
    /// Returns the waker. It is watched edge-triggered, so it is never read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}
