//! The suite of operations that each store has to pass, over real nodes of Apache Cassandra, and
//! the operations of two servers over the same database.
//!
//! `cargo xtask cluster-test` starts the nodes and runs these tests.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod ids;
#[path = "../../server/tests/suite/mod.rs"]
mod suite;
#[path = "../../server/tests/support/mod.rs"]
mod support;
mod tables;

use cluster::{ClusterStore, Kind, Name};
use scylla::client::session_builder::SessionBuilder;
use server::{Config, RemoteStore};
use std::sync::Arc;
use support::{Client, Packet, Running, config, memory, memory_tree, request, start_with};
use wire::binary::Request;

/// Variable of the environment with the contact points.
const CONTACT_POINTS: &str = "TYRANT_CASSANDRA";

/// Number of replicas that the variable asks for.
const REPLICATION: &str = "TYRANT_CASSANDRA_REPLICATION";

/// Variable with the beginning of the keyspaces' names, on nodes that others use too.
const PREFIX: &str = "TYRANT_CASSANDRA_PREFIX";

/// Returns the name of a database of the test.
fn name(keyspace: &str, options: &str) -> Name {
    let hosts = std::env::var(CONTACT_POINTS).unwrap();
    let prefix = std::env::var(PREFIX).unwrap_or_default();
    // The nodes share two processors with the tests.
    Name::parse(&format!("cassandra://{hosts}/{prefix}{keyspace}#timeout=60000{options}")).unwrap()
}

/// Makes an empty database.
fn make(keyspace: &str, options: &str) -> Name {
    let name = name(keyspace, options);
    let replication = std::env::var(REPLICATION).map_or(1, |number| number.parse().unwrap());
    cluster::init(&name, replication).unwrap();
    name
}

/// Executes statements on the nodes, as no server does. Returns the number that the last one
/// returns, or 0.
fn execute(name: &Name, statements: &[String]) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let session = SessionBuilder::new().known_nodes(&name.contact_points).build().await;
        let session = session.unwrap();
        let mut number = 0;
        for statement in statements {
            let result = session.query_unpaged(statement.as_str(), ()).await.unwrap();
            if let Ok(rows) = result.into_rows_result() {
                (number,) = rows.first_row::<(i64,)>().unwrap();
            }
        }
        number
    })
}

/// Starts a server over a database.
fn serve(name: &Name) -> Running {
    let remote = Some(ClusterStore::connect(name).unwrap() as _);
    let remote_timeout = 2 * name.timeout;
    let database = if name.kind == Kind::Hash { memory() } else { memory_tree() };
    start_with(Config { remote, remote_timeout, ..config() }, database)
}

