//! Tables (`.tct`) on the command lines.

use crate::process::Server;
use crate::{tcrmgr, tyrant};
use rustix::process::Signal;

#[test]
fn rows_are_stored_indexed_searched_and_removed_from_the_command_line() {
    tyrant::converse(
        &Server::tyrant("casket.tct", &[]),
        &[
            ("put-row p1 name=ann age=30", Some("")),
            ("put-row p2 name=bob age=9 note=a=b", Some("")),
            ("put-row p3 name=cid age=-4", Some("")),
            ("put-row --keep p1 name=x", None),
            ("put-row --keep p4 age=x", Some("")),
            ("put-row --add p1 age=31 town=ulm", Some("")),
            ("get-row p1 missing p2", None),
            ("get-row p1 p2", {
                Some("p1\tname\tann\tage\t30\ttown\tulm\np2\tname\tbob\tage\t9\tnote\ta=b\n")
            }),
            ("get-row missing", None),
            ("get-row p1 --column age", Some("30\n")),
            ("get-row p1 p2 p3 -c note", Some("p2\ta=b\n")),
            ("get-row p1 -c note", None),
            ("search -w age NUMGE 9 --columns name,age --csv --order name", {
                Some("key,name,age\np1,ann,30\np2,bob,9\n")
            }),
            ("set-index age DEC", Some("")),
            ("setindex name lex", Some("")),
            ("set-index age +DEC", None),
            ("search", Some("p1\np2\np3\np4\n")),
            ("search -w age NUMGE 0 --order name:STRDESC", Some("p2\np1\np4\n")),
            ("search -w age NUMGE 0 -w name STRBW a", Some("p1\n")),
            ("search --where age NUMEQ -4", Some("p3\n")),
            ("search -w name ~STREQ ann", Some("p2\np3\np4\n")),
            ("search -w  STRBW p --order age:NUMDESC --max 2", Some("p1\np2\n")),
            ("search --order name --max 2 --skip 1", Some("p2\np3\n")),
            ("search -w age > 5 --count", Some("2\n")),
            ("search -w age NUMBT 5,50 --order age:NUMASC --columns age,nothing", {
                Some("p2\tage\t9\np1\tage\t30\n")
            }),
            ("search -w age = 9 --rows", Some("p2\tname\tbob\tage\t9\tnote\ta=b\n")),
            ("search -w name STREQ bob --explain", {
                Some(
                    "using an index: \"name\" asc (STREQ)\nresult set size: 1\n\
                    leaving the natural order\n",
                )
            }),
            ("search -w name STREQ ann --union -w name STREQ bob", Some("p1\np2\n")),
            (
                "search -w name STREQ ann --union -w name STREQ bob --union -w age = -4 --count",
                Some("3\n"),
            ),
            ("search -w name STREQ cid --union -w age = 9 --order age:NUMDESC", Some("p2\np3\n")),
            ("search -w age NUMGE 0 --intersection -w name STRBW b -w age = 9", Some("p2\n")),
            ("search -w age NUMGE 0 --difference -w name STRBW b --order name", Some("p1\np4\n")),
            ("search --difference -w name STRBW b --max 1 --skip 1", Some("p3\n")),
            ("search -w age < 10 --out", Some("3\n")),
            ("search", Some("p1\n")),
            ("uid", Some("1\n")),
            ("put-row  name=dan", Some("2\n")),
            ("get-row 2", Some("2\tname\tdan\n")),
            ("genuid", Some("3\n")),
            ("range", None),
            ("put --duplicate p1 x", None),
        ],
    );
}

#[test]
fn rows_are_stored_from_csv_and_printed_as_csv() {
    let server = Server::tyrant("casket.tct", &[]);
    let file = server.folder.path().join("rows.csv");
    let csv = "key,name,age\np1,\"Ann, \"\"A\"\"\",30\np2,\"two\nlines\",\n";
    std::fs::write(&file, csv).expect("a file");
    let file = file.to_str().expect("a path");
    tyrant::converse(
        &server,
        &[
            (&format!("put-rows {file}"), Some("2 rows\n")),
            ("get-row p1 -c name", Some("Ann, \"A\"\n")),
            ("get-row p2", Some("p2\tname\ttwo\\nlines\n")),
            ("search --csv", Some(csv)),
            (&format!("put-rows {file} --key name"), Some("2 rows\n")),
            ("get-row two\nlines", Some("two\\nlines\tkey\tp2\n")),
            (&format!("put-rows {file} --new-keys"), Some("2 rows\n")),
            ("get-row 2", Some("2\tkey\tp2\tname\ttwo\\nlines\n")),
            (&format!("put-rows {file} --key nothing"), None),
            ("put-rows /nonexistent.csv", None),
            ("count", Some("6\n")),
        ],
    );
}

