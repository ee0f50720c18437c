//! `os.execute`, if programs are allowed: it ends a program that runs longer than its call may.

use super::Installer;
use crate::context::Context;
use mlua::{LuaString, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

/// Times between two looks at a program, which double from the first to the last.
const WAIT_MIN: Duration = Duration::from_micros(200);
const WAIT_MAX: Duration = Duration::from_millis(10);

/// Result for a program that cannot be started, or whose end is unknown.
const FAILED: i32 = -1;

/// Adds the function to the table `os`.
pub(super) fn install(installer: &Installer<'_>) -> Result<()> {
    installer.add("execute", |_, context, command: Option<LuaString>| match command {
        Some(command) => execute(context, OsStr::from_bytes(&command.as_bytes())),
        // There is a shell.
        None => Ok(1),
    })
}

/// Executes a command of the shell. Returns its status as C's `system` does.
fn execute(context: &Context, command: &OsStr) -> Result<i32> {
    let mut shell = Command::new("/bin/sh");
    // A group of its own, so that what the shell has started ends with it.
    match shell.arg("-c").arg(command).process_group(0).spawn() {
        Ok(mut child) => wait(context, &mut child).inspect_err(|_| end(&mut child)),
        Err(_) => Ok(FAILED),
    }
}

/// Waits for a program. Fails at the end of the call's time.
fn wait(context: &Context, child: &mut Child) -> Result<i32> {
    let mut pause = WAIT_MIN;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.into_raw()),
            Ok(None) => {}
            Err(_) => return Ok(FAILED),
        }
        context.check()?;
        thread::sleep(pause.min(context.clock.remaining()));
        pause = (pause * 2).min(WAIT_MAX);
    }
}

/// Ends a program and those that it has started.
fn end(child: &mut Child) {
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        // It may have ended meanwhile.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}
