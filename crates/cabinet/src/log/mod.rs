//! The log: what every disk engine stands on.
//!
//! A log is a directory of numbered segments to which records are appended, one behind the
//! other. An engine keeps an index from keys to [`Location`]s, in memory; the log keeps what the
//! index points to, across the death of the process or of the power, and gives back the space
//! of what it no longer points to.
//!
//! # Parts
//!
//! [`Log`] connects them. Each has its state and its locks for itself.
//!
//! - [`segments`]: the set of segments and the directory that they are in. Reading.
//! - [`writer`]: the tail, the append blocks of threads, allocation, the next segment.
//! - [`commit`]: which of that is durable, and who waits for it.
//! - [`space`]: the cap, what is free on the disk, compaction, eviction.
//! - [`opening`]: recovery, which makes a log of what the last process left, and checks.
//! - [`maintenance`]: the background threads, checkpoints, snapshots, verification.
//!
//! # Locks, in the order in which they are taken
//!
//! 1. `Maintenance::lock`: held by whatever takes segments out, or relies on none being taken out.
//! 2. The engine's own.
//! 3. `Commit::syncing`: held while files are being synced, by the syncing thread or a caller.
//! 4. The slots of append blocks: each by the thread that appends to its block, all of them while
//!    none may be open.
//! 5. `Writer::tail`: held for the copy of a record into the mapped segment, or for giving a block
//!    to a thread that fills it. So a process that is killed can only leave a torn record at the
//!    very end, and one at the end of each block.
//! 6. `Segment::growing`: held while blocks are preallocated for it, or cut off.
//! 7. `SegmentSet::structure`: held while the set of segments changes.
//! 8. The manifest's.
//!
//! Under all others (`Commit::unsynced`, `Commit::waiters`, `SegmentSet::retired`, that of the
//! reserve, `Space::large_changes`, those of the signals) none of these is taken.
//!
//! Readers take no lock: they load the set of segments, which keeps each one mapped.

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
    LARGE_CHANGE_BYTES, Pressure, Relocate, SHORT_SEGMENTS_MAX, Usage, is_short,
};
pub(crate) use writer::{Appended, Purpose};

use crate::{Damage, Durability, Error, LogPosition, Result};
use commit::Commit;
use maintenance::Maintenance;
use segments::{SEGMENT_BYTES_MAX, SegmentSet};
use space::{Quota, Space};
use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::Arc;
use writer::Writer;

/// Random numbers that tell a log's files from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseId {
    pub(crate) id: u64,
    pub(crate) hash_seed: u64,
    pub(crate) salt: u32,
}

/// How a log is kept.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) durability: Durability,
    /// Capacity of the segments of a small log, in bytes.
    pub(crate) segment_bytes_min: usize,
    /// Capacity of the segments of a large one.
    pub(crate) segment_bytes_max: usize,
    /// Share of dead bytes above which compaction works.
    pub(crate) dead_percent_max: u8,
    /// Most bytes a second that compaction reads while there is no hurry.
    pub(crate) compaction_bytes_per_second: u64,
    /// Writes are spread over all append blocks.
    pub(crate) eager_append_blocks: bool,
    /// Most bytes that the log takes on the disk when it is opened; 0 is unlimited.
    pub(crate) capacity_bytes: u64,
}

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
            compaction_bytes_per_second: options.compaction_bytes_per_second,
            eager_append_blocks: options.eager_append_blocks,
            capacity_bytes: options.capacity_bytes,
        }
    }
}

/// See the module.
pub(crate) struct Log {
    database_id: DatabaseId,
    manifest: manifest::Manifest,
    settings: Settings,
    segments: SegmentSet,
    space: Space,
    writer: Writer,
    commit: Commit,
    maintenance: Maintenance,
    /// Places that did not hold what they should when the log was opened.
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

    /// The segments of this moment. Load it under the lock that protects the location looked up.
    #[inline]
    pub(crate) fn segments(&self) -> arc_swap::Guard<Arc<Segments>> {
        self.segments.load()
    }

    /// Number of changes of the set of segments so far.
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

    /// Number of the segment that is being appended to.
    pub(crate) fn active_number(&self) -> u64 {
        self.writer.active_number()
    }

    /// The stats: names and values.
    pub(crate) fn report(&self) -> Vec<(&'static str, String)> {
        let segments = self.segments();
        let damaged = segments.iter().filter(|segment| segment.is_damaged()).count();
        let damaged_records =
            self.segments.damaged_reads() + self.maintenance.index_faults().count();
        let usage = Usage::of(&segments);
        let in_use = usage.live_bytes + usage.tombstone_bytes;
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

    /// Changes what the kind was created with.
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

/// The error of an operation on a file; a full disk is told from the rest.
pub(crate) fn error_at(operation: &'static str, path: &Path, source: io::Error) -> Error {
    if is_full(&source) {
        return Error::NoSpace { path: path.to_owned() };
    }
    Error::Io { operation, path: path.to_owned(), source }
}
