//! Opening an engine: builds the index from the last checkpoint and the log after it.

use super::building::Building;
use super::damaged::{Compared, compare};
use super::shard::{Growth, Shard};
use super::{Index, KeyedEngine, Match, ShardIndex};
use crate::base::expired::ExpiryStats;
use crate::base::sync::Mutex;
use crate::io::Storage;
use crate::log::holes::Fate;
use crate::log::record::Kind;
use crate::log::segments::segment_path;
use crate::log::{DatabaseId, EngineParameters, Location, Recovery, Segment, Segments, Settings};
use crate::{Error, Options, Result, Wait};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Opens or creates an engine.
pub(super) fn open<I: Index>(
    storage: Arc<dyn Storage>,
    path: &Path,
    options: &Options,
    parameters: EngineParameters,
    index: impl FnOnce(&DatabaseId, &EngineParameters) -> Result<I>,
) -> Result<KeyedEngine<I>> {
    let clock = options.clock.clone();
    let mut recovery = Recovery::open(storage, path, Settings::of(options), options, parameters)?;
    let database_id = recovery.database_id;
    let index = index(&database_id, &recovery.parameters)?;
    let mut building = match Building::load(&index, &mut recovery, options) {
        Err(error @ Error::Corrupted { .. }) => {
            recovery.distrust_checkpoint(&error);
            Building::empty(&index, &recovery, options)
        }
        building => building?,
    };
    check_changes(&recovery)?;
    // A record that is left for another component to remove still exists after it expires.
    let now_ms = if clock.expired_keys().is_some() { 0 } else { clock.now_ms() };
    recovery.replay(&mut |segments, segment, location, record| {
        let Some(name) = index.name(record.key) else { return Ok(()) };
        let is_live = record.kind == Kind::Put && !record.meta.is_expired(now_ms);
        if is_live {
            segment.note_expiry(record.meta.expires_at_ms);
        }
        let is_tombstone = record.kind == Kind::Tombstone;
        let change = Change { name, location, total: record.total, is_live, is_tombstone };
        building.take(&index, segments, change, record.key)
    })?;
    // The next opening must not look for changes in a segment that is missing, and had none.
    let is_missing = recovery.segments.iter().any(|segment| segment.is_missing);
    let needs_checkpoint = (building.needs_checkpoint() || is_missing) && !options.read_only;
    let tables = building.finish(&index, &recovery.segments)?;
    let over_runs = AtomicBool::new(tables.iter().any(|table| table.run().is_some()));
    let log = recovery.finish()?;
    let growth = Arc::new(Growth::default());
    let shards = tables.into_iter().map(|table| Shard::new(table, &growth)).collect();
    let compression = options.compression;
    let expires =
        |segment: &Arc<Segment>| segment.next_expiry_ms.load(Ordering::Relaxed) != u64::MAX;
    let has_expiries = AtomicBool::new(log.segments().iter().any(expires));
    Ok(KeyedEngine {
        has_expiries,
        log,
        index,
        shards,
        compression,
        clock,
        expired: ExpiryStats::default(),
        paused: AtomicU32::new(0),
        scans: Arc::default(),
        index_bytes_max: options.index_bytes_max(),
        growth,
        over_runs,
        alive: Mutex::default(),
        needs_checkpoint: AtomicBool::new(needs_checkpoint),
        cannot_merge: AtomicBool::new(false),
        merge_backoff: Mutex::default(),
        repaired_pieces: AtomicU64::new(0),
        lost_records: AtomicU64::new(0),
        repair_after: Mutex::default(),
    })
}

/// Fails if a segment is missing that had changes after the checkpoint: any record may have changed
/// in it, so an older one must not pass for the last.
fn check_changes(recovery: &Recovery) -> Result<()> {
    let lost = recovery.missing().find(|(_, fate)| *fate == Fate::Damaged);
    let Some(((number, offset), _)) = lost else { return Ok(()) };
    let directory = recovery.directory();
    let what = format!(
        "the segment is missing or cannot be opened, and any record may have changed in it; the \
         database does not open, but `tyrant salvage {} --into NEW` copies what can be read",
        directory.display()
    );
    Err(Error::Corrupted { file: segment_path(directory, number), offset, what })
}

/// A change in the log, without its key.
pub(super) struct Change {
    pub(super) name: u64,
    pub(super) location: Location,
    pub(super) total: usize,
    pub(super) is_live: bool,
    pub(super) is_tombstone: bool,
}

/// Applies a change to a table. `is_key` compares another record's key with that of the change.
pub(super) fn replay<I: Index>(
    index: &I,
    table: &mut I::ShardIndex,
    segments: &Segments,
    change: &Change,
    is_key: &dyn Fn(&[u8]) -> bool,
) -> Result<()> {
    let Change { name, location, total: own_total, is_live, is_tombstone } = *change;
    let index_key = index.index_key_of_name(name);
    let mut found = None;
    let mut doubtful = None;
    for Match { slot, location: other, total } in table.matches(index_key.tag) {
        let total = if total.is_some() {
            total
        } else if other == location {
            Some(own_total)
        } else {
            match compare(index, segments, other, index_key, is_key, Wait::Block)? {
                Compared::Same(total) => Some(total),
                Compared::Others => None,
                Compared::Damaged => {
                    doubtful = doubtful.or(Some((slot, other, 0)));
                    None
                }
            }
        };
        if let Some(total) = total {
            found = Some((slot, other, total));
            break;
        }
    }
    // Writers do the same, see `damaged`.
    let found = found.or(doubtful);
    if let Some((_, other, total)) = found
        && let Some(segment) = segments.get(other)
    {
        segment.remove_live(total);
    }
    let segment = segments.get(location);
    match (is_live, found) {
        (true, found) => {
            if let Some(segment) = segment {
                segment.add_live(own_total);
            }
            match found {
                Some((slot, ..)) => table.replace(slot, location, own_total),
                None => table.insert(index_key.tag, location, own_total),
            }
        }
        (false, found) => {
            if is_tombstone && let Some(segment) = segment {
                segment.add_tombstone(own_total);
            }
            if let Some((slot, ..)) = found {
                table.remove(slot);
            }
        }
    }
    Ok(())
}
