//! Transactions: kills a server while clients execute transactions of 100 commands. After each kill
//! every transaction must be whole or absent, and none that was acknowledged may be absent.

use super::instance::Instance;
use super::reader::Seen;
use super::writer::{Counts, Load, Writer};
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Databases, and whether they have an update log. The rounds go round them.
const PLACES: [(&str, bool); 4] =
    [("one.tch", false), ("two.tcb", false), ("three.tch", true), ("four.tcb", true)];

/// Longest time from the first acknowledged transaction to the kill, in microseconds.
const LOAD_US_MAX: u64 = 100_000;

/// One of this many kills does not wait for an acknowledged transaction.
const EARLY_EVERY: u64 = 8;

/// Starts, loads and kills servers `rounds` times.
pub(super) fn run(programs: &Path, folder: &Path, rounds: u32) -> Result<()> {
    let mut random = Random(1);
    let mut places: Vec<Place> =
        PLACES.iter().map(|place| Place::new(programs, folder, *place)).collect();
    for round in 0..rounds {
        let index = round as usize % PLACES.len();
        let (name, _) = PLACES[index];
        places[index].round(&mut random).with_context(|| format!("round {round}, {name}"))?;
    }
    let mut counts = Counts::default();
    let (mut reads, mut kills, mut slowest_start) = (0, 0, Duration::ZERO);
    for (place, (name, _)) in places.iter_mut().zip(PLACES).take(rounds as usize) {
        place.finish().with_context(|| format!("after the last round, {name}"))?;
        place.writers.iter().for_each(|writer| counts.add(writer.counts));
        reads += place.seen.reads;
        kills += place.instance.kills;
        slowest_start = slowest_start.max(place.instance.slowest_start);
    }
    let Counts { acknowledged, whole, absent } = counts;
    ensure!(acknowledged > 0, "no transaction was acknowledged, so the test proves nothing");
    println!(
        "crash: killed {kills} times, {acknowledged} transactions acknowledged, none lost; of those \
         that were not, {whole} are whole, {absent} absent; {reads} reads of whole transactions, \
         slowest start {slowest_start:?}"
    );
    Ok(())
}

/// A database, its server and its clients.
struct Place {
    instance: Instance,
    writers: Vec<Writer>,
    seen: Seen,
}

impl Place {
    fn new(programs: &Path, folder: &Path, (name, has_log): (&str, bool)) -> Self {
        let instance = Instance::new(programs, folder, name);
        let instance = if has_log { instance.with_id(1).with_update_log() } else { instance };
        Self { instance, writers: Writer::all(), seen: Seen::new(1) }
    }

    /// Starts the server, checks all keys, and kills it under load.
    fn round(&mut self, random: &mut Random) -> Result<()> {
        self.start_and_check()?;
        let Self { instance, writers, seen } = self;
        let (port, load) = (instance.port, Load::default());
        std::thread::scope(|scope| {
            let running = load.start(scope, writers, port);
            let reading = scope.spawn(|| seen.watch(port, &load.stop));
            let killed =
                if random.below(EARLY_EVERY) == 0 { Ok(()) } else { load.await_first(&running) };
            let killed = killed.and_then(|()| {
                std::thread::sleep(Duration::from_micros(random.below(LOAD_US_MAX)));
                instance.kill()
            });
            load.stop.store(true, Ordering::Relaxed);
            let read = super::join(reading);
            running.join().and(read).and(killed)
        })
    }

    fn start_and_check(&mut self) -> Result<()> {
        self.instance.start()?;
        self.writers.iter_mut().try_for_each(|writer| writer.check(self.instance.port))
    }

    fn finish(&mut self) -> Result<()> {
        self.start_and_check()?;
        self.seen.check()?;
        self.instance.check_log()
    }
}
