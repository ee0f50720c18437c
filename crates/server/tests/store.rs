//! One suite of every protocol's basic operations, which each kind of store has to pass; and a
//! store that answers late, out of order, with failures and with unknown outcomes.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod suite;
mod support;

use server::{Completion, Config, RemoteStore, StoreAnswer, StoreRequest, StoreStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use suite::http;
use support::{
    ABLE, Client, DROPPED, HELD, LateStore, MISC_FAILURE, Monitored, Packet, Running, UNAVAILABLE,
    UNKNOWN, config, hash, memory, memory_tree, misc, request, start, start_with, tree,
};
use wire::binary::Request;

/// Starts a server over a store that answers late.
fn start_late(capabilities: server::Capabilities, config: Config) -> (Arc<LateStore>, Running) {
    let store = LateStore::start(capabilities);
    let remote = Some(Arc::<LateStore>::clone(&store) as _);
    (store, start_with(Config { remote, ..config }, memory()))
}

/// Calls `test` with a server over each kind of store.
fn over_each_store(test: impl Fn(&Running)) {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), memory_tree(), hash(folder.path()), tree(folder.path())] {
        test(&start(database));
    }
    let (store, server) = start_late(ABLE, config());
    test(&server);
    store.stop();
}

#[test]
fn memcacheds_text_protocol_has_its_basic_operations_over_each_store() {
    over_each_store(suite::memcached_text);
}

#[test]
fn the_meta_commands_have_their_basic_operations_over_each_store() {
    over_each_store(suite::meta_commands);
}

#[test]
fn memcacheds_binary_protocol_has_its_basic_operations_over_each_store() {
    over_each_store(suite::memcached_binary);
}

#[test]
fn tokyo_tyrants_protocol_has_its_basic_operations_over_each_store() {
    over_each_store(suite::tokyo_tyrant);
}

#[test]
fn http_has_its_basic_operations_over_each_store() {
    over_each_store(suite::http_operations);
}

#[test]
fn appends_additions_and_lists_of_records_are_the_same_over_each_store() {
    over_each_store(suite::counters_and_lists);
    suite::repeated_keys(&start(memory()));
    let (store, server) = start_late(ABLE, config());
    suite::repeated_keys(&server);
    store.stop();
}

#[test]
fn iterators_and_lists_of_all_records_are_the_same_over_each_store() {
    over_each_store(suite::iterators);
}

#[test]
fn a_hash_database_is_iterated_in_the_order_in_which_records_were_stored() {
    let folder = tempfile::tempdir().unwrap();
    suite::iterators_in_order(&start(hash(folder.path())));
}

#[test]
fn fixed_length_databases_have_the_operations_on_ids() {
    for test in
        [suite::ids::functions, suite::ids::intervals, suite::ids::values, suite::ids::protocols]
    {
        let folder = tempfile::tempdir().unwrap();
        test(&start(support::named(folder.path(), "casket.tcf#width=8")));
    }
}

#[test]
fn replies_of_a_pipeline_keep_their_order_and_each_request_is_executed_once() {
    over_each_store(suite::pipelines);
}

#[test]
fn a_store_that_fails_never_looks_like_a_missing_record_or_a_stored_one() {
    let (store, server) = start_late(ABLE, config());
    for key in [UNAVAILABLE, UNKNOWN, DROPPED] {
        let mut client = server.connect();
        for request in [format!("get {key} a\r\n"), format!("set {key} 0 0 1\r\nv\r\n")] {
            client.send(request.as_bytes());
            let reply = String::from_utf8(client.read_until(b"\r\n")).unwrap();
            assert!(reply.starts_with("SERVER_ERROR the store "), "{reply}");
        }
        // The connection serves further requests.
        client.exchange("get a\r\n", "END\r\n");
        let mut silent = server.connect();
        silent.send(format!("set {key} 0 0 1 noreply\r\nv\r\n").as_bytes());
        silent.expect_close();
        let get = Packet { opcode: 0x00, key: key.as_bytes(), ..Packet::default() };
        assert_eq!(client.ask(&get).status, 0x84);
        for asked in [
            Request::Get { key: key.as_bytes() },
            Request::Put { key: key.as_bytes(), value: b"v" },
            Request::Out { key: key.as_bytes() },
        ] {
            let mut client = server.connect();
            client.send(&request(&asked));
            client.expect_close();
        }
        for method in ["GET", "DELETE"] {
            let mut client = server.connect();
            let (head, _) = http(&mut client, &format!("{method} /{key} HTTP/1.1"), "");
            let is_unknown = key == UNKNOWN || key == DROPPED && method == "DELETE";
            let status = if is_unknown { "504" } else { "503" };
            assert_eq!(&head[9..12], status, "{key} {method}");
        }
    }
    store.stop();
}

