//! Driver: one thread that drives many connections through epoll.
//!
//! It shares its cores with the server that it measures, so it must be cheap: one read and one
//! write per batch, no allocation after its buffers have grown, and one read of the clock per
//! wake-up.

use super::connection::Connection;
use super::protocol::Reply;
use super::server::{Recipe, Server};
use super::workload::Source;
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Replies that have not arrived this long after the end of a slice are errors.
const GRACE: Duration = Duration::from_secs(10);

/// Longest latency recorded, in nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Most different error texts that are kept.
const ERROR_TEXTS_MAX: usize = 4;

/// End of a stretch of driving: a time, or the last of its operations.
#[derive(Debug)]
pub(super) struct Limits<'a> {
    pub(super) duration: Duration,
    /// Operations that all drivers of the stretch may still begin.
    pub(super) operations: &'a AtomicU64,
}

impl Limits<'_> {
    /// Takes up to `wanted` of the remaining operations.
    fn take(&self, wanted: usize) -> usize {
        let wanted = wanted as u64;
        let left = self.operations.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left - left.min(wanted))
        });
        left.unwrap_or_else(|left| left).min(wanted) as usize
    }
}

/// Result of driving.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Requests with a reply, refusals included.
    pub operations: u64,
    /// Records read that did not exist.
    pub missing: u64,
    /// Requests refused, wrong values, broken connections, missing replies.
    pub errors: u64,
    /// Texts of some errors.
    pub error_texts: Vec<String>,
    /// Nanoseconds from sending a batch to the reply, per request.
    pub latencies: Histogram<u64>,
}

impl Tally {
    /// Returns an empty tally.
    #[must_use]
    pub fn new() -> Self {
        let latencies = Histogram::new_with_max(LATENCY_NS_MAX, 3);
        Self {
            operations: 0,
            missing: 0,
            errors: 0,
            error_texts: Vec::new(),
            latencies: latencies.unwrap_or_else(|_| unreachable!("the bounds are constants")),
        }
    }

