//! A connection that was handed over, as hyper wants it.

use crate::heads::Heads;
use crate::work::Work;
use server::Counted;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// Bytes read from a socket at once.
const READ_BYTES: usize = 64 << 10;

/// A socket, and what was read from it already.
pub(crate) struct Connection {
    stream: TcpStream,
    received: Option<Counted>,
    /// How much of that was looked at.
    looked_at: usize,
    heads: Heads,
    /// What the library may see, and how much of that it has taken.
    passed: Vec<u8>,
    taken: usize,
    quiet: Option<Quiet>,
}

/// How long nothing has moved.
struct Quiet {
    limit: Duration,
    end: Pin<Box<Sleep>>,
    work: Work,
    /// How much of it was done at the last look.
    done: usize,
}

impl Connection {
    /// It ends if nothing moves for longer than `limit`, while none of its `work` is done either.
    pub(crate) fn new(
        stream: TcpStream,
        received: Option<Counted>,
        limit: Option<Duration>,
        work: Work,
    ) -> Self {
        let quiet = limit.map(|limit| Quiet { limit, end: Box::pin(sleep(limit)), work, done: 0 });
        let (heads, passed) = (Heads::new(), Vec::new());
        Self { stream, received, looked_at: 0, heads, passed, taken: 0, quiet }
    }

    /// Looks at the time if nothing has moved, and begins to count again if something has.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        moved: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Some(Quiet { limit, end, work, done }) = &mut self.quiet else { return moved };
        if moved.is_ready() {
            end.as_mut().reset(Instant::now() + *limit);
            return moved;
        }
        loop {
            ready!(end.as_mut().poll(context));
            // A client that waits for a response has nothing to send.
            if !work.goes_on(done) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            end.as_mut().reset(Instant::now() + *limit);
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.passed.is_empty() {
            let Self { stream, received, looked_at, heads, passed, .. } = &mut *self;
            if let Some(all) = received {
                let rest = &all[*looked_at..];
                let bytes = rest.len().min(READ_BYTES);
                heads.pass(&rest[..bytes], passed)?;
                *looked_at += bytes;
                if bytes == rest.len() {
                    *received = None;
                }
                continue;
            }
            let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
            let mut bytes = ReadBuf::uninit(&mut bytes);
            let read = Pin::new(stream).poll_read(context, &mut bytes);
            ready!(self.watch(context, read))?;
            if bytes.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            let Self { heads, passed, .. } = &mut *self;
            heads.pass(bytes.filled(), passed)?;
        }
        let rest = &self.passed[self.taken..];
        let bytes = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..bytes]);
        let is_all = bytes == rest.len();
        self.taken += bytes;
        if is_all {
            self.passed.clear();
            self.taken = 0;
        }
        Poll::Ready(Ok(()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    #[test]
    fn a_connection_is_not_quiet_while_something_is_done_for_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let _client = TcpStream::connect(address).await.expect("a client");
            let (stream, _) = listener.accept().await.expect("a connection");
            let (limit, work) = (Duration::from_millis(5), Work::default());
            let operation = work.begin();
            let mut connection = Connection::new(stream, None, Some(limit), work);
            for _ in 0..5 {
                assert!(connection.read_u8().now_or_never().is_none());
                sleep(limit).await;
            }
            drop(operation);
            let ended = connection.read_u8().await.expect_err("nobody sends anything");
            assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        });
    }
}
