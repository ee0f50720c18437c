//! Event loop: one thread that reads, executes and replies for its connections.
//!
//! A lone request costs three system calls: one wait, one read, one write. It takes no timer, no
//! lock and no allocation. A wait that is expected to be short asks several times instead of
//! sleeping, see [`polling`]. Everything that has arrived from a client is read at once, executed
//! request by request, and answered with one write.
//!
//! Thread model: a connection belongs to one loop at a time, and only that loop's thread touches
//! it. Other threads post messages to the loop's [`Mailbox`].

mod calls;
mod deliver;
mod polling;
mod reads;
mod records;
mod serve;

use crate::counters::{Count, Counters};
use crate::net::balance::{Balance, Handover, Meter, Verdict};
use crate::net::connection::{Connection, Stage};
use crate::net::hub::Hub;
use crate::net::mailbox::{Mailbox, Message};
use crate::net::script_pool::ScriptJob;
use crate::net::slab::{Slab, Token};
use crate::net::transport::Transport;
use crate::ops::acknowledgement::AcknowledgementPoint;
use crate::replication::OnTimeout;
use crate::shared::Shared;
use crate::shared::clients::Visit;
use crate::shared::slow_log::SlowRequest;
use crate::shared::upgrade::Resume;
use crate::{Error, Result};
use cabinet::{LogPosition, Ring};
use polling::{NO_WAIT, Polling};
pub(crate) use reads::Reads;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::RequestKind;

/// Size in bytes of the buffers that all connections of a loop share. It bounds one read. A longer
/// reply is moved rather than copied.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;

/// Shared buffers that have grown beyond this many bytes for one large reply are freed.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// Most events taken per wait.
const EVENTS_MAX: usize = 256;

/// Token of the waker. Tokens of connections have a generation of at least 1.
const WAKER: Token = 0;

/// Token of the ring.
const READS: Token = 1;

/// Time a client has to stop sending after a refusal, in seconds.
const LINGER_SECONDS: u64 = 2;

/// Timeout of a wait while anything depends on time.
const TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Timeout of a wait while replies wait for replicas.
const CONFIRMATION_TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Least time between two executions of a request that waits for a time or for replicas.
const RETRY_INTERVAL: Duration = Duration::from_millis(40);

/// Timeout of a wait while the server stops.
const STOPPING_TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// An event loop and its connections.
pub(crate) struct EventLoop {
    connections: Slab<Box<Connection>>,
    state: LoopState,
}

/// State of a loop apart from its connections, so that one connection can be borrowed beside it.
struct LoopState {
    number: usize,
    hub: Arc<Hub>,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    epoll: OwnedFd,
    polling: Polling,
    /// Reads that the loop has under way itself, if the kernel allows it.
    ring: Option<Ring>,
    /// Buffer into which requests are read.
    input: Vec<u8>,
    /// Buffer into which replies are written.
    output: Vec<u8>,
    /// Buffer for the records of TLS sessions, in both directions.
    records: Vec<u8>,
    /// Number of connections whose handshake of TLS must be complete some time.
    handshaking: usize,
    /// Connections with pending replies, in the order of their acknowledgement points.
    pending_replies: VecDeque<(AcknowledgementPoint, Token)>,
    /// Durable position at the last check.
    durable: LogPosition,
    /// A task that asks whether the log still makes progress is in the pool.
    is_asking_log: bool,
    /// Connections that wait for a place in the pool's queue.
    parked: Vec<Token>,
    /// Connections whose next request waits for a time or for replicas.
    postponed: Vec<Token>,
    /// Time at which their requests were executed last.
    retried_at: Instant,
    /// Calls that have come in this round.
    calls: Vec<ScriptJob>,
    /// Calls that the loop itself is about to make, the first one last.
    own_calls: Vec<ScriptJob>,
    /// Number of connections in [`Stage::Lingering`].
    lingering: usize,
    /// Number of requests to the store outside of this process.
    store_requests: u64,
    meter: Meter,
    balance: Balance,
    /// Time at which the loop woke up, or its last call of a function since then ended.
    now: Instant,
    ticked_at_s: u64,
    stop_at: Option<Instant>,
}

