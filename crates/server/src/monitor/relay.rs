//! Relay: requests of the console about records, which the HTTP handlers of the database answer.
//!
//! A request becomes one of HTTP to the server of the database, over a pair of sockets within the
//! process. So there is one place that knows an operation, checks the user and his rights, and
//! counts and limits. Values pass in pieces, whatever their length.
//!
//! | path | request to the server |
//! |---|---|
//! | `/ui/record?db=ID&key=K` | GET, HEAD, PUT or DELETE of the key |
//! | `/ui/keys?db=ID&prefix=P&after=K&limit=N` | a page of the list of keys |
//! | `/ui/call?db=ID&name=F` | POST to a function of `misc` |
//! | `/ui/changes`, `/ui/copy` | those of [`live`] |
//!
//! Keys are in the query, as a browser and proxies change paths such as `/a/../b`, also encoded
//! ones. A new head is written from the parts that are listed here, so that nothing else of a
//! request or a response passes.
//!
//! A stored value is hostile. A browser saves it or shows it as an image of one of [`IMAGES`], and
//! never as a page.

use super::exchange::{self, Incoming, Response};
use super::live::{self, Failure, Wanted};
use super::turns::Turn;
use super::{MONITOR_EXCHANGE_MAX, State, figures};
use crate::server::Handle;
use crate::shared::Shared;
use crate::update_log::LogOffset;
use cabinet::Kind;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_tcp_user_timeout;
use rustix::net::{AddressFamily, getpeername};
use serde_json::json;
use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::http::{BasicCredentials, BodyLength, Head, Method, Status, decode, encode, reply};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a body that are copied at once.
const PIECE_BYTES: usize = 64 << 10;

/// Time after which a client that has ended its side is asked whether it still reads.
const PROBE_AFTER: Duration = Duration::from_millis(500);

/// Name of a user that a browser takes in place of the one who logs out.
const NO_USER: &[u8] = b"logout";

/// Longest head of a response of the server, in bytes.
const RESPONSE_HEAD_BYTES_MAX: usize = 16 << 10;

/// Header that a request which changes something must have. No form of another site can send it.
const CONSOLE_HEADER: &str = "X-Tyrant-Console";

/// Headers of a proxy, which hides where a request comes from.
const PROXY_HEADERS: [&str; 13] = [
    "CF-Connecting-IP",
    "Fastly-Client-IP",
    "Forwarded",
    "Forwarded-For",
    "True-Client-IP",
    "Via",
    "X-Client-IP",
    "X-Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Server",
    "X-Real-IP",
];

/// Address for the failed logins behind proxies: those at the port are counted apart.
const BEHIND_PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Headers of a request that pass.
const REQUEST_HEADERS: [&str; 11] = [
    "Authorization",
    "Content-Encoding",
    "Content-Range",
    "Content-Type",
    "If-Match",
    "If-None-Match",
    "If-Range",
    "Range",
    "X-TT-FLAGS",
    "X-TT-PDMODE",
    "X-TT-XT",
];

/// Headers of a response that pass.
const RESPONSE_HEADERS: [&str; 7] = [
    "Content-Length",
    "Content-Range",
    "ETag",
    "Retry-After",
    "WWW-Authenticate",
    "X-TT-FLAGS",
    "X-TT-XT",
];

/// Reason of a refusal.
const UNKNOWN_PARAMETER: &str = "the query has an unknown parameter";

/// Media types as which a value may be shown. None of them can have a script.
const IMAGES: [&str; 7] = [
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/avif",
    "image/bmp",
    "image/x-icon",
];

/// Answer to a request.
pub(super) enum Answered {
    /// It is about no record.
    Other,
    /// This is to be sent.
    Response(Response),
    /// The response has been sent.
    Sent,
}

/// Kind of a request, by its path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resource {
    Databases,
    Figures,
    Logout,
    Changes,
    Copy,
    Record,
    Keys,
    Call,
}

impl Resource {
    fn of(path: &[u8]) -> Option<Self> {
        match path {
            b"/ui/databases" => Some(Self::Databases),
            b"/ui/figures" => Some(Self::Figures),
            b"/ui/logout" => Some(Self::Logout),
            b"/ui/changes" => Some(Self::Changes),
            b"/ui/copy" => Some(Self::Copy),
            b"/ui/record" => Some(Self::Record),
            b"/ui/keys" => Some(Self::Keys),
            b"/ui/call" => Some(Self::Call),
            _ => None,
        }
    }

