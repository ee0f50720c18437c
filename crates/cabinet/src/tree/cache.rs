//! The budget of pages in memory, and which of them goes first.
//!
//! CLOCK: all leaves with a page in memory stand in a queue. The first one goes if it was not used
//! since it last came to the front, else to the end of the queue. The queue has a lock, which is
//! taken only when a page comes or goes.

use super::leaf::{GONE, Leaf};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the module.
pub(super) struct Cache {
    budget_bytes: usize,
    bytes: AtomicUsize,
    queue: Mutex<VecDeque<Arc<Leaf>>>,
}

impl Cache {
    pub(super) fn new(budget_bytes: usize) -> Self {
        Self { budget_bytes, bytes: AtomicUsize::new(0), queue: Mutex::default() }
    }

    pub(super) fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    /// Bytes of the pages in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn is_over(&self) -> bool {
        self.bytes() > self.budget_bytes
    }

    /// Whether they take twice what they may.
    pub(super) fn is_far_over(&self) -> bool {
        self.bytes() / 2 > self.budget_bytes
    }

    /// A page takes so many bytes now, in place of those it took. The caller holds its leaf, so
    /// the sum does not fall below 0.
    #[inline]
    pub(super) fn charge(&self, charged: &mut usize, bytes: usize) {
        if *charged != bytes {
            self.bytes.fetch_add(bytes.wrapping_sub(*charged), Ordering::Relaxed);
            *charged = bytes;
        }
    }

    /// A leaf has a page in memory now.
    pub(super) fn enter(&self, leaf: Arc<Leaf>) {
        self.queue.lock().push_back(leaf);
    }

    /// The leaf at the front, which leaves the queue.
    pub(super) fn pop(&self) -> Option<Arc<Leaf>> {
        self.queue.lock().pop_front()
    }

    /// Drops what is no leaf any more. The lock of the queue is not held for all of it at once.
    pub(super) fn forget_gone(&self) {
        let is_gone =
            |leaf: &Arc<Leaf>| leaf.try_read().is_some_and(|state| state.generation == GONE);
        let leaves = self.queue.lock().len();
        for leaf in (0..leaves).map_while(|_| self.pop()) {
            if !is_gone(&leaf) {
                self.enter(leaf);
            }
        }
    }
}
