//! A minimal memcached client for the tests.

use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longest silence of a server before it counts as hung.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Most bytes searched at once.
const READ_BYTES: usize = 64 << 10;

pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends one or more requests.
    pub(crate) fn send(&mut self, requests: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(requests).context("cannot send")
    }

    /// Reads one line of a response, without its end.
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).context("no answer")?;
        let Some(line) = line.strip_suffix("\r\n") else { bail!("half an answer: {line:?}") };
        Ok(line.to_owned())
    }

    /// Reads `bytes` bytes of a response.
    pub(crate) fn read(&mut self, bytes: usize) -> Result<Vec<u8>> {
        let mut received = vec![0; bytes];
        self.stream.read_exact(&mut received).context("half an answer")?;
        Ok(received)
    }

    /// Returns whether the server has closed the connection. Blocks until it is known.
    pub(crate) fn is_at_end(&mut self) -> Result<bool> {
        Ok(self.stream.fill_buf().context("no answer")?.is_empty())
    }

    /// Reads up to and including `end`.
    pub(crate) fn read_until(&mut self, end: &[u8]) -> Result<Vec<u8>> {
        let mut received = Vec::new();
        while !received.windows(end.len()).rev().take(READ_BYTES).any(|window| window == end) {
            let arrived = self.stream.fill_buf().context("no answer")?;
            ensure!(
                !arrived.is_empty(),
                "the connection was closed after {:?}",
                received.escape_ascii().to_string()
            );
            let bytes = arrived.len().min(READ_BYTES - end.len());
            received.extend_from_slice(&arrived[..bytes]);
            self.stream.consume(bytes);
        }
        Ok(received)
    }

    /// Stores a value. Returns the response line.
    pub(crate) fn set(&mut self, key: &str, value: &[u8]) -> Result<String> {
        self.send(&set_request(key, value))?;
        self.line()
    }

    /// Removes a record. Returns the response line.
    pub(crate) fn delete(&mut self, key: &str) -> Result<String> {
        self.send(&delete_request(key))?;
        self.line()
    }

    /// Returns the value of a key.
    pub(crate) fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        self.send(format!("get {key}\r\n").as_bytes())?;
        let line = self.line()?;
        if line == "END" {
            return Ok(None);
        }
        let size = line.rsplit(' ').next().and_then(|size| size.parse::<usize>().ok());
        let Some(size) = size.filter(|_| line.starts_with(&format!("VALUE {key} "))) else {
            bail!("get answered {line:?}");
        };
        let mut value = vec![0; size + b"\r\nEND\r\n".len()];
        self.stream.read_exact(&mut value).context("half a value")?;
        ensure!(value.ends_with(b"\r\nEND\r\n"), "the value of {key} has another length");
        value.truncate(size);
        Ok(Some(value))
    }
}

pub(crate) fn set_request(key: &str, value: &[u8]) -> Vec<u8> {
    let head = format!("set {key} 0 0 {}\r\n", value.len());
    [head.as_bytes(), value, b"\r\n"].concat()
}

pub(crate) fn delete_request(key: &str) -> Vec<u8> {
    format!("delete {key}\r\n").into_bytes()
}
