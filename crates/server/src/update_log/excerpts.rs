//! Excerpts: the beginnings of entries, for a view of them that needs neither the whole entries nor
//! the ones before.

use super::files::{LogOffset, describe, path};
use super::reader::{open, timestamp_of};
use super::{Error, Result, UpdateLog};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use wire::Parse;
use wire::update_log::{ENTRY_HEADER_BYTES, Entry};

/// Beginning of an entry.
pub(crate) struct Excerpt<'a> {
    /// Time stamp, in microseconds since 1970.
    pub(crate) timestamp_us: u64,
    /// Beginning of the body.
    pub(crate) body: &'a [u8],
    /// Length of the whole body, in bytes.
    pub(crate) body_bytes: usize,
}

/// Reader of the beginnings of entries. It holds one of them, and keeps no file from being removed.
pub(crate) struct Excerpts {
    folder: PathBuf,
    file: File,
    /// Place of the next entry.
    place: LogOffset,
    body: Vec<u8>,
    body_bytes_max: usize,
}

impl Excerpts {
    /// Returns a reader from the end of the log on, of at most `body_bytes_max` bytes of each body.
    pub(crate) fn from_end(log: &UpdateLog, body_bytes_max: usize) -> Result<Self> {
        let (folder, place) = (log.folder().to_owned(), log.end());
        let file = open(&folder, place.file)?;
        Ok(Self { folder, file, place, body: Vec::new(), body_bytes_max })
    }

    /// Returns the beginning of the next entry before `end`, which is that of an entry.
    pub(crate) fn next(&mut self, end: LogOffset) -> Result<Option<Excerpt<'_>>> {
        while self.place.file < end.file {
            let bytes = self.file.metadata().map_err(|source| self.failed(source))?.len();
            if self.place.offset < bytes {
                break;
            }
            self.place = LogOffset { file: self.place.file + 1, offset: 0 };
            self.file = open(&self.folder, self.place.file)?;
        }
        if self.place >= end {
            return Ok(None);
        }
        let mut header = [0; ENTRY_HEADER_BYTES];
        let LogOffset { file, offset } = self.place;
        self.file.read_exact_at(&mut header, offset).map_err(|source| self.failed(source))?;
        let body_bytes = match Entry::parse(&header) {
            Parse::Complete(_, bytes) | Parse::Incomplete(bytes) => bytes - ENTRY_HEADER_BYTES,
            Parse::Invalid(invalid) => {
                let file = path(&self.folder, file);
                return Err(Error::Corrupted { file, offset, what: describe(invalid) });
            }
        };
        self.body.resize(body_bytes.min(self.body_bytes_max), 0);
        let body_offset = offset + ENTRY_HEADER_BYTES as u64;
        let read = self.file.read_exact_at(&mut self.body, body_offset);
        read.map_err(|source| self.failed(source))?;
        self.place.offset = body_offset + body_bytes as u64;
        let timestamp_us = timestamp_of(&header).unwrap_or_default();
        Ok(Some(Excerpt { timestamp_us, body: &self.body, body_bytes }))
    }

    fn failed(&self, source: io::Error) -> Error {
        let path = path(&self.folder, self.place.file);
        Error::Io { operation: "read", path, source }
    }
}
