//! Metrics: each changes when that happens which it counts. The monitor answers whatever the event
//! loops do, and to no more than so many clients.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::{Database, Durability};
use server::{
    Config, MONITOR_CONNECTIONS_MAX, MONITOR_EXCHANGE_MAX, Monitor, ReadinessLimits, RemoteStore,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::{
    ABLE, HELD, LateStore, MISC_FAILURE, ManualEngine, Monitored, config, following, hash,
    is_following, list, memory, misc, named, request, set, start, start_engine, start_master,
    start_with, stat, tree, wait_until, wait_until_equal,
};
use wire::binary::Request;

#[test]
fn requests_change_the_counts_of_lookups_bytes_connections_and_records() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(hash(folder.path()));
    let metrics = Monitored::new(&server);
    let bytes = metrics.value("tyrant_database_bytes", &[]);
    assert!(bytes > 0.0);
    let (set, reply) = (b"set k 0 0 3\r\nabc\r\n", b"STORED\r\n");
    let mut client = server.connect();
    client.exchange(set, reply);
    client.exchange(b"get k\r\n", b"VALUE k 0 3\r\nabc\r\nEND\r\n");
    client.exchange(b"get k no\r\n", b"VALUE k 0 3\r\nabc\r\nEND\r\n");
    for (name, labels, expected) in [
        ("tyrant_lookups_total", &[("result", "hit")][..], 2),
        ("tyrant_lookups_total", &[("result", "miss")], 1),
        ("tyrant_received_bytes_total", &[("database", support::NAME)], set.len() + 7 + 10),
        ("tyrant_sent_bytes_total", &[], reply.len() + 2 * 23),
        ("tyrant_connections", &[], 1),
        ("tyrant_connections_max", &[], 65_536),
        ("tyrant_connections_accepted_total", &[], 1),
        ("tyrant_records", &[], 1),
        ("tyrant_requests_pooled_total", &[], 0),
        ("tyrant_requests_refused_total", &[], 0),
        ("tyrant_writable", &[], 1),
        ("tyrant_ready", &[], 1),
        ("tyrant_replicas", &[], 0),
    ] {
        assert_eq!(metrics.value(name, labels), expected as f64, "{name} {labels:?}");
    }
    // A list of keys is read by the pool.
    client.exchange(request(&Request::KeysWithPrefix { prefix: b"k", max: 9 }), {
        b"\0\0\0\0\x01\0\0\0\x01k"
    });
    assert_eq!(metrics.value("tyrant_requests_pooled_total", &[]), 1.0);
    let endless = b"get ".repeat(wire::limits::LINE_BYTES_MAX);
    client.exchange(&endless[..wire::limits::LINE_BYTES_MAX], b"CLIENT_ERROR line too long\r\n");
    assert_eq!(metrics.value("tyrant_requests_refused_total", &[]), 1.0);
    drop(client);
    metrics.await_value("tyrant_connections", &[], |open| open == 0.0);
}

/// Returns the sum of the counts of a histogram.
fn times(metrics: &Monitored, protocol: &str, class: &str) -> Option<f64> {
    let labels = [("protocol", protocol), ("class", class)];
    metrics.find("tyrant_request_duration_seconds_count", &labels)
}

#[test]
fn each_request_is_counted_and_timed_by_its_protocol_and_command() {
    let server = start(memory());
    let metrics = Monitored::new(&server);
    let noop = b"\x80\x0a\0\0\0\0\0\0\0\0\0\0noop\0\0\0\0\0\0\0\0";
    let replied = b"\x81\x0a\0\0\0\0\0\0\0\0\0\0noop\0\0\0\0\0\0\0\0";
    let mut client = server.connect();
    client.exchange(b"set a 0 0 1\r\nv\r\nadd b 0 0 1\r\nv\r\nget a\r\n", {
        b"STORED\r\nSTORED\r\nVALUE a 0 1\r\nv\r\nEND\r\n"
    });
    client.exchange(b"mg a v\r\ncas a 0 0 1 999\r\nw\r\n", b"VA 1\r\nv\r\nEXISTS\r\n");
    client.exchange(request(&Request::Put { key: b"c", value: b"v" }), b"\0");
    client.exchange(request(&Request::KeysWithPrefix { prefix: b"c", max: 9 }), {
        b"\0\0\0\0\x01\0\0\0\x01c"
    });
    client.exchange(noop, replied);
    client.expect_value("/a", "v");
    for (protocol, command, class, in_class) in [
        ("memcached", "set", "write", 3.0),
        ("memcached", "add", "write", 3.0),
        ("memcached", "cas", "write", 3.0),
        ("memcached", "get", "read", 2.0),
        ("memcached", "mg", "read", 2.0),
        ("tokyo_tyrant", "put", "write", 1.0),
        ("tokyo_tyrant", "fwmkeys", "list", 1.0),
        ("memcached_binary", "noop", "other", 1.0),
        ("http", "get", "read", 1.0),
    ] {
        let labels = [("protocol", protocol), ("command", command)];
        assert_eq!(metrics.value("tyrant_requests_total", &labels), 1.0, "{labels:?}");
        assert_eq!(times(&metrics, protocol, class), Some(in_class), "{protocol} {class}");
    }
    assert_eq!(metrics.value("tyrant_requests_total", &[]), 9.0);
    assert!(metrics.value("tyrant_request_duration_seconds_sum", &[]) > 0.0);
    assert_eq!(times(&metrics, "http", "write"), None);
}

