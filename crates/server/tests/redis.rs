//! Redis's protocol: commands, and what they have in common with the other protocols.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use server::Config;
use std::time::{SystemTime, UNIX_EPOCH};
use support::{
    Client, Running, config, fixed, following, hash, memory, memory_tree, redis as command, start,
    start_with, table, talk, tree, users, wait_until,
};

/// Commands on bits, floats and common parts, as Redis 7.0.15 answers them.
const BITS: &[(&str, &str)] = &[
    ("SETBIT b 7 1", ":0"),
    ("SETBIT b 7 0", ":1"),
    ("SETBIT b 21 1", ":0"),
    ("STRLEN b", ":3"),
    ("GETBIT b 21", ":1"),
    ("GETBIT b 4294967295", ":0"),
    ("GETBIT none 0", ":0"),
    ("SETBIT b 4294967296 1", "-ERR bit offset is not an integer or out of range"),
    ("SETBIT b 0 2", "-ERR bit is not an integer or out of range"),
    ("SET s foobar", "+OK"),
    ("BITCOUNT s", ":26"),
    ("BITCOUNT s 1 1", ":6"),
    ("BITCOUNT s 5 30 BIT", ":17"),
    ("BITCOUNT s -2 -1 byte", ":7"),
    ("BITCOUNT s 0", "-ERR syntax error"),
    ("BITCOUNT none x y z", ":0"),
    ("BITPOS s 1", ":1"),
    ("BITPOS s 0 2", ":16"),
    ("BITPOS s 1 10 20 BIT", ":10"),
    ("BITPOS none 0", ":0"),
    ("BITPOS s 2", "-ERR The bit argument must be 1 or 0."),
    ("SET t ab", "+OK"),
    ("BITOP AND d s t", ":6"),
    ("GET d", "$6|`b\0\0\0\0"),
    ("BITOP or d s t none", ":6"),
    ("BITOP XOR d t t", ":2"),
    ("BITOP NOT d t", ":2"),
    ("BITCOUNT d", ":10"),
    ("BITOP NOT d t s", "-ERR BITOP NOT must be called with a single source key."),
    ("BITOP AND d none", ":0"),
    ("EXISTS d", ":0"),
    ("BITFIELD f INCRBY i5 100 1 GET u4 0", "*2|:1|:0"),
    ("BITFIELD f SET u8 #1 -1 GET i8 #1", "*2|:0|:-1"),
    ("BITFIELD f OVERFLOW SAT INCRBY u8 #1 10 OVERFLOW FAIL INCRBY u8 #1 1", "*2|:255|$-1"),
    ("BITFIELD f INCRBY u8 #1 1", "*1|:0"),
    ("BITFIELD f OVERFLOW SAT SET i8 0 -200 SET i8 0 -9223372036854775808", "*2|:0|:-128"),
    ("BITFIELD f GET i8 0 SET u8 0 0", "*2|:127|:127"),
    ("BITFIELD_RO f GET u8 0", "*1|:0"),
    ("BITFIELD_RO f SET u8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand"),
    (
        "BITFIELD f GET u64 0",
        "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
    ),
    ("SET n 10.50 EX 100", "+OK"),
    ("INCRBYFLOAT n 0.1", "$4|10.6"),
    ("INCRBYFLOAT n 5.0e3", "$22|5010.60000000000000009"),
    ("TTL n", ":100"),
    ("INCRBYFLOAT n x", "-ERR value is not a valid float"),
    ("INCRBYFLOAT n inf", "-ERR increment would produce NaN or Infinity"),
    ("MSET x ohmytext y mynewtext", "+OK"),
    ("LCS x y", "$6|mytext"),
    ("LCS x y LEN", ":6"),
    ("LCS x y IDX MINMATCHLEN 4", "*4|$7|matches|*1|*2|*2|:4|:7|*2|:5|:8|$3|len|:6"),
    ("LCS x none", "$0|"),
    ("LCS x y IDX LEN", "-ERR If you want both the length and indexes, please just use IDX."),
];

