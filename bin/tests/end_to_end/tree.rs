//! Trees (`.tcb`) on the command lines.

use crate::process::Server;
use crate::{tcrmgr, tyrant};
use rustix::process::Signal;

#[test]
fn duplicates_and_ranges_work_on_the_command_line() {
    tyrant::converse(
        &Server::tyrant("casket.tcb", &[]),
        &[
            ("put b 2", Some("")),
            ("put a 1", Some("")),
            ("put --duplicate a 3", Some("")),
            ("put --duplicate-front a 0", Some("")),
            ("get a", Some("0\n")),
            ("get --all a", Some("0\n1\n3\n")),
            ("get --all --hex 61", Some("30\n31\n33\n")),
            ("get --all c", None),
            ("count", Some("4\n")),
            ("list --prefix a", Some("a\n")),
            ("range", Some("a\t0\na\t1\na\t3\nb\t2\n")),
            ("range b", Some("b\t2\n")),
            ("range a b --max 2", Some("a\t0\na\t1\n")),
            ("range a b --max 0", Some("")),
            ("range --hex 62", Some("62\t32\n")),
            ("find ^B", Some("")),
            ("find *^B", Some("b\t2\n")),
            ("find . --max 1", Some("a\t0\n")),
            ("find (", None),
            ("out a", Some("")),
            ("get --all a", Some("1\n3\n")),
            ("out --all a nothing", Some("")),
            ("range", Some("b\t2\n")),
        ],
    );
}

#[test]
fn tree_commands_fail_on_other_databases() {
    tyrant::converse(
        &Server::tyrant("*", &[]),
        &[("put --duplicate a 1", None), ("range", None), ("get --all a", None)],
    );
}

#[test]
fn tcrmgr_works_on_a_tree() {
    let server = Server::ttserver("casket.tcb#bnum=100#lmemb=64", &[]);
    tcrmgr::converse(
        &server,
        &[
            ("put localhost b 2", ""),
            ("put localhost a 1", ""),
            ("misc localhost putdup a 3", ""),
            ("misc localhost putdupback a 0", ""),
            ("misc localhost get a", "0\n1\n3\n"),
            ("misc localhost range a 2 b", "a\n0\na\n1\n"),
            ("misc localhost iterinit b", ""),
            ("misc localhost iternext", "b\n2\n"),
            ("list -fm a -pv localhost", "a\t0\n"),
            // A key is listed once per value, and each listing is looked up.
            ("list localhost", "a\na\na\nb\n"),
            ("optimize localhost lmemb=128#opts=d", ""),
            ("misc localhost outlist a", ""),
            ("list -pv localhost", "b\t2\n"),
        ],
    );
    tcrmgr::refuse(
        &server,
        &[("misc localhost iterinit zzz", "9999: "), ("misc localhost get a", "9999: ")],
    );
    let stat = crate::process::succeed("tyrant", &["stat", "--server", &server.address()]);
    assert!(stat.contains("\ntype\tB+ tree\n"), "{stat}");
}

#[test]
fn a_tree_is_intact_after_a_kill() {
    let mut server = Server::tyrant("casket.tcb", &[]);
    tyrant::converse(
        &server,
        &[("put a 1", Some("")), ("put --duplicate a 2", Some("")), ("put b 3", Some(""))],
    );
    server.end(Signal::KILL);
    server.restart();
    tyrant::converse(&server, &[("range", Some("a\t1\na\t2\nb\t3\n"))]);
}
