//! Users: the file that `tyrant user` writes, and a server that requires them.

use crate::process::{Server, exchange, fail, feed, misuse, run, succeed, wait_for};
use crate::terminal::Terminal;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

/// Adds a user to a file, who may read and write.
pub(crate) fn add(file: &Path, name: &str, password: &str) {
    add_with(file, name, password, "read,write");
}

/// Adds a user with rights to a file.
pub(crate) fn add_with(file: &Path, name: &str, password: &str, rights: &str) {
    let file = file.to_str().expect("a path");
    let arguments = ["user", "add", name, "--users", file, "--rights", rights, "--quiet"];
    let output = feed("tyrant", &arguments, password);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("the file").permissions().mode() & 0o777
}

#[test]
fn users_are_added_changed_listed_and_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    let file = path.to_str().expect("a path");
    let user = |arguments: &[&'static str]| -> Vec<String> {
        let words = ["user", "--quiet", "--users", file];
        words.iter().chain(arguments).map(ToString::to_string).collect()
    };
    add(&path, "ann", "secret\n");
    add(&path, "bob", "other");
    succeed("tyrant", &user(&["add", "carl", "--no-password", "--rights", "read:a:,scripts"]));
    assert_eq!(mode(&path), 0o600);
    let listed = succeed("tyrant", &user(&["list"]));
    assert_eq!(
        listed,
        "ann\tpassword\tread,write\nbob\tpassword\tread,write\ncarl\tcertificate\tread:a:,scripts\n"
    );
    let before = std::fs::read_to_string(&path).expect("the file");
    assert!(before.contains("$argon2id$v=19$m=19456,t=2,p=1$"), "{before}");
    assert!(!before.contains("secret") && !before.contains("other"), "{before}");
    for (arguments, input, expected) in [
        (&["add", "ann"][..], "x", "there is a user ann already"),
        (&["add", "dora"], "", "the password is empty"),
        (&["add", "dora"], &"x".repeat(256), "longer than 255 bytes"),
        (&["passwd", "dora"], "x", "there is no user dora"),
        (&["token", "dora"], "", "there is no user dora"),
        (&["remove", "ann", "dora"], "", "there is no user dora"),
        (&["remove", "ann", "bob", "carl"], "", "the last user stays"),
        (&["convert"], "", "has the present form already"),
    ] {
        let output = feed("tyrant", &user(arguments), input);
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    for (arguments, expected) in [
        (&["add", "a:b"][..], "a colon"),
        (&["add", "dora", "--rights", "reads"], "none of read, write, admin"),
        (&["add", "dora", "--rights", "read, write"], "the right \" write\" has a blank at an end"),
        (&["rights", "ann", "--rights", "read: a"], "the right \"read: a\" has a blank at an end"),
        (
            &["rights", "ann", "--rights", "read:cart:*"],
            "out, as in read:cart:, or write it as \\x2a",
        ),
        (&["rights", "ann", "--rights", "write:*"], "leave it out, as in write, or write it"),
        (&["rights", "ann", "--rights", "admin:a"], "about the server as a whole"),
    ] {
        let error = misuse(&user(arguments));
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&path).expect("the file"), before);
    let token = succeed("tyrant", &user(&["token", "carl"]));
    assert_eq!(token.trim().len(), 64);
    assert!(feed("tyrant", &user(&["passwd", "ann"]), "new").status.success());
    succeed("tyrant", &user(&["remove", "bob"]));
    succeed("tyrant", &user(&["rights", "ann", "--rights", "read"]));
    let listed = succeed("tyrant", &user(&["list", "--json"]));
    assert_eq!(
        listed,
        "{\"name\":\"ann\",\"password\":true,\"token\":false,\"rights\":[\"read\"]}\n\
         {\"name\":\"carl\",\"password\":false,\"token\":true,\"rights\":[\"read:a:\",\"scripts\"]}\n"
    );
    let after = std::fs::read_to_string(&path).expect("the file");
    assert!(!after.contains(token.trim()), "{after}");
}

#[test]
fn a_change_of_users_says_how_a_running_server_learns_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    let file = path.to_str().expect("a path");
    for (arguments, input) in [
        (&["add", "ann"][..], "secret"),
        (&["passwd", "ann"], "other"),
        (&["rights", "ann", "--rights", "read"], ""),
        (&["token", "ann"], ""),
    ] {
        let output = feed("tyrant", &[&["user", "--users", file], arguments].concat(), input);
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        let users = format!("a running server with the users in {file}");
        assert_eq!(said, format!("{users} takes the change at `tyrant reload`, or SIGHUP\n"));
    }
}

