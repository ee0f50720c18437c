//! Tables through the server, beyond the exchanges that were captured from Tokyo Tyrant.

mod support;

use support::{MISC_FAILURE, list, memory, misc, named, start, table};

const DONE: &[u8] = b"\0\0\0\0\0";

#[test]
fn values_with_nul_bytes_stay_separate() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    let mut client = server.connect();
    for name in ["put", "putkeep", "putcat"] {
        client.exchange(misc("vanish", &[]), DONE);
        client.exchange(misc(name, &["k", "a", "1\x002", "b", "3"]), DONE);
        client.exchange(misc("get", &["k"]), list(&["a", "1\x002", "b", "3"]));
        // A column with an empty name cannot be used.
        client.exchange(misc(name, &["l", "", "1\x002"]), MISC_FAILURE);
    }
    client.exchange(misc("putkeep", &["k", "a", "\0"]), MISC_FAILURE);
    client.exchange(misc("error", &[]), list(&["21: existing record"]));
}

#[test]
fn an_empty_key_becomes_the_next_id_in_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    let mut client = server.connect();
    client.exchange(misc("setindex", &["a", "LEX"]), DONE);
    for name in ["put", "putkeep", "putcat"] {
        client.exchange(misc(name, &["", "a", name]), DONE);
        client.exchange(misc(name, &["", "a", "\0"]), DONE);
    }
    for request in [&b"\xc8\x10\0\0\0\0\0\0\0\x03a\0b"[..], b"\xc8\x11\0\0\0\0\0\0\0\x03a\0b"] {
        client.exchange(request, b"\0");
    }
    client.exchange(b"\xc8\x60\0\0\0\0\0\0\0\x05", b"\0\0\0\0\x05");
    client.exchange(misc("genuid", &[]), list(&["10"]));
    client.exchange(misc("getlist", &["3", "7", "9"]), {
        list(&["3", "a\0putkeep", "7", "a\0b", "9", "_num\x005"])
    });
    client.exchange(b"\xc8\x80", b"\0\0\0\0\0\0\0\0\x09");
}

#[test]
fn memcached_stores_and_reads_columns() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    let mut client = server.connect();
    client.exchange("set k 0 0 7\r\na\0b\0c\0d\r\n", "STORED\r\n");
    client.exchange(misc("get", &["k"]), list(&["a", "b", "c", "d"]));
    client.exchange("get k\r\n", "VALUE k 0 7\r\na\0b\0c\0d\r\nEND\r\n");
    client.exchange("add k 0 0 3\r\na\0b\r\n", "NOT_STORED\r\n");
    client.exchange("delete k\r\nget k\r\n", "DELETED\r\nEND\r\n");
}

#[test]
fn a_value_without_columns_is_refused_by_every_protocol_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    let mut client = server.connect();
    let refused = "CLIENT_ERROR column \"hello\" has no value: a row is given as names and values in \
        turn\r\n";
    client.exchange("set k 0 0 3\r\na\0b\r\n", "STORED\r\n");
    for verb in ["set", "replace"] {
        client.exchange(format!("{verb} k 0 0 5\r\nhello\r\n"), refused);
    }
    client.exchange("add l 0 0 5\r\nhello\r\n", refused);
    client.exchange("set k 0 0 9\r\na\0c\0hello\r\n", refused);
    client.exchange("append k 0 0 6\r\n\0hello\r\n", refused);
    client.exchange(
        "prepend k 0 0 6\r\nhello\0\r\n",
        "CLIENT_ERROR column \"b\" has no value: a row \
        is given as names and values in turn\r\n",
    );
    // The sum would be taken for the name of a column.
    client.exchange("ms k 5\r\nhello\r\n", refused);
    let body = "column \"hello\" has no value: a row is given as names and values in turn\n";
    for headers in ["", "X-TT-PDMODE: 1\r\n", "X-TT-PDMODE: 2\r\n", "If-None-Match: *\r\n"] {
        let key = if headers.is_empty() { "k" } else { "l" };
        client.exchange(
            format!("PUT /{key} HTTP/1.1\r\nContent-Length: 5\r\n{headers}\r\nhello"),
            format!(
                "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n\
                {body}",
                body.len()
            ),
        );
    }
    for command in ["\x10", "\x11", "\x12"] {
        let key = if command == "\x10" { "k" } else { "l" };
        let request =
            [b"\xc8", command.as_bytes(), b"\0\0\0\x01\0\0\0\x05", key.as_bytes(), b"hello"];
        client.exchange(request.concat(), b"\x01");
    }
    for name in ["put", "putcat", "putlist"] {
        client.exchange(misc(name, &["k", "hello"]), MISC_FAILURE);
    }
    client.exchange(misc("putkeep", &["l", "hello"]), MISC_FAILURE);
    client.exchange(misc("put", &["k", "a", "c", "hello"]), MISC_FAILURE);
    client.exchange(
        misc("error", &[]),
        list(&[
            "2: invalid operation: column \"hello\" has no value: a row is given as names and \
            values in turn",
        ]),
    );
    client.exchange("get k l\r\n", "VALUE k 0 3\r\na\0b\r\nEND\r\n");
    client.exchange(b"\xc8\x80", b"\0\0\0\0\0\0\0\0\x01");
}