#[test]
fn a_failure_after_a_part_of_a_request_does_not_promise_that_nothing_was_done() {
    let (store, server) = start_late(ABLE, config());
    let mut client = server.connect();
    client.exchange("set a 0 0 1\r\nv\r\n", "STORED\r\n");
    let unavailable = "SERVER_ERROR the store is unavailable: nothing was done\r\n";
    let unknown = "SERVER_ERROR the store has not answered: it is unknown what was done\r\n";
    client.exchange(format!("gat 100 missing {UNAVAILABLE} a\r\n"), unavailable);
    client.exchange(format!("gat 100 a {UNAVAILABLE}\r\n"), unknown);
    client.exchange(format!("gats 100 missing a {UNAVAILABLE}\r\n"), unknown);
    // The record may have been stale, so that this client has won the right to renew it.
    client.exchange(format!("mg {DROPPED} v\r\n"), unknown);
    client.exchange(format!("mg {UNAVAILABLE} v\r\n"), unavailable);
    store.stop();
}

/// A store that makes no changes that depend on the record.
#[derive(Debug)]
struct Unconditional(Arc<LateStore>);

impl RemoteStore for Unconditional {
    fn capabilities(&self) -> server::Capabilities {
        server::Capabilities { changes_conditionally: false, ..ABLE }
    }

    fn submit(&self, request: StoreRequest, completion: Completion) {
        self.0.submit(request, completion);
    }
}

#[test]
fn a_store_without_conditional_changes_gives_nobody_the_right_to_renew_a_stale_record() {
    let (store, server) = start_late(ABLE, config());
    let remote = Some(Arc::new(Unconditional(Arc::clone(&store))) as _);
    let plain = start_with(Config { remote, ..config() }, memory());
    let mut client = server.connect();
    client.exchange("set k 0 0 1\r\nv\r\nmd k I\r\n", "STORED\r\nHD\r\n");
    for _ in 0..2 {
        plain.connect().exchange("mg k v\r\n", "VA 1 X\r\nv\r\n");
    }
    client.exchange("mg k v\r\n", "VA 1 X W\r\nv\r\n");
    store.stop();
}

#[test]
fn a_change_with_an_unknown_outcome_is_not_made_again() {
    let (store, server) = start_late(ABLE, config());
    let mut client = server.connect();
    client.send(format!("set {UNKNOWN} 0 0 1\r\n1\r\nincr {UNKNOWN} 1\r\n").as_bytes());
    for _ in 0..2 {
        let reply = client.read_until(b"\r\n");
        assert!(reply.starts_with(b"SERVER_ERROR"), "{}", reply.escape_ascii());
    }
    assert_eq!(store.requests(UNKNOWN), 2);
    store.stop();
}

