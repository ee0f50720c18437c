//! Hook: the look at the limits of a call that the interpreter takes every so many instructions.
//!
//! One instruction can take long: Lua compares texts full of zero bytes at about 8 ns per byte. So
//! the more memory a state has, the more often the hook is called, as far as the limit of time
//! needs it.

use crate::limits::INSTRUCTIONS_PER_CHECK;
use mlua::{HookTriggers, Lua, Result, VmState};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Time per byte of a state's memory of the slowest instruction, in picoseconds. It compares two
/// texts that take half of the memory each, and every second instruction may do so.
const SLOWEST_PS_PER_BYTE: u128 = 2500;

/// Factor by which a state may grow until the next look after a long text was made.
const GROWTH: usize = 3;

/// Coroutines that are known to have the present hook, at most.
const KNOWN_MAX: usize = 1000;

/// Looks at the limits, after so many instructions.
type Look = dyn Fn(&Lua, u32) -> Result<()> + Send + Sync;

/// The hook of a state, and the number of instructions between two calls of it.
pub(crate) struct Hook {
    /// Longest time of a call.
    time: Duration,
    instructions: AtomicU32,
    /// Number before the last change, which a coroutine may still have; 0 if there was none.
    before: AtomicU32,
    /// Addresses of the coroutines that have the present number after a change.
    known: Mutex<HashSet<usize>>,
    look: OnceLock<Box<Look>>,
}

impl Hook {
    /// Makes a hook for calls that may take so long.
    pub(crate) fn new(time: Duration) -> Self {
        Self {
            time,
            instructions: AtomicU32::new(INSTRUCTIONS_PER_CHECK),
            before: AtomicU32::new(0),
            known: Mutex::default(),
            look: OnceLock::new(),
        }
    }

    /// Sets the hook of a new state, which calls `look`.
    pub(crate) fn install(
        self: &Arc<Self>,
        lua: &Lua,
        look: impl Fn(&Lua, u32) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        let _ = self.look.set(Box::new(look));
        self.set(lua, INSTRUCTIONS_PER_CHECK)
    }

    fn set(self: &Arc<Self>, lua: &Lua, instructions: u32) -> Result<()> {
        let hook = Arc::clone(self);
        let triggers = HookTriggers::new().every_nth_instruction(instructions);
        // Coroutines inherit it, but count their own instructions: see `bootstrap.lua`.
        lua.set_global_hook(triggers, move |lua, _| {
            let instructions = hook.counted(lua)?;
            if let Some(look) = hook.look.get() {
                look(lua, instructions)?;
            }
            Ok(VmState::Continue)
        })
    }

    /// Returns whether the number of instructions is not that of a small state.
    pub(crate) fn is_changed(&self) -> bool {
        self.instructions.load(Ordering::Relaxed) != INSTRUCTIONS_PER_CHECK
    }

    /// Returns the number of instructions since the last call for the running coroutine, and gives
    /// it the present hook.
    fn counted(self: &Arc<Self>, lua: &Lua) -> Result<u32> {
        let instructions = self.instructions.load(Ordering::Relaxed);
        let before = self.before.load(Ordering::Relaxed);
        if before == 0 {
            return Ok(instructions);
        }
        let running = lua.current_thread().to_pointer().addr();
        let mut known = self.known.lock();
        if known.len() == KNOWN_MAX {
            known.clear();
        }
        let is_new = known.insert(running);
        drop(known);
        if !is_new {
            return Ok(instructions);
        }
        self.set(lua, instructions)?;
        Ok(before)
    }

    /// Changes the number of instructions to what the state's memory needs.
    pub(crate) fn adapt(self: &Arc<Self>, lua: &Lua) -> Result<()> {
        self.adapt_to(lua, lua.used_memory())
    }

    /// Changes it after a long text was made, of which the next instructions may make others.
    pub(crate) fn adapt_to_text(self: &Arc<Self>, lua: &Lua) -> Result<()> {
        self.adapt_to(lua, lua.used_memory().saturating_mul(GROWTH))
    }

    fn adapt_to(self: &Arc<Self>, lua: &Lua, used_bytes: usize) -> Result<()> {
        let present = self.instructions.load(Ordering::Relaxed);
        let wanted = instructions_within(self.time, used_bytes);
        if wanted == present {
            return Ok(());
        }
        let running = lua.current_thread().to_pointer().addr();
        {
            let mut known = self.known.lock();
            known.clear();
            known.insert(running);
        }
        self.before.store(present, Ordering::Relaxed);
        self.instructions.store(wanted, Ordering::Relaxed);
        self.set(lua, wanted)
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
