//! Rights: masked commands, paths and masters that clients may not name, and requests that must not
//! be taken for those of another protocol.

mod support;

use server::{ClientPaths, Config};
use support::{
    Packet, config, hash, list, memory, misc, records, request, set_master, start, start_with, stat,
};
use wire::binary::Request;

#[test]
fn masking_all_writes_protects_the_records_from_every_request() {
    let folder = tempfile::tempdir().unwrap();
    let database = hash(folder.path());
    database.put(b"k", b"v").unwrap();
    let mask = "allwrite,vanish".parse().unwrap();
    let server = start_with(Config { mask, ..config() }, database.clone());
    let before = (records(&database), stat(&server, "limit_bytes"));
    let mut client = server.connect();
    for line in [
        "cache_memlimit 8",
        "flush_all",
        "flush_all 1",
        "delete k",
        "incr k 1",
        "touch k 1",
        "gat 1 k",
        "md k",
        "ma k",
        "mg k T1",
        "mg n N1",
        "set k 0 0 1\r\nw",
        "ms k 1\r\nw",
    ] {
        client.exchange(format!("{line}\r\n"), "CLIENT_ERROR forbidden\r\n");
    }
    let (key, value): (&[u8], &[u8]) = (b"k", b"w");
    let path: &[u8] = b"ulog";
    for refused in [
        Request::Put { key, value },
        Request::PutCat { key, value },
        Request::Out { key },
        Request::Optimize { parameters: b"capsiz=8m" },
        Request::Vanish,
        Request::Restore { path, timestamp_us: 0, options: 0 },
        Request::SetMaster { host: b"h", port: 1, timestamp_us: 0, options: 0 },
    ] {
        client.exchange(request(&refused), b"\x01");
    }
    for (name, arguments) in [
        ("optimize", &["capsiz=8m"][..]),
        ("vanish", &[]),
        ("out", &["k"]),
        ("put", &["k", "w"]),
        ("promote", &[]),
        ("outlist", &["k"]),
        ("putcat", &["k", "w"]),
    ] {
        client.exchange(misc(name, arguments), b"\0\0\0\0\0");
        let name = format!("X-TT-MNAME: {name}\r\nContent-Length: 0\r\n");
        client.send(format!("POST / HTTP/1.1\r\nHost: localhost\r\n{name}\r\n").as_bytes());
        client.expect_response("403 Forbidden", "Forbidden\n");
    }
    for method in ["PUT", "DELETE"] {
        client.send(
            format!("{method} /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
                .as_bytes(),
        );
        client.expect_response("403 Forbidden", "Forbidden\n");
    }
    for opcode in [0x01, 0x02, 0x03, 0x04, 0x05, 0x08, 0x0e, 0x1c] {
        let extras = match opcode {
            0x01..=0x03 => &[0; 8][..],
            0x05 => &[0; 20],
            0x1c => &[0; 4],
            _ => b"",
        };
        let key: &[u8] = if opcode == 0x08 { b"" } else { b"k" };
        let packet = Packet { opcode, extras, key, ..Packet::default() };
        assert_eq!(client.ask(&packet).status, 0x20, "{opcode:x}");
    }
    assert_eq!((records(&database), stat(&server, "limit_bytes")), before);
}

#[test]
fn masking_a_command_masks_the_equivalent_function() {
    let mask = "vanish,out".parse().unwrap();
    let server = start_with(Config { mask, ..config() }, memory());
    let mut client = server.connect();
    client.exchange(misc("put", &["k", "v"]), b"\0\0\0\0\0");
    for (name, arguments) in [("vanish", &[][..]), ("out", &["k"]), ("outlist", &["k"])] {
        client.exchange(misc(name, arguments), b"\0\0\0\0\0");
    }
    client.exchange(misc("get", &["k"]), list(&["v"]));
}

#[test]
fn malformed_http_is_refused_and_its_body_is_not_executed() {
    let server = start(memory());
    let body = "set k 0 0 1\r\nv\r\n";
    for line in ["POST /a b HTTP/1.1", "GET / HTTP/2.0", "POST /a\tb HTTP/1.1", "PRI * HTTP/2.0"] {
        for (one, other) in [(true, ""), (false, "Content-Type: text/plain\r\n")] {
            let mut client = server.connect();
            client.send(format!("{line}\r\n{other}").as_bytes());
            if one {
                server.pass();
            }
            client.send(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            let reply = String::from_utf8(client.read_to_end()).unwrap();
            assert!(reply.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{line}: {reply}");
            assert!(reply.ends_with("\r\n\r\nBad Request\n"), "{line}: {reply}");
        }
    }
    server.connect().exchange("get k\r\n", "END\r\n");
}

#[test]
fn clients_may_name_paths_and_masters_only_if_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join("copies");
    std::fs::create_dir(&top).unwrap();
    let inside = top.join("copy.tch");
    let outside = folder.path().join("copy.tch");
    let copy = |path: &std::path::Path| {
        request(&Request::Copy { path: path.as_os_str().as_encoded_bytes() })
    };
    let database = hash(folder.path());
    let refused = ClientPaths::None;
    let settings = Config { client_paths: refused, set_master_command: false, ..config() };
    let server = start_with(settings, database.clone());
    let mut client = server.connect();
    client.exchange(copy(&inside), b"\x01");
    let refused = |what: &str| list(&[&format!("4: no permission: {what}")]);
    let option = "clients may name no path: start the server with --copy-dir DIR";
    client
        .exchange(misc("error", &[]), refused(&format!("copy to {}: {option}", inside.display())));
    let restore = Request::Restore { path: b"ulog", timestamp_us: 0, options: 0 };
    client.exchange(request(&restore), b"\x01");
    client.exchange(set_master("", 0, 0, 0), b"\x01");
    client.exchange(
        misc("error", &[]),
        refused(
            "the server was started without --allow-setmst: start it again with that option, or with \
             --master",
        ),
    );
    drop(server);
    let settings = Config { client_paths: ClientPaths::Within(top.clone()), ..config() };
    let server = start_with(settings, database);
    let mut client = server.connect();
    client.exchange(copy(&outside), b"\x01");
    let folder = top.canonicalize().unwrap();
    let option = format!("name a path in {}, the folder of --copy-dir", folder.display());
    let reason = format!("copy to {}: {option}", outside.display());
    client.exchange(misc("error", &[]), refused(&reason));
    client.exchange(copy(std::path::Path::new("../copy.tch")), b"\x01");
    client.exchange(request(&restore), b"\x01");
    client.exchange(copy(&inside), b"\0");
    assert!(inside.join("manifest").exists() && !outside.exists());
}
