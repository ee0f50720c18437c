//! Segment repair: fills holes, keeps them aside, or cuts them off.

use super::holes::{Extent, Fate, Hole};
use super::{Recovery, report_damage};
use crate::io::is_unreadable;
use crate::log::error_at;
use crate::log::record::{ALIGNMENT, BLOCK_BYTES_MAX, Prepared, RECORD_BYTES_MIN};
use crate::log::scan::{UNREADABLE, UNWRITTEN};
use crate::log::segments::{MARGIN_BYTES, Segment};
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Recovery {
    /// Makes a segment ready for appends, or for repeated reads, without its holes.
    pub(super) fn repair(
        &mut self,
        segment: &Arc<Segment>,
        extent: &Extent,
        end: u64,
        holes: &[Hole],
    ) -> Result<()> {
        let is_last = extent.is_last;
        let mut cut_at = end;
        // There may also be stale bytes after zeros.
        let mut is_stale = end < extent.scanned_end();
        for hole in holes {
            let reaches_end = hole.offset + hole.bytes >= extent.scanned_end() && !hole.is_followed;
            match hole.fate {
                Fate::Unfilled => {
                    if hole.what != UNWRITTEN {
                        warn(hole, "are dropped");
                    }
                    self.fill(segment, hole)?;
                }
                Fate::Torn => {
                    warn(hole, "are cut off");
                    is_stale = true;
                }
                Fate::Lost => {
                    warn(hole, "were not synced when the power went, and are dropped");
                    if hole.is_followed {
                        self.keep_lost(segment, hole, is_last)?;
                    }
                    if hole.what == UNREADABLE {
                        // No part of an unreadable page can be written either.
                        let cut = segment.file.truncate(hole.offset);
                        cut.map_err(|error| error_at("cut", &segment.path, error))?;
                    }
                    // The next append begins after the offset in the name of the file kept aside,
                    // so that a later opening does not count it as lost.
                    let bytes = if is_last { RECORD_BYTES_MIN as u64 } else { filled_bytes(hole) };
                    if !is_last || hole.is_followed {
                        if self.fill_or_keep(segment, &Hole { bytes, ..hole.clone() })? {
                            cut_at = cut_at.max(hole.offset + bytes);
                        } else if !is_last {
                            // The segment keeps its length while it is mapped.
                            let end = hole.offset + bytes;
                            let grown = segment.file.truncate(end);
                            grown.map_err(|error| error_at("write", &segment.path, error))?;
                        }
                    }
                    is_stale = true;
                }
                Fate::Damaged => {
                    let damage = hole.damage();
                    report_damage(&damage);
                    self.damages.push(damage);
                    if !is_last {
                        segment.damaged.store(true, Ordering::Relaxed);
                    } else if hole.what == UNREADABLE
                        || reaches_end && (hole.number, hole.offset) < self.listed_end
                    {
                        // Writing there or cutting the file may fail, and the disk may be able to
                        // read it another time. Also, a new record at a listed point would be
                        // mistaken for the old one. So the bytes stay, and the log continues in a
                        // new segment.
                        segment.damaged.store(true, Ordering::Relaxed);
                        if reaches_end {
                            self.skip_sequences();
                            cut_at = cut_at.max(extent.length);
                        }
                    } else if reaches_end {
                        self.keep_aside(segment, hole, "damaged")?;
                        self.skip_sequences();
                        is_stale = true;
                    } else {
                        self.keep_aside(segment, hole, "damaged")?;
                        self.fill_or_keep(segment, hole)?;
                        if hole.bytes < RECORD_BYTES_MIN as u64 {
                            segment.damaged.store(true, Ordering::Relaxed);
                        }
                    }
                }
            }
        }
        // A segment that was too short has been filled up to its recorded length.
        let is_longer = cut_at > segment.bytes() && !segment.is_damaged();
        let has_rest = extent.end.is_none() && end < extent.length && !segment.is_damaged();
        if is_last || is_longer || has_rest {
            self.cut(segment, cut_at, is_stale, if is_last { MARGIN_BYTES } else { 0 })?;
        }
        Ok(())
    }

    /// Like `fill`, and returns whether it succeeded. If the disk cannot read a page, and so cannot
    /// write a part of it, the segment is kept as it is.
    fn fill_or_keep(&self, segment: &Segment, hole: &Hole) -> Result<bool> {
        match self.fill(segment, hole) {
            Err(Error::Io { source, .. }) if is_unreadable(&source) => {
                segment.damaged.store(true, Ordering::Relaxed);
                Ok(false)
            }
            filled => filled.map(|()| true),
        }
    }

    /// Overwrites a hole with fillers, durably.
    fn fill(&self, segment: &Segment, hole: &Hole) -> Result<()> {
        let failed = |error| error_at("write", &segment.path, error);
        let mut at = hole.offset;
        let end = hole.offset + hole.bytes;
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            let mut bytes = left.min(BLOCK_BYTES_MAX);
            if left > bytes && left - bytes < RECORD_BYTES_MIN {
                bytes -= RECORD_BYTES_MIN;
            }
            let mut filling = Vec::with_capacity(bytes);
            if bytes >= RECORD_BYTES_MIN {
                let mut filler = Prepared::filler(segment.binding.salt(), bytes);
                for part in filler.seal_hollow(1, segment.binding.mask(at as usize)) {
                    filling.extend_from_slice(part);
                }
            }
            filling.resize(bytes, 0);
            segment.file.write_at(&filling, at).map_err(failed)?;
            at += bytes as u64;
        }
        segment.file.sync().map_err(failed)
    }

    /// Cuts a segment at `end`, and its file up to `margin` zeros later, if it is that long.
    fn cut(
        &mut self,
        segment: &Arc<Segment>,
        end: u64,
        is_stale: bool,
        margin: usize,
    ) -> Result<()> {
        let failed = |error| error_at("cut", &segment.path, error);
        let length = segment.file.length().map_err(failed)?.clamp(end, end + margin as u64);
        // Appends may overwrite zeros after the end, but not stale bytes.
        let zeros = &[0; MARGIN_BYTES][..(length - end) as usize];
        if is_stale && segment.file.write_at(zeros, end).is_err() {
            segment.file.truncate(end).map_err(failed)?;
            if segment.file.write_at(zeros, end).is_err_and(|error| is_unreadable(&error)) {
                // The page with the end cannot be written: the log continues in a new segment.
                segment.damaged.store(true, Ordering::Relaxed);
            }
        } else {
            segment.file.truncate(length).map_err(failed)?;
        }
        if is_stale {
            // Stale bytes must not reappear after new records if the power is lost before a sync.
            segment.file.sync().map_err(failed)?;
        }
        let written = usize::try_from(end).unwrap_or(usize::MAX);
        let map = segment.file.map(segment.capacity.max(written), written).map_err(failed)?;
        self.segments.insert(Arc::new(segment.with_map(map)));
        Ok(())
    }
}

/// Returns the size of the fillers in the place of a hole, in bytes. A file may be cut at any byte.
/// A filler is a record: it is not shorter than one, and ends where a record may begin.
fn filled_bytes(hole: &Hole) -> u64 {
    hole.bytes.next_multiple_of(ALIGNMENT as u64).max(RECORD_BYTES_MIN as u64)
}

fn warn(hole: &Hole, outcome: &str) {
    let (path, Hole { offset, bytes, what, .. }) = (hole.path.display(), hole);
    tracing::warn!("{path}: {bytes} bytes at byte {offset} {outcome}: {what}");
}
