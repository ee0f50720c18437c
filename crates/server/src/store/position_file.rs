//! Position file: the time stamp up to which a snapshot contains the log.

use cabinet::{Error, Result};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// File in a snapshot with the time stamp of the last log entry that the snapshot contains, in
/// decimal, and a line feed. It has the format of a replica's `-rts` file.
pub const POSITION_FILE: &str = "position";

/// Writes the time stamp up to which a snapshot contains the log, durably.
pub(crate) fn write_position(snapshot: &Path, timestamp_us: u64) -> Result<()> {
    let path = snapshot.join(POSITION_FILE);
    let write = || -> io::Result<()> {
        let mut file = File::create(&path)?;
        file.write_all(format!("{timestamp_us}\n").as_bytes())?;
        file.sync_all()?;
        File::open(snapshot)?.sync_all()
    };
    write().map_err(|source| Error::Io { operation: "write", path: path.clone(), source })
}
