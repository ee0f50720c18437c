//! `tyrant slow`: prints the last slow requests of a server, and where their time went.

use super::Run;
use crate::bytes::escaped;
use crate::output::{AsJson, write_json};
use crate::remote::Server;
use crate::time::format_time;
use anyhow::{Context, Result};
use serde_json::Value as Json;
use std::io::Write;

/// The versatile function that returns them.
const FUNCTION: &[u8] = b"slow";

/// Parts of the time of a request, with their names for people.
const PARTS: [(&str, &str); 7] = [
    ("queue_seconds", "queue"),
    ("login_seconds", "login"),
    ("store_seconds", "store"),
    ("pieces_seconds", "pieces"),
    ("cpu_seconds", "cpu"),
    ("wait_seconds", "wait"),
    ("acknowledgement_seconds", "acknowledgement"),
];

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print the last slow requests of the server on this machine
  tyrant slow")]
pub(super) struct Slow {
    #[command(flatten)]
    form: AsJson,
}

/// Heading of the lines.
pub(super) fn heading() -> String {
    let (time, seconds, most, command) = ("ENDED AT", "SECONDS", "MOST OF IT", "COMMAND");
    format!("{time:<29}{seconds:<10}{most:<26}{command:<26}KEY")
}

/// Returns the last slow requests of a server, the last one first.
pub(super) fn requests(server: &Server) -> Result<Vec<Json>> {
    let nothing: [&[u8]; 0] = [];
    let requests = server.misc(FUNCTION, 0, &nothing)?;
    if requests.is_empty() {
        server.confirm("slow")?;
    }
    let read = |request: Vec<u8>| serde_json::from_slice(&request);
    requests
        .into_iter()
        .map(read)
        .collect::<Result<_, _>>()
        .context("the server's reply is no JSON")
}

impl Run for Slow {
    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let requests = requests(server)?;
        if !self.form.json && !requests.is_empty() {
            writeln!(output, "{}", heading())?;
        }
        for request in requests {
            match self.form.json {
                true => write_json(&request, output)?,
                false => writeln!(output, "{}", line(&request))?,
            }
        }
        Ok(())
    }
}

/// Returns a request as a line for people.
pub(super) fn line(request: &Json) -> String {
    let text = |name: &str| escaped(request[name].as_str().unwrap_or("").as_bytes());
    let number = |name: &str| request[name].as_f64().unwrap_or(0.0);
    let most = PARTS.into_iter().max_by(|one, other| number(one.0).total_cmp(&number(other.0)));
    let most = most.map_or(String::new(), |(part, name)| format!("{name} {:.6}", number(part)));
    let command = format!("{} {}", text("protocol"), text("command"));
    let (seconds, client) = (number("seconds"), text("client"));
    // The server has escaped the key already. A reply that is none of a server may have anything.
    let key = request["key"].as_str().unwrap_or("").replace(char::is_control, "?");
    let ended = format_time((number("time") * 1e6) as u64);
    format!("{ended:<29}{seconds:<10.6}{most:<26}{command:<26}{key}  from {client}")
}
