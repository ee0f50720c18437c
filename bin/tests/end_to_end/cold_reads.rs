//! Reads of records that are not in memory: by a ring of each event loop, and by threads.

use crate::process::{Server, exchange};
use rustix::fs::{Advice, fadvise};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const RECORDS: usize = 2000;

/// Long enough that records cross pages.
const VALUE_BYTES: usize = 3000;

fn key(number: usize) -> String {
    format!("k{number:05}")
}

fn value(number: usize) -> String {
    format!("{number:05}").repeat(VALUE_BYTES / 5)
}

/// Returns a server of a database of this kind, of which nothing is in memory.
fn cold(kind: &str, options: &[&str]) -> Server {
    // The page cache of a file system in memory cannot be emptied.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let options = [&["--threads", "1"], options].concat();
    let mut server = Server::tyrant_in(folder, &format!("casket.{kind}"), &options);
    let sets = (0..RECORDS)
        .map(|number| format!("set {} 0 0 {VALUE_BYTES}\r\n{}\r\n", key(number), value(number)));
    let sets: Vec<String> = sets.collect();
    for some in sets.chunks(100) {
        server.exchange(some.concat(), "STORED\r\n".repeat(some.len()));
    }
    forget(&mut server);
    server
}

/// Restarts a server with nothing of its database in memory.
fn forget(server: &mut Server) {
    assert!(server.end(Signal::TERM).success());
    forget_files(server.folder.path());
    server.restart();
}

fn forget_files(folder: &Path) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            forget_files(&path);
        } else if let Ok(file) = fs::File::open(&path) {
            file.sync_all().expect("to sync");
            fadvise(&file, 0, None, Advice::DontNeed).expect("to forget");
        }
    }
}

/// Returns a figure of the server's statistics.
fn stat(server: &Server, name: &str) -> String {
    let mut stream = server.connect();
    stream.write_all(b"stats\r\n").expect("to send");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
    let wanted = format!("STAT {name} ");
    let line = lines.find(|line| line.starts_with(&wanted) || line == "END").expect("an end");
    line.strip_prefix(&wanted).unwrap_or_else(|| panic!("no {name}")).to_owned()
}

fn count(server: &Server, name: &str) -> u64 {
    stat(server, name).parse().expect("a number")
}

/// Returns the name of each way to read that this machine has, with the counter of its requests.
fn ways() -> Vec<(&'static str, &'static str)> {
    let (pool, ring) = (("pool", "requests_pooled"), ("ring", "requests_awaiting_reads"));
    match stat(&Server::tyrant("casket.tch", &[]), "cold_reads_by").as_str() {
        "ring" => vec![pool, ring],
        _ => {
            println!("ring: SKIPPED, the kernel does not allow it");
            vec![pool]
        }
    }
}

fn found(number: usize) -> String {
    format!("VALUE {} 0 {VALUE_BYTES}\r\n{}\r\n", key(number), value(number))
}

#[test]
fn every_protocol_reads_what_is_not_in_memory() {
    for (way, counter) in ways() {
        for kind in ["tch", "tcb"] {
            let server = cold(kind, &["--cold-reads", way]);
            assert_eq!(stat(&server, "cold_reads_by"), way);
            let mut client = server.connect();
            for number in (0..RECORDS).step_by(97) {
                let get = format!("get {}\r\n", key(number));
                exchange(&mut client, get, found(number) + "END\r\n");
            }
            let several: Vec<usize> = (1..RECORDS).step_by(41).collect();
            let keys: Vec<String> = several.iter().map(|number| key(*number)).collect();
            let values: String = several.iter().map(|number| found(*number)).collect();
            exchange(&mut client, format!("get {}\r\n", keys.join(" ")), values + "END\r\n");
            let pipeline: Vec<usize> = (2..RECORDS).step_by(43).collect();
            let gets: String =
                pipeline.iter().map(|number| format!("get {}\r\n", key(*number))).collect();
            let replies: String =
                pipeline.iter().map(|number| found(*number) + "END\r\n").collect();
            exchange(&mut client, gets, replies);
            // It depends on the record, which is read first.
            let append = format!("append {} 0 0 1\r\nx\r\nget {0}\r\n", key(905));
            let appended =
                format!("VALUE {} 0 {}\r\n{}x\r\n", key(905), VALUE_BYTES + 1, value(905));
            exchange(&mut client, append, format!("STORED\r\n{appended}END\r\n"));
            let mget = format!("*3\r\n$4\r\nMGET\r\n$6\r\n{}\r\n$6\r\n{}\r\n", key(3), key(1503));
            let bulk = |number| format!("${VALUE_BYTES}\r\n{}\r\n", value(number));
            exchange(&mut client, mget, format!("*2\r\n{}{}", bulk(3), bulk(1503)));
            let get = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", key(1004));
            server.exchange(get, "HTTP/1.1 200 OK\r\n");
            let waited = count(&server, counter);
            assert!(waited > 20, "{way} {kind}: {waited}");
            if way == "ring" {
                // One may also wait for a lock.
                assert!(count(&server, "requests_pooled") < waited, "{kind}");
            }
        }
    }
}

