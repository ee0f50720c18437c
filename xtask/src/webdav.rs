//! Third-party WebDAV clients: litmus (a test suite for servers), cadaver and curl.

use crate::memcached::Connection;
use crate::programs::{Profile, Server, build, run};
use crate::requirements;
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Suites of litmus.
const SUITES: &str = "basic copymove props locks http";

/// A database of each kind that can have paths as keys: with ordered keys and with unordered ones.
const DATABASES: &[&str] = &["casket.tcb", "casket.tch"];

/// Runs all of them against a new server on each kind of database.
pub(crate) fn run_all(profile: Profile) -> Result<()> {
    requirements::install_programs()?;
    let programs = build(profile)?;
    for database in DATABASES {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let database = folder.path().join(database);
        let log = database.with_extension("log");
        let server = Server::start_with(&programs, &database, &log, &["--webdav"])?;
        let url = format!("http://127.0.0.1:{}/", server.port);
        // litmus writes its logs into the current folder.
        run(Command::new("litmus").arg(&url).env("TESTS", SUITES).current_dir(folder.path()))?;
        cadaver(&server, &url, folder.path())?;
        curl(&server, &url, folder.path())?;
    }
    Ok(())
}

fn cadaver(server: &Server, url: &str, folder: &Path) -> Result<()> {
    std::fs::write(folder.join("sent"), "sent with cadaver")?;
    let script = "mkcol folder\ncd folder\nput sent a.txt\ncopy a.txt b.txt\nmove b.txt c.txt\n\
        propset c.txt mood glad\npropget c.txt mood\nget c.txt received\ndelete a.txt\nls\nquit\n";
    println!("$ cadaver {url}");
    let mut child = Command::new("cadaver")
        .arg(url)
        .current_dir(folder)
        // cadaver writes a file into it.
        .env("HOME", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cadaver")?;
    child.stdin.take().context("no input")?.write_all(script.as_bytes())?;
    let output = child.wait_with_output().context("cannot wait for cadaver")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && !said.contains("failed"), "cadaver: {said}");
    ensure!(said.contains("glad") && said.contains("c.txt"), "cadaver: {said}");
    let received = std::fs::read_to_string(folder.join("received")).context("nothing received")?;
    ensure!(received == "sent with cadaver", "cadaver received {received:?}");
    let mut other = Connection::open(server.port)?;
    ensure!(other.get("folder/c.txt")?.as_deref() == Some(received.as_bytes()), "no record");
    ensure!(other.get("folder/a.txt")?.is_none(), "a deleted record still exists");
    Ok(())
}

fn curl(server: &Server, url: &str, folder: &Path) -> Result<()> {
    let file = |name: &str| format!("{url}folder/{name}");
    let long = vec![b'x'; 5 << 20];
    std::fs::write(folder.join("long"), &long)?;
    let curl = |arguments: &[&str]| {
        run(Command::new("curl")
            .args(["--fail", "--silent", "--show-error", "--output", "answer"])
            .args(arguments)
            .current_dir(folder))
    };
    curl(&["--upload-file", "long", "--header", "Content-Type: image/png", &file("long.bin")])?;
    curl(&[
        "--request",
        "COPY",
        "--header",
        &format!("Destination: {}", file("copy.bin")),
        &file("long.bin"),
    ])?;
    curl(&["--dump-header", "head", &file("copy.bin")])?;
    ensure!(std::fs::read(folder.join("answer"))? == long, "curl received a different file");
    let head = std::fs::read_to_string(folder.join("head"))?.to_lowercase();
    ensure!(head.contains("content-type: image/png"), "curl received the head {head}");
    curl(&["--request", "PROPFIND", "--header", "Depth: 1", &format!("{url}folder/")])?;
    let listed = std::fs::read_to_string(folder.join("answer"))?;
    ensure!(listed.contains("/folder/copy.bin<"), "curl received the listing {listed}");
    curl(&["--request", "DELETE", &file("long.bin")])?;
    ensure!(
        Connection::open(server.port)?.get("folder/long.bin")?.is_none(),
        "a deleted file still exists"
    );
    Ok(())
}
