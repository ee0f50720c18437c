//! Backup test: backs up a server under writes, restores, and checks that the result is a state the
//! server had. It repeats this with a repository on a full disk.
//!
//! Each writer writes 0, 1, 2 and so on to its own keys, in an order derived from the number. So
//! the greatest number found determines all other values.

use crate::full_disk::Disk;
use crate::memcached::{Connection, set_request};
use crate::programs::{Profile, Server, build};
use crate::requirements;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Default number of records.
const RECORDS: u64 = 4_000_000;

const WRITERS: u64 = 2;
const VALUE_BYTES: usize = 100;
const PIPELINE_DEPTH: u64 = 64;
const KEYS_PER_GET: u64 = 200;

/// Backups during writes, after the first.
const INCREMENTS: usize = 2;

/// Duration of the writes before the first backup, and between two.
const PAUSE: Duration = Duration::from_secs(5);

/// Size of the disk that is too small, in MiB.
const SMALL_DISK_MIB: u32 = 64;

/// Options of the test.
#[derive(clap::Args)]
pub(crate) struct Load {
    /// Number of records.
    #[arg(long, default_value_t = RECORDS)]
    pub(crate) records: u64,
    /// Limit writes per second once all records are stored [default: unlimited].
    #[arg(long)]
    pub(crate) rate: Option<u32>,
    /// Store the databases and backups in this folder during the test.
    #[arg(long)]
    pub(crate) folder: Option<PathBuf>,
}

pub(crate) fn run(profile: Profile, load: &Load) -> Result<()> {
    let &Load { records, rate, .. } = load;
    let programs = build(profile)?;
    let folder = match &load.folder {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    }
    .context("no temporary folder")?;
    let keys = Keys { of_one: records.div_ceil(WRITERS).max(1) };
    let work = Work { tyrant: programs.join("tyrant"), folder: folder.path(), keys };
    let database = work.path("casket.tch");
    let ulog = work.path("ulog");
    let (log, here) = (ulog.display().to_string(), folder.path().display().to_string());
    let options = ["--update-log", &log, "--server-id", "1", "--copy-dir", &here];
    let server = Server::start_with(&programs, &database, &work.path("log"), &options)?;
    let writers: Vec<Writer> = (0..WRITERS).map(|number| Writer::new(number, keys, rate)).collect();
    let stop = AtomicBool::new(false);
    let moment = std::thread::scope(|scope| -> Result<Moment> {
        let threads: Vec<_> =
            writers.iter().map(|writer| scope.spawn(|| writer.write(server.port, &stop))).collect();
        let has_ended = || threads.iter().any(ScopedJoinHandle::is_finished);
        let done = work.back_up(&server, &writers, &has_ended);
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
        }
        done
    })?;
    drop(server);
    work.timed("verify", &["backup", "verify", &work.repository()])?;
    let ends = work.restore_and_check("newest.tch", &[])?;
    println!("the newest backup is a prefix of the history: {ends:?} writes");
    let time = moment.time_us.to_string();
    let until = ["--until", &time, "--update-log", &ulog.display().to_string()];
    let later = work.restore_and_check("until.tch", &until)?;
    println!("so is the restored point in time: {later:?} writes");
    for (index, end) in later.iter().enumerate() {
        let (acknowledged, sent) = (moment.acknowledged[index], moment.sent[index]);
        ensure!(
            (acknowledged..=sent).contains(end) && ends[index] <= *end,
            "writer {index}: {acknowledged} to {sent} writes expected, {} are in the backup",
            ends[index]
        );
    }
    fs::remove_dir_all(work.path("until.tch")).context("cannot remove the restored database")?;
    full_disk(&work)
}

/// Mapping from writes to keys.
#[derive(Clone, Copy)]
struct Keys {
    /// Number of keys of one writer.
    of_one: u64,
}

impl Keys {
    /// Returns the index of the key of a write, among its writer's keys.
    fn index(self, number: u64) -> u64 {
        // Each key once, and then a pseudo-random sequence.
        if number < self.of_one {
            number
        } else {
            number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.of_one
        }
    }

    fn name(self, writer: u64, index: u64) -> String {
        format!("{writer:03}.{index:012}")
    }
}

/// Writes sent and acknowledged at a point in time.
struct Moment {
    time_us: u64,
    acknowledged: Vec<u64>,
    sent: Vec<u64>,
}

struct Writer {
    number: u64,
    keys: Keys,
    /// Shortest duration of a pipeline of writes, once all keys are written.
    pace: Duration,
    sent: AtomicU64,
    acknowledged: AtomicU64,
    /// Longest duration of a pipeline of writes since it was last read.
    slowest_us: AtomicU64,
}

