//! `tyrant reload`: makes a server read its users and its script again.

use super::Run;
use crate::remote::Server;
use anyhow::Result;
use std::io::Write;

/// The versatile function that reads them again.
const FUNCTION: &[u8] = b"reload";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Make a server read its users and its script again
  tyrant reload")]
pub(super) struct Reload {}

impl Run for Reload {
    fn run(&self, server: &Server, _output: &mut dyn Write) -> Result<()> {
        let nothing: [&[u8]; 0] = [];
        server.misc(FUNCTION, 0, &nothing)?;
        Ok(())
    }
}
