//! A way from a replica to its master that takes its time.

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

/// Pieces on their way in one direction.
const PIECES_MAX: usize = 1024;

const PIECE_BYTES: usize = 16 << 10;

/// Time between two looks whether it is over.
const LOOK: Duration = Duration::from_millis(50);

/// Between the hosts; gone when dropped.
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
    /// Passes on to `to` what comes to a port of the hub's.
    pub(super) fn start(network: &Network, to: String) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let (ready, started) = mpsc::channel();
        let (space, known) = (network.open_hub()?, Arc::clone(&shared));
        std::thread::spawn(move || {
            // This thread, and those that it starts, are there from now on.
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

    /// From now on everything takes so long, in either direction.
    pub(super) fn delay(&self, delay: Duration) {
        self.shared.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

/// Moves this thread into a network.
fn enter(space: File) -> Result<()> {
    Ok(move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?)
}

fn accept(listener: &TcpListener, to: &str, shared: &Arc<Shared>) {
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    while !shared.is_over.load(Ordering::Relaxed) {
        let Ok((here, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        let (to, shared) = (to.to_owned(), Arc::clone(shared));
        std::thread::spawn(move || {
            // Who cannot reach the other end leaves, as it does without this.
            let Ok(there) = TcpStream::connect(to) else { return };
            let _ = pass(&here, &there, &shared).and_then(|()| pass(&there, &here, &shared));
        });
    }
}

/// Passes on what comes `from` until it ends.
fn pass(from: &TcpStream, to: &TcpStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    let (pieces, arriving) = sync_channel(PIECES_MAX);
    let (from, to) = (from.try_clone()?, to.try_clone()?);
    from.set_nonblocking(false)?;
    from.set_read_timeout(Some(LOOK))?;
    to.set_nodelay(true)?;
    let shared = Arc::clone(shared);
    std::thread::spawn(move || deliver(&to, &arriving));
    std::thread::spawn(move || collect(&from, &pieces, &shared));
    Ok(())
}

fn collect(mut from: &TcpStream, pieces: &SyncSender<(Instant, Vec<u8>)>, shared: &Shared) {
    while !shared.is_over.load(Ordering::Relaxed) {
        let mut piece = vec![0; PIECE_BYTES];
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => piece.truncate(length),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => break,
        }
        let delay = Duration::from_millis(shared.delay_ms.load(Ordering::Relaxed));
        if pieces.send((Instant::now() + delay, piece)).is_err() {
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