#[test]
fn a_value_that_comes_and_goes_in_pieces_is_one_request_each_way() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(hash(folder.path()));
    let metrics = Monitored::new(&server);
    let value = vec![b'v'; 5 << 20];
    let mut client = server.connect();
    client.send(
        format!("PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", value.len())
            .as_bytes(),
    );
    client.send(&value);
    client.read_until(b"\r\n\r\n");
    client.expect(b"Created\n");
    client.send(b"GET /k HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.expect_response("200 OK", &value);
    for command in ["put", "get"] {
        let labels = [("protocol", "http"), ("command", command)];
        metrics.await_value("tyrant_requests_total", &labels, |count| count == 1.0);
    }
    metrics.await_value("tyrant_requests_total", &[], |count| count == 2.0);
}

#[test]
fn requests_that_are_denied_are_counted_by_the_reason() {
    let engine = ManualEngine::new("casket.tch", Durability::None);
    let settings = Config { mask: "out,copy".parse().unwrap(), ..config() };
    let server = start_with(settings, Database::from_engine(engine.clone()));
    let metrics = Monitored::new(&server);
    let denied = |reason| metrics.value("tyrant_requests_denied_total", &[("reason", reason)]);
    let mut client = server.connect();
    client.exchange(b"delete k\r\n", b"CLIENT_ERROR forbidden\r\n");
    client.exchange(request(&Request::Out { key: b"k" }), b"\x01");
    client.exchange(b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n", b"-NOPERM the server masks out\r\n");
    let mut client = server.connect();
    client.exchange(b"DELETE /k HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 403 ");
    assert_eq!(denied("mask"), 4.0);
    let mut client = server.connect();
    engine.set_full(true);
    client.send(b"set k 0 0 1\r\nw\r\n");
    client.read_until(b"\r\n");
    assert_eq!(denied("no_space"), 1.0);
    for other in ["right", "read_only", "unavailable"] {
        assert_eq!(denied(other), 0.0, "{other}");
    }
    assert_eq!(metrics.value("tyrant_requests_refused_total", &[]), 0.0);
    let folder = tempfile::tempdir().unwrap();
    let mut settings = following(2, folder.path(), "127.0.0.1:1".parse().unwrap());
    settings.following.is_writable = false;
    let replica = start_with(settings, memory());
    let metrics = Monitored::new(&replica);
    let refusal = b"SERVER_ERROR this is a read-only replica of 127.0.0.1:1: write to that server";
    replica.connect().exchange(b"set k 0 0 1\r\nw\r\n", refusal);
    let labels = [("reason", "read_only")];
    assert_eq!(metrics.value("tyrant_requests_denied_total", &labels), 1.0);
}

#[test]
fn the_function_metrics_has_the_samples_of_its_database_and_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(hash(folder.path()));
    let metrics = Monitored::new(&server);
    server.connect().exchange(b"set k 0 0 1\r\nv\r\n", b"STORED\r\n");
    let mut client = server.connect();
    client.send(&misc("metrics", &[]));
    // Its state, the number of elements, and the length of the only one.
    assert_eq!(client.read(9)[..5], [0, 0, 0, 0, 1]);
    let text = client.read_until(b"# TYPE tyrant_script_seconds_total counter\n");
    let text = String::from_utf8(text).unwrap();
    let names = |text: &str| {
        let names = text.lines().filter(|line| !line.starts_with('#'));
        let names = names.filter_map(|line| line.split(['{', ' ']).next().map(str::to_owned));
        names.collect::<BTreeSet<_>>()
    };
    let mut expected = names(&metrics.scrape());
    // Whether the process is ready depends on all databases.
    assert!(expected.remove("tyrant_ready"));
    assert_eq!(names(&text), expected);
    let path = folder.path().join("casket.tch");
    let records = format!("tyrant_records{{database=\"{}\"}} 1\n", path.display());
    assert!(text.contains(&records), "{text}");
    client.exchange(misc("metrics", &["databases"]), list(&[]));
    client.exchange(misc("metrics", &["other"]), MISC_FAILURE);
}

