//! Segment opener: opens the segments that the survey has found, and removes void ones.

use super::survey::{self, Survey, Surveyed};
use super::{Recovery, report_damage};
use crate::Result;
use crate::io::{File, Missing};
use crate::log::record::{RECORD_BYTES_MIN, SEQUENCE_MAX};
use crate::log::segments::{
    SEGMENT_BYTES_MAX, SEGMENTS_MAX, Segment, segment_path, too_many_segments,
};
use crate::log::{DatabaseId, error_at};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Upper bound of the number of records of a segment.
const SEQUENCES_OF_SEGMENT: u64 = (SEGMENT_BYTES_MAX / RECORD_BYTES_MIN) as u64;

impl Recovery {
    pub(super) fn open_segments(&mut self) -> Result<()> {
        let (storage, directory) = (Arc::clone(&self.storage), self.directory.clone());
        let contents = &self.manifest.contents;
        let mut survey = Survey::of(storage.as_ref(), &directory, contents, &mut self.promise)?;
        self.whole_from = survey.whole_from(contents);
        self.is_whole = survey.is_whole(contents);
        for damage in self.damages.iter().chain(&survey.damages) {
            report_damage(damage);
        }
        self.damages.append(&mut survey.damages);
        if !survey.removable.is_empty()
            && let Some(Surveyed { path, file: Some(file), .. }) = survey.segments.first()
        {
            // If this segment clears, it may be in the page cache only.
            file.sync().map_err(|error| error_at("sync", path, error))?;
            storage.sync_dir(&directory).map_err(|error| error_at("sync", &directory, error))?;
        }
        for path in &survey.removable {
            storage.remove(path).map_err(|error| error_at("remove", path, error))?;
        }
        for (path, _) in &survey.foreign {
            self.set_aside(path, "log.damaged")?;
        }
        for path in &survey.lost {
            let name = path.display();
            tracing::warn!("{name} was not synced when the power went: it is no part of the log");
            if self.settings.capacity_bytes == 0 {
                self.set_aside(path, "log.lost")?;
            } else {
                self.storage.remove(path).map_err(|error| error_at("remove", path, error))?;
            }
        }
        if !survey.lost.is_empty() {
            self.remove_old_losses()?;
        }
        if !survey.misnamed.is_empty() {
            survey::give_right_names(storage.as_ref(), &directory, &survey.misnamed)
                .map_err(|error| error_at("rename segments of", &directory, error))?;
            for one in &mut survey.segments {
                one.path = segment_path(&directory, one.number);
            }
        }
        self.extents = survey.extents(&self.database_id);
        let lines = self.checkpoint.as_ref().map_or(&[][..], |checkpoint| &checkpoint.segments);
        let lines = lines.to_vec();
        // Segments that the checkpoint lists keep their slots. The others get slots after all
        // those.
        let mut free = lines.iter().map(|line| line.slot + 1).max().unwrap_or(0);
        let last = survey.segments.len().saturating_sub(1);
        for (index, one) in survey.segments.into_iter().enumerate() {
            let line = lines.iter().find(|line| line.number == one.number);
            let slot = line.map_or(free, |line| line.slot);
            free = free.max(slot + 1);
            if slot >= SEGMENTS_MAX {
                return Err(too_many_segments());
            }
            let is_last = index == last;
            if is_last && one.file.is_none() {
                // The sequence numbers of its records must not be used again.
                self.skip_sequences();
            }
            self.next_sequence = self.next_sequence.max(one.header.first_sequence);
            if one.header.is_behind_pages {
                self.without_changes.insert(one.number.saturating_sub(1));
            }
            let segment = open_segment(&one, &self.database_id, slot)?;
            segment.sealed.store(!is_last, Ordering::Relaxed);
            if let Some(line) = line {
                let end = if one.file.is_some() { segment.bytes() } else { u64::MAX };
                segment.live_bytes.set(line.live_bytes.min(end));
                segment.tombstone_bytes.store(line.tombstone_bytes.min(end), Ordering::Relaxed);
                segment.next_expiry_ms.store(line.next_expiry_ms, Ordering::Relaxed);
            }
            self.segments.insert(Arc::new(segment));
        }
        Ok(())
    }

    /// Skips at least as many sequence numbers as the records of a lost segment had.
    pub(super) fn skip_sequences(&mut self) {
        self.next_sequence = (self.next_sequence + SEQUENCES_OF_SEGMENT).min(SEQUENCE_MAX);
    }
}

fn open_segment(one: &Surveyed, database_id: &DatabaseId, slot: usize) -> Result<Segment> {
    let path = one.path.clone();
    let Some(file) = &one.file else {
        let failed = |error| error_at("stand in for", &path, error);
        let file: Arc<dyn File> = Arc::new(Missing);
        let map = file.map(0, 0).map_err(failed)?;
        let mut segment = Segment::new(&one.header, database_id, slot, path, file, map);
        segment.is_missing = true;
        segment.damaged.store(true, Ordering::Relaxed);
        return Ok(segment);
    };
    let end = one.end.map_or(one.length, |end| end.min(one.length));
    let written = usize::try_from(end).unwrap_or(usize::MAX);
    let map = file.map(written, written).map_err(|error| error_at("map", &path, error))?;
    let segment = Segment::new(&one.header, database_id, slot, path, Arc::clone(file), map);
    segment.damaged.store(one.is_headless, Ordering::Relaxed);
    Ok(segment)
}