#[test]
fn a_store_is_refused_what_it_lacks_with_an_error_that_says_so() {
    let unable = server::Capabilities {
        lists_keys: false,
        is_ordered: false,
        ids: None,
        has_rows: false,
        counts: false,
        clears: false,
        changes_conditionally: false,
        key_bytes_max: 10,
        value_bytes_max: 10,
    };
    let (store, server) = start_late(unable, config());
    let mut client = server.connect();
    client.exchange(
        "flush_all\r\n",
        "SERVER_ERROR the store does not support removal of all records: serve a database on a \
         disk for it\r\n",
    );
    client
        .exchange("set a 0 0 11\r\n01234567890\r\n", "SERVER_ERROR object too large for cache\r\n");
    client.exchange("set a 0 0 10\r\n0123456789\r\n", "STORED\r\n");
    client.exchange(
        "set 01234567890 0 0 1\r\nv\r\n",
        "CLIENT_ERROR key of 11 bytes is over the limit of 10: use a shorter one, such as a \
         hash of it\r\n",
    );
    for request in
        ["add b 0 0 1\r\nv\r\n", "incr a 1\r\n", "append a 0 0 1\r\nv\r\n", "touch a 9\r\n"]
    {
        client.exchange(
            request,
            "SERVER_ERROR the store does not support changes that depend on the record: serve a \
             database on a disk for it\r\n",
        );
    }
    client.exchange(
        "set b 0 0 1\r\nv\r\ndelete b\r\ndelete b\r\n",
        "STORED\r\nDELETED\r\nNOT_FOUND\r\n",
    );
    // No record has a key that is too long.
    client.exchange("get 01234567890\r\n", "END\r\n");
    client.exchange(
        "get 01234567890 a 01234567891 0123456789 a\r\n",
        "VALUE a 0 10\r\n0123456789\r\nVALUE a 0 10\r\n0123456789\r\nEND\r\n",
    );
    client.exchange(request(&Request::KeysWithPrefix { prefix: b"a", max: -1 }), b"\0\0\0\0\0");
    for (asked, reason) in [
        (request(&Request::Copy { path: b"/tmp/x" }), "the store does not support copies"),
        (
            request(&Request::PutShift { key: b"a", value: b"v", width: 1 }),
            "the store does not support changes that depend on the record",
        ),
        (
            request(&Request::Restore { path: b"/tmp/x", timestamp_us: 0, options: 0 }),
            "the store does not support an update log",
        ),
        (
            request(&Request::SetMaster { host: b"h", port: 1, timestamp_us: 0, options: 0 }),
            "the store does not support replication of its servers",
        ),
        (request(&Request::Optimize { parameters: b"" }), "the store does not support optimize"),
        (request(&Request::Size), "the store does not support a size in bytes"),
        (misc("putdup", &["a", "v"]), "the store has one value under each key"),
        (misc("regex", &["a"]), "the store does not support lists of keys"),
        (misc("iterinit", &["a"]), "the store does not support lists of keys"),
    ] {
        let is_misc = asked.starts_with(b"\xc8\x90");
        client.exchange(asked, if is_misc { MISC_FAILURE } else { b"\x01" });
        client.send(&misc("error", &[]));
        let reply = client.read(9);
        let length = u32::from_be_bytes(reply[5..].try_into().unwrap());
        let text = String::from_utf8(client.read(length as usize)).unwrap();
        assert!(text.contains(reason), "{text}");
    }
    // The status of a failure would say that there is a record, or one that is no number.
    for asked in [
        Request::PutKeep { key: b"lock", value: b"v" },
        Request::AddInt { key: b"a", addend: 1 },
        Request::AddDouble { key: b"a", integral: 1, fractional: 0 },
    ] {
        let mut client = server.connect();
        client.send(&request(&asked));
        client.expect_close();
    }
    store.stop();
}

