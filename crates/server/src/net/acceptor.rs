//! Acceptor: accepts connections and assigns each to an event loop.

use crate::counters::{Count, Counters};
use crate::net::balance;
use crate::net::connection::Connection;
use crate::net::listener::Listener;
use crate::net::mailbox::Message;
use crate::shared::Shared;
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, getpeername, send};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Reply to a connection beyond [`crate::Config::connections_max`].
const TOO_MANY: &[u8] = b"SERVER_ERROR too many connections\r\n";

/// Pause after `accept` has failed for lack of a resource such as descriptors. The connection that
/// waits would be reported again at once.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until `waker` is signalled.
pub(crate) fn accept(shared: &Arc<Shared>, listeners: &[Listener], waker: &OwnedFd) -> Result<()> {
    let counters = shared.new_counters();
    let mut watched: Vec<PollFd<'_>> = listeners
        .iter()
        .map(|listener| PollFd::new(listener, PollFlags::IN))
        .chain([PollFd::new(waker, PollFlags::IN)])
        .collect();
    tracing::info!("listening started");
    while !shared.is_stopping() {
        match poll(&mut watched, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(Error::system("wait for connections")(error)),
        }
        for (listener, watched) in listeners.iter().zip(&watched) {
            if !watched.revents().is_empty() && !shared.is_stopping() {
                accept_waiting(shared, listener, &counters);
            }
        }
    }
    tracing::info!("listening finished");
    Ok(())
}

fn accept_waiting(shared: &Arc<Shared>, listener: &Listener, counters: &Counters) {
    loop {
        match listener.accept() {
            Ok(socket) => {
                counters.count(Count::Accepted);
                admit(shared, socket, counters);
            }
            Err(Errno::AGAIN) => return,
            // The client or its network is gone already.
            Err(
                Errno::INTR
                | Errno::CONNABORTED
                | Errno::NETDOWN
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::OPNOTSUPP,
            ) => {}
            Err(error) => {
                tracing::error!("cannot accept a connection: {error}");
                std::thread::sleep(SHORTAGE_PAUSE);
                return;
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, socket: OwnedFd, counters: &Counters) {
    if shared.connections() >= shared.config.connections_max {
        tracing::warn!(
            "connection refused: {} are open, which is the limit; raise it or close some",
            shared.config.connections_max
        );
        counters.count(Count::Rejected);
        // The connection is closed whether or not the client reads the refusal.
        let _ = send(&socket, TOO_MANY, SendFlags::NOSIGNAL);
        return;
    }
    if tracing::enabled!(tracing::Level::DEBUG) {
        let peer = getpeername(&socket).ok().flatten();
        match peer.and_then(|address| SocketAddr::try_from(address).ok()) {
            Some(address) => tracing::debug!("connected: {address}"),
            None => tracing::debug!("connected: unix"),
        }
    }
    let now_ms = shared.milliseconds_at(Instant::now());
    let mailbox = balance::for_new_connection(&shared.mailboxes, now_ms);
    mailbox.connections.fetch_add(1, Ordering::Relaxed);
    mailbox.post(Message::Adopt(Box::new(Connection::new(socket, Arc::clone(shared)))));
}
