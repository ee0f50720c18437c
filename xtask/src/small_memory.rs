//! Small memory: runs the server in a memory cgroup that is small compared with its data. Puts
//! succeed, requests that would take too much memory fail, so do functions of scripts that fill it,
//! a long upload blocks no event loop, floods of requests do no harm, and no process is killed.

mod floods;

use crate::cgroup::MemoryCgroup;
use crate::memcached::Connection;
use crate::misc;
use crate::programs::{self, Profile, Server, build};
use crate::requirements;
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Memory of the server including the page cache, in MiB and in bytes.
pub(crate) const MEMORY_MIB: u64 = 64;
const MEMORY_BYTES: u64 = MEMORY_MIB << 20;

/// Number of records that the command puts into each kind of database.
const RECORDS: u64 = 2_000_000;

/// Number of records for an unoptimized build. Their files are still larger than the memory.
const RECORDS_OF_DEBUG: u64 = 400_000;

/// Number of small records of which the index takes more memory than it may, about 25 MB.
pub(crate) const SMALL_RECORDS: u64 = 2_000_000;

/// One small record in so many is read.
const READ_EVERY: u64 = 1009;

/// Value of each record, 200 bytes.
const VALUE: [u8; 200] = [b'v'; 200];

/// Number of requests that are sent before their replies are read.
const PIPELINED: u64 = 1000;

/// Number of keys of one request.
const KEYS: u64 = 100_000;

/// Length of a value that is put over HTTP, many times the memory, in bytes.
const UPLOAD_BYTES: usize = 700 << 20;
const UPLOAD_BYTES_OF_DEBUG: usize = 200 << 20;

/// Time without a reply after which the server counts as hung.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Longest time in which an event loop replies to a request that needs no record, also during an
/// upload and on a busy machine.
const LOOP_TIME: Duration = Duration::from_secs(5);

/// Number of connections that send requests during an upload. The acceptor assigns them to all
/// event loops in turn.
const ASKING: usize = 8;

/// Clients that call functions which fill the memory, and calls of each.
const FILLING_CLIENTS: usize = 12;
const FILLS: usize = 3;

/// Runs the tests at the scale of the build. Without root they are skipped with a message.
pub(crate) fn run(profile: Profile) -> Result<()> {
    run_with(profile, records(profile), SMALL_RECORDS, MEMORY_MIB)
}

/// Returns the default number of records in each kind of database.
pub(crate) fn records(profile: Profile) -> u64 {
    match profile {
        Profile::Debug => RECORDS_OF_DEBUG,
        Profile::Release | Profile::Dist => RECORDS,
    }
}

/// Runs the tests with `records` records in each kind of database, none if that is 0, and then with
/// small records, which are put in `load_mib` MiB of memory.
pub(crate) fn run_with(
    profile: Profile,
    records: u64,
    small_records: u64,
    load_mib: u64,
) -> Result<()> {
    if !requirements::is_root() {
        println!("small memory: SKIPPED, a memory cgroup needs root");
        return Ok(());
    }
    let programs = build(profile)?;
    if records > 0 {
        fill_all_kinds(&programs, profile, records)?;
    }
    outgrow_index(&programs, small_records, load_mib << 20)?;
    fill_scripts(&programs)?;
    floods::run_all(&programs)?;
    println!("small memory: no process was killed in {MEMORY_MIB} MiB");
    Ok(())
}

/// Runs the tests of scripts alone.
pub(crate) fn run_scripts(profile: Profile) -> Result<()> {
    if !requirements::is_root() {
        println!("small memory: SKIPPED, a memory cgroup needs root");
        return Ok(());
    }
    fill_scripts(&build(profile)?)
}

/// Runs the floods of requests alone.
pub(crate) fn run_floods(profile: Profile) -> Result<()> {
    if !requirements::is_root() {
        println!("small memory: SKIPPED, a memory cgroup needs root");
        return Ok(());
    }
    floods::run_all(&build(profile)?)
}

