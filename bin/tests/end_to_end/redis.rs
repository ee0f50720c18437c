//! `tyrant import redis://...` and `tyrant export --to redis://...`.

use crate::process::{Server, fail, path, succeed};
use crate::tls;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use tempfile::TempDir;
use wire::Parse;
use wire::redis::parse;

/// A time at which a record expires, in milliseconds since 1970.
const LATER_MS: &str = "4102444800123";

fn url(server: &Server) -> String {
    format!("redis://{}", server.address())
}

fn request(words: &[&str]) -> String {
    let word = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n{}", words.len(), words.iter().map(word).collect::<String>())
}

fn in_folder(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

/// Checks the two records that `fill` makes, which another client reads.
fn check(server: &Server) {
    server.exchange(request(&["GET", "a\r\n\u{ff}"]), "$5\r\nb\0\r\nc\r\n");
    server.exchange(request(&["TTL", "a\r\n\u{ff}"]), ":-1\r\n");
    server.exchange(request(&["PEXPIRETIME", "brief"]), format!(":{LATER_MS}\r\n"));
    server.exchange(request(&["DBSIZE"]), ":1002\r\n");
}

fn fill(server: &Server) {
    server.exchange(request(&["SET", "a\r\n\u{ff}", "b\0\r\nc"]), "+OK\r\n");
    server.exchange(request(&["SET", "brief", "", "PXAT", LATER_MS]), "+OK\r\n");
    let puts: String =
        (0..1000).map(|number| request(&["SET", &format!("k{number}"), "v"])).collect();
    server.exchange(puts, "+OK\r\n".repeat(1000));
}

#[test]
fn strings_go_into_a_database_and_back_with_their_expiries() {
    for kind in ["tch", "tcb"] {
        let (from, to) = (Server::tyrant(&format!("a.{kind}"), &[]), Server::tyrant("b.tch", &[]));
        let folder = tempfile::tempdir().unwrap();
        let name = in_folder(&folder, &format!("c.{kind}"));
        fill(&from);
        let output = succeed("tyrant", &["import", &url(&from), "--into", &name]);
        assert!(output.ends_with(&format!("1002 records in {name}\n")), "{output}");
        let output = succeed("tyrant", &["export", &name, "--to", &url(&to)]);
        assert_eq!(output, format!("1002 records stored in {}/0\n", url(&to)));
        check(&to);
    }
}

#[test]
fn strings_go_from_one_server_into_another() {
    let (from, to) = (Server::tyrant("a.tcb", &[]), Server::tyrant("*", &[]));
    fill(&from);
    let output = succeed("tyrant", &["import", &url(&from), "--into", &url(&to)]);
    assert_eq!(output, format!("1002 records from {}/0\n", url(&from)));
    check(&to);
}

#[test]
fn connections_use_tls_and_log_in() {
    let authority = tls::certificates::Authority::new();
    let server = tls::serve("a.tch", &authority.server(&["127.0.0.1"]), &[]);
    let folder = tempfile::tempdir().unwrap();
    let (file, name) = (authority.file().display().to_string(), in_folder(&folder, "b.tch"));
    let encrypted = format!("rediss://{}", server.address());
    let into = ["--into", &name];
    let import = |url: &str, options: &[&str]| {
        [&["import", url], &into[..], options].concat().iter().map(ToString::to_string).collect()
    };
    let import: &dyn Fn(&str, &[&str]) -> Vec<String> = &import;
    succeed("tyrant", &["put", "k", "v", "--server", &server.address(), "--tls-ca", &file]);
    let output = succeed("tyrant", &import(&encrypted, &["--tls-ca", &file]));
    assert!(output.starts_with("1 record from rediss://127.0.0.1:"), "{output}");
    let error = fail("tyrant", &import(&encrypted, &[]));
    assert!(error.contains("with TLS: invalid peer certificate"), "{error}");
    let error = fail("tyrant", &import(&url(&server), &["--tls-ca", &file]));
    assert!(error.contains("begin the URL with rediss://"), "{error}");
    let alone = format!("redis://:secret@{}", server.address());
    let error = fail("tyrant", &import(&alone, &[]));
    assert!(!error.contains('@') && !error.contains("secret"), "{error}");
    let login = format!("rediss://ann:secret@{}", server.address());
    let error = fail("tyrant", &import(&login, &["--tls-ca", &file]));
    assert!(error.contains("refuses the login: ") && !error.contains("secret"), "{error}");
}

#[test]
fn a_redis_server_without_tls_that_waits_for_more_of_the_handshake_is_recognized() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("to serve");
    let port = listener.local_addr().expect("to serve").port();
    thread::spawn(move || {
        let mut waiting = Vec::new();
        for stream in listener.incoming() {
            let (mut stream, mut request) = (stream.expect("to serve"), [0; 64]);
            let length = stream.read(&mut request).expect("to serve");
            if request[..length].starts_with(b"*1\r\n$4\r\nPING\r\n") {
                stream.write_all(b"+PONG\r\n").expect("to serve");
            }
            waiting.push(stream);
        }
    });
    let url = format!("rediss://127.0.0.1:{port}");
    let error = fail("tyrant", &["import", &url, "--into", "*"]);
    assert!(error.contains("does not speak TLS: begin the URL with redis://"), "{error}");
}

