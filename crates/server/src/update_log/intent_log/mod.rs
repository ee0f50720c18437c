//! Intent log: protects buffered log entries, and changes that are not logged yet, against a kill
//! of the process.
//!
//! The intent log is a mapped file, so appended records survive the process at once. A change first
//! records which record it is about to make, then its entry, then that it is done. After a kill,
//! entries that the update log lacks are added to it. Records of changes that are not done are
//! logged as they are: the log is right then, whether or not they were changed.
//!
//! When a part is full, a new one begins. A part is removed once its entries are in the update log.
//! The intent log covers a kill of the process only: it is ignored after a restart of the system.

#[cfg(test)]
mod tests;

use super::Source;
use cabinet::files::{AppendFile, page_cache_id, sync_folder};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use wire::Parse;
use wire::update_log::Entry;

/// Size of a part, unless an entry is longer, in bytes.
const PART_BYTES: usize = 4 << 20;

/// Prefix of the names of the parts, before their number.
const PREFIX: &str = "journal.";

/// First bytes of a part, before the boot id of the system.
const MAGIC: &[u8] = b"tyrant journal 2\n";

/// Header of a record: kind, id of the change, length of the rest, checksum of the whole record.
const HEADER_BYTES: usize = CHECKED_BYTES + 4;

/// Bytes of the header before the checksum.
const CHECKED_BYTES: usize = 1 + 8 + 4;

const BEGUN: u8 = 1;
const ENTRY: u8 = 2;
const DONE: u8 = 3;

/// Records that a change is about to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The record under a key.
    Key(Vec<u8>),
    /// Any record.
    All,
}

/// A change that was begun and is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfinished {
    pub(crate) id: u64,
    /// Source of the change. The change must not be sent back to it.
    pub(crate) source: Source,
    pub(crate) subject: Subject,
}

pub(super) struct IntentLog {
    folder: PathBuf,
    part: Part,
    /// Part that was made in advance, so that writers do not wait for it.
    spare: Option<Part>,
    next_number: u64,
    /// Subjects of the changes that are not done, by their ids.
    begun: BTreeMap<u64, Vec<u8>>,
    /// Changes that are done once the update log is written up to the given number of bytes.
    lacking: Vec<(u64, u64)>,
    next_id: u64,
    /// Full parts, each with the value of `appended` when the next one began.
    full: Vec<(PathBuf, u64)>,
    /// Number of bytes appended to the update log since opening.
    appended: u64,
}

/// One file of the intent log.
struct Part {
    number: u64,
    path: PathBuf,
    appender: AppendFile,
}

/// Contents of an intent log that the update log lacks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Recovered {
    /// Whole entries, in order.
    pub(super) entries: Vec<u8>,
    /// Time stamp of the last of them, or else of the update log.
    pub(super) last_timestamp_us: u64,
    unfinished: BTreeMap<u64, Vec<u8>>,
    /// Whether there are parts from before a restart of the system, which are ignored.
    is_of_other_life: bool,
}

impl Recovered {
    /// Reads the intent log in the folder of an update log whose last entry has
    /// `last_timestamp_us`.
    pub(super) fn of(folder: &Path, last_timestamp_us: u64) -> io::Result<Self> {
        let mut recovered = Self { last_timestamp_us, ..Self::default() };
        for (_, path) in parts(folder)? {
            let bytes = std::fs::read(&path)?;
            let Some(mut rest) = bytes.strip_prefix(&head(folder)?[..]) else {
                recovered.is_of_other_life = true;
                continue;
            };
            while let Some((record, behind)) = Record::split(rest) {
                recovered.take(&record);
                rest = behind;
            }
        }
        Ok(recovered)
    }

    /// Returns whether roots of entries may be missing, and the time stamp of the first own entry,
    /// 0 without any.
    pub(super) fn roots(&self) -> (bool, u64) {
        let is_foreign = |subject: &Vec<u8>| subject.get(2..4) != Some(&[0, 0]);
        let mut is_broken = self.unfinished.values().any(is_foreign);
        let mut own_us = 0;
        let mut rest = &self.entries[..];
        while let Parse::Complete(entry, length) = Entry::parse(rest) {
            is_broken |= entry.master != 0;
            if entry.master == 0 && own_us == 0 {
                own_us = entry.timestamp_us;
            }
            rest = &rest[length..];
        }
        (is_broken, own_us)
    }

    /// Returns whether there are parts from before a restart of the system.
    pub(super) fn is_of_other_life(&self) -> bool {
        self.is_of_other_life
    }

