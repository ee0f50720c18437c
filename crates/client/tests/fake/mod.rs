//! Fake servers: one thread and one port each, without a database.

#![allow(dead_code, reason = "every test file uses another part")]
#![allow(clippy::allow_attributes, reason = "an expectation would fail where all is used")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use client::{Address, Client};

/// Starts a server that handles one connection per element of `serve`, one after the other.
pub(crate) fn server<F>(serve: Vec<F>) -> (Address, JoinHandle<()>)
where
    F: FnOnce(TcpStream) + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let thread = thread::spawn(move || {
        for serve in serve {
            let (stream, _) = listener.accept().expect("a connection");
            stream.set_nodelay(true).expect("an open socket");
            serve(stream);
        }
    });
    (Address::from(("127.0.0.1", port)), thread)
}

/// Plays the server in these exchanges: checks each request byte for byte, then responds.
fn play(exchanges: Vec<(Vec<u8>, Vec<u8>)>) -> impl FnOnce(TcpStream) + Send {
    move |mut stream| {
        for (request, response) in exchanges {
            let mut received = vec![0; request.len()];
            stream.read_exact(&mut received).expect("a request");
            assert_eq!(received, request);
            stream.write_all(&response).expect("a sent response");
        }
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the end");
        assert_eq!(rest, b"", "more than was expected");
    }
}

/// Runs `commands` against a server that expects these exchanges.
pub(crate) fn exchange(exchanges: Vec<(Vec<u8>, Vec<u8>)>, commands: impl FnOnce(&Client)) {
    let (address, thread) = server(vec![play(exchanges)]);
    let client = Client::connect(address).expect("a connection");
    commands(&client);
    drop(client);
    thread.join().expect("a server that saw what it expected");
}
