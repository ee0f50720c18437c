//! An event loop: one thread, its connections, and everything that happens to them.
//!
//! A lone request costs three system calls, one wait, one read, one write, and nothing else: no
//! timer, no lock, no allocation. Whatever has arrived from a client is read at once, executed
//! request by request, and answered with one write.
//!
//! A connection belongs to one loop at a time, and only the loop's thread touches it. Other threads
//! leave messages at the loop's [`Mailbox`].

mod deliver;
mod serve;

use crate::counters::{Count, Counters};
use crate::net::balance::{Balance, Handover, Meter, Verdict};
use crate::net::connection::{Connection, Stage};
use crate::net::mailbox::{Mailbox, Message};
use crate::net::pending_reply::AcknowledgementPoint;
use crate::net::slab::{Slab, Token};
use crate::net::worker_pool::Completion;
use crate::replication::OnTimeout;
use crate::shared::Shared;
use crate::{Error, Result};
use cabinet::LogPosition;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Size of the buffers that all connections of a loop share: the most read at once, and the
/// longest reply that is copied rather than kept where it is.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;

/// Buffers that have grown beyond this for one long reply are given back.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// Most connections served between two looks at the system.
const EVENTS_MAX: usize = 256;

/// What the waker is watched under. Tokens of connections have a generation of at least 1.
const WAKER: Token = 0;

/// Time that a client has to stop sending after a refusal, in seconds.
const LINGER_SECONDS: u64 = 2;

/// While something depends on time, the loop looks at the clock this often.
const TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// While replies wait for replicas, the loop looks more often.
const CONFIRMATION_TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// While the server stops, the loop looks more often.
const STOPPING_TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A loop and its connections.
pub(crate) struct EventLoop {
    connections: Slab<Box<Connection>>,
    state: LoopState,
}

/// All of a loop but its connections, so that one of these can be worked on.
struct LoopState {
    number: usize,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    epoll: OwnedFd,
    /// Requests are read into this.
    input: Vec<u8>,
    /// Replies are written into this.
    output: Vec<u8>,
    /// Connections whose replies are held, in the order of what they wait for.
    pending_replies: VecDeque<(AcknowledgementPoint, Token)>,
    /// The durable position when it was last looked at.
    durable: LogPosition,
    /// The pool is asking whether the log still makes progress.
    is_asking_log: bool,
    /// Connections that wait for room in the pool's queue.
    parked: Vec<Token>,
    /// Connections that are closed after a while.
    lingering: usize,
    meter: Meter,
    balance: Balance,
    now: Instant,
    ticked_at_s: u64,
    stop_at: Option<Instant>,
}

