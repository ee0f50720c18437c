//! Hook: the look at the limits of a call that the interpreter takes every so many instructions.
//!
//! One instruction can take long: Lua compares texts full of zero bytes at about 8 ns per byte. So
//! the more memory a state has, the more often the hook is called, as far as the limit of time
//! needs it.

use crate::context::Context;
use crate::limits::INSTRUCTIONS_PER_CHECK;
use mlua::{HookTriggers, Lua, Result, VmState};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Time per byte of a state's memory of the slowest instruction, in picoseconds. It compares two
/// texts that take half of the memory each, and every second instruction may do so.
const SLOWEST_PS_PER_BYTE: u128 = 2500;

/// Coroutines that are known to have the present hook, at most.
const KNOWN_MAX: usize = 1000;

/// Number of instructions between two calls of the hook.
pub(crate) struct Hook {
    instructions: AtomicU32,
    /// Number before the last change, which a coroutine may still have; 0 if there was none.
    before: AtomicU32,
    /// Addresses of the coroutines that have the present number after a change.
    known: Mutex<HashSet<usize>>,
    context: OnceLock<Weak<Context>>,
}

impl Default for Hook {
    fn default() -> Self {
        Self {
            instructions: AtomicU32::new(INSTRUCTIONS_PER_CHECK),
            before: AtomicU32::new(0),
            known: Mutex::default(),
            context: OnceLock::new(),
        }
    }
}

impl Hook {
    /// Returns whether the number of instructions is not that of a small state.
    pub(crate) fn is_changed(&self) -> bool {
        self.instructions.load(Ordering::Relaxed) != INSTRUCTIONS_PER_CHECK
    }
}

/// Returns the number of instructions that take about as long as a call may, at the worst, in a
/// state that uses so much memory.
fn instructions_within(time: Duration, used_bytes: usize) -> u32 {
    let worst_ps = (used_bytes.max(1) as u128) * SLOWEST_PS_PER_BYTE;
    let instructions = time.as_nanos().saturating_mul(1000) / worst_ps;
    match u32::try_from(instructions) {
        Ok(few) if few < INSTRUCTIONS_PER_CHECK => 1 << few.max(1).ilog2(),
        _ => INSTRUCTIONS_PER_CHECK,
    }
}

/// Sets the hook of a new state.
pub(crate) fn install(lua: &Lua, context: &Arc<Context>) -> Result<()> {
    let _ = context.hook.context.set(Arc::downgrade(context));
    set(lua, context, INSTRUCTIONS_PER_CHECK)
}

fn set(lua: &Lua, context: &Context, instructions: u32) -> Result<()> {
    let Some(hooked) = context.hook.context.get().and_then(Weak::upgrade) else { return Ok(()) };
    let triggers = HookTriggers::new().every_nth_instruction(instructions);
    // Coroutines inherit it, but count their own instructions: see `bootstrap.lua`.
    lua.set_global_hook(triggers, move |lua, _| {
        call(lua, &hooked)?;
        Ok(VmState::Continue)
    })
}

/// Counts the instructions since the last call, and looks at the limits.
fn call(lua: &Lua, context: &Context) -> Result<()> {
    context.count_instructions(counted(lua, context)?)?;
    context.look_at_memory(lua)
}

/// Returns the number of instructions since the last call for the running coroutine, and gives it
/// the present hook.
fn counted(lua: &Lua, context: &Context) -> Result<u32> {
    let hook = &context.hook;
    let instructions = hook.instructions.load(Ordering::Relaxed);
    let before = hook.before.load(Ordering::Relaxed);
    if before == 0 {
        return Ok(instructions);
    }
    let running = lua.current_thread().to_pointer().addr();
    let mut known = hook.known.lock();
    if known.len() == KNOWN_MAX {
        known.clear();
    }
    let is_new = known.insert(running);
    drop(known);
    if !is_new {
        return Ok(instructions);
    }
    set(lua, context, instructions)?;
    Ok(before)
}

/// Changes the number of instructions to what the state's memory needs.
pub(crate) fn adapt(lua: &Lua, context: &Context) -> Result<()> {
    let hook = &context.hook;
    let present = hook.instructions.load(Ordering::Relaxed);
    let wanted = instructions_within(context.limits().call_time, lua.used_memory());
    if wanted == present {
        return Ok(());
    }
    let running = lua.current_thread().to_pointer().addr();
    {
        let mut known = hook.known.lock();
        known.clear();
        known.insert(running);
    }
    hook.before.store(present, Ordering::Relaxed);
    hook.instructions.store(wanted, Ordering::Relaxed);
    set(lua, context, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hook_is_called_the_more_often_the_more_memory_there_is_and_the_less_time() {
        let within = |seconds: f64, mib: usize| {
            instructions_within(Duration::from_secs_f64(seconds), mib << 20)
        };
        assert_eq!(within(10.0, 1), INSTRUCTIONS_PER_CHECK);
        assert_eq!(within(10.0, 4), 512);
        assert_eq!(within(10.0, 64), 32);
        assert_eq!(within(0.2, 0), INSTRUCTIONS_PER_CHECK);
        assert_eq!(within(0.2, 1), 64);
        assert_eq!(within(0.2, 1000), 1);
        assert_eq!(within(0.0, 1000), 1);
        assert_eq!(instructions_within(Duration::MAX, usize::MAX), INSTRUCTIONS_PER_CHECK);
    }
}