const STRINGS: &[(&str, &str)] = &[
    ("PING", "+PONG"),
    ("ping hello", "$5|hello"),
    ("ECHO a", "$1|a"),
    ("GET a", "$-1"),
    ("SET a 10", "+OK"),
    ("GET a", "$2|10"),
    ("INCR a", ":11"),
    ("DECRBY a 20", ":-9"),
    ("GET a", "$2|-9"),
    ("INCRBY a x", "-ERR value is not an integer or out of range"),
    ("SET a v NX", "$-1"),
    ("SET b v XX", "$-1"),
    ("SET a v XX GET", "$2|-9"),
    ("INCR a", "-ERR value is not an integer or out of range"),
    ("SETNX a w", ":0"),
    ("APPEND a wx", ":3"),
    ("STRLEN a", ":3"),
    ("GETRANGE a -2 -1", "$2|wx"),
    ("SETRANGE a 1 yz", ":3"),
    ("GETSET a q", "$3|vyz"),
    ("MSET a 1 b 2", "+OK"),
    ("MGET a none b", "*3|$1|1|$-1|$1|2"),
    ("EXISTS a a none", ":2"),
    ("TYPE a", "+string"),
    ("TYPE none", "+none"),
    ("DBSIZE", ":2"),
    ("GETDEL a", "$1|1"),
    ("DEL a b", ":1"),
    ("DBSIZE", ":0"),
    ("SET k v FOO", "-ERR syntax error"),
    ("GET", "-ERR wrong number of arguments for 'get' command"),
    ("MSET a", "-ERR wrong number of arguments for 'mset' command"),
    ("nosuch l a", "-ERR unknown command 'nosuch', with args beginning with: 'l' 'a' "),
    ("lpush l a", "-ERR LPUSH is not supported: this database keeps strings only, without lists"),
    ("CLIENT FOO", "-ERR unknown subcommand 'FOO'. Try CLIENT HELP."),
    ("CLIENT CACHING YES", "-ERR CLIENT CACHING is not supported: clients are not told of changes"),
    ("COMMAND GETKEYS MSET a b c d", "*2|$1|a|$1|c"),
    ("COMMAND GETKEYS PING a b", "-ERR The command has no key arguments"),
    ("CONFIG SET maxmemory 0 nosuch", "-ERR syntax error"),
    ("CONFIG SET maxmemory 0", "+OK"),
    ("SELECT 0", "+OK"),
    ("SELECT 1", "-ERR DB index is out of range"),
];

#[test]
fn strings_are_stored_in_every_kind_of_database_that_has_them() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), support::memory_tree(), hash(folder.path()), tree(folder.path())] {
        let server = start(database);
        talk(&mut server.connect(), STRINGS);
        talk(&mut server.connect(), BITS);
    }
}

#[test]
fn keys_expire_and_say_when() {
    let server = start(memory());
    let mut client = server.connect();
    talk(
        &mut client,
        &[
            ("SET a v EX 100", "+OK"),
            ("TTL a", ":100"),
            ("SET a w KEEPTTL", "+OK"),
            ("TTL a", ":100"),
            ("EXPIRE a 50 GT", ":0"),
            ("EXPIRE a 50 LT", ":1"),
            ("TTL a", ":50"),
            (
                "EXPIRE a 50 NX GT",
                "-ERR NX and XX, GT or LT options at the same time are not compatible",
            ),
            ("PERSIST a", ":1"),
            ("PERSIST a", ":0"),
            ("TTL a", ":-1"),
            ("EXPIRE a 10 XX", ":0"),
            ("EXPIREAT a 9999999999", ":1"),
            ("EXPIRETIME a", ":9999999999"),
            ("INCRBY n 5", ":5"),
            ("PEXPIRE n 60000", ":1"),
            ("INCR n", ":6"),
            ("TTL n", ":60"),
            ("GETEX a PERSIST", "$1|w"),
            ("TTL a", ":-1"),
            ("EXPIRE a -1", ":1"),
            ("GET a", "$-1"),
            ("TTL a", ":-2"),
            ("SET a v EX 0", "-ERR invalid expire time in 'set' command"),
            ("SETEX a 9223372036854775807 v", "-ERR invalid expire time in 'setex' command"),
            ("PSETEX a 1 v", "+OK"),
        ],
    );
    wait_until(|| {
        client.send(&command("EXISTS a"));
        client.read_until(b"\r\n") == b":0\r\n"
    });
}

