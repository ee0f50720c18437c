//! Catalogs: list the files of a backup, as lines of text.

use super::sums::{BLOCK_BYTES, Sums};
use cabinet::name::Kind;
use cabinet::{Damage, Inventory};
use std::fmt::Write;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const FIRST_LINE: &str = "tyrant backup\t1";

/// Longest catalog, in bytes: far more than the largest log needs.
pub(super) const CATALOG_BYTES_MAX: u64 = 256 << 20;

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// Time of the backup, in microseconds since 1970.
    pub(crate) made_us: u64,
    /// Kind of database.
    pub(crate) kind: Kind,
    /// Id of the database.
    pub(super) database_id: u64,
    /// Time stamp up to which the backup contains the update log, if there was one.
    pub(crate) position_us: Option<u64>,
    /// Identity of that log, if it is known.
    pub(super) log: Option<String>,
    /// Bytes that were new in this backup.
    pub(crate) copied_bytes: u64,
    pub(super) files: Vec<FileEntry>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileEntry {
    /// Name of the file in the database.
    pub(super) name: String,
    pub(super) sums: Sums,
    /// The source file, if it cannot have changed since.
    pub(super) stamp: Option<Stamp>,
}

/// Identifies a file of a log among all files of a machine. While the stamp is the same, the file
/// is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    modified_ns: u64,
    bytes: u64,
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        // It is only compared for equality.
        let modified_ns = metadata.mtime().wrapping_mul(1_000_000_000) + metadata.mtime_nsec();
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            modified_ns: modified_ns as u64,
            bytes: metadata.len(),
        }
    }
}

impl FileEntry {
    /// Returns the name of the file in the repository.
    pub(super) fn object(&self) -> String {
        object(&self.name, &self.sums)
    }
}

/// Returns the name of a file with these sums in a repository.
pub(super) fn object(name: &str, sums: &Sums) -> String {
    format!("{name}.{:032x}", sums.digest)
}

impl Catalog {
    /// Returns the number of files.
    pub(crate) fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Returns the bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.sums.bytes).sum()
    }

    pub(super) fn encode(&self) -> String {
        let mut text = format!("{FIRST_LINE}\nmade\t{}\n", self.made_us);
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "kind\t{}", kind_name(self.kind));
        let _ = writeln!(text, "identity\t{:016x}", self.database_id);
        if let Some(position_us) = self.position_us {
            let _ = writeln!(text, "position\t{position_us}");
        }
        if let Some(log) = &self.log {
            let _ = writeln!(text, "log\t{log}");
        }
        let _ = writeln!(text, "copied\t{}", self.copied_bytes);
        for FileEntry { name, sums, stamp } in &self.files {
            let _ = write!(text, "file\t{name}\t{}\t{:032x}\t", sums.bytes, sums.digest);
            match stamp {
                None => text.push('-'),
                Some(Stamp { device, inode, modified_ns, bytes: _ }) => {
                    let _ = write!(text, "{device:x}.{inode:x}.{modified_ns:x}");
                }
            }
            text.push('\t');
            for block in &sums.blocks {
                let _ = write!(text, "{block:08x}");
            }
            text.push('\n');
        }
        let _ = writeln!(text, "end\t{:08x}", crc32c::crc32c(text.as_bytes()));
        text
    }

    /// Parses the text of [`encode`](Self::encode). `path` is the file that it was read from.
    pub(super) fn decode(text: &str, path: &Path) -> Result<Self, Damage> {
        let damage = |offset: usize, what: &str| Damage {
            file: path.to_owned(),
            offset: offset as u64,
            what: what.into(),
        };
        let end = text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
        let sum = text[end..].strip_prefix("end\t").and_then(|rest| rest.strip_suffix('\n'));
        if sum != Some(&format!("{:08x}", crc32c::crc32c(&text.as_bytes()[..end]))) {
            return Err(damage(0, "the checksum does not match"));
        }
        let mut lines = text[..end].lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(damage(0, "unknown version of the format"));
        }
        let mut found = CatalogFields::default();
        for line in lines {
            let offset = line.as_ptr() as usize - text.as_ptr() as usize;
            found.line(line).ok_or_else(|| damage(offset, "invalid line"))?;
        }
        found.catalog().ok_or_else(|| damage(0, "lines are missing"))
    }
}

/// Fields of a catalog that is being parsed.
#[derive(Default)]
struct CatalogFields {
    made_us: Option<u64>,
    kind: Option<Kind>,
    database_id: Option<u64>,
    position_us: Option<u64>,
    log: Option<String>,
    copied_bytes: Option<u64>,
    files: Vec<FileEntry>,
}

