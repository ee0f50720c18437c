//! Backups: created under writes, partial, damaged or killed, and restored to a past state.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

use crate::process::{Server, fail, misuse, path, run, succeed, wait_for};
use cabinet::Database;
use client::Client;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use tempfile::TempDir;

/// Lets clients copy the database into its own folder.
const COPY_HERE: [&str; 2] = ["--copy-dir", "."];

/// The same, with an update log.
const LOG_AND_COPY_HERE: [&str; 6] =
    ["--update-log", "ulog", "--server-id", "1", "--copy-dir", "."];

/// Number of keys that the writer writes to in turn.
const KEYS: u64 = 50;

fn client(server: &Server) -> Client {
    Client::connect(("127.0.0.1", server.port)).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A backup repository, and a folder for restored databases.
struct Backups {
    folder: TempDir,
}

impl Backups {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn repository(&self) -> PathBuf {
        self.folder.path().join("backups")
    }

    fn create(&self, options: &[&str]) -> String {
        let repository = self.repository();
        let output =
            succeed("tyrant", &[&["backup", "create", text(&repository)], options].concat());
        output.split_once(':').unwrap().0.to_owned()
    }

    fn create_of(&self, server: &Server) -> String {
        self.create(&["--server", &server.address()])
    }

    fn command(&self, command: &str) -> String {
        succeed("tyrant", &["backup", command, text(&self.repository())])
    }

    fn verify(&self) {
        assert!(self.command("verify").ends_with("bytes are intact\n"));
    }

    /// Returns the names of the backups, which are listed below a header.
    fn listed(&self) -> Vec<String> {
        let list = self.command("list");
        let mut lines = list.lines();
        let header = "BACKUP KIND FILES BYTES NEW BYTES UPDATE LOG UP TO";
        let words: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        assert_eq!(words.join(" "), header);
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }

    /// Returns a path to restore to.
    fn target(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn restore_arguments<'a>(repository: &'a Path, into: &'a Path) -> Vec<&'a str> {
        vec!["restore", text(repository), "--into", text(into)]
    }

    fn restore(&self, name: &str, options: &[&str]) -> (PathBuf, String) {
        let (repository, into) = (self.repository(), self.target(name));
        let arguments = [&Self::restore_arguments(&repository, &into), options].concat();
        let output = succeed("tyrant", &arguments);
        (into, output)
    }

    fn restore_fails(&self, name: &str, options: &[&str]) -> String {
        let (repository, into) = (self.repository(), self.target(name));
        fail("tyrant", &[&Self::restore_arguments(&repository, &into), options].concat())
    }

    /// Returns the lengths and inodes of the files in the repository.
    fn files(&self) -> BTreeMap<String, (u64, u64)> {
        let files = fs::read_dir(self.repository().join("files")).unwrap();
        files
            .map(|file| {
                let file = file.unwrap();
                let metadata = file.metadata().unwrap();
                let name = file.file_name().into_string().unwrap();
                (name, (metadata.len(), metadata.ino()))
            })
            .collect()
    }

    fn file_bytes(&self) -> u64 {
        self.files().values().map(|(bytes, _)| bytes).sum()
    }
}

/// Returns a key of the writer, valid as a number too.
fn key(number: u64) -> Vec<u8> {
    (number % KEYS + 1).to_string().into_bytes()
}

fn value(number: u64, is_table: bool) -> Vec<u8> {
    if is_table { format!("n\0{number}").into_bytes() } else { number.to_string().into_bytes() }
}

/// Writes 1, 2, 3 and so on to the keys in turn until `stop` is set. Returns the last number.
fn write_on(server: &Server, is_table: bool, from: u64, stop: &AtomicBool) -> u64 {
    let client = client(server);
    let mut number = from;
    while !stop.load(Ordering::Relaxed) {
        client.put(&key(number), &value(number, is_table)).unwrap();
        number += 1;
    }
    number
}

/// Returns how many of the writer's numbers are in a database. Fails unless they are a prefix.
fn prefix(path: &Path, is_table: bool) -> u64 {
    let database = Database::open(text(path)).unwrap();
    let mut found = Vec::new();
    for at in 0..KEYS {
        let number = match database.get(&key(at)).unwrap() {
            None => continue,
            Some(_) if is_table => {
                let row = database.table().unwrap().get(&key(at)).unwrap().unwrap();
                String::from_utf8(row.get(b"n").unwrap().to_vec()).unwrap()
            }
            Some(value) => String::from_utf8(value).unwrap(),
        };
        found.push((at, number.parse::<u64>().unwrap()));
    }
    assert_eq!(database.len(), found.len() as u64);
    let last = found.iter().map(|(_, number)| *number).max().unwrap_or(0);
    for at in 0..KEYS {
        // The last number written to this key.
        let expected = (1..=last).rev().take(KEYS as usize).find(|number| number % KEYS == at);
        let there = found.iter().find(|(other, _)| *other == at).map(|(_, number)| *number);
        assert_eq!(there, expected, "key {at} of those up to {last}");
    }
    last
}

#[test]
fn a_backup_under_writes_restores_to_a_prefix_of_the_history_in_every_kind() {
    for suffix in ["tch", "tcb", "tcf", "tct"] {
        let is_table = suffix == "tct";
        let name = format!("casket.{suffix}");
        let server = Server::tyrant(&name, &LOG_AND_COPY_HERE);
        let backups = Backups::new();
        let stop = AtomicBool::new(false);
        let mut made = Vec::new();
        let written = std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_on(&server, is_table, 1, &stop));
            for _ in 0..3 {
                let before = client(&server).get(&key(0)).unwrap();
                wait_for("writes", || {
                    (client(&server).get(&key(0)).unwrap() != before).then_some(())
                });
                made.push(backups.create_of(&server));
            }
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        backups.verify();
        let mut last = 0;
        for backup in &made {
            let target = format!("{backup}.{suffix}");
            let (restored, _) = backups.restore(&target, &["--backup", backup]);
            let position = fs::read_to_string(restored.join("position")).unwrap();
            let lines: Vec<&str> = position.lines().collect();
            assert_eq!((lines.len(), lines[0].len()), (2, 16), "{position}");
            let here = prefix(&restored, is_table);
            assert!(last < here && here < written, "{last} {here} {written}");
            last = here;
            succeed("tyrant", &["check", text(&restored)]);
        }
        let rest: Vec<_> = fs::read_dir(server.folder.path())
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains("backup"))
            .collect();
        assert!(rest.is_empty(), "{rest:?}");
    }
}

