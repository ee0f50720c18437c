//! The commands of `tyrant` for a running server.

use crate::process::{Server, fail, free_port, path, succeed};
use std::io::Write;
use std::process::{Command, Stdio};

/// Runs command lines against one server. Checks the output of each, or its failure if `None`.
pub(crate) fn converse(server: &Server, lines: &[(&str, Option<&str>)]) {
    for (line, expected) in lines {
        let mut arguments: Vec<&str> = line.split(' ').collect();
        let address = server.address();
        arguments.extend(["--server", &address]);
        match expected {
            Some(expected) => assert_eq!(succeed("tyrant", &arguments), *expected, "{line}"),
            None => assert!(fail("tyrant", &arguments).starts_with("tyrant: "), "{line}"),
        }
    }
}

#[test]
fn records_are_stored_read_listed_and_removed() {
    converse(
        &Server::tyrant("*", &[]),
        &[
            ("put a 1", Some("")),
            ("put b 2", Some("")),
            ("get a", Some("1\n")),
            ("get -n a", Some("1")),
            ("get b a c", Some("b\t2\na\t1\n")),
            ("get c", None),
            ("put --keep a x", None),
            ("put --keep c 3", Some("")),
            ("put --append c 4", Some("")),
            ("get c", Some("34\n")),
            ("list --prefix c", Some("c\n")),
            ("list --prefix c --values", Some("c\t34\n")),
            ("list --max 0", Some("")),
            ("count", Some("3\n")),
            ("rnum", Some("3\n")),
            ("out a c", Some("")),
            ("out b a", None),
            ("count", Some("0\n")),
        ],
    );
}

#[test]
fn a_list_without_a_prefix_has_every_record_once() {
    let server = Server::tyrant("*", &[]);
    let lines: Vec<String> = (0..50).map(|number| format!("put key-{number} x")).collect();
    for line in &lines {
        converse(&server, &[(line, Some(""))]);
    }
    let listed = succeed("tyrant", &["list", "--server", &server.address()]);
    let mut keys: Vec<&str> = listed.lines().collect();
    keys.sort_unstable();
    let mut expected: Vec<&str> = lines.iter().map(|line| &line[4..line.len() - 2]).collect();
    expected.sort_unstable();
    assert_eq!(keys, expected);
}

#[test]
fn arbitrary_bytes_are_passed_in_hexadecimal() {
    converse(
        &Server::tyrant("*", &[]),
        &[
            ("put --hex 00ff 0a00", Some("")),
            ("get --hex 00ff", Some("0A 00\n")),
            ("list --hex --values", Some("00 FF\t0A 00\n")),
            ("put --hex 0 00", None),
            ("put --hex zz 00", None),
        ],
    );
}

#[test]
fn a_value_is_read_from_the_standard_input() {
    let server = Server::tyrant("*", &[]);
    let mut put = Command::new(path("tyrant"))
        .args(["put", "--server", &server.address(), "a", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    put.stdin.take().unwrap().write_all(b"\0two\nlines\n").unwrap();
    assert!(put.wait().unwrap().success());
    converse(&server, &[("get -n a", Some("\0two\nlines\n"))]);
}

#[test]
fn the_whole_database_is_maintained() {
    let server = Server::tyrant("casket.tch", &["--copy-dir", "."]);
    converse(
        &server,
        &[
            ("put a 1", Some("")),
            ("sync", Some("")),
            ("optimize", Some("")),
            ("misc getlist a b", Some("a\n1\n")),
            ("misc nonsense", None),
            ("ext nonsense k v", None),
            ("copy copy.tch", Some("")),
            ("vanish", Some("")),
            ("count", Some("0\n")),
        ],
    );
    assert!(server.folder.path().join("copy.tch").exists());
    let stat = succeed("tyrant", &["stat", "--server", &server.address()]);
    assert!(stat.contains("\nrnum\t0\n"), "{stat}");
    let size = succeed("tyrant", &["size", "--server", &server.address()]);
    size.trim().parse::<u64>().unwrap();
}

#[test]
fn an_unreachable_server_is_an_error() {
    let address = format!("127.0.0.1:{}", free_port());
    fail("tyrant", &["get", "--server", &address, "a"]);
    fail("tyrant", &["get", "--server", "/nonexistent/socket", "a"]);
    fail("tyrant", &["get", "--server", "127.0.0.1", "a"]);
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(succeed("tyrant", &["--version"]), format!("tyrant {version}\n"));
    assert!(succeed("tyrant", &["version"]).starts_with(&format!("Tyrant version {version} (")));
}
