//! Log files: names them, appends entries, and begins the next file at the limit.
//!
//! The files are `00000001.ulog`, `00000002.ulog` and so on, as in Tokyo Tyrant. An entry that
//! reaches the limit is the last one of its file, so files are a little longer than the limit.

use super::scan::Scan;
use super::{Error, Result};
use cabinet::files::{FolderLock, sync_folder};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use wire::update_log::{ENTRY_HEADER_BYTES, Entry};
use wire::{Invalid, Parse};

/// Offset in a log: the end of an entry, or 0 in the first file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogOffset {
    /// Number of the file, from 1.
    pub file: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
}

/// Returns the path of a file of the log.
pub(super) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:08}.ulog"))
}

/// Returns the numbers of the files in a folder, in ascending order.
pub(super) fn numbers(folder: &Path) -> Result<Vec<u64>> {
    let failed = |source| Error::Io { operation: "read", path: folder.to_owned(), source };
    let mut numbers = Vec::new();
    for item in std::fs::read_dir(folder).map_err(failed)? {
        let name = item.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".ulog"));
        // Tokyo Tyrant writes at least eight digits. `parse` would also accept a sign.
        let is_number = |text: &&str| text.len() >= 8 && text.bytes().all(|b| b.is_ascii_digit());
        if let Some(number) = number.filter(is_number).and_then(|text| text.parse().ok()) {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The files of a log, open for appending.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    file_bytes_max: u64,
    number: u64,
    file: File,
    /// Length of the present file, in bytes.
    bytes: u64,
    /// Number of the file at the last sync, 0 before the first sync.
    synced: u64,
    /// Time stamp of the last entry found on opening, 0 if there was none.
    last_timestamp_us: u64,
    /// Lock against other processes that write this log.
    _lock: FolderLock,
}

impl Files {
    /// Opens the log in `folder`, which is made if it is missing, and continues in the last file.
    /// Fails if another process has it open. A new file begins after an entry that reaches
    /// `file_bytes_max`; 0 is no limit.
    ///
    /// An incomplete entry at the end, as a crash leaves it, is removed and logged. If the last
    /// file contains other bytes, it stays as it is and a new file begins.
    pub fn open(folder: &Path, file_bytes_max: u64) -> Result<Self> {
        Self::open_after(folder, file_bytes_max, false)
    }

    /// Does the same. If the log `was_closed`, no crash has left an incomplete entry.
    pub(super) fn open_after(folder: &Path, file_bytes_max: u64, was_closed: bool) -> Result<Self> {
        if !folder.is_dir() {
            let failed =
                |source| Error::Io { operation: "create", path: folder.to_owned(), source };
            std::fs::create_dir(folder).map_err(failed)?;
        }
        let lock_path = folder.join("lock");
        let lock = FolderLock::take(&lock_path).map_err(|source| match source.kind() {
            std::io::ErrorKind::WouldBlock => Error::InUse { folder: folder.to_owned() },
            _ => Error::Io { operation: "lock", path: lock_path, source },
        })?;
        let numbers = numbers(folder)?;
        let mut number = numbers.last().copied().unwrap_or(1);
        let mut file = open(folder, number)?;
        let mut scan = Scan::of(&path(folder, number))?;
        let mut last_timestamp_us = scan.last_timestamp_us;
        for &earlier in numbers.iter().rev().skip(1) {
            if last_timestamp_us != 0 {
                break;
            }
            last_timestamp_us = Scan::of(&path(folder, earlier))?.last_timestamp_us;
        }
        if scan.is_damaged || was_closed && scan.rest_bytes > 0 {
            tracing::error!(
                "{} is corrupted at byte {}: it is left as it is, and the update log continues in a \
                 new file; replicas that need entries after that byte need a copy",
                path(folder, number).display(),
                scan.bytes
            );
            number += 1;
            file = open(folder, number)?;
            scan.bytes = 0;
        } else if scan.rest_bytes > 0 {
            let path = path(folder, number);
            tracing::warn!(
                "{}: {} bytes of an incomplete entry removed",
                path.display(),
                scan.rest_bytes
            );
            let failed = |source| Error::Io { operation: "truncate", path, source };
            file.set_len(scan.bytes).map_err(failed)?;
        }
        let folder = folder.to_owned();
        Ok(Self {
            folder,
            file_bytes_max,
            number,
            file,
            bytes: scan.bytes,
            synced: 0,
            last_timestamp_us,
            _lock: lock,
        })
    }

