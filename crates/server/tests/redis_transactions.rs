//! Redis's protocol: commands of several records, and transactions.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use server::Config;
use std::sync::atomic::{AtomicBool, Ordering};
use support::{
    Client, Running, choose_version_three, config, fixed, hash, memory, memory_tree,
    redis as command, start, start_with, table, talk, tree, users,
};

/// Returns the first line of the reply to a command.
fn first_line(client: &mut Client, line: &str) -> String {
    client.send(&command(line));
    String::from_utf8(client.read_until(b"\r\n")).unwrap()
}

/// Returns a server for each kind of database that stores plain values.
fn servers(folder: &std::path::Path) -> [Running; 4] {
    [memory(), memory_tree(), hash(folder), tree(folder)].map(start)
}

#[test]
fn commands_of_several_records_make_all_of_their_changes() {
    let folder = tempfile::tempdir().unwrap();
    for server in servers(folder.path()) {
        talk(
            &mut server.connect(),
            &[
                ("MSETNX a 1 b 2", ":1"),
                ("MSETNX b 3 c 4", ":0"),
                ("MGET a b c", "*3|$1|1|$1|2|$-1"),
                ("EXPIRE a 100", ":1"),
                ("RENAME a d", "+OK"),
                ("TTL d", ":100"),
                ("EXISTS a", ":0"),
                ("RENAME a d", "-ERR no such key"),
                ("RENAME d d", "+OK"),
                ("RENAMENX d d", ":0"),
                ("RENAMENX d b", ":0"),
                ("RENAMENX d e", ":1"),
                ("COPY e b", ":0"),
                ("COPY e b REPLACE", ":1"),
                ("TTL b", ":100"),
                ("COPY e f DB 0", ":1"),
                ("COPY e f DB 1", "-ERR DB index is out of range"),
                ("COPY e e", "-ERR source and destination objects are the same"),
                ("COPY none g", ":0"),
                ("COPY e f FOO", "-ERR syntax error"),
                ("MSETNX a", "-ERR wrong number of arguments for 'msetnx' command"),
                ("RANDOMKEY x", "-ERR wrong number of arguments for 'randomkey' command"),
            ],
        );
        let mut client = server.connect();
        for _ in 0..20 {
            assert_eq!(first_line(&mut client, "RANDOMKEY"), "$1\r\n");
            let key = client.read_until(b"\r\n");
            assert!([&b"b\r\n"[..], b"e\r\n", b"f\r\n"].contains(&&*key), "{key:?}");
        }
        talk(&mut client, &[("FLUSHALL", "+OK"), ("RANDOMKEY", "$-1")]);
    }
}

#[test]
fn queued_commands_are_executed_together() {
    let folder = tempfile::tempdir().unwrap();
    for server in servers(folder.path()) {
        let mut client = server.connect();
        talk(
            &mut client,
            &[
                ("EXEC", "-ERR EXEC without MULTI"),
                ("DISCARD", "-ERR DISCARD without MULTI"),
                ("SET s text", "+OK"),
                ("MULTI", "+OK"),
                ("MULTI", "-ERR MULTI calls can not be nested"),
                ("WATCH a", "-ERR WATCH inside MULTI is not allowed"),
                ("SET a 1", "+QUEUED"),
                ("INCR a", "+QUEUED"),
                ("GET a", "+QUEUED"),
                ("INCR s", "+QUEUED"),
                ("DEL none s", "+QUEUED"),
                ("APPEND a x", "+QUEUED"),
                ("PING", "+QUEUED"),
                ("COPY a b", "+QUEUED"),
                ("SET e v PX 50000", "+QUEUED"),
            ],
        );
        talk(&mut server.connect(), &[("GET a", "$-1"), ("EXISTS s", ":1")]);
        let error = "-ERR value is not an integer or out of range";
        talk(
            &mut client,
            &[
                ("EXEC", &format!("*9|+OK|:2|$1|2|{error}|:1|:2|+PONG|:1|+OK")),
                ("MGET a b s", "*3|$2|2x|$2|2x|$-1"),
                ("TTL e", ":50"),
                ("MULTI", "+OK"),
                ("SET a 2", "+QUEUED"),
                ("DISCARD", "+OK"),
                ("GET a", "$2|2x"),
                ("MULTI", "+OK"),
                ("EXEC", "*0"),
                ("MULTI", "+OK"),
                ("SET a", "-ERR wrong number of arguments for 'set' command"),
                ("SET a 3", "+QUEUED"),
                ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
                ("MULTI", "+OK"),
                ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: "),
                ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
                ("GET a", "$2|2x"),
                ("MULTI", "+OK"),
                ("RESET", "+RESET"),
                ("EXEC", "-ERR EXEC without MULTI"),
            ],
        );
    }
}

