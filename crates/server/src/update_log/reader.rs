//! Reader: reads the entries of an update log, also while it grows.

use super::files::{LogOffset, describe, numbers, path};
use super::scan::Scan;
use super::{Error, Result};
use cabinet::files::open_file;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use wire::Parse;
use wire::update_log::{ENTRY_HEADER_BYTES, Entry};

/// Length of a read, unless an entry is longer, in bytes.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// Description of an entry that does not end before its file.
pub(super) const INCOMPLETE: &str = "an incomplete entry, or one whose length is damaged";

/// Assumed difference between the clocks of the servers in a log, in microseconds. Reading begins
/// this much before the requested time, as in Tokyo Tyrant.
const CLOCK_DEVIATION_US: u64 = 30_000_000;

/// Reads the entries of a log in order.
#[derive(Debug)]
pub struct Reader {
    folder: PathBuf,
    number: u64,
    file: File,
    /// Offset in the file of the next read.
    offset: u64,
    buffer: Vec<u8>,
    /// Number of bytes of `buffer` that were returned.
    taken: usize,
    /// Offset in `buffer` of the entry that was returned last.
    given: usize,
    from_us: u64,
}

impl Reader {
    /// Opens a reader of the entries from `from_us` on, in microseconds since 1970. Returns `None`
    /// if there is no file yet, and [`Error::Removed`] if some of the entries have been removed.
    pub fn open(folder: &Path, from_us: u64) -> Result<Option<Self>> {
        let numbers = numbers(folder)?;
        let Some(&oldest) = numbers.first() else { return Ok(None) };
        let begins_before = |number: u64| -> Result<bool> {
            let first = first_timestamp(&path(folder, number))?;
            Ok(first.is_some_and(|first| first <= from_us.saturating_sub(CLOCK_DEVIATION_US)))
        };
        let mut start = None;
        for &number in numbers.iter().rev() {
            if begins_before(number)? {
                start = Some(number);
                break;
            }
        }
        let number = match start {
            Some(number) => number,
            None if oldest == 1 => oldest,
            // The oldest file may still contain every requested entry.
            None if first_timestamp(&path(folder, oldest))?
                .is_some_and(|first| first <= from_us) =>
            {
                oldest
            }
            None => return Err(Error::Removed { from_us }),
        };
        Self::open_at(folder, LogOffset { file: number, offset: 0 }, from_us).map(Some)
    }

    /// Opens a reader of the entries after `place` with a time stamp of at least `from_us`.
    pub(crate) fn open_at(folder: &Path, place: LogOffset, from_us: u64) -> Result<Self> {
        let LogOffset { file: number, offset } = place;
        let file = open(folder, number)?;
        let folder = folder.to_owned();
        Ok(Self { folder, number, file, offset, buffer: Vec::new(), taken: 0, given: 0, from_us })
    }

    /// Returns the number of the present file.
    pub fn file(&self) -> u64 {
        self.number
    }

    /// Fails with [`Error::Missing`] if the present file or a later one is missing.
    pub fn expect_all_files(&self) -> Result<()> {
        let numbers = numbers(&self.folder)?.into_iter().filter(|number| *number >= self.number);
        match (self.number..).zip(numbers).find(|(expected, number)| expected != number) {
            Some((expected, _)) => Err(Error::Missing { file: path(&self.folder, expected) }),
            None => Ok(()),
        }
    }

