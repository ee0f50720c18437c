//! memcached's text protocol: replies are memcached's.
//!
//! `cargo xtask memcached` compares with memcached itself. The tests here cover the rest, and each
//! command on its own.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use server::{Config, Dialect};
use std::io::Read;
use std::time::Duration;
use support::{Client, config, hash, memory, memory_tree, named, start, start_with, table, tree};

/// Sends a request and returns the reply up to and including `end`.
fn answer(client: &mut Client, request: &str, end: &str) -> String {
    client.send(request.as_bytes());
    String::from_utf8(client.read_until(end.as_bytes())).unwrap()
}

/// Returns the number after a flag in the reply to a meta command.
fn number(client: &mut Client, request: &str, flag: char) -> u64 {
    let line = answer(client, request, "\r\n");
    let token = line.split_ascii_whitespace().find_map(|token| token.strip_prefix(flag));
    token.unwrap_or_else(|| panic!("no {flag} in {line}")).parse().unwrap()
}

#[test]
fn incr_and_decr_count_as_in_memcached() {
    let server = start(memory());
    let mut client = server.connect();
    let not_numeric = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    client.exchange("set n 0 0 3\r\n100\r\ndecr n 1\r\nget n\r\n", {
        "STORED\r\n99\r\nVALUE n 0 3\r\n99 \r\nEND\r\n"
    });
    client.exchange("incr n 901\r\nget n\r\n", "1000\r\nVALUE n 0 4\r\n1000\r\nEND\r\n");
    client.exchange("decr n 1001\r\n", "0\r\n");
    client.exchange("set n 0 0 20\r\n18446744073709551615\r\nincr n 2\r\n", "STORED\r\n1\r\n");
    client.exchange("set n 0 0 1\r\nx\r\nincr n 1\r\n", format!("STORED\r\n{not_numeric}"));
    client.exchange("decr n 1 noreply\r\nincr nope 1\r\n", "NOT_FOUND\r\n");
    client.exchange("incr n -1\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n");
}

#[test]
fn keys_end_at_250_bytes() {
    let server = start(memory());
    let mut client = server.connect();
    for length in [249, 250] {
        let key = "k".repeat(length);
        client.exchange(format!("set {key} 0 0 1\r\nx\r\nget {key}\r\n"), {
            format!("STORED\r\nVALUE {key} 0 1\r\nx\r\nEND\r\n")
        });
    }
    let key = "k".repeat(251);
    let refusal = "CLIENT_ERROR bad command line format\r\n";
    // The data are consumed with the line, so the next reply is that of the next request.
    client.exchange(format!("set {key} 0 0 1\r\nx\r\nmn\r\n"), format!("{refusal}MN\r\n"));
    client.exchange(format!("get a {key}\r\n"), format!("{refusal}\r\n"));
    for line in ["touch {} 1", "delete {}", "incr {} 1", "mg {} v", "me {}"] {
        client.exchange(format!("{}\r\n", line.replace("{}", &key)), refusal);
    }
}

#[test]
fn both_dialects_reply_in_their_own_form() {
    let original = Config { dialect: Dialect::TokyoTyrant, ..config() };
    let (server, original) = (start(memory()), start_with(original, memory()));
    let (mut client, mut other) = (server.connect(), original.connect());
    for (request, reply, in_original) in [
        (
            "set a 0 0 -5\r\n\r\n",
            "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n",
            "STORED\r\n",
        ),
        (
            "set a 0 0 3\r\nabc\r\nincr a 4\r\n",
            { "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n" },
            "STORED\r\n4\r\n",
        ),
        (
            "set a 0 0 1\r\nxyz\r\n",
            "CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\n",
            "CLIENT_ERROR bad data chunk\r\n",
        ),
    ] {
        client.exchange(request, reply);
        other.exchange(request, in_original);
    }
    client.exchange("get\r\n", "CLIENT_ERROR bad command line format\r\n");
    client.exchange("a\r\na b\r\n", "CLIENT_ERROR bad command line format\r\nERROR\r\n");
    client.exchange(
        "stats cachedump 1\r\nstats cachedump abc 1\r\nstats cachedump 1 abc\r\n",
        "CLIENT_ERROR bad command line\r\nCLIENT_ERROR bad command line format\r\n\
         CLIENT_ERROR bad command line format\r\n",
    );
    other.exchange("get\r\n", "CLIENT_ERROR error\r\n");
    other.expect_close();
    client.exchange("quit\r\nversion\r\n", "");
    client.expect_close();
}

