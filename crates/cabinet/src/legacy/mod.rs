//! Reader of Tokyo Cabinet's own files: hash, B+ tree, fixed-length and table, with all options and
//! both byte orders.
//!
//! A [`File`] is never written to, and never held in memory as a whole. If a process ended during a
//! transaction, the transaction's log is taken into account without being applied. Damage is
//! reported with its offset, and the rest is read:
//!
//! ```no_run
//! use cabinet::legacy::{File, Item, Visit};
//! use std::ops::ControlFlow;
//!
//! struct Print;
//!
//! impl Visit for Print {
//!     fn item(&mut self, item: &Item<'_>) -> ControlFlow<()> {
//!         println!("{:?}", item.key());
//!         ControlFlow::Continue(())
//!     }
//!
//!     fn damage(&mut self, damage: cabinet::Damage) {
//!         eprintln!("{damage}");
//!     }
//! }
//!
//! # fn main() -> cabinet::Result<()> {
//! let file = File::open("casket.tch".as_ref())?;
//! println!("{} records", file.header().records);
//! file.read(&mut Print)?;
//! # Ok(())
//! # }
//! ```
//!
//! The format is described in `docs/formats/tokyocabinet.md`.

mod block;
mod codec;
mod fixed;
mod hash;
mod header;
mod index;
mod number;
mod source;
mod table;
mod tcbs;
mod tree;
mod undo;

pub use codec::Codec;
pub use header::{Header, Shape};
pub use number::ByteOrder;
#[cfg(feature = "internals")]
pub use tcbs::{
    decode as decode_tcbs, decode_while as decode_tcbs_while, encode as encode_tcbs,
    encode_while as encode_tcbs_while,
};

use crate::base::column_index::IndexDescription;
use crate::{Damage, Error, Kind, Result};
use block::Layout;
use header::HEADER_BYTES;
use source::ReadAt;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use undo::Undo;

/// Item of a file, passed to a [`Visit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Item<'a> {
    /// A record of a hash or fixed-length file. In the latter, the key is the record's number as
    /// text.
    Record {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// All records of one key of a B+ tree.
    Duplicates {
        /// The key.
        key: &'a [u8],
        /// The values, at least one, in order.
        values: &'a [&'a [u8]],
    },
    /// A row of a table.
    Row {
        /// The primary key.
        key: &'a [u8],
        /// Name and value of each column, in order.
        columns: &'a [(&'a [u8], &'a [u8])],
    },
}

impl<'a> Item<'a> {
    /// Returns the key.
    pub fn key(&self) -> &'a [u8] {
        match self {
            Self::Record { key, .. } | Self::Duplicates { key, .. } | Self::Row { key, .. } => key,
        }
    }

    /// Returns the number of records that the item has.
    pub fn records(&self) -> u64 {
        match self {
            Self::Duplicates { values, .. } => values.len() as u64,
            _ => 1,
        }
    }
}

/// Receiver of the contents of a file.
pub trait Visit {
    /// Receives an item. Breaking ends the reading.
    fn item(&mut self, item: &Item<'_>) -> ControlFlow<()>;

    /// Receives a damaged place.
    fn damage(&mut self, damage: Damage);
}

/// One of Tokyo Cabinet's files.
pub struct File {
    path: PathBuf,
    source: Undone,
    length: u64,
    header: Header,
    was_open: bool,
    is_plain: bool,
}

/// A file as it was before the transaction that its log undoes.
struct Undone {
    file: Box<dyn ReadAt>,
    undo: Option<Undo>,
}

impl ReadAt for Undone {
    fn length(&self) -> io::Result<u64> {
        let length = self.file.length()?;
        Ok(self.undo.as_ref().map_or(length, |undo| undo.length.min(length)))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.file.read_at(buffer, offset)?;
        if let Some(undo) = &self.undo {
            undo.apply(&mut buffer[..count], offset)?;
        }
        Ok(count)
    }
}

/// Returns whether a path is a regular file that begins like Tokyo Cabinet's files.
pub fn is_legacy(path: &Path) -> bool {
    // Opening a pipe would wait for its writer.
    if !path.is_file() {
        return false;
    }
    let mut bytes = [0; HEADER_BYTES];
    let filled = fs::File::open(path).and_then(|file| file.fill(&mut bytes, 0));
    filled.is_ok_and(|count| count == bytes.len()) && header::is_magic(&bytes)
}

/// Returns the error that names the kind of the file at a path, and how to import it.
pub(crate) fn refusal(path: &Path) -> Error {
    let what = match File::open(path).map(|file| file.header.kind) {
        Ok(Kind::Hash) => "a hash database of Tokyo Cabinet",
        Ok(Kind::Tree) => "a B+ tree of Tokyo Cabinet",
        Ok(Kind::Fixed) => "a fixed-length database of Tokyo Cabinet",
        Ok(Kind::Table) => "a table of Tokyo Cabinet",
        _ => "a file of Tokyo Cabinet",
    };
    Error::LegacyFile { path: path.to_owned(), what }
}

impl File {
    /// Opens a file, and the log of its transaction, `X.wal`, if it was not closed.
    pub fn open(path: &Path) -> Result<Self> {
        let at =
            |operation, path: &Path, source| Error::Io { operation, path: path.to_owned(), source };
        let metadata = fs::metadata(path).map_err(|error| at("open", path, error))?;
        if !metadata.is_file() {
            return Err(not_legacy(path, "no regular file"));
        }
        let file = fs::File::open(path).map_err(|error| at("open", path, error))?;
        let mut log_path = path.as_os_str().to_owned();
        log_path.push(".wal");
        let log_path = Path::new(&log_path);
        let log: Option<Box<dyn ReadAt>> = match log_path.is_file() {
            true => Some(Box::new(fs::File::open(log_path).map_err(|e| at("open", log_path, e))?)),
            false => None,
        };
        Self::new(path, Box::new(file), log)
    }

