//! Retention: removes log files that no replica needs or that exceed a cap.
//!
//! Without a cap all files are kept, as in Tokyo Tyrant. With a cap, a file is removed once every
//! known replica has confirmed its entries. Beyond the cap it is removed in any case. The server
//! logs a warning before a replica loses a file that it needs.

use super::files::{numbers, path};
use super::reader::first_timestamp;
use super::{Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Share of a cap from which the server warns of a replica that needs old files, in percent.
const WARNING_PERCENT: u64 = 80;

/// Time after which an entry that was sent counts as received. A replica that dies may ask again
/// for entries that were sent later than this.
const CONFIRMATION_TIME: Duration = Duration::from_secs(60);

/// File with the known replicas and the time stamps that they have confirmed.
const REPLICAS_FILE: &str = "replicas";

/// Caps on the log files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Most bytes of all files except the one that is written.
    pub bytes_max: Option<u64>,
    /// Longest time since the last write to a file.
    pub age_max: Option<Duration>,
}

/// Returns the time in microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Progress of a replica: time stamps of entries, in microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    sent_us: u64,
    /// Value of `sent_us` at the last check.
    seen_us: u64,
    confirmed_us: u64,
}

/// Progress of all replicas, and the caps.
#[derive(Debug)]
pub(crate) struct FileRetention {
    retention: Retention,
    replicas_path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    replicas: BTreeMap<u16, Progress>,
    checked_at: Instant,
    /// Number of the file in the last warning.
    warned_file: u64,
}

impl FileRetention {
    pub(super) fn open(folder: &Path, retention: Retention) -> Result<Self> {
        let replicas_path = folder.join(REPLICAS_FILE);
        let text = match fs::read_to_string(&replicas_path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(source) => {
                return Err(Error::Io { operation: "read", path: replicas_path, source });
            }
        };
        let replica = |line: &str| {
            let (id, at_us) = line.split_once('\t')?;
            let at_us = at_us.parse().ok()?;
            let progress = Progress { sent_us: at_us, seen_us: at_us, confirmed_us: at_us };
            Some((id.parse().ok()?, progress))
        };
        let replicas = text.lines().filter_map(replica).collect();
        let state = State { replicas, checked_at: Instant::now(), warned_file: 0 };
        Ok(Self { retention, replicas_path, state: Mutex::new(state) })
    }

    /// Records that a replica has every entry up to `at_us`, because it requests the later ones.
    pub(crate) fn confirm(&self, replica: u16, at_us: u64) {
        let mut state = self.state.lock();
        let progress = Progress { sent_us: at_us, seen_us: at_us, confirmed_us: at_us };
        state.replicas.insert(replica, progress);
        self.save(&state);
    }

    /// Records that the entries up to `at_us` were sent to a replica.
    pub(crate) fn sent(&self, replica: u16, at_us: u64) {
        if let Some(progress) = self.state.lock().replicas.get_mut(&replica) {
            progress.sent_us = at_us;
        }
    }

    /// Returns the ids of the replicas that have confirmed an entry later than `at_us`.
    pub(crate) fn replicas_beyond(&self, at_us: u64) -> Vec<u16> {
        let state = self.state.lock();
        let beyond = state.replicas.iter().filter(|(_, progress)| progress.confirmed_us > at_us);
        beyond.map(|(id, _)| *id).collect()
    }

    fn save(&self, state: &State) {
        let lines = state.replicas.iter();
        let text: String =
            lines.map(|(id, progress)| format!("{id}\t{}\n", progress.confirmed_us)).collect();
        let temporary = self.replicas_path.with_extension("new");
        let saved =
            fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, &self.replicas_path));
        if let Err(error) = saved {
            tracing::warn!("update log: cannot save the progress of its replicas: {error}");
        }
    }

    /// Removes files before `current` that need not be kept.
    pub(super) fn remove_old_files(&self, folder: &Path, current: u64) -> Result<()> {
        let Retention { bytes_max, age_max } = self.retention;
        if bytes_max.is_none() && age_max.is_none() {
            return Ok(());
        }
        let mut state = self.state.lock();
        if state.checked_at.elapsed() >= CONFIRMATION_TIME {
            state.checked_at = Instant::now();
            for progress in state.replicas.values_mut() {
                progress.confirmed_us = progress.seen_us;
                progress.seen_us = progress.sent_us;
            }
            self.save(&state);
        }
        let numbers = numbers(folder)?;
        let mut old = Vec::new();
        for pair in numbers.windows(2) {
            let &[number, next] = pair else { continue };
            if number < current {
                old.push(OldFile::read(folder, number, next)?);
            }
        }
        let mut bytes: u64 = old.iter().map(|file| file.bytes).sum();
        for file in &old {
            let mut replicas = state.replicas.values();
            let is_needed = replicas.any(|progress| progress.confirmed_us < file.ends_before_us);
            let is_passed = !state.replicas.is_empty() && !is_needed;
            // One that has it, and has not confirmed it yet, is not late.
            let slowest = state.replicas.iter().min_by_key(|(_, progress)| progress.sent_us);
            let late = slowest
                .filter(|(_, progress)| progress.sent_us < file.ends_before_us)
                .map(|(id, _)| *id);
            let used = |percent: u64| {
                let over = |limit: u64, used: u64| {
                    u128::from(used) * 100 > u128::from(limit) * u128::from(percent)
                };
                bytes_max.is_some_and(|limit| over(limit, bytes))
                    || age_max.is_some_and(|limit| over(limit.as_secs(), file.age.as_secs()))
            };
            let (is_over, is_near) = (used(100), used(WARNING_PERCENT));
            if let (Some(id), true) = (late, is_near && state.warned_file < file.number) {
                state.warned_file = file.number;
                tracing::warn!(
                    "replica {id} still needs {}, which {}, as update-log-keep-bytes or \
                     update-log-keep-seconds says",
                    path(folder, file.number).display(),
                    match is_over {
                        true => "is removed now, so that it needs a new copy",
                        false => "will be removed soon: start the replica, or raise the limit",
                    }
                );
            }
            if !is_passed && !is_over {
                break;
            }
            let path = path(folder, file.number);
            fs::remove_file(&path).map_err(|source| Error::Io {
                operation: "remove",
                path: path.clone(),
                source,
            })?;
            tracing::info!("update log: removed {}", path.display());
            bytes -= file.bytes;
        }
        Ok(())
    }
}

