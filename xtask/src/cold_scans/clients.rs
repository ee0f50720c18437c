//! Clients beside a scan: how long gets of a few records take while the server goes through all of
//! them, and while it does not.

use super::{Database, KEY_BYTES, Options};
use crate::cgroup::MemoryCgroup;
use crate::memcached::Connection;
use crate::misc;
use crate::programs::Server;
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Records that the clients get.
const HOT_RECORDS: u64 = 1000;

/// Time between two gets.
const GET_EVERY: Duration = Duration::from_millis(1);

/// Time for which gets are made without a scan, after as much in which the records become hot.
const QUIET: Duration = Duration::from_secs(4);

/// Requests that are on their way at a time in an iteration.
const PIPELINED: u64 = 1000;

/// Runs a server in the group, and prints the latencies of gets alone and beside scans.
pub(super) fn measure(
    database: &Database,
    group: &MemoryCgroup,
    programs: &Path,
    options: &Options,
) -> Result<()> {
    super::forget(&database.files()?)?;
    let log = database.folder.with_extension("log");
    let name = Path::new(&database.name);
    let mut server =
        Server::start_by(|command| group.enclose(&command), programs, name, &log, &[])?;
    let gets = Gets { kind: &database.kind, records: options.records, port: server.port };
    gets.until(&mut wait)?;
    let quiet = gets.until(&mut wait)?;
    let regex = gets.until(&mut || search(server.port))?;
    let iteration = gets.until(&mut || iterate(server.port, options.records.into()))?;
    for (what, latencies) in [("alone", &quiet), ("regex", &regex), ("iteration", &iteration)] {
        println!(
            "| .{} | {what} | {:.1} | {} | {:.0} | {:.0} | {:.2} |",
            database.kind,
            latencies.seconds,
            latencies.sorted_us.len(),
            latencies.at(0.5),
            latencies.at(0.99),
            latencies.at(0.99) / quiet.at(0.99),
        );
    }
    // The next export is to find it closed.
    server.stop()
}

/// Waits as long as gets are made without a scan.
fn wait() -> Result<()> {
    thread::sleep(QUIET);
    Ok(())
}

/// Gets of the same records again and again, each when its time has come, whether the ones before
/// took long or not.
struct Gets<'d> {
    kind: &'d str,
    records: u32,
    port: u16,
}

/// Times from when a get was due to its reply.
struct Latencies {
    seconds: f64,
    sorted_us: Vec<f64>,
}

impl Latencies {
    fn at(&self, share: f64) -> f64 {
        let place = (self.sorted_us.len() as f64 * share) as usize;
        self.sorted_us.get(place).copied().unwrap_or(f64::NAN)
    }
}

impl Gets<'_> {
    /// Gets records until `scan` has returned.
    fn until(&self, scan: &mut dyn FnMut() -> Result<()>) -> Result<Latencies> {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let gets = scope.spawn(|| self.run(&is_over));
            let scanned = scan();
            is_over.store(true, Ordering::Relaxed);
            let latencies = gets.join().map_err(|_| anyhow::anyhow!("a panic"))??;
            scanned?;
            Ok(latencies)
        })
    }

    fn run(&self, is_over: &AtomicBool) -> Result<Latencies> {
        let mut connection = Connection::open(self.port)?;
        let mut random = Random(7);
        let began = Instant::now();
        let mut sorted_us = Vec::new();
        let mut due = began;
        while !is_over.load(Ordering::Relaxed) {
            let number = 1 + random.below(HOT_RECORDS) * (u64::from(self.records) / HOT_RECORDS);
            let key = match self.kind {
                "tcf" => number.to_string(),
                _ => format!("{number:0KEY_BYTES$}"),
            };
            thread::sleep(due.saturating_duration_since(Instant::now()));
            connection.send(format!("get {key}\r\n").as_bytes())?;
            let head = connection.line()?;
            ensure!(head.starts_with("VALUE "), "get {key} replied {head:?}");
            let bytes = head.rsplit(' ').next().and_then(|bytes| bytes.parse::<usize>().ok());
            connection.read(bytes.context("no length")? + "\r\nEND\r\n".len())?;
            sorted_us.push(due.elapsed().as_secs_f64() * 1e6);
            due += GET_EVERY;
        }
        sorted_us.sort_by(f64::total_cmp);
        Ok(Latencies { seconds: began.elapsed().as_secs_f64(), sorted_us })
    }
}

/// Has the server search all records for one that is not there.
fn search(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(&misc::request("regex", &[b"no key is like this"]))?;
    let mut reply = [0; 5];
    stream.read_exact(&mut reply)?;
    ensure!(reply == [0; 5], "the search replied {reply:?}");
    Ok(())
}

/// Iterates over the keys of all records.
fn iterate(port: u16, records: u64) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(&[0xc8, 0x50])?;
    let mut status = [0];
    stream.read_exact(&mut status)?;
    let mut stream = std::io::BufReader::new(stream);
    let mut count = 0;
    loop {
        stream.get_mut().write_all(&[0xc8, 0x51].repeat(PIPELINED as usize))?;
        let before = count;
        for _ in 0..PIPELINED {
            stream.read_exact(&mut status)?;
            if status == [0] {
                let mut bytes = [0; 4];
                stream.read_exact(&mut bytes)?;
                let mut key = vec![0; u32::from_be_bytes(bytes) as usize];
                stream.read_exact(&mut key)?;
                count += 1;
            }
        }
        if count < before + PIPELINED {
            ensure!(count == records, "an iteration met {count} of {records} records");
            return Ok(());
        }
    }
}
