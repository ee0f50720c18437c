//! Stream: a socket for blocking threads, with TLS or without. One thread may read while another
//! one writes.
//!
//! Lock order: `reading` or `writing`, then `session`. No thread waits for the socket while it has
//! `session`.

use crate::client_config::ClientConfig;
use crate::{INCOMING_BYTES_MAX, Session};
use parking_lot::Mutex;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Most bytes received at once, in addition to an incomplete record.
const READ_BYTES: usize = 64 << 10;

/// Most plain bytes that are encrypted before they are sent.
const WRITE_BYTES: usize = 64 << 10;

/// A socket, with TLS or without.
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    tls: Option<Box<Tls>>,
}

#[derive(Debug)]
struct Tls {
    session: Mutex<Session>,
    reading: Mutex<Reading>,
    /// Buffer for records, locked from the encryption of the first byte until the last is sent.
    writing: Mutex<Vec<u8>>,
}

/// Bytes that were received and not read.
#[derive(Debug, Default)]
struct Reading {
    records: Vec<u8>,
    plain: Vec<u8>,
    taken: usize,
}

impl Stream {
    /// Makes a stream of a socket, and of its session if it has one.
    pub fn new(socket: TcpStream, session: Option<Box<Session>>) -> Self {
        let tls = session.map(|session| {
            let (reading, writing) = (Mutex::default(), Mutex::default());
            Box::new(Tls { session: Mutex::new(*session), reading, writing })
        });
        Self { socket, tls }
    }

    /// Begins a session with the server at `host`, to which `socket` is connected. Blocks until the
    /// handshake is complete, but not longer than `timeout`. The timeouts of the socket have to be
    /// set afterwards.
    pub fn connect(
        socket: TcpStream,
        config: &ClientConfig,
        host: &str,
        timeout: Duration,
    ) -> io::Result<Self> {
        let session = Session::client(config, host)
            .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let deadline = Instant::now() + timeout;
        socket.set_write_timeout(Some(timeout))?;
        let stream = Self::new(socket, Some(Box::new(session)));
        let Some(tls) = &stream.tls else { return Ok(stream) };
        stream.send_records(tls)?;
        while tls.session.lock().is_handshaking() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            stream.socket.set_read_timeout(Some(left))?;
            let received = stream.receive(tls, &mut tls.reading.lock());
            let sent = stream.send_records(tls);
            if received.map_err(|error| config.explain(error))? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            sent?;
        }
        Ok(stream)
    }

    /// Returns the socket. Bytes that are read from it or written to it directly end the session.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Ends the stream in both directions, for all threads.
    pub fn shut_down(&self) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            // A thread that sends is interrupted in any case, so the end is cut off.
            if let Some(_writing) = tls.writing.try_lock() {
                let mut session = tls.session.lock();
                session.close();
                // This is lost if the peer takes nothing: the socket must not block.
                if self.socket.set_nonblocking(true).is_ok() {
                    let _ = (&self.socket).write(session.unsent());
                    let _ = self.socket.set_nonblocking(false);
                }
            }
        }
        self.socket.shutdown(Shutdown::Both)
    }

    /// Receives once, and decrypts what is complete. Returns the number of received bytes.
    fn receive(&self, tls: &Tls, reading: &mut Reading) -> io::Result<usize> {
        let Reading { records, plain, .. } = reading;
        records.resize(INCOMING_BYTES_MAX + READ_BYTES, 0);
        // Another thread may send meanwhile.
        let received = (&self.socket).read(&mut records[INCOMING_BYTES_MAX..])?;
        let mut session = tls.session.lock();
        let kept = session.resume(records);
        records.copy_within(INCOMING_BYTES_MAX..INCOMING_BYTES_MAX + received, kept);
        let opened = session.open(&mut records[..kept + received], plain);
        drop(session);
        if let Err(error) = opened {
            // The peer is told why, unless it takes nothing.
            let _ = self.send_records(tls);
            return Err(error.into());
        }
        Ok(received)
    }

    /// Sends the records that the session has made.
    fn send_records(&self, tls: &Tls) -> io::Result<()> {
        let mut records = tls.writing.lock();
        let unsent = tls.session.lock().take_unsent(&mut records);
        (&self.socket).write_all(&records[..unsent])
    }

    fn read_plain(&self, tls: &Tls, buffer: &mut [u8]) -> io::Result<usize> {
        let mut reading = tls.reading.lock();
        loop {
            let rest = &reading.plain[reading.taken..];
            if !rest.is_empty() || buffer.is_empty() {
                let bytes = rest.len().min(buffer.len());
                buffer[..bytes].copy_from_slice(&rest[..bytes]);
                reading.taken += bytes;
                return Ok(bytes);
            }
            reading.plain.clear();
            reading.taken = 0;
            if tls.session.lock().has_ended() {
                return Ok(0);
            }
            if self.receive(tls, &mut reading)? == 0 {
                // The peer did not say that its stream ends here, so it may be cut off.
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn write_plain(&self, tls: &Tls, plain: &[u8]) -> io::Result<usize> {
        let plain = &plain[..plain.len().min(WRITE_BYTES)];
        let mut records = tls.writing.lock();
        let unsent = {
            let mut session = tls.session.lock();
            session.lend(&mut records);
            let sealed = session.seal(plain);
            let unsent = session.take_unsent(&mut records);
            sealed?;
            unsent
        };
        let sent = (&self.socket).write_all(&records[..unsent]);
        // Records that follow would be invalid without those that are lost.
        sent.inspect_err(|_| tls.session.lock().abort())?;
        Ok(plain.len())
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => (&self.socket).read(buffer),
            Some(tls) => self.read_plain(tls, buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => (&self.socket).write(bytes),
            Some(tls) => self.write_plain(tls, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<TcpStream> for Stream {
    fn from(socket: TcpStream) -> Self {
        Self::new(socket, None)
    }
}

impl From<crate::Error> for io::Error {
    fn from(error: crate::Error) -> Self {
        Self::new(ErrorKind::InvalidInput, error)
    }
}
