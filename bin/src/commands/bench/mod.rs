//! `tyrant bench`: measurements that anyone can repeat.

mod clients;
mod mailings;
mod own_server;
mod processors;
mod replication;
mod seeding;

use anyhow::Result;

#[derive(Debug, clap::Args)]
pub(super) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Mailings by e-mail address: loads a table and a hash database through a server, looks up
    Mailings(mailings::Mailings),
    /// Inserts into a server without a replica and with one, side by side
    Replication(replication::Replication),
    /// What clients notice while an empty replica becomes a copy of their server
    Seeding(seeding::Seeding),
}

impl Bench {
    pub(super) fn run(&self) -> Result<()> {
        match &self.what {
            What::Mailings(mailings) => mailings.run(),
            What::Replication(replication) => replication.run(),
            What::Seeding(seeding) => seeding.run(),
        }
    }
}
