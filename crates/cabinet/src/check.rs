//! Checking a database's files, and saving what can be read of damaged ones.

use crate::io::RealStorage;
use crate::log::StoredKind;
use crate::log::check::Files;
use crate::log::record::Kind;
use crate::{Compression, Database, Error, Result, compress};
use std::path::{Path, PathBuf};

/// A place in a file that does not hold what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Byte offset at which it begins.
    pub offset: u64,
    /// What was found.
    pub what: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} at byte {}: {}", self.file.display(), self.offset, self.what)
    }
}

/// What [`check`] went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Segments of the log.
    pub segments: u64,
    /// Records in them, dead ones included.
    pub records: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Bytes behind the last record that are none: what a crash left, and the next opening cuts.
    pub torn_bytes: u64,
    /// Places that were reported.
    pub damages: u64,
}

/// Verifies every checksum of the database in a directory, which nobody has open, and reports
/// each place that is damaged. Changes nothing.
pub fn check(path: impl AsRef<Path>, report: &mut dyn FnMut(Damage)) -> Result<Checked> {
    let files = Files::open(&RealStorage, path.as_ref())?;
    let mut damages = 0;
    let mut report = |damage| {
        damages += 1;
        report(damage);
    };
    files.check_checkpoint(&mut report)?;
    let walked = files.walk(&mut |_| Ok(()), &mut report)?;
    Ok(Checked {
        segments: walked.segments,
        records: walked.records,
        bytes: walked.bytes,
        torn_bytes: walked.torn_bytes,
        damages,
    })
}

/// What [`salvage`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Changes that were made to the new database again, in their order.
    pub changes: u64,
    /// Values that could be read but not decompressed.
    pub unreadable: u64,
    /// Places that were reported.
    pub damages: u64,
}

/// Copies what can be read of a database, which nobody has open, into another. Where the newest
/// record of a key cannot be read, an older one may come back. Changes nothing in the first.
pub fn salvage(
    path: impl AsRef<Path>,
    into: &Database,
    report: &mut dyn FnMut(Damage),
) -> Result<Salvaged> {
    let files = Files::open(&RealStorage, path.as_ref())?;
    if files.nature.kind != StoredKind::Hash {
        let what = format!("salvaging a database of kind {:?}", files.nature.kind);
        return Err(Error::NotSupported(what));
    }
    let mut salvaged = Salvaged::default();
    let mut damages = 0;
    files.walk(
        &mut |record| {
            match record.kind {
                Kind::Put if record.compression == Compression::None => {
                    into.put_with(record.key, record.value, record.meta)?;
                }
                Kind::Put => match compress::decompress(record.value, record.compression) {
                    Ok(value) => {
                        into.put_with(record.key, &value, record.meta)?;
                    }
                    Err(_) => {
                        salvaged.unreadable += 1;
                        return Ok(());
                    }
                },
                Kind::Tombstone => {
                    into.remove(record.key)?;
                }
                _ => return Ok(()),
            }
            salvaged.changes += 1;
            Ok(())
        },
        &mut |damage| {
            damages += 1;
            report(damage);
        },
    )?;
    salvaged.damages = damages;
    into.sync()?;
    Ok(salvaged)
}
