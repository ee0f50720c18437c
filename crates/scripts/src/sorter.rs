//! Sorter: pairs of keys and values in the order of their keys, through files if they are many.
//!
//! Pairs gather in memory. At the limit, or when all scripts have no more memory, they are sorted
//! and written to a temporary file, a run. At the end the runs are merged. Values of the same key
//! keep the order in which they came.

use crate::clock::Exceeded;
use crate::limits::EMITTED_KEY_BYTES_MAX;
use crate::memory::{Charge, TotalExhausted};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Runs at most: so many are merged into one.
const RUNS_MAX: usize = 64;

/// Bytes that a pair in memory takes in addition to its key and value.
const PAIR_BYTES: usize = 2 * size_of::<Vec<u8>>() + 32;

/// Bytes that a pair in a file takes in addition to its key and value.
const LENGTHS_BYTES: usize = 2 * size_of::<u64>();

/// Pairs that are written between two looks at the clock.
const PAIRS_PER_CHECK: usize = 1000;

type Pair = (Vec<u8>, Vec<u8>);

/// Reason why pairs cannot be sorted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SortError {
    #[error("the key that is emitted has {0} bytes, at most {EMITTED_KEY_BYTES_MAX} are allowed")]
    LongKey(usize),
    #[error(
        "temporary files would take more than {0} bytes: emit less, or raise script-sort-disk-max"
    )]
    Disk(u64),
    #[error(transparent)]
    Late(#[from] Exceeded),
    #[error(transparent)]
    Memory(#[from] TotalExhausted),
    #[error("cannot sort through temporary files: {0}")]
    Io(#[from] io::Error),
}

type Result<T> = std::result::Result<T, SortError>;

/// Space of all temporary files, in bytes.
#[derive(Debug)]
pub(crate) struct SortDisk {
    max: u64,
    used: AtomicU64,
}

impl SortDisk {
    pub(crate) fn new(max: u64) -> Self {
        Self { max, used: AtomicU64::new(0) }
    }

    fn take(self: &Arc<Self>, bytes: u64) -> Result<Taken> {
        let add = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.max);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(Taken { disk: Arc::clone(self), bytes }),
            Err(_) => Err(SortError::Disk(self.max)),
        }
    }
}

/// Guard of the space of a file.
#[derive(Debug)]
struct Taken {
    disk: Arc<SortDisk>,
    bytes: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.disk.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A run in a file.
struct RunFile {
    file: File,
    taken: Taken,
}

/// Pairs that are sorted within a limit of memory, and one of disk.
pub(crate) struct Sorter {
    folder: PathBuf,
    bytes_max: usize,
    disk: Arc<SortDisk>,
    pairs: Vec<Pair>,
    /// Memory of the pairs, in bytes.
    bytes: usize,
    /// Charge for this memory.
    charge: Option<Charge>,
    runs: Vec<RunFile>,
    /// Time from which on nothing is written.
    deadline: Option<Instant>,
}

impl Sorter {
    /// Makes a sorter that uses so much memory, and files in a folder.
    pub(crate) fn new(folder: PathBuf, bytes_max: usize, disk: Arc<SortDisk>) -> Self {
        let (pairs, runs) = (Vec::new(), Vec::new());
        Self { folder, bytes_max, disk, pairs, bytes: 0, charge: None, runs, deadline: None }
    }

    /// Makes the sorter write no files from a deadline on.
    pub(crate) fn until(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// Makes the sorter charge its memory. With none left it uses files earlier.
    pub(crate) fn charged(self, charge: Charge) -> Self {
        Self { charge: Some(charge), ..self }
    }

    /// Adds a pair.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if key.len() > EMITTED_KEY_BYTES_MAX {
            return Err(SortError::LongKey(key.len()));
        }
        let bytes = key.len() + value.len() + PAIR_BYTES;
        if let Err(exhausted) = self.charge_for(bytes) {
            if self.pairs.is_empty() {
                return Err(exhausted.into());
            }
            self.spill()?;
            self.charge_for(bytes)?;
        }
        self.bytes += bytes;
        self.pairs.push((key.to_vec(), value.to_vec()));
        if self.bytes > self.bytes_max { self.spill() } else { Ok(()) }
    }

    fn charge_for(&mut self, bytes: usize) -> std::result::Result<(), TotalExhausted> {
        self.charge.as_mut().map_or(Ok(()), |charge| charge.add(bytes))
    }