    /// Returns the time stamp of the last entry at opening, in microseconds since 1970, 0 without
    /// any.
    pub fn last_timestamp_us(&self) -> u64 {
        self.last_timestamp_us
    }

    /// Returns the offset of the next entry.
    pub fn end(&self) -> LogOffset {
        LogOffset { file: self.number, offset: self.bytes }
    }

    /// Appends an entry.
    pub fn append(&mut self, entry: &Entry<'_>) -> Result<()> {
        let mut bytes = Vec::with_capacity(ENTRY_HEADER_BYTES + entry.body.len());
        entry.encode(&mut bytes).map_err(|_| Error::EntryTooLong { bytes: entry.body.len() })?;
        self.write(&mut bytes)
    }

    /// Writes whole entries, and removes those written from `entries`. After an error the same
    /// bytes can be given again.
    pub(super) fn write(&mut self, entries: &mut Vec<u8>) -> Result<()> {
        let mut written = 0;
        let result = self.write_counting(entries, &mut written);
        entries.drain(..written);
        result
    }

    fn write_counting(&mut self, entries: &[u8], written: &mut usize) -> Result<()> {
        while *written < entries.len() {
            if self.file_bytes_max > 0 && self.bytes >= self.file_bytes_max {
                self.begin_next()?;
            }
            let rest = &entries[*written..];
            let part = self.up_to_limit(rest)?;
            // This overwrites an incomplete entry that an error left here.
            let write = self.file.write_all_at(&rest[..part], self.bytes);
            write.map_err(|source| self.failed("write to", source))?;
            self.bytes += part as u64;
            *written += part;
        }
        Ok(())
    }

    /// Returns the length of the entries that go into the present file, in bytes.
    fn up_to_limit(&self, entries: &[u8]) -> Result<usize> {
        if self.file_bytes_max == 0 || self.bytes + (entries.len() as u64) < self.file_bytes_max {
            return Ok(entries.len());
        }
        let mut end = 0;
        while end < entries.len() && self.bytes + (end as u64) < self.file_bytes_max {
            match Entry::parse(&entries[end..]) {
                Parse::Complete(_, length) => end += length,
                // Callers give whole entries only.
                Parse::Incomplete(_) | Parse::Invalid(_) => return Ok(entries.len()),
            }
        }
        Ok(end)
    }

    fn begin_next(&mut self) -> Result<()> {
        self.file = open(&self.folder, self.number + 1)?;
        self.number += 1;
        self.bytes = 0;
        Ok(())
    }

    /// Makes all files durable.
    pub fn sync(&mut self) -> Result<()> {
        let number = self.unsynced()?.sync()?;
        self.note_synced(number);
        Ok(())
    }

    /// Returns the files that may not be durable. More may be written while they are synced.
    pub(super) fn unsynced(&self) -> Result<Unsynced> {
        let file = self.file.try_clone().map_err(|source| self.failed("sync", source))?;
        let (folder, synced, number) = (self.folder.clone(), self.synced, self.number);
        Ok(Unsynced { folder, synced, number, file })
    }

    /// Records that the files before `number`, and the bytes of file `number` before its sync, are
    /// durable.
    pub(super) fn note_synced(&mut self, number: u64) {
        self.synced = self.synced.max(number);
    }

