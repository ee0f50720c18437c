//! Mending segments: their holes are filled, kept aside or cut off.

use super::holes::{Extent, Fate, Hole};
use super::{Recovery, report_damage};
use crate::io::is_unreadable;
use crate::log::error_at;
use crate::log::record::{BLOCK_BYTES_MAX, Prepared, RECORD_BYTES_MIN};
use crate::log::scan::{UNREADABLE, UNWRITTEN};
use crate::log::segments::{MARGIN_BYTES, Segment};
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Recovery {
    /// Makes of a segment what can be appended to, or read again and again, without its holes.
    pub(super) fn mend(
        &mut self,
        segment: &Arc<Segment>,
        extent: &Extent,
        end: u64,
        holes: &[Hole],
    ) -> Result<()> {
        let is_last = extent.is_last;
        let mut cut_at = end;
        // Behind zeros, too, there may be some.
        let mut is_stale = end < extent.scanned_end();
        for hole in holes {
            let reaches_end = hole.offset + hole.bytes >= extent.scanned_end() && !hole.is_followed;
            match hole.fate {
                Fate::Unfilled => {
                    if hole.what != UNWRITTEN {
                        tell(hole, "are dropped");
                    }
                    self.fill(segment, hole)?;
                }
                Fate::Torn => {
                    tell(hole, "are cut off");
                    is_stale = true;
                }
                Fate::Lost => {
                    tell(hole, "were not synced when the power went, and are dropped");
                    if hole.is_followed {
                        self.keep_lost(segment, hole, is_last)?;
                    }
                    if hole.what == UNREADABLE {
                        // No part of a page that cannot be read can be written either.
                        let cut = segment.file.truncate(hole.offset);
                        cut.map_err(|error| error_at("cut", &segment.path, error))?;
                    }
                    // The next append begins after the place that the file kept aside names,
                    // so that a later opening does not take it for a part of the loss.
                    let bytes = if is_last { RECORD_BYTES_MIN as u64 } else { hole.bytes };
                    if !is_last || hole.is_followed {
                        if self.fill_or_keep(segment, &Hole { bytes, ..hole.clone() })? {
                            cut_at = cut_at.max(hole.offset + bytes);
                        } else if !is_last {
                            // It stays as long as it is mapped.
                            let end = hole.offset + hole.bytes;
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
                        // It may not be possible to write there, nor to cut the file, and another
                        // time the disk may read it; and what comes to a listed place would be
                        // taken for what was there. So it stays, and the log goes on in a new
                        // segment.
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
        // A segment that was shorter than it should be has been filled up, and is that long now.
        let is_longer = cut_at > segment.bytes() && !segment.is_damaged();
        let has_rest = extent.end.is_none() && end < extent.length && !segment.is_damaged();
        if is_last || is_longer || has_rest {
            self.cut(segment, cut_at, is_stale, if is_last { MARGIN_BYTES } else { 0 })?;
        }
        Ok(())
    }

    /// As `fill`; returns whether that was done. If the disk cannot read a page, and so cannot
    /// write any part of it, the segment is kept as it is.
    fn fill_or_keep(&self, segment: &Segment, hole: &Hole) -> Result<bool> {
        match self.fill(segment, hole) {
            Err(Error::Io { source, .. }) if is_unreadable(&source) => {
                segment.damaged.store(true, Ordering::Relaxed);
                Ok(false)
            }
            filled => filled.map(|()| true),
        }
    }

    /// Makes a hole mean nothing, for good.
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
                let mut filler = Prepared::filler(self.database_id.salt, bytes);
                for part in filler.seal_hollow(1) {
                    filling.extend_from_slice(part);
                }
            }
            filling.resize(bytes, 0);
            segment.file.write_at(&filling, at).map_err(failed)?;
            at += bytes as u64;
        }
        segment.file.sync().map_err(failed)
    }

    /// Makes a segment end there, and its file so many zeros behind that, if it is that long.
    fn cut(
        &mut self,
        segment: &Arc<Segment>,
        end: u64,
        is_stale: bool,
        margin: usize,
    ) -> Result<()> {
        let failed = |error| error_at("cut", &segment.path, error);
        let length = segment.file.length().map_err(failed)?.clamp(end, end + margin as u64);
        // Zeros beyond the end are what is appended over, but stale bytes must not be.
        let zeros = &[0; MARGIN_BYTES][..(length - end) as usize];
        if is_stale && segment.file.write_at(zeros, end).is_err() {
            segment.file.truncate(end).map_err(failed)?;
            if segment.file.write_at(zeros, end).is_err_and(|error| is_unreadable(&error)) {
                // The page that the end is in: the log goes on in a new segment.
                segment.damaged.store(true, Ordering::Relaxed);
            }
        } else {
            segment.file.truncate(length).map_err(failed)?;
        }
        if is_stale {
            // Nor may they come back behind what is appended now, if the power goes before a sync.
            segment.file.sync().map_err(failed)?;
        }
        let written = usize::try_from(end).unwrap_or(usize::MAX);
        let map = segment.file.map(segment.capacity.max(written), written).map_err(failed)?;
        self.segments.insert(Arc::new(segment.with_map(map)));
        Ok(())
    }
}

fn tell(hole: &Hole, what_became: &str) {
    let (path, Hole { offset, bytes, what, .. }) = (hole.path.display(), hole);
    tracing::warn!("{path}: {bytes} bytes at byte {offset} {what_became}: {what}");
}