#[test]
fn a_change_during_the_prompt_for_a_password_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    let file = path.to_str().expect("a path");
    add(&path, "ann", "secret");
    add(&path, "eve", "other");
    let hash = || {
        let text = std::fs::read_to_string(&path).expect("the file");
        text.lines().find(|line| line.starts_with("password")).expect("a hash").to_owned()
    };
    let before = hash();
    let mut prompt = Terminal::open(&["user", "passwd", "ann", "--users", file]);
    prompt.await_hidden("New password of ann: ");
    succeed("tyrant", &["user", "remove", "eve", "--users", file, "--quiet"]);
    prompt.send("changed\n");
    prompt.await_hidden("The same again: ");
    prompt.send("changed\n");
    assert!(prompt.end().success(), "{}", prompt.shown());
    assert!(prompt.shows_typing() && !prompt.shown().contains("changed"), "{}", prompt.shown());
    let listed = succeed("tyrant", &["user", "list", "--users", file]);
    assert_eq!(listed, "ann\tpassword\tread,write\n");
    assert_ne!(hash(), before);
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1);
}

#[test]
fn a_signal_during_the_prompt_for_a_password_leaves_a_terminal_that_shows_what_is_typed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    add(&path, "ann", "secret");
    for signal in [Signal::INT, Signal::TERM] {
        let file = path.to_str().expect("a path");
        let mut prompt = Terminal::open(&["user", "passwd", "ann", "--users", file]);
        prompt.await_hidden("New password of ann: ");
        kill_process(Pid::from_child(&prompt.program), signal).expect("a signal");
        assert_eq!(prompt.end().signal(), Some(signal.as_raw()));
        assert!(prompt.shows_typing());
    }
}

#[test]
fn lines_that_cannot_be_users_are_not_converted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    let file = path.to_str().expect("a path");
    let long = format!("ann:secret\nbob:{}\n", "x".repeat(256));
    let many: String = (0..=1024).map(|number| format!("u{number}:secret\n")).collect();
    for (text, expected) in [
        ("ann:secret\nbob:\n", "the password of bob is empty"),
        (&long, "the password of bob is longer than 255 bytes"),
        ("ann:secret\nann:other\n", "user 2 has the name or the token of another"),
        ("ann:secret\n:other\n", "user 2 must have a name"),
        (&many, "must have 1 to 1024 users"),
    ] {
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("permissions");
        let error = fail("tyrant", &["user", "convert", "--users", file]);
        assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), text);
    }
}

#[test]
fn a_file_of_an_earlier_version_is_converted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    let file = path.to_str().expect("a path");
    std::fs::write(&path, "ann:secret\nbob:a:b\n").expect("a file");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("its permissions");
    let error = fail("tyrant", &["serve", "--users", file, "*"]);
    assert!(error.contains("others may read") && !error.contains("secret"), "{error}");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("its permissions");
    let error = fail("tyrant", &["serve", "--users", file, "*"]);
    let advice = format!("tyrant user convert --users {file}");
    assert!(error.contains(&advice) && !error.contains("secret"), "{error}");
    succeed("tyrant", &["user", "convert", "--users", file, "--quiet"]);
    let server = Server::tyrant("*", &["--users", file]);
    server.exchange("set k 0 0 10\r\nann secret\r\nget k\r\n", "STORED\r\nEND\r\n");
    server.exchange("set k 0 0 7\r\nbob a:b\r\nget k\r\n", "STORED\r\nEND\r\n");
}

