//! Sync: makes appended records durable.

use super::super::segments::{Segment, SegmentSet};
use super::super::{Log, error_at};
use super::{Commit, SegmentOffset};
use crate::base::sync::MutexGuard;
use crate::{Durability, LogPosition, Result};
use std::sync::Arc;
use std::time::Instant;

/// The right to sync files, which one thread has at a time. A failed sync stops all writing.
pub(in crate::log) struct Syncing<'c> {
    commit: &'c Commit,
    /// See [`Commit::syncing`].
    unmarked: MutexGuard<'c, Option<SegmentOffset>>,
}

impl Commit {
    /// Waits until no other thread syncs.
    pub(in crate::log) fn lock(&self) -> Syncing<'_> {
        Syncing { commit: self, unmarked: self.syncing.lock() }
    }
}

impl Syncing<'_> {
    /// Makes the names of files durable, if they have changed: a sync that finds no change must not
    /// end before the names are on the disk.
    pub(in crate::log) fn sync_names(&self, segments: &SegmentSet) -> Result<()> {
        segments.directory().sync_names().inspect_err(|error| self.commit.poison(error))
    }

    fn sync_files<'s>(&self, segments: impl IntoIterator<Item = &'s Arc<Segment>>) -> Result<()> {
        segments.into_iter().try_for_each(|segment| {
            let synced =
                segment.file.sync().map_err(|error| error_at("sync", &segment.path, error));
            synced.inspect_err(|error| self.commit.poison(error))
        })
    }
}

impl Log {
    /// Makes everything appended before the call durable.
    pub(crate) fn sync(&self) -> Result<LogPosition> {
        self.sync_with(true)
    }

    /// Like [`Log::sync`]. With `mark`, a sync that has work to do first appends a mark of how far
    /// the last sync reached. After a loss of power the mark proves which bytes were on the disk.
    pub(in crate::log) fn sync_with(&self, mark: bool) -> Result<LogPosition> {
        let mut syncing = self.commit.lock();
        self.commit.check()?;
        let (end, active, sealed) = {
            let _closed = self.writer.close_blocks();
            let mut tail = self.writer.lock();
            if mark
                && tail.end().position > self.commit.durable()
                && let Some(place) = *syncing.unmarked
                && self.writer.append_mark(&mut tail, place)
            {
                *syncing.unmarked = None;
            }
            (tail.end(), Arc::clone(tail.segment()), self.commit.unsynced())
        };
        let position = end.position;
        self.commit.begin(position);
        let began = Instant::now();
        syncing.sync_names(&self.segments)?;
        syncing.sync_files(sealed.iter().chain([&active]))?;
        self.commit.syncs.count_since(began);
        self.commit.drop_unsynced(&sealed);
        if position > self.commit.durable() {
            *syncing.unmarked = Some(end.place);
        }
        self.manifest.note_synced(end.place.0 - 1);
        self.commit.advance(position);
        Ok(position)
    }

    /// Makes sealed segments durable.
    pub(in crate::log) fn sync_sealed(&self, sealed: &[Arc<Segment>]) -> Result<()> {
        let syncing = self.commit.lock();
        self.commit.check()?;
        syncing.sync_names(&self.segments)?;
        syncing.sync_files(sealed)?;
        self.commit.drop_unsynced(sealed);
        Ok(())
    }

    /// Cuts and freezes all sealed segments, and makes them durable.
    pub(in crate::log) fn sync_all_sealed(&self) -> Result<()> {
        let sealed = self.cut_sealed()?;
        self.sync_sealed(&sealed)?;
        // The segments before these were synced earlier. Those up to a number count as synced only
        // if the next one has a header on the disk: without it they are the end of the log.
        if let Some(last) = sealed.iter().max_by_key(|segment| segment.number) {
            self.manifest.note_synced_to((last.number, last.bytes()));
        }
        Ok(())
    }

    /// Returns whether some record is not durable but can become so. After a failed sync none can.
    pub(crate) fn has_to_sync(&self) -> bool {
        self.commit.check().is_ok() && self.appended() > self.commit.durable()
    }

    /// Waits until `position` is durable.
    pub(in crate::log) fn wait_durable(&self, position: LogPosition) -> Result<()> {
        if self.commit.durable() >= position {
            return Ok(());
        }
        if self.settings.durability == Durability::Always && self.maintenance.signals().is_running()
        {
            self.commit.nudge();
            return self.commit.wait(position);
        }
        self.sync().map(|_| ())
    }
}
