//! `tyrant tail`: prints the changes on a server, line by line.

use crate::bytes::{Kept, escape};
use crate::remote::{self, Server, ServerArgument};
use crate::time::{now_us, parse_time};
use crate::transfer::text::write_member;
use crate::transfer::whole_file::Output;
use crate::updates::name;
use anyhow::{Context, Result, anyhow, bail};
use client::{Settings, UpdateStream};
use std::io::{BufWriter, Write};
use std::time::Duration;
use wire::binary::{Request, double_from_parts};
use wire::update_log::{Message, Operation};

/// Id in the request. It belongs to no server, so no log entries are left out, and no old files are
/// kept for it.
const SERVER_ID: u32 = 0x7fff_ffff;

/// Longest silence of a server, which sends a heartbeat every second.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Heartbeats that a server has sent when the end of its log is reached: one before it reads the
/// log, and one when it has nothing more to send.
const HEARTBEATS_AT_END: u32 = 2;

/// Formats of the printed lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LineFormat {
    /// Fields separated by TABs
    Tsv,
    /// One JSON object per line
    Jsonl,
}

/// Print the changes on a server from its update log, until interrupted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print changes as they happen
  tyrant tail
  # Print the first ten changes of the update log as JSON lines
  tyrant tail --from 0 --max 10 --json
  # Print the changes since noon
  tyrant tail --from 2026-11-21T12:00:00Z
  # Print all changes that the update log has now
  tyrant tail --from 0 --to-end")]
pub(super) struct Tail {
    #[command(flatten)]
    server: ServerArgument,
    /// Begin at this time: as in 2026-11-21T12:30:08Z, the seconds or microseconds since 1970, or
    /// now
    #[arg(long, value_name = "TIME", default_value = "now", value_parser = timestamp)]
    from: u64,
    /// Print lines in this format
    #[arg(long, value_enum, default_value = "tsv")]
    format: LineFormat,
    /// Print JSON, one object per line, as --format jsonl does
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// End after N lines
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// End at the end of the log, in place of waiting for further changes
    #[arg(long)]
    to_end: bool,
}

impl Tail {
    pub(super) fn run(&self) -> Result<()> {
        // A stream cannot tell a server without a log from one of another protocol.
        self.run_on(&self.server.connect()?, || false)
    }

    /// Returns the options of the connection.
    pub(super) fn server(&self) -> &ServerArgument {
        &self.server
    }

    /// Returns whether only a user or a signal ends it.
    pub(super) fn is_endless(&self) -> bool {
        self.max.is_none() && !self.to_end
    }

    /// Prints the changes on a server until `is_ended`, which is asked at least every second.
    pub(super) fn run_on(&self, server: &Server, is_ended: impl Fn() -> bool) -> Result<()> {
        let address = server.address();
        let settings = Settings { read_timeout: Some(SILENCE_MAX), ..server.settings().clone() };
        let from_us = self.from.max(1);
        let mut updates =
            UpdateStream::open(&remote::parse(address)?, &settings, from_us, SERVER_ID)
                .map_err(|error| remote::cannot_connect(address, &error))?;
        updates.server_id().map_err(|_| server.without_updates("tail", from_us))?;
        let end_us = self.to_end.then(|| time_of(server)).transpose()?;
        let mut output = BufWriter::new(Output::standard());
        let mut heartbeats = 0;
        let mut left = self.max.unwrap_or(u64::MAX);
        // A server sends a heartbeat every second.
        while left > 0 && !is_ended() {
            if !updates.has_next() {
                output.flush()?;
            }
            let message = updates.next().map_err(|error| {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let cause = cause.unwrap_or_else(|| error.to_string());
                anyhow!("the stream of updates from {address} ended: {cause}")
            })?;
            let Message::Update { timestamp_us, origin, body } = message else {
                heartbeats += 1;
                if self.to_end && heartbeats == HEARTBEATS_AT_END {
                    break;
                }
                continue;
            };
            if end_us.is_some_and(|end_us| timestamp_us > end_us) {
                break;
            }
            let Ok(operation) = Operation::parse(body) else {
                bail!("the update of {timestamp_us} is not a valid operation");
            };
            let update = Update { timestamp_us, origin, operation };
            if self.json || self.format == LineFormat::Jsonl {
                update.write_json(&mut output)?;
            } else {
                update.write_tsv(&mut output)?;
            }
            left -= 1;
        }
        Ok(output.flush()?)
    }
}

/// Returns the time of a server's clock, in microseconds since 1970.
fn time_of(server: &Server) -> Result<u64> {
    let seconds = server.stat_value("time")?.and_then(|time| time.parse::<f64>().ok());
    let seconds = seconds.context("the status of the server has no time")?;
    Ok((seconds * 1e6).ceil() as u64)
}

fn timestamp(text: &str) -> Result<u64, String> {
    if text == "now" {
        return Ok(now_us());
    }
    parse_time(text).map_err(|error| format!("{error}, or now"))
}

