//! Sockets: endpoints, start and stop of a server.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use server::{Config, Endpoint, Error, Server};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use support::{config, memory, start, start_with};

fn tcp(host: Option<&str>, port: u16) -> Endpoint {
    Endpoint::Tcp { host: host.map(str::to_owned), port }
}

fn speaks(mut stream: impl Read + Write) -> bool {
    stream.write_all(b"verbosity 1\r\n").unwrap();
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).is_ok() && reply == *b"OK\r\n"
}

fn system_has_v6() -> bool {
    TcpListener::bind("[::1]:0").is_ok()
}

#[test]
fn one_endpoint_without_a_host_serves_both_families() {
    let server = start_with(Config { listen: vec![tcp(None, 0)], ..config() }, memory());
    let port = server.address.port();
    assert!(speaks(TcpStream::connect(("127.0.0.1", port)).unwrap()));
    assert!(!system_has_v6() || speaks(TcpStream::connect(("::1", port)).unwrap()));
}

#[test]
fn a_host_may_be_a_name_or_an_address_of_either_family() {
    for host in ["localhost", "127.0.0.1", "::1"] {
        if host.contains(':') && !system_has_v6() {
            continue;
        }
        let server = start_with(Config { listen: vec![tcp(Some(host), 0)], ..config() }, memory());
        assert!(speaks(TcpStream::connect(server.address).unwrap()), "{host}");
    }
}

#[test]
fn a_server_may_listen_on_several_endpoints() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listen =
        vec![tcp(Some("127.0.0.1"), 0), Endpoint::Unix(path.clone()), tcp(Some("127.0.0.1"), 0)];
    let server = Server::bind(Config { listen, ..config() }, memory()).unwrap();
    let (addresses, handle) = (server.local_addresses(), server.handle());
    let thread = std::thread::spawn(move || server.run());
    assert_eq!(addresses.len(), 2);
    for address in addresses {
        assert!(speaks(TcpStream::connect(address).unwrap()));
    }
    assert!(speaks(UnixStream::connect(&path).unwrap()));
    handle.stop();
    thread.join().unwrap().unwrap();
    assert!(!path.exists(), "the file of the socket goes with the server");
}

#[test]
fn the_socket_file_of_a_dead_server_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    drop(UnixListener::bind(&path).unwrap());
    let listen = vec![Endpoint::Unix(path.clone())];
    let _server = start_with(Config { listen, ..config() }, memory());
    assert!(speaks(UnixStream::connect(&path).unwrap()));
}

#[test]
fn the_socket_file_of_a_running_server_and_other_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let _listener = UnixListener::bind(&live).unwrap();
    let other = folder.path().join("other");
    std::fs::write(&other, "precious").unwrap();
    for path in [live, other.clone()] {
        let config = Config { listen: vec![Endpoint::Unix(path.clone())], ..config() };
        let result = Server::bind(config, memory());
        assert!(matches!(result, Err(Error::Listen { .. })));
        assert!(path.exists());
    }
    assert_eq!(std::fs::read(other).unwrap(), b"precious");
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let server = start(memory());
    let listen = vec![tcp(Some("127.0.0.1"), server.address.port())];
    let error = Server::bind(Config { listen, ..config() }, memory()).err().unwrap();
    let expected = format!("cannot listen on {}: ", server.address);
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[test]
fn a_server_without_endpoints_does_not_start() {
    let result = Server::bind(Config { listen: vec![], ..config() }, memory());
    assert!(matches!(result, Err(Error::NoEndpoint)));
}

#[test]
fn requests_of_a_unix_client_that_has_disconnected_are_executed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listen = vec![Endpoint::Unix(path.clone())];
    let database = memory();
    let _server = start_with(Config { listen, ..config() }, database.clone());
    for number in 0..100 {
        let key = format!("{number:03}");
        let mut stream = UnixStream::connect(&path).unwrap();
        let put = [b"\xc8\x18\0\0\0\x03\0\0\0\x01", key.as_bytes(), b"v"].concat();
        stream.write_all(&put).unwrap();
        drop(stream);
        support::wait_until(|| database.get(key.as_bytes()).unwrap().is_some());
    }
}

#[test]
fn a_stopped_server_can_be_started_again_on_the_same_port() {
    let mut first = start(memory());
    let mut client = first.connect();
    client.expect_open();
    first.begin_stop();
    first.join();
    client.expect_close();
    let listen = vec![tcp(Some("127.0.0.1"), first.address.port())];
    let second = start_with(Config { listen, ..config() }, memory());
    second.connect().expect_open();
}

/// Sets a flag on drop.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn connections_are_spread_over_loops_under_load() {
    // Other programs may leave no processor idle.
    let config = Config { threads: 2, processors_idle: || None, ..config() };
    let server = start_with(config, memory());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The flag is set even if the test fails, so that the clients end.
        let _stops = Stops(&stop);
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.connect();
                // A batch that keeps a loop busy nearly all the time.
                let batch = b"incr n 1\r\n".repeat(5_000);
                while !stop.load(Ordering::Relaxed) {
                    client.exchange(&batch, b"NOT_FOUND\r\n".repeat(5_000));
                }
            });
        }
        server.await_stat_value("connections_moved", |moved| moved > 0);
    });
    server.connect().expect_open();
}
