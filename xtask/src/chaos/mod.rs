//! Chaos test: servers that replicate each other, on hosts of their own, under faults. They are
//! killed and restarted, their links are cut, throttled and delayed, and their clocks are skewed.
//! Once the faults end, the servers must be equal record by record.

mod host;
mod load;
mod network;
mod relay;
mod security;
mod takeover;

use crate::programs::{Profile, build};
use crate::random::Random;
use crate::requirements;
use anyhow::{Context, Result, bail, ensure};
use host::{Host, PORT};
use network::{HUB, Link, Network, address};
use relay::Relay;
use security::Security;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Default duration of the faults, in seconds.
pub(crate) const SECONDS: u64 = 300;

/// Longest time until the servers are equal after the faults.
const PATIENCE: Duration = Duration::from_secs(120);

/// Longest time between two faults, in milliseconds.
const EVENT_MS_MAX: u64 = 1000;

/// Longest downtime of a server; below, longest fault of a link, in milliseconds.
const AWAY_MS_MAX: u64 = 1500;
const BAD_MS_MAX: u64 = 4000;

/// Longest delay to a master, and the same back, in milliseconds.
const DELAY_MS_MAX: u64 = 200;

/// Longest time between the repair of a link or server and the kill of a server during the
/// catch-up, in milliseconds.
const CATCHING_UP_MS_MAX: u64 = 120;

/// Largest clock skew, in seconds, in either direction.
const SKEW_S_MAX: u64 = 600;

/// Seconds of the test for each takeover of a master by its replica.
const SECONDS_OF_TAKEOVER: u64 = 20;

/// A master, its replica, a replica of that one, and two masters of each other.
const HOSTS: [(u8, Option<u8>); 5] =
    [(1, None), (2, Some(1)), (3, Some(2)), (4, Some(5)), (5, Some(4))];

/// Replicas whose link to the master can be delayed by a relay. The others connect directly.
const RELAYED: [u8; 2] = [3, 5];

/// Pairs of hosts that must end equal.
const EQUAL: [(u8, u8); 3] = [(1, 2), (1, 3), (4, 5)];

/// Clients, each with the host that it writes to.
const CLIENTS: [(&str, u8); 5] = [("a", 1), ("b", 1), ("c", 4), ("d", 5), ("e", 5)];

/// Runs the test for `seconds`. A seed of 0 is replaced by the time. With `tls` the servers encrypt
/// their replication, and require a user. Without root it prints that it is skipped.
pub(crate) fn run(profile: Profile, seconds: u64, seed: u64, tls: bool) -> Result<()> {
    if !requirements::is_root() {
        println!("chaos: SKIPPED, network namespaces need root");
        return Ok(());
    }
    let programs = build(profile)?;
    let seed = match seed {
        0 => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
        seed => seed,
    };
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let option = if tls { " --tls" } else { "" };
    println!("chaos: --seed {seed}{option}, {seconds} s");
    let security = tls.then(|| Security::create(&programs, folder.path(), takeover::OTHER));
    let security = security.transpose()?;
    let begun = Chaos::begin(&programs, folder.path(), seed, security.as_ref());
    let result = begun.and_then(|mut chaos| {
        chaos.run(Duration::from_secs(seconds))?;
        let rounds = u32::try_from(seconds.div_ceil(SECONDS_OF_TAKEOVER))?;
        let Chaos { network, random, .. } = &mut chaos;
        let security = security.as_ref();
        let stored = takeover::run(&programs, folder.path(), network, random, rounds, security)?;
        println!("chaos: {rounds} replicas took over, with all {stored} acknowledged records");
        Ok(())
    });
    result.map_err(|error| {
        error.context(format!("chaos: --seed {seed}{option}: files in {}", folder.keep().display()))
    })
}

struct Chaos {
    hosts: Vec<Host>,
    /// Relays of [`RELAYED`].
    relays: Vec<Relay>,
    network: Network,
    random: Random,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    kills: u32,
    cuts: u32,
    throttled: u32,
    delayed: u32,
}