struct Update<'a> {
    timestamp_us: u64,
    origin: u32,
    operation: Operation<'a>,
}

impl Update<'_> {
    /// Writes time stamp, server, command, outcome and arguments, separated by TABs.
    fn write_tsv(&self, output: &mut dyn Write) -> Result<()> {
        let Self { timestamp_us, origin, operation } = self;
        let outcome = if operation.succeeded { "ok" } else { "failed" };
        write!(output, "{timestamp_us}\t{origin}\t{}\t{outcome}", name(&operation.request))?;
        let Arguments { strings, number } = arguments(&operation.request);
        for (_, argument) in strings {
            output.write_all(b"\t")?;
            escape(argument, Kept::Nothing, output)?;
        }
        if let Some((_, number)) = number {
            write!(output, "\t{number}")?;
        }
        Ok(output.write_all(b"\n")?)
    }

    fn write_json(&self, output: &mut dyn Write) -> Result<()> {
        let Self { timestamp_us, origin, operation } = self;
        let (name, succeeded) = (name(&operation.request), operation.succeeded);
        write!(output, r#"{{"timestamp_us":{timestamp_us},"server_id":{origin},"#)?;
        write!(output, r#""command":"{name}","succeeded":{succeeded}"#)?;
        let Arguments { strings, number } = arguments(&operation.request);
        for (name, argument) in strings {
            output.write_all(b",")?;
            write_member(&name, argument, output)?;
        }
        if let Some((name, number)) = number {
            write!(output, r#","{name}":{number}"#)?;
        }
        Ok(output.write_all(b"}\n")?)
    }
}

/// Arguments of a request, by name.
struct Arguments<'a> {
    strings: Vec<(String, &'a [u8])>,
    number: Option<(&'static str, String)>,
}

fn arguments<'a>(request: &Request<'a>) -> Arguments<'a> {
    let named = |name: &str, argument: &'a [u8]| (name.to_owned(), argument);
    let (strings, number) = match *request {
        Request::Put { key, value }
        | Request::PutKeep { key, value }
        | Request::PutCat { key, value } => (vec![named("key", key), named("value", value)], None),
        Request::PutShift { key, value, width } => {
            let strings = vec![named("key", key), named("value", value)];
            (strings, Some(("width", width.to_string())))
        }
        Request::Out { key } => (vec![named("key", key)], None),
        Request::AddInt { key, addend } => {
            (vec![named("key", key)], Some(("addend", addend.to_string())))
        }
        Request::AddDouble { key, integral, fractional } => {
            let addend = double_from_parts(integral, fractional);
            // JSON has no infinite numbers.
            let number = if addend.is_finite() { format!("{addend:?}") } else { "null".into() };
            (vec![named("key", key)], Some(("addend", number)))
        }
        Request::Optimize { parameters } => (vec![named("parameters", parameters)], None),
        Request::Misc { function, arguments, .. } => {
            let numbered = |(number, argument)| (format!("argument_{number}"), argument);
            let arguments = (1..).zip(arguments.iter()).map(numbered);
            (std::iter::once(named("function", function.name())).chain(arguments).collect(), None)
        }
        _ => (Vec::new(), None),
    };
    Arguments { strings, number }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(request: Request<'_>) -> [String; 2] {
        let operation = Operation { request, succeeded: true };
        let update = Update { timestamp_us: 7, origin: 3, operation };
        let (mut tsv, mut json) = (Vec::new(), Vec::new());
        update.write_tsv(&mut tsv).unwrap();
        update.write_json(&mut json).unwrap();
        [tsv, json].map(|line| String::from_utf8(line).unwrap())
    }

    #[test]
    fn an_update_of_any_bytes_is_one_line() {
        let put = lines(Request::Put { key: b"a\tb", value: b"1\n" });
        assert_eq!(put[0], "7\t3\tput\tok\ta\\tb\t1\\n\n");
        assert_eq!(
            put[1],
            concat!(
                r#"{"timestamp_us":7,"server_id":3,"command":"put","succeeded":true,"#,
                r#""key":"a\tb","value":"1\n"}"#,
                "\n"
            )
        );
        let [tsv, json] = lines(Request::AddDouble { key: b"d", integral: 1, fractional: 0 });
        assert!(tsv.ends_with("\td\t1.0\n") && json.ends_with("\"addend\":1.0}\n"), "{tsv}{json}");
        let [tsv, json] = lines(Request::Sync);
        assert!(tsv.ends_with("\tsync\tok\n") && json.ends_with("true}\n"), "{tsv}{json}");
    }

    #[test]
    fn a_time_is_in_any_format_or_now() {
        assert_eq!(timestamp("12"), Ok(12_000_000));
        assert_eq!(timestamp("1970-01-01T00:00:12.000001Z"), Ok(12_000_001));
        assert!(timestamp("now").unwrap() > 1_700_000_000_000_000);
        timestamp("soon").unwrap_err();
    }
}
