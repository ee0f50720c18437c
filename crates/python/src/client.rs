//! Shared databases as a process has them: connections to the server, and what is done if it ends.
//!
//! An operation takes a connection that is idle, or makes one, and starts the server if there is
//! none. If the server ends before it replies, a read is sent again to the next one. A change is
//! not: it may have been done, and others may have changed the record since. A transaction has a
//! connection of its own, and ends with it.
//!
//! The child of a fork makes connections of its own. It does not use those that it inherits.

use crate::errors::{Failure, Fault};
use crate::fork::Generation;
use crate::in_use::SOCKET;
use crate::operation::{FromReply, Operation, Properties, Reply};
use crate::signals;
use crate::wire::{self, BODY_BYTES_MAX, Frame, VERSION};
use cabinet::Error;
use parking_lot::Mutex;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Times that an operation is sent to servers that end before they reply.
const TRIES: usize = 20;

/// Time in which a server must accept a connection, once it runs.
const CONNECTION_TIME: Duration = Duration::from_secs(60);

/// Pause before another try to connect.
const PAUSE: Duration = Duration::from_millis(1);

/// Maximum time for which the idle connections are waited for. After a fork it may be in vain.
const POOL_TIME: Duration = Duration::from_millis(1);

/// Maximum number of idle connections.
const IDLE_MAX: usize = 4;

/// Maximum bytes of the path of a socket.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// First message of a process to a server, after the version.
#[derive(Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Options of the database, as text, one in each line.
    pub(crate) options: String,
    pub(crate) is_read_only: bool,
}

/// Database of a server, or a transaction in it.
pub(crate) struct Remote {
    link: Arc<Link>,
    pub(crate) properties: Properties,
    /// Connection of a transaction, until it is lost.
    transaction: Option<Mutex<Option<Connection>>>,
    /// Whether all operations fail, as each of them would wait.
    is_refusing: bool,
}

/// How a server is reached.
struct Link {
    folder: PathBuf,
    /// Function of Python that starts the server, unless it runs.
    start: Py<PyAny>,
    hello: Hello,
    pool: Mutex<Pool>,
    is_closed: AtomicBool,
    /// Whether no other process changes what this one does, so that it may repeat its changes.
    is_alone: AtomicBool,
}

struct Pool {
    generation: Generation,
    idle: Vec<Connection>,
}

struct Connection {
    stream: UnixStream,
    generation: Generation,
    output: Frame,
    input: Frame,
}

/// Why a connection has no reply.
enum Broken {
    /// The server has ended. If all was sent to it, it may have done the operation.
    Lost {
        is_sent: bool,
    },
    Raised(PyErr),
}

