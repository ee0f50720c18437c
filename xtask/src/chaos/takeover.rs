//! Takeover test: a semi-synchronous master is killed under load, and its replica takes over. The
//! replica must have every acknowledged change. Another replica, killed before, continues at the
//! new master, which is killed in the meantime: it must execute nothing twice and miss nothing.

use super::host::{Host, PORT, Socket, expect_end};
use super::network::{Link, Network, address};
use super::security::Security;
use super::{skew, spread};
use crate::random::Random;
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashSet;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Hosts: the master, the replica that takes over, and another replica.
pub(super) const MASTER: u8 = 6;
pub(super) const REPLICA: u8 = 7;
pub(super) const OTHER: u8 = 8;

/// Number of records that are incremented.
const SUMS: u64 = 50;

/// Duration of the increments, each time.
const ADDING: Duration = Duration::from_millis(500);

/// Longest time until servers are equal.
const PATIENCE: Duration = Duration::from_secs(120);

/// Requests per pipeline.
const DEPTH: usize = 64;

/// Longest duration of the load, in milliseconds; the shortest is a fifth of it.
const LOAD_MS_MAX: u64 = 5000;

/// Longest fault of the link, in milliseconds.
const BAD_MS_MAX: u64 = 700;

/// Runs `rounds` takeovers, each with new databases. Returns the number of acknowledged changes.
pub(super) fn run(
    programs: &Path,
    folder: &Path,
    network: &Network,
    random: &mut Random,
    rounds: u32,
    security: Option<&Security>,
) -> Result<usize> {
    let mut total = 0;
    for round in 0..rounds {
        let start =
            |number, master: Option<&str>, further: &[&str], random: &mut Random| -> Result<Host> {
                let folder = folder.join(format!("takeover-{round}-{number}"));
                let database = "casket.tch";
                let mut host =
                    Host::new(number, folder, programs, database, master, further, security)?;
                host.start(network, skew(random))?;
                Ok(host)
            };
        let waiting = ["--semi-sync", "1", "--semi-sync-timeout", "5"];
        let mut master = start(MASTER, None, &waiting, random)?;
        let of = format!("{}:{PORT}", address(MASTER));
        let mut replica = start(REPLICA, Some(&of), &[], random)?;
        let mut other = start(OTHER, Some(&of), &["--seed", "never"], random)?;
        while_adding(&master.socket(), || other.kill())?;
        await_equal(&master, &replica)?;
        let socket = master.socket();
        let begun = AtomicBool::new(false);
        let acknowledged = std::thread::scope(|scope| {
            let load = scope.spawn(|| store(&socket, &begun));
            // A link that is bad from the beginning could let nothing through.
            let deadline = Instant::now() + PATIENCE;
            while !begun.load(Ordering::Relaxed) && !load.is_finished() {
                if Instant::now() > deadline {
                    // The load ends with the server.
                    master.kill()?;
                    bail!("no change was acknowledged in {PATIENCE:?}");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let mut left_ms = LOAD_MS_MAX / 5 + random.below(LOAD_MS_MAX * 4 / 5);
            while left_ms > 0 {
                let ms = (1 + random.below(BAD_MS_MAX)).min(left_ms);
                left_ms -= ms;
                let link = match random.below(4) {
                    0 => Link::Cut,
                    1 => Link::Throttled(spread(random)),
                    _ => Link::Good,
                };
                network.set_link(REPLICA, link)?;
                std::thread::sleep(Duration::from_millis(ms));
            }
            master.kill()?;
            match load.join() {
                Ok(acknowledged) => acknowledged,
                Err(_) => bail!("a client panicked"),
            }
        })?;
        network.set_link(REPLICA, Link::Good)?;
        ensure!(!acknowledged.is_empty(), "no change was acknowledged");
        replica.run(&["promote"])?;
        let keys: HashSet<String> = replica.run(&["list"])?.lines().map(str::to_owned).collect();
        let missing: Vec<_> =
            acknowledged.iter().filter(|key| !keys.contains(&key.to_string())).collect();
        ensure!(
            missing.is_empty(),
            "{} of {} acknowledged records are missing in round {round}: {:?}",
            missing.len(),
            acknowledged.len(),
            &missing[..missing.len().min(10)]
        );
        // It is a master now.
        replica.run(&["put", "taken", "over"])?;
        while_adding(&replica.socket(), || replica.kill())?;
        replica.start(network, skew(random))?;
        other.set_master(&format!("{}:{PORT}", address(REPLICA)));
        let socket = replica.socket();
        while_adding(&socket, || {
            other.start(network, skew(random))?;
            std::thread::sleep(Duration::from_millis(random.below(BAD_MS_MAX)));
            other.kill()?;
            other.start(network, skew(random))
        })?;
        await_equal(&replica, &other)?;
        ensure!(
            other.has_logged("continuing in another log")?,
            "the replica did not continue from its last entry"
        );
        total += acknowledged.len();
    }
    Ok(total)
}

/// Runs `act` while a client increments records. The client continues for a while afterwards,
/// unless the server has been killed.
fn while_adding(socket: &Socket, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| add(socket, &stop));
        std::thread::sleep(ADDING);
        let acted = act();
        if acted.is_ok() {
            std::thread::sleep(ADDING);
        }
        stop.store(true, Ordering::Relaxed);
        match adding.join() {
            Ok(added) => acted.and(added),
            Err(_) => bail!("a client panicked"),
        }
    })
}