impl Writer {
    fn new(number: u64, keys: Keys, rate: Option<u32>) -> Self {
        let together = PIPELINE_DEPTH * WRITERS;
        let pace = rate.map_or(0.0, |rate| together as f64 / f64::from(rate.max(1)));
        let pace = Duration::from_secs_f64(pace);
        let [sent, acknowledged, slowest_us] = [(); 3].map(|()| AtomicU64::new(0));
        Self { number, keys, pace, sent, acknowledged, slowest_us }
    }

    fn write(&self, port: u16, stop: &AtomicBool) -> Result<()> {
        let mut connection = Connection::open(port)?;
        let mut next = 0;
        while !stop.load(Ordering::Relaxed) {
            let mut requests = Vec::new();
            for number in next..next + PIPELINE_DEPTH {
                let value = format!("{number:.<VALUE_BYTES$}");
                let key = self.keys.name(self.number, self.keys.index(number));
                requests.extend(set_request(&key, value.as_bytes()));
            }
            next += PIPELINE_DEPTH;
            let started = Instant::now();
            self.sent.store(next, Ordering::SeqCst);
            connection.send(&requests)?;
            for _ in 0..PIPELINE_DEPTH {
                let answer = connection.line()?;
                ensure!(answer == "STORED", "unexpected response to a write: {answer:?}");
            }
            self.acknowledged.store(next, Ordering::SeqCst);
            let took_us = started.elapsed().as_micros() as u64;
            self.slowest_us.fetch_max(took_us, Ordering::SeqCst);
            if next > self.keys.of_one {
                std::thread::sleep(self.pace.saturating_sub(started.elapsed()));
            }
        }
        Ok(())
    }
}

struct Work<'f> {
    tyrant: PathBuf,
    folder: &'f Path,
    keys: Keys,
}

