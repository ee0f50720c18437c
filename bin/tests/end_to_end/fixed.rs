//! Fixed-length databases and on-memory trees on the command lines.

use crate::process::{Server, succeed};
use crate::tcrmgr::{converse, refuse};

#[test]
fn records_of_a_fixed_length_database_are_addressed_by_id() {
    let server = Server::tyrant("casket.tcf#width=8#limsiz=8k", &[]);
    converse(
        &server,
        &[
            ("put localhost 5 five", ""),
            ("put localhost next six", ""),
            ("put localhost prev four", ""),
            ("put localhost a1x0 longer-than-that", ""),
            ("get localhost max", "longer-t\n"),
            ("put -dk localhost next eleven", ""),
            ("put -dc localhost min 4", ""),
            ("put -dai localhost 20 7", "7\n"),
            ("list -pv -m 2 localhost", "4\tfour4\n5\tfive\n"),
            ("list -fm [5,10] localhost", "5\n6\n10\n"),
            ("list -fm (min,6] localhost", "5\n6\n"),
            ("list -fm 5 localhost", ""),
            ("mget localhost max 5 7", "max\t\u{7}\0\0\0\n5\tfive\n"),
            ("misc localhost range 10 1", "10\nlonger-t\n"),
            ("out localhost max", ""),
            ("out localhost min", ""),
            ("optimize localhost width=4", ""),
            ("get localhost 10", "long\n"),
        ],
    );
    refuse(
        &server,
        &[
            ("put localhost 0 x", "9999: "),
            ("put localhost 2000 x", "9999: "),
            ("put -dk localhost max x", "6: existing record"),
            ("get localhost next", "7: no record found"),
            ("misc localhost defrag", "9999: "),
        ],
    );
    let status =
        succeed("tcrmgr", &["inform", "-port", &server.port.to_string(), "-st", "localhost"]);
    assert!(status.contains("\ntype\tfixed-length\n"), "{status}");
    let at = ["--server", &server.address()].map(str::to_owned);
    let tyrant = |line: &str| {
        let words = line.split(' ').map(str::to_owned);
        let (name, rest) = (words.clone().take(1), words.skip(1));
        let arguments: Vec<String> = name.chain(at.clone()).chain(rest).collect();
        succeed("tyrant", &arguments)
    };
    assert_eq!(tyrant("put next 12"), "");
    assert_eq!(tyrant("get max"), "12\n");
    assert_eq!(tyrant("optimize width=2"), "");
    assert_eq!(tyrant("get 10"), "lo\n");
}

#[test]
fn the_keys_of_an_on_memory_tree_are_in_order() {
    let server = Server::tyrant("+", &[]);
    converse(
        &server,
        &[
            ("put localhost b 2", ""),
            ("put localhost c 3", ""),
            ("put localhost a 1", ""),
            ("list -pv localhost", "a\t1\nb\t2\nc\t3\n"),
            ("misc localhost range b", "b\n2\nc\n3\n"),
            ("misc localhost range a 0 b", "a\n1\n"),
            ("misc localhost iterinit bb", ""),
            ("misc localhost iternext", "c\n3\n"),
            ("optimize localhost capnum=2", ""),
            ("list -m 5 localhost", "b\nc\n"),
        ],
    );
}
