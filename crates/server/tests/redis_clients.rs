//! Redis's protocol: the list of connections, and what monitors and libraries ask of a server.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use server::Config;
use std::collections::BTreeMap;
use std::time::Duration;
use support::{
    Client, Running, choose_version_three, config, following, hash, is_following, memory,
    redis as command, start, start_master, start_with, talk, tree, users_with, wait_until,
};

/// Fields of a line of `CLIENT LIST` in their order, as Redis has them.
const FIELDS: &str = "id addr laddr fd name age idle flags db sub psub ssub multi qbuf qbuf-free \
                      argv-mem multi-mem rbs rbp obl oll omem tot-mem events cmd user redir resp \
                      lib-name lib-ver";

/// Returns the string of a reply.
fn string(client: &mut Client) -> String {
    let head = String::from_utf8(client.read_until(b"\r\n")).unwrap();
    let bytes: usize = head.trim_end()[1..].parse().unwrap_or_else(|_| panic!("{head}"));
    let text = String::from_utf8(client.read(bytes + 2)).unwrap();
    text.trim_end_matches("\r\n").trim_start_matches("txt:").to_owned()
}

/// Sends a command, and returns the string of its reply.
fn ask(client: &mut Client, line: &str) -> String {
    client.send(&command(line));
    string(client)
}

/// Returns the number of a reply.
fn number(client: &mut Client, line: &str) -> i64 {
    client.send(&command(line));
    let reply = String::from_utf8(client.read_until(b"\r\n")).unwrap();
    let number = reply.trim_end().strip_prefix(':');
    number.unwrap_or_else(|| panic!("{reply}")).parse().unwrap()
}

fn fields(line: &str) -> BTreeMap<&str, &str> {
    line.split(' ').map(|field| field.split_once('=').unwrap()).collect()
}

/// Returns the line of the list whose field has this value, if there is one.
fn line_with(client: &mut Client, field: &str, value: &str) -> Option<String> {
    let lines = ask(client, "CLIENT LIST");
    let is_one = |line: &&str| fields(line).get(field) == Some(&value);
    lines.lines().find(is_one).map(str::to_owned)
}

#[test]
fn connections_of_every_protocol_are_listed() {
    let server = start_with(Config { threads: 3, ..config() }, memory());
    let (mut one, mut memcached, mut listener) =
        (server.connect(), server.connect(), server.connect());
    memcached.exchange("set a 0 0 1\r\nv\r\n", "STORED\r\n");
    talk(&mut listener, &[("SUBSCRIBE a b", "*3|$9|subscribe|$1|a|:1|*3|$9|subscribe|$1|b|:2")]);
    talk(
        &mut one,
        &[
            ("CLIENT SETNAME me", "+OK"),
            ("CLIENT SETINFO lib-name redis-py", "+OK"),
            ("CLIENT SETINFO LIB-VER 5.0", "+OK"),
            ("CLIENT SETINFO LIB-FOO 5.0", "-ERR Unrecognized option 'LIB-FOO'"),
        ],
    );
    let id = number(&mut one, "CLIENT ID").to_string();
    let own = ask(&mut one, "CLIENT INFO");
    let names: Vec<&str> =
        own.trim_end().split(' ').map(|field| field.split_once('=').unwrap().0).collect();
    assert_eq!(names, FIELDS.split(' ').collect::<Vec<_>>());
    let own = fields(own.trim_end());
    assert_eq!(own["addr"], one.stream.local_addr().unwrap().to_string());
    assert_eq!(own["laddr"], server.address.to_string());
    for (field, value) in [
        ("id", &*id),
        ("name", "me"),
        ("flags", "N"),
        ("cmd", "client|info"),
        ("multi", "-1"),
        ("user", "default"),
        ("resp", "2"),
        ("lib-name", "redis-py"),
        ("lib-ver", "5.0"),
    ] {
        assert_eq!(own[field], value, "{field}");
    }
    let of = memcached.stream.local_addr().unwrap().to_string();
    let line = line_with(&mut one, "addr", &of).unwrap();
    assert_eq!((fields(&line)["cmd"], fields(&line)["flags"]), ("set", "N"));
    let line = line_with(&mut one, "sub", "2").unwrap();
    assert_eq!((fields(&line)["cmd"], fields(&line)["flags"]), ("subscribe", "P"));
    let only = ask(&mut one, "CLIENT LIST TYPE pubsub");
    assert_eq!((only.lines().count(), fields(only.trim_end())["sub"]), (1, "2"));
    let only = ask(&mut one, &format!("CLIENT LIST ID {id} 99999"));
    assert_eq!((only.lines().count(), fields(only.trim_end())["cmd"]), (1, "client|list"));
    // A line shows the state after the last request.
    talk(&mut listener, &[("UNSUBSCRIBE b", "*3|$11|unsubscribe|$1|b|:1")]);
    wait_until(|| line_with(&mut one, "sub", "1").is_some());
    drop(listener);
    wait_until(|| line_with(&mut one, "flags", "P").is_none());
    talk(&mut one, &[("MULTI", "+OK"), ("CLIENT ID", "+QUEUED")]);
    let mut other = server.connect();
    choose_version_three(&mut other);
    let line = line_with(&mut other, "id", &id).unwrap();
    assert_eq!((fields(&line)["multi"], fields(&line)["flags"]), ("1", "x"));
    talk(
        &mut one,
        &[("EXEC", &format!("*1|:{id}")), ("RESET", "+RESET"), ("CLIENT GETNAME", "$-1")],
    );
}