#[test]
fn all_protocols_have_the_same_records_and_expiries() {
    let server = start(memory());
    let (mut client, mut other) = (server.connect(), server.connect());
    other.exchange("set a 7 100 1\r\nx\r\n", "STORED\r\n");
    talk(&mut client, &[("GET a", "$1|x"), ("TTL a", ":100"), ("APPEND a y", ":2")]);
    other.exchange("get a\r\n", "VALUE a 7 2\r\nxy\r\nEND\r\n");
    talk(&mut client, &[("SET b v EXAT 9999999999", "+OK")]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    other.send(b"mg b t\r\n");
    let answer = String::from_utf8(other.read_until(b"\r\n")).unwrap();
    let left: u64 = answer.trim().strip_prefix("HD t").unwrap().parse().unwrap();
    assert!((9_999_999_999 - now).abs_diff(left) <= 2, "{answer}");
    let head = "HTTP/1.1 200 OK\r\n";
    other.send(b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(other.read_until(b"\r\n\r\n").starts_with(head.as_bytes()));
    other.expect("xy");
    client.exchange(b"\xc8\x30\0\0\0\x01a", b"\0\0\0\0\x02xy");
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let server = start(memory());
    let mut client = server.connect();
    let (mut requests, mut replies) = (Vec::new(), String::new());
    for number in 0..100 {
        requests.extend(command(&format!("SET k{number} {number}")));
        requests.extend(command(&format!("GET k{number}")));
        requests.extend(command(&format!("DEL k{number} none")));
        let text = number.to_string();
        replies.push_str(&format!("+OK\r\n${}\r\n{text}\r\n:1\r\n", text.len()));
    }
    client.exchange(requests, replies);
}

#[test]
fn keys_are_found_by_patterns() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), tree(folder.path())] {
        let server = start(database);
        let mut client = server.connect();
        talk(&mut client, &[("MSET user:1 a user:2 b other c", "+OK"), ("KEYS none*", "*0")]);
        for (pattern, expected) in [("*", 3), ("user:?", 2), ("user:[^1]", 1), ("*ther", 1)] {
            client.send(&command(&format!("KEYS {pattern}")));
            assert_eq!(client.read_until(b"\r\n"), format!("*{expected}\r\n").as_bytes());
            for _ in 0..2 * expected {
                client.read_until(b"\r\n");
            }
        }
        talk(&mut client, &[("FLUSHALL", "+OK"), ("KEYS *", "*0")]);
    }
}

#[test]
fn version_three_has_its_own_null_and_maps() {
    let server = start(memory());
    let mut client = server.connect();
    talk(&mut client, &[("HELLO 4", "-NOPROTO unsupported protocol version")]);
    client.send(&command("HELLO 3 SETNAME me"));
    let mut greeting = String::new();
    while !greeting.ends_with("$7\r\nmodules\r\n*0\r\n") {
        greeting.push_str(&String::from_utf8(client.read_until(b"\r\n")).unwrap());
    }
    assert!(greeting.starts_with("%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n"), "{greeting}");
    assert!(greeting.contains("$5\r\nproto\r\n:3\r\n"), "{greeting}");
    talk(
        &mut client,
        &[
            ("GET none", "_"),
            ("CLIENT GETNAME", "$2|me"),
            ("CONFIG GET save", "%1|$4|save|$0|"),
            ("RESET", "+RESET"),
            ("GET none", "$-1"),
            ("CLIENT GETNAME", "$-1"),
            ("QUIT", "+OK"),
        ],
    );
    client.expect_close();
}

#[test]
fn a_database_in_memory_is_not_taken_for_a_durable_one() {
    let folder = tempfile::tempdir().unwrap();
    for (database, appendonly, aof_enabled) in
        [(memory(), "no", 0), (hash(folder.path()), "yes", 1)]
    {
        let server = start(database);
        let mut client = server.connect();
        let value = format!("*2|$10|appendonly|${}|{appendonly}", appendonly.len());
        let refused = "-ERR maxmemory is \"0\" here: capsiz in the database's name, or memory if it is \
                       in memory, and a restart";
        talk(
            &mut client,
            &[("CONFIG GET appendonly", &value), ("CONFIG SET maxmemory 100mb", refused)],
        );
        client.send(&command("INFO persistence"));
        client.read_until(format!("\r\naof_enabled:{aof_enabled}\r\n").as_bytes());
    }
}

#[test]
fn lines_of_words_are_requests_too() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange("PING\r\nPING a\nECHO b\r\n", "+PONG\r\n$1\r\na\r\n$1\r\nb\r\n");
    client.exchange("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    // Empty lines and arrays have no reply.
    client.exchange([b"\r\n*-1\r\n*0\r\n", &*command("ECHO c")].concat(), "$1\r\nc\r\n");
    client.exchange("QUIT\r\n", "+OK\r\n");
    client.expect_close();
}

#[test]
fn malformed_requests_end_the_connection_with_a_reason() {
    let server = start(memory());
    for (request, reason) in [
        ("*1\r\nGET\r\n", "expected '$', got 'G'"),
        ("*1\r\n$x\r\n", "invalid bulk length"),
        ("*1\r\n$999999999999\r\n", "invalid bulk length"),
        ("*9999999\r\n", "invalid multibulk length"),
        ("*99999999999999999999\r\n", "invalid multibulk length"),
    ] {
        let mut client = server.connect();
        client.send(request.as_bytes());
        let reply = String::from_utf8(client.read_to_end()).unwrap();
        assert_eq!(reply, format!("-ERR Protocol error: {reason}\r\n"));
    }
}