#[test]
fn flush_all_can_be_delayed() {
    let test = |database| {
        let server = start(database);
        let mut client = server.connect();
        client.exchange("set a 0 0 1\r\nx\r\nflush_all 1000\r\nget a\r\n", {
            "STORED\r\nOK\r\nVALUE a 0 1\r\nx\r\nEND\r\n"
        });
        // Records stored in the given second stay.
        client.exchange("flush_all 1\r\nget a\r\nset a 0 0 1\r\nx\r\n", {
            "OK\r\nEND\r\nSTORED\r\n"
        });
        client.exchange("flush_all 2\r\n", "OK\r\n");
        support::wait_until(|| answer(&mut client, "mg a\r\n", "\r\n") == "EN\r\n");
        // The last flush_all counts, and an immediate one cancels a delayed one.
        client.exchange("flush_all 2\r\nflush_all\r\nset a 0 0 1\r\nx\r\n", {
            "OK\r\nOK\r\nSTORED\r\n"
        });
        // Later than the delayed one would have come. A server that is late only makes this pass.
        std::thread::sleep(Duration::from_millis(1500));
        client.exchange("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
    };
    // It mostly waits.
    std::thread::scope(|scope| {
        for database in [memory(), memory_tree()] {
            scope.spawn(|| test(database));
        }
    });
}

#[test]
fn a_touch_keeps_the_cas_number() {
    let server = start(memory());
    let mut client = server.connect();
    let first = number(&mut client, "ms k 1 c\r\na\r\n", 'c');
    client.exchange("touch k 100\r\ngat 100 k\r\nmg k T100\r\n", {
        "TOUCHED\r\nVALUE k 0 1\r\na\r\nEND\r\nHD\r\n"
    });
    assert_eq!(number(&mut client, "mg k c\r\n", 'c'), first);
    client.exchange(format!("cas k 0 0 1 {first}\r\nb\r\n"), "STORED\r\n");
    client.exchange(format!("cas k 0 0 1 {first}\r\nc\r\n"), "EXISTS\r\n");
}

#[test]
fn a_client_can_choose_the_cas_number() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange("ms k 1 E1000 c\r\na\r\n", "HD c1000\r\n");
    client.exchange("mg k c v\r\n", "VA 1 c1000\r\na\r\n");
    client.exchange("ms k 1 C999\r\nb\r\nms k 1 C1000 E1001 c\r\nb\r\n", "EX\r\nHD c1001\r\n");
    client.exchange("gets k\r\n", "VALUE k 0 1 1001\r\nb\r\nEND\r\n");
    client.exchange("cas k 0 0 1 1001\r\n7\r\nma k E77 c v\r\n", "STORED\r\nVA 1 c77\r\n8\r\n");
    client.exchange("md k I E78\r\nmg k c\r\n", "HD\r\nHD c78 X W\r\n");
    client.exchange("mg new N0 E9 c\r\n", "HD c9 W\r\n");
}

#[test]
fn one_client_wins_the_right_to_refresh_a_stale_value() {
    for database in [memory(), memory_tree()] {
        let server = start(database);
        let mut client = server.connect();
        client.exchange_in_time("mg k N500 v t\r\nmg k v\r\n", {
            "VA 0 t500 W\r\n\r\nVA 0 Z\r\n\r\n"
        });
        client.exchange("ms k 1 T100\r\nx\r\nmg k v\r\n", "HD\r\nVA 1\r\nx\r\n");
        client
            .exchange("mg k R30\r\nmg k R200\r\nmg k R200 v\r\n", "HD\r\nHD W\r\nVA 1 Z\r\nx\r\n");
        client.exchange_in_time("md k I T500\r\nmg k t v\r\nmg k t v\r\n", {
            "HD\r\nVA 1 t500 X W\r\nx\r\nVA 1 t500 Z X\r\nx\r\n"
        });
        // Neither a touch nor an arithmetic command makes it fresh, a new value does.
        client.exchange("touch k 60\r\nmg k\r\n", "TOUCHED\r\nHD Z X\r\n");
        client.exchange("set k 0 0 1\r\ny\r\nmg k v\r\n", "STORED\r\nVA 1\r\ny\r\n");
    }
}

