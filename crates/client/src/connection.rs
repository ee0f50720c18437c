//! One connection: sends the bytes of requests and reads responses.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use wire::binary::{Function, NO_USERS, NOT_LOGGED, Request, Strings, encode};

use crate::error::LoginRefusal;
use crate::{Address, Credentials, Error, Result, Settings};

/// Memory that each element of a list takes beside its own bytes. It counts towards the limit of a
/// response.
const ELEMENT_BYTES: usize = size_of::<Vec<u8>>();

/// Most bytes of a reply in another protocol that its error shows after the first one.
const FOREIGN_BYTES_SHOWN: usize = 31;

/// Most bytes of the reason of a failure that are read.
const REASON_BYTES_MAX: usize = 4096;

/// Most bytes allocated for a string before any of it has been received.
const STRING_BYTES_TRUSTED: usize = 64 << 10;

/// A connection. It is broken once a response is not read to its end: the rest would be taken for
/// the response to the next request.
pub(crate) struct Connection {
    stream: BufReader<Stream>,
    response_bytes_max: usize,
    /// Bytes that the current exchange may still take.
    budget: usize,
    broken: bool,
}

impl Connection {
    pub(crate) fn open(address: &Address, settings: &Settings) -> Result<Self> {
        Ok(Self {
            stream: BufReader::new(Stream::open(address, settings)?),
            response_bytes_max: settings.response_bytes_max,
            budget: 0,
            broken: false,
        })
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns whether the server has kept an idle connection open. It may still close it before
    /// the next request.
    pub(crate) fn is_alive(&mut self) -> bool {
        // Unsolicited bytes are as bad as the end of the stream.
        !self.broken && self.stream.buffer().is_empty() && self.stream.get_mut().is_quiet()
    }

    pub(crate) fn set_read_timeout(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.stream.get_ref().set_read_timeout(timeout).map_err(Error::Receive)
    }

    /// Begins an exchange whose responses share one limit.
    pub(crate) fn begin_exchange(&mut self) {
        self.budget = self.response_bytes_max;
    }

    /// Sends requests and reads their responses with `read`.
    pub(crate) fn exchange<T>(
        &mut self,
        requests: &[u8],
        read: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> Result<T> {
        if self.broken {
            return Err(Error::InvalidOperation);
        }
        self.broken = true;
        self.stream.get_mut().write_all(requests).map_err(|error| Error::Send(named(error)))?;
        let response = read(self).map_err(|error| Error::Receive(named(error)))?;
        self.broken = false;
        Ok(response)
    }

    fn spend(&mut self, bytes: usize) -> io::Result<()> {
        match self.budget.checked_sub(bytes) {
            Some(budget) => self.budget = budget,
            None => return Err(io::Error::new(ErrorKind::InvalidData, "response too large")),
        }
        Ok(())
    }

    fn read_array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut array = [0; N];
        self.stream.read_exact(&mut array)?;
        Ok(array)
    }

    /// Reads the status of a response. Returns whether the request succeeded.
    pub(crate) fn read_status(&mut self) -> io::Result<bool> {
        match self.read_array()? {
            [wire::binary::reply::OK] => Ok(true),
            [wire::binary::reply::FAILURE] => Ok(false),
            [status] => Err(self.foreign_reply(status)),
        }
    }

    /// Returns the error of a reply that begins with no status, with what has arrived of it.
    fn foreign_reply(&self, status: u8) -> io::Error {
        let rest = self.stream.buffer();
        let rest = &rest[..rest.len().min(FOREIGN_BYTES_SHOWN)];
        foreign_reply(&[&[status], rest].concat())
    }

    /// Reads a response with `read` if the request succeeded.
    pub(crate) fn read_if_ok<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        if self.read_status()? { read(self).map(Some) } else { Ok(None) }
    }

    pub(crate) fn read_u32(&mut self) -> io::Result<u32> {
        self.read_array().map(u32::from_be_bytes)
    }

    pub(crate) fn read_u64(&mut self) -> io::Result<u64> {
        self.read_array().map(u64::from_be_bytes)
    }

    pub(crate) fn read_i32(&mut self) -> io::Result<i32> {
        self.read_array().map(i32::from_be_bytes)
    }

