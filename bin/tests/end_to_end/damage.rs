//! Damage to the files of a served database, as the programs report it.

use crate::process::{Server, fail, run, succeed, wait_for};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Flips a bit in every occurrence of `text` in a database's segments.
fn spoil(database: &Path, text: &[u8]) {
    for file in fs::read_dir(database).expect("the database's folder") {
        let path = file.expect("a file").path();
        if path.extension().is_some_and(|suffix| suffix == "log") {
            let bytes = fs::read(&path).expect("a segment");
            let file = fs::OpenOptions::new().write(true).open(&path).expect("a segment");
            for place in 0..bytes.len().saturating_sub(text.len()) {
                if bytes[place..].starts_with(text) {
                    file.write_at(&[text[0] ^ 1], place as u64).expect("to write");
                }
            }
        }
    }
}

/// Returns a command line with the server to connect to.
fn at<'w>(address: &'w str, words: &[&'w str]) -> Vec<&'w str> {
    [words, &["--server", address]].concat()
}

#[test]
fn records_beside_a_damaged_one_are_printed() {
    let mut server = Server::tyrant("casket.tch", &[]);
    let address = server.address();
    let tyrant = |words: &[&'static str]| at(&address, words);
    for (key, value) in [("key1", "one"), ("bad", "the bad value"), ("key2", "two")] {
        succeed("tyrant", &["put", key, value, "--server", &address]);
    }
    assert!(server.end(rustix::process::Signal::TERM).success());
    server.restart();
    spoil(&server.folder.path().join("casket.tch"), b"bad value");
    let got = run("tyrant", &tyrant(&["get", "key1", "bad", "key2"]));
    assert_eq!(got.stdout, b"key1\tone\nkey2\ttwo\n");
    assert_eq!(got.status.code(), Some(1));
    let error = String::from_utf8_lossy(&got.stderr);
    assert!(error.contains("1 key without a result: \"bad\""), "{error}");
    assert!(error.contains("a record cannot be read"), "{error}");
}

#[test]
fn a_damaged_record_is_an_error_on_the_command_line_and_one_line_in_the_log() {
    let mut server = Server::tyrant("casket.tcb", &[]);
    let address = server.address();
    let tyrant = |words: &[&'static str]| at(&address, words);
    for number in 0..50 {
        let key = format!("key{number}");
        succeed("tyrant", &["put", &key, "some value", "--server", &address]);
    }
    succeed("tyrant", &tyrant(&["put", "bad", "the bad value"]));
    // Everything is read from the files again.
    assert!(server.end(rustix::process::Signal::TERM).success());
    server.restart();
    spoil(&server.folder.path().join("casket.tcb"), b"bad value");
    for words in [
        &["get", "bad"][..],
        &["get", "key1", "bad"],
        &["out", "bad"],
        &["list"],
        &["list", "--prefix", ""],
        &["list", "--values"],
        &["range"],
        &["find", "."],
        &["put", "--append", "bad", "more"],
    ] {
        fail("tyrant", &tyrant(words));
    }
    let log = server.log();
    assert_eq!(log.matches("is damaged at byte").count(), 1, "{log}");
    let stat = succeed("tyrant", &tyrant(&["stat"]));
    assert!(stat.contains("\ndamaged_segments\t1\n"), "{stat}");
    assert!(!stat.contains("\ndamaged_records\t0\n"), "{stat}");
    // Nine reads have met it.
    assert!(stat.contains("\nattention\t! 1 DAMAGED place: run "), "{stat}");
}

#[test]
fn checks_of_a_server_and_of_its_files_find_the_same_damage() {
    let mut server = Server::tyrant("casket.tch", &[]);
    let address = server.address();
    let check = ["check", "--server", &address];
    for number in 0..20 {
        let key = format!("key{number}");
        succeed("tyrant", &["put", &key, &format!("value {number} of it"), "--server", &address]);
    }
    let good = succeed("tyrant", &check);
    assert!(good.starts_with("20 entries of the log, "), "{good}");
    assert!(good.ends_with("\nno damage was found\n"), "{good}");
    assert_eq!(good, succeed("tyrant", &["check", "--server", &address, "--rate", "1m"]));
    spoil(&server.folder.path().join("casket.tch"), b"value 7 of it");
    let output = run("tyrant", &check);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(error, "tyrant: 1 damaged place; tyrant salvage saves the rest\n");
    let stat = succeed("tyrant", &["stat", "--server", &address]);
    assert!(stat.contains("\nscrub_state\tfinished\nscrubs\t3\n"), "{stat}");
    assert!(stat.contains("\nscrub_damages\t1\n"), "{stat}");
    assert!(stat.contains("\ndamaged_segments\t1\n"), "{stat}");
    assert!(server.end(rustix::process::Signal::TERM).success());
    let path = server.folder.path().join("casket.tch");
    let of_files = run("tyrant", &["check", path.to_str().expect("a path")]);
    let of_files = String::from_utf8(of_files.stdout).expect("UTF-8");
    // The same offset, under the path given to each command.
    let place =
        |text: &str| text.lines().next().map(|line| line.split(".log").nth(1).map(String::from));
    assert_eq!(place(&printed), place(&of_files), "{printed} {of_files}");
    fail("tyrant", &check);
    let (path, saved) = (path.display().to_string(), path.with_file_name("saved.tch"));
    let saved = saved.display().to_string();
    let error = fail("tyrant", &["salvage", &path, "--into", &saved]);
    let expected =
        format!("1 damaged place was found; everything that could be read is in {saved}");
    assert!(error.contains(&expected), "{error}");
    let (again, good) = (format!("{saved}.again.tch"), succeed("tyrant", &["check", &saved]));
    assert!(good.ends_with("\nno damage was found\n"), "{good}");
    let words = succeed("tyrant", &["salvage", &saved, "--into", &again]);
    assert!(words.ends_with("\nno damage was found\n"), "{words}");
    assert_eq!(run("tyrant", &["check", "a", "--rate", "1"]).status.code(), Some(2));
}

#[test]
fn an_export_of_a_damaged_database_has_everything_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    for (name, rows) in [("a.tch", false), ("a.tcb", false), ("a.tcf", false), ("a.tct", true)] {
        let (lines, database) = (at("lines.tsv"), at(name));
        let column = if rows { "\tname" } else { "" };
        let line = |number: u32| format!("{number}{column}\tvalue {number} of it\n");
        fs::write(&lines, (1..=5000).map(line).collect::<String>()).expect("the lines");
        succeed("tyrant", &["import", &lines, "--into", &database]);
        spoil(Path::new(&database), b"value 4001 of it");
        for options in [&[][..], &["--any-order"]] {
            let written = at("written.tsv");
            let export = [&["export", &database, &written, "--replace"], options].concat();
            let output = run("tyrant", &export);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(error.contains("is corrupted at byte"), "{name}: {error}");
            let end = "1 damaged place was found; everything else was exported\n";
            assert!(error.ends_with(end), "{name}: {error}");
            let written = fs::read_to_string(written).expect("the rest");
            let keys: Vec<&str> =
                written.lines().filter_map(|line| line.split('\t').next()).collect();
            let unique: std::collections::BTreeSet<&&str> = keys.iter().collect();
            assert_eq!(unique.len(), keys.len(), "{name}");
            assert!(
                !keys.contains(&"4001") && keys.contains(&"1") && keys.contains(&"5000"),
                "{name}"
            );
            // A page of a tree has a few hundred of them.
            assert!(keys.len() > 4500 && keys.len() < 5000, "{name}: {}", keys.len());
            // The standard output has the same.
            let output = run("tyrant", &[&["export", &database], options].concat());
            assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), keys.len());
        }
    }
}

#[test]
fn a_server_verifies_itself_at_the_given_interval() {
    let server = Server::tyrant("casket.tch", &["--scrub-interval", "1"]);
    let address = server.address();
    succeed("tyrant", &["put", "key", "the value", "--server", &address]);
    spoil(&server.folder.path().join("casket.tch"), b"the value");
    wait_for("a scrub", || server.log().contains("is damaged at byte").then_some(()));
    let never = Server::tyrant("casket.tch", &["--scrub-interval", "0"]);
    let stat = succeed("tyrant", &["stat", "--server", &never.address()]);
    assert!(stat.contains("\nscrub_state\tidle\nscrubs\t0\n"), "{stat}");
}