fn with_users() -> Running {
    let users = Some(users(&[("ann", "secret")]));
    start_with(Config { users, ..config() }, memory())
}

#[test]
fn a_server_with_users_wants_a_login_before_anything_else() {
    let server = with_users();
    let mut client = server.connect();
    talk(
        &mut client,
        &[
            ("GET a", "-NOAUTH Authentication required."),
            ("AUTH secret", "-WRONGPASS this server has users with names: AUTH NAME PASSWORD"),
            ("AUTH ann wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("AUTH ann secret", "+OK"),
            ("SET a v", "+OK"),
            ("AUTH ann wrong", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("GET a", "$1|v"),
            ("RESET", "+RESET"),
            ("GET a", "-NOAUTH Authentication required."),
        ],
    );
    client.send(&command("HELLO 3 AUTH ann secret"));
    assert_eq!(client.read_until(b"\r\n"), b"%7\r\n");
    while !client.read_until(b"\r\n").starts_with(b"*0") {}
    talk(&mut client, &[("GET a", "$1|v")]);
    // A login of one protocol is that of the connection.
    client.exchange(b"\xc8\x30\0\0\0\x01a", b"\0\0\0\0\x01v");
}

#[test]
fn masks_rights_and_read_only_replicas_are_respected() {
    for (mask, lines) in [
        ("get", &["GET a", "GETEX a", "GETDEL a", "GETSET a b", "SET a b GET"][..]),
        ("get", &["GETBIT a 0", "SETBIT a 0 1", "BITOP NOT a a", "LCS a a", "DUMP a"]),
        ("out", &["DEL a", "GETDEL a", "EXPIRE a -1", "BITOP NOT a none"]),
        ("put", &["SET a b", "MSET a b", "EXPIRE a 10", "GETEX a PERSIST"]),
        ("put", &["SETBIT a 0 1", "BITFIELD a", "RESTORE a 0 b"]),
        ("get", &["PFADD h a", "PFCOUNT h", "PFCOUNT h i", "PFMERGE h i"]),
        ("put", &["PFADD h a", "PFMERGE h i"]),
        ("adddouble", &["INCRBYFLOAT a 1"]),
    ] {
        let config = Config { mask: mask.parse().unwrap(), ..config() };
        let server = start_with(config, memory());
        server.connect().exchange(command("APPEND a v"), ":1\r\n");
        for line in lines {
            let refused = format!("-NOPERM the server masks {mask}\r\n");
            server.connect().exchange(command(line), refused);
        }
    }
    let mask = "out allredis".parse().unwrap();
    let server = start_with(Config { mask, ..config() }, memory());
    talk(&mut server.connect(), &[("GET a", "-NOPERM the server masks get"), ("PING", "+PONG")]);
    let folder = tempfile::tempdir().unwrap();
    let mut config = following(2, folder.path(), "127.0.0.1:1".parse().unwrap());
    config.following.is_writable = false;
    let server = start_with(config, memory());
    let reason = "this is a read-only replica of 127.0.0.1:1: write to that server";
    talk(
        &mut server.connect(),
        &[
            ("SET a v", &format!("-READONLY {reason}")),
            ("DEL a", &format!("-READONLY {reason}")),
            ("GET a", "$-1"),
            ("PFADD h a", &format!("-READONLY {reason}")),
            ("PFCOUNT h", ":0"),
        ],
    );
}

#[test]
fn a_hyperloglog_that_a_database_would_cut_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(fixed(folder.path()));
    let elements: String = (0..300).map(|number| format!(" {number}")).collect();
    let refused = "-ERR a HyperLogLog of 702 bytes is over the width of this database, 255";
    talk(
        &mut server.connect(),
        &[
            ("PFADD 1 a b", ":1"),
            (&format!("PFADD 1{elements}"), refused),
            ("PFCOUNT 1", ":2"),
            ("PFMERGE 2 1", "+OK"),
            ("PFCOUNT 2", ":2"),
        ],
    );
}

/// Both forms of a value, and their changes, are those of Redis: `wire` compares their bytes.
#[test]
fn elements_are_counted_in_values_of_redis() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), memory_tree(), hash(folder.path()), tree(folder.path())] {
        let server = start(database);
        let mut client = server.connect();
        talk(
            &mut client,
            &[
                ("PFCOUNT h", ":0"),
                ("PFADD h", ":1"),
                ("PFADD h", ":0"),
                ("PFADD h a b c", ":1"),
                ("PFADD h c a", ":0"),
                ("PFCOUNT h", ":3"),
                ("EXPIREAT h 9999999999", ":1"),
                ("PFADD i c d", ":1"),
                ("PFCOUNT h none i", ":4"),
                ("PFMERGE h i none", "+OK"),
                ("PFCOUNT h", ":4"),
                ("EXPIRETIME h", ":9999999999"),
                ("PFMERGE new", "+OK"),
                ("STRLEN new", ":18"),
                ("COPY h copy", ":1"),
                ("PFMERGE copy h", "+OK"),
                ("PFCOUNT copy", ":4"),
                ("MULTI", "+OK"),
                ("PFADD h e", "+QUEUED"),
                ("PFCOUNT h", "+QUEUED"),
                ("PFMERGE i h", "+QUEUED"),
                ("EXEC", "*3|:1|:5|+OK"),
                ("PFCOUNT i", ":5"),
                ("SET text some text of any kind", "-ERR syntax error"),
                ("SET text HYLL", "+OK"),
                ("PFADD text a", "-WRONGTYPE Key is not a valid HyperLogLog string value."),
                ("PFCOUNT text", "-WRONGTYPE Key is not a valid HyperLogLog string value."),
                ("PFMERGE h text", "-WRONGTYPE Key is not a valid HyperLogLog string value."),
                ("SETRANGE i 17 x", ":33"),
                ("PFCOUNT i", "-INVALIDOBJ Corrupted HLL object detected"),
                ("PFADD i x", "-INVALIDOBJ Corrupted HLL object detected"),
                ("PFMERGE h i", "-INVALIDOBJ Corrupted HLL object detected"),
                ("PFCOUNT h", ":5"),
                ("PFDEBUG", "-ERR PFDEBUG is not supported: it is for tests of Redis itself"),
                ("PFSELFTEST", "-ERR PFSELFTEST is not supported: it is for tests of Redis itself"),
            ],
        );
        let elements: String = (0..5000).map(|number| format!(" {number}")).collect();
        let add = format!("PFADD many{elements}");
        talk(&mut client, &[(&add, ":1"), (&add, ":0"), ("STRLEN many", ":12304")]);
        talk(&mut client, &[("PFCOUNT many", ":4985"), ("PFMERGE h many", "+OK")]);
        talk(&mut client, &[("STRLEN h", ":12304"), ("EXPIRETIME h", ":9999999999")]);
    }
}

