//! Commands on a running server.

use super::Table;
use crate::process::{Server, fail, succeed};
use crate::tyrant::converse;
use cabinet::Database;

/// Runs a command line that must fail on a server, and checks that its error has all `parts`.
pub(super) fn refuse(address: &str, line: &str, parts: &[&str]) {
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
        ("out a", "the server refuses out: the server masks out"),
        ("put --duplicate a b", "put needs a tree (.tcb)"),
        ("find [", "bad pattern: a [ is not closed"),
        ("copy x.tch", "clients may name no path: start the server with --copy-dir DIR"),
        ("misc nonsense", "there is no function nonsense of misc"),
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
        &["(on-memory hash): misc failed: there is no function nonsense"],
    );
}

#[test]
fn a_masked_function_is_no_success() {
    for (mask, refusal) in [("misc", "it masks misc"), ("put,putkeep,putcat", "the server masks ")]
    {
        let server = Server::tyrant("casket.tct", &["--mask", mask]);
        for line in
            ["put-row a n=v", "put-row --keep a n=v", "put-row --add a n=v", "misc put a n v"]
        {
            refuse(&server.address(), line, &["(table): the server refuses ", refusal]);
        }
    }
    let server = Server::tyrant("casket.tct", &["--mask", "get,mget,put"]);
    for (line, masked) in [
        ("get-row a", "get"),
        ("search", "mget"),
        ("put-row a n=v", "put"),
        ("misc put a n v", "put"),
    ] {
        refuse(&server.address(), line, &[" refuses ", &format!(": the server masks {masked}\n")]);
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
    // Another masked command, which every command of the tool tries, changes nothing.
    let server = Server::tyrant("casket.tct", &["--mask", "stat"]);
    converse(&server, &[("put-row a n=v", Some("")), ("get-row a", Some("a\tn\tv\n"))]);
}

#[test]
fn a_hash_database() {
    let server = Server::tyrant("casket.tch", &[]);
    let folder = server.folder.path().display().to_string();
    let here = server.address();
    let copies = Server::tyrant("casket.tch", &["--copy-dir", "."]);
    let there = copies.address();
    let names = [("HERE", &*here), ("FOLDER", &folder), ("COPIES", &there)];
    Table::new(server.folder.path(), &names).check(&[
        ("tyrant put number ten --server HERE", 0, &[]),
        (
            "tyrant ext foo --server HERE",
            1,
            &["HERE (hash)", "the server has no script: start it with --script FILE"],
        ),
        ("tyrant misc check stop --server HERE", 1, &["no check is running", "\"check start\""]),
        ("tyrant misc check nonsense --server HERE", 1, &["check takes start"]),
        ("tyrant misc nonsense --server HERE", 1, &["there is no function nonsense of misc"]),
        ("tyrant misc promote --server HERE", 1, &["the server follows no master"]),
        (
            "tyrant get nothing --server HERE",
            1,
            &["HERE (hash): no record has the key \"nothing\""],
        ),
        ("tyrant get number nothing --server HERE", 1, &["no record has the key \"nothing\""]),
        (
            "tyrant get nothing number none --server HERE",
            1,
            &["HERE (hash): 2 of 3 keys have no record, the first is \"nothing\""],
        ),
        (
            "tyrant ttl nothing none --server HERE",
            1,
            &["2 of 2 keys have no record, the first is \"nothing\""],
        ),
        ("tyrant out nothing --server HERE", 1, &["no record has the key \"nothing\""]),
        (
            "tyrant touch number 10m --server HERE",
            2,
            &["number of seconds is required, as in 3600"],
        ),
        ("tyrant touch nothing 9 --server HERE", 1, &["no record has the key \"nothing\""]),
        ("tyrant put --keep number 1 --server HERE", 1, &["the key \"number\" has a record"]),
        ("tyrant incr number 1 --server HERE", 1, &["incr failed", "is no number of 64 bits"]),
        (
            "tyrant find [ --server HERE",
            1,
            &["a [ is not closed; correct it, and write \\ before a"],
        ),
        ("tyrant range --server HERE", 1, &["needs a tree (.tcb", "HERE has a hash database"]),
        ("tyrant search --server HERE", 1, &["needs a table (.tct)", "use get, put, list"]),
        (
            "tyrant stat nonsense --server HERE",
            1,
            &["no value \"nonsense\" at present; \"tyrant stat\" lists them all"],
        ),
        ("tyrant slow --server HERE", 1, &["the slow log is off: set slow-log-threshold"]),
        ("tyrant reload --server HERE", 0, &[]),
        ("tyrant copy elsewhere.tch --server HERE", 1, &["the server refuses copy", "--copy-dir"]),
        (
            "tyrant copy casket.tch --server COPIES",
            1,
            &[
                "COPIES (hash): copy failed: create ",
                "casket.tch: there is something already; choose another path",
            ],
        ),
        ("tyrant copy elsewhere --server HERE", 1, &["needs its suffix: name it elsewhere.tch"]),
        (
            "tyrant tail --server HERE",
            1,
            &["HERE (hash): tail failed: ", "the server has no update log: start it with --update"],
        ),
        ("tyrant promote --server HERE", 1, &["follows no master"]),
        ("tyrant unfollow --server HERE", 1, &["follows no master"]),
        ("tyrant follow HERE --server HERE", 1, &["cannot follow itself: name another server"]),
        (
            "tyrant follow 127.0.0.1:1 --server HERE",
            1,
            &["an id of its own", "--server-id N --allow-setmst"],
        ),
        ("tyrant follow ./socket --server HERE", 2, &["a master is named as HOST:PORT"]),
        ("tyrant follow nowhere --server HERE", 2, &["a master is named as HOST:PORT"]),
        ("tyrant follow 1979 --server HERE", 2, &["\"1979\" is a port without a host: give 127"]),
        (
            "tyrant backup create repository --server HERE",
            1,
            &[
                "HERE cannot copy its database for the backup: ",
                "start the server with --copy-dir FOLDER, or with another folder",
            ],
        ),
    ]);
}

#[test]
fn the_files_of_a_database_that_is_served() {
    let server = Server::tyrant("casket.tch", &[]);
    std::fs::write(server.folder.path().join("lines.tsv"), "a\tb\n").expect("a file");
    let path = |name: &str| server.folder.path().join(name).display().to_string();
    drop(Database::open(&path("other.tch")).expect("a database"));
    succeed("tyrant", &["backup", "create", &path("copies"), "--database", &path("other.tch")]);
    let id = server.id().to_string();
    Table::new(server.folder.path(), &[("PROCESS", &id)]).check(&[
        (
            "tyrant serve casket.tch --port 0",
            1,
            &["casket.tch is in use by tyrant (process PROCESS): stop that first"],
        ),
        ("ttserver -port 65535 casket.tch", 1, &["in use by tyrant (process PROCESS)"]),
        ("tyrant check casket.tch", 1, &["in use by tyrant (process PROCESS): stop that first"]),
        ("tyrant inspect casket.tch", 1, &["in use by tyrant (process PROCESS): stop that first"]),
        ("tyrant export casket.tch", 1, &["in use by tyrant (process PROCESS): stop that first"]),
        (
            "tyrant import lines.tsv --into casket.tch",
            1,
            &["in use by tyrant (process PROCESS): stop that first"],
        ),
        (
            "tyrant salvage casket.tch --into new.tch",
            1,
            &["in use by tyrant (process PROCESS): stop that first"],
        ),
        (
            "tyrant backup create repository --database casket.tch",
            1,
            &["is backed up with --server, not --database", "in use by tyrant (process PROCESS)"],
        ),
        (
            "tyrant restore copies --into casket.tch --replace",
            1,
            &["casket.tch is in use by tyrant (process PROCESS): stop that first"],
        ),
    ]);
}

#[test]
fn a_table_and_a_fixed_length_database() {
    let server = Server::tyrant("casket.tct", &[]);
    std::fs::write(server.folder.path().join("a.csv"), "a\n").expect("a file");
    Table::new(server.folder.path(), &[("HERE", &server.address())]).check(&[
        ("tyrant put a b --server HERE", 1, &["HERE (table)", "use put-row KEY NAME=VALUE"]),
        ("tyrant put-row a b --server HERE", 2, &["\"b\" is not of the form NAME=VALUE"]),
        ("tyrant get-row nothing --server HERE", 1, &["no record has the key \"nothing\""]),
        (
            "tyrant set-index a SORTED --server HERE",
            2,
            &["\"SORTED\": give LEX, DEC, TOK, QGR, OPT or VOID"],
        ),
        (
            "tyrant put-rows nothing.csv --server HERE",
            1,
            &["cannot open nothing.csv", "check the path"],
        ),
        (
            "tyrant put-rows a.csv --server HERE",
            1,
            &["a.csv: the file has no column \"key\", only \"a\"", "--key", "--new-keys"],
        ),
        (
            "tyrant put-rows - --server HERE",
            1,
            &["the standard input: there are no rows, and no header", "as in key,name,age"],
        ),
    ]);
    let server = Server::tyrant("casket.tcf", &[]);
    Table::new(server.folder.path(), &[("HERE", &server.address())]).check(&[(
        "tyrant put abc x --server HERE",
        1,
        &["HERE (fixed-length)", "\"abc\" is no id: ids are numbers from 1"],
    )]);
}
