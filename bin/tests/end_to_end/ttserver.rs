//! `ttserver`: Tokyo Tyrant's command line of the server.

use crate::process::{Server, exchange, fail, free_port, path, run, succeed, wait_for};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

#[test]
fn the_version_has_tokyo_tyrants_format() {
    let version = succeed("ttserver", &["--version"]);
    let first = version.lines().next().unwrap();
    assert_eq!(first, format!("Tyrant version {} (324:0.91) for Linux", env!("CARGO_PKG_VERSION")));
}

#[test]
fn an_unknown_option_shows_the_usage() {
    let output = run("ttserver", &["-nonsense"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("-nonsense") && error.contains("usage: "), "{error}");
}

#[test]
fn unsupported_options_are_refused_by_name() {
    let error = fail("ttserver", &["-skel", "1"]);
    assert!(error.ends_with(": -skel is not supported by this version\n"));
}

#[test]
fn mul_opens_one_database_and_logs_it() {
    let mut server = Server::ttserver("casket.tch#bnum=1000", &["-mul", "3", "-thnum", "100"]);
    server.exchange("set a 0 0 1\r\nb\r\n", "STORED\r\n");
    assert_eq!(server.end(Signal::TERM).code(), Some(0));
    let log = server.log();
    assert!(log.contains("\tINFO\t-mul 3: one database is opened"), "{log}");
    assert!(server.folder.path().join("casket.tch").is_dir());
}

#[test]
fn memcached_responses_match_tokyo_tyrants() {
    let server = Server::ttserver("*", &[]);
    let request = "set a 0 0 3\r\nabc\r\nincr a 4\r\nget\r\n";
    server.exchange(request, "STORED\r\n4\r\nCLIENT_ERROR error\r\n");
}

#[test]
fn masks_are_applied_from_left_to_right() {
    let server = Server::ttserver("*", &["-mask", "all", "-unmask", "get"]);
    assert!(server.log().contains("0xffffffffffffffbf"), "{}", server.log());
    server.exchange("get a\r\n", "CLIENT_ERROR forbidden\r\n");
}

#[test]
fn a_port_of_zero_is_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut child = Command::new(path("ttserver"))
        .args(["-host", socket.to_str().unwrap(), "-port", "0"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stream = wait_for("the socket", || UnixStream::connect(&socket).ok());
    exchange(&mut stream, "set a 0 0 1\r\nb\r\n", "STORED\r\n");
    let get = ["get", "-port", "0", socket.to_str().unwrap(), "a"];
    assert_eq!(succeed("tcrmgr", &get), "b\n");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_daemon_serves_once_its_starter_returns_and_kl_replaces_it() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port().to_string();
    // Packages have a link.
    let program = folder.path().join("ttserver");
    std::os::unix::fs::symlink(path("tyrant"), &program).unwrap();
    let start = |options: &[&str]| {
        Command::new(&program)
            .args(["-host", "127.0.0.1", "-port", &port, "-dmn", "-log", "log"])
            .args(options)
            .arg("casket.tch")
            .current_dir(&folder)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let pid_file = folder.path().join("ttserver.pid");
    let pid = || {
        let text = std::fs::read_to_string(&pid_file).unwrap();
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    };

    assert!(start(&[]).status.success());
    let first = pid();
    succeed("tcrmgr", &["put", "-port", &port, "127.0.0.1", "a", "1"]);

    let second_start = start(&[]);
    assert_eq!(second_start.status.code(), Some(1));
    let error = String::from_utf8(second_start.stderr).unwrap();
    assert!(error.contains("may be already running"), "{error}");
    assert_eq!(pid(), first);

    assert!(start(&["-kl"]).status.success());
    let second = pid();
    assert_ne!(second, first);
    assert!(test_kill_process(first).is_err());
    assert_eq!(succeed("tcrmgr", &["get", "-port", &port, "127.0.0.1", "a"]), "1\n");

    kill_process(second, Signal::TERM).unwrap();
    wait_for("the end of the daemon", || (!pid_file.exists()).then_some(()));
}

#[test]
fn a_daemon_that_cannot_start_reports_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(path("ttserver"))
        .args(["-port", &free_port().to_string(), "-dmn", "/dev/null/casket.tch"])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("/dev/null/casket.tch"), "{error}");
    assert!(!folder.path().join("ttserver.pid").exists());
}

#[test]
fn an_oversized_server_id_is_ignored_without_replication() {
    let server = Server::ttserver("*", &["-sid", "70000"]);
    let stat = crate::process::succeed("tyrant", &["stat", "--server", &server.address()]);
    assert!(stat.contains("\nsid\t0\n"), "{stat}");
    drop(server);
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().to_str().expect("UTF-8");
    let error = crate::process::fail(
        "ttserver",
        &["-port", "0", "-host", "s", "-sid", "70000", "-ulog", log],
    );
    assert!(error.contains("server id 70000"), "{error}");
    assert!(error.contains("from 1 to 65535"), "{error}");
}

#[test]
fn the_one_program_has_the_command_line_of_the_name_that_it_is_called_by() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["ttserver", "tcrmgr", "ttulmgr", "tyrant"] {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(path("tyrant"), &link).unwrap();
        let usage = |program: &std::path::Path| {
            let output = std::process::Command::new(program).arg("--version").output().unwrap();
            let printed = [output.stdout, output.stderr].concat();
            String::from_utf8(printed).unwrap().replace(&*program.to_string_lossy(), name)
        };
        assert_eq!(usage(&link), usage(path(name).as_ref()), "{name}");
    }
}
