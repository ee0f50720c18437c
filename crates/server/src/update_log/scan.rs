//! Scan: finds the end of the entries of a file, and tells damage from what a crash leaves.
//!
//! A crash leaves an incomplete entry, or zeros, after the last whole entry. A flipped bit in a
//! length looks like that, because entries have no checksums: the entry seems to end after its
//! file. But then entries follow in the bytes that it seems to have. An entry is recognized by its
//! body, which is an [`Operation`] of exactly that length.

use super::reader::{CHUNK_BYTES, timestamp_of};
use super::{Error, Result};
use cabinet::files::open_file;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use wire::Parse;
use wire::update_log::{ENTRY_HEADER_BYTES, ENTRY_MAGIC, Entry, Operation};

/// Bytes that may be read, for each byte after the whole entries, to search it for entries. With
/// more, it counts as damaged. Only content made for that needs more.
const READS_PER_BYTE: u64 = 4;

/// Contents of a log file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// Offset of the end of the whole entries at its beginning, in bytes.
    pub(super) bytes: u64,
    /// Length of what follows them, in bytes.
    pub(super) rest_bytes: u64,
    /// Whether that is not an incomplete entry, or zeros, as a crash leaves them.
    pub(super) is_damaged: bool,
    /// Time stamp of the last entry, also of those after damage; 0 without any.
    pub(super) last_timestamp_us: u64,
    /// Whether the last entry after the damage ends with the file.
    is_ended: bool,
}

impl Scan {
    /// Scans a file. A missing file is empty.
    pub(super) fn of(path: &Path) -> Result<Self> {
        Self::from(path, 0)
    }

    /// Scans a file from an entry at `offset` on.
    pub(super) fn from(path: &Path, offset: u64) -> Result<Self> {
        let failed = |source| Error::Io { operation: "read", path: path.to_owned(), source };
        let file = match open_file(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { bytes: offset, ..Self::default() });
            }
            Err(error) => return Err(failed(error)),
        };
        let length = file.metadata().map_err(failed)?.len();
        let mut window = Window { file, length, start: offset, bytes: Vec::new(), reads_left: 0 };
        window.scan(offset).map_err(failed)
    }

    /// Returns the length of the file without what a crash has left.
    pub(super) fn end(&self) -> u64 {
        self.bytes + if self.is_damaged { self.rest_bytes } else { 0 }
    }

    /// Returns whether all entries are known to be before a time stamp.
    pub(super) fn ends_before(&self, timestamp_us: u64) -> bool {
        self.is_ended && self.last_timestamp_us < timestamp_us
    }
}

/// Part of a file in memory, to scan many headers with few reads.
struct Window {
    file: File,
    /// Length of the file, in bytes.
    length: u64,
    start: u64,
    bytes: Vec<u8>,
    /// Number of bytes that may still be read to recognize entries.
    reads_left: u64,
}

impl Window {
    fn scan(&mut self, offset: u64) -> io::Result<Scan> {
        let mut scan = Scan { bytes: offset, ..Scan::default() };
        let mut last = None;
        let mut is_incomplete = false;
        while scan.bytes < self.length {
            let Some((size, timestamp_us)) = self.header(scan.bytes)? else { break };
            is_incomplete = scan.bytes + size > self.length;
            if is_incomplete {
                break;
            }
            last = Some(scan.bytes);
            scan.last_timestamp_us = timestamp_us.unwrap_or(scan.last_timestamp_us);
            scan.bytes += size;
        }
        scan.rest_bytes = self.length.saturating_sub(scan.bytes);
        if scan.rest_bytes == 0 {
            scan.is_ended = true;
            return Ok(scan);
        }
        self.reads_left = READS_PER_BYTE * (self.length - last.unwrap_or(scan.bytes));
        scan.is_damaged = !is_incomplete && !self.is_zero_from(scan.bytes)?;
        if let Some(last) = last
            && self.entry(last)?.is_none()
        {
            // Its length is damaged, and ends in what follows it.
            scan.is_damaged = true;
            scan.rest_bytes += scan.bytes - last;
            scan.bytes = last;
        }
        self.search(&mut scan)?;
        Ok(scan)
    }

