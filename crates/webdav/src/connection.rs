//! A connection that was handed over, as hyper wants it.

use crate::heads::Heads;
use crate::work::Work;
use server::{Counted, Pace};
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

/// While something is done for a client, the time is looked at this often.
const LOOK_MS: u64 = 100;

/// How long the client may take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// For a request and its response; what moves [fast enough](Pace) may take longer.
    pub(crate) timeout: Option<Duration>,
    /// Until the next request.
    pub(crate) idle_timeout: Option<Duration>,
}

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
    watch: Watch,
}

/// The time that the client takes.
struct Watch {
    limits: Limits,
    began: Instant,
    end: Pin<Box<Sleep>>,
    /// The request that is under way, from its first byte to the last one of its response.
    request: Option<Pace>,
    /// When bytes last moved.
    moved_at_ms: u64,
    /// The client does not take what is sent.
    is_sending: bool,
    work: Work,
    /// How many responses had ended when the request began.
    answered: usize,
    /// Time that the server itself took, as far as it is forgiven.
    busy_ms: u64,
}

/// What a poll of the socket has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moved {
    Received(usize),
    Sent(usize),
    NothingToReceive,
    NothingTaken,
}

impl Watch {
    fn new(limits: Limits, work: Work, received: usize) -> Self {
        Self {
            limits,
            began: Instant::now(),
            end: Box::pin(sleep(Duration::ZERO)),
            request: Some(Pace::new(0, received)),
            moved_at_ms: 0,
            is_sending: false,
            answered: work.answered(),
            busy_ms: work.busy_ms(),
            work,
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Notes what has moved, or that nothing has; says whether the client takes too long.
    fn is_over(&mut self, context: &mut Context<'_>, moved: Moved) -> bool {
        let now_ms = self.now_ms();
        match moved {
            Moved::Received(bytes) | Moved::Sent(bytes) => {
                self.is_sending = false;
                self.moved_at_ms = now_ms;
                if let Moved::Received(_) = moved
                    && self.work.answered() != self.answered
                {
                    // It is of the next request.
                    self.answered = self.work.answered();
                    self.request = None;
                }
                self.request.get_or_insert(Pace::new(now_ms, 0)).add(bytes, now_ms);
                return false;
            }
            Moved::NothingTaken => self.is_sending = true,
            Moved::NothingToReceive => {}
        }
        if self.work.answered() != self.answered && !self.is_sending {
            self.request = None;
        }
        loop {
            let now_ms = self.now_ms();
            let busy_ms = self.work.busy_ms();
            if let Some(request) = &mut self.request {
                request.forgive(busy_ms - self.busy_ms);
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
            // A client that waits for the server is not what takes too long.
            let at_ms = if self.work.goes_on() { at_ms.max(now_ms + LOOK_MS) } else { at_ms };
            let at = self.began.checked_add(Duration::from_millis(at_ms));
            let Some(at) = at else { return false };
            if self.end.deadline() != at {
                self.end.as_mut().reset(at);
            }
            if self.end.as_mut().poll(context).is_pending() {
                return false;
            }
            if !self.work.goes_on() && self.work.busy_ms() == self.busy_ms {
                return true;
            }
        }
    }
}

impl Connection {
    /// It ends if the client takes longer than its `limits`, less the time of the `work` for it.
    pub(crate) fn new(
        stream: TcpStream,
        received: Option<Counted>,
        limits: Limits,
        work: Work,
    ) -> Self {
        let bytes = received.as_ref().map_or(0, |received| received.len());
        let (heads, passed) = (Heads::new(), Vec::new());
        let watch = Watch::new(limits, work, bytes);
        Self { stream, received, looked_at: 0, heads, passed, taken: 0, watch }
    }

    fn check<T>(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<T>>,
        moved: Moved,
    ) -> Poll<io::Result<T>> {
        if self.watch.is_over(context, moved) {
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
            Poll::Ready(sent) => Moved::Sent(*sent.as_ref().unwrap_or(&0)),
            Poll::Pending => Moved::NothingTaken,
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
            let moved = match read {
                Poll::Ready(_) => Moved::Received(bytes.filled().len()),
                Poll::Pending => Moved::NothingToReceive,
            };
            ready!(self.check(context, read, moved))?;
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A connection with a client that has sent the beginning of a request.
    async fn connected(limits: Limits, work: &Work) -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).await.expect("a client");
        let (stream, _) = listener.accept().await.expect("a connection");
        (Connection::new(stream, None, limits, work.clone()), client)
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(test);
    }

    #[test]
    fn the_time_of_what_is_done_for_a_client_does_not_count() {
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
            drop(operation);
            assert!(connection.read_u8().now_or_never().is_none());
            let ended = connection.read_u8().await.expect_err("nobody sends anything");
            assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn a_byte_now_and_then_is_no_reason_to_wait_longer() {
        run(async {
            let limit = Duration::from_millis(500);
            let limits = Limits { timeout: Some(limit), idle_timeout: None };
            let (mut connection, mut client) = connected(limits, &Work::default()).await;
            let began = Instant::now();
            let ended = loop {
                client.write_all(b"x").await.expect("a client's byte");
                match tokio::time::timeout(limit / 10, connection.read_u8()).await {
                    Ok(read) => break read,
                    Err(_) => assert!(began.elapsed() < 20 * limit),
                }
            };
            assert_eq!(ended.expect_err("no byte").kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn after_a_response_the_client_has_the_idle_time() {
        run(async {
            let (timeout, idle_timeout) = (Duration::from_millis(20), Duration::from_millis(400));
            let limits = Limits { timeout: Some(timeout), idle_timeout: Some(idle_timeout) };
            let work = Work::default();
            let (mut connection, _client) = connected(limits, &work).await;
            drop(work.respond());
            let began = Instant::now();
            connection.read_u8().await.expect_err("nobody sends anything");
            assert!(began.elapsed() > idle_timeout / 2, "{:?}", began.elapsed());
        });
    }
}