#[test]
fn a_watched_record_that_changes_prevents_the_execution() {
    let folder = tempfile::tempdir().unwrap();
    for server in servers(folder.path()) {
        let (mut client, mut other) = (server.connect(), server.connect());
        let changes = ["SET k v", "SET k v", "APPEND k w", "EXPIRE k 1000", "DEL k", "SET k w"];
        for change in changes {
            talk(&mut client, &[("WATCH other k", "+OK"), ("MULTI", "+OK")]);
            first_line(&mut other, change);
            talk(&mut client, &[("SET done 1", "+QUEUED"), ("EXEC", "*-1")]);
            // The records are watched no longer.
            talk(&mut client, &[("MULTI", "+OK"), ("EXISTS done", "+QUEUED"), ("EXEC", "*1|:0")]);
        }
        talk(&mut client, &[("WATCH k", "+OK"), ("UNWATCH", "+OK"), ("MULTI", "+OK")]);
        talk(&mut other, &[("SET k x", "+OK")]);
        talk(&mut client, &[("GET k", "+QUEUED"), ("EXEC", "*1|$1|x")]);
        talk(&mut client, &[("WATCH k", "+OK"), ("MULTI", "+OK"), ("DISCARD", "+OK")]);
        talk(&mut other, &[("SET k y", "+OK")]);
        talk(&mut client, &[("MULTI", "+OK"), ("GET k", "+QUEUED"), ("EXEC", "*1|$1|y")]);
        choose_version_three(&mut client);
        talk(
            &mut client,
            &[("WATCH k", "+OK"), ("SET k z", "+OK"), ("MULTI", "+OK"), ("EXEC", "_")],
        );
    }
}

/// Clients that move units between two records, and one that reads both, never see a sum that is
/// not the same, and no unit is lost.
#[test]
fn transactions_of_many_clients_are_isolated() {
    const CLIENTS: usize = 4;
    const EACH: usize = 150;
    let folder = tempfile::tempdir().unwrap();
    for server in servers(folder.path()) {
        talk(&mut server.connect(), &[("MSET one 1000 two 1000", "+OK")]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut writers = Vec::new();
            for number in 0..CLIENTS {
                let (from, to) = if number % 2 == 0 { ("one", "two") } else { ("two", "one") };
                let server = &server;
                writers.push(scope.spawn(move || {
                    let mut client = server.connect();
                    let requests: Vec<u8> =
                        ["MULTI", &format!("DECR {from}"), &format!("INCR {to}")]
                            .iter()
                            .chain(&["EXEC"])
                            .flat_map(|line| command(line))
                            .collect();
                    for _ in 0..EACH {
                        client.send(&requests);
                        client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n");
                        for _ in 0..2 {
                            assert!(client.read_until(b"\r\n").starts_with(b":"));
                        }
                    }
                }));
            }
            let (is_over, server) = (&is_over, &server);
            let reader = scope.spawn(move || {
                let mut client = server.connect();
                for round in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    // One command sees whole transactions, too.
                    if round % 2 == 0 {
                        client.send(&command("MGET one two"));
                    } else {
                        talk(&mut client, &[("MULTI", "+OK"), ("MGET one two", "+QUEUED")]);
                        client.send(&command("EXEC"));
                        client.expect("*1\r\n");
                    }
                    client.expect("*2\r\n");
                    let mut sum = 0;
                    for _ in 0..2 {
                        client.read_until(b"\r\n");
                        let text = String::from_utf8(client.read_until(b"\r\n")).unwrap();
                        sum += text.trim().parse::<i64>().unwrap();
                    }
                    assert_eq!(sum, 2000);
                }
            });
            let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            is_over.store(true, Ordering::Relaxed);
            reader.join().unwrap();
            written.into_iter().for_each(|result| result.unwrap());
        });
        talk(&mut server.connect(), &[("MGET one two", "*2|$4|1000|$4|1000")]);
    }
}

