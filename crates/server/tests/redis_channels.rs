//! Redis's protocol: channels.

mod support;

use server::Config;
use support::{
    Client, Running, choose_version_three, config, hear, memory, redis as command, start,
    start_with, talk, wait_until,
};

fn server() -> Running {
    start_with(Config { threads: 3, ..config() }, memory())
}

#[test]
fn messages_reach_those_who_subscribe() {
    let server = server();
    let (mut one, mut other, mut publisher) =
        (server.connect(), server.connect(), server.connect());
    talk(
        &mut one,
        &[
            ("SUBSCRIBE news old", "*3|$9|subscribe|$4|news|:1|*3|$9|subscribe|$3|old|:2"),
            ("PSUBSCRIBE n*", "*3|$10|psubscribe|$2|n*|:3"),
            ("SUBSCRIBE news", "*3|$9|subscribe|$4|news|:3"),
        ],
    );
    talk(&mut other, &[("SSUBSCRIBE news", "*3|$10|ssubscribe|$4|news|:1")]);
    talk(
        &mut publisher,
        &[
            ("PUBLISH news hello", ":2"),
            ("PUBLISH none hello", ":1"),
            ("PUBLISH x hello", ":0"),
            ("SPUBLISH news shard", ":1"),
            ("PUBSUB NUMSUB news old x", "*6|$4|news|:1|$3|old|:1|$1|x|:0"),
            ("PUBSUB NUMPAT", ":1"),
            ("PUBSUB CHANNELS o*", "*1|$3|old"),
            ("PUBSUB SHARDCHANNELS", "*1|$4|news"),
            ("PUBSUB SHARDNUMSUB news", "*2|$4|news|:1"),
        ],
    );
    hear(&mut one, "*3|$7|message|$4|news|$5|hello");
    hear(&mut one, "*4|$8|pmessage|$2|n*|$4|news|$5|hello");
    hear(&mut one, "*4|$8|pmessage|$2|n*|$4|none|$5|hello");
    hear(&mut other, "*3|$8|smessage|$4|news|$5|shard");
    let refused = "only (P";
    for line in ["GET a", "PUBLISH news x", "MULTI"] {
        one.send(&command(line));
        let reply = String::from_utf8(one.read_until(b"\r\n")).unwrap();
        assert!(reply.contains(refused) && reply.starts_with("-ERR Can't execute '"), "{reply}");
    }
    talk(
        &mut one,
        &[
            ("PING", "*2|$4|pong|$0|"),
            ("PING a", "*2|$4|pong|$1|a"),
            ("UNSUBSCRIBE news", "*3|$11|unsubscribe|$4|news|:2"),
            ("UNSUBSCRIBE", "*3|$11|unsubscribe|$3|old|:1"),
            ("UNSUBSCRIBE", "*3|$11|unsubscribe|$-1|:1"),
            ("PUNSUBSCRIBE n* m*", "*3|$12|punsubscribe|$2|n*|:0|*3|$12|punsubscribe|$2|m*|:0"),
            ("PING", "+PONG"),
            ("UNSUBSCRIBE", "*3|$11|unsubscribe|$-1|:0"),
            ("SUBSCRIBE news", "*3|$9|subscribe|$4|news|:1"),
            ("RESET", "+RESET"),
            ("GET a", "$-1"),
        ],
    );
    talk(&mut publisher, &[("PUBLISH news x", ":0"), ("PUBSUB CHANNELS", "*0")]);
    drop(other);
    wait_until(|| {
        publisher.send(&command("PUBSUB SHARDCHANNELS"));
        let is_over = publisher.read_until(b"\r\n") == b"*0\r\n";
        if !is_over {
            publisher.read_until(b"\r\n");
            publisher.read_until(b"\r\n");
        }
        is_over
    });
}

#[test]
fn subscribers_of_version_three_get_pushes_beside_replies() {
    let server = server();
    let mut client = server.connect();
    choose_version_three(&mut client);
    talk(
        &mut client,
        &[
            ("SUBSCRIBE c", ">3|$9|subscribe|$1|c|:1"),
            ("SET a v", "+OK"),
            ("GET a", "$1|v"),
            ("PING", "+PONG"),
        ],
    );
    talk(&mut server.connect(), &[("PUBLISH c hello", ":1")]);
    hear(&mut client, ">3|$7|message|$1|c|$5|hello");
    // Its own messages reach it, too.
    client.send(&command("PUBLISH c own"));
    hear(&mut client, ">3|$7|message|$1|c|$3|own|:1");
    talk(
        &mut client,
        &[
            ("UNSUBSCRIBE", ">3|$11|unsubscribe|$1|c|:0"),
            ("UNSUBSCRIBE", ">3|$11|unsubscribe|_|:0"),
        ],
    );
    // Binary protocols remain.
    client.exchange(b"\xc8\x30\0\0\0\x01a", b"\0\0\0\0\x01v");
}

