//! Memory: hostile clients of every protocol cost a bounded amount of memory, measured, and other
//! clients are served.
//!
//! Clients and server share the process whose memory is measured. Clients send from small buffers,
//! and bytes in sockets belong to the kernel.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::Config;
use std::io::Write;
use support::{Client, Packet, Running, config, memory, start_with};

/// Value of [`Config::buffer_bytes_max`] in these tests, in bytes.
const BUFFER_BYTES_MAX: usize = 32 << 20;

/// Most bytes that a server takes apart from its buffers and its connections: its threads, the
/// allocator, a request and a reply in execution.
const OVERHEAD_BYTES_MAX: usize = 24 << 20;

/// Most bytes of an idle connection.
const IDLE_CONNECTION_BYTES_MAX: usize = 512;

/// Most bytes of a connection whose request is announced only.
const ANNOUNCED_BYTES_MAX: usize = 2 << 10;

/// Bytes that the allocator may take in advance.
const SLACK_BYTES: usize = 1 << 20;

/// Number of clients per protocol.
const CLIENTS: usize = 50;

/// Most idle connections.
const IDLE_CONNECTIONS: usize = 10_000;

/// Length of a value that is requested repeatedly, in bytes.
const VALUE_BYTES: usize = 1 << 20;

/// Lock that lets one test run at a time: they measure the memory of the whole process.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    let guard = TURN.lock();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    // From now on the allocator takes buffers up to this length from the heaps of the threads, as
    // in a process that has served long requests.
    drop(vec![1_u8; 31 << 20]);
    guard
}

/// Returns the anonymous memory of this process, in bytes.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Returns the peak of the memory of this process since `reset_peak`, in bytes.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn server() -> Running {
    let settings = Config {
        buffer_bytes_max: BUFFER_BYTES_MAX,
        output_bytes_max: 4 << 20,
        request_bytes_max: 256 << 20,
        ..config()
    };
    start_with(settings, memory())
}

/// Asserts that memory has grown by at most `most` bytes since it was `before`.
fn assert_bounded(what: &str, before: usize, most: usize) {
    let after = resident_bytes();
    let grown = after.saturating_sub(before);
    println!("{what}: {} KiB before, {} KiB after", before >> 10, after >> 10);
    assert!(grown <= most, "{what}: {grown} bytes, more than {most}");
}

/// Sends as many bytes as the server and the sockets take. The server may have closed the
/// connection.
fn send_as_much_as_goes(client: &mut Client, bytes: usize) {
    /// Number of waits of 1 ms without progress after which no progress is expected.
    const WAIT_MAX: u32 = 5;
    let chunk = [b'x'; 16 << 10];
    client.stream.set_nonblocking(true).unwrap();
    let mut left = bytes;
    let mut patience = WAIT_MAX;
    while left > 0 && patience > 0 {
        match client.stream.write(&chunk[..chunk.len().min(left)]) {
            Ok(sent) => {
                left -= sent;
                patience = WAIT_MAX;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(std::time::Duration::from_millis(1));
                patience -= 1;
            }
            Err(_) => return,
        }
    }
    client.stream.set_nonblocking(false).unwrap();
}

/// Returns beginnings of requests that announce more than they send, by protocol.
fn announcements() -> [(&'static str, Vec<u8>); 8] {
    let mut packet = Packet { opcode: 1, extras: &[0; 8], key: b"k", ..Packet::default() }.bytes();
    packet[8..12].copy_from_slice(&(250u32 << 20).to_be_bytes());
    [
        ("a line without end", b"get ".to_vec()),
        ("text", b"set k 0 0 250000000\r\n".to_vec()),
        ("meta", b"ms k 250000000\r\n".to_vec()),
        ("memcached's binary", packet),
        ("HTTP, a head without end", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec()),
        (
            "HTTP",
            b"PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 250000000\r\n\r\n".to_vec(),
        ),
        (
            "HTTP in chunks",
            b"PUT /k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nf000000\r\n"
                .to_vec(),
        ),
        ("Tokyo Tyrant's", b"\xc8\x10\0\0\0\x01\x0f\0\0\0".to_vec()),
    ]
}

#[test]
fn announced_requests_cost_nothing() {
    let _turn = turn();
    let server = server();
    server.pass();
    let before = resident_bytes();
    let mut clients = Vec::new();
    for (_, announcement) in announcements() {
        for _ in 0..CLIENTS {
            let mut client = server.connect();
            client.send(&announcement);
            clients.push(client);
        }
    }
    server.pass();
    let most = clients.len() * ANNOUNCED_BYTES_MAX + SLACK_BYTES;
    assert_bounded("announced only", before, most);
    server.connect().expect_open();
}

#[test]
fn requests_without_end_cost_no_more_than_the_budget_of_all_buffers() {
    let _turn = turn();
    for (protocol, announcement) in announcements() {
        let server = server();
        server.pass();
        let before = resident_bytes();
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send(&announcement);
            send_as_much_as_goes(client, 4 << 20);
        }
        server.pass();
        assert_bounded(protocol, before, BUFFER_BYTES_MAX + OVERHEAD_BYTES_MAX);
        assert!(server.stat_value("buffer_bytes") <= BUFFER_BYTES_MAX as u64);
        server.connect().expect_open();
        drop(clients);
        server.await_stat_value("buffer_bytes", |bytes| bytes == 0);
    }
}

