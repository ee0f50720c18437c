//! Link: the master's side of the connection to a replica of this project. Both sides exchange
//! their progress, and the link can send an initial sync.
//!
//! A thread of its own reads the acknowledgements of the replica, so that waiting clients are woken
//! at once.

use super::Replication;
use super::feed::Feed;
use super::initial_sync_sender::seed;
use super::pulse::Pulse;
use super::replica::{Phase, Replica};
use super::sender::{CHUNK_BYTES, Failure, REST, retained_id};
use super::{Extended, HEARTBEAT, IsAdmitted, ReplicaRequest, SILENCE_MAX, refused};
use crate::update_log::{Error, RootLines, UpdateLog, now_us};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Instant;
use tls::Stream;
use wire::Parse;
use wire::limits::REPLICATION_BLOCK_BYTES_MAX;
use wire::replication::{
    Acknowledgement, COMPRESS, FromMaster, LogProgress, Position, RESUME, ROOT_LOGS_MAX, Resume,
    SEED, SEED_IF_TOO_OLD, SEND_ROOTS, progress_pairs,
};
use wire::update_log::Message;

/// Compression level of an initial sync: low, as the network is rarely slower.
const COMPRESSION_LEVEL: i32 = 1;

/// Serves a replica until it disconnects or the server stops.
pub(super) fn send(
    replication: &Replication,
    log: &UpdateLog,
    stream: &Stream,
    (request, extended, replica): (ReplicaRequest, Extended, &Replica),
    is_admitted: &IsAdmitted,
) -> Result<(), Failure> {
    stream.socket().set_read_timeout(Some(SILENCE_MAX))?;
    // Position at which the replica begins, which is 1 if it has nothing.
    replica.announce((request.from_us - 1).max(1));
    let mut sending = stream;
    sending.write_all(&replication.served.settings.server_id.to_be_bytes())?;
    // The replica sends this message first.
    let resume = (extended.options & RESUME != 0).then(|| hear_resume(stream)).transpose()?;
    let is_disconnected = AtomicBool::new(false);
    let pulse = Pulse::new(stream);
    std::thread::scope(|scope| {
        let thread = Builder::new().name(format!("listen-{}", replica.id));
        let listening = thread.spawn_scoped(scope, || {
            let heard = listen(replication, log, stream, replica, &pulse);
            is_disconnected.store(true, Ordering::SeqCst);
            // Wakes the thread that waits for log entries, which has no replica to serve any more.
            let _ = stream.shut_down();
            log.wake();
            heard
        })?;
        let (outlet, is_disconnected) = (Outlet::new(&pulse, replica), &is_disconnected);
        let mut link = Link {
            replication,
            log,
            request,
            replica,
            is_admitted,
            is_disconnected,
            outlet,
            roots: None,
        };
        let sent = link.serve(extended, resume.as_ref());
        let _ = stream.shut_down();
        let heard = listening.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        replication.confirm(log);
        sent.and(heard)
    })
}

/// Receives the progress of a replica in each log.
fn hear_resume(mut stream: &Stream) -> Result<Resume, Failure> {
    let mut bytes = Vec::new();
    loop {
        match Resume::parse(&bytes) {
            Parse::Complete(resume, _) => return Ok(resume),
            Parse::Incomplete(needed) => {
                let have = bytes.len();
                bytes.resize(needed, 0);
                stream.read_exact(&mut bytes[have..])?;
            }
            Parse::Invalid(_) => return Err(Failure::InvalidMessage),
        }
    }
}

/// Receives the acknowledgements of a replica until it disconnects.
fn listen(
    replication: &Replication,
    log: &UpdateLog,
    mut stream: &Stream,
    replica: &Replica,
    pulse: &Pulse<'_>,
) -> Result<(), Failure> {
    let mut bytes = [0; Acknowledgement::BYTES];
    loop {
        match stream.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            // The timeout of the socket.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(Failure::Silent);
            }
            Err(error) => return Err(error.into()),
        }
        let Parse::Complete(acknowledged, _) = Acknowledgement::parse(&bytes) else {
            return Err(Failure::InvalidMessage);
        };
        replica.acknowledge(acknowledged, log.tail())?;
        if let Some(id) = retained_id(replica.id) {
            log.retention().sent(id, acknowledged.executed_us);
        }
        replication.confirm(log);
        pulse.beat()?;
    }
}