    /// Returns the name of a method, if it is one for such a request.
    fn method(self, method: Method) -> Option<&'static str> {
        match (self, method) {
            (Self::Record, Method::Get) => Some("GET"),
            (Self::Databases | Self::Figures | Self::Keys, Method::Get) => Some("GET"),
            (Self::Logout | Self::Changes, Method::Get) => Some("GET"),
            (Self::Record, Method::Head) => Some("HEAD"),
            (Self::Record, Method::Put) => Some("PUT"),
            (Self::Record, Method::Delete) => Some("DELETE"),
            (Self::Call | Self::Copy, Method::Post) => Some("POST"),
            _ => None,
        }
    }
}

/// Answers a request if it is about records.
pub(super) fn answer(state: &State, incoming: &Incoming<'_>) -> io::Result<Answered> {
    let Some(resource) = Resource::of(incoming.path) else { return Ok(Answered::Other) };
    let refused = |status, text: &str| Ok(Answered::Response(Response::text(status, text)));
    let Some(method) = resource.method(incoming.head.method) else {
        return refused(Status::MethodNotAllowed, "the method is not one of this path");
    };
    if let Some(text) = foreign(&incoming.head) {
        return refused(Status::Forbidden, text);
    }
    let Some(client) = Origin::of(incoming.socket, &incoming.head) else {
        return refused(Status::Forbidden, "the address of the client is unknown");
    };
    if resource == Resource::Databases {
        return Ok(Answered::Response(databases(state, client)));
    }
    if resource == Resource::Figures {
        return Ok(Answered::Response(figures_of(state, incoming.query)));
    }
    if resource == Resource::Logout {
        return Ok(Answered::Response(logout(&incoming.head)));
    }
    let request = match Request::new(resource, method, incoming) {
        Ok(request) => request,
        Err((status, text)) => return refused(status, text),
    };
    let (turn, opened) = {
        // A handle is the owner of a database for a moment.
        let servers = state.servers.read();
        let Some(handle) = handle_of(&servers, &request.database) else {
            return refused(Status::NotFound, "there is no database of this id");
        };
        let refusal = handle.with_shared(|shared| {
            // Names of the listener may be those of another database.
            let foreign = shared.config.http_hosts.refusal(incoming.head.addressing());
            let foreign = foreign.map(|foreign| (foreign.status(), foreign.text()));
            foreign.or_else(|| client.refusal(shared).map(|text| (Status::Forbidden, text)))
        });
        let wanted = match resource {
            Resource::Changes => handle.with_shared(Wanted::changes),
            Resource::Copy => handle.with_shared(Wanted::copy),
            _ => None,
        };
        let has_users = handle.with_shared(|shared| shared.users.is_some()).unwrap_or(true);
        if let Some(Some((status, text))) = refusal {
            return refused(status, text);
        }
        if wanted.is_some() && has_users && has_no_user(&incoming.head) {
            return Ok(Answered::Response(unauthorized()));
        }
        let wanted = wanted.map(|wanted| wanted.map(|wanted| (wanted, has_users)));
        // A request that is refused takes no turn from another.
        let Some(turn) = state.relays.take(incoming.socket)? else {
            return refused(Status::ServiceUnavailable, "too many requests at the same time");
        };
        let server = match refusal {
            Some(_) => match handle.connect(client.address()) {
                Ok(server) => server,
                Err(error) => {
                    return refused(Status::ServiceUnavailable, &live::no_reply(&error));
                }
            },
            None => None,
        };
        (turn, server.map(|server| (server, wanted)))
    };
    let failure = match opened {
        Some((server, None)) => {
            return request.relay(incoming, server, &turn).map(|()| Answered::Sent);
        }
        Some((server, Some(Ok((wanted, has_users))))) => {
            let end = || log_end(state, &request.database);
            match live::respond(wanted, &end, incoming, server, has_users, &turn) {
                Ok(()) => return Ok(Answered::Sent),
                Err(failure) => failure,
            }
        }
        Some((_, Some(Err(failure)))) => failure,
        None => Failure::refused(Status::ServiceUnavailable, "the server takes no connection now"),
    };
    match failure {
        Failure::Refused(Status::Unauthorized, _) => Ok(Answered::Response(unauthorized())),
        Failure::Refused(status, text) => refused(status, &text),
        Failure::Server(error) => refused(Status::ServiceUnavailable, &live::no_reply(&error)),
        Failure::Client(error) => Err(error),
    }
}

