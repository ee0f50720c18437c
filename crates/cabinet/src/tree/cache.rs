//! The budget of a tree's memory, and which page goes first.
//!
//! The budget is for pages, leaves, the directory and the queue, each as the allocator rounds it.
//! Pages may take what the others leave, and at least a share of the budget: in a tree so large
//! that its leaves alone take most of the budget, pages and leaves together exceed it.
//!
//! CLOCK: all leaves with a page in memory are in a queue. The first one is evicted if it was not
//! used since it last came to the front, and else moves to the end of the queue. The queue has a
//! lock, which is taken only when a page comes or goes.

use super::directory::Directory;
use super::leaf::{GONE, Handle, LEAF_BYTES, Leaf};
use crate::heap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Share of the budget, as a divisor, that pages may take whatever the leaves take.
const PAGES_SHARE_MIN: usize = 4;

/// Part of the queue, as a divisor, that may be leaves that are gone.
const GONE_SHARE_MAX: usize = 8;

/// See the module.
pub(super) struct Cache {
    budget_bytes: usize,
    bytes: AtomicUsize,
    /// Bytes of directory and leaves. Written when their number changes.
    leaves_bytes: AtomicUsize,
    /// Bytes of the queue. Written when its capacity changes.
    queue_bytes: AtomicUsize,
    queue: Mutex<VecDeque<Arc<Leaf>>>,
    /// Leaves that are gone and may be in the queue.
    gone: AtomicUsize,
}

impl Cache {
    pub(super) fn new(budget_bytes: usize) -> Self {
        Self {
            budget_bytes,
            bytes: AtomicUsize::new(0),
            leaves_bytes: AtomicUsize::new(0),
            queue_bytes: AtomicUsize::new(0),
            queue: Mutex::default(),
            gone: AtomicUsize::new(0),
        }
    }

    pub(super) fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    /// Bytes of the pages in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of what a tree has in memory beside pages: directory, leaves, queue.
    pub(super) fn directory_bytes(&self) -> usize {
        self.leaves_bytes.load(Ordering::Relaxed) + self.queue_bytes.load(Ordering::Relaxed)
    }

    /// Most bytes of pages in memory.
    #[inline]
    pub(super) fn pages_bytes_max(&self) -> usize {
        let left = self.budget_bytes.saturating_sub(self.directory_bytes());
        left.max(self.budget_bytes / PAGES_SHARE_MIN)
    }

    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.bytes() > self.pages_bytes_max()
    }

    /// Returns whether pages take twice what they may.
    pub(super) fn is_far_over(&self) -> bool {
        self.bytes() / 2 > self.pages_bytes_max()
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

    /// Counts the directory and its leaves again, which have changed. The caller holds the
    /// directory's lock.
    pub(super) fn note_directory(&self, directory: &Directory<Handle>) {
        let bytes = directory.memory_bytes() + directory.len() * LEAF_BYTES;
        self.leaves_bytes.store(bytes, Ordering::Relaxed);
    }

    /// A leaf has a page in memory now.
    pub(super) fn enter(&self, leaf: Arc<Leaf>) {
        let mut queue = self.queue.lock();
        if queue.len() == queue.capacity() {
            // All that a queue which doubles its room has to spare would be taken from pages.
            let spare = queue.len() / 8 + 1;
            queue.reserve_exact(spare);
            self.note_queue(&queue);
        }
        queue.push_back(leaf);
    }

    /// The leaf at the front, which leaves the queue.
    pub(super) fn pop(&self) -> Option<Arc<Leaf>> {
        self.queue.lock().pop_front()
    }

    fn note_queue(&self, queue: &VecDeque<Arc<Leaf>>) {
        let bytes = heap::list_bytes::<Arc<Leaf>>(queue.capacity());
        self.queue_bytes.store(bytes, Ordering::Relaxed);
    }

    /// A leaf was joined with another one. Its memory is not counted any more, so the queue does
    /// not keep many of them.
    pub(super) fn note_gone(&self) {
        let gone = self.gone.fetch_add(1, Ordering::Relaxed) + 1;
        if gone > self.queue.lock().len() / GONE_SHARE_MAX {
            self.forget_gone();
        }
    }

    /// Drops what is no leaf any more. The lock of the queue is not held for all of it at once.
    pub(super) fn forget_gone(&self) {
        self.gone.store(0, Ordering::Relaxed);
        let is_gone =
            |leaf: &Arc<Leaf>| leaf.try_read().is_some_and(|state| state.generation == GONE);
        let leaves = self.queue.lock().len();
        for leaf in (0..leaves).map_while(|_| self.pop()) {
            if !is_gone(&leaf) {
                self.enter(leaf);
            }
        }
        let mut queue = self.queue.lock();
        let leaves = queue.len();
        if 2 * leaves < queue.capacity() {
            queue.shrink_to(leaves + leaves / 8);
            self.note_queue(&queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyOrder;
    use crate::tree::NEVER_MS;
    use crate::tree::leaf::State;
    use crate::tree::page::Page;

    fn handle(id: u64) -> Handle {
        Handle::new(State::fresh(id, Page::default(), NEVER_MS))
    }

    #[test]
    fn pages_may_take_what_leaves_leave_and_never_less_than_their_share() {
        const BUDGET: usize = 100_000;
        let cache = Cache::new(BUDGET);
        let mut directory = Directory::new(KeyOrder::Lexical, handle(0));
        for id in 1..1000_u64 {
            cache.note_directory(&directory);
            let others = cache.directory_bytes();
            assert!(others >= directory.len() * LEAF_BYTES);
            let max = cache.pages_bytes_max();
            assert_eq!(max, BUDGET.saturating_sub(others).max(BUDGET / PAGES_SHARE_MIN));
            directory.insert(id.to_be_bytes().into(), handle(id));
        }
        assert_eq!(cache.pages_bytes_max(), BUDGET / PAGES_SHARE_MIN);
        let mut charged = 0;
        for (bytes, is_over) in [(BUDGET / 4, false), (BUDGET / 4 + 1, true)] {
            cache.charge(&mut charged, bytes);
            assert_eq!(cache.is_over(), is_over);
        }
    }

    #[test]
    fn the_queue_is_counted_and_keeps_few_leaves_that_are_gone() {
        let cache = Cache::new(1 << 20);
        let handles: Vec<_> = (0..1000).map(handle).collect();
        for handle in &handles {
            cache.enter(Arc::clone(&handle.leaf));
            let queue = cache.queue.lock();
            assert!(cache.directory_bytes() >= queue.len() * size_of::<Arc<Leaf>>());
        }
        let full = cache.directory_bytes();
        for (number, handle) in handles.iter().enumerate().take(900) {
            handle.leaf.write().generation = GONE;
            cache.note_gone();
            let left = 1000 - number - 1;
            let queued = cache.queue.lock().len();
            assert!(queued - left <= queued / GONE_SHARE_MAX, "{queued}, {left} of them leaves");
        }
        assert!(cache.directory_bytes() < full / 4, "{}", cache.directory_bytes());
    }
}
