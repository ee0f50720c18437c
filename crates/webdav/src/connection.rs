//! Connections taken over from the server, as hyper reads and writes them.

use crate::heads::Heads;
use crate::transport::{Transport, Unread};
use crate::work::Work;
use server::{BudgetedBytes, Pace};
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Bytes per read of a socket.
const READ_BYTES: usize = 64 << 10;

/// Interval of the time check while the server works for the client, in milliseconds.
const BUSY_CHECK_MS: u64 = 100;

/// Time limits of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// For a request and its response. A transfer that is [fast enough](Pace) may take longer.
    pub(crate) timeout: Option<Duration>,
    /// Until the next request.
    pub(crate) idle_timeout: Option<Duration>,
}

/// A socket, and the bytes already read from it.
pub(crate) struct Connection {
    stream: Transport,
    received: Option<BudgetedBytes>,
    /// Bytes of `received` that were checked.
    checked: usize,
    heads: Heads,
    /// Checked bytes that the library may read.
    passed: Unread,
    timer: RequestTimer,
}

/// Measures the time that the client takes.
struct RequestTimer {
    limits: Limits,
    began: Instant,
    end: Pin<Box<Sleep>>,
    /// The current request, from its first byte to the last byte of its response.
    request: Option<Pace>,
    /// Time of the last transfer.
    moved_at_ms: u64,
    /// The client does not take the bytes sent to it.
    is_sending: bool,
    work: Work,
    /// Number of responses that had ended when the request began.
    answered: usize,
    /// Time that the server itself took and that does not count for the client.
    busy_ms: u64,
}

/// Outcome of polling the socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transfer {
    Received(usize),
    Sent(usize),
    ReceiveBlocked,
    SendBlocked,
}

