//! `tyrant ttl`: prints how long records have left.

use super::Run;
use crate::output::Form;
use crate::remote::{Need, Server};
use crate::time::now_ms;
use crate::transfer::text;
use anyhow::Result;
use cabinet::name::Kind;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Write;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print the seconds that a record has left
  tyrant ttl session:1
  # Print those of several as JSON lines
  tyrant ttl --json session:1 session:2")]
pub(super) struct Ttl {
    /// Keys; the seconds of a single one are printed, of several key, TAB, seconds; - if a record
    /// does not expire
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,
    #[command(flatten)]
    form: Form,
}

impl Run for Ttl {
    fn needs(&self) -> Need {
        Need::Values
    }

    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let keys: Vec<_> =
            self.keys.iter().map(|key| self.form.read(key)).collect::<Result<_>>()?;
        let Some(expiries) = server.expiries(&keys)? else {
            return Err(client::Error::Miscellaneous.into());
        };
        if expiries.is_empty() {
            server.confirm("ttl")?;
        }
        let found: HashMap<_, _> = expiries.into_iter().collect();
        let now_ms = now_ms();
        let mut absent = Vec::new();
        for key in &keys {
            let Some(expires_at_ms) = found.get(key).copied() else {
                absent.push(key);
                continue;
            };
            let seconds = seconds_left(expires_at_ms, now_ms);
            if self.form.shows_expiry() {
                write_line(key, seconds, expires_at_ms, output)?;
                continue;
            }
            let seconds = seconds.map_or("-".to_owned(), |seconds| seconds.to_string());
            match &keys[..] {
                [_] => writeln!(output, "{seconds}")?,
                _ => self.form.write_pair(key, seconds.as_bytes(), output)?,
            }
        }
        server.expect_all("ttl", keys.len(), &absent)
    }
}

/// Writes a line of JSON.
fn write_line(
    key: &[u8],
    seconds: Option<u64>,
    expires_at_ms: u64,
    output: &mut dyn Write,
) -> Result<()> {
    write!(output, "{{")?;
    text::write_member("key", key, output)?;
    write!(output, r#","ttl_seconds":"#)?;
    match seconds {
        Some(seconds) => write!(output, "{seconds}")?,
        None => write!(output, "null")?,
    }
    text::write_expiry(expires_at_ms, output)?;
    Ok(output.write_all(b"}\n")?)
}

/// Returns the seconds until a time, rounded up, or `None` if a record does not expire.
fn seconds_left(expires_at_ms: u64, now_ms: u64) -> Option<u64> {
    (expires_at_ms > 0).then(|| expires_at_ms.saturating_sub(now_ms).div_ceil(1000))
}

/// Expiry of the records under some keys, as far as the server tells.
#[derive(Debug, Default)]
pub(super) struct Expiries(HashMap<Vec<u8>, u64>);

impl Expiries {
    /// Asks for the expiry of the records, if they are printed in a form that has it. A server
    /// that cannot tell has none.
    pub(super) fn of(server: &Server, form: Form, keys: &[Vec<u8>]) -> Result<Self> {
        // Rows do not expire.
        let is_table = server.kind() == Some(Kind::Table);
        if !form.shows_expiry() || keys.is_empty() || is_table {
            return Ok(Self::default());
        }
        Ok(Self(server.expiries(keys)?.unwrap_or_default().into_iter().collect()))
    }

    /// Returns when the record expires, in milliseconds since 1970, 0 for never.
    pub(super) fn of_key(&self, key: &[u8]) -> u64 {
        self.0.get(key).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::seconds_left;

    #[test]
    fn seconds_are_rounded_up_and_never_negative() {
        for (expires_at_ms, now_ms, seconds) in [
            (0, 5, None),
            (1000, 0, Some(1)),
            (1001, 0, Some(2)),
            (1001, 1000, Some(1)),
            (1000, 1000, Some(0)),
            (1000, 9000, Some(0)),
        ] {
            assert_eq!(seconds_left(expires_at_ms, now_ms), seconds);
        }
    }
}