/// Returns the last slow request, with its keys and values.
fn last_slow(metrics: &Monitored) -> Option<serde_json::Value> {
    let lines = metrics.expect("/slow", "200 OK");
    lines.lines().next().map(|line| serde_json::from_str(line).unwrap())
}

#[test]
fn a_slow_request_is_shown_with_its_key_its_client_and_where_its_time_went() {
    let engine = ManualEngine::new("casket.tch", Durability::Always);
    let threshold = Duration::from_millis(50);
    let settings = Config { slow_log_threshold: Some(threshold), ..config() };
    let server = start_with(settings.clone(), Database::from_engine(engine.clone()));
    let metrics = Monitored::new(&server);
    let mut client = server.connect();
    let own = client.stream.local_addr().unwrap().to_string();

    // A change that is not durable for a while.
    client.send(b"set key 0 0 5\r\nvalue\r\n");
    server.pass();
    std::thread::sleep(threshold);
    engine.make_durable();
    client.expect(b"STORED\r\n");
    wait_until(|| last_slow(&metrics).is_some_and(|slow| slow["command"] == "none"));
    let slow = last_slow(&metrics).unwrap();
    assert_eq!(slow["client"], own.as_str());
    assert_eq!(slow["acknowledgement_seconds"], slow["seconds"]);
    assert!(slow["seconds"].as_f64().unwrap() >= threshold.as_secs_f64(), "{slow}");

    // A record that the disk does not return for a while.
    engine.cool(b"key");
    engine.set_stalled(true);
    client.send(b"get key\r\n");
    wait_until(|| engine.waiting() == 1);
    std::thread::sleep(threshold);
    engine.set_stalled(false);
    client.expect(b"VALUE key 0 5\r\nvalue\r\nEND\r\n");
    wait_until(|| last_slow(&metrics).is_some_and(|slow| slow["command"] == "get"));
    let slow = last_slow(&metrics).unwrap();
    for (name, expected) in [
        ("database", support::NAME.into()),
        ("protocol", "memcached".into()),
        ("key", "key".into()),
        ("key_bytes", 3.into()),
        ("client", own.as_str().into()),
        ("requests", 1.into()),
        ("request_bytes", 9.into()),
        ("reply_bytes", 27.into()),
    ] {
        let expected: serde_json::Value = expected;
        assert_eq!(slow[name], expected, "{name} of {slow}");
    }
    let seconds = |name: &str| slow[name].as_f64().unwrap();
    assert!(seconds("wait_seconds") >= threshold.as_secs_f64() / 2.0, "{slow}");
    assert!(seconds("cpu_seconds") < seconds("wait_seconds"), "{slow}");
    assert!(metrics.value("tyrant_slow_requests_total", &[]) >= 2.0);
    assert_eq!(metrics.value("tyrant_slow_lost_total", &[]), 0.0);

    // From no threshold on, nothing is slow.
    server.handle.reload(&Config { slow_log_threshold: None, ..settings.clone() });
    let count = metrics.value("tyrant_slow_requests_total", &[]);
    client.exchange(b"get key\r\n", b"VALUE key 0 5\r\nvalue\r\nEND\r\n");
    assert_eq!(metrics.value("tyrant_slow_requests_total", &[]), count);

    // From the shortest one on, everything is, also a pipeline on an event loop.
    let shortest = Some(Duration::from_nanos(1));
    server.handle.reload(&Config { slow_log_threshold: shortest, ..settings });
    let long = "k".repeat(100);
    client.exchange(format!("get {long}\r\nget b\r\n"), b"END\r\nEND\r\n");
    wait_until(|| last_slow(&metrics).is_some_and(|slow| slow["requests"] == 2));
    let slow = last_slow(&metrics).unwrap();
    assert_eq!(slow["key"], format!("{}...", "k".repeat(64)));
    assert_eq!((&slow["key_bytes"], &slow["reply_bytes"]), (&100.into(), &10.into()));
}

