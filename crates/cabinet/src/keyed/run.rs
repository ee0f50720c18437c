//! Runs: sorted entries of one shard in a file.
//!
//! If the index does not fit into its memory budget, most entries of each shard are in a run. The
//! table in memory has only the changes since. A run is a block of a checkpoint, or of an unnamed
//! file of the same layout. It never changes.
//!
//! An entry is 64 bits; the highest 24 are its tag. A run is divided at the multiples of
//! [`PIECE_BYTES`] in the file, so each piece is within one page of the page cache. The first tag
//! and the checksum of each piece are in memory: 8 bytes per 512 entries. Finding a tag therefore
//! takes one read of one page.
//!
//! The directory of a file has the length of each run, and the first tag and the checksum of each
//! piece. [formats/log.md](../../../../docs/formats/log.md#checkpoints) draws it.

use crate::base::sync::Mutex;
use crate::io::{File, is_unreadable};
use crate::log::{Faults, Location, Spend, error_at};
use crate::{Error, Result, Wait};
use std::collections::BTreeSet;
use std::io;
use std::iter::{Copied, Peekable};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a piece.
const PIECE_BYTES: u64 = 4096;

const ENTRY_BYTES: usize = size_of::<u64>();

/// Entries of a full piece.
const PIECE_ENTRIES: usize = PIECE_BYTES as usize / ENTRY_BYTES;

/// Pieces that are read at a time where many are needed: 256 KiB.
const PIECES_AT_ONCE: usize = 64;

/// First word of a directory, "tyrunidx" in ASCII.
const DIRECTORY_MAGIC: u64 = u64::from_le_bytes(*b"tyrunidx");

/// Words of a directory besides those of runs and pieces: the magic, the number of runs, and the
/// number of words.
const DIRECTORY_WORDS: usize = 3;

/// Bytes before the entries of a block: its length and its checksum.
const BLOCK_HEADER_BYTES: u64 = 8;

/// A file of runs.
pub(crate) struct RunFile {
    pub(crate) file: Arc<dyn File>,
    /// Current or former name of the file.
    pub(crate) path: PathBuf,
    /// Initial value of the checksums.
    pub(crate) salt: u32,
    /// Damage that readers have found.
    pub(crate) faults: Arc<Faults>,
}

impl RunFile {
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let failed = |source| error_at("write", &self.path, source);
        self.file.write_at(bytes, offset).map_err(failed)
    }

    fn corrupted(&self, offset: u64, what: &str) -> Error {
        let what = format!("{what}; this part of the index is rebuilt from the log");
        Error::Corrupted { file: self.path.clone(), offset, what }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    first: u32,
    sum: u32,
}

impl Piece {
    fn word(self) -> u64 {
        u64::from(self.first) << 32 | u64::from(self.sum)
    }

    fn of_word(word: u64) -> Self {
        Self { first: (word >> 32) as u32, sum: word as u32 }
    }
}

/// Sorted entries of one shard in a file, see the module.
pub(crate) struct Run {
    file: Arc<RunFile>,
    /// Offset of the first entry in the file.
    offset: u64,
    count: usize,
    pieces: Box<[Piece]>,
    /// Pieces that count as empty: the table has their entries in memory.
    dropped: BTreeSet<usize>,
    /// Pieces that were found to be damaged. They are not read again, so no change relies on a
    /// piece that is being repaired.
    damaged: Mutex<BTreeSet<usize>>,
    is_damaged: AtomicBool,
}

/// Returns the tag of an entry.
#[inline]
pub(crate) fn tag_of(entry: u64) -> u32 {
    (entry >> Location::BITS) as u32
}

impl Run {
    fn without_pieces(file: Arc<RunFile>, offset: u64, count: usize) -> Self {
        Self {
            file,
            offset,
            count,
            pieces: Box::default(),
            dropped: BTreeSet::new(),
            damaged: Mutex::default(),
            is_damaged: AtomicBool::new(false),
        }
    }

