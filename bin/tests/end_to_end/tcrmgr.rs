//! `tcrmgr`: its output and exit codes.

use crate::process::{Server, fail, free_port, run, succeed};

/// Returns the arguments of a sub-command with the server's port after its name, because options
/// come first.
fn at(server: &Server, line: &str) -> Vec<String> {
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    let port = server.port.to_string();
    let mut arguments: Vec<String> = [name, "-port", &port].map(Into::into).into();
    arguments.extend(rest.split(' ').filter(|word| !word.is_empty()).map(Into::into));
    arguments
}

/// Checks the output of each line.
pub(crate) fn converse(server: &Server, lines: &[(&str, &str)]) {
    for (line, expected) in lines {
        assert_eq!(succeed("tcrmgr", &at(server, line)), *expected, "{line}");
    }
}

/// Checks that each line fails with its code.
pub(crate) fn refuse(server: &Server, lines: &[(&str, &str)]) {
    for (line, code) in lines {
        let error = fail("tcrmgr", &at(server, line));
        assert!(error.contains(&format!("tcrmgr: error: {code}")), "{line}: {error}");
    }
}

#[test]
fn records_are_stored_with_every_option_of_put() {
    let server = Server::tyrant("*", &[]);
    converse(
        &server,
        &[
            ("put localhost one first", ""),
            ("get localhost one", "first\n"),
            ("get -pz localhost one", "first"),
            ("get -px localhost one", "66 69 72 73 74\n"),
            ("put -dc localhost one -x", ""),
            ("get localhost one", "first-x\n"),
            ("put -ds 4 localhost one yz", ""),
            ("get localhost one", "-xyz\n"),
            ("put -dk localhost two 2", ""),
            ("put -dai localhost number 5", "5\n"),
            ("put -dai localhost number -7", "-2\n"),
            ("put -dad localhost double 1.5", "1.500000\n"),
            ("put -dad localhost double -3.25", "-1.750000\n"),
            ("put -sx localhost 61 00ff", ""),
            ("get -px localhost a", "00 FF\n"),
            ("put -sep , localhost row x,1,y", ""),
            ("get -px localhost row", "78 00 31 00 79\n"),
            ("get -sep \\t localhost row", "x\t1\ty\n"),
        ],
    );
    refuse(
        &server,
        &[
            ("put -dk localhost two x", "6: existing record"),
            ("put -dai localhost two 1", "6: "),
            ("put -dai localhost number x", "9999: "),
            ("get localhost missing", "7: no record found"),
            ("out localhost missing", "7: no record found"),
        ],
    );
    converse(&server, &[("out localhost two", "")]);
    refuse(&server, &[("get localhost two", "7: no record found")]);
}

#[test]
fn many_records_are_printed_one_per_line() {
    let server = Server::tyrant("*", &[]);
    converse(
        &server,
        &[
            ("put localhost b 2", ""),
            ("put localhost a 1", ""),
            ("mget localhost a missing b", "a\t1\nb\t2\n"),
            ("mget localhost", ""),
            ("list -fm a localhost", "a\n"),
            ("list -fm a -pv localhost", "a\t1\n"),
            ("list -fm b -px -pv localhost", "62\t32\n"),
            ("list -m 0 localhost", ""),
            ("misc localhost getlist b missing a", "b\n2\na\n1\n"),
            ("misc -mnu localhost get a", "1\n"),
        ],
    );
    let listed = succeed("tcrmgr", &at(&server, "list -pv -m -1 localhost"));
    let mut lines: Vec<&str> = listed.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a\t1", "b\t2"]);
}

