//! The command line of `tyrant`: `serve` without its name, aliases, quiet commands, manual pages,
//! and errors of wrong command lines.

use crate::process::{Server, fail, free_port, misuse, path, run, succeed};
use crate::tyrant::converse;
use std::process::{Command, Stdio};

/// Runs a wrong command line with variables of the environment, and checks that its error has all
/// `parts`.
fn refuse(line: &str, variables: &[(&str, &str)], parts: &[&str]) {
    let mut command = Command::new(path("tyrant"));
    command.args(line.split(' ')).envs(variables.iter().copied());
    let output = command.stdin(Stdio::null()).output().expect("the program runs");
    assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
    assert!(output.stdout.is_empty(), "{line}: {output:?}");
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    for part in parts {
        assert!(error.contains(part), "{line}: {part} is not in {error}");
    }
}

#[test]
fn serve_needs_no_name() {
    let port = free_port().to_string();
    let arguments = ["--port", &port, "--host", "127.0.0.1", "--log", "log", "casket.tcb"];
    let server = Server::with_arguments(&arguments, port.parse().expect("a port"));
    converse(
        &server,
        &[("put b 2", Some("")), ("set a 1", Some("")), ("range", Some("a\t1\nb\t2\n"))],
    );
    assert!(server.folder.path().join("casket.tcb").exists());
}

#[test]
fn an_unknown_command_is_refused_with_the_nearest() {
    for (line, part) in [
        ("dele a", "there is no command \"dele\"; did you mean out (alias delete)?"),
        ("stop", "there is no command \"stop\"; SIGTERM, or Ctrl-C where it runs, ends a server"),
        ("gt a", "there is no command \"gt\"; did you mean get?"),
        ("inof", "there is no command \"inof\"; did you mean stat (alias info)?"),
        ("flushall", "did you mean vanish?"),
        ("--port 2 get a", "tip: begin with the command: tyrant get a --server HOST:PORT"),
        ("--server h:1 get a", "tip: begin with the command: tyrant get a --server h:1"),
        ("casket", "a database to serve has a suffix (.tch, .tcb, .tcf, .tct), or is * or +"),
    ] {
        refuse(line, &[], &[part, "Usage: tyrant [OPTIONS OF SERVE] [DB]"]);
    }
}

#[test]
fn an_invalid_value_is_refused_with_its_place_and_a_valid_one() {
    let number = "a number from 0 to 65535 is required";
    refuse(
        "--port 99999",
        &[],
        &["'99999' for '--port <PORT>'", number, "for example --port 1978"],
    );
    refuse("serve --port x", &[], &["'x' for '--port <PORT>'", number]);
    let parts = ["a number of at least 1 is required", "tip: for example --threads "];
    refuse("--threads 0", &[], &parts);
    let variable = ("TYRANT_PORT", "abc");
    let parts = ["'abc' for 'TYRANT_PORT of the environment'", "tip: for example TYRANT_PORT=1978"];
    refuse("casket.tch", &[variable], &parts);
    refuse("serve --port x", &[variable], &["'x' for '--port <PORT>'"]);
    for (name, example) in [
        ("TYRANT_USERS", "users"),
        ("TYRANT_TLS_CERT", "server.pem"),
        ("TYRANT_RUN_AS", "tyrant"),
        ("TYRANT_HOST", "0.0.0.0"),
        ("TYRANT_SERVER_ID", "1"),
    ] {
        let place = format!("'' for '{name} of the environment': a");
        let tip = format!("tip: for example {name}={example}");
        refuse("serve *", &[(name, "")], &[&place, " is required", &tip]);
    }
    refuse("--expiry kep", &[], &["'kep' for '--expiry <HOW>'", "[possible values: keep, ignore]"]);
    let parts = ["'soon' for 'TYRANT_TIMEOUT of the environment'", "not a number of seconds"];
    refuse("serve", &[("TYRANT_TIMEOUT", "soon")], &parts);
    let line = "restore r --into x.tch --update-log u --until yesterday";
    refuse(line, &[], &["write 2026-11-21T12:30:08Z", "seconds or microseconds since 1970"]);
}

