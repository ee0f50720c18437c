//! Tables: their operations, random operations beside a table of this process, and several servers
//! over the same rows.

use super::support::{Client, Running, list, misc, start, table};
use super::{make, race, serve, suite};
use cluster::ClusterStore;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Runs a part of the suite over an empty table.
fn pass_table(keyspace: &str, test: impl Fn(&Running)) {
    test(&serve(&make(keyspace, "#kind=tct#buckets=2")));
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn columns_with_nul_stay_separate() {
    pass_table("table_nul", suite::tables::nul_bytes);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn an_empty_key_becomes_the_next_identifier() {
    pass_table("table_identifiers", suite::tables::identifiers);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn memcached_stores_and_reads_columns() {
    pass_table("table_memcached", suite::tables::memcached);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_value_without_columns_is_refused() {
    pass_table("table_refused", suite::tables::refused_values);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn an_append_does_not_split_a_column() {
    pass_table("table_appends", suite::tables::appends);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_malformed_search_removes_nothing() {
    pass_table("table_malformed", suite::tables::malformed_searches);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn indexes_are_set_together_or_not_at_all() {
    pass_table("table_indexes", suite::tables::index_changes);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn http_stores_reads_and_searches_rows() {
    pass_table("table_http", suite::tables::http);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_search_removes_its_rows() {
    pass_table("table_removals", suite::tables::removals);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn concurrent_changes_of_one_row_are_all_kept() {
    pass_table("table_changes", suite::tables::concurrent_changes);
}

/// Random numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

const DONE: &[u8] = b"\0\0\0\0\0";

/// Elements of a reply, or `None` for a failure.
type Elements = Option<Vec<Vec<u8>>>;

/// Calls a function of `misc`.
fn call(client: &mut Client, name: &str, arguments: &[&str]) -> Elements {
    try_to_call(client, name, arguments).unwrap()
}

/// Calls a function of `misc`. Fails if the server closes the connection, since the cluster has not
/// answered it in time.
fn try_to_call(client: &mut Client, name: &str, arguments: &[&str]) -> std::io::Result<Elements> {
    client.stream.write_all(&misc(name, arguments))?;
    let mut number = [0; 4];
    let mut status = [0];
    client.stream.read_exact(&mut status)?;
    client.stream.read_exact(&mut number)?;
    let mut elements = Vec::new();
    for _ in 0..u32::from_be_bytes(number) {
        client.stream.read_exact(&mut number)?;
        let mut element = vec![0; u32::from_be_bytes(number) as usize];
        client.stream.read_exact(&mut element)?;
        elements.push(element);
    }
    Ok((status == [0]).then_some(elements))
}

/// A table of this process, and one in the cluster.
struct Both<'a> {
    local: Client,
    server: &'a Running,
    remote: Client,
}

impl Both<'_> {
    /// Calls a function of both. Returns no elements if the cluster was asked again, as its first
    /// answer was lost: it may have executed the call then. All calls of the test may be repeated.
    fn call(&mut self, name: &str, arguments: &[&str]) -> Option<[Elements; 2]> {
        let expected = call(&mut self.local, name, arguments);
        let mut is_first = true;
        loop {
            match try_to_call(&mut self.remote, name, arguments) {
                Ok(found) => return is_first.then_some([expected, found]),
                Err(_) => (is_first, self.remote) = (false, self.server.connect()),
            }
        }
    }
}

/// Returns a condition on the rows of the test.
fn condition(random: &mut Random) -> String {
    const TEXTS: [&str; 8] = ["a", "ab", "b", "abc ab", "cab b", "", "ab,b", "\"ab c\" || cab"];
    const NUMBERS: [&str; 7] = ["0", "1", "-1", "2.5", "3", "1 3", "-1,2.5"];
    let column = random.of(&["t", "t", "n", "n", "", "missing"]);
    let texts = [
        "STREQ", "STRINC", "STRBW", "STREW", "STRAND", "STROR", "STROREQ", "STRRX", "FTSPH",
        "FTSAND", "FTSOR", "FTSEX",
    ];
    let numbers = ["NUMEQ", "NUMGT", "NUMGE", "NUMLT", "NUMLE", "NUMBT", "NUMOREQ"];
    let (operator, operand) = match (column, random.below(4)) {
        ("n", 1..) | (_, 0) => (random.of(&numbers), random.of(&NUMBERS)),
        ("", _) => (random.of(&["STREQ", "STRBW", "STROREQ"]), random.of(&["k1", "k", "k2,k3"])),
        _ => (random.of(&texts), random.of(&TEXTS)),
    };
    let flags = random.of(&["", "", "", "", "!", "+"]);
    format!("addcond\0{column}\0{flags}{operator}\0{operand}")
}

/// Returns the value of the column of an order in a row that was found, as it is compared.
fn compared(row: &[u8], column: &str, is_number: bool) -> (bool, i64, Vec<u8>) {
    let parts: Vec<&[u8]> = row.split(|byte| *byte == 0).collect();
    let pairs = parts.as_chunks::<2>().0;
    let Some([_, value]) = pairs.iter().find(|[name, _]| *name == column.as_bytes()) else {
        return (true, 0, Vec::new());
    };
    let text = std::str::from_utf8(value).unwrap();
    match is_number {
        // No text of the test is beyond this.
        true => (false, (text.parse::<f64>().unwrap_or(0.0) * 10.0) as i64, Vec::new()),
        false => (false, 0, value.to_vec()),
    }
}

/// Searches both tables, and compares what they find.
fn search(random: &mut Random, both: &mut Both<'_>) {
    let mut arguments: Vec<String> = (0..random.below(3)).map(|_| condition(random)).collect();
    let column = random.of(&["t", "n", "", "missing"]);
    let order = random.of(&["", "STRASC", "STRDESC", "NUMASC", "NUMDESC"]);
    if !order.is_empty() {
        arguments.push(format!("setorder\0{column}\0{order}"));
    }
    let has_limit = random.below(3) == 0;
    if has_limit {
        let max = random.of(&["-1", "0", "1", "2", "3", "5"]);
        arguments.push(format!("setlimit\0{max}\0{}", random.below(3)));
    }
    let is_set = random.below(5) == 0;
    if is_set {
        arguments.push("next".to_owned());
        arguments.push(condition(random));
        arguments.push(format!("mstype\0{}", random.below(3)));
    }
    // Rows that are equal, or in no order, may be found in another one. Removals have to be equal.
    let is_determined = order.ends_with("ASC") && !is_set;
    let removes = random.below(4) == 0 && !is_set && (is_determined || !has_limit);
    if removes {
        arguments.push("out".to_owned());
    }
    match random.below(3) {
        0 if !removes || is_determined => arguments.push("count".to_owned()),
        _ => arguments.push("get".to_owned()),
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some([expected, found]) = both.call("search", &arguments) else { return };
    assert_eq!(found.is_some(), expected.is_some(), "{arguments:?}");
    // A malformed search removes nothing.
    let (Some(expected), Some(found)) = (expected, found) else { return };
    assert_eq!(found.len(), expected.len(), "{arguments:?}");
    if is_determined || arguments.contains(&"count") {
        return assert_eq!(found, expected, "{arguments:?}");
    }
    if !order.is_empty() && !is_set {
        let of_both = |rows: &[Vec<u8>]| {
            let is_number = order.starts_with("NUM");
            rows.iter().map(|row| compared(row, column, is_number)).collect::<Vec<_>>()
        };
        assert_eq!(of_both(&found), of_both(&expected), "{arguments:?}");
    }
    if !has_limit {
        let sorted = |mut rows: Vec<Vec<u8>>| {
            rows.sort_unstable();
            rows
        };
        assert_eq!(sorted(found), sorted(expected), "{arguments:?}");
    }
}

/// Executes a random operation on both tables.
fn operate(random: &mut Random, both: &mut Both<'_>) {
    let key = format!("k{}", random.below(12));
    let text = random.of(&["a", "ab", "b", "abc ab", "cab b c", "", "AB,b"]);
    let number = random.of(&["0", "1", "-1", "2.5", "3", "x", "1.0"]);
    let arguments = match random.below(5) {
        0 => vec![&key[..], "t", text],
        1 => vec![&key[..], "n", number],
        2 => vec![&key[..]],
        _ => vec![&key[..], "n", number, "t", text],
    };
    let (name, arguments) = match random.below(24) {
        0..10 => (random.of(&["put", "put", "putkeep", "putcat"]), arguments),
        10..13 => ("out", vec![&key[..]]),
        13 => ("get", vec![&key[..]]),
        14 => {
            let kind = random.of(&["LEX", "DEC", "TOK", "QGR", "VOID", "+LEX", "OPT"]);
            ("setindex", vec![random.of(&["t", "n", ""]), kind])
        }
        _ => return search(random, both),
    };
    if let Some([expected, found]) = both.call(name, &arguments) {
        assert_eq!(found, expected, "{name} {arguments:?}");
    }
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn random_operations_and_searches_have_the_results_of_a_local_table() {
    const OPERATIONS: usize = 600;
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    let name = make("table_model", "#kind=tct#buckets=3");
    let servers = [serve(&name), serve(&name)];
    let mut both = servers.each_ref().map(|remote| Both {
        local: server.connect(),
        server: remote,
        remote: remote.connect(),
    });
    let mut random = Random(42);
    for operation in 0..OPERATIONS {
        operate(&mut random, &mut both[operation % 2]);
    }
    for both in &mut both {
        let all = both.call("search", &["get", "setorder\0\0STRASC"]).unwrap();
        assert_eq!(all[0], all[1]);
    }
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn an_index_that_one_server_sets_while_others_write_has_all_rows() {
    const CLIENTS: usize = 4;
    const ROWS: usize = 40;
    let name = make("table_race", "#kind=tct#buckets=2");
    let servers = [serve(&name), serve(&name)];
    race([&servers[0], &servers[1]], CLIENTS + 1, |number, client| {
        if number == CLIENTS {
            for kind in ["LEX", "VOID", "LEX", "OPT"] {
                client.exchange(misc("setindex", &["c", kind]), DONE);
            }
            return;
        }
        for row in 0..ROWS {
            let (key, value) = (format!("{number}-{}", row % 10), format!("v{}", row % 3));
            match row % 4 {
                3 => drop(call(client, "out", &[&key])),
                _ => client.exchange(misc("put", &[&key, "c", &value]), DONE),
            }
        }
    });
    for server in &servers {
        let mut client = server.connect();
        for value in ["v0", "v1", "v2"] {
            let of = |flag: &str| format!("addcond\0c\0{flag}STREQ\0{value}");
            let order = "setorder\0\0STRASC";
            let scanned = call(&mut client, "search", &[&of("+"), order]).unwrap();
            let found = call(&mut client, "search", &[&of(""), order, "hint"]).unwrap();
            assert!(!scanned.is_empty());
            let (hint, found) = found.split_last().unwrap();
            assert!(hint.starts_with(b"\0\0[[HINT]]\nusing an index: \"c\""));
            assert_eq!(found, scanned);
        }
    }
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn servers_give_out_different_identifiers_and_see_each_others_indexes() {
    let name = make("table_servers", "#kind=tct#buckets=2");
    let servers = [serve(&name), serve(&name)];
    let [mut one, mut other] = [servers[0].connect(), servers[1].connect()];
    let identifiers: Vec<_> = race([&servers[0], &servers[1]], 4, |_, client| {
        (0..10).map(|_| call(client, "genuid", &[]).unwrap()).collect::<Vec<_>>()
    });
    let mut all: Vec<_> = identifiers.into_iter().flatten().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 40);
    one.exchange(misc("put", &["k", "c", "1"]), DONE);
    one.exchange(misc("setindex", &["c", "DEC"]), DONE);
    other.exchange(misc("setindex", &["c", "+DEC"]), super::support::MISC_FAILURE);
    other.exchange(misc("put", &["l", "c", "2"]), DONE);
    let arguments = ["addcond\0c\0NUMGE\x001", "setorder\0c\0NUMDESC"];
    for client in [&mut one, &mut other] {
        client.exchange(misc("search", &arguments), list(&["l", "k"]));
    }
    other.exchange(misc("setindex", &["c", "VOID"]), DONE);
    one.exchange(misc("put", &["m", "c", "3"]), DONE);
    one.exchange(misc("search", &arguments), list(&["m", "l", "k"]));
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_running_server_gives_out_no_identifier_that_a_copy_has_brought() {
    let name = make("table_copied_identifiers", "#kind=tct#buckets=1");
    let server = serve(&name);
    let mut client = server.connect();
    let mut next = || -> u64 {
        let elements = call(&mut client, "genuid", &[]).unwrap();
        std::str::from_utf8(&elements[0]).unwrap().parse().unwrap()
    };
    assert_eq!([next(), next()], [1, 2]);
    let patience = Duration::from_secs(120);
    // The server has reserved more than these, and fewer.
    for last in [500, 700, 5000] {
        let store = ClusterStore::connect(&name).unwrap();
        store.raise_identifiers(last, patience).unwrap();
        let identifier = next();
        assert!(identifier > last, "{identifier} of {last}");
        assert_eq!(next(), identifier + 1);
    }
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_row_that_changes_all_the_time_is_once_in_each_search_that_it_matches() {
    const SEARCHES: usize = 60;
    const ROWS: usize = 40;
    let server = serve(&make("table_changing", "#kind=tct#buckets=2"));
    let mut client = server.connect();
    for (column, kind) in [("words", "TOK"), ("n", "DEC")] {
        client.exchange(misc("setindex", &[column, kind]), DONE);
    }
    for row in 0..ROWS {
        let (key, n, words) = (format!("r{row}"), (row * 1000).to_string(), format!("w{row} red"));
        client.exchange(misc("put", &[&key, "n", &n, "words", &words]), DONE);
    }
    client.exchange(misc("put", &["k", "n", "0", "words", "red"]), DONE);
    let is_over = AtomicBool::new(false);
    let changes = AtomicUsize::new(0);
    race([&server, &server], 2, |number, client| {
        if number == 0 {
            // Its number grows, so it moves ahead of a walk.
            while !is_over.load(Ordering::Relaxed) {
                let changes = changes.fetch_add(1, Ordering::Relaxed) + 1;
                let (n, words) = (changes.to_string(), format!("w{} red", changes % ROWS));
                client.exchange(misc("put", &["k", "n", &n, "words", &words]), DONE);
            }
            return;
        }
        let is_enough =
            |searches| searches >= SEARCHES && changes.load(Ordering::Relaxed) > SEARCHES;
        for search in (0..).take_while(|search| !is_enough(*search)) {
            let condition = ["addcond\0words\0STROR\0red w3", "addcond\0n\0NUMGE\x000"][search % 2];
            let mut found = call(client, "search", &[condition, "get", "hint"]).unwrap();
            assert!(found.pop().unwrap().starts_with(b"\0\0[[HINT]]\nusing an index"));
            let own = found.iter().filter(|row| row.starts_with(b"\0k\0")).count();
            assert_eq!((own, found.len()), (1, ROWS + 1), "{condition:?} {search}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