    /// Adds the tally of another driver.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.missing += other.missing;
        self.errors += other.errors;
        for text in &other.error_texts {
            self.keep_text(text);
        }
        // Both have the same bounds, so this cannot fail.
        let _ = self.latencies.add(&other.latencies);
    }

    /// Counts errors.
    fn error(&mut self, count: usize, text: &str) {
        self.errors += count as u64;
        self.keep_text(text);
    }

    fn keep_text(&mut self, text: &str) {
        let known = self.error_texts.iter().any(|known| known == text);
        if !known && self.error_texts.len() < ERROR_TEXTS_MAX {
            self.error_texts.push(text.to_owned());
        }
    }

    fn reply(&mut self, count: usize, reply: Reply, latency: Duration) {
        self.operations += 1;
        self.latencies.saturating_record(latency.as_nanos() as u64);
        match reply {
            Reply::Stored | Reply::Called => {}
            Reply::Values { found, wrong } => {
                self.missing += (count - found) as u64;
                if wrong > 0 {
                    self.error(wrong, "a value differs from the stored one");
                }
            }
            Reply::Refused(text) => self.error(1, &text),
        }
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

/// Connections of one thread.
#[derive(Debug)]
pub(super) struct Driver {
    epoll: rustix::fd::OwnedFd,
    connections: Vec<Option<Connection>>,
}

impl Driver {
    pub(super) fn connect(server: &Server, connections: usize) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut opened = Vec::with_capacity(connections);
        for place in 0..connections {
            let Recipe { protocol, tls, .. } = server.recipe;
            let connection = Connection::open(server.address, protocol, tls)?;
            let data = epoll::EventData::new_u64(place as u64);
            epoll::add(&epoll, &connection.stream, data, epoll::EventFlags::IN)?;
            opened.push(Some(connection));
        }
        Ok(Self { epoll, connections: opened })
    }

    /// Drives all connections until the limits are reached and every reply has arrived.
    pub(super) fn drive(
        &mut self,
        source: &mut Source<'_>,
        limits: &Limits<'_>,
        tally: &mut Tally,
    ) -> io::Result<()> {
        let mut now = Instant::now();
        let end = now + limits.duration;
        let pipeline = source.workload.pipeline;
        let mut under_way = 0;
        for place in 0..self.connections.len() {
            under_way += self.next_batch(place, source, limits.take(pipeline), now, tally);
        }
        let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
        while under_way > 0 {
            if now > end + GRACE {
                tally.error(self.abandon_outstanding(), "no reply within 10 s");
                break;
            }
            events.clear();
            let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            now = Instant::now();
            for event in &events {
                let place = event.data.u64() as usize;
                if !self.serve(place, source, tally) {
                    continue;
                }
                under_way -= 1;
                now = Instant::now();
                if now < end {
                    let count = limits.take(pipeline);
                    under_way += self.next_batch(place, source, count, now, tally);
                }
            }
        }
        Ok(())
    }

    /// Reads and writes as much as a connection allows. Returns whether its batch is over: all its
    /// replies have arrived, or the connection is lost.
    fn serve(&mut self, place: usize, source: &Source<'_>, tally: &mut Tally) -> bool {
        let Some(connection) = &mut self.connections[place] else { return false };
        if connection.outstanding() == 0 {
            // There is no request, so the connection has ended; the next batch reports that.
            let outcome = connection.receive(source, |_, _, _| {});
            if let Err(error) = outcome {
                self.lose(place, 1, &error, tally);
            }
            return false;
        }
        let sent_at = connection.sent_at;
        let mut outcome = Ok(());
        if connection.has_unsent() {
            outcome = connection.flush();
            if outcome.is_ok() && !connection.has_unsent() {
                outcome = watch(&self.epoll, connection, place, epoll::EventFlags::IN);
            }
        }
        let mut arrived = None;
        if outcome.is_ok() {
            outcome = connection.receive(source, |_, count, reply| {
                let now = *arrived.get_or_insert_with(Instant::now);
                tally.reply(count, reply, now - sent_at);
            });
        }
        let outstanding = connection.outstanding();
        if let Err(error) = outcome {
            self.lose(place, outstanding.max(1), &error, tally);
            return true;
        }
        outstanding == 0
    }

    /// Sends the next batch of a connection. Returns 1 if one is then in flight, 0 if not.
    fn next_batch(
        &mut self,
        place: usize,
        source: &mut Source<'_>,
        count: usize,
        now: Instant,
        tally: &mut Tally,
    ) -> usize {
        let Some(connection) = self.connections[place].as_mut().filter(|_| count > 0) else {
            return 0;
        };
        let mut outcome = connection.send_batch(source, count, now);
        if outcome.is_ok() && connection.has_unsent() {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
            outcome = watch(&self.epoll, connection, place, flags);
        }
        match outcome {
            Ok(()) => 1,
            Err(error) => {
                self.lose(place, count, &error, tally);
                0
            }
        }
    }

    /// Closes a connection that failed, which also removes it from the epoll set.
    fn lose(&mut self, place: usize, requests: usize, error: &io::Error, tally: &mut Tally) {
        self.connections[place] = None;
        tally.error(requests, &format!("connection lost: {error}"));
    }

    /// Closes every connection that still awaits replies. Returns the number of these replies.
    fn abandon_outstanding(&mut self) -> usize {
        let mut abandoned = 0;
        for connection in &mut self.connections {
            let outstanding = connection.as_ref().map_or(0, Connection::outstanding);
            if outstanding > 0 {
                abandoned += outstanding;
                *connection = None;
            }
        }
        abandoned
    }
}

fn watch(
    epoll: &rustix::fd::OwnedFd,
    connection: &Connection,
    place: usize,
    flags: epoll::EventFlags,
) -> io::Result<()> {
    let data = epoll::EventData::new_u64(place as u64);
    Ok(epoll::modify(epoll, &connection.stream, data, flags)?)
}
