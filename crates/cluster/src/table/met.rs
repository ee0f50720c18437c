//! Rows that a search has met, so that it returns each once.
//!
//! Hashes of their keys are kept: the last ones in memory, and the others in sorted runs, which are
//! in files without a name. The first hash of each block of a run is in memory, so that one read
//! finds a hash in a run. Some runs of the same length are merged into one. So a search over a
//! billion rows has 20 MB in memory and 8 GB in files, and reads about 40 blocks to find a hash.
//!
//! Two keys of a billion have the same hash with a probability of 3%, and one of a million with one
//! of a billion with 0.005%. The latter would cost a row, if it has changed meanwhile. The hashes
//! of each search have a seed of their own.

use crate::version;
use cabinet::table::outside::unnamed_file;
use cabinet::{Error, Result};
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hashes in memory, beside the first ones of blocks.
const NEWEST_MAX: usize = 1 << 17;

/// Hashes of a block of a run.
const BLOCK_HASHES: usize = 512;

/// Runs of about the same length that are merged into one.
const RUNS_MERGED: usize = 8;

/// Bytes of a hash in a run, little-endian.
const HASH_BYTES: usize = size_of::<u64>();

/// Buffer of a run that is read or written, in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// Keys of rows.
#[derive(Debug)]
pub(super) struct Met {
    folder: PathBuf,
    seed: u64,
    newest_max: usize,
    newest: HashSet<u64>,
    runs: Vec<Run>,
}

/// Sorted hashes in a file.
#[derive(Debug)]
struct Run {
    file: File,
    /// First hash of each block.
    firsts: Vec<u64>,
    count: u64,
    /// How often hashes were merged.
    level: u32,
}

impl Met {
    /// Returns the keys of no rows. Files are made in `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_path_buf(),
            seed: u64::from(version::random()) << 32 | u64::from(version::random()),
            newest_max: NEWEST_MAX,
            newest: HashSet::new(),
            runs: Vec::new(),
        }
    }

    /// Adds a key that is not there, or may be added twice.
    pub(super) fn add(&mut self, key: &[u8]) -> Result<()> {
        self.newest.insert(xxh3_64_with_seed(key, self.seed));
        if self.newest.len() < self.newest_max {
            return Ok(());
        }
        let mut hashes: Vec<u64> = self.newest.drain().collect();
        hashes.sort_unstable();
        let mut run = RunWriter::create(&self.folder, 0)?;
        hashes.into_iter().try_for_each(|hash| run.write(hash))?;
        self.runs.push(run.finish()?);
        self.merge()
    }

    /// Adds a key. Returns whether it was not there.
    pub(super) fn insert(&mut self, key: &[u8]) -> Result<bool> {
        let hash = xxh3_64_with_seed(key, self.seed);
        if self.newest.contains(&hash) {
            return Ok(false);
        }
        for run in &self.runs {
            if run.contains(hash).map_err(|source| self.failed("read from", source))? {
                return Ok(false);
            }
        }
        self.add(key)?;
        Ok(true)
    }

    /// Merges the last runs while there are enough of one level.
    fn merge(&mut self) -> Result<()> {
        while let Some(level) = self.runs.last().map(|run| run.level)
            && let Some(first) = self.runs.len().checked_sub(RUNS_MERGED)
            && self.runs[first].level == level
        {
            let mut runs: Vec<Reader> = self
                .runs
                .drain(first..)
                .map(Reader::new)
                .collect::<std::io::Result<_>>()
                .map_err(|source| failed("read from", &self.folder, source))?;
            let mut merged = RunWriter::create(&self.folder, level + 1)?;
            while let Some(least) = runs.iter().filter_map(|run| run.next).min() {
                merged.write(least)?;
                for run in &mut runs {
                    // A key that was added twice may be in several runs.
                    while run.next == Some(least) {
                        run.advance().map_err(|source| self.failed("read from", source))?;
                    }
                }
            }
            self.runs.push(merged.finish()?);
        }
        Ok(())
    }

    fn failed(&self, operation: &str, source: std::io::Error) -> Error {
        failed(operation, &self.folder, source)
    }
}

