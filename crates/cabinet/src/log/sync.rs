//! Making what was appended durable.

use super::holes::Place;
use super::record::Kind;
use super::segment::{MARGIN_BYTES, SEGMENT_BYTES_MAX, Segment};
use super::{Log, Tail, count_timed, error_at};
use crate::{Durability, Error, LogPosition, Result};
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Log {
    /// Makes everything appended before the call durable.
    pub(crate) fn sync(&self) -> Result<LogPosition> {
        self.sync_with(true)
    }

    /// As [`Log::sync`]. With `mark`, a sync that has something to do begins with a mark of how far
    /// the last one had come: after a loss of power that proves what was on the disk.
    pub(super) fn sync_with(&self, mark: bool) -> Result<LogPosition> {
        let mut synced = self.sync.lock();
        self.commit.check()?;
        let (position, place, active, sealed) = {
            let _settled = self.settle();
            let mut tail = self.lock_tail();
            let end = tail.base + tail.appender.end() as u64;
            if mark
                && end > self.commit.durable()
                && let Some(place) = *synced
                && self.append_mark(&mut tail, place)
            {
                *synced = None;
            }
            let end = tail.appender.end() as u64;
            let place = (tail.segment.number, end);
            let sealed = self.unsynced.lock().clone();
            (tail.base + end, place, Arc::clone(&tail.segment), sealed)
        };
        self.commit.begin(position);
        let began = Instant::now();
        self.sync_directory(&synced)?;
        self.sync_files(sealed.iter().chain([&active]))?;
        count_timed(&self.figures.syncs, &self.figures.sync_us, began);
        self.unsynced.lock().retain(|one| !sealed.iter().any(|done| Arc::ptr_eq(one, done)));
        if position > self.commit.durable() {
            *synced = Some(place);
        }
        self.note_synced(place.0 - 1);
        self.commit.advance(position);
        Ok(position)
    }

    /// Appends a sync mark if there is room for it.
    fn append_mark(&self, tail: &mut Tail, (number, offset): Place) -> bool {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&number.to_le_bytes());
        value[8..].copy_from_slice(&offset.to_le_bytes());
        let (meta, none) = (crate::Meta::NONE, crate::Compression::None);
        let mut mark = self.prepare(Kind::Mark, &[], &value, meta, none);
        let total = mark.total();
        let end = tail.appender.end() + total;
        let has_room = end + MARGIN_BYTES <= tail.segment.map.backed() && end < SEGMENT_BYTES_MAX;
        has_room && self.put_down(tail, &mark.seal(1), total).is_ok()
    }

    /// Makes sealed segments durable.
    pub(super) fn sync_sealed(&self, sealed: &[Arc<Segment>]) -> Result<()> {
        let one_at_a_time = self.sync.lock();
        self.commit.check()?;
        self.sync_directory(&one_at_a_time)?;
        self.sync_files(sealed)?;
        self.unsynced.lock().retain(|one| !sealed.iter().any(|done| Arc::ptr_eq(one, done)));
        Ok(())
    }

    /// Makes the names of files durable, if they have changed. The lock is that of `sync`: a sync
    /// that finds no change must not end before the names are on the disk.
    pub(super) fn sync_directory(&self, _syncing: &MutexGuard<'_, Option<Place>>) -> Result<()> {
        if self.directory_changed.swap(false, Ordering::AcqRel)
            && let Err(error) = self.storage.sync_dir(&self.directory)
        {
            return Err(self.stop(error_at("sync", &self.directory, error)));
        }
        Ok(())
    }

    fn sync_files<'s>(&self, segments: impl IntoIterator<Item = &'s Arc<Segment>>) -> Result<()> {
        for segment in segments {
            if let Err(error) = segment.file.sync() {
                return Err(self.stop(error_at("sync", &segment.path, error)));
            }
        }
        Ok(())
    }

    /// Waits until `position` is durable.
    pub(crate) fn wait_durable(&self, position: LogPosition) -> Result<()> {
        if self.commit.durable() >= position {
            return Ok(());
        }
        if self.settings.durability == Durability::Always && self.background.is_running() {
            self.commit.nudge();
            return self.commit.wait(position);
        }
        self.sync().map(|_| ())
    }

    /// Stops all writing.
    pub(super) fn stop(&self, error: Error) -> Error {
        self.commit.poison(&error);
        error
    }
}
