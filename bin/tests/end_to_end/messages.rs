//! Errors of `tyrant` on a server: which server, what failed, what to do.

use crate::process::{Server, fail, free_port};
use crate::tyrant::converse;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

/// Runs a command line that must fail on a server, and checks that its error has all `parts`.
fn refuse(address: &str, line: &str, parts: &[&str]) {
    let mut arguments: Vec<&str> = line.split(' ').collect();
    arguments.extend(["--server", address]);
    let error = fail("tyrant", &arguments);
    for part in parts {
        assert!(error.contains(part), "{line}: {part} is not in {error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn an_error_names_the_server_its_kind_of_database_and_what_to_do() {
    let server = Server::tyrant("casket.tch", &["--mask", "out"]);
    let address = server.address();
    refuse(
        &address,
        "range",
        &[
            "range needs a tree (.tcb, or + in memory) or a fixed-length database (.tcf)",
            &format!("the server at {address} has a hash database"),
        ],
    );
    let place = format!("{address} (hash): ");
    for (line, what) in [
        ("get a", "no record has the key \"a\""),
        ("out a", "the server refuses out: no permission: the server masks out"),
        ("put --duplicate a b", "put needs a tree (.tcb)"),
        ("find [", "bad pattern: a [ is not closed"),
        ("copy x", "clients may name paths only with --copy-dir"),
        ("misc nonsense", "this kind of database may not have it"),
        ("promote", "follows no master"),
        ("stat nonsense", "\"tyrant stat\" lists them all"),
    ] {
        let place = if line.contains("duplicate") { address.clone() } else { place.clone() };
        refuse(&address, line, &[what, &place]);
    }
    let server = Server::tyrant("casket.tcf", &[]);
    refuse(&server.address(), "put abc x", &["(fixed-length): ", "\"abc\" is no id"]);
    let server = Server::tyrant("*", &[]);
    refuse(&server.address(), "search", &["has an on-memory hash database: use get, put, list"]);
    refuse(
        &server.address(),
        "misc nonsense",
        &["(on-memory hash): misc failed: invalid operation"],
    );
}

#[test]
fn a_masked_function_is_no_success() {
    for (mask, refusal) in
        [("misc", "it masks misc"), ("put,putkeep,putcat", "no permission: the server masks ")]
    {
        let server = Server::tyrant("casket.tct", &["--mask", mask]);
        for line in
            ["put-row a n=v", "put-row --keep a n=v", "put-row --add a n=v", "misc put a n v"]
        {
            refuse(&server.address(), line, &["(table): the server refuses ", refusal]);
        }
    }
    let server = Server::tyrant("casket.tct", &["--mask", "misc"]);
    refuse(&server.address(), "set-index n LEX", &["refuses set-index: it masks misc"]);
    refuse(&server.address(), "get-row a", &["refuses get-row: it masks misc"]);
    refuse(&server.address(), "get-row a b", &["refuses get-row: it masks misc"]);
    refuse(&server.address(), "slow", &["refuses slow: it masks misc"]);
    for form in ["", " --rows", " --csv", " --count", " --out"] {
        let line = format!("search{form}");
        refuse(&server.address(), &line, &["refuses search: it masks misc"]);
    }
    let server = Server::tyrant("casket.tcb", &["--mask", "misc"]);
    for line in ["put --expire 9 a b", "put --duplicate a b", "touch a 9"] {
        let name = line.split(' ').next().expect("a name");
        refuse(&server.address(), line, &[&format!("refuses {name}: it masks misc")]);
    }
    // Another masked command, which every command of the tool tries, is no matter.
    let server = Server::tyrant("casket.tct", &["--mask", "stat"]);
    converse(&server, &[("put-row a n=v", Some("")), ("get-row a", Some("a\tn\tv\n"))]);
}

#[test]
fn a_server_that_cannot_be_reached_is_named_with_the_cause_and_what_to_do() {
    let address = format!("127.0.0.1:{}", free_port());
    let repository = tempfile::tempdir().expect("a folder");
    let backup = format!("backup create {}/b", repository.path().display());
    let cause = format!("cannot connect to {address}: Connection refused (os error 111)");
    for line in ["get a", "tail", "replicas", "check", &backup] {
        refuse(&address, line, &[&cause, "\"tyrant serve\"", "TYRANT_SERVER"]);
    }
    refuse("/nonexistent/socket", "get a", &["/nonexistent/socket: No such file"]);
    refuse("127.0.0.1:x", "get a", &["\"127.0.0.1:x\" is not an address: give HOST:PORT"]);
    refuse("127.0.0.1:x", "tail", &["is not an address"]);
}

/// Starts a server that sends `reply` to each line, or at once if `is_first`. Returns its address.
fn other_server(reply: &'static [u8], is_first: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.expect("a connection");
                let mut line = Vec::new();
                if is_first || BufReader::new(&stream).read_until(b'\n', &mut line).is_ok() {
                    let _ = stream.write_all(reply);
                }
            });
        }
    });
    address
}

#[test]
fn a_server_of_another_protocol_is_recognized() {
    for (reply, is_first, name) in [
        (&b"-ERR unknown command 'version'\r\n"[..], false, "a Redis server"),
        (b"VERSION 1.6.45\r\n", false, "a memcached server"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", false, "a web server"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", true, "an SSH server"),
        (
            b"HELLO\r\n",
            true,
            "does not speak the protocol of tyrant (the reply begins with \"HELLO",
        ),
    ] {
        let address = other_server(reply, is_first);
        refuse(&address, "get a", &[&address, name, "--server or TYRANT_SERVER"]);
    }
}

#[test]
fn a_cause_is_said_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let new = folder.path().join("new.tch").display().to_string();
    for arguments in [
        &["check", "/nonexistent"][..],
        &["export", "/nonexistent.tch"],
        &["salvage", "/nonexistent", "--into", &new],
        &["inspect", "/nonexistent"],
        &["serve", "/nonexistent/casket.tch", "--log", "/dev/null"],
    ] {
        let error = fail("tyrant", arguments);
        assert_eq!(error.matches("(os error 2)").count(), 1, "{error}");
    }
    assert!(!std::path::Path::new(&new).exists(), "salvage has made a database of nothing");
}
