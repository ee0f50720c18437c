//! `tyrant bench`: measurements that anyone can repeat.

mod mailings;
mod own_server;

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
}

impl Bench {
    pub(super) fn run(&self) -> Result<()> {
        match &self.what {
            What::Mailings(mailings) => mailings.run(),
        }
    }
}
