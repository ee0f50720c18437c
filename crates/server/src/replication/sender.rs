//! A master's side: the update log, sent to a replica as it is written.
//!
//! Each replica has a thread of its own here, which sleeps while there is nothing to send. It reads
//! the files of the log, so a replica that is slow costs no memory and holds up nobody.

use crate::shared::Shared;
use crate::update_log::{Place, Reader, UpdateLog};
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use wire::update_log::Message;

/// Most replicas at a time.
const REPLICAS_MAX: usize = 64;

/// A replica hears of its master this often, also when there is nothing to tell.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Longest wait for a replica to take what is sent to it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes sent at once, unless an entry is longer.
const CHUNK_BYTES: usize = 64 << 10;

/// The replicas that are being served.
#[derive(Debug, Default)]
pub(super) struct Senders {
    threads: Mutex<Vec<Sender>>,
}

#[derive(Debug)]
struct Sender {
    stream: TcpStream,
    thread: JoinHandle<()>,
}

/// What a replica asks for.
#[derive(Clone, Copy, Debug)]
struct Request {
    replica: u32,
    from_us: u64,
}

impl Senders {
    /// Serves a replica from now on, if it can be one.
    pub(super) fn serve(
        &self,
        shared: &Arc<Shared>,
        socket: OwnedFd,
        timestamp_us: u64,
        replica: u32,
    ) -> std::io::Result<()> {
        let Some(log) = &shared.update_log else {
            tracing::warn!("replica {replica} refused: there is no update log here");
            return Ok(());
        };
        if timestamp_us == 0 || replica == 0 || replica == shared.config.server_id {
            tracing::warn!("replica {replica} refused: server id or time stamp cannot be");
            return Ok(());
        }
        let mut threads = self.threads.lock();
        threads.retain(|sender| !sender.thread.is_finished());
        if threads.len() >= REPLICAS_MAX || shared.is_stopping() {
            tracing::warn!("replica {replica} refused: there are {} already", threads.len());
            return Ok(());
        }
        // Only sending and receiving is done with it, which is the same for all sockets.
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let sending = stream.try_clone()?;
        let (shared, log) = (Arc::clone(shared), Arc::clone(log));
        let request = Request { replica, from_us: timestamp_us };
        let thread = Builder::new().name(format!("replica-{replica}")).spawn(move || {
            tracing::info!("replicating to sid={replica} after {}", timestamp_us - 1);
            match send(&shared, &log, &sending, request) {
                Ok(()) => tracing::info!("replicating to sid={replica} finished"),
                Err(error) => tracing::warn!("replicating to sid={replica} ended: {error}"),
            }
            // The other handle would keep it open.
            let _ = sending.shutdown(Shutdown::Both);
        })?;
        threads.push(Sender { stream, thread });
        Ok(())
    }

    /// Number of replicas that are being served.
    pub(super) fn count(&self) -> usize {
        self.threads.lock().iter().filter(|sender| !sender.thread.is_finished()).count()
    }

    /// Ends all, and waits for their end.
    pub(super) fn stop(&self) {
        for Sender { stream, thread } in std::mem::take(&mut *self.threads.lock()) {
            let _ = stream.shutdown(Shutdown::Both);
            // A panic has been printed where it happened.
            let _ = thread.join();
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Socket(#[from] std::io::Error),
    #[error("{0}")]
    Log(#[from] crate::update_log::Error),
}

fn send(
    shared: &Shared,
    log: &UpdateLog,
    mut stream: &TcpStream,
    Request { replica, from_us }: Request,
) -> Result<(), Failure> {
    let mut seen = log.end();
    let mut reader = Reader::open(log.folder(), from_us)?;
    // Ids beyond those of servers are of clients that only look.
    let known = u16::try_from(replica).ok();
    if let Some(replica) = known {
        log.keeper().confirm(replica, from_us - 1);
    }
    let mut output = shared.config.server_id.to_be_bytes().to_vec();
    push(&mut output, &Message::NoOperation);
    while !shared.is_stopping() {
        let Some(reader) = &mut reader else {
            // The folder was emptied under the server.
            return Ok(());
        };
        let sent_us = send_up_to(reader, seen, replica, &mut output, stream)?;
        stream.write_all(&output)?;
        output.clear();
        if let (Some(replica), Some(sent_us)) = (known, sent_us) {
            log.keeper().sent(replica, sent_us);
        }
        if !log.wait_beyond(seen, HEARTBEAT) {
            push(&mut output, &Message::NoOperation);
        }
        seen = log.end();
    }
    Ok(())
}

/// Sends the entries before `end`, but for what is left in `output`. Answers the time stamp of the
/// last one.
fn send_up_to(
    reader: &mut Reader,
    end: Place,
    replica: u32,
    output: &mut Vec<u8>,
    mut stream: &TcpStream,
) -> Result<Option<u64>, Failure> {
    let mut sent_us = None;
    while let Some(entry) = reader.next(Some(end))? {
        sent_us = Some(entry.timestamp_us);
        // It need not hear from here what it said, or what it was told by whom we were told.
        if u32::from(entry.origin) == replica || u32::from(entry.master) == replica {
            continue;
        }
        let message = Message::Update {
            timestamp_us: entry.timestamp_us,
            origin: entry.origin.into(),
            body: entry.body,
        };
        push(output, &message);
        if output.len() >= CHUNK_BYTES {
            stream.write_all(output)?;
            output.clear();
        }
    }
    Ok(sent_us)
}

fn push(output: &mut Vec<u8>, message: &Message<'_>) {
    // What was read from the log is within the limit.
    let _ = message.encode(output);
}
