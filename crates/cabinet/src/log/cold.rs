//! Reading a segment without keeping it in the page cache: what was not there before does not stay,
//! so that records in use keep their place.

use super::segment::Segment;
use std::sync::Arc;

/// Bytes that are given up at a time.
const STEP_BYTES: u64 = 256 << 10;

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// The pages of a segment that were not in memory when reading it began.
pub(super) struct Cold {
    segment: Arc<Segment>,
    is_resident: Vec<bool>,
    /// Up to where they were given back.
    done: u64,
}

impl Cold {
    pub(super) fn of(segment: &Arc<Segment>) -> Self {
        let is_resident = segment.map.resident_pages();
        Self { segment: Arc::clone(segment), is_resident, done: 0 }
    }

    /// Has the system drop the pages before `offset`, in large pieces.
    pub(super) fn forget(&mut self, offset: u64) {
        let upto = offset / PAGE_BYTES;
        if upto >= self.done + STEP_BYTES / PAGE_BYTES {
            self.forget_pages(upto);
        }
    }

    fn forget_pages(&mut self, upto: u64) {
        let upto = upto.min(self.is_resident.len() as u64);
        while self.done < upto {
            let is_resident = |page: u64| self.is_resident[page as usize];
            let start = self.done;
            let kind = is_resident(start);
            while self.done < upto && is_resident(self.done) == kind {
                self.done += 1;
            }
            if !kind {
                let (at, bytes) = (start * PAGE_BYTES, (self.done - start) * PAGE_BYTES);
                self.segment.file.forget(at, bytes);
            }
        }
    }
}

impl Drop for Cold {
    /// Has the system drop all that is left, which may have been read ahead.
    fn drop(&mut self) {
        self.forget_pages(u64::MAX);
    }
}
