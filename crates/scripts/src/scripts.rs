//! The extension of a server: a script, and a state of it for each script thread, event loop and
//! periodic function.

use crate::clock::CallClock;
use crate::error::Failure;
use crate::limits::{LOOP_TEXT_BYTES_MAX, Limits, THREADS_MAX};
use crate::shared::{Allowed, MapFunctions, Mapper, Shared, States};
use crate::source::{Code, Source};
use crate::state::State;
use crate::statistics::Statistics;
use parking_lot::Mutex;
use server::{Extension, ExtensionError, FunctionStatistics, ScriptRecords};
use server::{SCRIPT_LOOPS_MAX, SCRIPT_PERIODIC_MAX, ScriptMemory};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Shortest time until a script is loaded again in a state where it has failed.
const RENEWAL_PAUSE_MIN: Duration = Duration::from_secs(1);

/// That time at least, in times that loading it has taken.
const RENEWAL_PAUSE_SHARE: u32 = 100;

type Result<T> = std::result::Result<T, ExtensionError>;

/// A script whose functions clients call by name.
pub struct Scripts {
    source: Source,
    shared: Arc<Shared>,
    /// The newest code that a state could load.
    code: Arc<Mutex<Arc<Code>>>,
    /// Its generation, which each call looks at.
    generation: AtomicU64,
    /// Held by a reload, so that no two have the same generation.
    reloading: Mutex<()>,
    threads: Arc<Threads>,
}

type Threads = [OnceLock<ScriptThread>];

/// A script thread, an event loop or a periodic function. Another locks its state only while it has
/// no call.
struct ScriptThread {
    state: Mutex<Option<State>>,
    has_ended: AtomicBool,
    statistics: Arc<Statistics>,
}

impl Scripts {
    /// Reads a script and checks its syntax. It is executed when the server begins.
    pub fn open(
        source: Source,
        limits: Limits,
        allowed: Allowed,
    ) -> std::result::Result<Self, Failure> {
        let code = source.read(0)?;
        let shared = Arc::new(Shared::new(limits, allowed));
        let generation = AtomicU64::new(code.generation);
        let code = Arc::new(Mutex::new(Arc::new(code)));
        let threads = THREADS_MAX + SCRIPT_LOOPS_MAX + SCRIPT_PERIODIC_MAX;
        let threads: Arc<Threads> = (0..threads).map(|_| OnceLock::new()).collect();
        let states = AllStates {
            shared: Arc::downgrade(&shared),
            code: Arc::clone(&code),
            threads: Arc::clone(&threads),
        };
        let _ = shared.states.set(Box::new(states));
        Ok(Self { source, shared, generation, reloading: Mutex::new(()), code, threads })
    }

    /// Returns what all states of the script share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the thread of these records.
    fn thread(&self, records: &ScriptRecords) -> Result<&ScriptThread> {
        let thread = self.threads.get(records.thread()).and_then(OnceLock::get);
        let thread = thread.filter(|thread| !thread.has_ended.load(Ordering::Acquire));
        thread.ok_or_else(|| ExtensionError("the script thread does not run".into()))
    }

    /// Makes a state of the present script.
    fn load(
        &self,
        records: &Arc<ScriptRecords>,
        thread: &ScriptThread,
        code: &Code,
    ) -> std::result::Result<State, Failure> {
        let time = self.shared.limits.call_time;
        let state = State::new(&self.shared, records, &thread.statistics, code, time)?;
        state.allow_map_reduce();
        Ok(state)
    }

    /// Renews the state of a thread, unless it is of the present script.
    fn renew_if_old(
        &self,
        records: &Arc<ScriptRecords>,
        thread: &ScriptThread,
        slot: &mut Option<State>,
    ) {
        let generation = self.generation.load(Ordering::Acquire);
        if slot.as_ref().is_none_or(|state| !state.is_of(generation)) {
            records.leave_loop();
            let code = Arc::clone(&self.code.lock());
            self.renew(records, thread, slot, &code);
        }
    }

    /// Replaces the state of a thread by one of the present script. If the script fails here, the
    /// state stays, and a later call tries again.
    fn renew(
        &self,
        records: &Arc<ScriptRecords>,
        thread: &ScriptThread,
        slot: &mut Option<State>,
        code: &Code,
    ) {
        let began = Instant::now();
        match self.load(records, thread, code) {
            Ok(state) => replace(records, slot, Some(state)),
            Err(failure) => {
                log(&failure);
                if let Some(state) = slot {
                    let pause = RENEWAL_PAUSE_MIN.max(began.elapsed() * RENEWAL_PAUSE_SHARE);
                    state.keep_until(code.generation, Instant::now() + pause);
                }
            }
        }
    }
}

/// All states, and what makes them.
struct AllStates {
    /// Weak, since it owns this.
    shared: Weak<Shared>,
    code: Arc<Mutex<Arc<Code>>>,
    threads: Arc<Threads>,
}

impl States for AllStates {
    fn evaluate_in_idle(&self, records: &ScriptRecords, clock: &CallClock) {
        let generation = self.code.lock().generation;
        for thread in self.threads.iter().filter_map(OnceLock::get) {
            if let Some(slot) = thread.state.try_lock()
                && let Some(state) = &*slot
                && state.generation() == generation
                && let Some(_turn) = state.records().try_turn()
            {
                state.evaluate_lent(records, clock);
                if clock.check(Instant::now()).is_err() {
                    return;
                }
            }
        }
    }

