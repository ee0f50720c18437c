//! Pages of leaves that are read ahead of a scan, and dropped behind it.
//!
//! A scan tells the system of the pages of its next leaves, and has it drop those of the last ones
//! that were not in memory before. Several scans may want the same pages: the first one finds that
//! a page is not in memory, and the last one drops it.

use crate::io::page_bytes;
use crate::log::Segment;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Bytes between two pages that are read with them: less than it takes to ask twice.
const GAP_BYTES_MAX: u64 = 16 << 10;

/// Bytes of pages after which no further leaf is listed with them.
pub(super) const GROUP_BYTES_MAX: u64 = 4 << 20;

/// A part of a segment, in bytes.
pub(super) struct Part {
    pub(super) segment: Arc<Segment>,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Joins parts that have little between them. They are in the order of the log.
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

/// Number of a segment, and that of a page of its file.
type PageNumber = (u64, u64);

/// Pages that scans have brought into memory, and how many of them want each.
#[derive(Default)]
pub(super) struct Brought(Mutex<HashMap<PageNumber, u32>>);

impl Brought {
    /// Notes that a scan wants pages of a segment from a first one on, of which these are in
    /// memory. Returns those that are to be read, and those that are to be let go of later.
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

    /// Lets go of pages. Returns those that no scan wants any more.
    fn let_go(&self, number: u64, pages: Range<u64>) -> Vec<Range<u64>> {
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

    /// Number of pages that scans want.
    #[cfg(test)]
    pub(super) fn wanted(&self) -> usize {
        self.0.lock().len()
    }

    /// Has the system read parts that are not in memory. They are dropped with what is returned.
    pub(super) fn read_ahead(&self, parts: &[Part]) -> ReadAhead<'_> {
        let page_bytes = page_bytes() as u64;
        let mut pages = Vec::new();
        for Part { segment, start, end } in parts {
            let Some(is_resident) = segment.map.resident_pages_within(*start, *end) else {
                // It is not known what is in memory: nothing is dropped.
                segment.file.will_read(*start, GROUP_BYTES_MAX.min(end - start));
                continue;
            };
            let (read, wanted) = self.want(segment.number, start / page_bytes, &is_resident);
            for run in read {
                // A page of a leaf may be longer by itself.
                let bytes = GROUP_BYTES_MAX.min((run.end - run.start) * page_bytes);
                segment.file.will_read(run.start * page_bytes, bytes);
            }
            let own = |run| Run { segment: Arc::downgrade(segment), number: segment.number, run };
            pages.extend(wanted.into_iter().map(own));
        }
        ReadAhead { brought: self, pages }
    }
}

/// Adds the next page to runs of pages.
fn push(runs: &mut Vec<Range<u64>>, page: u64) {
    match runs.last_mut() {
        Some(last) if last.end == page => last.end += 1,
        _ => runs.push(page..page + 1),
    }
}

/// Pages of a segment, which may be removed before.
struct Run {
    segment: Weak<Segment>,
    number: u64,
    run: Range<u64>,
}

/// Pages that a scan has had read, until it is dropped.
pub(super) struct ReadAhead<'b> {
    brought: &'b Brought,
    pages: Vec<Run>,
}

impl Drop for ReadAhead<'_> {
    fn drop(&mut self) {
        let page_bytes = page_bytes() as u64;
        for Run { segment, number, run } in self.pages.drain(..) {
            let free = self.brought.let_go(number, run);
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
        // By then they are in memory, but for one that the system has dropped.
        let (read, second) = brought.want(1, 11, &[true, true, false, true]);
        assert_eq!((ends(&read), ends(&second)), (vec![(13, 14)], vec![(11, 12), (13, 14)]));
        assert_eq!(brought.want(2, 11, &[true]), (vec![], vec![]));
        let let_go = |runs: &[Range<u64>]| -> Vec<(u64, u64)> {
            runs.iter().flat_map(|run| ends(&brought.let_go(1, run.clone()))).collect()
        };
        assert_eq!(let_go(&first), [(10, 11)]);
        assert_eq!(let_go(&second), [(11, 12), (13, 14)]);
        assert!(brought.0.lock().is_empty());
        // Others have read it since.
        assert_eq!(brought.want(1, 11, &[true]), (vec![], vec![]));
    }
}