impl EventLoop {
    pub(crate) fn new(number: usize, shared: Arc<Shared>) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(Error::system("make an epoll instance"))?;
        epoll::add(
            &epoll,
            &shared.mailboxes[number],
            EventData::new_u64(WAKER),
            EventFlags::IN | EventFlags::ET,
        )
        .map_err(Error::system("watch an eventfd"))?;
        let now = Instant::now();
        let state = LoopState {
            number,
            counters: shared.new_counters(),
            shared,
            epoll,
            input: Vec::with_capacity(BUFFER_BYTES),
            output: Vec::with_capacity(BUFFER_BYTES),
            pending_replies: VecDeque::new(),
            durable: 0,
            is_asking_log: false,
            parked: Vec::new(),
            lingering: 0,
            meter: Meter::new(now),
            balance: Balance::default(),
            now,
            ticked_at_s: 0,
            stop_at: None,
        };
        Ok(Self { connections: Slab::default(), state })
    }

    /// Serves until the server stops.
    pub(crate) fn run(mut self) -> Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        loop {
            let timeout = self.state.timeout(self.connections.len());
            match epoll::wait(&self.state.epoll, spare_capacity(&mut events), timeout) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(Error::system("wait for events")(error)),
            }
            self.state.now = Instant::now();
            self.state.meter.wakes(self.state.now);
            let mut woken = false;
            for event in events.drain(..) {
                match event.data.u64() {
                    WAKER => woken = true,
                    token => self.ready(token, event.flags),
                }
            }
            if woken {
                self.read_mailbox();
            }
            if timeout.is_some() {
                self.expire_pending();
                self.tick();
            }
            if self.state.stop_at.is_some() && self.has_stopped() {
                return Ok(());
            }
            if let Some(percent) = self.state.meter.sleeps(Instant::now()) {
                self.balance(percent);
            }
        }
    }

    fn ready(&mut self, token: Token, flags: EventFlags) {
        // Connections that have gone since the events were taken are passed over.
        if let Some(connection) = self.connections.get_mut(token) {
            self.state.ready(token, connection, flags);
            self.update_or_close(token);
        }
    }

    /// Sees to what follows from what a connection has just done.
    #[inline]
    fn update_or_close(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        if !self.state.update(token, connection) {
            self.close(token);
        }
    }

    fn close(&mut self, token: Token) {
        if let Some(mut connection) = self.connections.remove(token) {
            self.state.detach(&mut connection);
        }
    }

    fn read_mailbox(&mut self) {
        for message in self.state.mailbox().take() {
            match message {
                Message::Adopt(connection) => self.adopt(connection),
                Message::Completion(token, completion) => self.complete(token, completion),
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
                connection.end_wait(self.state.now_ms());
                self.state.resume(token, connection);
                self.update_or_close(token);
            }
        }
        if self.state.shared.is_stopping() && self.state.stop_at.is_none() {
            self.state.stop_at = Some(self.state.now + self.state.shared.config.stop_wait);
            for token in self.connections.tokens() {
                self.stop_connection(token);
            }
        }
    }

    fn adopt(&mut self, mut connection: Box<Connection>) {
        connection.moved_at_s = self.state.now_s();
        let token = self.connections.insert(connection);
        if self.state.stop_at.is_some() {
            self.stop_connection(token);
        } else {
            self.update_or_close(token);
        }
    }

    fn complete(&mut self, token: Token, completion: Completion) {
        if let Some(connection) = self.connections.get_mut(token) {
            self.state.complete(token, connection, completion);
            if self.state.stop_at.is_some() {
                self.stop_connection(token);
            } else {
                self.update_or_close(token);
            }
        }
    }

    /// No further request of this connection is executed.
    fn stop_connection(&mut self, token: Token) {
        if let Some(connection) = self.connections.get_mut(token) {
            if matches!(connection.stage, Stage::Open | Stage::Parked) {
                connection.stage = Stage::Closing;
            }
            self.update_or_close(token);
        }
    }

    fn has_stopped(&mut self) -> bool {
        self.connections.len() == 0
            || self.state.stop_at.is_some_and(|deadline| self.state.now >= deadline)
    }

    /// Lets replies go that nothing has to be waited for any more.
    fn release_pending(&mut self) {
        let Some(&(first, _)) = self.state.pending_replies.front() else { return };
        let durable = self.state.shared.database.durable();
        let moved = durable != self.state.durable || durable >= first.durable;
        self.state.durable = durable;
        while let Some(&(point, token)) = self.state.pending_replies.front()
            && self.state.shared.is_reached(point)
        {
            self.state.pending_replies.pop_front();
            if let Some(connection) = self.connections.get_mut(token)
                && connection.pending_reply.is_some_and(|held| held.point == point)
            {
                connection.pending_reply = None;
                // What came of another request was not read meanwhile.
                connection.request = None;
                self.state.flush_and_resume(token, connection);
                self.update_or_close(token);
            }
        }
        let holds = !self.state.pending_replies.is_empty();
        self.state.mailbox().has_pending_replies.store(holds, Ordering::SeqCst);
        if holds && !moved {
            // The listener is called too when syncing has failed for good.
            self.state.ask_log();
        }
    }

    /// Replies that have waited for replicas for too long are not waited with any more.
    fn expire_pending(&mut self) {
        let Self { connections, state } = self;
        let Some(semi_sync) = state.shared.replication.semi_sync() else { return };
        let now = state.now;
        let mut is_late = |&(point, token): &(AcknowledgementPoint, Token)| {
            let held = connections.get_mut(token).and_then(|connection| connection.pending_reply);
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
            // An answer is still to come, which nobody is to get.
            self.close(token);
        } else {
            self.update_or_close(token);
        }
    }

    /// The log has failed: what it did not take must not be acknowledged.
    fn close_pending(&mut self) {
        let durable = self.state.shared.database.durable();
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

    /// Looks after what depends on time, at most once a second.
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
            self.close(token);
        }
    }

    /// Hands connections to another loop when that is better.
    fn balance(&mut self, percent: u32) {
        let state = &mut self.state;
        let now_ms = state.shared.milliseconds_at(state.now);
        state.mailbox().set_busy(percent, now_ms);
        let busy: Vec<u32> =
            state.shared.mailboxes.iter().map(|mailbox| mailbox.busy_percent(now_ms)).collect();
        match state.balance.judge(state.number, &busy) {
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
            // A spread passes the idle ones over, and stops before it moves too much: a lone
            // busy connection is as well off here.
            let passed = share_percent < 100 && (activity == 0 || moved + activity > wanted);
            if passed || !connection.is_movable() {
                continue;
            }
            moved += activity;
            connection.unwatch(&self.state.epoll);
            connection.activity = 0;
            if let Some(connection) = self.connections.remove(token) {
                self.state.counters.count(Count::Moved);
                self.state.mailbox().connections.fetch_sub(1, Ordering::Relaxed);
                let mailbox = &self.state.shared.mailboxes[to];
                mailbox.connections.fetch_add(1, Ordering::Relaxed);
                mailbox.post(Message::Adopt(connection));
            }
        }
    }
}

