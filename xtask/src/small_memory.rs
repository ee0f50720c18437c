//! Runs the server in a memory cgroup that is small beside its data: puts go on, what would take
//! too much memory ends in an error, a long upload takes no event loop, and nothing kills the
//! server.

#[path = "../../crates/compare/src/cgroup.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is the benchmarks', which use the rest")]
mod cgroup;

use crate::memcached::Connection;
use crate::programs::{Profile, Server, build};
use crate::requirements;
use anyhow::{Context, Result, bail, ensure};
use cgroup::MemoryCgroup;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Memory of the server, in bytes, the page cache included.
const MEMORY_BYTES: u64 = 64 << 20;

/// Records that the command puts into each kind of database.
pub(crate) const RECORDS: u64 = 2_000_000;

/// The same for an unoptimized build: their files are larger than the memory all the same.
const RECORDS_OF_DEBUG: u64 = 400_000;

/// Length of each value: 200 bytes.
const VALUE: [u8; 200] = [b'v'; 200];

/// Requests that are sent before their replies are read.
const PIPELINED: u64 = 1000;

/// Keys that one request asks for.
const KEYS: u64 = 100_000;

/// Bytes of a value that is put over HTTP: many times the memory.
const UPLOAD_BYTES: usize = 700 << 20;
const UPLOAD_BYTES_OF_DEBUG: usize = 200 << 20;

/// A server that says nothing for so long has hung.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Longest time that an event loop may take for a request that needs no record, also beside an
/// upload and on a busy machine.
const LOOP_TIME: Duration = Duration::from_secs(5);

/// Connections that ask while an upload comes in: the acceptor gives them to all event loops in
/// turn.
const ASKING: usize = 8;

/// Runs the tests at the scale of the build; without root it only says that it cannot.
pub(crate) fn run(profile: Profile) -> Result<()> {
    let records = match profile {
        Profile::Debug => RECORDS_OF_DEBUG,
        Profile::Release => RECORDS,
    };
    run_with(profile, records)
}

/// The same with so many records.
pub(crate) fn run_with(profile: Profile, records: u64) -> Result<()> {
    if !requirements::is_root() {
        println!("small memory: SKIPPED, a memory cgroup needs root");
        return Ok(());
    }
    let programs = build(profile)?;
    for kind in ["tch", "tcb", "tcf", "tct"] {
        let mut server = Enclosed::start(&programs, kind)?;
        let began = Instant::now();
        server.put_all(kind, records)?;
        println!("small memory: {records} puts into .{kind} in {:.1?}", began.elapsed());
        for (what, request) in large_requests(kind, records)? {
            let bytes = server.answer_bytes(&request).with_context(|| what.clone())?;
            server.lives().with_context(|| format!("after {what} on .{kind}"))?;
            println!("small memory: {what} on .{kind} ended with {bytes} bytes");
        }
        if kind == "tch" || kind == "tcb" {
            let bytes = match profile {
                Profile::Debug => UPLOAD_BYTES_OF_DEBUG,
                Profile::Release => UPLOAD_BYTES,
            };
            server.upload(bytes, kind == "tch")?;
        }
        let count = server.records()?;
        let uploaded = u64::from(kind == "tch");
        ensure!(count == records + uploaded, ".{kind} has {count} records, not {records}");
    }
    for kind in ["*", "+"] {
        let mut server = Enclosed::start(&programs, kind)?;
        let taken = server.put_until_refused(kind, records)?;
        println!("small memory: {taken} puts into {kind} before one was refused");
        for (what, request) in large_requests(kind, taken)? {
            let bytes = server.answer_bytes(&request).with_context(|| what.clone())?;
            server.lives().with_context(|| format!("after {what} on {kind}"))?;
            println!("small memory: {what} on {kind} ended with {bytes} bytes");
        }
        let count = server.records()?;
        ensure!(count == taken && count > 0, "{kind} has {count} records, not {taken}");
    }
    println!("small memory: nothing was killed in {} MiB", MEMORY_BYTES >> 20);
    Ok(())
}

/// A server in its cgroup. The fields are dropped in this order.
struct Enclosed {
    server: Server,
    _group: MemoryCgroup,
    _folder: tempfile::TempDir,
}