impl EventLoop {
    pub(crate) fn new(number: usize, hub: Arc<Hub>) -> Result<Self> {
        let shared = Arc::clone(&hub.shared);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(Error::system("make an epoll instance"))?;
        epoll::add(
            &epoll,
            &hub.mailboxes[number],
            EventData::new_u64(WAKER),
            EventFlags::IN | EventFlags::ET,
        )
        .map_err(Error::system("watch an eventfd"))?;
        let now = Instant::now();
        let state = LoopState {
            number,
            counters: shared.counters.add_thread(),
            hub,
            shared,
            epoll,
            polling: Polling::default(),
            ring: None,
            input: Vec::with_capacity(BUFFER_BYTES),
            output: Vec::with_capacity(BUFFER_BYTES),
            records: Vec::new(),
            handshaking: 0,
            pending_replies: VecDeque::new(),
            durable: 0,
            is_asking_log: false,
            parked: Vec::new(),
            postponed: Vec::new(),
            retried_at: now,
            calls: Vec::new(),
            own_calls: Vec::new(),
            lingering: 0,
            store_requests: 0,
            meter: Meter::new(now),
            balance: Balance::default(),
            now,
            ticked_at_s: 0,
            stop_at: None,
        };
        Ok(Self { connections: Slab::default(), state })
    }

    /// Waits for events, and handles them. Calls of functions remain to be made.
    fn handle_events(&mut self, events: &mut Vec<Event>) -> Result<()> {
        let timeout = self.state.timeout(self.connections.len());
        let LoopState { polling, epoll, ring, .. } = &mut self.state;
        // A read takes longer than a poll.
        let may_poll = !ring.as_ref().is_some_and(Ring::is_busy);
        polling.wait(epoll, events, timeout, may_poll).map_err(Error::system("wait for events"))?;
        // The load of a loop does not include its polls.
        self.state.now = Instant::now();
        self.state.meter.wakes(self.state.now);
        let (mut woken, mut has_read) = (false, false);
        for event in events.drain(..) {
            match event.data.u64() {
                WAKER => woken = true,
                READS => has_read = true,
                token => self.ready(token, event.flags),
            }
        }
        if woken {
            self.read_mailbox();
        }
        self.retry_postponed();
        if has_read || self.state.ring.as_ref().is_some_and(Ring::has_queued) {
            self.finish_reads();
        }
        if timeout.is_some() {
            self.expire_pending();
            self.tick();
        }
        Ok(())
    }

    /// Ends a round. Returns whether the loop has ended.
    fn end_round(&mut self) -> bool {
        if self.state.stop_at.is_some() && self.has_stopped() {
            return true;
        }
        if let Some(percent) = self.state.meter.sleeps(Instant::now()) {
            self.balance(percent);
        }
        false
    }

    fn ready(&mut self, token: Token, flags: EventFlags) {
        // The connection may have been closed since the events were taken.
        if let Some(connection) = self.connections.get_mut(token) {
            self.state.ready(token, connection, flags);
            self.update_or_close(token);
        }
    }

    /// Updates a connection after it has acted, or closes it.
    #[inline]
    fn update_or_close(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        if !self.state.update(token, connection) {
            self.close(token);
        }
    }

    fn close(&mut self, token: Token) {
        if let Some(mut connection) = self.connections.remove(token) {
            connection.end_session();
            self.state.detach(&mut connection);
        }
    }

    fn read_mailbox(&mut self) {
        self.state.mailbox().load.beats.fetch_add(1, Ordering::Relaxed);
        for message in self.state.mailbox().take() {
            match message {
                Message::Adopt(connection) => self.adopt(connection),
                Message::Completion(token, completion) => {
                    self.complete(token, |state, connection| {
                        state.complete(token, connection, completion);
                    });
                }
                Message::Answer(token, number, answer) => {
                    self.complete(token, |state, connection| {
                        state.answer(token, connection, number, answer);
                    });
                }
                Message::Visit(visit) => self.visit(&visit),
                Message::LoggedIn(token, verdict) => {
                    self.complete(token, |state, connection| {
                        state.log_in(token, connection, verdict);
                    });
                }
                // The update sends the messages, now or when the connection is ready for them.
                Message::Published(token) => self.update_or_close(token),
                Message::Called(token, completion) => {
                    self.complete(token, |state, connection| {
                        state.complete_call(token, connection, completion);
                    });
                }
                Message::Durable { failed } => {
                    self.state.is_asking_log = false;
                    if failed {
                        self.close_pending();
                    }
                }
            }
        }
        self.release_pending();
        for token in std::mem::take(&mut self.state.parked) {
            if let Some(connection) = self.connections.get_mut(token)
                && connection.stage == Stage::Parked
            {
                connection.stage = Stage::Open;
                let waited = connection.end_wait(self.state.now);
                connection.taken().queue += waited;
                self.state.resume(token, connection);
                self.update_or_close(token);
            }
        }
        if self.state.shared.served.is_stopping() && self.state.stop_at.is_none() {
            self.state.stop_at = Some(self.state.now + self.state.shared.live.stop_wait());
            self.state.shared.pause.end();
        }
    }

