//! Damage in files, and outcomes of checks for it.

use std::path::PathBuf;

/// Damage in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Byte offset at which it begins.
    pub offset: u64,
    /// Description of the damage found there.
    pub what: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} at byte {}: {}", self.file.display(), self.offset, self.what)
    }
}

/// Outcome of [`check`](crate::check).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Segments of the log.
    pub segments: u64,
    /// Records in them, dead ones included.
    pub records: u64,
    /// Bytes of the records.
    pub bytes: u64,
    /// Bytes of an incomplete record at the end, as a crash leaves them. Opening cuts them.
    pub torn_bytes: u64,
    /// Number of damages that were reported.
    pub damages: u64,
}

/// Outcome of [`Database::verify`](crate::Database::verify).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Segments, records and damage.
    pub checked: Checked,
    /// Whether the verification reached the end.
    pub is_complete: bool,
}

/// Function that a verification calls regularly, with the counts so far. It returns the maximum
/// number of bytes to read per second from then on, or `None` to stop.
pub type GoOn<'g> = dyn FnMut(&Verified) -> Option<u64> + 'g;