    pub(crate) fn read_f64(&mut self) -> io::Result<f64> {
        let integral = self.read_array().map(i64::from_be_bytes)?;
        let fractional = self.read_array().map(i64::from_be_bytes)?;
        Ok(wire::binary::double_from_parts(integral, fractional))
    }

    pub(crate) fn read_string(&mut self) -> io::Result<Vec<u8>> {
        let size = self.read_u32()?;
        self.read_bytes(size)
    }

    pub(crate) fn read_list(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let count = self.read_u32()?;
        (0..count).map(|_| self.spend(ELEMENT_BYTES).and_then(|()| self.read_string())).collect()
    }

    pub(crate) fn read_pairs(&mut self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let count = self.read_u32()?;
        let pair = |_| {
            self.spend(2 * ELEMENT_BYTES)?;
            let (key, value) = (self.read_u32()?, self.read_u32()?);
            Ok((self.read_bytes(key)?, self.read_bytes(value)?))
        };
        (0..count).map(pair).collect()
    }

    fn read_bytes(&mut self, size: u32) -> io::Result<Vec<u8>> {
        let size = size as usize;
        self.spend(size)?;
        let mut bytes = Vec::with_capacity(size.min(STRING_BYTES_TRUSTED));
        let read = self.stream.by_ref().take(size as u64).read_to_end(&mut bytes)?;
        if read < size {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }
}

/// Turns `WouldBlock`, which the system returns for a timeout, into `TimedOut`.
fn named(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}

fn configure_tcp(stream: &TcpStream, settings: &Settings) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(settings.read_timeout)?;
    stream.set_write_timeout(settings.write_timeout)
}

fn connect(host: &str, port: u16, settings: &Settings) -> Result<TcpStream> {
    let mut last_error = io::Error::from(ErrorKind::NotFound);
    let mut found = false;
    for address in (host, port).to_socket_addrs().map_err(Error::HostNotFound)? {
        found = true;
        match TcpStream::connect_timeout(&address, settings.connect_timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last_error = error,
        }
    }
    if found {
        Err(Error::ConnectionRefused(last_error))
    } else {
        Err(Error::HostNotFound(last_error))
    }
}

pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Arc<tls::Stream>),
    Unix(UnixStream),
}

impl Stream {
    pub(crate) fn open(address: &Address, settings: &Settings) -> Result<Self> {
        let mut stream = match address {
            Address::Tcp { host, port } => {
                let socket = connect(host, *port, settings)?;
                match &settings.tls {
                    None => Stream::Tcp(socket),
                    Some(config) => {
                        let timeout = settings.connect_timeout;
                        let stream = tls::Stream::connect(socket, config, host, timeout);
                        let named = |error| Error::Handshake(named(error));
                        Stream::Tls(Arc::new(stream.map_err(named)?))
                    }
                }
            }
            Address::Unix(path) => {
                Stream::Unix(UnixStream::connect(path).map_err(Error::ConnectionRefused)?)
            }
        };
        stream.configure(settings).map_err(Error::ConnectionRefused)?;
        if let Some(login) = &settings.login {
            // The hash of a password takes long.
            let patience = Some(settings.connect_timeout);
            stream.set_read_timeout(patience).map_err(Error::ConnectionRefused)?;
            stream.log_in(login, settings.allows_plain_login)?;
            stream.set_read_timeout(settings.read_timeout).map_err(Error::ConnectionRefused)?;
        }
        Ok(stream)
    }

    /// Logs in on a new connection. Without TLS the password is sent only to this machine, or if
    /// that is allowed, and after a reply that is none of a port that requires TLS.
    fn log_in(&mut self, login: &Credentials, allows_plain: bool) -> Result<()> {
        if let Stream::Tcp(_) = self {
            self.check_privacy(allows_plain)?;
            self.call_login(&Credentials::probe()?)?;
        }
        match self.call_login(&login.request()?)? {
            true => Ok(()),
            false => Err(Error::LoginRefused(self.login_refusal())),
        }
    }

    /// Fails if a login would be sent to another machine without TLS, and that is not allowed.
    pub(crate) fn check_privacy(&self, allows_plain: bool) -> Result<()> {
        let Stream::Tcp(socket) = self else { return Ok(()) };
        let peer = socket.peer_addr().map_err(Error::ConnectionRefused)?;
        if allows_plain || is_this_machine(peer.ip()) { Ok(()) } else { Err(Error::PlainLogin) }
    }

