//! Replicated transactions: kills a master, its replica or both while clients execute transactions
//! of 100 commands. The replica must show whole transactions at all times, and become equal.

use super::instance::Instance;
use super::reader::{self, Seen};
use super::writer::{Counts, Load, Writer, check_expiries};
use crate::memcached::Connection;
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Databases of a master and a replica, and whether the replica has an update log, too. Each pair
/// has an equal part of the rounds.
const PAIRS: [(&str, bool); 4] = [("tch", false), ("tcb", false), ("tch", true), ("tcb", true)];

/// Longest time of load before a kill, and after the start of a killed replica, in microseconds.
const LOAD_US_MAX: u64 = 100_000;

/// Longest downtime, and longest time of the catch-up before a second kill, in microseconds.
const DOWN_US_MAX: u64 = 40_000;
const CATCHING_UP_US_MAX: u64 = 40_000;

/// One of this many rounds has a second kill, while the replica catches up.
const AGAIN_EVERY: u64 = 3;

/// Longest time until the replica is equal.
const PATIENCE: Duration = Duration::from_secs(120);

/// Pause between two looks at the replica.
const RETRY: Duration = Duration::from_millis(5);

/// Key of a record that is there before the first transaction.
const BEGUN: &str = "begun";

/// Runs `rounds` rounds.
pub(super) fn run(programs: &Path, folder: &Path, rounds: u32) -> Result<()> {
    let mut random = Random(1);
    let mut total = Total::new();
    let count = PAIRS.len() as u32;
    for (index, (kind, has_log)) in (0..).zip(PAIRS) {
        let rounds = rounds / count + u32::from(index < rounds % count);
        if rounds == 0 {
            continue;
        }
        let folder = folder.join(index.to_string());
        std::fs::create_dir(&folder)?;
        let log = if has_log { "with" } else { "without" };
        let name = format!("{kind}, the replica {log} an update log");
        let mut pair =
            Pair::begin(programs, &folder, kind, has_log).with_context(|| name.clone())?;
        for round in 0..rounds {
            pair.round(&mut random).with_context(|| format!("round {round}, {name}"))?;
        }
        pair.finish(&mut total).with_context(|| name.clone())?;
        if let Err(error) = pair.seen.check() {
            println!("crash: {name}: {error}");
        }
    }
    let Total { counts: Counts { acknowledged, whole, absent }, seen, .. } = &total;
    println!(
        "crash: killed a master {} times and its replica {} times, {acknowledged} transactions \
         acknowledged, none lost; of those that were not, {whole} are whole, {absent} absent; {} \
         reads of the replica, slowest start {:?}, equal after {:?} at most",
        total.master_kills,
        total.replica_kills,
        seen.reads,
        total.slowest_start,
        total.slowest_catch_up
    );
    ensure!(*acknowledged > 0, "no transaction was acknowledged, so the test proves nothing");
    seen.check()
}

struct Total {
    counts: Counts,
    master_kills: u32,
    replica_kills: u32,
    /// Reads of all replicas.
    seen: Seen,
    slowest_start: Duration,
    slowest_catch_up: Duration,
}

impl Total {
    fn new() -> Self {
        Self {
            counts: Counts::default(),
            master_kills: 0,
            replica_kills: 0,
            seen: Seen::new(0),
            slowest_start: Duration::ZERO,
            slowest_catch_up: Duration::ZERO,
        }
    }
}

/// A master, its replica and their clients.
struct Pair {
    master: Instance,
    replica: Instance,
    writers: Vec<Writer>,
    /// Reads of the replica.
    seen: Seen,
    slowest_catch_up: Duration,
}

impl Pair {
    /// Starts both servers, and waits until the replica follows.
    fn begin(programs: &Path, folder: &Path, kind: &str, has_log: bool) -> Result<Self> {
        let mut master =
            Instance::new(programs, folder, &format!("master.{kind}")).with_id(1).with_update_log();
        let replica = Instance::new(programs, folder, &format!("replica.{kind}"))
            .with_id(2)
            .following(&master);
        let mut replica = if has_log { replica.with_update_log() } else { replica };
        master.start()?;
        // A replica without records becomes a copy after each start, for which records arrive one
        // by one.
        Connection::open(master.port)?.set(BEGUN, b"")?;
        replica.start()?;
        let deadline = Instant::now() + PATIENCE;
        while !follows(replica.port)? {
            ensure!(Instant::now() < deadline, "the replica does not follow");
            std::thread::sleep(RETRY);
        }
        let (writers, seen) = (Writer::all(), Seen::new(1));
        Ok(Self { master, replica, writers, seen, slowest_catch_up: Duration::ZERO })
    }