/// Reason why a replica cannot go on that its options keep from becoming a copy.
struct NeedsCopy(Failure);

impl fmt::Display for NeedsCopy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}; started again with --seed always, it becomes a copy, and loses records of its own",
            self.0
        )?;
        match self.0 {
            Failure::ReplicaIsAhead => formatter.write_str(
                "; if it has more than the master, promote it, and let the master follow it",
            ),
            _ => Ok(()),
        }
    }
}

/// Connection to one replica.
pub(super) struct Link<'l> {
    pub(super) replication: &'l Replication,
    pub(super) log: &'l UpdateLog,
    pub(super) request: ReplicaRequest,
    pub(super) replica: &'l Replica,
    is_admitted: &'l IsAdmitted,
    is_disconnected: &'l AtomicBool,
    pub(super) outlet: Outlet<'l>,
    /// Roots of the log, for a replica that requests them.
    roots: Option<RootLines>,
}

impl<'l> Link<'l> {
    fn serve(
        &mut self,
        Extended { mut options, .. }: Extended,
        resume: Option<&Resume>,
    ) -> Result<(), Failure> {
        let replica = self.request.replica;
        self.outlet.compresses = options & COMPRESS != 0;
        match resume.map(|resume| self.resume(resume)).transpose() {
            // From here on the replica is served as any other, after the position of the copy.
            Ok(Some(Some(timestamp_us))) => {
                self.request.from_us = timestamp_us.saturating_add(1);
                self.outlet.push(&FromMaster::Switch { timestamp_us })?;
            }
            Ok(None) => {}
            Ok(Some(None)) if options & SEED_IF_TOO_OLD != 0 => options |= SEED,
            Ok(Some(None)) => {}
            Err(error @ Failure::ReplicaIsAhead) => {
                if options & SEED_IF_TOO_OLD == 0 {
                    return self.refuse(&NeedsCopy(error));
                }
                tracing::warn!("replica {replica} needs an initial sync: {error}");
                options |= SEED;
            }
            Err(error) => return Err(error),
        }
        let from_us = self.request.from_us;
        if options & SEND_ROOTS != 0 {
            self.roots = Some(RootLines::from(self.log.folder(), from_us)?);
        }
        let feed = if options & SEED != 0 {
            None
        } else {
            let log = self.log;
            let found = self.expect_passed(from_us - 1).and_then(|()| {
                // From here on the replica gets heartbeats while the log is scanned.
                self.push_position(from_us - 1, log.tail().entries.max(1))?;
                self.outlet.flush()?;
                Feed::counted(log, replica, from_us, |backlog| self.beat(from_us - 1, backlog))
            });
            match found {
                Ok(Some(feed)) => Some(feed),
                // The folder of the log was emptied while the server runs.
                Ok(None) => return Ok(()),
                // None of these failures is resolved by another attempt.
                Err(
                    error @ (Failure::Ahead { .. }
                    | Failure::Log(
                        Error::Removed { .. } | Error::Missing { .. } | Error::Corrupted { .. },
                    )),
                ) => {
                    if options & SEED_IF_TOO_OLD == 0 {
                        return self.refuse(&NeedsCopy(error));
                    }
                    tracing::warn!("replica {replica} needs an initial sync: {error}");
                    None
                }
                Err(error) => return Err(error),
            }
        };
        let feed = match feed {
            Some(feed) => {
                if let Some(id) = retained_id(replica) {
                    self.log.retention().confirm(id, from_us - 1);
                }
                feed
            }
            None => match self.seed() {
                // The next copy would fail in the same way.
                Err(error @ Failure::TooLong) => return self.refuse(&error),
                seeded => seeded?,
            },
        };
        self.outlet.compresses = false;
        self.replica.set_phase(Phase::Streaming);
        self.stream(feed)
    }