#[test]
fn connections_are_ended_by_what_is_known_of_them() {
    let server = start_with(Config { threads: 2, ..config() }, memory());
    let mut one = server.connect();
    let address = |client: &Client| client.stream.local_addr().unwrap().to_string();
    let own = address(&one);
    let mut memcached = server.connect();
    memcached.expect_open();
    talk(&mut one, &[(&*format!("CLIENT KILL {}", address(&memcached)), "+OK")]);
    memcached.expect_close();
    let mut other = server.connect();
    let id = number(&mut other, "CLIENT ID");
    assert_eq!(number(&mut one, &format!("CLIENT KILL ID {id} TYPE pubsub")), 0);
    assert_eq!(number(&mut one, &format!("CLIENT KILL ID {id} TYPE normal USER default")), 1);
    // It is not there any more, as in Redis, though another thread closes it.
    assert!(line_with(&mut one, "id", &id.to_string()).is_none());
    assert_eq!(number(&mut one, &format!("CLIENT KILL ID {id}")), 0);
    other.expect_close();
    let mut listener = server.connect();
    talk(&mut listener, &[("SUBSCRIBE a", "*3|$9|subscribe|$1|a|:1")]);
    wait_until(|| line_with(&mut one, "flags", "P").is_some());
    assert_eq!(number(&mut one, "CLIENT KILL TYPE pubsub"), 1);
    listener.expect_close();
    wait_until(|| number(&mut one, "PUBLISH a m") == 0);
    talk(
        &mut one,
        &[
            (&*format!("CLIENT KILL ADDR {own}"), ":0"),
            ("CLIENT KILL 1.2.3.4:5", "-ERR No such client"),
            ("CLIENT KILL ID 0", "-ERR client-id should be greater than 0"),
            ("CLIENT KILL USER absent", "-ERR No such user 'absent'"),
            ("CLIENT KILL TYPE foo", "-ERR Unknown client type 'foo'"),
            ("CLIENT KILL SKIPME maybe", "-ERR syntax error"),
            // The reply is sent before the own connection ends.
            (&*format!("CLIENT KILL ADDR {own} SKIPME no"), ":1"),
        ],
    );
    one.expect_close();
}

