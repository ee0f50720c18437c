//! Sender: the master's side of replication, which sends the update log to replicas as it is
//! written.
//!
//! Each replica has a thread, which sleeps while there is nothing to send. The thread reads the
//! log's files, so a slow replica takes no memory and delays no other replica. Replicas of this
//! project are served by [`super::link`].
//!
//! A replica of this project whose connection has ended stays known until it is back, the server
//! ends or an operator forgets it: its copy is missing, whatever the reason.

use super::Replication;
use super::feed::Feed;
use super::link;
use super::replica::{Lag, LostReplica, Replica, ReplicaStatus};
use super::whole::WholeMessages;
use super::{HEARTBEAT, IsAdmitted, ReplicaRequest, SILENCE_MAX, refuse_for_now};
use crate::update_log::{Tail, UpdateLog};
use parking_lot::Mutex;
use rustix::net::sockopt::set_tcp_user_timeout;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use tls::Stream;
use wire::update_log::{Message, Operation};

/// Most replicas at a time.
pub(super) const REPLICAS_MAX: usize = 64;

/// Most replicas that are known though their connection has ended. The one that has ended first is
/// forgotten for one more.
const LOST_MAX: usize = REPLICAS_MAX;

/// Pause between two sends if no client waits. A send per change would cost the master more than
/// the change.
pub(super) const REST: Duration = Duration::from_millis(1);

/// Timeout of a write to a replica. Replicas of Tokyo Tyrant send nothing, so a broken connection
/// is detected by this timeout only.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Length of one send, in bytes, unless an entry is longer.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// Connected replicas, and those whose connection has ended.
///
/// Lock order: `threads` before `lost`.
#[derive(Debug, Default)]
pub(super) struct Senders {
    threads: Mutex<Vec<Sender>>,
    /// Replicas that were served and whose connection has ended, by their ids. One that is back
    /// may be among them.
    lost: Mutex<BTreeMap<u16, Arc<Replica>>>,
}

#[derive(Debug)]
struct Sender {
    stream: Arc<Stream>,
    replica: Arc<Replica>,
    thread: JoinHandle<()>,
}

/// Returns the replicas that are connected.
fn served(threads: &[Sender]) -> impl Iterator<Item = &Replica> {
    let served = threads.iter().filter(|sender| !sender.thread.is_finished());
    served.map(|sender| &*sender.replica)
}

