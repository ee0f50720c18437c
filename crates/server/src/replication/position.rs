//! Replica position, in the file of `-rts`.
//!
//! The file holds the time stamp up to which all operations are executed, in decimal, with a line
//! end, as Tokyo Tyrant's. It is written after each batch. Operations executed beyond it are noted
//! by log in [`PartitionProgress`], in the file with extension `.lanes`. The identity of the
//! master's log is in the file with extension `.log`. During an initial sync there is a file with
//! extension `.seeding`; one with extension `.inexact` says that the records may differ from the
//! master's, and why. The file with extension `.database` has the identity and the path of the
//! database whose position it is: one that is restored, or another one, would lack what lies before
//! it.

use super::partition_progress::{Notes, PartitionProgress};
use crate::durable_file;
use crate::store::gate::FirstChange;
use crate::store::position_file::{CopyPosition, is_of_copy};
use crate::update_log::identity::{identity_of, present_identity};
use crate::update_log::name_of;
use cabinet::files::folder_of;
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::replication::LogProgress;

/// Extension of the file with the identity of the position's log.
const LOG: &str = ".log";

/// Extension of the file that notes that the records may differ from the master's.
const INEXACT: &str = ".inexact";

/// Its text if the reason is changes by clients, which are in the update log.
const CHANGED_HERE: &str = "changed by clients\n";

/// Extension of the file that names the database of the position.
const DATABASE: &str = ".database";

/// Whose position a file has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// This database's.
    This,
    /// That of a database which this one has replaced.
    Replaced,
    /// That of the database of this path.
    Other(PathBuf),
}

/// Reason why the records may differ from the master's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inexact {
    /// Operations may have been executed twice or missed, or there were other records before.
    Operations,
    /// Clients have changed records since it was last a read-only replica. Its update log has what
    /// they changed.
    ChangedHere,
}

impl fmt::Display for Inexact {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Operations => "changes were made here, executed twice or missed",
            Self::ChangedHere => "clients have changed them here, and what only they have stays",
        })
    }
}

/// The files of the position of a database, noting that clients change it.
#[derive(Debug)]
pub(super) struct ChangesHere {
    /// The position file.
    pub(super) position: PathBuf,
    pub(super) database: PathBuf,
    /// Whether an update log has what they change.
    pub(super) is_logged: bool,
    /// Held while the note is written.
    pub(super) writing: Mutex<()>,
}

impl FirstChange for ChangesHere {
    fn note(&self) -> cabinet::Result<()> {
        let path = beside(&self.position, INEXACT);
        let noted = self.try_note(&path);
        noted.map_err(|source| cabinet::Error::Io { operation: "create", path, source })
    }
}

impl ChangesHere {
    fn try_note(&self, note: &Path) -> std::io::Result<()> {
        // A file that is not there, or holds no position, does not belong to a replica.
        let Ok(text) = std::fs::read_to_string(&self.position) else { return Ok(()) };
        let Ok(stored) = StoredPosition::parse(&text, None) else { return Ok(()) };
        let is_own = !self.database.is_dir()
            || owner(&self.position, stored.timestamp_us, &self.database)? == Owner::This;
        if !is_own {
            return Ok(());
        }
        let _writing = self.writing.lock();
        let noted = inexact(&self.position);
        // A log that has one change has not those that were made without it.
        let text = match noted {
            Some(Inexact::Operations) => return Ok(()),
            Some(Inexact::ChangedHere) if self.is_logged => return Ok(()),
            _ if self.is_logged => CHANGED_HERE,
            _ => "",
        };
        durable_file::replace(note, text.as_bytes())
    }
}

/// Position file, and the files beside it.
pub(super) struct Position {
    path: PathBuf,
    file: File,
    partitions: Arc<PartitionProgress>,
    timestamp_us: u64,
    /// Length of the file, in bytes.
    length: usize,
    /// Identity of the position's log, if it is known.
    log: Option<String>,
    /// Validity of the notes beside the file when it was opened.
    notes: Notes,
}

/// Time stamp and log of a position, as read from the files.
struct StoredPosition {
    timestamp_us: u64,
    /// Time stamp in the position file.
    written_us: u64,
    log: Option<String>,
    /// Whether the position was about to change to that log.
    is_new: bool,
}

