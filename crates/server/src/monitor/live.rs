//! Live: the changes of a database as they are made, and a copy of it with its progress.
//!
//! Both ask the server by requests of Tokyo Tyrant's protocol, over a pair of sockets within the
//! process, after a login with the name and the password of the console's request. So the server
//! checks the rights of that user. The response is lines of JSON, which a browser reads as they
//! come.
//!
//! | path | request to the server | members of a line |
//! |---|---|---|
//! | `/ui/changes?db=ID` | whether `repl` is permitted, every second | `time`, `command`, `key`, `bytes`, `failed`; after a failure `error` |
//! | `/ui/copy?db=ID` | `copy` into `copy-dir` | `bytes`, `of`; at the end `path` or `error` |
//!
//! Changes are read from the files of the update log, from its end on. A response takes
//! [`BODY_BYTES_MAX`] of memory, however long a change or a transaction is.

use super::exchange::{Incoming, end_record_headers};
use super::turns::Turn;
use crate::ClientPaths;
use crate::shared::Shared;
use crate::update_log::{Excerpt, Excerpts, LogOffset};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value as Json, json};
use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::Described;
use wire::binary::{Function, Request, StringsBuffer, encode};
use wire::http::{BasicCredentials, Head, Status, encode as percent_encoded, reply};
use wire::update_log::Operation;

/// Bytes of a change that are read, which have its key.
const BODY_BYTES_MAX: usize = 128 << 10;

/// Bytes of a key that are sent.
const KEY_BYTES_MAX: usize = 1024;

/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_millis(500);

/// Longest wait for a reply of the server.
const REPLY_MAX: Duration = Duration::from_secs(30);

/// Time between two looks for changes. A wait within the log would keep the database open for that
/// long when the server stops.
const CHANGES_PAUSE: Duration = Duration::from_millis(100);

/// Time between two checks that the client is there, and that its user may have the changes.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Reason for which a request gets another response than lines, or its lines end.
pub(super) enum Failure {
    Refused(Status, Cow<'static, str>),
    /// The client does not take its response.
    Client(io::Error),
    /// The server does not reply.
    Server(io::Error),
}

impl Failure {
    pub(super) fn refused(status: Status, text: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused(status, text.into())
    }

    /// Returns a failure to read the update log.
    fn unreadable(error: crate::update_log::Error) -> Self {
        tracing::warn!("the console cannot read the update log: {error}");
        Self::refused(Status::ServiceUnavailable, format!("the log cannot be read: {error}"))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Server(error)
    }
}

/// Subject of a request.
pub(super) enum Wanted {
    Changes(Excerpts),
    /// A copy under this name, which the server is asked for, to this path.
    Copy {
        name: Vec<u8>,
        path: PathBuf,
        database_bytes: u64,
    },
}

impl Wanted {
    /// Returns a request for the changes of a server from now on, or why there are none.
    pub(super) fn changes(shared: &Shared) -> Result<Self, Failure> {
        let text = "the server has no update log, whose entries these are: set update-log";
        let log = shared.served.update_log.as_ref();
        let log = log.ok_or(Failure::refused(Status::NotImplemented, text))?;
        Excerpts::from_end(log, BODY_BYTES_MAX).map(Self::Changes).map_err(Failure::unreadable)
    }

    /// Returns a request for a copy of a database, or why there is none.
    pub(super) fn copy(shared: &Shared) -> Result<Self, Failure> {
        let refused = |text| Err(Failure::refused(Status::NotImplemented, text));
        if shared.remote.is_some() || shared.served.is_on_memory() {
            return refused("a database without files has no copy");
        }
        let database = shared.served.database.path();
        let part = |part: Option<&std::ffi::OsStr>| {
            part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (stem, end) = (part(database.file_stem()), part(database.extension()));
        let name = format!("{stem}-{seconds}.{end}");
        let database_bytes = shared.served.database.size_bytes();
        match &shared.config.client_paths {
            ClientPaths::None => refused("no folder is configured: set copy-dir, and start again"),
            ClientPaths::Within(folder) => {
                let path = folder.join(&name);
                Ok(Self::Copy { name: name.into_bytes(), path, database_bytes })
            }
            ClientPaths::Any => {
                let path = database.with_file_name(name);
                let name = path.as_os_str().as_encoded_bytes().to_vec();
                Ok(Self::Copy { name, path, database_bytes })
            }
        }
    }
}

/// Sends what is asked for over `server`, which is a connection to the database. `log_end` returns
/// the end of its update log until the server or the monitor ends.
pub(super) fn respond(
    wanted: Wanted,
    log_end: &dyn Fn() -> Option<LogOffset>,
    incoming: &Incoming<'_>,
    server: UnixStream,
    has_users: bool,
    turn: &Turn<'_>,
) -> Result<(), Failure> {
    server.set_read_timeout(Some(REPLY_MAX))?;
    server.set_write_timeout(Some(super::MONITOR_EXCHANGE_MAX))?;
    incoming.socket.set_write_timeout(Some(super::MONITOR_EXCHANGE_MAX))?;
    let session = Session { server, turn };
    if has_users {
        session.log_in(&incoming.head)?;
    }
    match wanted {
        Wanted::Changes(excerpts) => session.changes(log_end, excerpts),
        Wanted::Copy { name, path, database_bytes } => session.copy(&name, &path, database_bytes),
    }
}

struct Session<'a> {
    server: UnixStream,
    turn: &'a Turn<'a>,
}

impl Session<'_> {
    fn send(&self, request: &Request<'_>) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        let too_long = |_| Failure::refused(Status::BadRequest, "a name or a password is too long");
        encode(request, &mut bytes).map_err(too_long)?;
        Ok((&self.server).write_all(&bytes)?)
    }

