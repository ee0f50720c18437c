//! Support for the server's tests: a server on a thread, clients, and an engine whose disk the test
//! controls.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]
#![allow(dead_code, unused_imports, reason = "every test file uses another part")]
#![allow(clippy::allow_attributes, reason = "an expectation would fail where all is used")]

mod calls;
mod client;
mod conversation;
mod engine;
mod late_store;
mod monitored;
mod packets;
mod replicas;
mod users;

pub(crate) use calls::{MISC_FAILURE, list, misc, redis, request};
pub(crate) use client::Client;
pub(crate) use conversation::{choose_version_three, hear, talk};
pub(crate) use engine::ManualEngine;
pub(crate) use late_store::{ABLE, DROPPED, HELD, LateStore, UNAVAILABLE, UNKNOWN};
pub(crate) use monitored::{Monitored, NAME};
pub(crate) use packets::{Packet, Response};
pub(crate) use replicas::{
    following, is_following, knows, logged, logging, master, promote, records, set, set_master,
    start_master, stat, take_replica, wait_until_equal,
};
pub(crate) use users::{users, users_with};

use cabinet::{Database, Options};
use server::{ClientPaths, Config, Endpoint, Handle, Server};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time for which a test waits. Only a failing test takes that long.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(120);

/// Server on a thread of its own, until it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) handle: Handle,
    thread: Option<JoinHandle<server::Result<()>>>,
}

/// Returns settings for tests: loopback, with a port that the system chooses.
pub(crate) fn config() -> Config {
    Config {
        listen: vec![Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 }],
        threads: 1,
        pool_threads: 2,
        client_paths: ClientPaths::Any,
        set_master_command: true,
        ..Config::default()
    }
}

/// Opens an on-memory hash database.
pub(crate) fn memory() -> Database {
    Options::new().open("*").unwrap()
}

/// Opens an on-memory tree database.
pub(crate) fn memory_tree() -> Database {
    Options::new().open("+").unwrap()
}

/// Opens a fixed-length database in a folder.
pub(crate) fn fixed(folder: &Path) -> Database {
    Options::new().open(folder.join("casket.tcf")).unwrap()
}

/// Opens a hash database in a folder.
pub(crate) fn hash(folder: &Path) -> Database {
    Options::new().open(folder.join("casket.tch")).unwrap()
}

/// Opens a tree in a folder.
pub(crate) fn tree(folder: &Path) -> Database {
    Options::new().open(folder.join("casket.tcb")).unwrap()
}

/// Opens a table in a folder.
pub(crate) fn table(folder: &Path) -> Database {
    Options::new().open(folder.join("casket.tct")).unwrap()
}

/// Opens a database in a folder, by its name with tuning.
pub(crate) fn named(folder: &Path, name: &str) -> Database {
    Database::open(folder.join(name).to_str().unwrap()).unwrap()
}

/// Starts a server with the settings for tests.
pub(crate) fn start(database: Database) -> Running {
    start_with(config(), database)
}

/// Starts a server on an engine of the test.
pub(crate) fn start_engine(engine: &Arc<ManualEngine>) -> Running {
    start(Database::from_engine(Arc::<ManualEngine>::clone(engine)))
}

/// Starts a server with the given settings.
pub(crate) fn start_with(config: Config, database: Database) -> Running {
    run(Server::bind(config, database).unwrap())
}

/// Runs a server on a thread of its own.
pub(crate) fn run(server: Server) -> Running {
    let unused = SocketAddr::from(([0, 0, 0, 0], 0));
    let address = server.local_addresses().first().copied().unwrap_or(unused);
    let handle = server.handle();
    let thread = Some(std::thread::spawn(move || server.run()));
    Running { address, handle, thread }
}

impl Running {
    /// Opens a new connection.
    pub(crate) fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).unwrap())
    }

    /// Blocks until a server with one event loop has read everything that was sent before. The
    /// second reply proves that the loop has begun a round after that of the first.
    pub(crate) fn pass(&self) {
        let mut client = self.connect();
        client.expect_open();
        client.expect_open();
    }

    /// Begins to stop the server.
    pub(crate) fn begin_stop(&self) {
        self.handle.stop();
    }

    /// Reads the certificates again. Returns whether there are any.
    pub(crate) fn reload_certificates(&self) -> server::Result<Option<Vec<String>>> {
        self.handle.reload_certificates()
    }

    /// Blocks until the server has stopped.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }

    /// Returns a number of `stats`.
    pub(crate) fn stat_value(&self, name: &str) -> u64 {
        let mut client = self.connect();
        client.send(b"stats\r\n");
        let text = client.read_until(b"END\r\n");
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("no figure {name} in {text}")).parse().unwrap()
    }

    /// Blocks until a number of `stats` satisfies a condition.
    pub(crate) fn await_stat_value(&self, name: &str, is_good: impl Fn(u64) -> bool) {
        wait_until(|| is_good(self.stat_value(name)));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.begin_stop();
        if std::thread::panicking() {
            return;
        }
        self.join();
    }
}

/// Blocks until a condition is true.
#[track_caller]
pub(crate) fn wait_until(mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < WAIT_MAX, "waited in vain");
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Client {
    /// Asserts that no byte has come once the server, which has one event loop, has read everything
    /// that was sent to it.
    pub(crate) fn expect_silence(&mut self, server: &Running) {
        server.pass();
        self.stream.set_nonblocking(true).unwrap();
        let result = self.stream.read(&mut [0]);
        let is_silent = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        assert!(is_silent, "{result:?}");
        self.stream.set_nonblocking(false).unwrap();
    }

    /// Sends a GET and asserts its value, with any headers.
    pub(crate) fn expect_value(&mut self, path: &str, value: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        self.expect_response("200 OK", value);
    }

    /// Asserts that a response with this status and body follows. Returns its headers.
    pub(crate) fn expect_response(&mut self, status: &str, body: impl AsRef<[u8]>) -> String {
        let head = String::from_utf8(self.read_until(b"\r\n\r\n")).unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{head}");
        self.expect(body);
        head
    }

    /// Sends a request and asserts its reply, in which a time of 500 seconds may have become less.
    pub(crate) fn exchange_in_time(&mut self, request: &str, reply: &str) {
        self.send(request.as_bytes());
        let received = String::from_utf8(self.read(reply.len())).unwrap();
        let times = 500 - WAIT_MAX.as_secs()..500;
        let in_time = |text: String, time| text.replace(&format!(" t{time}"), " t500");
        assert_eq!(times.fold(received, in_time), reply);
    }

    /// Asserts that the connection is still open.
    pub(crate) fn expect_open(&mut self) {
        self.exchange(b"verbosity 1\r\n", b"OK\r\n");
    }
}
