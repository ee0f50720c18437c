//! Memory of scripts: one total for all Lua states, the stash, and what functions of ours build.
//!
//! A state always has [`STATE_BASE_BYTES`], so that an ordinary call works when others have filled
//! the total, and touches no shared memory. Beyond them it reserves parts of the total ahead of its
//! use, and Lua's allocator refuses what is not reserved. Lua can neither reserve nor collect while
//! it allocates, so the state looks at its memory every so many instructions, in functions of ours,
//! and before a function of ours makes a long text.
//!
//! A small state may also use an equal part of what is free until the next look, unreserved. If
//! others reserve this meanwhile, the total is exceeded by it until then.

use crate::limits::STATE_BASE_BYTES;
use mlua::{Error, Lua};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes by which a reservation grows at least.
const STEP_BYTES: usize = 64 << 10;

/// Memory that a state keeps from one call to the next beside what it uses, in bytes.
const CUSHION_BYTES: usize = 128 << 10;

/// Share of the free part that a state reserves ahead of its use.
const STEP_SHARE: usize = 4;

/// Share of the live memory that must be free after a collection, and its least, in bytes.
const SPARE_SHARE: usize = 32;
const SPARE_BYTES_MIN: usize = 128 << 10;

/// Bytes that a function of ours may build without a charge.
pub(crate) const UNCHARGED_BYTES: usize = 64 << 10;

/// The states, the stash and functions of ours use as much memory as they may together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not enough memory: all scripts together have {max} bytes; free some, or raise \
     script-memory-total"
)]
pub(crate) struct TotalExhausted {
    max: usize,
}

impl From<TotalExhausted> for Error {
    fn from(exhausted: TotalExhausted) -> Self {
        Self::MemoryError(exhausted.to_string())
    }
}

/// Memory that all states and the stash share.
#[derive(Debug)]
pub(crate) struct TotalMemory {
    max: usize,
    used: AtomicUsize,
    /// Number of states.
    states: AtomicUsize,
}

impl TotalMemory {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, used: AtomicUsize::new(0), states: AtomicUsize::new(0) }
    }

    /// Returns the bytes that are reserved.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the bytes that can be reserved.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    fn free(&self) -> usize {
        self.max.saturating_sub(self.used())
    }

    /// Returns whether little is free.
    fn is_scarce(&self) -> bool {
        self.free() < self.max / STEP_SHARE
    }

    /// Returns the part of each state, if all have the same.
    fn part(&self, bytes: usize) -> usize {
        bytes / self.states.load(Ordering::Relaxed).max(STEP_SHARE)
    }

    pub(crate) fn exhausted(&self) -> TotalExhausted {
        TotalExhausted { max: self.max }
    }

    /// Reserves bytes.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), TotalExhausted> {
        let add = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.max);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.exhausted()),
        }
    }

    /// Reserves as many bytes, or what is free. Returns how many.
    fn take_up_to(&self, bytes: usize) -> usize {
        let mut taken = 0;
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            taken = bytes.min(self.max.saturating_sub(used));
            Some(used + taken)
        });
        taken
    }

    /// Gives reserved bytes back.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Charge for memory that a function of ours fills before Lua has the result. The first
/// [`UNCHARGED_BYTES`] are free.
#[derive(Debug)]
pub(crate) struct Charge {
    total: Arc<TotalMemory>,
    bytes: usize,
    reserved: usize,
}

impl Charge {
    pub(crate) fn new(total: &Arc<TotalMemory>) -> Self {
        Self { total: Arc::clone(total), bytes: 0, reserved: 0 }
    }