/// A client has stored a value of more runs than the server makes.
#[test]
fn a_hyperloglog_that_takes_long_to_change_is_left_to_the_pool() {
    let config = Config { buffer_bytes_max: 4 << 20, ..config() };
    let server = start_with(config, memory());
    let mut client = server.connect();
    let header = [&b"HYLL\x01\0\0\0"[..], &[0; 7], &[0x80]].concat();
    let value = [header, vec![0; 1 << 14]].concat();
    let set =
        [format!("*3\r\n$3\r\nSET\r\n$1\r\nh\r\n${}\r\n", value.len()).as_bytes(), &value].concat();
    client.exchange([&set, &b"\r\n"[..]].concat(), "+OK\r\n");
    let long = format!("SET long {}", "v".repeat(3 << 19));
    talk(&mut client, &[("PFADD few a b c", ":1"), (&long, "+OK")]);
    let pooled = || server.stat_value("requests_pooled");
    let mut talk_pooled = |line: &str, reply: &str, expected: u64| {
        let before = pooled();
        talk(&mut client, &[(line, reply)]);
        assert_eq!(pooled() - before, expected, "{line}");
    };
    talk_pooled("PFADD few d", ":1", 0);
    talk_pooled("PFADD h a", ":1", 1);
    talk_pooled("PFMERGE h few", "+OK", 1);
    talk_pooled("PFCOUNT h", ":4", 0);
    // There is no memory for copies of it.
    let refused = "-WRONGTYPE Key is not a valid HyperLogLog string value.";
    talk_pooled("PFADD long a", refused, 0);
    talk_pooled("PFMERGE few few", "+OK", 0);
}

