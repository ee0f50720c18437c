//! Drives tyrant, memcached and Redis over loopback with the same work, in turn, and prints
//! throughput, latencies and the CPU time that each server used per operation.

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use compare::load::protocol::Protocol;
use compare::load::server::Recipe;
use compare::load::slice::{Case, Effort};
use compare::load::suite::{self, Sizes};
use compare::load::workload::{Choice, Space, Workload};
use compare::measurement;
use compare::random::Zipfian;
use compare::records::VALUE_BYTES_MAX;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Functions that the script cases call.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/load/script.lua");

/// Database of the server's command, which is on disk.
const DATABASE: &str = "{dir}/casket.tch";

/// Options of tyrant with TLS.
const TLS_OPTIONS: &str = " --tls-cert {dir}/server.pem --tls-key {dir}/server.key";

#[derive(Parser)]
#[command(about, max_term_width = 100)]
struct Arguments {
    /// Cases to run; without a suite, the one case that the workload options describe
    #[arg(long)]
    suite: Option<Suite>,
    /// Run only the cases of the suite whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    /// Servers, the first is compared to the others: tyrant, tyrant-meta, tyrant-memcached-binary,
    /// tyrant-binary, memcached, memcached-meta, memcached-binary, redis, redis-durable,
    /// tyrant-durable, tyrant-durable-binary, tyrant-scripts, tyrant-tls, tyrant-tls-memory,
    /// memcached-tls, redis-tls, memcached-extstore, mariadb, mariadb-durable
    #[arg(long, value_delimiter = ',')]
    servers: Vec<String>,
    /// A further server, as NAME:PROTOCOL=COMMAND with {port} and {dir}; PROTOCOL is memcached,
    /// memcached-meta, memcached-binary, binary, redis or mariadb, with +tls for TLS. It comes
    /// before those of --servers
    #[arg(long = "server", value_name = "SERVER")]
    custom_servers: Vec<String>,
    /// Command that starts tyrant, with {port} and {dir}
    #[arg(long, default_value = "target/dist/tyrant serve --port {port} {dir}/casket.tch")]
    tyrant: String,
    /// Rounds; each gives every case to every server
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Longest time of one case on one server in one round
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Most operations of one case on one server in one round
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// Time driven before each measurement
    #[arg(long, default_value_t = 0.2)]
    warm_up_seconds: f64,
    /// Client threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Folder for the servers' files; a folder of its own is made in it and removed
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Memory of each server in MiB, the pages of its files included; needs root
    #[arg(long, value_parser = clap::value_parser!(u64).range(16..=1 << 20))]
    limit_mib: Option<u64>,
    /// File for one JSON record per case and server
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Records that exist at the start
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// Suites only: records with large values
    #[arg(long, default_value_t = 50_000)]
    large_keys: u64,
    /// Suites only: bytes of a large value
    #[arg(long, default_value_t = 2048)]
    large_value_bytes: usize,
    /// Connections
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: u16,
    /// Requests sent at once on a connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pipeline: u16,
    /// Share of requests that read, 0 to 1
    #[arg(long, default_value_t = 0.9)]
    read_share: f64,
    /// Records that one reading request reads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    multi_get: u16,
    /// Choice of the records
    #[arg(long, default_value = "uniform")]
    distribution: Distribution,
}

#[derive(Clone, Copy, ValueEnum)]
enum Suite {
    /// Single requests, pipelines, 16-key gets, and 1 to 128 connections
    Issue,
    /// Calls of scripts, and gets to compare
    Scripts,
    /// Inserts from 1 to 128 connections
    Inserts,
    /// Fifty gets of large values to each set, from 1 to 128 connections
    Reads,
    /// Gets, overwrites and inserts; with --limit-mib of data beyond memory
    Beyond,
    /// Puts that are acknowledged when they are on the disk, from 1 and 64 connections
    Durable,
    /// Gets, sets, pipelines, 16-key gets and large values over TLS, from 1, 8 and 32 connections
    Tls,
}

#[derive(Clone, Copy, ValueEnum)]
enum Distribution {
    /// All records equally often
    Uniform,
    /// A few records often
    Zipfian,
    /// Records that did not exist; writes only
    New,
}

