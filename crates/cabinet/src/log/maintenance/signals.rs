//! Signals: wake and stop the background threads.

use crate::base::sync::Mutex;
use parking_lot::Condvar;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Signals from callers to the threads of a log.
#[derive(Default)]
pub(in crate::log) struct Signals {
    running: AtomicBool,
    stop: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
    preallocation_lock: Mutex<()>,
    preallocation_wake: Condvar,
}

impl Signals {
    /// Records that the threads are being started.
    pub(super) fn start(&self) {
        self.running.store(true, Ordering::Release);
    }

    /// Requests that the threads stop.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Records that the threads have stopped.
    pub(super) fn note_stopped(&self) {
        self.running.store(false, Ordering::Release);
    }

    /// Sleeps until woken or for `period`, unless there is something to preallocate.
    pub(super) fn sleep_until_preallocation(&self, period: Duration, has_work: impl Fn() -> bool) {
        let mut lock = self.preallocation_lock.lock();
        if !has_work() && !self.stopping() {
            self.preallocation_wake.wait_for(&mut lock, period);
        }
    }

    pub(in crate::log) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    pub(in crate::log) fn wake(&self) {
        if self.is_running() {
            // Locked so that no thread misses this between its check and its sleep.
            drop(self.lock.lock());
            self.wake.notify_all();
            drop(self.preallocation_lock.lock());
            self.preallocation_wake.notify_all();
        }
    }

    pub(super) fn sleep(&self, period: Duration) {
        let mut lock = self.lock.lock();
        if !self.stopping() {
            self.wake.wait_for(&mut lock, period);
        }
    }

    pub(in crate::log) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}