/// Clients that count by `WATCH` lose no count.
#[test]
fn an_optimistic_counter_is_exact() {
    const CLIENTS: usize = 3;
    const EACH: usize = 60;
    let server = start(memory());
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.connect();
                let mut done = 0;
                while done < EACH {
                    talk(&mut client, &[("WATCH n", "+OK")]);
                    let length = first_line(&mut client, "GET n");
                    let number = match &*length {
                        "$-1\r\n" => 0,
                        _ => String::from_utf8(client.read_until(b"\r\n"))
                            .unwrap()
                            .trim()
                            .parse::<usize>()
                            .unwrap(),
                    };
                    let set = format!("SET n {}", number + 1);
                    talk(&mut client, &[("MULTI", "+OK"), (&set, "+QUEUED")]);
                    if first_line(&mut client, "EXEC") == "*1\r\n" {
                        client.expect("+OK\r\n");
                        done += 1;
                    }
                }
            });
        }
    });
    let total = (CLIENTS * EACH).to_string();
    talk(&mut server.connect(), &[("GET n", &format!("${}|{total}", total.len()))]);
}

#[test]
fn transactions_refuse_what_they_cannot_undo() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(fixed(folder.path()));
    let mut client = server.connect();
    talk(&mut client, &[("MULTI", "+OK"), ("SET next v", "+QUEUED"), ("SET 7 w", "+QUEUED")]);
    assert_eq!(first_line(&mut client, "EXEC"), "*2\r\n");
    let error = String::from_utf8(client.read_until(b"\r\n")).unwrap();
    assert!(error.contains("keys that the server chooses") && error.starts_with("-ERR"), "{error}");
    client.expect("+OK\r\n");
    // Ids that are spelt in two ways are one record.
    talk(
        &mut client,
        &[
            ("RENAME 7 07", "+OK"),
            ("RENAMENX 7 007", ":0"),
            ("COPY 7 07 REPLACE", "-ERR source and destination objects are the same"),
        ],
    );
    talk(&mut client, &[("GET 7", "$1|w"), ("MULTI", "+OK"), ("FLUSHALL", "+QUEUED")]);
    assert_eq!(first_line(&mut client, "EXEC"), "*1\r\n");
    assert!(client.read_until(b"\r\n").starts_with(b"-ERR "));
    talk(&mut client, &[("GET 7", "$1|w")]);
    let server = start(table(folder.path()));
    let mut client = server.connect();
    talk(&mut client, &[("SET k a\0b", "+OK"), ("MULTI", "+OK")]);
    talk(&mut client, &[("APPEND k c\0d", "+QUEUED"), ("SET k c\0d", "+QUEUED")]);
    assert_eq!(first_line(&mut client, "EXEC"), "*2\r\n");
    let error = String::from_utf8(client.read_until(b"\r\n")).unwrap();
    assert!(error.contains("changes of the columns of a row"), "{error}");
    client.expect("+OK\r\n");
    talk(&mut client, &[("GET k", "$3|c\0d")]);
}

#[test]
fn the_queue_and_the_watched_keys_are_limited() {
    let server = start_with(Config { request_bytes_max: 4096, ..config() }, memory());
    let mut client = server.connect();
    talk(&mut client, &[("MULTI", "+OK")]);
    let set = format!("SET k {}", "v".repeat(1000));
    talk(&mut client, &[(&set, "+QUEUED"), (&set, "+QUEUED"), (&set, "+QUEUED")]);
    assert!(first_line(&mut client, &set).starts_with("-ERR the queued commands are over"));
    talk(&mut client, &[("EXEC", "-EXECABORT Transaction discarded because of previous errors.")]);
    let server = start(memory());
    let mut client = server.connect();
    let long = "k".repeat(60_000);
    let replies: Vec<String> =
        (0..20).map(|number| first_line(&mut client, &format!("WATCH {long}{number}"))).collect();
    assert_eq!(replies.iter().filter(|reply| *reply == "+OK\r\n").count(), 17);
    assert_eq!(replies[17], "-ERR a connection watches at most 1 MiB of keys\r\n");
    talk(&mut client, &[("UNWATCH", "+OK"), ("WATCH a", "+OK")]);
}