    /// Returns the next entry before `end`, which is that of an entry. Without an `end` it stops
    /// before an incomplete entry in the last file. Fails with [`Error::Missing`] if a file with
    /// wanted entries may be missing, and with [`Error::Corrupted`] if wanted entries may be
    /// damaged.
    pub fn next(&mut self, end: Option<LogOffset>) -> Result<Option<Entry<'_>>> {
        loop {
            let (length, is_wanted) = match Entry::parse(&self.buffer[self.taken..]) {
                Parse::Complete(entry, length) => (length, entry.timestamp_us >= self.from_us),
                Parse::Incomplete(needed) => {
                    if self.fill(needed, end)? || self.begin_next(end)? || self.has_grown(end)? {
                        continue;
                    }
                    return Ok(None);
                }
                Parse::Invalid(invalid) => {
                    self.pass_damage(end, describe(invalid))?;
                    continue;
                }
            };
            self.given = self.taken;
            self.taken += length;
            if is_wanted {
                return Ok(self.last());
            }
        }
    }

    /// Returns the entry that was read last.
    pub(crate) fn last(&self) -> Option<Entry<'_>> {
        match Entry::parse(&self.buffer[self.given..self.taken]) {
            Parse::Complete(entry, _) => Some(entry),
            Parse::Incomplete(_) | Parse::Invalid(_) => None,
        }
    }

    /// Reads until `needed` bytes are in the buffer. Returns whether any byte was read.
    fn fill(&mut self, needed: usize, end: Option<LogOffset>) -> Result<bool> {
        self.buffer.drain(..self.taken);
        (self.given, self.taken) = (0, 0);
        let before = self.buffer.len();
        let limit = match end {
            Some(end) if end.file == self.number => end.offset,
            _ => u64::MAX,
        };
        while self.buffer.len() < needed && self.offset < limit {
            let have = self.buffer.len();
            // The buffer grows by what is there, not by the length that an entry announces.
            let wanted = (needed - have).clamp(CHUNK_BYTES, 16 * CHUNK_BYTES);
            let wanted = wanted.min(usize::try_from(limit - self.offset).unwrap_or(usize::MAX));
            self.buffer.resize(have + wanted, 0);
            let read = self.file.read_at(&mut self.buffer[have..], self.offset);
            let read = read.map_err(|source| Error::Io {
                operation: "read",
                path: path(&self.folder, self.number),
                source,
            });
            self.buffer.truncate(have + *read.as_ref().unwrap_or(&0));
            match read? {
                0 => break,
                read => self.offset += read as u64,
            }
        }
        Ok(self.buffer.len() > before)
    }

    /// Continues with the next file, if there is one before `end`. Returns whether there is.
    fn begin_next(&mut self, end: Option<LogOffset>) -> Result<bool> {
        if end.is_some_and(|end| end.file <= self.number) {
            return Ok(false);
        }
        let next = numbers(&self.folder)?.into_iter().find(|number| *number > self.number);
        let Some(next) = next else { return Ok(false) };
        if !self.buffer.is_empty() {
            // The end of this file may have been written after the last read.
            let needed = match Entry::parse(&self.buffer) {
                Parse::Incomplete(needed) => needed,
                Parse::Complete(..) | Parse::Invalid(_) => return Ok(true),
            };
            if self.fill(needed, None)? {
                return Ok(true);
            }
            self.pass_damage(end, INCOMPLETE)?;
            return Ok(true);
        }
        // The last entry may have been written after the last read.
        if self.fill(1, None)? {
            return Ok(true);
        }
        if next != self.number + 1 {
            // The file was removed while the one before it was read, which may be long before the
            // first entry that is wanted. Time stamps rise from file to file.
            let first = first_timestamp(&path(&self.folder, next))?;
            if first.is_none_or(|first| first > self.from_us) {
                return Err(Error::Missing { file: path(&self.folder, self.number + 1) });
            }
        }
        self.begin(next)?;
        Ok(true)
    }

    fn begin(&mut self, number: u64) -> Result<()> {
        self.file = open(&self.folder, number)?;
        (self.number, self.offset) = (number, 0);
        self.buffer.clear();
        (self.given, self.taken) = (0, 0);
        Ok(())
    }

    /// Returns the offset in the file of the next entry.
    fn place(&self) -> u64 {
        self.offset - (self.buffer.len() - self.taken) as u64
    }

    /// Continues after the damage at the next entry with the next file, if all entries that are
    /// lost are before those that are wanted. Fails otherwise.
    fn pass_damage(&mut self, end: Option<LogOffset>, what: &'static str) -> Result<()> {
        let (file, offset) = (path(&self.folder, self.number), self.place());
        let next = numbers(&self.folder)?.into_iter().find(|number| *number > self.number);
        if let Some(next) = next
            && next == self.number + 1
            && end.is_none_or(|end| end.file >= next)
            && Scan::from(&file, offset)?.ends_before(self.from_us)
        {
            return self.begin(next);
        }
        Err(Error::Corrupted { file, offset, what })
    }

    /// Returns whether the incomplete entry at the end of the last file has been written since the
    /// last read. Fails if it is damage, and not what a crash or a writer leaves. Nothing but
    /// damage is incomplete before an `end`.
    fn has_grown(&self, end: Option<LogOffset>) -> Result<bool> {
        if self.buffer.len() == self.taken {
            return Ok(false);
        }
        let (file, offset) = (path(&self.folder, self.number), self.place());
        let scan = Scan::from(&file, offset)?;
        if scan.is_damaged || end.is_some() {
            return Err(Error::Corrupted { file, offset, what: INCOMPLETE });
        }
        Ok(scan.bytes > offset)
    }
}

pub(super) fn open(folder: &Path, number: u64) -> Result<File> {
    let path = path(folder, number);
    open_file(&path).map_err(|source| Error::Io { operation: "open", path, source })
}

/// Returns the time stamp of the first entry of a file, if there is one.
pub(super) fn first_timestamp(path: &Path) -> Result<Option<u64>> {
    let failed = |source| Error::Io { operation: "read", path: path.to_owned(), source };
    let file = open_file(path).map_err(failed)?;
    let mut header = [0; ENTRY_HEADER_BYTES];
    match file.read_exact_at(&mut header, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(failed(error)),
    }
    Ok(timestamp_of(&header))
}

pub(super) fn timestamp_of(header: &[u8; ENTRY_HEADER_BYTES]) -> Option<u64> {
    let [magic, timestamp @ .., _, _, _, _, _, _, _, _] = *header;
    (magic == wire::update_log::ENTRY_MAGIC).then_some(u64::from_be_bytes(timestamp))
}