    fn spill(&mut self) -> Result<()> {
        if self.runs.len() == RUNS_MAX {
            let taken = self.disk.take(self.runs.iter().map(|run| run.taken.bytes).sum())?;
            let merged = Merged::of_runs(std::mem::take(&mut self.runs))?;
            self.runs.push(write_run(&self.folder, merged, taken, self.deadline)?);
        }
        let bytes = self.bytes - self.pairs.len() * (PAIR_BYTES - LENGTHS_BYTES);
        let taken = self.disk.take(bytes as u64)?;
        self.sort();
        let run = write_run(&self.folder, self.pairs.drain(..).map(Ok), taken, self.deadline)?;
        self.runs.push(run);
        self.bytes = 0;
        if let Some(charge) = &mut self.charge {
            // A vector without pairs has kept its memory.
            self.pairs = Vec::new();
            charge.clear();
        }
        Ok(())
    }

    fn sort(&mut self) {
        self.pairs.sort_by(|left, right| left.0.cmp(&right.0));
    }
}

/// Writes pairs to a file, which takes as much space as was taken, until a deadline.
fn write_run(
    folder: &Path,
    pairs: impl Iterator<Item = io::Result<Pair>>,
    taken: Taken,
    deadline: Option<Instant>,
) -> Result<RunFile> {
    let mut file = BufWriter::new(tempfile::tempfile_in(folder)?);
    for (number, pair) in pairs.enumerate() {
        if number % PAIRS_PER_CHECK == 0 && deadline.is_some_and(|at| Instant::now() >= at) {
            return Err(Exceeded::Time.into());
        }
        let (key, value) = pair?;
        for part in [&key, &value] {
            file.write_all(&(part.len() as u64).to_le_bytes())?;
            file.write_all(part)?;
        }
    }
    let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(RunFile { file, taken })
}

/// A sorted part of the pairs. The value of a pair is read after its key, when it is wanted.
enum Run {
    Memory { pairs: std::vec::IntoIter<Pair>, value: Vec<u8> },
    File { file: BufReader<File>, _taken: Taken },
}

impl Run {
    fn of_file(RunFile { file, taken }: RunFile) -> Self {
        Self::File { file: BufReader::new(file), _taken: taken }
    }

    fn key(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Memory { pairs, value } => Ok(pairs.next().map(|(key, next)| {
                *value = next;
                key
            })),
            Self::File { file, .. } => read_part(file),
        }
    }

    /// Returns the value of the key that was returned last.
    fn value(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Memory { value, .. } => Ok(std::mem::take(value)),
            Self::File { file, .. } => Ok(read_part(file)?.ok_or(io::ErrorKind::UnexpectedEof)?),
        }
    }
}

fn read_part(file: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 8];
    match file.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let length = u64::from_le_bytes(length);
    let mut part = Vec::new();
    if file.take(length).read_to_end(&mut part)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(part))
}

/// The pairs of several sorters in the order of their keys.
pub(crate) struct Merged {
    runs: Vec<Run>,
    /// The next key of each run, with the run's number: equal keys are in the order of the runs.
    next: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    /// Charges for the runs in memory.
    _charges: Vec<Charge>,
}

impl Merged {
    pub(crate) fn new(sorters: impl IntoIterator<Item = Sorter>) -> io::Result<Self> {
        let (mut runs, mut charges) = (Vec::new(), Vec::new());
        for mut sorter in sorters {
            sorter.sort();
            charges.extend(sorter.charge);
            runs.extend(sorter.runs.into_iter().map(Run::of_file));
            runs.push(Run::Memory { pairs: sorter.pairs.into_iter(), value: Vec::new() });
        }
        Self::merge(runs, charges)
    }

    fn of_runs(runs: Vec<RunFile>) -> io::Result<Self> {
        Self::merge(runs.into_iter().map(Run::of_file).collect(), Vec::new())
    }

    fn merge(runs: Vec<Run>, charges: Vec<Charge>) -> io::Result<Self> {
        let next = BinaryHeap::with_capacity(runs.len());
        let mut merged = Self { next, runs, _charges: charges };
        for run in 0..merged.runs.len() {
            merged.advance(run)?;
        }
        Ok(merged)
    }

    /// Takes the next key of a run.
    fn advance(&mut self, run: usize) -> io::Result<()> {
        if let Some(key) = self.runs[run].key()? {
            self.next.push(Reverse((key, run)));
        }
        Ok(())
    }

    /// Returns the key of the next pair.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.next.peek().map(|Reverse((key, _))| &key[..])
    }
}

