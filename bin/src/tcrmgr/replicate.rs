//! `repl`: prints the log entries that a master sends to its replicas.

use super::arguments::Invocation;
use super::manage::{address, timestamp_us};
use super::text::number;
use crate::updates::write_line;
use anyhow::{Context, Result};
use client::{Settings, UpdateStream};
use std::io::Write;
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
    let settings = Settings { read_timeout: Some(SILENCE_MAX), ..Settings::default() };
    let own_id = u32::try_from(own_id).context("-sid is below 0")?;
    let mut updates = UpdateStream::open(&address, &settings, from_us, own_id)?;
    let master = u16::try_from(updates.server_id()?).context("the master has no id of a server")?;
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
