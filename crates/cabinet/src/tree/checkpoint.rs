//! Checkpoint: a list of all leaves, so that the redo before it is not needed any more.
//!
//! A checkpoint first notes the position from which redo will be replayed. Then it visits the
//! leaves. Each leaf is locked, written to the log if it has changed, and listed with its location
//! in the log and its last redo record. A replay skips the redo records that a page already
//! contains. Once the list is on the disk, segments before the position are needed only for listed
//! pages. Segments without such pages are removed.
//!
//! Checkpoints also reclaim space: they move the pages out of segments with few live bytes, until
//! at most `dead=` percent of the other segments is dead.
//!
//! ```text
//! block of the log's checkpoint file
//!  0  8  bytes of lines that follow
//!        lines, one per leaf, in order:
//!          1-3  length of the lower bound, LEB128
//!               lower bound; empty for the first leaf
//!            8  id of the leaf
//!            8  location of its page: 17 bits of segment slot, 23 of offset in units of 8
//!            4  bytes of the record that the page is in
//!            4  number of records
//!            4  bytes of the page, before compression
//!            8  sequence number of the last redo record that the page has seen
//!            8  nothing in it expires before this, milliseconds since the Unix epoch
//!        zeros, up to a multiple of 8
//! ```

use super::TreeEngine;
use super::cell::{push_length, split_length};
use super::directory::Directory;
use super::leaf::{Home, State};
use super::leaf_access::{is_page, not_a_page};
use crate::limits::KEY_BYTES_MAX;
use crate::log::checkpoint::Checkpoint;
use crate::log::{Check, Location, SHORT_SEGMENTS_MAX, SegmentOffset, is_short, with_record};
use crate::{Error, LogPosition, Result, Wait};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes of lines after which a block ends.
const BLOCK_BYTES: usize = 64 << 10;

/// Bytes of a line beside the lower bound and its length.
const LINE_BYTES: usize = 8 + 8 + 4 + 4 + 4 + 8 + 8;

/// Bounds of the bytes after which a checkpoint is due. Within them it is due when four times the
/// bytes of the pages were appended since the last one. So a small tree stays small, and the pages
/// of a large one, which may all have changed, are not written after few changes.
const DUE_BYTES_MIN: u64 = 16 << 20;
const DUE_BYTES_MAX: u64 = 256 << 20;

/// For a tree so large that half of its bytes exceed [`DUE_BYTES_MAX`], that half is the bound, up
/// to this.
const DUE_BYTES_MAX_OF_LARGE: u64 = 1 << 30;

/// Line of a checkpoint for a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) lower: Box<[u8]>,
    pub(super) id: u64,
    pub(super) home: Home,
    pub(super) records: u32,
    pub(super) bytes: u32,
    pub(super) applied: u64,
    pub(super) expires_at_ms: u64,
}

impl Line {
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        push_length(bytes, self.lower.len());
        bytes.extend_from_slice(&self.lower);
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(&self.home.location.bits().to_le_bytes());
        bytes.extend_from_slice(&self.home.total.to_le_bytes());
        bytes.extend_from_slice(&self.records.to_le_bytes());
        bytes.extend_from_slice(&self.bytes.to_le_bytes());
        bytes.extend_from_slice(&self.applied.to_le_bytes());
        bytes.extend_from_slice(&self.expires_at_ms.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (length, rest) = split_length(bytes)?;
        if length > KEY_BYTES_MAX {
            return None;
        }
        let (lower, rest) = rest.split_at_checked(length)?;
        let (fixed, rest) = rest.split_first_chunk::<LINE_BYTES>()?;
        let number =
            |at: usize| fixed[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let line = Self {
            lower: lower.into(),
            id: number(0),
            home: Home { location: Location::from_bits(number(8)), total: number(16) as u32 },
            records: (number(16) >> 32) as u32,
            bytes: number(24) as u32,
            applied: number(28),
            expires_at_ms: number(36),
        };
        Some((line, rest))
    }
}

/// Makes a block of encoded lines, and clears them.
pub(super) fn pack(lines: &mut Vec<u8>) -> Vec<u64> {
    let mut block = vec![lines.len() as u64];
    lines.resize(lines.len().next_multiple_of(8), 0);
    block.extend(
        lines
            .chunks_exact(8)
            .map(|word| word.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))),
    );
    lines.clear();
    block
}