impl Connection {
    /// Sends what was written, and waits for the reply, without the GIL.
    fn exchange(&mut self) -> Result<(), Broken> {
        let mut raised = None;
        let mut go_on = || signals::go_on(&mut raised);
        let sent = self.output.send(&self.stream, &mut go_on);
        let is_sent = sent.is_ok();
        let done = sent.and_then(|()| self.input.receive(&self.stream, BODY_BYTES_MAX, &mut go_on));
        match (done, raised) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some(raised)) => Err(Broken::Raised(raised)),
            (Err(_), None) => Err(Broken::Lost { is_sent }),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Children of a fork may have copies of the descriptor.
        if self.generation.is_here() {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

/// Returns what an operation returns, from the body of a reply.
fn outcome(body: &[u8]) -> Result<Reply<'_>, Failure> {
    Ok(wire::read::<Result<Reply<'_>, Fault>>(body)??)
}

impl Remote {
    /// Connects to the server of the database in a folder. `start` starts it, unless it runs.
    pub(crate) fn open(
        py: Python<'_>,
        folder: PathBuf,
        start: Py<PyAny>,
        hello: Hello,
    ) -> Result<Self, Failure> {
        let pool = Pool { generation: Generation::of_process(), idle: Vec::new() };
        let (pool, is_closed) = (Mutex::new(pool), AtomicBool::new(false));
        let is_alone = AtomicBool::new(false);
        let link = Arc::new(Link { folder, start, hello, pool, is_closed, is_alone });
        let (connection, properties) = link.connect(py)?;
        link.give_back(connection);
        Ok(Self { link, properties, transaction: None, is_refusing: false })
    }

    /// Returns the same database, all of whose operations fail instead of waiting.
    pub(crate) fn refusing(&self) -> Self {
        let (link, properties) = (Arc::clone(&self.link), self.properties.clone());
        Self { link, properties, transaction: None, is_refusing: true }
    }

    pub(crate) fn is_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.link.is_closed.load(Ordering::Relaxed)
    }

    /// Lets changes whose reply was lost be repeated. The caller has a lock, by which no other
    /// process makes changes meanwhile.
    pub(crate) fn repeat_changes(&self) {
        self.link.is_alone.store(true, Ordering::Relaxed);
    }

    /// Closes it, without waiting for operations that are running.
    pub(crate) fn close(&self) {
        if !self.is_transaction() {
            self.link.is_closed.store(true, Ordering::Relaxed);
            self.link.forget_idle();
        }
    }

    /// Runs an operation by the server.
    pub(crate) fn call<T: FromReply>(
        &self,
        py: Python<'_>,
        operation: &Operation<'_>,
    ) -> Result<T, Failure> {
        if self.is_refusing {
            return Err(Error::WouldBlock.into());
        }
        match &self.transaction {
            None => self.link.call(py, operation),
            Some(connection) => {
                let body = py.detach(|| call_within(connection, operation))?;
                outcome(&body).and_then(T::take)
            }
        }
    }

    /// Begins a transaction.
    pub(crate) fn begin(&self, py: Python<'_>) -> Result<Self, Failure> {
        let connection = self.link.exchange(py, &Operation::Begin)?;
        let properties = outcome(connection.input.body()).and_then(Properties::take)?;
        let transaction = Some(Mutex::new(Some(connection)));
        Ok(Self { link: Arc::clone(&self.link), properties, transaction, is_refusing: false })
    }

    /// Commits the transaction.
    pub(crate) fn commit(&self, py: Python<'_>) -> Result<(), Failure> {
        let connection = self.transaction.as_ref().ok_or(Failure::Closed)?;
        let body = py.detach(|| call_within(connection, &Operation::Commit))?;
        if let Some(connection) = connection.lock().take() {
            self.link.give_back(connection);
        }
        outcome(&body).and_then(<()>::take)
    }
}

/// Runs an operation by the connection of a transaction, and returns the body of the reply. Waits
/// for other threads that use it.
fn call_within(
    slot: &Mutex<Option<Connection>>,
    operation: &Operation<'_>,
) -> Result<Vec<u8>, Failure> {
    let mut slot = if signals::is_within_operation() {
        // It may be one of this transaction.
        slot.try_lock().ok_or(Failure::Busy)?
    } else {
        slot.lock()
    };
    let connection = slot.as_mut().ok_or_else(lost_transaction)?;
    connection.output.write(&[], operation)?;
    let exchanged = connection.exchange();
    if exchanged.is_ok() {
        return Ok(connection.input.body().to_vec());
    }
    *slot = None;
    Err(match exchanged {
        Err(Broken::Raised(raised)) => raised.into(),
        Err(Broken::Lost { is_sent: true }) if matches!(operation, Operation::Commit) => unknown(),
        _ => lost_transaction(),
    })
}

impl Link {
    fn call<T: FromReply>(&self, py: Python<'_>, operation: &Operation<'_>) -> Result<T, Failure> {
        let connection = self.exchange(py, operation)?;
        let outcome = outcome(connection.input.body()).and_then(T::take);
        self.give_back(connection);
        outcome
    }

    /// Sends an operation by some connection, and waits for the reply.
    fn exchange(&self, py: Python<'_>, operation: &Operation<'_>) -> Result<Connection, Failure> {
        let is_repeatable = operation.is_repeatable()
            || self.is_alone.load(Ordering::Relaxed) && operation.is_idempotent();
        // Whether it may have been done already.
        let mut is_sent_before = false;
        for _ in 0..TRIES {
            let connected = match self.idle() {
                Some(connection) => Ok(connection),
                None => self.connect(py).map(|(connection, _)| connection),
            };
            let mut connection = match connected {
                Ok(connection) => connection,
                Err(Failure::Raised(raised)) if raised_by_signal(py, &raised) => {
                    return Err(Failure::Raised(raised));
                }
                Err(failure) if is_sent_before && operation.is_change() => {
                    let error = PyErr::from(unknown());
                    error.set_cause(py, Some(failure.into()));
                    return Err(error.into());
                }
                Err(failure) => return Err(failure),
            };
            connection.output.write(&[], operation)?;
            match py.detach(|| connection.exchange()) {
                Ok(()) => return Ok(connection),
                Err(Broken::Raised(raised)) => return Err(raised.into()),
                Err(Broken::Lost { is_sent: true }) if !is_repeatable => return Err(unknown()),
                Err(Broken::Lost { is_sent }) => {
                    is_sent_before |= is_sent;
                    self.forget_idle();
                }
            }
        }
        if is_sent_before && operation.is_change() {
            return Err(unknown());
        }
        Err(self.failed("ends before it replies"))
    }

    /// Takes an idle connection.
    fn idle(&self) -> Option<Connection> {
        let mut pool = self.pool.try_lock_for(POOL_TIME)?;
        if !pool.generation.is_here() {
            *pool = Pool { generation: Generation::of_process(), idle: Vec::new() };
        }
        pool.idle.pop()
    }