#[test]
fn statistics_over_a_store_say_nothing_of_a_database() {
    let (store, server) = start_late(ABLE, config());
    let mut client = server.connect();
    client.exchange("set a 0 0 1\r\nv\r\n", "STORED\r\n");
    client.send(b"stats\r\n");
    let stats = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
    assert!(stats.contains("STAT curr_connections 1\r\n"), "{stats}");
    for absent in ["curr_items", "total_items", "bytes", "limit_maxbytes", "evictions"] {
        assert!(!stats.contains(&format!("STAT {absent} ")), "{stats}");
    }
    client.exchange("stats items\r\n", "END\r\n");
    client.send(&request(&Request::Stat));
    let length = u32::from_be_bytes(client.read(5)[1..].try_into().unwrap());
    let stat = String::from_utf8(client.read(length as usize)).unwrap();
    assert!(stat.contains("\npath\tstore outside\n"), "{stat}");
    assert!(!stat.contains("\nrnum\t") && !stat.contains("\ntype\t"), "{stat}");
    // A list is counted once, though it is executed twice.
    let list = "GET /?list HTTP/1.1\r\nAccept: application/json";
    assert_eq!(&http(&mut client, list, "").0[9..12], "200");
    client.send(&request(&Request::Stat));
    let length = u32::from_be_bytes(client.read(5)[1..].try_into().unwrap());
    let stat = String::from_utf8(client.read(length as usize)).unwrap();
    assert!(stat.contains("\ncnt_fwmkeys\t1\n"), "{stat}");
    store.stop();
}

#[test]
fn a_change_that_a_reload_forbids_meanwhile_has_an_unknown_outcome() {
    let (store, server) = start_late(ABLE, config());
    let key = format!("{HELD}1");
    let mut client = server.connect();
    client.send(format!("set {key} 0 0 1\r\nv\r\n").as_bytes());
    store.wait_for(&key, 1);
    server.handle.reload(&Config { mask: "put".parse().unwrap(), ..config() });
    store.release();
    client.expect("SERVER_ERROR the store has not answered: it is unknown what was done\r\n");
    client.expect_close();
    let got = format!("VALUE {key} 0 1\r\nv\r\nEND\r\n");
    server.connect().exchange(format!("get {key}\r\n"), got);
    store.stop();
}

#[test]
fn long_lists_are_the_same_on_the_threads_that_may_wait() {
    let (store, server) = start_late(ABLE, config());
    let mut client = server.connect();
    let pairs: Vec<String> = (0..4000).map(|number| format!("k{number}")).collect();
    let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
    client.exchange(misc("putlist", &pairs), b"\0\0\0\0\0");
    let value = "v".repeat(300_000);
    for key in ["a", "b", "c", "d"] {
        client.exchange(format!("set {key} 0 0 300000\r\n{value}\r\n"), "STORED\r\n");
    }
    client.send(b"get a b c d k3998\r\n");
    let reply = client.read_until(b"END\r\n");
    assert!(reply.ends_with(b"VALUE k3998 0 5\r\nk3999\r\nEND\r\n"));
    let monitored = Monitored::new(&server);
    assert!(monitored.value("tyrant_requests_pooled_total", &[]) >= 2.0);
    store.stop();
}

#[test]
fn requests_in_flight_are_limited_and_those_of_a_client_that_has_gone_end() {
    let limited = Config { remote_requests_max: 2, ..config() };
    let (store, server) = start_late(ABLE, limited);
    let key = format!("{HELD}1");
    let get = format!("get {key}\r\n");
    let mut gone = server.connect();
    gone.send(format!("set {key} 0 0 1\r\nv\r\n").as_bytes());
    let mut waiting = server.connect();
    waiting.send(format!("set {key} 0 0 1\r\nw\r\n").as_bytes());
    store.wait_for(&key, 2);
    let mut refused = server.connect();
    refused
        .exchange(&get, "SERVER_ERROR too many requests wait for the store: nothing was done\r\n");
    drop(gone);
    store.release();
    waiting.expect("STORED\r\n");
    refused.send(b"get a\r\n");
    refused.expect("END\r\n");
    for _ in 0..10 {
        refused.exchange("get a\r\n", "END\r\n");
    }
    store.stop();
}

