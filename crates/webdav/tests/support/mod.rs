//! Test support: a server with WebDAV on a thread, and a client that sends raw bytes.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]
#![allow(dead_code, unused_imports, reason = "every test file uses another part")]
#![allow(clippy::allow_attributes, reason = "an expectation would fail where all is used")]

#[path = "../../../server/tests/support/client.rs"]
mod client;
#[path = "../../../server/tests/support/users.rs"]
mod users;

pub(crate) use client::Client;
pub(crate) use users::{users, users_with};

use cabinet::Database;
use server::{Config, Endpoint, Handle, Server};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest wait in a test. Only a failing test reaches it.
const WAIT_MAX: Duration = Duration::from_secs(120);

pub(crate) struct Running {
    address: SocketAddr,
    handle: Handle,
    database: Database,
    thread: Option<JoinHandle<server::Result<()>>>,
}

pub(crate) fn config() -> Config {
    Config {
        listen: vec![Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 }],
        threads: 1,
        pool_threads: 2,
        ..Config::default()
    }
}

pub(crate) fn start(database: Database) -> Running {
    start_with(config(), database)
}

pub(crate) fn start_with(config: Config, database: Database) -> Running {
    run(config, database, true)
}

/// Starts a server without WebDAV.
pub(crate) fn start_without(database: Database) -> Running {
    run(config(), database, false)
}

fn run(config: Config, database: Database, serves_webdav: bool) -> Running {
    let server = Server::bind(config, database.clone()).unwrap();
    if serves_webdav {
        webdav::serve(&server).unwrap();
    }
    let address = server.local_addresses()[0];
    let handle = server.handle();
    let thread = Some(std::thread::spawn(move || server.run()));
    Running { address, handle, database, thread }
}

impl Running {
    pub(crate) fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).unwrap())
    }

    /// Returns a handle of the server.
    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stores a record.
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) {
        self.database.put(key, value).unwrap();
    }

    pub(crate) fn remove(&self, key: &[u8]) {
        self.database.remove(key).unwrap();
    }

    /// Returns the number of records and properties, without the list of media types and the number
    /// of properties. Checks that the number of records is that of the keys that are not reserved.
    pub(crate) fn records(&self) -> u64 {
        let keys =
            |prefix: &[u8]| self.database.keys_with_prefix(prefix, None).unwrap().len() as u64;
        let of_clients = keys(b"") - keys(b"\0tyrant ");
        assert_eq!(server::count_records(&self.database).unwrap(), of_clients);
        self.database.len() - keys(b"\0tyrant media") - keys(b"\0tyrant records")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            thread.join().unwrap().unwrap();
        }
    }
}

impl Client {
    /// Sends a request. Returns the head and body of the response.
    pub(crate) fn request(&mut self, line: &str, headers: &str, body: &str) -> (String, Vec<u8>) {
        let length = if body.is_empty() && !line.starts_with("PUT") {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{headers}{length}\r\n{body}");
        self.send(request.as_bytes());
        let head = String::from_utf8(self.read_until(b"\r\n\r\n")).unwrap();
        let mut answer = Vec::new();
        let is_empty = line.starts_with("HEAD") || head.starts_with("HTTP/1.1 204 ");
        if is_empty {
            return (head, answer);
        }
        if let Some(length) = Self::header(&head, "content-length") {
            answer = self.read(length.parse().unwrap());
        } else if Self::header(&head, "transfer-encoding").is_some() {
            loop {
                let size = String::from_utf8(self.read_until(b"\r\n")).unwrap();
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                answer.extend(self.read(size));
                self.read(2);
                if size == 0 {
                    break;
                }
            }
        }
        (head, answer)
    }

    /// Sends a request and checks the status of the response.
    pub(crate) fn status(&mut self, line: &str, headers: &str, body: &str, status: u16) {
        let (head, _) = self.request(line, headers, body);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {head}");
    }

    /// Returns a header of a response.
    pub(crate) fn header(head: &str, name: &str) -> Option<String> {
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }
}
