//! `tyrant reload`: loads the script of a server again.

use super::Run;
use crate::remote::Server;
use anyhow::Result;
use std::io::Write;

/// The versatile function that loads a script again.
const FUNCTION: &[u8] = b"reload";

#[derive(Debug, clap::Args)]
pub(super) struct Reload {}

impl Run for Reload {
    fn run(&self, server: &Server, _output: &mut dyn Write) -> Result<()> {
        let nothing: [&[u8]; 0] = [];
        server.misc(FUNCTION, 0, &nothing)?;
        Ok(())
    }
}
