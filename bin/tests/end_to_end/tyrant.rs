//! The commands of `tyrant` for a running server.

use crate::process::{Server, fail, feed, free_port, misuse, path, run, succeed};
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
            ("get b a", Some("b\t2\na\t1\n")),
            ("get b a c", None),
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
fn the_records_beside_a_missing_key_are_printed_before_the_failure() {
    for (name, put, get, expected) in [
        ("*", "put", "get", "b\t2\n"),
        ("casket.tcf", "put", "get", "2\t2\n"),
        ("*", "put", "ttl", "b\t-\n"),
        ("casket.tct", "put-row", "get-row", "b\t2\t2\n"),
    ] {
        let server = Server::tyrant(name, &[]);
        let is_fixed = name.ends_with(".tcf");
        let [key, missing, other] = if is_fixed { ["2", "3", "4"] } else { ["b", "c", "d"] };
        let value = if put == "put-row" { "2=2" } else { "2" };
        let address = server.address();
        succeed("tyrant", &[put, key, value, "--server", &address]);
        let one = run("tyrant", &[get, missing, key, "--server", &address]);
        let several = run("tyrant", &[get, key, missing, other, "--server", &address]);
        let reasons = ["no record has the key", "2 of 3 keys have no record, the first is"];
        for (output, reason) in [one, several].into_iter().zip(reasons) {
            assert_eq!(output.status.code(), Some(1), "{get}: {output:?}");
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{get}");
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(error.contains(&format!("{reason} \"{missing}\"")), "{error}");
        }
    }
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
        ],
    );
}

/// Runs a command line that must succeed on a server. Returns its output.
fn output_of(server: &Server, line: &str) -> String {
    let address = server.address();
    let mut arguments: Vec<&str> = line.split(' ').collect();
    arguments.extend(["--server", &address]);
    succeed("tyrant", &arguments)
}

#[test]
fn lists_escape_control_characters_and_invalid_text_unless_bytes_are_asked_for() {
    let server = Server::tyrant("+", &[]);
    let lines = [
        ("put a\tb x\x1b[2J", Some("")),
        ("put --hex 63 ff0a", Some("")),
        ("put d d\\e", Some("")),
        ("list", Some("a\\tb\nc\nd\n")),
        ("list --values", Some("a\\tb\tx\\x1b[2J\nc\t\\xff\\n\nd\td\\\\e\n")),
        ("range d", Some("d\td\\\\e\n")),
        ("find --raw ^a", Some("a\tb\tx\x1b[2J\n")),
        ("get a\tb d", Some("a\\tb\tx\\x1b[2J\nd\td\\\\e\n")),
        ("misc get a\tb", Some("x\\x1b[2J\n")),
        // The value of one key is not changed, unless it is for a terminal.
        ("get a\tb", Some("x\x1b[2J\n")),
        ("get d", Some("d\\e\n")),
    ];
    converse(&server, &lines);
    let raw = run("tyrant", &["list", "--raw", "--values", "--server", &server.address()]);
    assert_eq!(raw.stdout, b"a\tb\tx\x1b[2J\nc\t\xff\n\nd\td\\e\n");
}

#[test]
fn everything_that_lists_or_shows_has_json() {
    let server = Server::tyrant("+", &[]);
    converse(&server, &[("put a 1", Some("")), ("put --hex 62 ff", Some(""))]);
    for (line, expected) in [
        ("get a", "{\"key\":\"a\",\"value\":\"1\"}\n"),
        ("get b a", "{\"key\":\"b\",\"value_hex\":\"ff\"}\n{\"key\":\"a\",\"value\":\"1\"}\n"),
        ("get --all a", "{\"value\":\"1\"}\n"),
        ("list", "{\"key\":\"a\"}\n{\"key\":\"b\"}\n"),
        ("list --values --prefix a", "{\"key\":\"a\",\"value\":\"1\"}\n"),
        ("range b", "{\"key\":\"b\",\"value_hex\":\"ff\"}\n"),
        ("find a", "{\"key\":\"a\",\"value\":\"1\"}\n"),
        ("count", "{\"count\":2}\n"),
        ("stat type rnum", "{\"type\":\"on-memory tree\",\"rnum\":2}\n"),
        ("misc getlist a", "{\"element\":\"a\"}\n{\"element\":\"1\"}\n"),
    ] {
        assert_eq!(output_of(&server, &format!("{line} --json")), expected, "{line}");
    }
    for line in ["size", "stat", "replicas"] {
        let text = output_of(&server, &format!("{line} --json"));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(json.is_object(), "{line}: {text}");
    }
    let server = Server::tyrant("casket.tct", &[]);
    converse(&server, &[("put-row p1 name=ann age=30", Some(""))]);
    for (line, expected) in [
        ("get-row p1", "{\"key\":\"p1\",\"columns\":{\"name\":\"ann\",\"age\":\"30\"}}\n"),
        ("search", "{\"key\":\"p1\"}\n"),
        ("search --columns age", "{\"key\":\"p1\",\"columns\":{\"age\":\"30\"}}\n"),
        ("search --count", "{\"count\":1}\n"),
        ("uid", "{\"uid\":1}\n"),
        ("search --out", "{\"removed\":1}\n"),
    ] {
        assert_eq!(output_of(&server, &format!("{line} --json")), expected, "{line}");
    }
    let explained = output_of(&server, "search --explain --json");
    assert!(explained.starts_with("{\"steps\":["), "{explained}");
}

