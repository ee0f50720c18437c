//! Servers with an update log that follow each other.

use super::{Running, WAIT_MAX, config, hash, misc, request, start_with};
use cabinet::Database;
use server::update_log::{Reader, Settings};
use server::{Config, Following, Master};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::Path;
use wire::binary::Request;

/// Returns settings of a server that logs into `ulog` of a folder and stores its position there.
pub(crate) fn logging(id: u32, folder: &Path) -> Config {
    let following = Following { position: folder.join("rts"), ..Following::default() };
    let update_log = Some(Settings::new(folder.join("ulog")));
    Config { server_id: id, update_log, following, ..config() }
}

/// Returns settings of such a server that follows the server at `address`.
pub(crate) fn following(id: u32, folder: &Path, address: SocketAddr) -> Config {
    let mut config = logging(id, folder);
    config.following.master = Some(master(address));
    config
}

/// Returns the master at an address.
pub(crate) fn master(address: SocketAddr) -> Master {
    Master { host: address.ip().to_string(), port: address.port() }
}

/// Returns the request to follow a server, or none.
pub(crate) fn set_master(host: &str, port: u16, timestamp_us: u64, options: u32) -> Vec<u8> {
    let (host, port) = (host.as_bytes(), port.into());
    request(&Request::SetMaster { host, port, timestamp_us, options })
}

/// Stores a record.
pub(crate) fn set(server: &Running, key: &str, value: &str) {
    let bytes = value.len();
    server.connect().exchange(format!("set {key} 0 0 {bytes}\r\n{value}\r\n"), b"STORED\r\n");
}

/// Starts a master. Returns it and its database.
pub(crate) fn start_master(folder: &Path) -> (Running, Database) {
    let database = hash(folder);
    (start_with(logging(1, folder), database.clone()), database)
}

/// Accepts a replica as a simulated master. Answers the question whether it is of this project, and
/// refuses its status.
pub(crate) fn take_replica(listener: &TcpListener, answer: &[u8]) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let mut probe = [0; 25];
    stream.read_exact(&mut probe).unwrap();
    assert_eq!(probe, *b"\xc8\x90\0\0\0\x0b\0\0\0\x01\0\0\0\0replication");
    stream.write_all(answer).unwrap();
    let mut stat = [0; 2];
    stream.read_exact(&mut stat).unwrap();
    assert_eq!(stat, *b"\xc8\x88");
    stream.write_all(b"\x01").unwrap();
    stream
}

/// Returns all records of a database.
pub(crate) fn records(database: &Database) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut records = BTreeMap::new();
    database
        .for_each(|entry| {
            records.insert(entry.key.to_vec(), entry.value.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
    records
}

/// Blocks until two databases have the same records.
pub(crate) fn wait_until_equal(one: &Database, other: &Database) {
    let start = std::time::Instant::now();
    loop {
        let (left, right) = (records(one), records(other));
        if left == right {
            return;
        }
        if start.elapsed() > WAIT_MAX {
            assert_eq!(left, right);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Returns the entries of the update log in a folder: origin, master, body.
pub(crate) fn logged(folder: &Path) -> Vec<(u16, u16, Vec<u8>)> {
    let mut entries = Vec::new();
    let mut reader = Reader::open(folder, 0).unwrap().unwrap();
    while let Some(entry) = reader.next(None).unwrap() {
        entries.push((entry.origin, entry.master, entry.body.to_vec()));
    }
    entries
}

/// Returns a value of `stat`.
pub(crate) fn stat(server: &Running, name: &str) -> Option<String> {
    let mut client = server.connect();
    client.send(b"\xc8\x88");
    let header = client.read(5);
    let text = client.read(u32::from_be_bytes(header[1..].try_into().unwrap()) as usize);
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}\t")));
    line.map(str::to_owned)
}

/// Returns whether a replica has everything that its master has announced.
pub(crate) fn is_following(replica: &Running) -> bool {
    stat(replica, "replication_state").as_deref() == Some("following")
        && stat(replica, "replication_lag_operations").as_deref() == Some("0")
}

/// Makes a master of a replica.
pub(crate) fn promote(server: &Running) {
    let mut client = server.connect();
    client.send(&misc("promote", &[]));
    assert_eq!(client.read(1), b"\0");
}

/// Returns whether a replica knows its progress in every log, which its master sends each second.
pub(crate) fn knows(folder: &Path) -> bool {
    let bytes = std::fs::read(folder.join("rts.lanes")).unwrap_or_default();
    bytes.get(16) == Some(&1)
}
