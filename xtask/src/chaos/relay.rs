//! Relay: delays the traffic between a replica and its master.

use super::network::Network;
use anyhow::{Context, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Most chunks in flight per direction.
const CHUNKS_MAX: usize = 1024;

const CHUNK_BYTES: usize = 16 << 10;

/// Interval of the check whether the relay has been dropped.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A relay between hosts, stopped when dropped.
pub(super) struct Relay {
    pub(super) port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    delay_ms: AtomicU64,
    is_over: AtomicBool,
}

impl Relay {
    /// Forwards connections to a port of the hub to the address `to`.
    pub(super) fn start(network: &Network, to: String) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let (ready, started) = mpsc::channel();
        let (space, known) = (network.open_hub()?, Arc::clone(&shared));
        std::thread::spawn(move || {
            // This thread, and the threads that it starts, run in the namespace from now on.
            let listening = enter(space).and_then(|()| Ok(TcpListener::bind("0.0.0.0:0")?));
            let listener = match listening {
                Ok(listener) => listener,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let port = listener.local_addr().map(|address| address.port());
            let _ = ready.send(port.map_err(Into::into));
            accept(&listener, &to, &known);
        });
        let port = started.recv().context("the relay has ended")??;
        Ok(Self { port, shared })
    }

    /// Delays all bytes by `delay` from now on, in either direction.
    pub(super) fn delay(&self, delay: Duration) {
        self.shared.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

/// Moves this thread into a network namespace.
fn enter(space: File) -> Result<()> {
    Ok(move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?)
}

fn accept(listener: &TcpListener, to: &str, shared: &Arc<Shared>) {
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    while !shared.is_over.load(Ordering::Relaxed) {
        let Ok((here, _)) = listener.accept() else {
            std::thread::sleep(CHECK_INTERVAL);
            continue;
        };
        let (to, shared) = (to.to_owned(), Arc::clone(shared));
        std::thread::spawn(move || {
            // If the other end is unreachable, the connection is closed, as it would be without the
            // relay.
            let Ok(there) = TcpStream::connect(to) else { return };
            let _ = forward(&here, &there, &shared).and_then(|()| forward(&there, &here, &shared));
        });
    }
}

/// Forwards the bytes of `from` until it ends.
fn forward(from: &TcpStream, to: &TcpStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    let (chunks, arriving) = sync_channel(CHUNKS_MAX);
    let (from, to) = (from.try_clone()?, to.try_clone()?);
    from.set_nonblocking(false)?;
    from.set_read_timeout(Some(CHECK_INTERVAL))?;
    to.set_nodelay(true)?;
    let shared = Arc::clone(shared);
    std::thread::spawn(move || deliver(&to, &arriving));
    std::thread::spawn(move || collect(&from, &chunks, &shared));
    Ok(())
}

fn collect(mut from: &TcpStream, chunks: &SyncSender<(Instant, Vec<u8>)>, shared: &Shared) {
    while !shared.is_over.load(Ordering::Relaxed) {
        let mut piece = vec![0; CHUNK_BYTES];
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => piece.truncate(length),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => break,
        }
        let delay = Duration::from_millis(shared.delay_ms.load(Ordering::Relaxed));
        if chunks.send((Instant::now() + delay, piece)).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
}

fn deliver(mut to: &TcpStream, arriving: &Receiver<(Instant, Vec<u8>)>) {
    for (due, piece) in arriving {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