    fn take(&mut self, record: &Record<'_>) {
        match record.kind {
            BEGUN => {
                self.unfinished.insert(record.id, record.bytes.to_vec());
            }
            DONE => {
                self.unfinished.remove(&record.id);
            }
            _ => {
                if let Parse::Complete(entry, length) = Entry::parse(record.bytes)
                    && length == record.bytes.len()
                    && entry.timestamp_us > self.last_timestamp_us
                {
                    self.entries.extend_from_slice(record.bytes);
                    self.last_timestamp_us = entry.timestamp_us;
                }
            }
        }
    }
}

/// Returns whether a folder has parts, as while a log is open and after a crash.
pub(super) fn is_present(folder: &Path) -> io::Result<bool> {
    Ok(!parts(folder)?.is_empty())
}

struct Record<'a> {
    kind: u8,
    id: u64,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// Returns the first record and the remaining bytes. Returns `None` at the end, which may be a
    /// record that a kill left incomplete.
    fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = bytes.split_first_chunk::<CHECKED_BYTES>()?;
        let (sum, behind) = rest.split_first_chunk::<4>()?;
        let (&[kind, ref rest @ ..], length) = head.split_first_chunk::<9>()?;
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        if !matches!(kind, BEGUN | ENTRY | DONE) || length > behind.len() {
            return None;
        }
        let (bytes, behind) = behind.split_at(length);
        let is_whole = u32::from_le_bytes(*sum) == checksum(head, bytes);
        is_whole.then_some((Self { kind, id: u64::from_le_bytes(*rest), bytes }, behind))
    }
}

impl IntentLog {
    /// Begins an intent log with the unfinished changes of an earlier process, whose parts are
    /// removed.
    pub(super) fn begin(
        folder: &Path,
        recovered: &Recovered,
    ) -> io::Result<(Self, Vec<Unfinished>)> {
        let before = parts(folder)?;
        let number = before.last().map_or(1, |(number, _)| number + 1);
        let mut intent_log = Self {
            folder: folder.to_owned(),
            part: Part::create(folder, number, PART_BYTES)?,
            spare: None,
            next_number: number + 1,
            begun: BTreeMap::new(),
            lacking: Vec::new(),
            next_id: 1,
            full: Vec::new(),
            appended: 0,
        };
        let mut unfinished = Vec::new();
        for subject in recovered.unfinished.values() {
            let id = intent_log.note(subject.clone())?;
            let Some((&[o0, o1, m0, m1], subject)) = subject.split_first_chunk::<4>() else {
                continue;
            };
            let (origin, master) = (u16::from_le_bytes([o0, o1]), u16::from_le_bytes([m0, m1]));
            let subject = match subject.split_first() {
                Some((_, key)) => Subject::Key(key.to_vec()),
                None => Subject::All,
            };
            unfinished.push(Unfinished {
                id,
                source: Source { origin, master, root: None },
                subject,
            });
        }
        // After a loss of power, a part tells that the log was open.
        sync_folder(folder)?;
        for (_, path) in before {
            std::fs::remove_file(path)?;
        }
        Ok((intent_log, unfinished))
    }

    /// Records the beginning of a change of the record under `key`, or of any record. Returns its
    /// id.
    pub(super) fn change(&mut self, source: Source, key: Option<&[u8]>) -> io::Result<u64> {
        let (origin, master) = (source.origin.to_le_bytes(), source.master.to_le_bytes());
        self.note(match key {
            Some(key) => [&origin[..], &master, b"k", key].concat(),
            None => [origin, master].concat(),
        })
    }

