//! Position file: the time stamp up to which a snapshot contains the log.

use crate::update_log::UpdateLog;
use cabinet::{Error, Result};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// File in a snapshot with the time stamp of the last log entry that the snapshot contains, in
/// decimal, and a line feed, as in a replica's `-rts` file. A second line has the identity of the
/// log.
pub const POSITION_FILE: &str = "position";

/// Position of a snapshot in the update log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyPosition {
    /// Time stamp of the last log entry that the snapshot contains, in microseconds since 1970.
    pub timestamp_us: u64,
    /// Identity of the log, if it is known.
    pub log: Option<String>,
}

impl CopyPosition {
    /// Parses the text of the file. Returns `None` if it does not begin with a time stamp.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let timestamp_us = lines.next()?.trim().parse().ok()?;
        let log = lines.next().map(str::trim).filter(|log| !log.is_empty()).map(str::to_owned);
        Some(Self { timestamp_us, log })
    }

    /// Returns the text of the file.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.timestamp_us);
        if let Some(log) = &self.log {
            text.push_str(log);
            text.push('\n');
        }
        text
    }
}

/// Compares the state of a copy that a database was with the server's update log. Returns a warning
/// if the log goes on after that state, as after a restore of the database alone. Otherwise the
/// file of the copy has served its purpose, and is removed.
pub(crate) fn compare_with_log(database: &Path, log: &UpdateLog) -> Option<String> {
    let path = database.join(POSITION_FILE);
    let position_us = position_of_copy(database)?;
    if log.last_entry_us() > position_us {
        let replicas = log.retention().replicas_beyond(position_us);
        let ids = replicas.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let replicas = match replicas.as_slice() {
            [] => String::new(),
            _ => format!(
                "; the replicas with these server ids have those changes, and count as up to date \
                 until each is made a copy again: {ids}"
            ),
        };
        return Some(format!(
            "{} is a copy up to time stamp {position_us}, and lacks the changes that the update log in {} \
             has after it: start with a new folder for the update log, or restore with --until; to keep \
             both as they are, remove {}{replicas}",
            database.display(),
            log.folder().display(),
            path.display()
        ));
    }
    if let Err(error) = std::fs::remove_file(&path) {
        tracing::warn!("cannot remove {}: {error}", path.display());
    }
    None
}

/// Returns whether the database is a copy whose position is this time stamp.
pub(crate) fn is_of_copy(database: &Path, timestamp_us: u64) -> bool {
    position_of_copy(database) == Some(timestamp_us)
}

fn position_of_copy(database: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(database.join(POSITION_FILE)).ok()?;
    Some(CopyPosition::parse(&text)?.timestamp_us)
}

/// Writes the position of a snapshot in the log, durably.
pub(crate) fn write_position(snapshot: &Path, position: &CopyPosition) -> Result<()> {
    let path = snapshot.join(POSITION_FILE);
    let write = || -> io::Result<()> {
        let mut file = File::create(&path)?;
        file.write_all(position.text().as_bytes())?;
        file.sync_all()?;
        File::open(snapshot)?.sync_all()
    };
    write().map_err(|source| Error::Io { operation: "write", path: path.clone(), source })
}
