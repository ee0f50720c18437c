//! Acceptor: accepts connections and assigns each to an event loop.

use crate::counters::{Count, Counters};
use crate::net::balance;
use crate::net::connection::Connection;
use crate::net::hub::Hub;
use crate::net::listener::{Beginning, Listener};
use crate::net::mailbox::Message;
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, getpeername, send};
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Reply to a connection beyond [`crate::Config::connections_max`].
const TOO_MANY: &[u8] = b"SERVER_ERROR too many connections\r\n";

/// Pause after `accept` has failed for lack of a resource such as descriptors. The connection that
/// waits would be reported again at once.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until the server stops.
pub(crate) fn accept(hub: &Hub, listeners: &[Listener]) -> Result<()> {
    let shared = &hub.shared;
    let counters = shared.counters.add_thread();
    let mut watched: Vec<PollFd<'_>> = listeners
        .iter()
        .map(|listener| PollFd::new(listener, PollFlags::IN))
        .chain([PollFd::new(&*shared.served.stop, PollFlags::IN)])
        .collect();
    tracing::info!("listening started");
    while !shared.served.is_stopping() {
        match poll(&mut watched, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(Error::system("wait for connections")(error)),
        }
        for (listener, watched) in listeners.iter().zip(&watched) {
            if !watched.revents().is_empty() && !shared.served.is_stopping() {
                accept_waiting(hub, listener, &counters);
            }
        }
    }
    tracing::info!("listening finished");
    Ok(())
}

fn accept_waiting(hub: &Hub, listener: &Listener, counters: &Counters) {
    loop {
        match listener.accept() {
            Ok(socket) => {
                counters.count(Count::Accepted);
                admit(hub, socket, listener.beginning, counters);
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

fn admit(hub: &Hub, socket: OwnedFd, beginning: Beginning, counters: &Counters) {
    let shared = &hub.shared;
    let connections_max = shared.live.connections_max();
    if shared.connections() >= connections_max {
        tracing::warn!(
            "connection refused: {connections_max} are open, which is the limit; raise it or \
             close some"
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
    assign(hub, Connection::new(socket, beginning, Arc::clone(shared)));
}

/// Connects to a server from within the process, as a client at `address`. Returns the end of the
/// client, or `None` if the server has as many connections as it may have.
pub(crate) fn connect(hub: &Hub, address: Option<SocketAddr>) -> io::Result<Option<UnixStream>> {
    let shared = &hub.shared;
    if shared.connections() >= shared.live.connections_max() {
        return Ok(None);
    }
    let (near, far) = UnixStream::pair()?;
    far.set_nonblocking(true)?;
    assign(hub, Connection::within(far.into(), address, Arc::clone(shared)));
    Ok(Some(near))
}

fn assign(hub: &Hub, connection: Connection) {
    let now_ms = hub.shared.milliseconds_at(Instant::now());
    let mailbox = balance::for_new_connection(&hub.mailboxes, now_ms);
    mailbox.load.connections.fetch_add(1, Ordering::Relaxed);
    mailbox.post(Message::Adopt(Box::new(connection)));
}
