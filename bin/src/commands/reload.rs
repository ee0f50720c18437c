//! `tyrant reload`: makes a server read its settings again, as SIGHUP does.

use super::Run;
use crate::bytes;
use crate::remote::Server;
use anyhow::Result;
use std::io::Write;

/// The versatile function that reads them again.
const FUNCTION: &[u8] = b"reload";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Make a server read its settings, users, certificates and script again
  tyrant reload")]
pub(super) struct Reload {}

impl Run for Reload {
    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let nothing: [&[u8]; 0] = [];
        for read in server.misc(FUNCTION, 0, &nothing)? {
            writeln!(output, "{}", bytes::escaped(&read))?;
        }
        Ok(())
    }
}