    /// Kills servers under load, starts them again, and waits until the replica is equal. The
    /// replica is read meanwhile.
    fn round(&mut self, random: &mut Random) -> Result<()> {
        let Self { master, replica, writers, seen, slowest_catch_up } = self;
        let (port, stop) = (replica.port, AtomicBool::new(false));
        let mut alone = Seen::new(2);
        let round = std::thread::scope(|scope| {
            let reading = scope.spawn(|| seen.watch(port, &stop));
            let happened = under_load(master, replica, writers, random)
                .and_then(|()| recover(master, replica, writers, &mut alone, random))
                .and_then(|()| await_equal(replica, writers));
            stop.store(true, Ordering::Relaxed);
            let read = super::join(reading);
            read.and(happened)
        });
        seen.add(&alone);
        *slowest_catch_up = round?.max(*slowest_catch_up);
        Ok(())
    }

    fn finish(&self, total: &mut Total) -> Result<()> {
        self.master.check_log()?;
        self.replica.check_log()?;
        self.writers.iter().for_each(|writer| total.counts.add(writer.counts));
        total.master_kills += self.master.kills;
        total.replica_kills += self.replica.kills;
        total.seen.add(&self.seen);
        let slowest = self.master.slowest_start.max(self.replica.slowest_start);
        total.slowest_start = total.slowest_start.max(slowest);
        total.slowest_catch_up = total.slowest_catch_up.max(self.slowest_catch_up);
        Ok(())
    }
}

/// Kills the master, the replica or both while transactions are executed. A replica that was killed
/// alone is started again under the load.
fn under_load(
    master: &mut Instance,
    replica: &mut Instance,
    writers: &mut [Writer],
    random: &mut Random,
) -> Result<()> {
    let load = Load::default();
    std::thread::scope(|scope| {
        let running = load.start(scope, writers, master.port);
        let happened = load.await_first(&running).and_then(|()| {
            pause(random, LOAD_US_MAX);
            match random.below(4) {
                0 => {
                    master.kill()?;
                    replica.kill()
                }
                1 => {
                    replica.kill()?;
                    master.kill()
                }
                2 => master.kill(),
                _ => {
                    replica.kill()?;
                    pause(random, DOWN_US_MAX);
                    replica.start()?;
                    pause(random, LOAD_US_MAX);
                    Ok(())
                }
            }
        });
        load.stop.store(true, Ordering::Relaxed);
        running.join().and(happened)
    })
}

/// Starts the servers that were killed. In some rounds one of them is killed again, while the
/// replica catches up. Then checks the master's keys.
fn recover(
    master: &mut Instance,
    replica: &mut Instance,
    writers: &mut [Writer],
    alone: &mut Seen,
    random: &mut Random,
) -> Result<()> {
    if !master.is_up() {
        // Without its master the replica stays as the kill has left it.
        if !replica.is_up() {
            replica.start()?;
            alone.look(replica.port)?;
        }
        pause(random, DOWN_US_MAX);
        master.start()?;
    }
    if random.below(AGAIN_EVERY) == 0 {
        pause(random, CATCHING_UP_US_MAX);
        let victim = if random.below(2) == 0 { &mut *master } else { replica };
        victim.kill()?;
        pause(random, DOWN_US_MAX);
        victim.start()?;
    }
    writers.iter_mut().try_for_each(|writer| writer.check(master.port))
}

/// Waits until the replica holds the transactions that the master holds. Returns the duration.
fn await_equal(replica: &Instance, writers: &[Writer]) -> Result<Duration> {
    let started = Instant::now();
    let mut connection = Connection::open(replica.port)?;
    for writer in writers {
        loop {
            let found = reader::read(&mut connection, writer.keys);
            if found.as_ref().is_ok_and(|found| *found == writer.held) {
                break;
            }
            ensure!(
                started.elapsed() < PATIENCE,
                "the replica does not reach transaction {} of client {}: it holds {found:?}",
                writer.held,
                writer.keys.client
            );
            std::thread::sleep(RETRY);
        }
        check_expiries(&mut connection, writer.keys, writer.held)?;
    }
    Ok(started.elapsed())
}

/// Returns whether a replica has its first record and follows its master.
fn follows(port: u16) -> Result<bool> {
    let mut connection = Connection::open(port)?;
    if connection.get(BEGUN)?.is_none() {
        return Ok(false);
    }
    connection.send(b"stats\r\n")?;
    let stats = connection.read_until(b"END\r\n")?;
    Ok(String::from_utf8_lossy(&stats).contains("replication_state following\r\n"))
}

fn pause(random: &mut Random, us_max: u64) {
    std::thread::sleep(Duration::from_micros(random.below(us_max)));
}
