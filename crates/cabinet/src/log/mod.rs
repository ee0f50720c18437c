//! The log: append-only storage for the records of a disk engine.
//!
//! A log is a directory of numbered segments, to which records are appended in order. An engine
//! keeps an index from keys to [`Location`]s in memory. The log keeps the records that the index
//! points to, across crashes and losses of power, and reclaims the space of all others.
//!
//! # Parts
//!
//! [`Log`] connects the parts. Each part has its own state and its own locks.
//!
//! - [`segments`]: the set of segments and their directory; reads.
//! - [`writer`]: the tail, the append blocks of threads, allocation, rotation.
//! - [`commit`]: the durable position, and the writers that wait for it.
//! - [`space`]: the cap, the free space of the disk, compaction, eviction.
//! - [`opening`]: recovery of a log that the last process left, and checks.
//! - [`maintenance`]: the background threads, checkpoints, snapshots, verification.
//!
//! # Locks, in the order in which they are taken
//!
//! 1. `Maintenance::lock`: held while segments are removed, or must not be.
//! 2. The engine's own locks.
//! 3. `Commit::syncing`: held while files are synced, by the syncing thread or a caller.
//! 4. The slots of append blocks: a thread locks its own slot to append to its block, and all slots
//!    to close all blocks.
//! 5. `Writer::tail`: held while a record is copied into the mapped segment, or a block is given to
//!    a thread. So a killed process leaves torn records only at the very end and at the end of each
//!    block.
//! 6. `Segment::growing`: held while space is preallocated for the segment, or cut off.
//! 7. `SegmentSet::structure`: held while the set of segments changes.
//! 8. The manifest's lock.
//!
//! While one of the following locks is held, none of the above is taken: `Commit::unsynced`,
//! `Commit::waiters`, `SegmentSet::retired`, `Space::large_changes`, and those of the reserve and
//! the signals.
//!
//! Readers take no lock: they load the set of segments, which keeps each segment mapped.

mod binding;
pub(crate) mod checkpoint;
mod commit;
mod maintenance;
pub(crate) mod manifest;
mod opening;
mod persistence;
pub(crate) mod record;
mod record_batch;
mod scan;
pub(crate) mod segments;
mod space;
mod stats;
mod thread;
mod writer;

pub(crate) use maintenance::{Background, Maintained};
pub(crate) use manifest::{EngineParameters, StoredKind};
pub(crate) use opening::{Recovery, check, holes, remains};
pub(crate) use record_batch::{RECORD_BATCH_BYTES, RecordBatch};
#[cfg(test)]
pub(crate) use segments::AllLive;
pub use segments::LargeValue;
pub(crate) use segments::{
    Check, Faults, Gap, Location, Lsn, PausedReader, ReadOutcome, Reader, Segment, SegmentOffset,
    Segments, peek_record, with_record, with_record_of,
};
pub(crate) use space::{
    LARGE_CHANGE_BYTES, Pressure, Relocate, SHORT_SEGMENTS_MAX, Spend, Unsealed, Usage, is_short,
};
pub(crate) use writer::{Appended, Purpose};

use crate::{Damage, Durability, Error, LogPosition, Result};
use binding::Binding;
use commit::Commit;
use maintenance::Maintenance;
use segments::{SEGMENT_BYTES_MAX, SegmentSet};
use space::{Quota, Space};
use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::Arc;
use writer::Writer;

/// Random numbers that distinguish a log's files from those of all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseId {
    pub(crate) id: u64,
    pub(crate) hash_seed: u64,
    pub(crate) salt: u32,
}

impl DatabaseId {
    /// Returns the binding of the records of a segment, whose checksums are masked if `is_bound`.
    fn binding(&self, number: u64, is_bound: bool) -> Binding {
        match is_bound {
            true => Binding::of_segment(self.salt, number),
            false => Binding::unmasked(self.salt),
        }
    }
}

/// Settings of a log.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) durability: Durability,
    /// Capacity of the segments of a small log, in bytes.
    pub(crate) segment_bytes_min: usize,
    /// Capacity of the segments of a large log, in bytes.
    pub(crate) segment_bytes_max: usize,
    /// Share of dead bytes above which compaction works, in percent.
    pub(crate) dead_percent_max: u8,
    /// Dead bytes that a log without a cap may have whatever their share.
    pub(crate) spare_bytes: u64,
    /// Maximum number of bytes per second that compaction reads while there is no hurry.
    pub(crate) compaction_bytes_per_second: u64,
    /// Whether writes are spread over all append blocks.
    pub(crate) eager_append_blocks: bool,
    /// Maximum size of the log on the disk when it is opened, in bytes; 0 is unlimited.
    pub(crate) capacity_bytes: u64,
}

