//! Memory budget: one limit for the buffers of all connections together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of bytes in use, and their limit.
#[derive(Debug)]
pub(crate) struct Budget {
    used_bytes: AtomicUsize,
    max_bytes: usize,
}

/// Share of a budget that one owner uses. It is returned on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self { used_bytes: AtomicUsize::new(0), max_bytes })
    }

    /// Returns the number of bytes in use.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }
}

impl Charge {
    /// Makes a charge of 0 bytes.
    pub(crate) fn none(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: 0 }
    }

    /// Changes the charge to `bytes`. Returns whether the budget allows it, which it always does
    /// for a smaller charge.
    #[inline]
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        // The buffers of a connection hardly ever change between two calls.
        bytes == self.bytes || self.change(bytes)
    }

    /// Divides the charge: up to `bytes` of it get another owner.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: Arc::clone(&self.budget), bytes }
    }

    /// Adds another charge on the same budget.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    fn change(&mut self, bytes: usize) -> bool {
        let used_bytes = &self.budget.used_bytes;
        if bytes < self.bytes {
            used_bytes.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        } else {
            let more = bytes - self.bytes;
            // A charge that is refused must not be in use for a moment, or another thread could be
            // refused for it.
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
    fn a_charge_is_divided_and_joined_within_the_budget() {
        let budget = Budget::new(100);
        let mut one = Charge::none(&budget);
        assert!(one.set(100));
        let other = one.split(60);
        assert_eq!((budget.used_bytes(), one.split(60).bytes, one.bytes), (100, 40, 0));
        assert_eq!(budget.used_bytes(), 60);
        one.join(other);
        assert_eq!((budget.used_bytes(), one.bytes), (60, 60));
        drop(one);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn a_refused_charge_never_takes_from_the_budget() {
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
            let is_allowed = (0..1_000_000).all(|_| small.set(1) && small.set(0));
            is_over.store(true, Ordering::Relaxed);
            assert!(is_allowed);
        });
        assert_eq!(budget.used_bytes(), 0);
    }
}