    /// Opens a file in memory, with the log of its transaction.
    pub fn from_bytes(bytes: Vec<u8>, log: Option<Vec<u8>>) -> Result<Self> {
        let log = log.map(|log| Box::new(log) as Box<dyn ReadAt>);
        Self::new(Path::new("(memory)"), Box::new(bytes), log)
    }

    fn new(path: &Path, file: Box<dyn ReadAt>, log: Option<Box<dyn ReadAt>>) -> Result<Self> {
        let failed = |source| Error::Io { operation: "read", path: path.to_owned(), source };
        let mut source = Undone { file, undo: None };
        let mut length = source.length().map_err(failed)?;
        let mut header = read_header(path, &source, length)?;
        let was_open = header.is_open;
        if was_open && let Some(log) = log {
            source.undo = Undo::read(log, header.byte_order).map_err(failed)?;
            length = source.length().map_err(failed)?;
            header = read_header(path, &source, length)?;
        }
        Ok(Self { path: path.to_owned(), source, length, header, was_open, is_plain: false })
    }

    /// Returns the file's header, after undoing an unfinished transaction.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether a process ended without closing the file.
    pub fn was_open(&self) -> bool {
        self.was_open
    }

    /// Returns the number of changes undone, if a transaction was unfinished.
    pub fn undone_changes(&self) -> Option<usize> {
        self.source.undo.as_ref().map(|undo| undo.changes)
    }

    /// Returns the indices of a table; none for other kinds.
    pub fn indices(&self) -> Result<Vec<IndexDescription>> {
        match self.header.shape {
            Shape::Table { .. } => index::list(&self.path).map_err(|error| self.failed(error)),
            _ => Ok(Vec::new()),
        }
    }

    /// Reads values as stored, although the header says that functions of the application encoded
    /// them. This is right for files that the tools wrote without these functions.
    pub fn assume_plain(&mut self) {
        self.is_plain = true;
    }

    /// Calls `visit` with all items: of a B+ tree in the order of keys, of a fixed-length file by
    /// number, of others in no order. Fails if the file is unreadable as a whole, or if functions
    /// of the application encoded its values; see [`File::assume_plain`].
    pub fn read(&self, visit: &mut dyn Visit) -> Result<()> {
        let header = &self.header;
        let codec = match header.codec {
            Codec::External if self.is_plain => Codec::Plain,
            Codec::External => {
                return Err(Error::InvalidArgument(format!(
                    "functions of the application that wrote {} have encoded its values: decode \
                     them there, or call File::assume_plain first if they are plain",
                    self.path.display()
                )));
            }
            codec => codec,
        };
        let mut output = Output { path: &self.path, visit, records: 0, damages: 0 };
        if !self.was_open && header.used_bytes > self.length {
            let missing = header.used_bytes - self.length;
            output.damage(self.length, format!("the file ends {missing} bytes early"));
        }
        let coding = (codec, header.byte_order);
        let layout = Layout::of(header, self.length);
        let flow = match header.shape {
            Shape::Hash => hash::read(&self.source, layout, coding, &mut output, hash::show_record),
            Shape::Table { .. } => {
                hash::read(&self.source, layout, coding, &mut output, table::show)
            }
            Shape::Tree { order, first_leaf, .. } => {
                tree::read(&self.source, layout, coding, (order, first_leaf), &mut output)
            }
            Shape::Fixed { width, .. } => {
                fixed::read(&self.source, self.length, width, header.byte_order, &mut output)
            }
        };
        let flow = flow.map_err(|error| self.failed(error))?;
        let (found, expected) = (output.records, header.records);
        let is_known = !self.was_open || self.source.undo.is_some();
        if flow.is_continue() && is_known && output.damages == 0 && found != expected {
            let what = format!("the header has {expected} records, but {found} were found");
            output.damage(0, what);
        }
        Ok(())
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Io { operation: "read", path: self.path.clone(), source }
    }
}

fn not_legacy(path: &Path, found: &str) -> Error {
    let (found, wanted) = (found.to_owned(), "a file of Tokyo Cabinet".to_owned());
    Error::WrongKind { path: path.to_owned(), found, wanted }
}

fn read_header(path: &Path, source: &Undone, length: u64) -> Result<Header> {
    let mut bytes = [0; HEADER_BYTES];
    let filled = source.fill(&mut bytes, 0);
    let filled =
        filled.map_err(|source| Error::Io { operation: "read", path: path.to_owned(), source })?;
    if filled < HEADER_BYTES || !header::is_magic(&bytes) {
        return Err(not_legacy(path, "a file of another program"));
    }
    Header::parse(&bytes, length).map_err(|what| Error::Corrupted {
        file: path.to_owned(),
        offset: 0,
        what: what.into(),
    })
}

/// Passes on items, and damage together with its file.
struct Output<'a> {
    path: &'a Path,
    visit: &'a mut dyn Visit,
    records: u64,
    damages: u64,
}

impl Output<'_> {
    fn item(&mut self, item: &Item<'_>) -> ControlFlow<()> {
        self.records += item.records();
        self.visit.item(item)
    }

    fn damage(&mut self, offset: u64, what: impl Into<String>) {
        self.damages += 1;
        self.visit.damage(Damage { file: self.path.to_owned(), offset, what: what.into() });
    }
}
