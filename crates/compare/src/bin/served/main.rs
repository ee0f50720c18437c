//! Measures servers of tyrant alone: mailings in a table and a hash database, the cost of a replica
//! for its master, and its clients' latencies while a replica is seeded.

mod clients;
mod mailings;
mod processors;
mod replication;
mod seeding;

use anyhow::{Context as _, Result};
use clap::Parser;
use client::Client;
use compare::load::protocol::Protocol;
use compare::load::server::{Recipe, Server};
use std::path::PathBuf;

#[derive(Parser)]
#[command(about, max_term_width = 100)]
enum Experiment {
    /// Load mailings by e-mail address into a table and a hash database, then look rows up
    Mailings(mailings::Mailings),
    /// Insert into a server without a replica and with one, in turn
    Replication(replication::Replication),
    /// Measure what clients notice while an empty replica becomes a copy of their server
    Seeding(seeding::Seeding),
}

/// Starts the servers to measure.
#[derive(Debug, clap::Args)]
struct Servers {
    /// Program to measure
    #[arg(long, value_name = "FILE", default_value = "target/dist/tyrant")]
    tyrant: String,
    /// Create the databases in temporary folders below this one
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
}

impl Servers {
    /// Starts a server with these arguments, in which `{dir}` is a new folder of its own.
    fn start(&self, arguments: &str) -> Result<Server> {
        let command = format!(
            "{} serve {arguments} --host 127.0.0.1 --port {{port}} --unix {{dir}}/socket",
            self.tyrant
        );
        let recipe =
            Recipe { name: "tyrant".into(), protocol: Protocol::Binary, tls: false, command };
        Server::start(&recipe, &self.dir.clone().unwrap_or_else(std::env::temp_dir))
    }
}

/// Arguments of a master.
const MASTER: &str = "{dir}/casket.tch --update-log {dir}/ulog --server-id 1";

/// Returns the arguments of a replica of a server.
fn replica_of(master: &Server) -> String {
    format!(
        "{{dir}}/casket.tch --position-file {{dir}}/position --server-id 2 --master {}",
        master.address
    )
}

/// Connects to a server's socket.
fn connect(server: &Server) -> Result<Client> {
    Ok(Client::connect_unix(&server.folder().join("socket"))?)
}

/// Returns a value of a server's `stat`.
fn word(client: &Client, name: &str) -> Result<String> {
    let text = String::from_utf8(client.stat()?)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    Ok(value.with_context(|| format!("the server has no {name}"))?.to_owned())
}

fn main() -> Result<()> {
    match Experiment::parse() {
        Experiment::Mailings(mailings) => mailings.run(),
        Experiment::Replication(replication) => replication.run(),
        Experiment::Seeding(seeding) => seeding.run(),
    }
}
