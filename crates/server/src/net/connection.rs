//! A client connection: its socket, and the data that stay between two events.
//!
//! An idle connection owns no buffer. Input is read into a buffer of the event loop. Only an
//! incomplete request, or a reply that the client does not take, stays here.

use crate::access::logins::Peer;
use crate::net::event_loop::Reads;
use crate::net::listener::Beginning;
use crate::net::pace::Pace;
use crate::net::pending_reply::{FirstAcknowledgement, PendingReply};
use crate::net::slab::Token;
use crate::net::transport::Transport;
use crate::ops::acknowledgement::{AcknowledgementPoint, RefusalReason};
use crate::ops::budget::Charge;
use crate::protocol::reparse::Reparse;
use crate::protocol::session::Session;
use crate::shared::Shared;
use crate::shared::clients::{Client, ClientState, Ends};
use crate::shared::slow_log::Taken;
use crate::shared::upgrade::ResumedConnection;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::net::{Shutdown, SocketAddrUnix, getpeername, getsockname, shutdown};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tls::Session as TlsSession;

/// State of a connection: whether its next request may be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The next request is executed as soon as it is complete.
    Open,
    /// A request is in the worker pool.
    Pooled,
    /// A request waits for a place in the pool's queue.
    Parked,
    /// No further request is executed. The connection closes once every reply has been sent.
    Closing,
    /// As `Closing`, but further input is discarded until the client stops sending. Closing at once
    /// would destroy the refusal on its way to the client.
    Refusing,
    /// Every reply has been sent, and so has the end of the stream. The client may still be
    /// sending.
    Lingering {
        /// Time at which the connection is closed in any case, in seconds since the server started.
        until_s: u64,
    },
}