/// Returns the handle of the server whose database has an id.
fn handle_of<'a>(servers: &'a [(String, Handle)], database: &[u8]) -> Option<&'a Handle> {
    let (_, handle) = servers.iter().find(|(name, _)| id(name).as_bytes() == database)?;
    Some(handle)
}

/// Returns the end of a server's update log, until the server or the monitor ends.
fn log_end(state: &State, database: &[u8]) -> Option<LogOffset> {
    // A handle is the owner of a database for a moment.
    let servers = state.servers.read();
    let end = |shared: &Shared| shared.served.update_log.as_ref().map(|log| log.end());
    handle_of(&servers, database)?.with_shared(end).flatten()
}

/// Returns the response to a request without a user.
fn unauthorized() -> Response {
    let text = Response::text(Status::Unauthorized, "Unauthorized");
    text.with("WWW-Authenticate", reply::BASIC_CHALLENGE)
}

/// Returns whether a request has the user who stands for none.
fn has_no_user(head: &Head<'_>) -> bool {
    let credentials = head.header("Authorization").and_then(BasicCredentials::decode);
    credentials.is_some_and(|credentials| credentials.parts().0 == NO_USER)
}

/// Returns the response by which a browser forgets name and password: it keeps those of the last
/// request that succeeded, which are the ones of the user who stands for none.
fn logout(head: &Head<'_>) -> Response {
    match has_no_user(head) {
        true => Response::text(Status::Ok, "logged out"),
        false => unauthorized(),
    }
}

/// Returns why a request is refused that a page of another site may have sent.
fn foreign(head: &Head<'_>) -> Option<&'static str> {
    let reads = matches!(head.method, Method::Get | Method::Head);
    let is_own = |site: &[u8]| site == b"same-origin" || (site == b"none" && reads);
    if head.header("Sec-Fetch-Site").is_some_and(|site| !is_own(site)) {
        return Some("pages of other sites may not use the console");
    }
    let has_header = head.header(CONSOLE_HEADER) == Some(b"1");
    (!reads && !has_header).then_some("a change needs the header X-Tyrant-Console: 1")
}

/// Returns the id of a database, by its name.
fn id(name: &str) -> String {
    format!("{:016x}", xxh3_64(name.as_bytes()))
}

/// Returns the list of the databases.
fn databases(state: &State, client: Origin) -> Response {
    let servers = state.servers.read();
    let described = servers.iter().filter_map(|(name, handle)| {
        handle.with_shared(|shared| {
            let kind = shared.served.kind.map_or("void", Kind::title);
            let has_users = shared.users.is_some();
            let refused = client.refusal(shared);
            json!({
                "id": id(name), "name": name, "kind": kind, "users": has_users, "refused": refused
            })
        })
    });
    let list = serde_json::Value::from(described.collect::<Vec<_>>());
    Response::new(Status::Ok, "application/json", list.to_string().into_bytes())
}

/// Returns the figures for the dashboard. They need no rights, like the metrics.
fn figures_of(state: &State, query: &[u8]) -> Response {
    let (mut chosen, mut from) = (Cow::default(), 0);
    for (name, value) in fields(query) {
        match name {
            b"name" => chosen = value,
            b"from" => from = String::from_utf8_lossy(&value).parse().unwrap_or(0),
            _ => return Response::text(Status::BadRequest, UNKNOWN_PARAMETER),
        }
    }
    let found = figures::response(state, |name| name.as_bytes() == &*chosen, from);
    Response::new(Status::Ok, "application/json", found.to_string().into_bytes())
}

/// Returns names and decoded values of a query.
fn fields(query: &[u8]) -> impl Iterator<Item = (&[u8], Cow<'_, [u8]>)> {
    query.split(|byte| *byte == b'&').filter(|field| !field.is_empty()).map(|field| {
        let mut parts = field.splitn(2, |byte| *byte == b'=');
        let name = parts.next().unwrap_or_default();
        (name, decode(parts.next().unwrap_or_default()))
    })
}

/// Place from which a request comes.
#[derive(Clone, Copy)]
enum Origin {
    Unix,
    Tcp(SocketAddr),
    /// A proxy, which may pass on requests of any place.
    Proxy,
}

impl Origin {
    fn of(socket: &TcpStream, head: &Head<'_>) -> Option<Self> {
        let address = getpeername(socket).ok()??;
        let is_unix = address.address_family() == AddressFamily::UNIX;
        let address = SocketAddr::try_from(address).ok();
        // Browsers have HTTP/1.1. Proxies may use the older version, and add no header, or pass on
        // the name by which others reach them.
        let is_old = head.minor_version == 0;
        let is_named = !head.header("Host").is_some_and(is_loopback);
        if is_old || is_named || PROXY_HEADERS.iter().any(|name| head.header(name).is_some()) {
            return Some(Self::Proxy);
        }
        if is_unix { Some(Self::Unix) } else { address.map(Self::Tcp) }
    }

    /// Returns the address whose failed logins count.
    fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Unix => None,
            Self::Tcp(address) => Some(address),
            Self::Proxy => Some(BEHIND_PROXY),
        }
    }

    /// Returns why it gets no records of a database, if it does not. With users, the server decides
    /// for each request. Without, it gets them where it could read them at the port, too.
    fn refusal(self, shared: &Shared) -> Option<&'static str> {
        let config = &shared.config;
        if config.tls.as_ref().is_some_and(|tls| tls.files.client_authorities.is_some()) {
            return Some("its clients need certificates, which the console does not take");
        }
        if shared.users.is_some() {
            return None;
        }
        let is_of_this_machine = match self {
            Self::Unix => true,
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Proxy => false,
        };
        if !is_of_this_machine {
            return Some(
                "the database has no users, so only a browser on the server's machine sees its \
                 records",
            );
        }
        let is_file = !shared.has_port.load(Ordering::Relaxed);
        if is_file && config.socket_mode.is_some() {
            return Some("the permission bits of its Unix sockets limit its clients: add users");
        }
        (is_file && !matches!(self, Self::Unix)).then_some(
            "it is served at a Unix socket alone: add users, or have the admin listener at one",
        )
    }
}