#[test]
fn the_database_is_inspected_and_maintained() {
    let server = Server::tyrant("casket.tch", &["--copy-dir", "."]);
    converse(&server, &[("put localhost a 1", "")]);
    let inform = succeed("tcrmgr", &at(&server, "inform localhost"));
    let size = inform.strip_prefix("record number: 1\nfile size: ").unwrap();
    size.strip_suffix('\n').unwrap().parse::<u64>().unwrap();
    let stat = succeed("tcrmgr", &at(&server, "inform -st localhost"));
    assert!(stat.starts_with("version\t") && stat.contains("\ntype\thash\n"), "{stat}");
    converse(
        &server,
        &[
            ("sync localhost", ""),
            ("optimize localhost", ""),
            ("optimize localhost bnum=100", ""),
            ("copy localhost copy.tch", ""),
            ("vanish localhost", ""),
            ("mget localhost a", ""),
        ],
    );
    assert!(server.folder.path().join("copy.tch").is_dir());
    refuse(
        &server,
        &[
            ("misc localhost nonsense", "9999: "),
            ("ext localhost nonsense k v", "9999: "),
            ("restore localhost /nonexistent", "9999: "),
            ("setmst localhost 127.0.0.1:1979", "9999: "),
        ],
    );
}

#[test]
fn a_file_of_records_is_imported() {
    let server = Server::tyrant("*", &[]);
    let file = server.folder.path().join("records.tsv");
    let records: String = (0..250).map(|number| format!("Key-{number}\tv\t{number}\n")).collect();
    std::fs::write(&file, records).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(
        succeed("tcrmgr", &at(&server, &format!("importtsv -sc localhost {file}"))),
        ".. (00000250)\n"
    );
    converse(&server, &[("get localhost key-7", "v\t7\n")]);

    std::fs::write(file, "no value\n").unwrap();
    refuse(&server, &[(&format!("importtsv localhost {file}"), "9999: line 1 has no TAB")]);
}

#[test]
fn an_import_without_responses_stores_everything() {
    let server = Server::tyrant("*", &[]);
    let file = server.folder.path().join("records.tsv");
    let records: String = (0..1000).map(|number| format!("{number}\tx\n")).collect();
    std::fs::write(&file, records).unwrap();
    let line = format!("importtsv -nr localhost {}", file.display());
    succeed("tcrmgr", &at(&server, &line));
    let inform = succeed("tcrmgr", &at(&server, "inform localhost"));
    assert!(inform.starts_with("record number: 1000\n"), "{inform}");
}

#[test]
fn a_url_of_the_server_is_fetched() {
    let server = Server::tyrant("*", &[]);
    converse(&server, &[("put localhost k value", "")]);
    let url = format!("http://127.0.0.1:{}/", server.port);
    assert_eq!(succeed("tcrmgr", &["http", &format!("{url}k")]), "value");
    let with_head = succeed("tcrmgr", &["http", "-ih", "-ah", "X-A", "b", &format!("{url}k")]);
    assert!(with_head.starts_with("HTTP/1.1 200 OK\r\n"), "{with_head}");
    assert!(with_head.ends_with("\r\n\r\nvalue"), "{with_head}");
    fail("tcrmgr", &["http", &format!("{url}missing")]);
}

#[test]
fn an_unreachable_server_has_tokyo_tyrants_error_code() {
    let port = free_port().to_string();
    let error = fail("tcrmgr", &["get", "-port", &port, "127.0.0.1", "a"]);
    assert!(error.contains("tcrmgr: error: 3: connection refused"), "{error}");
}

#[test]
fn a_wrong_command_line_shows_the_reason_and_a_short_usage() {
    for (line, reason) in [
        ("", "usage: "),
        ("nonsense", "there is no sub-command nonsense\n"),
        ("get", "get: host is missing\n"),
        ("get localhost", "get: key is missing\n"),
        ("get -nonsense localhost a", "get: unknown option -nonsense\n"),
        ("list -pv", "list: host is missing\n"),
        ("get -port", "get: a value of -port is missing\n"),
        ("version x", "version: x is too much\n"),
    ] {
        let arguments: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let output = run("tcrmgr", &arguments);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(output.stdout.is_empty(), "{line}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(reason) && error.contains("--help\""), "{line}: {error}");
        assert!(error.lines().count() <= 3, "{line}: {error}");
    }
    let help = succeed("tcrmgr", &["--help"]);
    assert!(help.starts_with("usage:\n") && help.contains(" list [-port num]"), "{help}");
}

#[test]
fn the_version_has_tokyo_tyrants_format() {
    let version = succeed("tcrmgr", &["version"]);
    assert!(version.starts_with("Tyrant version ") && version.contains(" (324:0.91) for "));
}
