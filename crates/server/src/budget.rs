//! One limit for the buffers of all connections together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes in use, and the most there may be.
#[derive(Debug)]
pub(crate) struct Budget {
    used_bytes: AtomicUsize,
    max_bytes: usize,
}

/// Somebody's part of a budget, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self { used_bytes: AtomicUsize::new(0), max_bytes })
    }

    /// Bytes in use.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }
}

impl Charge {
    /// Nothing so far.
    pub(crate) fn none(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: 0 }
    }

    /// Makes it `bytes`; says whether there was room. A charge that shrinks always has it.
    #[inline]
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        // Hardly ever does a connection have more or less than at the last look.
        bytes == self.bytes || self.change(bytes)
    }

    fn change(&mut self, bytes: usize) -> bool {
        let used_bytes = &self.budget.used_bytes;
        if bytes < self.bytes {
            used_bytes.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        } else {
            let more = bytes - self.bytes;
            // What does not fit is not there for a moment either, in which others would find no
            // room.
            let within =
                |used: usize| used.checked_add(more).filter(|used| *used <= self.budget.max_bytes);
            if used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_err() {
                return false;
            }
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_budget_ends_at_its_limit() {
        let budget = Budget::new(100);
        let (mut one, mut other) = (Charge::none(&budget), Charge::none(&budget));
        assert!(one.set(99));
        assert!(one.set(100));
        assert!(!one.set(101));
        assert!(!other.set(1));
        assert_eq!(budget.used_bytes(), 100);
        assert!(one.set(40));
        assert!(other.set(60));
        drop(one);
        assert_eq!(budget.used_bytes(), 60);
        assert!(!other.set(usize::MAX));
        assert_eq!(budget.used_bytes(), 60);
    }

    #[test]
    fn a_charge_that_finds_no_room_is_in_nobodys_way() {
        let budget = Budget::new(100);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut large = Charge::none(&budget);
                while !is_over.load(Ordering::Relaxed) {
                    assert!(!large.set(101));
                }
            });
            let mut small = Charge::none(&budget);
            let found_room = (0..1_000_000).all(|_| small.set(1) && small.set(0));
            is_over.store(true, Ordering::Relaxed);
            assert!(found_room);
        });
        assert_eq!(budget.used_bytes(), 0);
    }
}
