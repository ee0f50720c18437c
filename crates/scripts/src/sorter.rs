//! Sorter: pairs of keys and values in the order of their keys, through files if they are many.
//!
//! Pairs gather in memory. At the limit they are sorted and written to a temporary file, a run.
//! At the end the runs are merged. Values of the same key keep the order in which they came.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

/// Runs at most: so many are merged into one.
const RUNS_MAX: usize = 64;

/// Bytes that a pair in memory takes in addition to its key and value.
const PAIR_BYTES: usize = 2 * size_of::<Vec<u8>>() + 32;

type Pair = (Vec<u8>, Vec<u8>);

/// Pairs that are sorted within a limit of memory.
pub(crate) struct Sorter {
    folder: PathBuf,
    bytes_max: usize,
    pairs: Vec<Pair>,
    bytes: usize,
    runs: Vec<File>,
}

impl Sorter {
    /// Makes a sorter that uses so much memory, and files in a folder.
    pub(crate) fn new(folder: PathBuf, bytes_max: usize) -> Self {
        Self { folder, bytes_max, pairs: Vec::new(), bytes: 0, runs: Vec::new() }
    }

    /// Adds a pair.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.bytes += key.len() + value.len() + PAIR_BYTES;
        self.pairs.push((key.to_vec(), value.to_vec()));
        if self.bytes > self.bytes_max { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> io::Result<()> {
        if self.runs.len() == RUNS_MAX {
            let merged = Merged::of_runs(std::mem::take(&mut self.runs))?;
            self.runs.push(write_run(&self.folder, merged)?);
        }
        self.sort();
        let run = write_run(&self.folder, self.pairs.drain(..).map(Ok))?;
        self.runs.push(run);
        self.bytes = 0;
        Ok(())
    }

    fn sort(&mut self) {
        self.pairs.sort_by(|left, right| left.0.cmp(&right.0));
    }
}

fn write_run(folder: &PathBuf, pairs: impl Iterator<Item = io::Result<Pair>>) -> io::Result<File> {
    let mut file = BufWriter::new(tempfile::tempfile_in(folder)?);
    for pair in pairs {
        let (key, value) = pair?;
        for part in [&key, &value] {
            file.write_all(&(part.len() as u64).to_le_bytes())?;
            file.write_all(part)?;
        }
    }
    let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// A sorted part of the pairs.
enum Run {
    Memory(std::vec::IntoIter<Pair>),
    File(BufReader<File>),
}

impl Run {
    fn next(&mut self) -> io::Result<Option<Pair>> {
        match self {
            Self::Memory(pairs) => Ok(pairs.next()),
            Self::File(file) => {
                let Some(key) = read_part(file)? else { return Ok(None) };
                let value = read_part(file)?.ok_or(io::ErrorKind::UnexpectedEof)?;
                Ok(Some((key, value)))
            }
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
    /// The next pair of each run. Equal keys are in the order of the runs.
    next: BinaryHeap<Next>,
}

/// A pair, with the number of its run after the key.
type Next = Reverse<(Vec<u8>, usize, Vec<u8>)>;

impl Merged {
    pub(crate) fn new(sorters: impl IntoIterator<Item = Sorter>) -> io::Result<Self> {
        let mut runs = Vec::new();
        for mut sorter in sorters {
            sorter.sort();
            runs.extend(sorter.runs.into_iter().map(BufReader::new).map(Run::File));
            runs.push(Run::Memory(sorter.pairs.into_iter()));
        }
        Self::merge(runs)
    }

    fn of_runs(runs: Vec<File>) -> io::Result<Self> {
        Self::merge(runs.into_iter().map(BufReader::new).map(Run::File).collect())
    }

    fn merge(runs: Vec<Run>) -> io::Result<Self> {
        let mut merged = Self { next: BinaryHeap::with_capacity(runs.len()), runs };
        for run in 0..merged.runs.len() {
            merged.advance(run)?;
        }
        Ok(merged)
    }

    /// Takes the next pair of a run.
    fn advance(&mut self, run: usize) -> io::Result<()> {
        if let Some((key, value)) = self.runs[run].next()? {
            self.next.push(Reverse((key, run, value)));
        }
        Ok(())
    }

    /// Returns the key of the next pair.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.next.peek().map(|Reverse((key, ..))| &key[..])
    }
}

impl Iterator for Merged {
    type Item = io::Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse((key, run, value)) = self.next.pop()?;
        Some(self.advance(run).map(|()| (key, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_in_the_order_of_keys_and_values_in_the_order_they_came() {
        for bytes_max in [0, 300, 1 << 20] {
            let mut expected = Vec::new();
            let mut sorter = Sorter::new(std::env::temp_dir(), bytes_max);
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
        }
    }
}
