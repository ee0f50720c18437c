//! TLS: the real programs, curl and openssl over it.

#[path = "../../../crates/tls/tests/support/mod.rs"]
pub(crate) mod certificates;

use crate::process::{Server, exchange, fail, misuse, run, succeed, wait_for};
use crate::users::add_with;
use certificates::{Authority, Files};
use rustix::process::Signal;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn options(files: &Files) -> Vec<String> {
    let (certificate, key) = (text(&files.certificate), text(&files.key));
    ["--tls-cert", certificate, "--tls-key", key].map(str::to_owned).to_vec()
}

pub(crate) fn serve(database: &str, files: &Files, further: &[&str]) -> Server {
    let options = options(files);
    let options: Vec<&str> =
        options.iter().map(String::as_str).chain(further.iter().copied()).collect();
    Server::tyrant(database, &options)
}

/// Runs a program with an input.
fn external(program: &str, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect(program);
    // A program that is refused may end before it reads all.
    let _ = child.stdin.take().expect("its input").write_all(input.as_bytes());
    child.wait_with_output().expect(program)
}

fn openssl(
    server: &Server,
    authority: &Authority,
    further: &[&str],
    input: &str,
) -> (bool, String) {
    let (address, file) = (server.address(), authority.file());
    let arguments = ["s_client", "-connect", &address, "-CAfile", text(&file), "-quiet"];
    let strict = ["-verify_return_error", "-verify_ip", "127.0.0.1", "-no_ign_eof"];
    let output = external("openssl", &[&arguments[..], &strict, further].concat(), input);
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_tools_connect_with_tls_and_check_the_server() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = serve("casket.tch", &authority.server(&["127.0.0.1"]), &["--copy-dir", "."]);
    let (address, file, wrong) = (server.address(), authority.file(), other.file());
    let trusting = ["--server", &address, "--tls-ca", text(&file)];
    succeed("tyrant", &[&["put", "color", "blue"][..], &trusting].concat());
    assert_eq!(succeed("tyrant", &[&["get", "color"][..], &trusting].concat()), "blue\n");
    succeed("tyrant", &["get", "color", "--server", &address, "--tls-insecure"]);
    let repository = server.folder.path().join("repository");
    let create = [&["backup", "create", text(&repository)][..], &trusting].concat();
    succeed("tyrant", &create);
    succeed("tyrant", &["backup", "verify", text(&repository)]);
    succeed("tyrant", &[&["replicas"][..], &trusting].concat());
    for (arguments, reason) in [
        (&["--tls-ca", text(&wrong)][..], "its authority is not in "),
        (&["--tls-ca", text(&file), "--tls-name", "elsewhere"], "not valid for name"),
        (&["--tls"], "invalid peer certificate"),
        (&["--tls-ca", "/nowhere"], "cannot read /nowhere"),
    ] {
        let arguments = [&["get", "color", "--server", &address][..], arguments].concat();
        let error = fail("tyrant", &arguments);
        assert!(error.contains(reason), "{error}");
    }
    let error = fail("tyrant", &["get", "color", "--server", &address]);
    let advice = "is a server that expects TLS: add --tls, or --tls-ca FILE";
    assert!(error.contains(&address) && error.contains(advice), "{error}");
}