    /// Sends a request to log in. Returns whether the server accepted it.
    fn call_login(&mut self, request: &[u8]) -> Result<bool> {
        self.write_all(request).map_err(|error| Error::Send(named(error)))?;
        let mut response = [0; 5];
        self.read_exact(&mut response).map_err(|error| Error::Receive(named(error)))?;
        match response {
            [wire::binary::reply::OK, 0, 0, 0, 0] => Ok(true),
            [wire::binary::reply::FAILURE, 0, 0, 0, 0] => Ok(false),
            _ => {
                let mut rest = [0; FOREIGN_BYTES_SHOWN];
                let received = self.read(&mut rest).unwrap_or(0);
                Err(Error::Receive(foreign_reply(&[&response, &rest[..received]].concat())))
            }
        }
    }

    /// Returns why a login was refused. The reply to it has no text, so the next request decides: a
    /// server that checks no more passwords has closed the connection, one that has checked this
    /// one refuses other requests before a login, and one without users gives its reason.
    fn login_refusal(&mut self) -> LoginRefusal {
        match self.last_failure().map_err(named) {
            Err(error) if error.kind() != ErrorKind::TimedOut => LoginRefusal::TooMany,
            Ok(Some(reason)) if reason.ends_with(NO_USERS) => LoginRefusal::NoUsers,
            _ => LoginRefusal::Wrong,
        }
    }

    /// Returns the reason of the connection's last failure, unless the server refuses to tell it.
    fn last_failure(&mut self) -> io::Result<Option<String>> {
        let function = Function::Error;
        let request = Request::Misc { function, options: NOT_LOGGED, arguments: Strings::EMPTY };
        let mut bytes = Vec::new();
        encode(&request, &mut bytes).map_err(|_| io::Error::from(ErrorKind::InvalidInput))?;
        self.write_all(&bytes)?;
        let mut status = [0];
        self.read_exact(&mut status)?;
        if status != [wire::binary::reply::OK] {
            return Ok(None);
        }
        let mut size = [0; 4];
        self.read_exact(&mut size)?;
        if size == [0; 4] {
            return Ok(None);
        }
        self.read_exact(&mut size)?;
        let mut text = vec![0; (u32::from_be_bytes(size) as usize).min(REASON_BYTES_MAX)];
        self.read_exact(&mut text)?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    /// Returns another handle of the same socket.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Stream::Tcp(stream) => stream.try_clone().map(Stream::Tcp),
            Stream::Tls(stream) => Ok(Stream::Tls(Arc::clone(stream))),
            Stream::Unix(stream) => stream.try_clone().map(Stream::Unix),
        }
    }

    /// Shuts the socket down for all its handles.
    pub(crate) fn shut_down(&self) {
        // It can only fail if the stream has already ended.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Tls(stream) => stream.shut_down(),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn configure(&self, settings: &Settings) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => configure_tcp(stream, settings),
            Stream::Tls(stream) => configure_tcp(stream.socket(), settings),
            Stream::Unix(stream) => {
                stream.set_read_timeout(settings.read_timeout)?;
                stream.set_write_timeout(settings.write_timeout)
            }
        }
    }

    /// Sets the longest wait for bytes to read.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Tls(stream) => stream.socket().set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Stream::Tls(stream) => stream.socket().set_nonblocking(nonblocking),
            Stream::Unix(stream) => stream.set_nonblocking(nonblocking),
        }
    }

    /// Returns whether the stream is open and has nothing to read.
    fn is_quiet(&mut self) -> bool {
        let read = self.set_nonblocking(true).and_then(|()| self.read(&mut [0]));
        let would_block = read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        self.set_nonblocking(false).is_ok() && would_block
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Tls(stream) => (&**stream).read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Tls(stream) => (&**stream).write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether a connection to this address stays within this machine.
pub fn is_this_machine(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Returns the error of a reply of another protocol, with the beginning of it.
fn foreign_reply(begin: &[u8]) -> io::Error {
    let what = format!("the reply begins with \"{}\"", begin.escape_ascii());
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_of_this_machine() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("127.8.9.10", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.1", false),
            ("192.0.2.1", false),
            ("::", false),
            ("2001:db8::1", false),
            ("::ffff:10.0.0.1", false),
        ] {
            assert_eq!(
                is_this_machine(address.parse().expect("an address")),
                expected,
                "{address}"
            );
        }
    }
}
