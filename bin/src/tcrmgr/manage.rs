//! Sub-commands on the whole database and on the server: `inform`, `sync`, `optimize`, `vanish`,
//! `copy`, `restore`, `setmst`, `version`.

use super::arguments::Invocation;
use super::text::number;
use crate::remote::{self, Server};
use crate::time::now_us;
use anyhow::Result;
use client::{Address, Client, Settings};
use std::io::Write;
use std::sync::OnceLock;
use std::time::Duration;

/// Default port.
const PORT: u16 = 1978;

/// Bit of the options of `restore` and `setmst`: check consistency.
const CHECK: u32 = 1;

/// Longest wait for each reply of a server that has failed a command.
const PATIENCE: Duration = Duration::from_secs(5);

/// Server of the process, which asks at the end why a command has failed.
static ADDRESS: OnceLock<Address> = OnceLock::new();

/// Connection to that server.
static CLIENT: OnceLock<Client> = OnceLock::new();

/// Connects to the server of the first operand. Returns the client and the other operands. With a
/// port of 0 or less the operand is the path of a Unix socket.
pub(super) fn connect(invocation: &Invocation) -> Result<(&'static Client, &[Vec<u8>])> {
    let (address, operands) = address(invocation)?;
    let settings = Settings { read_timeout: None, ..remote::settings_of_environment()? };
    let client = Client::connect_with(address, settings)?;
    Ok((CLIENT.get_or_init(|| client), operands))
}

/// Returns the server's code and reason of the last failure, if it has them.
pub(super) fn last_failure() -> Option<(String, String)> {
    remote::last_failure(CLIENT.get()?)
}

/// Connects to the server again as the commands of `tyrant` do, whose error tells what the server
/// requires. Returns `None` before the server is known.
pub(super) fn reconnect() -> Option<Result<Server>> {
    let address = ADDRESS.get()?.to_string();
    let connect = |settings| Server::connect_within(&address, &settings, PATIENCE);
    Some(remote::settings_of_environment().and_then(connect))
}

/// Returns the address of that server, and the other operands.
pub(super) fn address(invocation: &Invocation) -> Result<(Address, &[Vec<u8>])> {
    let (host, operands) =
        invocation.operands.split_first().ok_or_else(|| anyhow::anyhow!("no host is given"))?;
    let port = match invocation.value("-port") {
        Some(port) => number(port.as_encoded_bytes())?,
        None => PORT.into(),
    };
    let address = remote::address(host, port)?;
    Ok((ADDRESS.get_or_init(|| address).clone(), operands))
}

pub(super) fn inform(invocation: &Invocation, output: &mut dyn Write) -> Result<()> {
    let (client, _) = connect(invocation)?;
    if invocation.has("-st") {
        output.write_all(&client.stat()?)?;
        return Ok(());
    }
    writeln!(output, "record number: {}", client.count()?)?;
    writeln!(output, "file size: {}", client.size()?)?;
    Ok(())
}

pub(super) fn sync(invocation: &Invocation, _output: &mut dyn Write) -> Result<()> {
    Ok(connect(invocation)?.0.sync()?)
}

pub(super) fn optimize(invocation: &Invocation, _output: &mut dyn Write) -> Result<()> {
    let (client, operands) = connect(invocation)?;
    Ok(client.optimize(operands.first().map_or(&[], Vec::as_slice))?)
}

pub(super) fn vanish(invocation: &Invocation, _output: &mut dyn Write) -> Result<()> {
    Ok(connect(invocation)?.0.vanish()?)
}

pub(super) fn copy(invocation: &Invocation, _output: &mut dyn Write) -> Result<()> {
    let (client, operands) = connect(invocation)?;
    Ok(client.copy(&operands[0])?)
}

pub(super) fn restore(invocation: &Invocation, _output: &mut dyn Write) -> Result<()> {
    let (client, operands) = connect(invocation)?;
    Ok(client.restore(&operands[0], timestamp_us(invocation)?, check(invocation))?)
}

/// Sets the master. Without a host the server stops following one. (Tokyo Tyrant's tool crashes.)
pub(super) fn set_master(invocation: &Invocation, _output: &mut dyn Write) -> Result<()> {
    let (client, operands) = connect(invocation)?;
    let given = operands.first().map_or(&b""[..], Vec::as_slice);
    let (host, port) = match given.iter().rposition(|byte| *byte == b':') {
        Some(colon) => (&given[..colon], Some(&given[colon + 1..])),
        None => (given, None),
    };
    let port = match (port, invocation.value("-mport")) {
        (Some(port), _) => number(port)?,
        (None, Some(port)) => number(port.as_encoded_bytes())?,
        (None, None) if host.is_empty() => 0,
        (None, None) => PORT,
    };
    Ok(client.set_master(host, port, timestamp_us(invocation)?, check(invocation))?)
}

pub(super) fn version(_invocation: &Invocation, output: &mut dyn Write) -> Result<()> {
    writeln!(output, "{}", crate::version_line())?;
    Ok(())
}

fn check(invocation: &Invocation) -> u32 {
    if invocation.has("-rcc") { CHECK } else { 0 }
}

/// Returns `-ts`: microseconds since the Unix epoch; `now` and negative numbers are the current
/// time.
pub(super) fn timestamp_us(invocation: &Invocation) -> Result<u64> {
    match invocation.value("-ts") {
        None => Ok(0),
        Some(text) if text == "now" => Ok(now_us()),
        Some(text) => {
            let given: i64 = number(text.as_encoded_bytes())?;
            Ok(u64::try_from(given).unwrap_or_else(|_| now_us()))
        }
    }
}