#[test]
fn the_messages_of_a_transaction_are_limited() {
    let server = start(memory());
    let (mut client, mut listener) = (server.connect(), server.connect());
    talk(&mut listener, &[("SUBSCRIBE c", "*3|$9|subscribe|$1|c|:1")]);
    let long = "m".repeat(3 << 20);
    let publish = format!("PUBLISH c {long}");
    talk(&mut client, &[("MULTI", "+OK"), ("SET a v", "+QUEUED")]);
    for _ in 0..3 {
        talk(&mut client, &[(&publish, "+QUEUED")]);
    }
    // As any failure, it does not undo the others.
    let refused = "-ERR the messages of a transaction are longer than 8 MiB";
    talk(&mut client, &[("EXEC", &format!("*4|+OK|:1|:1|{refused}"))]);
    for _ in 0..2 {
        listener.expect(format!("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n${}\r\n{long}\r\n", 3 << 20));
    }
    listener.expect_silence(&server);
}

const NO_ROOM: &str = "-OOM no memory for the value among all requests: try again later";

/// Returns a server whose requests have this many MiB of memory together.
fn server_with_room(mib: usize, database: cabinet::Database) -> Running {
    start_with(Config { buffer_bytes_max: mib << 20, ..config() }, database)
}

/// The changes of a transaction are charged three times, beside the queue.
#[test]
fn the_changes_of_a_transaction_need_memory_of_all_requests() {
    let folder = tempfile::tempdir().unwrap();
    let long = "v".repeat(1 << 20);
    let (set, append) = (format!("SET a {long}"), format!("APPEND b {long}"));
    for database in [memory(), hash(folder.path()), tree(folder.path())] {
        let server = server_with_room(24, database);
        let mut client = server.connect();
        let mut execute = |commands: &[&str], reply: &str| {
            talk(&mut client, &[("MULTI", "+OK")]);
            commands.iter().for_each(|line| talk(&mut client, &[(line, "+QUEUED")]));
            talk(&mut client, &[("EXEC", reply)]);
        };
        // The same record again and again takes its memory once.
        execute(&[&set, &set, &set, "STRLEN a"], "*4|+OK|+OK|+OK|:1048576");
        let copies = ["COPY a c", "COPY a d", "COPY a e", "COPY a f", "COPY a g", "COPY a h"];
        execute(&[&copies[..3], &["PING"]].concat(), "*4|:1|:1|:1|+PONG");
        execute(&["DEL c d e", "PING"], "*2|:3|+PONG");
        execute(&[&["SET first 1"], &copies[..], &["COPY a i", "COPY a j"]].concat(), NO_ROOM);
        execute(
            &[&["SET first 1"], &[&*append; 6][..], &["COPY a i", "COPY a j"]].concat(),
            NO_ROOM,
        );
        let sets: Vec<String> = (0..6).map(|number| format!("SET s{number} {long}")).collect();
        let mut sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        sets.extend(["COPY a i", "COPY a j"]);
        execute(&sets, NO_ROOM);
        execute(&["EXISTS first b c d e f g h i j s0 s1 s2 s3 s4 s5"], "*1|:0");
        // All of the memory is given back.
        execute(&[&copies[..5], &["PING"]].concat(), "*6|:1|:1|:1|:1|:1|+PONG");
    }
}

/// The copies that a command has found are not charged beside those of its transaction.
#[test]
fn a_long_record_is_renamed_and_copied_in_the_memory_of_its_change() {
    let server = server_with_room(10, memory());
    let mut client = server.connect();
    let set = format!("SET a {}", "v".repeat(5 << 19));
    talk(
        &mut client,
        &[
            (&set, "+OK"),
            ("RENAME a b", "+OK"),
            ("RENAMENX b c", ":1"),
            ("COPY c d", ":1"),
            ("MULTI", "+OK"),
            ("RENAME d e", "+QUEUED"),
            ("EXEC", "*1|+OK"),
            ("MULTI", "+OK"),
            ("SETRANGE e 0 w", "+QUEUED"),
            ("EXEC", "*1|:2621440"),
            ("EXISTS a b c d e", ":2"),
        ],
    );
}

/// The value is too short to be charged by itself, and the change long enough.
#[test]
fn a_record_that_finds_no_memory_to_be_renamed_stays() {
    let server = server_with_room(3, memory());
    let mut client = server.connect();
    let set = format!("SET a {}", "v".repeat((1 << 20) - 16));
    talk(
        &mut client,
        &[
            (&set, "+OK"),
            ("RENAME a b", NO_ROOM),
            ("RENAMENX a b", NO_ROOM),
            ("COPY a b", NO_ROOM),
            ("MULTI", "+OK"),
            ("RENAME a b", "+QUEUED"),
            ("EXEC", NO_ROOM),
            ("EXISTS a", ":1"),
            ("EXISTS b", ":0"),
        ],
    );
}

