//! The process that holds a database or a port, as far as `/proc` shows it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// State of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// A process.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holder {
    id: u32,
    program: String,
}

impl Holder {
    pub(super) fn is_this_process(&self) -> bool {
        self.id == std::process::id()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (process {})", self.program, self.id)
    }
}

/// Returns the process that has a database open, if this user may see that.
pub(super) fn of_database(path: &Path) -> Option<Holder> {
    let folder = path.canonicalize().ok()?;
    let lock = folder.join("lock");
    find(|file| file == lock || file == folder)
}

/// Returns the process that listens on a port of TCP, if this user may see that.
pub(super) fn of_port(port: u16) -> Option<Holder> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let sockets: Vec<PathBuf> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| table.lines().filter_map(|line| listener(line, port)).collect::<Vec<_>>())
        .map(|inode| PathBuf::from(format!("socket:[{inode}]")))
        .collect();
    find(|file| sockets.iter().any(|socket| socket == file))
}

/// Returns the inode of the socket of a line, if it listens on the port.
fn listener(line: &str, port: u16) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, local) = fields.get(1)?.rsplit_once(':')?;
    let is_it = *fields.get(3)? == LISTENING && u16::from_str_radix(local, 16) == Ok(port);
    fields.get(9)?.parse().ok().filter(|_| is_it)
}

/// Returns the first process with an open file that is wanted.
fn find(is_wanted: impl Fn(&Path) -> bool) -> Option<Holder> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let id = ids.find(|id| {
        let files = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
        let mut files = files.filter_map(|file| fs::read_link(file.path()).ok());
        files.any(|file| is_wanted(&file))
    })?;
    let program = fs::read_to_string(format!("/proc/{id}/comm")).ok()?;
    Some(Holder { id, program: program.trim_end().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_holds_a_file_or_listens_on_a_port_is_found() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(of_database(folder.path()), None);
        let _lock = fs::File::create(folder.path().join("lock")).unwrap();
        assert!(of_database(folder.path()).unwrap().is_this_process());
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let holder = of_port(port).unwrap();
        assert!(holder.to_string().ends_with(&format!("(process {})", std::process::id())));
    }
}
