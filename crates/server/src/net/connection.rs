//! One client: its socket, and what is left over between two looks at it.
//!
//! An idle connection owns no buffer. What has arrived is read into a buffer of the event loop,
//! and only half a request, or a reply that the client does not take, stays here.

use crate::admin::logins::Visitor;
use crate::budget::Charge;
use crate::net::pace::Pace;
use crate::net::pending_reply::{
    AcknowledgementPoint, FirstAcknowledgement, PendingReply, RefusalReason,
};
use crate::net::reparse::Reparse;
use crate::net::slab::Token;
use crate::ops::session::Session;
use crate::shared::Shared;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, getpeername, send, shutdown};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// What a connection waits for before it executes its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing: it executes what comes.
    Open,
    /// A request is in the pool.
    Pooled,
    /// A request waits for room in the pool's queue.
    Parked,
    /// No further request is executed: closes when everything has been sent.
    Closing,
    /// As `Closing`, but what the client still sends is thrown away until it stops: closing at
    /// once would destroy the refusal that is on its way to it.
    Refusing,
    /// Everything has been sent, and the client knows that nothing more comes.
    Lingering {
        /// Second of the loop at which patience ends.
        until_s: u64,
    },
}

/// One client.
pub(crate) struct Connection {
    socket: OwnedFd,
    /// What its client is known for.
    pub(crate) session: Session,
    /// Requests not executed yet, mostly the first part of one.
    pub(crate) input: Vec<u8>,
    /// Length of `input` from which it is worth parsing.
    pub(crate) needed: usize,
    /// Whether it is worth parsing at that length.
    pub(crate) reparse: Reparse,
    output: Vec<u8>,
    /// Bytes of `output` that have been sent.
    sent: usize,
    pub(crate) stage: Stage,
    /// What is in `output` must not be sent before that is safe.
    pub(crate) pending_reply: Option<PendingReply>,
    /// The client sends nothing more.
    pub(crate) ended: bool,
    /// The socket is of no use any more.
    pub(crate) broken: bool,
    /// Not watched for input: it came while none is wanted.
    pub(crate) paused: bool,
    /// What the socket is watched for.
    watched: EventFlags,
    /// Second of the loop in which bytes last moved.
    pub(crate) moved_at_s: u64,
    /// The request that has come in part.
    pub(crate) request: Option<Pace>,
    /// The replies that the client is to take.
    pub(crate) reply: Option<Pace>,
    /// Since when a request waits for the server.
    waits_since_ms: u64,
    /// What is in the pool is a part of an upload.
    is_uploading: bool,
    /// What is in the pool is the next piece of a long reply.
    is_downloading: bool,
    /// Times it had something to do, for the balance between loops.
    pub(crate) activity: u32,
    charge: Charge,
    shared: Arc<Shared>,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, shared: Arc<Shared>) -> Self {
        let mut session = Session::default();
        if shared.config.users.is_some() {
            let peer = getpeername(&socket).ok().flatten();
            let address = peer.and_then(|address| SocketAddr::try_from(address).ok());
            session.visitor = Some(Box::new(Visitor::new(address)));
        }
        Self {
            socket,
            session,
            input: Vec::new(),
            needed: 0,
            reparse: Reparse::default(),
            output: Vec::new(),
            sent: 0,
            stage: Stage::Open,
            pending_reply: None,
            ended: false,
            broken: false,
            paused: false,
            watched: EventFlags::empty(),
            moved_at_s: 0,
            request: None,
            reply: None,
            waits_since_ms: 0,
            is_uploading: false,
            is_downloading: false,
            activity: 0,
            charge: Charge::none(&shared.budget),
            shared,
        }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.socket.as_raw_fd()
    }

    /// Bytes of replies that the client has not taken.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Whether it may execute its next request.
    #[inline]
    pub(crate) fn executes(&self) -> bool {
        self.stage == Stage::Open
            && self.pending_reply.is_none()
            && !self.broken
            && self.unsent_bytes() <= self.shared.config.output_bytes_max
            && !self.session.http.is_sending()
    }

    /// Whether it is time for the next piece of a long reply.
    pub(crate) fn is_ready_for_piece(&self) -> bool {
        self.session.http.is_sending()
            && self.stage == Stage::Open
            && self.pending_reply.is_none()
            && self.output.is_empty()
            && !self.broken
    }

    /// Whether it wants more input.
    pub(crate) fn reads(&self) -> bool {
        !self.ended
            && (self.executes() || matches!(self.stage, Stage::Refusing | Stage::Lingering { .. }))
    }

    /// Whether it is between two requests, with nothing under way.
    pub(crate) fn is_movable(&self) -> bool {
        self.stage == Stage::Open
            && self.pending_reply.is_none()
            && self.output.is_empty()
            && !self.session.http.is_sending()
            && !self.ended
            && !self.broken
    }

    /// Whether its client has begun a request, or has a reply to take.
    pub(crate) fn is_mid_exchange(&self) -> bool {
        self.reply.is_some() || self.request.is_some()
    }

    /// Notes what is there of a request, of which `received` bytes have come.
    #[inline]
    pub(crate) fn note_input(&mut self, received: usize, now_ms: u64) {
        let is_pooled = matches!(self.stage, Stage::Pooled | Stage::Parked);
        let is_part = if is_pooled {
            self.is_uploading
        } else {
            !self.input.is_empty() || self.session.http.is_receiving()
        };
        match &mut self.request {
            Some(request) if is_part => request.add(received, now_ms),
            None if is_part => self.request = Some(Pace::new(now_ms, received)),
            request => *request = None,
        }
    }

    /// Notes that so many bytes of the replies have been sent. The pieces of a long one are one
    /// reply.
    #[inline]
    pub(crate) fn note_output(&mut self, sent: usize, now_ms: u64) {
        let is_all = self.output.is_empty() && !self.session.http.is_sending();
        match &mut self.reply {
            reply if is_all || self.pending_reply.is_some() => *reply = None,
            Some(reply) => reply.add(sent, now_ms),
            None => self.reply = Some(Pace::new(now_ms, 0)),
        }
    }

    /// From now on it waits for the server, not the server for its client.
    pub(crate) fn begin_wait(&mut self, now_ms: u64) {
        self.waits_since_ms = now_ms;
        self.is_uploading = self.session.http.is_receiving();
        self.is_downloading = self.session.http.is_sending();
    }

    /// The client has its time again.
    pub(crate) fn end_wait(&mut self, now_ms: u64) {
        let waited_ms = now_ms.saturating_sub(self.waits_since_ms);
        if let Some(request) = &mut self.request {
            request.extend(waited_ms);
        }
        if let Some(reply) = self.reply.as_mut().filter(|_| self.is_downloading) {
            reply.extend(waited_ms);
        }
    }

    /// Whether it can go: nothing is to come from it or to it.
    pub(crate) fn is_done(&self) -> bool {
        let quiet = self.pending_reply.is_none() && self.output.is_empty();
        self.broken
            || quiet
                && match self.stage {
                    Stage::Closing => true,
                    Stage::Open | Stage::Refusing | Stage::Lingering { .. } => self.ended,
                    Stage::Pooled | Stage::Parked => false,
                }
    }

    /// Sends a reply, behind those that wait. What cannot be sent now is kept. `reply` is empty
    /// afterwards; its memory stays with the caller unless most of it is still needed. Answers
    /// the bytes sent.
    pub(crate) fn deliver(&mut self, reply: &mut Vec<u8>) -> usize {
        if self.pending_reply.is_some() || !self.output.is_empty() {
            self.keep(reply, 0);
            return 0;
        }
        match send(&self.socket, reply, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == reply.len() => {
                reply.clear();
                sent
            }
            Ok(sent) => {
                self.keep(reply, sent);
                sent
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.keep(reply, 0);
                0
            }
            Err(_) => {
                self.broken = true;
                reply.clear();
                0
            }
        }
    }

    /// Replies that the client has not taken, which are not sent here any more.
    pub(crate) fn take_unsent(&mut self) -> Vec<u8> {
        let unsent = std::mem::take(&mut self.output).split_off(self.sent);
        self.sent = 0;
        unsent
    }

    fn keep(&mut self, reply: &mut Vec<u8>, sent: usize) {
        if self.output.is_empty() && reply.len() > crate::net::event_loop::BUFFER_BYTES {
            // A long reply is not copied.
            std::mem::swap(&mut self.output, reply);
            self.sent = sent;
        } else {
            // What has gone makes room before more is taken.
            self.output.drain(..self.sent);
            self.sent = 0;
            self.output.extend_from_slice(&reply[sent..]);
        }
        reply.clear();
    }

    /// Keeps what comes next, a batch of replies of which one is `acknowledgement`, until that is safe.
    pub(crate) fn delay_replies(
        &mut self,
        point: AcknowledgementPoint,
        acknowledgement: FirstAcknowledgement,
        now: Instant,
    ) {
        let before = self.unsent_bytes();
        let first = FirstAcknowledgement { at: before + acknowledgement.at, ..acknowledgement };
        // What is held already is at the front.
        let (since, acknowledgement) = self.pending_reply.map_or((now, first), |pending_reply| {
            (pending_reply.since, pending_reply.acknowledgement)
        });
        self.pending_reply = Some(PendingReply { point, since, acknowledgement });
    }

    /// What is held was not confirmed: says so, instead of acknowledging it, and nothing more.
    pub(crate) fn refuse_pending(&mut self) {
        let Some(PendingReply { acknowledgement, .. }) = self.pending_reply.take() else { return };
        self.output.drain(..self.sent);
        self.sent = 0;
        self.output.truncate(acknowledgement.at);
        acknowledgement.refusal.write(RefusalReason::Unconfirmed, &mut self.output);
        self.stage = Stage::Refusing;
    }

    /// Sends what waits, as far as the socket takes it. Answers the bytes sent.
    pub(crate) fn flush(&mut self) -> usize {
        if self.pending_reply.is_some() || self.output.is_empty() {
            return 0;
        }
        match send(&self.socket, &self.output[self.sent..], SendFlags::NOSIGNAL) {
            Ok(sent) => {
                self.sent += sent;
                if self.sent == self.output.len() {
                    self.output = Vec::new();
                    self.sent = 0;
                }
                sent
            }
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => {
                self.broken = true;
                0
            }
        }
    }

    /// Tells the client that nothing more comes.
    pub(crate) fn end_output(&self) {
        // If this fails the client is gone, which reading will tell.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// Has `epoll` watch for what matters now. A connection that neither reads nor writes is not
    /// watched at all, because an end of the connection is reported to every watcher.
    pub(crate) fn watch(&mut self, epoll: &OwnedFd, token: Token) -> rustix::io::Result<()> {
        let mut wanted = EventFlags::empty();
        if !self.paused {
            wanted |= EventFlags::IN;
        }
        if self.pending_reply.is_none() && !self.output.is_empty() {
            wanted |= EventFlags::OUT;
        }
        if wanted == self.watched {
            return Ok(());
        }
        let data = EventData::new_u64(token);
        if self.watched.is_empty() {
            epoll::add(epoll, &self.socket, data, wanted)?;
        } else if wanted.is_empty() {
            epoll::delete(epoll, &self.socket)?;
        } else {
            epoll::modify(epoll, &self.socket, data, wanted)?;
        }
        self.watched = wanted;
        Ok(())
    }

    /// Takes it from the loop it was at.
    pub(crate) fn unwatch(&mut self, epoll: &OwnedFd) {
        if !self.watched.is_empty() {
            // It can only fail if it is not there.
            let _ = epoll::delete(epoll, &self.socket);
            self.watched = EventFlags::empty();
        }
    }

    /// Charges the budget for its buffers as they are now; says whether there was room.
    #[inline]
    pub(crate) fn charge(&mut self) -> bool {
        let buffers = self.input.capacity() + self.output.capacity();
        self.charge.set(buffers + self.session.bytes())
    }

    /// Gives up its buffers and what was in them.
    pub(crate) fn drop_buffers(&mut self) {
        self.input = Vec::new();
        self.output = Vec::new();
        self.sent = 0;
        self.needed = 0;
        self.reparse = Reparse::default();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        tracing::debug!("connection finished");
    }
}