/// A repair that is due later.
#[derive(Clone, Copy)]
enum Repair {
    Start(u8),
    Mend(u8),
    /// Removes the delay of a relay, given by its index.
    EndDelay(usize),
    /// Kills the host again, while it or its replica has much to catch up with.
    Kill(u8),
}

impl Chaos {
    fn begin(
        programs: &Path,
        folder: &Path,
        seed: u64,
        security: Option<&Security>,
    ) -> Result<Self> {
        let network = Network::new(takeover::OTHER)?;
        let mut random = Random(seed);
        if !host::can_skew() {
            println!("chaos: clocks are not skewed, libfaketime is not installed");
        }
        let (mut hosts, mut relays) = (Vec::new(), Vec::new());
        for (number, master) in HOSTS {
            // Servers that become equal have the same kind of database.
            let kinds = ["casket.tch", "casket.tcb"];
            let database = kinds[(seed as usize + usize::from(number > 3)) % kinds.len()];
            let master = match master.map(|master| format!("{}:{PORT}", address(master))) {
                Some(master) if RELAYED.contains(&number) => {
                    let relay = Relay::start(&network, master)?;
                    let address = format!("{}:{}", address(HUB), relay.port);
                    relays.push(relay);
                    Some(address)
                }
                master => master,
            };
            let further: &[&str] = if number > 3 { &["--writable-replica"] } else { &[] };
            let folder = folder.join(number.to_string());
            let master = master.as_deref();
            let mut host =
                Host::new(number, folder, programs, database, master, further, security)?;
            host.start(&network, skew(&mut random))?;
            hosts.push(host);
        }
        Ok(Self { hosts, relays, network, random, counts: Counts::default() })
    }

    fn run(&mut self, duration: Duration) -> Result<()> {
        let stop = AtomicBool::new(false);
        let sockets: Vec<_> =
            CLIENTS.map(|(_, host)| self.hosts[usize::from(host) - 1].socket()).into();
        let acknowledged = std::thread::scope(|scope| {
            let clients: Vec<_> = CLIENTS
                .into_iter()
                .zip(&sockets)
                .zip(1..)
                .map(|(((name, _), socket), number)| {
                    let stop = &stop;
                    let seed = self.random.below(u64::MAX) ^ number;
                    scope.spawn(move || load::change(socket, name, seed, stop))
                })
                .collect();
            let happened = self.inject_faults(duration);
            stop.store(true, Ordering::Relaxed);
            let mut acknowledged = 0;
            for client in clients {
                match client.join() {
                    Ok(count) => acknowledged += count?,
                    Err(_) => bail!("a client panicked"),
                }
            }
            happened.map(|()| acknowledged)
        })?;
        let took = self.await_equal()?;
        let complaints: Vec<String> =
            self.hosts.iter().map(Host::complaints).collect::<Result<Vec<_>>>()?.concat();
        ensure!(complaints.is_empty(), "equal, but the logs have errors: {complaints:#?}");
        println!(
            "chaos: {acknowledged} changes acknowledged, {:?}, equal after {took:.1?}",
            self.counts
        );
        Ok(())
    }