/// Increments records until `stop` is set or the server has been killed.
fn add(socket: &Socket, stop: &AtomicBool) -> Result<()> {
    let mut stream = socket.connect()?.context("cannot connect")?;
    let batch = |request: fn(u64) -> String| (0..SUMS).map(request).collect::<String>();
    let begin = batch(|key| format!("add sum{key} 0 0 1\r\n0\r\nadd text{key} 0 0 1\r\n0\r\n"));
    let more = batch(|key| format!("incr sum{key} 1\r\nappend text{key} 0 0 1\r\n+\r\n"));
    let mut requests = &begin;
    while !stop.load(Ordering::Relaxed) {
        if let Err(error) = stream.get_mut().write_all(requests.as_bytes()) {
            return expect_end(error);
        }
        requests = &more;
        for _ in 0..2 * SUMS {
            let mut line = String::new();
            match stream.read_line(&mut line) {
                Ok(_) if line.is_empty() || !line.ends_with('\n') => return Ok(()),
                Ok(_) if line.starts_with("SERVER_ERROR ") || !line.contains("ERROR") => {}
                Ok(_) => bail!("the server responded {line:?}"),
                Err(error) => return expect_end(error),
            }
        }
    }
    Ok(())
}

/// Waits until two servers have the same records.
fn await_equal(one: &Host, other: &Host) -> Result<()> {
    let started = Instant::now();
    loop {
        let (left, right) = (one.records()?, other.records()?);
        if left == right {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            let differs = left.iter().filter(|record| right.binary_search(record).is_err());
            bail!(
                "hosts {} and {} differ: {} and {} records, {} of the first are not in the other",
                one.number,
                other.number,
                left.len(),
                right.len(),
                differs.count()
            );
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Stores numbered records until the server has been killed. Sets `begun` once it has acknowledged
/// some. Returns the acknowledged numbers.
fn store(socket: &Socket, begun: &AtomicBool) -> Result<Vec<u64>> {
    let mut stream = socket.connect()?.context("cannot connect")?;
    let mut acknowledged = Vec::new();
    let mut next = 0_u64;
    loop {
        let numbers = next..next + DEPTH as u64;
        next = numbers.end;
        let requests: String =
            numbers.clone().map(|number| format!("set {number} 0 0 1\r\nv\r\n")).collect();
        if let Err(error) = stream.get_mut().write_all(requests.as_bytes()) {
            return expect_end(error).map(|()| acknowledged);
        }
        for number in numbers {
            let mut line = String::new();
            match stream.read_line(&mut line) {
                Ok(_) if line == "STORED\r\n" => {
                    acknowledged.push(number);
                    begun.store(true, Ordering::Relaxed);
                }
                // The replica did not acknowledge it in time.
                Ok(_) if line.starts_with("SERVER_ERROR ") && line.ends_with("\r\n") => {}
                Ok(_) if line.is_empty() || !line.ends_with('\n') => return Ok(acknowledged),
                Ok(_) => bail!("the server responded {line:?}"),
                Err(error) => return expect_end(error).map(|()| acknowledged),
            }
        }
    }
}