/// Returns the approximate bytes of the list of all leaves.
pub(super) fn list_bytes<T>(directory: &Directory<T>) -> u64 {
    (directory.len() * (LINE_BYTES + 1) + directory.bounds_bytes()) as u64
}

/// Returns the lines of a block; `None` if it is not a list of leaves.
pub(super) fn unpack(block: &[u64]) -> Option<Vec<Line>> {
    let (&length, words) = block.split_first()?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut rest = bytes.get(..usize::try_from(length).ok()?)?;
    let mut lines = Vec::new();
    while !rest.is_empty() {
        let (line, after) = Line::decode(rest)?;
        lines.push(line);
        rest = after;
    }
    Some(lines)
}

/// Returns the segments and offsets of the pages that a checkpoint lists.
pub(crate) fn listed_pages(checkpoint: Option<Checkpoint>) -> Result<Vec<SegmentOffset>> {
    let mut pages = Vec::new();
    let Some(mut checkpoint) = checkpoint else { return Ok(pages) };
    let numbers: HashMap<usize, u64> =
        checkpoint.segments.iter().map(|line| (line.slot, line.number)).collect();
    while let Some(block) = checkpoint.next_block()? {
        for line in unpack(&block).unwrap_or_default() {
            let location = line.home.location;
            let number = numbers.get(&location.slot()).copied();
            pages.extend(number.map(|number| (number, location.offset() as u64)));
        }
    }
    Ok(pages)
}

/// Position and time at which a writer last wrote or tried a checkpoint to gain space.
#[derive(Default)]
pub(super) struct Reclaimed {
    last: Option<(LogPosition, Instant)>,
}

impl Reclaimed {
    fn note(&mut self, appended: LogPosition) {
        self.last = Some((appended, Instant::now()));
    }

    /// Returns whether another checkpoint may gain more than the last one.
    fn is_due(&self, appended: LogPosition) -> bool {
        self.last.is_none_or(|(at, when)| {
            appended.saturating_sub(at) >= RECLAIMED_BYTES_MIN || when.elapsed() >= RECLAIM_PERIOD
        })
    }
}

/// Time after which another checkpoint is tried even if little was appended since the last one.
const RECLAIM_PERIOD: Duration = Duration::from_millis(500);

/// Minimum bytes of redo for which a checkpoint on a full disk is worth its cost.
const RECLAIMED_BYTES_MIN: u64 = 64 << 10;

impl TreeEngine {
    /// Writes a checkpoint, and removes the segments that are not needed after it. With
    /// `everything`, it moves all pages out of segments with dead bytes.
    pub(super) fn checkpoint(&self, everything: bool) -> Result<()> {
        let _structure = self.structure.lock();
        self.checkpoint_held(everything)
    }

    /// Like `checkpoint`, for callers that hold `structure`.
    fn checkpoint_held(&self, everything: bool) -> Result<()> {
        // Replaying will begin in this segment or a later one.
        let first = self.log.active_number();
        let victims = self.victims(first, everything);
        let mut needed = BTreeSet::new();
        let mut passed_bytes = 0;
        self.log.write_checkpoint(|block| {
            passed_bytes = self.passed_bytes.load(Ordering::Relaxed);
            let mut lines = Vec::new();
            self.scan_leaves(&mut |leaf, state, lower| {
                self.join(leaf, state, lower)?;
                let home = self.home_outside(&victims, state)?;
                needed.insert(home.location.slot());
                let line = Line {
                    lower: lower.into(),
                    id: state.id,
                    home,
                    records: state.records() as u32,
                    bytes: state.bytes() as u32,
                    applied: state.applied(),
                    expires_at_ms: state.expires_at_ms,
                };
                line.encode(&mut lines);
                if lines.len() >= BLOCK_BYTES {
                    block(&pack(&mut lines))?;
                }
                Ok(())
            })?;
            block(&pack(&mut lines)).map(drop)
        })?;
        self.note_checkpoint(passed_bytes);
        self.cache.forget_gone();
        let list_bytes = list_bytes(&self.directory.read());
        self.list_bytes.store(list_bytes, Ordering::Relaxed);
        self.log.space().quota().note_checkpoint_bytes(list_bytes);
        self.log.remove_segments(&|segment| {
            segment.number < first && !segment.is_kept() && !needed.contains(&segment.slot)
        })?;
        if self.log.is_disk_short() {
            // Puts do not use the part of the last segment that the pages have left free.
            self.log.trim()?;
        }
        Ok(())
    }

