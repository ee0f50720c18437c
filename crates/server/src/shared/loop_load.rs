//! Load of an event loop, which other threads read.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Age from which a measured load is stale, in milliseconds: the loop has been asleep since.
const BUSY_STALE_MS: u64 = 500;

/// The load of an event loop.
#[derive(Debug, Default)]
pub(crate) struct LoopLoad {
    /// Number of connections that the loop has or is about to adopt.
    pub(crate) connections: AtomicUsize,
    /// Number of times that the loop has read its mailbox.
    pub(crate) beats: AtomicU64,
    busy_percent: AtomicU32,
    measured_at_ms: AtomicU64,
}

impl LoopLoad {
    /// Stores the load of the loop in its last window.
    pub(crate) fn set_busy(&self, percent: u32, now_ms: u64) {
        self.busy_percent.store(percent, Ordering::Relaxed);
        self.measured_at_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Returns the load of the loop in its last window, in percent; 0 if that is stale.
    pub(crate) fn busy_percent(&self, now_ms: u64) -> u32 {
        let age_ms = now_ms.saturating_sub(self.measured_at_ms.load(Ordering::Relaxed));
        if age_ms > BUSY_STALE_MS { 0 } else { self.busy_percent.load(Ordering::Relaxed) }
    }
}