/// Dead bytes of a log whose segments grow with it, whatever their share. Otherwise the records of
/// a small log would move several times for each change.
const SPARE_BYTES: u64 = 16 << 20;

impl Settings {
    pub(crate) fn of(options: &crate::Options) -> Self {
        let fixed = options.segment_bytes.map(|bytes| {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            bytes.clamp(64 << 10, SEGMENT_BYTES_MAX)
        });
        let most = Quota::new(options.capacity_bytes).segment_bytes_max();
        Self {
            durability: options.durability,
            segment_bytes_min: fixed.unwrap_or(4 << 20).min(most),
            segment_bytes_max: fixed.unwrap_or(SEGMENT_BYTES_MAX).min(most),
            dead_percent_max: options.dead_percent_max,
            spare_bytes: if fixed.is_none() { SPARE_BYTES } else { 0 },
            compaction_bytes_per_second: options.compaction_bytes_per_second,
            eager_append_blocks: options.eager_append_blocks,
            capacity_bytes: options.capacity_bytes,
        }
    }
}

/// The log of a disk engine. See the module.
pub(crate) struct Log {
    database_id: DatabaseId,
    manifest: manifest::Manifest,
    settings: Settings,
    segments: SegmentSet,
    space: Space,
    writer: Writer,
    commit: Commit,
    maintenance: Maintenance,
    /// Damage that was found when the log was opened.
    damages: Vec<Damage>,
    _lock: Box<dyn Any + Send + Sync>,
}

impl Log {
    pub(crate) fn database_id(&self) -> &DatabaseId {
        &self.database_id
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn directory(&self) -> &Path {
        self.segments.directory().path()
    }

    /// Returns the current segments. The caller holds the lock that protects the location it looks
    /// up.
    #[inline]
    pub(crate) fn segments(&self) -> arc_swap::Guard<Arc<Segments>> {
        self.segments.load()
    }

    /// Returns how often the set of segments has changed.
    #[inline]
    pub(crate) fn segment_changes(&self) -> u64 {
        self.segments.changes()
    }

    pub(crate) fn appended(&self) -> LogPosition {
        self.writer.appended()
    }

    pub(crate) fn commit(&self) -> &Commit {
        &self.commit
    }

    /// Returns the number of the active segment.
    pub(crate) fn active_number(&self) -> u64 {
        self.writer.active_number()
    }

    /// Returns the stats as names and values. `redo_bytes` are those of changes that no checkpoint
    /// covers, in an engine whose live bytes do not count them.
    pub(crate) fn report(&self, redo_bytes: u64) -> Vec<(&'static str, String)> {
        let segments = self.segments();
        let damaged = segments.iter().filter(|segment| segment.is_damaged()).count();
        let damaged_records =
            self.segments.damaged_reads() + self.maintenance.index_faults().count();
        let usage = Usage::of(&segments);
        let in_use = usage.live_bytes + usage.tombstone_bytes + redo_bytes;
        let mut report = vec![
            ("segments", segments.iter().count().to_string()),
            ("log_bytes", usage.total_bytes.to_string()),
            ("dead_bytes", usage.total_bytes.saturating_sub(in_use).to_string()),
            ("damaged_segments", damaged.to_string()),
            ("damages", self.damages.len().to_string()),
            ("damaged_records", damaged_records.to_string()),
            ("cold_reads", self.segments.cold_reads().to_string()),
            ("syncs", self.commit.syncs().count().to_string()),
            ("sync_us", self.commit.syncs().total_us().to_string()),
        ];
        report.extend(self.maintenance.report());
        report.extend(self.space.report());
        report.push(("blocks", self.writer.blocks_begun().to_string()));
        if let Some(refusal) = self.write_refusal() {
            report.push(("write_refusal", refusal));
        }
        report
    }

    /// Returns why writers are refused at present, if they are.
    fn write_refusal(&self) -> Option<String> {
        match self.commit.check() {
            Err(error) => Some(error.to_string()),
            Ok(()) if self.space.is_disk_full(&self.segments) => {
                Some(Error::NoSpace { path: self.directory().to_owned() }.to_string())
            }
            Ok(()) => None,
        }
    }

    /// Changes the parameters that the engine was created with.
    pub(crate) fn change_parameters(&self, parameters: [u8; 24]) -> Result<()> {
        self.manifest.change_parameters(parameters)
    }

    pub(crate) fn maintenance(&self) -> &Maintenance {
        &self.maintenance
    }

    #[inline]
    pub(crate) fn space(&self) -> &Space {
        &self.space
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns the error of a failed operation on a file. A full disk has an error of its own.
pub(crate) fn error_at(operation: &'static str, path: &Path, source: io::Error) -> Error {
    if is_full(&source) {
        return Error::NoSpace { path: path.to_owned() };
    }
    Error::Io { operation, path: path.to_owned(), source }
}