#[test]
fn a_backup_copies_only_the_segments_that_are_new() {
    let server = Server::tyrant("casket.tch", &["--copy-dir", "/"]);
    let backups = Backups::new();
    let client = client(&server);
    for number in 0..2000_u32 {
        client.put(&number.to_be_bytes(), &[7; 1000]).unwrap();
    }
    backups.create_of(&server);
    let first = backups.files();
    assert!(backups.file_bytes() > 2_000_000);
    for number in 0..20_u32 {
        client.put(&number.to_be_bytes(), &[8; 1000]).unwrap();
    }
    let before = backups.file_bytes();
    let repository = backups.repository();
    let output =
        succeed("tyrant", &["backup", "create", text(&repository), "--server", &server.address()]);
    let copied = backups.file_bytes() - before;
    assert!((20_000..60_000).contains(&copied), "{copied}");
    assert!(output.ends_with(&format!(", {copied} of them new\n")), "{output}");
    // Existing files were not written again.
    let second = backups.files();
    assert!(first.iter().all(|(name, file)| second.get(name) == Some(file)));
    let segments = second.keys().filter(|name| name.contains(".log.")).count();
    assert!(segments > first.keys().filter(|name| name.contains(".log.")).count());
    assert_eq!(backups.listed().len(), 2);
    // Another copy of the database has other files with known contents.
    let copy = backups.target("copy.tch");
    client.copy(text(&copy).as_bytes()).unwrap();
    for file in fs::read_dir(&copy).unwrap() {
        let path = file.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    let before = backups.file_bytes();
    backups.create(&["--database", text(&copy)]);
    assert!(backups.file_bytes() - before < 60_000);
}

#[test]
fn the_copy_of_the_server_may_be_on_another_file_system() {
    let server = Server::tyrant("casket.tch", &["--copy-dir", "/"]);
    client(&server).put(b"k", b"v").unwrap();
    let backups = Backups::new();
    // A different file system, if there is one.
    let shared_memory = Path::new("/dev/shm");
    let elsewhere = match shared_memory.is_dir() {
        true => tempfile::tempdir_in(shared_memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    };
    backups.create(&["--server", &server.address(), "--by-way-of", text(elsewhere.path())]);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    let (restored, _) = backups.restore("restored.tch", &[]);
    assert_eq!(Database::open(text(&restored)).unwrap().get(b"k").unwrap().unwrap(), b"v");
}

#[test]
fn pruning_keeps_the_files_of_the_remaining_backups() {
    let server = Server::tyrant("casket.tch", &COPY_HERE);
    let backups = Backups::new();
    let client = client(&server);
    for round in 0..4_u32 {
        client.put(&round.to_be_bytes(), &vec![round as u8; 100_000]).unwrap();
        backups.create_of(&server);
    }
    // The first three files remain only in their backups.
    client.vanish().unwrap();
    client.put(b"last", b"1").unwrap();
    let newest = backups.create_of(&server);
    let all = backups.file_bytes();
    let prune = |keep: &str| {
        succeed("tyrant", &["backup", "prune", text(&backups.repository()), "--keep", keep])
    };
    prune("5");
    assert_eq!(backups.file_bytes(), all);
    prune("1");
    assert!(backups.file_bytes() < all - 400_000);
    assert_eq!(backups.listed(), [newest]);
    backups.verify();
    let (restored, _) = backups.restore("restored.tch", &[]);
    assert_eq!(Database::open(text(&restored)).unwrap().len(), 1);
    let repository = backups.repository();
    let keep_none = ["backup", "prune", text(&repository), "--keep", "0"];
    assert_eq!(run("tyrant", &keep_none).status.code(), Some(2));
}

#[test]
fn a_damaged_backup_is_located_by_file_and_offset_and_repaired() {
    let server = Server::tyrant("casket.tch", &COPY_HERE);
    let backups = Backups::new();
    let client = client(&server);
    for number in 0..3000_u32 {
        client.put(&number.to_be_bytes(), &[7; 1000]).unwrap();
    }
    backups.create_of(&server);
    let (name, _) = backups.files().into_iter().find(|(_, (bytes, _))| *bytes > 3_000_000).unwrap();
    let file = backups.repository().join("files").join(&name);
    let mut bytes = fs::read(&file).unwrap();
    bytes[2_500_000] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let repository = backups.repository();
    let output = run("tyrant", &["backup", "verify", text(&repository)]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    let place = format!("{} at byte 2097152: the checksum", file.display());
    assert!(said.starts_with(&place), "{said}");
    assert!(said.contains("\n0 backups, 0 bytes are intact"), "{said}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("1 file is damaged: `tyrant backup create --full`"), "{error}");
    let catalog = fs::read_dir(repository.join("backups")).unwrap().next().unwrap().unwrap().path();
    assert!(
        error.contains(&format!("is removed with its file, here {}", text(&catalog))),
        "{error}"
    );
    let error = backups.restore_fails("restored.tch", &[]);
    assert!(error.contains(&place) && error.contains("--backup NAME"), "{error}");
    assert_eq!(fs::read_dir(backups.folder.path()).unwrap().count(), 1);
    // Damage that keeps the length is only detected with `--full`.
    let full = ["--full", "--server", &server.address()];
    backups.create(&full);
    backups.verify();
    // A truncated file is copied again.
    fs::write(&file, &bytes[..100]).unwrap();
    backups.create_of(&server);
    backups.verify();
    // Any damage in a catalog makes its backup damaged, until the file is removed.
    let catalog = fs::read_dir(repository.join("backups")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&catalog).unwrap();
    bytes[40] ^= 1;
    fs::write(&catalog, &bytes).unwrap();
    let output = run("tyrant", &["backup", "verify", text(&repository)]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with(&format!("{} at byte 0: ", catalog.display())), "{said}");
    assert!(said.contains("\n2 backups, "), "{said}");
    let error = String::from_utf8(output.stderr).unwrap();
    let advice = "is damaged; a backup is lost with its catalog, and the others are not: remove";
    assert!(error.contains(&format!("{} {advice}", catalog.display())), "{error}");
    let prune = ["backup", "prune", text(&repository), "--keep", "9"];
    let count = || fs::read_dir(repository.join("backups")).unwrap().count();
    let before = count();
    for keep in ["9", "1"] {
        let prune = ["backup", "prune", text(&repository), "--keep", keep];
        assert!(fail("tyrant", &prune).contains("remove this file"));
        assert_eq!(count(), before);
    }
    backups.create(&full);
    assert_eq!(run("tyrant", &["backup", "verify", text(&repository)]).status.code(), Some(1));
    fs::remove_file(&catalog).unwrap();
    backups.verify();
    succeed("tyrant", &prune);
}

#[test]
fn a_damaged_database_is_backed_up_only_on_request() {
    let backups = Backups::new();
    let path = backups.target("casket.tch");
    let database = Database::open(text(&path)).unwrap();
    for number in 0..2000_u32 {
        database.put(&number.to_be_bytes(), &[7; 1000]).unwrap();
    }
    drop(database);
    // After this, the log has no records that would be lost with it.
    Database::open(text(&path)).unwrap().optimize().unwrap();
    let segment = fs::read_dir(&path)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .find(|path| path.metadata().unwrap().len() > 1_000_000)
        .unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    bytes[500_000] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let repository = backups.repository();
    let create = ["backup", "create", text(&repository), "--database", text(&path)];
    let output = run("tyrant", &create);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(" at byte 4") || said.contains(" at byte 5"), "{said}");
    assert!(!repository.exists());
    let output = run("tyrant", &[&create[..], &["--accept-damage"]].concat());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(backups.listed().len(), 1);
}

/// Returns the state after this many operations of the writer in [`restores_every_point_in_time`].
fn history(operations: usize) -> (String, i32) {
    let list = (0..operations).step_by(2).map(|number| format!("{number} ")).collect();
    (list, (operations / 2) as i32)
}

#[test]
fn a_database_is_restored_to_any_point_in_time_after_its_backup() {
    let mut server = Server::tyrant("casket.tch", &LOG_AND_COPY_HERE);
    let backups = Backups::new();
    // An operation executed twice, or not at all, would change the state.
    let go_on = |server: &Server, operations: std::ops::Range<usize>| {
        let client = client(server);
        for number in operations {
            match number % 2 {
                0 => client.put_cat(b"list", format!("{number} ").as_bytes()).unwrap(),
                _ => drop(client.add_int(b"sum", 1).unwrap()),
            }
        }
    };
    go_on(&server, 0..10);
    let first = backups.create_of(&server);
    go_on(&server, 10..20);
    server.end(Signal::KILL);
    server.restart();
    go_on(&server, 20..30);
    let second = backups.create_of(&server);
    go_on(&server, 30..40);
    let log = server.folder.path().join("ulog");
    let stamps: Vec<String> = succeed("ttulmgr", &["export", text(&log)])
        .lines()
        .map(|line| line.split_once('\t').unwrap().0.to_owned())
        .collect();
    assert_eq!(stamps.len(), 40);
    let state = |path: &Path| {
        let database = Database::open(text(path)).unwrap();
        let list = database.get(b"list").unwrap().unwrap();
        let sum = database.get(b"sum").unwrap().unwrap();
        (String::from_utf8(list).unwrap(), i32::from_le_bytes(sum[..].try_into().unwrap()))
    };
    for operations in [10, 11, 25, 30, 31, 40] {
        let options = ["--until", &stamps[operations - 1], "--update-log", text(&log)];
        let name = format!("{operations}.tch");
        let (restored, said) = backups.restore(&name, &options);
        assert_eq!(state(&restored), history(operations), "{operations}");
        let expected = if operations < 30 { &first } else { &second };
        assert!(said.starts_with(expected), "{operations}: {said}");
        // That is so without an operation after the backup, too.
        let last = format!("({} in microseconds since 1970)", stamps[operations - 1]);
        assert!(said.contains(&last), "{operations}: {said}");
        // The older backup leads to the same state.
        let name = format!("{operations}-again.tch");
        let options = [&options[..], &["--backup", &first]].concat();
        let (restored, _) = backups.restore(&name, &options);
        assert_eq!(state(&restored), history(operations), "{operations}");
        let position = fs::read_to_string(restored.join("position")).unwrap();
        assert!(operations == 10 || position.lines().next() == Some(&*stamps[operations - 1]));
    }
    let (restored, said) = backups
        .restore("all.tch", &["--until", "2100-01-01T00:00:00Z", "--update-log", text(&log)]);
    let hint = "the requested time, 2100-01-01T00:00:00.000000Z, is yet to come: check --until";
    assert!(said.contains(hint), "{said}");
    assert_eq!(state(&restored), history(40));
    let (restored, _) = backups.restore("first.tch", &["--backup", &first]);
    assert_eq!(state(&restored), history(10));
    let early =
        backups.restore_fails("e.tch", &["--until", &stamps[3], "--update-log", text(&log)]);
    assert!(early.contains("no backup of a server with an update log from before"), "{early}");
    let options = ["--backup", &first, "--until", &stamps[3], "--update-log", text(&log)];
    assert!(backups.restore_fails("e.tch", &options).contains("after the requested time"));
    // Neither an empty folder nor a copy from before the backup is the log.
    let until = ["--until", &stamps[39], "--update-log"];
    let none = backups.target("none");
    fs::create_dir(&none).unwrap();
    let error = backups.restore_fails("e.tch", &[&until[..], &[text(&none)]].concat());
    assert!(error.contains("no update log"), "{error}");
    let whole = fs::read(log.join("00000001.ulog")).unwrap();
    fs::write(none.join("00000001.ulog"), &whole[..whole.len() / 4]).unwrap();
    let error = backups.restore_fails("e.tch", &[&until[..], &[text(&none)]].concat());
    assert!(error.contains("ends before"), "{error}");
    // A log that goes on from another state has the changes after it alone.
    fs::write(none.join("00000001.ulog"), &whole).unwrap();
    fs::write(none.join("identity"), "another\n").unwrap();
    let error = backups.restore_fails("e.tch", &[&until[..], &[text(&none)]].concat());
    assert!(error.contains("it is another log, another, than that of the backup"), "{error}");
    // The state of the first backup is not that of the log, which a server with both tells.
    let log_then = backups.target("ulog-then");
    fs::create_dir(&log_then).unwrap();
    fs::write(log_then.join("00000001.ulog"), &whole).unwrap();
    fs::write(log_then.join("replicas"), format!("8\t1\n9\t{}\n", stamps[39])).unwrap();
    let serve = |log: &Path| {
        Server::tyrant(text(&restored), &["--server-id", "7", "--update-log", text(log)])
    };
    let wrong = serve(&log_then);
    wait_for("the warning", || wrong.log().contains("lacks the changes that").then_some(()));
    assert!(wrong.log().contains("until each is made a copy again: 9\n"), "{}", wrong.log());
    drop(wrong);
    // With a log of its own it goes on.
    drop(serve(&backups.target("ulog-new")));
    assert!(!restored.join("position").exists());
    // A log that does not reach back to the backup is refused.
    fs::rename(log.join("00000001.ulog"), log.join("00000002.ulog")).unwrap();
    let options = ["--until", &stamps[39], "--update-log", text(&log), "--backup"];
    let bytes = fs::read(log.join("00000002.ulog")).unwrap();
    let entry = b"\xc9";
    let late = bytes.iter().rposition(|byte| [*byte] == *entry).unwrap();
    fs::write(log.join("00000002.ulog"), &bytes[late..]).unwrap();
    let error = backups.restore_fails("e.tch", &[&options[..], &[&first]].concat());
    assert!(error.contains("have been removed"), "{error}");
    let names: Vec<_> = fs::read_dir(backups.folder.path()).unwrap().collect();
    let has_e = |name: &io::Result<fs::DirEntry>| {
        name.as_ref().unwrap().file_name().to_str().unwrap().starts_with("e.")
    };
    assert!(!names.iter().any(has_e), "{names:?}");
}

#[test]
fn a_killed_backup_keeps_earlier_ones_and_the_next_one_is_complete() {
    let server = Server::tyrant("casket.tch", &COPY_HERE);
    let backups = Backups::new();
    let client = client(&server);
    client.put(b"first", b"1").unwrap();
    backups.create_of(&server);
    for number in 0..20_000_u32 {
        client.put_no_reply(&number.to_be_bytes(), &[7; 1000]).unwrap();
    }
    let repository = backups.repository();
    let mut killed = 0;
    for delay_ms in (0..60).step_by(3) {
        let mut child = Command::new(path("tyrant"))
            .args(["backup", "create", text(&repository), "--full"])
            .args(["--server", &server.address()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        child.kill().unwrap();
        killed += u32::from(!child.wait().unwrap().success());
        backups.verify();
    }
    assert!(killed > 0);
    // The server may still make copies for killed ones, each on its connection.
    backups.create_of(&server);
    backups.verify();
    wait_for("the copies' end", || {
        let mut own = server.connect();
        own.write_all(b"stats\r\nquit\r\n").unwrap();
        let mut stats = String::new();
        own.read_to_string(&mut stats).unwrap();
        // That of `client` is the other one.
        stats.contains("STAT curr_connections 2\r\n").then_some(())
    });
    backups.create_of(&server);
    let (restored, _) = backups.restore("restored.tch", &[]);
    assert_eq!(Database::open(text(&restored)).unwrap().len(), 20_001);
    // The killed backups have left nothing.
    let names: Vec<_> = fs::read_dir(server.folder.path())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.iter().all(|name| !name.contains("backup")), "{names:?}");
    assert!(!repository.join("files/incoming").exists());
}

#[test]
fn an_interrupted_backup_removes_its_copy() {
    let server = Server::tyrant("casket.tch", &COPY_HERE);
    let backups = Backups::new();
    let client = client(&server);
    for number in 0..20_000_u32 {
        client.put_no_reply(&number.to_be_bytes(), &[7; 1000]).unwrap();
    }
    client.sync().unwrap();
    let copies = || {
        let files = fs::read_dir(server.folder.path()).unwrap();
        files
            .filter(|file| file.as_ref().unwrap().file_name().to_str().unwrap().contains("backup"))
            .count()
    };
    backups.create_of(&server);
    let (repository, address) = (backups.repository(), server.address());
    let incoming = repository.join("files/incoming");
    for attempt in 0.. {
        assert!(attempt < 200, "it is never interrupted");
        let mut child = Command::new(path("tyrant"))
            .args(["backup", "create", text(&repository), "--full", "--server", &address])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Once it copies files, the server's copy is complete.
        wait_for("the copying", || {
            (incoming.exists() || child.try_wait().unwrap().is_some()).then_some(())
        });
        if child.try_wait().unwrap().is_none() {
            let process = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
            kill_process(process, Signal::TERM).unwrap();
        }
        let ended = child.wait().unwrap();
        assert_eq!(copies(), 0);
        if !ended.success() {
            break;
        }
    }
    backups.verify();
}

/// Proxy of one connection to a server, which passes the request for a copy on only when it is let.
struct SlowCopies {
    address: String,
    /// Paths of the copies that were asked for.
    asked: Receiver<PathBuf>,
    let_pass: Sender<()>,
    /// A message when the server has replied to that request.
    made: Receiver<()>,
}

impl SlowCopies {
    fn before(server: &Server) -> Self {
        /// Begins the request: its number, and the length of the path.
        const COPY: [u8; 2] = [0xc8, 0x73];
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let ((ask, asked), (let_pass, passes), (reply, made)) = (channel(), channel(), channel());
        let mut server = server.connect();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let (mut replies, mut to_client) =
                (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || {
                let mut buffer = [0; 1 << 16];
                while let Ok(bytes @ 1..) = replies.read(&mut buffer) {
                    // The client may have been killed.
                    let _ = to_client.write_all(&buffer[..bytes]);
                    let _ = reply.send(());
                }
            });
            let mut buffer = [0; 1 << 16];
            while let Ok(bytes @ 1..) = client.read(&mut buffer) {
                let request = &buffer[..bytes];
                if let Some(rest) = request.strip_prefix(&COPY) {
                    let path = std::str::from_utf8(&rest[4..]).unwrap();
                    ask.send(path.into()).unwrap();
                    passes.recv().unwrap();
                }
                server.write_all(request).unwrap();
            }
        });
        Self { address, asked, let_pass, made }
    }

    /// Starts a backup, and waits until it asks for the copy. Returns the path of that, too.
    fn begin_backup(&self, repository: &Path) -> (Child, PathBuf) {
        let child = Command::new(path("tyrant"))
            .args(["backup", "create", text(repository), "--server", &self.address])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let asked = self.asked.recv().unwrap();
        (child, asked)
    }

    /// Lets the server make the copy, and waits until it has replied.
    fn make_copy(&self) {
        while self.made.try_recv().is_ok() {}
        self.let_pass.send(()).unwrap();
        self.made.recv().unwrap();
    }
}

/// Returns the copies for backups in the folder of a server, and their lock files.
fn copies_of(server: &Server) -> Vec<String> {
    let entries = fs::read_dir(server.folder.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".backup-")).collect()
}

#[test]
fn a_backup_interrupted_before_its_copy_is_made_removes_the_copy() {
    let server = Server::tyrant("casket.tch", &COPY_HERE);
    client(&server).put(b"k", b"v").unwrap();
    let backups = Backups::new();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let proxy = SlowCopies::before(&server);
        let (mut child, _) = proxy.begin_backup(&backups.repository());
        kill_process(Pid::from_child(&child), signal).unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        assert!(line.starts_with("tyrant: interrupted"), "{line}");
        proxy.make_copy();
        assert!(!child.wait().unwrap().success());
        assert_eq!(copies_of(&server), [""; 0], "{signal:?}");
        let mut rest = String::new();
        errors.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("the repository has the backups that it had"), "{rest}");
        assert_eq!(rest.lines().count(), 1, "{rest}");
    }
}