#[test]
fn the_reads_of_a_transaction_are_under_way_together() {
    for (way, counter) in ways() {
        let server = cold("tch", &["--cold-reads", way]);
        let mut client = server.connect();
        let numbers: Vec<usize> = (3..RECORDS).step_by(101).collect();
        let gets =
            numbers.iter().map(|number| format!("*2\r\n$3\r\nGET\r\n$6\r\n{}\r\n", key(*number)));
        let queued = "+QUEUED\r\n".repeat(numbers.len());
        exchange(
            &mut client,
            format!("*1\r\n$5\r\nMULTI\r\n{}", gets.collect::<String>()),
            format!("+OK\r\n{queued}"),
        );
        let before = count(&server, counter);
        let values: String = numbers
            .iter()
            .map(|number| format!("${VALUE_BYTES}\r\n{}\r\n", value(*number)))
            .collect();
        let reply = format!("*{}\r\n{values}", numbers.len());
        exchange(&mut client, "*1\r\n$4\r\nEXEC\r\n", reply);
        let waits = count(&server, counter) - before;
        assert!((1..=4).contains(&waits), "{way}: {waits} of {}", numbers.len());
        let others: Vec<String> = (5..RECORDS).step_by(101).map(key).collect();
        let before = count(&server, counter);
        exchange(
            &mut client,
            format!("TOUCH {}\r\n", others.join(" ")),
            format!(":{}\r\n", others.len()),
        );
        let waits = count(&server, counter) - before;
        assert!((1..=4).contains(&waits), "{way}: {waits} of {}", others.len());
    }
}

#[test]
fn reads_go_on_while_calls_leave_the_loop_and_clients_leave() {
    const SCRIPT: &str = "function rest() _sleep(0.02) return 'rested' end";
    for (way, _) in ways() {
        let script = tempfile::NamedTempFile::new().expect("a file");
        fs::write(script.path(), SCRIPT).expect("a script");
        let script = script.path().display().to_string();
        let mut server = cold("tch", &["--cold-reads", way, "--script", &script]);
        for _ in 0..3 {
            let are_over = AtomicBool::new(false);
            thread::scope(|scope| {
                let reading: Vec<_> = (0..8)
                    .map(|first| {
                        let server = &server;
                        scope.spawn(move || {
                            let mut client = server.connect();
                            for number in (first..RECORDS).step_by(8) {
                                let get = format!("get {}\r\n", key(number));
                                exchange(&mut client, get, found(number) + "END\r\n");
                            }
                        })
                    })
                    .collect();
                scope.spawn(|| {
                    let call = b"\xc8\x68\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0rest";
                    while !are_over.load(Ordering::Relaxed) {
                        server.exchange(call, b"\0\0\0\0\x06rested");
                    }
                });
                scope.spawn(|| {
                    for number in (0..RECORDS).rev() {
                        let get = format!("get {}\r\n", key(number));
                        server.connect().write_all(get.as_bytes()).expect("to send");
                    }
                });
                let ended: Vec<_> = reading.into_iter().map(|one| one.join()).collect();
                are_over.store(true, Ordering::Relaxed);
                assert!(ended.iter().all(Result::is_ok));
            });
            forget(&mut server);
        }
    }
}

#[test]
fn a_request_behind_a_call_or_a_durable_change_is_read_for_a_lone_client() {
    for (way, _) in ways() {
        let script = tempfile::NamedTempFile::new().expect("a file");
        fs::write(script.path(), "function quick() return 'done' end").expect("a script");
        let script = script.path().display().to_string();
        let options = ["--cold-reads", way, "--script", &script];
        let server = cold("tch#durability=always", &options);
        let mut client = server.connect();
        for number in (0..RECORDS).step_by(101) {
            let call = b"\xc8\x68\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0quick";
            let get = format!("get {}\r\n", key(number));
            let reply = [b"\0\0\0\0\x04done", (found(number) + "END\r\n").as_bytes()].concat();
            exchange(&mut client, [call, get.as_bytes()].concat(), reply);
            let get = format!("set k 0 0 1\r\nv\r\nget {}\r\n", key(number + 1));
            exchange(&mut client, get, format!("STORED\r\n{}END\r\n", found(number + 1)));
        }
    }
}

#[test]
fn long_values_that_are_not_in_memory_are_read_by_the_pool() {
    for (way, _) in ways() {
        let mut server = cold("tch", &["--cold-reads", way]);
        let long = "x".repeat(5 << 20);
        let set = format!("set long 0 0 {}\r\n{long}\r\n", long.len());
        server.exchange(set, "STORED\r\n");
        forget(&mut server);
        let expected = format!("VALUE long 0 {}\r\n{long}\r\nEND\r\n", long.len());
        server.exchange("get long\r\n", expected);
        assert!(count(&server, "requests_pooled") > 0);
        assert!(count(&server, "requests_awaiting_reads") < 3);
    }
}