/// Returns whether a `Host` header names this machine for its own programs.
fn is_loopback(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let address = host.parse::<SocketAddr>().map(|address| address.ip());
    let address = address.or_else(|_| host.trim_matches(['[', ']']).parse::<IpAddr>());
    let name = host.split(':').next().unwrap_or_default();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// A request for the server of a database.
struct Request<'a> {
    resource: Resource,
    method: &'static str,
    database: Cow<'a, [u8]>,
    /// Target at the server.
    target: Vec<u8>,
    /// Function that is called.
    function: Option<Cow<'a, [u8]>>,
    /// Media type as which the value is shown.
    shown_as: Option<&'static str>,
    body_bytes: usize,
}

impl<'a> Request<'a> {
    fn new(
        resource: Resource,
        method: &'static str,
        incoming: &Incoming<'a>,
    ) -> Result<Self, (Status, &'static str)> {
        let has_body = matches!(incoming.head.method, Method::Put | Method::Post);
        let body_bytes = match incoming.head.body {
            BodyLength::Bytes(bytes) if has_body || bytes == 0 => bytes,
            BodyLength::Bytes(_) => return Err((Status::BadRequest, "the request has a body")),
            BodyLength::Chunked => {
                return Err((Status::NotImplemented, "a body needs a Content-Length"));
            }
        };
        let mut request = Self {
            resource,
            method,
            database: Cow::default(),
            target: b"/".to_vec(),
            function: None,
            shown_as: None,
            body_bytes,
        };
        if resource == Resource::Keys {
            request.target.extend_from_slice(b"?list");
        }
        let mut key = None;
        for (name, value) in fields(incoming.query) {
            match (resource, name) {
                (_, b"db") => request.database = value,
                (Resource::Record, b"key") => key = Some(value),
                (Resource::Record, b"as") => {
                    let image = IMAGES.into_iter().find(|image| image.as_bytes() == &*value);
                    let text = "the value is not shown as this type";
                    request.shown_as = Some(image.ok_or((Status::BadRequest, text))?);
                }
                (Resource::Keys, b"prefix" | b"after" | b"limit") => {
                    for part in [&b"&"[..], name, b"="] {
                        request.target.extend_from_slice(part);
                    }
                    encode(&mut request.target, &value);
                }
                (Resource::Call, b"name") if value.iter().all(u8::is_ascii_alphanumeric) => {
                    request.function = Some(value);
                }
                _ => return Err((Status::BadRequest, UNKNOWN_PARAMETER)),
            }
        }
        match (resource, &key, &request.function) {
            (Resource::Record, Some(key), _) => encode(&mut request.target, key),
            (Resource::Record, None, _) => return Err((Status::BadRequest, "there is no key")),
            (Resource::Call, _, None) => return Err((Status::BadRequest, "there is no name")),
            _ => {}
        }
        Ok(request)
    }

