//! Watch: takes event loops over from calls that do not leave them.
//!
//! A call looks at the clock in each function of the server and every so many instructions, and
//! leaves its loop when it has taken long. It cannot within one long instruction or function of the
//! extension, such as a comparison of texts of megabytes. So a thread looks at the calls from
//! outside, and has their loops left. It sleeps while no loop calls a function.

use crate::ScriptRecords;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two looks at the loops, and time after which a call has its loop left. So a call
/// keeps a loop for at most twice as long.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Looks without a call in between after which the thread prepares to sleep.
const IDLE_LOOKS_MAX: u32 = 2;

/// The event loops that call functions, and the thread that watches them.
#[derive(Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether the thread is to be woken by the next call.
    sleeps: AtomicBool,
}

#[derive(Default)]
struct State {
    loops: Vec<Watched>,
    stopping: bool,
}

/// The calls of a loop.
struct Watched {
    records: Arc<ScriptRecords>,
    /// Time at which the last call had begun at the last look.
    began_ns: u64,
}

impl Watch {
    /// Adds a loop, for whose calls these records are.
    pub(super) fn add(&self, records: Arc<ScriptRecords>) {
        self.state.lock().loops.push(Watched { records, began_ns: 0 });
    }

    /// Ends the thread, and lets the loops go.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        state.loops.clear();
        self.changed.notify_all();
    }

    /// Says that a call has begun.
    pub(super) fn note_call(&self) {
        if self.sleeps.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let _state = self.state.lock();
        self.sleeps.store(false, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Watches the loops until the watch is stopped.
    pub(crate) fn run(&self) {
        let mut state = self.state.lock();
        let mut idle_looks = 0;
        while !state.stopping {
            idle_looks = if state.look(Instant::now()) { 0 } else { idle_looks + 1 };
            if idle_looks == IDLE_LOOKS_MAX {
                // A call that has not seen this is seen by the look after the next interval.
                self.sleeps.store(true, Ordering::Relaxed);
            } else if idle_looks > IDLE_LOOKS_MAX {
                self.sleep(&mut state);
                idle_looks = 0;
            }
            self.changed.wait_for(&mut state, LOOK_INTERVAL);
        }
    }

    /// Waits until the next call begins.
    fn sleep(&self, state: &mut MutexGuard<'_, State>) {
        while self.sleeps.load(Ordering::Relaxed) && !state.stopping {
            self.changed.wait(state);
        }
    }
}

impl State {
    /// Has the loops left whose calls take long. Returns whether a loop calls a function, or has
    /// called one since the last look.
    fn look(&mut self, now: Instant) -> bool {
        let mut has_calls = false;
        for watched in &mut self.loops {
            watched.records.leave_loop_if_held(now, LOOK_INTERVAL);
            let began_ns = watched.records.began_ns();
            has_calls |= began_ns != watched.began_ns || watched.records.is_on_loop();
            watched.began_ns = began_ns;
        }
        has_calls
    }
}
