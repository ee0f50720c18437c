//! Durability: when a write is acknowledged, and how far the log is on the disk.

use std::sync::Arc;

/// Moment at which a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the operating system has it. It survives a killed process, but not a loss of power.
    #[default]
    None,
    /// Like `None`, but a loss of power loses at most this many milliseconds of writes.
    Interval(u64),
    /// When it is on the disk. Concurrent writers share one sync.
    Always,
}

/// Position in an engine's log, in bytes appended since the database was opened. Engines without
/// a log stay at 0, which is always durable.
pub type LogPosition = u64;

/// Function that a thread of the engine calls after each sync that moved the durable position.
pub type DurableListener = Arc<dyn Fn(LogPosition) + Send + Sync>;
