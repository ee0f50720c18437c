//! TCP sockets of this process, read from the tables of the system. Connections need not keep their
//! addresses.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A TCP socket of this process.
#[derive(Debug)]
pub(crate) struct TcpSocket {
    pub(crate) descriptor: u32,
    pub(crate) local: SocketAddr,
    /// `None` if the socket listens.
    pub(crate) remote: Option<SocketAddr>,
}

/// Returns the sockets in the order of their descriptors, or none if the system has no `/proc`.
pub(crate) fn list() -> Vec<TcpSocket> {
    let mut ends = HashMap::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        ends.extend(text.lines().filter_map(parse_line));
    }
    let mut sockets: Vec<TcpSocket> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let descriptor = entry.file_name().to_str()?.parse().ok()?;
            let target = std::fs::read_link(entry.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            let (local, remote) = *ends.get(&inode.parse::<u64>().ok()?)?;
            Some(TcpSocket { descriptor, local, remote })
        })
        .collect();
    sockets.sort_by_key(|socket| socket.descriptor);
    sockets
}

/// Returns the inode of a line, and the local and remote address.
fn parse_line(line: &str) -> Option<(u64, (SocketAddr, Option<SocketAddr>))> {
    /// State of a listening socket.
    const LISTENS: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, local, remote, state, _, _, _, _, _, inode, ..] = fields[..] else { return None };
    let remote = if state == LISTENS { None } else { Some(address(remote)?) };
    Some((inode.parse().ok()?, (address(local)?, remote)))
}

/// Parses an address: hexadecimal words of 32 bits in the processor's byte order, a colon, a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for start in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(start..start + 8)?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    let address = match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(bytes) => IpAddr::V4(Ipv4Addr::from(bytes)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
    };
    Some(SocketAddr::new(address.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn listeners_and_both_ends_of_a_connection_are_listed() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else { continue };
            let address = listener.local_addr().expect("an address");
            let client = TcpStream::connect(address).expect("a connection");
            let client_address = client.local_addr().expect("an address");
            let _accepted = listener.accept().expect("a connection");
            let sockets = list();
            let has = |local, remote| {
                sockets.iter().any(|one| one.local == local && one.remote == remote)
            };
            assert!(has(address, None), "{sockets:?}");
            assert!(has(address, Some(client_address)), "{sockets:?}");
            assert!(has(client_address, Some(address)), "{sockets:?}");
        }
    }
}
