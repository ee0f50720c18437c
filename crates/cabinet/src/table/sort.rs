//! Sorter: sorts items within a memory budget.
//!
//! An item is a key and a payload, and items are sorted by both. If the items exceed the budget, a
//! sorted run of them is written to a temporary file. The file's name is removed at once, so the
//! file disappears with the process. At the end the runs are merged. If only the first few items
//! are wanted, the others are dropped repeatedly, so that runs are seldom written.

use crate::{Error, Result};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of runs on disk that are merged into one. Each takes a buffer and an item in memory.
const RUNS_MAX: usize = 64;

/// Bytes of the buffer of a run that is read or written.
const RUN_BUFFER_BYTES: usize = 64 << 10;

/// Maximum number of file names that are tried until one is free.
const NAMES_MAX: u32 = 1000;

/// Number of items beyond twice the wanted number before the others are dropped.
const SPARE_ITEMS: usize = 1024;

/// Collects items to sort.
#[derive(Debug)]
pub struct Sorter {
    folder: PathBuf,
    /// Approximate bytes in memory above which a run is written.
    budget_bytes: usize,
    /// Number of first items that are wanted; `None` for all.
    wanted: Option<usize>,
    batch: Batch,
    runs: Vec<File>,
    count: u64,
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

    fn size_bytes(&self) -> usize {
        self.bytes.len() + self.items.len() * size_of::<(usize, usize, usize)>()
    }

    fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let &(start, payload, end) = self.items.get(index)?;
        Some((&self.bytes[start..payload], &self.bytes[payload..end]))
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.items.sort_unstable_by(|one, other| bytes[one.0..one.2].cmp(&bytes[other.0..other.2]));
    }

    /// Sorts the items, and drops all but the first `wanted`.
    fn sort_and_cut(&mut self, wanted: Option<usize>) {
        self.sort();
        let Some(wanted) = wanted.filter(|wanted| *wanted < self.items.len()) else { return };
        let mut kept = Self::default();
        for index in 0..wanted {
            if let Some((key, payload)) = self.get(index) {
                kept.push(key, payload);
            }
        }
        *self = kept;
    }
}

impl Sorter {
    /// Returns a sorter that keeps about `budget_bytes` bytes in memory, and writes the rest into
    /// `folder`. Only the first `wanted` items are returned; `None` for all.
    pub fn new(folder: &Path, budget_bytes: usize, wanted: Option<usize>) -> Self {
        Self {
            folder: folder.to_path_buf(),
            budget_bytes,
            wanted,
            batch: Batch::default(),
            runs: Vec::new(),
            count: 0,
        }
    }

    /// Adds an item. No key may be a prefix of another one, unless the concatenations of keys and
    /// payloads are in the same order. Fails if a temporary file cannot be written.
    pub fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        self.count += 1;
        self.batch.push(key, payload);
        if let Some(wanted) = self.wanted
            && self.batch.items.len() > wanted.saturating_mul(2).saturating_add(SPARE_ITEMS)
        {
            self.batch.sort_and_cut(self.wanted);
        }
        if self.batch.size_bytes() > self.budget_bytes {
            self.spill()?;
        }
        Ok(())
    }

    /// Returns the number of items added, wanted or not.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the items in order. Fails if a temporary file cannot be written or read.
    pub fn finish(mut self) -> Result<Sorted> {
        let wanted = self.wanted.unwrap_or(usize::MAX);
        if self.runs.is_empty() {
            self.batch.sort();
            return Ok(Sorted {
                source: Source::Memory { batch: self.batch, next: 0 },
                left: wanted,
            });
        }
        self.spill()?;
        let merge = Merge::new(self.runs, &self.folder)?;
        Ok(Sorted { source: Source::Disk(merge), left: wanted })
    }

    fn spill(&mut self) -> Result<()> {
        self.batch.sort_and_cut(self.wanted);
        let mut run = RunWriter::create(&self.folder)?;
        for index in 0..self.batch.items.len() {
            if let Some((key, payload)) = self.batch.get(index) {
                run.write(key, payload)?;
            }
        }
        self.runs.push(run.finish()?);
        self.batch = Batch::default();
        if self.runs.len() == RUNS_MAX {
            let mut merge = Merge::new(std::mem::take(&mut self.runs), &self.folder)?;
            let mut run = RunWriter::create(&self.folder)?;
            let mut left = self.wanted.unwrap_or(usize::MAX);
            while left > 0
                && let Some(item) = merge.next()?
            {
                run.write(item.key(), item.payload())?;
                left -= 1;
            }
            self.runs.push(run.finish()?);
        }
        Ok(())
    }
}