#[test]
fn only_an_administrator_sees_and_ends_the_connections_of_others() {
    let users = users_with(&[("root", &["admin"]), ("ann", &["read"])]);
    let server = start_with(Config { users: Some(users), ..config() }, memory());
    let (mut root, mut ann) = (server.connect(), server.connect());
    talk(&mut root, &[("AUTH root secret", "+OK")]);
    talk(&mut ann, &[("AUTH ann secret", "+OK")]);
    let refused = "-NOPERM this user has no right to do that, or not with this key";
    for line in [
        "CLIENT LIST",
        "CLIENT KILL TYPE normal",
        "CLIENT UNBLOCK 1",
        "CLIENT PAUSE 1",
        "CLIENT UNPAUSE",
        "SLOWLOG GET",
        "CONFIG RESETSTAT",
    ] {
        talk(&mut ann, &[(line, refused)]);
    }
    assert_eq!(fields(ask(&mut ann, "CLIENT INFO").trim_end())["user"], "ann");
    let line = line_with(&mut root, "user", "ann").unwrap();
    assert_eq!(fields(&line)["cmd"], "client|info");
    assert_eq!(number(&mut root, "CLIENT KILL USER ann"), 1);
    ann.expect_close();
    talk(&mut root, &[("CLIENT KILL USER absent", "-ERR No such user 'absent'")]);
}

#[test]
fn a_client_gets_the_replies_that_it_wants() {
    let server = start(memory());
    let off = ["CLIENT REPLY OFF", "PING", "NOSUCH", "SET a v"];
    let skip = ["CLIENT REPLY SKIP", "GET a", "CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "GET a"];
    for (lines, reply) in [
        ([&off[..], &["CLIENT REPLY ON", "GET a"]].concat(), "+OK|$1|v"),
        ([&skip[..], &["GET a"]].concat(), "$1|v"),
        ([&off[..], &["CLIENT REPLY SKIP", "RESET", "GET a"]].concat(), "+RESET|$1|v"),
        (vec!["CLIENT REPLY SKIP", "CLIENT REPLY ON"], "+OK"),
        (vec!["CLIENT REPLY SKIP", "CLIENT REPLY FOO", "GET a"], "$1|v"),
        // EXEC is executed by another thread.
        (
            vec!["MULTI", "CLIENT ID", "CLIENT REPLY OFF"],
            "+OK|+QUEUED|-ERR CLIENT REPLY is not \
          supported within MULTI: send it before",
        ),
        (
            vec!["MULTI", "GET a", "EXEC", "CLIENT REPLY SKIP", "EXISTS a a", "GET a"],
            "+OK|+QUEUED|*1|$1|v|$1|v",
        ),
        (vec!["CLIENT REPLY OFF", "SUBSCRIBE c", "CLIENT REPLY ON"], "*3|$9|subscribe|$1|c|:1"),
    ] {
        let mut client = server.connect();
        client.send(&lines.iter().flat_map(|line| command(line)).collect::<Vec<u8>>());
        client.expect(reply.replace('|', "\r\n") + "\r\n");
        client.expect_silence(&server);
    }
}

#[test]
fn the_encoding_and_the_bytes_of_a_record_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(45);
    for (database, bytes) in [(memory(), 64), (hash(folder.path()), 24), (tree(folder.path()), 24)]
    {
        let server = start(database);
        let mut client = server.connect();
        talk(
            &mut client,
            &[
                ("MSET i -5 e 007", "+OK"),
                (&*format!("SET r {long}"), "+OK"),
                ("OBJECT ENCODING i", "$3|int"),
                ("OBJECT ENCODING e", "$6|embstr"),
                ("OBJECT ENCODING r", "$3|raw"),
                ("OBJECT ENCODING none", "$-1"),
                ("OBJECT REFCOUNT e", ":1"),
                ("OBJECT FREQ none", "$-1"),
                ("OBJECT FOO", "-ERR unknown subcommand 'FOO'. Try OBJECT HELP."),
                (
                    "OBJECT IDLETIME e",
                    "-ERR OBJECT IDLETIME is not supported: times of reads are not kept",
                ),
                ("MEMORY USAGE none", "$-1"),
                ("MEMORY USAGE e SAMPLES", "-ERR syntax error"),
                ("MEMORY USAGE e SAMPLES 0", &*format!(":{bytes}")),
            ],
        );
        let (short, longer) = (bytes, number(&mut client, "MEMORY USAGE r"));
        assert!((40..=56).contains(&(longer - short)), "{short} {longer}");
        client.send(&command("OBJECT FREQ e"));
        assert!(client.read_until(b"\r\n").starts_with(b"-ERR An LFU maxmemory policy is not"));
    }
}

