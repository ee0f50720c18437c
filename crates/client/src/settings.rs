//! Settings: timeouts and the memory limit of a client.

use std::time::Duration;

use tls::ClientConfig;

use crate::Credentials;
use crate::limits::RESPONSE_BYTES_MAX;

/// Timeouts and the memory limit of a client, and how it connects.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Longest wait for a connection, per address that a host name resolves to, and for the reply
    /// to a login. Connecting to a
    /// Unix socket does not wait.
    pub connect_timeout: Duration,
    /// Longest wait for the next bytes of a response; `None` waits until the connection ends.
    pub read_timeout: Option<Duration>,
    /// Longest wait for the server to take more bytes.
    pub write_timeout: Option<Duration>,
    /// Most memory for the response to one request, or for all responses to one pipeline, in bytes.
    pub response_bytes_max: usize,
    /// How TCP connections use TLS; `None` is without it. Connections to a Unix socket never do.
    pub tls: Option<ClientConfig>,
    /// User of the connection; `None` does not log in.
    pub login: Option<Credentials>,
    /// Whether a login may be sent without TLS to another machine, where anyone in between reads
    /// the password. Without it, that fails with [`Error::PlainLogin`](crate::Error::PlainLogin).
    pub allows_plain_login: bool,
}

impl Default for Settings {
    /// 10 seconds to connect, 60 seconds to read or write, [`RESPONSE_BYTES_MAX`].
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            read_timeout: Some(Duration::from_secs(60)),
            write_timeout: Some(Duration::from_secs(60)),
            response_bytes_max: RESPONSE_BYTES_MAX,
            tls: None,
            login: None,
            allows_plain_login: false,
        }
    }
}
