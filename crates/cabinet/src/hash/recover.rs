//! Opening a hash database: the index from the last checkpoint and the log after it.

use super::table::are_packed;
use super::{Hash, SHARDS, Shard, Shared, Table};
use crate::io::Storage;
use crate::log::record::{Kind, Record};
use crate::log::{
    Check, Location, Nature, Recovery, Segment, Segments, Settings, StoredKind, with_record,
};
use crate::{Error, Options, Result, Wait};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// Opens or creates a database.
pub(super) fn open(storage: Arc<dyn Storage>, path: &Path, options: &Options) -> Result<Shared> {
    let clock = options.clock.clone();
    let nature = Nature::of(StoredKind::Hash);
    let mut recovery = Recovery::open(storage, path, Settings::of(options), options, nature)?;
    let mut tables = match load(&mut recovery) {
        Ok(tables) => tables,
        Err(error @ Error::Corrupted { .. }) => {
            recovery.distrust_checkpoint(&error);
            empty()
        }
        Err(error) => return Err(error),
    };
    let identity = recovery.identity;
    let now_ms = clock.now_ms();
    recovery.replay(&mut |segments, segment, location, record| {
        let hash = Hash::of(record.key, identity.hash_seed);
        let table = &mut tables[hash.shard];
        replay(table, identity.salt, segments, segment, location, record, hash, now_ms)
    })?;
    let log = recovery.finish()?;
    let shards = tables.into_iter().map(|table| Shard(table.into())).collect();
    Ok(Shared { log, shards, compression: options.compression, clock, paused: AtomicU32::new(0) })
}

fn empty() -> Vec<Table> {
    (0..SHARDS).map(|_| Table::default()).collect()
}

/// The index as the checkpoint has it, less what points to segments that are gone.
fn load(recovery: &mut Recovery) -> Result<Vec<Table>> {
    let mut tables = empty();
    let Some(checkpoint) = &mut recovery.checkpoint else { return Ok(tables) };
    for table in &mut tables {
        let Some(mut entries) = checkpoint.next_block()? else { break };
        entries.retain(|entry| recovery.segments.get(Location::from_bits(*entry)).is_some());
        if !are_packed(&entries) {
            return Err(checkpoint.corrupted("entries that are in no order"));
        }
        *table = Table::from_packed(&entries);
    }
    Ok(tables)
}

#[expect(clippy::too_many_arguments, reason = "it is the body of a loop, given a name")]
fn replay(
    table: &mut Table,
    salt: u32,
    segments: &Segments,
    segment: &Segment,
    location: Location,
    record: &Record<'_>,
    hash: Hash,
    now_ms: u64,
) -> Result<()> {
    let mut found = None;
    for (slot, other) in table.find(hash.tag) {
        let same = |other: &Record<'_>| (other.key == record.key).then_some(other.total);
        let total = if other == location {
            Some(record.total)
        } else {
            // An entry of the checkpoint may point beyond what the power left of the log.
            match with_record(segments, salt, other, Wait::Block, Check::Lengths, same) {
                Err(Error::Corrupted { .. }) => None,
                total => total?,
            }
        };
        if let Some(total) = total {
            found = Some((slot, other, total));
            break;
        }
    }
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
                Some((slot, ..)) => table.replace(slot, location),
                None => table.insert(hash.tag, location),
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