#[test]
fn a_url_is_not_a_server_and_a_log_without_a_folder_is_named() {
    for (address, remedy) in [
        ("http://127.0.0.1:1978/", "a server is named without one: 127.0.0.1:1978\n"),
        ("http://example.org/a/b", ": example.org:1978\n"),
        ("https://[::1]", ": [::1]:1978 --tls\n"),
    ] {
        let error = misuse(&["get", "a", "--server", address]);
        assert!(error.contains(&format!("{address:?} is a URL")), "{error}");
        assert!(error.contains(remedy), "{error}");
    }
    let error = fail("tyrant", &["*", "--log", "/nonexistent/l"]);
    assert!(error.contains("log: cannot open the log /nonexistent/l: No such file"), "{error}");
    assert!(error.contains("; check the path"), "{error}");
}

#[test]
fn aliases_do_what_their_commands_do() {
    converse(
        &Server::tyrant("*", &[]),
        &[
            ("set a 1", Some("")),
            ("keys", Some("a\n")),
            ("info rnum", Some("rnum\t1\n")),
            ("del a", Some("")),
            ("delete a", None),
            ("rm a", None),
        ],
    );
}

#[test]
fn ping_and_exists_answer_by_their_exit_codes() {
    let server = Server::tyrant("casket.tch", &["--mask", "out"]);
    let address = server.address();
    let on_server = |line: &str| {
        let mut arguments: Vec<&str> = line.split(' ').collect();
        arguments.extend(["--server", &address]);
        let output = run("tyrant", &arguments);
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let answer = |code, output: &str| (Some(code), output.to_owned(), String::new());
    assert_eq!(on_server("put a 1"), answer(0, ""));
    assert_eq!(on_server("exists a"), answer(0, "1\n"));
    assert_eq!(on_server("exists b"), answer(1, "0\n"));
    assert_eq!(on_server("exists --quiet a"), answer(0, ""));
    assert_eq!(on_server("exists --quiet b"), answer(1, ""));
    assert_eq!(on_server("exists --hex 61"), answer(0, "1\n"));
    assert_eq!(on_server("ping --quiet"), answer(0, ""));
    let (code, output, error) = on_server("ping");
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(output.starts_with(&format!("{address} with a hash database replies in ")), "{output}");
    let nowhere = format!("127.0.0.1:{}", free_port());
    fail("tyrant", &["ping", "--quiet", "--server", &nowhere]);
    // A refusal is not an answer.
    let masked = Server::tyrant("*", &["--mask", "vsiz"]);
    let error = fail("tyrant", &["exists", "a", "--server", &masked.address()]);
    assert!(error.contains("the server refuses exists"), "{error}");
}

#[test]
fn a_refused_list_or_count_is_not_an_empty_one() {
    for (mask, commands) in [
        ("fwmkeys", &["list --prefix k"][..]),
        ("get", &["list --values"]),
        ("rnum,size", &["count", "size"]),
        ("get,mget", &["range k", "find k"]),
        ("misc", &["range k", "find k", "get --all k"]),
        ("allread", &["count", "range k"]),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().join("a.tcb").display().to_string();
        let server = Server::tyrant(&name, &["--mask", mask]);
        server.exchange("set k 0 0 1\r\n5\r\n", "STORED\r\n");
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            let address = server.address();
            let error = fail("tyrant", &[&words[..], &["--server", &address]].concat());
            let command = words[0];
            assert!(error.contains(&format!("the server refuses {command}")), "{mask}: {error}");
        }
    }
    // As many records as are asked for at once, so that the last request is not the refused one.
    let server = Server::tyrant("+", &["--mask", "get"]);
    for key in 0..256 {
        server.exchange(format!("set {key} 0 0 1\r\n5\r\n"), "STORED\r\n");
    }
    let error = fail("tyrant", &["list", "--values", "--server", &server.address()]);
    assert!(error.contains("the server refuses list"), "{error}");
    // Nothing is refused here, whatever another client was refused.
    let server = Server::tyrant("+", &["--mask", "out"]);
    fail("tyrant", &["del", "k", "--server", &server.address()]);
    for command in [&["list", "--prefix", "k"][..], &["count"], &["range"], &["find", "k"]] {
        succeed("tyrant", &[command, &["--server", &server.address()]].concat());
    }
}