    /// Searches the bytes after the whole entries for further ones.
    fn search(&mut self, scan: &mut Scan) -> io::Result<()> {
        let body = scan.bytes + ENTRY_HEADER_BYTES as u64;
        if body < self.length && self.is_operation(body, self.length - body)? {
            // Only the length of the last entry, or its first byte, is wrong.
            let header = self.at(scan.bytes)?;
            let [_, timestamp @ ..] = header.first_chunk::<9>().copied().unwrap_or_default();
            scan.last_timestamp_us = scan.last_timestamp_us.max(u64::from_be_bytes(timestamp));
            (scan.is_damaged, scan.is_ended) = (true, true);
        }
        let mut place = scan.bytes + 1;
        while let Some(candidate) = self.find_magic(place)? {
            place = candidate + 1;
            if self.reads_left == 0 {
                (scan.is_damaged, scan.is_ended) = (true, false);
                return Ok(());
            }
            if let Some((size, timestamp_us)) = self.entry(candidate)? {
                place = candidate + size;
                scan.is_damaged = true;
                scan.is_ended = place == self.length;
                scan.last_timestamp_us = scan.last_timestamp_us.max(timestamp_us);
            }
        }
        Ok(())
    }

    /// Returns the length that the header at `offset` gives its entry, and the time stamp unless
    /// the file ends before it. Returns none if it is not a header.
    fn header(&mut self, offset: u64) -> io::Result<Option<(u64, Option<u64>)>> {
        let header = self.at(offset)?;
        Ok(match Entry::parse(header) {
            Parse::Complete(_, size) | Parse::Incomplete(size) => {
                Some((size as u64, header.first_chunk().and_then(timestamp_of)))
            }
            Parse::Invalid(_) => None,
        })
    }

    /// Returns the length and the time stamp of the entry at `offset`, if there is a valid one.
    fn entry(&mut self, offset: u64) -> io::Result<Option<(u64, u64)>> {
        let Some((size, Some(timestamp_us))) = self.header(offset)? else { return Ok(None) };
        let body = offset + ENTRY_HEADER_BYTES as u64;
        let is_valid = offset + size <= self.length
            && offset + size > body
            && self.is_operation(body, offset + size - body)?;
        Ok(is_valid.then_some((size, timestamp_us)))
    }

    /// Returns whether the bytes are an operation. It is `false` if they may not be read any more.
    fn is_operation(&mut self, offset: u64, length: u64) -> io::Result<bool> {
        // Most bytes that look like a header are told by the first and the last byte of the body.
        let mut ends = [0; 2];
        let [first, last] = &mut ends;
        self.file.read_exact_at(std::slice::from_mut(first), offset)?;
        self.file.read_exact_at(std::slice::from_mut(last), offset + length - 1)?;
        if !matches!(ends, [wire::binary::MAGIC, 0 | 1]) {
            return Ok(false);
        }
        if self.reads_left < length {
            self.reads_left = 0;
            return Ok(false);
        }
        self.reads_left -= length;
        let mut body = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut body, offset)?;
        Ok(Operation::parse(&body).is_ok())
    }

    /// Returns the offset of the next byte that may begin an entry.
    fn find_magic(&mut self, mut offset: u64) -> io::Result<Option<u64>> {
        while offset < self.length {
            let bytes = self.at(offset)?;
            if let Some(at) = bytes.iter().position(|byte| *byte == ENTRY_MAGIC) {
                return Ok(Some(offset + at as u64));
            }
            if bytes.is_empty() {
                return Ok(None);
            }
            offset += bytes.len() as u64;
        }
        Ok(None)
    }

    /// Returns at least the bytes of a header from `offset` on, fewer at the end of the file.
    fn at(&mut self, offset: u64) -> io::Result<&[u8]> {
        let within = offset.checked_sub(self.start).and_then(|within| usize::try_from(within).ok());
        let within = within.unwrap_or(usize::MAX);
        if self.bytes.len().saturating_sub(within) < ENTRY_HEADER_BYTES {
            self.start = offset;
            self.bytes.resize(CHUNK_BYTES, 0);
            let mut filled = 0;
            while filled < CHUNK_BYTES {
                match self.file.read_at(&mut self.bytes[filled..], offset + filled as u64)? {
                    0 => break,
                    read => filled += read,
                }
            }
            self.bytes.truncate(filled);
            return Ok(&self.bytes);
        }
        Ok(&self.bytes[within..])
    }

    /// Returns whether the file has only zeros from `offset` on.
    fn is_zero_from(&mut self, mut offset: u64) -> io::Result<bool> {
        loop {
            let bytes = self.at(offset)?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            if bytes.len() < ENTRY_HEADER_BYTES {
                return Ok(true);
            }
            offset += bytes.len() as u64;
        }
    }
}