#[test]
fn the_environment_names_the_server_unless_an_option_does() {
    let (server, other) = (Server::tyrant("*", &[]), Server::tyrant("*", &[]));
    converse(&server, &[("put a 1", Some(""))]);
    let get = |option: &[&str]| {
        Command::new(path("tyrant"))
            .args(["count"])
            .args(option)
            .env("TYRANT_SERVER", server.address())
            .output()
            .unwrap()
    };
    assert_eq!(get(&[]).stdout, b"1\n");
    assert_eq!(get(&["--server", &other.address()]).stdout, b"0\n");
    // A command that may have a server reads it too, and one with files does not.
    let check = |arguments: &[&str]| {
        let mut command = Command::new(path("tyrant"));
        command.arg("check").args(arguments).env("TYRANT_SERVER", server.address());
        command.output().unwrap()
    };
    assert!(check(&[]).status.success());
    assert!(!check(&["/nonexistent"]).status.success());
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
fn records_expire_and_numbers_are_added_to() {
    for database in ["*", "+", "casket.tch", "casket.tcb", "casket.tcf"] {
        converse(
            &Server::tyrant(database, &[]),
            &[
                ("put --expire -1 1 gone", Some("")),
                ("get 1", None),
                ("put --expire 3600 1 kept", Some("")),
                ("touch 1 0", Some("")),
                ("get 1", Some("kept\n")),
                ("incr 1", None),
                ("misc incr 1 1", None),
                ("touch 1 -1", Some("")),
                ("get 1", None),
                ("touch 1 60", None),
                ("incr 2", None),
                ("incr 2 5 --initial 7 --expire 3600", Some("7\n")),
                ("incr 2", Some("8\n")),
                ("incr 2 12", Some("20\n")),
                ("misc incr 2 -18446744073709551616", None),
                ("incr 2 -21", Some("0\n")),
                ("incr 3 --initial 18446744073709551615", Some("18446744073709551615\n")),
                ("incr 3", Some("0\n")),
                ("incr 4 1 --initial 1 --expire -1", Some("1\n")),
                ("get 4", None),
                // The functions check their arguments.
                ("misc putexp 5 value", None),
                ("misc putexp 5 value 1x", None),
                ("misc touch 2", None),
                ("misc touch 2 soon", None),
                ("misc incr 2", None),
                ("misc incr 2 1 -1", None),
                ("get 1 4 5", None),
            ],
        );
    }
    let table = Server::tyrant("casket.tct", &[]);
    converse(&table, &[("put --expire 9 a b", None), ("incr a", None), ("misc touch a 9", None)]);
    let server = Server::tyrant("*", &["--expiry", "ignore"]);
    converse(&server, &[("put a 1", Some("")), ("incr a", Some("2\n")), ("get a", Some("2\n"))]);
    for line in ["put --expire 9 a b", "touch a 9", "incr b --initial 1 --expire 9"] {
        let mut arguments: Vec<_> = line.split(' ').collect();
        let address = server.address();
        arguments.extend(["--server", &address]);
        let said = fail("tyrant", &arguments);
        assert!(said.contains("this server ignores expiry"), "{said}");
    }
}

#[test]
fn expiry_is_shown_wherever_records_are() {
    let server = Server::tyrant("*", &[]);
    let address = server.address();
    converse(
        &server,
        &[
            ("put a 1", Some("")),
            ("put --expire 4102444800 b 2", Some("")),
            ("get --json a", Some("{\"key\":\"a\",\"value\":\"1\"}\n")),
            (
                "get --json b",
                Some("{\"key\":\"b\",\"value\":\"2\",\"expires_at_ms\":4102444800000}\n"),
            ),
            (
                "get --json a b",
                Some(
                    "{\"key\":\"a\",\"value\":\"1\"}\n\
                     {\"key\":\"b\",\"value\":\"2\",\"expires_at_ms\":4102444800000}\n",
                ),
            ),
            ("list --json --prefix b", Some("{\"key\":\"b\",\"expires_at_ms\":4102444800000}\n")),
            (
                "list --json --values --prefix b",
                Some("{\"key\":\"b\",\"value\":\"2\",\"expires_at_ms\":4102444800000}\n"),
            ),
            ("ttl a", Some("-\n")),
            ("ttl --json a", Some("{\"key\":\"a\",\"ttl_seconds\":null}\n")),
            ("ttl none", None),
            ("touch a 1000", Some("")),
        ],
    );
    let left = |key| succeed("tyrant", &["ttl", key, "--server", &address]);
    let seconds: u64 = left("a").trim().parse().unwrap();
    assert!((1..=1000).contains(&seconds), "{seconds}");
    let both = succeed("tyrant", &["ttl", "a", "b", "--server", &address]);
    let keys: Vec<_> = both.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(keys, ["a", "b"]);
    let error = fail("tyrant", &["ttl", "none", "--server", &address]);
    assert!(error.contains("no record has the key \"none\""), "{error}");
}

#[test]
fn inspect_shows_the_expiry_of_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tch").display().to_string();
    let database = cabinet::Database::open(&path).unwrap();
    let meta = cabinet::Meta { flags: 7, expires_at_ms: 4_102_444_800_000 };
    database.put_with(b"a", b"xyz", meta).unwrap();
    database.put(b"b", b"").unwrap();
    drop(database);
    assert_eq!(
        succeed("tyrant", &["inspect", &path, "a", "b"]),
        "key\ta\nbytes\t3\nflags\t7\nexpires\t2100-01-01T00:00:00.000000Z\n\
         key\tb\nbytes\t0\nflags\t0\nexpires\tnever\n"
    );
    assert_eq!(
        succeed("tyrant", &["inspect", &path, "a", "--json"]),
        "{\"key\":\"a\",\"bytes\":3,\"flags\":7,\"expires_at_ms\":4102444800000}\n"
    );
    assert!(fail("tyrant", &["inspect", &path, "c"]).contains("no record has the key \"c\""));
}

