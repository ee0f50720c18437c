//! Checkpoints: the list of leaves as it is, so that what came before is not needed any more.
//!
//! The position from which redo will be replayed is noted first. Then the leaves are gone
//! through; each is written to the log if only memory has it as it is, and listed while it
//! is locked: with its place in the log, and the last redo record that its page has seen. So
//! whatever is replayed later is skipped where the page has it already. Once the list is on the
//! disk, segments before the position are needed for the listed pages only; those without any
//! are removed.
//!
//! That is also how space is given back: a checkpoint moves the pages out of segments of which
//! little is needed, until no more than `dead=` percent of the rest is dead.
//!
//! ```text
//! block of the log's checkpoint file
//!  0  8  bytes of lines that follow
//!        lines, one a leaf, in order:
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

/// Bytes of lines that make a block.
const BLOCK_BYTES: usize = 64 << 10;

/// Bytes of a line beside the lower bound and its length.
const LINE_BYTES: usize = 8 + 8 + 4 + 4 + 4 + 8 + 8;

/// A checkpoint is due once four times as many bytes as the pages take were appended since the
/// last, within these bounds: so a small tree stays small, and the pages of a large one, which
/// may all have changed, are not written for a handful of changes.
const DUE_BYTES_MIN: u64 = 16 << 20;
const DUE_BYTES_MAX: u64 = 256 << 20;

/// As above, for a tree so large that half of its bytes are more: a bound of that.
const DUE_BYTES_MAX_OF_LARGE: u64 = 1 << 30;

/// Entry of a checkpoint for a leaf.
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

/// A block of so many lines' bytes.
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

/// Bytes of the list of all leaves, about.
pub(super) fn list_bytes<T>(directory: &Directory<T>) -> u64 {
    (directory.len() * (LINE_BYTES + 1) + directory.bounds_bytes()) as u64
}

/// The lines of a block, unless it is none.
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

/// The places of the pages that a checkpoint lists.
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

/// When a writer last wrote a checkpoint because the disk was full, or tried to.
#[derive(Default)]
pub(super) struct Reclaimed {
    last: Option<(LogPosition, Instant)>,
}

impl Reclaimed {
    fn note(&mut self, appended: LogPosition) {
        self.last = Some((appended, Instant::now()));
    }

    /// Whether another one may come to something else.
    fn is_due(&self, appended: LogPosition) -> bool {
        self.last.is_none_or(|(at, when)| {
            appended.saturating_sub(at) >= RECLAIMED_BYTES_MIN || when.elapsed() >= RECLAIM_PERIOD
        })
    }
}

/// Time after which another checkpoint is tried though little was appended since the last.
const RECLAIM_PERIOD: Duration = Duration::from_millis(500);

/// Bytes of redo for which it is worth a checkpoint on a full disk.
const RECLAIMED_BYTES_MIN: u64 = 64 << 10;

impl TreeEngine {
    /// Writes a checkpoint, and removes what is not needed after it. With `everything` next to
    /// nothing dead is left.
    pub(super) fn checkpoint(&self, everything: bool) -> Result<()> {
        let _structure = self.structure.lock();
        self.checkpoint_held(everything)
    }

