//! Implementation of the programs `tyrant`, `ttserver`, `tcrmgr` and `ttulmgr`.
//!
//! Each program is a command line: arguments in, exit code out. The crates `server` and `client` do
//! the work. This crate adds the log, signals, pid file and daemon of a server, and prints results.

mod backup;
mod bytes;
pub mod commands;
mod daemon;
mod listing;
mod logging;
mod pid_file;
mod remote;
mod serving;
mod signals;
mod sizes;
pub mod tcrmgr;
mod transfer;
pub mod ttserver;
pub mod ttulmgr;
mod updates;

/// The version of the programs.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Versions of Tokyo Tyrant's library and protocol that the programs are compatible with.
const TOKYO_TYRANT_VERSIONS: &str = "324:0.91";

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

/// Returns whether the error is only a closed output pipe, as in `... | head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