#[test]
fn a_command_about_the_server_has_its_own_name_in_the_slow_log_and_the_counts() {
    let shortest = Some(Duration::from_nanos(1));
    let server = start_with(Config { slow_log_threshold: shortest, ..config() }, memory());
    let metrics = Monitored::new(&server);
    let opcode = |code: u8| [&[0x80, code][..], &[0; 22]].concat();
    let text = |line: &str| format!("{line}\r\n").into_bytes();
    for (protocol, request, command) in [
        ("tokyo_tyrant", b"\xc8\x70".to_vec(), "sync"),
        ("tokyo_tyrant", b"\xc8\x71\0\0\0\0".to_vec(), "optimize"),
        ("tokyo_tyrant", b"\xc8\x72".to_vec(), "vanish"),
        ("tokyo_tyrant", b"\xc8\x80".to_vec(), "rnum"),
        ("tokyo_tyrant", b"\xc8\x81".to_vec(), "size"),
        ("tokyo_tyrant", b"\xc8\x88".to_vec(), "stat"),
        ("memcached", text("me key"), "me"),
        ("memcached", text("mn"), "mn"),
        ("memcached", text("flush_all"), "flush_all"),
        ("memcached", text("verbosity 1"), "verbosity"),
        ("memcached", text("stats"), "stats"),
        ("memcached", text("cache_memlimit 0"), "cache_memlimit"),
        ("memcached", text("lru_crawler tocrawl 1"), "lru_crawler"),
        ("memcached", text("version"), "version"),
        ("memcached", text("quit"), "quit"),
        ("memcached_binary", opcode(0x07), "quit"),
        ("memcached_binary", opcode(0x08), "flush"),
        ("memcached_binary", opcode(0x0a), "noop"),
        ("memcached_binary", opcode(0x0b), "version"),
        ("memcached_binary", opcode(0x10), "stat"),
        ("http", text("OPTIONS / HTTP/1.1\r\n"), "options"),
    ] {
        let mut client = server.connect();
        client.send(&request);
        let names = [protocol, command].map(serde_json::Value::from);
        wait_until(|| {
            let slow = last_slow(&metrics);
            slow.is_some_and(|slow| [&slow["protocol"], &slow["command"]] == names.each_ref())
        });
        let labels = [("protocol", protocol), ("command", command)];
        assert_eq!(metrics.value("tyrant_requests_total", &labels), 1.0, "{labels:?}");
    }
}

#[test]
fn the_time_of_a_request_includes_its_wait_for_a_store_outside() {
    let wait = Duration::from_millis(50);
    let store = LateStore::start(ABLE);
    let settings = Config {
        slow_log_threshold: Some(wait),
        remote: Some(Arc::clone(&store) as Arc<dyn RemoteStore>),
        ..config()
    };
    let server = start_with(settings, memory());
    let metrics = Monitored::new(&server);
    let key = format!("{HELD}1");
    let mut client = server.connect();
    client.send(format!("set {key} 0 0 1\r\nv\r\n").as_bytes());
    store.wait_for(&key, 1);
    std::thread::sleep(wait);
    store.release();
    client.expect(b"STORED\r\n");
    wait_until(|| last_slow(&metrics).is_some());
    let slow = last_slow(&metrics).unwrap();
    assert_eq!((&slow["command"], &slow["key"]), (&"set".into(), &key.as_str().into()));
    assert!(slow["store_seconds"].as_f64().unwrap() >= wait.as_secs_f64(), "{slow}");
    let sum = metrics.value("tyrant_request_duration_seconds_sum", &[]);
    assert!(sum >= wait.as_secs_f64(), "{sum}");
    store.stop();
}