#[test]
fn a_server_with_users_refuses_others_and_reads_the_file_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    let file = path.to_str().expect("a path");
    add(&path, "ann", "secret");
    let server = Server::tyrant("*", &["--users", file]);
    let log_in = |name: &str, password: &str, reply: &str| {
        let data = format!("{name} {password}");
        let set = format!("set k 0 0 {}\r\n{data}\r\n", data.len());
        server.exchange(set, reply);
    };
    server.exchange("get k\r\n", "CLIENT_ERROR unauthenticated\r\n");
    log_in("ann", "secret", "STORED\r\n");
    assert!(fail("tyrant", &["count", "--server", &server.address()]).contains("requires a user"));
    log_in("ann", "other", "CLIENT_ERROR authentication failure\r\n");
    let log = server.log();
    let failed = log.lines().find(|line| line.contains("login failed")).expect("a line");
    assert!(failed.contains("\tWARN\tlogin failed: 127.0.0.1:"), "{failed}");
    let why = " over memcached's protocol: the password of user ann is wrong";
    assert!(failed.ends_with(why), "{failed}");
    // A password that was typed in place of the name is not in the log.
    log_in("secret", "secret", "CLIENT_ERROR authentication failure\r\n");
    let why = " over memcached's protocol: no user has this name";
    assert!(
        server.log().lines().last().is_some_and(|line| line.ends_with(why)),
        "{}",
        server.log()
    );
    // An invalid file changes nothing.
    let valid = std::fs::read_to_string(&path).expect("the file");
    std::fs::write(&path, "[[user]]\nname = \"ann\"\npassword = \"secret\"\nrights = []\n")
        .expect("a file");
    server.signal(Signal::HUP);
    crate::process::wait_for("the reload", || server.log().contains("reload failed").then_some(()));
    log_in("ann", "secret", "STORED\r\n");
    std::fs::write(&path, valid).expect("the file");
    add(&path, "bob", "other");
    server.signal(Signal::HUP);
    crate::process::wait_for("the reload", || {
        server.log().contains("no setting has changed").then_some(())
    });
    let read = format!("\treload: no setting has changed; read 2 users in {file}; log reopened\n");
    assert!(server.log().contains(&read), "{}", server.log());
    log_in("bob", "other", "STORED\r\n");
    let log = server.log();
    assert!(!log.contains("secret") && !log.contains("other"), "{log}");
    let server = Server::tyrant("*", &["--users", file, "--open-tokyo-tyrant"]);
    assert_eq!(succeed("tyrant", &["count", "--server", &server.address()]), "0\n");
    // The same over the network.
    add(&path, "carl", "third");
    let read = succeed("tyrant", &["reload", "--server", &server.address()]);
    assert_eq!(read, format!("no setting has changed; read 3 users in {file}; log reopened\n"));
    server.exchange("set k 0 0 10\r\ncarl third\r\n", "STORED\r\n");
    std::fs::write(&path, "").expect("a file");
    let error = fail("tyrant", &["reload", "--server", &server.address()]);
    assert!(error.contains("must have 1 to 1024 users"), "{error}");
}

#[test]
fn a_login_that_is_refused_without_a_check_has_a_line_in_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users");
    add(&path, "ann", "secret");
    let server = Server::tyrant("*", &["--users", path.to_str().expect("a path")]);
    let mut guesses = 0..;
    // There are at most five lines a second.
    let line = wait_for("a line about a refusal", || {
        let guess = format!("ann guess-{}", guesses.next()?);
        let mut stream = server.connect();
        write!(stream, "set k 0 0 {}\r\n{guess}\r\n", guess.len()).expect("a login");
        stream.shutdown(std::net::Shutdown::Write).expect("the end of the login");
        std::io::read_to_string(stream).expect("a reply");
        let log = server.log();
        log.lines().find(|line| line.contains("login refused")).map(str::to_owned)
    });
    assert!(line.contains("\tWARN\tlogin refused: 127.0.0.1:"), "{line}");
    assert!(line.contains("over memcached's protocol: too many wrong passwords; "), "{line}");
}