impl Work<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn repository(&self) -> String {
        self.path("backups").display().to_string()
    }

    fn tyrant(&self, arguments: &[&str]) -> Result<Output> {
        Command::new(&self.tyrant).args(arguments).output().context("cannot run tyrant")
    }

    /// Runs a command that must succeed, and prints its duration.
    fn timed(&self, what: &str, arguments: &[&str]) -> Result<()> {
        let started = Instant::now();
        let output = self.tyrant(arguments)?;
        let seconds = started.elapsed().as_secs_f64();
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "{what}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        println!("{what}: {seconds:.2} s, {}", said.trim_end().replace('\n', ", "));
        Ok(())
    }

    /// Makes backups during writes. Returns a point in time after the last backup. Fails if a
    /// writer has ended.
    fn back_up(
        &self,
        server: &Server,
        writers: &[Writer],
        has_ended: &dyn Fn() -> bool,
    ) -> Result<Moment> {
        let count = |of: fn(&Writer) -> &AtomicU64| -> Vec<u64> {
            writers.iter().map(|writer| of(writer).load(Ordering::SeqCst)).collect()
        };
        let acknowledged = || count(|writer| &writer.acknowledged);
        let started = Instant::now();
        while acknowledged().iter().any(|count| *count < self.keys.of_one) {
            ensure!(!has_ended(), "a writer has ended early");
            std::thread::sleep(Duration::from_millis(10));
        }
        println!(
            "{} records in {:.1} s",
            self.keys.of_one * WRITERS,
            started.elapsed().as_secs_f64()
        );
        let rate = |what: &str, work: &mut dyn FnMut() -> Result<()>| -> Result<()> {
            let slowest =
                || writers.iter().map(|writer| writer.slowest_us.swap(0, Ordering::SeqCst));
            drop(slowest().collect::<Vec<_>>());
            let (before, started) = (acknowledged().iter().sum::<u64>(), Instant::now());
            work()?;
            let writes = acknowledged().iter().sum::<u64>() - before;
            println!(
                "{what}: {:.0} writes per second, the slowest {PIPELINE_DEPTH} in {:.1} ms",
                writes as f64 / started.elapsed().as_secs_f64(),
                slowest().max().unwrap_or_default() as f64 / 1000.0
            );
            Ok(())
        };
        let mut pause = || {
            std::thread::sleep(PAUSE);
            Ok(())
        };
        rate("without a backup", &mut pause)?;
        let address = format!("127.0.0.1:{}", server.port);
        let repository = self.repository();
        let create = ["backup", "create", &repository, "--server", &address];
        rate("during the first backup", &mut || self.timed("first backup", &create))?;
        for _ in 0..INCREMENTS {
            rate("without a backup", &mut pause)?;
            rate("during the next backup", &mut || self.timed("next backup", &create))?;
        }
        std::thread::sleep(PAUSE / 5);
        let acknowledged = acknowledged();
        let time_us = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros().try_into()?;
        let sent = count(|writer| &writer.sent);
        std::thread::sleep(PAUSE / 5);
        Ok(Moment { time_us, acknowledged, sent })
    }

    /// Restores a backup and serves it. Returns how many writes of each writer it has. Fails unless
    /// they are a prefix of the writes.
    fn restore_and_check(&self, name: &str, options: &[&str]) -> Result<Vec<u64>> {
        let (repository, into) = (self.repository(), self.path(name));
        let restore = ["restore", &repository, "--into", &into.display().to_string()];
        self.timed("restore", &[&restore, options].concat())?;
        let programs = self.tyrant.parent().context("no folder of programs")?;
        let server = Server::start(programs, &into)?;
        let mut connection = Connection::open(server.port)?;
        (0..WRITERS).map(|writer| self.check(&mut connection, writer)).collect()
    }

    fn check(&self, connection: &mut Connection, writer: u64) -> Result<u64> {
        let mut found = vec![None; usize::try_from(self.keys.of_one)?];
        for first in (0..self.keys.of_one).step_by(KEYS_PER_GET as usize) {
            let indices = first..(first + KEYS_PER_GET).min(self.keys.of_one);
            let names = indices.map(|index| format!(" {}", self.keys.name(writer, index)));
            connection.send(format!("get{}\r\n", names.collect::<String>()).as_bytes())?;
            let answer = connection.read_until(b"END\r\n")?;
            let mut lines = std::str::from_utf8(&answer)?.split("\r\n");
            while let Some(head) = lines.next().and_then(|line| line.strip_prefix("VALUE ")) {
                let index = head.split(['.', ' ']).nth(1).context("no key")?.parse::<usize>()?;
                let value = lines.next().context("no value")?;
                let place = found.get_mut(index).context("a key that was never written")?;
                *place = Some(value.trim_end_matches('.').parse::<u64>()?);
            }
        }
        let end = found.iter().flatten().max().map_or(0, |last| last + 1);
        let mut expected = vec![None; found.len()];
        for number in 0..end {
            expected[usize::try_from(self.keys.index(number))?] = Some(number);
        }
        if let Some(index) = (0..found.len()).find(|index| found[*index] != expected[*index]) {
            bail!(
                "writer {writer} wrote {end} times, but key {index} holds {:?} instead of {:?}",
                found[index],
                expected[index]
            );
        }
        Ok(end)
    }
}

/// Checks that a repository on a full disk keeps its backups.
fn full_disk(work: &Work<'_>) -> Result<()> {
    if !requirements::is_root() {
        println!("full disk: SKIPPED, mounting a small file system needs root");
        return Ok(());
    }
    let disk = work.path("disk");
    fs::create_dir(&disk)?;
    let _disk = Disk::mount(&disk, SMALL_DISK_MIB)?;
    let repository = disk.join("backups").display().to_string();
    let small = work.path("small.tch");
    let programs = work.tyrant.parent().context("no folder of programs")?;
    let folder = small.parent().context("no folder of the database")?.display().to_string();
    let log = small.with_extension("log");
    let mut server = Server::start_with(programs, &small, &log, &["--copy-dir", &folder])?;
    let mut connection = Connection::open(server.port)?;
    let address = format!("127.0.0.1:{}", server.port);
    let create = ["backup", "create", &repository, "--server", &address];
    connection.set("first", b"1")?;
    work.timed("small backup", &create)?;
    let value = vec![b'x'; 1 << 20];
    for number in 0..SMALL_DISK_MIB {
        connection.set(&format!("large-{number}"), &value)?;
    }
    let output = work.tyrant(&create)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        !output.status.success() && said.contains("No space left"),
        "a backup larger than the disk: {said}"
    );
    work.timed("verify", &["backup", "verify", &repository])?;
    for number in 0..SMALL_DISK_MIB {
        connection.delete(&format!("large-{number}"))?;
    }
    work.tyrant(&["optimize", "--server", &address])?;
    work.timed("small backup again", &create)?;
    work.timed("verify", &["backup", "verify", &repository])?;
    server.kill()?;
    println!("full disk: the backups remained, and backups continued once there was space");
    Ok(())
}