#[test]
fn a_body_is_shown_as_the_request_that_it_belongs_to() {
    let threshold = Duration::from_nanos(1);
    let folder = tempfile::tempdir().unwrap();
    let settings = Config { slow_log_threshold: Some(threshold), ..config() };
    let server = start_with(settings, hash(folder.path()));
    let metrics = Monitored::new(&server);
    let body = "get key\r\n".repeat(200_000);
    let mut client = server.connect();
    client.send(
        format!("PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len())
            .as_bytes(),
    );
    server.pass();
    client.send(body.as_bytes());
    client.expect_response("201 Created", "Created\n");
    wait_until(|| last_slow(&metrics).is_some());
    let lines = metrics.expect("/slow", "200 OK");
    assert!(!lines.contains("\"key\":\"key\""), "{lines}");
    assert!(lines.lines().next().unwrap().contains("\"command\":\"put\""), "{lines}");
}

#[test]
fn refused_and_late_connections_are_counted() {
    let limited =
        Config { connections_max: 1, idle_timeout: Some(Duration::from_millis(1)), ..config() };
    let server = start_with(limited, memory());
    let metrics = Monitored::new(&server);
    wait_until(|| {
        let (_first, mut second) = (server.connect(), server.connect());
        second.read_to_end();
        metrics.value("tyrant_connections_rejected_total", &[]) > 0.0
    });
    wait_until(|| {
        server.connect().read_to_end();
        metrics.value("tyrant_connection_timeouts_total", &[]) > 0.0
    });
}

#[test]
fn durable_changes_count_their_syncs_and_the_wait_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(named(folder.path(), "casket.tch#durability=always"));
    let metrics = Monitored::new(&server);
    assert_eq!(metrics.value("tyrant_acknowledgement_wait_seconds_count", &[]), 0.0);
    let labels = &[("database", support::NAME)];
    // A change that is durable before its reply is looked at has no wait.
    wait_until(|| {
        set(&server, "k", "v");
        metrics.value("tyrant_acknowledgement_wait_seconds_count", labels) > 0.0
    });
    assert!(metrics.value("tyrant_syncs_total", labels) >= 1.0);
    assert!(metrics.value("tyrant_sync_seconds_total", labels) > 0.0);
    let waits = metrics.value("tyrant_acknowledgement_wait_seconds_count", labels);
    let last = [("le", "+Inf")];
    assert_eq!(metrics.value("tyrant_acknowledgement_wait_seconds_bucket", &last), waits);
    assert!(metrics.value("tyrant_acknowledgement_wait_seconds_sum", labels) > 0.0);
}

#[test]
fn the_log_counts_its_segments_compactions_and_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = cabinet::Options::default();
    options.segment_bytes = Some(64 << 10);
    let database = options.open(folder.path().join("casket.tch")).unwrap();
    let server = start(database.clone());
    let metrics = Monitored::new(&server);
    let before = metrics.value("tyrant_log_bytes", &[]);
    for number in 0..3000_u32 {
        // Every tenth record stays, and has to be moved.
        let key = if number % 10 == 0 { number } else { 1 };
        database.put(&key.to_le_bytes(), &[b'v'; 200]).unwrap();
    }
    assert!(metrics.value("tyrant_log_segments", &[]) > 1.0);
    assert!(metrics.value("tyrant_log_bytes", &[]) > before);
    server.connect().exchange(request(&Request::Optimize { parameters: b"" }), b"\0");
    for name in ["compactions", "compaction_seconds", "compacted_bytes", "moved_bytes"] {
        metrics.await_value(&format!("tyrant_{name}_total"), &[], |count| count > 0.0);
    }
    assert!(metrics.value("tyrant_log_dead_bytes", &[]) < 600_000.0);
}

#[test]
fn a_tree_counts_its_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = cabinet::Options::default();
    options.segment_bytes = Some(64 << 10);
    let database = options.open(folder.path().join("casket.tcb")).unwrap();
    let server = start(database.clone());
    let metrics = Monitored::new(&server);
    let mut number = 0_u32;
    wait_until(|| {
        for _ in 0..1000 {
            number += 1;
            database.put(&number.to_be_bytes(), &[b'v'; 200]).unwrap();
        }
        metrics.value("tyrant_checkpoints_total", &[]) > 0.0
    });
    assert!(metrics.value("tyrant_checkpoint_seconds_total", &[]) > 0.0);
}

/// A tree writes its pages at a checkpoint: until then its records are in the changes alone.
#[test]
fn changes_of_a_tree_are_not_dead_before_their_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let database = cabinet::Options::default().open(folder.path().join("casket.tcb")).unwrap();
    for number in 0..2000_u32 {
        database.put(&number.to_be_bytes(), &[b'v'; 200]).unwrap();
    }
    let server = start(database);
    let metrics = Monitored::new(&server);
    let log = metrics.value("tyrant_log_bytes", &[]);
    let dead = metrics.value("tyrant_log_dead_bytes", &[]);
    assert!(log > 400_000.0 && dead < log / 10.0, "{dead} of {log}");
}

