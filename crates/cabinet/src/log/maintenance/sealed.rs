//! Sealed segments: cut to their length, frozen and synced.

use crate::log::segments::Segment;
use crate::log::{Log, error_at};
use crate::{Durability, Result};
use std::sync::Arc;

impl Log {
    /// Does the regular work for segments, except for reclaiming their space.
    pub(crate) fn maintain_segments(&self) -> Result<()> {
        // Before what may wait for the disk.
        self.segments.check_residency();
        self.finish_sealed()?;
        self.segments.drop_retired();
        Ok(())
    }

    /// Cuts sealed segments to their length, freezes them, and makes them durable if the log has a
    /// durability.
    pub(super) fn finish_sealed(&self) -> Result<()> {
        let sealed = self.cut_sealed()?;
        // Without a durability, the operating system decides when to write.
        if self.settings.durability == Durability::None {
            return Ok(());
        }
        self.manifest.flush()?;
        self.sync_sealed(&sealed)
    }

    /// Cuts the segments that were sealed and not synced since to their length, and returns them.
    pub(in crate::log) fn cut_sealed(&self) -> Result<Vec<Arc<Segment>>> {
        let sealed = self.commit.unsynced();
        for segment in &sealed {
            let _growing = segment.growing.lock();
            let length = segment.file.length();
            if length.is_ok_and(|length| length > segment.bytes()) {
                // A file that a snapshot links was cut before it was linked, so it is never cut
                // here.
                segment
                    .file
                    .give_back(&segment.map, 0)
                    .map_err(|error| error_at("cut", &segment.path, error))?;
                segment.file.freeze(&segment.map);
            }
        }
        Ok(sealed)
    }
}