#[test]
fn a_copy_made_for_a_killed_backup_is_removed_by_the_next_one_into_any_repository() {
    let server = Server::tyrant("casket.tch", &COPY_HERE);
    client(&server).put(b"k", b"v").unwrap();
    let backups = Backups::new();
    let proxy = SlowCopies::before(&server);
    let (mut child, copy) = proxy.begin_backup(&backups.repository());
    child.kill().unwrap();
    child.wait().unwrap();
    proxy.make_copy();
    assert!(copy.join("manifest").exists());
    // A copy of a script, and a backup under way.
    fs::create_dir(server.folder.path().join("casket.tch.backup-1795264208120034")).unwrap();
    let other = SlowCopies::before(&server);
    let (mut running, own) = other.begin_backup(&backups.target("other"));
    let other_copies = SlowCopies::before(&server);
    let (mut waiting, _) = other_copies.begin_backup(&backups.target("third"));
    assert!(!copy.exists());
    other.make_copy();
    assert!(running.wait().unwrap().success());
    assert!(!own.exists());
    other_copies.make_copy();
    assert!(waiting.wait().unwrap().success());
    assert_eq!(copies_of(&server), ["casket.tch.backup-1795264208120034"]);
}

#[test]
fn a_backup_does_not_meet_the_copy_that_is_still_made_for_a_killed_one() {
    let server = Server::tyrant("casket.tch", &COPY_HERE);
    client(&server).put(b"k", b"v").unwrap();
    let backups = Backups::new();
    backups.create_of(&server);
    let (first, second) = (SlowCopies::before(&server), SlowCopies::before(&server));
    let (mut child, late) = first.begin_backup(&backups.repository());
    child.kill().unwrap();
    child.wait().unwrap();
    let (mut next, copy) = second.begin_backup(&backups.repository());
    assert_ne!(late, copy);
    first.make_copy();
    assert!(late.join("manifest").exists());
    second.make_copy();
    assert!(next.wait().unwrap().success());
    assert_eq!(copies_of(&server), [""; 0]);
    backups.verify();
}