/// File that is no longer written.
struct OldFile {
    number: u64,
    bytes: u64,
    age: Duration,
    /// Time stamp that no entry of the file exceeds.
    ends_before_us: u64,
}

impl OldFile {
    fn read(folder: &Path, number: u64, next: u64) -> Result<Self> {
        let path_of = path(folder, number);
        let failed =
            |source| Error::Io { operation: "read the size of", path: path_of.clone(), source };
        let metadata = fs::metadata(&path_of).map_err(failed)?;
        let age = metadata.modified().map_err(failed)?.elapsed().unwrap_or_default();
        let ends_before_us = first_timestamp(&path(folder, next))?.unwrap_or(u64::MAX);
        Ok(Self { number, bytes: metadata.len(), age, ends_before_us })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Files;
    use super::*;
    use wire::update_log::Entry;

    /// Returns a folder with ten files of one entry each, with the time stamps 1 to 10.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let mut files = Files::open(folder.path(), 1).expect("a log");
        for timestamp_us in 1..=10 {
            let entry = Entry { timestamp_us, origin: 1, master: 0, body: b"0123456789" };
            files.append(&entry).expect("no failure");
        }
        folder
    }

    fn kept(folder: &Path, retention: &FileRetention) -> Vec<u64> {
        retention.remove_old_files(folder, 10).expect("files");
        numbers(folder).expect("files")
    }

    fn bytes_max(bytes: u64) -> Retention {
        Retention { bytes_max: Some(bytes), age_max: None }
    }

    #[test]
    fn without_a_cap_every_file_is_kept() {
        let folder = folder();
        let retention = FileRetention::open(folder.path(), Retention::default()).expect("a folder");
        retention.confirm(2, 10);
        assert_eq!(kept(folder.path(), &retention).len(), 10);
    }

    #[test]
    fn a_file_is_removed_when_the_slowest_replica_has_confirmed_it() {
        let folder = folder();
        let retention = FileRetention::open(folder.path(), bytes_max(1 << 30)).expect("a folder");
        assert_eq!(kept(folder.path(), &retention).len(), 10);
        retention.confirm(2, 9);
        retention.confirm(3, 4);
        assert_eq!(kept(folder.path(), &retention), [4, 5, 6, 7, 8, 9, 10]);
        // A sent entry may not have arrived.
        retention.sent(3, 9);
        assert_eq!(kept(folder.path(), &retention).len(), 7);
        retention.confirm(3, 9);
        assert_eq!(kept(folder.path(), &retention), [9, 10]);
    }

    #[test]
    fn the_progress_of_replicas_survives_a_restart() {
        let folder = folder();
        FileRetention::open(folder.path(), bytes_max(1 << 30)).expect("a folder").confirm(3, 4);
        let retention = FileRetention::open(folder.path(), bytes_max(1 << 30)).expect("a folder");
        retention.confirm(2, 9);
        assert_eq!(kept(folder.path(), &retention), [4, 5, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn a_warning_names_a_replica_that_lacks_a_file_and_not_one_that_was_sent_it() {
        let folder = folder();
        let retention = FileRetention::open(folder.path(), bytes_max(7 * 27)).expect("a folder");
        retention.confirm(2, 1);
        retention.sent(2, 10);
        let warned = || retention.state.lock().warned_file;
        assert_eq!((kept(folder.path(), &retention).len(), warned()), (8, 0));
        // It has connected again.
        retention.confirm(2, 1);
        assert_eq!((kept(folder.path(), &retention).len(), warned()), (8, 3));
    }

    #[test]
    fn beyond_the_cap_a_file_is_removed_even_if_a_replica_needs_it() {
        // Each file has an entry of 17 + 10 bytes, and the tenth file is being written.
        for (cap, expected) in [(9 * 27 + 1, 10), (9 * 27, 10), (9 * 27 - 1, 9), (0, 1)] {
            let folder = folder();
            let retention = FileRetention::open(folder.path(), bytes_max(cap)).expect("a folder");
            retention.confirm(2, 1);
            assert_eq!(kept(folder.path(), &retention).len(), expected, "{cap}");
        }
    }
}
