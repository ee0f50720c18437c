//! Gives tyrant several times more data than memory, and prints the cost of a get from the disk and
//! its effect on gets from memory. Linux, as root: the memory is limited by a cgroup.

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use compare::load::cold::{self, Plan};
use compare::load::server::Recipe;
use compare::records::VALUE_BYTES_MAX;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(about, max_term_width = 100)]
struct Arguments {
    /// Command that starts tyrant, with {port} and {dir}
    #[arg(long, default_value = "target/dist/tyrant serve --port {port} {dir}/casket.tch")]
    tyrant: String,
    /// Folder for the server's files; a folder of its own is made in it and removed
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Memory that the server may use, in MiB, the page cache of its files included
    #[arg(long, default_value_t = 256)]
    limit_mib: u64,
    /// Records loaded
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 1000)]
    value_bytes: usize,
    /// Records that are hot
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    hot_keys: u64,
    /// Connections that read hot records
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=4096))]
    hot_connections: u16,
    /// Hot requests per second
    #[arg(long, default_value_t = 2000.0)]
    hot_rate: f64,
    /// Connections that read cold records
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=4096))]
    cold_connections: u16,
    /// Cold requests per second; without it one after the other on each connection
    #[arg(long)]
    cold_rate: Option<f64>,
    /// Share of the cold requests that read, 0 to 1; the others write
    #[arg(long, default_value_t = 1.0)]
    cold_read_share: f64,
    /// Rounds; each has hot gets alone, with other hot ones, and with cold ones
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Length of each third of a round
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Time in which the hot records become hot
    #[arg(long, default_value_t = 3.0)]
    warm_up_seconds: f64,
}

impl Arguments {
    fn plan(&self) -> Result<Plan> {
        ensure!((16..=1 << 30).contains(&self.limit_mib), "--limit-mib is 16 to 2^30");
        ensure!(self.value_bytes <= VALUE_BYTES_MAX, "a value has at most {VALUE_BYTES_MAX} bytes");
        for rate in [Some(self.hot_rate), self.cold_rate].into_iter().flatten() {
            ensure!((1.0..=1e6).contains(&rate), "a rate is 1 to 1000000");
        }
        ensure!((0.0..=1.0).contains(&self.cold_read_share), "--cold-read-share is 0 to 1");
        ensure!((0.1..=3600.0).contains(&self.seconds), "--seconds is 0.1 to 3600");
        ensure!((0.0..=600.0).contains(&self.warm_up_seconds), "--warm-up-seconds is 0 to 600");
        Ok(Plan {
            limit_bytes: self.limit_mib << 20,
            keys: self.keys,
            value_bytes: self.value_bytes,
            hot_keys: self.hot_keys,
            hot_connections: self.hot_connections.into(),
            hot_rate: self.hot_rate,
            cold_connections: self.cold_connections.into(),
            cold_rate: self.cold_rate,
            cold_read_share: self.cold_read_share,
            rounds: self.rounds.into(),
            duration: Duration::from_secs_f64(self.seconds),
            warm_up: Duration::from_secs_f64(self.warm_up_seconds),
        })
    }
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let plan = arguments.plan()?;
    let recipe = Recipe::parse(&format!("tyrant:memcached={}", arguments.tyrant))?;
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new()
        .prefix("cold-")
        .tempdir_in(&parent)
        .with_context(|| format!("a folder in {}", parent.display()))?;
    let results = cold::run(&recipe, &plan, folder.path())?;
    for fact in &results.facts {
        println!("{fact}");
    }
    println!("\n{}\n{}", results.hot(), results.cold());
    for text in results.error_texts() {
        println!("error: {text}");
    }
    Ok(if results.errors() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