impl StoredPosition {
    /// Parses the text of the position file and that of the file with the log.
    fn parse(text: &str, log: Option<&str>) -> std::io::Result<Self> {
        let digits = text.trim_start().bytes().take_while(u8::is_ascii_digit).count();
        let timestamp_us = match &text.trim_start()[..digits] {
            "" if text.trim().is_empty() => 0,
            number => number.parse().map_err(|_| {
                std::io::Error::new(std::io::ErrorKind::InvalidData, "it holds no time stamp")
            })?,
        };
        // That of a copied database has the log in itself.
        let copied = CopyPosition::parse(text).and_then(|copied| copied.log);
        let log = log.or(copied.as_deref());
        let mut words = log.unwrap_or_default().split_whitespace();
        let log = words.next().map(str::to_owned);
        match words.next().and_then(|word| word.parse().ok()) {
            Some(new_us) => {
                Ok(Self { timestamp_us: new_us, written_us: timestamp_us, log, is_new: true })
            }
            None => Ok(Self { timestamp_us, written_us: timestamp_us, log, is_new: false }),
        }
    }
}

/// Returns the progress of the replica with this position file, as the files have it at present. It
/// is empty if unknown.
pub(super) fn log_progress(path: &Path) -> Vec<LogProgress> {
    let read = || {
        let text = std::fs::read_to_string(path).ok()?;
        let log = std::fs::read_to_string(beside(path, LOG)).ok()?;
        let stored = StoredPosition::parse(&text, Some(&log)).ok()?;
        let log = name_of(&stored.log?);
        let position = |progress| with_position(progress, log, stored.timestamp_us);
        // After a reboot only the position is valid.
        let progress =
            PartitionProgress::read(&beside(path, ".lanes"), stored.written_us).map(position);
        Some(progress.unwrap_or_else(|| vec![LogProgress::up_to(log, stored.timestamp_us)]))
    };
    read().unwrap_or_default()
}

/// Adds that all operations of the position's log were executed up to the position.
fn with_position(mut progress: Vec<LogProgress>, log: u64, timestamp_us: u64) -> Vec<LogProgress> {
    for progress in progress.iter_mut().filter(|progress| progress.log == log) {
        progress.base_us = progress.base_us.max(timestamp_us);
        progress
            .partitions_us
            .iter_mut()
            .for_each(|partition_us| *partition_us = timestamp_us.max(*partition_us));
    }
    progress
}

