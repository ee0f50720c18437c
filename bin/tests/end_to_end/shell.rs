//! `tyrant shell` and `tyrant top`, on a terminal and with scripts.

use crate::process::{Server, free_port, path, succeed, wait_for};
use crate::terminal::Terminal;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
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
    let script = "put a 1\nget nothing\nput a\nfrob\nget 'a\nput a -\nget a --server h:1\nserve\ntop\ntail\n\
         get a\n";
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
        "line 8: serve is no command of the shell, but one of the program: leave the shell, and run \
         \"tyrant serve\"",
        "line 9: top needs --once in a script",
        "line 10: tail needs --max N or --to-end in a script",
        "tyrant: 9 lines failed",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn a_refused_line_is_not_the_reason_of_a_later_one_without_records() {
    let server = Server::tyrant("+", &["--mask", "out"]);
    let script = "out a\nlist --prefix k\ncount\nrange k\nfind k\n";
    let output = shell(&server, &["--keep-going"], script);
    let error = text(&output.stderr);
    assert_eq!((text(&output.stdout), output.status.code()), ("0\n", Some(1)), "{error}");
    assert!(error.contains("line 1: ") && error.contains("the server masks out"), "{error}");
    assert!(error.ends_with(": 1 line failed\n"), "{error}");
}

#[test]
fn the_shell_has_aliases_and_proposes_the_nearest_command() {
    let server = Server::tyrant("*", &[]);
    let output =
        shell(&server, &[], "SET a 1\nexists b\nExists a\nping --quiet\nrm a\nkeys\ndele a\n");
    assert_eq!(text(&output.stdout), "0\n1\n");
    let error = text(&output.stderr);
    assert!(
        error.contains("line 7: there is no command \"dele\"; did you mean out (alias delete)?"),
        "{error}"
    );
}

#[test]
fn the_shell_has_the_tips_of_the_program() {
    let server = Server::tyrant("*", &[]);
    for (line, tip) in [
        ("put k v --ttl 3", "tip: --expire SECONDS\n"),
        ("set c a b", "tip: a value with blanks needs quotes\n"),
        ("list x", "tip: --prefix PREFIX, or \"find PATTERN\" for a regular expression\n"),
        ("LIST --limit 3", "tip: --max N\n"),
        ("touch k --ttl 5", "tip: the seconds need no option: touch KEY SECONDS\n"),
        ("list --max x", "'x' for '--max <N>': a whole number is required\n"),
    ] {
        let output = shell(&server, &[], line);
        assert!(text(&output.stderr).ends_with(tip), "{line}: {output:?}");
    }
}

#[test]
fn the_shell_connects_to_another_server() {
    let (one, other) = (Server::tyrant("*", &[]), Server::tyrant("*", &[]));
    let script = format!("put a 1\nconnect {}\ncount\n", other.address());
    assert_eq!(text(&shell(&one, &[], &script).stdout), "0\n");
}

#[test]
fn no_command_runs_on_the_server_before_a_connect_that_fails() {
    let server = Server::tyrant("*", &[]);
    let refused = format!("127.0.0.1:{}", free_port());
    for line in [&*format!("connect {refused}"), "CONNECT", "connect 'a", "\"connect\" a:b"] {
        let script = format!("put a 1\nget nothing\n{line}\nvanish\n");
        let output = shell(&server, &["--keep-going"], &script);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = text(&output.stderr);
        assert!(
            error.contains("tyrant: line 2: ") && error.contains("tyrant: line 3: "),
            "{error}"
        );
        assert!(
            error.ends_with("; the script ends here, as its other lines are for that server\n")
        );
        assert_eq!(succeed("tyrant", &["count", "--server", &server.address()]), "1\n", "{line}");
    }
}

