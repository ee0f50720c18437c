//! Protocol of service managers such as systemd: notices about the state of the service, the
//! watchdog, and listening sockets that the manager has bound.
//!
//! Without a manager, that is without its variables in the environment, nothing is sent.

use anyhow::{Context, Result, bail};
use listenfd::ListenFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::time::{ClockId, clock_gettime};
use server::{Endpoint, Handle};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Longest wait for room in the queue of a manager that does not read.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(5);

/// Socket to the service manager, if there is one. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Manager(Option<Arc<UnixDatagram>>);

impl Manager {
    /// Connects to the manager that the environment names.
    pub(crate) fn from_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Self(None) };
        let connect = || {
            let bytes = name.as_encoded_bytes();
            let address = match bytes.strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name)?,
                None => SocketAddr::from_pathname(&name)?,
            };
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&address)?;
            socket.set_write_timeout(Some(NOTICE_TIMEOUT))?;
            std::io::Result::Ok(socket)
        };
        match connect() {
            Ok(socket) => Self(Some(Arc::new(socket))),
            Err(error) => {
                let name = name.display();
                tracing::warn!("cannot notify the service manager at {name}: {error}");
                Self(None)
            }
        }
    }

    /// Notifies the manager that clients are served, at start or after a reload.
    pub(crate) fn ready(&self) {
        self.send("READY=1");
    }

    /// Notifies the manager that the settings are being read again.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
    }

    /// Notifies the manager that the server stops.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Keeps the manager's watchdog from ending the process. A manager with a full queue has such
    /// notices to read, and is not waited for.
    fn keep_alive(&self) {
        if let Some(socket) = &self.0
            && let Err(error) = send(socket, b"WATCHDOG=1", SendFlags::DONTWAIT)
            && error != Errno::AGAIN
        {
            tracing::warn!("cannot notify the service manager: {error}");
        }
    }

    fn send(&self, state: &str) {
        if let Some(socket) = &self.0
            && let Err(error) = socket.send(state.as_bytes())
        {
            tracing::warn!("cannot notify the service manager: {error}");
        }
    }
}

/// Returns whether the manager hands over sockets that it has bound.
pub(crate) fn hands_sockets_over() -> bool {
    std::env::var_os("LISTEN_FDS").is_some()
}

/// The thread that keeps the manager's watchdog from ending the process, ended when dropped. It
/// does so only while every event loop responds.
#[derive(Debug)]
pub(crate) struct Watchdog {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the thread if the manager has a watchdog for this process.
    pub(crate) fn start(manager: &Manager, servers: Vec<Handle>) -> Result<Option<Self>> {
        let Some(interval) = watchdog_interval() else { return Ok(None) };
        let (end, ended) = channel();
        let manager = manager.clone();
        let watch = move || loop {
            if servers.iter().all(|server| server.responds_within(interval)) {
                manager.keep_alive();
            } else {
                tracing::error!("an event loop has not responded for {interval:?}");
            }
            if ended.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        };
        let thread = thread::Builder::new().name("watchdog".into()).spawn(watch);
        let thread = Some(thread.context("cannot start a thread")?);
        Ok(Some(Self { end: Some(end), thread }))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It can only fail by a panic, which has already been logged.
            let _ = thread.join();
        }
    }
}

/// Returns a third of the time after which the manager's watchdog bites, if it watches this
/// process.
fn watchdog_interval() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|process| process != u64::from(std::process::id())) {
        return None;
    }
    number("WATCHDOG_USEC").filter(|limit| *limit > 0).map(|limit| Duration::from_micros(limit) / 3)
}

/// A listening socket of the manager.
enum Inherited {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl Inherited {
    fn is_of(&self, endpoints: &[&Endpoint]) -> bool {
        endpoints.iter().any(|endpoint| match (self, endpoint) {
            (Self::Tcp(socket), Endpoint::Loopback { port } | Endpoint::Tcp { port, .. }) => {
                socket.local_addr().is_ok_and(|address| address.port() == *port)
            }
            (Self::Unix(socket), Endpoint::Unix(path)) => {
                let address = socket.local_addr();
                address.is_ok_and(|address| address.as_pathname() == Some(path))
            }
            _ => false,
        })
    }
}

impl From<Inherited> for OwnedFd {
    fn from(socket: Inherited) -> Self {
        match socket {
            Inherited::Tcp(socket) => socket.into(),
            Inherited::Unix(socket) => socket.into(),
        }
    }
}

/// Returns the listening sockets of the manager for each of these databases. A single database gets
/// all of them; one of several gets those with its ports and paths.
pub(crate) fn inherited_sockets(databases: &[Vec<&Endpoint>]) -> Result<Vec<Vec<OwnedFd>>> {
    let mut found = ListenFd::from_env();
    let mut sockets: Vec<Vec<OwnedFd>> = databases.iter().map(|_| Vec::new()).collect();
    for index in 0..found.len() {
        let socket = match found.take_tcp_listener(index) {
            Ok(Some(socket)) => Inherited::Tcp(socket),
            _ => match found.take_unix_listener(index) {
                Ok(Some(socket)) => Inherited::Unix(socket),
                _ => bail!("inherited socket {index} is neither TCP nor Unix"),
            },
        };
        let place = match databases.len() {
            1 => Some(0),
            _ => databases.iter().position(|endpoints| socket.is_of(endpoints)),
        };
        let place = place.and_then(|place| sockets.get_mut(place));
        let place = place.with_context(|| {
            format!("inherited socket {index} has no port and no path of a database")
        })?;
        place.push(socket.into());
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_does_not_read_does_not_keep_the_watchdog_from_ending() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let _unread = UnixDatagram::bind(&path).expect("a socket");
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.connect(&path).expect("a manager");
        let manager = Manager(Some(Arc::new(socket)));
        // More than any queue of datagrams has room for.
        (0..5000).for_each(|_| manager.keep_alive());
    }
}
