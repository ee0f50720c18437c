//! Timer: makes periodic functions due.

use super::ScriptPool;
use crate::Periodic;
use std::time::{Duration, Instant};

/// A function that is called periodically.
struct Timer {
    due_at: Instant,
    every: Duration,
}

/// Makes the periodic functions due until the pool is stopped. A function is not called again
/// before its last call has ended.
pub(crate) fn run_timer(pool: &ScriptPool) {
    let Some(installed) = pool.installed.get() else { return };
    let now = Instant::now();
    let periodic = &installed.settings.periodic;
    let mut timers: Vec<Timer> = periodic
        .iter()
        .map(|periodic| {
            let every = periodic.every.max(Periodic::EVERY_MIN);
            Timer { due_at: now + every, every }
        })
        .collect();
    let mut state = pool.state.lock();
    state.is_running = vec![false; timers.len()];
    while !state.stopping {
        let now = Instant::now();
        for (number, timer) in timers.iter_mut().enumerate() {
            if timer.due_at > now {
                continue;
            }
            // After a long pause, calls are not made up for.
            timer.due_at = (timer.due_at + timer.every).max(now);
            if !state.is_running[number] {
                state.is_running[number] = true;
                state.due.push_back(number);
                pool.wake_one(&mut state);
            }
        }
        let Some(next) = timers.iter().map(|timer| timer.due_at).min() else { return };
        pool.changed.wait_until(&mut state, next);
    }
}
