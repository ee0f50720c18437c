//! Whether an operation may wait.

/// Whether an operation may wait for the disk, and for locks that others hold for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It waits.
    Block,
    /// It fails with [`crate::Error::WouldBlock`] instead, and has changed nothing.
    Never,
}