#[test]
fn a_store_sees_that_the_client_of_a_request_is_gone() {
    for follows in ["", "get a\r\n"] {
        let (store, server) = start_late(ABLE, config());
        let key = format!("{HELD}1");
        let mut client = server.connect();
        // The reply to the first request is not read, so the connection is reset.
        client.send(format!("get a\r\nmg {key} v\r\n").as_bytes());
        let mut other = server.connect();
        other.send(format!("set {key} 0 0 1\r\nv\r\n").as_bytes());
        store.wait_for(&key, 2);
        assert!(store.are_awaited());
        // Input that is not wanted yet.
        client.send(follows.as_bytes());
        drop(client);
        support::wait_until(|| !store.are_awaited());
        // The other client waits still.
        store.release();
        other.expect("STORED\r\n");
        store.stop();
    }
}

#[test]
fn the_values_of_a_get_of_many_keys_end_at_the_limit_of_a_reply() {
    let (store, server) = start_late(ABLE, Config { reply_bytes_max: 5000, ..config() });
    let mut client = server.connect();
    let value = "v".repeat(1000);
    for number in 0..6 {
        client.exchange(format!("set k{number} 0 0 1000\r\n{value}\r\n"), "STORED\r\n");
    }
    client.send(b"get k0 k1 k2 k3\r\n");
    assert_eq!(client.read_until(b"END\r\n").len(), 4 * (19 + 1000) + 5);
    let refused = "SERVER_ERROR out of memory writing get response\r\n";
    client.exchange("get k0 k1 k2 k3 k4 k5\r\n", refused);
    client.exchange(misc("regex", &["k"]), b"\x01\0\0\0\0");
    store.stop();
}

#[test]
fn lists_of_keys_have_their_pages_over_each_store() {
    over_each_store(suite::key_lists);
}

#[test]
fn ordered_stores_have_ranges_and_ordered_lists() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory_tree(), tree(folder.path())] {
        suite::ordered(&start(database));
    }
    let store = LateStore::start(ABLE);
    let remote = Some(Arc::<LateStore>::clone(&store) as _);
    suite::ordered(&start_with(Config { remote, ..config() }, memory_tree()));
    store.stop();
}

#[test]
fn a_list_over_the_limit_of_a_reply_is_refused_over_each_store() {
    let limited = || Config { reply_bytes_max: 1000, ..config() };
    let (store, late) = start_late(ABLE, limited());
    for server in [&start_with(limited(), memory()), &late] {
        let mut client = server.connect();
        for number in 0..10 {
            client
                .exchange(format!("set {}{number} 0 0 1\r\nv\r\n", "k".repeat(199)), "STORED\r\n");
        }
        client.send(&request(&Request::KeysWithPrefix { prefix: b"k", max: -1 }));
        client.expect_close();
    }
    store.stop();
}

#[test]
fn metrics_and_readiness_follow_the_store() {
    let (store, server) = start_late(ABLE, config());
    let monitored = Monitored::new(&server);
    monitored.expect("/ready", "200 OK");
    let unready = Some("1 of 3 nodes is connected".to_owned());
    let counts = StoreStatus { nodes: 3, nodes_connected: 1, ..StoreStatus::default() };
    let (statements, refused, unknown, conflicts, folded) = (10, 20, 30, 40, 50);
    let status = StoreStatus { unready, statements, refused, unknown, conflicts, folded, ..counts };
    store.set_status(status);
    assert!(monitored.expect("/ready", "503").contains("1 of 3 nodes is connected\n"));
    for (name, labels, value) in [
        ("tyrant_store_nodes", &[("state", "connected")][..], 1.0),
        ("tyrant_store_nodes", &[("state", "unconnected")], 2.0),
        ("tyrant_store_statements_total", &[("result", "executed")], 10.0),
        ("tyrant_store_statements_total", &[("result", "refused")], 20.0),
        ("tyrant_store_statements_total", &[("result", "unknown")], 30.0),
        ("tyrant_store_conflicts_total", &[], 40.0),
        ("tyrant_store_folded_total", &[], 50.0),
        ("tyrant_store_requests", &[], 0.0),
    ] {
        assert_eq!(monitored.value(name, labels), value, "{name} {labels:?}");
    }
    // The database of the process is not the store.
    assert_eq!(monitored.find("tyrant_records", &[]), None);
    let mut client = server.connect();
    client.send(format!("get {HELD}1\r\n").as_bytes());
    monitored.await_value("tyrant_store_requests", &[], |requests| requests == 1.0);
    store.release();
    client.expect("END\r\n");
    store.stop();
}

