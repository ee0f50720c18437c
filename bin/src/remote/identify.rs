//! Identification of a server that does not speak Tokyo Tyrant's protocol.

use client::Address;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use wire::http::reply;

/// Longest wait for each step.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most bytes of the reply that are looked at.
const REPLY_BYTES_MAX: usize = 512;

/// A line that servers of several protocols answer.
const QUESTION: &[u8] = b"version\r\n";

/// A request of Redis's protocol that takes no login of most servers.
const REDIS_QUESTION: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// A server that does not talk without TLS.
pub(super) const EXPECTS_TLS: &str = "a server that expects TLS";

/// The listener of a tyrant server for metrics, which has no records.
pub(super) const ADMIN_LISTENER: &str = "the admin listener of a tyrant server";

/// Returns what the server at an address is, if it is not a tyrant server and its reply to a line
/// of text reveals it.
pub(super) fn other_server(address: &Address) -> Option<&'static str> {
    name(&reply_of(address, QUESTION)?)
}

/// Returns whether the server at an address speaks Redis's protocol without TLS.
pub(super) fn speaks_redis(address: &Address) -> bool {
    let reply = reply_of(address, REDIS_QUESTION).unwrap_or_default();
    reply.starts_with(b"+PONG") || reply.starts_with(b"-NOAUTH")
}

/// Returns the beginning of the reply of the server at an address to a question.
fn reply_of(address: &Address, question: &[u8]) -> Option<Vec<u8>> {
    let reply = match address {
        Address::Tcp { host, port } => {
            let address = (host.as_str(), *port).to_socket_addrs().ok()?.next()?;
            let stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
            stream.set_read_timeout(Some(PATIENCE)).ok()?;
            stream.set_write_timeout(Some(PATIENCE)).ok()?;
            ask(stream, question)
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).ok()?;
            stream.set_read_timeout(Some(PATIENCE)).ok()?;
            stream.set_write_timeout(Some(PATIENCE)).ok()?;
            ask(stream, question)
        }
    };
    Some(reply)
}

/// Returns the beginning of the reply.
fn ask(mut stream: impl Read + Write, question: &[u8]) -> Vec<u8> {
    let mut reply = vec![0; REPLY_BYTES_MAX];
    let received = stream.write_all(question).and_then(|()| stream.read(&mut reply));
    reply.truncate(received.unwrap_or(0));
    reply
}

fn name(answer: &[u8]) -> Option<&'static str> {
    let begins = |text: &[u8]| answer.starts_with(text);
    if begins(b"VERSION ") {
        let is_tyrant = answer.windows(6).any(|window| window == b"tyrant");
        return (!is_tyrant).then_some("a memcached server");
    }
    // An alert or a handshake of TLS, or the refusal of a tyrant server.
    if begins(&[0x15, 3]) || begins(&[0x16, 3]) || begins(b"SERVER_ERROR this port requires TLS") {
        return Some(EXPECTS_TLS);
    }
    let admin = format!("\r\nServer: {}\r\n", reply::ADMIN_LISTENER);
    if begins(b"HTTP/") && answer.windows(admin.len()).any(|window| window == admin.as_bytes()) {
        return Some(ADMIN_LISTENER);
    }
    [
        (&b"-"[..], "a Redis server"),
        (b"HTTP/", "a web server"),
        (b"<", "a web server"),
        (b"SSH-", "an SSH server"),
        (b"220", "a mail or FTP server"),
    ]
    .into_iter()
    .find_map(|(start, name)| begins(start).then_some(name))
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn servers_are_recognized_by_their_replies() {
        for (reply, expected) in [
            (&b"VERSION 1.6.45\r\n"[..], Some("a memcached server")),
            (b"VERSION 1.6.45-tyrant-0.1.0\r\n", None),
            (b"-ERR unknown command 'version'\r\n", Some("a Redis server")),
            (b"-NOAUTH Authentication required.\r\n", Some("a Redis server")),
            (b"HTTP/1.1 400 Bad Request\r\n", Some("a web server")),
            (
                b"HTTP/1.1 400 Bad Request\r\nContent-Length: 1\r\nServer: tyrant-admin\r\n\r\n",
                Some("the admin listener of a tyrant server"),
            ),
            (b"SSH-2.0-OpenSSH_9.6\r\n", Some("an SSH server")),
            (&[0x15, 3, 1, 0, 2, 2, 70], Some("a server that expects TLS")),
            (b"SERVER_ERROR this port requires TLS\r\n", Some("a server that expects TLS")),
            (b"220 mail.example.org ESMTP\r\n", Some("a mail or FTP server")),
            (b"ERROR\r\n", None),
            (b"", None),
        ] {
            assert_eq!(name(reply), expected, "{}", reply.escape_ascii());
        }
    }
}
