//! Databases that another process has open: which one.

use rustix::fs::{major, minor};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// File of a database that the process which has it open locks.
const LOCK: &str = "lock";

/// Socket in the folder of a database by which its server is reached.
pub(crate) const SOCKET: &str = "server.socket";

/// Returns what to do about a database that is open already.
pub(crate) fn text(folder: &Path) -> String {
    let path = folder.display();
    let is_served = UnixStream::connect(folder.join(SOCKET)).is_ok();
    match holder(folder) {
        Some(process) if is_served => format!(
            "{path} is open already, in process {process}, the server of those that share it: open \
             it with shared=True"
        ),
        Some(process) if process != std::process::id() => format!(
            "{path} is open already, in process {process}: close it there, or open it with \
             shared=True in each process"
        ),
        _ => format!(
            "{path} is open already, in another process or in this one: close it there, share the \
             object that has it open, or open it with shared=True in each process"
        ),
    }
}

/// Returns the process that has locked a database, if the system shows it.
fn holder(folder: &Path) -> Option<u32> {
    let lock = fs::metadata(folder.join(LOCK)).ok()?;
    let (device, inode) = (lock.dev(), lock.ino());
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let mut lines = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // 1: FLOCK ADVISORY WRITE PROCESS DEVICE:INODE 0 EOF
    let line = lines.find(|line| line.get(5) == Some(&file.as_str()))?;
    line.get(4)?.parse().ok()
}