    /// Sends the request to the server, and its response to the client.
    fn relay(
        &self,
        incoming: &Incoming<'_>,
        server: UnixStream,
        turn: &Turn<'_>,
    ) -> io::Result<()> {
        let client = incoming.socket;
        let step_max = Some(MONITOR_EXCHANGE_MAX);
        client.set_read_timeout(step_max)?;
        client.set_write_timeout(step_max)?;
        server.set_write_timeout(step_max)?;
        (&server).write_all(&self.head(&incoming.head))?;
        self.send_body(incoming, &server, turn)?;
        let mut response = Vec::new();
        let length = loop {
            if let Some(at) = response.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            let probe = (incoming.head.minor_version > 0).then_some(turn);
            if response.len() >= RESPONSE_HEAD_BYTES_MAX || has_left(client, &server, probe)? {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut part = [0; 4096];
            match (&server).read(&mut part)? {
                0 if response.is_empty() => {
                    let text = "the server has ended the connection";
                    let refusal = Response::text(Status::ServiceUnavailable, text);
                    return turn.write(&refusal.write(self.method != "HEAD"));
                }
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => response.extend_from_slice(&part[..read]),
            }
        };
        let (head, body) = response.split_at(length);
        turn.write(&self.response_head(head))?;
        turn.write(body)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            if has_left(client, &server, None)? {
                return Ok(());
            }
            match (&server).read(&mut piece)? {
                0 => return Ok(()),
                read => turn.write(&piece[..read])?,
            }
        }
    }