    /// Keeps a connection for the next operation.
    fn give_back(&self, mut connection: Connection) {
        if self.is_closed.load(Ordering::Relaxed) {
            return;
        }
        connection.input.shrink();
        connection.output.shrink();
        if let Some(mut pool) = self.pool.try_lock_for(POOL_TIME)
            && pool.generation == connection.generation
            && pool.idle.len() < IDLE_MAX
        {
            pool.idle.push(connection);
        }
    }

    fn forget_idle(&self) {
        let idle = self.pool.try_lock_for(POOL_TIME).map(|mut pool| std::mem::take(&mut pool.idle));
        drop(idle);
    }

    /// Connects to the server, which is started unless it runs.
    fn connect(&self, py: Python<'_>) -> Result<(Connection, Properties), Failure> {
        let deadline = Instant::now() + CONNECTION_TIME;
        while Instant::now() < deadline {
            match connect(&self.folder) {
                Ok(stream) => {
                    let (input, output) = (Frame::default(), Frame::default());
                    let generation = Generation::of_process();
                    let mut connection = Connection { stream, generation, output, input };
                    self.check_owner(&connection.stream)?;
                    connection.output.write(&[VERSION.as_bytes(), &[0]].concat(), &self.hello)?;
                    match py.detach(|| connection.exchange()) {
                        Ok(()) => {
                            let properties = self.properties(connection.input.body())?;
                            return Ok((connection, properties));
                        }
                        Err(Broken::Raised(raised)) => return Err(raised.into()),
                        // The server was about to end.
                        Err(Broken::Lost { .. }) => {}
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                        signals::within_operation(|| self.start.call0(py))?;
                    }
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
                    _ => {
                        let path = self.folder.join(SOCKET);
                        let text = format!("connect to {}: {error}", path.display());
                        return Err(Fault::of_system("IoError", text, &error, &path).into());
                    }
                },
            }
            // The lock of the handle is held, so a handler cannot close the database.
            signals::within_operation(|| py.check_signals())?;
            py.detach(|| std::thread::sleep(PAUSE));
        }
        Err(self.failed("accepts no connection"))
    }

    /// Fails if the server is another user's, who may read what is sent to it.
    fn check_owner(&self, stream: &UnixStream) -> Result<(), Failure> {
        let path = self.folder.join(SOCKET);
        let own = geteuid();
        let server = socket_peercred(stream).map_err(|error| {
            let text = format!("look at the server of {}: {error}", path.display());
            Fault::of_system("IoError", text, &error.into(), &path)
        })?;
        if server.uid == own {
            return Ok(());
        }
        let text = format!(
            "{} belongs to a server of the user {}, and this process to {}: processes of one user \
             share a database",
            path.display(),
            server.uid.as_raw(),
            own.as_raw()
        );
        Err(Fault::new("ServerError", text).into())
    }

    /// Returns the properties of the database, from the first message of its server.
    fn properties(&self, body: &[u8]) -> Result<Properties, Failure> {
        let end = body.iter().position(|byte| *byte == 0).unwrap_or(body.len());
        let (version, rest) = body.split_at(end);
        if version == VERSION.as_bytes() {
            return Ok(wire::read::<Result<Properties, Fault>>(&rest[1..])??);
        }
        let text = format!(
            "the server of {} has version {:?}, and this process {VERSION:?}: end all processes \
             that share the database, and start them with one version",
            self.folder.display(),
            String::from_utf8_lossy(version)
        );
        Err(Fault::new("ServerError", text).into())
    }

    fn failed(&self, how: &str) -> Failure {
        let text = format!(
            "the server of {} {how}: look into the log of the system for why, such as a lack of \
             memory",
            self.folder.display()
        );
        Fault::new("ServerError", text).into()
    }
}

/// Connects to the socket in a folder, whose path may be too long for an address.
fn connect(folder: &Path) -> io::Result<UnixStream> {
    with_socket_path(folder, SOCKET, |path| UnixStream::connect(path))
}

/// Calls a function with a path of a socket in a folder that is short enough for an address.
pub(crate) fn with_socket_path<T>(
    folder: &Path,
    name: &str,
    run: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let path = folder.join(name);
    if path.as_os_str().as_bytes().len() <= SOCKET_PATH_BYTES_MAX {
        return run(&path);
    }
    let folder = File::open(folder)?;
    run(&Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name))
}

/// Returns whether an exception is one that the handler of a signal has raised to end the program
/// or what it does, and not an error of the package or of the system.
fn raised_by_signal(py: Python<'_>, raised: &PyErr) -> bool {
    !raised.is_instance_of::<PyException>(py)
}

fn unknown() -> Failure {
    let text = "the server of the database has ended before it replied, so it is not known whether \
                the operation was done: read what is stored, and do it again if it was not";
    Fault::new("OutcomeUnknownError", text).into()
}

fn lost_transaction() -> Failure {
    let text = "the server of the database has ended, and the transaction with it, which has \
                written nothing: begin another one, as transact does";
    Fault::new("ConflictError", text).into()
}
