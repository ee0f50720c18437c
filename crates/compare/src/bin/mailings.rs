//! Stores mailings by e-mail address in tyrant, memcached and Redis in turn, looks addresses up,
//! and prints throughput, latencies and the CPU time of the server per operation.

use anyhow::{Context as _, Result};
use clap::Parser;
use compare::load::mailings::{self, Plan};
use compare::load::protocol::Protocol;
use compare::load::server::{Recipe, Server};
use compare::measurement::{self, Measurement};
use compare::report::{Table, figure, median};
use std::path::PathBuf;

#[derive(Parser)]
#[command(about, max_term_width = 100)]
struct Arguments {
    /// Addresses; an eighth of them get a second mailing
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    addresses: u64,
    /// Lookups of random addresses
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    lookups: u64,
    /// Clients, each with a connection
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1024))]
    clients: u64,
    /// Rounds; each restarts every server
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Command that starts tyrant, with {port} and {dir}
    #[arg(long, default_value = "target/dist/tyrant serve --port {port} {dir}/casket.tch")]
    tyrant: String,
    /// Folder for the servers' files; a folder of its own is made in it and removed
    #[arg(long)]
    dir: Option<PathBuf>,
    /// File for one JSON record per case and server
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let Arguments { addresses, lookups, clients, .. } = arguments;
    let plan = Plan { addresses, lookups, clients };
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new()
        .prefix("mailings-")
        .tempdir_in(&parent)
        .with_context(|| format!("a folder in {}", parent.display()))?;
    let recipes = [
        Recipe::parse(&format!("tyrant:memcached={}", arguments.tyrant))?,
        Recipe::memcached("memcached", Protocol::Memcached),
        Recipe::redis(),
    ];
    let cases = ["store mailings", "look up"];
    let mut measurements: Vec<Measurement> = Vec::new();
    for case in cases {
        for recipe in &recipes {
            let parameters = [
                ("addresses", addresses as f64),
                ("lookups", lookups as f64),
                ("connections", clients as f64),
            ];
            measurements.push(Measurement {
                case: case.into(),
                server: recipe.name.clone(),
                parameters: parameters.map(|(name, value)| (name.to_owned(), value)).into(),
                ..Measurement::default()
            });
        }
    }
    let steps = usize::from(arguments.rounds) * measurements.len();
    let mut done = 0;
    for _ in 0..arguments.rounds {
        for (server_place, recipe) in recipes.iter().enumerate() {
            let server = Server::start(recipe, folder.path())?;
            for (case_place, case) in cases.iter().enumerate() {
                measurement::print_progress(done, steps, &format!("{case} on {}", recipe.name));
                done += 1;
                let measured = match case_place {
                    0 => mailings::load(&server, &plan)?,
                    _ => mailings::look_up(&server, &plan)?,
                };
                let place = case_place * recipes.len() + server_place;
                measurements[place].rounds.push(measured.round());
            }
        }
    }
    let mut table = Table::new(["case", "server", "op/s", "p50 us", "p99 us", "server CPU us/op"]);
    for Measurement { case, server, rounds, .. } in &measurements {
        let of = |of: fn(&measurement::Round) -> Option<f64>| {
            figure(median(&rounds.iter().filter_map(of).collect::<Vec<_>>()))
        };
        table.row([
            case.clone(),
            server.clone(),
            of(|round| round.operations_per_second),
            of(|round| round.p50_us),
            of(|round| round.p99_us),
            of(|round| round.cpu_us_per_operation),
        ]);
    }
    println!("{table}");
    if let Some(file) = &arguments.json {
        measurement::write(file, &measurements)?;
    }
    Ok(())
}
