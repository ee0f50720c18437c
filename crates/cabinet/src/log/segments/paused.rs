//! A reader of a segment between two of its steps: where it stands, and which pages it has asked
//! for. It holds no file, so a segment that compaction has emptied goes meanwhile.

use super::segment::Segment;
use crate::io::page_bytes;
use crate::log::scan::ScanPosition;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Bytes that the system is told of before they are read, at most.
const AHEAD_BYTES: u64 = 1 << 20;

/// Bytes that it is told of at a time.
const ANNOUNCED_BYTES: u64 = 256 << 10;

/// Position of a reader that goes on later, and the pages it has asked for. See the module.
#[derive(Debug, Default)]
pub(crate) struct PausedReader {
    pub(super) scan_position: ScanPosition,
    pub(super) trail: Trail,
}

/// The pages that a reader has asked for and not yet given up.
#[derive(Debug, Default)]
pub(super) struct Trail {
    /// Number of the first.
    first: u64,
    /// Whether each was in memory before.
    is_resident: VecDeque<bool>,
}

impl Trail {
    /// Tells the system what is read from `offset` on, if it may not be in memory.
    pub(super) fn announce(&mut self, segment: &Segment, offset: u64) {
        let page_bytes = page_bytes() as u64;
        let pages = |bytes: u64| bytes / page_bytes;
        let announced = self.first + self.is_resident.len() as u64;
        let limit = pages(offset + AHEAD_BYTES - ANNOUNCED_BYTES);
        if announced > limit || segment.resident.load(Ordering::Relaxed) {
            return;
        }
        let from = announced.max(pages(offset));
        let (start, end) = (from * page_bytes, offset + AHEAD_BYTES);
        // Pages of which the system tells nothing are left to it.
        let resident = segment.map.resident_pages_within(start, end).unwrap_or_default();
        if from > announced {
            // A large record was read beyond what was asked for.
            self.forget(segment, start);
            *self = Self { first: from, is_resident: VecDeque::new() };
        }
        let bytes = end - start;
        let told = resident.len();
        self.is_resident.extend(resident);
        let pages = usize::try_from(pages(bytes)).unwrap_or(usize::MAX);
        self.is_resident.extend(std::iter::repeat_n(true, pages.saturating_sub(told)));
        segment.file.will_read(start, bytes);
    }

    /// Has the system drop the pages before `offset` that were not in memory before.
    pub(super) fn forget(&mut self, segment: &Segment, offset: u64) {
        let page_bytes = page_bytes() as u64;
        let passed = (offset / page_bytes).saturating_sub(self.first);
        let passed = usize::try_from(passed).unwrap_or(usize::MAX).min(self.is_resident.len());
        let mut page = self.first;
        self.first += passed as u64;
        let passed: Vec<bool> = self.is_resident.drain(..passed).collect();
        for run in passed.chunk_by(|one, other| one == other) {
            if !run[0] {
                segment.file.forget(page * page_bytes, run.len() as u64 * page_bytes);
            }
            page += run.len() as u64;
        }
    }
}