#[test]
fn a_late_value_is_stored_as_stale() {
    let server = start(memory());
    let mut client = server.connect();
    let first = number(&mut client, "ms k 1 c\r\na\r\n", 'c');
    client.exchange("ms k 1 T500\r\nb\r\n", "HD\r\n");
    client.exchange(format!("ms k 1 C{first}\r\nc\r\n"), "EX\r\n");
    client.exchange_in_time(&format!("ms k 1 C{first} I\r\nc\r\nmg k v t\r\n"), {
        "HD\r\nVA 1 t500 X W\r\nc\r\n"
    });
    client.exchange(format!("ms k 1 C{} I\r\nd\r\n", u64::MAX), "EX\r\n");
}

#[test]
fn a_stale_value_stays_stale_after_a_restart() {
    for name in ["casket.tch", "casket.tcb"] {
        let folder = tempfile::tempdir().unwrap();
        let server = start(named(folder.path(), name));
        let mut client = server.connect();
        client.exchange("set k 7 0 1\r\na\r\nms AAE= 1 b T1000\r\nb\r\n", "STORED\r\nHD\r\n");
        client.exchange("md k I\r\nmg AAE= b R2000\r\n", "HD\r\nHD W\r\n");
        drop(client);
        drop(server);
        let server = start(named(folder.path(), name));
        let mut client = server.connect();
        client.exchange("mg AAE= b R2000 k\r\n", "HD kAAE= b Z\r\n");
        client.exchange("mg k t v f\r\nmg k\r\n", "VA 1 t-1 f7 X W\r\na\r\nHD Z X\r\n");
        client.exchange("get k\r\n", "VALUE k 7 1\r\na\r\nEND\r\n");
    }
}

#[test]
fn binary_keys_are_returned_in_base64() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange("ms DQo= 1 b k\r\nx\r\nmg DQo= b k v\r\n", {
        "HD kDQo= b\r\nVA 1 kDQo= b\r\nx\r\n"
    });
    // Also if it was stored in another form: such a key would end the line.
    client.exchange(b"\xc8\x10\0\0\0\x02\0\0\0\x01\n\ny", b"\0");
    client.exchange("mg Cgo= b k v\r\n", "VA 1 kCgo= b\r\ny\r\n");
    let line = answer(&mut client, "me Cgo= b\r\n", "\r\n");
    assert!(line.starts_with("ME Cgo= exp=-1 "), "{line}");
    let mut keys: Vec<_> = answer(&mut client, "lru_crawler mgdump all\r\n", "EN\r\n")
        .lines()
        .map(str::to_owned)
        .collect();
    keys.sort();
    assert_eq!(keys, ["EN", "OK", "mg Cgo= b", "mg DQo= b"]);
}

#[test]
fn access_stats_are_returned_from_the_first_meta_command_on() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange("set k 0 0 1\r\nx\r\nget k\r\nmg k h\r\n", {
        "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\nHD h0\r\n"
    });
    client.exchange("mg k h\r\nset k 0 0 1\r\ny\r\nmg k h u\r\n", "HD h1\r\nSTORED\r\nHD h0\r\n");
    client.exchange("get k\r\nmg k h\r\n", "VALUE k 0 1\r\ny\r\nEND\r\nHD h1\r\n");
    client
        .exchange("set k 0 0 1\r\n9\r\ntouch k 0\r\nmg k h\r\n", "STORED\r\nTOUCHED\r\nHD h1\r\n");
    client.exchange("incr k 1\r\nmg k h u\r\n", "10\r\nHD h0\r\n");
    assert!(number(&mut client, "mg k l\r\n", 'l') < 60);
}

#[test]
fn a_meta_delete_can_remove_the_value_and_keep_the_record() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange("ms k 3 F5 T500\r\nabc\r\nmd k x\r\nmg k v f t\r\n", {
        "HD\r\nHD\r\nVA 0 f0 t-1\r\n\r\n"
    });
    client.exchange_in_time("md k x F7 T500\r\nmg k v f t\r\n", "HD\r\nVA 0 f7 t500\r\n\r\n");
}

#[test]
fn an_expiry_applies_to_an_incr_that_makes_the_value_longer() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange_in_time("ms k 1\r\n9\r\nma k T500 t v\r\nmg k t\r\n", {
        "HD\r\nVA 2 t500\r\n10\r\nHD t500\r\n"
    });
}