impl Arguments {
    fn recipes(&self) -> Result<Vec<Recipe>> {
        let mut recipes: Vec<Recipe> =
            self.custom_servers.iter().map(|text| Recipe::parse(text)).collect::<Result<_>>()?;
        let usual: &[&str] = match self.suite {
            _ if !self.servers.is_empty() || !recipes.is_empty() => &[],
            Some(Suite::Scripts) => &["tyrant-scripts", "redis"],
            Some(Suite::Durable) => &["tyrant-durable", "tyrant", "redis-durable"],
            Some(Suite::Tls) => &["tyrant-tls", "tyrant-tls-memory", "memcached-tls", "redis-tls"],
            Some(Suite::Beyond) => {
                &["tyrant", "mariadb", "memcached-extstore", "tyrant-durable", "mariadb-durable"]
            }
            _ => &["tyrant", "memcached", "redis"],
        };
        let names = self.servers.iter().map(String::as_str).chain(usual.iter().copied());
        for name in names {
            recipes.push(match name {
                "memcached" => Recipe::memcached(name, Protocol::Memcached),
                "memcached-meta" => Recipe::memcached(name, Protocol::MemcachedMeta),
                "memcached-binary" => Recipe::memcached(name, Protocol::MemcachedBinary),
                "redis" => Recipe::redis(),
                "redis-durable" => Recipe::redis_durable(),
                "memcached-tls" => Recipe::memcached_tls(),
                "redis-tls" => Recipe::redis_tls(),
                "memcached-extstore" => Recipe::memcached_extstore(self.cache_mib(), 4096),
                "mariadb" => Recipe::mariadb(name, false, self.cache_mib()),
                "mariadb-durable" => Recipe::mariadb(name, true, self.cache_mib()),
                "tyrant-tls" => self.tyrant(name, "memcached+tls", TLS_OPTIONS)?,
                "tyrant-tls-memory" => {
                    let mut recipe = self.tyrant(name, "memcached+tls", TLS_OPTIONS)?;
                    let command = recipe.command.replace(DATABASE, "*");
                    ensure!(
                        command != recipe.command,
                        "{name} needs a command with {DATABASE}, which --tyrant lacks"
                    );
                    recipe.command = command;
                    recipe
                }
                "tyrant" => self.tyrant(name, "memcached", "")?,
                "tyrant-meta" => self.tyrant(name, "memcached-meta", "")?,
                "tyrant-memcached-binary" => self.tyrant(name, "memcached-binary", "")?,
                "tyrant-binary" => self.tyrant(name, "binary", "")?,
                "tyrant-durable" => self.tyrant(name, "memcached", "#durability=always")?,
                "tyrant-durable-binary" => self.tyrant(name, "binary", "#durability=always")?,
                "tyrant-scripts" => self.tyrant(name, "binary", &format!(" --script {SCRIPT}"))?,
                unknown => bail!("unknown server {unknown}; --server describes others"),
            });
        }
        Ok(recipes)
    }

    /// Returns the memory in MiB for records of servers that need it: half of their limit.
    fn cache_mib(&self) -> u64 {
        self.limit_mib.map_or(4096, |limit| limit / 2)
    }

    fn tyrant(&self, name: &str, protocol: &str, tuning: &str) -> Result<Recipe> {
        Recipe::parse(&format!("{name}:{protocol}={}{tuning}", self.tyrant))
    }

    fn cases(&self) -> Result<Vec<Case>> {
        let sizes = Sizes {
            keys: self.keys,
            value_bytes: self.value_bytes,
            large_keys: self.large_keys,
            large_value_bytes: self.large_value_bytes,
        };
        let mut cases = match self.suite {
            Some(Suite::Issue) => suite::issue_cases(&sizes),
            Some(Suite::Inserts) => suite::insert_cases(&sizes),
            Some(Suite::Reads) => suite::read_cases(&sizes),
            Some(Suite::Beyond) => suite::beyond_cases(&sizes),
            Some(Suite::Scripts) => suite::script_cases(&sizes),
            Some(Suite::Durable) => suite::durable_cases(&sizes),
            Some(Suite::Tls) => suite::tls_cases(&sizes),
            None => vec![self.own_case()?],
        };
        cases.retain(|case| case.name.contains(&self.only));
        Ok(cases)
    }

    fn own_case(&self) -> Result<Case> {
        let choice = match self.distribution {
            Distribution::Uniform => Choice::Uniform,
            Distribution::Zipfian => Choice::Zipfian(Zipfian::new(self.keys, Zipfian::USUAL_THETA)),
            Distribution::New => {
                ensure!(self.read_share == 0.0, "new records cannot be read: --read-share 0");
                Choice::New
            }
        };
        let workload = Workload {
            space: Space { first: 0, count: self.keys, value_bytes: self.value_bytes },
            choice,
            read_share: self.read_share,
            keys_per_get: self.multi_get.into(),
            script: None,
            pipeline: self.pipeline.into(),
        };
        Ok(Case {
            name: format!("{} conn, pipeline {}", self.connections, self.pipeline),
            workload,
            connections: self.connections.into(),
        })
    }

    fn check(&self) -> Result<()> {
        for bytes in [self.value_bytes, self.large_value_bytes] {
            ensure!(bytes <= VALUE_BYTES_MAX, "a value has at most {VALUE_BYTES_MAX} bytes");
        }
        ensure!((1..=1 << 32).contains(&self.keys), "--keys is 1 to 2^32");
        ensure!((1..=1 << 32).contains(&self.large_keys), "--large-keys is 1 to 2^32");
        ensure!((0.0..=1.0).contains(&self.read_share), "--read-share is 0 to 1");
        ensure!((0.001..=3600.0).contains(&self.seconds), "--seconds is 0.001 to 3600");
        ensure!((0.0..=60.0).contains(&self.warm_up_seconds), "--warm-up-seconds is 0 to 60");
        Ok(())
    }
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    arguments.check()?;
    let recipes = arguments.recipes()?;
    let cases = arguments.cases()?;
    let effort = Effort {
        duration: Duration::from_secs_f64(arguments.seconds),
        operations: arguments.operations,
        warm_up: Duration::from_secs_f64(arguments.warm_up_seconds),
        threads: arguments.threads.into(),
    };
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new()
        .prefix("load-")
        .tempdir_in(&parent)
        .with_context(|| format!("a folder in {}", parent.display()))?;
    let rounds = arguments.rounds.into();
    let limit_bytes = arguments.limit_mib.map(|limit| limit << 20);
    let results = suite::run(&recipes, &cases, rounds, &effort, folder.path(), limit_bytes)?;
    if let Some(file) = &arguments.json {
        measurement::write(file, &results.measurements())?;
    }
    println!("{}", results.table());
    let ratios = results.ratios();
    if recipes.len() > 1 {
        println!("{ratios}");
    }
    println!("{}", results.after());
    for text in results.error_texts() {
        println!("error: {text}");
    }
    Ok(if results.errors() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