    fn make_mapper(
        &self,
        records: &Arc<ScriptRecords>,
        functions: &MapFunctions,
        folder: &Path,
        time: Duration,
    ) -> std::result::Result<Box<dyn Mapper>, String> {
        let shared = self.shared.upgrade().ok_or("the server stops")?;
        let code = Arc::clone(&self.code.lock());
        let began = Instant::now();
        let sorter = shared.sorter(folder.to_path_buf()).until(began.checked_add(time));
        let mapper = State::new(&shared, records, &Arc::default(), &code, time).and_then(|state| {
            state.into_mapper(functions, sorter, time.saturating_sub(began.elapsed()))
        });
        match mapper {
            Ok(mapper) => Ok(Box::new(mapper)),
            Err(failure) => Err(failure.message),
        }
    }
}

impl Extension for Scripts {
    fn begin(&self, records: &Arc<ScriptRecords>) {
        let Some(slot) = self.threads.get(records.thread()) else {
            tracing::error!("a script has at most {THREADS_MAX} threads");
            return;
        };
        let thread = slot.get_or_init(|| ScriptThread {
            state: Mutex::new(None),
            has_ended: AtomicBool::new(false),
            statistics: Arc::default(),
        });
        thread.has_ended.store(false, Ordering::Release);
        self.shared.evaluations.add_state(records.thread());
        let code = Arc::clone(&self.code.lock());
        match self.load(records, thread, &code) {
            Ok(state) => replace(records, &mut thread.state.lock(), Some(state)),
            Err(failure) => log(&failure),
        }
    }

    fn end(&self, records: &Arc<ScriptRecords>) {
        let Ok(thread) = self.thread(records) else { return };
        thread.has_ended.store(true, Ordering::Release);
        replace(records, &mut thread.state.lock(), None);
        self.shared.evaluations.remove_state(records.thread());
    }

    fn has(&self, name: &[u8]) -> bool {
        !name.starts_with(b"_")
    }

    fn defines(&self, records: &Arc<ScriptRecords>, name: &[u8]) -> bool {
        let Ok(thread) = self.thread(records) else { return true };
        let slot = thread.state.lock();
        self.has(name) && slot.as_ref().is_none_or(|state| state.defines(name))
    }

    fn call(
        &self,
        records: &Arc<ScriptRecords>,
        name: &[u8],
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        if !self.has(name) {
            return Err(ExtensionError("names that begin with _ are internal".into()));
        }
        let thread = self.thread(records)?;
        let mut slot = thread.state.try_lock().unwrap_or_else(|| {
            records.leave_loop();
            thread.state.lock()
        });
        self.renew_if_old(records, thread, &mut slot);
        let Some(state) = &mut *slot else {
            return Err(ExtensionError("the script could not be loaded, see the log".into()));
        };
        if records.is_on_loop() && state.is_large()
            || key.len().saturating_add(value.len()) > LOOP_TEXT_BYTES_MAX
        {
            records.leave_loop();
        }
        if self.shared.evaluations.has(records.thread()) {
            records.leave_loop();
            state.evaluate_waiting();
        }
        let result = state.call(name, key, value);
        if let Err(failure) = &result {
            log(failure);
            if state.is_full() {
                tracing::warn!(
                    "a script's state was full of what is no garbage: it is loaded again"
                );
                // Its memory is free before the next one is made.
                *slot = None;
            }
        }
        result.map_err(|failure| ExtensionError(failure.message))
    }

    fn reload(&self, records: &Arc<ScriptRecords>) -> Result<()> {
        let short = |failure: Failure| ExtensionError(failure.message);
        let thread = self.thread(records)?;
        let reloading = self.reloading.lock();
        let generation = self.code.lock().generation + 1;
        let code = self.source.read(generation).map_err(short)?;
        let state = self.load(records, thread, &code).map_err(short)?;
        *self.code.lock() = Arc::new(code);
        self.generation.store(generation, Ordering::Release);
        drop(reloading);
        replace(records, &mut thread.state.lock(), Some(state));
        Ok(())
    }

    fn follow_reload(&self, records: &Arc<ScriptRecords>) {
        if let Ok(thread) = self.thread(records) {
            self.renew_if_old(records, thread, &mut thread.state.lock());
        }
    }

    fn runs_on_loops(&self) -> bool {
        // Files and programs are read and run by functions that cannot leave a loop.
        !self.shared.allowed.files && !self.shared.allowed.programs
    }

    fn statistics(&self) -> Vec<FunctionStatistics> {
        let mut sums = BTreeMap::new();
        for thread in self.threads.iter().filter_map(OnceLock::get) {
            thread.statistics.add_to(&mut sums);
        }
        sums.into_values().collect()
    }

    fn memory(&self) -> ScriptMemory {
        let memory = &self.shared.memory;
        ScriptMemory { used_bytes: memory.used(), max_bytes: memory.max() }
    }
}

/// Replaces the state of a thread. In the first one, the script learns of its end and beginning.
fn replace(records: &ScriptRecords, slot: &mut Option<State>, new: Option<State>) {
    let is_first = records.thread() == 0;
    let _rights = records.with_rights(None);
    if is_first && let Some(state) = slot {
        run_logged(state, "_end");
    }
    *slot = new;
    if is_first && let Some(state) = slot {
        run_logged(state, "_begin");
    }
}

fn run_logged(state: &State, name: &str) {
    if let Err(failure) = state.call_if_present(name) {
        log(&failure);
    }
}

fn log(failure: &Failure) {
    tracing::error!("Lua error: {}", failure.traceback);
}