#[test]
fn the_tools_log_in_by_option_file_and_environment() {
    let folder = tempfile::tempdir().expect("a folder");
    let (users, file) = (folder.path().join("users"), folder.path().join("credentials"));
    add_with(&users, "ann", "secret", "read:a:,write:a:");
    let server = Server::tyrant("+", &["--users", users.to_str().expect("a path")]);
    let address = server.address();
    let at = ["--server", &address];
    let run_with = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tyrant"));
        command.args(arguments).args(at).envs(variables.iter().copied());
        let output = command.stdin(std::process::Stdio::null()).output().expect("an end");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let in_environment = [("TYRANT_USER", "ann"), ("TYRANT_PASSWORD", "secret")];
    assert_eq!(run_with(&["put", "a:1", "v"], &in_environment).0, Some(0));
    let (code, value, _) = run_with(&["get", "a:1", "--user", "ann"], &in_environment[1..]);
    assert_eq!((code, value.as_str()), (Some(0), "v\n"));
    std::fs::write(&file, "ann:secret\n").expect("a file");
    let file = file.to_str().expect("a path");
    let named = ["get", "a:1", "--credentials", file];
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o644)).expect("its permissions");
    let (code, _, error) = run_with(&named, &[]);
    assert!(code == Some(1) && error.contains("chmod 600"), "{error}");
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).expect("its permissions");
    assert_eq!(run_with(&named, &[]).1, "v\n");
    // The option comes before the environment.
    assert_eq!(run_with(&named, &[("TYRANT_USER", "bob"), ("TYRANT_PASSWORD", "x")]).1, "v\n");
    assert_eq!(run_with(&["get", "a:1"], &[("TYRANT_CREDENTIALS", file)]).1, "v\n");
    for (arguments, variables, expected) in [
        (&["get", "a:1"][..], &[][..], "requires a user: name one with --user"),
        (&["get", "a:1", "--user", "ann"], &[], "with --credentials or TYRANT_PASSWORD"),
        (&["get", "b:1"], &in_environment, "lacks the right read"),
        (&["put", "b:1", "v"], &in_environment, "lacks the right write"),
        (&["vanish"], &in_environment, "lacks the right write"),
        (&["copy", "x"], &in_environment, "lacks the right admin"),
        (&["reload"], &in_environment, "lacks the right admin"),
        (&["slow"], &in_environment, "lacks the right admin"),
        (&["tail"], &in_environment, "refuses tail: the user lacks the right read"),
        (&["misc", "reload"], &in_environment, "lacks the right admin"),
        (
            &["get", "a:1"],
            &[("TYRANT_USER", "ann"), ("TYRANT_PASSWORD", "hidden")],
            "refused the login of ann",
        ),
    ] {
        let (code, output, error) = run_with(arguments, variables);
        assert_eq!(code, Some(1), "{arguments:?}: {output}{error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert!(!error.contains("secret") && !error.contains("hidden"), "{error}");
    }
    // A refusal is not an answer about the record.
    for (command, right) in [("get", "read"), ("out", "write")] {
        let mut tool = std::process::Command::new(crate::process::path("tcrmgr"));
        tool.args([command, "-port", &server.port.to_string(), "127.0.0.1", "b:1"]);
        let output = tool.envs(in_environment).output().expect("an end");
        let error = String::from_utf8_lossy(&output.stderr);
        let expected = format!("lacks the right {right}");
        assert!(!output.status.success() && error.contains(&expected), "{command}: {error}");
    }
    let log = server.log();
    assert!(!log.contains("secret") && !log.contains("hidden"), "{log}");
}

#[test]
fn replicas_and_backups_log_in_and_show_no_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).to_str().expect("a path").to_owned();
    add_with(&path("users"), "reader", "hidden", "read");
    add_with(&path("users"), "copier", "secret", "read,write,admin");
    for (name, line) in
        [("right", "copier:secret\n"), ("reader", "reader:hidden\n"), ("wrong", "copier:hidden\n")]
    {
        std::fs::write(path(name), line).expect("a file");
        let mode = PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path(name), mode).expect("its permissions");
    }
    let users = text("users");
    let options =
        ["--users", &users, "--server-id", "1", "--update-log", "ulog", "--copy-dir", "."];
    let master = Server::tyrant("casket.tch", &options);
    let address = master.address();
    let (right, reader) = (text("right"), text("reader"));
    let put = ["put", "k", "v", "--server", &address, "--credentials", &right];
    succeed("tyrant", &put);
    // A user who only reads is no replica.
    let start = |credentials: &str| {
        let options =
            ["--server-id", "2", "--master", &address, "--master-credentials", credentials];
        Server::tyrant("casket.tch", &options)
    };
    let refused = start(&reader);
    let lost = format!("replicating from {address}: ");
    crate::process::wait_for("the refusal", || refused.log().contains(&lost).then_some(()));
    refused.exchange("get k\r\n", "END\r\n");
    let wrong = start(&text("wrong"));
    crate::process::wait_for("a failed login", || {
        wrong.log().contains("login refused").then_some(())
    });
    // Further failures would make the logins of this address wait.
    let mut shown = vec![wrong.log(), wrong.command_line()];
    drop(wrong);
    let replica = start(&right);
    crate::process::wait_for("the copy", || {
        let get = ["get", "k", "--server", &replica.address()];
        (crate::process::run("tyrant", &get).stdout == b"v\n").then_some(())
    });
    let tail = ["tail", "--server", &address, "--credentials", &reader];
    let error = fail("tyrant", &tail);
    let lacking = "refuses tail: the user lacks the right admin: log in as a user who has it, or";
    assert!(error.contains(lacking) && error.contains("\"tyrant user rights\""), "{error}");
    let repository = text("backups");
    let create = ["backup", "create", &repository, "--server", &address, "--credentials"];
    let error = fail("tyrant", &[&create[..], &[&reader]].concat());
    assert!(error.contains("lacks the right admin") && !error.contains("--copy-dir"), "{error}");
    succeed("tyrant", &[&create[..], &[&right]].concat());
    for server in [&master, &replica, &refused] {
        shown.extend([server.log(), server.command_line()]);
    }
    for shown in shown {
        assert!(!shown.contains("secret") && !shown.contains("hidden"), "{shown}");
    }
    let config = text("tyrant.toml");
    let lines = format!("master-credentials = {right:?}\nusers = {users:?}\n");
    std::fs::write(&config, lines).expect("a file");
    let shown = succeed("tyrant", &["config", "--check", &config]);
    assert!(!shown.contains("secret"), "{shown}");
    std::fs::write(&right, "secret").expect("a file");
    let error = fail("tyrant", &["config", "--check", &config]);
    assert!(error.contains("name:password") && !error.contains(": secret"), "{error}");
}