#[test]
fn memory_has_its_owners() {
    let folder = tempfile::tempdir().unwrap();
    let of = |open: fn(&Path) -> Database, owner: &str| {
        let database = open(folder.path());
        for number in 0..1000_u32 {
            database.put(&number.to_be_bytes(), &[b'v'; 100]).unwrap();
        }
        let server = start(database);
        let metrics = Monitored::new(&server);
        metrics.value("tyrant_memory_bytes", &[("owner", owner)])
    };
    assert!(of(hash, "index") > 0.0);
    assert!(of(tree, "cache") > 0.0);
    assert!(of(tree, "directory") > 0.0);

    let server = start(memory());
    let metrics = Monitored::new(&server);
    let buffers = [("owner", "buffers")];
    assert!(metrics.value("tyrant_memory_max_bytes", &buffers) > 0.0);
    let mut client = server.connect();
    client.send(b"set k 0 0 100000\r\nbegun");
    metrics.await_value("tyrant_memory_bytes", &buffers, |bytes| bytes > 0.0);
}

#[test]
fn evictions_and_expired_records_are_counted() {
    let server = start(Database::open("*#capnum=10").unwrap());
    let metrics = Monitored::new(&server);
    for number in 0..100 {
        set(&server, &number.to_string(), "v");
    }
    metrics.await_value("tyrant_evictions_total", &[], |evicted| evicted >= 50.0);
    server.connect().exchange(b"set e 0 1 1\r\nv\r\n", b"STORED\r\n");
    wait_until(|| {
        let mut client = server.connect();
        client.send(b"get e\r\n");
        client.read_until(b"END\r\n") == b"END\r\n"
    });
    metrics.await_value("tyrant_expirations_total", &[], |expired| expired >= 1.0);
}

#[test]
fn a_replica_and_its_master_show_the_lag() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (primary, records) = start_master(folders[0].path());
    set(&primary, "a", "1");
    let copy = hash(folders[1].path());
    let mut settings = following(2, folders[1].path(), primary.address);
    settings.following.is_writable = false;
    let replica = start_with(settings, copy.clone());
    let metrics = [Monitored::new(&primary), Monitored::new(&replica)];
    wait_until_equal(&records, &copy);
    wait_until(|| is_following(&replica));
    assert_eq!(metrics[0].value("tyrant_replicas", &[]), 1.0);
    for name in ["operations", "bytes", "seconds"] {
        let name = format!("tyrant_replica_lag_{name}");
        metrics[0].await_value(&name, &[("replica", "2")], |lag| lag == 0.0);
    }
    let master = primary.address.to_string();
    let labels = [("master", &master[..])];
    metrics[1].await_value("tyrant_replication_following", &labels, |is| is == 1.0);
    metrics[1].await_value("tyrant_replication_lag_operations", &labels, |lag| lag == 0.0);
    metrics[1].await_value("tyrant_replication_lag_seconds", &labels, |lag| lag < 1000.0);
    assert_eq!(metrics[1].value("tyrant_writable", &[]), 0.0);
    metrics[1].expect("/ready", "200 OK");

    // Without its master the replica falls behind, and is not ready from the limit on.
    drop(primary);
    metrics[1].await_value("tyrant_replication_following", &labels, |is| is == 0.0);
    metrics[1].expect("/ready", "200 OK");
    metrics[1].monitor.set_limits(ReadinessLimits { lag_max: Some(Duration::from_nanos(1)) });
    let is_late = |(head, body): (String, String)| {
        head.starts_with("HTTP/1.1 503") && body.contains(&format!("behind its master {master}"))
    };
    wait_until(|| is_late(metrics[1].get("/ready", "")));
    assert_eq!(stat(&replica, "mport"), Some(master.split(':').next_back().unwrap().to_owned()));
}

#[test]
fn a_replica_whose_master_holds_back_is_behind_by_operations_and_bytes() {
    use std::io::Read;
    let folder = tempfile::tempdir().unwrap();
    let (primary, _) = start_master(folder.path());
    let metrics = Monitored::new(&primary);
    // A replica that executes nothing: it only begins to follow.
    let mut idle = primary.connect();
    idle.send(&request(&Request::Follow { timestamp_us: 1, server_id: 7, options: 0, port: 0 }));
    idle.stream.read_exact(&mut [0]).unwrap();
    set(&primary, "k", "value");
    set(&primary, "l", "value");
    let labels = [("replica", "7")];
    metrics.await_value("tyrant_replica_lag_operations", &labels, |lag| lag == 2.0);
    metrics.await_value("tyrant_replica_lag_bytes", &labels, |lag| lag > 2.0 * 17.0);
    metrics.await_value("tyrant_replica_lag_seconds", &labels, |lag| lag > 0.0);
}

