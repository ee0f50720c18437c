//! Implementation of the programs `tyrant`, `ttserver`, `tcrmgr` and `ttulmgr`, which are one
//! program that looks at its name.
//!
//! Each is a command line: arguments in, exit code out. The crates `server` and `client` do
//! the work. This crate adds the log, signals, pid file and daemon of a server, and prints results.

mod backup;
mod bytes;
mod cluster;
pub mod commands;
mod daemon;
mod errors;
mod listing;
mod logging;
mod output;
mod paint;
mod password;
mod pid_file;
mod plural;
mod privileges;
mod reload;
mod remote;
mod say;
mod scripting;
mod serving;
mod settings;
mod signals;
mod sizes;
mod systemd;
pub mod tcrmgr;
mod temporary;
mod time;
mod transfer;
pub mod ttserver;
pub mod ttulmgr;
mod updates;

use errors::{describe, is_broken_pipe};

/// musl's own allocator has one lock for all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The version of the programs.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Versions of Tokyo Tyrant's library and protocol that the programs are compatible with.
const TOKYO_TYRANT_VERSIONS: &str = "324:0.91";

/// Runs the program by whose name this process was called: one of Tokyo Tyrant's, or else `tyrant`.
pub fn run() -> std::process::ExitCode {
    let path = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&path).file_name();
    match name.and_then(std::ffi::OsStr::to_str) {
        Some("ttserver") => ttserver::run(),
        Some("tcrmgr") => tcrmgr::run(),
        Some("ttulmgr") => ttulmgr::run(),
        _ => commands::run(),
    }
}

/// Returns the version line, in Tokyo Tyrant's format.
fn version_line() -> String {
    format!("Tyrant version {VERSION} ({TOKYO_TYRANT_VERSIONS}) for Linux")
}

/// Returns the name of this program as called, and its arguments.
fn arguments(name: &str) -> (String, impl Iterator<Item = std::ffi::OsString>) {
    let mut arguments = std::env::args_os();
    let program = arguments.next().map(|program| program.to_string_lossy().into_owned());
    (program.unwrap_or_else(|| name.to_owned()), arguments)
}
