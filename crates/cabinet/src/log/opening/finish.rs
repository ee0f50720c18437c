//! Last step of an opening: creates the log, ready for appends.

use super::Recovery;
use crate::io::{Appender, File, Open};
use crate::log::commit::Commit;
use crate::log::maintenance::{Maintenance, Signals};
use crate::log::segments::{
    Directory, MARGIN_BYTES, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, SegmentSet,
    segment_path, too_many_segments,
};
use crate::log::space::Space;
use crate::log::writer::{ALLOCATION_BYTES_FIRST, Writer};
use crate::log::{Log, error_at, manifest};
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Recovery {
    /// Returns the log, ready for appending.
    pub(crate) fn finish(self) -> Result<Log> {
        let mut segments = self.segments;
        let last = segments.in_order().last().cloned();
        let segment = match last {
            // A last segment that was not replayed must still be cut to its end.
            Some(segment) if !segment.is_damaged() => segment,
            last => {
                let number = last.as_ref().map_or(0, |last| last.number) + 1;
                let previous_bytes = last.filter(|last| !last.is_missing);
                let previous_bytes = previous_bytes.map_or(0, |last| {
                    last.sealed.store(true, Ordering::Relaxed);
                    last.bytes()
                });
                let capacity = self.settings.segment_bytes_min as u64;
                let header = SegmentHeader {
                    number,
                    is_bound: true,
                    clears: false,
                    is_behind_pages: false,
                    first_sequence: self.next_sequence,
                    previous_bytes,
                    capacity,
                };
                let path = segment_path(&self.directory, number);
                let failed = |error| error_at("create", &path, error);
                let slot = segments.free_slot().ok_or_else(too_many_segments)?;
                let file = self.storage.open(&path, Open::New).map_err(failed)?;
                let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
                let map = file.map(capacity, 0).map_err(failed)?;
                file.allocate(&map, capacity.min(ALLOCATION_BYTES_FIRST) as u64).map_err(failed)?;
                let segment = Arc::new(Segment::new(
                    &header,
                    &self.database_id,
                    slot,
                    path.clone(),
                    file,
                    map,
                ));
                let appender = Appender::of(&segment.map);
                let header = header.encode(&self.database_id);
                let begun = appender
                    .is_some_and(|mut appender| appender.append(&[&header], SEGMENT_HEADER_BYTES));
                if !begun {
                    return Err(Error::NoSpace { path });
                }
                // The appender of the tail is taken below, from a new map of the same bytes.
                let map = segment
                    .file
                    .map(capacity, SEGMENT_HEADER_BYTES)
                    .map_err(|error| error_at("map", &segment.path, error))?;
                let segment = Arc::new(segment.with_map(map));
                segments.insert(Arc::clone(&segment));
                segment
            }
        };
        segment.sealed.store(false, Ordering::Relaxed);
        let Some(appender) = Appender::of(&segment.map) else {
            return Err(Error::NoSpace { path: segment.path.clone() });
        };
        for segment in segments.iter() {
            segment.resident.store(segment.map.is_resident(), Ordering::Relaxed);
        }
        let mut contents = self.manifest.contents.clone();
        contents.state = manifest::State::Open;
        contents.has_margin = has_margin(&segment, appender.end() as u64 + MARGIN_BYTES as u64);
        contents.page_cache = self.storage.page_cache_id(&self.directory).unwrap_or_default();
        contents.next_sequence = self.next_sequence;
        let listed = std::mem::take(&mut contents.segments);
        if contents.clears >= segment.number && self.whole_from != Some(contents.clears) {
            // The segment that cleared was lost with the power. A later segment with its number
            // does not clear.
            contents.clears = 0;
        }
        for one in segments.iter() {
            let known = listed.get(&one.number).copied().unwrap_or(0);
            // A short segment keeps its recorded length, which shows that it is short.
            let length = if one.number == segment.number { 0 } else { one.bytes().max(known) };
            contents.segments.insert(one.number, length);
            if self.whole_from == Some(one.number) && one.number > 1 {
                contents.clears = contents.clears.max(one.number);
            }
        }
        let manifest = manifest::Manifest::open(
            self.storage.as_ref(),
            &self.directory,
            &self.manifest,
            contents,
        )?;
        let end = appender.end() as u64;
        let is_checkpointed = self.checkpoint.is_some() && !self.replayed;
        let older: Vec<_> =
            segments.in_order().into_iter().filter(|one| !Arc::ptr_eq(one, &segment)).collect();
        let capacity_bytes = self.settings.capacity_bytes;
        let signals = Arc::new(Signals::default());
        let log = Log {
            database_id: self.database_id,
            manifest,
            space: Space::new(&self.settings, Arc::clone(&signals)),
            segments: SegmentSet::new(Directory::new(self.storage, self.directory), segments),
            maintenance: Maintenance::new(
                if is_checkpointed { end } else { 0 },
                segment.number,
                self.index_faults,
                Arc::clone(&signals),
            ),
            writer: Writer::new(segment, appender, self.next_sequence, &self.settings, signals),
            settings: self.settings,
            // It is not known whether the last process synced them.
            commit: Commit::new(older),
            damages: self.damages,
            _lock: self.lock,
        };
        if log.space.quota().is_capped() {
            log.set_capacity(capacity_bytes)?;
        }
        log.space.keep_reserve(&log.segments);
        Ok(log)
    }
}

/// Extends the file of the active segment to `length` bytes. Returns whether it has that length.
fn has_margin(segment: &Segment, length: u64) -> bool {
    let has = |file: &dyn File| file.length().is_ok_and(|present| present >= length);
    has(&*segment.file)
        || segment.file.allocate(&segment.map, length).is_ok() && has(&*segment.file)
}
