//! Making what was appended durable.

use super::segment::Segment;
use super::{Log, error_at};
use crate::{Durability, Error, LogPosition, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Log {
    /// Makes everything appended before the call durable.
    pub(crate) fn sync(&self) -> Result<LogPosition> {
        let _one_at_a_time = self.sync.lock();
        self.commit.check()?;
        let (position, active, sealed) = {
            let _settled = self.settle();
            let tail = self.lock_tail();
            let position = tail.base + tail.appender.end() as u64;
            (position, Arc::clone(&tail.segment), self.unsynced.lock().clone())
        };
        self.commit.begin(position);
        self.sync_directory()?;
        self.sync_files(sealed.iter().chain([&active]))?;
        self.unsynced.lock().retain(|one| !sealed.iter().any(|done| Arc::ptr_eq(one, done)));
        self.figures.syncs.fetch_add(1, Ordering::Relaxed);
        self.commit.advance(position);
        Ok(position)
    }

    /// Makes sealed segments durable.
    pub(super) fn sync_sealed(&self, sealed: &[Arc<Segment>]) -> Result<()> {
        let _one_at_a_time = self.sync.lock();
        self.commit.check()?;
        self.sync_directory()?;
        self.sync_files(sealed)?;
        self.unsynced.lock().retain(|one| !sealed.iter().any(|done| Arc::ptr_eq(one, done)));
        Ok(())
    }

    pub(super) fn sync_directory(&self) -> Result<()> {
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
