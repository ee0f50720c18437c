//! Sorter: sorts items by keys and payloads within a memory budget.
//!
//! The name of a temporary file is removed at once, so the file disappears with the process.

use crate::base::external_sort::{ExternalSort, Merge, READ, RunFiles};
use crate::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of file names that are tried until one is free.
const NAMES_MAX: u32 = 1000;

/// Folder of temporary files.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl RunFiles for Folder {
    type Error = Error;
    type Guard = ();
    const BY_KEY: bool = false;
    const ITEM_BYTES: usize = size_of::<(usize, usize, usize)>();
    const BUFFER_BYTES: usize = 64 << 10;

    fn create(&self, _: u64) -> Result<(File, ())> {
        Ok((unnamed_file(&self.0)?, ()))
    }

    fn failed(&self, operation: &'static str, source: std::io::Error) -> Error {
        failed(operation, &self.0, source)
    }
}

/// Collects items to sort by keys and payloads.
pub type Sorter = ExternalSort<Folder>;

impl Sorter {
    /// Returns a sorter that keeps about `budget_bytes` bytes in memory, and writes the rest into
    /// `folder`. Only the first `wanted` items are returned; `None` for all.
    pub fn new(folder: &Path, budget_bytes: usize, wanted: Option<usize>) -> Self {
        let folder = Folder(folder.to_path_buf());
        Self::in_files(folder, budget_bytes, wanted.unwrap_or(usize::MAX))
    }

    /// Returns the items in order. Fails if a temporary file cannot be written or read.
    pub fn finish(mut self) -> Result<Sorted> {
        if self.has_files() {
            // Only the budget of one sorter is left for what follows.
            self.spill()?;
        }
        let (folder, left) = (self.files.clone(), self.wanted);
        let items = Merge::new([self]).map_err(|source| folder.failed(READ, source))?;
        Ok(Sorted { folder, items, left })
    }
}

/// Sorted items.
#[derive(Debug)]
pub struct Sorted {
    folder: Folder,
    items: Merge<Folder>,
    left: usize,
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
        self.items.next_item().map_err(|source| self.folder.failed(READ, source))
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
