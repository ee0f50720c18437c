//! Check of a checkpoint against the log: each entry has a whole record of its key in its place.

use super::{Index, IndexKey, ShardIndex as _, Tag};
use crate::base::damage::Damage;
use crate::log::SegmentOffset;
use crate::log::check::{Files, Walked};
use crate::log::record::Kind;
use crate::log::segments::segment_path;
use crate::{Error, Result};
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// Most entries that are in memory at a time, unless one segment has more: 32 bytes each.
const ENTRIES_MAX: usize = 4 << 20;

/// An entry whose record has not been read yet.
struct Entry<I: Index> {
    place: SegmentOffset,
    shard: usize,
    tag: Tag<I>,
    is_found: bool,
}

/// Reads the records of the segments for which `wanted` returns true, like [`Files::walk_those`],
/// and reports those that the checkpoint has and the log has not. Entries whose segment is gone
/// are left out, as at opening.
pub(crate) fn walk_with_index<I: Index>(
    files: &Files<'_>,
    new_index: &dyn Fn() -> I,
    wanted: &dyn Fn(u64) -> bool,
    report: &mut dyn FnMut(Damage),
) -> Result<Walked> {
    let index = new_index();
    let mut walked = Walked::default();
    for group in groups(files, new_index, ENTRIES_MAX)? {
        let is_of_group = |number: u64| group.contains(&number) && wanted(number);
        let mut entries: Vec<Entry<I>> = Vec::new();
        for_each_entry(files, &new_index(), &mut |place, IndexKey { shard, tag }| {
            if is_of_group(place.0) {
                entries.push(Entry { place, shard, tag, is_found: false });
            }
        })?;
        entries.sort_unstable_by_key(|entry| entry.place);
        let part = files.walk_those(
            &is_of_group,
            &mut |place, record| {
                let own = index.index_key(record.key).filter(|_| record.kind == Kind::Put);
                let first = entries.partition_point(|entry| entry.place < place);
                for entry in &mut entries[first..] {
                    if entry.place != place {
                        break;
                    }
                    let belongs =
                        |own: &IndexKey<I>| own.shard == entry.shard && own.tag == entry.tag;
                    entry.is_found |= own.as_ref().is_some_and(belongs);
                }
                Ok(())
            },
            report,
        )?;
        for Entry { place: (number, offset), .. } in entries.iter().filter(|entry| !entry.is_found)
        {
            let file = segment_path(files.directory(), *number);
            let what = "the index has a record here that the log has not".into();
            report(Damage { file, offset: *offset, what });
        }
        walked = walked.plus(part);
    }
    Ok(walked)
}

/// Returns ranges of the numbers of all segments, with at most `most` entries each.
fn groups<I: Index>(
    files: &Files<'_>,
    new_index: &dyn Fn() -> I,
    most: usize,
) -> Result<Vec<RangeInclusive<u64>>> {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for_each_entry(files, &new_index(), &mut |(number, _), _| {
        *counts.entry(number).or_default() += 1
    })?;
    let (mut groups, mut first, mut sum) = (Vec::new(), 0, 0);
    for number in files.numbers() {
        let count = counts.get(number).copied().unwrap_or_default();
        if sum > 0 && sum + count > most {
            groups.push(first..=*number - 1);
            (first, sum) = (*number, 0);
        }
        sum += count;
    }
    groups.push(first..=u64::MAX);
    Ok(groups)
}

/// Calls `visit` with each entry of the checkpoint whose segment exists. A damaged checkpoint,
/// which is reported elsewhere, ends the entries.
fn for_each_entry<I: Index>(
    files: &Files<'_>,
    index: &I,
    visit: &mut dyn FnMut(SegmentOffset, IndexKey<I>),
) -> Result<()> {
    let mut read = || {
        let Some(mut checkpoint) = files.checkpoint()? else { return Ok(()) };
        let lines = &checkpoint.segments;
        let numbers: HashMap<usize, u64> =
            lines.iter().map(|line| (line.slot, line.number)).collect();
        for shard in 0..I::SHARDS {
            let Some(packed) = checkpoint.next_block()? else { break };
            let mut table = index.new_shard_index();
            if !table.unpack(shard, packed, &|_| true) {
                return Err(checkpoint.corrupted("entries that are not in order"));
            }
            for (tag, location) in table.entries() {
                let number = numbers.get(&location.slot()).copied();
                let exists = |number: &u64| files.numbers().binary_search(number).is_ok();
                if let Some(number) = number.filter(exists) {
                    visit((number, location.offset() as u64), IndexKey { shard, tag });
                }
            }
        }
        Ok(())
    };
    match read() {
        Err(Error::Corrupted { .. }) => Ok(()),
        read => read,
    }
}