/// A client connection.
pub(crate) struct Connection {
    socket: OwnedFd,
    pub(crate) transport: Transport,
    /// Time by which the handshake of TLS must be complete, in seconds since the server started.
    pub(crate) handshake_until_s: Option<u64>,
    /// Reads of the disk for the present request.
    pub(crate) reads: Reads,
    /// State of the client across requests.
    pub(crate) session: Session,
    /// Input that is not executed yet, mostly an incomplete request.
    pub(crate) input: Vec<u8>,
    /// Length of `input` from which the request may be complete, in bytes.
    pub(crate) needed: usize,
    /// Decides whether to parse `input` again.
    pub(crate) reparse: Reparse,
    output: Vec<u8>,
    /// Number of bytes of `output` that have been sent.
    sent: usize,
    pub(crate) stage: Stage,
    /// `output` must not be sent before this is resolved.
    pub(crate) pending_reply: Option<Box<PendingReply>>,
    /// The client has ended its stream.
    pub(crate) ended: bool,
    /// The socket has failed.
    pub(crate) broken: bool,
    /// The socket is not watched for input, because input came while none was wanted.
    pub(crate) paused: bool,
    /// The loss of the connection was reported while nothing was read.
    pub(crate) lost: bool,
    /// Events for which the socket is watched, beside the loss of the connection.
    watched: Option<EventFlags>,
    /// Time at which bytes were last sent or received, in seconds since the server started.
    pub(crate) moved_at_s: u64,
    /// Pace of the request that has arrived in part.
    pub(crate) request: Option<Pace>,
    /// Pace of the replies that the client has to take.
    pub(crate) reply: Option<Pace>,
    /// Time since which a request waits for the server.
    waits_since: Instant,
    /// Time that the server has taken for the present request before, if any.
    taken: Option<Box<Taken>>,
    /// The request in the pool is a part of an upload.
    is_uploading: bool,
    /// The request in the pool is the next piece of a large reply.
    is_downloading: bool,
    /// The client of the request in the pool is there, as far as is known, on a server over a store
    /// outside of this process.
    pub(crate) is_there: Option<Arc<()>>,
    /// Number of events, for the balance between loops.
    pub(crate) activity: u32,
    charge: Charge,
    /// Time at which the connection began, in seconds since the server started.
    since_s: u32,
    /// State of the session while that is in a pool.
    pub(crate) pooled: Option<Box<ClientState>>,
    shared: Arc<Shared>,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, beginning: Beginning, shared: Arc<Shared>) -> Self {
        let mut session = Session { id: shared.clients.next_id(), ..Session::default() };
        if shared.users.is_some() {
            session.peer = Some(Box::new(Peer::new(address_of(&socket))));
        }
        Self {
            socket,
            transport: match beginning {
                Beginning::Plain => Transport::Plain,
                Beginning::Either => Transport::Undecided,
                Beginning::Tls => Transport::Expected(Vec::new()),
            },
            handshake_until_s: None,
            reads: Reads::default(),
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
            lost: false,
            watched: None,
            moved_at_s: 0,
            request: None,
            reply: None,
            waits_since: shared.started,
            taken: None,
            is_uploading: false,
            is_downloading: false,
            is_there: None,
            activity: 0,
            charge: Charge::none(&shared.served.budget),
            since_s: seconds_since(&shared),
            pooled: None,
            shared,
        }
    }

    /// Returns a connection from within the process, whose requests are those of a client at
    /// `address`. The targets of HTTP requests are keys.
    pub(crate) fn within(
        socket: OwnedFd,
        address: Option<SocketAddr>,
        shared: Arc<Shared>,
    ) -> Self {
        let mut connection = Self::new(socket, Beginning::Plain, shared);
        connection.session.names_keys = true;
        if connection.session.peer.is_some() {
            connection.session.peer = Some(Box::new(Peer::new(address)));
        }
        connection
    }

    /// Returns a connection that was handed over, for its next requests.
    pub(crate) fn resume(resumed: ResumedConnection, shared: Arc<Shared>) -> Self {
        let ResumedConnection { socket, session, peer, received } = resumed;
        let mut connection = Self::new(socket, Beginning::Plain, shared);
        if let Some(session) = session {
            connection.ended = session.has_ended();
            connection.transport = Transport::Tls(session);
        }
        if connection.session.peer.is_some() {
            connection.session.peer = Some(Box::new(peer));
        }
        connection.input = received;
        connection
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.socket.as_raw_fd()
    }

    /// Returns the address of the client, or `None` for a Unix socket.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        address_of(&self.socket)
    }

    /// Describes the connection at a time in seconds since the server started. A session in a pool
    /// is described as it was before.
    pub(crate) fn describe(&self, now_s: u64) -> Client {
        // A session in a pool takes its memory nevertheless.
        let pooled_bytes = self.pooled.as_ref().map_or(0, |state| state.session_bytes);
        Client {
            ends: ends_of(&self.socket, self.address()),
            descriptor: self.descriptor(),
            age_s: now_s.saturating_sub(self.since_s.into()),
            idle_s: now_s.saturating_sub(self.moved_at_s.max(self.since_s.into())),
            input_bytes: self.input.len(),
            output_bytes: self.unsent_bytes(),
            total_bytes: size_of::<Self>() + self.buffered_bytes() + pooled_bytes,
            state: match &self.pooled {
                Some(state) => (**state).clone(),
                None => self.session.state(),
            },
        }
    }

    /// Returns the address of the client as the log shows it.
    pub(crate) fn client(&self) -> String {
        self.address().map_or_else(|| "a Unix socket".to_owned(), |address| address.to_string())
    }

    /// Returns the number of bytes that are not sent yet.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsealed_bytes() + self.transport.unsent_bytes()
    }

    /// Returns the number of bytes of replies that are not sent yet, and not encrypted.
    fn unsealed_bytes(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Returns whether there is anything that is not sent yet.
    #[inline]
    fn has_unsent(&self) -> bool {
        !self.output.is_empty() || self.transport.unsent_bytes() > 0
    }

    /// Returns whether the next request may be executed.
    #[inline]
    pub(crate) fn executes(&self) -> bool {
        self.stage == Stage::Open
            && self.pending_reply.is_none()
            && !self.broken
            && self.unsent_bytes() <= self.shared.config.output_bytes_max
            && !self.session.http.is_sending()
    }

    /// Returns whether the next piece of a large reply may be read.
    pub(crate) fn is_ready_for_piece(&self) -> bool {
        self.session.http.is_sending()
            && self.stage == Stage::Open
            && self.pending_reply.is_none()
            && !self.has_unsent()
            && !self.broken
    }

    /// Returns whether input is wanted.
    pub(crate) fn reads(&self) -> bool {
        !self.ended
            && (self.executes() || matches!(self.stage, Stage::Refusing | Stage::Lingering { .. }))
    }

    /// Returns whether another loop may adopt the connection: it is between two requests, with
    /// nothing pending.
    pub(crate) fn is_movable(&self) -> bool {
        self.stage == Stage::Open
            && self.pending_reply.is_none()
            && !self.has_unsent()
            && self.handshake_until_s.is_none()
            && self.session.subscriptions.is_none()
            && !self.session.http.is_sending()
            && !self.ended
            && !self.broken
    }

    /// Returns whether the client has ended its stream.
    pub(crate) fn has_left(&self) -> bool {
        let mut socket = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        poll(&mut socket, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Returns whether no part of a request has arrived that is not executed, nor a part of a
    /// handshake that a request follows.
    pub(crate) fn is_between_requests(&self) -> bool {
        let is_partial =
            |session: &TlsSession| session.is_handshaking() || session.has_incomplete();
        self.input.is_empty()
            && !self.session.http.is_under_way()
            && !self.transport.session().is_some_and(is_partial)
            && rustix::io::ioctl_fionread(&self.socket).is_ok_and(|bytes| bytes == 0)
    }

    /// Returns whether the client has begun a request or has a reply to take.
    pub(crate) fn is_mid_exchange(&self) -> bool {
        self.reply.is_some() || self.request.is_some()
    }

    /// Updates the pace of the incomplete request, of which `received` bytes have just arrived.
    #[inline]
    pub(crate) fn note_input(&mut self, received: usize, now_ms: u64) {
        let is_pooled = matches!(self.stage, Stage::Pooled | Stage::Parked);
        let is_part = if is_pooled {
            self.is_uploading
        } else {
            !self.input.is_empty()
                || self.session.http.is_receiving()
                || self.transport.session().is_some_and(TlsSession::has_incomplete)
        };
        match &mut self.request {
            Some(request) if is_part => request.add(received, now_ms),
            None if is_part => self.request = Some(Pace::new(now_ms, received)),
            request => *request = None,
        }
    }

    /// Updates the pace of the replies, of which `sent` bytes have just been sent. The pieces of a
    /// large reply count as one reply.
    #[inline]
    pub(crate) fn note_output(&mut self, sent: usize, now_ms: u64) {
        let is_all = !self.has_unsent() && !self.session.http.is_sending();
        match &mut self.reply {
            reply if is_all || self.pending_reply.is_some() => *reply = None,
            Some(reply) => reply.add(sent, now_ms),
            None => self.reply = Some(Pace::new(now_ms, 0)),
        }
    }

    /// Stops the client's clock: the server has to act.
    pub(crate) fn begin_wait(&mut self, now: Instant) {
        self.waits_since = now;
        self.is_uploading = self.session.http.is_receiving();
        self.is_downloading = self.session.http.is_sending();
    }

    /// Starts the client's clock again. Returns the time for which it stood still.
    pub(crate) fn end_wait(&mut self, now: Instant) -> Duration {
        let waited = now.saturating_duration_since(self.waits_since);
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        if let Some(request) = &mut self.request {
            request.extend(waited_ms);
        }
        if let Some(reply) = self.reply.as_mut().filter(|_| self.is_downloading) {
            reply.extend(waited_ms);
        }
        waited
    }

    /// Returns the time that the server has taken for the present request before.
    #[inline]
    pub(crate) fn taken(&mut self) -> &mut Taken {
        self.taken.get_or_insert_default()
    }

    /// Returns the time that the server has taken for the request, which ends.
    #[inline]
    pub(crate) fn end_taken(&mut self) -> Taken {
        self.taken.take().map_or_else(Taken::default, |taken| *taken)
    }

    /// Returns whether the connection can be closed: nothing is expected from the client or to be
    /// sent.
    pub(crate) fn is_done(&self) -> bool {
        let quiet = self.pending_reply.is_none() && !self.has_unsent();
        self.broken
            || quiet
                && match self.stage {
                    Stage::Closing => true,
                    Stage::Open | Stage::Refusing | Stage::Lingering { .. } => self.ended,
                    Stage::Pooled | Stage::Parked => false,
                }
    }

    /// Sends a reply, after those that wait, and returns the number of bytes sent. Keeps what
    /// cannot be sent now. `reply` is empty afterwards. Its memory stays with the caller unless
    /// most of it is still needed. `records` is a buffer for a session.
    pub(crate) fn deliver(&mut self, reply: &mut Vec<u8>, records: &mut Vec<u8>) -> usize {
        if self.pending_reply.is_some() || self.has_unsent() {
            self.keep(reply, 0);
            return 0;
        }
        let sent = self.transport.send(&self.socket, reply, records);
        if sent.is_broken {
            self.broken = true;
            reply.clear();
        } else if sent.plain == reply.len() {
            reply.clear();
        } else {
            self.keep(reply, sent.plain);
        }
        sent.bytes
    }

    /// Removes and returns the bytes of replies that are not sent yet.
    pub(crate) fn take_unsent(&mut self) -> Vec<u8> {
        let unsent = std::mem::take(&mut self.output).split_off(self.sent);
        self.sent = 0;
        unsent
    }

    fn keep(&mut self, reply: &mut Vec<u8>, sent: usize) {
        if self.output.is_empty() && reply.len() > crate::net::event_loop::BUFFER_BYTES {
            // A large reply is moved, not copied.
            std::mem::swap(&mut self.output, reply);
            self.sent = sent;
        } else {
            // Remove the bytes that have been sent before more are added.
            self.output.drain(..self.sent);
            self.sent = 0;
            self.output.extend_from_slice(&reply[sent..]);
        }
        reply.clear();
    }

    /// Delays the replies that follow until `point` is reached. `acknowledgement` is the first of
    /// them that acknowledges a change.
    pub(crate) fn delay_replies(
        &mut self,
        point: AcknowledgementPoint,
        acknowledgement: FirstAcknowledgement,
        now: Instant,
    ) {
        let before = self.unsealed_bytes();
        let first = FirstAcknowledgement { at: before + acknowledgement.at, ..acknowledgement };
        // Replies that are pending already come first.
        let fresh = || Box::new(PendingReply { point, since: now, acknowledgement: first });
        self.pending_reply.get_or_insert_with(fresh).point = point;
    }

    /// Replaces the first pending acknowledgement, and everything after it, with a refusal.
    pub(crate) fn refuse_pending(&mut self) {
        let Some(pending) = self.pending_reply.take() else { return };
        let acknowledgement = pending.acknowledgement;
        self.output.drain(..self.sent);
        self.sent = 0;
        self.output.truncate(acknowledgement.at);
        acknowledgement.refusal.write(RefusalReason::Unconfirmed, &mut self.output);
        self.stage = Stage::Refusing;
    }

    /// Sends the waiting replies, and what the session has to send, as far as the socket takes
    /// them. Returns the number of bytes sent.
    pub(crate) fn flush(&mut self, records: &mut Vec<u8>) -> usize {
        if !self.has_unsent() {
            return 0;
        }
        let replies = if self.pending_reply.is_some() { &[] } else { &self.output[self.sent..] };
        if replies.is_empty() && self.transport.unsent_bytes() == 0 {
            return 0;
        }
        let sent = self.transport.send(&self.socket, replies, records);
        self.broken |= sent.is_broken;
        self.sent += sent.plain;
        if self.sent == self.output.len() {
            self.output = Vec::new();
            self.sent = 0;
        }
        sent.bytes
    }

    /// Ends the session of TLS, if there is one. Behind a reply that is cut off the client is not
    /// told that this was all.
    pub(crate) fn end_session(&mut self) {
        if !self.broken && !self.has_unsent() && !self.session.http.is_sending() {
            self.transport.end(&self.socket);
        }
    }

    /// Ends the stream to the client.
    pub(crate) fn end_output(&mut self) {
        self.end_session();
        // If this fails the client is gone, which the next read reports.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// Watches the socket for the events that matter now. The loss of the connection is reported
    /// to every watcher, and again and again, so a lost one that neither reads nor writes is not
    /// watched at all.
    pub(crate) fn watch(&mut self, epoll: &OwnedFd, token: Token) -> rustix::io::Result<()> {
        let mut wanted = EventFlags::empty();
        if !self.paused {
            wanted |= EventFlags::IN;
        }
        if self.pending_reply.is_none() && !self.output.is_empty()
            || self.transport.unsent_bytes() > 0
        {
            wanted |= EventFlags::OUT;
        }
        let wanted = (!self.lost || !wanted.is_empty()).then_some(wanted);
        if wanted == self.watched {
            return Ok(());
        }
        let data = EventData::new_u64(token);
        match (self.watched, wanted) {
            (None, Some(wanted)) => epoll::add(epoll, &self.socket, data, wanted)?,
            (Some(_), Some(wanted)) => epoll::modify(epoll, &self.socket, data, wanted)?,
            (_, None) => epoll::delete(epoll, &self.socket)?,
        }
        self.watched = wanted;
        Ok(())
    }

    /// Removes the socket from `epoll`.
    pub(crate) fn unwatch(&mut self, epoll: &OwnedFd) {
        if self.watched.take().is_some() {
            // This fails only if the socket is not watched.
            let _ = epoll::delete(epoll, &self.socket);
        }
    }

    /// Charges the budget for the buffers at their present size. Returns whether the budget allows
    /// it.
    #[inline]
    pub(crate) fn charge(&mut self) -> bool {
        let bytes = self.buffered_bytes();
        self.charge.set(bytes)
    }

    /// Charges the budget for the buffers and further bytes. Returns whether the budget allows it.
    pub(crate) fn charge_beside(&mut self, bytes: usize) -> bool {
        let bytes = self.buffered_bytes() + bytes;
        self.charge.set(bytes)
    }

    /// Gives away the charge for the session and `bytes` more, which another thread gets. Returns
    /// `None` if the budget does not allow it.
    pub(crate) fn take_charge(&mut self, bytes: usize) -> Option<Charge> {
        let session_bytes = self.session.bytes();
        let mut charge = self.charge.split(session_bytes);
        charge.set(session_bytes + bytes).then_some(charge)
    }

    /// Takes back the charge for the session.
    pub(crate) fn return_charge(&mut self, charge: Charge) {
        self.charge.join(charge);
    }

    #[inline]
    fn buffered_bytes(&self) -> usize {
        let buffers = self.input.capacity() + self.output.capacity();
        buffers + self.session.bytes() + self.transport.bytes()
    }

    /// Frees the buffers and their contents.
    pub(crate) fn drop_buffers(&mut self) {
        self.input = Vec::new();
        self.output = Vec::new();
        self.sent = 0;
        self.needed = 0;
        self.reparse = Reparse::default();
    }
}

fn address_of(socket: &OwnedFd) -> Option<SocketAddr> {
    let peer = getpeername(socket).ok().flatten();
    peer.and_then(|address| SocketAddr::try_from(address).ok())
}

fn seconds_since(shared: &Shared) -> u32 {
    u32::try_from(shared.started.elapsed().as_secs()).unwrap_or(u32::MAX)
}

fn ends_of(socket: &OwnedFd, client: Option<SocketAddr>) -> Ends {
    let server = getsockname(socket).ok();
    let at = server.clone().and_then(|address| SocketAddr::try_from(address).ok());
    if let (Some(client), Some(server)) = (client, at) {
        return Ends::Tcp(client, server);
    }
    let unix = server.and_then(|address| SocketAddrUnix::try_from(address).ok());
    let path = unix.as_ref().and_then(SocketAddrUnix::path);
    Ends::Unix(path.map_or_else(String::new, |path| path.to_string_lossy().into_owned()))
}

impl Drop for Connection {
    fn drop(&mut self) {
        tracing::debug!("connection closed");
    }
}