/// Sorted items.
#[derive(Debug)]
pub struct Sorted {
    source: Source,
    left: usize,
}

#[derive(Debug)]
enum Source {
    Memory { batch: Batch, next: usize },
    Disk(Merge),
}

impl Sorted {
    /// Returns the key and the payload of the next item; `None` at the end. Fails if a temporary
    /// file cannot be read.
    #[cfg_attr(
        feature = "internals",
        expect(clippy::should_implement_trait, reason = "an item borrows from the sorter")
    )]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        match &mut self.source {
            Source::Memory { batch, next } => {
                *next += 1;
                Ok(batch.get(*next - 1))
            }
            Source::Disk(merge) => Ok(merge.next()?.map(|item| (item.key(), item.payload()))),
        }
    }
}

/// An item of a run.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    bytes: Vec<u8>,
    key_len: usize,
}

impl Item {
    fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len]
    }

    fn payload(&self) -> &[u8] {
        &self.bytes[self.key_len..]
    }
}

/// Merge of runs.
#[derive(Debug)]
struct Merge {
    runs: Vec<BufReader<File>>,
    /// First remaining item of each run, and the run's index, least item first.
    heads: BinaryHeap<Reverse<(Item, usize)>>,
    last: Option<Item>,
    folder: PathBuf,
}

impl Merge {
    fn new(files: Vec<File>, folder: &Path) -> Result<Self> {
        let runs = files.into_iter().map(|file| BufReader::with_capacity(RUN_BUFFER_BYTES, file));
        let mut merge = Self {
            runs: runs.collect(),
            heads: BinaryHeap::new(),
            last: None,
            folder: folder.to_path_buf(),
        };
        for run in 0..merge.runs.len() {
            merge.advance(run)?;
        }
        Ok(merge)
    }

    fn advance(&mut self, run: usize) -> Result<()> {
        let failed = |source| failed("read from a temporary file in", &self.folder, source);
        if let Some(item) = read_item(&mut self.runs[run]).map_err(failed)? {
            self.heads.push(Reverse((item, run)));
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<&Item>> {
        let Some(Reverse((item, run))) = self.heads.pop() else { return Ok(None) };
        self.advance(run)?;
        Ok(Some(self.last.insert(item)))
    }
}

/// Creates a file without a name in a folder, for reading and writing.
///
/// The file has a name for a moment, and stays if the process is killed then. Another process may
/// have the same process id, as in a container. So names that are taken are skipped.
pub fn unnamed_file(folder: &Path) -> Result<File> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    create_unnamed(folder, &COUNT)
}

/// Creates a file under the next free number, and removes its name.
fn create_unnamed(folder: &Path, count: &AtomicU64) -> Result<File> {
    let mut left = NAMES_MAX - 1;
    loop {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("sort-{}-{number}.tmp", std::process::id()));
        let mut options = OpenOptions::new();
        // Other users may not open the file before its name is removed.
        match options.read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => {
                let removed = std::fs::remove_file(&path);
                return removed.map(|()| file).map_err(|source| failed("remove", &path, source));
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists && left > 0 => left -= 1,
            Err(source) => return Err(failed("create", &path, source)),
        }
    }
}

/// Writer of a run. An item is the length of the key and that of the key with the payload, 8 bytes
/// each, little-endian, and then the bytes of both.
struct RunWriter {
    file: BufWriter<File>,
    folder: PathBuf,
}

impl RunWriter {
    fn create(folder: &Path) -> Result<Self> {
        let file = unnamed_file(folder)?;
        let file = BufWriter::with_capacity(RUN_BUFFER_BYTES, file);
        Ok(Self { file, folder: folder.to_path_buf() })
    }