#[test]
fn the_variables_of_tls_are_as_the_options_and_a_password_needs_it() {
    let authority = Authority::new();
    let server = serve("casket.tch", &authority.server(&["localhost"]), &[]);
    let (address, file) = (server.address(), authority.file());
    let put = |variables: &[(&str, &str)]| {
        let mut command = Command::new(crate::process::path("tyrant"));
        command.args(["put", "k", "v", "--server", &address]).envs(variables.iter().copied());
        let output = command.stdin(Stdio::null()).output().expect("tyrant");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (ca, name) = (("TYRANT_TLS_CA", text(&file)), ("TYRANT_TLS_NAME", "localhost"));
    assert!(put(&[ca, name]).0);
    assert!(put(&[("TYRANT_TLS_INSECURE", "true")]).0);
    for (variables, reason) in [
        (&[ca][..], "not valid for name"),
        (&[("TYRANT_TLS", "yes")], "invalid peer certificate"),
        (&[("TYRANT_TLS", "no"), ("TYRANT_TLS_CA", "")], "add --tls"),
        (&[("TYRANT_TLS", "perhaps")], "the variable TYRANT_TLS is \"perhaps\""),
        (&[ca, name, ("TYRANT_CLIENT_CERT", "c")], "require each other"),
    ] {
        let (is_done, error) = put(variables);
        assert!(!is_done && error.contains(reason), "{variables:?}: {error}");
    }
}

#[test]
fn the_servers_of_a_replication_tree_may_have_authorities_of_their_own() {
    let (authority, other) = (Authority::new(), Authority::new());
    let logs = ["--server-id", "1", "--update-log", "ulog"];
    let master = serve("casket.tch", &authority.server(&["127.0.0.1"]), &logs);
    let (address, file, other_file) = (master.address(), authority.file(), other.file());
    let following = ["--server-id", "2", "--master", &address, "--master-tls"];
    let following = [&following[..], &["--master-tls-ca", text(&file)]].concat();
    let replica = serve("casket.tch", &other.server(&["127.0.0.1"]), &following);
    let arguments = ["replicas", "--server", &address, "--tls-ca", text(&file)];
    let own = format!("{},tls-ca={}", replica.address(), text(&other_file));
    let (tree, errors) = wait_for("the replica", || {
        let output = run("tyrant", &[&arguments[..], &["--for", &own]].concat());
        let tree = String::from_utf8(output.stdout).expect("text");
        tree.contains("streaming").then_some((tree, output.stderr))
    });
    assert!(!tree.contains("does not answer") && errors.is_empty(), "{tree}");
    // Options for a server that is not there are named.
    let elsewhere = run("tyrant", &[&arguments[..], &["--for", "127.0.0.1:1,tls"]].concat());
    let errors = String::from_utf8_lossy(&elsewhere.stderr);
    assert!(errors.contains("--for 127.0.0.1:1 had no effect"), "{errors}");
    let output = run("tyrant", &arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("1 server does not"), "{output:?}");
    let tree = String::from_utf8_lossy(&output.stdout);
    assert!(tree.contains("does not answer: ") && tree.contains("authority is not in "), "{tree}");
    let advice = format!("; for this server alone: --for {},tls-ca=FILE\n", replica.address());
    assert!(tree.ends_with(&advice), "{tree}");
    // The first server may have some, too.
    let arguments = ["replicas", "--server", &address, "--tls-ca", text(&other_file)];
    let own = format!("{address},tls-ca={}", text(&file));
    let tree = succeed("tyrant", &[&arguments[..], &["--for", &own]].concat());
    assert!(!tree.contains("does not answer"), "{tree}");
}

#[test]
fn a_replica_is_listed_once_though_its_certificate_lacks_the_address_that_its_master_knows() {
    let authority = Authority::new();
    let (files, file) = (authority.server(&["localhost"]), authority.file());
    let master = serve("casket.tch", &files, &["--server-id", "1", "--update-log", "ulog"]);
    let above = format!("localhost:{}", master.port);
    let following = ["--server-id", "2", "--master", &above, "--master-tls"];
    let following = [&following[..], &["--master-tls-ca", text(&file)]].concat();
    let replica = serve("casket.tch", &files, &following);
    let asked = format!("localhost:{}", replica.port);
    let arguments = ["replicas", "--server", &asked, "--tls-ca", text(&file)];
    wait_for("the replica", || {
        let tree = String::from_utf8(run("tyrant", &arguments).stdout).expect("UTF-8");
        tree.contains("streaming").then_some(())
    });
    let tree = succeed("tyrant", &arguments);
    assert_eq!(tree.lines().count(), 2, "{tree}");
    // The command knows only the address of a replica that it was not given.
    let output = run("tyrant", &["replicas", "--server", &above, "--tls-ca", text(&file)]);
    let tree = String::from_utf8_lossy(&output.stdout);
    let advice = format!("--for {},tls-name=NAME\n", replica.address());
    assert!(output.status.code() == Some(1) && tree.ends_with(&advice), "{output:?}");
}

#[test]
fn openssl_and_curl_speak_with_the_server_and_weak_protocols_are_refused() {
    let authority = Authority::new();
    let server = serve("casket.tch", &authority.server(&["127.0.0.1"]), &["--webdav"]);
    for version in ["-tls1_3", "-tls1_2"] {
        let input = "set k 0 0 1\r\nv\r\nget k\r\nquit\r\n";
        let (_, reply) = openssl(&server, &authority, &[version, "-ign_eof"], input);
        assert_eq!(reply, "STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n", "{version}");
    }
    for weak in [
        &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"][..],
        &["-tls1_2", "-cipher", "AES128-GCM-SHA256:AES256-SHA:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES128-SHA:@SECLEVEL=0"],
        &["-tls1_2", "-cipher", "DHE-RSA-AES128-GCM-SHA256:ADH:NULL:@SECLEVEL=0"],
    ] {
        let (is_ok, reply) = openssl(&server, &authority, weak, "version\r\nquit\r\n");
        assert!(!is_ok && reply.is_empty(), "{weak:?}: {reply}");
    }
    let file = authority.file();
    let curl = |arguments: &[&str]| {
        let common = ["--silent", "--show-error", "--fail", "--cacert", text(&file)];
        let output = external("curl", &[&common[..], arguments].concat(), "");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let url = format!("https://{}/", server.address());
    assert_eq!(curl(&[&format!("{url}k")]), "v");
    // WebDAV has the connection, and its session, for its own requests.
    let get = "GET /k HTTP/1.1\r\nHost: 127.0.0.1\r\n";
    let find = "PROPFIND /k HTTP/1.1\r\nHost: 127.0.0.1\r\nDepth: 0\r\n\r\n";
    let input = format!("{get}\r\n{find}{get}\r\n{find}{get}Connection: close\r\n\r\n");
    let (_, replies) = openssl(&server, &authority, &["-ign_eof"], &input);
    assert_eq!(replies.matches("\r\n\r\nv").count(), 3, "{replies}");
    assert_eq!(replies.matches("<D:href>/k</D:href>").count(), 2, "{replies}");
    let value = "w".repeat(300_000);
    std::fs::write(server.folder.path().join("value"), &value).expect("a file");
    let upload = server.folder.path().join("value");
    curl(&["--request", "MKCOL", &format!("{url}folder/")]);
    curl(&["--upload-file", text(&upload), &format!("{url}folder/file")]);
    let listing =
        curl(&["--request", "PROPFIND", "--header", "Depth: 1", &format!("{url}folder/")]);
    assert!(listing.contains("folder/file") && listing.contains("300000"), "{listing}");
    let file_url = format!("{url}folder/file");
    let moved = format!("Destination: {url}folder/moved");
    curl(&["--request", "MOVE", "--header", &moved, &file_url]);
    let twice = curl(&[&format!("{url}folder/moved"), &format!("{url}folder/moved")]);
    assert!(twice == format!("{value}{value}"), "{} bytes", twice.len());
}

#[test]
fn a_certificate_whose_name_is_no_user_is_refused_with_that_name() {
    let authority = Authority::new();
    let (file, bob) = (authority.file(), authority.client("bob"));
    let users = authority.folder().join("users");
    add_with(&users, "ann", "secret", "read,write");
    let files = authority.server(&["127.0.0.1"]);
    let options = ["--users", text(&users), "--tls-client-ca", text(&file), "--webdav"];
    let server = serve("*", &files, &options);
    let address = server.address();
    let shown = ["--tls-cert", text(&bob.certificate), "--tls-key", text(&bob.key)];
    let asked = ["get", "k", "--server", &address, "--tls-ca", text(&file)];
    let error = fail("tyrant", &[&asked[..], &shown].concat());
    assert!(error.contains("it has no user bob, whom the certificate of"), "{error}");
    let reason = "the name in the client's certificate, bob, is not in the file of users";
    for method in ["GET", "PROPFIND"] {
        let (url, before) = (format!("https://{address}/k"), server.log().matches(reason).count());
        let shown = ["--cert", text(&bob.certificate), "--key", text(&bob.key)];
        let asked = ["--silent", "--cacert", text(&file), "--request", method, &url];
        let body = external("curl", &[&asked[..], &shown].concat(), "").stdout;
        assert_eq!(String::from_utf8_lossy(&body), format!("{reason}\n"));
        assert_eq!(server.log().matches(reason).count(), before + 1, "{}", server.log());
    }
    let line = "\tWARN\tlogin failed: 127.0.0.1:";
    assert!(server.log().lines().any(|one| one.contains(line) && one.ends_with(reason)));
}

#[test]
fn a_replica_seeds_itself_and_follows_over_tls_with_a_certificate_of_its_own() {
    let authority = Authority::new();
    let files = authority.server(&["127.0.0.1"]);
    let (file, client) = (authority.file(), authority.client("replica"));
    let master = serve(
        "casket.tch",
        &files,
        &["--server-id", "1", "--update-log", "ulog", "--tls-client-ca", text(&file)],
    );
    let master_address = master.address();
    let shown = ["--tls-cert", text(&client.certificate), "--tls-key", text(&client.key)];
    let at_master = [&["--server", &master_address, "--tls-ca", text(&file)][..], &shown].concat();
    let put = |key: &str| {
        succeed("tyrant", &[&["put", key, "value"][..], &at_master].concat());
    };
    put("before");
    let error = fail("tyrant", &["get", "k", "--server", &master_address, "--tls-ca", text(&file)]);
    assert!(error.contains("show the server a certificate with --tls-cert FILE"), "{error}");
    let trusting = ["--master-tls", "--master-tls-ca", text(&file)];
    for (options, advice) in [
        (&[][..], "requires TLS: master-tls"),
        (&["--master-tls"], "its authority is unknown; master-tls-ca names"),
        (&trusting, "certificate required; master-tls-ca names the authority"),
    ] {
        let following = [&["--server-id", "2", "--master", &master_address], options].concat();
        let refused = Server::tyrant("*", &following);
        wait_for(advice, || refused.log().contains(advice).then_some(()));
    }
    let following = [
        &["--server-id", "2", "--master", &master_address, "--master-tls"][..],
        &["--master-tls-ca", text(&file), "--master-tls-cert", text(&client.certificate)],
        &["--master-tls-key", text(&client.key)],
    ]
    .concat();
    let replica = Server::tyrant("casket.tch", &following);
    let holds = |key: &str| {
        let output = run("tyrant", &["get", key, "--server", &replica.address()]);
        output.status.success().then_some(())
    };
    wait_for("the copy", || holds("before"));
    put("after");
    wait_for("the change", || holds("after"));
}

#[test]
fn a_replica_seeds_itself_and_follows_encrypted_and_logged_in_and_so_does_its_own_replica() {
    let authority = Authority::new();
    let (files, file) = (authority.server(&["127.0.0.1"]), authority.file());
    let (users, credentials) =
        (authority.folder().join("users"), authority.folder().join("credentials"));
    add_with(&users, "copier", "secret", "read,write,admin");
    std::fs::write(&credentials, "copier:secret\n").expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&credentials, mode).expect("its permissions");
    let required = ["--users", text(&users), "--update-log", "ulog", "--tls-ca", text(&file)];
    let (required, tools) = required.split_at(4);
    let login = ["--credentials", text(&credentials)];
    let master = serve("casket.tch", &files, &[required, &["--server-id", "1"]].concat());
    let at = |server: &Server, arguments: &[&str]| {
        let address = server.address();
        run("tyrant", &[arguments, &["--server", &address], tools, &login].concat())
    };
    let address = master.address();
    let trusting = ["--master-tls", "--master-tls-ca", text(&file)];
    for (options, advice) in [
        (&trusting[..], "; master-credentials names a login for a master with users"),
        (
            &["--master-credentials", text(&credentials), "--master-plain-login"],
            "the master requires TLS: master-tls",
        ),
    ] {
        let following = [&["--server-id", "9", "--master", &address], options].concat();
        let refused = Server::tyrant("*", &following);
        wait_for(advice, || refused.log().contains(advice).then_some(()));
    }
    let plain = Server::tyrant("*", &["--update-log", "ulog", "--server-id", "8"]);
    let plain_address = plain.address();
    let following = ["--server-id", "9", "--master", &plain_address, "--master-tls"];
    let refused = Server::tyrant("*", &following);
    let advice = "does not speak TLS; leave out master-tls";
    wait_for(advice, || refused.log().contains(advice).then_some(()));
    let put = |key: &str| {
        let output = at(&master, &["put", key, "value"]);
        assert!(output.status.success(), "{output:?}");
    };
    put("before");
    let follow = |master: &Server, id: &str| {
        let address = master.address();
        let following = [
            &["--server-id", id, "--master", &address, "--master-tls"][..],
            &["--master-tls-ca", text(&file), "--master-credentials", text(&credentials)],
        ];
        serve("casket.tch", &files, &[required, &following.concat()].concat())
    };
    let replica = follow(&master, "2");
    let last = follow(&replica, "3");
    for (server, name) in [(&replica, "the replica"), (&last, "its replica")] {
        let holds = |key: &str| at(server, &["get", key]).status.success().then_some(());
        wait_for(&format!("the copy at {name}"), || holds("before"));
    }
    put("after");
    for (server, name) in [(&replica, "the replica"), (&last, "its replica")] {
        let holds = |key: &str| at(server, &["get", key]).status.success().then_some(());
        wait_for(&format!("the change at {name}"), || holds("after"));
    }
    // Without a login, or without TLS, no replica gets anything.
    let address = master.address();
    for (settings, reason) in [
        (&["--master-tls", "--master-tls-ca", text(&file)][..], "it may require a login as a user"),
        (&["--master-credentials", text(&credentials)][..], "the master requires TLS: master-tls"),
    ] {
        let common = ["--server-id", "4", "--master", &address];
        let refused = Server::tyrant("casket.tch", &[&common, settings].concat());
        wait_for(reason, || refused.log().contains(reason).then_some(()));
        refused.exchange("get before\r\n", "END\r\n");
    }
}

#[test]
fn a_hangup_reads_the_certificates_again_and_keeps_the_connections() {
    let (authority, other) = (Authority::new(), Authority::new());
    let files = authority.server(&["127.0.0.1"]);
    let server = serve("casket.tch", &files, &["--tls-optional"]);
    let mut plain = server.connect();
    let (address, file, new) = (server.address(), authority.file(), other.file());
    let get = |authority: &Path| {
        run("tyrant", &["get", "k", "--server", &address, "--tls-ca", text(authority)])
    };
    let is_refused = |authority: &Path| {
        let output = get(authority);
        String::from_utf8_lossy(&output.stderr).contains("invalid peer certificate")
    };
    assert!(!is_refused(&file) && is_refused(&new));
    let replacement = other.server(&["127.0.0.1"]);
    std::fs::copy(&replacement.certificate, &files.certificate).expect("a copy");
    std::fs::copy(&replacement.key, &files.key).expect("a copy");
    server.signal(Signal::HUP);
    wait_for("the new certificate", || (!is_refused(&new)).then_some(()));
    assert!(is_refused(&file));
    exchange(&mut plain, "get k\r\n", "END\r\n");
    std::fs::write(&files.key, "no key").expect("a file");
    server.signal(Signal::HUP);
    wait_for("an error", || server.log().contains("no private key in").then_some(()));
    assert!(!is_refused(&new));
    // A client's reload does the same.
    let reload = ["reload", "--server", &address, "--tls-ca", text(&new)];
    let error = fail("tyrant", &reload);
    let reason = "all settings stay as they were: tls-cert: no private key in ";
    assert!(error.contains(reason) && !is_refused(&new), "{error}");
    let renewed = authority.server(&["127.0.0.1"]);
    assert_eq!(text(&renewed.certificate), text(&files.certificate));
    let read = succeed("tyrant", &reload);
    let expected = format!("; read the certificates in {}; ", text(&files.certificate));
    assert!(read.contains(&expected), "{read}");
    assert!(!is_refused(&file) && is_refused(&new));
}

#[test]
fn a_reload_with_an_error_in_another_file_reads_no_certificate() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (files, folder) =
        (authority.server(&["127.0.0.1"]), tempfile::tempdir().expect("a folder"));
    let users = folder.path().join("users");
    crate::users::add(&users, "ann", "secret");
    let server = serve("+", &files, &["--users", text(&users)]);
    let replacement = other.server(&["127.0.0.1"]);
    std::fs::copy(&replacement.certificate, &files.certificate).expect("a copy");
    std::fs::copy(&replacement.key, &files.key).expect("a copy");
    std::fs::write(&users, "no users").expect("a file");
    server.signal(Signal::HUP);
    wait_for("the error", || server.log().contains("reload failed, all settings").then_some(()));
    assert!(!server.log().contains("read the certificates"), "{}", server.log());
    let (address, file) = (server.address(), authority.file());
    let error = fail("tyrant", &["get", "k", "--server", &address, "--tls-ca", text(&file)]);
    assert!(error.contains("requires a user"), "{error}");
}