#[test]
fn keys_and_values_that_a_database_cannot_have_are_an_error_or_absent() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(fixed(folder.path()));
    let mut client = server.connect();
    talk(
        &mut client,
        &[
            ("GET name", "$-1"),
            ("EXISTS name", ":0"),
            ("DEL name", ":0"),
            ("SET 7 v", "+OK"),
            ("GET 7", "$1|v"),
            ("KEYS *", "*1|$1|7"),
            ("KEYS 1?", "*0"),
        ],
    );
    client.send(&command("SET name v"));
    assert!(client.read_until(b"\r\n").starts_with(b"-ERR \"name\" is no id"));
    let server = start(table(folder.path()));
    let mut client = server.connect();
    client.send(&command("SET k v"));
    assert!(client.read_until(b"\r\n").starts_with(b"-ERR "));
    talk(&mut client, &[("APPEND k a\0b", ":3"), ("STRLEN k", ":3")]);
}

/// An expiry that could not be kept is refused, and the row stays as it is.
#[test]
fn an_expiry_is_refused_in_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    let mut client = server.connect();
    let refused = "-ERR the rows of a table do not expire: keep the time in a column";
    talk(&mut client, &[("SET k c\0x", "+OK"), ("SET k d\0y KEEPTTL", "+OK")]);
    for line in [
        "SET k z\0z EX 100",
        "SET k z\0z PXAT 9999999999999 GET",
        "SETEX k 100 z\0z",
        "PSETEX k 1000 z\0z",
        "EXPIRE k 100",
        "PEXPIREAT k 9999999999999",
        "EXPIRE k -1",
        "GETEX k EX 100",
        "RESTORE new 1000 dump",
    ] {
        talk(&mut client, &[(line, refused), ("GET k", "$3|d\0y")]);
    }
    talk(&mut client, &[("TTL k", ":-1"), ("PERSIST k", ":0"), ("GETEX k PERSIST", "$3|d\0y")]);
    talk(&mut client, &[("EXISTS new", ":0"), ("SET k e\0z GET", "$3|d\0y")]);
}

/// A value that was dumped is restored, here and from Redis, with its expiry.
#[test]
fn dumps_are_those_of_redis_and_are_restored() {
    const DUMP: &[u8] = b"\x00\x03abc\n\x00\xd9\xac0=Ar\xa2\xe2";
    const LIST: &[u8] = b"\x12\x01\x02\x0b\x0b\x00\x00\x00\x02\x00\x01\x01\x02\x01\xff\
                           \n\x00\xdd\xe7\x1a(\xae9\x1b\x98";
    let server = start(memory());
    let mut client = server.connect();
    let restore = |key: &str, ttl: &str, dump: &[u8], options: &[&str]| {
        let mut bytes = format!("*{}\r\n", 4 + options.len()).into_bytes();
        let words = [b"RESTORE", key.as_bytes(), ttl.as_bytes(), dump].into_iter();
        for word in words.chain(options.iter().map(|option| option.as_bytes())) {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend([word, b"\r\n"].concat());
        }
        bytes
    };
    talk(&mut client, &[("SET a abc", "+OK"), ("DUMP none", "$-1")]);
    client.exchange(command("DUMP a"), [b"$15\r\n", DUMP, b"\r\n"].concat());
    let busy = "-BUSYKEY Target key name already exists.\r\n";
    client.exchange(restore("a", "0", DUMP, &[]), busy);
    client.exchange(restore("b", "100000", DUMP, &["IDLETIME", "5"]), "+OK\r\n");
    talk(&mut client, &[("GET b", "$3|abc"), ("TTL b", ":100")]);
    client.exchange(restore("b", "9999999999000", DUMP, &["REPLACE", "ABSTTL"]), "+OK\r\n");
    talk(&mut client, &[("EXPIRETIME b", ":9999999999")]);
    client.exchange(restore("b", "1", DUMP, &["replace", "absttl"]), "+OK\r\n");
    talk(&mut client, &[("EXISTS b", ":0")]);
    let wrong = "-ERR DUMP payload version or checksum are wrong\r\n";
    client.exchange(restore("c", "0", &DUMP[2..], &[]), wrong);
    client.exchange(restore("c", "0", b"", &[]), wrong);
    client.exchange(restore("c", "-1", DUMP, &[]), "-ERR Invalid TTL value, must be >= 0\r\n");
    client.exchange(restore("c", "0", DUMP, &["FREQ"]), "-ERR syntax error\r\n");
    client.exchange(
        restore("c", "0", LIST, &[]),
        "-ERR the dump is that of a list: this server has strings only\r\n",
    );
    talk(&mut client, &[("EXISTS c", ":0")]);
}