    fn note(&mut self, subject: Vec<u8>) -> io::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        self.append(BEGUN, id, &subject)?;
        self.begun.insert(id, subject);
        Ok(id)
    }

    /// Records an entry. `appended` is the number of bytes in the update log and its buffer with
    /// it. After an error its change stays unfinished, see
    /// [`done_when_written`](Self::done_when_written).
    pub(super) fn entry(&mut self, bytes: &[u8], appended: u64) -> io::Result<()> {
        self.appended = appended;
        self.append(ENTRY, 0, bytes)
    }

    /// Records the end of a change.
    pub(super) fn done(&mut self, id: u64) {
        if self.begun.remove(&id).is_some() {
            // After an error, a kill causes the record to be logged once more.
            let _ = self.append(DONE, id, &[]);
        }
    }

    /// Records the end of a change whose entry could not be recorded. The change counts as
    /// unfinished until the entry is in the update log.
    pub(super) fn done_when_written(&mut self, id: u64) {
        self.lacking.push((id, self.appended));
    }

    fn append(&mut self, kind: u8, id: u64, bytes: &[u8]) -> io::Result<()> {
        if self.part.append(kind, id, bytes) {
            return Ok(());
        }
        self.continue_in_new_part(HEADER_BYTES + bytes.len())?;
        match self.part.append(kind, id, bytes) {
            true => Ok(()),
            false => Err(io::Error::other("an entry does not fit into a part of the intent log")),
        }
    }

    /// Begins a new part with space for `bytes` more bytes.
    fn continue_in_new_part(&mut self, bytes: usize) -> io::Result<()> {
        let begun: usize = self.begun.values().map(|subject| HEADER_BYTES + subject.len()).sum();
        let needed = bytes + begun;
        let part = match self.spare.take() {
            Some(spare) if needed <= PART_BYTES / 2 => spare,
            spare => {
                // The number of the spare part would be lower than that of the new one.
                spare.into_iter().for_each(Part::remove);
                let number = self.next_number;
                self.next_number += 1;
                Part::create(&self.folder, number, PART_BYTES.max(2 * needed))?
            }
        };
        let full = std::mem::replace(&mut self.part, part);
        self.full.push((full.path, self.appended));
        for (id, subject) in &self.begun {
            if !self.part.append(BEGUN, *id, subject) {
                return Err(io::Error::other("the intent log is full"));
            }
        }
        Ok(())
    }

    /// Removes parts whose entries are in the first `written` bytes of the update log.
    pub(super) fn forget(&mut self, written: u64) {
        while self.full.first().is_some_and(|(_, mark)| *mark <= written) {
            let (path, _) = self.full.remove(0);
            remove(&path);
        }
        for (id, _) in self.lacking.extract_if(.., |(_, mark)| *mark <= written).collect::<Vec<_>>()
        {
            self.done(id);
        }
    }

    /// Returns whether there are changes that are not done.
    pub(super) fn has_unfinished(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Removes all parts.
    pub(super) fn remove(self) {
        self.full.iter().for_each(|(path, _)| remove(path));
        [Some(self.part), self.spare].into_iter().flatten().for_each(Part::remove);
    }

    /// Returns the number of a spare part to be made, if there is none.
    pub(super) fn next_spare_number(&mut self) -> Option<u64> {
        self.spare.is_none().then(|| {
            self.next_number += 1;
            self.next_number - 1
        })
    }

    /// Adds a spare part, unless a later part has begun meanwhile: parts are read in the order of
    /// their numbers.
    pub(super) fn add_spare(&mut self, Spare(spare): Spare) {
        if spare.number < self.part.number {
            spare.remove();
        } else {
            self.spare = Some(spare);
        }
    }
}

/// Part that was made in advance.
pub(super) struct Spare(Part);

impl Spare {
    pub(super) fn create(folder: &Path, number: u64) -> io::Result<Self> {
        Part::create(folder, number, PART_BYTES).map(Self)
    }
}

impl Part {
    fn create(folder: &Path, number: u64, bytes: usize) -> io::Result<Self> {
        let path = folder.join(format!("{PREFIX}{number:08}"));
        let head = head(folder)?;
        // On a full disk this is repeated often, so no file is left.
        let mut appender = AppendFile::create(&path, bytes + head.len())?;
        if !appender.append(&[&head]) {
            remove(&path);
            return Err(io::Error::other("the intent log has no space for its header"));
        }
        Ok(Self { number, path, appender })
    }

    fn remove(self) {
        remove(&self.path);
    }

    fn append(&mut self, kind: u8, id: u64, bytes: &[u8]) -> bool {
        let Ok(length) = u32::try_from(bytes.len()) else { return false };
        let mut header = [0; HEADER_BYTES];
        header[0] = kind;
        header[1..9].copy_from_slice(&id.to_le_bytes());
        header[9..CHECKED_BYTES].copy_from_slice(&length.to_le_bytes());
        let sum = checksum(&header[..CHECKED_BYTES], bytes);
        header[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        self.appender.append(&[&header, bytes])
    }
}

/// Returns the CRC-32C of a record. Pages of a record may reach the file in any order.
fn checksum(head: &[u8], bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), bytes)
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!("update log: cannot remove {}: {error}", path.display());
    }
}

/// Returns the first bytes of a part. Parts from before a restart of the system have another
/// identity of the page cache.
fn head(folder: &Path) -> io::Result<Vec<u8>> {
    let mut head = MAGIC.to_vec();
    head.extend(page_cache_id(folder)?);
    Ok(head)
}

/// Returns the parts in a folder, by their numbers.
fn parts(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    super::parts::parts(folder, PREFIX)
}
