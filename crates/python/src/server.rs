//! Server of a shared database: a process that has it open, and a thread for each connection.
//!
//! It holds the lock of the database, so there is one at most, which may replace the socket. It
//! ends when no process has been connected for a while. It takes the lock of those who start
//! servers first: they find either it or no server at all. A process that connects meanwhile loses
//! its connection before the first reply, and starts again.

use crate::client::{Hello, with_socket_path};
use crate::errors::{self, Fault};
use crate::in_use::SOCKET;
use crate::operation::{Operation, Properties, Reply};
use crate::options::Opening;
use crate::wire::{self, BODY_BYTES_MAX, CONNECTIONS_MAX, Frame, HELLO_BYTES_MAX, VERSION};
use cabinet::{Database, Error, Transaction};
use parking_lot::{Condvar, Mutex, MutexGuard};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, recv};
use rustix::process::geteuid;
use std::cell::RefCell;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// File in the folder of a database that is locked by a process that starts the server.
const START_LOCK: &str = "server.lock";

/// Socket before it has its rights.
const NEW_SOCKET: &str = "server.socket.new";

/// Rights of the socket.
const SOCKET_MODE: u32 = 0o600;

/// Pause before another try to end, while a process is about to start a server.
const END_PAUSE: Duration = Duration::from_millis(10);

/// Time in which the system releases the lock of a server that was killed, and a pause within it.
const RELEASE_TIME: Duration = Duration::from_secs(1);
const RELEASE_PAUSE: Duration = Duration::from_millis(5);

/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Time within which the parts of the first message of a connection come.
const HELLO_TIME: Duration = Duration::from_secs(10);

/// Server of a shared database, in the process that runs it.
#[pyclass(module = "cabinet._cabinet", frozen)]
pub(crate) struct Server {
    listener: UnixListener,
    state: Arc<State>,
}

struct State {
    folder: PathBuf,
    /// Device and inode of the socket.
    socket: Option<(u64, u64)>,
    options: String,
    idle_time: Duration,
    use_of: Mutex<Use>,
    /// Notified when a connection has ended.
    is_left: Condvar,
}

/// Number of connections, and since when there is none.
struct Use {
    /// The database, until the server ends.
    database: Option<Database>,
    connections: usize,
    idle_since: Instant,
}

#[pymethods]
impl Server {
    /// Opens a database and listens on the socket in its folder.
    #[new]
    #[pyo3(signature = (name, idle_seconds, options))]
    fn new(
        name: &Bound<'_, PyAny>,
        idle_seconds: f64,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let opening = Opening::new(name, Some(options))?;
        let database = open(&opening).map_err(errors::library)?;
        let folder = database.path();
        let listener = listen(&folder).map_err(|source| {
            let path = folder.join(SOCKET);
            errors::library(Error::Io { operation: "listen on", path, source })
        })?;
        let socket = identity(&folder.join(SOCKET));
        let (database, idle_since) = (Some(database), Instant::now());
        let use_of = Mutex::new(Use { database, connections: 0, idle_since });
        let idle_time = Duration::try_from_secs_f64(idle_seconds).unwrap_or(Duration::MAX);
        let options = opening.fingerprint();
        let state =
            Arc::new(State { folder, socket, options, idle_time, use_of, is_left: Condvar::new() });
        Ok(Self { listener, state })
    }

    /// Serves, until the server is idle. Closes the database then, and ends the process.
    fn run(&self, py: Python<'_>) {
        py.detach(|| {
            let state = Arc::clone(&self.state);
            thread::spawn(move || state.end_when_idle());
            // Without a free descriptor, it is the one by which a connection is refused.
            let mut spare = spare();
            loop {
                match self.listener.accept() {
                    Ok((stream, _)) => self.state.begin(stream),
                    Err(_) if spare.is_some() => {
                        spare = None;
                        if let Ok((stream, _)) = self.listener.accept() {
                            self.state.refuse(&stream);
                        }
                    }
                    Err(_) => thread::sleep(ACCEPT_PAUSE),
                }
                if spare.is_none() {
                    spare = self::spare();
                }
            }
        });
    }
}

