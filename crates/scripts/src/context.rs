//! Context of the functions of a state: its limits, its records, and what all states share.

use crate::clock::{CallClock, Exceeded};
use crate::error::{self, Failure, NO_MEMORY};
use crate::hook::Hook;
use crate::limits::{
    CALL_STACK_BYTES_MAX, CALLBACK_LEVELS_MAX, LOOP_TEXT_BYTES_MAX, LOOP_VALUES_MAX, Limits,
};
use crate::memory::{Charge, StateMemory};
use crate::shared::Shared;
use mlua::{Error, FromLuaMulti, Function, IntoLuaMulti, Lua, LuaString};
use parking_lot::Mutex;
use server::ScriptRecords;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Shortest text for which memory is reserved before it is made, in bytes.
const PROVIDED_BYTES_MIN: usize = 4 << 10;

/// Context of the functions of one state.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) records: Arc<ScriptRecords>,
    pub(crate) clock: CallClock,
    pub(crate) memory: StateMemory,
    pub(crate) hook: Arc<Hook>,
    /// Address in the thread's stack at which the call began.
    stack_begin: AtomicUsize,
    /// Functions of ours that are calling functions of the script now.
    callback_level: AtomicUsize,
    /// Names that the present call has locked by `_lock`.
    pub(crate) locked: Mutex<Vec<Vec<u8>>>,
    /// Number of this state among the owners of locks.
    pub(crate) owner: u64,
    /// Whether code of `_eval` is executed in the name of a call of another state.
    pub(crate) is_lent: AtomicBool,
    /// Bytes that the function of ours that was called last has copied out of the state.
    copied_bytes: AtomicUsize,
    /// Charge for these bytes.
    copied: Mutex<Charge>,
    /// Whether the script may begin `tyrant.map_reduce`: not while it is loaded, since each mapper
    /// loads it, and not in a mapper.
    pub(crate) may_map_reduce: AtomicBool,
}

