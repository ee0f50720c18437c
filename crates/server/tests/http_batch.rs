//! Lists and batches over HTTP.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use serde_json::{Value, json};
use server::{CommandMask, Config};
use support::{Client, config, hash, memory, memory_tree, start, start_with, tree};

fn list(client: &mut Client, query: &str) -> Value {
    client.send(
        format!(
            "GET /?list{query} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
        )
        .as_bytes(),
    );
    let head = client.expect_response("200 OK", "");
    assert!(head.contains("Content-Type: application/json\r\n"), "{head}");
    serde_json::from_slice(&body(client, &head)).unwrap()
}

fn body(client: &mut Client, head: &str) -> Vec<u8> {
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    client.read(length.parse().unwrap())
}

fn post(client: &mut Client, lines: &[u8]) {
    let head = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n",
        lines.len()
    );
    client.send(&[head.as_bytes(), lines].concat());
}

/// Sends lines of JSON and returns the lines of the reply.
fn batch(client: &mut Client, lines: &[Value]) -> Vec<Value> {
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    post(client, lines.as_bytes());
    let head = client.expect_response("200 OK", "");
    let body = body(client, &head);
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

#[test]
fn keys_are_listed_by_prefix_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), memory_tree(), hash(folder.path()), tree(folder.path())] {
        let server = start(database);
        let mut client = server.connect();
        for number in 0..25 {
            client.exchange(format!("set a/{number:02} 0 0 1\r\nx\r\n"), "STORED\r\n");
            client.exchange(format!("set b/{number:02} 0 0 1\r\nx\r\n"), "STORED\r\n");
        }
        let mut found = Vec::new();
        let mut query = "&prefix=a%2F&limit=10".to_owned();
        loop {
            let page = list(&mut client, &query);
            let keys = page["keys"].as_array().unwrap();
            assert!(keys.len() <= 10);
            found.extend(keys.iter().map(|key| key.as_str().unwrap().to_owned()));
            let Some(next) = page["next"].as_str() else { break };
            query = format!("&prefix=a%2F&limit=10&after={}", next.replace('/', "%2F"));
        }
        found.sort();
        assert_eq!(found, (0..25).map(|number| format!("a/{number:02}")).collect::<Vec<_>>());
    }
}

#[test]
fn a_list_requires_a_client_that_accepts_json() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange("set ?list 0 0 3\r\nkey\r\n", "STORED\r\n");
    client.expect_value("/?list", "key");
    client.send(b"GET /?list HTTP/1.1\r\nHost: localhost\r\nAccept: text/html, application/json;q=0.5\r\n\r\n");
    let head = client.expect_response("200 OK", "");
    assert_eq!(body(&mut client, &head), br#"{"keys":["?list"],"next":null}"#);
    client.send(
        b"GET /?list&limit=0 HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n",
    );
    client.expect_response("400 Bad Request", "limit is a number up to 10000\n");
}

#[test]
fn binary_keys_are_listed_in_base64_and_keys_of_the_server_are_not_listed() {
    let server = start(memory());
    let mut client = server.connect();
    client.send(
        b"PUT /%ff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-own\r\nContent-Length: 1\r\n\r\nv",
    );
    client.expect_response("201 Created", "Created\n");
    assert_eq!(list(&mut client, ""), json!({ "keys": [{ "base64": "/w==" }], "next": null }));
    assert_eq!(server.stat_value("curr_items"), 1);
}

#[test]
fn each_line_of_a_batch_succeeds_or_fails_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), hash(folder.path())] {
        let server = start(database);
        let mut client = server.connect();
        let answers = batch(
            &mut client,
            &[
                json!({ "put": "a", "value": "one", "type": "text/plain" }),
                json!({ "put": { "base64": "/w==" }, "value": { "base64": "AP8=" } }),
                json!({ "put": "a", "value": "two", "if-none-match": "*" }),
                json!({ "get": "a" }),
                json!({ "get": "none" }),
                json!({ "unknown": 1 }),
                json!({ "remove": "none" }),
            ],
        );
        assert_eq!(answers.len(), 7);
        assert_eq!(answers[0]["key"], "a");
        assert_eq!(answers[0]["error"], Value::Null);
        assert_eq!(answers[2]["error"], "precondition failed");
        assert_eq!(answers[3]["value"], "one");
        assert_eq!(answers[3]["type"], "text/plain");
        assert_eq!(answers[3]["etag"], answers[0]["etag"]);
        assert_eq!(answers[4], json!({ "key": "none", "error": "not found" }));
        assert!(answers[5]["error"].as_str().unwrap().starts_with("unknown field `unknown`"));
        assert_eq!(answers[6]["error"], "not found");
        let first = &answers[0]["etag"];
        let answers = batch(
            &mut client,
            &[
                json!({ "get": { "base64": "/w==" } }),
                json!({ "put": "a", "value": "three", "if-match": first, "expires": 1000 }),
                json!({ "remove": "a", "if-match": first }),
                json!({ "get": "a" }),
                json!({ "remove": "a" }),
            ],
        );
        assert_eq!(answers[0]["value"], json!({ "base64": "AP8=" }));
        assert_eq!(answers[2]["error"], "precondition failed");
        assert_eq!(answers[3]["value"], "three");
        assert!(answers[3]["expires"].as_u64().is_some());
        assert_eq!(answers[4]["removed"], true);
    }
}

#[test]
fn a_batch_has_a_limit() {
    let server = start(memory());
    let mut client = server.connect();
    for lines in [9_999, 10_000] {
        let request = "{\"get\":\"k\"}\n".repeat(lines);
        post(&mut client, request.as_bytes());
        let head = client.expect_response("200 OK", "");
        let answers = body(&mut client, &head);
        assert_eq!(answers.iter().filter(|byte| **byte == b'\n').count(), lines);
    }
    post(&mut client, "{\"get\":\"k\"}\n".repeat(10_001).as_bytes());
    client.expect_response("413 Payload Too Large", "more than 10000 lines\n");
}

#[test]
fn masked_lines_of_a_batch_are_refused_one_by_one() {
    let mut mask = CommandMask::NONE;
    mask.mask("out,fwmkeys".parse().unwrap());
    let server = start_with(Config { mask, ..config() }, memory());
    let mut client = server.connect();
    let answers =
        batch(&mut client, &[json!({ "put": "a", "value": "v" }), json!({ "remove": "a" })]);
    assert_eq!(answers[0]["error"], Value::Null);
    assert_eq!(answers[1]["error"], "forbidden");
    client.send(b"GET /?list HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n");
    client.expect_response("403 Forbidden", "Forbidden\n");
}
