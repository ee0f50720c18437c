//! Paused reader of a segment: its position, and the pages that it has announced. It holds no file,
//! so a segment that compaction has emptied can be removed meanwhile.

use super::segment::Segment;
use crate::io::page_bytes;
use crate::log::scan::ScanPosition;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Maximum number of bytes that are announced before they are read.
const AHEAD_BYTES: u64 = 1 << 20;

/// Bytes that are announced at a time.
const ANNOUNCED_BYTES: u64 = 256 << 10;

/// Position of a paused reader, and the pages that it has announced. See the module.
#[derive(Debug, Default)]
pub(crate) struct PausedReader {
    pub(super) scan_position: ScanPosition,
    pub(super) trail: Trail,
}

/// The pages that a reader has announced and not dropped yet.
#[derive(Debug, Default)]
pub(super) struct Trail {
    /// Number of the first page.
    first: u64,
    /// Whether each page was in memory before.
    is_resident: VecDeque<bool>,
}

impl Trail {
    /// Announces the reads from `offset` on, if they may not be in memory.
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
        // Pages whose state is unknown are left to the operating system.
        let resident = segment.map.resident_pages_within(start, end).unwrap_or_default();
        if from > announced {
            // A large record was read beyond the announced pages.
            self.forget(segment, start);
            *self = Self { first: from, is_resident: VecDeque::new() };
        }
        let bytes = end - start;
        let known = resident.len();
        self.is_resident.extend(resident);
        let pages = usize::try_from(pages(bytes)).unwrap_or(usize::MAX);
        self.is_resident.extend(std::iter::repeat_n(true, pages.saturating_sub(known)));
        segment.file.will_read(start, bytes);
    }

    /// Drops the pages before `offset` from the page cache, except those that were in memory
    /// before.
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