    /// Writes a checkpoint for a writer on a full disk, if it is worth its cost. An error is
    /// logged, and does not fail the write.
    pub(super) fn reclaim(&self) {
        let _structure = self.structure.lock();
        // The last holder of the lock may have written one.
        if self.is_worth_reclaiming() {
            let result = self.checkpoint_held(false);
            self.reclaimed.lock().note(self.log.appended());
            if let Err(error) = result {
                tracing::debug!("a checkpoint on a full disk failed: {error}");
            }
        }
        self.log.space().give_up_reclaiming();
    }

    /// Waits for the overdue checkpoint, or writes it, for a writer of a tree with a cap on bytes.
    /// A full disk does not fail the write.
    pub(super) fn catch_up(&self) -> Result<()> {
        let _structure = self.structure.lock();
        let is_behind = self.replay_bytes() > self.behind_bytes.load(Ordering::Relaxed);
        if !is_behind || !self.reclaimed.lock().is_due(self.log.appended()) {
            return Ok(());
        }
        match self.checkpoint_held(false) {
            Err(Error::NoSpace { .. }) => {
                self.reclaimed.lock().note(self.log.appended());
                Ok(())
            }
            result => result,
        }
    }

    /// Returns whether a checkpoint on a full disk has enough space, and frees more than it writes.
    /// If a put was refused, it is enough to free a quarter of the bytes that it writes. An early
    /// checkpoint would write pages that removals are about to make smaller.
    pub(super) fn is_worth_reclaiming(&self) -> bool {
        if !self.reclaimed.lock().is_due(self.log.appended())
            || self.log.checkpoint_needs_bytes() > self.log.free_bytes()
        {
            return false;
        }
        let unwritten = self.log.space().quota().unwritten_bytes();
        let redo = self.replay_bytes();
        let active = self.log.active_number();
        let segments = self.log.segments();
        let dead = segments
            .iter()
            .filter(|one| one.number < active && !one.is_kept() && one.live_bytes.get() == 0);
        let gained = dead.map(|segment| segment.bytes()).sum::<u64>().max(redo);
        gained >= RECLAIMED_BYTES_MIN.max(unwritten)
            || self.log.space().quota().has_refused()
                && redo >= RECLAIMED_BYTES_MIN.max(unwritten / 4)
    }

    /// Writes all changed pages to the log.
    pub(super) fn flush(&self) -> Result<()> {
        let _structure = self.structure.lock();
        self.scan_leaves(&mut |_, state, _| self.write_out(state).map(|_| ()))
    }

    /// Returns the home of a page outside of the segments `victims`. Writes or moves the page if
    /// necessary.
    fn home_outside(&self, victims: &BTreeSet<usize>, state: &mut State) -> Result<Home> {
        if let Some(home) = state.home()
            && victims.contains(&home.location.slot())
        {
            match self.move_page(state, home) {
                // The page stays in its segment, which is kept. The damage is noted.
                Err(Error::Corrupted { .. }) => {}
                result => result?,
            }
        }
        self.write_out(state)
    }

    fn move_page(&self, state: &mut State, home: Home) -> Result<()> {
        if let Some(loaded) = state.loaded() {
            self.forget_home(loaded);
            return Ok(());
        }
        let segments = self.log.segments();
        let id = state.id.to_le_bytes();
        let moved = with_record(&segments, home.location, Wait::Block, Check::Whole, |record| {
            // The filler in place of a damaged page is not a page.
            if !is_page(record, state.id) {
                return Err(not_a_page(&segments, home.location));
            }
            self.store_page(&id, record.value, record.compression)
        })??;
        segments.remove_live(home.location, home.total as usize);
        state.move_to(moved);
        Ok(())
    }

