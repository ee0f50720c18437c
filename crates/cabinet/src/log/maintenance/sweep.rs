//! Sweep: finds the expired records of a segment, so that the engine removes them.

use crate::Result;
use crate::log::record::Record;
use crate::log::scan::ScanError;
use crate::log::segments::{Location, Segment};
use crate::log::{Log, error_at};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Minimum time between two sweeps of a segment, in milliseconds.
const SWEEP_INTERVAL_MS: u64 = 30_000;

impl Log {
    /// Calls `visit` with each expired record of a segment. `visit` returns whether the record
    /// stays. Records when to sweep the segment again.
    pub(crate) fn sweep_segment(
        &self,
        segment: &Arc<Segment>,
        now_ms: u64,
        visit: &dyn Fn(Location, &Record<'_>) -> bool,
    ) -> Result<()> {
        segment.next_expiry_ms.store(u64::MAX, Ordering::Relaxed);
        if !segment.is_sealed() {
            // An open block would end the scan.
            drop(self.writer.close_blocks());
        }
        let failed = |error| {
            // The rest must still be swept.
            segment.note_expiry(now_ms);
            error_at("read", &segment.path, error)
        };
        let mut pace = self.space.pace(true);
        let mut scanner = segment.scanner(0, segment.bytes());
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
                    // A killed process leaves zeros at the end.
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
                // The rest must still be swept.
                segment.note_expiry(now_ms);
                return Ok(());
            }
        }
    }
}