#[test]
fn a_client_without_replies_gets_its_own_messages() {
    let server = server();
    let mut client = server.connect();
    choose_version_three(&mut client);
    talk(&mut client, &[("SUBSCRIBE c", ">3|$9|subscribe|$1|c|:1")]);
    let lines = ["CLIENT REPLY OFF", "PUBLISH c m", "CLIENT REPLY ON"];
    client.send(&lines.iter().flat_map(|line| command(line)).collect::<Vec<u8>>());
    hear(&mut client, ">3|$7|message|$1|c|$1|m|+OK");
}

#[test]
fn a_message_that_was_counted_comes_before_the_reply_to_a_later_request() {
    let server = server();
    let mut subscriber = server.connect();
    talk(&mut subscriber, &[("SUBSCRIBE c", "*3|$9|subscribe|$1|c|:1")]);
    let mut publisher = server.connect();
    for _ in 0..500 {
        talk(&mut publisher, &[("PUBLISH c m", ":1")]);
        subscriber.send(&command("PING"));
        hear(&mut subscriber, "*3|$7|message|$1|c|$1|m|*2|$4|pong|$0|");
    }
}

#[test]
fn a_transaction_publishes_once_when_it_is_made() {
    let server = server();
    let (mut client, mut subscriber) = (server.connect(), server.connect());
    talk(&mut subscriber, &[("SUBSCRIBE c", "*3|$9|subscribe|$1|c|:1")]);
    talk(
        &mut client,
        &[
            ("MULTI", "+OK"),
            ("PUBLISH c one", "+QUEUED"),
            ("SET a v", "+QUEUED"),
            ("EXEC", "*2|:1|+OK"),
            ("WATCH a", "+OK"),
            ("SET a w", "+OK"),
            ("MULTI", "+OK"),
            ("PUBLISH c lost", "+QUEUED"),
            ("EXEC", "*-1"),
            ("MULTI", "+OK"),
            ("PUBLISH c discarded", "+QUEUED"),
            ("DISCARD", "+OK"),
            ("PUBLISH c two", ":1"),
            ("MULTI", "+OK"),
            (
                "SUBSCRIBE d",
                "-ERR SUBSCRIBE is not supported within MULTI: subscribe before or after it",
            ),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ],
    );
    hear(&mut subscriber, "*3|$7|message|$1|c|$3|one");
    hear(&mut subscriber, "*3|$7|message|$1|c|$3|two");
    // Transactions that disturb each other send each message once.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = server.connect();
                for _ in 0..100 {
                    talk(
                        &mut client,
                        &[("MULTI", "+OK"), ("INCR n", "+QUEUED"), ("PUBLISH c m", "+QUEUED")],
                    );
                    client.send(&command("EXEC"));
                    client.expect("*2\r\n");
                    client.read_until(b"\r\n");
                    client.expect(":1\r\n");
                }
            });
        }
    });
    for _ in 0..300 {
        hear(&mut subscriber, "*3|$7|message|$1|c|$1|m");
    }
    talk(&mut subscriber, &[("PING", "*2|$4|pong|$0|")]);
}

#[test]
fn many_subscribers_get_every_message_in_order() {
    const SUBSCRIBERS: usize = 300;
    const MESSAGES: usize = 50;
    let server = server();
    let mut subscribers: Vec<_> = (0..SUBSCRIBERS).map(|_| server.connect()).collect();
    for subscriber in &mut subscribers {
        talk(subscriber, &[("SUBSCRIBE c", "*3|$9|subscribe|$1|c|:1")]);
    }
    let mut publisher = server.connect();
    let reply = format!(":{SUBSCRIBERS}");
    for number in 0..MESSAGES {
        talk(&mut publisher, &[(&format!("PUBLISH c {number}"), &reply)]);
    }
    for subscriber in &mut subscribers {
        for number in 0..MESSAGES {
            let text = number.to_string();
            hear(subscriber, &format!("*3|$7|message|$1|c|${}|{text}", text.len()));
        }
    }
    drop(subscribers);
    wait_until(|| {
        publisher.send(&command("PUBLISH c x"));
        publisher.read_until(b"\r\n") == b":0\r\n"
    });
}

