//! Excerpts: the beginnings of changes, for a view of them that needs neither the whole entries nor
//! the ones before.
//!
//! A transaction is one entry, and its parts are excerpts of their own. The reader finds them by
//! their lengths, so it holds the beginning of one part, however long the transaction is.

use super::files::{LogOffset, describe, path};
use super::reader::{INCOMPLETE, open};
use super::{Error, Result, UpdateLog};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use wire::update_log::{ENTRY_HEADER_BYTES, Entry, Operation};

/// Bytes of the length before each part of a transaction.
const LENGTH_BYTES: usize = 4;

/// Beginning of a change: of the body of an entry, or of a part of a transaction.
pub(crate) struct Excerpt<'a> {
    /// Time stamp of the entry, in microseconds since 1970.
    pub(crate) timestamp_us: u64,
    /// Beginning of the body.
    pub(crate) body: &'a [u8],
    /// Length of the whole body, in bytes.
    pub(crate) body_bytes: usize,
}

/// Reader of the beginnings of changes. It holds one of them, and keeps no file from being removed.
pub(crate) struct Excerpts {
    folder: PathBuf,
    file: File,
    /// Place of the next entry.
    place: LogOffset,
    /// Transaction whose parts are read at present.
    parts: Option<Parts>,
    body: Vec<u8>,
    body_bytes_max: usize,
}

/// Rest of a transaction.
struct Parts {
    timestamp_us: u64,
    /// Number of parts.
    count: u32,
    /// Offset in the file of the length of the next part.
    offset: u64,
    /// Offset in the file of the end of the entry, which is a byte after the last part.
    end: u64,
}

impl Excerpts {
    /// Returns a reader from the end of the log on, of at most `body_bytes_max` bytes of each body.
    pub(crate) fn from_end(log: &UpdateLog, body_bytes_max: usize) -> Result<Self> {
        let (folder, place) = (log.folder().to_owned(), log.end());
        let file = open(&folder, place.file)?;
        Ok(Self { folder, file, place, parts: None, body: Vec::new(), body_bytes_max })
    }

