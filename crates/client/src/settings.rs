//! How patient a client is.

use std::time::Duration;

use crate::limits::RESPONSE_BYTES_MAX;

/// How long a client waits and how much it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Longest wait for a connection, for each address a host name stands for. Connecting to a
    /// Unix socket does not wait.
    pub connect_timeout: Duration,
    /// Longest wait for the next bytes of a response; `None` waits as long as the connection
    /// lives.
    pub read_timeout: Option<Duration>,
    /// Longest wait for the server to take more bytes.
    pub write_timeout: Option<Duration>,
    /// Most memory that the response to one request, or all the responses to one pipeline, may
    /// take, in bytes.
    pub response_bytes_max: usize,
}

impl Default for Settings {
    /// 10 seconds to connect, 60 to read or write, [`RESPONSE_BYTES_MAX`].
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            read_timeout: Some(Duration::from_secs(60)),
            write_timeout: Some(Duration::from_secs(60)),
            response_bytes_max: RESPONSE_BYTES_MAX,
        }
    }
}
