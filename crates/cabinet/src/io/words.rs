//! Words: numbers in a shared mapping of a small file.
//!
//! A stored number survives any end of the process, and costs no system call. It may not survive a
//! loss of power. All access is atomic, so threads may share the numbers.
#![expect(unsafe_code, reason = "memory maps cannot be had without it; see each SAFETY line")]

use memmap2::{MmapOptions, MmapRaw};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;

/// A file of 8-byte numbers, in the byte order of the machine.
pub struct Words {
    raw: MmapRaw,
    count: usize,
}

impl Words {
    /// Maps the file at `path` with space for `count` numbers; missing ones are zeros. The file
    /// must not be cut while it is mapped.
    pub fn open(path: &Path, count: usize) -> io::Result<Self> {
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let bytes = count.max(1) * size_of::<u64>();
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if length < bytes {
            // Written rather than lengthened, so that a stored number always has space on the disk.
            file.write_all_at(&vec![0; bytes - length], length as u64)?;
        }
        let raw = MmapOptions::new().len(bytes).map_raw(&file)?;
        Ok(Self { raw, count })
    }

    /// Returns all numbers.
    #[inline]
    pub fn as_slice(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, as long as `count` numbers, and lives as long as
        // the slice; the file is at least as long; every access to it is atomic.
        unsafe { std::slice::from_raw_parts(self.raw.as_ptr().cast(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn numbers_are_there_when_the_file_is_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("words");
        let words = Words::open(&path, 3).expect("room");
        assert!(words.as_slice().iter().all(|word| word.load(Relaxed) == 0));
        words.as_slice()[2].store(u64::MAX, Relaxed);
        // The first mapping is still open.
        let again = Words::open(&path, 5).expect("room");
        let numbers: Vec<u64> = again.as_slice().iter().map(|word| word.load(Relaxed)).collect();
        assert_eq!(numbers, [0, 0, u64::MAX, 0, 0]);
    }
}