impl Enclosed {
    fn start(programs: &Path, kind: &str) -> Result<Self> {
        let folder = tempfile::tempdir_in(crate::programs::target_folder())?;
        let in_memory = matches!(kind, "*" | "+");
        let suffix = if in_memory { "memory" } else { kind };
        let name = format!("tyrant-small-memory-{}-{suffix}", std::process::id());
        let group = MemoryCgroup::new(&name, MEMORY_BYTES)?;
        let database = folder.path().join(format!("casket.{kind}#width=255#limsiz=4g"));
        let database = match kind {
            "tcf" => database,
            kind if in_memory => kind.into(),
            kind => folder.path().join(format!("casket.{kind}")),
        };
        let log = folder.path().join("log");
        let enclose = |command| group.enclose(&command);
        let server = Server::start_by(enclose, programs, &database, &log, &["--threads", "2"])?;
        Ok(Self { server, _group: group, _folder: folder })
    }

    fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.server.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(stream)
    }

    /// Fails if the server was killed, or does not answer.
    fn lives(&mut self) -> Result<()> {
        if let Some(status) = self.server.ending()? {
            bail!("the server ended with {status}");
        }
        let mut connection = Connection::open(self.server.port)?;
        connection.send(b"version\r\n")?;
        let line = connection.line()?;
        ensure!(line.starts_with("VERSION"), "the server answered {line:?}");
        Ok(())
    }

    fn put_all(&mut self, kind: &str, records: u64) -> Result<()> {
        let mut stream = self.connect()?;
        // A versatile function answers with a number of elements, too.
        let answer_bytes = if kind == "tct" { 5 } else { 1 };
        for first in (0..records).step_by(PIPELINED as usize) {
            let numbers = first..records.min(first + PIPELINED);
            let mut answers = vec![0; answer_bytes * (numbers.end - numbers.start) as usize];
            let requests: Vec<u8> = numbers.flat_map(|number| put(kind, number)).collect();
            let exchanged =
                stream.write_all(&requests).and_then(|()| stream.read_exact(&mut answers));
            if let Err(error) = exchanged {
                self.lives().with_context(|| format!("after {first} puts into .{kind}"))?;
                return Err(error.into());
            }
            ensure!(answers.iter().all(|byte| *byte == 0), "a put into .{kind} was refused");
        }
        Ok(())
    }

    /// Puts records until one is refused, which must come before there are `most`; answers how
    /// many there were. Those that are in the same packets are refused, too.
    fn put_until_refused(&mut self, kind: &str, most: u64) -> Result<u64> {
        let mut stream = self.connect()?;
        let mut taken = 0;
        for first in (0..most).step_by(PIPELINED as usize) {
            let requests: Vec<u8> =
                (first..first + PIPELINED).flat_map(|number| put(kind, number)).collect();
            let mut answers = vec![0; PIPELINED as usize];
            let exchanged =
                stream.write_all(&requests).and_then(|()| stream.read_exact(&mut answers));
            if let Err(error) = exchanged {
                self.lives().with_context(|| format!("after {taken} puts into {kind}"))?;
                return Err(error.into());
            }
            taken += answers.iter().filter(|byte| **byte == 0).count() as u64;
            if taken < first + PIPELINED {
                self.lives().with_context(|| format!("after a refused put into {kind}"))?;
                return Ok(taken);
            }
        }
        bail!("{most} puts into {kind} were not refused")
    }

    /// Number of records that there are.
    fn records(&self) -> Result<u64> {
        let mut stream = self.connect()?;
        stream.write_all(&[0xc8, 0x80])?;
        let (mut status, mut count) = ([0], [0; 8]);
        stream.read_exact(&mut status)?;
        stream.read_exact(&mut count)?;
        ensure!(status == [0], "the number of records is refused");
        Ok(u64::from_be_bytes(count))
    }

    /// Sends a request and nothing more; answers how long the answer is.
    fn answer_bytes(&self, request: &[u8]) -> Result<u64> {
        let mut stream = self.connect()?;
        stream.write_all(request)?;
        stream.shutdown(Shutdown::Write)?;
        let (mut total, mut buffer) = (0, vec![0; 64 << 10]);
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => total += bytes as u64,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error).context("no answer"),
            }
        }
        ensure!(total > 0, "no answer");
        Ok(total)
    }

    /// Puts a value that is much longer than the memory, and asks each event loop meanwhile.
    fn upload(&mut self, bytes: usize, is_taken: bool) -> Result<()> {
        let is_over = AtomicBool::new(false);
        let port = self.server.port;
        let began = Instant::now();
        let (status, slowest) = thread::scope(|scope| {
            let ask = || -> Result<Duration> {
                let mut connection = Connection::open(port)?;
                let mut slowest = Duration::ZERO;
                while !is_over.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    connection.send(b"version\r\n")?;
                    connection.line()?;
                    slowest = slowest.max(asked.elapsed());
                    thread::sleep(Duration::from_millis(5));
                }
                Ok(slowest)
            };
            let asking: Vec<_> = (0..ASKING).map(|_| scope.spawn(ask)).collect();
            let status = self.put_long(bytes);
            is_over.store(true, Ordering::Relaxed);
            let mut slowest = Duration::ZERO;
            for thread in asking {
                slowest = slowest.max(thread.join().map_err(|_| anyhow::anyhow!("a panic"))??);
            }
            Ok::<_, anyhow::Error>((status?, slowest))
        })?;
        self.lives().context("after an upload")?;
        let expected = if is_taken { "HTTP/1.1 201" } else { "HTTP/1.1 413" };
        ensure!(status == expected, "an upload of {bytes} bytes ended with {status:?}");
        ensure!(slowest < LOOP_TIME, "an event loop took {slowest:?} beside an upload");
        let took = began.elapsed();
        println!("small memory: {status} to {bytes} bytes after {took:.1?}, others {slowest:.1?}");
        Ok(())
    }

    /// Puts a value of so many bytes over HTTP; answers the beginning of the response.
    fn put_long(&self, bytes: usize) -> Result<String> {
        let mut stream = self.connect()?;
        let head = format!("PUT /long HTTP/1.1\r\nHost: x\r\nContent-Length: {bytes}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let piece: Vec<u8> = (0..1 << 20).map(|at| (at * 31) as u8).collect();
        for _ in 0..bytes / piece.len() {
            if stream.write_all(&piece).is_err() {
                // It was refused, and the server says so.
                break;
            }
        }
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        Ok(String::from_utf8_lossy(&status).into_owned())
    }
}