#[test]
fn a_subscriber_that_does_not_read_costs_its_limit_and_nothing_else() {
    let server = server();
    let (mut slow, mut quick, mut publisher) =
        (server.connect(), server.connect(), server.connect());
    for subscriber in [&mut slow, &mut quick] {
        talk(subscriber, &[("SUBSCRIBE c", "*3|$9|subscribe|$1|c|:1")]);
    }
    let message = "m".repeat(1 << 20);
    let line = format!("PUBLISH c {message}");
    let expected = format!("*3|$7|message|$1|c|${}|{message}", message.len());
    let mut receivers = 2;
    for _ in 0..40 {
        publisher.send(&command(&line));
        let reply = publisher.read_until(b"\r\n");
        receivers = String::from_utf8(reply).unwrap().trim()[1..].parse().unwrap();
        hear(&mut quick, &expected);
    }
    assert_eq!(receivers, 1);
    assert_eq!(server.stat_value("slow_subscribers"), 1);
    // A connection that is closed has the end of its stream behind what was sent.
    let received = slow.read_to_end();
    assert!(received.len() < 16 << 20 && received.starts_with(b"*3\r\n"), "{}", received.len());
}

#[test]
fn a_subscriber_outlives_the_idle_timeout_and_a_stop_ends_it() {
    let mut server = start_with(
        Config { idle_timeout: Some(std::time::Duration::from_secs(3)), ..config() },
        memory(),
    );
    let mut subscriber = server.connect();
    talk(&mut subscriber, &[("SUBSCRIBE c", "*3|$9|subscribe|$1|c|:1")]);
    let mut idle = server.connect();
    talk(&mut idle, &[("PING", "+PONG")]);
    idle.expect_close();
    talk(&mut server.connect(), &[("PUBLISH c x", ":1")]);
    hear(&mut subscriber, "*3|$7|message|$1|c|$1|x");
    server.begin_stop();
    subscriber.expect_close();
    server.join();
}

#[test]
fn channels_work_without_any_record() {
    let server = start(memory());
    talk(
        &mut server.connect(),
        &[("PUBLISH c x", ":0"), ("DBSIZE", ":0"), ("PUBSUB NUMPAT", ":0")],
    );
}