    /// Returns the time stamp up to which this log has no entries that the replica lacks, or `None`
    /// if it is unknown.
    fn resume(&self, resume: &Resume) -> Result<Option<u64>, Failure> {
        let (log, replication) = (self.log, self.replication);
        // The order matters: all executed operations are in the log when its end is read.
        let progress = replication.log_progress();
        let is_following = replication.followed().is_some();
        if !is_following {
            log.adopt_entries()?;
        }
        // A log without entries ends at 1 for replicas.
        let own = log.name().map(|own| LogProgress::up_to(own, log.last_entry_us().max(1)));
        for theirs in &resume.progress {
            let Some(ours) = progress.iter().chain(&own).find(|ours| ours.log == theirs.log) else {
                return Ok(None);
            };
            if theirs
                .partitions_us
                .iter()
                .zip(&ours.partitions_us)
                .any(|(theirs, ours)| theirs > ours)
            {
                return Err(if is_following {
                    Failure::NotYetReceived
                } else {
                    Failure::ReplicaIsAhead
                });
            }
        }
        let found = log.resumption(&resume.progress)?;
        if let Some(switch_us) = found {
            tracing::info!(
                "replica {}: continues in this log after time stamp {switch_us}",
                self.request.replica
            );
        }
        Ok(found)
    }

    /// Sends a heartbeat after a second of silence. Fails if the replica has disconnected.
    fn beat(&mut self, timestamp_us: u64, remaining: u64) -> Result<(), Failure> {
        if !self.outlet.is_due() {
            return Ok(());
        }
        if self.is_over() {
            return Err(Failure::Disconnected);
        }
        self.push_position(timestamp_us, remaining)?;
        self.outlet.flush()
    }

    /// Fails if entries at or before `at_us` may still follow, as the replica would skip them.
    fn expect_passed(&self, at_us: u64) -> Result<(), Failure> {
        if at_us > self.log.mark().now_us {
            return Err(Failure::Ahead { at_us });
        }
        Ok(())
    }

    fn refuse(&mut self, error: &impl fmt::Display) -> Result<(), Failure> {
        tracing::warn!("replica {} refused: {error}", self.request.replica);
        self.outlet.push(&refused(true, &error.to_string()))?;
        self.outlet.flush()
    }

