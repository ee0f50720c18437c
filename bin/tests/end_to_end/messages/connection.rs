//! Connections that a command cannot make: no server, another server, TLS, logins.

use super::Table;
use super::server::refuse;
use crate::process::{Server, exchange, feed_in, free_port, misuse, wait_for};
use crate::tls::certificates::Authority;
use crate::tls::serve;
use crate::users::add;
use std::fs::{Permissions, set_permissions, write};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_server_that_cannot_be_reached_is_named_with_the_cause_and_what_to_do() {
    let address = format!("127.0.0.1:{}", free_port());
    let repository = tempfile::tempdir().expect("a folder");
    let backup = format!("backup create {}/b", repository.path().display());
    let cause = format!("cannot connect to {address}: Connection refused (os error 111)");
    for line in ["get a", "tail", "replicas", "check", &backup] {
        refuse(&address, line, &[&cause, "\"tyrant serve\"", "TYRANT_SERVER"]);
    }
    refuse("/nonexistent/socket", "get a", &["/nonexistent/socket: No such file"]);
    let flaw = "\"127.0.0.1:x\" is not an address: give HOST:PORT";
    assert!(misuse(&["get", "a", "--server", "127.0.0.1:x"]).contains(flaw));
    assert!(misuse(&["tail", "--server", "127.0.0.1:x"]).contains(flaw));
}

/// Starts a server that sends `reply` to each line, or at once if `is_first`. Returns its address.
fn other_server(reply: &'static [u8], is_first: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.expect("a connection");
                let mut line = Vec::new();
                if is_first || BufReader::new(&stream).read_until(b'\n', &mut line).is_ok() {
                    let _ = stream.write_all(reply);
                }
            });
        }
    });
    address
}

#[test]
fn a_server_of_another_protocol_is_recognized() {
    for (reply, is_first, name) in [
        (&b"-ERR unknown command 'version'\r\n"[..], false, "a Redis server"),
        (b"VERSION 1.6.45\r\n", false, "a memcached server"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", false, "a web server"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", true, "an SSH server"),
        (
            b"HELLO\r\n",
            true,
            "does not speak the protocol of tyrant (the reply begins with \"HELLO",
        ),
    ] {
        let address = other_server(reply, is_first);
        refuse(&address, "get a", &[&address, name, "--server or TYRANT_SERVER"]);
    }
}

#[test]
fn an_admin_listener_is_named_as_such() {
    let admin = format!("127.0.0.1:{}", free_port());
    let server = Server::tyrant("*", &["--admin", &admin]);
    let named = "is the admin listener of a tyrant server";
    Table::new(server.folder.path(), &[("ADMIN", &admin), ("NAMED", named)]).check(&[
        (
            "tyrant get a --server ADMIN",
            1,
            &["ADMIN NAMED, which has no records: name the port of a"],
        ),
        ("tyrant top --server ADMIN", 1, &["ADMIN NAMED"]),
        (
            "tyrant import redis://ADMIN --into a.tch",
            1,
            &["redis://ADMIN/0 NAMED, not one of Redis's protocol"],
        ),
    ]);
    let end = "this is the admin listener of a tyrant server";
    for (request, begin) in [
        ("GET /records HTTP/1.1\r\nHost: localhost\r\n\r\n", "\r\n\r\n"),
        ("*1\r\n$4\r\nPING\r\n", "not a request of HTTP/1.1: "),
    ] {
        let mut stream = std::net::TcpStream::connect(&admin).expect("a connection");
        stream.write_all(request.as_bytes()).expect("to send");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        assert!(reply.contains(&format!("{begin}{end}")), "{reply}");
        assert!(reply.contains("\r\nServer: tyrant-admin\r\n"), "{reply}");
    }
}

#[test]
fn servers_where_files_are_meant() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::tyrant("*", &[]);
    let authority = Authority::new();
    let tls = serve("*", &authority.server(&["127.0.0.1"]), &[]);
    let copy =
        "the records of a running server are exported from a copy, which \"tyrant copy PATH\"";
    write(folder.path().join("a.tsv"), "").expect("a file");
    let (here, with_tls) = (server.address(), tls.address());
    let names = [("HERE", &*here), ("WITH_TLS", &with_tls), ("COPY", copy)];
    Table::new(folder.path(), &names).check(&[
        (
            "tyrant import redis://WITH_TLS --into a.tch",
            1,
            &["redis://WITH_TLS/0 requires TLS: begin the URL with rediss://", "--tls-ca FILE"],
        ),
        (
            "tyrant import rediss://HERE --into a.tch",
            1,
            &["rediss://HERE/0 does not speak TLS: begin the URL with redis://"],
        ),
        (
            "tyrant import HERE --into a.tch",
            2,
            &["there is no file HERE: a running server is named by its URL, redis://HERE"],
        ),
        (
            "tyrant import http://h --into a.tch",
            2,
            &["named by its URL, redis://h, with TLS rediss://"],
        ),
        (
            "tyrant import a.tsv --into HERE",
            2,
            &["HERE is not the name of a database", "redis://HERE", "export NAME --to redis://"],
        ),
        ("tyrant export HERE", 2, &["HERE is a server, and export reads a database: COPY"]),
        ("tyrant export redis://HERE", 2, &["redis://HERE is a server", "COPY"]),
        // Without the password.
        ("tyrant export redis://ann:secret@HERE", 2, &["tyrant: HERE is a server", "COPY"]),
        ("tyrant export --server HERE", 2, &["tip: COPY"]),
        (
            "tyrant export no.tch --to http://h",
            1,
            &["\"http://h\" is not the end of a URL of the form redis://"],
        ),
    ]);
    assert!(!folder.path().join("a.tch").exists());
}

