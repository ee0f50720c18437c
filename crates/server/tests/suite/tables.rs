//! Tables, over a server whose table is empty. Each kind of store that has rows has to pass them.

use super::support::{MISC_FAILURE, Running, list, misc};

const DONE: &[u8] = b"\0\0\0\0\0";

/// Columns with NUL in them stay separate.
pub(crate) fn nul_bytes(server: &Running) {
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

/// An empty key becomes the next identifier in every command.
pub(crate) fn identifiers(server: &Running) {
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
    for (key, row) in [("3", ["a", "putkeep"]), ("7", ["a", "b"]), ("9", ["_num", "5"])] {
        client.exchange(misc("get", &[key]), list(&row));
    }
    client.exchange(b"\xc8\x80", b"\0\0\0\0\0\0\0\0\x09");
}

/// Columns through the protocol of memcached.
pub(crate) fn memcached(server: &Running) {
    let mut client = server.connect();
    client.exchange("set k 0 0 7\r\na\0b\0c\0d\r\n", "STORED\r\n");
    client.exchange(misc("get", &["k"]), list(&["a", "b", "c", "d"]));
    client.exchange("get k\r\n", "VALUE k 0 7\r\na\0b\0c\0d\r\nEND\r\n");
    client.exchange("add k 0 0 3\r\na\0b\r\n", "NOT_STORED\r\n");
    client.exchange("delete k\r\nget k\r\n", "DELETED\r\nEND\r\n");
}

/// A value without columns is refused by every protocol, and nothing is lost.
pub(crate) fn refused_values(server: &Running) {
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
            format!(
                "PUT /{key} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n{headers}\r\nhello"
            ),
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

/// An append does not split a column with NUL in it.
pub(crate) fn appends(server: &Running) {
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

/// A malformed search removes nothing.
pub(crate) fn malformed_searches(server: &Running) {
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
            \"BOGUS\"; correct that, and search again"]),
    );
    client.exchange(b"\xc8\x80", b"\0\0\0\0\0\0\0\0\x03");
    client.exchange(misc("search", &["out", "count", "hint", ""]), {
        list(&["3", "\0\0[[HINT]]\nscanning the whole table\nresult set size: 3\nleaving the natural order\n"])
    });
    client.exchange(misc("put", &["z", "role", "user\0admin\0x"]), DONE);
    client.exchange(misc("search", &["get"]), list(&["\0z\0role\0user\0admin\0x"]));
    client.exchange(misc("search", &["get", "sized"]), {
        list(&["\0\0[[ROW]]\n\0\0\0\0\0\0\0\x01z\0\0\0\x04role\0\0\0\x0cuser\0admin\0x"])
    });
    client.exchange(misc("search", &["get\0\0none", "sized"]), list(&["\0z"]));
}

/// Indexes are set together or not at all.
pub(crate) fn index_changes(server: &Running) {
    let mut client = server.connect();
    client.exchange(misc("setindex", &["a", "LEX", "b"]), MISC_FAILURE);
    client.exchange(misc("setindex", &["a", "LEX", "b", "BOGUS"]), MISC_FAILURE);
    let reason = "2: invalid operation: bad argument: there is no index \"BOGUS\": choose lex, dec, \
        tok, qgr, opt or void";
    client.exchange(misc("error", &[]), list(&[reason]));
    client.exchange(misc("setindex", &["a", "+LEX"]), DONE);
}

/// Rows through HTTP.
pub(crate) fn http(server: &Running) {
    let mut client = server.connect();
    let created = "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\n\
        Created\n";
    client
        .exchange("PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\na\x001", created);
    // Only the missing column is added.
    let body = "PUT /k HTTP/1.1\r\nHost: localhost\r\nX-TT-PDMODE: 2\r\nContent-Length: 7\r\n\r\na\x002\0b\x003";
    client.exchange(body, created);
    client.expect_value("/k", "a\x001\0b\x003");
    // Fields of one name are one argument, joined by NUL.
    let body = "x=addcond&x=b&x=NUMEQ&x=3&y=get&y=&y=b";
    let request = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nX-TT-MNAME: search\r\nContent-Length: {}\r\n\
            Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}",
        body.len()
    );
    client.exchange(
        request,
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-www-form-urlencoded\r\n\
            Content-Length: 17\r\n\r\nres1=%00k%00b%003",
    );
}

/// A search removes its rows, and their entries in indexes.
pub(crate) fn removals(server: &Running) {
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
    let reason = "21: existing record: there is an index on the column already: keep it, or remove \
        it first";
    client.exchange(misc("error", &[]), list(&[reason]));
    client.exchange(misc("setindex", &["age", "VOID"]), DONE);
    client.exchange(misc("setindex", &["age", "+DEC"]), DONE);
}

/// Changes of one row by many clients at once are all kept.
pub(crate) fn concurrent_changes(server: &Running) {
    const CLIENTS: usize = 4;
    const CHANGES: usize = 25;
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
