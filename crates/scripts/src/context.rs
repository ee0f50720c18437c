//! Context of the functions of a state: its limits, its records, and what all states share.

use crate::clock::{CallClock, Exceeded};
use crate::limits::{
    CALL_STACK_BYTES_MAX, CALLBACK_LEVELS_MAX, LOOP_TEXT_BYTES_MAX, LOOP_VALUES_MAX, Limits,
};
use crate::shared::Shared;
use mlua::{Error, FromLuaMulti, Function, IntoLuaMulti};
use parking_lot::Mutex;
use server::ScriptRecords;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Context of the functions of one state.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) records: Arc<ScriptRecords>,
    pub(crate) clock: CallClock,
    /// Address in the thread's stack at which the call began.
    stack_begin: AtomicUsize,
    /// Functions of ours that are calling functions of the script now.
    callback_level: AtomicUsize,
    /// Keys that the present call has locked by `_lock`.
    pub(crate) locked: Mutex<Vec<Vec<u8>>>,
    /// Number of this state among the owners of locks.
    pub(crate) owner: u64,
    /// Whether code of `_eval` is executed in the name of a call of another state.
    pub(crate) is_lent: AtomicBool,
    /// Bytes that the function of ours that was called last has copied out of the state.
    copied_bytes: AtomicUsize,
    /// Whether the script may begin `tyrant.map_reduce`: not while it is loaded, since each mapper
    /// loads it, and not in a mapper.
    pub(crate) may_map_reduce: AtomicBool,
}

impl Drop for Context {
    fn drop(&mut self) {
        self.end();
    }
}

impl Context {
    pub(crate) fn new(shared: Arc<Shared>, records: Arc<ScriptRecords>) -> Self {
        let owner = shared.locks.new_owner();
        Self {
            owner,
            copied_bytes: AtomicUsize::new(0),
            may_map_reduce: AtomicBool::new(false),
            is_lent: AtomicBool::new(false),
            shared,
            records,
            clock: CallClock::new(),
            stack_begin: AtomicUsize::new(0),
            callback_level: AtomicUsize::new(0),
            locked: Mutex::default(),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Begins a call.
    pub(crate) fn start(&self, now: Instant) {
        let limits = self.limits();
        self.clock.start(now, limits.call_time, limits.call_instructions);
        self.stack_begin.store(stack_address(), Ordering::Relaxed);
        self.callback_level.store(0, Ordering::Relaxed);
    }

    /// Fails if the functions of the call take too much of the thread's stack.
    pub(crate) fn check_stack(&self) -> Result<(), Error> {
        let taken = self.stack_begin.load(Ordering::Relaxed).saturating_sub(stack_address());
        if taken > CALL_STACK_BYTES_MAX {
            return Err(Error::RuntimeError(
                "stack overflow: functions call back too deeply".into(),
            ));
        }
        Ok(())
    }

    /// Ends a call: its locks are released.
    pub(crate) fn end(&self) {
        let mut locked = self.locked.lock();
        if !locked.is_empty() {
            for key in locked.drain(..) {
                self.shared.locks.release(&key, self.owner);
            }
        }
    }

    /// Fails if the call has exceeded a limit.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.clock.check(Instant::now()).map_err(Error::external)
    }

    /// Counts instructions of the call. Fails if it has none left, or no time.
    pub(crate) fn count_instructions(&self, instructions: u32) -> Result<(), Error> {
        let now = Instant::now();
        self.records.leave_loop_if_late(now);
        self.clock.count(now, instructions.into()).map_err(Error::external)
    }

    /// Begins a function of ours. Fails if the call has no time left.
    pub(crate) fn begin_function(&self) -> Result<(), Error> {
        self.copied_bytes.store(0, Ordering::Relaxed);
        self.check_progress()
    }

    /// Fails if the call has exceeded a limit. One that takes long leaves the event loop.
    pub(crate) fn check_progress(&self) -> Result<(), Error> {
        let now = Instant::now();
        self.records.leave_loop_if_late(now);
        self.clock.check(now).map_err(Error::external)
    }

    /// Counts bytes that a function copies out of the state. Fails if they are more than a state
    /// may have, as one text can be in a table many times.
    pub(crate) fn charge_bytes(&self, bytes: usize) -> Result<(), Error> {
        let copied = self.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.check_bytes(copied.saturating_add(bytes))
    }

    /// Fails if a state cannot have a string of this length.
    pub(crate) fn check_bytes(&self, bytes: usize) -> Result<(), Error> {
        if bytes > LOOP_TEXT_BYTES_MAX {
            self.records.leave_loop();
        }
        if bytes > self.limits().state_bytes {
            return Err(Error::MemoryError("not enough memory".into()));
        }
        Ok(())
    }

    /// Leaves the event loop if as many values take long to make.
    pub(crate) fn leave_loop_for_values(&self, values_max: usize) {
        if values_max > LOOP_VALUES_MAX {
            self.records.leave_loop();
        }
    }

    /// Calls a function of the script from one of ours. Too many within each other fail, since each
    /// takes much of the thread's stack.
    pub(crate) fn call_back<R: FromLuaMulti>(
        &self,
        function: &Function,
        arguments: impl IntoLuaMulti,
    ) -> Result<R, Error> {
        let level = self.callback_level.load(Ordering::Relaxed);
        if level == CALLBACK_LEVELS_MAX {
            return Err(Error::RuntimeError("stack overflow: too many callbacks".into()));
        }
        self.callback_level.store(level + 1, Ordering::Relaxed);
        let result = function.call(arguments);
        self.callback_level.store(level, Ordering::Relaxed);
        result
    }

    /// Sleeps. Fails if the call has less time left.
    pub(crate) fn sleep(&self, duration: Duration) -> Result<(), Error> {
        let remaining = self.clock.remaining();
        std::thread::sleep(duration.min(remaining));
        if duration > remaining {
            return Err(Error::external(
                self.clock.check(Instant::now()).err().unwrap_or(Exceeded::Time),
            ));
        }
        Ok(())
    }
}

/// Returns an address in the stack frame of the caller, or near it. Stacks grow downwards.
#[inline(always)]
fn stack_address() -> usize {
    let local = 0u8;
    std::hint::black_box(&raw const local).addr()
}