    /// Adds bytes. If there are none left, the charge is as before.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), TotalExhausted> {
        let sum = self.bytes.saturating_add(bytes);
        let missing = sum.saturating_sub(self.reserved + UNCHARGED_BYTES);
        if missing > 0 {
            let step = missing.max(STEP_BYTES).max(self.reserved / STEP_SHARE);
            let is_taken = self.total.take(step).is_ok();
            if !is_taken {
                self.total.take(missing)?;
            }
            self.reserved += if is_taken { step } else { missing };
        }
        self.bytes = sum;
        Ok(())
    }

    /// Gives all back.
    pub(crate) fn clear(&mut self) {
        // Most charges are small, and do not touch what all states share.
        if self.reserved > 0 {
            self.total.give_back(std::mem::take(&mut self.reserved));
        }
        self.bytes = 0;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns the memory that a state with so many bytes has at hand if possible: one instruction may
/// double a text or a table, and Lua joins texts in a buffer first.
fn comfort(used: usize) -> usize {
    used.saturating_mul(2).max(STEP_BYTES)
}

/// Returns the memory that a large state has at hand after a collection, or the call fails. Nearly
/// all time would be for collections with less, and an error needs some as well.
fn spare_min(live: usize) -> usize {
    if live > STATE_BASE_BYTES { (live / SPARE_SHARE).max(SPARE_BYTES_MIN) } else { 0 }
}

/// Memory of one state. Only the thread that runs the state calls its methods.
#[derive(Debug)]
pub(crate) struct StateMemory {
    total: Arc<TotalMemory>,
    /// Limit of the state's own.
    max: usize,
    /// Bytes of the total that the state has reserved.
    reserved: AtomicUsize,
    /// Bytes beside these and the base that it may use until the next look.
    lent: AtomicUsize,
    /// Bytes that the last collection between calls has left.
    live: AtomicUsize,
    /// Bytes that the last collection within the call has left, for want of memory.
    collected: AtomicUsize,
}

impl StateMemory {
    pub(crate) fn new(total: &Arc<TotalMemory>, max: usize) -> Self {
        total.states.fetch_add(1, Ordering::Relaxed);
        Self {
            total: Arc::clone(total),
            max,
            reserved: AtomicUsize::new(0),
            lent: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            collected: AtomicUsize::new(0),
        }
    }

    /// Returns the bytes that the state may use now.
    pub(crate) fn limit(&self) -> usize {
        let own = STATE_BASE_BYTES.saturating_add(self.reserved.load(Ordering::Relaxed));
        own.saturating_add(self.lent.load(Ordering::Relaxed)).min(self.max)
    }

    /// Returns whether the state has reserved a part of the total.
    pub(crate) fn is_large(&self) -> bool {
        self.reserved.load(Ordering::Relaxed) > 0
    }

    /// Returns why Lua's allocator has refused memory, if not for the state's own limit.
    pub(crate) fn missing(&self) -> Option<TotalExhausted> {
        (self.limit() < self.max).then(|| self.total.exhausted())
    }

    fn apply(&self, lua: &Lua) -> Result<(), Error> {
        lua.set_memory_limit(self.limit()).map(drop)
    }

    /// Begins a call, or the loading of the script.
    pub(crate) fn begin(&self, lua: &Lua) -> Result<(), Error> {
        if self.is_large() {
            let ahead = self.total.free() / STEP_SHARE;
            return self.take(lua, lua.used_memory().saturating_add(ahead)).map(drop);
        }
        let lent = self.total.part(self.total.free()) / STEP_BYTES * STEP_BYTES;
        if self.lent.swap(lent, Ordering::Relaxed) != lent {
            self.apply(lua)?;
        }
        Ok(())
    }

    /// Sees to it that the state can have as many bytes more, and reserves some ahead. With none
    /// left, its garbage is collected. Fails if that is not enough.
    pub(crate) fn provide(&self, lua: &Lua, bytes: usize) -> Result<(), Error> {
        let used = lua.used_memory();
        let reserved = self.reserved.load(Ordering::Relaxed);
        if reserved == 0 && used.saturating_add(bytes) <= STATE_BASE_BYTES {
            return Ok(());
        }
        if STATE_BASE_BYTES.saturating_add(reserved) >= self.max {
            return Ok(());
        }
        let spare = (STATE_BASE_BYTES + reserved).saturating_sub(used);
        let least = bytes.saturating_add(comfort(used.saturating_add(bytes)));
        if spare >= least && self.lent.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.reserve(lua, used, bytes, least)
    }

    #[cold]
    fn reserve(&self, lua: &Lua, used: usize, bytes: usize, least: usize) -> Result<(), Error> {
        // From here on all is reserved.
        self.lent.store(0, Ordering::Relaxed);
        let ahead = self.total.free() / STEP_SHARE;
        let wanted = used.saturating_add(least.max(bytes.saturating_add(ahead)));
        if self.take(lua, wanted)? >= least || self.reserved_max() {
            return Ok(());
        }
        let spare = self.limit().saturating_sub(used);
        let collected = self.collected.load(Ordering::Relaxed);
        let has_grown = used.saturating_sub(collected) > STEP_BYTES.max(collected / 8);
        if !has_grown && spare >= bytes.saturating_add(spare_min(used)) {
            return Ok(());
        }
        lua.gc_collect()?;
        let live = lua.used_memory();
        let after = live.saturating_add(bytes);
        let wanted = after.saturating_add(comfort(after));
        let spare = self.take(lua, wanted)?;
        self.collected.store(live, Ordering::Relaxed);
        if spare < bytes.saturating_add(spare_min(live)) && !self.reserved_max() {
            return Err(self.total.exhausted().into());
        }
        Ok(())
    }

    fn reserved_max(&self) -> bool {
        self.limit() == self.max
    }

    /// Reserves what is missing until the state may use `wanted` bytes, or what is free. Returns
    /// the bytes that it may use in addition to those in use.
    fn take(&self, lua: &Lua, wanted: usize) -> Result<usize, Error> {
        let reserved = self.reserved.load(Ordering::Relaxed);
        let wanted = wanted.min(self.max).saturating_sub(STATE_BASE_BYTES);
        let missing = wanted.saturating_sub(reserved).next_multiple_of(STEP_BYTES);
        let missing =
            missing.min(self.max.saturating_sub(STATE_BASE_BYTES).saturating_sub(reserved));
        if missing > 0 {
            self.reserved.store(reserved + self.total.take_up_to(missing), Ordering::Relaxed);
        }
        self.apply(lua)?;
        Ok(self.limit().saturating_sub(lua.used_memory()))
    }

    /// Notes that a collection between two calls has left so many bytes.
    pub(crate) fn note_live(&self, live: usize) {
        self.live.store(live, Ordering::Relaxed);
    }

    /// Returns whether to collect garbage at the end of a call: if it may be as much as half of
    /// what is live, or an eighth while little of the total is free.
    pub(crate) fn has_garbage(&self, used: usize) -> bool {
        if used <= STATE_BASE_BYTES {
            return false;
        }
        let live = self.live.load(Ordering::Relaxed).max(STATE_BASE_BYTES / 2);
        used - live.min(used) > if self.total.is_scarce() { live / 8 } else { live / 2 }
    }

    /// Gives back what the state does not use, but for a cushion.
    pub(crate) fn give_back(&self, lua: &Lua, used: usize) -> Result<(), Error> {
        let reserved = self.reserved.load(Ordering::Relaxed);
        let used = used.saturating_add(CUSHION_BYTES).min(self.max);
        if used <= STATE_BASE_BYTES && reserved == 0 {
            return Ok(());
        }
        let wanted = used.saturating_sub(STATE_BASE_BYTES).next_multiple_of(STEP_BYTES);
        self.lent.store(0, Ordering::Relaxed);
        self.collected.store(0, Ordering::Relaxed);
        if wanted < reserved {
            self.total.give_back(reserved - wanted);
            self.reserved.store(wanted, Ordering::Relaxed);
        } else if wanted > reserved {
            // It was lent.
            let taken = self.total.take_up_to(wanted - reserved);
            self.reserved.store(reserved + taken, Ordering::Relaxed);
        }
        self.apply(lua)
    }

    /// Returns whether the live memory is more than the state's part of the total, of which little
    /// is free, so that others could lack it for ever.
    pub(crate) fn is_beyond_part(&self, used: usize) -> bool {
        self.total.is_scarce()
            && used > STATE_BASE_BYTES.saturating_add(self.total.part(self.total.max))
    }
}

impl Drop for StateMemory {
    fn drop(&mut self) {
        self.total.give_back(*self.reserved.get_mut());
        self.total.states.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_has_as_many_bytes_as_allowed_and_no_more() {
        let total = TotalMemory::new(10);
        total.take(9).unwrap();
        total.take(2).unwrap_err();
        total.take(1).unwrap();
        assert_eq!(total.take(1), Err(TotalExhausted { max: 10 }));
        assert_eq!((total.used(), total.take_up_to(1)), (10, 0));
        total.give_back(4);
        assert_eq!((total.take_up_to(3), total.take_up_to(3)), (3, 1));
        total.take(usize::MAX).unwrap_err();
        assert_eq!(total.used(), 10);
    }

    #[test]
    fn a_charge_is_free_at_first_and_gives_all_back() {
        let total = Arc::new(TotalMemory::new(STEP_BYTES + 1));
        let mut charge = Charge::new(&total);
        charge.add(UNCHARGED_BYTES).unwrap();
        assert_eq!(total.used(), 0);
        charge.add(1).unwrap();
        assert_eq!(total.used(), STEP_BYTES);
        charge.add(STEP_BYTES - 1).unwrap();
        assert_eq!(total.used(), STEP_BYTES);
        // Less than a step is left.
        charge.add(1).unwrap();
        assert_eq!(total.used(), STEP_BYTES + 1);
        charge.add(1).unwrap_err();
        charge.add(usize::MAX).unwrap_err();
        assert_eq!(total.used(), STEP_BYTES + 1);
        charge.clear();
        assert_eq!(total.used(), 0);
        charge.add(UNCHARGED_BYTES + 1).unwrap();
        drop(charge);
        assert_eq!(total.used(), 0);
    }

    #[test]
    fn a_state_reserves_ahead_of_its_use_and_gives_back_what_it_does_not_use() {
        let total = Arc::new(TotalMemory::new(8 << 20));
        let lua = Lua::new();
        let memory = StateMemory::new(&total, 4 << 20);
        memory.begin(&lua).unwrap();
        // A quarter of what is free is lent.
        assert_eq!((memory.limit(), total.used()), (STATE_BASE_BYTES + (2 << 20), 0));
        memory.provide(&lua, 1 << 10).unwrap();
        assert!(!memory.is_large());
        memory.provide(&lua, 1 << 20).unwrap();
        assert!(memory.is_large() && memory.limit() == STATE_BASE_BYTES + total.used());
        assert!(memory.limit() >= lua.used_memory() + (1 << 20));
        memory.provide(&lua, 8 << 20).unwrap();
        assert_eq!(memory.limit(), 4 << 20, "the limit of the state itself");
        assert_eq!(memory.missing(), None);
        memory.give_back(&lua, lua.used_memory()).unwrap();
        assert_eq!((memory.limit(), total.used()), (STATE_BASE_BYTES, 0));
        total.take(8 << 20).unwrap();
        memory.begin(&lua).unwrap();
        assert_eq!(memory.limit(), STATE_BASE_BYTES);
        let error = memory.provide(&lua, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("script-memory-total"), "{error}");
        drop(memory);
        assert_eq!(total.used(), 8 << 20);
    }
}