impl CatalogFields {
    fn line(&mut self, line: &str) -> Option<()> {
        let (name, value) = line.split_once('\t')?;
        match name {
            "made" => self.made_us = Some(value.parse().ok()?),
            "kind" => self.kind = Some(KINDS.iter().find(|(_, word)| *word == value)?.0),
            "identity" => self.database_id = Some(u64::from_str_radix(value, 16).ok()?),
            "position" => self.position_us = Some(value.parse().ok()?),
            "log" => self.log = Some(value.to_owned()),
            "copied" => self.copied_bytes = Some(value.parse().ok()?),
            "file" => self.files.push(entry(value)?),
            _ => return None,
        }
        Some(())
    }

    fn catalog(self) -> Option<Catalog> {
        Some(Catalog {
            made_us: self.made_us?,
            kind: self.kind?,
            database_id: self.database_id?,
            position_us: self.position_us,
            log: self.log,
            copied_bytes: self.copied_bytes?,
            files: self.files,
        })
    }
}

fn entry(value: &str) -> Option<FileEntry> {
    let mut fields = value.split('\t');
    let name = fields.next().filter(|name| Inventory::is_file_name(name))?.to_owned();
    let bytes: u64 = fields.next()?.parse().ok()?;
    let digest = u128::from_str_radix(fields.next()?, 16).ok()?;
    let stamp = match fields.next()? {
        "-" => None,
        stamp => {
            let mut numbers = stamp.split('.').map(|text| u64::from_str_radix(text, 16).ok());
            let mut next = || numbers.next()?;
            Some(Stamp { device: next()?, inode: next()?, modified_ns: next()?, bytes })
        }
    };
    let (blocks, []) = fields.next()?.as_bytes().as_chunks::<8>() else { return None };
    let number = |digits: &[u8; 8]| {
        std::str::from_utf8(digits).ok().and_then(|digits| u32::from_str_radix(digits, 16).ok())
    };
    let blocks: Vec<u32> = blocks.iter().map(number).collect::<Option<_>>()?;
    let is_whole = blocks.len() as u64 == bytes.div_ceil(BLOCK_BYTES as u64);
    (is_whole && fields.next().is_none()).then_some(FileEntry {
        name,
        sums: Sums { bytes, digest, blocks },
        stamp,
    })
}

/// Kinds of database, and their names in a catalog.
const KINDS: &[(Kind, &str)] =
    &[(Kind::Hash, "hash"), (Kind::Tree, "tree"), (Kind::Fixed, "fixed"), (Kind::Table, "table")];

fn kind_name(kind: Kind) -> &'static str {
    KINDS.iter().find(|(other, _)| *other == kind).map_or("memory", |(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let sums = Sums { bytes: BLOCK_BYTES as u64 + 1, digest: 5, blocks: vec![1, u32::MAX] };
        let stamp = Some(Stamp { device: 1, inode: 2, modified_ns: 3, bytes: sums.bytes });
        let none = Sums { bytes: 0, digest: u128::MAX, blocks: Vec::new() };
        Catalog {
            made_us: 7,
            kind: Kind::Table,
            database_id: 0xfeed,
            position_us: Some(6),
            log: None,
            copied_bytes: 9,
            files: vec![
                FileEntry { name: "0000000001.log".into(), sums, stamp },
                FileEntry { name: "manifest".into(), sums: none, stamp: None },
            ],
        }
    }

    #[test]
    fn a_catalog_round_trips() {
        let mut catalog = catalog();
        for position_us in [None, Some(6)] {
            catalog.position_us = position_us;
            catalog.log = position_us.map(|_| "a-log".to_owned());
            assert_eq!(Catalog::decode(&catalog.encode(), Path::new("c")), Ok(catalog.clone()));
        }
    }

    #[test]
    fn damaged_and_truncated_catalogs_are_refused() {
        let text = catalog().encode();
        for at in 0..text.len() {
            Catalog::decode(&text[..at], Path::new("c")).unwrap_err();
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1;
            if let Ok(damaged) = String::from_utf8(damaged) {
                Catalog::decode(&damaged, Path::new("c")).unwrap_err();
            }
        }
    }

    #[test]
    fn a_catalog_names_only_files_of_a_database() {
        for name in ["../casket.tch", "a", "", "1.log", "position", "0000000001.log/.."] {
            let mut catalog = catalog();
            catalog.files[0].name = name.into();
            let damage = Catalog::decode(&catalog.encode(), Path::new("c")).unwrap_err();
            assert!(damage.offset > 0, "{damage}");
        }
    }
}