    /// Describes all connections to a visit, and closes those that it asks to close.
    fn visit(&mut self, visit: &Visit) {
        let now_s = self.state.now_s();
        let connections = self.connections.iter();
        let visited =
            connections.filter(|(_, connection)| visit.visit(&connection.describe(now_s)));
        let ended: Vec<Token> = visited.map(|(token, _)| token).collect();
        for token in ended {
            if let Some(connection) = self.connections.get_mut(token) {
                let client = connection.client();
                tracing::info!("the connection of {client} is closed: another client ends it");
                connection.broken = true;
            }
            self.close(token);
        }
        visit.end_loop();
    }

    fn adopt(&mut self, mut connection: Box<Connection>) {
        connection.moved_at_s = self.state.now_s();
        if matches!(connection.transport, Transport::Expected(_)) {
            self.state.begin_handshake(&mut connection);
        }
        let token = self.connections.insert(connection);
        if let Some(connection) = self.connections.get_mut(token) {
            // Requests may have arrived while another served it.
            self.state.resume(token, connection);
        }
        self.update_or_close(token);
    }

    /// Executes the requests again that wait for a time or for replicas.
    fn retry_postponed(&mut self) {
        let now = self.state.now;
        if self.state.postponed.is_empty()
            || now.saturating_duration_since(self.state.retried_at) < RETRY_INTERVAL
        {
            return;
        }
        self.state.retried_at = now;
        for token in std::mem::take(&mut self.state.postponed) {
            if let Some(connection) = self.connections.get_mut(token)
                && connection.stage == Stage::Parked
            {
                connection.stage = Stage::Open;
                connection.end_wait(now);
                if connection.session.redis.is_waiting() && connection.has_left() {
                    connection.broken = true;
                } else {
                    self.state.resume(token, connection);
                }
                self.update_or_close(token);
            }
        }
    }

    /// Calls `complete` to end the wait of a connection, if it is still open.
    fn complete(&mut self, token: Token, complete: impl FnOnce(&mut LoopState, &mut Connection)) {
        if let Some(connection) = self.connections.get_mut(token) {
            complete(&mut self.state, connection);
            self.update_or_close(token);
        }
    }

    /// Ends the connections that have no request under way. Requests that have arrived are executed
    /// first, and one that has arrived in part may arrive as a whole.
    fn drain(&mut self) {
        for token in self.connections.tokens() {
            if let Some(connection) = self.connections.get_mut(token)
                && connection.stage == Stage::Open
                && connection.is_between_requests()
            {
                connection.stage = Stage::Closing;
                self.update_or_close(token);
            }
        }
    }

    fn has_stopped(&mut self) -> bool {
        self.drain();
        self.connections.len() == 0
            || self.state.stop_at.is_some_and(|deadline| self.state.now >= deadline)
    }

    /// Sends the pending replies whose acknowledgement point is reached.
    fn release_pending(&mut self) {
        let Some(&(first, _)) = self.state.pending_replies.front() else { return };
        let durable = self.state.shared.served.database.durable();
        let moved = durable != self.state.durable || durable >= first.durable;
        self.state.durable = durable;
        while let Some(&(point, token)) = self.state.pending_replies.front()
            && self.state.shared.is_reached(point)
        {
            self.state.pending_replies.pop_front();
            if let Some(connection) = self.connections.get_mut(token)
                && let Some(pending) = connection.pending_reply.take_if(|held| held.point == point)
            {
                let wait = self.state.now.saturating_duration_since(pending.since);
                self.state.counters.acknowledgement.add(wait, 1);
                if self.state.shared.slow_log.is_slow(wait) {
                    let slow = SlowRequest::new(RequestKind::NONE, b"");
                    let client = connection.address();
                    let slow = SlowRequest { client, acknowledgement: wait, ..slow };
                    self.state.shared.slow_log.add(slow);
                }
                // No input was read meanwhile, so a timeout counts from now on.
                connection.request = None;
                self.state.flush_and_resume(token, connection);
                self.update_or_close(token);
            }
        }
        let holds = !self.state.pending_replies.is_empty();
        self.state.mailbox().has_pending_replies.store(holds, Ordering::SeqCst);
        if holds && !moved {
            // The listener is also called once syncing has failed for good.
            self.state.ask_log();
        }
    }

