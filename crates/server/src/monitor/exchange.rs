//! Exchange: one request and one response on a blocking socket, within a time and a size.

use super::MONITOR_HEAD_BYTES_MAX;
use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};
use wire::http::{Head, HostNames, Method, Status, head, reply};
use wire::{Invalid, Parse};

/// Longest time in which a client closes after its response, so that what it has sent beyond its
/// request does not destroy the response.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Most bytes that are read and ignored meanwhile.
const LINGER_BYTES_MAX: usize = 16 << 20;

/// Bytes by which a request of another protocol is known, at the latest.
const PREFIX_BYTES: usize = 32;

/// Policy of a response beside the console: a browser that shows it loads and executes
/// nothing, in no frame.
const CONTENT_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

/// Policy of a response about records: whatever it is, a browser that shows it loads and executes
/// nothing.
const RECORD_POLICY: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";

/// Appends the last headers of a response about records, which has parts of stored values.
pub(super) fn end_record_headers(bytes: &mut Vec<u8>) {
    reply::no_sniffing(bytes);
    reply::no_embedding(bytes);
    for (name, value) in [
        ("Content-Security-Policy", RECORD_POLICY),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-store"),
        ("Connection", "close"),
    ] {
        reply::header(bytes, name, value);
    }
    reply::end_of_headers(bytes);
}

/// Response to a request.
pub(super) struct Response {
    status: Status,
    content_type: &'static str,
    body: Cow<'static, [u8]>,
    /// Policy of a browser that shows it: the parts that it may load and execute.
    policy: &'static str,
    /// Names and values of further headers.
    headers: Vec<(&'static str, Cow<'static, str>)>,
}

impl Response {
    /// Returns a response that tells the state of the server at this moment.
    pub(super) fn new(status: Status, content_type: &'static str, body: Vec<u8>) -> Self {
        let headers = vec![("Cache-Control", "no-store".into())];
        Self { status, content_type, body: body.into(), policy: CONTENT_POLICY, headers }
    }

    /// Returns a response of a text and a line feed.
    pub(super) fn text(status: Status, text: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{text}\n").into_bytes())
    }

    /// Returns a response that is the same as long as the program is.
    pub(super) fn fixed(
        content_type: &'static str,
        body: &'static [u8],
        policy: &'static str,
    ) -> Self {
        let headers = vec![("Cache-Control", "no-cache".into())];
        Self { status: Status::Ok, content_type, body: body.into(), policy, headers }
    }

    /// Adds a header.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Takes out the body, which the client has already.
    pub(super) fn not_modified(self) -> Self {
        Self { status: Status::NotModified, body: Cow::Borrowed(b""), ..self }
    }

    pub(super) fn write(&self, has_body: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.body.len() + 512);
        reply::open_headers(&mut bytes, self.status, self.content_type, self.body.len() as u64);
        reply::header(&mut bytes, "Server", reply::ADMIN_LISTENER);
        reply::no_sniffing(&mut bytes);
        reply::no_embedding(&mut bytes);
        reply::header(&mut bytes, "Content-Security-Policy", self.policy);
        for (name, value) in &self.headers {
            reply::header(&mut bytes, name, value);
        }
        reply::header(&mut bytes, "Connection", "close");
        reply::end_of_headers(&mut bytes);
        if has_body {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// Reason why a request is not answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    TooMany,
    TooLong,
    Invalid,
}

impl Refusal {
    fn response(self) -> Response {
        let (status, text) = match self {
            Self::TooMany => (Status::ServiceUnavailable, "too many connections, try again"),
            Self::TooLong => (Status::RequestHeaderFieldsTooLarge, "the head is too long"),
            Self::Invalid => (
                Status::BadRequest,
                "not a request of HTTP/1.1: this is the admin listener of a tyrant server",
            ),
        };
        Response::text(status, text)
    }
}

/// Sends a refusal, and the end of the stream. The caller closes the socket. A request that has
/// arrived is read before: otherwise its reset would destroy the refusal.
pub(super) fn refuse(mut socket: &TcpStream, refusal: Refusal) {
    // The connection is closed whether or not the client reads it.
    let _ = socket.set_nonblocking(true);
    let _ = socket.write(&refusal.response().write(true));
    let _ = socket.shutdown(Shutdown::Write);
    let _ = socket.read(&mut [0; 8 << 10]);
}

/// A request whose head has arrived.
pub(super) struct Incoming<'a> {
    pub(super) socket: &'a TcpStream,
    pub(super) head: Head<'a>,
    pub(super) path: &'a [u8],
    /// Part of the target after the question mark.
    pub(super) query: &'a [u8],
    /// Beginning of the body, as far as it has arrived.
    pub(super) received: &'a [u8],
}

