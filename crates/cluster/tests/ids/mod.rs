//! Fixed-length databases: their operations, random operations beside a database of this process,
//! and several servers over the same ids.

use super::support::{
    Client, Running, config, list, memory_tree, misc, named, request, start, start_with, wait_until,
};
use super::{execute, make, name, race, serve, suite};
use cluster::{ClusterStore, Name};
use server::{Config, RemoteStore};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::binary::Request;

/// Runs a part of the suite over an empty database.
fn pass_ids(keyspace: &str, test: impl Fn(&Running)) {
    test(&serve(&make(keyspace, "#kind=tcf#width=8#buckets=3")));
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn functions_have_the_replies_of_a_local_database_of_ids() {
    pass_ids("id_functions", suite::ids::functions);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn intervals_and_pages_of_ids_are_in_their_order() {
    pass_ids("id_intervals", suite::ids::intervals);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn values_are_cut_to_the_width() {
    pass_ids("id_values", suite::ids::values);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_key_that_is_no_id_has_no_record_in_any_protocol() {
    pass_ids("id_protocols", suite::ids::protocols);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_database_of_ids_is_used_only_with_the_limits_that_it_was_made_with() {
    make("id_limits", "#kind=tcf#width=8#limsiz=1m");
    assert!(ClusterStore::connect(&name("id_limits", "#kind=tcf#width=8#limsiz=1024k")).is_ok());
    let is =
        "has a database with kind=tcf, mode=strict, buckets=16, width=8, limsiz=1048576, format 3";
    for (options, wanted) in [
        ("#kind=tcf#limsiz=1m", "kind=tcf, mode=strict, buckets=16, width=255, limsiz=1048576"),
        ("#kind=tcf#width=8", "kind=tcf, mode=strict, buckets=16, width=8, limsiz=268435456"),
        ("#kind=tcb", "kind=tcb, mode=strict, buckets=16"),
    ] {
        let name = name("id_limits", options);
        for error in
            [ClusterStore::connect(&name).unwrap_err(), cluster::init(&name, 1).unwrap_err()]
        {
            let expected = format!("{is}, and not with {wanted}, format 3");
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }
    make("id_other_kind", "");
    let name = name("id_other_kind", "#kind=tcf");
    let error = cluster::init(&name, 1).unwrap_err().to_string();
    assert!(error.contains("has a database with kind=tch, mode=strict, format 3"), "{error}");
}

/// Random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns a key: mostly one of a few ids, so that operations meet.
    fn key(&mut self) -> String {
        match self.below(12) {
            0 => self.of(&["min", "max"]).to_owned(),
            1 => self.of(&["next", "next", "prev"]).to_owned(),
            2 => self.of(&["a5", "007", "x1y2", "-3", "minx4"]).to_owned(),
            3 => self.of(&["0", "x", "MAX", "1000000", "99999999999999999999"]).to_owned(),
            _ => (1 + self.below(14)).to_string(),
        }
    }

    fn value(&mut self) -> String {
        self.of(&["", "1", "42", "four", "7 bytes", "8 bytes.", "more than 8 bytes"]).to_owned()
    }
}

/// Length of the part of a reply that follows a status of 0.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Fixed(usize),
    /// A length and as many bytes.
    String,
    /// A number of strings.
    Strings,
    /// The same, also after a failure.
    Misc,
    /// The same: keys and values in any order.
    Pairs,
    /// A number of keys and values, whose lengths come first.
    Records,
    /// A line.
    Line,
    /// Lines until `END`, or one with an error.
    Values,
}

fn number(client: &mut impl Read) -> io::Result<usize> {
    let mut bytes = [0; 4];
    client.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes) as usize)
}

fn string(client: &mut impl Read, bytes: usize) -> io::Result<Vec<u8>> {
    let mut string = vec![0; bytes];
    client.read_exact(&mut string)?;
    Ok(string)
}

/// Sends a request and returns its reply, in parts. Fails if the cluster has not answered it.
fn ask(client: &mut Client, request: &[u8], shape: Shape) -> io::Result<Vec<String>> {
    client.stream.write_all(request)?;
    let shown = |part: Vec<u8>| part.escape_ascii().to_string();
    if let Shape::Line | Shape::Values = shape {
        let mut reply = Vec::new();
        loop {
            let mut byte = [0];
            client.stream.read_exact(&mut byte)?;
            reply.push(byte[0]);
            let is_error = reply.starts_with(b"SERVER_ERROR") || reply.starts_with(b"CLIENT_ERROR");
            let is_line = matches!(shape, Shape::Line) || is_error;
            if reply.ends_with(b"END\r\n") || is_line && reply.ends_with(b"\r\n") {
                break;
            }
        }
        if reply.starts_with(b"SERVER_ERROR the store ") {
            return Err(io::Error::other("the store has failed"));
        }
        return Ok(vec![shown(reply)]);
    }
    let status = string(&mut client.stream, 1)?;
    let is_done = status == [0];
    let mut parts = vec![shown(status)];
    let stream = &mut client.stream;
    match shape {
        Shape::Misc | Shape::Pairs => {}
        _ if !is_done => return Ok(parts),
        _ => {}
    }
    match shape {
        Shape::Fixed(bytes) => parts.push(shown(string(stream, bytes)?)),
        Shape::String => {
            let length = number(stream)?;
            parts.push(shown(string(stream, length)?));
        }
        Shape::Strings | Shape::Misc | Shape::Pairs => {
            for _ in 0..number(stream)? {
                let length = number(stream)?;
                parts.push(shown(string(stream, length)?));
            }
        }
        Shape::Records => {
            for _ in 0..number(stream)? {
                let lengths = [number(stream)?, number(stream)?];
                for length in lengths {
                    parts.push(shown(string(stream, length)?));
                }
            }
        }
        Shape::Line | Shape::Values => {}
    }
    if let Shape::Pairs = shape {
        let mut pairs: Vec<String> = parts[1..].chunks(2).map(|pair| pair.join(" ")).collect();
        pairs.sort_unstable();
        return Ok(pairs);
    }
    Ok(parts)
}

/// Returns a random request, of Tokyo Tyrant's protocol or, with `true`, of memcached.
fn operation(random: &mut Random) -> (Vec<u8>, Shape, bool) {
    let (text, value) = (random.key(), random.value());
    let (key, value) = (text.as_bytes(), value.as_bytes());
    let done = Shape::Fixed(0);
    let of = |asked: &Request<'_>, shape| (request(asked), shape, false);
    match random.below(30) {
        0..4 => of(&Request::Put { key, value }, done),
        4 => of(&Request::PutKeep { key, value }, done),
        5 => of(&Request::PutCat { key, value }, done),
        6 => of(&Request::PutShift { key, value, width: random.below(12) as u32 }, done),
        7 => of(&Request::Out { key }, done),
        8 | 9 => of(&Request::Get { key }, Shape::String),
        10 => of(&Request::ValueSize { key }, Shape::Fixed(4)),
        11 => of(&Request::AddInt { key, addend: random.below(9) as i32 - 4 }, Shape::Fixed(4)),
        12 => {
            let integral = random.below(9) as i64 - 4;
            of(&Request::AddDouble { key, integral, fractional: 0 }, Shape::Fixed(16))
        }
        13 => of(&Request::Count, Shape::Fixed(8)),
        14..18 => {
            let ends = [random.key(), random.key()];
            let (open, close) = (random.of(&["[", "(", "[", "{"]), random.of(&["]", ")", "]"]));
            let interval = format!("{open}{},{}{close}", ends[0], ends[1]);
            let max = random.of(&[-1, -1, 3]);
            let asked = Request::KeysWithPrefix { prefix: interval.as_bytes(), max };
            of(&asked, Shape::Strings)
        }
        18 => {
            let keys = [random.key(), random.key(), random.key()];
            let mut bytes = b"\xc8\x31\0\0\0\x03".to_vec();
            for key in &keys {
                bytes.extend((key.len() as u32).to_be_bytes());
                bytes.extend(key.as_bytes());
            }
            (bytes, Shape::Records, false)
        }
        19..24 => {
            let others = [random.key(), random.key()];
            let max = random.of(&["0", "2"]);
            let (name, arguments) = match random.below(7) {
                0 => ("range", vec![&text[..], max, &others[0]]),
                1 => ("getlist", vec![&text[..], &others[0]]),
                2 => ("outlist", vec![&text[..], &others[0]]),
                3 => ("regex", vec![random.of(&["^1", "[2-5]", "0$"])]),
                4 => ("iterinit", vec![&text[..]]),
                5 => ("putlist", vec!["next", "n", &text[..], "l"]),
                _ => ("iternext", vec![]),
            };
            // A list with an invalid key is refused before its first change.
            let is_whole = name != "putlist" && name != "outlist";
            let is_valid = |key: &&str| {
                let id = key.bytes().filter(u8::is_ascii_digit).collect::<Vec<_>>();
                let id = String::from_utf8(id).unwrap().parse::<u64>();
                ["min", "max", "prev", "next"].contains(key)
                    || id.is_ok_and(|id| (1..=10_000).contains(&id))
            };
            let is_valid =
                arguments.iter().step_by(if name == "putlist" { 2 } else { 1 }).all(is_valid);
            match is_whole || is_valid {
                // Over a local database, records are in the order of the disk.
                true if name == "regex" => (misc(name, &arguments), Shape::Pairs, false),
                true => (misc(name, &arguments), Shape::Misc, false),
                false => of(&Request::Count, Shape::Fixed(8)),
            }
        }
        _ => {
            let verb = random.of(&["set", "add", "replace", "append", "prepend"]);
            let value = String::from_utf8_lossy(value);
            let (line, shape) = match random.below(6) {
                0 => (format!("get {text} {}\r\n", random.key()), Shape::Values),
                1 => (format!("incr {text} 7\r\n"), Shape::Line),
                2 => (format!("delete {text}\r\n"), Shape::Line),
                3 => (format!("touch {text} 1000\r\n"), Shape::Line),
                _ => {
                    let flags = random.below(3);
                    let head = format!("{verb} {text} {flags} 0 {}", value.len());
                    (format!("{head}\r\n{value}\r\n"), Shape::Line)
                }
            };
            (line.into_bytes(), shape, true)
        }
    }
}

/// Clients of a server, one for each protocol.
fn clients(server: &Running) -> [Client; 2] {
    [server.connect(), server.connect()]
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn random_operations_have_the_replies_of_a_local_database_of_ids() {
    const OPERATIONS: usize = 800;
    let seed = match std::env::var("TYRANT_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => RandomState::new().build_hasher().finish(),
    };
    println!("TYRANT_SEED={seed}");
    let folder = tempfile::tempdir().unwrap();
    // Ids up to 14,506.
    let local = start(named(folder.path(), "casket.tcf#width=8#limsiz=128k"));
    let server = serve(&make("id_model", "#kind=tcf#width=8#limsiz=128k#buckets=3"));
    let (mut locals, mut remotes) = (clients(&local), clients(&server));
    let mut random = Random(seed);
    let (mut compared, mut lost) = (0, 0);
    let vanish = misc("vanish", &[]);
    for number in 0..OPERATIONS {
        let (asked, shape, is_text) = match number + 1 == OPERATIONS {
            true => (misc("range", &[]), Shape::Misc, false),
            false => operation(&mut random),
        };
        let client = usize::from(is_text);
        let expected = ask(&mut locals[client], &asked, shape).unwrap();
        match ask(&mut remotes[client], &asked, shape) {
            Ok(found) => assert_eq!(found, expected, "{number}: {}", asked.escape_ascii()),
            Err(error) => {
                // It may have been executed: both begin again without records.
                println!("{number}: {error}");
                (locals, remotes) = (clients(&local), clients(&server));
                ask(&mut locals[0], &vanish, Shape::Misc).unwrap();
                while ask(&mut remotes[0], &vanish, Shape::Misc).is_err() {
                    remotes = clients(&server);
                }
                lost += 1;
                continue;
            }
        }
        compared += 1;
    }
    println!("{compared} replies were those of the local database, {lost} were lost");
    assert!(compared > OPERATIONS / 2);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn clients_of_two_servers_that_put_next_get_ids_of_their_own() {
    const CLIENTS: usize = 6;
    const PUTS: usize = 15;
    let name = make("id_next", "#kind=tcf#width=16#buckets=3");
    let servers = [serve(&name), serve(&name)];
    let put = |client: &mut Client, value: &str| {
        let asked = request(&Request::Put { key: b"next", value: value.as_bytes() });
        ask(client, &asked, Shape::Fixed(0))
    };
    let told = race([&servers[0], &servers[1]], CLIENTS, |number, client| {
        let mut stored = Vec::new();
        for round in 0..PUTS {
            let value = format!("{number}-{round}");
            match put(client, &value) {
                Ok(reply) => {
                    assert_eq!(reply[0], "\\x00");
                    stored.push(value);
                }
                // The outcome is unknown.
                Err(_) => *client = servers[number % 2].connect(),
            }
        }
        stored
    });
    let mut stored: Vec<String> = told.into_iter().flatten().collect();
    let range = ask(&mut servers[0].connect(), &misc("range", &[]), Shape::Misc).unwrap();
    let records: Vec<(u64, String)> = range[1..]
        .chunks(2)
        .map(|record| (record[0].parse().unwrap(), record[1].clone()))
        .collect();
    assert!(records.is_sorted_by(|one, other| one.0 < other.0), "{records:?}");
    let mut found: Vec<String> = records.iter().map(|(_, value)| value.clone()).collect();
    println!(
        "{} puts acknowledged, {} records up to {:?}",
        stored.len(),
        found.len(),
        records.last()
    );
    found.sort_unstable();
    stored.sort_unstable();
    assert!(stored.len() > CLIENTS * PUTS / 2);
    // None was put twice, and none that was acknowledged is missing.
    let mut once = found.clone();
    once.dedup();
    assert_eq!(once, found);
    assert!(stored.iter().all(|value| found.binary_search(value).is_ok()));
    let mut client = servers[1].connect();
    client.exchange(misc("out", &["max"]), list(&[]));
    let last = ask(&mut client, &misc("get", &["max"]), Shape::Misc).unwrap();
    assert_eq!(last[1], records[records.len() - 2].1);
}

/// Returns a statement that removes the entries of an id from all buckets of the order.
fn remove_entries(name: &Name, id: u64) -> String {
    let keyspace = &name.keyspace;
    let buckets: Vec<String> = (0..name.buckets).map(|bucket| bucket.to_string()).collect();
    let buckets = buckets.join(", ");
    format!("DELETE FROM \"{keyspace}\".key_order WHERE s IN ({buckets}) AND k = 0x00{id:016x}")
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn next_and_prev_pass_records_that_have_lost_their_entries() {
    let name = make("id_lost_entries", "#kind=tcf#width=8#buckets=3");
    let server = serve(&name);
    let mut client = server.connect();
    let ids = ["10", "11", "12", "13", "14", "15"];
    for id in ids {
        client.exchange(misc("put", &[id, "v"]), list(&[]));
    }
    execute(&name, &[10, 11, 14, 15].map(|id| remove_entries(&name, id)));
    let present = |client: &mut Client, found: &[&str]| {
        let asked = Request::KeysWithPrefix { prefix: b"[min,max]", max: -1 };
        let mut reply = vec!["\\x00"];
        reply.extend(found);
        assert_eq!(ask(client, &request(&asked), Shape::Strings).unwrap(), reply);
    };
    present(&mut client, &["12", "13"]);
    client.exchange(misc("put", &["next", "next"]), list(&[]));
    client.exchange(misc("put", &["prev", "prev"]), list(&[]));
    client.exchange(misc("get", &["16"]), list(&["next"]));
    client.exchange(misc("get", &["9"]), list(&["prev"]));
    for id in ids {
        client.exchange(misc("get", &[id]), list(&["v"]));
    }
    // Their entries are there again.
    present(&mut client, &["9", "10", "11", "12", "13", "14", "15", "16"]);
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_list_of_puts_at_next_looks_at_the_end_once() {
    const BUCKETS: u64 = 8;
    const PUTS: u64 = 50;
    let store = ClusterStore::connect(&make("id_list", "#kind=tcf#width=8#buckets=8")).unwrap();
    let remote = Some(Arc::<ClusterStore>::clone(&store) as _);
    let server = start_with(Config { remote, ..config() }, memory_tree());
    let mut client = server.connect();
    let pairs: Vec<String> =
        (1..=PUTS).flat_map(|number| ["next".to_owned(), number.to_string()]).collect();
    let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
    client.exchange(misc("putlist", &pairs), list(&[]));
    let status = store.status();
    let statements = status.statements + status.refused + status.unknown;
    // Each put reads the record, adds the entry, and puts the record.
    assert!(statements <= PUTS * 3 + 2 * BUCKETS, "{statements} statements");
    for number in 1..=PUTS {
        let number = number.to_string();
        client.exchange(misc("get", &[&number]), list(&[&number]));
    }
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn a_change_of_the_last_record_needs_memory_for_it() {
    let name = make("id_memory", "#kind=tcf#width=1m#limsiz=1g#buckets=1");
    let length = 400_000;
    let value = vec![b'v'; length];
    let put = request(&Request::Put { key: b"7", value: &value });
    let large = serve(&name);
    large.connect().exchange(put, b"\0");
    let remote = Some(ClusterStore::connect(&name).unwrap() as _);
    // The old value, and the cell of the new one, are more than that.
    let small = Config { remote, buffer_bytes_max: 600_000, ..config() };
    let server = start_with(small, memory_tree());
    let mut client = server.connect();
    let mut replies = ["7", "max", "min"].map(|key| {
        client.send(format!("append {key} 0 0 1\r\nx\r\n").as_bytes());
        String::from_utf8(client.read_until(b"\r\n")).unwrap()
    });
    assert!(replies[0].starts_with("SERVER_ERROR"), "{replies:?}");
    replies.sort_unstable();
    assert_eq!(replies[0], replies[2]);
    let size = request(&Request::ValueSize { key: b"7" });
    let length = u32::try_from(length).unwrap().to_be_bytes();
    large.connect().exchange(size, [&[0][..], &length].concat());
}

#[test]
#[ignore = "needs Cassandra: cargo xtask cluster-test"]
fn entries_without_records_are_removed_once_they_are_met() {
    const DEAD: u64 = 200;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let named = |age: Duration, number: u64| {
        // Time, number, and a life without end: see `entry_name.rs`.
        let units = u64::try_from((now - age).as_millis()).unwrap() >> 17;
        units << 37 | number << 5 | 31
    };
    let (old, new) = (Duration::from_secs(20 * 60), Duration::ZERO);
    let all = request(&Request::KeysWithPrefix { prefix: b"", max: -1 });
    for (keyspace, options, met, shape) in [
        ("id_dead", "#kind=tcf#width=8#buckets=1", misc("get", &["min"]), Shape::Misc),
        ("tree_dead", "#kind=tcb#buckets=1", all, Shape::Strings),
    ] {
        let name = make(keyspace, options);
        let server = serve(&name);
        let mut client = server.connect();
        // In the order of both kinds the keys are those of ids.
        let key = |id: u64| format!("0x00{id:016x}");
        let table = format!("\"{}\".key_order", name.keyspace);
        let add = |id, age| {
            let (key, entry) = (key(id), named(age, id));
            format!("INSERT INTO {table} (s, k, c) VALUES (0, {key}, {entry})")
        };
        let mut statements: Vec<String> = (1..=DEAD).map(|id| add(id, old)).collect();
        // The change of this one may be under way.
        statements.push(add(DEAD + 1, new));
        execute(&name, &statements);
        let last = DEAD + 2;
        let text = last.to_string();
        let bytes = last.to_be_bytes();
        let own = if keyspace == "id_dead" { text.as_bytes() } else { &bytes[..] };
        client.exchange(request(&Request::Put { key: own, value: b"v" }), b"\0");
        assert_eq!(ask(&mut client, &met, shape).unwrap().len(), 2);
        let count = [format!("SELECT count(*) FROM {table}")];
        wait_until(|| execute(&name, &count) == 2);
    }
}
