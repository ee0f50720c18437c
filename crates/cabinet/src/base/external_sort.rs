//! External merge sort: sorts items within a memory budget, and more of them through files.
//!
//! An item is a key and a payload. If the items exceed the budget, a sorted run of them is written
//! to a file. At the end the runs are merged. If only the first few items are wanted, the others
//! are dropped repeatedly, so that runs are seldom written.
//!
//! An item of a run is the lengths of the key and of the payload, 8 bytes each, little-endian, and
//! then the bytes of both.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, IntoInnerError, Read, Seek, Write};
use std::mem;

/// Number of runs in files that are merged into one. Each takes a buffer and an item in memory.
const RUNS_MAX: usize = 64;

/// Bytes that an item takes in a run in addition to its key and payload.
pub const LENGTHS_BYTES: usize = 2 * size_of::<u64>();

/// Number of items beyond twice the wanted number before the others are dropped.
const SPARE_ITEMS: usize = 1024;

/// Number of items that are written between two checks.
const ITEMS_PER_CHECK: usize = 1000;

/// Operations that fail.
pub(crate) const READ: &str = "read from a temporary file in";
const WRITE: &str = "write to a temporary file in";

/// Files of the runs of a sort, and its order.
pub trait RunFiles {
    /// Failure of a sort.
    type Error;

    /// Guard that is dropped with the file of a run.
    type Guard;

    /// Whether items are sorted by keys alone, and those of a key are in the order in which they
    /// came. Otherwise they are sorted by keys and payloads.
    const BY_KEY: bool;

    /// Bytes of memory that an item takes in addition to its key and payload.
    const ITEM_BYTES: usize;

    /// Bytes of the buffer of a run that is read or written.
    const BUFFER_BYTES: usize;

    /// Creates a file for a run of at most `bytes` bytes.
    fn create(&self, bytes: u64) -> Result<(File, Self::Guard), Self::Error>;

    /// Fails if the sort is to end.
    fn check(&self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Returns the failure of an operation on a file.
    fn failed(&self, operation: &'static str, source: io::Error) -> Self::Error;
}

/// Items in memory: their concatenated bytes, and for each the offsets of its start, its payload
/// and its end.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    items: Vec<(usize, usize, usize)>,
}

impl Batch {
    fn push(&mut self, key: &[u8], payload: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(payload);
        self.items.push((start, start + key.len(), self.bytes.len()));
    }

    /// Returns the bytes of the items, with `item_bytes` for each in addition.
    fn size_bytes(&self, item_bytes: usize) -> usize {
        self.bytes.len() + self.items.len() * item_bytes
    }

    fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let &(start, payload, end) = self.items.get(index)?;
        Some((&self.bytes[start..payload], &self.bytes[payload..end]))
    }

    /// Sorts the items, and drops all but the first `wanted`.
    fn sort_and_cut(&mut self, by_key: bool, wanted: usize) {
        let bytes = &self.bytes;
        let compared = |(start, payload, end)| &bytes[start..if by_key { payload } else { end }];
        // Offsets are in the order in which the items came.
        self.items.sort_unstable_by(|one, other| {
            compared(*one).cmp(compared(*other)).then_with(|| one.cmp(other))
        });
        if wanted < self.items.len() {
            let mut kept = Self::default();
            for (key, payload) in (0..wanted).filter_map(|index| self.get(index)) {
                kept.push(key, payload);
            }
            *self = kept;
        }
    }
}

/// A sorted run in a file.
#[derive(Debug)]
struct Run<G> {
    file: File,
    /// Bytes for which the file was created.
    bytes: u64,
    guard: G,
}

/// Collects items to sort.
#[derive(Debug)]
pub struct ExternalSort<F: RunFiles> {
    /// Files of the runs.
    pub files: F,
    /// Approximate bytes in memory above which a run is written.
    budget_bytes: usize,
    /// Number of first items that are wanted.
    pub(crate) wanted: usize,
    batch: Batch,
    runs: Vec<Run<F::Guard>>,
    count: u64,
}