/// Script whose functions take as much memory as they get.
const FILLING: &str = "
function fill()
  local t = {}
  while true do t[#t + 1] = ('x'):rep(1000) .. #t end
end

function keep()
  kept = kept or {}
  while true do kept[#kept + 1] = ('x'):rep(1000) .. #kept end
end

function double(key, value)
  while true do value = value .. value end
end

function flood()
  local i = 0
  while true do
    i = i + 1
    _stashput(_thid .. '/' .. i, ('x'):rep(1000))
  end
end

function vanish()
  _stashvanish()
  return 'done'
end

function echo(key, value) return value end
";

/// Calls functions that fill the memory from many clients at once, and ordinary ones beside them.
fn fill_scripts(programs: &Path) -> Result<()> {
    let mut server = Enclosed::start_with_script(programs, FILLING)?;
    for name in ["fill", "double", "keep", "flood", "fill"] {
        let port = server.server.port;
        let fill = |_| {
            for _ in 0..FILLS {
                let reply = call(port, name, "k", "value")?;
                ensure!(reply.is_none(), "{name} has not failed but returned {reply:?}");
            }
            Ok(())
        };
        let ordinary = || {
            let reply = call(port, "echo", "k", "value")?;
            ensure!(reply.as_deref() == Some(b"value"), "echo returned {reply:?}");
            Ok(())
        };
        floods::beside(&mut server, name, FILLING_CLIENTS, fill, ordinary)?;
    }
    let vanished = call(server.server.port, "vanish", "", "")?;
    ensure!(vanished.as_deref() == Some(b"done"), "vanish returned {vanished:?}");
    Ok(())
}

/// Calls a function of the script. Returns its result, or `None` if it has failed.
fn call(port: u16, name: &str, key: &str, value: &str) -> Result<Option<Vec<u8>>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut request = vec![0xc8, 0x68];
    for length in [name.len(), 0, key.len(), value.len()] {
        request.extend((length as u32).to_be_bytes());
    }
    for text in [name, key, value] {
        request.extend(text.as_bytes());
    }
    stream.write_all(&request)?;
    let mut status = [0];
    stream.read_exact(&mut status)?;
    if status != [0] {
        return Ok(None);
    }
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut result = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut result)?;
    Ok(Some(result))
}

/// Fills a database of each kind, and sends it requests that would take too much memory.
fn fill_all_kinds(programs: &Path, profile: Profile, records: u64) -> Result<()> {
    for kind in ["tch", "tcb", "tcf", "tct"] {
        let mut server = Enclosed::start(programs, kind)?;
        let began = Instant::now();
        server.put_all(kind, records)?;
        println!("small memory: {records} puts into .{kind} in {:.1?}", began.elapsed());
        for (what, request) in large_requests(kind, records)? {
            let bytes = server.reply_bytes(&request).with_context(|| what.clone())?;
            server.check_alive().with_context(|| format!("after {what} on .{kind}"))?;
            println!("small memory: {what} on .{kind} ended with {bytes} bytes");
        }
        if kind == "tch" || kind == "tcb" {
            let bytes = match profile {
                Profile::Debug => UPLOAD_BYTES_OF_DEBUG,
                Profile::Release | Profile::Dist => UPLOAD_BYTES,
            };
            server.upload(bytes, kind == "tch")?;
        }
        let count = server.records()?;
        let uploaded = u64::from(kind == "tch");
        ensure!(count == records + uploaded, ".{kind} has {count} records, not {records}");
    }
    for kind in ["*", "+"] {
        let mut server = Enclosed::start(programs, kind)?;
        let taken = server.put_until_refused(kind, records)?;
        println!("small memory: {taken} puts into {kind} before one was refused");
        for (what, request) in large_requests(kind, taken)? {
            let bytes = server.reply_bytes(&request).with_context(|| what.clone())?;
            server.check_alive().with_context(|| format!("after {what} on {kind}"))?;
            println!("small memory: {what} on {kind} ended with {bytes} bytes");
        }
        let count = server.records()?;
        ensure!(count == taken && count > 0, "{kind} has {count} records, not {taken}");
    }
    Ok(())
}