/// Writes a file that only its owner may read.
fn secret(folder: &std::path::Path, name: &str, text: &str) {
    write(folder.join(name), text).expect("a file");
    set_permissions(folder.join(name), Permissions::from_mode(0o600)).expect("a mode");
}

#[test]
fn names_and_ports_at_which_no_server_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let unused = format!("127.0.0.1:{}", free_port());
    Table::new(folder.path(), &[("UNUSED", &unused)]).check(&[
        ("tyrant get a --server UNUSED", 1, &["cannot connect to UNUSED", "\"tyrant serve\"", "TYRANT_SERVER"]),
        ("tyrant top --server UNUSED", 1, &["cannot connect to UNUSED", "\"tyrant serve\""]),
        ("tyrant shell --server UNUSED", 1, &["cannot connect to UNUSED", "\"tyrant serve\""]),
        ("tyrant replicas --server UNUSED", 1, &["cannot connect to UNUSED", "\"tyrant serve\""]),
        ("tyrant follow 127.0.0.1:1 --server UNUSED", 1, &["cannot connect to UNUSED"]),
        ("tyrant get a --server nowhere.invalid:1978", 1, &["cannot find the host of nowhere.invalid:1978", "; check the name"]),
        ("tyrant get a --server ./socket", 1, &["cannot connect to ./socket: No such file", "\"tyrant serve\""]),
        ("tyrant get a --server 127.0.0.1:x", 2, &["--server: \"127.0.0.1:x\" is not an address: give HOST:PORT"]),
        ("tyrant get a --server 1978", 2, &["\"1978\" is a port without a host: give 127.0.0.1:1978 for this machine"]),
        ("tyrant get a --server ::1", 2, &["\"::1\" needs brackets, and may have a port: [::1]:1978"]),
        ("tyrant tail --server 1978", 2, &["\"1978\" is a port without a host"]),
        ("tyrant replicas --for 1978,tls", 2, &["\"1978\" is a port without a host"]),
        ("tyrant get a --server tyrant.sock", 2, &["\"tyrant.sock\" would be a host, since it has no slash: give ./tyrant.sock for a Unix socket"]),
        ("tyrant get a --credentials nothing", 1, &["cannot read the credentials in nothing", "check the path"]),
        ("tyrant get a --tls-ca nothing", 1, &["cannot read nothing", "check the path"]),
        ("tyrant cluster check cassandra://UNUSED/k", 1, &["cannot connect to UNUSED: Connection refused (os error 111); no node listens there", "native_transport_port"]),
        ("tyrant cluster init cassandra://UNUSED/k", 1, &["cannot connect to UNUSED", "native_transport_port"]),
        ("tyrant serve cassandra://UNUSED/k#startwait=0 --port 0", 1, &["cannot connect to UNUSED", "native_transport_port"]),
        ("tyrant cluster check cassandra://", 2, &["is not of the form cassandra://HOST"]),
    ]);
}

#[test]
fn a_server_without_tls_and_without_users() {
    let server = Server::tyrant("*", &[]);
    let folder = server.folder.path();
    secret(folder, "login", "ann:secret\n");
    secret(folder, "one-word", "ann\n");
    write(folder.join("open"), "ann:secret\n").expect("a file");
    set_permissions(folder.join("open"), Permissions::from_mode(0o644)).expect("a mode");
    Table::new(folder, &[("HERE", &server.address())]).check(&[
        (
            "tyrant get a --server HERE --tls-insecure",
            1,
            &["cannot connect to HERE with TLS", "does not speak TLS; leave out --tls"],
        ),
        ("tyrant tail --server HERE --tls-insecure", 1, &["does not speak TLS; leave out --tls"]),
        (
            "tyrant get a --server HERE --credentials login",
            1,
            &["HERE has no users", "ann", "--users FILE"],
        ),
        (
            "tyrant get a --server HERE --credentials one-word",
            1,
            &["one-word: it must have one line, name:password"],
        ),
        (
            "tyrant get a --server HERE --credentials open",
            1,
            &["open: others may read or change it; chmod 600 it"],
        ),
        (
            "tyrant get a --server HERE --user ann",
            1,
            &["give the password of ann with --credentials or TYRANT_PASSWORD"],
        ),
    ]);
}

