//! Users: the file that `tyrant user` writes, and a server that requires them.

use crate::process::{Server, fail, feed, succeed};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Adds a user to a file, who may read and write.
pub(crate) fn add(file: &Path, name: &str, password: &str) {
    add_with(file, name, password, "read,write");
}

/// Adds a user with rights to a file.
pub(crate) fn add_with(file: &Path, name: &str, password: &str, rights: &str) {
    let file = file.to_str().expect("a path");
    let arguments = ["user", "add", name, "--users", file, "--rights", rights];
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
        ["user", "--users", file].iter().chain(arguments).map(ToString::to_string).collect()
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
        (&["add", "a:b"], "x", "a colon"),
        (&["add", "dora"], "", "the password is empty"),
        (&["add", "dora"], &"x".repeat(256), "longer than 255 bytes"),
        (&["add", "dora", "--rights", "reads"], "x", "none of read, write, admin"),
        (&["rights", "ann", "--rights", "admin:a"], "", "about the server as a whole"),
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
    succeed("tyrant", &["user", "convert", "--users", file]);
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
    log_in("bob", "other", "STORED\r\n");
    let log = server.log();
    assert!(!log.contains("secret") && !log.contains("other"), "{log}");
    let server = Server::tyrant("*", &["--users", file, "--open-tokyo-tyrant"]);
    assert_eq!(succeed("tyrant", &["count", "--server", &server.address()]), "0\n");
    // The same over the network.
    add(&path, "carl", "third");
    succeed("tyrant", &["reload", "--server", &server.address()]);
    server.exchange("set k 0 0 10\r\ncarl third\r\n", "STORED\r\n");
    std::fs::write(&path, "").expect("a file");
    let error = fail("tyrant", &["reload", "--server", &server.address()]);
    assert!(error.contains("must have 1 to 1024 users"), "{error}");
}