/// Puts so many small records that their index does not fit into its memory, and kills the server.
/// All records must be there afterwards, but for those that are removed.
fn outgrow_index(programs: &Path, records: u64, load_bytes: u64) -> Result<()> {
    let mut server = Enclosed::start_in_bytes(programs, "tch", load_bytes)?;
    let began = Instant::now();
    server.put_all_by(records, 1, |number| put_of(&key("tch", number), &short_value(number)))?;
    println!("small memory: {records} puts of small records in {:.1?}", began.elapsed());
    if load_bytes > MEMORY_BYTES {
        let began = Instant::now();
        server.kill_and_limit(programs)?;
        println!("small memory: open {:.1?} after SIGKILL and the limit", began.elapsed());
    }
    let mut removed = 0;
    for round in 0..2 {
        ensure!(server.stat("index_on_disk")? == "1", "the index is in memory");
        server.read_small(records, removed)?;
        let mut connection = Connection::open(server.server.port)?;
        let began = Instant::now();
        // Not those that are read: overwritten records are on few pages.
        let changed = (round + 1..records).step_by(READ_EVERY as usize);
        for number in changed.clone() {
            let (key, value) = (key("tch", number), short_value(number));
            let value = String::from_utf8_lossy(&value);
            connection.send(format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()).as_bytes())?;
            ensure!(connection.line()? == "STORED", "set {key} failed");
        }
        println!(
            "small memory: {:.0?} per overwrite",
            began.elapsed() / u32::try_from(changed.count().max(1))?
        );
        let key = key("tch", removed * READ_EVERY);
        connection.send(format!("delete {key}\r\n").as_bytes())?;
        ensure!(connection.line()? == "DELETED", "{key} was not there");
        removed += 1;
        let began = Instant::now();
        server.kill_and_start(programs)?;
        println!("small memory: open {:.1?} after SIGKILL", began.elapsed());
        let (count, expected) = (server.records()?, records - removed);
        ensure!(count == expected, "there are {count} records, not {expected}");
    }
    Ok(())
}

