//! Monitoring of a process: metrics of all its databases, readiness, and how a reload changes it.

use crate::process::{Server, fail, succeed, wait_for};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Returns the address that follows this text in a line of the log.
fn address_after(server: &Server, text: &str) -> String {
    wait_for(text, || {
        let log = server.log();
        let line = log.lines().find_map(|line| Some(line.split_once(text)?.1.to_owned()));
        line.map(|rest| rest.trim().to_owned())
    })
}

fn get(stream: &mut (impl Read + Write), path: &str) -> String {
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
        .expect("to send");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response
}

fn ask(address: &str, path: &str) -> String {
    get(&mut TcpStream::connect(address).expect("a connection"), path)
}

#[test]
fn the_metrics_of_a_process_have_the_names_of_its_databases() {
    let text = "admin = \"127.0.0.1:0\"\n\
        [[database]]\nname = \"one.tch\"\nport = PORT\n\
        [[database]]\nname = \"two.tcb#bnum=10\"\nport = OTHER\n";
    let mut server = Server::configured(text, &[]);
    let address = address_after(&server, "serving metrics on ");
    server.exchange("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    let metrics = ask(&address, "/metrics");
    assert!(metrics.contains("\ntyrant_records{database=\"one.tch\"} 1\n"), "{metrics}");
    assert!(metrics.contains("\ntyrant_records{database=\"two.tcb\"} 0\n"), "{metrics}");
    assert!(ask(&address, "/health").ends_with("\r\n\r\nhealthy\n"));
    assert!(ask(&address, "/ready").ends_with("\r\n\r\nready\n"));
    assert!(server.end(Signal::TERM).success());
    TcpStream::connect(&address).expect_err("the listener has ended");
}

#[test]
fn the_admin_listener_may_be_a_unix_socket_and_is_off_by_default() {
    let server = Server::tyrant("casket.tch", &["--admin", "./admin.sock"]);
    let path = server.folder.path().join("admin.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(path).expect("a connection");
    assert!(get(&mut stream, "/ready").ends_with("\r\n\r\nready\n"));
    let server = Server::tyrant("casket.tch", &[]);
    assert!(!server.log().contains("metrics"), "{}", server.log());
}

#[test]
fn a_reload_changes_the_limit_of_the_lag() {
    let text = "database = \"casket.tch\"\nport = PORT\nadmin = \"127.0.0.1:0\"\nserver-id = 2\n\
        allow-setmst = true\n";
    let server = Server::configured(text, &[]);
    let address = address_after(&server, "serving metrics on ");
    server.exchange("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    let error = fail("tyrant", &["follow", "127.0.0.1:1", "--server", &server.address()]);
    let expected =
        "it follows 127.0.0.1:1 from now on, but is not connected to it: cannot connect: ";
    assert!(error.contains(expected), "{error}");
    assert!(ask(&address, "/ready").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(!ask(&address, "/metrics").contains("\ntyrant_replication_lag_seconds{"));
    let path = server.folder.path().join("tyrant.toml");
    let text = std::fs::read_to_string(&path).expect("the file");
    std::fs::write(&path, format!("{text}ready-lag-max = 5\n")).expect("to write");
    server.signal(Signal::HUP);
    let reply = wait_for("the new limit", || {
        Some(ask(&address, "/ready")).filter(|reply| reply.starts_with("HTTP/1.1 503"))
    });
    assert!(reply.contains("casket.tch: it has received nothing from its master 127.0.0.1:"));
}

#[test]
fn an_empty_replica_is_not_ready_before_it_has_received_anything() {
    let text = "database = \"casket.tch\"\nport = PORT\nadmin = \"127.0.0.1:0\"\nserver-id = 2\n\
        master = \"127.0.0.1:OTHER\"\n";
    let server = Server::configured(text, &[]);
    let address = address_after(&server, "serving metrics on ");
    let reply = ask(&address, "/ready");
    assert!(reply.starts_with("HTTP/1.1 503"), "{reply}");
    assert!(reply.contains("it has received nothing from its master 127.0.0.1:"), "{reply}");
}

#[test]
fn an_admin_listener_that_cannot_be_bound_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let error = fail("tyrant", &["serve", "*", "--port", "0", "--admin", &address]);
    assert!(error.contains(&format!("admin: cannot listen on {address}")), "{error}");
}

#[test]
fn the_log_has_slow_requests_as_text_or_as_json() {
    for (format, expected) in [
        (
            "text",
            "\tWARN\tslow request protocol=\"memcached\" command=\"set\" key=\"k\" key_bytes=1 ",
        ),
        ("json", "\"message\":\"slow request\",\"protocol\":\"memcached\",\"command\":\"set\""),
    ] {
        let options = ["--slow-log-threshold", "0.000001", "--log-format", format];
        let server = Server::tyrant("casket.tch", &options);
        server.exchange("set k 0 0 1\r\nv\r\n", "STORED\r\n");
        let line = wait_for("the slow request", || {
            let log = server.log();
            log.lines().find(|line| line.contains("set")).map(str::to_owned)
        });
        assert!(line.contains(expected), "{line}");
        if format == "json" {
            let log = server.log();
            let lines = log.lines().map(|line| serde_json::from_str(line).expect("JSON"));
            let lines: Vec<serde_json::Value> = lines.collect();
            assert!(lines.iter().all(|line| line["time"].is_string() && line["level"].is_string()));
            assert!(lines.iter().any(|line| line["level"] == "system"));
        }
    }
}

#[test]
fn the_slow_requests_of_a_server_are_counted_by_top_and_listed_by_slow() {
    let server = Server::tyrant("casket.tch", &["--slow-log-threshold", "0.000001"]);
    let address = server.address();
    server.exchange("set user:1001 0 0 1\r\nv\r\n", "STORED\r\n");
    let top = succeed("tyrant", &["top", "--once", "--server", &address]);
    assert!(top.contains(" slow request") && top.contains("\"tyrant slow\" lists them"), "{top}");
    let listed = succeed("tyrant", &["slow", "--server", &address]);
    let set = listed.lines().find(|line| line.contains("memcached set"));
    let set = set.unwrap_or_else(|| panic!("{listed}"));
    assert!(listed.starts_with("ENDED AT ") && set.contains("user:1001  from 127.0.0.1:"), "{set}");
    let listed = succeed("tyrant", &["slow", "--json", "--server", &address]);
    let objects = listed.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let mut objects: Vec<serde_json::Value> = objects.collect();
    objects.retain(|object| object["command"] == "set");
    assert_eq!(objects[0]["key"], "user:1001");
    assert!(objects[0]["seconds"].as_f64() > Some(0.0));
    let server = Server::tyrant("casket.tch", &[]);
    let error = fail("tyrant", &["slow", "--server", &server.address()]);
    assert!(error.contains("the slow log is off: set slow-log-threshold"), "{error}");
}

#[test]
fn slow_shows_a_key_as_the_server_has_escaped_it_and_also_once_the_log_is_off() {
    let text = "database = \"casket.tch\"\nport = PORT\nslow-log-threshold = 0.000001\n";
    let server = Server::configured(text, &[]);
    let address = server.address();
    succeed("tyrant", &["put", "--hex", "6B 0A 5C FF", "76", "--server", &address]);
    let slow = || succeed("tyrant", &["slow", "--server", &address]);
    let listed = slow();
    assert!(listed.contains(" k\\n\\\\\\xff  from 127.0.0.1:"), "{listed}");
    let path = server.folder.path().join("tyrant.toml");
    let text = std::fs::read_to_string(&path).expect("the file");
    std::fs::write(&path, text.replace("0.000001", "0")).expect("to write");
    server.signal(Signal::HUP);
    wait_for("the end of the log", || {
        let before = slow();
        (slow() == before).then_some(())
    });
    assert!(slow().contains(" k\\n\\\\\\xff  from 127.0.0.1:"), "{}", slow());
}

#[test]
fn lines_to_the_journal_begin_with_their_priority() {
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let file = std::fs::File::create(&path).expect("a file");
    let metadata = file.metadata().expect("its metadata");
    let stream = format!("{}:{}", metadata.dev(), metadata.ino());
    let mut server = Command::new(crate::process::path("tyrant"))
        .args(["serve", "*", "--port", "0"])
        .env("JOURNAL_STREAM", stream)
        .stdin(Stdio::null())
        .stdout(file)
        .spawn()
        .expect("the program starts");
    let log = wait_for("the start", || {
        let log = std::fs::read_to_string(&path).expect("the file");
        log.contains("serving").then_some(log)
    });
    server.kill().expect("to kill the server");
    server.wait().expect("its end");
    assert!(log.lines().all(|line| line.starts_with("<5>") || line.starts_with("<6>")), "{log}");
}

#[test]
fn warnings_are_in_the_log_in_metrics_in_top_and_in_the_answer_about_readiness() {
    let authority = crate::tls::certificates::Authority::new();
    let files = authority.expired_server(&["127.0.0.1"]);
    let text = format!(
        "database = \"casket.tch\"\nport = PORT\nadmin = \"127.0.0.1:0\"\ndisk-free-warning = 100\n\
         tls-cert = {:?}\ntls-key = {:?}\ntls-optional = true\nscript = \"functions.lua\"\n\
         script-every = [\"tick=1000\", \"tack=1000\"]\n",
        files.certificate, files.key
    );
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("functions.lua");
    std::fs::write(&script, "function tick() end").expect("a script");
    let text = text.replace("functions.lua", script.to_str().expect("UTF-8"));
    let server = Server::configured(&text, &[]);
    let address = address_after(&server, "serving metrics on ");
    let expected = [
        "the disk of casket.tch has ",
        &format!("the certificate in {} has ended ", files.certificate.display()),
        "script-every: the script has no function tack, so nothing is called",
    ];
    let count = |number: usize| {
        let line = format!("\ntyrant_warnings{{database=\"casket.tch\"}} {number}\n");
        wait_for(&line, || ask(&address, "/metrics").contains(&line).then_some(()));
    };
    count(expected.len());
    let ready = ask(&address, "/ready");
    assert!(ready.starts_with("HTTP/1.1 200 ") && ready.contains("\r\n\r\nready\n"), "{ready}");
    let top = succeed("tyrant", &["top", "--once", "-i", "0.1", "--server", &server.address()]);
    let log = server.log();
    for text in expected {
        assert!(ready.contains(&format!("\nwarning: casket.tch: {text}")), "{text}: {ready}");
        assert!(log.contains(&format!("\tWARN\t{text}")), "{text}: {log}");
        assert!(top.contains(text), "{text}: {top}");
    }
    let metrics = ask(&address, "/metrics");
    let end = "\ntyrant_certificate_end_seconds{database=\"casket.tch\"} 1009843200\n";
    assert!(metrics.contains(end), "{metrics}");
    for name in ["tyrant_disk_free_bytes", "tyrant_disk_bytes"] {
        let sample = format!("\n{name}{{database=\"casket.tch\",files=\"database\"}} ");
        assert!(metrics.contains(&sample), "{metrics}");
    }

    // A condition that has ended is not a warning after a reload.
    let renewed = authority.server(&["127.0.0.1"]);
    std::fs::copy(&renewed.certificate, &files.certificate).expect("a copy");
    std::fs::copy(&renewed.key, &files.key).expect("a copy");
    std::fs::write(&script, "function tick() end function tack() end").expect("a script");
    let path = server.folder.path().join("tyrant.toml");
    let text = std::fs::read_to_string(&path).expect("the file");
    std::fs::write(&path, text.replace("warning = 100", "warning = 0")).expect("to write");
    server.signal(Signal::HUP);
    count(0);
    let ready = ask(&address, "/ready");
    assert!(ready.ends_with("\r\n\r\nready\n"), "{ready}");
    let warnings = succeed("tyrant", &["stat", "warnings", "--server", &server.address()]);
    assert_eq!(warnings, "warnings\tnone\n");
    let top = succeed("tyrant", &["top", "--once", "-i", "0.1", "--server", &server.address()]);
    assert!(!top.contains("WARNING"), "{top}");
    let ended = "no warning any more: disk of casket.tch";
    wait_for(ended, || server.log().contains(ended).then_some(()));
}

#[test]
fn http_answers_to_the_names_of_the_server() {
    let ask_as = |server: &Server, host: &str| {
        let mut stream = TcpStream::connect(server.address()).expect("a connection");
        let request = format!("GET /k HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("to send");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        response
    };
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let names = ["--http-hosts", "db.example.com", "--http-hosts", "cache"];
    let named = Server::tyrant("*", &names);
    for host in ["localhost", "127.0.0.1:1978", &machine, "db.example.com:80", "Cache"] {
        assert!(ask_as(&named, host).starts_with("HTTP/1.1 404 "), "{host}");
    }
    let refused = ask_as(&named, "evil.example");
    assert!(refused.starts_with("HTTP/1.1 421 "), "{refused}");
    assert!(refused.contains("http-hosts adds names"), "{refused}");
    let any = Server::tyrant("*", &["--http-hosts", "*"]);
    assert!(ask_as(&any, "evil.example").starts_with("HTTP/1.1 404 "));
    // Tokyo Tyrant does not look at the name.
    let original = Server::ttserver("*", &[]);
    assert!(ask_as(&original, "evil.example").starts_with("HTTP/1.1 404 "));
}