#[test]
fn a_server_is_not_ready_before_it_is_open_nor_while_it_refuses_changes_or_stops() {
    let metrics = Monitored::starting();
    metrics.monitor.set_starting("the database casket.tch is opening");
    let body = metrics.expect("/ready", "503");
    assert_eq!(body, "not ready:\nthe database casket.tch is opening\n");
    metrics.expect("/health", "200 OK");
    assert_eq!(metrics.value("tyrant_ready", &[]), 0.0);

    let engine = ManualEngine::new("casket.tch", Durability::None);
    let server = start_engine(&engine);
    metrics.monitor.add("casket.tch", server.handle.clone());
    metrics.monitor.set_started();
    assert_eq!(metrics.expect("/ready", "200 OK"), "ready\n");
    engine.set_full(true);
    let body = metrics.expect("/ready", "503");
    assert_eq!(body, "not ready:\ncasket.tch: changes are refused: the disk is full\n");
    assert_eq!(metrics.value("tyrant_writable", &[]), 0.0);
    assert_eq!(metrics.value("tyrant_ready", &[]), 0.0);
    engine.set_full(false);
    metrics.expect("/ready", "200 OK");

    // A request that has begun to arrive is waited for.
    let mut client = server.connect();
    client.send(b"set k 0 0 3\r\nab");
    server.pass();
    server.begin_stop();
    let body = metrics.expect("/ready", "503");
    assert!(body.starts_with("not ready:\ncasket.tch: the server "), "{body}");
    drop(client);
    drop(server);
    let body = metrics.expect("/ready", "503");
    assert_eq!(body, "not ready:\ncasket.tch: the server has ended\n");
}

#[test]
fn a_server_whose_intent_log_cannot_be_written_is_not_ready_until_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _) = start_master(folder.path());
    let metrics = Monitored::new(&server);
    let ulog = folder.path().join("ulog");
    let parts: Vec<_> = (3..2000).map(|number| ulog.join(format!("journal.{number:08}"))).collect();
    parts.iter().for_each(|part| std::fs::create_dir(part).unwrap());
    let mut client = server.connect();
    let request = format!("set k 0 0 2000\r\n{}\r\n", "v".repeat(2000));
    let mut is_stored = || {
        client.send(request.as_bytes());
        client.read_until(b"\r\n") == b"STORED\r\n"
    };
    // Two parts of 4 MiB are there.
    assert!((0..10_000).any(|_| !is_stored()));
    let body = metrics.expect("/ready", "503");
    assert!(body.contains("changes are refused: ") && body.contains("intent log"), "{body}");
    parts.iter().for_each(|part| std::fs::remove_dir(part).unwrap());
    wait_until(|| metrics.value("tyrant_writable", &[]) == 1.0);
    metrics.expect("/ready", "200 OK");
    assert!(is_stored());
}

#[test]
fn the_process_shows_its_version_and_resources() {
    let metrics = Monitored::starting();
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    assert_eq!(metrics.value("tyrant_build_info", &version), 1.0);
    for name in [
        "process_start_time_seconds",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_max_fds",
    ] {
        assert!(metrics.value(name, &[]) > 0.0, "{name}");
    }
    let mut files = Vec::new();
    let before = metrics.value("process_open_fds", &[]);
    // Other tests of this process close files meanwhile.
    wait_until(|| {
        files.push(std::fs::File::open("/dev/null").unwrap());
        metrics.value("process_open_fds", &[]) > before
    });
    let before = metrics.value("process_cpu_seconds_total", &[]);
    wait_until(|| metrics.value("process_cpu_seconds_total", &[]) > before);
}

