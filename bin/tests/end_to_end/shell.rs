//! `tyrant shell` with a script, and `tyrant top` for scripts.

use crate::process::{Server, fail, path, succeed};
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs the shell with a script as its standard input.
fn shell(server: &Server, options: &[&str], script: &str) -> Output {
    let mut shell = Command::new(path("tyrant"))
        .args(["shell", "--server", &server.address()])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the shell starts");
    let mut input = shell.stdin.take().expect("its input");
    input.write_all(script.as_bytes()).expect("to write the script");
    drop(input);
    shell.wait_with_output().expect("its output")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn a_script_runs_to_its_end() {
    let server = Server::tyrant("+", &[]);
    let script = "# comment\n\nput a 'two words'\nput \"k\\tx\" \\xff\nlist --values\ncount --json\n\
        exit\nput never x\n";
    let output = shell(&server, &[], script);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "a\ttwo words\nk\\tx\t\\xff\n{\"count\":2}\n", "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_script_ends_at_its_first_error_unless_told_otherwise() {
    let server = Server::tyrant("*", &[]);
    let script =
        "put a 1\nget nothing\nput a\nfrob\nget 'a\nput a -\nget a --server h:1\ntop\nget a\n";
    let output = shell(&server, &[], script);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let error = text(&output.stderr);
    assert!(error.starts_with("tyrant: line 2: "), "{error}");
    assert!(error.contains("no record has the key \"nothing\""), "{error}");
    let output = shell(&server, &["--keep-going"], script);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(text(&output.stdout), "1\n");
    let error = text(&output.stderr);
    for part in [
        "line 2: ",
        "line 3: the following required arguments were not provided",
        "line 4: there is no command \"frob\" (\"help\" lists all)",
        "line 5: the quotation mark ' is not closed",
        "line 6: the shell reads lines",
        "line 7: the shell is connected: \"connect ADDRESS\"",
        "line 8: top is no command of the shell, but one of the program: leave the shell, and run \
         \"tyrant top\"",
        "tyrant: 7 lines failed",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn the_shell_has_aliases_and_proposes_the_nearest_command() {
    let server = Server::tyrant("*", &[]);
    let output =
        shell(&server, &[], "set a 1\nexists b\nexists a\nping --quiet\nrm a\nkeys\ndele a\n");
    assert_eq!(text(&output.stdout), "0\n1\n");
    let error = text(&output.stderr);
    assert!(
        error.contains("line 7: there is no command \"dele\"; did you mean out (alias delete)?"),
        "{error}"
    );
}

#[test]
fn the_shell_connects_to_another_server() {
    let (one, other) = (Server::tyrant("*", &[]), Server::tyrant("*", &[]));
    let script = format!("put a 1\nconnect {}\ncount\n", other.address());
    assert_eq!(text(&shell(&one, &[], &script).stdout), "0\n");
}

#[test]
fn top_prints_the_figures_of_an_interval_for_scripts() {
    let server = Server::tyrant("casket.tch", &[]);
    succeed("tyrant", &["put", "a", "1", "--server", &server.address()]);
    let top = ["top", "--once", "--interval", "0.1", "--server", &server.address()];
    let lines = succeed("tyrant", &top);
    assert!(lines.starts_with(&format!("tyrant top - {}  hash  casket.tch", server.address())));
    for label in ["operations ", "connections ", "memory ", "database ", "command "] {
        assert!(lines.lines().any(|line| line.starts_with(label)), "{label}: {lines}");
    }
    let json = succeed("tyrant", &[&top[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["commands"]["put"]["total"], 1.0);
    assert_eq!(json["rnum"], 1);
    assert!(json["interval_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{json}");
    let error = fail("tyrant", &["top", "--server", &server.address()]);
    assert!(error.contains("--once or --json"), "{error}");
}