impl Drop for Context {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl Context {
    pub(crate) fn new(shared: Arc<Shared>, records: Arc<ScriptRecords>) -> Self {
        let owner = shared.locks.new_owner();
        let memory = StateMemory::new(&shared.memory, shared.limits.state_bytes);
        Self {
            memory,
            hook: Arc::new(Hook::new(shared.limits.call_time)),
            copied: Mutex::new(Charge::new(&shared.memory)),
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

    /// Ends a call. Names that it has locked are released, or stay locked for a time.
    pub(crate) fn end(&self, keeps_locks: bool) {
        self.end_function();
        let mut locked = self.locked.lock();
        if !locked.is_empty() {
            let time = keeps_locks.then_some(self.limits().lock_time);
            for name in locked.drain(..) {
                self.shared.locks.end_call(&name, self.owner, time);
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
    pub(crate) fn begin_function(&self, lua: &Lua) -> Result<(), Error> {
        self.copied_bytes.store(0, Ordering::Relaxed);
        self.check_progress()?;
        if self.memory.is_large() { self.look_at_memory(lua) } else { Ok(()) }
    }

    /// Ends a function of ours: what it has copied is freed.
    pub(crate) fn end_function(&self) {
        if self.copied_bytes.load(Ordering::Relaxed) > 0 {
            self.copied.lock().clear();
        }
    }

    /// Reserves memory for what the state may need until the next look. Fails if there is none.
    pub(crate) fn look_at_memory(&self, lua: &Lua) -> Result<(), Error> {
        self.memory.provide(lua, 0)?;
        self.hook.adapt(lua)
    }

    /// Begins a call, for which the state has some memory at hand.
    pub(crate) fn begin_memory(&self, lua: &Lua) -> Result<(), Error> {
        self.memory.begin(lua)?;
        if self.memory.is_large() || self.hook.is_changed() {
            self.hook.adapt(lua)?;
        }
        Ok(())
    }

    /// Ends a call: gives back what the state does not use, and its garbage if it is much.
    /// After a failure that is all that it has reserved.
    pub(crate) fn end_memory(&self, lua: &Lua, has_failed: bool) -> Result<(), Error> {
        let used = lua.used_memory();
        if self.memory.has_garbage(used) || has_failed && self.memory.is_large() {
            self.free_garbage(lua)?;
            self.memory.note_live(lua.used_memory());
            return Ok(());
        }
        self.memory.give_back(lua, used)
    }

    /// Runs a part of a script with memory for it, and gives back what is not used afterwards.
    pub(crate) fn run_within_memory<T>(
        &self,
        lua: &Lua,
        part: impl FnOnce() -> mlua::Result<T>,
    ) -> Result<T, Failure> {
        let begun = self.begin_memory(lua);
        let result = begun.and_then(|()| cabinet::with_deadline(self.clock.deadline(), part));
        // While the limit is that which the call has met.
        let result = result.map_err(|error| Failure::of_call(&error, &self.memory));
        if let Err(error) = self.end_memory(lua, result.is_err()) {
            tracing::error!("cannot free the memory of a script: {}", error::message(&error));
        }
        result
    }

    /// Returns whether the state has so little memory left that a call would fail, or so much that
    /// other states would lack it for ever.
    pub(crate) fn is_full(&self, lua: &Lua) -> bool {
        let is_over = || {
            let used = lua.used_memory();
            used > self.limits().state_bytes / 2 || self.memory.is_beyond_part(used)
        };
        is_over() && (self.free_garbage(lua).is_err() || is_over())
    }

    /// Begins a charge for what a function of ours builds.
    pub(crate) fn charge(&self) -> Charge {
        Charge::new(&self.shared.memory)
    }

    /// Adds to a charge. With no memory left, the state's garbage is collected before this fails.
    pub(crate) fn add_to(&self, lua: &Lua, charge: &mut Charge, bytes: usize) -> Result<(), Error> {
        if charge.add(bytes).is_err() {
            self.free_garbage(lua)?;
            charge.add(bytes)?;
        }
        Ok(())
    }

    /// Collects the garbage of the state, and gives back what it does not use.
    pub(crate) fn free_garbage(&self, lua: &Lua) -> Result<(), Error> {
        self.records.leave_loop();
        lua.gc_collect()?;
        self.memory.give_back(lua, lua.used_memory())
    }

    /// Creates a Lua string. Fails if there is no memory for it.
    pub(crate) fn text(&self, lua: &Lua, text: &[u8]) -> Result<LuaString, Error> {
        if text.len() < PROVIDED_BYTES_MIN {
            return lua.create_string(text);
        }
        self.memory.provide(lua, text.len())?;
        let made = lua.create_string(text);
        if text.len() > LOOP_TEXT_BYTES_MAX {
            self.hook.adapt_to_text(lua)?;
        }
        made
    }

    /// Fails if the call has exceeded a limit. One that takes long leaves the event loop.
    pub(crate) fn check_progress(&self) -> Result<(), Error> {
        let now = Instant::now();
        self.records.leave_loop_if_late(now);
        self.clock.check(now).map_err(Error::external)
    }

    /// Counts bytes that a function copies out of the state. Fails if they are more than a state
    /// may have, as one text can be in a table many times, or than there are left for all.
    pub(crate) fn charge_bytes(&self, lua: &Lua, bytes: usize) -> Result<(), Error> {
        let copied = self.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.check_bytes(copied.saturating_add(bytes))?;
        self.add_to(lua, &mut self.copied.lock(), bytes)
    }

    /// Fails if a state cannot have a string of this length.
    pub(crate) fn check_bytes(&self, bytes: usize) -> Result<(), Error> {
        if bytes > LOOP_TEXT_BYTES_MAX {
            self.records.leave_loop();
        }
        if bytes > self.limits().state_bytes {
            let max = self.limits().state_bytes;
            return Err(Error::MemoryError(format!(
                "{NO_MEMORY}: {bytes} bytes are more than the {max} of script-memory-max"
            )));
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

/// Guard of a call: ends it, even after a panic.
pub(crate) struct EndCall<'c> {
    context: &'c Context,
    /// Whether the names that the call has locked stay so for a time.
    pub(crate) keeps_locks: bool,
}

impl<'c> EndCall<'c> {
    pub(crate) fn new(context: &'c Context) -> Self {
        Self { context, keeps_locks: false }
    }
}

impl Drop for EndCall<'_> {
    fn drop(&mut self) {
        self.context.end(self.keeps_locks);
    }
}

/// Returns an address in the stack frame of the caller, or near it. Stacks grow downwards.
#[inline(always)]
fn stack_address() -> usize {
    let local = 0u8;
    std::hint::black_box(&raw const local).addr()
}