/// A server that replies to each request by this function, on one connection after the other.
fn scripted(reply: impl Fn(&[&str]) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("to serve");
    let port = listener.local_addr().expect("to serve").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that ends early closes it.
            let _ = serve(&mut stream.expect("to serve"), &reply);
        }
    });
    format!("redis://127.0.0.1:{port}")
}

fn serve(stream: &mut TcpStream, reply: &dyn Fn(&[&str]) -> String) -> std::io::Result<()> {
    let (mut received, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        while let Parse::Complete(request, length) = parse(&received) {
            let name = std::iter::once(request.name).chain(request.arguments.iter());
            let words: Vec<&str> =
                name.map(|word| std::str::from_utf8(word).expect("to serve")).collect();
            stream.write_all(reply(&words).as_bytes())?;
            received.drain(..length);
        }
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            bytes => received.extend_from_slice(&chunk[..bytes]),
        }
    }
}

/// Replies as Redis 6, which has no PEXPIRETIME, with two steps of a scan.
fn of_redis_6(words: &[&str]) -> String {
    match words {
        ["SELECT", _] | ["SET", ..] => "+OK\r\n",
        ["DBSIZE"] => ":6\r\n",
        ["SCAN", "0", ..] => "*2\r\n$2\r\n17\r\n*3\r\n$1\r\na\r\n$4\r\ngone\r\n$1\r\nl\r\n",
        ["SCAN", "17", ..] => "*2\r\n$1\r\n0\r\n*3\r\n$1\r\nb\r\n$1\r\nh\r\n$2\r\nh2\r\n",
        ["PTTL", "a"] => ":100000000\r\n",
        ["PTTL", "gone"] => ":-2\r\n",
        ["PTTL", _] => ":-1\r\n",
        ["GET", "a" | "b"] => "$1\r\nv\r\n",
        ["GET", "gone"] => "$-1\r\n",
        ["GET", _] => "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
        ["TYPE", "l"] => "+list\r\n",
        ["TYPE", _] => "+hash\r\n",
        _ => "-ERR unknown command\r\n",
    }
    .to_owned()
}

#[test]
fn other_types_are_counted_and_all_strings_imported_from_an_older_redis() {
    let (from, folder) = (scripted(of_redis_6), tempfile::tempdir().unwrap());
    let name = in_folder(&folder, "a.tch");
    let error = fail("tyrant", &["import", &from, "--into", &name]);
    let expected = "tyrant: 3 records were not imported: 2 of type hash (as \"h\"), 1 of type list \
                    (as \"l\"); everything else was; values are strings here\n";
    assert_eq!(error, expected);
    let text = in_folder(&folder, "a.jsonl");
    succeed("tyrant", &["export", &name, &text]);
    let mut lines: Vec<String> =
        std::fs::read_to_string(text).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert!(lines[0].starts_with("{\"key\":\"a\",\"value\":\"v\",\"expires_at_ms\":"), "{lines:?}");
    assert_eq!(lines[1..], ["{\"key\":\"b\",\"value\":\"v\"}"]);
    let error = fail("tyrant", &["import", &from, "--into", &in_folder(&folder, "t.tct")]);
    assert!(error.contains("a table takes rows"), "{error}");
}