fn short_value(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

/// Server in its cgroup. The fields are dropped in this order.
struct Enclosed {
    server: Server,
    group: MemoryCgroup,
    folder: tempfile::TempDir,
}

impl Enclosed {
    fn start(programs: &Path, kind: &str) -> Result<Self> {
        Self::start_in_bytes(programs, kind, MEMORY_BYTES)
    }

    /// Starts a server with a limit on its memory, in bytes.
    fn start_in_bytes(programs: &Path, kind: &str, bytes: u64) -> Result<Self> {
        let folder = tempfile::tempdir_in(crate::programs::target_folder())?;
        let in_memory = matches!(kind, "*" | "+");
        let suffix = if in_memory { "memory" } else { kind };
        let name = format!("tyrant-small-memory-{}-{suffix}", std::process::id());
        let group = MemoryCgroup::new(&name, bytes)?;
        let server = Self::start_in(&folder, &group, programs, kind)?;
        Ok(Self { server, group, folder })
    }

    /// Starts a server of a hash database with a script.
    fn start_with_script(programs: &Path, script: &str) -> Result<Self> {
        let folder = tempfile::tempdir_in(programs::target_folder())?;
        let path = folder.path().join("script.lua");
        std::fs::write(&path, script)?;
        Self::start_in_folder(programs, folder, &["--script", &path.display().to_string()])
    }

    /// Starts a server of a hash database with further options.
    fn start_with_options(programs: &Path, options: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir_in(programs::target_folder())?;
        Self::start_in_folder(programs, folder, options)
    }

    fn start_in_folder(
        programs: &Path,
        folder: tempfile::TempDir,
        options: &[&str],
    ) -> Result<Self> {
        let name = format!("tyrant-small-memory-{}-options", std::process::id());
        let group = MemoryCgroup::new(&name, MEMORY_BYTES)?;
        let (database, log) = (folder.path().join("casket.tch"), folder.path().join("log"));
        let enclose = |command| group.enclose(&command);
        let options = [&["--threads", "2"], options].concat();
        let server = Server::start_by(enclose, programs, &database, &log, &options)?;
        Ok(Self { server, group, folder })
    }

    fn start_in(
        folder: &tempfile::TempDir,
        group: &MemoryCgroup,
        programs: &Path,
        kind: &str,
    ) -> Result<Server> {
        let database = folder.path().join(format!("casket.{kind}#width=255#limsiz=4g"));
        let database = match kind {
            "tcf" => database,
            "*" | "+" => kind.into(),
            kind => folder.path().join(format!("casket.{kind}")),
        };
        let log = folder.path().join("log");
        let enclose = |command| group.enclose(&command);
        // Some kinds for each way, as far as the kernel allows both.
        let reads = if matches!(kind, "tcb" | "tct") { "pool" } else { "auto" };
        let options = ["--threads", "2", "--cold-reads", reads];
        Server::start_by(enclose, programs, &database, &log, &options)
    }

    /// Sends SIGKILL to the server of a hash database, and starts it again.
    fn kill_and_start(&mut self, programs: &Path) -> Result<()> {
        self.server.kill()?;
        self.server = Self::start_in(&self.folder, &self.group, programs, "tch")?;
        Ok(())
    }

    /// Sends SIGKILL to the server of a hash database, and starts it again within
    /// [`MEMORY_BYTES`], with nothing in the page cache.
    fn kill_and_limit(&mut self, programs: &Path) -> Result<()> {
        self.server.kill()?;
        programs::run(&mut Command::new("sync"))?;
        self.group.reclaim()?;
        let name = format!("tyrant-small-memory-{}-limited", std::process::id());
        self.group = MemoryCgroup::new(&name, MEMORY_BYTES)?;
        self.server = Self::start_in(&self.folder, &self.group, programs, "tch")?;
        Ok(())
    }

    /// Returns a value of the server's statistics.
    fn stat(&self, name: &str) -> Result<String> {
        let mut connection = Connection::open(self.server.port)?;
        connection.send(b"stats\r\n")?;
        loop {
            let line = connection.line()?;
            ensure!(line != "END", "there is no {name}");
            if let Some(value) = line.strip_prefix(&format!("STAT {name} ")) {
                return Ok(value.to_owned());
            }
        }
    }

    fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.server.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(stream)
    }

    /// Fails if the server was killed or does not reply.
    fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.server.ending()? {
            bail!("the server ended with {status}");
        }
        let mut connection = Connection::open(self.server.port)?;
        connection.send(b"version\r\n")?;
        let line = connection.line()?;
        // A server with users replies so to a client without one.
        let is_alive = line.starts_with("VERSION") || line == "CLIENT_ERROR unauthenticated";
        ensure!(is_alive, "the server replied {line:?}");
        Ok(())
    }

    fn put_all(&mut self, kind: &str, records: u64) -> Result<()> {
        // The reply of a versatile function also has a number of elements.
        let answer_bytes = if kind == "tct" { 5 } else { 1 };
        self.put_all_by(records, answer_bytes, |number| put(kind, number))
    }

    /// Sends a request for each record, to which the reply is `answer_bytes` zeros.
    fn put_all_by(
        &mut self,
        records: u64,
        answer_bytes: usize,
        put: impl Fn(u64) -> Vec<u8>,
    ) -> Result<()> {
        let mut stream = self.connect()?;
        for first in (0..records).step_by(PIPELINED as usize) {
            let numbers = first..records.min(first + PIPELINED);
            let mut answers = vec![0; answer_bytes * (numbers.end - numbers.start) as usize];
            let requests: Vec<u8> = numbers.flat_map(&put).collect();
            let exchanged =
                stream.write_all(&requests).and_then(|()| stream.read_exact(&mut answers));
            if let Err(error) = exchanged {
                self.check_alive().with_context(|| format!("after {first} puts"))?;
                return Err(error.into());
            }
            ensure!(answers.iter().all(|byte| *byte == 0), "a put was refused");
        }
        Ok(())
    }

    /// Puts records until one is refused, which must happen before `most` records. Returns the
    /// number of accepted records. The rest of the same packets is refused too.
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
                self.check_alive().with_context(|| format!("after {taken} puts into {kind}"))?;
                return Err(error.into());
            }
            taken += answers.iter().filter(|byte| **byte == 0).count() as u64;
            if taken < first + PIPELINED {
                self.check_alive().with_context(|| format!("after a refused put into {kind}"))?;
                return Ok(taken);
            }
        }
        bail!("{most} puts into {kind} were not refused")
    }

    /// Reads a sample of small records, of which the first `removed` are gone, and prints how much
    /// of the disk a get reads.
    fn read_small(&self, records: u64, removed: u64) -> Result<()> {
        let mut connection = Connection::open(self.server.port)?;
        let (began, before) = (Instant::now(), self.server.read_bytes()?);
        let mut gets = 0;
        for number in (0..records).step_by(READ_EVERY as usize) {
            let (key, value) = (key("tch", number), short_value(number));
            connection.send(format!("get {key}\r\n").as_bytes())?;
            gets += 1;
            let line = connection.line()?;
            if number < removed * READ_EVERY {
                ensure!(line == "END", "{key} was removed, and get replied {line:?}");
                continue;
            }
            let expected = format!("VALUE {key} 0 {}", value.len());
            ensure!(line == expected, "get {key} replied {line:?}");
            ensure!(connection.line()?.as_bytes() == value, "another value of {key}");
            ensure!(connection.line()? == "END", "get {key} has no end");
        }
        let read = self.server.read_bytes()? - before;
        println!(
            "small memory: {gets} gets of small records read {:.2} pages of 4 KiB and took {:.0?} \
             each",
            read as f64 / 4096.0 / gets as f64,
            began.elapsed() / u32::try_from(gets)?
        );
        Ok(())
    }

    /// Returns the number of records.
    fn records(&self) -> Result<u64> {
        let mut stream = self.connect()?;
        stream.write_all(&[0xc8, 0x80])?;
        let (mut status, mut count) = ([0], [0; 8]);
        stream.read_exact(&mut status)?;
        stream.read_exact(&mut count)?;
        ensure!(status == [0], "the number of records is refused");
        Ok(u64::from_be_bytes(count))
    }

    /// Sends one request and returns the length of the reply, in bytes.
    fn reply_bytes(&self, request: &[u8]) -> Result<u64> {
        let mut stream = self.connect()?;
        stream.write_all(request)?;
        stream.shutdown(Shutdown::Write)?;
        let (mut total, mut buffer) = (0, vec![0; 64 << 10]);
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => total += bytes as u64,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error).context("no reply"),
            }
        }
        ensure!(total > 0, "no reply");
        Ok(total)
    }

    /// Puts a value that is much longer than the memory, and sends requests to each event loop
    /// meanwhile.
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
        self.check_alive().context("after an upload")?;
        let expected = if is_taken { "HTTP/1.1 201" } else { "HTTP/1.1 413" };
        ensure!(status == expected, "an upload of {bytes} bytes ended with {status:?}");
        let took = began.elapsed();
        // A busy machine slows both down.
        let most = LOOP_TIME.max(took / 4);
        ensure!(slowest < most, "an event loop took {slowest:?} beside an upload of {took:?}");
        println!("small memory: {status} to {bytes} bytes after {took:.1?}, others {slowest:.1?}");
        Ok(())
    }

    /// Puts a value of `bytes` bytes over HTTP. Returns the status of the response.
    fn put_long(&self, bytes: usize) -> Result<String> {
        let mut stream = self.connect()?;
        let head =
            format!("PUT /long HTTP/1.1\r\nHost: localhost\r\nContent-Length: {bytes}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let piece: Vec<u8> = (0..1 << 20).map(|at| (at * 31) as u8).collect();
        for _ in 0..bytes / piece.len() {
            if stream.write_all(&piece).is_err() {
                // The server has refused the value, and the response gives the reason.
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

/// Returns a put of the binary protocol, or a versatile function that puts a row into a table.
fn put(kind: &str, number: u64) -> Vec<u8> {
    let key = key(kind, number);
    if kind == "tct" {
        return misc::request("put", &[key.as_bytes(), b"name", &VALUE]);
    }
    put_of(&key, &VALUE)
}

/// Returns a put of the binary protocol.
fn put_of(key: &str, value: &[u8]) -> Vec<u8> {
    let mut request = vec![0xc8, 0x10];
    request.extend((key.len() as u32).to_be_bytes());
    request.extend((value.len() as u32).to_be_bytes());
    request.extend(key.as_bytes());
    request.extend(value);
    request
}

/// Returns requests whose replies are long compared with the memory.
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
    // No prefix, and no limit.
    let fwmkeys = [&[0xc8, 0x58][..], &[0; 4], &[0xff; 4]].concat();
    let list =
        "GET /?list&limit=10000 HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n";
    Ok(vec![
        ("fwmkeys of all keys".to_owned(), fwmkeys),
        ("a list over HTTP".to_owned(), list.into()),
        (format!("mget of {KEYS} keys"), mget),
        (format!("a get line of {} bytes", get.len()), get.into_bytes()),
        ("misc regex .".to_owned(), misc::request("regex", &[b"."])),
    ])
}
