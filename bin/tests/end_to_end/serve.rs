//! `tyrant serve`: start, signals, log and access.

use crate::process::{Server, exchange, fail, feed_in, free_port, misuse, run, succeed, wait_for};
use rustix::process::Signal;
use std::os::unix::net::UnixStream;

#[test]
fn every_protocol_reads_the_records_of_the_others() {
    let server = Server::tyrant("casket.tch", &[]);
    server.exchange("set a 0 0 1\r\nb\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\nb\r\nEND\r\n");
    server.exchange(
        "PUT /c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nd",
        "HTTP/1.1 201 Created\r\n",
    );
    server.exchange(b"\xc8\x10\0\0\0\x01\0\0\0\x01ef", [0]);

    for (key, value) in [("a", "b"), ("c", "d"), ("e", "f")] {
        let get = ["get", "--server", &server.address(), key];
        assert_eq!(succeed("tyrant", &get), format!("{value}\n"));
        server.exchange(format!("get {key}\r\n"), format!("VALUE {key} 0 1\r\n{value}\r\nEND\r\n"));
        let mut request = b"\xc8\x30\0\0\0\x01".to_vec();
        request.extend(key.as_bytes());
        server.exchange(request, [&[0, 0, 0, 0, 1], value.as_bytes()].concat());
        let mut web = server.connect();
        exchange(&mut web, format!("GET /{key} HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 OK\r\n");
        let rest = std::io::read_to_string(web).unwrap();
        assert!(rest.ends_with(&format!("\r\n\r\n{value}")), "{rest}");
    }
}

#[test]
fn sigterm_and_sigint_close_the_database_and_a_restart_has_its_records() {
    let mut server = Server::tyrant("casket.tch", &[]);
    for (key, signal) in [("first", Signal::TERM), ("second", Signal::INT)] {
        server.exchange(format!("set {key} 0 0 1\r\nx\r\n"), "STORED\r\n");
        assert_eq!(server.end(signal).code(), Some(0), "{}", server.log());
        assert!(server.log().contains("\tSYSTEM\tservice finished: "), "{}", server.log());
        server.restart();
        server.exchange(format!("get {key}\r\n"), format!("VALUE {key} 0 1\r\nx\r\nEND\r\n"));
    }
    assert_eq!(succeed("tyrant", &["count", "--server", &server.address()]), "2\n");
}

#[test]
fn sigkill_loses_no_acknowledged_change() {
    let mut server = Server::tyrant("casket.tch", &[]);
    for number in 0..100 {
        server.exchange(format!("set key-{number} 0 0 1\r\nx\r\n"), "STORED\r\n");
    }
    server.end(Signal::KILL);
    server.restart();
    assert_eq!(succeed("tyrant", &["count", "--server", &server.address()]), "100\n");
}

#[test]
fn sighup_reopens_the_log_and_keeps_the_connections() {
    let server = Server::tyrant("*", &[]);
    let mut connection = server.connect();
    exchange(&mut connection, "version\r\n", "VERSION ");
    let rotated = server.folder.path().join("log.1");
    std::fs::rename(server.folder.path().join("log"), &rotated).unwrap();
    server.signal(Signal::HUP);
    wait_for("the new log", || server.log().contains("log reopened").then_some(()));
    assert!(!std::fs::read_to_string(rotated).unwrap().contains("log reopened"));
    let mut rest = String::new();
    while !rest.ends_with("\r\n") {
        let mut byte = [0];
        std::io::Read::read_exact(&mut connection, &mut byte).unwrap();
        rest.push(byte[0].into());
    }
    exchange(&mut connection, "get a\r\n", "END\r\n");
}

#[test]
fn a_line_of_the_log_is_time_level_and_message() {
    let mut server = Server::tyrant("*#bnum=10#capnum=100", &[]);
    server.end(Signal::TERM);
    let log = server.log();
    for line in log.lines() {
        let [time, level, message] = line.splitn(3, '\t').collect::<Vec<_>>()[..] else {
            panic!("{line:?}")
        };
        assert_eq!((time.len(), &time[10..11], &time[19..]), (20, "T", "Z"), "{line:?}");
        assert!(["DEBUG", "INFO", "WARN", "ERROR", "SYSTEM"].contains(&level), "{line:?}");
        assert!(!message.is_empty(), "{line:?}");
    }
    assert!(log.contains("\tserving * (0 records) on 127.0.0.1:"), "{log}");
    let idle: Vec<_> = log.lines().filter(|line| line.contains("without effect")).collect();
    let [idle] = idle[..] else { panic!("{log}") };
    assert!(idle.contains("bnum") && !idle.contains("capnum"), "{idle}");
}

#[test]
fn a_database_that_does_not_open_is_an_error() {
    let port = free_port().to_string();
    for (database, reason) in [
        ("/dev/null/casket.tct", "/dev/null/casket.tct"),
        ("/dev/null/casket.tcb", "/dev/null/casket.tcb"),
        ("/dev/null/casket.tch", "/dev/null/casket.tch"),
    ] {
        let error = fail("tyrant", &["serve", database, "--port", &port]);
        let openings = ["tyrant: database: ", "tyrant: cannot open the database"];
        assert!(openings.iter().any(|opening| error.starts_with(opening)), "{database}: {error}");
        assert!(error.contains(reason), "{database}: {error}");
    }
    for (database, reason) in
        [("casket.xyz", "casket.xyz"), ("*#nonsense=1", "nonsense"), ("*#capnum=many", "capnum")]
    {
        let error = misuse(&["serve", database, "--port", &port]);
        assert!(error.starts_with("tyrant: database: ") && error.contains(reason), "{error}");
    }
}

#[test]
fn only_one_process_serves_a_database() {
    let server = Server::tyrant("casket.tch", &[]);
    let database = server.folder.path().join("casket.tch");
    let port = free_port().to_string();
    let error = fail("tyrant", &["serve", database.to_str().unwrap(), "--port", &port]);
    assert!(error.contains("in use"), "{error}");
}

#[test]
fn a_port_in_use_is_an_error() {
    let server = Server::tyrant("*", &[]);
    let port = server.port.to_string();
    let error = fail("tyrant", &["serve", "*", "--host", "127.0.0.1", "--port", &port]);
    assert!(error.contains("cannot listen on 127.0.0.1:"), "{error}");
}

#[test]
fn this_machine_alone_is_the_default_and_the_log_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut child = std::process::Command::new(crate::process::path("tyrant"))
        .args(["serve", "*", "--port", &port.to_string(), "--log", "log"])
        .current_dir(&folder)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let has_v6 = std::net::TcpListener::bind(("::1", 0)).is_ok();
    for address in ["127.0.0.1", "::1"] {
        if address == "::1" && !has_v6 {
            continue;
        }
        let mut stream = wait_for(address, || std::net::TcpStream::connect((address, port)).ok());
        exchange(&mut stream, "get a\r\n", "END\r\n");
    }
    // Another address of this machine is free.
    std::net::TcpListener::bind(("127.0.0.2", port)).unwrap();
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    let v6 = if has_v6 { format!(", [::1]:{port}") } else { String::new() };
    let addresses = format!("serving * (0 records) on 127.0.0.1:{port}{v6}; only this machine can");
    assert!(log.contains(&addresses) && log.contains("--host 0.0.0.0"), "{log}");
    assert!(!Server::tyrant("*", &[]).log().contains("only this machine"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_server_that_other_machines_reach_warns_of_what_they_can_do() {
    let everyone = |port: u16| {
        format!(
            "every machine that reaches 0.0.0.0:{port} can read and write all records, as there \
             are no users: set users (\"tyrant user add\" makes the file), tls-cert and tls-key, or \
             leave host out; a container keeps host, and its port is published to 127.0.0.1 alone"
        )
    };
    let open = "database = \"*\"\nport = PORT\nhost = \"0.0.0.0\"\n";
    let server = Server::configured(open, &[]);
    let warnings = |log: String| -> Vec<String> {
        let lines = log.lines().filter_map(|line| line.split_once("\tWARN\t"));
        lines.map(|(_, text)| text.to_owned()).collect()
    };
    assert_eq!(warnings(server.log()), [everyone(server.port)]);
    assert_eq!(warnings(Server::tyrant("*", &["--unix", "socket"]).log()), [""; 0]);
    let folder = server.folder.path();
    let add = ["user", "add", "ann", "--no-password", "--users", "users"];
    assert!(feed_in(folder, "tyrant", &add, "").status.success());
    let users = folder.join("users").display().to_string();
    let with_users = Server::configured(open, &["--users", &users]);
    let port = with_users.port;
    let clear = format!(
        "clients that log in at 0.0.0.0:{port} send passwords that anyone in between can read: set \
         tls-cert and tls-key"
    );
    assert_eq!(warnings(with_users.log()), [clear]);
    std::fs::write(folder.join("t.toml"), open.replace("PORT", "7")).unwrap();
    let check = feed_in(folder, "tyrant", &["config", "--check", "t.toml"], "");
    assert!(check.status.success());
    let warning = String::from_utf8(check.stderr).unwrap();
    assert_eq!(warning, format!("t.toml: warning: {}\n", everyone(7)));
}

#[test]
fn a_unix_socket_is_removed_at_exit() {
    let mut server = Server::tyrant("*", &["--unix", "socket"]);
    let path = server.folder.path().join("socket");
    exchange(&mut UnixStream::connect(&path).unwrap(), "set a 0 0 1\r\nb\r\n", "STORED\r\n");
    let get = ["get", "--server", path.to_str().unwrap(), "a"];
    assert_eq!(succeed("tyrant", &get), "b\n");
    server.end(Signal::TERM);
    assert!(!path.exists());
}

#[test]
fn masked_commands_are_refused() {
    let server = Server::tyrant("*", &["--mask", "allwrite", "--unmask", "get"]);
    server.exchange("set a 0 0 1\r\nb\r\n", "CLIENT_ERROR forbidden\r\n");
    server.exchange("get a\r\n", "END\r\n");
    for option in ["--mask", "--unmask"] {
        let output = run("tyrant", &["serve", "*", option, "put,vanihs"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("vanihs") && error.contains(" vanish "), "{error}");
    }
}

#[test]
fn the_pid_file_lives_as_long_as_the_server() {
    let mut server = Server::tyrant("*", &["--pid", "pid"]);
    let path = server.folder.path().join("pid");
    std::fs::read_to_string(&path).unwrap().trim().parse::<u32>().unwrap();
    server.end(Signal::TERM);
    assert!(!path.exists());
}
