//! Wait mode: whether an operation may wait.

/// Whether an operation may wait for the disk, and for locks that are held for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The operation waits.
    Block,
    /// The operation fails with [`crate::Error::WouldBlock`] instead, and changes nothing.
    Never,
}