#[test]
fn a_queue_that_finds_no_memory_is_refused_and_the_connection_goes_on() {
    let server = server_with_room(8, memory());
    let mut client = server.connect();
    let set = format!("SET a {}", "v".repeat(1 << 20));
    talk(&mut client, &[("MULTI", "+OK")]);
    let replies: Vec<String> = (0..8).map(|_| first_line(&mut client, &set)).collect();
    let refused = "-OOM no memory for the queued commands among all requests\r\n";
    assert_eq!(replies.iter().filter(|reply| *reply == refused).count(), 1, "{replies:?}");
    talk(
        &mut client,
        &[
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
            ("EXISTS a", ":0"),
            ("MULTI", "+OK"),
            (&set, "+QUEUED"),
            ("EXEC", "*1|+OK"),
        ],
    );
}

#[test]
fn records_that_are_stored_together_need_memory_of_all_requests() {
    let server = server_with_room(12, memory());
    let long = "v".repeat(3 << 19);
    let pairs = format!("a {long} b {long}");
    let mut client = server.connect();
    talk(
        &mut client,
        &[(&format!("MSET {pairs}"), NO_ROOM), (&format!("MSETNX {pairs}"), NO_ROOM)],
    );
    talk(&mut client, &[("EXISTS a b", ":0"), (&format!("SET a {long}"), "+OK")]);
}

#[test]
fn the_replies_of_a_transaction_have_one_limit_together() {
    let server = start_with(Config { reply_bytes_max: 3 << 20, ..config() }, memory());
    let mut client = server.connect();
    let set = format!("SET a {}", "v".repeat(1 << 20));
    talk(&mut client, &[(&set, "+OK"), ("MULTI", "+OK"), ("SET b 1", "+QUEUED")]);
    talk(&mut client, &[("MGET a a", "+QUEUED"), ("GET a", "+QUEUED")]);
    talk(&mut client, &[("EXEC", "-ERR reply over the limit of this server"), ("EXISTS b", ":0")]);
}

/// A transaction of commands about the server takes memory for each of them.
#[test]
fn commands_that_wait_for_the_end_of_a_transaction_need_memory() {
    let server = server_with_room(8, memory());
    let mut client = server.connect();
    talk(&mut client, &[("MULTI", "+OK"), ("SET a 1", "+QUEUED")]);
    let (roles, batches) = (command("LASTSAVE").repeat(1000), 150);
    for _ in 0..batches {
        client.send(&roles);
        client.expect("+QUEUED\r\n".repeat(1000));
    }
    talk(&mut client, &[("EXEC", NO_ROOM), ("EXISTS a", ":0")]);
}

/// A command that is executed after the changes is not executed once its reply has no room.
#[test]
fn commands_after_a_reply_that_is_too_long_are_not_executed() {
    let server = start_with(Config { reply_bytes_max: 600, ..config() }, memory());
    let mut client = server.connect();
    talk(
        &mut client,
        &[
            ("MULTI", "+OK"),
            ("SET a 1", "+QUEUED"),
            ("CLIENT SETNAME one", "+QUEUED"),
            ("INFO all", "+QUEUED"),
            ("CLIENT SETNAME two", "+QUEUED"),
            (
                "EXEC",
                "*4|+OK|+OK|-ERR reply over the limit of this server\
                 |-ERR reply over the limit of this server",
            ),
            ("CLIENT GETNAME", "$3|one"),
            ("GET a", "$1|1"),
        ],
    );
}

#[test]
fn a_stop_ends_a_transaction_of_commands_about_the_server() {
    let server = start(memory());
    let mut client = server.connect();
    talk(&mut client, &[("MULTI", "+OK")]);
    let commands = command("INFO all").repeat(1000);
    for _ in 0..30 {
        client.send(&commands);
        client.expect("+QUEUED\r\n".repeat(1000));
    }
    let pooled = server.stat_value("requests_pooled");
    client.send(&command("EXEC"));
    server.await_stat_value("requests_pooled", |number| number > pooled);
    server.begin_stop();
    client.read_until(b"ERR the server is stopping");
}

