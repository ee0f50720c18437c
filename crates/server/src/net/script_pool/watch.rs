//! Watch: takes event loops over from calls that do not leave them.
//!
//! A call looks at the clock in each function of the server and every so many instructions, and
//! leaves its loop when it has taken long. It cannot within one long instruction or function of the
//! extension, such as a comparison of texts of megabytes. So a thread looks at the calls from
//! outside, and has their loops left. It sleeps while no loop calls a function.

use crate::ScriptRecords;
use crate::processors;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two looks at the loops. A call that has a loop at one look for as long, and at the
/// next one still, has its loop left, unless it had no processor for most of the time in between.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Time after which a call has its loop left in any case.
const HELD_MAX: Duration = Duration::from_millis(20);

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
    /// Time for which its thread had waited for a processor then, if it had the loop for long.
    waited_ns: Option<u64>,
}

impl Watch {
    /// Adds a loop, for whose calls these records are.
    pub(super) fn add(&self, records: Arc<ScriptRecords>) {
        self.state.lock().loops.push(Watched { records, began_ns: 0, waited_ns: None });
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
            has_calls |= watched.look(now);
        }
        has_calls
    }
}

impl Watched {
    /// Has the loop left if its call takes long. Returns whether the loop calls a function, or has
    /// called one since the last look.
    fn look(&mut self, now: Instant) -> bool {
        let (began_ns, holds_loop) = (self.records.began_ns(), self.records.holds_loop());
        let is_same = began_ns == self.began_ns;
        let before_ns = self.waited_ns.take().filter(|_| is_same);
        self.began_ns = began_ns;
        if holds_loop && self.records.is_held(now, LOOK_INTERVAL) {
            let waited_ns = processors::waited_ns(self.records.call_thread()).unwrap_or(0);
            let had_processor = before_ns.is_some_and(|before_ns| {
                let waited = Duration::from_nanos(waited_ns.saturating_sub(before_ns));
                waited < LOOK_INTERVAL / 2
            });
            let longest = if had_processor { LOOK_INTERVAL } else { HELD_MAX };
            self.records.leave_loop_if_held(now, longest);
            self.waited_ns = Some(waited_ns);
        }
        holds_loop || !is_same
    }
}