/// The session of a request in a pool is there, and no message must be lost meanwhile.
#[test]
fn messages_that_come_during_a_request_in_a_pool_are_sent_after_it() {
    let server = server();
    let mut client = server.connect();
    choose_version_three(&mut client);
    talk(
        &mut client,
        &[
            ("SUBSCRIBE c", ">3|$9|subscribe|$1|c|:1"),
            ("MULTI", "+OK"),
            ("PUBLISH c own", "+QUEUED"),
            ("EXEC", "*1|:1"),
        ],
    );
    hear(&mut client, ">3|$7|message|$1|c|$3|own");
    let mut publisher = server.connect();
    for _ in 0..200 {
        client.send(&command("MSET a 1 b 2"));
        talk(&mut publisher, &[("PUBLISH c m", ":1")]);
        let (reply, message) = ("+OK\r\n", ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
        let received = client.read(reply.len() + message.len());
        let received = String::from_utf8(received).unwrap();
        let orders = [format!("{reply}{message}"), format!("{message}{reply}")];
        assert!(orders.contains(&received), "{received}");
    }
}

#[test]
fn a_long_reply_is_not_cut_by_a_message() {
    let server = server();
    let (mut client, mut publisher) = (server.connect(), server.connect());
    let value = "v".repeat(20 << 20);
    talk(&mut publisher, &[(&format!("SET long {value}"), "+OK")]);
    choose_version_three(&mut client);
    talk(&mut client, &[("SUBSCRIBE c", ">3|$9|subscribe|$1|c|:1")]);
    client.send(&command("GET long"));
    std::thread::sleep(std::time::Duration::from_millis(100));
    talk(&mut publisher, &[("PUBLISH c m", ":1")]);
    hear(&mut client, &format!("${}|{value}", value.len()));
    hear(&mut client, ">3|$7|message|$1|c|$1|m");
    assert_eq!(server.stat_value("slow_subscribers"), 0);
}

/// Sends a command, and asserts that the pool executes it.
fn expect_pooled(server: &Running, client: &mut Client, line: &str, reply: &str) {
    let pooled = server.stat_value("requests_pooled");
    talk(client, &[(line, reply)]);
    assert_eq!(server.stat_value("requests_pooled"), pooled + 1, "{line:.30}");
}

#[test]
fn patterns_that_take_many_steps_are_limited_and_leave_event_loops_alone() {
    let server = server();
    let (mut one, mut other) = (server.connect(), server.connect());
    choose_version_three(&mut one);
    let pattern = |number: usize| format!("*{number}{}*", "?".repeat(999));
    for number in 0..10 {
        let pattern = pattern(number);
        let reply = format!(">3|$10|psubscribe|$1002|{pattern}|:{}", number + 1);
        talk(&mut one, &[(&format!("PSUBSCRIBE {pattern}"), &reply)]);
    }
    let refused = "-ERR the patterns of all connections are at their limit";
    talk(
        &mut other,
        &[
            ("PSUBSCRIBE a", refused),
            (&format!("PSUBSCRIBE {} a", pattern(1)), refused),
            // It is not a subscriber.
            ("GET a", "$-1"),
            ("PUBSUB NUMPAT", ":10"),
        ],
    );
    let channel = format!("1{}", "a".repeat(999));
    expect_pooled(&server, &mut other, &format!("PUBLISH {channel} m"), ":1");
    hear(&mut one, &format!(">4|$8|pmessage|$1002|{}|$1000|{channel}|$1|m", pattern(1)));
    expect_pooled(&server, &mut other, &format!("SCAN 0 MATCH {}", pattern(1)), "*2|$1|0|*0");
    talk(&mut one, &[("PUNSUBSCRIBE a", ">3|$12|punsubscribe|$1|a|:10"), ("SET b 1", "+OK")]);
    drop(one);
    wait_until(|| {
        other.send(&command("PUBSUB NUMPAT"));
        other.read_until(b"\r\n") == b":0\r\n"
    });
    talk(&mut other, &[("PSUBSCRIBE a", "*3|$10|psubscribe|$1|a|:1")]);
}

#[test]
fn lists_of_many_channels_leave_event_loops_alone() {
    let server = server();
    let (mut one, mut other) = (server.connect(), server.connect());
    let names: Vec<String> = (0..65).map(|number| format!("c{number}")).collect();
    one.send(&command(&format!("SUBSCRIBE {}", names.join(" "))));
    hear_last(&mut one, ":65\r\n");
    expect_pooled(&server, &mut other, "PUBSUB CHANNELS *7*6*", "*0");
    expect_pooled(&server, &mut other, "PUBSUB CHANNELS *3*3", "*1|$3|c33");
    let (asked, counts) = (" c1 x".repeat(600), "|$2|c1|:1|$1|x|:0".repeat(600));
    expect_pooled(&server, &mut other, &format!("PUBSUB NUMSUB{asked}"), &format!("*2400{counts}"));
}

/// Reads until a line.
fn hear_last(client: &mut Client, line: &str) {
    while client.read_until(b"\r\n") != line.as_bytes() {}
}

#[test]
fn a_name_that_is_known_takes_no_room_again() {
    let server = server();
    let mut client = server.connect();
    let names: Vec<String> = (0..600).map(|number| format!("{number:0>1000}")).collect();
    let (line, last) = (format!("SUBSCRIBE {}", names.join(" ")), ":600\r\n");
    client.send(&command(&line));
    hear_last(&mut client, last);
    client.send(&command(&line));
    for _ in 0..600 {
        assert_eq!(client.read_until(b"\r\n"), b"*3\r\n");
        hear_last(&mut client, last);
    }
}

#[test]
fn a_refused_subscription_changes_nothing() {
    let server = server();
    let mut client = server.connect();
    let long = "n".repeat(1025);
    talk(
        &mut client,
        &[
            (
                &format!("SUBSCRIBE a {long}"),
                "-ERR the name of a channel is at most 1024 bytes long",
            ),
            ("GET a", "$-1"),
            ("PUBSUB CHANNELS", "*0"),
            (&format!("PUBLISH {long} m"), "-ERR the name of a channel is at most 1024 bytes long"),
        ],
    );
    let names: Vec<String> =
        (0..1000).map(|number| format!("{number}{}", "n".repeat(1000))).collect();
    talk(
        &mut client,
        &[
            (
                &format!("SUBSCRIBE {}", names.join(" ")),
                "-ERR a connection subscribes to at most 1 MiB of names",
            ),
            ("GET a", "$-1"),
            ("PUBSUB CHANNELS", "*0"),
        ],
    );
}