#[test]
fn a_copy_that_fails_names_its_own_file_also_in_the_log() {
    let server = Server::tyrant("casket.tch", &["--copy-dir", "/"]);
    client(&server).put(b"k", b"v").unwrap();
    // Nothing can be made there.
    let target = "/proc/copy.tch";
    let error = fail("tyrant", &["copy", target, "--server", &server.address()]);
    let reason = format!("create {target}: ");
    assert!(error.contains(&reason), "{error}");
    let line = format!("\tERROR\tcopy: cannot copy the database to {target}: {reason}");
    assert_eq!(server.log().matches(&line).count(), 1, "{}", server.log());
}

#[test]
fn a_restore_overwrites_only_on_request() {
    let backups = Backups::new();
    let source = backups.target("source.tcb");
    Database::open(text(&source)).unwrap().put(b"k", b"v").unwrap();
    backups.create(&["--database", text(&source)]);
    let error = backups.restore_fails("source.tcb", &[]);
    assert!(error.contains("exists"), "{error}");
    let error = backups.restore_fails("other.tch", &[]);
    assert!(error.contains("B+ tree"), "{error}");
    let database = Database::open(text(&source)).unwrap();
    database.put(b"k", b"newer").unwrap();
    let error = backups.restore_fails("source.tcb", &["--replace"]);
    assert!(error.contains("in use"), "{error}");
    assert_eq!(database.get(b"k").unwrap().unwrap(), b"newer");
    drop(database);
    backups.restore("source.tcb", &["--replace"]);
    let database = Database::open(text(&source)).unwrap();
    assert_eq!(database.get(b"k").unwrap().unwrap(), b"v");
    let mut names: Vec<_> = fs::read_dir(backups.folder.path())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["backups", "source.tcb"]);
    // A folder that is not a database is never replaced.
    let folder = backups.target("folder.tcb");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file"), "").unwrap();
    let error = backups.restore_fails("folder.tcb", &["--replace"]);
    assert!(error.contains("not a database"), "{error}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    // Nor is a file.
    let file = backups.target("file.tcb");
    fs::write(&file, "notes").unwrap();
    let error = backups.restore_fails("file.tcb", &["--replace"]);
    assert!(error.contains("is a file and no database: name another path"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), b"notes");
    // The restored database takes writes and backups.
    database.put(b"k2", b"v2").unwrap();
    drop(database);
    backups.create(&["--database", text(&source)]);
    backups.verify();
    assert_eq!(backups.listed().len(), 2);
}

