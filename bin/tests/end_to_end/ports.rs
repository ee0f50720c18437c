//! Ports for servers under test, of which no other test gets one. The suites of `cargo xtask` have
//! them from here too.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of ports to choose from, below the range of clients' ports. A port in that range could
/// connect to itself if it is tried before the server listens.
const PORTS: u32 = 20_000;

/// Returns an unused port. No other test gets it, as long as this program runs: a restarted server
/// finds its port free.
pub(crate) fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    static RESERVED: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());
    // Concurrent test programs begin at different ports.
    let first = std::process::id().wrapping_mul(97);
    for _ in 0..PORTS {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + (first.wrapping_add(tried) % PORTS) as u16;
        // A name of which there is one per network, as of a port.
        let name = format!("tyrant-test-port-{port}");
        let name = SocketAddr::from_abstract_name(name).expect("a short name");
        let Ok(reservation) = UnixDatagram::bind_addr(&name) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            RESERVED.lock().expect("no panic").push(reservation);
            return port;
        }
    }
    panic!("no port is free");
}