impl Position {
    /// Opens the file. Without a file no operation was executed yet.
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        let (file, text) = open(path)?;
        let log = std::fs::read_to_string(beside(path, LOG)).ok();
        let has_log = log.is_some();
        let StoredPosition { timestamp_us, written_us, log, is_new } =
            StoredPosition::parse(&text, log.as_deref())?;
        let positions_us = [timestamp_us, written_us];
        let (partitions, notes) = PartitionProgress::open(&beside(path, ".lanes"), &positions_us)?;
        let (path, partitions, length) = (path.to_owned(), Arc::new(partitions), text.len());
        let mut position = Self { path, file, partitions, timestamp_us, length, log, notes };
        if is_new && let Some(log) = position.log.take() {
            position.switch(timestamp_us, &log)?;
        } else if !has_log && let Some(log) = &position.log {
            // The next position has no second line.
            position.write_log(&format!("{log}\n"))?;
        }
        Ok(position)
    }

    /// Returns whose position this is, for the database in `folder`.
    pub(super) fn owner(&self, folder: &Path) -> std::io::Result<Owner> {
        owner(&self.path, self.timestamp_us, folder)
    }

    /// Notes that this is the position of the database in `folder`.
    pub(super) fn bind(&self, folder: &Path) -> std::io::Result<()> {
        let path = std::path::absolute(folder)?;
        // The identity comes first: without a note a position is accepted.
        let identity = identity_of(folder).map_err(std::io::Error::other)?;
        let mut note = format!("{identity} ").into_bytes();
        note.extend_from_slice(path.as_os_str().as_bytes());
        note.push(b'\n');
        if std::fs::read(beside(&self.path, DATABASE)).is_ok_and(|present| present == note) {
            return Ok(());
        }
        durable_file::replace(&beside(&self.path, DATABASE), &note)
    }

    /// Returns whether the database is part of an incomplete copy.
    pub(super) fn is_seeding(&self) -> bool {
        is_seeding(&self.path)
    }

    /// Marks the database as an incomplete copy, before the copy begins.
    pub(super) fn begin_seeding(&mut self) -> std::io::Result<()> {
        File::create(mark(&self.path))?.sync_all()?;
        sync_folder(&self.path)
    }

    /// Marks the copy as complete and durable up to `timestamp_us`. If `is_exact`, the records are
    /// the master's.
    pub(super) fn end_seeding(&mut self, timestamp_us: u64, is_exact: bool) -> std::io::Result<()> {
        self.set(timestamp_us)?;
        self.file.sync_all()?;
        if is_exact {
            self.note_exact()?;
        }
        std::fs::remove_file(mark(&self.path))?;
        sync_folder(&self.path)
    }

    /// Returns why the records may differ from the master's, if they may.
    pub(super) fn inexact(&self) -> Option<Inexact> {
        inexact(&self.path)
    }

    /// Notes that operations may be executed twice or missed, before they are.
    pub(super) fn note_inexact(&self) -> std::io::Result<()> {
        File::create(beside(&self.path, INEXACT))?.sync_all()?;
        sync_folder(&self.path)
    }

    /// Notes that the records do not differ from the master's.
    pub(super) fn note_exact(&self) -> std::io::Result<()> {
        remove(&beside(&self.path, INEXACT))
    }

    /// Returns the notes of operations executed beyond the position.
    pub(super) fn partitions(&self) -> &Arc<PartitionProgress> {
        &self.partitions
    }

    /// Returns the time stamp of the last executed operation, 0 for none.
    pub(super) fn timestamp_us(&self) -> u64 {
        self.timestamp_us
    }

    /// Makes the position that of a database without records, or of other records than before.
    pub(super) fn begin_again(&mut self) -> std::io::Result<()> {
        self.set(0)?;
        self.note_exact()
    }

    /// Sets the position, whatever was executed.
    pub(super) fn set(&mut self, timestamp_us: u64) -> std::io::Result<()> {
        self.partitions.clear();
        self.forget_log()?;
        self.advance(timestamp_us)
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether this server has written the position since the last boot of the system.
    pub(super) fn is_noted(&self) -> bool {
        self.notes == Notes::Valid
    }

    /// Returns whether the system has stopped while the replica ran, so that position and database
    /// may be of different times.
    pub(super) fn has_crashed(&self) -> bool {
        self.notes == Notes::Crashed && self.timestamp_us > 0
    }

    /// Notes that the replica has stopped, unless operations beyond the position were executed. The
    /// database has to be durable.
    pub(super) fn close(&self) -> std::io::Result<()> {
        let log = self.log.as_deref().map_or(0, name_of);
        let progress = self.log_progress();
        let mut own = progress.iter().filter(|progress| progress.log == log);
        if own.any(|own| own.partitions_us.iter().any(|done_us| *done_us > self.timestamp_us)) {
            return Ok(());
        }
        self.file.sync_all()?;
        self.partitions.close(&beside(&self.path, ".lanes"))
    }

    /// Returns the progress in each known log.
    pub(super) fn log_progress(&self) -> Vec<LogProgress> {
        let log = self.log.as_deref().map_or(0, name_of);
        with_position(self.partitions.logs(), log, self.timestamp_us)
    }

    /// Changes the position to one in another log, with known progress beyond it. A killed process
    /// leaves either position.
    pub(super) fn switch(&mut self, timestamp_us: u64, identity: &str) -> std::io::Result<()> {
        // The next operations are not after the last position in the old log.
        let progress = self.log_progress();
        let bases: Vec<_> =
            progress.iter().map(|progress| (progress.log, progress.base_us)).collect();
        self.partitions.learn(&bases);
        self.write_log(&format!("{identity} {timestamp_us}\n"))?;
        self.advance(timestamp_us)?;
        self.log = None;
        self.adopt_log(identity)
    }

    /// Returns the identity of the position's log, if it is known.
    pub(super) fn log(&self) -> Option<&str> {
        self.log.as_deref()
    }

    /// Returns whether the position is of another log, or of a known log while the identity of this
    /// one is unknown.
    pub(super) fn is_of_another_log(&self, identity: Option<&str>) -> bool {
        self.timestamp_us > 0 && self.log.as_ref().is_some_and(|log| Some(&**log) != identity)
    }

    /// Makes the position one of this log.
    pub(super) fn adopt_log(&mut self, identity: &str) -> std::io::Result<()> {
        if self.log.as_deref() != Some(identity) {
            self.write_log(&format!("{identity}\n"))?;
            self.log = Some(identity.to_owned());
        }
        Ok(())
    }

    fn write_log(&self, text: &str) -> std::io::Result<()> {
        let new = beside(&self.path, ".log.new");
        std::fs::write(&new, text)?;
        std::fs::rename(&new, beside(&self.path, LOG))
    }

    /// Makes the log of the position unknown.
    pub(super) fn forget_log(&mut self) -> std::io::Result<()> {
        self.log = None;
        remove(&beside(&self.path, LOG))
    }

    /// Advances the position: all operations up to `timestamp_us` are executed.
    pub(super) fn advance(&mut self, timestamp_us: u64) -> std::io::Result<()> {
        let text = format!("{timestamp_us}\n");
        self.partitions.position_next(timestamp_us);
        self.file.write_all_at(text.as_bytes(), 0)?;
        if text.len() < self.length {
            self.file.set_len(text.len() as u64)?;
        }
        self.partitions.position_written(timestamp_us);
        self.length = text.len();
        self.timestamp_us = timestamp_us;
        Ok(())
    }
}

