//! Connections to a running server.

use anyhow::{Context, Result};
use client::{Address, Client, Error, Settings};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the address of the server at `host` and `port`. With a port of 0 or less, `host` is the
/// path of a Unix socket.
pub(crate) fn address(host: &[u8], port: i32) -> Result<Address> {
    if port <= 0 {
        return Ok(Path::new(OsStr::from_bytes(host)).into());
    }
    let port = u16::try_from(port).with_context(|| format!("invalid port {port}"))?;
    let host = std::str::from_utf8(host).context("the host is not UTF-8")?;
    Ok((host, port).into())
}

/// Connects to the server at `HOST:PORT`, or at a path that contains a slash.
pub(crate) fn connect_to(server: &str) -> Result<Client> {
    let address = server
        .parse()
        .with_context(|| format!("{server:?} is neither HOST:PORT nor the path of a socket"))?;
    open(address)
}

/// Connects to a server, without a read timeout.
///
/// Some responses take very long, such as that to optimizing a large database.
pub(crate) fn open(address: Address) -> Result<Client> {
    let settings = Settings { read_timeout: None, ..Settings::default() };
    Ok(Client::connect_with(address, settings)?)
}

/// Returns a value of a server's `stat`, if it has that name.
pub(crate) fn stat_value(client: &Client, name: &str) -> Result<Option<String>> {
    let text = String::from_utf8(client.stat()?).context("the status is not UTF-8")?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    Ok(value.map(str::to_owned))
}

/// Adds the server's own reason to an error, if the server has one: the protocol cannot express it.
pub(crate) fn with_reason(client: &Client, error: anyhow::Error) -> anyhow::Error {
    let Some(Error::Miscellaneous) = error.downcast_ref() else { return error };
    let nothing: [&[u8]; 0] = [];
    match client.misc(b"error", 0, &nothing).ok().and_then(|answer| answer.into_iter().next()) {
        Some(reason) if !reason.starts_with(b"0:") => {
            anyhow::anyhow!("{error:#} ({})", String::from_utf8_lossy(&reason))
        }
        _ => error,
    }
}
