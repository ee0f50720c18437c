//! Leaf: a page, in memory or only in the log, with its lock and state.

use super::page::Page;
use crate::Version;
use crate::base::heap;
use crate::log::Location;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A leaf with its lock.
pub(super) type Leaf = RwLock<State>;

/// Bytes of memory of a leaf beside its page, including the two reference counts.
pub(super) const LEAF_BYTES: usize = heap::block_bytes(2 * size_of::<usize>() + size_of::<Leaf>());

/// Bytes of memory of a page beside its lists.
const LOADED_BYTES: usize = heap::block_bytes(size_of::<Loaded>());

/// Generation of a leaf that was joined to another one or cleared.
pub(super) const GONE: u32 = u32::MAX;

/// A leaf, as the directory knows it.
#[derive(Clone)]
pub(super) struct Handle {
    pub(super) leaf: Arc<Leaf>,
    /// Generation of the leaf when the directory's bounds for it last changed. If the leaf has
    /// another generation by now, its bounds have changed since the search.
    pub(super) generation: u32,
}

impl Handle {
    pub(super) fn new(state: State) -> Self {
        let generation = state.generation;
        Self { leaf: Arc::new(RwLock::new(state)), generation }
    }
}

/// Location and length of a page's record in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    pub(super) location: Location,
    /// Bytes of the record that it is in.
    pub(super) total: u32,
}

/// Page of a leaf that is only in the log.
#[derive(Clone, Copy)]
pub(super) struct StoredPage {
    /// Id of the leaf.
    pub(super) id: u64,
    pub(super) home: Home,
    /// Copy of [`State::checked`].
    pub(super) checked: u32,
}

impl StoredPage {
    pub(super) fn of(state: &State, home: Home) -> Self {
        Self { id: state.id, home, checked: state.checked.load(Ordering::Relaxed) }
    }
}

/// State of a leaf, which the leaf's lock protects.
pub(super) struct State {
    pub(super) id: u64,
    pub(super) generation: u32,
    /// Time before which no record of the leaf expires, in milliseconds since the Unix epoch.
    pub(super) expires_at_ms: u64,
    pub(super) content: Content,
    /// Bytes of the leaf that are counted towards the cap.
    pub(super) counted: u32,
    /// Lower bound of the versions of the leaf's keys, as far as eviction has found out.
    pub(super) oldest: Version,
    /// Whether the leaf was used since the [cache](super::cache) last considered evicting its page.
    access_bit: AtomicBool,
    /// Whether a record of the leaf was read or overwritten since the hand of
    /// [eviction](super::evict) last passed.
    read: AtomicBool,
    /// Period in which the page in the log was found sound, see [`crate::log::Segment::period`]. 0
    /// if it was not checked.
    pub(super) checked: AtomicU32,
}

pub(super) enum Content {
    /// Only in the log.
    Stored {
        home: Home,
        applied: u64,
        records: u32,
        /// Bytes of the page before compression.
        bytes: u32,
    },
    /// In memory.
    Loaded(Box<Loaded>),
}

/// A page in memory.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) page: Page,
    /// Record in the log of the same page; `None` if the page has changed since.
    pub(super) home: Option<Home>,
    /// Bytes that are counted towards the cache.
    pub(super) charged: usize,
    /// Bytes that the next checkpoint must write, as counted by the log's quota.
    pub(super) unwritten: usize,
    /// Index of the last change.
    pub(super) inserted: usize,
}

impl Loaded {
    /// Returns the bytes of memory that the page takes.
    #[inline]
    pub(super) fn memory_bytes(&self) -> usize {
        LOADED_BYTES + self.page.memory_bytes()
    }
}

impl State {
    /// Returns the state of a leaf whose page is only in the log.
    pub(super) fn stored(id: u64, content: Content, expires_at_ms: u64) -> Self {
        Self {
            id,
            generation: 0,
            expires_at_ms,
            content,
            counted: 0,
            oldest: 0,
            access_bit: AtomicBool::new(false),
            read: AtomicBool::new(false),
            checked: AtomicU32::new(0),
        }
    }

    /// Returns the state of a new leaf, whose page is not in the log yet.
    pub(super) fn fresh(id: u64, page: Page, expires_at_ms: u64) -> Self {
        let loaded = Loaded { page, home: None, charged: 0, unwritten: 0, inserted: 0 };
        Self {
            id,
            generation: 0,
            expires_at_ms,
            content: Content::Loaded(Box::new(loaded)),
            counted: 0,
            oldest: 0,
            access_bit: AtomicBool::new(true),
            read: AtomicBool::new(false),
            checked: AtomicU32::new(0),
        }
    }

    /// Returns the home of the current page; `None` if the log does not have it.
    pub(super) fn home(&self) -> Option<Home> {
        match &self.content {
            Content::Stored { home, .. } => Some(*home),
            Content::Loaded(loaded) => loaded.home,
        }
    }

    pub(super) fn loaded(&mut self) -> Option<&mut Loaded> {
        match &mut self.content {
            Content::Stored { .. } => None,
            Content::Loaded(loaded) => Some(loaded),
        }
    }

    /// Notes that the page, which is only in the log, was moved to another home.
    pub(super) fn move_to(&mut self, to: Home) {
        if let Content::Stored { home, .. } = &mut self.content {
            *home = to;
            *self.checked.get_mut() = 0;
        }
    }

    /// Returns the sequence number of the last redo record that was applied.
    pub(super) fn applied(&self) -> u64 {
        match &self.content {
            Content::Stored { applied, .. } => *applied,
            Content::Loaded(loaded) => loaded.page.applied,
        }
    }

    pub(super) fn records(&self) -> usize {
        match &self.content {
            Content::Stored { records, .. } => *records as usize,
            Content::Loaded(loaded) => loaded.page.len(),
        }
    }

    /// Bytes of the page, before compression.
    pub(super) fn bytes(&self) -> usize {
        match &self.content {
            Content::Stored { bytes, .. } => *bytes as usize,
            Content::Loaded(loaded) => loaded.page.bytes(),
        }
    }

    /// Notes that the leaf was used. Writes only if that changes the bit: readers of one leaf share
    /// its cache line.
    #[inline]
    pub(super) fn note_access(&self) {
        if !self.access_bit.load(Ordering::Relaxed) {
            self.access_bit.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that a record of the leaf was read or overwritten, like `note_access`.
    #[inline]
    pub(super) fn note_read(&self) {
        if !self.read.load(Ordering::Relaxed) {
            self.read.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether a record of the leaf was read or overwritten since the last call.
    pub(super) fn take_read(&self) -> bool {
        self.read.swap(false, Ordering::Relaxed)
    }

    /// Returns whether the leaf was used since the last call.
    pub(super) fn take_access(&self) -> bool {
        self.access_bit.swap(false, Ordering::Relaxed)
    }
}
