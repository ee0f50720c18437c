//! Listening sockets: TCP over IPv4 and IPv6, and Unix.

use crate::{Endpoint, Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, chmod};
use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Most connections that the system completes before they are accepted.
const BACKLOG: i32 = 1024;

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// Without TLS.
    Plain,
    /// With TLS if the first byte is that of TLS.
    Either,
    /// With TLS.
    Tls,
}

/// A listening socket. Dropping it closes it and removes the file of a Unix socket.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    /// How its connections begin.
    pub(crate) beginning: Beginning,
    file: Option<PathBuf>,
}

impl Listener {
    /// Listens on every address of `endpoint`. Connections to a Unix socket begin without TLS,
    /// unless it is required. The file of a Unix socket gets the permission bits `mode`, if any.
    pub(crate) fn bind(
        endpoint: &Endpoint,
        beginning: Beginning,
        mode: Option<u32>,
    ) -> Result<Vec<Self>> {
        let mut listeners = Self::bind_plain(endpoint, mode, true)?;
        for listener in &mut listeners {
            let is_unix = listener.file.is_some() && beginning == Beginning::Either;
            listener.beginning = if is_unix { Beginning::Plain } else { beginning };
        }
        Ok(listeners)
    }

    fn bind_plain(endpoint: &Endpoint, mode: Option<u32>, listens: bool) -> Result<Vec<Self>> {
        let failed =
            |source: Errno| Error::Listen { endpoint: endpoint.clone(), source: source.into() };
        match endpoint {
            Endpoint::Unix(path) => Ok(vec![Self::bind_unix(path, mode).map_err(failed)?]),
            Endpoint::Loopback { port } => Self::bind_loopback(*port, listens).map_err(failed),
            Endpoint::Tcp { host: None, port } => {
                // One socket serves both families, unless the system has no IPv6.
                let any = Self::bind_tcp((Ipv6Addr::UNSPECIFIED, *port).into(), false, listens)
                    .or_else(|error| match error {
                        Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL => {
                            Self::bind_tcp((Ipv4Addr::UNSPECIFIED, *port).into(), false, listens)
                        }
                        error => Err(error),
                    })
                    .map_err(failed)?;
                Ok(vec![any])
            }
            Endpoint::Tcp { host: Some(host), port } => {
                let addresses = (host.as_str(), *port)
                    .to_socket_addrs()
                    .map_err(|source| Error::Listen { endpoint: endpoint.clone(), source })?;
                let listeners = addresses
                    .map(|address| Self::bind_tcp(address, true, listens).map_err(failed))
                    .collect::<Result<Vec<_>>>()?;
                if listeners.is_empty() {
                    return Err(Error::NoAddress(endpoint.clone()));
                }
                Ok(listeners)
            }
        }
    }

    /// Fails if the addresses of `endpoint` cannot be listened on at present. Makes no Unix socket,
    /// and does not listen: a client that connects now would be cut off.
    pub(crate) fn check(endpoint: &Endpoint) -> Result<()> {
        match endpoint {
            Endpoint::Unix(_) => Ok(()),
            _ => Self::bind_plain(endpoint, None, false).map(drop),
        }
    }

    fn bind_loopback(port: u16, listens: bool) -> rustix::io::Result<Vec<Self>> {
        let first = Self::bind_tcp((Ipv4Addr::LOCALHOST, port).into(), true, listens)?;
        let chosen = first.local_address().map_or(port, |address| address.port());
        match Self::bind_tcp((Ipv6Addr::LOCALHOST, chosen).into(), true, listens) {
            Ok(second) => Ok(vec![first, second]),
            Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => Ok(vec![first]),
            // The system chose a port that another program has in the other family.
            Err(Errno::ADDRINUSE) if port == 0 => Ok(vec![first]),
            Err(error) => Err(error),
        }
    }

    fn bind_tcp(
        address: SocketAddr,
        only_its_family: bool,
        listens: bool,
    ) -> rustix::io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = open(family)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        // Accepted sockets inherit this option, which saves a call for each.
        sockopt::set_tcp_nodelay(&socket, true)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, only_its_family)?;
        }
        net::bind(&socket, &address)?;
        if listens {
            net::listen(&socket, BACKLOG)?;
        }
        Ok(Self { socket, beginning: Beginning::Plain, file: None })
    }

    fn bind_unix(path: &Path, mode: Option<u32>) -> rustix::io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let socket = open(AddressFamily::UNIX)?;
        match net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if is_left_behind(path) => {
                std::fs::remove_file(path)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::ADDRINUSE))?;
                net::bind(&socket, &address)?;
            }
            result => result?,
        }
        if let Some(mode) = mode {
            // No client can connect before the socket listens.
            chmod(path, Mode::from_raw_mode(mode))?;
        }
        net::listen(&socket, BACKLOG)?;
        Ok(Self { socket, beginning: Beginning::Plain, file: Some(path.to_path_buf()) })
    }

    /// Takes over a socket that listens already. Its file, if it is a Unix socket, stays.
    pub(crate) fn inherit(socket: OwnedFd) -> Result<Self> {
        let prepare = || {
            if !sockopt::socket_acceptconn(&socket)? {
                return Err(Errno::INVAL);
            }
            fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
            ioctl_fionbio(&socket, true)?;
            match sockopt::socket_domain(&socket)? {
                AddressFamily::INET | AddressFamily::INET6 => {
                    sockopt::set_tcp_nodelay(&socket, true)
                }
                _ => Ok(()),
            }
        };
        prepare().map_err(Error::system("listen on an inherited socket"))?;
        Ok(Self { socket, beginning: Beginning::Plain, file: None })
    }

    /// Accepts a connection, or fails with `AGAIN` if none waits.
    pub(crate) fn accept(&self) -> rustix::io::Result<OwnedFd> {
        net::accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
    }

    /// Returns the address that the socket is bound to, or `None` for a Unix socket.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        net::getsockname(&self.socket).ok().and_then(|address| SocketAddr::try_from(address).ok())
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.file
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!(
                "cannot remove the socket {}, remove it by hand: {error}",
                path.display()
            );
        }
    }
}

fn open(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    net::socket_with(family, SocketType::STREAM, flags, None)
}

/// Returns whether `path` is the socket of a server that is gone: connecting is refused.
fn is_left_behind(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    is_socket
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}