/// Returns why the records of the replica with this position file may differ from its master's, if
/// they may.
pub(super) fn inexact(path: &Path) -> Option<Inexact> {
    match std::fs::read(beside(path, INEXACT)) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Ok(text) if text == CHANGED_HERE.as_bytes() => Some(Inexact::ChangedHere),
        _ => Some(Inexact::Operations),
    }
}

/// Returns whose position a file has, for the database in `folder`. If nothing is noted, or the
/// position was copied from the database, it is this one's.
fn owner(path: &Path, timestamp_us: u64, folder: &Path) -> std::io::Result<Owner> {
    let noted = match std::fs::read(beside(path, DATABASE)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Owner::This),
        noted => noted?,
    };
    let noted = noted.strip_suffix(b"\n").unwrap_or(&noted);
    let space = noted.iter().position(|byte| *byte == b' ').unwrap_or(noted.len());
    let (identity, path) = (&noted[..space], noted.get(space + 1..).unwrap_or_default());
    let path = Path::new(OsStr::from_bytes(path));
    let present = present_identity(folder).map_err(std::io::Error::other)?;
    if present.is_some_and(|present| present.as_bytes() == identity)
        || is_of_copy(folder, timestamp_us)
    {
        return Ok(Owner::This);
    }
    Ok(match std::path::absolute(folder)? == path {
        true => Owner::Replaced,
        false => Owner::Other(path.into()),
    })
}

/// Returns whether the database of the replica with this position file is part of an incomplete
/// copy.
pub(super) fn is_seeding(path: &Path) -> bool {
    mark(path).exists()
}

fn mark(path: &Path) -> PathBuf {
    beside(path, ".seeding")
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the names of the files beside the position durable.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    cabinet::files::sync_folder(folder_of(path))
}

/// Returns the path of a file beside the position.
pub(super) fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(extension);
    name.into()
}