#[test]
fn an_append_does_not_split_a_column_with_a_nul_byte() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    let mut client = server.connect();
    client.exchange(misc("put", &["k", "a", "1\x002\x003", "b", "4"]), DONE);
    let refused =
        "CLIENT_ERROR a column of the row has NUL in it: change the row by its columns\r\n";
    client.exchange("append k 0 0 1\r\n5\r\n", refused);
    client.exchange("prepend k 0 0 4\r\nc\x006\0\r\n", refused);
    client.exchange("touch k 60\r\n", refused);
    client.exchange(misc("get", &["k"]), list(&["a", "1\x002\x003", "b", "4"]));
    client.exchange("replace k 0 0 3\r\na\x001\r\n", "STORED\r\n");
    client.exchange(
        "append k 0 0 1\r\n5\r\nget k\r\n",
        "STORED\r\nVALUE k 0 4\r\na\x0015\r\nEND\r\n",
    );
}

#[test]
fn a_row_is_refused_by_a_database_that_is_not_a_table() {
    let server = start(memory());
    let mut client = server.connect();
    for name in ["put", "putkeep", "putcat"] {
        client.exchange(misc(name, &["k", "name", "ann"]), MISC_FAILURE);
        client.exchange(misc(name, &["k", "name", "ann", "age", "30"]), MISC_FAILURE);
    }
    client.exchange(b"\xc8\x80", b"\0\0\0\0\0\0\0\0\0");
    client.exchange(misc("put", &["k", "v"]), DONE);
}

#[test]
fn a_malformed_search_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    let mut client = server.connect();
    for key in ["p1", "p2", "p3"] {
        client.exchange(misc("put", &[key, "name", "x"]), DONE);
    }
    for bad in [
        "addcond\0name\0BOGUS\0joker",
        "addcond\0name\0STREQ",
        "addcon\0name\0STREQ\0joker",
        "addcond\0name\0STRBW\0j\0oker",
        "addcond\0name\0!STRRX\0[",
        "addcond\0age\0NUMLE\0ten",
        "setorder\0name\0UPWARDS",
        "setlimit\0all",
        "next",
    ] {
        for name in ["search", "metasearch"] {
            client.exchange(misc(name, &[bad, "out", "count"]), MISC_FAILURE);
            client.exchange(misc(name, &["out", bad]), MISC_FAILURE);
        }
    }
    client.exchange(misc("search", &["addcond\0name\0BOGUS\0x", "out"]), MISC_FAILURE);
    client.exchange(
        misc("error", &[]),
        list(&["2: invalid operation: nothing is removed by this search: there is no operator \
            \"BOGUS\""]),
    );
    client.exchange(b"\xc8\x80", b"\0\0\0\0\0\0\0\0\x03");
    client.exchange(misc("search", &["out", "count", "hint", ""]), {
        list(&["3", "\0\0[[HINT]]\nscanning the whole table\nresult set size: 3\nleaving the natural order\n"])
    });
}

#[test]
fn indexes_are_set_together_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    let mut client = server.connect();
    client.exchange(misc("setindex", &["a", "LEX", "b"]), MISC_FAILURE);
    client.exchange(misc("setindex", &["a", "LEX", "b", "BOGUS"]), MISC_FAILURE);
    client
        .exchange(misc("error", &[]), list(&["2: invalid operation: there is no index \"BOGUS\""]));
    client.exchange(misc("setindex", &["a", "+LEX"]), DONE);
}

#[test]
fn http_stores_reads_and_searches_rows() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    let mut client = server.connect();
    let created = "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\n\
        Created\n";
    client.exchange("PUT /k HTTP/1.1\r\nContent-Length: 3\r\n\r\na\x001", created);
    // Only the missing column is added.
    let body = "PUT /k HTTP/1.1\r\nX-TT-PDMODE: 2\r\nContent-Length: 7\r\n\r\na\x002\0b\x003";
    client.exchange(body, created);
    client.expect_value("/k", "a\x001\0b\x003");
    // Fields of one name are one argument, joined by NUL.
    let body = "x=addcond&x=b&x=NUMEQ&x=3&y=get&y=&y=b";
    let request = format!(
        "POST / HTTP/1.1\r\nX-TT-MNAME: search\r\nContent-Length: {}\r\n\
            Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}",
        body.len()
    );
    client.exchange(
        request,
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-www-form-urlencoded\r\n\
            Content-Length: 17\r\n\r\nres1=%00k%00b%003",
    );
}