impl Iterator for Merged {
    type Item = io::Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse((key, run)) = self.next.pop()?;
        let value = self.runs[run].value();
        Some(value.and_then(|value| self.advance(run).map(|()| (key, value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::TotalMemory;

    #[test]
    fn pairs_come_in_the_order_of_keys_and_values_in_the_order_they_came() {
        let disk = Arc::new(SortDisk::new(1 << 20));
        for bytes_max in [0, 300, 1 << 20] {
            let mut expected = Vec::new();
            let mut sorter = Sorter::new(std::env::temp_dir(), bytes_max, Arc::clone(&disk));
            for number in 0..1000u32 {
                let key = (number * 7919 % 101).to_be_bytes();
                let value = number.to_be_bytes();
                sorter.add(&key, &value).unwrap();
                expected.push((key.to_vec(), value.to_vec()));
            }
            assert!(sorter.runs.len() <= RUNS_MAX);
            assert_eq!(sorter.runs.is_empty(), bytes_max == 1 << 20);
            expected.sort();
            let merged: Vec<Pair> =
                Merged::new([sorter]).unwrap().map(|pair| pair.unwrap()).collect();
            assert!(merged == expected, "with {bytes_max} bytes");
            assert_eq!(disk.used.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn files_take_as_much_disk_as_allowed_and_no_more() {
        let pair_bytes = LENGTHS_BYTES + 2;
        for (spills, max) in [(10, 10 * pair_bytes), (9, 10 * pair_bytes - 1)] {
            let disk = Arc::new(SortDisk::new(max as u64));
            let mut sorter = Sorter::new(std::env::temp_dir(), 0, Arc::clone(&disk));
            for _ in 0..spills {
                sorter.add(b"k", b"v").unwrap();
            }
            let written: u64 =
                sorter.runs.iter().map(|run| run.file.metadata().unwrap().len()).sum();
            assert_eq!(written, (spills * pair_bytes) as u64);
            assert_eq!(disk.used.load(Ordering::Relaxed), written);
            let error = sorter.add(b"k", b"v").unwrap_err().to_string();
            assert!(error.contains("script-sort-disk-max"), "{error}");
        }
    }

    #[test]
    fn no_file_is_written_after_the_deadline() {
        let disk = Arc::new(SortDisk::new(u64::MAX));
        let new = || Sorter::new(std::env::temp_dir(), 0, Arc::clone(&disk));
        new().until(None).add(b"k", b"v").unwrap();
        let error = new().until(Some(Instant::now())).add(b"k", b"v").unwrap_err();
        assert!(matches!(error, SortError::Late(_)), "{error}");
        assert_eq!(disk.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_key_is_as_long_as_allowed_and_no_longer() {
        let disk = Arc::new(SortDisk::new(u64::MAX));
        let mut sorter = Sorter::new(std::env::temp_dir(), 0, disk);
        let key = vec![0; EMITTED_KEY_BYTES_MAX + 1];
        sorter.add(&key[1..], b"").unwrap();
        assert!(matches!(sorter.add(&key, b""), Err(SortError::LongKey(_))));
    }

    #[test]
    fn pairs_go_to_files_when_all_scripts_have_no_more_memory() {
        let memory = Arc::new(TotalMemory::new(256 << 10));
        let disk = Arc::new(SortDisk::new(u64::MAX));
        let new = || Sorter::new(std::env::temp_dir(), usize::MAX, Arc::clone(&disk));
        let mut sorter = new().charged(Charge::new(&memory));
        let value = vec![b'v'; 50 << 10];
        for number in (0..20u8).rev() {
            sorter.add(&[number], &value).unwrap();
            assert!(memory.used() <= memory.max());
        }
        assert!(!sorter.runs.is_empty());
        let error = sorter.add(b"k", &vec![0; 1 << 20]).unwrap_err().to_string();
        assert!(error.contains("script-memory-total"), "{error}");
        let merged: Vec<Pair> = Merged::new([sorter]).unwrap().map(|pair| pair.unwrap()).collect();
        assert_eq!(merged.len(), 20);
        assert!(merged.is_sorted() && merged.iter().all(|pair| pair.1 == value));
        assert_eq!(memory.used(), 0);
        memory.take(memory.max()).unwrap();
        let mut sorter = new().charged(Charge::new(&memory));
        (0..20u8).for_each(|number| sorter.add(&[number], &value).unwrap());
        assert_eq!(Merged::new([sorter]).unwrap().count(), 20);
    }
}