/// A reply that would be too long is an error, and the command then changes nothing.
#[test]
fn a_reply_over_the_limit_changes_nothing() {
    let server = start_with(Config { reply_bytes_max: 1000, ..config() }, memory());
    let mut client = server.connect();
    let (short, long) = ("a".repeat(400), "b".repeat(1001));
    let long_name = format!("{long:.700}");
    talk(&mut client, &[(&format!("SET k {long}"), "+OK"), (&format!("SET s {short}"), "+OK")]);
    for line in [
        "SET k v GET".to_owned(),
        "GETSET k v".to_owned(),
        "GETDEL k".to_owned(),
        "GETEX k EX 100".to_owned(),
        "GETEX k EX -1".to_owned(),
        format!("ECHO {long}"),
        format!("PING {long}"),
        format!("COMMAND GETKEYS MGET {long_name} {short}"),
        format!("PUBSUB NUMSUB {long_name} {short}"),
        format!("BITFIELD k SET u8 0 1{}", " GET u8 0".repeat(50)),
        format!("SUBSCRIBE {long_name} {short}"),
        format!("UNSUBSCRIBE {long_name} {short}"),
    ] {
        let refused = "-ERR reply over the limit of this server";
        talk(&mut client, &[(&line, refused), ("STRLEN k", ":1001"), ("TTL k", ":-1")]);
        talk(&mut client, &[("GETRANGE k 0 0", "$1|b")]);
    }
    talk(&mut client, &[("SET k v", "+OK"), ("GETDEL k", "$1|v"), ("EXISTS k", ":0")]);
}

/// A value that a request would make too long is refused, or needs memory of the budget.
#[test]
fn long_values_need_memory_for_all_requests() {
    let server = start_with(Config { buffer_bytes_max: 32 << 20, ..config() }, memory());
    let mut client = server.connect();
    let no_room = "-OOM no memory for the value among all requests: try again later";
    talk(
        &mut client,
        &[
            ("SETBIT a 4294967295 1", no_room),
            ("BITFIELD a SET u8 #536870911 1", no_room),
            ("EXISTS a", ":0"),
            ("SETBIT a 16777215 1", ":0"),
            ("BITOP NOT b a", ":2097152"),
            ("BITCOUNT b", ":16777215"),
            ("BITPOS b 0", ":16777215"),
            (
                "LCS a b",
                "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
            ),
        ],
    );
}

/// A long value is charged for once, also if it becomes longer.
#[test]
fn a_change_of_a_long_value_needs_memory_for_three_copies() {
    let server = start_with(Config { buffer_bytes_max: 8 << 20, ..config() }, memory());
    talk(
        &mut server.connect(),
        &[
            ("SETBIT a 16777215 1", ":0"),
            ("SETRANGE a 2097152 x", ":2097153"),
            ("SETRANGE a 0 xyz", ":2097153"),
            ("SETBIT a 16777224 1", ":0"),
            ("BITFIELD a SET u8 16777232 1", "*1|:0"),
            ("STRLEN a", ":2097155"),
            (
                "SETRANGE a 2900000 x",
                "-OOM no memory for the value among all requests: try again later",
            ),
        ],
    );
}

/// A change of a record that another client removes meanwhile brings nothing back.
#[test]
fn a_removed_record_stays_removed_while_others_set_its_expiry() {
    const ROUNDS: usize = 2000;
    let server = start(memory());
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = server.connect();
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    client.send(&command("EXPIRE k 1000"));
                    client.read_until(b"\r\n");
                }
            });
        }
        let mut client = server.connect();
        for round in 0..ROUNDS {
            let replies = [("SET k v", "+OK"), ("DEL k", ":1"), ("EXISTS k", ":0")];
            for (line, expected) in replies {
                client.send(&command(line));
                let reply = client.read_until(b"\r\n");
                if reply != format!("{expected}\r\n").as_bytes() {
                    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
                    panic!("round {round}, {line}: {}", reply.escape_ascii());
                }
            }
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Many clients that add to one record lose no change.
#[test]
fn changes_that_depend_on_the_record_are_atomic() {
    const CLIENTS: usize = 4;
    const EACH: usize = 200;
    let database: Database = memory();
    let server = start(database);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.connect();
                for _ in 0..EACH {
                    client.send(&command("INCR n"));
                    assert!(client.read_until(b"\r\n").starts_with(b":"));
                    client.send(&command("EXPIRE n 1000"));
                    client.expect(":1\r\n");
                    client.send(&command("APPEND s x"));
                    client.read_until(b"\r\n");
                }
            });
        }
    });
    let total = CLIENTS * EACH;
    let digits = total.to_string();
    talk(
        &mut server.connect(),
        &[("GET n", &format!("${}|{digits}", digits.len())), ("STRLEN s", &format!(":{total}"))],
    );
}

