//! Server addresses: parses `host:port` and the paths of Unix sockets.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::Error;

/// Default TCP port of a server.
const DEFAULT_PORT: u16 = 1978;

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp {
        /// Name or IP address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = Error;

    /// Parses `host:port` as Tokyo Tyrant writes it. Text from a `#` on is ignored. The default
    /// port is 1978 and the default host 127.0.0.1. IPv6 addresses are in brackets. Text that
    /// contains a slash is the path of a Unix socket.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.contains('/') {
            return Ok(Address::Unix(text.into()));
        }
        let text = text.split_once('#').map_or(text, |(text, _)| text);
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => {
                (host, Some(port.strip_prefix(':').ok_or(Error::InvalidOperation)?))
            }
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => port.parse().map_err(|_| Error::InvalidOperation)?,
        };
        let host = if host.is_empty() { "127.0.0.1" } else { host };
        Ok(Address::Tcp { host: host.into(), port })
    }
}

impl fmt::Display for Address {
    /// Writes the address so that it is parsed again.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => {
                write!(formatter, "[{host}]:{port}")
            }
            Address::Tcp { host, port } => write!(formatter, "{host}:{port}"),
            Address::Unix(path) => {
                let path = path.display().to_string();
                let folder = if path.contains('/') { "" } else { "./" };
                write!(formatter, "{folder}{path}")
            }
        }
    }
}

impl From<(&str, u16)> for Address {
    fn from((host, port): (&str, u16)) -> Self {
        Address::Tcp { host: host.into(), port }
    }
}

impl From<&Path> for Address {
    fn from(path: &Path) -> Self {
        Address::Unix(path.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokyo_tyrant_address_expressions_are_parsed() {
        for (text, host, port) in [
            ("example.org:1979", "example.org", 1979),
            ("example.org", "example.org", 1978),
            (":1979", "127.0.0.1", 1979),
            ("", "127.0.0.1", 1978),
            ("example.org:1979#weight=1", "example.org", 1979),
            ("[::1]:1979", "::1", 1979),
            ("[::1]", "::1", 1978),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address, Address::from((host, port)), "{text}");
            assert_eq!(address.to_string().parse::<Address>().unwrap(), address, "{text}");
        }
        let unix: Address = "./socket".parse().unwrap();
        assert_eq!(unix, Address::from(Path::new("./socket")));
        assert_eq!(Address::from(Path::new("socket")).to_string(), "./socket");
    }

    #[test]
    fn invalid_ports_are_rejected() {
        for text in ["host:", "host:x", "host:65536", "host:-1", "[::1]1978", "::1"] {
            assert!(matches!(text.parse::<Address>(), Err(Error::InvalidOperation)), "{text}");
        }
    }
}
