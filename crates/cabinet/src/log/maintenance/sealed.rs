//! Finishing sealed segments: they are cut to their length, frozen, and synced.

use crate::log::segments::Segment;
use crate::log::{Log, error_at};
use crate::{Durability, Result};
use std::sync::Arc;

impl Log {
    /// Does what is to be done regularly for segments, but for giving their space back.
    pub(crate) fn maintain_segments(&self) -> Result<()> {
        self.finish_sealed()?;
        self.segments.look_what_is_resident();
        self.segments.drop_retired();
        Ok(())
    }

    /// Cuts sealed segments to their length, freezes them, and makes them durable if that was
    /// asked for.
    pub(super) fn finish_sealed(&self) -> Result<()> {
        let sealed = self.cut_sealed()?;
        // Without a durability it is for the operating system to say when.
        if self.settings.durability == Durability::None {
            return Ok(());
        }
        self.manifest.flush()?;
        self.sync_sealed(&sealed)
    }

    /// The segments that were sealed and not synced since, cut to their length.
    pub(in crate::log) fn cut_sealed(&self) -> Result<Vec<Arc<Segment>>> {
        let sealed = self.commit.unsynced();
        for segment in &sealed {
            let _growing = segment.growing.lock();
            let length = segment.file.length();
            if length.is_ok_and(|length| length > segment.bytes()) {
                // The files of a snapshot have ended where they end before they were linked.
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
