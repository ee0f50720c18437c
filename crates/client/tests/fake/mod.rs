//! Servers of a thread each, with one port and no database.

use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use client::Address;

/// Serves each connection in turn with `serve`, as many as there are.
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
