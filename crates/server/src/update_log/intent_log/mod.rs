//! What a process that is killed would otherwise take with it: entries that are not in the file of
//! the log yet, and changes that were made but not logged.
//!
//! The journal is a mapped file, so what is appended to it outlives the process at once. A change
//! notes first which record it is about to make; then comes its entry, then that it is done. After
//! a kill the entries that the log lacks are added to it, and the records of changes that were not
//! done are logged as they are: nobody knows whether they were changed, and what they are is right
//! in either case.
//!
//! It goes on in a new file when one is full. The old one is removed when its entries are in the
//! log. It is for a killed process only: after the system itself has stopped it is ignored.

#[cfg(test)]
mod tests;

use super::Source;
use cabinet::io::{Appender, File, Open, RealStorage, Storage};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::Parse;
use wire::update_log::Entry;

/// Bytes of a file of the journal, unless an entry is longer.
const PART_BYTES: usize = 4 << 20;

/// Name of its files, before their number.
const PREFIX: &str = "journal.";

/// What a file begins with, before the identity of the system's present life.
const MAGIC: &[u8] = b"tyrant journal 2\n";

/// Kind, id of the change, length of what follows, checksum of all of it.
const HEADER_BYTES: usize = CHECKED_BYTES + 4;

/// Those before the checksum.
const CHECKED_BYTES: usize = 1 + 8 + 4;

const BEGUN: u8 = 1;
const ENTRY: u8 = 2;
const DONE: u8 = 3;

/// What a change is about to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The record under a key.
    Key(Vec<u8>),
    /// Any record.
    All,
}

/// A change that was begun and not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfinished {
    pub(crate) id: u64,
    /// Where it came from: it must not be sent back to there.
    pub(crate) source: Source,
    pub(crate) subject: Subject,
}

pub(super) struct IntentLog {
    folder: PathBuf,
    part: Part,
    /// Made ahead, so that writers do not wait for it.
    spare: Option<Part>,
    next_number: u64,
    /// Changes that were begun and are not done, as bytes of their subjects.
    begun: BTreeMap<u64, Vec<u8>>,
    /// Those of them that are done as soon as so many bytes of the log are written.
    lacking: Vec<(u64, u64)>,
    next_id: u64,
    /// Files that are full, each with the bytes that were ever appended to the log when it was.
    full: Vec<(PathBuf, u64)>,
    /// Bytes that were ever appended to the log.
    appended: u64,
}

/// One file.
struct Part {
    number: u64,
    path: PathBuf,
    appender: Appender,
    /// Keeps it mapped.
    _file: Arc<dyn File>,
}

/// What a journal has that the log lacks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Recovered {
    /// Whole entries, in their order.
    pub(super) entries: Vec<u8>,
    /// Time stamp of the last of them, or of the log.
    pub(super) last_timestamp_us: u64,
    unfinished: BTreeMap<u64, Vec<u8>>,
    /// There are files of another life of the system, which say nothing.
    is_of_other_life: bool,
}

impl Recovered {
    /// Reads the journal in a folder, whose log ends with `last_timestamp_us`.
    pub(super) fn of(folder: &Path, last_timestamp_us: u64) -> io::Result<Self> {
        let mut recovered = Self { last_timestamp_us, ..Self::default() };
        for (_, path) in parts(folder)? {
            let bytes = std::fs::read(&path)?;
            let Some(mut rest) = bytes.strip_prefix(&head()?[..]) else {
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

    /// Whether entries may be missing, or something from another server may come into the log
    /// without its root; and the time stamp of the first entry of a client, 0 without any.
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

    /// Whether there are files of another life of the system.
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

struct Record<'a> {
    kind: u8,
    id: u64,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at the beginning, and what follows; `None` at the end, which may be a record that
    /// was being written when the process was killed.
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
    /// Begins again, with what an earlier life has left unfinished, whose files are removed.
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
        for (_, path) in before {
            std::fs::remove_file(path)?;
        }
        Ok((intent_log, unfinished))
    }

    /// A change of the record under `key`, or of any, is about to be made; answers its id.
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

    /// An entry, with which so many bytes will ever have been appended to the log. If it cannot be
    /// taken, its change stays unfinished, see [`done_when_written`](Self::done_when_written).
    pub(super) fn entry(&mut self, bytes: &[u8], appended: u64) -> io::Result<()> {
        self.appended = appended;
        self.append(ENTRY, 0, bytes)
    }

    /// A change is done.
    pub(super) fn done(&mut self, id: u64) {
        if self.begun.remove(&id).is_some() {
            // If this cannot be taken, the record is logged once more after a kill.
            let _ = self.append(DONE, id, &[]);
        }
    }

    /// A change is done, but an entry of it is not here: if the log does not get it either, the
    /// record is to be logged as it is.
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
            false => Err(io::Error::other("an entry does not fit into the journal")),
        }
    }

