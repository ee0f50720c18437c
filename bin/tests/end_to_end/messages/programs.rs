//! Tokyo Tyrant's programs, whose messages begin with its codes.

use super::Table;
use crate::process::{Server, free_port};
use crate::tls::certificates::Authority;
use crate::tls::serve;
use crate::users::add;
use std::fs::write;

#[test]
fn tcrmgr() {
    let server = Server::tyrant("casket.tch", &["--mask", "vanish"]);
    write(server.folder.path().join("bad.tsv"), "ab\n").expect("a file");
    let (port, unused) = (server.port.to_string(), free_port().to_string());
    Table::new(server.folder.path(), &[("PORT", &port), ("UNUSED", &unused)]).check(&[
        (
            "tcrmgr get -port UNUSED 127.0.0.1 a",
            1,
            &["error: 3: connection refused; check the host and -port"],
        ),
        ("tcrmgr inform nowhere.invalid", 1, &["error: 2: host not found: ", "; check the name"]),
        (
            "tcrmgr get 127.0.0.1:1978 a",
            1,
            &["error: 2: host not found: ", "give a port with -port"],
        ),
        ("tcrmgr get -port PORT 127.0.0.1 a", 1, &["error: 7: no record found"]),
        ("tcrmgr put -port abc 127.0.0.1 a b", 1, &["\"abc\" is not a number"]),
        ("tcrmgr put -dai -port PORT 127.0.0.1 a b", 1, &["\"b\" is not a number"]),
        (
            "tcrmgr ext -port PORT 127.0.0.1 foo",
            1,
            &["error: 9999: miscellaneous error: ", "no script: start it with --script FILE"],
        ),
        (
            "tcrmgr misc -port PORT 127.0.0.1 nonsense",
            1,
            &["error: 9999: miscellaneous error: ", "there is no function nonsense"],
        ),
        (
            "tcrmgr vanish -port PORT 127.0.0.1",
            1,
            &["error: 9999: miscellaneous error: the server masks vanish"],
        ),
        (
            "tcrmgr copy -port PORT 127.0.0.1 x",
            1,
            &["error: 9999: miscellaneous error: copy to x: clients may", "--copy-dir"],
        ),
        (
            "tcrmgr importtsv -port PORT 127.0.0.1 no.tsv",
            1,
            &["cannot open no.tsv: No such file", "; check the path"],
        ),
        ("tcrmgr importtsv -port PORT 127.0.0.1 bad.tsv", 1, &["line 1 has no TAB"]),
        (
            "tcrmgr http http://127.0.0.1:UNUSED/",
            1,
            &[
                "cannot connect to 127.0.0.1:UNUSED: Connection refused",
                "; check the port, and that",
            ],
        ),
        (
            "tcrmgr repl -port PORT 127.0.0.1",
            1,
            &["error: 5: recv error: ", "no update log: start it with --update-log"],
        ),
        (
            "tcrmgr http https://127.0.0.1/",
            1,
            &["tcrmgr http has no TLS for https://127.0.0.1/", "curl"],
        ),
        ("tcrmgr http ftp://127.0.0.1/", 1, &["ftp://127.0.0.1/ is not http://..."]),
    ]);
}

#[test]
fn tcrmgr_on_a_server_that_requires_a_login_or_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    add(&folder.path().join("users"), "ann", "secret");
    write(folder.path().join("a.tsv"), "a\tb\n").expect("a file");
    let users = folder.path().join("users").display().to_string();
    let authority = Authority::new();
    let named = Server::tyrant("*", &["--users", &users]);
    let encrypted = serve("*", &authority.server(&["127.0.0.1"]), &[]);
    let (named, encrypted) = (named.port.to_string(), encrypted.port.to_string());
    const USER: &[&str] =
        &["127.0.0.1:NAMED requires a user", "tcrmgr takes variables: TYRANT_USER"];
    const TLS: &[&str] = &["127.0.0.1:ENCRYPTED is a server that expects TLS", "TYRANT_TLS_CA"];
    Table::new(folder.path(), &[("NAMED", &named), ("ENCRYPTED", &encrypted)]).check(&[
        ("tcrmgr get -port NAMED 127.0.0.1 a", 1, USER),
        ("tcrmgr put -port NAMED 127.0.0.1 a b", 1, USER),
        ("tcrmgr put -dk -port NAMED 127.0.0.1 a b", 1, USER),
        ("tcrmgr out -port NAMED 127.0.0.1 a", 1, USER),
        ("tcrmgr list -port NAMED 127.0.0.1", 1, USER),
        ("tcrmgr inform -port NAMED 127.0.0.1", 1, USER),
        ("tcrmgr misc -port NAMED 127.0.0.1 get a", 1, USER),
        ("tcrmgr importtsv -port NAMED -nr 127.0.0.1 a.tsv", 1, USER),
        ("tcrmgr repl -port NAMED 127.0.0.1", 1, USER),
        ("tcrmgr http http://127.0.0.1:NAMED/a", 1, &["status 401: it requires a user", "-ah"]),
        ("tcrmgr get -port ENCRYPTED 127.0.0.1 a", 1, TLS),
        ("tcrmgr put -port ENCRYPTED 127.0.0.1 a b", 1, TLS),
        ("tcrmgr inform -port ENCRYPTED 127.0.0.1", 1, TLS),
        ("tcrmgr repl -port ENCRYPTED 127.0.0.1", 1, TLS),
    ]);
}

#[test]
fn ttulmgr_and_ttserver() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path().join("file"), "x").expect("a file");
    Table::new(folder.path(), &[]).check(&[
        ("ttulmgr export no", 1, &["ttulmgr: cannot read no: No such file", "; check the path"]),
        ("ttulmgr export file", 1, &["cannot read file: Not a directory", "; check the path"]),
        ("ttulmgr import file", 1, &["file", "; "]),
        (
            "ttserver -port 65535 no/casket.tch",
            1,
            &["ttserver: cannot open the database no/casket.tch", "there is no folder no; make it"],
        ),
        (
            "ttserver -port 65535 -pid no/pid *",
            1,
            &["cannot write the pid file no/pid", "; check the path"],
        ),
    ]);
}