#[test]
fn a_search_removes_its_rows_and_their_index_entries() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    let mut client = server.connect();
    client.exchange(misc("setindex", &["age", "DEC", "name", "LEX"]), DONE);
    for (key, age) in [("p1", "30"), ("p2", "19"), ("p3", "42")] {
        client.exchange(misc("put", &[key, "name", "x", "age", age]), DONE);
    }
    let old = "addcond\0age\0NUMGE\x0030";
    client.exchange(misc("search", &[old, "out", "count"]), list(&["2"]));
    client.exchange(misc("search", &[old]), list(&[]));
    client.exchange(misc("search", &["addcond\0name\0STREQ\0x"]), list(&["p2"]));
    client.exchange(misc("vanish", &[]), DONE);
    client.exchange(misc("search", &[]), list(&[]));
    // The index still exists.
    client.exchange(misc("setindex", &["age", "+DEC"]), MISC_FAILURE);
    let reason = "21: existing record: there is an index on the column already";
    client.exchange(misc("error", &[]), list(&[reason]));
    client.exchange(misc("setindex", &["age", "VOID"]), DONE);
    client.exchange(misc("setindex", &["age", "+DEC"]), DONE);
}

#[test]
fn functions_that_a_kind_of_database_does_not_have_fail() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    let mut client = server.connect();
    for name in ["range", "putdup", "put", "putkeep", "putcat", "get", "setindex"] {
        client.exchange(misc(name, &[]), MISC_FAILURE);
    }
    client.exchange(misc("setindex", &["a"]), MISC_FAILURE);
    let server = start(memory());
    let mut client = server.connect();
    for name in ["search", "metasearch", "genuid", "setindex"] {
        client.exchange(misc(name, &["a", "DEC"]), MISC_FAILURE);
    }
}

#[test]
fn durable_rows_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let open = || named(folder.path(), "casket.tct#durability=always");
    let server = start(open());
    let mut client = server.connect();
    client.exchange(misc("setindex", &["a", "DEC"]), DONE);
    client.exchange(misc("put", &["k", "a", "1"]), DONE);
    client.exchange(misc("putcat", &["k", "b", "\0"]), DONE);
    drop(server);
    let server = start(open());
    let mut client = server.connect();
    client.exchange(misc("search", &["addcond\0a\0=\x001"]), list(&["k"]));
    client.exchange(misc("get", &["k"]), list(&["a", "1", "b", "\0"]));
}

#[test]
fn a_table_opened_for_reading_is_searched_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    server.connect().exchange(misc("put", &["k", "a", "1"]), DONE);
    drop(server);
    let server = start(named(folder.path(), "casket.tct#mode=r"));
    let mut client = server.connect();
    client.exchange(misc("search", &["addcond\0a\0=\x001"]), list(&["k"]));
    for (name, arguments) in [
        ("put", &["k", "a", "2"][..]),
        ("put", &["k", "a", "\0"]),
        ("putcat", &["l", "a", "2"]),
        ("out", &["k"]),
        ("search", &["out"]),
        ("setindex", &["a", "DEC"]),
        ("genuid", &[]),
        ("vanish", &[]),
    ] {
        client.exchange(misc(name, arguments), MISC_FAILURE);
    }
    client.exchange(misc("get", &["k"]), list(&["a", "1"]));
}

#[test]
fn concurrent_changes_of_one_row_are_all_kept() {
    const CLIENTS: usize = 4;
    const CHANGES: usize = 25;
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    server.connect().exchange(misc("setindex", &["_num", "DEC"]), DONE);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = server.connect();
            scope.spawn(move || {
                for change in 0..CHANGES {
                    let column = format!("{number}-{change}");
                    client.exchange(misc("putcat", &["k", &column, "1"]), DONE);
                    client.send(b"\xc8\x60\0\0\0\x01\0\0\0\x01k");
                    assert_eq!(client.read(5)[0], 0);
                }
            });
        }
    });
    let mut client = server.connect();
    let sum = format!("addcond\0_num\0NUMEQ\0{}", CLIENTS * CHANGES);
    client.exchange(misc("search", &[&sum]), list(&["k"]));
    client.send(&misc("get", &["k"]));
    let header = client.read(5);
    let elements = u32::from_be_bytes(header[1..].try_into().unwrap());
    assert_eq!(elements as usize, 2 * (CLIENTS * CHANGES + 1));
}