/// Returns a descriptor that is open for nothing.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Opens a database. A server that was killed just now may hold its lock for a moment.
fn open(opening: &Opening) -> cabinet::Result<Database> {
    let deadline = Instant::now() + RELEASE_TIME;
    loop {
        match opening.open() {
            Err(Error::InUse { .. }) if Instant::now() < deadline => thread::sleep(RELEASE_PAUSE),
            opened => return opened,
        }
    }
}

/// Listens on the socket in a folder. Replaces that of a server that was killed.
fn listen(folder: &Path) -> io::Result<UnixListener> {
    let (new, socket) = (folder.join(NEW_SOCKET), folder.join(SOCKET));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = with_socket_path(folder, NEW_SOCKET, |path| UnixListener::bind(path))?;
    fs::set_permissions(&new, Permissions::from_mode(SOCKET_MODE))?;
    fs::rename(&new, &socket)?;
    Ok(listener)
}

/// Returns the device and the inode of a file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl State {
    /// Serves a connection in a thread of its own.
    fn begin(self: &Arc<Self>, stream: UnixStream) {
        let is_ours = socket_peercred(&stream).is_ok_and(|peer| peer.uid == geteuid());
        let mut use_of = self.use_of.lock();
        let Some(database) = use_of.database.clone().filter(|_| is_ours) else { return };
        if use_of.connections >= CONNECTIONS_MAX {
            drop(use_of);
            return self.refuse(&stream);
        }
        use_of.connections += 1;
        drop(use_of);
        let counted = Counted(Arc::clone(self));
        let serve = move || {
            let mut session = Session::new(database, stream);
            // The connection has ended: by its process, or as that has sent what none of this
            // version sends.
            let _ = session.serve(&counted.0);
            CONNECTION.set(None);
        };
        // Without memory for a thread, the process loses its connection.
        let _ = thread::Builder::new().name("connection".into()).spawn(serve);
    }

    /// Tells a process that there are too many connections.
    fn refuse(&self, stream: &UnixStream) {
        let text = format!(
            "the server of {} has as many connections as it takes, {CONNECTIONS_MAX} or those \
             that its limit of open files leaves: close some, of threads, transactions or \
             processes",
            self.folder.display()
        );
        let refusal = Err::<Properties, _>(Fault::new("TooManyError", text));
        let mut output = Frame::default();
        // It fits into the buffer of the socket, so this does not wait.
        if output.write(&[VERSION.as_bytes(), &[0]].concat(), &refusal).is_ok() {
            let _ = output.send(stream, &mut || true);
        }
    }

    /// Ends the process once no other one has been connected for a while.
    fn end_when_idle(&self) {
        let mut use_of = self.use_of.lock();
        loop {
            let rest = self.idle_time.saturating_sub(use_of.idle_since.elapsed());
            if use_of.connections > 0 {
                self.is_left.wait(&mut use_of);
            } else if !rest.is_zero() {
                self.is_left.wait_for(&mut use_of, rest);
            } else {
                MutexGuard::unlocked(&mut use_of, || self.try_end());
            }
        }
    }

    /// Closes the database and ends the process, unless another one is about to start a server.
    fn try_end(&self) {
        let lock = File::create(self.folder.join(START_LOCK));
        // The folder may have been removed.
        if let Ok(lock) = &lock
            && flock(lock, FlockOperation::NonBlockingLockExclusive).is_err()
        {
            thread::sleep(END_PAUSE);
            return;
        }
        let database = {
            let mut use_of = self.use_of.lock();
            if use_of.connections > 0 {
                return;
            }
            use_of.database.take()
        };
        let socket = self.folder.join(SOCKET);
        // Another server may be in a folder that was removed and made again.
        if identity(&socket) == self.socket {
            let _ = fs::remove_file(socket);
        }
        drop(database);
        std::process::exit(0)
    }
}

/// A connection, among those that keep the server from ending.
struct Counted(Arc<State>);

impl Drop for Counted {
    fn drop(&mut self) {
        let mut use_of = self.0.use_of.lock();
        use_of.connections -= 1;
        use_of.idle_since = Instant::now();
        self.0.is_left.notify_one();
    }
}

thread_local! {
    /// The connection of this thread, by which searches notice that nobody waits for them.
    static CONNECTION: RefCell<Option<Arc<UnixStream>>> = const { RefCell::new(None) };
}