#[test]
fn all_keys_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), memory_tree(), hash(folder.path()), tree(folder.path())] {
        let server = start(database);
        let mut client = server.connect();
        client.exchange("set a%\u{e9} 5 0 3\r\nabc\r\n", "STORED\r\n");
        for key in 0..500 {
            client.exchange(format!("set {key} 0 0 1\r\nx\r\n"), "STORED\r\n");
        }
        for classes in ["all", "hash", "1", "2,1"] {
            let dump =
                answer(&mut client, &format!("lru_crawler metadump {classes}\r\n"), "END\r\n");
            assert_eq!(dump.lines().count(), 503);
            let line = dump.lines().find(|line| line.starts_with("key=a%25%C3%A9 ")).unwrap();
            let fields: Vec<&str> = line.split(' ').collect();
            assert_eq!([fields[1], fields[4], fields[5], fields[6], fields[7], fields[8]], {
                ["exp=-1", "fetch=no", "cls=1", "size=70", "flags=5", ""]
            });
            assert!(fields[2].starts_with("la=") && fields[3].starts_with("cas="), "{line}");
        }
        let dump = answer(&mut client, "lru_crawler mgdump all\r\n", "EN\r\n");
        assert_eq!(dump.lines().count(), 503);
        assert!(dump.contains("mg 499\r\n"), "{dump}");
        client.exchange("lru_crawler metadump 2\r\n", "OK\r\nEND\r\n");
        client.exchange("lru_crawler metadump x\r\n", "BADCLASS invalid class id\r\n");
        let dump = answer(&mut client, "stats cachedump 1 3\r\n", "END\r\n");
        assert_eq!(dump.lines().filter(|line| line.starts_with("ITEM ")).count(), 3);
    }
}

#[test]
fn a_list_over_the_limit_of_a_reply_is_refused() {
    let server = start_with(Config { reply_bytes_max: 1000, ..config() }, memory());
    let mut client = server.connect();
    for key in 0..100 {
        client.exchange(format!("set {key:03} 0 0 1\r\nx\r\n"), "STORED\r\n");
    }
    let line = answer(&mut client, "lru_crawler metadump all\r\n", "\r\n");
    assert!(line.starts_with("SERVER_ERROR out of memory"), "{line}");
    client.exchange("mn\r\n", "MN\r\n");
}

#[test]
fn a_value_over_the_limit_of_a_reply_can_be_described_and_touched() {
    let server = start_with(Config { reply_bytes_max: 1000, ..config() }, memory());
    let mut client = server.connect();
    client.exchange(format!("set k 0 0 2000\r\n{}\r\n", "v".repeat(2000)), "STORED\r\n");
    let line = answer(&mut client, "get k\r\n", "\r\n");
    assert!(line.starts_with("SERVER_ERROR out of memory"), "{line}");
    let line = answer(&mut client, "me k\r\n", "\r\n");
    assert!(line.starts_with("ME k "), "{line}");
    client.exchange("mg k s\r\n", "HD s2000\r\n");
    client.exchange("touch k 100\r\n", "TOUCHED\r\n");
}

#[test]
fn a_cap_on_bytes_evicts_as_memcached_does() {
    let folder = tempfile::tempdir().unwrap();
    for database in
        [memory(), memory_tree(), hash(folder.path()), tree(folder.path()), table(folder.path())]
    {
        let server = start(database);
        let mut client = server.connect();
        // Also a row of one column.
        let value = format!("v\0{}", "v".repeat(99_998));
        client.exchange("cache_memlimit 8\r\n", "OK\r\n");
        for key in 0..200 {
            client.exchange(format!("set {key} 0 0 100000\r\n{value}\r\n"), "STORED\r\n");
        }
        let records = server.stat_value("curr_items");
        // One record may exceed the cap until the next write.
        assert!((1..=84).contains(&records), "{records}");
        assert!(server.stat_value("evictions") >= 200 - records);
        assert_eq!(server.stat_value("limit_maxbytes"), 8 << 20);
        // Each shard of the database evicts in its own order, so single early records may stay.
        let mut remaining = |keys: std::ops::Range<u32>| {
            let is_there = |key: &u32| {
                client.send(format!("mg {key}\r\n").as_bytes());
                client.read(4) == b"HD\r\n"
            };
            keys.filter(is_there).count()
        };
        assert!(remaining(0..100) < remaining(100..200));
        let found = format!("VALUE 199 0 100000\r\n{value}\r\nEND\r\n");
        client.exchange("get 199\r\n", found);
        let value = format!("v\0{}", "v".repeat(9 << 20));
        let request = format!("set long 0 0 {}\r\n{value}\r\n", value.len());
        client.exchange(request, "SERVER_ERROR object too large for cache\r\n");
        client.exchange("cache_memlimit 7\r\n", {
            "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"
        });
        client.exchange("cache_memlimit 64 noreply\r\nmn\r\n", "MN\r\n");
    }
}