impl Senders {
    /// Serves a replica, if its request is valid.
    pub(super) fn serve(
        &self,
        replication: &Arc<Replication>,
        stream: Stream,
        request: ReplicaRequest,
        is_admitted: IsAdmitted,
    ) -> std::io::Result<()> {
        let ReplicaRequest { replica, from_us, extended } = request;
        let server_id = replication.served.settings.server_id;
        let port = extended.map_or(0, |extended| extended.port);
        let address = address(&stream, port);
        let name = name(replica, &address);
        let refuse = |reason: &str| {
            tracing::warn!("{name} refused: {reason}");
            if extended.is_some() {
                let mut reply = Vec::new();
                refuse_for_now(&mut reply, server_id, reason);
                // The connection is closed in any case, and is not waited for.
                let _ = (&stream).write(&reply);
            }
            Ok(())
        };
        if replica == 0 || replica == server_id {
            return refuse(&format!(
                "its server id is {replica}, and this server has {server_id}: each needs another \
                 --server-id, at least 1"
            ));
        }
        if from_us == 0 {
            return refuse("the time stamp that it asks for is 0");
        }
        let mut threads = self.threads.lock();
        threads.retain(|sender| !sender.thread.is_finished());
        let log = match replication.log_to_send(threads.len()) {
            Ok(log) => log,
            Err(reason) => return refuse(&reason),
        };
        // A replica that connects again before its old connection has ended has its address.
        let has_id =
            |other: &Sender| other.replica.id == replica && other.replica.address != address;
        if port != 0
            && let Some(other) = threads.iter().find(|other| has_id(other))
        {
            return refuse(&format!(
                "the replica at {} has its server id, {replica}: give each its own --server-id",
                other.replica.address
            ));
        }
        // The socket is only read and written, which works on any kind of it.
        let socket = stream.socket();
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
        // The socket may be of another kind than TCP.
        let wait_ms = u32::try_from(WRITE_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
        if let Err(error) = set_tcp_user_timeout(socket, wait_ms) {
            tracing::debug!("{name}: cannot limit the wait for TCP acknowledgements: {error}");
        }
        let stream = Arc::new(stream);
        let sending = Arc::clone(&stream);
        let (replication, log) = (Arc::clone(replication), Arc::clone(log));
        let known = Arc::new(Replica::new(replica, address, extended.is_some()));
        let served = Arc::clone(&known);
        let thread = Builder::new().name(format!("replica-{replica}")).spawn(move || {
            tracing::info!("{name}: sending the update log after time stamp {}", from_us - 1);
            let sent = match extended {
                Some(extended) => {
                    let followed = (request, extended, &*served);
                    link::send(&replication, &log, &sending, followed, &is_admitted)
                }
                None => send(&replication, &log, &sending, request, &served, &is_admitted),
            };
            let sent = if is_admitted() { sent } else { Err(Failure::NotAdmitted) };
            match sent {
                Ok(()) => tracing::info!("{name}: disconnected"),
                // The end of a reader is that of its command.
                Err(Failure::Socket(error)) if is_end(&error) && retained_id(replica).is_none() => {
                    tracing::info!("{name}: disconnected");
                }
                Err(Failure::Socket(error)) if is_end(&error) => {
                    tracing::info!("{name}: disconnected: {error}");
                }
                Err(error) => tracing::warn!("{name}: disconnected: {error}"),
            }
            replication.senders.lose(served);
            // The other handle would keep the socket open.
            let _ = sending.shut_down();
        })?;
        threads.push(Sender { stream, replica: known, thread });
        Ok(())
    }

    /// Returns the number of connected replicas.
    pub(super) fn count(&self) -> usize {
        served(&self.threads.lock()).count()
    }

    /// Returns names and lines for `stat`, by the ids of the replicas.
    pub(super) fn describe(&self, tail: Tail) -> Vec<(String, String)> {
        let threads = self.threads.lock();
        let lost = self.lost_beside(&threads);
        let replicas = served(&threads).chain(lost.iter().map(|replica| &**replica));
        let mut lines: Vec<_> =
            replicas.map(|replica| (replica.id, replica.describe(tail))).collect();
        lines.sort();
        lines.into_iter().map(|(id, text)| (format!("replica_{id}"), text)).collect()
    }

    /// Keeps a replica whose connection has ended, unless it was never served.
    fn lose(&self, replica: Arc<Replica>) {
        let Some(id) = retained_id(replica.id) else { return };
        if !replica.end() {
            return;
        }
        let mut lost = self.lost.lock();
        lost.insert(id, replica);
        if lost.len() > LOST_MAX {
            let first = lost.iter().min_by_key(|(_, replica)| replica.ended_us());
            if let Some(id) = first.map(|(id, _)| *id) {
                lost.remove(&id);
            }
        }
    }

    /// Returns the replicas that were served and are not connected, by their ids.
    pub(super) fn lost(&self) -> Vec<LostReplica> {
        let threads = self.threads.lock();
        let lost = self.lost_beside(&threads);
        let lost = lost.iter().map(|replica| LostReplica {
            id: replica.id,
            address: replica.address.clone(),
            since_us: replica.ended_us(),
        });
        lost.collect()
    }

    fn lost_beside(&self, threads: &[Sender]) -> Vec<Arc<Replica>> {
        let served: BTreeSet<u32> = served(threads).map(|replica| replica.id).collect();
        let lost = self.lost.lock();
        lost.values().filter(|replica| !served.contains(&replica.id)).cloned().collect()
    }

    /// Forgets a replica that is not connected. Returns its address, or `None` if no such replica
    /// has this id.
    pub(super) fn forget(&self, id: u32) -> Option<String> {
        let threads = self.threads.lock();
        let lost = self.lost_beside(&threads);
        let known = lost.iter().find(|replica| replica.id == id)?;
        self.lost.lock().remove(&retained_id(id)?);
        Some(known.address.clone())
    }

    /// Forgets all replicas that are not connected.
    pub(super) fn forget_all(&self) {
        self.lost.lock().clear();
    }

    /// Returns the lags of the replicas that acknowledge, by their ids.
    pub(super) fn lags(&self, tail: Tail) -> BTreeMap<u32, Lag> {
        let threads = self.threads.lock();
        served(&threads).filter_map(|replica| Some((replica.id, replica.lag(tail)?))).collect()
    }

    /// Returns the replicas that acknowledge, by their ids.
    pub(super) fn statuses(&self, tail: Tail) -> Vec<ReplicaStatus> {
        let threads = self.threads.lock();
        let by_id =
            served(&threads).filter_map(|replica| Some((replica.id, replica.status(tail)?)));
        by_id.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// Returns the durable time stamps of the replicas that acknowledge and have a complete copy,
    /// the highest first.
    pub(super) fn durable_us(&self) -> Vec<u64> {
        let mut by_id = BTreeMap::new();
        for Sender { replica, thread, .. } in self.threads.lock().iter() {
            let durable_us = if thread.is_finished() { 0 } else { replica.durable_us() };
            let known = by_id.entry(replica.id).or_insert(0);
            *known = durable_us.max(*known);
        }
        let mut durable: Vec<u64> = by_id.into_values().filter(|at_us| *at_us > 0).collect();
        durable.sort_unstable_by(|one, other| other.cmp(one));
        durable
    }

    /// Disconnects all replicas, and waits for their threads.
    pub(super) fn stop(&self) {
        // The threads take the lock when they end, so it is released here.
        let threads = std::mem::take(&mut *self.threads.lock());
        for Sender { stream, thread, .. } in threads {
            let _ = stream.shut_down();
            // The panic was already printed.
            let _ = thread.join();
        }
    }
}

/// Returns whether the other end has closed the connection. One that only takes the log, such as
/// `tyrant tail`, sends nothing before it ends, so that the next write shows it.
fn is_end(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Returns what the log calls a replica. Ids over those of servers are of tools, such as `tail`,
/// which all have the same one.
fn name(id: u32, address: &str) -> String {
    match retained_id(id) {
        Some(id) => format!("replica {id}"),
        None => format!("reader at {address}"),
    }
}

/// Returns the address of a replica on its port, or else that of its connection.
fn address(stream: &Stream, port: u16) -> String {
    match stream.socket().peer_addr() {
        Ok(mut peer) => {
            if port != 0 {
                peer.set_port(port);
            }
            peer.to_string()
        }
        Err(_) => "local".to_owned(),
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{0}")]
    Socket(#[from] std::io::Error),
    #[error("{0}")]
    Log(#[from] crate::update_log::Error),
    #[error("the update log cannot be written")]
    Unwritten,
    #[error("{0}")]
    Database(#[from] cabinet::Error),
    #[error("a record is longer than an update log entry can be")]
    TooLong,
    #[error("it has sent nothing for {} s: it hangs, or the network does", SILENCE_MAX.as_secs())]
    Silent,
    #[error("it has disconnected, or this server is stopping")]
    Disconnected,
    #[error(
        "its time stamp {at_us} is later than the clock of this server: it belongs to another log"
    )]
    Ahead { at_us: u64 },
    #[error("its user was removed, has another password or token, or lacks a right")]
    NotAdmitted,
    #[error("it has executed operations that the master lacks")]
    ReplicaIsAhead,
    #[error("it has executed operations that the master has yet to receive")]
    NotYetReceived,
    #[error("it acknowledged time stamp {at_us}, but was sent nothing after {announced_us}")]
    NotSent { at_us: u64, announced_us: u64 },
    #[error("it sent an invalid message")]
    InvalidMessage,
}

/// Sends Tokyo Tyrant's stream.
fn send(
    replication: &Replication,
    log: &UpdateLog,
    stream: &Stream,
    ReplicaRequest { replica, from_us, .. }: ReplicaRequest,
    known: &Replica,
    is_admitted: &IsAdmitted,
) -> Result<(), Failure> {
    let mut seen = log.end();
    let mut feed = Feed::of(log, replica, from_us)?;
    if let Some(replica) = retained_id(replica) {
        log.retention().confirm(replica, from_us - 1);
    }
    let mut output = WholeMessages::new(stream, WRITE_TIMEOUT);
    output.push(|output| {
        output.extend_from_slice(&replication.served.settings.server_id.to_be_bytes())
    });
    push(&mut output, &Message::NoOperation);
    while !replication.served.is_stopping() && is_admitted() {
        let Some(feed) = &mut feed else {
            // The folder of the log was emptied while the server runs.
            return Ok(());
        };
        while let Some(message) = feed.next(seen)? {
            push(&mut output, &message);
            if output.len() >= CHUNK_BYTES {
                output.flush()?;
                if !is_admitted() {
                    return Ok(());
                }
            }
        }
        output.flush()?;
        feed.report(known);
        if let Some(replica) = retained_id(replica) {
            log.retention().sent(replica, feed.read_us());
        }
        std::thread::sleep(REST);
        if !log.wait_beyond(seen, HEARTBEAT) {
            push(&mut output, &Message::NoOperation);
        }
        seen = log.end();
    }
    Ok(())
}

/// Returns the id for which log files are retained. Greater ids belong to clients that only read.
pub(super) fn retained_id(replica: u32) -> Option<u16> {
    u16::try_from(replica).ok()
}

/// Adds a message. Tokyo Tyrant knows no transaction, so it gets the operations one by one. All but
/// the last have an earlier time stamp: if the connection ends between them, it asks for all again.
fn push(output: &mut WholeMessages<'_>, message: &Message<'_>) {
    // Messages read from the log are within the limit.
    let mut add = |message: &Message<'_>| {
        output.push(|output| {
            let _ = message.encode(output);
        });
    };
    if let Message::Update { timestamp_us, origin, body } = *message
        && let Some(bodies) = Operation::parse(body).ok().and_then(|operation| operation.parts())
    {
        let mut bodies = bodies.iter();
        while let Some(body) = bodies.next() {
            let before_us = u64::from(bodies.len() > 0);
            add(&Message::Update { timestamp_us: timestamp_us - before_us, origin, body });
        }
        return;
    }
    add(message);
}
