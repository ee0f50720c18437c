//! Programs: builds them and runs the server.

pub(crate) use crate::ports::free_port;

use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time until the server accepts connections, including its recovery.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Profile of a build.
#[derive(Clone, Copy)]
pub(crate) enum Profile {
    Debug,
    Release,
    /// Optimized across crates, for packages and benchmarks.
    Dist,
}

/// Target of tests under a sanitizer. Cargo applies flags for a named target to no build script.
pub(crate) const SANITIZED_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Options of cargo that select the whole workspace, with what a default build leaves out.
pub(crate) const WORKSPACE: [&str; 3] = ["--workspace", "--features", "tyrant-kv/cluster"];

/// Returns the workspace's folder.
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

/// Checks a library of the workspace with these options of cargo. A warning of the compiler is an
/// error. Lints of clippy depend on no feature and take four times as long.
pub(crate) fn check_without_warnings(options: &[&str]) -> Result<()> {
    let check = ["rustc", "--profile", "check", "--quiet", "--lib"];
    cargo(&[&check, options, &["--", "--deny", "warnings"]].concat())
}

/// Runs cargo in the workspace, with a variable in its environment.
pub(crate) fn run_with(arguments: &[&str], (variable, value): (&str, &str)) -> Result<()> {
    println!("$ {variable}={value} \\");
    run(Command::new(env!("CARGO")).args(arguments).env(variable, value).current_dir(workspace()))
}

/// Runs a program, which must succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", line(command));
    let status = command.status().with_context(|| format!("cannot run {}", line(command)))?;
    ensure!(status.success(), "{} ended with {status}", line(command));
    Ok(())
}

/// Runs a program beside others, which must succeed. Its output is printed as a whole.
pub(crate) fn run_in_whole(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {}", line(command)))?;
    let texts =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    println!("$ {}\n{}", line(command), texts.concat());
    ensure!(output.status.success(), "{} ended with {}", line(command), output.status);
    Ok(())
}

/// Runs a program whose output is only shown if it fails.
pub(crate) fn run_quietly(command: &[&str]) -> Result<()> {
    let [program, arguments @ ..] = command else { bail!("no program") };
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {error}", command.join(" "));
    Ok(())
}

/// Returns whether a program exists and succeeds.
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

/// Variable with the folder of programs that were built already.
pub(crate) const PROGRAMS_VARIABLE: &str = "XTASK_PROGRAMS";

/// Builds the programs, unless `cargo xtask test` has. Returns their folder.
pub(crate) fn build(profile: Profile) -> Result<PathBuf> {
    if let (Some(built), Profile::Debug) = (std::env::var_os(PROGRAMS_VARIABLE), profile) {
        return Ok(built.into());
    }
    let (profile, folder) = match profile {
        Profile::Debug => ("dev", "debug"),
        Profile::Release => ("release", "release"),
        Profile::Dist => ("dist", "dist"),
    };
    let program = ["build", "--package", "tyrant-kv", "--bin", "tyrant"];
    cargo(&[&program[..], &["--features", "cluster", "--profile", profile]].concat())?;
    let folder = target_folder().join(folder);
    link_programs(&folder)?;
    Ok(folder)
}

/// Names of `tyrant` by which it has Tokyo Tyrant's command lines.
pub(crate) const LINKS: [&str; 3] = ["ttserver", "tcrmgr", "ttulmgr"];

/// Makes the links to `tyrant` in a folder, in place of what has their names.
pub(crate) fn link_programs(folder: &Path) -> Result<()> {
    for link in LINKS {
        let path = folder.join(link);
        if path.symlink_metadata().is_ok() {
            std::fs::remove_file(&path).with_context(|| format!("cannot replace {link}"))?;
        }
        std::os::unix::fs::symlink("tyrant", &path)
            .with_context(|| format!("cannot make the link {link}"))?;
    }
    Ok(())
}

/// A running `tyrant serve`, killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

impl Server {
    /// Starts the server on a free port of the loopback interface and waits until it accepts
    /// connections. Its log is a file beside the database.
    pub(crate) fn start(programs: &Path, database: &Path) -> Result<Self> {
        Self::start_logging(programs, database, &database.with_extension("log"))
    }

    /// Starts the server with its log in another file.
    pub(crate) fn start_logging(programs: &Path, database: &Path, log: &Path) -> Result<Self> {
        Self::start_with(programs, database, log, &[])
    }

    /// Starts the server with further options.
    pub(crate) fn start_with(
        programs: &Path,
        database: &Path,
        log: &Path,
        options: &[&str],
    ) -> Result<Self> {
        Self::start_by(|command| command, programs, database, log, options)
    }

    /// Starts the server by another command, which `enclose` makes from the server's.
    pub(crate) fn start_by(
        enclose: impl FnOnce(Command) -> Command,
        programs: &Path,
        database: &Path,
        log: &Path,
        options: &[&str],
    ) -> Result<Self> {
        Self::start_at(free_port(), enclose, programs, database, log, options)
    }

    /// Starts the server on a port of [`free_port`], which it may have had before.
    pub(crate) fn start_at(
        port: u16,
        enclose: impl FnOnce(Command) -> Command,
        programs: &Path,
        database: &Path,
        log: &Path,
        options: &[&str],
    ) -> Result<Self> {
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

    /// Returns how many bytes the server has read from the disk.
    pub(crate) fn read_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/io", self.child.id());
        let account = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let bytes = account.lines().find_map(|line| line.strip_prefix("read_bytes: "));
        Ok(bytes.with_context(|| format!("no read_bytes in {path}"))?.parse()?)
    }

    /// Sends SIGTERM, and waits until the server has closed the database and exited.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM)
            .context("cannot stop the server")?;
        let status = self.child.wait().context("cannot wait for the server")?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }

    /// Sends SIGHUP, upon which the server reads its files again.
    pub(crate) fn reload(&self) -> Result<()> {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::HUP)
            .context("cannot signal the server")
    }

    /// Sends SIGKILL, and waits until the server has exited.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().context("cannot kill the server")?;
        self.child.wait().context("cannot wait for the server")?;
        Ok(())
    }

    /// Returns the exit status of the server, if it has exited.
    pub(crate) fn ending(&mut self) -> Result<Option<std::process::ExitStatus>> {
        self.child.try_wait().context("cannot look after the server")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.kill();
    }
}