#[test]
fn a_servers_certificate_of_an_authority_is_a_warning_until_it_is_replaced() {
    let authority = Authority::new();
    let (own, right) = (authority.own(), authority.server(&["127.0.0.1"]));
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let files = Files { certificate: file("c.pem"), key: file("c.key") };
    let replace = |by: &Files| {
        std::fs::copy(&by.certificate, &files.certificate).expect("a copy");
        std::fs::copy(&by.key, &files.key).expect("a copy");
    };
    replace(&own);
    let server = serve("*", &files, &[]);
    let trusted = authority.file();
    let arguments = ["get", "k", "--server", &server.address(), "--tls-ca", text(&trusted)];
    assert!(fail("tyrant", &arguments).contains("CA:TRUE"));
    let certificate = files.certificate.display();
    let begins =
        format!("\tWARN\tthe certificate in {certificate} is that of an authority (CA:TRUE)");
    wait_for(&begins, || server.log().contains(&begins).then_some(()));
    replace(&right);
    server.signal(Signal::HUP);
    let ends = format!("no warning any more: certificate of an authority in {certificate}");
    wait_for(&ends, || server.log().contains(&ends).then_some(()));
    // A reload warns, too, also the one who asked for it.
    replace(&own);
    let reload = ["reload", "--server", &server.address(), "--tls-insecure"];
    let report = succeed("tyrant", &reload);
    assert!(report.contains("warning: the certificate in "), "{report}");
    wait_for("another warning", || (server.log().matches(&begins).count() == 2).then_some(()));
    // Nor do clients take a name of the subject alone.
    replace(&authority.server(&[]));
    let report = succeed("tyrant", &reload);
    assert!(report.contains("has neither a host name nor an address (subjectAltName)"), "{report}");
    let error = fail("tyrant", &arguments);
    assert!(error.contains("needs another one, made with subjectAltName=DNS:NAME"), "{error}");
}

