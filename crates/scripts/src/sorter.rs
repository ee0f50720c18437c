//! Sorter: pairs of keys and values in the order of their keys, through files if they are many.
//!
//! Pairs gather in memory. At the limit, or when all scripts have no more memory, they are sorted
//! and written to a temporary file, a run. At the end the runs are merged. Values of the same key
//! keep the order in which they came.

use crate::clock::Exceeded;
use crate::limits::EMITTED_KEY_BYTES_MAX;
use crate::memory::{Charge, TotalExhausted};
use cabinet::external_sort::{ExternalSort, Merge, RunFiles};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes that a pair in memory takes in addition to its key and value.
const PAIR_BYTES: usize = 2 * size_of::<Vec<u8>>() + 32;

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
pub(crate) struct Taken {
    disk: Arc<SortDisk>,
    bytes: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.disk.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Files of runs in a folder, which take space of a disk.
pub(crate) struct Files {
    folder: PathBuf,
    disk: Arc<SortDisk>,
    /// Time from which on nothing is written.
    deadline: Option<Instant>,
}

impl RunFiles for Files {
    type Error = SortError;
    type Guard = Taken;
    const BY_KEY: bool = true;
    const ITEM_BYTES: usize = PAIR_BYTES;
    const BUFFER_BYTES: usize = 8 << 10;

    fn create(&self, bytes: u64) -> Result<(File, Taken)> {
        let taken = self.disk.take(bytes)?;
        Ok((tempfile::tempfile_in(&self.folder)?, taken))
    }

    fn check(&self) -> Result<()> {
        let is_late = self.deadline.is_some_and(|at| Instant::now() >= at);
        if is_late { Err(Exceeded::Time.into()) } else { Ok(()) }
    }

    fn failed(&self, _: &'static str, source: io::Error) -> SortError {
        source.into()
    }
}

/// Pairs that are sorted within a limit of memory, and one of disk.
pub(crate) struct Sorter {
    sort: ExternalSort<Files>,
    /// Charge for the memory of the pairs.
    charge: Option<Charge>,
}

impl Sorter {
    /// Makes a sorter that uses so much memory, and files in a folder.
    pub(crate) fn new(folder: PathBuf, bytes_max: usize, disk: Arc<SortDisk>) -> Self {
        let files = Files { folder, disk, deadline: None };
        Self { sort: ExternalSort::in_files(files, bytes_max, usize::MAX), charge: None }
    }

    /// Makes the sorter write no files from a deadline on.
    pub(crate) fn until(mut self, deadline: Option<Instant>) -> Self {
        self.sort.files.deadline = deadline;
        self
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
            if self.sort.is_spilled() {
                return Err(exhausted.into());
            }
            self.sort.spill()?;
            self.clear_charge();
            self.charge_for(bytes)?;
        }
        self.sort.push(key, value)?;
        if self.sort.is_spilled() {
            self.clear_charge();
        }
        Ok(())
    }

    fn charge_for(&mut self, bytes: usize) -> std::result::Result<(), TotalExhausted> {
        self.charge.as_mut().map_or(Ok(()), |charge| charge.add(bytes))
    }

    fn clear_charge(&mut self) {
        self.charge.iter_mut().for_each(Charge::clear);
    }
}

/// The pairs of several sorters in the order of their keys.
pub(crate) struct Merged {
    pub(crate) pairs: Merge<Files>,
    /// Charges for the pairs in memory.
    _charges: Vec<Charge>,
}

impl Merged {
    pub(crate) fn new(sorters: impl IntoIterator<Item = Sorter>) -> io::Result<Self> {
        let mut charges = Vec::new();
        let sorts = sorters.into_iter().map(|sorter| {
            charges.extend(sorter.charge);
            sorter.sort
        });
        Ok(Self { pairs: Merge::new(sorts)?, _charges: charges })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::TotalMemory;
    use cabinet::external_sort::LENGTHS_BYTES;

    fn merged(sorter: Sorter) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut merged = Merged::new([sorter]).unwrap();
        let mut pairs = Vec::new();
        while let Some((key, value)) = merged.pairs.next_item().unwrap() {
            pairs.push((key.to_vec(), value.to_vec()));
        }
        pairs
    }

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
            assert_eq!(disk.used.load(Ordering::Relaxed) == 0, bytes_max == 1 << 20);
            expected.sort();
            assert!(merged(sorter) == expected, "with {bytes_max} bytes");
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
            assert_eq!(disk.used.load(Ordering::Relaxed), (spills * pair_bytes) as u64);
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
        assert!(disk.used.load(Ordering::Relaxed) > 0);
        let error = sorter.add(b"k", &vec![0; 1 << 20]).unwrap_err().to_string();
        assert!(error.contains("script-memory-total"), "{error}");
        let pairs = merged(sorter);
        assert_eq!(pairs.len(), 20);
        assert!(pairs.is_sorted() && pairs.iter().all(|pair| pair.1 == value));
        assert_eq!(memory.used(), 0);
        memory.take(memory.max()).unwrap();
        let mut sorter = new().charged(Charge::new(&memory));
        (0..20u8).for_each(|number| sorter.add(&[number], &value).unwrap());
        assert_eq!(merged(sorter).len(), 20);
    }
}
