//! Becoming a daemon without forking: the program starts itself again, with a mark in the
//! environment, and waits until that process says it is ready.
//!
//! The child leads a session of its own and stays in the folder it was started in, so that
//! relative paths mean what they say. (Tokyo Tyrant goes to `/`, where they do not, and clears
//! the umask.)

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};

/// Set in the environment of the child.
const MARK: &str = "TYRANT_DAEMON";

/// What the child writes to its standard output, a pipe to the parent, once it serves.
const READY: &[u8] = b"ready";

/// Whether this process is the child.
pub(crate) fn is_child() -> bool {
    std::env::var_os(MARK).is_some()
}

/// In the parent: starts the child with the arguments of this process and waits until it is
/// ready (success) or has ended before (its exit code; its messages are on the standard error).
pub(crate) fn start() -> Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find the program's own file")?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the daemon")?;
    let mut said = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        pipe.take(READY.len() as u64).read_to_end(&mut said).context("cannot hear the daemon")?;
    }
    if said == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().context("cannot wait for the daemon")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, Into::into))
}

/// In the child, first of all: leaves the session of the terminal.
pub(crate) fn detach() -> Result<()> {
    rustix::process::setsid().context("cannot start a session")?;
    Ok(())
}

/// In the child, once it serves: tells the parent and lets go of its terminal.
pub(crate) fn ready() -> Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(READY).and_then(|()| output.flush()).context("cannot tell the parent")?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())
        .context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdout(&null).context("cannot leave the standard output")?;
    rustix::stdio::dup2_stderr(&null).context("cannot leave the standard error")?;
    Ok(())
}