/// A connection is charged for what its session holds, also while another thread has the session.
#[test]
fn a_session_in_the_pool_takes_its_memory_nevertheless() {
    let server = start(memory());
    let (mut client, mut other) = (server.connect(), server.connect());
    let key = "k".repeat(60_000);
    for number in 0..10 {
        talk(&mut client, &[(&format!("WATCH {key}{number}"), "+OK")]);
    }
    let values = ["a", "b"].map(|key| format!("SET {key} {}", key.repeat(6000)));
    talk(&mut client, &[(&values[0], "+OK"), (&values[1], "+OK"), ("CLIENT SETNAME me", "+OK")]);
    client.send(&[command("LCS a b LEN"), command("PING")].concat());
    let mut least = u64::MAX;
    for _ in 0..50 {
        let length = first_line(&mut other, "CLIENT LIST TYPE normal");
        let list = other.read(length[1..].trim_end().parse::<usize>().unwrap() + 2);
        let list = String::from_utf8(list).unwrap();
        let line = list.lines().find(|line| line.contains("name=me")).unwrap();
        let bytes = line.split(" tot-mem=").nth(1).and_then(|rest| rest.split(' ').next());
        least = least.min(bytes.unwrap().parse().unwrap());
    }
    assert!(least > 600_000, "{least}");
    client.expect(":0\r\n+PONG\r\n");
}

/// The pool holds it until the request ends, also if the connection is closed before.
#[test]
fn a_session_in_the_pool_takes_its_memory_longer_than_its_connection() {
    let server = start(memory());
    let (mut client, mut other) = (server.connect(), server.connect());
    let key = "k".repeat(60_000);
    for number in 0..10 {
        talk(&mut client, &[(&format!("WATCH {key}{number}"), "+OK")]);
    }
    let values = ["a", "b"].map(|key| format!("SET {key} {}", key.repeat(6000)));
    talk(&mut client, &[(&values[0], "+OK"), (&values[1], "+OK")]);
    let id = first_line(&mut client, "CLIENT ID");
    let pooled = server.stat_value("requests_pooled");
    client.send(&command("LCS a b LEN"));
    server.await_stat_value("requests_pooled", |number| number > pooled);
    talk(&mut other, &[(&format!("CLIENT KILL ID {}", &id.trim_end()[1..]), ":1")]);
    client.expect_close();
    assert!(server.stat_value("buffer_bytes") > 600_000);
    server.await_stat_value("buffer_bytes", |bytes| bytes < 600_000);
}

#[test]
fn rights_are_checked_when_a_command_is_queued() {
    let users = Some(users(&[("ann", "secret")]));
    let server = start_with(Config { users, ..config() }, memory());
    let mut client = server.connect();
    talk(
        &mut client,
        &[
            ("MULTI", "-NOAUTH Authentication required."),
            ("AUTH ann secret", "+OK"),
            ("MULTI", "+OK"),
            ("AUTH ann secret", "-ERR a login is not possible within MULTI: log in before it"),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ],
    );
}

#[test]
fn commands_about_the_server_have_their_replies_at_their_places() {
    let server = start(memory());
    let (mut client, mut other) = (server.connect(), server.connect());
    let id = first_line(&mut client, "CLIENT ID");
    let id = id.trim_end();
    talk(
        &mut client,
        &[
            ("MULTI", "+OK"),
            ("CLIENT GETNAME", "+QUEUED"),
            ("SET a 1", "+QUEUED"),
            ("CLIENT SETNAME me", "+QUEUED"),
            ("SELECT 0", "+QUEUED"),
            ("CLIENT GETNAME", "+QUEUED"),
            ("CLIENT ID", "+QUEUED"),
            ("SLOWLOG GET x", "+QUEUED"),
            ("GET b", "+QUEUED"),
            ("LASTSAVE", "+QUEUED"),
            ("EXEC", "*9|$-1|+OK|+OK|+OK|$2|me"),
        ],
    );
    client.expect(format!("{id}\r\n-ERR count should be greater than or equal to -1\r\n$-1\r\n:"));
    client.read_until(b"\r\n");
    // The own connection ends after all replies.
    talk(&mut client, &[("MULTI", "+OK"), ("SET a 2", "+QUEUED")]);
    let kill = format!("CLIENT KILL ID {} SKIPME no", &id[1..]);
    talk(&mut client, &[(&kill, "+QUEUED"), ("INCR a", "+QUEUED"), ("EXEC", "*3|+OK|:1|:3")]);
    client.expect_close();
    talk(&mut other, &[("GET a", "$1|3")]);
}
