//! Read-ahead: reads pages of leaves ahead of a scan, and drops them after it.
//!
//! A scan asks the kernel to read the pages of its next leaves, and to drop those of its last
//! leaves that were not in memory before. Several scans may want the same page: the first one finds
//! that it is not in memory, and the last one drops it.

use crate::io::page_bytes;
use crate::log::Segment;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Maximum bytes between two pages that are read together with them. Reading so few bytes costs
/// less than another request.
const GAP_BYTES_MAX: u64 = 16 << 10;

/// Bytes of pages after which no further leaf is listed with them.
pub(super) const GROUP_BYTES_MAX: u64 = 4 << 20;

/// A part of a segment, as a range of offsets in bytes.
pub(super) struct Part {
    pub(super) segment: Arc<Segment>,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Joins parts that are in the order of the log and have small gaps between them.
pub(super) fn joined(parts: impl Iterator<Item = Part>) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        match joined.last_mut() {
            Some(last)
                if last.segment.number == part.segment.number
                    && part.start <= last.end + GAP_BYTES_MAX =>
            {
                last.end = last.end.max(part.end);
            }
            _ => joined.push(part),
        }
    }
    joined
}

/// Number of a segment, and number of a memory page of its file.
type PageNumber = (u64, u64);

/// Memory pages that scans have brought into memory, each with the number of scans that want it.
#[derive(Default)]
pub(super) struct Brought(Mutex<HashMap<PageNumber, u32>>);

impl Brought {
    /// Notes that a scan wants the pages of a segment from `first` on. `is_resident` has for each
    /// whether it is in memory. Returns the pages to read, and the pages to release later.
    fn want(
        &self,
        number: u64,
        first: u64,
        is_resident: &[bool],
    ) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
        let mut counts = self.0.lock();
        let (mut read, mut wanted) = (Vec::new(), Vec::new());
        for (page, is_resident) in (first..).zip(is_resident) {
            if !is_resident {
                push(&mut read, page);
            }
            if !is_resident || counts.contains_key(&(number, page)) {
                *counts.entry((number, page)).or_default() += 1;
                push(&mut wanted, page);
            }
        }
        (read, wanted)
    }

    /// Releases pages. Returns those that no scan wants any more.
    fn release(&self, number: u64, pages: Range<u64>) -> Vec<Range<u64>> {
        let mut counts = self.0.lock();
        let mut free = Vec::new();
        for page in pages {
            let Some(count) = counts.get_mut(&(number, page)) else { continue };
            *count -= 1;
            if *count == 0 {
                counts.remove(&(number, page));
                push(&mut free, page);
            }
        }
        free
    }

    /// Returns the number of pages that scans want.
    #[cfg(test)]
    pub(super) fn wanted(&self) -> usize {
        self.0.lock().len()
    }

    /// Asks the kernel to read the parts that are not in memory. They are dropped from memory when
    /// the returned value is dropped.
    pub(super) fn read_ahead(&self, parts: &[Part]) -> ReadAhead<'_> {
        let page_bytes = page_bytes() as u64;
        let mut pages = Vec::new();
        for Part { segment, start, end } in parts {
            let Some(is_resident) = segment.map.resident_pages_within(*start, *end) else {
                // It is unknown which pages are in memory, so none is dropped.
                segment.file.will_read(*start, GROUP_BYTES_MAX.min(end - start));
                continue;
            };
            let (read, wanted) = self.want(segment.number, start / page_bytes, &is_resident);
            for run in read {
                // A single page of a leaf may be longer.
                let bytes = GROUP_BYTES_MAX.min((run.end - run.start) * page_bytes);
                segment.file.will_read(run.start * page_bytes, bytes);
            }
            let own = |run| Run { segment: Arc::downgrade(segment), number: segment.number, run };
            pages.extend(wanted.into_iter().map(own));
        }
        ReadAhead { brought: self, pages }
    }
}

/// Adds a page after the last run to runs of pages.
fn push(runs: &mut Vec<Range<u64>>, page: u64) {
    match runs.last_mut() {
        Some(last) if last.end == page => last.end += 1,
        _ => runs.push(page..page + 1),
    }
}

/// Pages of a segment, which may be removed before they are released.
struct Run {
    segment: Weak<Segment>,
    number: u64,
    run: Range<u64>,
}

/// Pages that are kept in memory for a scan until this value is dropped.
pub(super) struct ReadAhead<'b> {
    brought: &'b Brought,
    pages: Vec<Run>,
}

impl Drop for ReadAhead<'_> {
    fn drop(&mut self) {
        let page_bytes = page_bytes() as u64;
        for Run { segment, number, run } in self.pages.drain(..) {
            let free = self.brought.release(number, run);
            if let Some(segment) = segment.upgrade() {
                for pages in free {
                    let bytes = (pages.end - pages.start) * page_bytes;
                    segment.file.forget(pages.start * page_bytes, bytes);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_scan_that_wants_a_page_drops_it() {
        let brought = Brought::default();
        let ends = |runs: &[Range<u64>]| -> Vec<(u64, u64)> {
            runs.iter().map(|run| (run.start, run.end)).collect()
        };
        let (read, first) = brought.want(1, 10, &[false, false, true, false]);
        assert_eq!((ends(&read), ends(&first)), (vec![(10, 12), (13, 14)], ends(&read)));
        // By then they are in memory, except one that the kernel has dropped.
        let (read, second) = brought.want(1, 11, &[true, true, false, true]);
        assert_eq!((ends(&read), ends(&second)), (vec![(13, 14)], vec![(11, 12), (13, 14)]));
        assert_eq!(brought.want(2, 11, &[true]), (vec![], vec![]));
        let release = |runs: &[Range<u64>]| -> Vec<(u64, u64)> {
            runs.iter().flat_map(|run| ends(&brought.release(1, run.clone()))).collect()
        };
        assert_eq!(release(&first), [(10, 11)]);
        assert_eq!(release(&second), [(11, 12), (13, 14)]);
        assert!(brought.0.lock().is_empty());
        // Another reader has brought it into memory since.
        assert_eq!(brought.want(1, 11, &[true]), (vec![], vec![]));
    }
}