    /// Returns the beginning of the next change before `end`, which is the end of an entry.
    pub(crate) fn next(&mut self, end: LogOffset) -> Result<Option<Excerpt<'_>>> {
        loop {
            if let Some(parts) = self.parts.take_if(|parts| parts.count > 0) {
                return self.next_part(parts).map(Some);
            }
            self.pass_files(end)?;
            if self.place >= end {
                return Ok(None);
            }
            let offset = self.place.offset;
            let mut header = [0; ENTRY_HEADER_BYTES];
            self.read(&mut header, offset)?;
            let (timestamp_us, body_bytes) = Entry::parse_header(&header)
                .map_err(|invalid| self.corrupted(offset, describe(invalid)))?;
            let offset = offset + ENTRY_HEADER_BYTES as u64;
            self.read_body(body_bytes, offset)?;
            self.place.offset = offset + body_bytes as u64;
            let Some((count, first)) = Operation::peek_parts(&self.body) else {
                return Ok(Some(Excerpt { timestamp_us, body: &self.body, body_bytes }));
            };
            let offset = offset + first as u64;
            self.parts = Some(Parts { timestamp_us, count, offset, end: self.place.offset });
        }
    }

    /// Returns the beginning of the next part of a transaction.
    fn next_part(&mut self, parts: Parts) -> Result<Excerpt<'_>> {
        let Parts { timestamp_us, count, offset, end } = parts;
        let mut length = [0; LENGTH_BYTES];
        self.read(&mut length, offset)?;
        let body_bytes = u32::from_be_bytes(length);
        let body_offset = offset + LENGTH_BYTES as u64;
        let next = body_offset + u64::from(body_bytes);
        if next >= end {
            return Err(self.corrupted(offset, "a part of a transaction beyond its end"));
        }
        let body_bytes = body_bytes as usize;
        self.read_body(body_bytes, body_offset)?;
        self.parts = Some(Parts { timestamp_us, count: count - 1, offset: next, end });
        Ok(Excerpt { timestamp_us, body: &self.body, body_bytes })
    }

    /// Continues with the next file while this one has ended before `end`.
    fn pass_files(&mut self, end: LogOffset) -> Result<()> {
        while self.place.file < end.file {
            let bytes = self.file.metadata().map_err(|source| self.failed(source))?.len();
            if self.place.offset < bytes {
                break;
            }
            self.place = LogOffset { file: self.place.file + 1, offset: 0 };
            self.file = open(&self.folder, self.place.file)?;
        }
        Ok(())
    }

    /// Reads the beginning of a body.
    fn read_body(&mut self, body_bytes: usize, offset: u64) -> Result<()> {
        let mut body = std::mem::take(&mut self.body);
        body.resize(body_bytes.min(self.body_bytes_max), 0);
        let read = self.read(&mut body, offset);
        self.body = body;
        read
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.corrupted(offset, INCOMPLETE),
            _ => self.failed(error),
        })
    }

    fn corrupted(&self, offset: u64, what: &'static str) -> Error {
        Error::Corrupted { file: path(&self.folder, self.place.file), offset, what }
    }

    fn failed(&self, source: io::Error) -> Error {
        let path = path(&self.folder, self.place.file);
        Error::Io { operation: "read", path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::update_log::{Scope, Settings, Source};
    use cabinet::Database;
    use std::io::Write;
    use wire::binary::{Request, StringsBuffer};

    const BODY_BYTES_MAX: usize = 100;

    /// Bytes of the body of a put beside key and value.
    const PUT_BYTES: usize = 2 + 4 + 4 + 1;

    fn open_log(folder: &std::path::Path, file_bytes_max: u64) -> (UpdateLog, Database) {
        let database = Database::open("*").expect("memory");
        let settings = Settings { file_bytes_max, ..Settings::new(folder) };
        (UpdateLog::open(settings, &database).expect("room").0, database)
    }

    fn append(log: &UpdateLog, database: &Database, operation: &Operation<'_>) {
        let source = Source { origin: 1, master: 0, root: None };
        let held = log.begin(database, source, Scope::Nothing, true).expect("no failure");
        held.append(source, operation);
        drop(held);
        assert!(log.write());
    }

    fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
        Operation { request: Request::Put { key, value }, succeeded: true }
    }

    /// Returns the lengths of the beginnings and of the whole bodies up to the end of the log.
    fn lengths(excerpts: &mut Excerpts, log: &UpdateLog) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        while let Some(excerpt) = excerpts.next(log.end()).expect("no damage") {
            assert!(excerpt.timestamp_us > 0);
            found.push((excerpt.body.len(), excerpt.body_bytes));
        }
        found
    }

    #[test]
    fn a_body_is_cut_above_the_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, database) = open_log(folder.path(), 0);
        append(&log, &database, &put(b"before", b""));
        let mut excerpts = Excerpts::from_end(&log, BODY_BYTES_MAX).expect("a file");
        assert_eq!(lengths(&mut excerpts, &log), []);
        for bytes in [BODY_BYTES_MAX - 1, BODY_BYTES_MAX, BODY_BYTES_MAX + 1] {
            append(&log, &database, &put(b"k", &vec![b'v'; bytes - PUT_BYTES - 1]));
        }
        let max = BODY_BYTES_MAX;
        let expected = [(max - 1, max - 1), (max, max), (max, max + 1)];
        assert_eq!(lengths(&mut excerpts, &log), expected);
        assert!(excerpts.body.capacity() <= 2 * BODY_BYTES_MAX);
    }

    #[test]
    fn the_parts_of_a_transaction_are_excerpts_however_long_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, database) = open_log(folder.path(), 0);
        let mut excerpts = Excerpts::from_end(&log, BODY_BYTES_MAX).expect("a file");
        for count in [0, 3, 1000] {
            let mut strings = StringsBuffer::default();
            for number in 0..count {
                let mut part = Vec::new();
                put(b"k", &vec![b'v'; number]).encode(&mut part).expect("a part");
                strings.push(&part).expect("a short one");
            }
            append(&log, &database, &Operation::transaction(strings.strings()));
            append(&log, &database, &put(b"after", b""));
            let bytes = (0..count).map(|number| PUT_BYTES + 1 + number).chain([PUT_BYTES + 5]);
            let expected: Vec<_> = bytes.map(|bytes| (bytes.min(BODY_BYTES_MAX), bytes)).collect();
            assert_eq!(lengths(&mut excerpts, &log), expected);
        }
        assert!(excerpts.body.capacity() <= 2 * BODY_BYTES_MAX);
    }

    #[test]
    fn a_part_beyond_the_end_of_its_transaction_is_damage() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, database) = open_log(folder.path(), 0);
        let mut excerpts = Excerpts::from_end(&log, BODY_BYTES_MAX).expect("a file");
        let mut strings = StringsBuffer::default();
        strings.push(b"part").expect("a short one");
        append(&log, &database, &Operation::transaction(strings.strings()));
        let path = path(folder.path(), 1);
        let mut bytes = std::fs::read(&path).expect("a file");
        let length = bytes.len() - 1 - b"part".len() - LENGTH_BYTES;
        bytes[length] = 0xff;
        std::fs::write(&path, bytes).expect("a file");
        let Err(Error::Corrupted { offset, .. }) = excerpts.next(log.end()) else {
            panic!("the length is damaged");
        };
        assert_eq!(offset, length as u64);
    }

    #[test]
    fn several_files_are_passed_to_the_next_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, database) = open_log(folder.path(), 1);
        let mut excerpts = Excerpts::from_end(&log, BODY_BYTES_MAX).expect("a file");
        let begun = log.end().file;
        for _ in 0..4 {
            append(&log, &database, &put(b"k", b""));
        }
        assert!(log.end().file >= begun + 3);
        assert_eq!(lengths(&mut excerpts, &log), [(PUT_BYTES + 1, PUT_BYTES + 1); 4]);
        assert_eq!(lengths(&mut excerpts, &log), []);
    }

    #[test]
    fn an_incomplete_header_is_no_change_after_the_end_and_damage_before_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, database) = open_log(folder.path(), 0);
        let mut excerpts = Excerpts::from_end(&log, BODY_BYTES_MAX).expect("a file");
        append(&log, &database, &put(b"k", b""));
        let end = log.end();
        let file = std::fs::OpenOptions::new().append(true).open(path(folder.path(), end.file));
        let header = [wire::update_log::ENTRY_MAGIC; ENTRY_HEADER_BYTES - 1];
        file.expect("a file").write_all(&header).expect("room");
        assert_eq!(lengths(&mut excerpts, &log), [(PUT_BYTES + 1, PUT_BYTES + 1)]);
        let next = LogOffset { file: end.file + 1, offset: 0 };
        let Err(Error::Corrupted { offset, what, .. }) = excerpts.next(next) else {
            panic!("the header is incomplete");
        };
        assert_eq!((offset, what), (end.offset, INCOMPLETE));
    }
}
