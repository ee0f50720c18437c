//! `tyrant promote`: ends the replication of a replica.

use super::Run;
use crate::bytes;
use crate::output::{AsJson, object, write_json};
use crate::remote::Server;
use crate::time::{format_time, now_us};
use anyhow::Result;
use std::io::Write;
use std::time::Duration;

/// The versatile function that promotes a server.
const FUNCTION: &[u8] = b"promote";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Let a replica take writes after the loss of its master
  tyrant promote --server 10.0.0.2:1978")]
pub(super) struct Promote {
    #[command(flatten)]
    form: AsJson,
}

impl Run for Promote {
    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        if server.stat_value("mhost")?.is_none() {
            return Err(server.failure("it follows no master and cannot be promoted"));
        }
        let nothing: [&[u8]; 0] = [];
        let promoted = server.misc(FUNCTION, 0, &nothing)?;
        let [master, position] = &promoted[..] else {
            return Err(server.failure("the server returned an invalid position"));
        };
        let (master, position) = (bytes::escaped(master), bytes::escaped(position));
        let position_us = position.parse().unwrap_or(0);
        if self.form.json {
            let members = [("master", master.into()), ("position_us", position_us.into())];
            return write_json(&object(members), output);
        }
        // A copy without records has 1.
        if position_us <= 1 {
            writeln!(output, "promoted: it followed {master}, and had received nothing yet")?;
            return Ok(());
        }
        let since = Duration::from_micros(now_us().saturating_sub(position_us));
        let seconds = since.as_secs_f64();
        let time = format_time(position_us);
        writeln!(
            output,
            "promoted: it followed {master} up to {time}; the last change that it has was made \
             {seconds:.1} s ago"
        )?;
        Ok(())
    }
}
