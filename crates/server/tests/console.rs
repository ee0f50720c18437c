//! Console: the files of the page, and who gets them.

mod support;

use serde_json::json;
use server::Config;
use support::{Monitored, NAME, config, hash, memory, start, start_with, stat, wait_until};

/// Returns the value of a header, or an empty text.
fn header<'h>(head: &'h str, name: &str) -> &'h str {
    let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_default()
}

#[test]
fn every_file_that_the_page_names_is_served() {
    let console = Monitored::starting();
    let mut known = vec![String::new()];
    let mut next = 0;
    while next < known.len() {
        let (head, body) = console.get(&format!("/ui/{}", known[next]), "");
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{}: {head}", known[next]);
        let policy = header(&head, "Content-Security-Policy");
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{}: {policy}", known[next]);
        }
        assert_eq!(header(&head, "X-Content-Type-Options"), "nosniff");
        // Scripts name others with "./", and the page names files in these attributes.
        for (before, after) in [("src=\"", '"'), ("href=\"", '"'), ("from \"./", '"')] {
            for part in body.split(before).skip(1) {
                let name = part.split(after).next().unwrap_or_default();
                let is_file = !name.starts_with("../") && !name.starts_with('#');
                if is_file && !known.iter().any(|file| file == name) {
                    known.push(name.to_owned());
                }
            }
        }
        next += 1;
    }
    assert_eq!(known.len(), 9, "{known:?}");
}

#[test]
fn the_page_asks_only_what_the_listener_serves() {
    let server = start(memory());
    let console = Monitored::new(&server);
    let (_, page) = console.get("/ui/", "");
    let (_, script) = console.get("/ui/main.js", "");
    let mut asked = 0;
    for part in page.split("\"../").chain(script.split("\"../")).skip(1) {
        let path = part.split('"').next().unwrap_or_default();
        if path.contains('\n') {
            continue;
        }
        console.expect(&format!("/{path}"), "200 OK");
        asked += 1;
    }
    assert!(asked >= 4, "{asked}");
}

#[test]
fn a_file_that_the_browser_has_is_not_sent_again() {
    let console = Monitored::starting();
    let (head, body) = console.get("/ui/main.js", "");
    let tag = header(&head, "ETag").to_owned();
    assert!(tag.len() > 2 && !body.is_empty(), "{head}");
    let (head, body) = console.get("/ui/main.js", &format!("If-None-Match: {tag}\r\n"));
    assert!(head.starts_with("HTTP/1.1 304 "), "{head}");
    assert_eq!(body, "");
    let (head, _) = console.get("/ui/main.js", "If-None-Match: \"0\"\r\n");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[test]
fn a_browser_is_sent_to_the_page_and_curl_gets_a_text() {
    let console = Monitored::starting();
    let accept = "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n";
    for (path, headers) in [("/ui", ""), ("/ui", accept), ("/", accept)] {
        let (head, _) = console.get(path, headers);
        assert!(head.starts_with("HTTP/1.1 302 "), "{path} {headers}: {head}");
        assert_eq!(header(&head, "Location"), "ui/");
    }
    let body = console.expect("/", "200 OK");
    assert!(body.contains("/ui/") && body.contains("/metrics"), "{body}");
}

#[test]
fn the_dashboard_gets_figures_and_what_needs_attention() {
    let server = start(memory());
    let console = Monitored::new(&server);
    let ask = |query: &str| -> serde_json::Value {
        serde_json::from_str(&console.expect(&format!("/ui/figures{query}"), "200 OK")).unwrap()
    };
    let first = ask("");
    assert_eq!((&first["databases"][0], &first["database"]), (&NAME.into(), &NAME.into()));
    assert_eq!((&first["reasons"], &first["attention"]), (&json!([]), &json!([])));
    let mut client = server.connect();
    client.send(b"set a 0 0 1\r\nb\r\nget a\r\n");
    client.read(b"STORED\r\nVALUE a 0 1\r\nb\r\nEND\r\n".len());
    wait_until(|| ask("?name=other&from=0")["figures"]["hits"] == 1.0);
    let now = ask(&format!("?name={NAME}"));
    assert_eq!(now["figures"]["records"], 1.0);
    assert_eq!(now["disks"], json!([]));
    let set = now["commands"].as_array().unwrap().iter().find(|row| row[0] == "set").unwrap();
    assert_eq!((&set[1], &set[3]), (&json!("memcached"), &json!(1.0)));
    assert_eq!(
        now["history"]["reads"].as_array().map(Vec::len),
        now["ticks"].as_u64().map(|n| n as usize)
    );
    console.expect("/ui/figures?x=1", "400");
}

#[test]
fn what_needs_attention_is_one_list_for_the_page_and_for_tools() {
    let folder = tempfile::tempdir().unwrap();
    // A disk is never free of everything.
    let config = Config { disk_free_warning_percent: 100, ..config() };
    let server = start_with(config, hash(folder.path()));
    let console = Monitored::new(&server);
    let listed = || -> serde_json::Value {
        let found = console.expect("/ui/figures", "200 OK");
        serde_json::from_str::<serde_json::Value>(&found).unwrap()["attention"].clone()
    };
    wait_until(|| listed() != json!([]));
    let (listed, line) = (listed(), stat(&server, "attention").unwrap());
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed[0][0], false, "{listed}");
    let text = listed[0][1].as_str().unwrap();
    assert!(text.starts_with("the disk of "), "{text}");
    assert_eq!(line, text);
}

#[test]
fn other_paths_and_foreign_names_get_nothing() {
    let console = Monitored::starting();
    for path in [
        "/ui/../metrics",
        "/ui/..%2fmetrics",
        "/ui//etc/passwd",
        "/ui/%2e%2e/mod.rs",
        "/ui/console.rs",
        "/ui/main.js/",
        "/UI/",
        "//ui/",
    ] {
        let (head, _) = console.get(path, "");
        assert!(head.starts_with("HTTP/1.1 404 "), "{path}: {head}");
    }
    let mut client = console.connect();
    client.send(b"GET /ui/ HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    let response = String::from_utf8(client.read_to_end()).expect("text");
    assert!(response.starts_with("HTTP/1.1 421 "), "{response}");
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let mut client = console.connect();
        let request = format!("{method} /ui/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.send(request.as_bytes());
        let response = String::from_utf8(client.read_to_end()).expect("text");
        assert!(response.starts_with("HTTP/1.1 405 "), "{method}: {response}");
    }
}
