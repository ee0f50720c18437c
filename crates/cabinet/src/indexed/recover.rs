//! Opening: the index from the last checkpoint and the log after it.

use super::damaged::{Compared, compare};
use super::scans::Scans;
use super::shard::Shard;
use super::{Index, Indexed, Match, Place, Table};
use crate::expired::ExpiryStats;
use crate::io::Storage;
use crate::log::record::{Kind, Record};
use crate::log::{Identity, Location, Nature, Recovery, Segment, Segments, Settings};
use crate::{Error, Options, Result, Wait};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Opens or creates an engine.
pub(super) fn open<I: Index>(
    storage: Arc<dyn Storage>,
    path: &Path,
    options: &Options,
    nature: Nature,
    index: impl FnOnce(&Identity, &Nature) -> Result<I>,
) -> Result<Indexed<I>> {
    let clock = options.clock.clone();
    let mut recovery = Recovery::open(storage, path, Settings::of(options), options, nature)?;
    let identity = recovery.identity;
    let index = index(&identity, &recovery.nature)?;
    let mut tables = match load(&index, &mut recovery) {
        Ok(tables) => tables,
        Err(error @ Error::Corrupted { .. }) => {
            recovery.distrust_checkpoint(&error);
            empty(&index)
        }
        Err(error) => return Err(error),
    };
    // What another is to remove is still there, expired or not.
    let now_ms = if clock.expired_keys().is_some() { 0 } else { clock.now_ms() };
    recovery.replay(&mut |segments, segment, location, record| {
        let Some(place) = index.place(record.key) else { return Ok(()) };
        let table = &mut tables[place.shard];
        replay(&index, table, identity.salt, segments, segment, location, record, place, now_ms)
    })?;
    let log = recovery.finish()?;
    let shards = tables.into_iter().map(Shard::new).collect();
    let compression = options.compression;
    let expires =
        |segment: &Arc<Segment>| segment.next_expiry_ms.load(Ordering::Relaxed) != u64::MAX;
    let has_expiries = AtomicBool::new(log.segments().iter().any(expires));
    Ok(Indexed {
        has_expiries,
        log,
        index,
        shards,
        compression,
        clock,
        expired: ExpiryStats::default(),
        paused: AtomicU32::new(0),
        scans: Scans::default(),
    })
}

fn empty<I: Index>(index: &I) -> Vec<I::Table> {
    (0..I::SHARDS).map(|_| index.new_table()).collect()
}

/// The index as the checkpoint has it, less what points to segments that are gone.
fn load<I: Index>(index: &I, recovery: &mut Recovery) -> Result<Vec<I::Table>> {
    let mut tables = empty(index);
    let Some(checkpoint) = &mut recovery.checkpoint else { return Ok(tables) };
    let keeps = |location| recovery.segments.get(location).is_some();
    for (shard, table) in tables.iter_mut().enumerate() {
        let Some(packed) = checkpoint.next_block()? else { break };
        if !table.unpack(shard, packed, &keeps) {
            return Err(checkpoint.corrupted("entries that are in no order"));
        }
    }
    Ok(tables)
}

#[expect(clippy::too_many_arguments, reason = "it is the body of a loop, given a name")]
fn replay<I: Index>(
    index: &I,
    table: &mut I::Table,
    salt: u32,
    segments: &Segments,
    segment: &Segment,
    location: Location,
    record: &Record<'_>,
    place: Place<I>,
    now_ms: u64,
) -> Result<()> {
    let mut found = None;
    let mut doubtful = None;
    for Match { slot, location: other, total } in table.matches(place.tag) {
        let total = if total.is_some() {
            total
        } else if other == location {
            Some(record.total)
        } else {
            match compare(index, salt, segments, other, place, record.key, Wait::Block)? {
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
    // As for writers, see `damaged`.
    let found = found.or(doubtful);
    if let Some((_, other, total)) = found
        && let Some(segment) = segments.get(other)
    {
        segment.remove_live(total);
    }
    let is_live = record.kind == Kind::Put && !record.meta.is_expired(now_ms);
    match (is_live, found) {
        (true, found) => {
            segment.add_live(record.total);
            segment.note_expiry(record.meta.expires_at_ms);
            match found {
                Some((slot, ..)) => table.replace(slot, location, record.total),
                None => table.insert(place.tag, location, record.total),
            }
        }
        (false, found) => {
            if record.kind == Kind::Tombstone {
                segment.add_tombstone(record.total);
            }
            if let Some((slot, ..)) = found {
                table.remove(slot);
            }
        }
    }
    Ok(())
}