    /// As `checkpoint`, where the caller holds `structure`.
    fn checkpoint_held(&self, everything: bool) -> Result<()> {
        // Replaying will begin in this segment or a later one.
        let first = self.log.active_number();
        let victims = self.victims(first, everything);
        let mut needed = BTreeSet::new();
        self.log.write_checkpoint(|block| {
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
        self.replayed_bytes.store(0, Ordering::Relaxed);
        self.cache.forget_gone();
        let list_bytes = list_bytes(&self.directory.read());
        self.list_bytes.store(list_bytes, Ordering::Relaxed);
        self.log.space().quota().note_checkpoint_bytes(list_bytes);
        self.log.remove_segments(&|segment| {
            segment.number < first && !segment.is_kept() && !needed.contains(&segment.slot)
        })?;
        if self.log.is_disk_short() {
            // The part of the last segment that pages have left free is not for puts.
            self.log.trim()?;
        }
        Ok(())
    }

    /// Gives space back on a full disk, for a writer, if so much was changed since the last
    /// checkpoint that it is worth one. An error that prevents that is no failure of the write.
    pub(super) fn reclaim(&self) {
        let _structure = self.structure.lock();
        // The last holder of the lock may have done it.
        if self.is_worth_reclaiming() {
            let result = self.checkpoint_held(false);
            self.reclaimed.lock().note(self.log.appended());
            if let Err(error) = result {
                tracing::debug!("nothing is gained on a full disk: {error}");
            }
        }
        self.log.space().give_up_reclaiming();
    }

    /// Waits for the checkpoint that is overdue, or writes it, for a writer of a tree with a cap on
    /// bytes. A full disk is no failure of the write.
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

    /// Whether a checkpoint on a full disk has the space that it takes, and gives back more than
    /// its pages, or, where a put was refused, a good part of them. One that comes too early would
    /// write pages that removals are about to make smaller.
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

    /// Writes out all pages that only memory has as they are.
    pub(super) fn flush(&self) -> Result<()> {
        let _structure = self.structure.lock();
        self.scan_leaves(&mut |_, state, _| self.write_out(state).map(|_| ()))
    }

    /// Returns the home of a page as it is, outside of these segments; writes the page if need be.
    fn home_outside(&self, victims: &BTreeSet<usize>, state: &mut State) -> Result<Home> {
        if let Some(home) = state.home()
            && victims.contains(&home.location.slot())
        {
            match self.move_page(state, home) {
                // It stays where it is, and so does its segment. The damage is noted.
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
        let (salt, id) = (self.log.database_id().salt, state.id.to_le_bytes());
        let moved =
            with_record(&segments, salt, home.location, Wait::Block, Check::Whole, |record| {
                // The record that stands in for a damaged page is no page.
                if !is_page(record, state.id) {
                    return Err(not_a_page(&segments, home.location));
                }
                self.store_page(&id, record.value, record.compression)
            })??;
        segments.remove_live(home.location, home.total as usize);
        state.move_to(moved);
        Ok(())
    }

    /// Slots of the segments before this number whose pages are to be moved: those with the least
    /// in them, until the rest has few enough dead bytes, and all short ones if they are many.
    fn victims(&self, before: u64, everything: bool) -> BTreeSet<usize> {
        let limit = if everything { 0 } else { u64::from(self.log.settings().dead_percent_max) };
        // On a full disk no more than there is room for beside the changed pages.
        let mut space = if self.log.is_disk_short() {
            self.log.free_bytes().saturating_sub(self.log.checkpoint_needs_bytes())
        } else {
            u64::MAX
        };
        let segments = self.log.segments();
        // A segment without any page goes as it is.
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

    /// Bytes appended since the last checkpoint after which the next is due.
    pub(super) fn due_bytes(&self) -> u64 {
        let segments = self.log.segments();
        let live: u64 = segments.iter().map(|segment| segment.live_bytes.get()).sum();
        // Pages that have changed count where they are.
        let pages = live.max(self.cache.bytes() as u64);
        let list = self.list_bytes.load(Ordering::Relaxed);
        (pages * 4)
            .clamp(DUE_BYTES_MIN, DUE_BYTES_MAX)
            .max((pages / 2).min(DUE_BYTES_MAX_OF_LARGE))
            .max(4 * list)
            .min(self.cap.due_bytes_max())
    }

    /// Bytes that an opening would have to read to replay the log.
    pub(super) fn replay_bytes(&self) -> u64 {
        self.log.since_checkpoint() + self.replayed_bytes.load(Ordering::Relaxed)
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
        fn lines_come_back_from_their_block(lines in proptest::collection::vec(line(), 0..20)) {
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