impl<F: RunFiles> ExternalSort<F> {
    /// Returns a sort that keeps about `budget_bytes` bytes in memory, and writes the rest into
    /// `files`. Items after the first `wanted` may be dropped.
    pub fn in_files(files: F, budget_bytes: usize, wanted: usize) -> Self {
        let (batch, runs) = (Batch::default(), Vec::new());
        Self { files, budget_bytes, wanted, batch, runs, count: 0 }
    }

    /// Adds an item. If items are sorted by keys and payloads, no key may be a prefix of another
    /// one, unless the concatenations of keys and payloads are in the same order. Fails if a
    /// temporary file cannot be written.
    pub fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<(), F::Error> {
        self.count += 1;
        self.batch.push(key, payload);
        if self.batch.items.len() > self.wanted.saturating_mul(2).saturating_add(SPARE_ITEMS) {
            self.batch.sort_and_cut(F::BY_KEY, self.wanted);
        }
        if self.batch.size_bytes(F::ITEM_BYTES) > self.budget_bytes { self.spill() } else { Ok(()) }
    }

    /// Returns the number of items added, wanted or not.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns whether no items are in memory.
    pub fn is_spilled(&self) -> bool {
        self.batch.items.is_empty()
    }

    /// Returns whether any items are in files.
    pub(crate) fn has_files(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Writes the items in memory to a run. Fails if a temporary file cannot be written or read.
    pub fn spill(&mut self) -> Result<(), F::Error> {
        if self.runs.len() == RUNS_MAX {
            let bytes = self.runs.iter().map(|run| run.bytes).sum();
            self.write_run(bytes, |sort| (mem::take(&mut sort.runs), Batch::default()))?;
        }
        self.batch.sort_and_cut(F::BY_KEY, self.wanted);
        let bytes = self.batch.size_bytes(LENGTHS_BYTES) as u64;
        self.write_run(bytes, |sort| (Vec::new(), mem::take(&mut sort.batch)))
    }

    /// Writes a part of the items to a run, which takes `bytes` bytes at most.
    fn write_run(
        &mut self,
        bytes: u64,
        take: impl FnOnce(&mut Self) -> (Vec<Run<F::Guard>>, Batch),
    ) -> Result<(), F::Error> {
        let (file, guard) = self.files.create(bytes)?;
        let (runs, batch) = take(self);
        let [read_failed, write_failed] =
            [READ, WRITE].map(|operation| |source| self.files.failed(operation, source));
        let mut file = BufWriter::with_capacity(F::BUFFER_BYTES, file);
        let mut merge = Merge::<F>::of(sources::<F>(runs, batch)).map_err(&read_failed)?;
        for number in 0..self.wanted {
            if number.is_multiple_of(ITEMS_PER_CHECK) {
                self.files.check()?;
            }
            let Some((key, payload)) = merge.next_item().map_err(&read_failed)? else { break };
            let lengths = [key.len(), payload.len()].map(|length| (length as u64).to_le_bytes());
            [lengths.as_flattened(), key, payload]
                .into_iter()
                .try_for_each(|bytes| file.write_all(bytes))
                .map_err(&write_failed)?;
        }
        let file = file.into_inner().map_err(IntoInnerError::into_error);
        let file = file.and_then(|mut file| file.rewind().map(|()| file)).map_err(write_failed)?;
        self.runs.push(Run { file, bytes, guard });
        Ok(())
    }
}

/// Sorted items: those of a run, or those in memory.
#[derive(Debug)]
enum Source<G> {
    Memory { batch: Batch, next: usize, offset: usize },
    File { file: BufReader<File>, _guard: G },
}

impl<G> Source<G> {
    /// Returns the head of the source, which is at an index.
    fn head(&mut self, source: usize, by_key: bool) -> io::Result<Option<Head>> {
        let Some([key_len, payload_len]) = self.lengths()? else { return Ok(None) };
        let missing_bytes = if by_key { payload_len } else { 0 };
        let mut bytes = Vec::new();
        self.read(key_len.saturating_add(payload_len - missing_bytes), &mut bytes)?;
        Ok(Some(Head { bytes, key_len, source, missing_bytes }))
    }