    /// Sends an initial sync.
    fn seed(&mut self) -> Result<Feed<'l>, Failure> {
        if let Some(roots) = &mut self.roots {
            *roots = RootLines::from(self.log.folder(), self.log.tail().timestamp_us)?;
        }
        seed(self)
    }

    fn stream(&mut self, mut feed: Feed<'_>) -> Result<(), Failure> {
        let identity = self.log.identity();
        let mut told_at: Option<Instant> = None;
        // A log that begins again has no entries for the replica's earlier state.
        while !self.is_over() && self.log.identity() == identity {
            let is_due = told_at.is_none_or(|at| at.elapsed() >= HEARTBEAT);
            // The order matters: executed operations are in the entries that are sent.
            let progress =
                (self.roots.is_some() && is_due).then(|| self.replication.log_progress());
            let progress = progress.filter(|_| self.log.write());
            let seen = self.log.end();
            self.send_up_to(&mut feed, seen, |_, _| Ok(()))?;
            self.push_position(feed.read_us(), feed.remaining())?;
            if let Some(progress) = progress {
                told_at = Some(Instant::now());
                self.push_progress(&progress, feed.read_us())?;
            }
            self.outlet.flush()?;
            feed.report(self.replica);
            if !self.replication.awaits() {
                std::thread::sleep(REST);
            }
            self.log.wait_beyond(seen, HEARTBEAT);
        }
        Ok(())
    }

    /// Sends the replica's progress in each log.
    fn push_progress(&mut self, progress: &[LogProgress], read_us: u64) -> Result<(), Failure> {
        if self.replication.followed().is_none() {
            self.log.adopt_entries()?;
        }
        match self.log.bases(progress, read_us) {
            Some(bases) if bases.len() <= ROOT_LOGS_MAX => {
                self.outlet.push(&FromMaster::Progress { pairs: &progress_pairs(&bases) })
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the replica has disconnected or is not admitted any more, or the server
    /// stops.
    pub(super) fn is_over(&self) -> bool {
        self.replication.served.is_stopping()
            || self.is_disconnected.load(Ordering::SeqCst)
            || !(self.is_admitted)()
    }

    /// Sends the entries before `end`, which are in the files. Calls `before` with the time stamp
    /// of each.
    pub(super) fn send_up_to(
        &mut self,
        feed: &mut Feed<'_>,
        end: crate::update_log::LogOffset,
        mut before: impl FnMut(&mut Outlet<'l>, u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        // The lines of their roots are in files, too.
        let writes = self.log.root_writes();
        self.roots.iter_mut().for_each(|roots| roots.poll_again(writes));
        while let Some(message) = feed.next(end)? {
            let mut root = None;
            if let Message::Update { timestamp_us, .. } = message {
                before(&mut self.outlet, timestamp_us)?;
                let roots = self.roots.as_mut();
                root = roots.map(|roots| roots.root_of(timestamp_us)).transpose()?.flatten();
            }
            self.outlet.push(&match root {
                Some(root) => FromMaster::Rooted { root, message },
                None => FromMaster::Log(message),
            })?;
            if self.outlet.is_full() {
                self.outlet.flush()?;
                if !(self.is_admitted)() {
                    return Err(Failure::NotAdmitted);
                }
            }
        }
        Ok(())
    }

    /// Sends the position of this server.
    pub(super) fn push_position(
        &mut self,
        timestamp_us: u64,
        remaining: u64,
    ) -> Result<(), Failure> {
        let is_awaited = self.replication.awaits();
        // A replica with all of a log without entries can acknowledge this, too.
        let timestamp_us = timestamp_us.max(1);
        let position = Position { now_us: now_us(), timestamp_us, remaining, is_awaited };
        self.outlet.position = Some(position);
        self.outlet.push(&FromMaster::Position(position))
    }
}

/// Output to a replica.
pub(super) struct Outlet<'s> {
    pulse: &'s Pulse<'s>,
    replica: &'s Replica,
    bytes: Vec<u8>,
    /// The last position in the output.
    position: Option<Position>,
    compresses: bool,
    sent_at: Instant,
}

impl<'s> Outlet<'s> {
    fn new(pulse: &'s Pulse<'s>, replica: &'s Replica) -> Self {
        let sent_at = Instant::now();
        Self { pulse, replica, bytes: Vec::new(), position: None, compresses: false, sent_at }
    }

    /// Adds a message. Fails if it is over its limit, so that none is left out silently.
    pub(super) fn push(&mut self, message: &FromMaster<'_>) -> Result<(), Failure> {
        if let Some(timestamp_us) = timestamp_of(message) {
            self.replica.announce(timestamp_us);
        }
        message.encode(&mut self.bytes).map_err(|_| Failure::TooLong)
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= CHUNK_BYTES
    }

    /// Returns whether a position is due.
    pub(super) fn is_due(&self) -> bool {
        self.sent_at.elapsed() >= HEARTBEAT
    }

    /// Sends the output.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        let bytes = self.bytes.len();
        let position = self.position.take();
        if self.compresses && bytes <= REPLICATION_BLOCK_BYTES_MAX {
            let compressed = zstd::bulk::compress(&self.bytes, COMPRESSION_LEVEL)?;
            let mut block = Vec::new();
            let is_less = compressed.len() < bytes
                && FromMaster::Block { bytes, compressed: &compressed }.encode(&mut block).is_ok();
            self.pulse.send(if is_less { &block } else { &self.bytes }, position)?;
        } else {
            self.pulse.send(&self.bytes, position)?;
        }
        self.bytes.clear();
        self.sent_at = Instant::now();
        Ok(())
    }
}

/// Returns the time stamp that a replica may acknowledge after this message.
fn timestamp_of(message: &FromMaster<'_>) -> Option<u64> {
    match message {
        FromMaster::Position(Position { timestamp_us, .. })
        | FromMaster::Log(Message::Update { timestamp_us, .. })
        | FromMaster::Rooted { message: Message::Update { timestamp_us, .. }, .. }
        | FromMaster::SeedEnd { timestamp_us }
        | FromMaster::Switch { timestamp_us } => Some(*timestamp_us),
        _ => None,
    }
}
