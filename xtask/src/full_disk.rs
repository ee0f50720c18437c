//! Full disk test: fills the disk under the server, with every kind of database, and that of its
//! update log. Each protocol must refuse writes with its own error, and reads must succeed. No
//! acknowledged write may be lost, a killed server must start again, and writes must succeed once
//! there is space.

use crate::memcached::Connection;
use crate::programs::{Profile, Server, build, run as run_program};
use crate::requirements;
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Default size of the disk, in MiB.
pub(crate) const SIZE_MIB: u32 = 64;

/// Size of the disk of the update log, in MiB.
const LOG_SIZE_MIB: u32 = 24;

/// A record stored once there is space again. Keys are ids, which every kind of database takes.
const AFTER: &str = "4001";

/// The first of the records that do not fit.
const FIRST_REFUSED: u32 = 4002;

/// Most records that may be stored after the first refusal.
const STORED_MAX: u32 = 200;

/// Bytes of one value: small compared with the disk, but large enough to fill it quickly.
const VALUE_BYTES: usize = 64 << 10;

/// Longest time until freed space is usable, because compaction works in the background.
const SPACE_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs the test on a tmpfs of `size_mib` MiB. Without root it prints that it is skipped.
pub(crate) fn run(profile: Profile, size_mib: u32) -> Result<()> {
    if !requirements::is_root() {
        println!("full disk: SKIPPED, mounting a small file system needs root");
        return Ok(());
    }
    let programs = build(profile)?;
    for name in ["casket.tch", "casket.tcf#width=65536", "casket.tcb", "casket.tct"] {
        database_fills_its_disk(&programs, name, size_mib)?;
    }
    update_log_fills_its_disk(&programs)
}

fn database_fills_its_disk(programs: &Path, name: &str, size_mib: u32) -> Result<()> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let _disk = Disk::mount(folder.path(), size_mib)?;
    let (database, log) = (folder.path().join(name), folder.path().join("server.log"));

    let mut server = Server::start_logging(programs, &database, &log)?;
    let mut connection = Connection::open(server.port)?;
    let stored = fill(&mut connection, size_mib)?;
    refuses_in_every_protocol(server.port)?;
    for index in 0..stored {
        holds(&mut connection, index)?;
    }

    // Half of the records are removed. The rest must survive until there is space, and a crash.
    for index in (0..stored).step_by(2) {
        let answer = connection.delete(&key(index))?;
        ensure!(answer == "DELETED", "removing a record on a full disk: {answer}");
    }
    accepts_again(&mut connection)?;
    server.kill()?;
    let server = Server::start_logging(programs, &database, &log)?;
    let mut connection = Connection::open(server.port)?;
    for index in 0..stored {
        if index % 2 == 0 {
            ensure!(connection.get(&key(index))?.is_none(), "{} came back", key(index));
        } else {
            holds(&mut connection, index)?;
        }
    }
    ensure!(connection.get(AFTER)?.as_deref() == Some(&value(0)[..]), "a new write was lost");
    println!(
        "full disk: {name}: {stored} records filled {size_mib} MiB, none lost, writes went on"
    );
    Ok(())
}

fn update_log_fills_its_disk(programs: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let small = tempfile::tempdir().context("no temporary folder")?;
    let _disk = Disk::mount(small.path(), LOG_SIZE_MIB)?;
    // It takes up space, and is removed to free it.
    let filler = small.path().join("filler");
    std::fs::write(&filler, vec![b'f'; (LOG_SIZE_MIB as usize) << 19]).context("no filler")?;
    let (database, log) = (folder.path().join("casket.tch"), folder.path().join("server.log"));
    let update_log = small.path().join("ulog");
    let update_log = update_log.to_str().context("a folder that is no text")?;
    let options = ["--update-log", update_log, "--server-id", "1"];

    let mut server = Server::start_with(programs, &database, &log, &options)?;
    let mut connection = Connection::open(server.port)?;
    let stored = fill(&mut connection, LOG_SIZE_MIB)?;
    refuses_in_every_protocol(server.port)?;
    server.kill()?;
    // The journal of the killed server is as good as full, too.
    let server = Server::start_with(programs, &database, &log, &options)?;
    for round in 0..2 {
        let mut connection = Connection::open(server.port)?;
        for index in 0..stored {
            holds(&mut connection, index)?;
        }
        if round == 0 {
            refuses_in_every_protocol(server.port)?;
            std::fs::remove_file(&filler).context("the filler stays")?;
            accepts_again(&mut connection)?;
        }
    }
    println!("full disk: the update log's: {stored} changes filled it, none lost, changes went on");
    Ok(())
}