impl<'a> Incoming<'a> {
    fn new(socket: &'a TcpStream, head: Head<'a>, received: &'a [u8]) -> Self {
        let mut parts = head.target.splitn(2, |byte| *byte == b'?');
        let (path, query) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        Self { socket, head, path, query, received }
    }

    /// Returns whether the request is a GET or a HEAD.
    pub(super) fn reads(&self) -> bool {
        matches!(self.head.method, Method::Get | Method::Head)
    }
}

/// Receives a request, and sends the response that `answer` returns, unless that has sent one
/// itself.
pub(super) fn respond(
    mut socket: &TcpStream,
    until: Instant,
    hosts: &HostNames,
    answer: impl FnOnce(&Incoming<'_>) -> io::Result<Option<Response>>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut lines = Lines::default();
    let response = loop {
        // A head that arrives byte by byte is not parsed as often.
        let found = match lines.may_tell(&bytes) {
            true => head(&bytes),
            false => Parse::Incomplete(bytes.len() + 1),
        };
        match found {
            Parse::Complete(head, length) => {
                let has_body = head.method != Method::Head;
                if let Some(foreign) = hosts.refusal(head.addressing()) {
                    break Response::text(foreign.status(), foreign.text()).write(has_body);
                }
                match answer(&Incoming::new(socket, head, &bytes[length..]))? {
                    Some(response) => break response.write(has_body),
                    None => return end(socket, Instant::now() + LINGER_MAX),
                }
            }
            Parse::Invalid(Invalid::TooLarge) => break Refusal::TooLong.response().write(true),
            Parse::Invalid(_) => break Refusal::Invalid.response().write(true),
            Parse::Incomplete(_) if bytes.len() >= MONITOR_HEAD_BYTES_MAX => {
                break Refusal::TooLong.response().write(true);
            }
            Parse::Incomplete(_) => {}
        }
        let mut part = [0; 16 << 10];
        let wanted = part.len().min(MONITOR_HEAD_BYTES_MAX - bytes.len());
        let read = read_before(socket, &mut part[..wanted], until)?;
        if read == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&part[..read]);
    };
    let mut rest = &response[..];
    while !rest.is_empty() {
        socket.set_write_timeout(Some(left(until)?))?;
        let sent = socket.write(rest)?;
        rest = &rest[sent..];
    }
    end(socket, until)
}

/// Lines of a request, as far as they have arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Lines {
    /// Bytes whose lines are known.
    scanned: usize,
    /// Whether the first one has ended.
    has_first: bool,
}

impl Lines {
    /// Returns whether more is known of a request than by its bytes at the last call: a request of
    /// another protocol by its first bytes or its first line, and a head by its end.
    fn may_tell(&mut self, bytes: &[u8]) -> bool {
        let mut may_tell = bytes.len() <= PREFIX_BYTES || bytes.len() >= MONITOR_HEAD_BYTES_MAX;
        for at in self.scanned..bytes.len() {
            if bytes[at] != b'\n' {
                continue;
            }
            let line = bytes[..at].strip_suffix(b"\r").unwrap_or(&bytes[..at]);
            let ends_head = line.last().is_none_or(|byte| *byte == b'\n');
            may_tell |= ends_head || !self.has_first;
            self.has_first = true;
        }
        self.scanned = bytes.len();
        may_tell
    }
}

/// Ends the stream to the client, and waits for a moment until it has closed.
fn end(socket: &TcpStream, until: Instant) -> io::Result<()> {
    socket.shutdown(Shutdown::Write)?;
    let until = until.min(Instant::now() + LINGER_MAX);
    let (mut ignored, mut part) = (0, [0; 16 << 10]);
    while ignored < LINGER_BYTES_MAX {
        match read_before(socket, &mut part, until)? {
            0 => break,
            read => ignored += read,
        }
    }
    Ok(())
}

fn read_before(mut socket: &TcpStream, part: &mut [u8], until: Instant) -> io::Result<usize> {
    socket.set_read_timeout(Some(left(until)?))?;
    socket.read(part)
}