/// Runs a part of the suite over an empty database.
fn pass(keyspace: &str, test: impl Fn(&Running)) {
    test(&serve(&make(keyspace, "")));
    test(&serve(&make(&format!("{keyspace}_tree"), "#kind=tcb#buckets=4")));
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn memcacheds_text_protocol_has_its_basic_operations() {
    pass("memcached_text", suite::memcached_text);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn the_meta_commands_have_their_basic_operations() {
    pass("meta_commands", suite::meta_commands);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn memcacheds_binary_protocol_has_its_basic_operations() {
    pass("memcached_binary", suite::memcached_binary);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn tokyo_tyrants_protocol_has_its_basic_operations() {
    pass("tokyo_tyrant", suite::tokyo_tyrant);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn http_has_its_basic_operations() {
    pass("http", suite::http_operations);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn appends_additions_and_lists_of_records_are_those_of_a_local_database() {
    pass("counters", suite::counters_and_lists);
    pass("repeated_keys", suite::repeated_keys);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn iterators_and_lists_of_all_records_are_those_of_a_local_database() {
    pass("iterators", suite::iterators);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn replies_of_a_pipeline_keep_their_order_and_each_request_is_executed_once() {
    pass("pipelines", suite::pipelines);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn lists_of_keys_have_their_pages() {
    pass("key_lists", suite::key_lists);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn trees_have_ranges_and_ordered_lists() {
    suite::ordered(&serve(&make("ordered", "#kind=tcb#buckets=4")));
}

/// Returns the keys that a server lists, one after the other.
fn listed(client: &mut Client) -> Vec<String> {
    client.send(&request(&Request::KeysWithPrefix { prefix: b"", max: -1 }));
    let head = client.read(5);
    assert_eq!(head[0], 0);
    let count = u32::from_be_bytes(head[1..].try_into().unwrap());
    let mut key = || {
        let length = u32::from_be_bytes(client.read(4).try_into().unwrap());
        String::from_utf8(client.read(length as usize)).unwrap()
    };
    (0..count).map(|_| key()).collect()
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_tree_of_many_keys_is_listed_in_order_and_skips_expired_records() {
    let server = serve(&make("many_keys", "#kind=tcb#buckets=4"));
    let mut client = server.connect();
    let mut expected: Vec<String> = (0..500).map(|number| format!("k{number}")).collect();
    for key in &expected {
        client.send(format!("set {key} 0 0 1 noreply\r\nv\r\n").as_bytes());
    }
    client.exchange("set gone 0 1 1\r\nv\r\nset stays 0 1 1\r\nv\r\n", "STORED\r\nSTORED\r\n");
    client.exchange("touch stays 1000\r\n", "TOUCHED\r\n");
    expected.push("stays".to_owned());
    expected.sort_unstable();
    support::wait_until(|| {
        client.send(b"get gone\r\n");
        client.read_until(b"\r\n") == b"END\r\n" || {
            client.read_until(b"END\r\n");
            false
        }
    });
    assert_eq!(listed(&mut client), expected);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_key_that_servers_put_and_remove_at_once_is_listed_if_and_only_if_it_is_there() {
    let name = make("entry_race", "#kind=tcb#buckets=1");
    let (first, second) = (serve(&name), serve(&name));
    for _ in 0..10 {
        race([&first, &second], 4, |number, client| {
            for round in 0..10 {
                match (number + round) % 2 {
                    0 => ask(client, "set k 0 0 1\r\nv\r\n"),
                    _ => ask(client, "delete k\r\n"),
                };
            }
        });
        for server in [&first, &second] {
            let mut client = server.connect();
            client.send(b"get k\r\n");
            let is_there = client.read_until(b"\r\n") != b"END\r\n";
            if is_there {
                client.read_until(b"END\r\n");
            }
            assert_eq!(listed(&mut client).len(), usize::from(is_there));
        }
    }
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_database_is_used_only_in_the_mode_that_it_was_made_with() {
    let error = ClusterStore::connect(&name("absent", "")).unwrap_err().to_string();
    assert!(error.contains("tyrant cluster init"), "{error}");
    make("strict_only", "");
    for error in [
        ClusterStore::connect(&name("strict_only", "#mode=plain")).unwrap_err(),
        cluster::init(&name("strict_only", "#mode=plain"), 1).unwrap_err(),
    ] {
        let text = "has a database with kind=tch, mode=strict, format 3, and not with \
                    kind=tch, mode=plain, format 3";
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn plain_mode_puts_gets_and_removes_and_refuses_what_depends_on_the_record() {
    let server = serve(&make("plain", "#mode=plain"));
    let mut client = server.connect();
    let refused = "SERVER_ERROR the store does not support changes that depend on the record: serve a \
        database on a disk for it";
    for (request, reply) in [
        ("set a 5 0 3\r\none\r\n", "STORED"),
        ("get a\r\n", "VALUE a 5 3\r\none\r\nEND"),
        ("set a 0 0 3\r\ntwo\r\n", "STORED"),
        ("get a b\r\n", "VALUE a 0 3\r\ntwo\r\nEND"),
        ("delete a\r\n", "DELETED"),
        ("delete a\r\n", "NOT_FOUND"),
        ("set a 0 0 1\r\n1\r\n", "STORED"),
        ("add b 0 0 1\r\nv\r\n", refused),
        ("append a 0 0 1\r\nv\r\n", refused),
        ("incr a 1\r\n", refused),
        ("cas a 0 0 1 1\r\nv\r\n", refused),
        ("touch a 100\r\n", refused),
        ("get a\r\n", "VALUE a 0 1\r\n1\r\nEND"),
        ("flush_all\r\n", "OK"),
        ("get a\r\n", "END"),
    ] {
        client.exchange(request, format!("{reply}\r\n"));
    }
    client.exchange(request(&Request::Get { key: b"a" }), b"\x01");
    // A status would say that there is a record.
    client.send(&request(&Request::PutKeep { key: b"a", value: b"v" }));
    client.expect_close();
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn keys_and_values_of_any_bytes_and_up_to_their_limits_are_kept() {
    let server = serve(&make("limits", "#value=100000"));
    let mut client = server.connect();
    let long = vec![b'k'; 65_534];
    let all: Vec<u8> = (0..=255).collect();
    for key in [&b""[..], b"\0", &all, &long] {
        for value in [&b""[..], &all, &vec![0; 100_000]] {
            client.exchange(request(&Request::Put { key, value }), b"\0");
            let length = u32::try_from(value.len()).unwrap().to_be_bytes();
            let reply = [&[0][..], &length, value].concat();
            client.exchange(request(&Request::Get { key }), reply);
        }
    }
    client.exchange(request(&Request::Put { key: &vec![b'k'; 65_535], value: b"" }), b"\x01");
    client.exchange(request(&Request::Put { key: b"k", value: &vec![0; 100_001] }), b"\x01");
    client.exchange(request(&Request::Get { key: b"k" }), b"\x01");
    client.exchange(request(&Request::Count), b"\0\0\0\0\0\0\0\0\x04");
    // A value does not grow over the limit either.
    let put = request(&Request::Put { key: b"k", value: &vec![0; 99_999] });
    client.exchange(put, b"\0");
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    client.exchange("append k 0 0 2\r\nab\r\n", too_large);
    client.exchange("append k 0 0 1\r\na\r\nappend k 0 0 1\r\na\r\n", {
        format!("STORED\r\n{too_large}")
    });
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn the_status_counts_nodes_and_statements() {
    let store = ClusterStore::connect(&make("keyspace", "")).unwrap();
    let nodes = std::env::var(CONTACT_POINTS).unwrap().split(',').count();
    support::wait_until(|| store.status().nodes_connected == nodes);
    let status = store.status();
    assert_eq!((status.nodes, status.unready), (nodes, None));
    assert_eq!((status.statements, status.refused, status.unknown), (0, 0, 0));
    let remote = Some(Arc::<ClusterStore>::clone(&store) as _);
    let server = start_with(Config { remote, ..config() }, memory());
    server
        .connect()
        .exchange("set a 0 0 1\r\nv\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nv\r\nEND\r\n");
    assert_eq!(store.status().statements, 2);
}

/// Calls `test` with two servers over the same database.
fn with_two(keyspace: &str, test: impl Fn(&Running, &Running)) {
    let name = make(keyspace, "");
    test(&serve(&name), &serve(&name));
}

/// Calls `work` with clients of both servers at once. Returns the results.
fn race<T: Send>(
    servers: [&Running; 2],
    clients: usize,
    work: impl Fn(usize, &mut Client) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..clients)
            .map(|number| {
                let mut client = servers[number % 2].connect();
                scope.spawn(move || work(number, &mut client))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Outcome that a client is told.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Line(String),
    /// Nothing was done.
    Unavailable,
    Unknown,
}

/// Sends a request whose reply has one line.
fn ask(client: &mut Client, request: &str) -> Told {
    client.send(request.as_bytes());
    let line = String::from_utf8(client.read_until(b"\r\n")).unwrap();
    match line.trim_end() {
        "SERVER_ERROR the store is unavailable: nothing was done" => Told::Unavailable,
        "SERVER_ERROR the store has not answered: it is unknown what was done" => Told::Unknown,
        line => Told::Line(line.to_owned()),
    }
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_record_that_many_clients_of_two_servers_put_if_absent_has_one_winner() {
    const CLIENTS: usize = 8;
    with_two("winners", |first, second| {
        for round in 0..10 {
            let told = race([first, second], CLIENTS, |number, client| {
                ask(client, &format!("add k{round} 0 0 1\r\n{number}\r\n"))
            });
            let with = |outcome: &Told| -> Vec<usize> {
                (0..CLIENTS).filter(|number| told[*number] == *outcome).collect()
            };
            let winners = with(&Told::Line("STORED".to_owned()));
            let possible = if winners.is_empty() { with(&Told::Unknown) } else { winners };
            assert!(
                possible.len() == 1 || !possible.is_empty() && told[possible[0]] == Told::Unknown
            );
            let mut client = second.connect();
            client.send(format!("get k{round}\r\n").as_bytes());
            let reply = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
            let value: usize = reply.lines().nth(1).unwrap().parse().unwrap();
            assert!(possible.contains(&value), "{possible:?} {reply}");
        }
    });
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn additions_of_many_clients_of_two_servers_are_all_counted() {
    const CLIENTS: usize = 8;
    const ADDITIONS: usize = 25;
    with_two("additions", |first, second| {
        first.connect().exchange("set n 0 0 1\r\n0\r\n", "STORED\r\n");
        let told = race([first, second], CLIENTS, |_, client| {
            (0..ADDITIONS).map(|_| ask(client, "incr n 1\r\n")).collect::<Vec<_>>()
        });
        let told: Vec<Told> = told.into_iter().flatten().collect();
        let unknown = told.iter().filter(|told| **told == Told::Unknown).count();
        let sum = |told: &Told| match told {
            Told::Line(line) => Some(line.parse::<usize>().unwrap()),
            Told::Unavailable | Told::Unknown => None,
        };
        let mut sums: Vec<usize> = told.iter().filter_map(sum).collect();
        let counted = sums.len();
        assert!(counted > 0);
        // No two additions have the same sum.
        sums.sort_unstable();
        sums.dedup();
        assert_eq!(sums.len(), counted);
        let mut client = second.connect();
        client.send(b"get n\r\n");
        let reply = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
        let total: usize = reply.lines().nth(1).unwrap().parse().unwrap();
        assert!((counted..=counted + unknown).contains(&total), "{total} of {counted} + {unknown}");
        println!("{counted} additions counted, {unknown} with an unknown outcome");
    });
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_change_by_another_server_is_a_conflict_for_compare_and_swap() {
    with_two("conflicts", |first, second| {
        let (mut one, mut other) = (first.connect(), second.connect());
        let get = Packet { opcode: 0x00, key: b"k", ..Packet::default() };
        let put =
            |value, number| Packet { opcode: 0x01, extras: &[0; 8], key: b"k", value, number };
        let stored = one.ask(&put(b"a", 0)).number;
        assert_eq!(other.ask(&get).number, stored);
        let newer = other.ask(&put(b"b", stored));
        assert_eq!(newer.status, 0);
        assert_eq!(one.ask(&put(b"c", stored)).status, 2);
        assert_eq!(one.ask(&get).value, b"b");
        assert_eq!(one.ask(&put(b"c", newer.number)).status, 0);
        assert_eq!(other.ask(&get).value, b"c");
    });
}