/// A small file system, unmounted when dropped.
pub(crate) struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    pub(crate) fn mount(folder: &'a Path, size_mib: u32) -> Result<Self> {
        let size = format!("size={size_mib}m");
        run_program(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder))?;
        Ok(Self(folder))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // The server may still have files open, so the file system is detached in any case.
        if let Err(error) = run_program(Command::new("umount").arg("--lazy").arg(self.0)) {
            eprintln!("{error:#}");
        }
    }
}

fn key(index: usize) -> String {
    (index + 1).to_string()
}

fn value(index: usize) -> Vec<u8> {
    // As a row of a table it has one column.
    let mut value = format!("{index}:\0").into_bytes();
    value.resize(VALUE_BYTES, b'a' + (index % 26) as u8);
    value
}

/// Stores records until the server refuses one. Returns the number stored.
fn fill(connection: &mut Connection, size_mib: u32) -> Result<usize> {
    let most = (size_mib as usize) << 20;
    for index in 0..=most / VALUE_BYTES {
        match connection.set(&key(index), &value(index))?.as_str() {
            "STORED" => {}
            refusal if refusal.starts_with("SERVER_ERROR") && index > 0 => return Ok(index),
            answer => bail!("after {index} records the server answered {answer:?}"),
        }
    }
    bail!("more records were acknowledged than the disk can hold")
}

/// Checks the refusals of the protocols. More records may be stored before, if dead space is freed
/// while the disk is full.
fn refuses_in_every_protocol(port: u16) -> Result<()> {
    let value = value(0);
    refuses(&[1], |key| {
        let mut request = vec![0xc8, 0x10];
        request.extend((key.len() as u32).to_be_bytes());
        request.extend((value.len() as u32).to_be_bytes());
        request.extend(key.as_bytes());
        request.extend(&value);
        exchange(port, &request, 1)
    })
    .context("the binary protocol")?;
    refuses(b"HTTP/1.1 507", |key| {
        let head = format!(
            "PUT /{key} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            value.len()
        );
        exchange(port, &[head.as_bytes(), &value].concat(), b"HTTP/1.1 507".len())
    })
    .context("HTTP")
}

/// Stores records until one is refused with the response `expected`.
fn refuses(expected: &[u8], store: impl Fn(&str) -> Result<Vec<u8>>) -> Result<()> {
    let mut answer = Vec::new();
    for key in FIRST_REFUSED..FIRST_REFUSED + STORED_MAX {
        answer = store(&key.to_string())?;
        if answer == expected {
            return Ok(());
        }
    }
    bail!("the last answer was {:?}", answer.escape_ascii().to_string())
}

/// Sends a request on a new connection. Returns the first bytes of the response.
fn exchange(port: u16, request: &[u8], answer_bytes: usize) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(SPACE_TIMEOUT))?;
    stream.write_all(request)?;
    let mut answer = vec![0; answer_bytes];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

fn holds(connection: &mut Connection, index: usize) -> Result<()> {
    let found = connection.get(&key(index))?;
    ensure!(found.as_deref() == Some(&value(index)[..]), "{} was lost", key(index));
    Ok(())
}

fn accepts_again(connection: &mut Connection) -> Result<()> {
    let deadline = Instant::now() + SPACE_TIMEOUT;
    loop {
        let answer = connection.set(AFTER, &value(0))?;
        if answer == "STORED" {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "with space again the server still answers {answer:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