/// Returns the time until `until`, or an error if it is over.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address"));
        (client.expect("a connection"), listener.accept().expect("a connection").0)
    }

    fn ok(incoming: &Incoming<'_>) -> io::Result<Option<Response>> {
        let is_ok = incoming.reads();
        let status = if is_ok { Status::Ok } else { Status::MethodNotAllowed };
        Ok(Some(Response::text(status, "")))
    }

    /// Returns the status of the response to `request`.
    fn status(request: &[u8]) -> String {
        let (mut client, server) = pair();
        let until = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| respond(&server, until, &HostNames::default(), ok));
            client.write_all(request).expect("a reader");
            let mut bytes = vec![0; 12];
            client.read_exact(&mut bytes).expect("a response");
            drop(client);
            let _ = ended.join().expect("no panic");
            String::from_utf8(bytes).expect("text")
        })
    }

    #[test]
    fn only_requests_of_the_right_form_are_answered() {
        for (request, expected) in [
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200"),
            ("GET / HTTP/1.1\r\nA: b\r\n\r\n", "HTTP/1.1 400"),
            ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "HTTP/1.1 421"),
            ("HEAD /metrics?a=b HTTP/1.0\r\n\r\n", "HTTP/1.1 200"),
            ("POST / HTTP/1.1\r\nHost: a.localhost.\r\n\r\n", "HTTP/1.1 421"),
            ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 405"),
            ("get a\r\n", "HTTP/1.1 400"),
            ("\x16\x03\x01\0\x05", "HTTP/1.1 400"),
        ] {
            assert_eq!(status(request.as_bytes()), expected, "{request:?}");
        }
    }

    #[test]
    fn pages_of_other_sites_neither_read_nor_show_a_response() {
        for response in [Response::text(Status::Ok, "up"), Refusal::TooMany.response()] {
            let bytes = String::from_utf8(response.write(true)).expect("text");
            for header in [
                "X-Content-Type-Options: nosniff",
                "Cross-Origin-Resource-Policy: same-origin",
                "X-Frame-Options: DENY",
                "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'",
            ] {
                assert!(bytes.contains(&format!("\r\n{header}\r\n")), "{header}: {bytes}");
            }
        }
    }

    #[test]
    fn a_head_that_arrives_byte_by_byte_is_parsed_a_few_times() {
        let long = format!("/ui/record?db=1&key={}", "a".repeat(300));
        for path in ["/", &long] {
            for line in ["A: b\r\n", "A: b\n", ""] {
                let filler = if line.is_empty() { "a".repeat(2000) } else { line.repeat(400) };
                let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{filler}");
                let (bytes, mut lines) = (request.as_bytes(), Lines::default());
                let parsed = (1..=bytes.len()).filter(|end| lines.may_tell(&bytes[..*end]));
                assert!(parsed.count() <= 40, "{path} {line:?}");
                let whole = format!("{request}\r\n\r\n");
                assert!(lines.may_tell(whole.as_bytes()));
                // However it is cut, its end is noticed.
                for before in 0..whole.len() {
                    let mut lines = Lines::default();
                    lines.may_tell(&whole.as_bytes()[..before]);
                    assert!(lines.may_tell(whole.as_bytes()), "{before}");
                }
            }
        }
    }

    #[test]
    fn a_head_over_the_limit_is_refused() {
        let request = |bytes: usize| {
            let (start, end) = ("GET / HTTP/1.1\r\nHost: localhost\r\nA: ", "\r\n\r\n");
            let value = "a".repeat(bytes - start.len() - end.len());
            [start, &value, end].concat()
        };
        for bytes in [MONITOR_HEAD_BYTES_MAX - 1, MONITOR_HEAD_BYTES_MAX] {
            assert_eq!(status(request(bytes).as_bytes()), "HTTP/1.1 200", "{bytes}");
        }
        let status = status(request(MONITOR_HEAD_BYTES_MAX + 1).as_bytes());
        assert_eq!(status, "HTTP/1.1 431");
    }

    #[test]
    fn a_refusal_reaches_a_client_that_has_sent_its_request() {
        let (mut client, server) = pair();
        client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a reader");
        refuse(&server, Refusal::TooMany);
        drop(server);
        let mut response = String::new();
        client.read_to_string(&mut response).expect("the end of the stream");
        assert!(response.starts_with("HTTP/1.1 503"), "{response}");
    }

    #[test]
    fn a_client_that_is_late_is_not_waited_for() {
        let (_client, server) = pair();
        let until = Instant::now() + Duration::from_millis(10);
        let ended = respond(&server, until, &HostNames::default(), ok);
        assert!(ended.is_err());
    }
}