    /// Describes the run of sorted entries that were written at an offset of a file.
    pub(crate) fn of(file: Arc<RunFile>, offset: u64, entries: &[u64]) -> Self {
        debug_assert!(entries.is_sorted());
        let mut run = Self::without_pieces(file, offset, entries.len());
        let mut pieces = Vec::new();
        let mut bytes = Vec::with_capacity(PIECE_BYTES as usize);
        for number in 0..run.piece_count() {
            let entries = &entries[run.start(number)..run.start(number + 1)];
            bytes.clear();
            bytes.extend(entries.iter().flat_map(|entry| entry.to_le_bytes()));
            let sum = crc32c::crc32c_append(run.file.salt, &bytes);
            pieces.push(Piece { first: tag_of(entries[0]), sum });
        }
        run.pieces = pieces.into();
        run
    }

    pub(crate) fn file(&self) -> &Arc<RunFile> {
        &self.file
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.count - self.entries_in(&self.dropped)
    }

    /// Returns the number of entries of some pieces.
    pub(crate) fn entries_in(&self, pieces: &BTreeSet<usize>) -> usize {
        pieces.iter().map(|piece| self.start(piece + 1) - self.start(*piece)).sum()
    }

    /// Returns the bytes of memory that the run uses.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.pieces.len() * size_of::<Piece>()
    }

    fn piece_count(&self) -> usize {
        let before = (self.offset % PIECE_BYTES) as usize / ENTRY_BYTES;
        if self.count == 0 { 0 } else { (before + self.count).div_ceil(PIECE_ENTRIES) }
    }

    /// Returns the index of the first entry of a piece.
    fn start(&self, piece: usize) -> usize {
        let before = (self.offset % PIECE_BYTES) as usize / ENTRY_BYTES;
        (piece * PIECE_ENTRIES).saturating_sub(before).min(self.count)
    }

    /// Returns the pieces that may have entries with a tag.
    fn pieces_with(&self, tag: u32) -> Range<usize> {
        let start = self.pieces.partition_point(|piece| piece.first < tag).saturating_sub(1);
        let end = self.pieces.partition_point(|piece| piece.first <= tag);
        start.min(end)..end
    }

    /// Returns the entries with a tag.
    pub(crate) fn find(&self, tag: u32, wait: Wait) -> Result<Vec<u64>> {
        let mut found = self.read(self.pieces_with(tag), wait)?;
        found.retain(|entry| tag_of(*entry) == tag);
        Ok(found)
    }

    /// Returns at least `count` entries from a tag on, if there are as many. Also returns the next
    /// tag, none of whose entries are included; `None` if there is none.
    pub(crate) fn read_from(&self, tag: u32, count: usize) -> Result<(Vec<u64>, Option<u32>)> {
        let first = self.pieces_with(tag).start;
        let mut end = first;
        let mut entries = Vec::new();
        let mut next = None;
        while end < self.pieces.len() {
            entries.extend(self.read(end..end + 1, Wait::Block)?);
            end += 1;
            next = self.pieces.get(end).map(|piece| piece.first);
            let complete = entries.iter().filter(|entry| {
                tag_of(**entry) >= tag && next.is_none_or(|next| tag_of(**entry) < next)
            });
            if complete.count() >= count {
                break;
            }
        }
        entries
            .retain(|entry| tag_of(*entry) >= tag && next.is_none_or(|next| tag_of(*entry) < next));
        Ok((entries, next))
    }

    /// Returns all entries.
    pub(crate) fn read_all(&self) -> Result<Vec<u64>> {
        let mut entries = Vec::with_capacity(self.count);
        self.for_each_part(&mut |part| entries.extend_from_slice(part))?;
        Ok(entries)
    }

    /// Returns whether a piece was found to be damaged.
    #[inline]
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Acquire)
    }

    /// Returns whether entries with a tag may be in a damaged piece.
    pub(crate) fn is_in_doubt(&self, tag: u32) -> bool {
        self.is_damaged() && self.damaged.lock().range(self.pieces_with(tag)).next().is_some()
    }

    /// Returns the pieces that were found to be damaged.
    pub(crate) fn damaged(&self) -> BTreeSet<usize> {
        self.damaged.lock().clone()
    }

    /// Returns the tags that entries of a piece may have.
    pub(crate) fn tags_of(&self, piece: usize) -> RangeInclusive<u32> {
        self.pieces[piece].first..=self.pieces.get(piece + 1).map_or(u32::MAX, |next| next.first)
    }

    /// Returns whether a piece was written with these sorted entries.
    pub(crate) fn had_in_piece(&self, piece: usize, entries: &[u64]) -> bool {
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        entries.len() == self.start(piece + 1) - self.start(piece)
            && crc32c::crc32c_append(self.file.salt, &bytes) == self.pieces[piece].sum
    }

    /// Returns the words of a piece without checking them; none if the disk cannot read it.
    pub(crate) fn words_of(&self, piece: usize) -> Vec<u64> {
        let (start, end) = (self.start(piece), self.start(piece + 1));
        let mut bytes = vec![0; (end - start) * ENTRY_BYTES];
        match self.fill(&mut bytes, self.offset + (start * ENTRY_BYTES) as u64, Wait::Block) {
            Ok(()) => words_in(&bytes),
            Err(_) => Vec::new(),
        }
    }

    /// Returns the same run without some pieces.
    pub(crate) fn without(&self, pieces: &BTreeSet<usize>) -> Self {
        let mut run = Self::without_pieces(Arc::clone(&self.file), self.offset, self.count);
        run.pieces = self.pieces.clone();
        run.dropped = self.dropped.union(pieces).copied().collect();
        let left: BTreeSet<usize> = self.damaged.lock().difference(pieces).copied().collect();
        run.is_damaged = AtomicBool::new(!left.is_empty());
        run.damaged = Mutex::new(left);
        run
    }

    /// Calls `visit` with the entries of all readable pieces, part by part. Calls `spend` with the
    /// bytes of each read before it, and stops if `spend` returns false. Returns whether it reached
    /// the end.
    pub(crate) fn for_each_whole(
        &self,
        spend: &mut Spend<'_>,
        visit: &mut dyn FnMut(&[u64]),
    ) -> Result<bool> {
        self.for_each_of(0..self.pieces.len(), spend, visit)
    }

    /// Like `for_each_whole`, for the pieces that may have entries with some sorted tags. Each
    /// piece is read once.
    pub(crate) fn for_each_with(
        &self,
        tags: &[u32],
        spend: &mut Spend<'_>,
        visit: &mut dyn FnMut(&[u64]),
    ) -> Result<bool> {
        let mut wanted = 0..0;
        for tag in tags {
            let own = self.pieces_with(*tag);
            if own.start > wanted.end {
                if !self.for_each_of(wanted, spend, visit)? {
                    return Ok(false);
                }
                wanted = own;
            } else {
                wanted.end = wanted.end.max(own.end);
            }
        }
        self.for_each_of(wanted, spend, visit)
    }

    fn for_each_of(
        &self,
        pieces: Range<usize>,
        spend: &mut Spend<'_>,
        visit: &mut dyn FnMut(&[u64]),
    ) -> Result<bool> {
        for first in pieces.clone().step_by(PIECES_AT_ONCE) {
            let end = (first + PIECES_AT_ONCE).min(pieces.end);
            if !spend((end - first) as u64 * PIECE_BYTES) {
                return Ok(false);
            }
            match self.read(first..end, Wait::Block) {
                Ok(entries) => visit(&entries),
                Err(Error::Corrupted { .. }) => {
                    for number in first..end {
                        match self.read(number..number + 1, Wait::Block) {
                            Err(Error::Corrupted { .. }) => {}
                            entries => visit(&entries?),
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Calls `visit` with all entries, part by part.
    pub(crate) fn for_each_part(&self, visit: &mut dyn FnMut(&[u64])) -> Result<()> {
        for first in (0..self.pieces.len()).step_by(PIECES_AT_ONCE) {
            let end = (first + PIECES_AT_ONCE).min(self.pieces.len());
            visit(&self.read(first..end, Wait::Block)?);
        }
        Ok(())
    }

    /// Reads pieces and verifies them.
    fn read(&self, pieces: Range<usize>, wait: Wait) -> Result<Vec<u64>> {
        if self.is_damaged() && self.damaged.lock().range(pieces.clone()).next().is_some() {
            return Err(self.note_damage(pieces, wait));
        }
        if self.dropped.is_empty() {
            return self.read_present(pieces, wait);
        }
        let mut entries = Vec::new();
        let mut start = pieces.start;
        for end in self.dropped.range(pieces.clone()).copied().chain([pieces.end]) {
            if start < end {
                entries.extend(self.read_present(start..end, wait)?);
            }
            start = end + 1;
        }
        Ok(entries)
    }

    fn read_present(&self, pieces: Range<usize>, wait: Wait) -> Result<Vec<u64>> {
        match self.read_and_check(pieces.clone(), wait) {
            Err(Error::Corrupted { .. }) => {
                for number in pieces.clone() {
                    match self.read_and_check(number..number + 1, wait) {
                        Err(Error::Corrupted { .. }) => {
                            self.damaged.lock().insert(number);
                            self.is_damaged.store(true, Ordering::Release);
                        }
                        read => drop(read?),
                    }
                }
                if self.damaged.lock().range(pieces.clone()).next().is_none() {
                    // A repeated read was good.
                    return self.read_and_check(pieces, wait);
                }
                Err(self.note_damage(pieces, wait))
            }
            read => read,
        }
    }

    /// Returns the error of the first damaged one of some pieces, counted and logged.
    #[cold]
    fn note_damage(&self, pieces: Range<usize>, wait: Wait) -> Error {
        if wait == Wait::Never {
            // Left for a thread that may wait.
            return Error::WouldBlock;
        }
        let piece = self.damaged.lock().range(pieces.clone()).next().copied();
        let first = self.start(piece.unwrap_or(pieces.start));
        let offset = self.offset + (first * ENTRY_BYTES) as u64;
        let what = "a part of the index is damaged and will be rebuilt from the log";
        self.file.faults.report(&self.file.path, offset, what);
        self.file.corrupted(offset, "a part of the index cannot be read")
    }

    fn read_and_check(&self, pieces: Range<usize>, wait: Wait) -> Result<Vec<u64>> {
        let (start, end) = (self.start(pieces.start), self.start(pieces.end));
        let offset = self.offset + (start * ENTRY_BYTES) as u64;
        let mut bytes = vec![0; (end - start) * ENTRY_BYTES];
        self.fill(&mut bytes, offset, wait)?;
        for number in pieces {
            let own = (self.start(number) - start) * ENTRY_BYTES
                ..(self.start(number + 1) - start) * ENTRY_BYTES;
            let sum = crc32c::crc32c_append(self.file.salt, &bytes[own.clone()]);
            if sum != self.pieces[number].sum {
                if wait == Wait::Never {
                    // Left for a thread that may wait.
                    return Err(Error::WouldBlock);
                }
                let at = offset + own.start as u64;
                return Err(self
                    .file
                    .corrupted(at, "the checksum of a part of the index is wrong"));
            }
        }
        Ok(words_in(&bytes))
    }

    fn fill(&self, bytes: &mut [u8], offset: u64, wait: Wait) -> Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            let (more, at) = (&mut bytes[filled..], offset + filled as u64);
            let read = match wait {
                Wait::Block => self.file.file.read_at(more, at),
                Wait::Never => self.file.file.read_cached_at(more, at),
            };
            match read {
                Ok(0) if wait == Wait::Block => {
                    return Err(self.file.corrupted(at, "the file ends too early"));
                }
                Ok(count) if count > 0 => filled += count,
                Err(error) if wait == Wait::Block && is_unreadable(&error) => {
                    return Err(self.file.corrupted(at, "the disk cannot read the index"));
                }
                Err(error) if wait == Wait::Block => {
                    return Err(Error::Io {
                        operation: "read",
                        path: self.file.path.clone(),
                        source: error,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Nothing read, or a failure, which is left for a thread that may wait.
                _ => return Err(Error::WouldBlock),
            }
        }
        Ok(())
    }
}

fn words_in(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

/// Returns the directory of a file of runs.
pub(crate) fn directory_of(runs: &[Arc<Run>]) -> Vec<u64> {
    let mut words = vec![DIRECTORY_MAGIC, runs.len() as u64];
    words.extend(runs.iter().map(|run| run.count as u64));
    words.extend(runs.iter().flat_map(|run| run.pieces.iter().map(|piece| piece.word())));
    words.push(words.len() as u64 + 1);
    words
}

/// Returns the most words that the directory of some entries and runs can have, with the header of
/// its block.
pub(crate) fn directory_words(entries: usize, runs: usize) -> usize {
    DIRECTORY_WORDS + 1 + 3 * runs + entries / PIECE_ENTRIES
}

/// Returns the runs of a file that its directory lists, the first block at `first_block`. Returns
/// `None` unless it is a directory of `shards` runs that end at `blocks_end`.
pub(crate) fn runs_of(
    file: &Arc<RunFile>,
    words: &[u64],
    shards: usize,
    first_block: u64,
    blocks_end: u64,
) -> Option<Vec<Arc<Run>>> {
    let (&[magic, count], rest) = words.split_first_chunk()?;
    let rest = &rest[..rest.len().checked_sub(1)?];
    debug_assert_eq!(words.len() - rest.len(), DIRECTORY_WORDS);
    if magic != DIRECTORY_MAGIC || count != shards as u64 {
        return None;
    }
    let (counts, mut pieces) = rest.split_at_checked(shards)?;
    let mut at = first_block;
    let mut runs = Vec::with_capacity(shards);
    for count in counts {
        let offset = at + BLOCK_HEADER_BYTES;
        let left = blocks_end.checked_sub(offset)?;
        if *count > left / ENTRY_BYTES as u64 {
            return None;
        }
        at = offset + count * ENTRY_BYTES as u64;
        let count = usize::try_from(*count).ok()?;
        let mut run = Run::without_pieces(Arc::clone(file), offset, count);
        let (own, after) = pieces.split_at_checked(run.piece_count())?;
        pieces = after;
        run.pieces = own.iter().map(|word| Piece::of_word(*word)).collect();
        if !run.pieces.is_sorted_by_key(|piece| piece.first) {
            return None;
        }
        runs.push(Arc::new(run));
    }
    (at == blocks_end && pieces.is_empty()).then_some(runs)
}

/// Snapshot of a table, to be written as a run.
pub(crate) struct Before {
    /// Run of the table.
    pub(crate) run: Option<Arc<Run>>,
    /// Entries in memory, sorted.
    pub(crate) added: Vec<u64>,
    /// Entries of the run that the table has no more, sorted.
    pub(crate) dead: Vec<u64>,
}

impl Before {
    /// Returns all entries, sorted.
    pub(crate) fn merged(&self) -> Result<Vec<u64>> {
        let Some(run) = &self.run else { return Ok(self.added.clone()) };
        let mut merging = Merging::of(self, run.len());
        run.for_each_part(&mut |part| merging.push(part))?;
        Ok(merging.finish())
    }

    /// Like `merged`, given the entries of the run.
    pub(crate) fn merged_with(&self, in_run: &[u64]) -> Vec<u64> {
        let mut merging = Merging::of(self, in_run.len());
        merging.push(in_run);
        merging.finish()
    }
}

/// A merge of a run with the changes since.
struct Merging<'b> {
    added: Peekable<Copied<slice::Iter<'b, u64>>>,
    dead: Peekable<Copied<slice::Iter<'b, u64>>>,
    merged: Vec<u64>,
}

impl<'b> Merging<'b> {
    fn of(before: &'b Before, in_run: usize) -> Self {
        Self {
            added: before.added.iter().copied().peekable(),
            dead: before.dead.iter().copied().peekable(),
            merged: Vec::with_capacity(in_run + before.added.len()),
        }
    }

    /// Adds the next entries of the run.
    fn push(&mut self, part: &[u64]) {
        for entry in part {
            while self.dead.next_if(|dead| dead < entry).is_some() {}
            if self.dead.peek() == Some(entry) {
                continue;
            }
            while let Some(before) = self.added.next_if(|added| added < entry) {
                self.merged.push(before);
            }
            self.merged.push(*entry);
        }
    }

    fn finish(mut self) -> Vec<u64> {
        self.merged.extend(self.added);
        self.merged
    }
}

/// Returns the entries of the first list that are not in the second. Both are sorted.
pub(crate) fn difference(first: &[u64], second: &[u64]) -> Vec<u64> {
    let mut other = second.iter().peekable();
    let is_new = |entry: &&u64| {
        while other.next_if(|other| other < entry).is_some() {}
        other.peek() != Some(entry)
    };
    first.iter().filter(is_new).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{FaultyStorage, Open, Storage as _};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn entry(tag: u32, place: u64) -> u64 {
        u64::from(tag) << Location::BITS | place
    }

    fn written(offset: u64, entries: &[u64]) -> Arc<Run> {
        let storage = FaultyStorage::new();
        let path = Path::new("runs");
        let file = storage.open(path, Open::New).unwrap();
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        file.write_at(&bytes, offset).unwrap();
        let faults = Arc::default();
        let file = Arc::new(RunFile { file, path: path.into(), salt: 7, faults });
        Arc::new(Run::of(file, offset, entries))
    }

    proptest! {
        #[test]
        fn a_run_is_a_sorted_set_of_entries(
            offset in (0u64..1100).prop_map(|words| words * 8),
            tags in prop::collection::vec(prop_oneof![3u32..5, 0u32..3000], 0..2500),
            asked in prop::collection::vec(0u32..3001, 20),
            count in 1usize..1500,
        ) {
            let entries: BTreeSet<u64> =
                tags.iter().enumerate().map(|(place, tag)| entry(*tag, place as u64 + 8)).collect();
            let entries: Vec<u64> = entries.into_iter().collect();
            let run = written(offset, &entries);
            prop_assert_eq!(run.read_all().unwrap(), entries.clone());
            for tag in asked {
                let own = |entry: &&u64| tag_of(**entry) == tag;
                let expected: Vec<u64> = entries.iter().filter(own).copied().collect();
                prop_assert_eq!(run.find(tag, Wait::Block).unwrap(), expected);
                let (read, next) = run.read_from(tag, count).unwrap();
                let is_within = |entry: &&u64| {
                    tag_of(**entry) >= tag && next.is_none_or(|next| tag_of(**entry) < next)
                };
                let expected: Vec<u64> = entries.iter().filter(is_within).copied().collect();
                prop_assert!(next.is_none() || read.len() >= count);
                prop_assert_eq!(read, expected);
            }
            let runs = [run];
            let words = directory_of(&runs);
            prop_assert!(words.len() < directory_words(entries.len(), 1));
            let end = offset + entries.len() as u64 * 8;
            let file = runs[0].file();
            let first = offset.saturating_sub(8);
            if offset >= 8 {
                let again = runs_of(file, &words, 1, first, end).unwrap();
                prop_assert_eq!(again[0].read_all().unwrap(), entries);
                prop_assert!(runs_of(file, &words, 1, first, end + 8).is_none());
                prop_assert!(runs_of(file, &words, 2, first, end).is_none());
            }
        }

        #[test]
        fn arbitrary_words_make_no_directory_that_is_out_of_bounds(
            words in prop::collection::vec(prop_oneof![0u64..4, any::<u64>()], 0..12),
            is_marked in any::<bool>(),
        ) {
            let run = written(8, &[]);
            let mut words = words;
            if is_marked && let Some(first) = words.first_mut() {
                *first = DIRECTORY_MAGIC;
            }
            if let Some(runs) = runs_of(run.file(), &words, 2, 0, 24) {
                prop_assert!(runs.iter().map(|run| run.len()).sum::<usize>() <= 1);
            }
        }

        #[test]
        fn what_was_merged_and_what_has_changed_since_are_what_there_is(
            in_run in prop::collection::btree_set(1u64..60, 0..30),
            changes in prop::collection::vec((1u64..60, any::<bool>()), 0..60),
            written_after in 0usize..60,
        ) {
            use crate::hash::SlotTable;
            use crate::keyed::ShardIndex as _;
            let entries: Vec<u64> = in_run.iter().map(|place| entry(5, *place)).collect();
            let mut table = SlotTable::default();
            table.set_run(written(8, &entries));
            let mut model = in_run;
            let mut before = None;
            for (number, (place, is_added)) in changes.into_iter().enumerate() {
                if number == written_after {
                    before = Some(table.before());
                }
                let location = Location::from_bits(place);
                if is_added && model.insert(place) {
                    table.insert(5, location, 8);
                } else if !is_added && model.remove(&place) {
                    let matches = table.matches_over_run(5, Wait::Block).unwrap();
                    let found = matches.iter().find(|found| found.location == location).unwrap();
                    table.remove(found.slot);
                }
            }
            if let Some(before) = before {
                let merged = before.merged().unwrap();
                prop_assert!(merged.is_sorted());
                table.rebase(&before, written(16, &merged));
            }
            prop_assert_eq!(table.len(), model.len());
            let expected: Vec<u64> = model.iter().map(|place| entry(5, *place)).collect();
            prop_assert_eq!(table.before().merged().unwrap(), expected);
        }
    }

    #[test]
    fn damage_is_found_and_costs_its_piece_alone() {
        let entries: Vec<u64> = (0..2000).map(|number| entry(number, 8)).collect();
        let run = written(8, &entries);
        let file = run.file();
        file.write(&[1], 8 + 700 * 8 + 2).unwrap();
        assert_eq!(run.find(3, Wait::Block).unwrap(), vec![entries[3]]);
        assert!(matches!(run.find(700, Wait::Never), Err(Error::WouldBlock)));
        assert!(!run.is_damaged() && !run.is_in_doubt(700));
        assert!(run.read_all().is_err());
        assert!(matches!(run.find(700, Wait::Block), Err(Error::Corrupted { .. })));
        assert_eq!(file.faults.count(), 2);
        // A page once found damaged stays so.
        file.write(&entries[700].to_le_bytes(), 8 + 700 * 8).unwrap();
        assert!(matches!(run.find(700, Wait::Block), Err(Error::Corrupted { .. })));
        let damaged = run.damaged();
        assert_eq!(damaged, BTreeSet::from([1]));
        assert!(run.is_in_doubt(700) && !run.is_in_doubt(3));
        let lost = 511..1023;
        let is_whole = |number: &u64| !lost.contains(number);
        let whole: Vec<u64> =
            (0..2000).filter(is_whole).map(|number| entries[number as usize]).collect();
        let mut met = Vec::new();
        let visit = &mut |part: &[u64]| met.extend_from_slice(part);
        assert!(run.for_each_whole(&mut |_| true, visit).unwrap());
        assert_eq!(met, whole);
        let rest = run.without(&damaged);
        assert_eq!((rest.len(), rest.is_damaged()), (2000 - 512, false));
        assert_eq!(rest.read_all().unwrap(), whole);
        assert_eq!(rest.find(700, Wait::Block).unwrap(), [0u64; 0]);
        assert_eq!(rest.read_from(600, 3).unwrap().0[0], entries[1023]);
    }

    #[test]
    fn pieces_with_some_tags_are_read_once_each() {
        let entries: Vec<u64> =
            (0..200_000).map(|number| entry(number / 3, 8 + number as u64)).collect();
        let run = written(8, &entries);
        for step in [1, 100, 999, 30_000] {
            let tags: Vec<u32> = (0..66_000).step_by(step).collect();
            let (mut met, mut bytes) = (Vec::new(), 0);
            let spend = &mut |more| {
                bytes += more;
                true
            };
            let is_done = run.for_each_with(&tags, spend, &mut |part| met.extend_from_slice(part));
            assert!(is_done.unwrap());
            assert!(met.is_sorted_by(|one, other| one < other), "each once");
            assert!(bytes <= (tags.len() as u64 + 1) * 2 * PIECE_BYTES, "{step}: {bytes}");
            assert!(bytes <= run.pieces.len() as u64 * PIECE_BYTES, "{step}: {bytes}");
            let wanted =
                entries.iter().filter(|entry| tags.binary_search(&tag_of(**entry)).is_ok());
            for entry in wanted {
                assert!(met.binary_search(entry).is_ok(), "{step}");
            }
        }
    }
}
