//! `tyrant promote`: ends the replication of a replica.

use super::Run;
use super::replicas::{TIMEOUT, rts_text};
use crate::bytes;
use crate::output::{AsJson, object, write_json};
use crate::remote::{self, Server, Unreachable};
use crate::time::now_us;
use anyhow::Result;
use client::{Address, is_this_machine};
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
            let members = [("master", master.as_str().into()), ("position_us", position_us.into())];
            write_json(&object(members), output)?;
        } else if position_us <= 1 {
            // A copy without records has 1.
            writeln!(output, "promoted: it followed {master}, and had received nothing yet")?;
        } else {
            let since = Duration::from_micros(now_us().saturating_sub(position_us));
            let seconds = since.as_secs_f64();
            let position = rts_text(position_us);
            writeln!(
                output,
                "promoted: it followed {master} up to {position}; the last change that it has was \
                 made {seconds:.1} s ago"
            )?;
            writeln!(
                output,
                "compare: a replica with a greater rts (tyrant stat rts --server REPLICA) has \
                 changes that this one lacks"
            )?;
        }
        warn_of_living(&master, server);
        Ok(())
    }
}

/// Warns if the former master of a server still answers, and takes writes that the server does not
/// receive any more.
fn warn_of_living(master: &str, server: &Server) {
    // Another machine's loopback address is not that of this one.
    if is_on_loopback(master) && !is_on_loopback(server.address()) {
        return;
    }
    let asked = Server::connect_within(master, server.settings(), TIMEOUT);
    let finding = match asked.and_then(|master| master.stat_value("replication_read_only")) {
        Ok(Some(_)) => return,
        Ok(None) => "still answers, and takes writes".to_owned(),
        Err(error) if error.is::<Unreachable>() => return,
        Err(error) => format!("may still take writes ({error:#})"),
    };
    eprintln!(
        "tyrant: warning: the old master {master} {finding}; this server does not receive them any \
         more: stop it, or its writers"
    );
}

/// Returns whether an address is of this machine alone, as far as its text tells.
fn is_on_loopback(address: &str) -> bool {
    match remote::parse(address) {
        Ok(Address::Unix(_)) => true,
        Ok(Address::Tcp { host, .. }) => {
            host == "localhost" || host.parse().is_ok_and(is_this_machine)
        }
        Err(_) => false,
    }
}