#[test]
fn a_server_with_tls() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = serve("*", &authority.server(&["127.0.0.1"]), &[]);
    let expired = serve("*", &authority.expired_server(&["127.0.0.1"]), &[]);
    let folder = server.folder.path();
    secret(folder, "login", "ann:secret\n");
    let (trusted, wrong) =
        (authority.file().display().to_string(), other.file().display().to_string());
    let (here, late) = (server.address(), expired.address());
    let names: [(&str, &str); 4] =
        [("HERE", &*here), ("LATE", &late), ("TRUSTED", &trusted), ("WRONG", &wrong)];
    Table::new(folder, &names).check(&[
        (
            "tyrant get a --server HERE",
            1,
            &["HERE is a server that expects TLS: add --tls, or --tls-ca FILE"],
        ),
        (
            "tyrant get a --server HERE --credentials login",
            1,
            &["HERE is a server that expects TLS: add --tls"],
        ),
        (
            "tyrant get a --server HERE --tls-ca WRONG",
            1,
            &["its authority is not in WRONG; name the file that has it with --tls-ca FILE"],
        ),
        (
            "tyrant get a --server HERE --tls-ca TRUSTED --tls-name other",
            1,
            &["not valid for name \"other\"", "--tls-name NAME"],
        ),
        (
            "tyrant get a --server LATE --tls-ca TRUSTED",
            1,
            &["certificate expired", "the server needs a new certificate"],
        ),
        (
            "tyrant get a --server HERE --tls-ca login",
            1,
            &["no certificate in login: it must have certificates in PEM format"],
        ),
    ]);
    for (request, reply) in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n"),
        ("GET / HT", "HTTP/1.1 400 Bad Request\r\n"),
        ("*1\r\n$4\r\nPING\r\n", "-ERR this port requires TLS\r\n"),
        ("get a\r\n", "SERVER_ERROR this port requires TLS\r\n"),
    ] {
        exchange(&mut server.connect(), request, reply);
    }
    let mut stream = server.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("to send");
    let mut whole = String::new();
    stream.read_to_string(&mut whole).expect("a reply and its end");
    assert!(whole.ends_with("\r\n\r\nthis port requires TLS: use https://\n"), "{whole}");
}

#[test]
fn a_client_of_redis_is_told_which_command_is_missing_and_that_it_has_to_log_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let users = folder.path().join("users");
    add(&users, "ann", "secret");
    let users = users.display().to_string();
    let push = "*3\r\n$5\r\nLPUSH\r\n$1\r\nl\r\n$1\r\na\r\n";
    let missing =
        "-ERR LPUSH is not supported: this database keeps strings only, without lists\r\n";
    let login = "-NOAUTH Authentication required.\r\n";
    for (options, reply) in [(&[][..], missing), (&["--users", &users], login)] {
        let server = Server::tyrant("*", options);
        exchange(&mut server.connect(), push, reply);
    }
}

#[test]
fn a_server_with_users_tells_the_causes_of_a_refused_login_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    add(&folder.path().join("users"), "ann", "secret");
    let users = folder.path().join("users").display().to_string();
    let server = Server::tyrant("*", &["--users", &users]);
    secret(folder.path(), "wrong", "ann:guess\n");
    secret(folder.path(), "unknown", "bob:guess\n");
    const WRONG: &str = "the name or the password is wrong; check both";
    Table::new(folder.path(), &[("HERE", &server.address())]).check(&[
        ("tyrant get a --server HERE", 1, &["HERE requires a user", "--credentials"]),
        ("tyrant get a --server HERE --credentials wrong", 1, &["refused the login of ann", WRONG]),
        // A name that no user has is refused in the same words.
        (
            "tyrant get a --server HERE --credentials unknown",
            1,
            &["refused the login of bob", WRONG],
        ),
    ]);
    // Each failure makes the next wait longer, so that a slow machine gets there too.
    let address = server.address();
    let guess = ["get", "a", "--server", &address, "--credentials", "wrong"];
    let mut number = 0;
    wait_for("a refusal without a check", || {
        number += 1;
        secret(folder.path(), "wrong", &format!("ann:guess {number}\n"));
        let output = feed_in(folder.path(), "tyrant", &guess, "");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        message.contains("too many logins from this machine have failed").then_some(message)
    });
}