    /// Injects faults, and repairs all of them at the end.
    fn inject_faults(&mut self, duration: Duration) -> Result<()> {
        let end = Instant::now() + duration;
        let mut laters: Vec<(Instant, Repair)> = Vec::new();
        let mut next = Instant::now();
        while Instant::now() < end {
            let now = Instant::now();
            while let Some(due) = laters.iter().position(|(at, _)| *at <= now) {
                let (_, later) = laters.swap_remove(due);
                laters.extend(self.repair(later)?);
            }
            if now >= next {
                laters.push(self.inject_fault()?);
                next = now + Duration::from_millis(self.random.below(EVENT_MS_MAX));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // The final repairs inject no new faults.
        for (number, _) in HOSTS {
            self.repair(Repair::Start(number))?;
            self.repair(Repair::Mend(number))?;
        }
        for index in 0..RELAYED.len() {
            self.repair(Repair::EndDelay(index))?;
        }
        Ok(())
    }

    /// Injects one fault. Returns its repair, and when that is due.
    fn inject_fault(&mut self) -> Result<(Instant, Repair)> {
        let number = 1 + self.random.below(HOSTS.len() as u64) as u8;
        let bad = self.soon(BAD_MS_MAX);
        let counts = &mut self.counts;
        let link = match self.random.below(10) {
            0..4 => return self.kill(number),
            4..7 => {
                counts.cuts += 1;
                Link::Cut
            }
            7 | 8 => {
                counts.delayed += 1;
                let index = usize::from(number) % RELAYED.len();
                let delay = 1 + self.random.below(DELAY_MS_MAX);
                self.relays[index].delay(Duration::from_millis(delay));
                return Ok((bad, Repair::EndDelay(index)));
            }
            _ => {
                counts.throttled += 1;
                Link::Throttled(spread(&mut self.random))
            }
        };
        self.network.set_link(number, link)?;
        Ok((bad, Repair::Mend(number)))
    }

    fn kill(&mut self, number: u8) -> Result<(Instant, Repair)> {
        self.hosts[usize::from(number) - 1].kill()?;
        self.counts.kills += 1;
        Ok((self.soon(AWAY_MS_MAX), Repair::Start(number)))
    }

    fn soon(&mut self, ms_max: u64) -> Instant {
        Instant::now() + Duration::from_millis(self.random.below(ms_max))
    }

    /// Executes a repair. Returns a repair that follows from it.
    fn repair(&mut self, later: Repair) -> Result<Option<(Instant, Repair)>> {
        let number = match later {
            Repair::Kill(number) => return self.kill(number).map(Some),
            Repair::EndDelay(index) => {
                self.relays[index].delay(Duration::ZERO);
                return Ok(None);
            }
            Repair::Mend(number) => {
                self.network.set_link(number, Link::Good)?;
                number
            }
            Repair::Start(number) => {
                let host = &mut self.hosts[usize::from(number) - 1];
                // It may have been killed twice.
                if host.is_up() {
                    return Ok(None);
                }
                host.start(&self.network, skew(&mut self.random))?;
                number
            }
        };
        let replica = HOSTS.iter().find(|(_, master)| *master == Some(number));
        let catching_up = [Some(number), replica.map(|(replica, _)| *replica)];
        let victim =
            catching_up[self.random.below(2) as usize].filter(|_| self.random.below(2) > 0);
        Ok(victim.map(|victim| (self.soon(CATCHING_UP_MS_MAX), Repair::Kill(victim))))
    }

    /// Waits until the pairs are equal. Returns the duration.
    fn await_equal(&self) -> Result<Duration> {
        let started = Instant::now();
        for (one, other) in EQUAL {
            let records = |number: u8| self.hosts[usize::from(number) - 1].records();
            loop {
                let (left, right) = (records(one)?, records(other)?);
                ensure!(!left.is_empty(), "host {one} has no records");
                if left == right {
                    break;
                }
                if started.elapsed() > PATIENCE {
                    let differs = left.iter().filter(|record| right.binary_search(record).is_err());
                    let differs: Vec<&str> =
                        differs.map(|record| record.split('\t').next().unwrap_or("")).collect();
                    bail!(
                        "hosts {one} and {other} differ: {} and {} records, {} of the first are not \
                         in the other: {:?}",
                        left.len(),
                        right.len(),
                        differs.len(),
                        &differs[..differs.len().min(10)]
                    );
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        Ok(started.elapsed())
    }
}

/// Returns a random clock skew, in seconds.
fn skew(random: &mut Random) -> i64 {
    let skew = random.below(2 * SKEW_S_MAX + 1) as i64 - SKEW_S_MAX as i64;
    if host::can_skew() { skew } else { 0 }
}

/// Returns a random rate of a slow link: 50 to 6400 kbit per second.
fn spread(random: &mut Random) -> u64 {
    50 << random.below(8)
}