#[test]
fn the_check_of_a_file_warns_of_certificates_as_a_start_does() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tyrant.toml");
    let check = |files: &Files| {
        let (certificate, key) = (&files.certificate, &files.key);
        let tls = format!("tls-cert = {certificate:?}\ntls-key = {key:?}\n");
        let databases = "[[database]]\nname = '*'\nport = 1\n[[database]]\nname = '+'\nport = 2\n";
        std::fs::write(&file, tls + databases).expect("a file");
        let output = run("tyrant", &["config", "--check", text(&file)]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    assert_eq!(check(&authority.server(&["127.0.0.1"])), "");
    // Both certificates with an end are in one file.
    type Make<'m> = &'m dyn Fn() -> Files;
    let cases: [(Make<'_>, &str); 4] = [
        (&|| authority.own(), "is that of an authority (CA:TRUE), which clients refuse"),
        (&|| authority.server(&[]), "has neither a host name nor an address (subjectAltName)"),
        (
            &|| authority.server_until(&["127.0.0.1"], -3),
            "has ended 3 days ago, clients refuse it: replace it",
        ),
        (&|| authority.server_until(&["127.0.0.1"], 2), "ends in 1 day: replace it, and reload"),
    ];
    for (make, expected) in cases {
        let warnings = check(&make());
        let begin = format!("{}: warning: the certificate in ", file.display());
        let of_it = warnings.lines().filter(|line| line.contains(expected));
        assert_eq!(of_it.filter(|line| line.starts_with(&begin)).count(), 1, "{warnings}");
    }
}

#[test]
fn settings_of_tls_that_cannot_be_in_effect_are_named() {
    let authority = Authority::new();
    let files = authority.server(&["127.0.0.1"]);
    let (certificate, key) = (text(&files.certificate), text(&files.key));
    let other = authority.client("other");
    let other = text(&other.key);
    for (arguments, reason) in [
        (&["--tls-cert", key, "--tls-key", key][..], "no certificate in"),
        (&["--tls-cert", certificate, "--tls-key", "/nowhere"], "cannot read /nowhere"),
        (&["--tls-cert", certificate, "--tls-key", other], "is not that of the certificate in"),
    ] {
        let error = fail("tyrant", &[&["serve", "*"][..], arguments].concat());
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
    for (arguments, reason) in [
        (&["--tls-cert", certificate][..], "tls-cert: requires tls-key"),
        (&["--tls-key", key], "tls-key: requires tls-cert"),
        (&["--tls-optional"], "tls-optional: requires tls-cert"),
        (
            &["--tls-cert", certificate, "--tls-key", key, "--unix", "s"],
            "requires port, host or tls-port",
        ),
        (
            &["--tls-cert", certificate, "--tls-key", key, "--tls-port", "1978"],
            "tls-port: 1978 is that of setting port too; choose another",
        ),
        (&["--master-tls-insecure"], "master-tls-insecure: requires master-tls"),
    ] {
        let error = misuse(&[&["serve", "*"][..], arguments].concat());
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
}