impl Run {
    fn contains(&self, hash: u64) -> std::io::Result<bool> {
        // The last block that does not begin after the hash.
        let Some(block) = self.firsts.partition_point(|first| *first <= hash).checked_sub(1) else {
            return Ok(false);
        };
        let begin = block * BLOCK_HASHES;
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let mut bytes = vec![0; BLOCK_HASHES.min(count - begin) * HASH_BYTES];
        self.file.read_exact_at(&mut bytes, (begin * HASH_BYTES) as u64)?;
        let hashes = bytes.as_chunks::<HASH_BYTES>().0;
        Ok(hashes.binary_search_by(|bytes| u64::from_le_bytes(*bytes).cmp(&hash)).is_ok())
    }
}

/// A run that is written.
struct RunWriter {
    folder: PathBuf,
    file: BufWriter<File>,
    firsts: Vec<u64>,
    count: u64,
    level: u32,
}

impl RunWriter {
    fn create(folder: &Path, level: u32) -> Result<Self> {
        let file = BufWriter::with_capacity(BUFFER_BYTES, unnamed_file(folder)?);
        let (firsts, count) = Default::default();
        Ok(Self { folder: folder.to_path_buf(), file, firsts, count, level })
    }

    fn write(&mut self, hash: u64) -> Result<()> {
        if self.count.is_multiple_of(BLOCK_HASHES as u64) {
            self.firsts.push(hash);
        }
        self.count += 1;
        let written = self.file.write_all(&hash.to_le_bytes());
        written.map_err(|source| failed("write to", &self.folder, source))
    }

    fn finish(self) -> Result<Run> {
        let Self { folder, file, firsts, count, level } = self;
        let file = file.into_inner().map_err(std::io::IntoInnerError::into_error);
        let file = file.map_err(|source| failed("write to", &folder, source))?;
        Ok(Run { file, firsts, count, level })
    }
}

/// A run that is merged.
struct Reader {
    file: BufReader<File>,
    left: u64,
    next: Option<u64>,
}

impl Reader {
    fn new(run: Run) -> std::io::Result<Self> {
        let mut file = BufReader::with_capacity(BUFFER_BYTES, run.file);
        file.seek(SeekFrom::Start(0))?;
        let mut reader = Self { file, left: run.count, next: None };
        reader.advance()?;
        Ok(reader)
    }

    fn advance(&mut self) -> std::io::Result<()> {
        self.next = None;
        if self.left > 0 {
            let mut bytes = [0; HASH_BYTES];
            self.file.read_exact(&mut bytes)?;
            self.left -= 1;
            self.next = Some(u64::from_le_bytes(bytes));
        }
        Ok(())
    }
}

fn failed(operation: &str, folder: &Path, source: std::io::Error) -> Error {
    let operation = match operation {
        "write to" => "write to a temporary file in",
        _ => "read from a temporary file in",
    };
    match source.kind() {
        std::io::ErrorKind::StorageFull => Error::NoSpace { path: folder.to_path_buf() },
        _ => Error::Io { operation, path: folder.to_path_buf(), source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(folder: &Path, newest_max: usize) -> Met {
        Met { newest_max, ..Met::new(folder) }
    }

    #[test]
    fn a_key_is_inserted_once_however_many_are_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut met = met(folder.path(), 16);
        // Blocks that are full, and such that are not.
        const KEYS: u32 = 20_000;
        for number in 0..KEYS {
            let key = number.to_le_bytes();
            match number % 3 {
                0 => met.add(&key).unwrap(),
                _ => assert!(met.insert(&key).unwrap(), "{number}"),
            }
            assert!(met.newest.len() < 16);
            if number % 101 == 0 {
                met.add(&key).unwrap();
                assert!(!met.insert(&key).unwrap());
            }
        }
        assert!(met.runs.len() <= RUNS_MERGED * 5, "{}", met.runs.len());
        let firsts: usize = met.runs.iter().map(|run| run.firsts.len()).sum();
        assert!(firsts < KEYS as usize / 100 + met.runs.len());
        for number in 0..KEYS {
            assert!(!met.insert(&number.to_le_bytes()).unwrap(), "{number}");
        }
        assert!(met.insert(&KEYS.to_le_bytes()).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "files have no name");
    }

    #[test]
    fn few_keys_need_no_file() {
        let mut met = Met::new(Path::new("/nowhere"));
        for number in 1..NEWEST_MAX {
            met.add(&number.to_le_bytes()).unwrap();
        }
        assert!(!met.insert(&1_usize.to_le_bytes()).unwrap());
        assert!(matches!(met.insert(&0_usize.to_le_bytes()), Err(Error::Io { .. })));
    }
}
