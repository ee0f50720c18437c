//! Cache: the budget of a tree's memory, and the choice of the page to evict.
//!
//! The budget covers pages, leaves, the directory and the queue, each as the allocator rounds it.
//! Pages may take the rest that the others leave, and always a quarter of the budget. So pages and
//! leaves together exceed the budget in a tree whose leaves alone take most of it.
//!
//! The policy is CLOCK: all leaves with a page in memory are in a queue. The first one is evicted
//! if it was not used since it last came to the front. Otherwise it moves to the end of the queue.
//! The queue's lock is taken only when a page is loaded or evicted.

use super::directory::Directory;
use super::leaf::{GONE, Handle, LEAF_BYTES, Leaf};
use crate::base::heap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Divisor of the budget: the share that pages may always take.
const PAGES_SHARE_MIN: usize = 4;

/// Divisor of the queue's length: the share that may be leaves that are gone.
const GONE_SHARE_MAX: usize = 8;

/// The memory budget of a tree, and the queue of leaves to evict. See the module.
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

    /// Returns the bytes of the pages in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of memory that a tree takes beside its pages: directory, leaves and queue.
    pub(super) fn directory_bytes(&self) -> usize {
        self.leaves_bytes.load(Ordering::Relaxed) + self.queue_bytes.load(Ordering::Relaxed)
    }

    /// Returns the maximum bytes of pages in memory.
    #[inline]
    pub(super) fn pages_bytes_max(&self) -> usize {
        let left = self.budget_bytes.saturating_sub(self.directory_bytes());
        left.max(self.budget_bytes / PAGES_SHARE_MIN)
    }

    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.bytes() > self.pages_bytes_max()
    }

    /// Returns whether pages take about twice their maximum or more.
    pub(super) fn is_far_over(&self) -> bool {
        self.bytes() / 2 > self.pages_bytes_max()
    }

    /// Counts a page as `bytes` instead of `charged`, which it updates. The caller holds the page's
    /// leaf, so the sum does not fall below 0.
    #[inline]
    pub(super) fn charge(&self, charged: &mut usize, bytes: usize) {
        if *charged != bytes {
            self.bytes.fetch_add(bytes.wrapping_sub(*charged), Ordering::Relaxed);
            *charged = bytes;
        }
    }

    /// Counts the directory and its leaves after a change. The caller holds the directory's lock.
    pub(super) fn note_directory(&self, directory: &Directory<Handle>) {
        let bytes = directory.memory_bytes() + directory.len() * LEAF_BYTES;
        self.leaves_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Adds a leaf whose page is in memory now.
    pub(super) fn enter(&self, leaf: Arc<Leaf>) {
        let mut queue = self.queue.lock();
        if queue.len() == queue.capacity() {
            // Spare capacity reduces the memory for pages, so the queue does not double.
            let spare = queue.len() / 8 + 1;
            queue.reserve_exact(spare);
            self.note_queue(&queue);
        }
        queue.push_back(leaf);
    }

    /// Removes the leaf at the front from the queue, and returns it.
    pub(super) fn pop(&self) -> Option<Arc<Leaf>> {
        self.queue.lock().pop_front()
    }

    fn note_queue(&self, queue: &VecDeque<Arc<Leaf>>) {
        let bytes = heap::list_bytes::<Arc<Leaf>>(queue.capacity());
        self.queue_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Notes that a leaf was joined to another one. Its memory is not counted any more, so the
    /// queue keeps few such leaves.
    pub(super) fn note_gone(&self) {
        let gone = self.gone.fetch_add(1, Ordering::Relaxed) + 1;
        if gone > self.queue.lock().len() / GONE_SHARE_MAX {
            self.forget_gone();
        }
    }

    /// Drops leaves that are gone from the queue. The queue's lock is released between leaves.
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
    fn pages_may_take_the_rest_that_leaves_leave_and_at_least_their_share() {
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