#[test]
fn top_prints_the_figures_of_an_interval_for_scripts() {
    let server = Server::tyrant("casket.tch", &[]);
    succeed("tyrant", &["put", "a", "1", "--server", &server.address()]);
    let top = ["top", "--once", "--interval", "0.1", "--server", &server.address()];
    let lines = succeed("tyrant", &top);
    assert!(lines.starts_with(&format!("tyrant top - {}  hash  casket.tch", server.address())));
    for label in ["attention ", "requests ", "connections ", "memory ", "database ", "disk "] {
        assert!(lines.lines().any(|line| line.starts_with(label)), "{label}: {lines}");
    }
    let json = succeed("tyrant", &[&top[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["commands"]["put"]["total"], 1.0);
    assert_eq!(json["rnum"], 1);
    assert!(json["interval_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{json}");
}

#[test]
fn top_prints_figures_at_each_interval_to_a_script_until_the_output_is_closed() {
    let server = Server::tyrant("casket.tch", &[]);
    let mut top = Command::new(path("tyrant"))
        .args(["top", "--interval", "0.1", "--server", &server.address()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("top starts");
    let output = BufReader::new(top.stdout.take().expect("its output"));
    let heads = output.lines().map(|line| line.expect("a line"));
    let heads = heads.filter(|line| line.starts_with("tyrant top - ")).take(3);
    assert_eq!(heads.count(), 3);
    // Its next line has nowhere to go.
    wait_for("the end of top", || top.try_wait().expect("its state"));
}

#[test]
fn top_shows_the_databases_of_a_process_on_a_terminal() {
    let text = "[[database]]\nname = \"one.tch\"\nport = PORT\n[[database]]\nname = \"two.tcb\"\n\
         port = OTHER\n";
    let server = Server::configured(text, &[]);
    let arguments = ["top", "--interval", "0.2", "--server", &server.address()];
    let mut top = Terminal::open(&arguments);
    top.await_text("one.tch");
    top.await_text("p99");
    assert!(top.shown().contains("\x1b[36m"), "{}", top.shown());
    top.send("\t");
    top.await_text("two.tcb");
    top.send("?");
    top.await_text("reverse the order");
    top.send("xs");
    top.await_text("the slow log is off");
    top.send("q");
    assert!(top.end().success(), "{}", top.shown());
    assert!(top.shown().contains("\x1b[?1049l") && top.shows_typing(), "{}", top.shown());
    let mut plain = Terminal::open_with(&arguments, &[("NO_COLOR", "1")]);
    plain.await_text("p99");
    for colour in ["\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[36m"] {
        assert!(!plain.shown().contains(colour), "{:?}", plain.shown());
    }
    // Ctrl-C ends it too.
    plain.send("\x03");
    assert!(plain.end().success());
    // A hangup ends it as the system does: there is no terminal any more to restore or read from.
    let mut left = Terminal::open(&arguments);
    left.await_text("p99");
    let id = rustix::process::Pid::from_child(&left.program);
    rustix::process::kill_process(id, rustix::process::Signal::HUP).expect("to signal");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&left.end()), Some(1));
    let dumb = Terminal::open_with(&arguments, &[("TERM", "dumb")]);
    dumb.await_shown("two intervals", |shown| shown.matches("tyrant top - ").count() > 1);
    assert!(!dumb.shown().contains('\x1b'), "{:?}", dumb.shown());
}

#[test]
fn a_person_is_asked_before_all_records_are_removed() {
    let server = Server::tyrant("casket.tch", &[]);
    let address = server.address();
    let put = || succeed("tyrant", &["put", "a", "1", "--server", &address]);
    let count = || succeed("tyrant", &["count", "--server", &address]);
    put();
    let question = format!("Remove all records (1) of casket.tch on {address}? [y/N] ");
    let mut vanish = Terminal::open(&["vanish", "--server", &address]);
    vanish.await_text(&question);
    vanish.send("\n");
    assert_eq!(vanish.end().code(), Some(1));
    assert!(vanish.shown().contains("tyrant: nothing was changed"), "{}", vanish.shown());
    assert_eq!(count(), "1\n");
    let mut vanish = Terminal::open(&["vanish", "--server", &address]);
    vanish.await_text(&question);
    vanish.send("yes\n");
    assert!(vanish.end().success());
    assert_eq!(count(), "0\n");
    put();
    let mut vanish = Terminal::open(&["vanish", "--yes", "--server", &address]);
    assert!(vanish.end().success() && !vanish.shown().contains("Remove"), "{}", vanish.shown());
    assert_eq!(count(), "0\n");
    // A script is not asked.
    put();
    succeed("tyrant", &["vanish", "--server", &address]);
    assert_eq!(count(), "0\n");
}

/// Opens the shell on a terminal, with a history in a folder of its own.
fn typed_shell(server: &Server, variables: &[(&str, &str)]) -> Terminal {
    let state = server.folder.path().display().to_string();
    let variables = [variables, &[("XDG_STATE_HOME", &*state)]].concat();
    Terminal::open_with(&["shell", "--server", &server.address()], &variables)
}

#[test]
fn the_shell_asks_completes_and_hints() {
    let server = Server::tyrant("casket.tch", &[]);
    let mut shell = typed_shell(&server, &[]);
    let prompt = format!("{} casket.tch (hash, master)> ", server.address());
    shell.await_text(&prompt);
    shell.send("put");
    shell.await_text("\x1b[2m KEY VALUE\x1b[0m");
    shell.send(" 'user 1001' one\r");
    shell.await_shown("the next prompt", |shown| shown.matches(&prompt).count() > 1);
    // TAB completes the key, whose blank needs an escape.
    shell.send("GET us\t");
    shell.await_text(r"user\ 1001");
    shell.send("\r");
    shell.await_text("\none\r\n");
    shell.send("frobnicate\r");
    shell.await_text("\x1b[1;31mthere is no command \"frobnicate\"");
    shell.send("Vanish\rn\rcount\r");
    shell.await_text("Remove all records (1) of casket.tch on ");
    shell.await_text("nothing was changed");
    shell.await_text("\n1\r\n");
    shell.send("vanish\ry\rcount\r");
    shell.await_text("\n0\r\n");
    shell.send("quit\r");
    assert!(shell.end().success(), "{}", shell.shown());
    let mut plain = typed_shell(&server, &[("NO_COLOR", "1")]);
    plain.await_text(&prompt);
    plain.send("get nothing\r");
    plain.await_text("no record has the key");
    assert!(!plain.shown().contains("\x1b[1") && !plain.shown().contains("\x1b[3"));
    // Before the next prompt the terminal itself would take it.
    plain.await_shown("the next prompt", |shown| shown.matches(&prompt).count() > 1);
    plain.await_raw();
    plain.send("\x04");
    assert!(plain.end().success());
}

#[test]
fn what_is_typed_while_a_command_runs_is_not_lost() {
    let options = ["--server-id", "1", "--update-log", "ulog"];
    let server = Server::tyrant("casket.tch", &options);
    let mut shell = typed_shell(&server, &[]);
    shell.await_text("master)> ");
    // While one command runs, the others are typed, the last one not to its end.
    shell.send("top --once --interval 1\r");
    shell.await_text("--interval 1");
    shell.send("put a first\rget a\rput b sec");
    shell.await_text("\nfirst\r\n");
    shell.send("ond\rget b\r");
    shell.await_text("\nsecond\r\n");
    // The view and the stream of changes return to the shell.
    shell.send("top\r");
    shell.await_text("\x1b[?1049h");
    shell.send("qput c third\rget c\r");
    shell.await_text("\nthird\r\n");
    shell.send("tail --from 0 --max 1\r");
    shell.await_text("\tput\tok\ta\tfirst\r\n");
    shell.send("exit\r");
    assert!(shell.end().success(), "{}", shell.shown());
}

#[test]
fn a_tail_in_the_shell_ends_at_a_signal_and_the_shell_goes_on() {
    let options = ["--server-id", "1", "--update-log", "ulog"];
    let server = Server::tyrant("casket.tch", &options);
    let mut shell = typed_shell(&server, &[]);
    shell.await_text("master)> ");
    shell.send("put a 1\rtail --from 0\r");
    shell.await_text("\tput\tok\ta\t1\r\n");
    kill_process(Pid::from_child(&shell.program), Signal::INT).expect("a signal");
    shell.send("get a\r");
    shell.await_text("\n1\r\n");
    shell.send("exit\r");
    assert!(shell.end().success(), "{}", shell.shown());
}