#[test]
fn table_commands_fail_with_a_reason_on_other_databases() {
    for (name, kind) in [("*", "on-memory hash"), ("casket.tch", "hash"), ("casket.tcb", "B+ tree")]
    {
        let server = Server::tyrant(name, &[]);
        tyrant::converse(&server, &[("put a 1", Some(""))]);
        for line in
            ["search", "set-index a DEC", "uid", "get-row a", "put-row a x=1 y=2", "put-row b x="]
        {
            let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
            let address = server.address();
            let mut arguments = vec![command, "--server", &address];
            arguments.extend(rest.split_terminator(' '));
            let error = crate::process::fail("tyrant", &arguments);
            assert!(error.contains(&format!("{command} needs a table (.tct)")), "{error}");
            assert!(error.contains(&format!("{address} has a")), "{error}");
            assert!(error.contains(&format!(" {kind} database: use get, put, list")), "{error}");
        }
        tyrant::converse(&server, &[("list --values", Some("a\t1\n"))]);
    }
}

#[test]
fn a_table_refuses_a_value_without_columns_with_a_reason() {
    let server = Server::tyrant("casket.tct", &[]);
    tyrant::converse(&server, &[("put-row a x=1", Some(""))]);
    let address = server.address();
    for way in ["--keep", "--append", "--hex"] {
        let error =
            crate::process::fail("tyrant", &["put", "--server", &address, way, "aa", "1234"]);
        assert!(error.contains("use put-row KEY NAME=VALUE"), "{error}");
    }
    tyrant::converse(&server, &[("search --rows", Some("a\tx\t1\n")), ("put a ", Some(""))]);
    tyrant::converse(&server, &[("get-row a", Some("a\n"))]);
}

#[test]
fn tcrmgr_works_on_a_table() {
    let server = Server::ttserver("casket.tct#idx=age:dec#bnum=100", &[]);
    tcrmgr::converse(
        &server,
        &[
            ("put -sep , localhost p1 name,ann,age,30", ""),
            ("get -sep , localhost p1", "name,ann,age,30\n"),
            ("put -dc -sep , localhost p1 age,31,town,ulm", ""),
            ("get -sep , localhost p1", "name,ann,age,30,town,ulm\n"),
            ("put -dai localhost p1 5", "5\n"),
            ("put -dad localhost p1 0.5", "5.500000\n"),
            ("misc localhost get p1", "name\nann\nage\n30\ntown\nulm\n_num\n5.5\n"),
            ("misc localhost put p2 name bob age 9", ""),
            ("misc -sep , localhost search addcond,age,NUMGE,10", "p1\n"),
            ("misc -sep , localhost search addcond,age,NUMGE,0 setorder,age,NUMASC", "p2\np1\n"),
            ("misc -sep , localhost search addcond,age,=,9 get,,name", ",p2,name,bob\n"),
            ("misc -sep , localhost search addcond,age,=,9 count hint", {
                "1\n,,[[HINT]]\nusing an index: \"age\" asc (NUMEQ)\nresult set size: 1\n\
                    leaving the natural order\n\n"
            }),
            ("misc -sep , localhost metasearch addcond,age,=,9 next addcond,age,=,30", "p2\np1\n"),
            ("misc localhost setindex name lex", ""),
            ("misc localhost genuid", "1\n"),
            ("list -fm p localhost", "p1\np2\n"),
            ("out localhost p2", ""),
        ],
    );
    tcrmgr::refuse(
        &server,
        &[
            ("misc localhost setindex age +dec", "9999: "),
            ("misc localhost range a", "9999: "),
            ("get localhost p2", "7: "),
        ],
    );
    let stat = crate::process::succeed("tyrant", &["stat", "--server", &server.address()]);
    assert!(stat.contains("\ntype\ttable\n"), "{stat}");
}

#[test]
fn rows_and_their_indices_are_intact_after_a_kill() {
    let mut server = Server::tyrant("casket.tct", &[]);
    tyrant::converse(
        &server,
        &[
            ("set-index age DEC", Some("")),
            ("put-row p1 age=30", Some("")),
            ("put-row p2 age=9", Some("")),
            ("out p1", Some("")),
        ],
    );
    server.end(Signal::KILL);
    server.restart();
    tyrant::converse(
        &server,
        &[
            ("search -w age NUMGE 0", Some("p2\n")),
            ("search -w age NUMGE 0 --explain", {
                Some(
                    "using an index: \"age\" asc (NUMGT/NUMGE)\nresult set size: 1\n\
                    leaving the natural order\n",
                )
            }),
            ("count", Some("1\n")),
        ],
    );
}
