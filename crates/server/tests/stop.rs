//! Stop: connections finish what they asked, and the server ends in a bounded time.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use server::{Config, Error, Server};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;
use support::{WAIT_MAX, config, memory, start_with};

fn send(mut stream: &TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
}

/// Returns everything until the end of the stream.
fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_request_that_has_begun_is_finished_and_an_idle_connection_ends_at_once() {
    let config = Config { stop_wait: WAIT_MAX, ..config() };
    let server = start_with(config, memory());
    let connect = || {
        let stream = TcpStream::connect(server.address).unwrap();
        send(&stream, b"set k 0 0 1\r\na\r\n");
        (&stream).read_exact(&mut [0; 8]).unwrap();
        stream
    };
    let (idle, begun, upload) = (connect(), connect(), connect());
    send(&begun, b"get k\r\nset k 0 0 5\r\nab");
    // The reply shows that the part after it has arrived too.
    (&begun).read_exact(&mut [0; 21]).unwrap();
    let head = "PUT /u HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2097152\r\n";
    send(&upload, format!("{head}Expect: 100-continue\r\n\r\n").as_bytes());
    (&upload).read_exact(&mut [0; 25]).unwrap();

    server.handle.stop();
    assert_eq!(rest(idle), "");
    send(&begun, b"cde\r\nget k\r\n");
    assert_eq!(rest(begun), "STORED\r\nVALUE k 0 5\r\nabcde\r\nEND\r\n");
    send(&upload, &vec![b'x'; 2 << 20]);
    assert!(rest(upload).starts_with("HTTP/1.1 201 Created\r\n"));
    TcpStream::connect(server.address).unwrap_err();
}

#[test]
fn a_request_that_never_arrives_ends_with_the_wait() {
    let config = Config { stop_wait: Duration::from_millis(50), ..config() };
    let server = start_with(config, memory());
    let stream = TcpStream::connect(server.address).unwrap();
    send(&stream, b"get k\r\nset k 0 0 5\r\nab");
    (&stream).read_exact(&mut [0; 5]).unwrap();
    server.handle.stop();
    assert_eq!(rest(stream), "");
}

#[test]
fn inherited_sockets_are_served_and_keep_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let sockets = vec![tcp.into(), UnixListener::bind(&path).unwrap().into()];
    let server = Server::inherit(config(), memory(), sockets).unwrap();
    let handle = server.handle();
    let thread = std::thread::spawn(move || server.run());
    let get = |mut stream: Box<dyn ReadWrite>| {
        stream.write_all(b"get k\r\n").unwrap();
        let mut reply = [0; 5];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"END\r\n");
    };
    get(Box::new(TcpStream::connect(address).unwrap()));
    get(Box::new(UnixStream::connect(&path).unwrap()));
    assert!(handle.responds_within(WAIT_MAX));
    handle.stop();
    thread.join().unwrap().unwrap();
    assert!(path.exists());

    let connected =
        TcpStream::connect(TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let refused = Server::inherit(config(), memory(), vec![connected.unwrap().into()]);
    assert!(matches!(refused, Err(Error::System { .. })));
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}