impl RequestTimer {
    fn new(limits: Limits, work: Work, received: usize) -> Self {
        Self {
            limits,
            began: Instant::now(),
            end: Box::pin(sleep(Duration::ZERO)),
            request: Some(Pace::new(0, received)),
            moved_at_ms: 0,
            is_sending: false,
            answered: work.responses_ended(),
            busy_ms: work.busy_ms(),
            work,
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Records a transfer, or that the socket was not ready. Returns whether the client takes too
    /// long.
    fn has_timed_out(&mut self, context: &mut Context<'_>, transfer: Transfer) -> bool {
        let now_ms = self.now_ms();
        match transfer {
            Transfer::Received(bytes) | Transfer::Sent(bytes) => {
                self.is_sending = false;
                self.moved_at_ms = now_ms;
                if let Transfer::Received(_) = transfer
                    && self.work.responses_ended() != self.answered
                {
                    // The bytes belong to the next request.
                    self.answered = self.work.responses_ended();
                    self.request = None;
                }
                self.request.get_or_insert(Pace::new(now_ms, 0)).add(bytes, now_ms);
                return false;
            }
            Transfer::SendBlocked => self.is_sending = true,
            Transfer::ReceiveBlocked => {}
        }
        if self.work.responses_ended() != self.answered && !self.is_sending {
            self.request = None;
        }
        loop {
            let now_ms = self.now_ms();
            let busy_ms = self.work.busy_ms();
            if let Some(request) = &mut self.request {
                request.extend(busy_ms - self.busy_ms);
            }
            self.busy_ms = busy_ms;
            let at_ms = match (self.request, self.limits) {
                (Some(request), Limits { timeout: Some(timeout), .. }) => {
                    request.deadline_ms(timeout)
                }
                (None, Limits { idle_timeout: Some(timeout), .. }) => {
                    Pace::new(self.moved_at_ms, 0).deadline_ms(timeout)
                }
                _ => return false,
            };
            // A client that waits for the server is not too slow.
            let at_ms = if self.work.is_busy() { at_ms.max(now_ms + BUSY_CHECK_MS) } else { at_ms };
            let at = self.began.checked_add(Duration::from_millis(at_ms));
            let Some(at) = at else { return false };
            if self.end.deadline() != at {
                self.end.as_mut().reset(at);
            }
            if self.end.as_mut().poll(context).is_pending() {
                return false;
            }
            if !self.work.is_busy() && self.work.busy_ms() == self.busy_ms {
                return true;
            }
        }
    }
}

impl Connection {
    /// Creates a connection that ends if the client exceeds its `limits`, not counting the server's
    /// own time in `work`.
    pub(crate) fn new(
        stream: Transport,
        received: Option<BudgetedBytes>,
        limits: Limits,
        work: Work,
    ) -> Self {
        let bytes = received.as_ref().map_or(0, |received| received.len());
        let (heads, passed) = (Heads::new(), Unread::default());
        let timer = RequestTimer::new(limits, work, bytes);
        Self { stream, received, checked: 0, heads, passed, timer }
    }

    /// Returns whether the next request is one of the server, none of those that were passed on
    /// ends the connection, and the client has taken what was sent.
    pub(crate) fn is_for_server(&self) -> bool {
        self.heads.are_over()
            && !self.heads.close()
            && self.passed.bytes.is_empty()
            && !self.timer.is_sending
    }

    /// Returns the transport, and the bytes that were received and not read.
    pub(crate) fn into_parts(self) -> (Transport, Vec<u8>) {
        let mut rest = self.heads.into_rest();
        if let Some(received) = self.received {
            rest.extend_from_slice(&received[self.checked..]);
        }
        (self.stream, rest)
    }

    fn check<T>(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<T>>,
        transfer: Transfer,
    ) -> Poll<io::Result<T>> {
        if self.timer.has_timed_out(context, transfer) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        result
    }

    fn check_sent(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let moved = match &written {
            Poll::Ready(sent) => Transfer::Sent(*sent.as_ref().unwrap_or(&0)),
            Poll::Pending => Transfer::SendBlocked,
        };
        self.check(context, written, moved)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.passed.bytes.is_empty() {
            if self.heads.are_over() {
                return Poll::Ready(Ok(()));
            }
            let Self { stream, received, checked, heads, passed, .. } = &mut *self;
            if let Some(all) = received {
                let rest = &all[*checked..];
                let bytes = rest.len().min(READ_BYTES);
                heads.pass(&rest[..bytes], &mut passed.bytes)?;
                *checked += bytes;
                if bytes == rest.len() {
                    *received = None;
                }
                continue;
            }
            let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
            let mut bytes = ReadBuf::uninit(&mut bytes);
            let read = Pin::new(stream).poll_read(context, &mut bytes);
            let moved = match read {
                Poll::Ready(_) => Transfer::Received(bytes.filled().len()),
                Poll::Pending => Transfer::ReceiveBlocked,
            };
            ready!(self.check(context, read, moved))?;
            if bytes.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            let Self { heads, passed, .. } = &mut *self;
            heads.pass(bytes.filled(), &mut passed.bytes)?;
        }
        self.passed.give(buffer);
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
        self.check_sent(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.check_sent(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        match flushed {
            Poll::Pending => self.check(context, flushed, Transfer::SendBlocked),
            Poll::Ready(_) => flushed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    /// Returns a connection whose client has sent the beginning of a request.
    async fn connected(limits: Limits, work: &Work) -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).await.expect("a client");
        let (stream, _) = listener.accept().await.expect("a connection");
        (Connection::new(Transport::new(stream, None), None, limits, work.clone()), client)
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(test);
    }

    #[test]
    fn time_that_the_server_takes_does_not_count() {
        run(async {
            let limit = Duration::from_millis(50);
            let limits = Limits { timeout: Some(limit), idle_timeout: None };
            let work = Work::default();
            let operation = work.begin();
            let (mut connection, _client) = connected(limits, &work).await;
            for _ in 0..5 {
                assert!(connection.read_u8().now_or_never().is_none());
                sleep(limit).await;
            }
            let since = Instant::now();
            drop(operation);
            // On a loaded machine the limit may have passed already.
            let is_waiting = connection.read_u8().now_or_never().is_none();
            assert!(is_waiting || since.elapsed() >= limit);
            if !is_waiting {
                return;
            }
            let ended = connection.read_u8().await.expect_err("a timeout");
            assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn a_slow_drip_of_bytes_does_not_extend_the_timeout() {
        run(async {
            let limit = Duration::from_millis(500);
            let limits = Limits { timeout: Some(limit), idle_timeout: None };
            let (mut connection, mut client) = connected(limits, &Work::default()).await;
            let began = Instant::now();
            let ended = loop {
                client.write_all(b"x").await.expect("a client's byte");
                match tokio::time::timeout(limit / 10, connection.read_u8()).await {
                    Ok(read) => break read,
                    Err(_) => assert!(began.elapsed() < 240 * limit),
                }
            };
            assert_eq!(ended.expect_err("no byte").kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn the_idle_timeout_applies_after_a_response() {
        run(async {
            let (timeout, idle_timeout) = (Duration::from_millis(20), Duration::from_millis(400));
            let limits = Limits { timeout: Some(timeout), idle_timeout: Some(idle_timeout) };
            let work = Work::default();
            let (mut connection, _client) = connected(limits, &work).await;
            drop(work.respond());
            let began = Instant::now();
            connection.read_u8().await.expect_err("a timeout");
            assert!(began.elapsed() > idle_timeout / 2, "{:?}", began.elapsed());
        });
    }
}