#[test]
fn replies_left_unread_cost_no_more_than_the_budget_of_all_buffers() {
    let _turn = turn();
    let get = Packet { key: b"k", ..Packet::default() }.bytes();
    for (protocol, request) in [
        ("text, unread", &b"get k\r\n"[..]),
        ("meta, unread", b"mg k v\r\n"),
        ("memcached's binary, unread", &get),
        ("HTTP, unread", b"GET /k HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ("Tokyo Tyrant's, unread", b"\xc8\x30\0\0\0\x01k"),
    ] {
        let server = server();
        let mut other = server.connect();
        other.send(format!("set k 0 0 {VALUE_BYTES}\r\n").as_bytes());
        other.exchange([&[b'x'; VALUE_BYTES][..], b"\r\n"].concat(), b"STORED\r\n");
        let before = resident_bytes();
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send(&request.repeat(100));
        }
        server.pass();
        assert_bounded(protocol, before, BUFFER_BYTES_MAX + OVERHEAD_BYTES_MAX);
        assert!(server.stat_value("buffer_bytes") <= BUFFER_BYTES_MAX as u64);
        other.expect_open();
        drop(clients);
        server.await_stat_value("buffer_bytes", |bytes| bytes == 0);
    }
}

#[test]
fn replies_being_made_cost_no_more_than_the_budget_of_all_buffers() {
    let _turn = turn();
    let key = [b'k'; 60_000];
    let database = memory();
    database.put(b"v", &vec![b'v'; VALUE_BYTES]).unwrap();
    for number in 0..1000u32 {
        database.put(&[&number.to_be_bytes(), &key[..]].concat(), b"").unwrap();
    }
    let get = [&b"get"[..], &b" v".repeat(1000), b"\r\n"].concat();
    let mut get_many = b"\xc8\x31\0\0\x03\xe8".to_vec();
    get_many.extend(b"\0\0\0\x01v".repeat(1000));
    let refusal = b"SERVER_ERROR out of memory writing get response\r\n";
    for (what, request, reply) in [
        ("text", &get[..], &refusal[..]),
        ("a list of keys", b"lru_crawler metadump all\r\n", refusal),
        ("Tokyo Tyrant's", &get_many, b"\x01"),
        // A status of failure would be an empty list.
        ("a list of Tokyo Tyrant's", b"\xc8\x58\0\0\0\0\x7f\xff\xff\xff", b""),
    ] {
        let settings = Config { buffer_bytes_max: BUFFER_BYTES_MAX, pool_threads: 8, ..config() };
        let server = start_with(settings, database.clone());
        server.pass();
        reset_peak();
        let before = peak_bytes();
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send(request);
        }
        for client in &mut clients {
            match reply {
                b"" => client.expect_close(),
                reply => client.expect(reply),
            }
        }
        let grown = peak_bytes() - before;
        println!("{what}: {} KiB at most", grown >> 10);
        assert!(grown <= BUFFER_BYTES_MAX + OVERHEAD_BYTES_MAX, "{what}: {grown} bytes");
        server.connect().expect_open();
        assert_eq!(server.stat_value("buffer_bytes"), 0);
    }
}

#[test]
fn a_reply_is_charged_while_it_is_made_from_a_mebibyte_on() {
    const STEP: usize = 1 << 20;
    const AROUND: usize = b"VALUE k 0 1234567\r\n\r\n".len();
    let _turn = turn();
    for (bytes, buffer_bytes_max, succeeds) in
        [(STEP, 2 * STEP - 1, true), (STEP + 1, 2 * STEP - 1, false), (STEP + 1, 2 * STEP, true)]
    {
        let database = memory();
        database.put(b"k", &vec![b'v'; bytes - AROUND]).unwrap();
        let server = start_with(Config { buffer_bytes_max, ..config() }, database);
        let mut client = server.connect();
        client.send(b"get k\r\n");
        let line = client.read_until(b"\r\n");
        assert_eq!(line.starts_with(b"VALUE "), succeeds, "{}", line.escape_ascii());
    }
}

#[test]
fn idle_connections_cost_little() {
    let _turn = turn();
    // Each connection takes a descriptor of the client and one of the server.
    let spare = 200;
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) as usize;
    let count = IDLE_CONNECTIONS.min(descriptors.saturating_sub(spare) / 2);
    assert!(count >= 100, "{descriptors} descriptors");
    let server = server();
    let mut other = server.connect();
    other.exchange(b"set k 0 0 1\r\nv\r\n", b"STORED\r\n");
    let before = resident_bytes();
    let mut clients: Vec<Client> = (0..count).map(|_| server.connect()).collect();
    // Each connection has been used once.
    let get = Packet { key: b"k", ..Packet::default() };
    for (place, client) in clients.iter_mut().enumerate() {
        match place % 4 {
            0 => client.exchange(b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n"),
            1 => assert_eq!(client.ask(&get).value, b"v"),
            2 => client.exchange(b"\xc8\x30\0\0\0\x01k", b"\0\0\0\0\x01v"),
            _ => {
                client.send(b"GET /k HTTP/1.1\r\nHost: localhost\r\n\r\n");
                client.read_until(b"\r\n\r\nv");
            }
        }
    }
    assert_eq!(server.stat_value("curr_connections"), count as u64 + 2);
    assert_eq!(server.stat_value("buffer_bytes"), 0);
    let what = format!("{count} idle connections");
    assert_bounded(&what, before, count * IDLE_CONNECTION_BYTES_MAX + SLACK_BYTES);
    other.expect_open();
}