    /// Returns the head for the server.
    fn head(&self, head: &Head<'_>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.target.len() + 512);
        for part in [self.method.as_bytes(), b" ", &self.target, b" HTTP/1.1\r\n"] {
            bytes.extend_from_slice(part);
        }
        let mut add = |name: &str, value: &[u8]| {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                bytes.extend_from_slice(part);
            }
        };
        add("Host", b"localhost");
        add("Connection", b"close");
        add("Content-Length", self.body_bytes.to_string().as_bytes());
        if self.resource == Resource::Keys {
            add("Accept", b"application/json");
        }
        if let Some(function) = &self.function {
            add("X-TT-MNAME", function);
        }
        let has_no_user = has_no_user(head);
        for name in REQUEST_HEADERS {
            if name == "Authorization" && has_no_user {
                continue;
            }
            if let Some(value) = head.header(name) {
                add(name, value);
            }
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    /// Sends the body to the server, until that has it or responds.
    fn send_body(
        &self,
        incoming: &Incoming<'_>,
        mut server: &UnixStream,
        turn: &Turn<'_>,
    ) -> io::Result<()> {
        if incoming.head.expects_continue && incoming.received.is_empty() && self.body_bytes > 0 {
            turn.write(reply::CONTINUE)?;
        }
        let received = &incoming.received[..incoming.received.len().min(self.body_bytes)];
        server.write_all(received)?;
        let mut left = self.body_bytes - received.len();
        let mut piece = vec![0; PIECE_BYTES.min(left)];
        let step_max = Timespec { tv_sec: MONITOR_EXCHANGE_MAX.as_secs() as i64, tv_nsec: 0 };
        let mut client = incoming.socket;
        while left > 0 {
            let mut ends = [PollFd::new(server, PollFlags::IN), PollFd::new(client, PollFlags::IN)];
            if poll(&mut ends, Some(&step_max))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if !ends[0].revents().is_empty() {
                return Ok(());
            }
            let wanted = piece.len().min(left);
            match client.read(&mut piece[..wanted])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => {
                    left -= read;
                    match server.write_all(&piece[..read]) {
                        Ok(()) => {}
                        // It has responded, and reads no more.
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the head for the client, from that of the server.
    fn response_head(&self, head: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.split("\r\n");
        let status = lines.next().unwrap_or_default();
        let mut bytes = Vec::with_capacity(head.len() + 512);
        bytes.extend_from_slice(status.as_bytes());
        bytes.extend_from_slice(b"\r\n");
        let is_done = status.split(' ').nth(1).is_some_and(|code| code.starts_with('2'));
        let is_value =
            is_done && self.resource == Resource::Record && matches!(self.method, "GET" | "HEAD");
        let media_type = match self.resource {
            Resource::Record if is_value => self.shown_as.unwrap_or(reply::OCTET_STREAM),
            Resource::Keys if is_done => "application/json",
            _ => "text/plain; charset=utf-8",
        };
        reply::header(&mut bytes, "Content-Type", media_type);
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            if RESPONSE_HEADERS.iter().any(|passing| name.eq_ignore_ascii_case(passing)) {
                reply::header(&mut bytes, name, value);
            } else if is_value && name.eq_ignore_ascii_case("Content-Type") {
                reply::header(&mut bytes, "X-Tyrant-Type", value);
            }
        }
        if is_value {
            reply::header(&mut bytes, "Content-Disposition", "attachment");
        }
        exchange::end_record_headers(&mut bytes);
        bytes
    }
}

/// Waits until the server has sent something. Returns whether the client has left meanwhile.
///
/// A client that has ended its side may still read. Before the response, `probe` finds that out:
/// the system of a client that has closed refuses an interim response, and a client that reads
/// passes it over, and is waited for as any other. Otherwise it is waited for a while.
fn has_left(client: &TcpStream, server: &UnixStream, probe: Option<&Turn<'_>>) -> io::Result<bool> {
    let mut found = wait(client, server, PollFlags::RDHUP, None)?;
    if found == Found::HalfClosed {
        let time = if probe.is_some() { PROBE_AFTER } else { MONITOR_EXCHANGE_MAX };
        // That it is closed is polled for in any case.
        found = wait(client, server, PollFlags::empty(), Some(time))?;
    }
    if found == Found::HalfClosed
        && let Some(turn) = probe
    {
        // The system of a client that is unreachable replies nothing, and ends the wait so. The
        // socket may be of another kind than TCP, whose clients are on this machine.
        let _ = set_tcp_user_timeout(client, MONITOR_EXCHANGE_MAX.as_millis() as u32);
        if turn.write(reply::CONTINUE).is_ok() {
            found = wait(client, server, PollFlags::empty(), None)?;
        }
    }
    Ok(found != Found::Response)
}

/// Event that ends a wait for the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Response,
    Closed,
    /// The client has ended its side, or the time is over.
    HalfClosed,
}

fn wait(
    client: &TcpStream,
    server: &UnixStream,
    events: PollFlags,
    time: Option<Duration>,
) -> io::Result<Found> {
    let time = time.map(|time| Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    });
    let mut ends = [PollFd::new(server, PollFlags::IN), PollFd::new(client, events)];
    while let Err(error) = poll(&mut ends, time.as_ref()) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    let [server, client] = ends.map(|end| end.revents());
    Ok(if !server.is_empty() {
        Found::Response
    } else if client.intersects(PollFlags::HUP | PollFlags::ERR) {
        Found::Closed
    } else {
        Found::HalfClosed
    })
}

#[cfg(test)]
mod tests {
    use super::super::turns::Turns;
    use super::*;
    use rustix::net::sockopt::tcp_user_timeout;
    use std::net::{Shutdown, TcpListener};

    /// Calls `act` with the client's end and the server's end, while either is waited for. Returns
    /// whether the client has left, and its longest time without an acknowledgement.
    fn wait_for(act: impl FnOnce(TcpStream, UnixStream)) -> (bool, u32) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("an address"));
        let (client, socket) = (client.expect("a connection"), listener.accept().expect("one").0);
        let (server, own) = UnixStream::pair().expect("a pair");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let turns = Turns::default();
                let turn = turns.take(&socket).expect("a socket").expect("a turn");
                let has_left = has_left(&socket, &own, Some(&turn)).expect("two sockets");
                (has_left, tcp_user_timeout(&socket).expect("a socket of TCP"))
            });
            act(client, server);
            waiting.join().expect("no panic")
        })
    }

    #[test]
    fn a_client_that_has_only_ended_its_side_is_asked_and_waited_for() {
        let (has_left, wait_ms) = wait_for(|mut client, mut server| {
            client.shutdown(Shutdown::Write).expect("a connection");
            let mut interim = [0; reply::CONTINUE.len()];
            client.read_exact(&mut interim).expect("an interim response");
            assert_eq!(interim, reply::CONTINUE);
            server.write_all(b"H").expect("a reader");
            assert_eq!(client.read(&mut interim).expect("the end"), 0);
        });
        assert!(!has_left);
        // The system of a client that can no longer be reached gives no acknowledgement.
        assert_eq!(u128::from(wait_ms), MONITOR_EXCHANGE_MAX.as_millis());
    }

    #[test]
    fn a_client_that_has_closed_is_not_waited_for() {
        let mut kept = None;
        let (has_left, _) = wait_for(|client, server| {
            drop(client);
            // It sends nothing, however long its request takes.
            kept = Some(server);
        });
        assert!(has_left);
    }
}
