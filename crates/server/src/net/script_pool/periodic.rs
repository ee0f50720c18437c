//! Periodic callers: a state of its own for each function that is called by the clock.
//!
//! As in Tokyo Tyrant, the globals of a periodic function stay from call to call, and neither
//! clients nor other periodic functions see them. Any script thread makes the calls, one at a time
//! for each function. The script threads begin and end the states, each those of some functions.

use super::{ScriptPool, Worker, caught};
use crate::net::hub::Hub;
use crate::{Periodic, SCRIPT_PERIODIC_MAX};
use parking_lot::Mutex;
use std::sync::OnceLock;

/// Callers of the periodic functions, in the order of the settings.
#[derive(Default)]
pub(super) struct PeriodicCallers(OnceLock<Box<[Mutex<Option<Worker>>]>>);

impl PeriodicCallers {
    /// Makes the places of as many callers as the settings have functions.
    pub(super) fn install(&self, functions: usize) {
        let callers = (0..functions.min(SCRIPT_PERIODIC_MAX)).map(|_| Mutex::default());
        let _ = self.0.set(callers.collect());
    }

    fn callers(&self) -> &[Mutex<Option<Worker>>] {
        self.0.get().map_or(&[], |callers| &callers[..])
    }
}

impl ScriptPool {
    /// Returns the numbers of the periodic functions whose states a script thread begins and ends.
    fn periodic_of(&self, thread: usize) -> impl Iterator<Item = usize> + use<> {
        (thread..self.periodic.callers().len()).step_by(self.threads().max(1))
    }

    /// Makes the states of some periodic functions.
    pub(super) fn begin_periodic(&self, hub: &Hub, thread: usize) {
        let Some(installed) = self.installed.get() else { return };
        let first = self.threads() + self.loops_that_call();
        for number in self.periodic_of(thread) {
            let worker = Worker::new(hub, installed, first + number);
            worker.begin(hub);
            *self.periodic.callers()[number].lock() = Some(worker);
        }
    }

    /// Ends the states of some periodic functions. Blocks until their calls have ended.
    pub(super) fn end_periodic(&self, hub: &Hub, thread: usize) {
        for number in self.periodic_of(thread) {
            if let Some(worker) = self.periodic.callers()[number].lock().take() {
                worker.end(hub);
            }
        }
    }

    /// Calls a periodic function in its state. A call that comes before there is one is left out.
    pub(super) fn call_periodic(&self, hub: &Hub, number: usize) {
        let installed = self.installed.get();
        let periodic = installed.and_then(|found| found.settings.periodic.get(number));
        if let (Some(periodic), Some(caller)) = (periodic, self.periodic.callers().get(number))
            && let Some(worker) = &*caller.lock()
        {
            worker.call_periodic(hub, periodic);
        }
        if let Some(is_running) = self.state.lock().is_running.get_mut(number) {
            *is_running = false;
        }
    }
}

impl Worker {
    /// Calls a periodic function, with an empty key and value.
    fn call_periodic(&self, hub: &Hub, Periodic { function, .. }: &Periodic) {
        let _turn = self.records.turn();
        self.records.begin_call(None);
        // The extension has logged a failure.
        let _ = caught(|| self.extension.call(&self.records, function.as_bytes(), b"", b""));
        self.end_call(hub);
    }
}
