//! What the programs `tyrant`, `ttserver`, `tcrmgr` and `ttulmgr` are made of.
//!
//! Each program is a command line: arguments in, exit code out. The work is done in the crates
//! `server` and `client`; here is what surrounds a server (log, signals, pid file, daemon), and
//! how results are printed.

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

/// Version of Tokyo Tyrant's library, and of its protocol, that the programs are compatible with.
const ORIGINAL_VERSIONS: &str = "324:0.91";

/// The version in Tokyo Tyrant's shape.
fn version_line() -> String {
    format!("Tyrant version {VERSION} ({ORIGINAL_VERSIONS}) for Linux")
}

/// How the program was called, and its arguments.
fn arguments(name: &str) -> (String, impl Iterator<Item = std::ffi::OsString>) {
    let mut arguments = std::env::args_os();
    let program = arguments.next().map(|program| program.to_string_lossy().into_owned());
    (program.unwrap_or_else(|| name.to_owned()), arguments)
}

/// Whether all that went wrong is that nobody reads the output any longer, as in `... | head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
