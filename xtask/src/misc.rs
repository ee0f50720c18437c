//! A minimal client of the functions of Tokyo Tyrant's protocol.

use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longest silence of a server.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Longest element of a reply, in bytes.
const ELEMENT_BYTES_MAX: usize = 1 << 20;

/// First bytes of a call.
const CALL: [u8; 2] = [0xc8, 0x90];

/// Returns the request that calls a function.
pub(crate) fn request(name: &str, arguments: &[&[u8]]) -> Vec<u8> {
    let mut request = CALL.to_vec();
    for number in [name.len(), 0, arguments.len()] {
        request.extend((number as u32).to_be_bytes());
    }
    request.extend(name.as_bytes());
    for argument in arguments {
        request.extend((argument.len() as u32).to_be_bytes());
        request.extend(*argument);
    }
    request
}

/// A connection.
pub(crate) struct Misc(TcpStream);

impl Misc {
    pub(crate) fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self(stream))
    }

    /// Calls a function. Returns `None` if the function has failed. Fails if the server closes the
    /// connection.
    pub(crate) fn try_to_call(
        &mut self,
        name: &str,
        arguments: &[&[u8]],
    ) -> std::io::Result<Option<Vec<Vec<u8>>>> {
        self.0.write_all(&request(name, arguments))?;
        let mut status = [0];
        self.0.read_exact(&mut status)?;
        let mut elements = Vec::new();
        for _ in 0..self.number()? {
            let length = self.number()?;
            if length > ELEMENT_BYTES_MAX {
                return Err(std::io::Error::other(format!("an element of {length} bytes")));
            }
            let mut element = vec![0; length];
            self.0.read_exact(&mut element)?;
            elements.push(element);
        }
        Ok((status == [0]).then_some(elements))
    }

    /// Calls a function, which must succeed.
    pub(crate) fn call(&mut self, name: &str, arguments: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        let shown = || {
            let each = arguments.iter().map(|argument| argument.escape_ascii().to_string());
            format!("{name} {}", each.collect::<Vec<_>>().join(" "))
        };
        let reply = self.try_to_call(name, arguments).with_context(shown)?;
        reply.with_context(|| format!("{} has failed", shown()))
    }

    /// Returns the rows of a search, each as its key and the columns with NUL between them, in the
    /// order of their bytes, and how they were found.
    pub(crate) fn search(&mut self, conditions: &[&[u8]]) -> Result<(Vec<Vec<u8>>, String)> {
        let arguments = [conditions, &[b"get", b"hint"]].concat();
        let mut rows = self.call("search", &arguments)?;
        let hint = rows.pop().context("a search without a hint")?;
        let hint = String::from_utf8_lossy(&hint).into_owned();
        ensure!(hint.contains("[[HINT]]"), "a search without a hint: {hint}");
        rows.sort_unstable();
        Ok((rows, hint))
    }

    fn number(&mut self) -> std::io::Result<usize> {
        let mut number = [0; 4];
        self.0.read_exact(&mut number)?;
        Ok(u32::from_be_bytes(number) as usize)
    }
}
