//! Nodes that require TLS, a certificate of each client, and a password.

use super::{LOOK_INTERVAL, Nodes, START_TIMEOUT, cql};
use crate::certificates::{Authority, Files};
use crate::memcached::Connection;
use crate::programs::{Profile, Server, build, run};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::Instant;

/// User and password of new clusters of Cassandra.
pub(super) const FIRST_USER: &str = "cassandra";
const FIRST_PASSWORD: &str = "cassandra";

/// Settings in place of those that let everybody in, and one of which operators are warned.
const REPLACED: [(&str, &str); 3] = [
    ("commitlog_sync: batch", "commitlog_sync: periodic\ncommitlog_sync_period: 10s"),
    ("authenticator: AllowAllAuthenticator", "authenticator: PasswordAuthenticator"),
    ("authorizer: AllowAllAuthorizer", "authorizer: CassandraAuthorizer"),
];

/// Files of the certificates and the password, in one folder.
#[derive(Clone)]
pub(super) struct Security {
    folder: PathBuf,
}

impl Security {
    /// Certifies nodes and a client, in a new folder.
    pub(super) fn make(folder: &Path, nodes: &[Ipv4Addr]) -> Result<Self> {
        let authority = Authority::new();
        let addresses: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let Files { certificate, key } = authority.server(&addresses);
        let client = authority.client("client");
        let security = Self { folder: folder.to_owned() };
        fs::create_dir_all(folder).context("cannot make a folder")?;
        // A node takes its key and its certificate from one file.
        let both = [fs::read(key)?, fs::read(certificate)?].concat();
        fs::write(security.file("node.pem"), both)?;
        fs::copy(authority.file(), security.file("authority.pem"))?;
        fs::copy(client.certificate, security.file("client.pem"))?;
        fs::copy(client.key, security.file("client.key"))?;
        fs::write(security.file("password"), format!("{FIRST_PASSWORD}\n"))?;
        Ok(security)
    }

