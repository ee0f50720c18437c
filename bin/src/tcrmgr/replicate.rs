//! `repl`: prints the log entries that a master sends to its replicas.

use super::arguments::Invocation;
use super::manage::{address, reconnect, timestamp_us};
use super::text::number;
use crate::remote;
use crate::updates::write_line;
use anyhow::{Context, Result};
use client::{Error, Settings, UpdateStream};
use std::io::{self, ErrorKind, Write};
use std::time::Duration;
use wire::update_log::{Entry, Message};

/// Default id in the request.
const SERVER_ID: i32 = i32::MAX;

/// Longest silence of a master, which sends a heartbeat every second.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Prints the log entries until the master ends: as lines with `-ph`, else in the format of the log
/// files.
pub(super) fn replicate(invocation: &Invocation, output: &mut dyn Write) -> Result<()> {
    let (address, _) = address(invocation)?;
    let own_id = match invocation.value("-sid") {
        Some(id) => number(id.as_encoded_bytes())?,
        None => SERVER_ID,
    };
    let from_us = timestamp_us(invocation)?.max(1);
    let settings =
        Settings { read_timeout: Some(SILENCE_MAX), ..remote::settings_of_environment()? };
    let own_id = u32::try_from(own_id).context("-sid is below 0")?;
    let mut updates = UpdateStream::open(&address, &settings, from_us, own_id)?;
    let master = updates.server_id().map_err(|error| refused(error, from_us))?;
    let no_id = || io::Error::new(ErrorKind::InvalidData, "the master has no id of a server");
    let master = u16::try_from(master).map_err(|_| Error::Receive(no_id()))?;
    let mut bytes = Vec::new();
    loop {
        if !updates.has_next() {
            output.flush()?;
        }
        let Message::Update { timestamp_us, origin, body } = updates.next()? else { continue };
        let origin = u16::try_from(origin).context("an update has no id of a server")?;
        let entry = Entry { timestamp_us, origin, master, body };
        if invocation.has("-ph") {
            write_line(&entry, output)?;
        } else {
            bytes.clear();
            // It was received within the limit.
            if entry.encode(&mut bytes).is_ok() {
                output.write_all(&bytes)?;
            }
        }
    }
}

/// Returns the error of a stream that the master has ended at once, with its reason if it has one.
fn refused(error: Error, from_us: u64) -> Error {
    match (&error, reconnect()) {
        (Error::Receive(cause), Some(Ok(server))) if cause.kind() == ErrorKind::UnexpectedEof => {
            let reason = server.without_updates("repl", from_us).to_string();
            Error::Receive(io::Error::other(reason))
        }
        _ => error,
    }
}