    /// Returns the lengths of the next item's key and payload.
    fn lengths(&mut self) -> io::Result<Option<[usize; 2]>> {
        match self {
            Self::Memory { batch, next, offset } => {
                let Some(&(start, payload, end)) = batch.items.get(*next) else { return Ok(None) };
                (*next, *offset) = (*next + 1, start);
                Ok(Some([payload - start, end - payload]))
            }
            Self::File { file, .. } => {
                let mut lengths = [[0; size_of::<u64>()]; 2];
                match file.read_exact(lengths.as_flattened_mut()) {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
                    result => result?,
                }
                // They were of this type when they were written.
                Ok(Some(lengths.map(|length| u64::from_le_bytes(length) as usize)))
            }
        }
    }

    /// Appends the next bytes of the item whose lengths were returned last.
    fn read(&mut self, len: usize, bytes: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Memory { batch, offset, .. } => {
                bytes.extend_from_slice(&batch.bytes[*offset..*offset + len]);
                *offset += len;
            }
            Self::File { file, .. } => {
                if file.take(len as u64).read_to_end(bytes)? < len {
                    return Err(ErrorKind::InvalidData.into());
                }
            }
        }
        Ok(())
    }
}

/// Returns the sources of sorted items.
fn sources<F: RunFiles>(
    runs: Vec<Run<F::Guard>>,
    batch: Batch,
) -> impl Iterator<Item = Source<F::Guard>> {
    let of_run = |Run { file, guard, .. }| Source::File {
        file: BufReader::with_capacity(F::BUFFER_BYTES, file),
        _guard: guard,
    };
    runs.into_iter().map(of_run).chain([Source::Memory { batch, next: 0, offset: 0 }])
}

/// First remaining item of a source, without the bytes by which it is not sorted: those are read
/// when the item is wanted.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    bytes: Vec<u8>,
    key_len: usize,
    /// Index of the source. Equal items are in the order of the sources.
    source: usize,
    missing_bytes: usize,
}

/// The items of sorts in order.
#[derive(Debug)]
pub struct Merge<F: RunFiles> {
    sources: Vec<Source<F::Guard>>,
    /// Least item first; none if all items are in one source in memory.
    heads: BinaryHeap<Reverse<Head>>,
    /// Item that was returned last.
    last: Option<Head>,
}

impl<F: RunFiles> Merge<F> {
    /// Returns the items of several sorts. Fails if a temporary file cannot be read.
    pub fn new(sorts: impl IntoIterator<Item = ExternalSort<F>>) -> io::Result<Self> {
        Self::of(sorts.into_iter().flat_map(|mut sort| {
            sort.batch.sort_and_cut(F::BY_KEY, sort.wanted);
            sources::<F>(sort.runs, sort.batch)
        }))
    }

    fn of(sources: impl Iterator<Item = Source<F::Guard>>) -> io::Result<Self> {
        let (mut sources, mut heads) = (sources.collect::<Vec<_>>(), BinaryHeap::new());
        if !matches!(sources[..], [Source::Memory { .. }]) {
            for (index, source) in sources.iter_mut().enumerate() {
                heads.extend(source.head(index, F::BY_KEY)?.map(Reverse));
            }
        }
        Ok(Self { sources, heads, last: None })
    }

    /// Returns the key of the next item.
    pub fn key(&self) -> Option<&[u8]> {
        match &self.sources[..] {
            [Source::Memory { batch, next, .. }] => batch.get(*next).map(|(key, _)| key),
            _ => self.heads.peek().map(|Reverse(head)| &head.bytes[..head.key_len]),
        }
    }