fn key(kind: &str, number: u64) -> String {
    if kind == "tcf" { (number + 1).to_string() } else { format!("key-{number:08}") }
}

/// A put of the binary protocol; into a table that of a row, by a versatile function.
fn put(kind: &str, number: u64) -> Vec<u8> {
    let key = key(kind, number);
    if kind == "tct" {
        return misc("put", &[key.as_bytes(), b"name", &VALUE]);
    }
    let mut request = vec![0xc8, 0x10];
    request.extend((key.len() as u32).to_be_bytes());
    request.extend((VALUE.len() as u32).to_be_bytes());
    request.extend(key.as_bytes());
    request.extend(VALUE);
    request
}

fn misc(name: &str, arguments: &[&[u8]]) -> Vec<u8> {
    let mut request = vec![0xc8, 0x90];
    for number in [name.len(), 0, arguments.len()] {
        request.extend((number as u32).to_be_bytes());
    }
    request.extend(name.as_bytes());
    for argument in arguments {
        request.extend((argument.len() as u32).to_be_bytes());
        request.extend(*argument);
    }
    request
}

/// Requests whose answers are long beside the memory.
fn large_requests(kind: &str, records: u64) -> Result<Vec<(String, Vec<u8>)>> {
    let keys: Vec<String> = (0..KEYS).map(|number| key(kind, number % records)).collect();
    let mut mget = vec![0xc8, 0x31];
    mget.extend((keys.len() as u32).to_be_bytes());
    let mut get = "get".to_owned();
    for key in &keys {
        mget.extend((key.len() as u32).to_be_bytes());
        mget.extend(key.as_bytes());
        if get.len() + key.len() < (1 << 20) - 3 {
            write!(get, " {key}")?;
        }
    }
    get.push_str("\r\n");
    Ok(vec![
        (format!("mget of {KEYS} keys"), mget),
        (format!("a get line of {} bytes", get.len()), get.into_bytes()),
        ("misc regex .".to_owned(), misc("regex", &[b"."])),
    ])
}