#[test]
fn a_store_that_never_answers_holds_no_request_beyond_its_time() {
    let timeout = Duration::from_secs(3);
    let (store, server) = start_late(ABLE, Config { remote_timeout: timeout, ..config() });
    let key = format!("{HELD}1");
    let unavailable = "SERVER_ERROR the store is unavailable: nothing was done\r\n";
    let unknown = "SERVER_ERROR the store has not answered: it is unknown what was done\r\n";
    let waiting: Vec<_> = [
        (format!("get {key} a\r\n"), unavailable),
        (format!("set {key} 0 0 1\r\nv\r\n"), unknown),
        // This one is executed by the worker pool.
        (format!("gat 100 {key} a\r\n"), unknown),
    ]
    .into_iter()
    .map(|(request, reply)| {
        let mut client = server.connect();
        client.send(request.as_bytes());
        (client, reply)
    })
    .collect();
    let mut waited: Vec<Client> = waiting
        .into_iter()
        .map(|(mut client, reply)| {
            client.expect(reply);
            client
        })
        .collect();
    // The late answers are dropped, and further requests get their own.
    store.release();
    for client in &mut waited {
        client.exchange("set a 0 0 1\r\nv\r\n", "STORED\r\n");
        client.exchange("get a\r\n", "VALUE a 0 1\r\nv\r\nEND\r\n");
    }
    store.stop();
}

/// A store with keys without end.
#[derive(Debug, Default)]
struct Endless {
    pages: AtomicUsize,
}

impl RemoteStore for Endless {
    fn capabilities(&self) -> server::Capabilities {
        ABLE
    }

    fn submit(&self, request: StoreRequest, completion: Completion) {
        let page = self.pages.fetch_add(1, Ordering::Relaxed);
        let StoreRequest::Keys { max, .. } = request else { return };
        let keys = (0..max).map(|key| format!("{page} {key}").into_bytes()).collect();
        completion.complete(Ok(StoreAnswer::Keys { keys, is_complete: true }));
    }
}

#[test]
fn a_search_that_finds_nothing_ends_and_so_does_that_of_a_client_that_has_gone() {
    let search = misc("regex", &["no such key"]);
    let limited = |remote_timeout| Config { remote_timeout, pool_threads: 2, ..config() };
    let start = |remote_timeout| {
        let store = Arc::<Endless>::default();
        let remote = Some(Arc::clone(&store) as _);
        (store, start_with(Config { remote, ..limited(remote_timeout) }, memory()))
    };
    let (_, server) = start(Duration::from_millis(50));
    let mut client = server.connect();
    client.send(&search);
    client.expect_close();

    let (store, server) = start(Duration::from_secs(1000));
    let mut client = server.connect();
    // The reply to the first request is not read, so the connection is reset.
    client.send(&[b"version\r\n", &search[..]].concat());
    support::wait_until(|| store.pages.load(Ordering::Relaxed) > 0);
    let refused = "SERVER_ERROR too many requests wait for the store: nothing was done\r\n";
    server.connect().exchange("lru_crawler metadump all\r\n", refused);
    drop(client);
    support::wait_until(|| {
        let pages = store.pages.load(Ordering::Relaxed);
        // A search that is held up for that long looks like one that has ended.
        std::thread::sleep(Duration::from_millis(200));
        store.pages.load(Ordering::Relaxed) == pages
    });
}