#[test]
fn a_restore_removes_its_own_leftovers_and_no_other_database() {
    let backups = Backups::new();
    let source = backups.target("source.tch");
    Database::open(text(&source)).unwrap().put(b"k", b"v").unwrap();
    backups.create(&["--database", text(&source)]);
    let mine = backups.target("other.restoring.tch");
    Database::open(text(&mine)).unwrap().put(b"k", b"mine").unwrap();
    // The leftover of a killed restore.
    let left = backups.target("other.restoring-03c5389e984be841.tch");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("manifest"), "").unwrap();
    let (other, _) = backups.restore("other.tch", &[]);
    assert_eq!(Database::open(text(&mine)).unwrap().get(b"k").unwrap().unwrap(), b"mine");
    assert_eq!(Database::open(text(&other)).unwrap().get(b"k").unwrap().unwrap(), b"v");
    assert!(!left.exists());
}

#[test]
fn a_restore_through_a_link_replaces_the_database_that_it_leads_to() {
    let backups = Backups::new();
    let source = backups.target("source.tch");
    Database::open(text(&source)).unwrap().put(b"k", b"v").unwrap();
    backups.create(&["--database", text(&source)]);
    let data = backups.target("data");
    fs::create_dir(&data).unwrap();
    let (database, link) = (data.join("casket.tch"), backups.target("link.tch"));
    Database::open(text(&database)).unwrap().put(b"k", b"old").unwrap();
    symlink("data/casket.tch", &link).unwrap();
    backups.restore_fails("link.tch", &[]);
    backups.restore("link.tch", &["--replace"]);
    assert!(link.is_symlink());
    assert_eq!(Database::open(text(&database)).unwrap().get(b"k").unwrap().unwrap(), b"v");
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
    fs::remove_dir_all(&database).unwrap();
    let error = backups.restore_fails("link.tch", &["--replace"]);
    assert!(error.contains("is a broken symbolic link"), "{error}");
}