impl LoopState {
    fn mailbox(&self) -> &Mailbox {
        &self.shared.mailboxes[self.number]
    }

    /// Seconds since the server started.
    fn now_s(&self) -> u64 {
        self.now_ms() / 1000
    }

    /// The same in milliseconds.
    fn now_ms(&self) -> u64 {
        self.shared.milliseconds_at(self.now)
    }

    fn timeout(&self, connections: usize) -> Option<&'static Timespec> {
        let config = &self.shared.config;
        let times_out = config.timeout.is_some() || config.idle_timeout.is_some();
        if self.stop_at.is_some() {
            Some(&STOPPING_TICK)
        } else if !self.pending_replies.is_empty() && self.shared.replication.semi_sync().is_some()
        {
            Some(&CONFIRMATION_TICK)
        } else if times_out && connections > 0
            || self.lingering > 0
            || !self.pending_replies.is_empty()
            || !self.parked.is_empty()
        {
            Some(&TICK)
        } else {
            None
        }
    }

    fn is_late(&self, connection: &Connection, now_s: u64) -> bool {
        let quiet = Duration::from_secs(now_s.saturating_sub(connection.moved_at_s));
        let config = &self.shared.config;
        match connection.stage {
            Stage::Lingering { until_s } => now_s > until_s,
            // The server itself is what this one waits for.
            Stage::Pooled | Stage::Parked => false,
            _ if connection.pending_reply.is_some() => false,
            // A client that has replies to take is not asked for requests.
            _ => match connection.reply.or(connection.request) {
                Some(pace) => pace.is_late(self.now_ms(), config.timeout),
                None => config.idle_timeout.is_some_and(|limit| quiet > limit),
            },
        }
    }

    fn detach(&mut self, connection: &mut Connection) {
        connection.unwatch(&self.epoll);
        if matches!(connection.stage, Stage::Lingering { .. }) {
            self.lingering -= 1;
        }
        self.mailbox().connections.fetch_sub(1, Ordering::Relaxed);
    }
}
