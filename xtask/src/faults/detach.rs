//! Volumes that are detached and attached again while the machine runs: a server is killed, and the
//! volume comes back without the bytes that had not reached it.
//!
//! The volume is a loop device with a file system. A copy of its image, made while the server's
//! bytes are still in the page cache alone, is attached in its place, so the boot stays the same.
//! To it some of the pages are added that had not reached it, as the system writes them in any
//! order. Bytes that were not synced are not damage then, and everything that was synced is there.

use crate::memcached::Connection;
use crate::programs::{Server, run as run_program};
use crate::random::Random;
use crate::requirements;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of a volume, in MiB: the least that btrfs takes, and a log of a few segments.
const VOLUME_MIB: u64 = 256;

/// File systems, of which btrfs gives its files device numbers of its own.
const FILE_SYSTEMS: &[&str] = &["ext4", "btrfs"];

const DATABASES: &[&str] = &["casket.tch", "casket.tcb", "casket.tcf#width=1024", "casket.tct"];

/// Number of records that are synced, and number of those that are not.
const SYNCED: u64 = 200;
const UNSYNCED: u64 = 2000;

const VALUE_BYTES: usize = 600;

/// Bytes that the system writes together.
const PAGE_BYTES: usize = 4096;

/// Runs `rounds` histories for each file system, from `seed` on. Without root they are skipped with
/// a message, and so are file systems that this machine lacks.
pub(super) fn run(programs: &Path, seed: u64, rounds: u64) -> Result<()> {
    if !requirements::is_root() {
        println!("detached volumes: SKIPPED, a loop device needs root");
        return Ok(());
    }
    for kind in FILE_SYSTEMS {
        let program = Command::new(format!("mkfs.{kind}")).arg("-V").output();
        if !program.is_ok_and(|output| output.status.success()) {
            println!("detached volumes: SKIPPED {kind}, there is no mkfs.{kind}");
            continue;
        }
        let mut lost = 0;
        for seed in seed..seed + rounds {
            let folder = tempfile::tempdir().context("no temporary folder")?;
            let database = DATABASES[(seed % DATABASES.len() as u64) as usize];
            lost += round(programs, folder.path(), kind, database, &mut Random(seed))
                .with_context(|| format!("seed {seed}, {database} on {kind}"))?;
        }
        // Otherwise nothing was tried.
        ensure!(lost > 0, "no record was lost with the volumes of {kind}");
        println!(
            "detached volumes: {rounds} of {kind}: {lost} records that were not synced are gone \
             without damage, every synced one is there"
        );
    }
    Ok(())
}

/// Loses a volume under a server. Returns the number of records that were lost with it.
fn round(
    programs: &Path,
    folder: &Path,
    kind: &str,
    database: &str,
    random: &mut Random,
) -> Result<u64> {
    let (image, copy) = (folder.join("image"), folder.join("copy"));
    let (place, log) = (folder.join("volume"), folder.join("log"));
    fs::create_dir(&place)?;
    File::create(&image)?.set_len(VOLUME_MIB << 20)?;
    run_program(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image))?;
    let volume = Volume::attach(&image, &place, kind)?;
    let path = place.join(database);
    let mut server = Server::start_logging(programs, &path, &log)?;
    let mut connection = Connection::open(server.port)?;
    let unsynced = SYNCED + random.below(UNSYNCED);
    for number in 0..unsynced {
        if number == SYNCED {
            sync(programs, server.port)?;
        }
        let answer = connection.set(&key(number), &value(number))?;
        ensure!(answer == "STORED", "a write was answered with {answer:?}");
    }
    server.kill()?;
    let name = path.display().to_string();
    let name = name.split('#').next().unwrap_or(&name);
    let files = read(Path::new(name))?;
    fs::copy(&image, &copy).context("cannot copy the volume")?;
    drop(volume);
    let _volume = Volume::attach(&copy, &place, kind)?;
    add_pages(&files, random)?;
    let check = Command::new(programs.join("tyrant")).args(["check", name]).output()?;
    ensure!(check.status.success(), "the check finds damage: {}", {
        String::from_utf8_lossy(&[check.stdout, check.stderr].concat()).into_owned()
    });
    let mut server = Server::start_logging(programs, &path, &log)?;
    let mut connection = Connection::open(server.port)?;
    let mut lost = 0;
    for number in 0..unsynced {
        match connection.get(&key(number))? {
            Some(found) => ensure!(found == value(number), "{} has another value", key(number)),
            None => {
                ensure!(number >= SYNCED, "{}, which was synced, is lost", key(number));
                lost += 1;
            }
        }
    }
    server.stop()?;
    Ok(lost)
}

/// Returns the contents of the files in a folder.
fn read(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        let contents = fs::read(&path)?;
        files.insert(path, contents);
    }
    Ok(files)
}

/// Writes some of the pages that differ from these contents, as if they had reached the volume.
fn add_pages(files: &BTreeMap<PathBuf, Vec<u8>>, random: &mut Random) -> Result<()> {
    for (path, contents) in files {
        let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { continue };
        let mut start = 0;
        for page in contents.chunks(PAGE_BYTES) {
            let mut present = vec![0; page.len()];
            let count = file.read_at(&mut present, start)?;
            if count == page.len() && present != page && random.below(2) == 0 {
                file.write_all_at(page, start)?;
            }
            start += PAGE_BYTES as u64;
        }
    }
    Ok(())
}

fn sync(programs: &Path, port: u16) -> Result<()> {
    let server = format!("127.0.0.1:{port}");
    run_program(Command::new(programs.join("tyrant")).args(["sync", "--server", &server]))
}

fn key(number: u64) -> String {
    (number + 1).to_string()
}

fn value(number: u64) -> Vec<u8> {
    // As a row of a table it has one column.
    let mut value = format!("v\0{number}:").into_bytes();
    value.resize(VALUE_BYTES, b'a' + (number % 26) as u8);
    value
}

/// A mounted image of a file system, unmounted and detached when dropped.
struct Volume(PathBuf);

impl Volume {
    fn attach(image: &Path, place: &Path, kind: &str) -> Result<Self> {
        // The device is freed when the file system is unmounted.
        run_program(Command::new("mount").args(["-t", kind, "-o", "loop"]).arg(image).arg(place))?;
        Ok(Self(place.to_owned()))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Err(error) = run_program(Command::new("umount").arg(&self.0)) {
            eprintln!("{error:#}");
        }
    }
}