    /// Returns the files of an earlier process, if there are any.
    pub(super) fn present(folder: &Path) -> Option<Self> {
        folder.exists().then(|| Self { folder: folder.to_owned() })
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the settings of a node, given those of one that lets everybody in.
    pub(super) fn settings(&self, open: &str) -> String {
        let mut settings = open.to_owned();
        for (open, secure) in REPLACED {
            settings = settings.replace(open, secure);
        }
        let (node, authority) = (self.file("node.pem"), self.file("authority.pem"));
        settings
            + &format!(
                "client_encryption_options:\n  enabled: true\n  optional: false\n  \
                 require_client_auth: true\n  ssl_context_factory:\n    \
                 class_name: org.apache.cassandra.security.PEMBasedSslContextFactory\n  \
                 keystore: {}\n  truststore: {}\n",
                node.display(),
                authority.display()
            )
    }

    /// Returns how a client of the nodes encrypts.
    pub(super) fn client(&self) -> Result<tls::ClientConfig> {
        let settings = tls::ClientSettings {
            authorities: Some(self.file("authority.pem")),
            identity: Some((self.file("client.pem"), self.file("client.key"))),
            ..tls::ClientSettings::default()
        };
        Ok(settings.read()?)
    }

    /// Returns the first user and its password, as a client sends them.
    pub(super) fn login(&self) -> Vec<u8> {
        format!("\0{FIRST_USER}\0{FIRST_PASSWORD}").into_bytes()
    }

    /// Returns the options of a database's name for the first user.
    pub(super) fn options(&self) -> String {
        format!("{}{}", self.with_login(FIRST_USER, "password"), self.with_tls())
    }

    fn with_login(&self, user: &str, file: &str) -> String {
        format!("#user={user}#password={}", self.file(file).display())
    }

    fn with_tls(&self) -> String {
        let [ca, cert, key] =
            ["authority.pem", "client.pem", "client.key"].map(|name| self.file(name));
        format!("#ca={}#cert={}#key={}", ca.display(), cert.display(), key.display())
    }
}

/// Tries right and wrong passwords, certificates, rights and data centres.
pub(super) fn run_all(profile: Profile) -> Result<()> {
    let programs = build(profile)?;
    let nodes = Nodes::start_secure(1)?;
    let security = nodes.security().context("nodes without security")?.clone();
    let base = format!("cassandra://{}/secure", nodes.contact_points());
    let name = format!("{base}{}", security.options());
    let tyrant =
        |arguments: &[&str]| Command::new(programs.join("tyrant")).args(arguments).output();
    let told = |output: Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = told(tyrant(&["cluster", "init", &name])?);
    let reason = "is 3, and the number of nodes that can have a replica is 1: a majority, 2,";
    ensure!(refused.contains(reason) && refused.contains("--replication"), "{refused}");
    let init = ["cluster", "init", "--replication", "1", &name];
    run(Command::new(programs.join("tyrant")).args(init))?;
    let warned = tyrant(&["cluster", "check", &name])?;
    ensure!(warned.status.success(), "{}", warned.status);
    let warned = told(warned);
    println!("warnings of one node: {}", warned.trim_end());
    for warning in ["commitlog_sync is periodic", "requests fail while one of them is away"] {
        ensure!(warned.contains(warning), "{warned}");
    }
    ensure!(warned.lines().count() == 2, "{warned}");

    // A user of the server needs no rights but these.
    let execute = |statement: &str| nodes.execute(1, statement, cql::ONE);
    for (user, password) in [("server", "secret"), ("stranger", "secret")] {
        execute(&format!("CREATE ROLE {user} WITH PASSWORD = '{password}' AND LOGIN = true"))?;
        fs::write(security.file(user), password)?;
    }
    for right in ["SELECT", "MODIFY"] {
        execute(&format!("GRANT {right} ON KEYSPACE secure TO server"))?;
    }
    fs::write(security.file("wrong"), "wrong")?;
    let other = Authority::new();
    let stranger = other.client("client");
    let own_tls = security.with_tls();
    let login = security.with_login("server", "server");
    let ca = format!("#ca={}", security.file("authority.pem").display());

    let server_name = format!("{base}{login}{own_tls}#dc=dc1");
    let log = security.file("log");
    serve(&programs, &server_name, &log)?;
    let logged = fs::read_to_string(&log)?;
    ensure!(logged.contains("system_views.settings"), "no warning in the log: {logged}");
    // With one right more, a user of the server sees the settings.
    execute("GRANT SELECT ON system_views.settings TO server")?;
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        let warned = told(tyrant(&["cluster", "check", &server_name])?);
        if warned.contains("commitlog_sync is periodic") {
            break;
        }
        // Nodes take note of a right after some seconds.
        ensure!(Instant::now() < deadline, "{warned}");
        sleep(LOOK_INTERVAL);
    }
    for (what, options, reason) in [
        (
            "a wrong password",
            format!("{}{own_tls}", security.with_login("server", "wrong")),
            "incorrect",
        ),
        ("no password", own_tls.clone(), "give user and password"),
        (
            "a user without rights",
            format!("{}{own_tls}", security.with_login("stranger", "stranger")),
            "permission",
        ),
        (
            "a missing file",
            format!("{}{own_tls}", security.with_login("server", "missing")),
            "missing",
        ),
        ("another authority", format!("{login}#ca={}", other.file().display()), "certificate"),
        ("no client certificate", format!("{login}{ca}"), "need cert and key"),
        (
            "a client certificate of another authority",
            format!(
                "{login}{ca}#cert={}#key={}",
                stranger.certificate.display(),
                stranger.key.display()
            ),
            "may not accept the certificate",
        ),
        ("a data centre that does not exist", format!("{login}{own_tls}#dc=dc2"), "dc1"),
    ] {
        let Output { status, stderr, .. } =
            tyrant(&["cluster", "check", &format!("{base}{options}")])?;
        let told = String::from_utf8_lossy(&stderr);
        ensure!(status.code() == Some(1), "{what}: ended with {status}: {told}");
        println!("{what}: {}", told.trim_end());
        ensure!(told.contains(reason), "{what}: {told}");
        ensure!(!told.contains("secret"), "{what}: a password is shown");
    }
    // The name itself is wrong.
    let Output { status, stderr, .. } = tyrant(&["cluster", "check", &format!("{base}{login}")])?;
    let told = String::from_utf8_lossy(&stderr);
    ensure!(status.code() == Some(2), "no TLS: ended with {status}: {told}");
    ensure!(told.contains("needs ca") && !told.contains("secret"), "no TLS: {told}");
    Ok(())
}

/// Serves a database, and stores a record.
fn serve(programs: &Path, name: &str, log: &Path) -> Result<()> {
    let server = Server::start_logging(programs, Path::new(name), log)?;
    let mut connection = Connection::open(server.port)?;
    ensure!(connection.set("k", b"v")? == "STORED", "a record is not stored");
    ensure!(connection.get("k")?.as_deref() == Some(b"v"), "a record is not found");
    let reply = connection.set("k", b"w")?;
    ensure!(reply == "STORED", "a record is not replaced: {reply}");
    Ok(())
}