    fn write(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        let lengths = [key.len() as u64, (key.len() + payload.len()) as u64];
        let mut write = |bytes: &[u8]| self.file.write_all(bytes);
        let written = write(&lengths[0].to_le_bytes())
            .and_then(|()| write(&lengths[1].to_le_bytes()))
            .and_then(|()| write(key))
            .and_then(|()| write(payload));
        written.map_err(|source| failed("write to a temporary file in", &self.folder, source))
    }

    fn finish(self) -> Result<File> {
        let file = self.file.into_inner().map_err(std::io::IntoInnerError::into_error);
        file.and_then(|mut file| file.seek(SeekFrom::Start(0)).map(|_| file))
            .map_err(|source| failed("write to a temporary file in", &self.folder, source))
    }
}

fn read_item(run: &mut BufReader<File>) -> std::io::Result<Option<Item>> {
    let mut lengths = [0; 16];
    match run.read_exact(&mut lengths) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let (key_len, len) = lengths.split_at(8);
    let number = |bytes: &[u8]| {
        bytes.try_into().ok().and_then(|bytes| usize::try_from(u64::from_le_bytes(bytes)).ok())
    };
    let (Some(key_len), Some(len)) = (number(key_len), number(len)) else {
        return Err(ErrorKind::InvalidData.into());
    };
    let mut bytes = Vec::new();
    run.take(len as u64).read_to_end(&mut bytes)?;
    if bytes.len() < len || key_len > len {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(Some(Item { bytes, key_len }))
}

fn failed(operation: &'static str, path: &Path, source: std::io::Error) -> Error {
    match source.kind() {
        ErrorKind::StorageFull => Error::NoSpace { path: path.to_path_buf() },
        _ => Error::Io { operation, path: path.to_path_buf(), source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sort(items: &[(Vec<u8>, Vec<u8>)], budget: usize, wanted: Option<usize>) -> Vec<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(folder.path(), budget, wanted);
        for (key, payload) in items {
            sorter.push(key, payload).unwrap();
        }
        assert_eq!(sorter.count(), items.len() as u64);
        let mut sorted = sorter.finish().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "files have no name");
        let mut output = Vec::new();
        while let Some((key, payload)) = sorted.next().unwrap() {
            output.push([key, payload].concat());
        }
        output
    }

    proptest! {
        #[test]
        fn items_are_sorted_within_any_budget(
            items in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 2), proptest::collection::vec(any::<u8>(), 0..3)),
                0..300,
            ),
            budget in prop_oneof![Just(0usize), 60usize..4000],
            wanted in proptest::option::of(0usize..400),
        ) {
            let mut expected: Vec<_> =
                items.iter().map(|(key, payload)| [&key[..], payload].concat()).collect();
            expected.sort();
            expected.truncate(wanted.unwrap_or(usize::MAX));
            prop_assert_eq!(sort(&items, budget, wanted), expected);
        }
    }

    #[test]
    fn unwanted_items_are_dropped_before_a_run_is_written() {
        let mut sorter = Sorter::new(Path::new("/nowhere"), 1 << 20, Some(10));
        for number in 0..1_000_000u32 {
            sorter.push(&number.wrapping_mul(0x9e37_79b9).to_be_bytes(), b"").unwrap();
        }
        let mut sorted = sorter.finish().unwrap();
        assert_eq!(sorted.next().unwrap().map(|(key, _)| key.to_vec()), Some(vec![0; 4]));
    }

    #[test]
    fn files_that_a_killed_process_has_left_are_skipped() {
        for (taken, is_created) in [(1, true), (NAMES_MAX - 1, true), (NAMES_MAX, false)] {
            let folder = tempfile::tempdir().unwrap();
            for number in 0..taken {
                let name = format!("sort-{}-{number}.tmp", std::process::id());
                File::create(folder.path().join(name)).unwrap();
            }
            let file = create_unnamed(folder.path(), &AtomicU64::new(0));
            assert_eq!(file.is_ok(), is_created, "{taken}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), taken as usize);
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_an_error() {
        let mut sorter = Sorter::new(Path::new("/nowhere"), 0, None);
        assert!(matches!(sorter.push(b"key", b""), Err(Error::Io { .. })));
    }
}
