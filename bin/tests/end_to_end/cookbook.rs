//! The example scripts, called as their comments say.

use crate::process::{Server, fail, succeed, wait_for};
use std::path::Path;

/// Starts a server with an example script.
fn server(script: &str, options: &[&str]) -> Server {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/lua");
    let path = folder.join(script);
    let path = path.to_str().expect("UTF-8");
    Server::tyrant("casket.tcb", &[&["--script", path], options].concat())
}

fn arguments<'a>(address: &'a str, call: &[&'a str]) -> Vec<&'a str> {
    [&["ext", "--server", address, "--lock-record"], call].concat()
}

/// Calls a function that returns a result.
fn call(server: &Server, words: &[&str]) -> String {
    let result = succeed("tyrant", &arguments(&server.address(), words));
    result.strip_suffix('\n').expect("a line").to_owned()
}

/// Calls a function that returns none.
fn call_in_vain(server: &Server, words: &[&str]) {
    fail("tyrant", &arguments(&server.address(), words));
}

#[test]
fn windowed_counters_count_every_hit() {
    let server = server("windowed_counters.lua", &[]);
    let address = server.address();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    succeed("tyrant", &arguments(&address, &["hit", "page"]));
                }
            });
        }
    });
    // The hits may be in two windows.
    assert_eq!(call(&server, &["count", "page", "2"]), "20");
    assert_eq!(call(&server, &["count", "other", "2"]), "0");
}

#[test]
fn a_queue_returns_messages_in_order_and_survives_a_restart() {
    let mut server = server("queue.lua", &[]);
    for (number, message) in [("1", "one"), ("2", "two"), ("3", "three")] {
        assert_eq!(call(&server, &["enqueue", "mail", message]), number);
    }
    assert_eq!(call(&server, &["dequeue", "mail"]), "one");
    server.end(rustix::process::Signal::KILL);
    server.restart();
    assert_eq!(call(&server, &["queue_size", "mail"]), "2");
    assert_eq!(call(&server, &["dequeue", "mail"]), "two");
    assert_eq!(call(&server, &["dequeue", "mail"]), "three");
    call_in_vain(&server, &["dequeue", "mail"]);
}

#[test]
fn a_memcached_client_consumes_a_queue() {
    let server = server("queue.lua", &["--script-every", "advance=0.1"]);
    for message in ["one", "two"] {
        call(&server, &["enqueue", "mail", message]);
    }
    for message in ["one", "two"] {
        let expected = format!("VALUE mail:head 0 {}\r\n{message}\r\nEND\r\n", message.len());
        wait_for("the message", || {
            use std::io::{Read, Write};
            let mut stream = server.connect();
            stream.write_all(b"get mail:head\r\nquit\r\n").expect("to send");
            let mut reply = String::new();
            stream.read_to_string(&mut reply).expect("a reply");
            (reply == expected).then_some(())
        });
        server.exchange("delete mail:head\r\n", "DELETED\r\n");
    }
}

#[test]
fn a_leaderboard_has_the_best_players_first() {
    let server = server("leaderboard.lua", &[]);
    for (player, points, total) in
        [("ann", "10", "10"), ("bob", "30", "30"), ("cid", "20", "20"), ("ann", "25", "35")]
    {
        assert_eq!(call(&server, &["score", player, points]), total);
    }
    assert_eq!(call(&server, &["top", "2"]), "ann\t35\nbob\t30");
    assert_eq!(call(&server, &["top", "10"]), "ann\t35\nbob\t30\ncid\t20");
}

#[test]
fn a_rate_limiter_allows_a_burst_and_no_more() {
    let server = server("rate_limiter.lua", &[]);
    for expected in ["yes", "yes", "yes", "no"] {
        assert_eq!(call(&server, &["allow", "client", "0.001 3"]), expected);
    }
    assert_eq!(call(&server, &["allow", "another", "0.001 3"]), "yes");
    call_in_vain(&server, &["allow", "client", "many"]);
}

#[test]
fn a_search_finds_the_documents_with_all_words() {
    let server = server("inverted_index.lua", &[]);
    call(&server, &["store", "1", "The quick brown fox"]);
    call(&server, &["store", "2", "The lazy dog"]);
    call(&server, &["store", "3", "A quick dog, the quickest"]);
    assert_eq!(call(&server, &["search", "the"]), "1\n2\n3");
    assert_eq!(call(&server, &["search", "Quick the"]), "1\n3");
    assert_eq!(call(&server, &["search", "dog fox"]), "");
    // A new text takes the old words away.
    call(&server, &["store", "1", "A slow snail"]);
    assert_eq!(call(&server, &["search", "quick"]), "3");
    call(&server, &["forget", "3"]);
    assert_eq!(call(&server, &["search", "quick"]), "");
    call_in_vain(&server, &["forget", "3"]);
}

#[test]
fn a_session_lasts_while_it_is_used() {
    let server = server("sessions.lua", &[]);
    let id = call(&server, &["login", "ann"]);
    let other = call(&server, &["login", "ann"]);
    assert!(id.len() == 32 && id != other);
    assert_eq!(call(&server, &["user_of", &id]), "ann");
    call(&server, &["logout", &id]);
    call_in_vain(&server, &["user_of", &id]);
    assert_eq!(call(&server, &["user_of", &other, "0.001"]), "ann");
    wait_for("the session's end", || {
        let arguments = ["get", "--server", &server.address(), &format!("session:{other}")];
        (!crate::process::run("tyrant", &arguments).status.success()).then_some(())
    });
    call_in_vain(&server, &["user_of", &other]);
}

#[test]
fn words_are_counted_in_all_records() {
    let server = server("word_count.lua", &[]);
    for (key, text) in [("1", "to be or not to be"), ("2", "To do"), ("3", "or")] {
        succeed("tyrant", &["put", "--server", &server.address(), key, text]);
    }
    assert_eq!(call(&server, &["count_words"]), "be\t2\ndo\t1\nnot\t1\nor\t2\nto\t3");
}

#[test]
fn a_secondary_index_follows_its_records() {
    let server = server("secondary_index.lua", &[]);
    for (id, user) in [("1", "Ann,Rome"), ("2", "Bob,Paris"), ("3", "Cid,Rome")] {
        call(&server, &["put_user", id, user]);
    }
    assert_eq!(call(&server, &["users_in", "Rome"]), "1\n3");
    call(&server, &["put_user", "1", "Ann,Paris"]);
    call(&server, &["remove_user", "3"]);
    assert_eq!(call(&server, &["users_in", "Rome"]), "");
    assert_eq!(call(&server, &["users_in", "Paris"]), "1\n2");
    // A record that bypassed the functions is in the index after a rebuild.
    succeed("tyrant", &["put", "--server", &server.address(), "user:4", "Dan,Rome"]);
    call(&server, &["rebuild"]);
    assert_eq!(call(&server, &["users_in", "Rome"]), "4");
}