    fn failed(&self, operation: &'static str, source: std::io::Error) -> Error {
        Error::Io { operation, path: path(&self.folder, self.number), source }
    }
}

/// Files that may not be durable.
#[derive(Debug)]
pub(super) struct Unsynced {
    folder: PathBuf,
    /// Number of the file at the last sync.
    synced: u64,
    number: u64,
    file: File,
}

impl Unsynced {
    /// Makes the files durable. Returns the number of the last one.
    pub(super) fn sync(self) -> Result<u64> {
        for number in self.before()? {
            let path = path(&self.folder, number);
            match File::open(&path).and_then(|file| file.sync_data()) {
                Ok(()) => {}
                // The file is no longer kept.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(Error::Io { operation: "sync", path, source }),
            }
        }
        let failed = |source| {
            let path = path(&self.folder, self.number);
            Error::Io { operation: "sync", path, source }
        };
        self.file.sync_data().map_err(failed)?;
        if self.synced != self.number {
            // Sync the names of the files too, and at the first time that of the folder.
            let parent = (self.synced == 0).then(|| self.folder.join(".."));
            for path in parent.into_iter().chain([self.folder.clone()]) {
                let synced = sync_folder(&path);
                synced.map_err(|source| Error::Io { operation: "sync", path, source })?;
            }
        }
        Ok(self.number)
    }

    /// Returns the numbers of the files before the last one.
    fn before(&self) -> Result<Vec<u64>> {
        if self.synced == self.number {
            return Ok(Vec::new());
        }
        let mut numbers = numbers(&self.folder)?;
        numbers.retain(|number| (self.synced..self.number).contains(number));
        Ok(numbers)
    }
}

fn open(folder: &Path, number: u64) -> Result<File> {
    let path = path(folder, number);
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|source| Error::Io { operation: "open", path, source })
}

/// Returns a description of bytes that are not an entry.
pub(super) fn describe(invalid: Invalid) -> &'static str {
    match invalid {
        Invalid::TooLarge => "an entry beyond the limit",
        Invalid::UnknownCommand | Invalid::BadParameters => "not an entry",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_covers_all_files_written_since_the_last_one() {
        let folder = tempfile::tempdir().expect("a folder");
        // Each entry fills a file.
        let append = |files: &mut Files, count: u64| {
            for timestamp_us in 1..=count {
                let entry = Entry { timestamp_us, origin: 1, master: 0, body: b"body" };
                files.append(&entry).expect("no failure");
            }
        };
        let before = |files: &Files| files.unsynced().expect("a file").before().expect("files");
        let mut files = Files::open(&folder.path().join("ulog"), 1).expect("a log");
        append(&mut files, 3);
        assert_eq!(before(&files), [1, 2]);
        files.sync().expect("a disk");
        assert!(before(&files).is_empty());
        append(&mut files, 2);
        assert_eq!(before(&files), [3, 4]);
        // A file that is removed meanwhile is not an error.
        std::fs::remove_file(path(&folder.path().join("ulog"), 3)).expect("a file");
        files.sync().expect("a disk");
        drop(files);
        // Files of another process may not be durable either.
        let files = Files::open(&folder.path().join("ulog"), 1).expect("a log");
        assert_eq!(before(&files), [1, 2, 4]);
    }

    #[test]
    fn a_write_during_a_sync_is_covered_by_the_next_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut files = Files::open(&folder.path().join("ulog"), 1).expect("a log");
        let append = |files: &mut Files| {
            let entry = Entry { timestamp_us: 1, origin: 1, master: 0, body: b"body" };
            files.append(&entry).expect("no failure");
        };
        append(&mut files);
        let unsynced = files.unsynced().expect("a file");
        append(&mut files);
        append(&mut files);
        let number = unsynced.sync().expect("a disk");
        files.note_synced(number);
        let before = files.unsynced().expect("a file").before().expect("files");
        assert_eq!(before, [1, 2]);
    }
}
