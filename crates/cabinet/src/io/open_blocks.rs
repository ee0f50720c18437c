//! Bytes of a map that the holders of append blocks may still write.

use crate::base::sync::Mutex;
use crossbeam_utils::CachePadded;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of append blocks of a map that are open at the same time.
pub(crate) const OPEN_BLOCKS_MAX: usize = 256;

/// Number of blocks in a group. A group takes memory once it is needed.
const GROUP_BLOCKS: usize = 16;

/// The open append blocks of a map. The bytes between a block's end, up to which its holder has
/// appended, and its limit may be written at any time. All other bytes below the map's `written`
/// are final.
///
/// Readers take no lock, and are never refused bytes whose append they know of.
///
/// # Ordering
///
/// A reader loads `written` first. If its range is below, it sees each block in that range as it
/// was opened, or in a later state, because a block is opened before `written` passes it. Each
/// later state is stored (release) after the bytes that become readable by it, and loaded with
/// acquire.
#[repr(C)]
pub(super) struct OpenBlocks {
    /// No open block begins below this offset; `usize::MAX` if none is open. It is the first
    /// field, so that it shares the cache line of the map's `written`.
    lowest: AtomicUsize,
    groups: OnceLock<Box<[OnceLock<Box<Group>>]>>,
    /// Held while a block is opened or closed.
    changing: Mutex<()>,
}

/// Blocks, each at a number of its own. Other blocks get the number once the block is closed; they
/// are behind it in the file.
#[derive(Default)]
struct Group {
    bounds: [Bounds; GROUP_BLOCKS],
    /// Ends of the blocks. Each changes with every append.
    ends: [CachePadded<AtomicUsize>; GROUP_BLOCKS],
}

/// Offsets of a block in the file, in bytes. The limit is 0 if no block has the number.
#[derive(Default)]
struct Bounds {
    start: AtomicUsize,
    limit: AtomicUsize,
}

impl Default for OpenBlocks {
    fn default() -> Self {
        Self {
            lowest: AtomicUsize::new(usize::MAX),
            groups: OnceLock::new(),
            changing: Mutex::new(()),
        }
    }
}

impl OpenBlocks {
    /// Opens a block of these bytes and returns its number, or `None` if too many are open. The
    /// caller raises the map's `written` over the block after that.
    pub(super) fn open(&self, bytes: Range<usize>) -> Option<usize> {
        let groups = self
            .groups
            .get_or_init(|| (0..OPEN_BLOCKS_MAX / GROUP_BLOCKS).map(|_| OnceLock::new()).collect());
        let _changing = self.changing.lock();
        for (number, group) in groups.iter().enumerate() {
            let group = group.get_or_init(Box::default);
            let is_free = |bounds: &Bounds| bounds.limit.load(Ordering::Relaxed) == 0;
            let Some(within) = group.bounds.iter().position(is_free) else { continue };
            let bounds = &group.bounds[within];
            // A reader that sees the limit sees the end too. One that sees the end sees the bytes
            // of the block that had the number before.
            group.ends[within].store(bytes.start, Ordering::Release);
            bounds.start.store(bytes.start, Ordering::Release);
            bounds.limit.store(bytes.end, Ordering::Release);
            let lowest = self.lowest.load(Ordering::Relaxed).min(bytes.start);
            self.lowest.store(lowest, Ordering::Release);
            return Some(number * GROUP_BLOCKS + within);
        }
        None
    }

    /// Records that the holder of a block has appended up to `end`.
    #[inline]
    pub(super) fn set_end(&self, block: usize, end: usize) {
        if let Some(group) = self.group_of(block) {
            group.ends[block % GROUP_BLOCKS].store(end, Ordering::Release);
        }
    }

    /// Closes a block: its bytes do not change any more.
    pub(super) fn close(&self, block: usize) {
        let _changing = self.changing.lock();
        if let Some(group) = self.group_of(block) {
            group.bounds[block % GROUP_BLOCKS].limit.store(0, Ordering::Release);
        }
        let open = self.groups().flat_map(|group| &group.bounds);
        let open = open.filter(|bounds| bounds.limit.load(Ordering::Relaxed) != 0);
        let lowest = open.map(|bounds| bounds.start.load(Ordering::Relaxed)).min();
        self.lowest.store(lowest.unwrap_or(usize::MAX), Ordering::Release);
    }

    /// Returns whether all bytes of a range below the map's `written` are final.
    #[inline]
    pub(super) fn are_final(&self, range: Range<usize>) -> bool {
        range.end <= self.lowest.load(Ordering::Acquire) || self.next_unwritten(&range).is_none()
    }

    /// Returns the first bytes of a range that the holder of a block may still write.
    #[inline(never)]
    pub(super) fn next_unwritten(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let all = self.groups().flat_map(|group| group.bounds.iter().zip(&group.ends));
        let within = all.filter_map(|(bounds, end)| {
            // The limit first: if the number has got another block since, the rest is behind it.
            let limit = bounds.limit.load(Ordering::Acquire).min(range.end);
            let start = bounds.start.load(Ordering::Acquire);
            // The ends of other blocks are not loaded: their writers change them all the time.
            let is_met = limit > range.start && start < range.end;
            is_met.then(|| end.load(Ordering::Acquire).max(range.start)..limit)
        });
        within.filter(|unwritten| !unwritten.is_empty()).min_by_key(|unwritten| unwritten.start)
    }

    #[inline]
    fn group_of(&self, block: usize) -> Option<&Group> {
        Some(self.groups.get()?.get(block / GROUP_BLOCKS)?.get()?)
    }

    fn groups(&self) -> impl Iterator<Item = &Group> {
        let groups = self.groups.get().into_iter().flatten();
        groups.filter_map(|group| group.get().map(Box::as_ref))
    }
}
