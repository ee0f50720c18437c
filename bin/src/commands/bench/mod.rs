//! `tyrant bench`: benchmarks that anyone can repeat.

mod clients;
mod latencies;
mod load;
mod mailing;
mod mailings;
mod own_server;
mod processors;
mod replication;
mod scatter;
mod seeding;

use anyhow::Result;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Measure what a replica costs its master
  tyrant bench replication --records 100000 --rounds 1")]
pub(super) struct Bench {
    #[command(subcommand)]
    what: Benchmark,
}

#[derive(Debug, clap::Subcommand)]
enum Benchmark {
    /// Send gets and sets to a running server, and print rates and latencies
    Load(Box<load::Load>),
    /// Load mailings by e-mail address into a table and a hash database, then look rows up
    Mailings(mailings::Mailings),
    /// Insert into a server without a replica and with one, in turn
    Replication(replication::Replication),
    /// Measure what clients notice while an empty replica becomes a copy of their server
    Seeding(seeding::Seeding),
}

impl Bench {
    pub(super) fn run(&self) -> Result<()> {
        match &self.what {
            Benchmark::Load(load) => load.run(),
            Benchmark::Mailings(mailings) => mailings.run(),
            Benchmark::Replication(replication) => replication.run(),
            Benchmark::Seeding(seeding) => seeding.run(),
        }
    }
}
