//! `tyrant promote`: ends the replication of a replica.

use super::Run;
use anyhow::{Context, Result, bail};
use client::Client;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The versatile function that promotes a server.
const FUNCTION: &[u8] = b"promote";

#[derive(Debug, clap::Args)]
pub(super) struct Promote {}

impl Run for Promote {
    fn run(&self, client: &Client, output: &mut dyn Write) -> Result<()> {
        if crate::remote::stat_value(client, "mhost")?.is_none() {
            bail!("the server follows no master and cannot be promoted");
        }
        let nothing: [&[u8]; 0] = [];
        let promoted =
            client.misc(FUNCTION, 0, &nothing).context("the server cannot be promoted")?;
        let [master, position] = &promoted[..] else {
            bail!("the server returned an invalid position");
        };
        let (master, position) =
            (String::from_utf8_lossy(master), String::from_utf8_lossy(position));
        let position_us = position.parse().unwrap_or(0);
        let since =
            SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_micros(position_us));
        let seconds = since.unwrap_or_default().as_secs_f64();
        writeln!(output, "promoted: it followed {master} up to {position}, {seconds:.1} s ago")?;
        Ok(())
    }
}
