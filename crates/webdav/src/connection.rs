//! A connection that was handed over, as hyper wants it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// A socket, and what was read from it already.
pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    taken: usize,
    quiet: Option<Quiet>,
}

/// How long nothing has moved.
struct Quiet {
    limit: Duration,
    end: Pin<Box<Sleep>>,
}

impl Connection {
    /// It ends if nothing moves for longer than `limit`.
    pub(crate) fn new(stream: TcpStream, received: Vec<u8>, limit: Option<Duration>) -> Self {
        let quiet = limit.map(|limit| Quiet { limit, end: Box::pin(sleep(limit)) });
        Self { stream, received, taken: 0, quiet }
    }

    /// Looks at the time if nothing has moved, and begins to count anew if something has.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        moved: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Some(Quiet { limit, end }) = &mut self.quiet else { return moved };
        if moved.is_ready() {
            end.as_mut().reset(Instant::now() + *limit);
            return moved;
        }
        ready!(end.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = &self.received[self.taken..];
        if !rest.is_empty() {
            let bytes = rest.len().min(buffer.remaining());
            buffer.put_slice(&rest[..bytes]);
            self.taken += bytes;
            if self.taken == self.received.len() {
                self.received = Vec::new();
                self.taken = 0;
            }
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.watch(context, read)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