#[test]
fn an_interrupted_import_names_its_cursor_and_goes_on_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let name = in_folder(&folder, "a.tch");
    let (reached, waiting) = channel();
    let from = scripted(move |words| {
        if words.starts_with(&["SCAN", "17"]) {
            reached.send(()).unwrap();
            thread::park();
        }
        of_redis_6(words)
    });
    let with_password = from.replace("redis://", "redis://:secret@");
    // This server has no passwords.
    let error = fail("tyrant", &["import", &with_password, "--into", &name]);
    assert!(error.contains("refuses the login") && !error.contains("secret"), "{error}");

    let mut child = Command::new(path("tyrant"))
        .args(["import", &from, "--into", &name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    waiting.recv().unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(2), "{said}");
    let begin = "tyrant: interrupted after 1 record; they are stored; the same command with --cursor \
                 17 imports the rest; ";
    assert!(said.starts_with(begin), "{said}");

    let from = scripted(|words| {
        assert_ne!(words.get(..2), Some(&["SCAN", "0"][..]));
        of_redis_6(words)
    });
    fail("tyrant", &["import", &from, "--into", &name, "--cursor", "17"]);
    let text = in_folder(&folder, "a.tsv");
    succeed("tyrant", &["export", &name, &text]);
    assert_eq!(std::fs::read_to_string(text).unwrap().lines().count(), 2);
}

/// Replies as a Redis with three steps of a scan, each of 400 strings.
fn of_three_steps(words: &[&str]) -> String {
    match words {
        ["SELECT", _] => "+OK\r\n".to_owned(),
        ["DBSIZE"] => ":1200\r\n".to_owned(),
        ["SCAN", cursor, ..] => {
            let step: usize = cursor.parse().expect("a cursor");
            let keys: Vec<String> = (0..400).map(|number| format!("{step}-{number}")).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let next = ((step + 1) % 3).to_string();
            format!("*2\r\n${}\r\n{next}\r\n{}", next.len(), request(&keys))
        }
        ["PEXPIRETIME", _] => ":-1\r\n".to_owned(),
        ["GET", _] => "$1\r\nv\r\n".to_owned(),
        _ => "-ERR unknown command\r\n".to_owned(),
    }
}

#[test]
fn the_cursor_of_an_import_whose_destination_fails_leaves_no_record_out() {
    // The first SETs are sent within a later step than that of their records.
    let from = scripted(of_three_steps);
    let is_full = Arc::new(AtomicBool::new(true));
    let keys = Arc::new(Mutex::new(BTreeSet::new()));
    let (full, stored) = (Arc::clone(&is_full), Arc::clone(&keys));
    let into = scripted(move |words| match words {
        ["SET", ..] if full.load(Ordering::SeqCst) => "-OOM command not allowed\r\n".to_owned(),
        ["SET", key, ..] => {
            stored.lock().unwrap().insert((*key).to_owned());
            "+OK\r\n".to_owned()
        }
        _ => "+OK\r\n".to_owned(),
    });
    let error = fail("tyrant", &["import", &from, "--into", &into]);
    let again = "0 records were imported; the same command imports all of them again";
    assert!(error.contains(again) && error.contains("OOM"), "{error}");
    let error = fail("tyrant", &["import", &from, "--into", &into, "--cursor", "1"]);
    let again = "0 records were imported; the same command with --cursor 1 imports the rest";
    assert!(error.contains(again), "{error}");

    is_full.store(false, Ordering::SeqCst);
    succeed("tyrant", &["import", &from, "--into", &into, "--cursor", "1"]);
    assert_eq!(keys.lock().unwrap().len(), 800);
    succeed("tyrant", &["import", &from, "--into", &into]);
    assert_eq!(keys.lock().unwrap().len(), 1200);
}