/// Returns the keys that a scan from the beginning to the end returns, and the number of its steps.
fn scanned(client: &mut Client, options: &str) -> (Vec<String>, usize) {
    let (mut keys, mut steps, mut cursor) = (Vec::new(), 0, "0".to_owned());
    loop {
        client.send(&command(format!("SCAN {cursor} {options}").trim_end()));
        let first = client.read_until(b"\r\n");
        assert_eq!(String::from_utf8_lossy(&first), "*2\r\n", "{cursor} {options}");
        client.read_until(b"\r\n");
        let mut line = || String::from_utf8(client.read_until(b"\r\n")).unwrap().trim().to_owned();
        cursor = line();
        assert!(cursor.parse::<u64>().unwrap() < 1 << 53, "{cursor}");
        let count: usize = line().strip_prefix('*').unwrap().parse().unwrap();
        for _ in 0..count {
            line();
            keys.push(line());
        }
        steps += 1;
        if cursor == "0" {
            return (keys, steps);
        }
    }
}

/// Sets a flag when it is dropped, also by a panic.
struct SetAtEnd<'f>(&'f std::sync::atomic::AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn a_scan_returns_every_record_that_stays() {
    const KEYS: usize = 3000;
    let folder = tempfile::tempdir().unwrap();
    let databases = [
        memory(),
        support::memory_tree(),
        hash(folder.path()),
        tree(folder.path()),
        fixed(folder.path()),
        table(folder.path()),
    ];
    for (number, database) in databases.into_iter().enumerate() {
        let (is_fixed, is_table) = (number == 4, number == 5);
        let key = |number: usize| match is_fixed {
            true => (3 * number + 1).to_string(),
            false => format!("a_key_with_a_long_beginning/{number}"),
        };
        let value: &[u8] = if is_table { b"a\0b" } else { b"v" };
        for number in 0..KEYS {
            database.put(key(number).as_bytes(), value).unwrap();
        }
        let server = start(database);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = SetAtEnd(&is_over);
            // Other records come and go meanwhile.
            scope.spawn(|| {
                let mut client = server.connect();
                let mut number = 0;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    number = (number + 7919) % KEYS;
                    let key =
                        if is_fixed { (3 * number + 2).to_string() } else { format!("{number}") };
                    client.send(&command(&format!("SET {key} {}", String::from_utf8_lossy(value))));
                    client.expect("+OK\r\n");
                    client.send(&command(&format!("DEL {key}")));
                    client.expect(":1\r\n");
                }
            });
            let mut client = server.connect();
            for options in ["", "COUNT 100", "COUNT 100000 TYPE string", "MATCH * COUNT 1"] {
                let (keys, steps) = scanned(&mut client, options);
                let all: std::collections::BTreeSet<_> = keys.into_iter().collect();
                for number in 0..KEYS {
                    assert!(all.contains(&key(number)), "{number} {options}");
                }
                assert!(options.contains("100000") || steps > 5, "{number} {options} {steps}");
            }
            let pattern = if is_fixed { "1?" } else { "a_key_with*/1?" };
            let (keys, _) = scanned(&mut client, &format!("COUNT 50 MATCH {}", pattern));
            let expected = (0..KEYS).filter(|number| match is_fixed {
                true => (10..20).contains(&(3 * number + 1)),
                false => (10..20).contains(number),
            });
            let all: std::collections::BTreeSet<_> = keys.into_iter().collect();
            assert!(expected.clone().all(|number| all.contains(&key(number))), "{all:?}");
            assert!(all.len() <= 10, "{all:?}");
            assert_eq!(scanned(&mut client, "COUNT 1000 TYPE list").0, [""; 0]);
        });
        talk(
            &mut server.connect(),
            &[
                ("SCAN abc", "-ERR invalid cursor"),
                ("SCAN -1", "-ERR invalid cursor"),
                ("SCAN 99999999999999999999", "-ERR invalid cursor"),
                ("SCAN 0 COUNT", "-ERR syntax error"),
                ("SCAN 0 COUNT 0", "-ERR syntax error"),
                ("SCAN 0 COUNT x", "-ERR value is not an integer or out of range"),
                ("SCAN 0 FOO 1", "-ERR syntax error"),
            ],
        );
        // A cursor that no step has returned ends the scan, or is an error.
        let mut client = server.connect();
        client.send(&command("SCAN 9007199254740991"));
        let reply = client.read_until(b"\r\n");
        let reply = String::from_utf8(reply).unwrap();
        assert!(reply == "*2\r\n" || reply.contains("invalid cursor: begin again"), "{reply}");
    }
}