    fn receive<const N: usize>(&self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        (&self.server).read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn call(&self, function: Function<'_>, arguments: &[&[u8]]) -> Result<(), Failure> {
        let mut strings = StringsBuffer::default();
        for argument in arguments {
            let too_long = |_| Failure::refused(Status::BadRequest, "an argument is too long");
            strings.push(argument).map_err(too_long)?;
        }
        self.send(&Request::Misc { function, options: 0, arguments: strings.strings() })
    }

    /// Logs in with the name and the password of a request.
    fn log_in(&self, head: &Head<'_>) -> Result<(), Failure> {
        let refused = || Failure::refused(Status::Unauthorized, "Unauthorized");
        let credentials = head.header("Authorization").and_then(BasicCredentials::decode);
        let credentials = credentials.ok_or_else(refused)?;
        let (name, password) = credentials.parts();
        self.call(Function::Login, &[name, password])?;
        // The count of the elements follows.
        if let [0, ..] = self.receive::<5>()? {
            return Ok(());
        }
        // After a guess that came too soon the server ends the connection. Otherwise it replies to
        // a login without a name, which does not count as a guess.
        match self.call(Function::Login, &[]).and_then(|()| Ok(self.receive::<5>()?)) {
            Err(Failure::Server(error)) if has_ended(&error) => Err(Failure::refused(
                Status::TooManyRequests,
                "too many logins have failed, wait a minute",
            )),
            _ => Err(refused()),
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.turn.write(bytes).map_err(Failure::Client)
    }

    /// Sends the head of the response, and the lines that `send` sends. If it fails, the last line
    /// has the reason.
    fn send_lines(&self, send: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        let mut bytes = b"HTTP/1.1 200 OK\r\n".to_vec();
        reply::header(&mut bytes, "Content-Type", "application/x-ndjson");
        end_record_headers(&mut bytes);
        self.write(&bytes)?;
        let reason = match send() {
            Ok(()) | Err(Failure::Client(_)) => return Ok(()),
            Err(Failure::Refused(_, text)) => text,
            Err(Failure::Server(error)) => no_reply(&error).into(),
        };
        self.line(&json!({ "error": reason }))
    }

    fn line(&self, line: &Json) -> Result<(), Failure> {
        self.write(format!("{line}\n").as_bytes())
    }

    /// Returns whether the user may have the changes. Replication has no reply for the reason.
    fn is_admitted(&self) -> Result<bool, Failure> {
        self.call(Function::Replication, &[wire::replication::ADMISSION])?;
        Ok(matches!(self.receive::<5>()?, [0, ..]))
    }

    /// Returns why the user may not have the changes.
    fn not_admitted(&self) -> Result<Failure, Failure> {
        let text = format!("the server does not send its changes: {}", self.reason()?);
        Ok(Failure::refused(Status::Forbidden, text))
    }

    /// Sends changes until the client leaves, its user may not have them any more, or the server
    /// ends.
    fn changes(
        &self,
        log_end: &dyn Fn() -> Option<LogOffset>,
        mut excerpts: Excerpts,
    ) -> Result<(), Failure> {
        if !self.is_admitted()? {
            return Err(self.not_admitted()?);
        }
        self.turn.goes_on();
        self.send_lines(|| {
            let mut checked = Instant::now();
            while let Some(end) = log_end() {
                while checked.elapsed() < HEARTBEAT
                    && let Some(excerpt) = excerpts.next(end).map_err(Failure::unreadable)?
                {
                    self.line(&line(&excerpt))?;
                }
                if checked.elapsed() >= HEARTBEAT {
                    if !self.is_admitted()? {
                        return Err(self.not_admitted()?);
                    }
                    // An empty line tells that there is nothing, and finds out a client that has
                    // left.
                    self.write(b"\n")?;
                    checked = Instant::now();
                }
                std::thread::sleep(CHANGES_PAUSE);
            }
            Ok(())
        })
    }

    /// Has the server copy its database, and sends how far that is.
    fn copy(&self, name: &[u8], path: &Path, database_bytes: u64) -> Result<(), Failure> {
        self.send(&Request::Copy { path: name })?;
        self.send_lines(|| self.send_progress(path, database_bytes))
    }

    fn send_progress(&self, path: &Path, database_bytes: u64) -> Result<(), Failure> {
        let progress = || json!({ "bytes": bytes_below(path), "of": database_bytes });
        let step = Timespec { tv_sec: 0, tv_nsec: PROGRESS.subsec_nanos().into() };
        loop {
            let reply = PollFd::new(&self.server, PollFlags::IN);
            match poll(&mut [reply], Some(&step)) {
                Ok(0) => self.line(&progress())?,
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        self.server.set_read_timeout(Some(super::MONITOR_EXCHANGE_MAX))?;
        let line = match self.receive::<1>()? {
            [0] => json!({ "bytes": bytes_below(path), "path": path.display().to_string() }),
            _ => json!({ "error": self.reason()? }),
        };
        self.line(&line)
    }

    /// Returns why the last request failed.
    fn reason(&self) -> Result<String, Failure> {
        self.call(Function::Error, &[])?;
        let [_, count @ ..] = self.receive::<5>()?;
        if u32::from_be_bytes(count) == 0 {
            return Ok("it does not tell why".to_owned());
        }
        let bytes = u32::from_be_bytes(self.receive()?);
        let mut text = Vec::new();
        (&self.server).take(bytes.into()).read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        // The number of the failure is for programs.
        Ok(match text.split_once(": ") {
            Some((number, text)) if number.parse::<u32>().is_ok() => text.to_owned(),
            _ => text,
        })
    }
}

/// Notes that the server does not reply. Returns that as a text.
pub(super) fn no_reply(error: &io::Error) -> String {
    tracing::warn!("the server does not reply to the console: {error}");
    format!("the server does not reply: {error}")
}

/// Returns the line of a change.
fn line(excerpt: &Excerpt<'_>) -> Json {
    let &Excerpt { timestamp_us, body, body_bytes } = excerpt;
    let is_whole = body.len() == body_bytes;
    let operation = is_whole.then(|| Operation::parse(body).ok()).flatten();
    let (command, key) = match &operation {
        Some(Operation { request: Request::Misc { function, arguments, .. }, .. }) => {
            let key = has_key(*function).then(|| arguments.iter().next()).flatten();
            (String::from_utf8_lossy(function.name()), key)
        }
        Some(operation) => (operation.request.kind().command().into(), operation.request.name()),
        None => ("change".into(), Operation::peek_key(body)),
    };
    let mut encoded = Vec::new();
    let key = key.map(|key| {
        percent_encoded(&mut encoded, &key[..key.len().min(KEY_BYTES_MAX)]);
        String::from_utf8_lossy(&encoded).into_owned()
    });
    let failed = operation.is_some_and(|operation| !operation.succeeded);
    json!({
        "time": timestamp_us as f64 / 1e6, "command": command, "key": key, "bytes": body_bytes,
        "failed": failed,
    })
}

/// Returns whether the first argument of a function is a key, or the first one of several.
fn has_key(function: Function<'_>) -> bool {
    use Function as F;
    matches!(
        function,
        F::Put
            | F::PutKeep
            | F::PutCat
            | F::PutDuplicate
            | F::PutDuplicateBack
            | F::PutList
            | F::PutExpiring
            | F::Out
            | F::OutList
            | F::Touch
            | F::Increment
    )
}

/// Returns whether the server has ended the connection.
fn has_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Returns the size of a file, or of all files in a folder.
fn bytes_below(path: &Path) -> u64 {
    let Ok(found) = path.symlink_metadata() else { return 0 };
    if !found.is_dir() {
        return found.len();
    }
    let entries = path.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| bytes_below(&entry.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_its_command_and_its_key() {
        let of = |request: Request<'_>, cut: usize| {
            let mut body = Vec::new();
            Operation { request, succeeded: true }.encode(&mut body).expect("a body");
            let (body_bytes, cut) = (body.len(), body.len() - cut);
            let excerpt = Excerpt { timestamp_us: 1_500_000, body: &body[..cut], body_bytes };
            let line = line(&excerpt);
            (line["command"].clone(), line["key"].clone(), line["time"].clone())
        };
        let put = |value| Request::Put { key: b"a b", value };
        assert_eq!(of(put(b"1"), 0), (json!("put"), json!("a%20b"), json!(1.5)));
        assert_eq!(of(put(b"12345"), 3), (json!("change"), json!("a%20b"), json!(1.5)));
        assert_eq!(of(Request::Vanish, 0).1, Json::Null);
        // A record with an expiry, a row of a table and several records.
        let misc = |function, arguments: &[&[u8]]| {
            let mut strings = StringsBuffer::default();
            arguments.iter().for_each(|argument| strings.push(argument).expect("a short one"));
            let arguments = strings.strings();
            let (command, key, _) = of(Request::Misc { function, options: 0, arguments }, 0);
            (command, key)
        };
        assert_eq!(misc(Function::Put, &[b"a b", b"1"]), (json!("put"), json!("a%20b")));
        assert_eq!(misc(Function::OutList, &[b"a", b"b"]), (json!("outlist"), json!("a")));
        assert_eq!(misc(Function::SetIndex, &[b"c", b"1"]), (json!("setindex"), Json::Null));
        let unknown = misc(Function::Unknown(b"new"), &[b"c"]);
        assert_eq!(unknown, (json!("new"), Json::Null));
    }
}