#[test]
fn a_batch_over_a_store_that_never_answers_ends_soon() {
    // The first request begins within this time.
    let remote_timeout = Duration::from_secs(1);
    let (store, server) = start_late(ABLE, Config { remote_timeout, ..config() });
    let key = format!("{HELD}1");
    let lines = format!("{{\"put\":\"{key}\",\"value\":\"v\"}}\n").repeat(20);
    let head = "POST / HTTP/1.1\r\nContent-Type: application/x-ndjson";
    let (_, body) = http(&mut server.connect(), head, &lines);
    let results: Vec<&str> = body.lines().collect();
    assert_eq!(results.len(), 20);
    assert!(results[0].contains("it is unknown what was done"), "{}", results[0]);
    assert!(results[19].contains("nothing was done"), "{}", results[19]);
    assert!(store.requests(&key) < 5, "{}", store.requests(&key));
    store.release();
    store.stop();
}

#[test]
fn a_value_that_would_grow_over_the_limit_of_the_store_is_refused_and_stays() {
    let capabilities = server::Capabilities { value_bytes_max: 100, ..ABLE };
    let (store, server) = start_late(capabilities, config());
    let mut client = server.connect();
    let append = |bytes| format!("append k 0 0 {bytes}\r\n{}\r\n", "b".repeat(bytes));
    client.exchange(format!("set k 0 0 60\r\n{}\r\n", "a".repeat(60)), "STORED\r\n");
    client.exchange(append(41), "SERVER_ERROR object too large for cache\r\n");
    client.exchange(append(40), "STORED\r\n");
    let value = [[b'a'; 60].as_slice(), &[b'b'; 40]].concat();
    let packet = request(&Request::Get { key: b"k" });
    client.exchange(packet, [&b"\0\0\0\0\x64"[..], &value].concat());
    store.stop();
}

#[test]
fn bounds_of_lists_are_at_most_as_long_as_keys() {
    let (store, server) = start_late(server::Capabilities { key_bytes_max: 100, ..ABLE }, config());
    let mut client = server.connect();
    client.exchange(request(&Request::Put { key: b"a", value: b"" }), b"\0");
    // No key has such a prefix.
    let prefix = &b"a".repeat(101);
    client.exchange(request(&Request::KeysWithPrefix { prefix, max: -1 }), b"\0\0\0\0\0");
    for (begin, status) in [(1, "200"), (100, "200"), (101, "413")] {
        for bound in ["prefix", "after"] {
            let line = format!(
                "GET /?list&{bound}={} HTTP/1.1\r\nAccept: application/json",
                "b".repeat(begin)
            );
            let reply = http(&mut server.connect(), &line, "");
            assert_eq!(&reply.0[9..12], status, "{bound} {begin}");
        }
    }
    store.stop();
}

#[test]
fn entity_tags_over_a_store_are_the_same_for_each_server() {
    let (store, first) = start_late(ABLE, config());
    let remote = Some(Arc::<LateStore>::clone(&store) as _);
    let second = start_with(Config { remote, ..config() }, memory());
    first.connect().exchange("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    let tag = |server: &Running| {
        let (head, _) = http(&mut server.connect(), "GET /k HTTP/1.1", "");
        head.lines().find(|line| line.starts_with("ETag: ")).unwrap().to_owned()
    };
    assert_eq!(tag(&first), tag(&second));
    store.stop();
}

#[test]
fn the_head_of_a_value_over_the_limit_of_a_reply_is_sent_over_each_store() {
    let limited = || Config { reply_bytes_max: 1000, ..config() };
    let (store, late) = start_late(ABLE, limited());
    for server in [&start_with(limited(), memory()), &late] {
        let mut client = server.connect();
        client.exchange(format!("set k 0 0 2000\r\n{}\r\n", "v".repeat(2000)), "STORED\r\n");
        client.send(b"HEAD /k HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let head = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains("Content-Length: 2000\r\n"), "{head}");
        assert_eq!(&http(&mut client, "GET /k HTTP/1.1", "").0[9..12], "500");
    }
    store.stop();
}
