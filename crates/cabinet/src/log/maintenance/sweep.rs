//! Sweeping: finding the expired records of a segment, so that the engine removes them.

use crate::Result;
use crate::log::record::Record;
use crate::log::scan::{ScanError, Scanner};
use crate::log::segments::{Location, Segment};
use crate::log::{Log, error_at};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A segment is not gone through for expired records more often than this, in milliseconds.
const SWEEP_INTERVAL_MS: u64 = 30_000;

impl Log {
    /// Shows the expired records of a segment to `visit`, which says whether one stays, and notes
    /// when to look again.
    pub(crate) fn sweep_segment(
        &self,
        segment: &Arc<Segment>,
        now_ms: u64,
        visit: &dyn Fn(Location, &Record<'_>) -> bool,
    ) -> Result<()> {
        segment.next_expiry_ms.store(u64::MAX, Ordering::Relaxed);
        if !segment.is_sealed() {
            // So that no open block is in the way.
            drop(self.writer.close_blocks());
        }
        let failed = |error| {
            // The rest is still to be looked at.
            segment.note_expiry(now_ms);
            error_at("read", &segment.path, error)
        };
        let mut pace = self.space.pace(true);
        let file = Arc::clone(&segment.file);
        let mut scanner = Scanner::new(file, self.database_id.salt, 0, segment.bytes());
        loop {
            let before = scanner.offset();
            let next = scanner.next(&mut |offset, record, _| {
                let stays = !record.meta.is_expired(now_ms) || visit(segment.at(offset), record);
                if stays && record.meta.expires_at_ms != 0 {
                    let again = now_ms.saturating_add(SWEEP_INTERVAL_MS);
                    segment.note_expiry(record.meta.expires_at_ms.max(again));
                }
                Ok(())
            });
            match next {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Ok(()),
                Ok(Err(stop)) => {
                    // Zeros at the end are what a process leaves that was killed.
                    if let Some(what) = stop.what {
                        segment.note_fault(stop.offset, what);
                    }
                    if !scanner.find_next().map_err(failed)? {
                        return Ok(());
                    }
                }
                Err(ScanError::Read(error)) => return Err(failed(error)),
                Err(ScanError::Visit(error)) => return Err(error),
            }
            if pace.spent(scanner.offset() - before, || false) && self.maintenance.is_stopping() {
                // The rest is still to be looked at.
                segment.note_expiry(now_ms);
                return Ok(());
            }
        }
    }
}
