//! Transport: the socket of a connection, with the TLS session that the server began on it.

use server::TlsSession;
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tls::INCOMING_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Most bytes read at once, in addition to an incomplete record.
const READ_BYTES: usize = 64 << 10;

/// Most plain bytes that are encrypted before they are sent.
const SEALED_BYTES: usize = 64 << 10;

thread_local! {
    /// Buffer for records in both directions. Connections at rest own none.
    static RECORDS: RefCell<Vec<u8>> = RefCell::new(vec![0; INCOMING_BYTES_MAX + READ_BYTES]);
}

/// A socket, with TLS or without.
#[derive(Debug)]
pub(crate) struct Transport {
    stream: TcpStream,
    tls: Option<Tls>,
}

#[derive(Debug)]
struct Tls {
    session: Box<TlsSession>,
    /// Decrypted bytes.
    plain: Unread,
}

/// Bytes that were received, and how many of them were read.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    pub(crate) bytes: Vec<u8>,
    taken: usize,
}

impl Unread {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Moves as many bytes as fit into `buffer`.
    pub(crate) fn give(&mut self, buffer: &mut ReadBuf<'_>) {
        let rest = self.rest();
        let bytes = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..bytes]);
        self.taken += bytes;
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        }
    }
}

impl Transport {
    pub(crate) fn new(stream: TcpStream, session: Option<Box<TlsSession>>) -> Self {
        let tls = session.map(|session| Tls { session, plain: Unread::default() });
        Self { stream, tls }
    }

    /// Returns the socket and its session. Appends to `rest` what was decrypted and not read.
    pub(crate) fn into_parts(self, rest: &mut Vec<u8>) -> (TcpStream, Option<Box<TlsSession>>) {
        let session = self.tls.map(|tls| {
            rest.extend_from_slice(tls.plain.rest());
            tls.session
        });
        (self.stream, session)
    }
}

impl Tls {
    /// Reads once and decrypts what is complete. Returns the number of bytes read.
    fn poll_receive(
        &mut self,
        stream: &mut TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        RECORDS.with_borrow_mut(|records| {
            let mut buffer = ReadBuf::new(&mut records[INCOMING_BYTES_MAX..]);
            ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
            let received = buffer.filled().len();
            let kept = self.session.resume(records);
            records.copy_within(INCOMING_BYTES_MAX..INCOMING_BYTES_MAX + received, kept);
            self.session.open(&mut records[..kept + received], &mut self.plain.bytes)?;
            Poll::Ready(Ok(received))
        })
    }

    /// Sends the records that the session has.
    fn poll_send(
        &mut self,
        stream: &mut TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.session.unsent().is_empty() {
            let unsent = self.session.unsent();
            let sent = ready!(Pin::new(&mut *stream).poll_write(context, unsent))?;
            self.session.consume(sent);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write(
        &mut self,
        stream: &mut TcpStream,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(stream, context))?;
        let piece = &bytes[..bytes.len().min(SEALED_BYTES)];
        RECORDS.with_borrow_mut(|records| {
            self.session.lend(records);
            let sealed = self.session.seal(piece);
            // The session keeps what the socket does not take.
            let sent = self.poll_send(stream, context);
            self.session.give_back(records);
            sealed?;
            if let Poll::Ready(sent) = sent {
                sent?;
            }
            Poll::Ready(Ok(piece.len()))
        })
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, tls } = &mut *self;
        let Some(tls) = tls else {
            return Pin::new(stream).poll_read(context, buffer);
        };
        while tls.plain.bytes.is_empty() {
            // A connection at rest owns no buffer.
            tls.plain = Unread::default();
            if tls.session.has_ended() || ready!(tls.poll_receive(stream, context))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        tls.plain.give(buffer);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, tls } = &mut *self;
        match tls {
            None => Pin::new(stream).poll_write(context, bytes),
            Some(tls) => tls.poll_write(stream, context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, tls } = &mut *self;
        match tls {
            None => Pin::new(stream).poll_write_vectored(context, buffers),
            Some(tls) => {
                let first = buffers.iter().find(|buffer| !buffer.is_empty());
                tls.poll_write(stream, context, first.map_or(&[], |buffer| buffer))
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        // Small pieces are collected for one record.
        self.tls.is_none() && self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, tls } = &mut *self;
        match tls {
            None => Poll::Ready(Ok(())),
            Some(tls) => tls.poll_send(stream, context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, tls } = &mut *self;
        if let Some(tls) = tls {
            if !tls.session.is_over() {
                tls.session.close();
            }
            ready!(tls.poll_send(stream, context))?;
        }
        Pin::new(stream).poll_shutdown(context)
    }
}