fn open(path: &Path) -> std::io::Result<(File, String)> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => std::io::Error::other(
            "another replica has its position in it: give each its own --position-file",
        ),
        TryLockError::Error(error) => error,
    })?;
    let mut text = String::new();
    // The file is one short line.
    (&file).take(256).read_to_string(&mut text)?;
    Ok((file, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reopened(path: &Path) -> Position {
        Position::open(path).expect("a position")
    }

    #[test]
    fn a_position_is_a_decimal_number_and_a_line_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ttserver.rts");
        let mut position = reopened(&path);
        assert_eq!(position.timestamp_us(), 0);
        position.advance(1_795_224_532_475_177).expect("room");
        assert_eq!(std::fs::read(&path).expect("a file"), b"1795224532475177\n");
        drop(position);
        let mut position = reopened(&path);
        assert_eq!(position.timestamp_us(), 1_795_224_532_475_177);
        position.advance(7).expect("room");
        assert_eq!(std::fs::read(&path).expect("a file"), b"7\n");
    }

    #[test]
    fn a_copy_that_was_begun_is_unfinished_until_it_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rts");
        let mut position = reopened(&path);
        assert!(!position.is_seeding());
        position.begin_seeding().expect("room");
        drop(position);
        let mut position = reopened(&path);
        assert!(position.is_seeding());
        position.end_seeding(8, true).expect("room");
        drop(position);
        let position = reopened(&path);
        assert_eq!((position.is_seeding(), position.timestamp_us()), (false, 8));
    }

    #[test]
    fn a_position_is_of_the_log_that_was_named_until_it_is_set() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rts");
        let mut position = reopened(&path);
        position.advance(7).expect("room");
        assert!(!position.is_of_another_log(Some("one")));
        position.adopt_log("one").expect("room");
        drop(position);
        let mut position = reopened(&path);
        assert!(!position.is_of_another_log(Some("one")));
        assert!(position.is_of_another_log(Some("two")));
        assert!(position.is_of_another_log(None));
        position.set(9).expect("room");
        drop(position);
        assert!(!reopened(&path).is_of_another_log(Some("two")));
    }

    #[test]
    fn a_position_that_was_copied_from_a_database_is_of_the_log_that_it_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rts");
        let copied = CopyPosition { timestamp_us: 7, log: Some("one".into()) };
        std::fs::write(&path, copied.text()).expect("room");
        let mut position = reopened(&path);
        assert_eq!(position.timestamp_us(), 7);
        assert!(position.is_of_another_log(Some("two")));
        assert!(!position.is_of_another_log(Some("one")));
        // The next position does not name it.
        position.adopt_log("one").expect("room");
        position.advance(8).expect("room");
        drop(position);
        let mut position = reopened(&path);
        assert!(position.is_of_another_log(Some("two")));
        // The one beside it is newer.
        position.adopt_log("two").expect("room");
        drop(position);
        let mut position = reopened(&path);
        assert!(position.is_of_another_log(Some("one")));
        position.advance(8).expect("room");
        assert_eq!(std::fs::read(&path).expect("a file"), b"8\n");
    }

    #[test]
    fn a_position_is_that_of_one_database() {
        let folder = tempfile::tempdir().expect("a folder");
        let database = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).expect("a folder");
            path
        };
        let (one, other) = (database("one.tch"), database("other.tch"));
        let mut position = reopened(&folder.path().join("rts"));
        position.advance(7).expect("room");
        let owner = |position: &Position, folder: &Path| position.owner(folder).expect("readable");
        // One that nothing is noted of may be from another program.
        assert_eq!(owner(&position, &other), Owner::This);
        for _ in 0..2 {
            position.bind(&one).expect("room");
            assert_eq!(owner(&position, &one), Owner::This);
            assert_eq!(owner(&position, &other), Owner::Other(one.clone()));
        }
        // It is still the same database after a move.
        let moved = folder.path().join("moved.tch");
        std::fs::rename(&one, &moved).expect("moved");
        assert_eq!(owner(&position, &moved), Owner::This);
        database("one.tch");
        assert_eq!(owner(&position, &one), Owner::Replaced);
        // The position of a copy goes with it.
        std::fs::write(one.join("position"), "6\n").expect("room");
        assert_eq!(owner(&position, &one), Owner::Replaced);
        std::fs::write(one.join("position"), "7\n").expect("room");
        assert_eq!(owner(&position, &one), Owner::This);
    }

    #[test]
    fn a_position_after_a_crash_of_the_system_is_told_from_one_after_a_stop() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rts");
        let lanes = beside(&path, ".lanes");
        for (is_closed, is_other_boot) in [(0, 1), (1, 0), (1, 1), (0, 0)] {
            let mut position = reopened(&path);
            assert!(!reopened(&folder.path().join("other")).has_crashed());
            position.advance(7).expect("room");
            if is_closed == 1 {
                position.close().expect("a disk");
            }
            drop(position);
            let mut notes = std::fs::read(&lanes).expect("a file");
            // The second number is that of the boot.
            notes[8] ^= is_other_boot;
            std::fs::write(&lanes, notes).expect("room");
            let has_crashed = reopened(&path).has_crashed();
            assert_eq!(has_crashed, (is_closed, is_other_boot) == (0, 1));
        }
    }

    #[test]
    fn two_replicas_do_not_share_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rts");
        let mut position = reopened(&path);
        position.advance(7).expect("room");
        let refused = Position::open(&path).err().expect("an error").to_string();
        assert!(refused.contains("--position-file"), "{refused}");
        drop(position);
        assert_eq!(reopened(&path).timestamp_us(), 7);
    }

    #[test]
    fn an_invalid_time_stamp_is_an_error_and_not_the_beginning() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rts");
        for text in ["x", "-1", "99999999999999999999999\n"] {
            std::fs::write(&path, text).expect("room");
            assert!(Position::open(&path).is_err(), "{text}");
        }
        for text in ["", "\n"] {
            std::fs::write(&path, text).expect("room");
            assert_eq!(reopened(&path).timestamp_us(), 0, "{text:?}");
        }
    }
}