#[test]
fn shutdown_works_if_it_is_allowed() {
    let server = start(memory());
    server.connect().exchange("shutdown\r\n", "SERVER_ERROR: shutdown not enabled\r\n");
    let mut server = start_with(Config { shutdown_command: true, ..config() }, memory());
    let mut client = server.connect();
    client.exchange("shutdown x\r\n", "CLIENT_ERROR invalid shutdown mode\r\n");
    client.exchange("shutdown graceful\r\n", "");
    client.expect_close();
    server.join();
}

#[test]
fn stats_have_memcacheds_names() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange("set k 0 0 1\r\n5\r\nincr k 1\r\ndecr nope 1\r\n", {
        "STORED\r\n6\r\nNOT_FOUND\r\n"
    });
    client.exchange("touch k 0\r\ntouch nope 0\r\nget k nope\r\n", {
        "TOUCHED\r\nNOT_FOUND\r\nVALUE k 0 1\r\n6\r\nEND\r\n"
    });
    client.exchange("cas k 0 0 1 0\r\nx\r\ncas nope 0 0 1 1\r\nx\r\n", "EXISTS\r\nNOT_FOUND\r\n");
    for (name, figure) in [
        ("incr_hits", 1),
        ("decr_misses", 1),
        ("touch_hits", 1),
        ("touch_misses", 1),
        ("get_hits", 1),
        ("get_misses", 1),
        ("cas_badval", 1),
        ("cas_misses", 1),
        ("cas_hits", 0),
        ("get_expired", 0),
        ("get_flushed", 0),
        ("reclaimed", 0),
        ("rejected_connections", 0),
        ("idle_kicks", 0),
        ("store_too_large", 0),
        ("store_no_memory", 0),
    ] {
        assert_eq!(server.stat_value(name), figure, "{name}");
    }
    let items = answer(&mut client, "stats items\r\n", "END\r\n");
    assert!(items.starts_with("STAT items:1:number 1\r\n"), "{items}");
    let settings = answer(&mut client, "stats settings\r\n", "END\r\n");
    assert!(settings.contains("STAT shutdown_command no\r\n"), "{settings}");
    let sockets = answer(&mut client, "stats conns\r\n", "END\r\n");
    let address = client.stream.local_addr().unwrap();
    assert!(sockets.contains(&format!(":addr tcp:{address}\r\n")), "{sockets}");
    client.exchange("stats slabs\r\n", "STAT active_slabs 0\r\nSTAT total_malloced 0\r\nEND\r\n");
    client.exchange("stats sizes\r\n", "STAT sizes_status disabled\r\nEND\r\n");
    client.exchange("stats foo\r\nstats detail on\r\n", "ERROR\r\nOK\r\n");
}

#[test]
fn stats_are_counters_and_lines_of_three_words() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange("set a 0 0 1\r\n5\r\nset b 0 0 1\r\n5\r\n", "STORED\r\nSTORED\r\n");
    client.exchange("add a 0 0 1\r\n5\r\ndelete a\r\n", "NOT_STORED\r\nDELETED\r\n");
    assert_eq!(server.stat_value("total_items"), 2);
    assert_eq!(server.stat_value("curr_items"), 1);
    let stats = answer(&mut client, "stats\r\n", "END\r\n");
    for line in stats.lines().filter(|line| *line != "END") {
        assert_eq!(line.split(' ').count(), 3, "{line}");
    }
}