    /// Goes on in a new file, where there is room for so many bytes.
    fn continue_in_new_part(&mut self, bytes: usize) -> io::Result<()> {
        let begun: usize = self.begun.values().map(|subject| HEADER_BYTES + subject.len()).sum();
        let needed = bytes + begun;
        let part = match self.spare.take() {
            Some(spare) if needed <= PART_BYTES / 2 => spare,
            spare => {
                // Its number is too low for what comes behind the new one.
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

    /// The log has been written up to so many bytes.
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

    /// Whether there are changes that are not done.
    pub(super) fn has_unfinished(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Removes all files.
    pub(super) fn remove(self) {
        self.full.iter().for_each(|(path, _)| remove(path));
        [Some(self.part), self.spare].into_iter().flatten().for_each(Part::remove);
    }

    /// The number of a file to be made ahead, if there is none.
    pub(super) fn next_spare_number(&mut self) -> Option<u64> {
        self.spare.is_none().then(|| {
            self.next_number += 1;
            self.next_number - 1
        })
    }

    /// Takes a file that was made ahead, unless others have been begun meanwhile: files are read in
    /// the order of their numbers.
    pub(super) fn add_spare(&mut self, Spare(spare): Spare) {
        if spare.number < self.part.number {
            spare.remove();
        } else {
            self.spare = Some(spare);
        }
    }
}

/// A file that was made ahead.
pub(super) struct Spare(Part);

impl Spare {
    pub(super) fn create(folder: &Path, number: u64) -> io::Result<Self> {
        Part::create(folder, number, PART_BYTES).map(Self)
    }
}

impl Part {
    fn create(folder: &Path, number: u64, bytes: usize) -> io::Result<Self> {
        let path = folder.join(format!("{PREFIX}{number:08}"));
        let file = RealStorage.open(&path, Open::New)?;
        let begun = Self::begin(&*file, bytes);
        if begun.is_err() {
            // On a full disk another one is tried again and again.
            remove(&path);
        }
        Ok(Self { number, path, appender: begun?, _file: file })
    }

    fn begin(file: &dyn File, bytes: usize) -> io::Result<Appender> {
        let head = head()?;
        let capacity = bytes + head.len();
        let map = file.map(capacity, 0)?;
        file.prepare(&map, capacity as u64)?;
        let mut appender = Appender::of(&map).ok_or_else(|| io::Error::other("a map in use"))?;
        if !appender.append(&[&head], head.len()) {
            return Err(io::Error::other("an intent log without space"));
        }
        Ok(appender)
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
        self.appender.append(&[&header, bytes], HEADER_BYTES + bytes.len())
    }
}

/// CRC-32C of a record: its parts may come to the file in any order.
fn checksum(head: &[u8], bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), bytes)
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!("update log: cannot remove {}: {error}", path.display());
    }
}

/// What a file begins with: nothing is said of one that was written before the system last started.
fn head() -> io::Result<Vec<u8>> {
    let mut head = MAGIC.to_vec();
    head.extend(std::fs::read("/proc/sys/kernel/random/boot_id")?);
    Ok(head)
}

/// The files of the journal in a folder, by their numbers.
fn parts(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut parts = Vec::new();
    for item in std::fs::read_dir(folder)? {
        let item = item?;
        let name = item.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            parts.push((number, item.path()));
        }
    }
    parts.sort_unstable();
    Ok(parts)
}
