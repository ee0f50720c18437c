//! Writers: clients that execute transactions one after the other, each on its own keys.

use super::generation::{KEYS, Keys};
use super::reader;
use crate::memcached::Connection;
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Number of clients.
pub(super) const CLIENTS: usize = 4;

/// Most transactions that a client sends at once.
const DEPTH_MAX: u64 = 3;

/// Longest wait for the first acknowledged transaction.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) struct Writer {
    pub(super) keys: Keys,
    random: Random,
    /// The last generation that was acknowledged or found.
    pub(super) held: u64,
    /// Generations that were sent after it and not acknowledged. No number is used twice, so that
    /// a transaction that was absent cannot come back unnoticed.
    sent: Range<u64>,
    pub(super) counts: Counts,
}

/// Transactions that were acknowledged; that were not, and were found whole or absent after a kill.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) acknowledged: u64,
    pub(super) whole: u64,
    pub(super) absent: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.whole += other.whole;
        self.absent += other.absent;
    }
}

/// State that the writers of a server share while they run.
#[derive(Default)]
pub(super) struct Load {
    /// Ends the load at a server that is not killed.
    pub(super) stop: AtomicBool,
    /// Number of acknowledged transactions.
    acknowledged: AtomicU64,
}

impl Load {
    /// Starts the writers.
    pub(super) fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        writers: &'scope mut [Writer],
        port: u16,
    ) -> Running<'scope> {
        Running(
            writers
                .iter_mut()
                .map(|writer| scope.spawn(move || writer.execute(port, self)))
                .collect(),
        )
    }

    /// Waits until a transaction was acknowledged.
    pub(super) fn await_first(&self, running: &Running<'_>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.acknowledged.load(Ordering::Relaxed) == 0 {
            ensure!(!running.0.iter().all(ScopedJoinHandle::is_finished), "all writers have ended");
            ensure!(Instant::now() < deadline, "no transaction was acknowledged in {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// The threads of the writers.
pub(super) struct Running<'scope>(Vec<ScopedJoinHandle<'scope, Result<()>>>);

impl Running<'_> {
    /// Waits for the writers, which end with their server or with [`Load::stop`].
    pub(super) fn join(self) -> Result<()> {
        self.0.into_iter().map(super::join).fold(Ok(()), Result::and)
    }
}

impl Writer {
    pub(super) fn all() -> Vec<Self> {
        (0..CLIENTS).map(Self::new).collect()
    }

    fn new(client: usize) -> Self {
        Self {
            keys: Keys { client },
            random: Random(client as u64 + 2),
            held: 0,
            sent: 1..1,
            counts: Counts::default(),
        }
    }

    /// Executes transactions until the connection breaks or the load is stopped.
    fn execute(&mut self, port: u16, load: &Load) -> Result<()> {
        let Ok(mut connection) = Connection::open(port) else { return Ok(()) };
        while !load.stop.load(Ordering::Relaxed) {
            let generations = self.sent.end..self.sent.end + 1 + self.random.below(DEPTH_MAX);
            self.sent.end = generations.end;
            let requests: Vec<u8> =
                generations.clone().flat_map(|number| self.keys.transaction(number)).collect();
            if until_end(connection.send(&requests))?.is_none() {
                return Ok(());
            }
            for generation in generations {
                for expected in self.keys.replies(generation, self.held) {
                    let Some(line) = until_end(connection.line())? else { return Ok(()) };
                    ensure!(
                        line == expected,
                        "client {}, transaction {generation}: the server responded {line:?}, not \
                         {expected:?}",
                        self.keys.client
                    );
                }
                (self.held, self.sent.start) = (generation, generation + 1);
                self.counts.acknowledged += 1;
                load.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Reads all keys back, when no transaction is under way. They must hold the last acknowledged
    /// generation, or one sent after it, which becomes the acknowledged one.
    pub(super) fn check(&mut self, port: u16) -> Result<()> {
        let mut connection = Connection::open(port)?;
        let found = reader::read(&mut connection, self.keys)?;
        let Self { held, ref sent, keys, .. } = *self;
        ensure!(
            found == held || sent.contains(&found),
            "client {}: transaction {held} was acknowledged, {sent:?} were sent, {found} is found",
            keys.client
        );
        check_expiries(&mut connection, keys, found)?;
        let absent = sent.end - sent.start.max(found + 1);
        self.counts.absent += absent;
        self.counts.whole += sent.end - sent.start - absent;
        (self.held, self.sent) = (found, sent.end..sent.end);
        Ok(())
    }
}

/// Reads the expiries of all keys, which must be those of a generation.
pub(super) fn check_expiries(
    connection: &mut Connection,
    keys: Keys,
    generation: u64,
) -> Result<()> {
    connection.send(&keys.read_expiries())?;
    let replies = (0..KEYS).map(|_| connection.line()).collect::<Result<Vec<_>>>()?;
    keys.check_expiries(generation, &replies)
}

/// Returns `None` if the connection has ended. A server that does not respond is an error.
pub(super) fn until_end<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
            Some(ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(error).context("a server does not respond")
            }
            _ => Ok(None),
        },
    }
}