/// Returns whether the process that waits for the operation of this thread is gone.
fn is_abandoned() -> bool {
    CONNECTION.with_borrow(|connection| {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        connection
            .as_ref()
            .is_some_and(|stream| matches!(recv(stream, &mut [0; 1][..], flags), Ok((_, 0))))
    })
}

/// A connection, with the transaction that it is in.
struct Session {
    stream: Arc<UnixStream>,
    database: Database,
    transaction: Option<Transaction>,
    is_read_only: bool,
    output: Frame,
}

impl Session {
    fn new(database: Database, stream: UnixStream) -> Self {
        let output = Frame::default();
        Self { stream: Arc::new(stream), database, transaction: None, is_read_only: false, output }
    }

    fn serve(&mut self, state: &State) -> io::Result<()> {
        CONNECTION.set(Some(Arc::clone(&self.stream)));
        let mut go_on = || true;
        let mut input = Frame::default();
        self.stream.set_read_timeout(Some(HELLO_TIME))?;
        input.receive(&self.stream, HELLO_BYTES_MAX, &mut go_on)?;
        self.stream.set_read_timeout(None)?;
        let greeted = self.greet(state, input.body());
        self.send(&[VERSION.as_bytes(), &[0]].concat(), &greeted)?;
        while greeted.is_ok() {
            input.receive(&self.stream, BODY_BYTES_MAX, &mut go_on)?;
            let reply = self.reply(input.body());
            self.send(&[], &reply)?;
        }
        Ok(())
    }

    fn send<T: serde::Serialize>(
        &mut self,
        prefix: &[u8],
        reply: &Result<T, Fault>,
    ) -> io::Result<()> {
        if let Err(fault) = self.output.write(prefix, reply) {
            let refusal = self.output.write(prefix, &Err::<(), _>(fault));
            refusal.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        }
        let sent = self.output.send(&self.stream, &mut || true);
        self.output.shrink();
        sent
    }

    /// Reads the first message, and returns the properties of the database.
    fn greet(&mut self, state: &State, body: &[u8]) -> Result<Properties, Fault> {
        let path = state.folder.display();
        let hello = body.strip_prefix(VERSION.as_bytes()).and_then(|rest| rest.strip_prefix(&[0]));
        let hello = hello.ok_or_else(|| Fault::new("ServerError", "another version"))?;
        let hello: Hello = wire::read(hello)?;
        if hello.options != state.options {
            let (server, own) = (state.options.lines(), hello.options.lines());
            let shown = |option: &str| option.trim_start_matches("Options { ").to_owned();
            let others: Vec<String> = server
                .zip(own)
                .filter(|(server, own)| server != own)
                .map(|(server, own)| format!("{} there, {} here", shown(server), shown(own)))
                .collect();
            let text = format!(
                "{path} is shared with other options: {}: give the same in all processes",
                others.join("; ")
            );
            return Err(Fault::new("InvalidArgumentError", text));
        }
        self.is_read_only = hello.is_read_only;
        let properties = Properties::of(&self.database);
        Ok(Properties { is_read_only: self.is_read_only, ..properties })
    }

    fn reply(&mut self, body: &[u8]) -> Result<Reply<'static>, Fault> {
        let operation: Operation<'_> = wire::read(body)?;
        if self.is_read_only && operation.is_change() {
            let text = "the database was opened for reading only: open it for writing";
            return Err(Fault::new("ReadOnlyError", text));
        }
        let done = match operation {
            Operation::Begin => {
                let transaction = self.database.transaction();
                let properties = Properties::of(&transaction);
                self.transaction = Some(transaction);
                return Ok(Reply::Properties(properties));
            }
            Operation::Commit => match self.transaction.take() {
                Some(transaction) => transaction.commit().map(|()| Reply::Done),
                None => return Err(Fault::wire(&"there is no transaction to commit")),
            },
            Operation::WaitDurable(position) => {
                // A later position may never come, and would keep the thread.
                let position = position.min(self.database.appended());
                self.database.wait_durable(position).map(|()| Reply::Done)
            }
            _ => match &self.transaction {
                Some(transaction) => operation.run(transaction, is_abandoned),
                None => operation.run(&self.database, is_abandoned),
            },
        };
        done.map_err(|error| Fault::of(&error))
    }
}