    /// Returns the slots of the segments before this number whose pages must be moved. These are
    /// the segments with the smallest share of live bytes, until the others have few enough dead
    /// bytes, and all short segments if there are many.
    fn victims(&self, before: u64, everything: bool) -> BTreeSet<usize> {
        let limit = if everything { 0 } else { u64::from(self.log.settings().dead_percent_max) };
        // On a full disk, only pages for which there is space beside the changed pages are moved.
        let mut space = if self.log.is_disk_short() {
            self.log.free_bytes().saturating_sub(self.log.checkpoint_needs_bytes())
        } else {
            u64::MAX
        };
        let segments = self.log.segments();
        // A segment without pages is removed without a move.
        let with_pages = || {
            segments.iter().filter(|segment| {
                segment.number < before && !segment.is_kept() && segment.live_bytes.get() > 0
            })
        };
        let mut kept: Vec<(u64, u64, usize)> = with_pages()
            .map(|segment| (segment.live_bytes.get(), segment.bytes(), segment.slot))
            .collect();
        kept.sort_by(|(live, bytes, _), (other_live, other_bytes, _)| {
            (live * other_bytes).cmp(&(other_live * bytes))
        });
        let mut total: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        let mut dead: u64 = kept.iter().map(|(live, bytes, _)| bytes.saturating_sub(*live)).sum();
        let short = with_pages().filter(|segment| is_short(segment, total));
        let mut victims: BTreeSet<usize> = short.map(|segment| segment.slot).collect();
        if victims.len() as u64 <= SHORT_SEGMENTS_MAX {
            victims.clear();
        }
        for (live, bytes, slot) in kept {
            let own = bytes.saturating_sub(live);
            if dead * 100 <= limit * total
                || own <= crate::log::segments::SEGMENT_HEADER_BYTES as u64
            {
                break;
            }
            let Some(left) = space.checked_sub(live) else { break };
            space = left;
            dead -= own;
            total -= bytes;
            victims.insert(slot);
        }
        victims
    }

    /// Returns the bytes of redo after which the next checkpoint is due.
    pub(super) fn due_bytes(&self) -> u64 {
        let segments = self.log.segments();
        let live: u64 = segments.iter().map(|segment| segment.live_bytes.get()).sum();
        // Changed pages are not live in the log, so the cache counts.
        let pages = live.max(self.cache.bytes() as u64);
        let list = self.list_bytes.load(Ordering::Relaxed);
        (pages * 4)
            .clamp(DUE_BYTES_MIN, DUE_BYTES_MAX)
            .max((pages / 2).min(DUE_BYTES_MAX_OF_LARGE))
            .max(4 * list)
            .min(self.cap.due_bytes_max())
    }

    /// Returns the bytes that an opening would read to replay the log.
    pub(super) fn replay_bytes(&self) -> u64 {
        self.log.since_checkpoint() + self.replayed_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the changes that an opening would replay.
    pub(super) fn redo_bytes(&self) -> u64 {
        self.replay_bytes().saturating_sub(self.passed_bytes.load(Ordering::Relaxed))
    }

    /// Notes that a checkpoint is on the disk. `passed_bytes` had been counted when it began: its
    /// own pages are after that.
    pub(super) fn note_checkpoint(&self, passed_bytes: u64) {
        self.replayed_bytes.store(0, Ordering::Relaxed);
        self.passed_bytes.fetch_sub(passed_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line() -> impl Strategy<Value = Line> {
        let lower = proptest::collection::vec(any::<u8>(), 0..200);
        (lower, any::<[u64; 4]>(), any::<[u32; 3]>()).prop_map(|(lower, wide, narrow)| Line {
            lower: lower.into(),
            id: wide[0],
            home: Home { location: Location::from_bits(wide[1]), total: narrow[0] },
            records: narrow[1],
            bytes: narrow[2],
            applied: wide[2],
            expires_at_ms: wide[3],
        })
    }

    proptest! {
        #[test]
        fn unpacked_lines_equal_the_packed_ones(lines in proptest::collection::vec(line(), 0..20)) {
            let mut bytes = Vec::new();
            lines.iter().for_each(|line| line.encode(&mut bytes));
            prop_assert_eq!(unpack(&pack(&mut bytes)).unwrap(), lines);
        }

        #[test]
        fn hostile_blocks_are_read_or_refused(
            block in proptest::collection::vec(prop_oneof![any::<u64>(), 0u64..300], 0..30),
        ) {
            let _ = unpack(&block);
        }
    }
}