#[test]
fn a_list_asks_for_no_more_keys_than_there_are() {
    let server = Server::tyrant("*", &[]);
    let asked = || -> u64 {
        let text = succeed("tyrant", &["stat", "cnt_iternext", "--server", &server.address()]);
        text.trim_end().split('\t').nth(1).unwrap().parse().unwrap()
    };
    let list = || succeed("tyrant", &["list", "--server", &server.address()]).lines().count();
    converse(&server, &[("put a 1", Some("")), ("put b 2", Some(""))]);
    assert_eq!((list(), asked()), (2, 3));
    let puts: String = (0..298).map(|number| format!("put {number} x\n")).collect();
    let output = feed("tyrant", &["shell", "--server", &server.address()], &puts);
    assert!(output.status.success(), "{output:?}");
    let before = asked();
    assert_eq!((list(), asked() - before), (300, 301));
}

#[test]
fn optimize_names_what_it_does_not_know() {
    let server = Server::tyrant("casket.tch", &[]);
    let arguments = ["optimize", "nonsense=1", "--server", &server.address()];
    let error = misuse(&arguments);
    assert!(error.contains("\"nonsense\"") && error.contains("known are"), "{error}");
    assert!(error.contains("capsiz"), "{error}");
    misuse(&["optimize", "nonsense", "--server", &server.address()]);
    converse(&server, &[("optimize bnum=7#apow=1", Some(""))]);
}

#[test]
fn a_load_is_told_in_a_table() {
    let server = Server::tyrant("*", &[]);
    let address = server.address();
    let run = |more: &[&str]| {
        let all = ["bench", "--server", &address, "--keys", "10", "--requests", "1100"];
        succeed("tyrant", &[&all[..], more].concat())
    };
    let table = run(&["--clients", "3", "--pipeline", "7"]);
    let words: Vec<_> = table.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(words, ["Type", "Sets", "Gets", "Totals"], "{table}");
    let lines = run(&["--clients", "1", "--sets", "0", "--gets", "1", "--json"]);
    let lines: Vec<_> = lines.lines().collect();
    assert!(lines[0].contains("\"type\":\"sets\"") && lines[0].contains("\"requests\":0"));
    assert!(lines[1].contains("\"requests\":1100"), "{}", lines[1]);
    // All keys were set before.
    assert!(lines[1].contains("\"misses_per_second\":0.0"), "{}", lines[1]);
    converse(&server, &[("count", Some("10\n"))]);
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