#[test]
fn quiet_commands_print_only_errors() {
    let server = Server::tyrant("casket.tch", &["--copy-dir", "."]);
    let address = server.address();
    let at = |name: &str| server.folder.path().join(name).display().to_string();
    succeed("tyrant", &["put", "a", "1", "--server", &address]);
    std::fs::write(at("lines.tsv"), "b\t2\n").expect("a file");
    let (repository, restored, copied) = (at("backups"), at("restored.tch"), at("copied.tch"));
    let (lines, written, saved) = (at("lines.tsv"), at("written.tsv"), at("saved.tch"));
    for arguments in [
        &["backup", "create", &repository, "--server", &address][..],
        &["backup", "verify", &repository],
        &["backup", "prune", &repository, "--keep", "1"],
        &["restore", &repository, "--into", &restored],
        &["import", &lines, "--into", &restored],
        &["export", &restored, &written],
        &["check", &restored],
        &["check", "--server", &address],
        &["salvage", &restored, "--into", &saved],
        &["copy", &copied, "--server", &address],
        &["optimize", "--server", &address],
        &["sync", "--server", &address],
        &["vanish", "--server", &address],
    ] {
        assert_eq!(succeed("tyrant", &[arguments, &["--quiet"]].concat()), "", "{arguments:?}");
    }
    assert_eq!(std::fs::read_to_string(&written).expect("the lines").lines().count(), 2);
    for arguments in
        [&["restore", "/nonexistent", "--into", &restored][..], &["promote", "--server", &address]]
    {
        let error = fail("tyrant", &[arguments, &["--quiet"]].concat());
        assert!(error.starts_with("tyrant: "), "{error}");
    }
    let error = misuse(&["export", &restored, "--quiet"]);
    assert!(error.starts_with("tyrant: --quiet would discard"), "{error}");
}

#[test]
fn an_output_that_is_full_or_closed_is_an_error_and_no_panic() {
    let server = Server::tyrant("casket.tch", &["--copy-dir", "."]);
    let address = server.address();
    succeed("tyrant", &["put", "key", "value", "--server", &address]);
    let other = tempfile::tempdir().expect("a folder");
    let at = |name: &str| other.path().join(name).display().to_string();
    let (database, repository, saved) = (at("a.tch"), at("backups"), at("saved.tch"));
    std::fs::write(at("lines.tsv"), "a\tb\n").expect("the lines");
    let lines = at("lines.tsv");
    succeed("tyrant", &["import", &lines, "--into", &database]);
    for arguments in [
        &["version"][..],
        &["config", "--defaults"],
        &["completions", "bash"],
        &["check", &database],
        &["salvage", &database, "--into", &saved],
        &["import", &lines, "--into", &database],
        &["export", &database],
        &["inspect", &database],
        &["get", "key", "--server", &address],
        &["list", "--server", &address],
        &["stat", "--server", &address],
        &["replicas", "--server", &address],
        &["backup", "create", &repository, "--server", &address],
        &["backup", "list", &repository],
        &["backup", "verify", &repository],
    ] {
        let run = |output: Stdio| {
            let mut command = Command::new(path("tyrant"));
            command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
            let output = command.spawn().expect("tyrant").wait_with_output().expect("its end");
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
            String::from_utf8(output.stderr).expect("UTF-8")
        };
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("the device");
        let error = run(full.into());
        let expected = "tyrant: cannot write the standard output: No space left on device";
        assert!(
            error.starts_with(expected) && error.lines().count() == 1,
            "{arguments:?}: {error}"
        );
        let _ = std::fs::remove_dir_all(&saved);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(run(writer.into()), "", "{arguments:?}");
        let _ = std::fs::remove_dir_all(&saved);
    }
}

#[test]
fn manual_pages_are_written_for_all_programs() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().display().to_string();
    assert_eq!(succeed("tyrant", &["man", &at]), "");
    for name in ["tyrant.1", "tyrant-user-add.1", "ttserver.1", "tcrmgr.1", "ttulmgr.1"] {
        let page = std::fs::read_to_string(folder.path().join(name)).expect(name);
        assert!(page.contains("\n.SH \"EXIT STATUS\"\n"), "{name}");
    }
    let page = std::fs::read_to_string(folder.path().join("tyrant.toml.5")).expect("the page");
    assert!(page.contains("connections\\-max"), "{page}");
    let within = folder.path().join("share/man/man1").display().to_string();
    assert_eq!(succeed("tyrant", &["man", &within]), "");
    assert!(folder.path().join("share/man/man1/tyrant.1").exists());
    let error = fail("tyrant", &["man", "/proc/no"]);
    assert!(error.contains("cannot create the folder /proc/no: "), "{error}");
}