#[test]
fn every_command_with_parts_has_help() {
    let server = start(memory());
    let mut client = server.connect();
    for name in ["CLIENT", "COMMAND", "CONFIG", "LATENCY", "MEMORY", "OBJECT", "PUBSUB", "SLOWLOG"]
    {
        client.send(&command(&format!("{name} HELP")));
        let head = String::from_utf8(client.read_until(b"\r\n")).unwrap();
        let lines: usize = head.trim_end().strip_prefix('*').unwrap().parse().unwrap();
        let text: String =
            (0..lines).map(|_| String::from_utf8(client.read_until(b"\r\n")).unwrap()).collect();
        let first = format!("+{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n");
        assert!(text.starts_with(&first), "{text}");
        assert!(text.ends_with("+HELP\r\n+    Print this help.\r\n"), "{text}");
    }
}

#[test]
fn sections_of_the_state_are_shown_alone_or_together() {
    let server = start(memory());
    let mut client = server.connect();
    talk(&mut client, &[("SET a v", "+OK"), ("GET a", "$1|v"), ("GET none", "$-1")]);
    let titles = |text: &str| {
        let titles = text.lines().filter_map(|line| line.strip_prefix("# "));
        titles.map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    let all = ask(&mut client, "INFO");
    assert_eq!(
        titles(&all),
        "Server Clients Memory Persistence Stats Replication CPU Modules Errorstats Cluster Keyspace"
    );
    for line in [
        "redis_version:7.2.4",
        "role:master",
        "connected_clients:1",
        "blocked_clients:0",
        "maxmemory_policy:noeviction",
        "keyspace_hits:1",
        "keyspace_misses:1",
        "total_commands_processed:3",
        "connected_slaves:0",
        "db0:keys=1,expires=0,avg_ttl=0",
    ] {
        assert!(all.lines().any(|other| other == line), "{line} in {all}");
    }
    assert_eq!(ask(&mut client, "INFO cluster"), "# Cluster\r\ncluster_enabled:0");
    assert_eq!(titles(&ask(&mut client, "INFO KEYSPACE server")), "Server Keyspace");
    assert_eq!(ask(&mut client, "INFO nosuch"), "");
    let everything = ask(&mut client, "INFO everything");
    assert!(titles(&everything).contains("Commandstats"), "{everything}");
    assert!(everything.contains("\r\ncmdstat_get:calls=2\r\n"), "{everything}");
    talk(&mut client, &[("CONFIG RESETSTAT", "+OK")]);
    let after = ask(&mut client, "INFO all");
    assert!(after.contains("keyspace_hits:0\r\n") && !after.contains("cmdstat_get"), "{after}");
}

#[test]
fn slow_requests_are_shown_until_they_are_forgotten() {
    let server =
        start_with(Config { slow_log_threshold: Some(Duration::ZERO), ..config() }, memory());
    let mut client = server.connect();
    talk(&mut client, &[("SET key v", "+OK")]);
    client.send(&command("SLOWLOG GET 1"));
    let reply = String::from_utf8(client.read_until(b"key\r\n")).unwrap();
    assert!(reply.starts_with("*1\r\n*6\r\n:0\r\n:"), "{reply}");
    assert!(reply.ends_with("*2\r\n$3\r\nset\r\n$3\r\nkey\r\n"), "{reply}");
    assert_eq!(string(&mut client), client.stream.local_addr().unwrap().to_string());
    assert_eq!(string(&mut client), "");
    assert!(number(&mut client, "SLOWLOG LEN") >= 2);
    talk(&mut client, &[("SLOWLOG RESET", "+OK")]);
    assert_eq!(number(&mut client, "SLOWLOG LEN"), 1, "the reset itself");
    talk(
        &mut client,
        &[
            ("SLOWLOG GET x", "-ERR count should be greater than or equal to -1"),
            ("LATENCY LATEST", "*0"),
            ("LATENCY HISTORY command", "*0"),
            ("LATENCY RESET", ":0"),
        ],
    );
}

#[test]
fn a_wait_without_replicas_ends_in_time_and_stops_no_other_client() {
    let server = start(memory());
    let (mut one, mut other) = (server.connect(), server.connect());
    talk(
        &mut one,
        &[
            ("WAIT 0 0", ":0"),
            ("WAIT 1 30", ":0"),
            ("WAIT x 0", "-ERR value is not an integer or out of range"),
            ("WAIT 1 -1", "-ERR timeout is negative"),
            ("MULTI", "+OK"),
            ("WAIT 1 0", "+QUEUED"),
            ("EXEC", "*1|:0"),
        ],
    );
    one.send(&[command("WAIT 1 0"), command("PING")].concat());
    wait_until(|| ask(&mut other, "INFO clients").contains("blocked_clients:1\r\n"));
    let line = line_with(&mut other, "flags", "b").unwrap();
    // A client that leaves is noticed.
    drop(one);
    wait_until(|| ask(&mut other, "INFO clients").contains("connected_clients:1\r\n"));
    let id = fields(&line)["id"].to_owned();
    assert_eq!(ask(&mut other, &format!("CLIENT LIST ID {id}")), "");
    // Another client ends a wait.
    let mut waiting = server.connect();
    for (reason, reply) in
        [("", ":0\r\n"), (" error", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n")]
    {
        waiting.send(&command("WAIT 1 0"));
        wait_until(|| line_with(&mut other, "flags", "b").is_some());
        let line = line_with(&mut other, "flags", "b").unwrap();
        let unblock = format!("CLIENT UNBLOCK {}{reason}", fields(&line)["id"]);
        assert_eq!(number(&mut other, &unblock), 1);
        waiting.expect(reply);
        assert_eq!(number(&mut other, &unblock), 0);
    }
    drop(waiting);
    // One that waits can be ended, and so can the server.
    let (mut third, mut fourth) = (server.connect(), server.connect());
    third.send(&command("WAIT 1 0"));
    wait_until(|| line_with(&mut other, "flags", "b").is_some());
    let line = line_with(&mut other, "flags", "b").unwrap();
    assert_eq!(number(&mut other, &format!("CLIENT KILL ID {}", fields(&line)["id"])), 1);
    third.expect_close();
    fourth.send(&command("WAIT 1 0"));
    wait_until(|| line_with(&mut other, "flags", "b").is_some());
    server.begin_stop();
    fourth.expect(":0\r\n");
}

fn replica_of(master: &Running, folder: &std::path::Path) -> Running {
    let replica = start_with(following(2, folder, master.address), hash(folder));
    wait_until(|| is_following(&replica));
    replica
}

#[test]
fn replicas_are_waited_for_and_described() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (server, _database) = start_master(folders[0].path());
    let mut client = server.connect();
    talk(&mut client, &[("SET a v", "+OK"), ("WAIT 1 10", ":0")]);
    let replica = replica_of(&server, folders[1].path());
    talk(&mut client, &[("SET b v", "+OK"), ("WAIT 1 0", ":1")]);
    talk(&mut replica.connect(), &[("GET b", "$1|v")]);
    let text = ask(&mut client, "INFO replication");
    assert!(text.contains("role:master\r\n") && text.contains("connected_slaves:1\r\n"), "{text}");
    let line = text.lines().find_map(|line| line.strip_prefix("slave0:")).unwrap();
    let port = line.strip_prefix("ip=127.0.0.1,port=").unwrap().split(',').next().unwrap();
    assert!(line.contains(",state=online,offset="), "{line}");
    client.send(&command("ROLE"));
    client.expect("*3\r\n$6\r\nmaster\r\n");
    client.read_until(b"\r\n");
    client.expect("*1\r\n*3\r\n$9\r\n127.0.0.1\r\n");
    assert_eq!(string(&mut client), port);
    string(&mut client);
    let mut other = replica.connect();
    other.send(&command("ROLE"));
    other.expect("*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n");
    other.expect(format!(":{}\r\n$9\r\nconnected\r\n", server.address.port()));
    assert!(other.read_until(b"\r\n").len() > 10, "the offset is a time stamp");
    let text = ask(&mut other, "INFO replication");
    assert!(
        text.contains("role:slave\r\n") && text.contains("master_link_status:up\r\n"),
        "{text}"
    );
    other.send(&command("WAIT 1 0"));
    assert!(other.read_until(b"\r\n").starts_with(b"-ERR WAIT cannot be used with replica"));
}

#[test]
fn after_an_array_every_line_is_a_command() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange(
        "set a 0 0 1\r\nv\r\nPING\r\nget a\r\n",
        "STORED\r\n+PONG\r\nVALUE a 0 1\r\nv\r\nEND\r\n",
    );
    client.exchange(command("PING"), "+PONG\r\n");
    let array = String::from_utf8(command("GET k")).unwrap();
    client.exchange(
        format!(
            "set k 'a b'\r\nget k\r\nSET k \"\\x41\\n\\\"\"\n{array}\r\n   \r\nset k pl\"a in\" EX 100\r\n\
             GET k\r\nTTL k\r\nget a b\r\nGET / HTTP/1.1\r\n''\r\n"
        ),
        "+OK\r\n$3\r\na b\r\n+OK\r\n$3\r\nA\n\"\r\n+OK\r\n$6\r\npla in\r\n:100\r\n\
         -ERR wrong number of arguments for 'get' command\r\n\
         -ERR wrong number of arguments for 'get' command\r\n\
         -ERR unknown command '', with args beginning with: \r\n",
    );
    // It stays so within and after a transaction, which other threads execute, and a reset.
    client.exchange(
        "multi\r\nset q 'x y'\r\nget q\r\nexec\r\nreset\r\nget q\r\n",
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n$3\r\nx y\r\n+RESET\r\n$3\r\nx y\r\n",
    );
    // Binary protocols are known by their first byte.
    client.exchange(b"\xc8\x30\0\0\0\x01q", b"\0\0\0\0\x03x y");
    for (lines, reply) in [
        ("set k 'a\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        ("set k \"a\"b\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        ("POST / HTTP/1.1\r\n", ""),
        ("Host: localhost\r\n", ""),
        ("*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
    ] {
        let mut client = server.connect();
        client.exchange(command("PING"), "+PONG\r\n");
        client.send(lines.as_bytes());
        client.expect(reply);
        client.expect_close();
    }
}

#[test]
fn a_line_with_quotes_needs_a_login_too() {
    let users = users_with(&[("ann", &["read"])]);
    let server = start_with(Config { users: Some(users), ..config() }, memory());
    let mut client = server.connect();
    client.exchange(command("PING"), "-NOAUTH Authentication required.\r\n");
    client.exchange(
        "get 'a'\r\n''\r\nset 'a' b\r\nauth 'ann' \"secret\"\r\nget 'a'\r\nset 'a' b\r\n",
        "-NOAUTH Authentication required.\r\n-NOAUTH Authentication required.\r\n\
         -NOAUTH Authentication required.\r\n+OK\r\n$-1\r\n\
         -NOPERM this user has no right to do that, or not with this key\r\n",
    );
    let mut client = server.connect();
    client.exchange(command("PING"), "-NOAUTH Authentication required.\r\n");
    client.exchange("get 'a\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n");
    client.expect_close();
}

#[test]
fn a_line_that_comes_byte_by_byte_is_a_command_too() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange(command("PING"), "+PONG\r\n");
    for byte in b"set key 'some words'\r\nget key\r\n" {
        client.send(&[*byte]);
    }
    client.expect("+OK\r\n$10\r\nsome words\r\n");
}

#[test]
fn a_pause_delays_requests_of_every_protocol_until_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), tree(folder.path())] {
        let server = start(database);
        let (mut one, mut redis, mut memcached, mut http) =
            (server.connect(), server.connect(), server.connect(), server.connect());
        talk(&mut one, &[("SET a v", "+OK"), ("CLIENT PAUSE 1000000 WRITE", "+OK")]);
        redis.send(&[command("GET a"), command("SET a w"), command("GET a")].concat());
        redis.expect("$1\r\nv\r\n");
        memcached.send(b"get a\r\nset b 0 0 1\r\nx\r\n");
        memcached.expect("VALUE a 0 1\r\nv\r\nEND\r\n");
        http.send(b"PUT /c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\ny");
        let mut several = server.connect();
        several.send(&command("MSET d 1 e 2"));
        let mut transaction = server.connect();
        talk(&mut transaction, &[("MULTI", "+OK")]);
        transaction.send(&[command("PING"), command("EXEC")].concat());
        transaction.expect("+QUEUED\r\n");
        for client in [&mut redis, &mut several, &mut transaction] {
            // Within a pause of changes, another connection is served.
            talk(&mut one, &[("GET a", "$1|v"), ("MGET b c d e", "*4|$-1|$-1|$-1|$-1")]);
            client.stream.set_nonblocking(true).unwrap();
            let read = std::io::Read::read(&mut client.stream, &mut [0]);
            assert!(read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
            client.stream.set_nonblocking(false).unwrap();
        }
        talk(&mut one, &[("CLIENT UNPAUSE", "+OK")]);
        redis.expect("+OK\r\n$1\r\nw\r\n");
        memcached.expect("STORED\r\n");
        http.expect_response("201 Created", "Created\n");
        several.expect("+OK\r\n");
        transaction.expect("*1\r\n+PONG\r\n");
        // One of all requests ends in time, or by a command about connections.
        talk(&mut one, &[("CLIENT PAUSE 30", "+OK"), ("GET a", "$1|w")]);
        talk(&mut one, &[("CLIENT PAUSE 1000000 ALL", "+OK"), ("CLIENT GETREDIR", ":-1")]);
        redis.send(b"get 'a'\r\n");
        talk(&mut one, &[("CLIENT UNPAUSE", "+OK")]);
        redis.expect("$1\r\nw\r\n");
        talk(
            &mut one,
            &[
                ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range"),
                ("CLIENT PAUSE -1", "-ERR timeout is negative"),
                ("CLIENT PAUSE 1 FOO", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
            ],
        );
        // A client logs in and leaves in a pause.
        let mut two = server.connect();
        talk(&mut one, &[("CLIENT PAUSE 1000000", "+OK")]);
        talk(&mut two, &[("RESET", "+RESET"), ("QUIT", "+OK")]);
        // One that has said all it wants to say gets its replies.
        let mut two = server.connect();
        two.send(&command("GET a"));
        two.stream.shutdown(std::net::Shutdown::Write).unwrap();
        // It may be asked several times whether the pause is over.
        std::thread::sleep(Duration::from_millis(30));
        talk(&mut one, &[("CLIENT UNPAUSE", "+OK")]);
        two.expect("$1\r\nw\r\n");
        // A transaction that begins a pause does so once, and ends.
        let lines = ["MULTI", "CLIENT PAUSE 1000000 WRITE", "SET a x", "EXEC", "CLIENT UNPAUSE"];
        let two = &mut server.connect();
        two.send(&lines.iter().flat_map(|line| command(line)).collect::<Vec<u8>>());
        two.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n+OK\r\n");
        talk(&mut one, &[("SET a w", "+OK")]);
        // The server stops in a pause, too.
        talk(&mut one, &[("CLIENT PAUSE 1000000", "+OK")]);
        redis.send(b"get 'a'\r\n");
        server.begin_stop();
        redis.expect("$1\r\nw\r\n");
    }
}
