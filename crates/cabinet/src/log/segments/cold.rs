//! Cold reads: read a segment without keeping it in the page cache. Pages that were not cached
//! before are dropped, so that records in use stay cached.
//!
//! Several readers of a segment share the state of its pages: a page is dropped when the last
//! reader has passed it.

use super::segment::Segment;
use crate::io::page_bytes;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// Bytes that are dropped at a time.
const STEP_BYTES: u64 = 256 << 10;

/// The pages of a segment that were not in memory when its first reader began.
struct Pages {
    is_resident: Vec<bool>,
    /// Number of the page up to which pages were dropped.
    done: u64,
    /// The number of each reader, and of the page that it has reached.
    readers: Vec<(u64, u64)>,
    /// Number of the last reader that was added.
    next: u64,
}

/// State that the readers of a segment share.
#[derive(Default)]
pub(super) struct Shared(Mutex<Weak<Mutex<Pages>>>);

/// A reader of a segment. See the module.
pub(in crate::log) struct Cold {
    segment: Arc<Segment>,
    pages: Arc<Mutex<Pages>>,
    number: u64,
    /// Offset from which the reader checks again for pages to drop.
    due: u64,
}

impl Pages {
    /// Adds a reader, which begins at the first page. Returns its number.
    fn enter(&mut self) -> u64 {
        self.next += 1;
        self.readers.push((self.next, 0));
        // The new reader reads the pages again that were dropped before.
        self.done = 0;
        self.next
    }

    /// Records that a reader has passed the pages before `page`. Returns the pages that no reader
    /// needs any more, if they are `min` or more: the first of each run, and the run's length.
    fn come_to(&mut self, number: u64, page: u64, min: u64) -> Vec<(u64, u64)> {
        if let Some((_, at)) = self.readers.iter_mut().find(|(other, _)| *other == number) {
            *at = page.max(*at);
        }
        let upto = self.readers.iter().map(|(_, at)| *at).min().unwrap_or(u64::MAX);
        if upto < self.done.saturating_add(min) { Vec::new() } else { self.give_back(upto) }
    }

    /// Removes a reader. Returns the pages that no reader needs any more, like `come_to`.
    fn leave(&mut self, number: u64) -> Vec<(u64, u64)> {
        self.readers.retain(|(other, _)| *other != number);
        let upto = self.readers.iter().map(|(_, at)| *at).min().unwrap_or(u64::MAX);
        self.give_back(upto)
    }

    fn give_back(&mut self, upto: u64) -> Vec<(u64, u64)> {
        let upto = upto.min(self.is_resident.len() as u64);
        let mut runs = Vec::new();
        while self.done < upto {
            let is_resident = |page: u64| self.is_resident[page as usize];
            let start = self.done;
            let kind = is_resident(start);
            while self.done < upto && is_resident(self.done) == kind {
                self.done += 1;
            }
            if !kind {
                runs.push((start, self.done - start));
            }
        }
        runs
    }
}

impl Cold {
    pub(in crate::log) fn of(segment: &Arc<Segment>) -> Self {
        let mut shared = segment.cold.0.lock();
        let pages = shared.upgrade().unwrap_or_else(|| {
            let is_resident = segment.map.resident_pages();
            let pages = Pages { is_resident, done: 0, readers: Vec::new(), next: 0 };
            let pages = Arc::new(Mutex::new(pages));
            *shared = Arc::downgrade(&pages);
            pages
        });
        let number = pages.lock().enter();
        drop(shared);
        Self { segment: Arc::clone(segment), pages, number, due: 0 }
    }

    /// Drops the pages before `offset` from the page cache, in large pieces.
    pub(in crate::log) fn forget(&mut self, offset: u64) {
        if offset < self.due {
            return;
        }
        self.due = offset + STEP_BYTES;
        let page_bytes = page_bytes() as u64;
        let min = STEP_BYTES.div_ceil(page_bytes);
        let runs = self.pages.lock().come_to(self.number, offset / page_bytes, min);
        self.drop_pages(runs);
    }

    fn drop_pages(&self, runs: Vec<(u64, u64)>) {
        let page_bytes = page_bytes() as u64;
        for (first, count) in runs {
            self.segment.file.forget(first * page_bytes, count * page_bytes);
        }
    }
}

impl Drop for Cold {
    /// Drops all remaining pages, which may have been read ahead.
    fn drop(&mut self) {
        let runs = self.pages.lock().leave(self.number);
        self.drop_pages(runs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_dropped_when_the_last_reader_is_past_them() {
        let is_resident = vec![false, false, true, false, false, false];
        let mut pages = Pages { is_resident, done: 0, readers: Vec::new(), next: 0 };
        let first = pages.enter();
        assert_eq!(pages.come_to(first, 1, 2), []);
        assert_eq!(pages.come_to(first, 4, 2), [(0, 2), (3, 1)]);
        let second = pages.enter();
        assert_eq!(pages.come_to(first, 6, 2), []);
        assert_eq!(pages.come_to(second, 3, 2), [(0, 2)]);
        assert_eq!(pages.leave(first), []);
        assert_eq!(pages.come_to(second, 5, 2), [(3, 2)]);
        assert_eq!(pages.leave(second), [(5, 1)]);
    }
}
