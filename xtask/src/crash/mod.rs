//! Crash test: kills the server under load many times; no acknowledged change may be lost.
//!
//! Single writes in pipelines, transactions of Redis's protocol, and the same with a replica, where
//! the master, the replica or both are killed. A transaction must be whole or absent everywhere. A
//! kill is not damage, so the logs of the servers must have no errors either.

mod generation;
mod instance;
mod reader;
mod replicated;
mod transactions;
mod writer;
mod writes;

use crate::programs::{Profile, build};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::thread::ScopedJoinHandle;

/// Number of rounds of each part. A round has one kill, or a few with a replica.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Rounds {
    /// Set the number of kills under single writes.
    #[arg(long, default_value_t = 100)]
    pub(crate) rounds: u32,
    /// Set the number of kills under transactions.
    #[arg(long, default_value_t = 100)]
    pub(crate) transactions: u32,
    /// Set the number of rounds of transactions in which a master, its replica or both are killed.
    #[arg(long, default_value_t = 100)]
    pub(crate) replicated: u32,
}

/// Runs the parts that have rounds.
pub(crate) fn run(profile: Profile, rounds: Rounds) -> Result<()> {
    let programs = build(profile)?;
    let part = |run: fn(&Path, &Path, u32) -> Result<()>, rounds: u32| {
        if rounds == 0 {
            return Ok(());
        }
        let folder = tempfile::tempdir().context("no temporary folder")?;
        run(&programs, folder.path(), rounds)
            .map_err(|error| error.context(format!("files in {}", folder.keep().display())))
    };
    part(writes::run, rounds.rounds)?;
    part(transactions::run, rounds.transactions)?;
    part(replicated::run, rounds.replicated)
}

/// Waits for a client.
fn join(client: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    match client.join() {
        Ok(result) => result,
        Err(_) => bail!("a client panicked"),
    }
}