    /// Stops waiting for replicas on behalf of replies whose timeout has passed.
    fn expire_pending(&mut self) {
        let Self { connections, state } = self;
        let Some(semi_sync) = state.shared.replication.semi_sync() else { return };
        let now = state.now;
        let mut is_late = |&(point, token): &(AcknowledgementPoint, Token)| {
            let held = connections.get_mut(token);
            let held = held.and_then(|connection| connection.pending_reply.as_ref());
            held.is_some_and(|held| {
                !semi_sync.is_confirmed(point.confirmed_us)
                    && now.saturating_duration_since(held.since) > semi_sync.timeout()
            })
        };
        let late: HashSet<Token> = state
            .pending_replies
            .iter()
            .filter(|held| is_late(held))
            .map(|(_, token)| *token)
            .collect();
        if late.is_empty() {
            return;
        }
        semi_sync.give_up();
        if semi_sync.on_timeout() == OnTimeout::Error {
            state.pending_replies.retain(|(_, token)| !late.contains(token));
            for token in late {
                self.refuse_pending(token);
            }
        }
        self.release_pending();
    }

    fn refuse_pending(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let is_pooled = connection.stage == Stage::Pooled;
        connection.refuse_pending();
        self.state.flush_and_resume(token, connection);
        if is_pooled {
            // The completion still to come must not be sent.
            self.close(token);
        } else {
            self.update_or_close(token);
        }
    }

    /// Closes the connections whose pending replies the log can no longer make durable.
    fn close_pending(&mut self) {
        let durable = self.state.shared.served.database.durable();
        for (point, token) in std::mem::take(&mut self.state.pending_replies) {
            match self.connections.get_mut(token) {
                Some(connection)
                    if point.durable > durable && connection.pending_reply.is_some() =>
                {
                    self.close(token);
                }
                _ => self.state.pending_replies.push_back((point, token)),
            }
        }
    }

    /// Closes connections whose time is over, at most once per second.
    fn tick(&mut self) {
        let now_s = self.state.now_s();
        if now_s == self.state.ticked_at_s {
            return;
        }
        self.state.ticked_at_s = now_s;
        self.state.mailbox().wake();
        let late: Vec<(Token, bool)> = self
            .connections
            .iter()
            .filter(|(_, connection)| self.state.is_late(connection, now_s))
            .map(|(token, connection)| {
                (token, connection.stage == Stage::Open && !connection.is_mid_exchange())
            })
            .collect();
        for (token, is_idle) in late {
            self.state.counters.count(Count::TimedOut);
            if is_idle {
                self.state.counters.count(Count::IdleKick);
            }
            self.state.expire_handshake(self.connections.get_mut(token));
            self.close(token);
        }
        self.end_overdue();
    }

    /// Ends the waits for a store outside of this process whose time is over.
    fn end_overdue(&mut self) {
        let Some(remote) = &self.state.shared.remote else { return };
        let (now, timeout) = (self.state.now, remote.timeout);
        let overdue = |(token, connection): (Token, &Connection)| {
            let (number, reason) = connection.session.answers.as_ref()?.overdue(now, timeout)?;
            Some((token, number, reason))
        };
        let connections = self.connections.iter().map(|(token, connection)| (token, &**connection));
        let overdue: Vec<_> = connections.filter_map(overdue).collect();
        for (token, number, reason) in overdue {
            self.complete(token, |state, connection| {
                state.answer(token, connection, number, reason.into());
            });
        }
    }

    /// Moves connections to another loop if the balance asks for it.
    fn balance(&mut self, percent: u32) {
        let state = &mut self.state;
        let now_ms = state.shared.milliseconds_at(state.now);
        state.mailbox().load.set_busy(percent, now_ms);
        let busy: Vec<u32> =
            state.hub.mailboxes.iter().map(|mailbox| mailbox.load.busy_percent(now_ms)).collect();
        match state.balance.judge(state.number, &busy, state.shared.config.processors_idle) {
            Verdict::Stay => {}
            Verdict::Observe => {
                for token in self.connections.tokens() {
                    if let Some(connection) = self.connections.get_mut(token) {
                        connection.activity = 0;
                    }
                }
            }
            Verdict::Move(handover) => self.move_connections(handover),
        }
    }