#[test]
fn a_unix_socket_has_its_mode_and_a_server_started_as_root_becomes_its_user() {
    let output = run("tyrant", &["serve", "--unix", "s", "--socket-mode", "0778", "*"]);
    assert!(String::from_utf8(output.stderr).expect("UTF-8").contains("octal digits"));
    let error = misuse(&["serve", "--socket-mode", "0600", "*"]);
    assert!(error.contains("socket-mode: requires unix"), "{error}");
    let is_root = rustix::process::geteuid().is_root();
    let user = if is_root { "nobody-of-this-name" } else { "nobody" };
    let error = fail("tyrant", &["serve", "--run-as", user, "*"]);
    let reason = if is_root { "there is no user nobody-of-this-name" } else { "requires root" };
    assert!(error.contains(reason), "{error}");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).expect("its mode");
    let mut options = vec!["--unix", "socket", "--socket-mode", "0640", "--pid", "pid"];
    if is_root {
        options.extend(["--run-as", "nobody"]);
    }
    let server = Server::tyrant_in(folder, "casket.tch", &options);
    let path = |name: &str| server.folder.path().join(name);
    assert_eq!(mode(&path("socket")), 0o640);
    server.exchange("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    let process = std::fs::read_to_string(path("pid")).expect("a pid file");
    let threads = std::fs::read_dir(format!("/proc/{}/task", process.trim())).expect("threads");
    for thread in threads {
        let status = thread.expect("a thread").path().join("status");
        let status = std::fs::read_to_string(status).expect("its state");
        let ids =
            status.lines().filter(|line| line.starts_with("Uid:") || line.starts_with("Gid:"));
        for line in ids {
            assert!(!line.split_whitespace().any(|id| id == "0"), "{line}");
        }
    }
}

/// A client that subscribes sends no further request, whose login a reload could end.
#[test]
fn a_user_who_is_removed_gets_no_message_of_a_channel_any_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let users = folder.path().join("users");
    for name in ["ann", "bob"] {
        add(&users, name, "secret");
    }
    let users = users.to_str().expect("a path");
    let server = Server::tyrant("*", &["--users", users]);
    let log_in = |name: &str| {
        let mut client = server.connect();
        let login = format!("*3\r\n$4\r\nAUTH\r\n$3\r\n{name}\r\n$6\r\nsecret\r\n");
        exchange(&mut client, &login, "+OK\r\n");
        client
    };
    let (mut ann, mut bob) = (log_in("ann"), log_in("bob"));
    let subscribe = "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n";
    exchange(&mut ann, subscribe, "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    let publish = "*3\r\n$7\r\nPUBLISH\r\n$1\r\nc\r\n$1\r\nm\r\n";
    exchange(&mut bob, publish, ":1\r\n");
    exchange(&mut ann, "", "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
    succeed("tyrant", &["user", "remove", "ann", "--users", users, "--quiet"]);
    server.signal(Signal::HUP);
    wait_for("the reload", || server.log().contains("1 user").then_some(()));
    exchange(&mut bob, publish, ":1\r\n");
    assert_eq!(std::io::Read::read(&mut ann, &mut [0]).expect("an end"), 0);
    exchange(&mut bob, publish, ":0\r\n");
}