    /// Returns the key and the payload of the next item; `None` at the end. Fails if a temporary
    /// file cannot be read.
    pub fn next_item(&mut self) -> io::Result<Option<(&[u8], &[u8])>> {
        match &mut self.sources[..] {
            [Source::Memory { batch, next, .. }] => {
                *next += 1;
                Ok(batch.get(*next - 1))
            }
            sources => {
                let Some(Reverse(head)) = self.heads.pop() else { return Ok(None) };
                let last = self.last.insert(head);
                sources[last.source].read(last.missing_bytes, &mut last.bytes)?;
                self.heads.extend(sources[last.source].head(last.source, F::BY_KEY)?.map(Reverse));
                Ok(Some(last.bytes.split_at(last.key_len)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Guard of the file of a run: a handle of it, and the bytes for which it was created.
    struct Created(File, u64);

    struct Files<const BY_KEY: bool>;

    impl<const BY_KEY: bool> RunFiles for Files<BY_KEY> {
        type Error = io::Error;
        type Guard = Created;
        const BY_KEY: bool = BY_KEY;
        const ITEM_BYTES: usize = 10;
        const BUFFER_BYTES: usize = 100;

        fn create(&self, bytes: u64) -> io::Result<(File, Created)> {
            let file = tempfile::tempfile()?;
            Ok((file.try_clone()?, Created(file, bytes)))
        }

        fn failed(&self, _: &'static str, source: io::Error) -> io::Error {
            source
        }
    }

    type Pair = (Vec<u8>, Vec<u8>);

    fn sort<const BY_KEY: bool>(pairs: &[Pair], budget: usize, sorts: usize) -> Vec<Pair> {
        let sort_some = |pairs: &[Pair]| {
            let mut sort = ExternalSort::in_files(Files::<BY_KEY>, budget, usize::MAX);
            for (key, payload) in pairs {
                sort.push(key, payload).unwrap();
                assert!(sort.batch.size_bytes(10) <= budget && sort.runs.len() <= RUNS_MAX);
            }
            for run in &sort.runs {
                assert_eq!(run.guard.0.metadata().unwrap().len(), run.guard.1);
            }
            sort
        };
        let part = pairs.len().div_ceil(sorts).max(1);
        let mut merge = Merge::new(pairs.chunks(part).map(sort_some)).unwrap();
        let mut output = Vec::new();
        while let Some(key) = merge.key().map(<[u8]>::to_vec) {
            let item = merge.next_item().unwrap().unwrap();
            assert_eq!(item.0, key);
            output.push((key, item.1.to_vec()));
        }
        assert_eq!(merge.next_item().unwrap(), None);
        output
    }

    proptest! {
        #[test]
        fn items_are_sorted_by_keys_and_payloads_or_stay_in_order_under_each_key(
            pairs in proptest::collection::vec(
                (proptest::collection::vec(0..3u8, 2), proptest::collection::vec(any::<u8>(), 0..3)),
                0..300,
            ),
            budget in prop_oneof![Just(0usize), 20usize..4000],
            sorts in 1usize..4,
        ) {
            let mut expected = pairs.clone();
            expected.sort_by(|one, other| one.0.cmp(&other.0));
            prop_assert_eq!(sort::<true>(&pairs, budget, sorts), expected);
            let mut expected = pairs.clone();
            expected.sort();
            prop_assert_eq!(sort::<false>(&pairs, budget, sorts), expected);
        }
    }

    #[test]
    fn keys_without_bytes_keep_the_order_of_their_payloads() {
        let pairs: Vec<Pair> =
            ["b", "", "a", "", "c"].map(|payload| (vec![], payload.into())).into();
        for budget in [0, 25, 1000] {
            assert_eq!(sort::<true>(&pairs, budget, 1), pairs);
        }
    }
}
