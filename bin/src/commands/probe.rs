//! Commands whose answer is their exit code: `ping` and `exists`.

use super::{Negative, Run};
use crate::output::Reading;
use crate::remote::Server;
use anyhow::Result;
use std::ffi::OsString;
use std::io::Write;
use std::time::Instant;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Wait until a server serves
  until tyrant ping --quiet; do sleep 1; done
  # Check another server
  tyrant ping --server 10.0.0.2:1978")]
pub(super) struct Ping {}

impl Run for Ping {
    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let start = Instant::now();
        server.stat()?;
        let milliseconds = start.elapsed().as_secs_f64() * 1000.0;
        let kind = server.kind().map(|kind| format!(" with a {} database", kind.title()));
        let kind = kind.unwrap_or_default();
        Ok(writeln!(output, "{}{kind} replies in {milliseconds:.2} ms", server.address())?)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print 1 or 0
  tyrant exists greeting
  # Use the exit code alone
  tyrant exists --quiet lock && echo \"another one runs\"")]
pub(super) struct Exists {
    /// The key
    #[arg(value_name = "KEY")]
    key: OsString,
    #[command(flatten)]
    form: Reading,
}

impl Run for Exists {
    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let key = self.form.read(&self.key)?;
        if server.value_size(&key)?.is_some() {
            return Ok(writeln!(output, "1")?);
        }
        if let Some(error) = server.refused("exists") {
            return Err(error);
        }
        writeln!(output, "0")?;
        Err(Negative.into())
    }
}