#[test]
fn impossible_backups_are_refused_with_the_reason() {
    let backups = Backups::new();
    let repository = backups.repository();
    let server = Server::tyrant("*", &[]);
    let create = ["backup", "create", text(&repository)];
    let error = fail("tyrant", &[&create[..], &["--server", &server.address()]].concat());
    assert!(error.contains("in memory"), "{error}");
    let error = misuse(&[&create[..], &["--database", "*"]].concat());
    assert!(error.contains("in memory"), "{error}");
    let missing = backups.target("missing.tch");
    let error = fail("tyrant", &[&create[..], &["--database", text(&missing)]].concat());
    assert!(error.contains("missing.tch") && !missing.exists(), "{error}");
    assert!(!repository.exists());
    let elsewhere = backups.target("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), "mine").unwrap();
    let create = ["backup", "create", text(&elsewhere), "--database", text(&missing)];
    assert!(fail("tyrant", &create).contains("not empty"));
    let error = fail("tyrant", &["backup", "list", text(&elsewhere)]);
    assert!(error.contains("not a backup repository"), "{error}");
    assert_eq!(backups.restore_fails("r.tch", &[]).lines().count(), 1);
}

#[test]
fn a_database_without_its_manifests_is_for_salvage() {
    let backups = Backups::new();
    let path = backups.target("lost.tcb");
    Database::open(text(&path)).unwrap().put(b"a", b"b").unwrap();
    for name in ["manifest", "manifest.2"] {
        let _ = fs::remove_file(path.join(name));
    }
    for command in ["check", "inspect"] {
        let error = fail("tyrant", &[command, text(&path)]);
        assert!(error.contains("`tyrant salvage`"), "{error}");
    }
    let saved = backups.target("saved.tcb");
    let error = fail("tyrant", &["salvage", text(&path), "--into", text(&saved)]);
    assert!(error.contains("everything that could be read is in"), "{error}");
    assert_eq!(Database::open(text(&saved)).unwrap().get(b"a").unwrap(), Some(b"b".to_vec()));
}

#[test]
fn a_repository_takes_another_database_only_on_request() {
    let backups = Backups::new();
    let repository = backups.repository();
    let databases = ["one.tch", "two.tch"].map(|name| backups.target(name));
    for database in &databases {
        Database::open(text(database)).unwrap().put(b"a", text(database).as_bytes()).unwrap();
    }
    let create = ["backup", "create", text(&repository), "--database"];
    let [one, other] = databases.each_ref().map(|path| [&create[..], &[text(path)]].concat());
    succeed("tyrant", &one);
    let error = fail("tyrant", &other);
    assert!(
        error.contains("is of another hash database (id ") && error.contains("--accept-other"),
        "{error}"
    );
    assert_eq!(backups.listed().len(), 1);
    succeed("tyrant", &[&other[..], &["--accept-other-database"]].concat());
    // From now on, that is the database of this repository.
    succeed("tyrant", &other);
    fail("tyrant", &one);
    assert_eq!(backups.listed().len(), 3);
}

/// Writes a script like those of Tokyo Tyrant's users, but for the `-r`.
fn script(folder: &Path, lines: &str) -> PathBuf {
    let path = folder.join("copy.sh");
    fs::write(&path, format!("#!/bin/sh\nset -e\n{lines}\n")).unwrap();
    path
}

#[test]
fn a_command_makes_the_copy_beside_the_database_as_with_tokyo_tyrant() {
    let options = ["-ulog", "ulog", "-sid", "1", "--copy-command"];
    let master = Server::ttserver("casket.tch", &options);
    let client = client(&master);
    client.put(b"k", b"v").unwrap();
    client.put_cat(b"list", b"1").unwrap();
    let folder = master.folder.path();
    let script = script(folder, "cp -r \"$1\" \"$1.$2\"\necho \"$1.$2\" >\"$(dirname $0)/made\"");
    let port = master.port.to_string();
    let command = format!("@sh {}", script.display());
    succeed("tcrmgr", &["copy", "-port", &port, "127.0.0.1", &command]);
    let made = fs::read_to_string(folder.join("made")).unwrap();
    let made = Path::new(made.trim_end());
    let time = made.extension().unwrap().to_str().unwrap();
    let copy = folder.join(format!("casket.tch.{time}"));
    assert!(copy.join("manifest").exists());
    assert!(!folder.join(".casket.tch.copying").exists());
    // A replica starts from the copy's time stamp.
    client.put_cat(b"list", b"2").unwrap();
    fs::rename(&copy, folder.join("replica.tch")).unwrap();
    fs::write(folder.join("rts"), format!("{time}\n")).unwrap();
    let absolute = |name: &str| folder.join(name).display().to_string();
    let (database, rts) = (absolute("replica.tch"), absolute("rts"));
    let options = ["-sid", "2", "-mhost", "127.0.0.1", "-mport", &port, "-rts", &rts];
    let replica = Server::ttserver(&database, &options);
    let follower = self::client(&replica);
    wait_for("the replica", || follower.get(b"list").unwrap().filter(|list| list == b"12"));
    assert_eq!(follower.get(b"k").unwrap().unwrap(), b"v");
}

#[test]
fn a_failed_copy_command_is_an_error_and_logged_with_its_reason() {
    let server = Server::ttserver("casket.tch", &["--copy-command"]);
    let client = client(&server);
    client.put(b"k", b"v").unwrap();
    let folder = server.folder.path();
    let script = script(folder, "echo no tape >&2\nexit 3");
    client.copy(format!("@sh {}", script.display()).as_bytes()).unwrap_err();
    assert!(server.log().contains("no tape"), "{}", server.log());
    assert!(server.log().contains("exit status: 3"), "{}", server.log());
    assert!(!folder.join(".casket.tch.copying").exists());
    // The server continues to serve.
    assert_eq!(client.get(b"k").unwrap().unwrap(), b"v");
    // Tokyo Tyrant's way to forbid it, and the default of both programs.
    let made = folder.join("made");
    let touch = format!("@touch {}", made.display());
    let masked = Server::ttserver("casket.tch", &["-mask", "copy", "--copy-command"]);
    self::client(&masked).copy(touch.as_bytes()).unwrap_err();
    let default = Server::ttserver("casket.tch", &[]);
    self::client(&default).copy(touch.as_bytes()).unwrap_err();
    let own = Server::tyrant("casket.tch", &[]);
    self::client(&own).copy(touch.as_bytes()).unwrap_err();
    assert!(!made.exists());
    let own = Server::tyrant("casket.tch", &["--copy-command"]);
    self::client(&own).copy(touch.as_bytes()).unwrap();
    assert!(made.exists());
}

#[test]
fn a_copy_records_up_to_when_it_contains_the_update_log() {
    let server = Server::tyrant("casket.tch", &LOG_AND_COPY_HERE);
    let client = client(&server);
    client.put(b"k", b"v").unwrap();
    let folder = server.folder.path();
    succeed("tyrant", &["copy", "--server", &server.address(), "copy.tch"]);
    client.put(b"k", b"w").unwrap();
    let position = fs::read_to_string(folder.join("copy.tch/position")).unwrap();
    let position = server::CopyPosition::parse(&position).unwrap().timestamp_us;
    let stamps: Vec<u64> = succeed("ttulmgr", &["export", text(&folder.join("ulog"))])
        .lines()
        .map(|line| line.split_once('\t').unwrap().0.parse().unwrap())
        .collect();
    assert!(stamps[0] <= position && position < stamps[1], "{stamps:?} {position}");
}

#[test]
fn a_replica_from_a_backup_whose_log_the_master_no_longer_has_says_that_it_may_differ() {
    let mut master = Server::tyrant("casket.tch", &LOG_AND_COPY_HERE);
    let folder = master.folder.path().to_owned();
    client(&master).put(b"early", b"v").unwrap();
    for copy in ["same.tch", "other.tch"] {
        succeed("tyrant", &["copy", "--server", &master.address(), copy]);
    }
    client(&master).put(b"between", b"v").unwrap();
    let follow = |copy: &str, id: &str, master: &Server| {
        let position = folder.join(format!("{copy}.rts"));
        fs::copy(folder.join(copy).join("position"), &position).unwrap();
        let (master, path) = (master.address(), folder.join(copy));
        let options = ["--server-id", id, "--master", &master, "--position-file", text(&position)];
        Server::tyrant(text(&path), &options)
    };
    let has = |replica: &Server, key: &[u8]| client(replica).get(key).unwrap().is_some();
    let same = follow("same.tch", "2", &master);
    wait_for("the rest", || has(&same, b"between").then_some(()));
    assert!(!same.log().contains("belongs to another log"), "{}", same.log());
    drop(same);
    master.end(Signal::TERM);
    fs::rename(folder.join("ulog"), folder.join("ulog-before")).unwrap();
    master.restart();
    client(&master).put(b"late", b"v").unwrap();
    let other = follow("other.tch", "3", &master);
    wait_for("the warning", || other.log().contains("belongs to another log").then_some(()));
    wait_for("the rest", || has(&other, b"late").then_some(()));
    assert!(!has(&other, b"between"));
}

#[test]
fn a_copy_is_refused_without_copy_dir_and_outside_of_it() {
    let server = Server::tyrant("casket.tch", &[]);
    let error = fail("tyrant", &["copy", "--server", &server.address(), "copy.tch"]);
    assert!(error.contains("clients may name no path"), "{error}");
    assert!(server.log().contains("--copy-dir"), "{}", server.log());
    assert!(!server.folder.path().join("copy.tch").exists());
    let backups = Backups::new();
    let repository = backups.repository();
    let create = ["backup", "create", text(&repository), "--server", &server.address()];
    let error = fail("tyrant", &create);
    assert!(error.contains("--copy-dir"), "{error}");
    let server = Server::tyrant("casket.tch", &COPY_HERE);
    let outside = backups.target("copy.tch");
    for path in [text(&outside), "../copy.tch", "none/copy.tch"] {
        fail("tyrant", &["copy", "--server", &server.address(), path]);
    }
    assert!(!outside.exists());
    succeed("tyrant", &["copy", "--server", &server.address(), "copy.tch"]);
    assert!(server.folder.path().join("copy.tch/manifest").exists());
    // Existing files are never overwritten.
    fail("tyrant", &["copy", "--server", &server.address(), "copy.tch"]);
    fail("tyrant", &["copy", "--server", &server.address(), "casket.tch"]);
    let error = fail("tyrant", &["serve", "*", "--copy-dir", "/missing"]);
    assert!(error.starts_with("tyrant: copy-dir: /missing: No such file"), "{error}");
    assert!(error.ends_with("; check the path\n"), "{error}");
}

#[test]
fn the_folders_above_a_repository_are_created() {
    let backups = Backups::new();
    let source = backups.target("source.tcb");
    Database::open(text(&source)).unwrap().put(b"k", b"v").unwrap();
    let repository = backups.target("deep/er/repository");
    let create = ["backup", "create", text(&repository), "--database", text(&source)];
    succeed("tyrant", &create);
    succeed("tyrant", &["backup", "verify", text(&repository)]);
}

#[test]
fn a_first_backup_that_fails_leaves_nothing_that_it_made() {
    let backups = Backups::new();
    let missing = backups.target("missing.tch");
    let deep = backups.target("deep/er/repository");
    let create = ["backup", "create", text(&deep), "--database", text(&missing)];
    fail("tyrant", &create);
    assert!(!backups.target("deep").exists());
    // A folder that was there before stays, and becomes a repository later.
    let empty = backups.repository();
    fs::create_dir(&empty).unwrap();
    fail("tyrant", &["backup", "create", text(&empty), "--database", text(&missing)]);
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
    let source = backups.target("source.tcb");
    Database::open(text(&source)).unwrap().put(b"k", b"v").unwrap();
    backups.create(&["--database", text(&source)]);
    // A later failure keeps what is there.
    fail("tyrant", &["backup", "create", text(&empty), "--database", text(&missing)]);
    backups.verify();
}

#[test]
fn a_repository_without_a_backup_is_not_verified_as_intact() {
    let backups = Backups::new();
    let source = backups.target("source.tcb");
    Database::open(text(&source)).unwrap().put(b"k", b"v").unwrap();
    let name = backups.create(&["--database", text(&source)]);
    let repository = backups.repository();
    fs::remove_file(repository.join(format!("backups/{name}.backup"))).unwrap();
    assert_eq!(backups.command("list"), "");
    let error = fail("tyrant", &["backup", "verify", text(&repository)]);
    assert!(error.contains("has no backup yet: `tyrant backup create"), "{error}");
    assert!(backups.restore_fails("new.tcb", &[]).contains("has no backup yet"));
}
