//! Counts the words of all records: by map-reduce in tyrant, and by clients of Redis that read all
//! records. All results are compared.

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use compare::folder;
use compare::load::protocol::Protocol;
use compare::load::server::{Recipe, Server};
use compare::load::words::{self, Counted, Counter, SCRIPT};
use compare::measurement::{self, Measurement, Round, finite};
use compare::report::{Table, figure, median};
use std::path::PathBuf;

#[derive(Parser)]
#[command(about, max_term_width = 100)]
struct Arguments {
    /// Records, each with ten words
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    records: u64,
    /// Rounds; each counts once by every method
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Command that starts tyrant, with {port} and {dir}
    #[arg(long, default_value = "target/dist/tyrant serve --port {port} {dir}/casket.tch")]
    tyrant: String,
    /// Folder for the servers' files; a folder of its own is made in it and removed
    #[arg(long)]
    dir: Option<PathBuf>,
    /// File for one JSON record per method
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new()
        .prefix("words-")
        .tempdir_in(&parent)
        .with_context(|| format!("a folder in {}", parent.display()))?;
    let command = format!("{} --script {SCRIPT} --script-time-max 600", arguments.tyrant);
    let tyrant = Recipe { name: "tyrant".into(), protocol: Protocol::Binary, tls: false, command };
    let steps = 2 + usize::from(arguments.rounds) * 3;
    let start = |done: usize, recipe: &Recipe| -> Result<(Server, u64)> {
        measurement::print_progress(done, steps, &format!("filling {}", recipe.name));
        let server = Server::start(recipe, folder.path())?;
        words::fill(&server, arguments.records)?;
        let before = server.memory()?.anonymous;
        Ok((server, before))
    };
    let servers = [start(0, &tyrant)?, start(1, &Recipe::redis())?];
    let ways = [
        ("tyrant, map-reduce", 0, Counter::Server),
        ("redis, SCAN and a client in Lua", 1, Counter::ClientInLua),
        ("redis, SCAN and a client in Rust", 1, Counter::ClientInRust),
    ];
    let mut counted: Vec<Vec<Counted>> = ways.map(|_| Vec::new()).into();
    let mut measurements = ways.map(|(name, _, _)| Measurement {
        case: "count the words of all records".into(),
        server: name.into(),
        parameters: [("records".to_owned(), arguments.records as f64)].into(),
        ..Measurement::default()
    });
    let mut memory = [0; 2];
    let mut done = 2;
    for round in 0..arguments.rounds {
        let rows = ways.iter().zip(&mut counted).zip(&mut measurements);
        for (((name, server, counter), counted), measurement) in rows {
            measurement::print_progress(done, steps, name);
            done += 1;
            let result = words::count(&servers[*server].0, *counter)?;
            let took = result.elapsed.as_secs_f64();
            eprintln!("round {}/{}: {name} {took:.3} s", round + 1, arguments.rounds);
            let used = servers[*server].0.memory()?.anonymous;
            memory[*server] = memory[*server].max(used.saturating_sub(servers[*server].1));
            let records = arguments.records as f64;
            measurement.rounds.push(Round {
                operations_per_second: finite(records / took),
                cpu_us_per_operation: finite(result.server_cpu.as_secs_f64() * 1e6 / records),
                memory_bytes: Some(servers[*server].0.memory()?.anonymous as f64),
                disk_bytes: Some(folder::usage(servers[*server].0.folder())?.allocated as f64),
                ..Round::default()
            });
            counted.push(result);
        }
    }
    let all: Vec<&Counted> = counted.iter().flatten().collect();
    ensure!(!all[0].lines.is_empty(), "no words were counted");
    ensure!(all.iter().all(|one| one.lines == all[0].lines), "the counts differ");
    eprintln!("all {} counts are the same: {} words", all.len(), all[0].lines.lines().count());
    let mut table = Table::new([
        "way",
        "s",
        "times tyrant's",
        "server CPU s",
        "client CPU s",
        "more memory MB",
    ]);
    let of = |way: usize, what: fn(&Counted) -> f64| {
        median(&counted[way].iter().map(what).collect::<Vec<_>>())
    };
    let elapsed = |one: &Counted| one.elapsed.as_secs_f64();
    for (way, (name, server, _)) in ways.iter().enumerate() {
        table.row([
            (*name).to_owned(),
            figure(of(way, elapsed)),
            figure(of(way, elapsed) / of(0, elapsed)),
            figure(of(way, |one| one.server_cpu.as_secs_f64())),
            figure(of(way, |one| one.client_cpu.as_secs_f64())),
            figure(memory[*server] as f64 / 1e6),
        ]);
    }
    println!("{table}");
    if let Some(file) = &arguments.json {
        measurement::write(file, &measurements)?;
    }
    Ok(())
}
