//! Building the programs and running the server.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the server may take to accept connections: it may have to recover first.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// How the programs are built.
#[derive(Clone, Copy)]
pub(crate) enum Profile {
    Debug,
    Release,
}

/// The workspace's folder.
pub(crate) fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the folder in which cargo builds.
pub(crate) fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// Runs cargo in the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Result<()> {
    run(Command::new(env!("CARGO")).args(arguments).current_dir(workspace()))
}

/// Runs cargo in the workspace, with a variable in its environment.
pub(crate) fn run_with(arguments: &[&str], (variable, value): (&str, &str)) -> Result<()> {
    println!("$ {variable}={value} \\");
    run(Command::new(env!("CARGO")).args(arguments).env(variable, value).current_dir(workspace()))
}

/// Runs a program to its end, which has to be a success.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", line(command));
    let status = command.status().with_context(|| format!("cannot run {}", line(command)))?;
    ensure!(status.success(), "{} ended with {status}", line(command));
    Ok(())
}

/// Runs a program whose output is of no interest unless it fails.
pub(crate) fn run_quietly(command: &[&str]) -> Result<()> {
    let [program, arguments @ ..] = command else { bail!("no program") };
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {error}", command.join(" "));
    Ok(())
}

/// Whether a program can be run, and succeeds.
pub(crate) fn succeeds(command: &[&str]) -> bool {
    let [program, arguments @ ..] = command else { return false };
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(OsStr::to_string_lossy));
    words.join(" ")
}

/// Builds the programs; answers the folder they are in.
pub(crate) fn build(profile: Profile) -> Result<PathBuf> {
    let mut arguments = vec!["build", "--package", "tyrant", "--bins"];
    let folder = match profile {
        Profile::Debug => "debug",
        Profile::Release => {
            arguments.push("--release");
            "release"
        }
    };
    cargo(&arguments)?;
    Ok(target_folder().join(folder))
}

/// A running `tyrant serve`, killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

impl Server {
    /// Starts the server on a free port of the loopback and waits until it accepts connections.
    /// Its log goes to a file beside the database.
    pub(crate) fn start(programs: &Path, database: &Path) -> Result<Self> {
        Self::start_logging(programs, database, &database.with_extension("log"))
    }

    /// The same with its log elsewhere.
    pub(crate) fn start_logging(programs: &Path, database: &Path, log: &Path) -> Result<Self> {
        Self::start_with(programs, database, log, &[])
    }

    /// The same with further options.
    pub(crate) fn start_with(
        programs: &Path,
        database: &Path,
        log: &Path,
        options: &[&str],
    ) -> Result<Self> {
        Self::start_by(|command| command, programs, database, log, options)
    }

    /// The same by another command, which `enclose` makes of the server's.
    pub(crate) fn start_by(
        enclose: impl FnOnce(Command) -> Command,
        programs: &Path,
        database: &Path,
        log: &Path,
        options: &[&str],
    ) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(programs.join("tyrant"));
        command
            .arg("serve")
            .arg(database)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .arg("--log")
            .arg(log)
            .args(options);
        let child =
            enclose(command).stdin(Stdio::null()).spawn().context("cannot start the server")?;
        let mut server = Self { child, port };
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server ended with {status}");
            }
            ensure!(Instant::now() < deadline, "the server does not accept connections");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// SIGTERM, and wait until it has closed the database and ended.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM)
            .context("cannot stop the server")?;
        let status = self.child.wait().context("cannot wait for the server")?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }

    /// SIGKILL, and wait until it is gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().context("cannot kill the server")?;
        self.child.wait().context("cannot wait for the server")?;
        Ok(())
    }

    /// How the server has ended, if it has.
    pub(crate) fn ending(&mut self) -> Result<Option<std::process::ExitStatus>> {
        self.child.try_wait().context("cannot look after the server")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already, which is what is wanted.
        let _ = self.kill();
    }
}

/// A port that nobody listens on, below those that systems give to the clients' ends: one of
/// those connects to itself when it is tried before the server listens.
pub(crate) fn free_port() -> Result<u16> {
    let first = std::process::id() % 20_000;
    (0..20_000)
        .map(|tried| 10_000 + ((first + tried) % 20_000) as u16)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .context("no free port")
}
