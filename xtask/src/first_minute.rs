//! First minute of a newcomer: a clean clone in a new root without caches, built and started by the
//! README's first command, with the time of each step.

use crate::package::archive_of_root;
use crate::programs::{run, target_folder, workspace};
use crate::requirements::is_root;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Packages of the root: what the README asks for beside the toolchain.
const PACKAGES: &str = "build-essential,ca-certificates,git";

/// Port of the README's first command.
const PORT: u16 = 1978;

/// Longest time until the server replies, once it is built.
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// Command that runs in the root with the toolchain, the source and the network's files.
///
/// The mounts are in a namespace of their own, and vanish with it.
const ENTER: &str = "mount --bind -o ro \"$TOOLCHAIN\" \"$ROOT/toolchain\" && \
    mount --bind -o ro \"$SOURCE\" \"$ROOT/source\" && \
    mount -t proc proc \"$ROOT/proc\" && \
    exec chroot \"$ROOT\" env -i HOME=/root PATH=/toolchain/bin:/usr/bin:/bin \
        SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt sh -ec \"$SCRIPT\"";

/// Clones, builds and starts. Prints a row for each step.
pub(crate) fn run_all() -> Result<()> {
    ensure!(is_root(), "a new root needs root: run it as root");
    ensure!(
        TcpListener::bind(("127.0.0.1", PORT)).is_ok(),
        "port {PORT} is in use, and the README's first command needs it: stop what listens there"
    );
    let archive = archive_of_root("newcomer", PACKAGES)?;
    let folder = tempfile::tempdir_in(target_folder()).context("no temporary folder")?;
    let root = folder.path().join("root");
    fs::create_dir(&root).context("the root")?;
    run(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&root))?;
    for mounted in ["toolchain", "source"] {
        fs::create_dir(root.join(mounted)).context("the root")?;
    }
    // The network of this machine, and whom it trusts.
    for file in ["etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"] {
        let from = Path::new("/").join(file);
        fs::copy(&from, root.join(file)).with_context(|| format!("cannot copy {file}"))?;
    }
    let newcomer = Newcomer { root: &root, toolchain: toolchain()? };

    let clone = newcomer.time("git clone --quiet --no-hardlinks file:///source /root/tyrant")?;
    let download = newcomer.time("cd /root/tyrant && cargo fetch --quiet --locked")?;
    let build = newcomer.time("cd /root/tyrant && cargo build --quiet --release --offline")?;
    let reply = newcomer.first_reply()?;
    let program = root.join("root/tyrant/target/release/tyrant");
    let size = fs::metadata(&program).context("the program")?.len();
    run(Command::new("strip").arg(&program))?;
    let stripped = fs::metadata(&program).context("the program")?.len();

    println!("\n| step | |\n|---|---:|");
    for (step, time) in [
        ("`git clone`, of a local folder", clone),
        ("`cargo fetch`", download),
        ("`cargo build --release`", build),
        ("`cargo run --release`, up to the first reply", reply),
    ] {
        println!("| {step} | {:.1} s |", time.as_secs_f64());
    }
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("| `tyrant` | {:.1} MiB |", mebibytes(size));
    println!("| the same, stripped | {:.1} MiB |", mebibytes(stripped));
    Ok(())
}

/// Returns the folder of the toolchain in use.
fn toolchain() -> Result<String> {
    let mut command = Command::new("rustc");
    command.args(["--print", "sysroot"]).current_dir(workspace());
    let output = command.output().context("cannot run rustc")?;
    let path = String::from_utf8(output.stdout).context("the folder of the toolchain")?;
    Ok(path.trim().to_owned())
}

/// A user in a new root.
struct Newcomer<'a> {
    root: &'a Path,
    toolchain: String,
}

impl Newcomer<'_> {
    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-ec", ENTER])
            .env("ROOT", self.root)
            .env("TOOLCHAIN", &self.toolchain)
            .env("SOURCE", workspace())
            .env("SCRIPT", script);
        command
    }

    /// Runs a script, which must succeed. Returns its time.
    fn time(&self, script: &str) -> Result<Duration> {
        println!("$ {script}");
        let begun = Instant::now();
        let status = self.command(script).status().context("cannot run unshare")?;
        ensure!(status.success(), "{script} ended with {status}");
        Ok(begun.elapsed())
    }

    /// Starts the server by the README's first command. Returns the time until it has stored a
    /// record and read it again.
    fn first_reply(&self) -> Result<Duration> {
        let script = "cd /root/tyrant && exec cargo run --release --offline";
        println!("$ {script}");
        let begun = Instant::now();
        let mut command = self.command(script);
        command.process_group(0).stdout(Stdio::null());
        let mut server = Started(command.spawn().context("cannot run unshare")?);
        let stream = server.connect()?;
        let mut lines = BufReader::new(&stream).lines();
        (&stream).write_all(b"set a 0 0 1\r\nb\r\nget a\r\n").context("cannot send")?;
        for expected in ["STORED", "VALUE a 0 1", "b", "END"] {
            let line = lines.next().context("the server closed the connection")??;
            ensure!(line == expected, "the server replied {line:?}, not {expected:?}");
        }
        Ok(begun.elapsed())
    }
}

/// A server with the processes that started it, ended when dropped.
struct Started(Child);

impl Started {
    fn connect(&mut self) -> Result<TcpStream> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", PORT)) {
                return Ok(stream);
            }
            if let Some(status) = self.0.try_wait()? {
                bail!("the server ended with {status}");
            }
            ensure!(Instant::now() < deadline, "the server does not accept connections");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}