    fn move_connections(&mut self, Handover { to, share_percent }: Handover) {
        let total: u64 = self.connections.iter().map(|(_, one)| u64::from(one.activity)).sum();
        let wanted = total * u64::from(share_percent) / 100;
        let mut moved = 0;
        for token in self.connections.tokens() {
            let Some(connection) = self.connections.get_mut(token) else { continue };
            let activity = u64::from(connection.activity);
            // A spread skips idle connections and stops before it moves too much: moving a lone
            // busy connection gains nothing.
            let passed = share_percent < 100 && (activity == 0 || moved + activity > wanted);
            if passed || !connection.is_movable() {
                continue;
            }
            moved += activity;
            connection.unwatch(&self.state.epoll);
            connection.activity = 0;
            if let Some(connection) = self.connections.remove(token) {
                self.state.counters.count(Count::Moved);
                self.state.mailbox().load.connections.fetch_sub(1, Ordering::Relaxed);
                let mailbox = &self.state.hub.mailboxes[to];
                mailbox.load.connections.fetch_add(1, Ordering::Relaxed);
                mailbox.post(Message::Adopt(connection));
            }
        }
    }
}

impl LoopState {
    fn mailbox(&self) -> &Mailbox {
        &self.hub.mailboxes[self.number]
    }

    /// Returns the seconds since the server started.
    fn now_s(&self) -> u64 {
        self.now_ms() / 1000
    }

    /// Returns the milliseconds since the server started.
    fn now_ms(&self) -> u64 {
        self.shared.milliseconds_at(self.now)
    }

    fn timeout(&self, connections: usize) -> Option<&'static Timespec> {
        let live = &self.shared.live;
        let times_out = live.timeout().is_some()
            || live.idle_timeout().is_some()
            || self.shared.remote.is_some();
        if self.has_calls() || self.ring.as_ref().is_some_and(Ring::has_queued) {
            Some(&NO_WAIT)
        } else if self.stop_at.is_some() {
            Some(&STOPPING_TICK)
        } else if !self.postponed.is_empty()
            || !self.pending_replies.is_empty() && self.shared.replication.semi_sync().is_some()
        {
            Some(&CONFIRMATION_TICK)
        } else if times_out && connections > 0
            || self.lingering > 0
            || self.handshaking > 0
            || !self.pending_replies.is_empty()
            || !self.parked.is_empty()
        {
            Some(&TICK)
        } else {
            None
        }
    }

    fn is_late(&self, connection: &Connection, now_s: u64) -> bool {
        if let Some(until_s) = connection.handshake_until_s {
            return now_s > until_s;
        }
        let quiet = Duration::from_secs(now_s.saturating_sub(connection.moved_at_s));
        let live = &self.shared.live;
        match connection.stage {
            Stage::Lingering { until_s } => now_s > until_s,
            // The client waits for the server.
            Stage::Pooled | Stage::Parked => false,
            _ if connection.pending_reply.is_some() => false,
            // A client with replies to take is not expected to send requests.
            _ => match connection.reply.or(connection.request) {
                Some(pace) => pace.is_late(self.now_ms(), live.timeout()),
                // A subscriber waits for the server.
                None if connection.session.subscriptions.is_some() => false,
                None => live.idle_timeout().is_some_and(|limit| quiet > limit),
            },
        }
    }

    /// Returns what makes this loop serve a connection again that it hands over.
    fn resume_here(&self) -> Resume {
        let (hub, event_loop) = (Arc::clone(&self.hub), self.number);
        Resume::new(move |resumed| {
            if hub.shared.served.is_stopping() {
                // The loop may have ended, and the connection is closed.
                return;
            }
            let connection = Connection::resume(resumed, Arc::clone(&hub.shared));
            let mailbox = &hub.mailboxes[event_loop];
            mailbox.load.connections.fetch_add(1, Ordering::Relaxed);
            mailbox.post(Message::Adopt(Box::new(connection)));
        })
    }

    fn detach(&mut self, connection: &mut Connection) {
        connection.unwatch(&self.epoll);
        if matches!(connection.stage, Stage::Lingering { .. }) {
            self.lingering -= 1;
        }
        if connection.handshake_until_s.take().is_some() {
            self.handshaking -= 1;
        }
        self.mailbox().load.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