#[test]
fn a_record_that_is_replaced_while_it_is_read_does_not_get_the_expiry_of_before() {
    // Between the two requests for it, a record that expires becomes a permanent one.
    let is_replaced = AtomicBool::new(false);
    let from = scripted(move |words| match words {
        ["SCAN", ..] => "*2\r\n$1\r\n0\r\n*1\r\n$1\r\na\r\n".to_owned(),
        ["GET" | "PEXPIRETIME", "a"] => {
            let was_replaced = is_replaced.swap(true, Ordering::SeqCst);
            match (words[0], was_replaced) {
                ("GET", false) => "$3\r\nold\r\n".to_owned(),
                ("GET", true) => "$3\r\nnew\r\n".to_owned(),
                (_, false) => format!(":{LATER_MS}\r\n"),
                (_, true) => ":-1\r\n".to_owned(),
            }
        }
        _ => of_three_steps(words),
    });
    let folder = tempfile::tempdir().unwrap();
    let (name, text) = (in_folder(&folder, "a.tch"), in_folder(&folder, "a.jsonl"));
    succeed("tyrant", &["import", &from, "--into", &name]);
    succeed("tyrant", &["export", &name, &text]);
    let line = std::fs::read_to_string(text).unwrap();
    assert!(!line.contains("expires_at_ms"), "{line}");
}

#[test]
fn replies_that_are_none_end_an_import_with_the_place() {
    for (reply, reason) in [
        ("*2\r\n$1\r\n0\r\n:5\r\n", "not a cursor and keys"),
        ("*1000000000\r\n", "over the limit"),
        ("$999999999999\r\n", "over the limit"),
        ("HTTP/1.1 400 Bad Request\r\n", "not of this protocol"),
        ("-LOADING the dataset\r\n", "SCAN failed: LOADING"),
        ("*2\r\n$1\r\nx\r\n*0\r\n", "is not a number"),
    ] {
        let from = scripted(move |words| match words {
            ["SCAN", ..] => reply.to_owned(),
            _ => of_redis_6(words),
        });
        let folder = tempfile::tempdir().unwrap();
        let error = fail("tyrant", &["import", &from, "--into", &in_folder(&folder, "a.tch")]);
        assert!(error.contains(reason) && error.contains("0 records were imported"), "{error}");
    }
}

#[test]
fn no_database_is_created_if_the_source_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let name = in_folder(&folder, "a.tch");
    let refusing = scripted(|_| "-NOAUTH Authentication required.\r\n".to_owned());
    let closed = format!("redis://127.0.0.1:{}", crate::ports::free_port());
    for (from, reason) in [(&refusing, "requires a user: name one"), (&closed, "cannot connect")] {
        let error = fail("tyrant", &["import", from, "--into", &name]);
        assert!(error.contains(reason) && !std::fs::exists(&name).unwrap(), "{error}");
    }
}

#[test]
fn an_export_names_refused_records_and_ends_where_all_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (text, name) = (in_folder(&folder, "a.tsv"), in_folder(&folder, "a.tcb"));
    std::fs::write(&text, "a\t1\nb\t1\nb\t2\nc\t1\n").unwrap();
    succeed("tyrant", &["import", &text, "--into", &name]);
    let to = scripted(|words| match words {
        ["SET", "a", ..] => "-NOPERM no permission\r\n".to_owned(),
        _ => of_redis_6(words),
    });
    let error = fail("tyrant", &["export", &name, "--to", &to]);
    assert!(error.contains("key \"a\": NOPERM no permission\n"), "{error}");
    assert!(error.contains("key \"b\": it has several values"), "{error}");
    assert!(error.contains("2 records were not stored in"), "{error}");
    let to = scripted(|words| match words {
        ["SET", "b", ..] => "-READONLY this is a replica\r\n".to_owned(),
        _ => of_redis_6(words),
    });
    let error = fail("tyrant", &["export", &name, "--to", &to]);
    assert!(error.contains("ended at the key \"b\": the server replied: READONLY"), "{error}");

    std::fs::write(&text, "a\tname\tann\n").unwrap();
    let table = in_folder(&folder, "t.tct");
    succeed("tyrant", &["import", &text, "--into", &table]);
    let error = fail("tyrant", &["export", &table, "--to", &to]);
    assert!(error.contains("is a table"), "{error}");
}