#[test]
fn comparisons_are_counted_in_every_protocol() {
    let server = start(memory());
    let mut client = server.connect();
    let first = number(&mut client, "ms k 1 c\r\na\r\n", 'c');
    client.exchange(format!("ms k 1 C{first}\r\nb\r\nms k 1 C{first}\r\nc\r\n"), "HD\r\nEX\r\n");
    client.exchange("ms nope 1 C1\r\nb\r\n", "NF\r\n");
    let number = number(&mut client, "mg k c\r\n", 'c');
    // The binary protocol's set with a cas number.
    let mut request = vec![0x80, 1, 0, 1, 8, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0];
    request.extend_from_slice(&number.to_be_bytes());
    request.extend_from_slice(b"\0\0\0\0\0\0\0\0kd");
    let mut binary = server.connect();
    binary.send(&request);
    assert_eq!(binary.read(24)[6..8], [0, 0]);
    let mut http = server.connect();
    let tag = answer(&mut http, "GET /k HTTP/1.1\r\nHost: localhost\r\n\r\n", "\r\n\r\nd");
    let tag = tag.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap().to_owned();
    for (key, tag) in [("k", tag.as_str()), ("k", tag.as_str()), ("nope", tag.as_str()), ("k", "*")]
    {
        let mut http = server.connect();
        http.send(
            format!(
                "PUT /{key} HTTP/1.1\r\nHost: localhost\r\nIf-Match: {tag}\r\nContent-Length: 1\r\n\r\ne"
            )
            .as_bytes(),
        );
        http.read_until(b"\r\n\r\n");
    }
    for (name, figure) in [("cas_hits", 3), ("cas_badval", 2), ("cas_misses", 2)] {
        assert_eq!(server.stat_value(name), figure, "{name}");
    }
}

#[test]
fn expired_records_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), memory_tree(), hash(folder.path()), tree(folder.path())] {
        let server = start(database);
        let mut client = server.connect();
        client.exchange("set gone 0 -1 1\r\nx\r\nset k 0 0 1\r\nx\r\n", "STORED\r\nSTORED\r\n");
        let before = server.stat_value("get_expired") + server.stat_value("reclaimed");
        client.exchange("get gone nope k\r\n", "VALUE k 0 1\r\nx\r\nEND\r\n");
        // Either the read met it, or an earlier write reclaimed its space.
        let after = server.stat_value("get_expired") + server.stat_value("reclaimed");
        assert!(after == before + 1 || before == 1, "{before} {after}");
        assert_eq!(server.stat_value("get_misses"), 2);
    }
}

#[test]
fn refused_values_and_connections_are_counted() {
    let config = Config { request_bytes_max: 1000, connections_max: 1, ..config() };
    let server = start_with(config, memory());
    let mut client = server.connect();
    client.exchange("mn\r\n", "MN\r\n");
    let mut refused = server.connect();
    assert!(!refused.read_to_end().is_empty());
    let figure = |client: &mut Client, name: &str| {
        let stats = answer(client, "stats\r\n", "END\r\n");
        let line = format!("STAT {name} ");
        let line = stats.lines().find_map(|text| text.strip_prefix(&line)).unwrap_or_default();
        line.parse::<u64>().unwrap()
    };
    assert_eq!(figure(&mut client, "rejected_connections"), 1);
    client.exchange("set k 0 0 2000\r\n", "SERVER_ERROR object too large for cache\r\n");
    client.expect_close();
    drop(client);
    let mut admitted = None;
    support::wait_until(|| {
        let mut client = server.connect();
        client.send(b"mn\r\n");
        let mut answer = [0; 4];
        let is_admitted = client.stream.read_exact(&mut answer).is_ok() && answer == *b"MN\r\n";
        admitted = is_admitted.then_some(client);
        is_admitted
    });
    assert_eq!(figure(&mut admitted.unwrap(), "store_too_large"), 1);
}

#[test]
fn flags_and_expiry_are_ignored_if_configured() {
    let config = Config { dialect: Dialect::TokyoTyrant, ignores_expiry: true, ..config() };
    let server = start_with(config, memory());
    let mut client = server.connect();
    client.exchange("set a 7 -1 1\r\nv\r\n", "STORED\r\n");
    client.exchange("add b 7 -1 1\r\nv\r\n", "STORED\r\n");
    client.exchange("replace b 7 -1 1\r\nw\r\n", "STORED\r\n");
    client.exchange("touch a -1\r\n", "TOUCHED\r\n");
    client.exchange("gat -1 a\r\n", "VALUE a 0 1\r\nv\r\nEND\r\n");
    client.exchange("ms c 1 T-1 F7\r\nx\r\n", "HD\r\n");
    client.exchange("mg c f t T-1\r\n", "HD f0 t-1\r\n");
    let expected = "VALUE a 0 1\r\nv\r\nVALUE b 0 1\r\nw\r\nVALUE c 0 1\r\nx\r\nEND\r\n";
    client.exchange("get a b c\r\n", expected);
}
