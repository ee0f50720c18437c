//! Access: files and folders that this user may not read, or write.

use super::Table;
use crate::process::{feed_in, free_port};
use std::fs::{Permissions, create_dir, set_permissions, write};
use std::os::unix::fs::PermissionsExt;

const DENIED: &str = "Permission denied (os error 13); give this user access to it";

#[test]
fn files_and_folders_without_access() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path().join("in.tsv"), "a\tb\n").expect("a file");
    let into = ["import", "in.tsv", "--into", "closed.tch"];
    assert!(feed_in(folder.path(), "tyrant", &into, "").status.success());
    let into = ["import", "in.tsv", "--into", "within.tch"];
    assert!(feed_in(folder.path(), "tyrant", &into, "").status.success());
    write(folder.path().join("within.toml"), "database = 'within.tch'\n").expect("a file");
    write(folder.path().join("closed"), "").expect("a file");
    write(folder.path().join("log.toml"), "log = 'unwritable/l'\n").expect("a file");
    for name in ["empty", "unwritable"] {
        create_dir(folder.path().join(name)).expect("a folder");
    }
    let modes = [
        ("closed", 0),
        ("closed.tch", 0),
        ("within.tch/manifest", 0),
        ("empty", 0),
        ("unwritable", 0o555),
    ];
    for (name, mode) in modes {
        let path = folder.path().join(name);
        set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
    }
    let port = free_port().to_string();
    let names = [("DENIED", DENIED), ("PORT", &port)];
    let table = Table { is_bound: true, ..Table::new(folder.path(), &names) };
    table.check(&[
        ("tyrant check closed.tch", 1, &["cannot check closed.tch", "DENIED"]),
        ("tyrant salvage closed.tch --into new.tch", 1, &["cannot salvage closed.tch", "DENIED"]),
        ("tyrant salvage empty/a.tch --into new.tch", 1, &["cannot open empty/a.tch: DENIED"]),
        ("tyrant import closed --into new.tch", 1, &["cannot open closed: DENIED"]),
        ("tyrant import in.tsv --into closed.tch", 1, &["cannot open closed.tch", "DENIED"]),
        ("tyrant import in.tsv --into unwritable/a.tch", 1, &["unwritable/a.tch", "DENIED"]),
        ("tyrant export closed.tch lines", 1, &["closed.tch", "DENIED"]),
        ("tyrant restore empty --into new.tch", 1, &["cannot open empty/repository: DENIED"]),
        ("tyrant backup list empty", 1, &["cannot open empty/repository: DENIED"]),
        (
            "tyrant config --check log.toml",
            1,
            &["log.toml:1: log: cannot open the log unwritable/l: DENIED"],
        ),
        (
            "tyrant config --check within.toml",
            1,
            &["within.toml:1: database: cannot open the database within.tch: ", "manifest: DENIED"],
        ),
        ("tyrant config --check closed", 1, &["cannot read the configuration closed: DENIED"]),
        ("tyrant get a --credentials closed", 1, &["the credentials in closed: DENIED"]),
        ("tyrant user add ann --users unwritable/u", 1, &["the users to unwritable/u: DENIED"]),
        ("tyrant serve closed.tch --port 0", 1, &["cannot open the database closed.tch", "DENIED"]),
        ("tyrant serve unwritable/a.tch --port 0", 1, &["unwritable/a.tch", "DENIED"]),
        ("tyrant serve * --port 0 --config closed", 1, &["the configuration closed: DENIED"]),
        ("tyrant serve * --port 0 --users closed", 1, &["the users in closed: DENIED"]),
        ("tyrant serve * --port 0 --log unwritable/l", 1, &["the log unwritable/l", "DENIED"]),
        ("tyrant serve * --port 0 --pid unwritable/p", 1, &["pid file unwritable/p: DENIED"]),
        ("tyrant serve * --port 0 --unix unwritable/s", 1, &["listen on unwritable/s: DENIED"]),
        (
            "tyrant serve * --port 0 --tls-cert closed --tls-key closed",
            1,
            &["tls-cert: cannot read closed: DENIED"],
        ),
        (
            "tyrant serve * --port 0 --update-log unwritable/u --server-id 1",
            1,
            &["update-log: cannot open the update log unwritable/u: DENIED"],
        ),
        (
            "tyrant serve * --port 0 --script closed",
            1,
            &["the script closed: Permission denied", "check the path, and that this user may"],
        ),
        ("ttserver -port PORT unwritable/a.tch", 1, &["unwritable/a.tch", "DENIED"]),
        ("ttulmgr export empty", 1, &["cannot read empty", "DENIED"]),
    ]);
    assert!(!folder.path().join("new.tch").exists(), "a command that fails leaves no database");
    for name in ["closed.tch", "empty"] {
        set_permissions(folder.path().join(name), Permissions::from_mode(0o755)).expect("a mode");
    }
}