#[test]
fn silent_clients_up_to_the_limit_take_the_place_of_no_other() {
    let metrics = Monitored::starting();
    let mut waiting: Vec<_> = (0..MONITOR_CONNECTIONS_MAX).map(|_| metrics.connect()).collect();
    // Connections are accepted in their order, and the oldest loses its place.
    assert!(metrics.get("/metrics", "").0.starts_with("HTTP/1.1 200 OK"));
    waiting.remove(0).expect_close();
    for mut client in waiting {
        client.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(client.read_to_end().starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
    assert!(MONITOR_EXCHANGE_MAX < support::WAIT_MAX, "late clients would not be waited for");
}

#[test]
fn a_client_that_sends_nothing_loses_its_connection() {
    let metrics = Monitored::starting();
    metrics.connect().expect_close();
}

#[test]
fn other_paths_and_methods_are_refused() {
    let metrics = Monitored::starting();
    metrics.expect("/", "200 OK");
    metrics.expect("/metrics?a=b", "200 OK");
    metrics.expect("/other", "404 Not Found");
    let mut client = metrics.connect();
    client.send(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let reply = String::from_utf8(client.read_to_end()).unwrap();
    assert!(reply.contains("\r\nContent-Length: 8\r\n") && reply.ends_with("\r\n\r\n"), "{reply}");
    let mut client = metrics.connect();
    client.send(b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert!(client.read_to_end().starts_with(b"HTTP/1.1 405 "));
}

#[test]
fn clients_get_the_format_that_they_accept() {
    let metrics = Monitored::starting();
    let (head, body) = metrics.get("/metrics", "");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(!body.contains("# EOF"));
    let accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3\r\n";
    let (head, body) = metrics.get("/metrics", accept);
    let media = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(head.contains(&format!("\r\nContent-Type: {media}\r\n")), "{head}");
    assert!(body.ends_with("# EOF\n"));
    assert!(body.contains("\n# TYPE tyrant_lookups counter\n"));
}

/// Name, type, labels and meaning of a metric.
type Row = [String; 4];

/// Returns the rows of the table of the metrics in `docs/monitoring.md`.
fn documented() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitoring.md");
    let page = std::fs::read_to_string(path).unwrap();
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').map(str::trim).collect();
        let [name, kind, labels, meaning, ""] = cells[..] else { return None };
        let name = name.strip_suffix('`')?;
        Some([name.into(), kind.into(), labels.replace('`', ""), meaning.into()])
    });
    rows.collect()
}

#[test]
fn the_page_about_monitoring_lists_what_is_served() {
    assert_eq!(documented(), Monitor::metrics());
    let text = Monitored::starting().scrape();
    let served: BTreeSet<(String, String)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    let listed: BTreeSet<(String, String)> =
        documented().into_iter().map(|[name, kind, ..]| (name, kind)).collect();
    assert_eq!(served, listed);
    for [name, _, _, help] in documented() {
        assert!(text.contains(&format!("# HELP {name} {help}\n")), "{name}");
    }
}

/// Returns the metrics that a text of PromQL names, each with the labels that it selects by.
fn named_metrics(query: &str) -> Vec<(String, Vec<String>)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = query;
    while let Some(start) = ["tyrant_", "process_"].iter().filter_map(|name| rest.find(name)).min()
    {
        let length = rest[start..].find(|c| !is_word(c)).unwrap_or(rest.len() - start);
        let name = &rest[start..start + length];
        rest = &rest[start + length..];
        let selector = rest.strip_prefix('{').and_then(|rest| rest.split('}').next());
        let labels = selector.unwrap_or_default().split(',');
        let labels = labels.filter_map(|matcher| matcher.split(['=', '!']).next());
        let labels = labels.map(str::trim).filter(|label| !label.is_empty());
        found.push((name.to_owned(), labels.map(str::to_owned).collect()));
    }
    found
}

/// Asserts that all metrics of a query are served, with the labels that it selects by. Returns
/// their number.
fn assert_served(query: &str) -> usize {
    let metrics = Monitor::metrics();
    let named = named_metrics(query);
    for (name, labels) in &named {
        let series = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let served = metrics.iter().find(|[served, kind, ..]| {
            served == name || kind == "histogram" && series == Some(served)
        });
        let served = served.unwrap_or_else(|| panic!("no metric {name}, in {query}"));
        for label in labels {
            let is_scraped = matches!(&label[..], "instance" | "job" | "le");
            let has = served[2].split(", ").any(|own| own == label);
            assert!(is_scraped || has, "no label {label} of {name}, in {query}");
        }
    }
    named.len()
}

#[test]
fn the_dashboard_and_the_alerts_use_metrics_that_are_served() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prometheus");
    let read = |name: &str| std::fs::read_to_string(packaging.join(name)).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() > 30);
    for query in queries {
        assert!(assert_served(query) > 0, "{query}");
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        assert_served(variable["definition"].as_str().unwrap_or_default());
    }

    let alerts = read("alerts.yaml");
    let rules: Vec<&str> = alerts.split("- alert: ").skip(1).collect();
    for rule in &rules {
        let query = rule.split("expr:").nth(1).unwrap().split("labels:").next().unwrap();
        assert!(query.contains("up{") || assert_served(query) > 0, "{rule}");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitoring.md");
    let page = std::fs::read_to_string(page).unwrap();
    for rule in rules {
        let name = rule.lines().next().unwrap();
        assert!(page.contains(&format!("| `{name}` |")), "{name} is not in the page");
    }
}
