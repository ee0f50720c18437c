//! Which files of an update log are kept.
//!
//! Without a cap all of them are, as with Tokyo Tyrant. With one, a file goes when every known
//! replica has passed it, or, whoever needs it, when a cap is reached; before that happens to a
//! replica the log of the server says so.

use super::files::{numbers, path};
use super::reader::first_timestamp;
use super::{Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Percent of a cap from which a replica that needs old files is warned of.
const WARNING_PERCENT: u64 = 80;

/// What was sent to a replica counts as received after this long at the latest; less may still be
/// on its way when the replica dies, and be asked for again.
const CONFIRMATION_TIME: Duration = Duration::from_secs(60);

/// File with the replicas that are known, and the time stamps they have come to.
const REPLICAS_FILE: &str = "replicas";

/// Caps on what is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Most bytes of all files together, the one that is written left out.
    pub bytes_max: Option<u64>,
    /// Longest time since a file was last written.
    pub age_max: Option<Duration>,
}

/// Microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// What is known of a replica: time stamps of entries, in microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    sent_us: u64,
    /// Value of `sent_us` when it was last looked at.
    seen_us: u64,
    confirmed_us: u64,
}

/// Remembers replicas, and removes what none of them needs.
#[derive(Debug)]
pub(crate) struct FileRetention {
    retention: Retention,
    replicas_path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    replicas: BTreeMap<u16, Progress>,
    looked_at: Instant,
    /// The file of the last warning.
    warned_of: u64,
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
        let state = State { replicas, looked_at: Instant::now(), warned_of: 0 };
        Ok(Self { retention, replicas_path, state: Mutex::new(state) })
    }

    /// A replica asks for what comes behind `at_us`: so it has everything before.
    pub(crate) fn confirm(&self, replica: u16, at_us: u64) {
        let mut state = self.state.lock();
        let progress = Progress { sent_us: at_us, seen_us: at_us, confirmed_us: at_us };
        state.replicas.insert(replica, progress);
        self.save(&state);
    }

    /// An entry was sent to a replica.
    pub(crate) fn sent(&self, replica: u16, at_us: u64) {
        if let Some(progress) = self.state.lock().replicas.get_mut(&replica) {
            progress.sent_us = at_us;
        }
    }

    fn save(&self, state: &State) {
        let lines = state.replicas.iter();
        let text: String =
            lines.map(|(id, progress)| format!("{id}\t{}\n", progress.confirmed_us)).collect();
        let beside = self.replicas_path.with_extension("new");
        let saved =
            fs::write(&beside, text).and_then(|()| fs::rename(&beside, &self.replicas_path));
        if let Err(error) = saved {
            tracing::warn!("update log: cannot remember its replicas: {error}");
        }
    }

    /// Removes what is no longer kept of the files before `current`.
    pub(super) fn keep(&self, folder: &Path, current: u64) -> Result<()> {
        let Retention { bytes_max, age_max } = self.retention;
        if bytes_max.is_none() && age_max.is_none() {
            return Ok(());
        }
        let mut state = self.state.lock();
        if state.looked_at.elapsed() >= CONFIRMATION_TIME {
            state.looked_at = Instant::now();
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
                old.push(OldFile::look(folder, number, next)?);
            }
        }
        let mut bytes: u64 = old.iter().map(|file| file.bytes).sum();
        for file in &old {
            let slowest = state.replicas.iter().min_by_key(|(_, progress)| progress.confirmed_us);
            let waiting = slowest
                .filter(|(_, progress)| progress.confirmed_us < file.ends_before_us)
                .map(|(id, _)| *id);
            let is_passed = slowest.is_some() && waiting.is_none();
            let used = |percent: u64| {
                let over = |limit: u64, used: u64| {
                    u128::from(used) * 100 > u128::from(limit) * u128::from(percent)
                };
                bytes_max.is_some_and(|limit| over(limit, bytes))
                    || age_max.is_some_and(|limit| over(limit.as_secs(), file.age.as_secs()))
            };
            let (is_over, is_near) = (used(100), used(WARNING_PERCENT));
            if let (Some(id), true) = (waiting, is_near && state.warned_of < file.number) {
                state.warned_of = file.number;
                tracing::warn!(
                    "replica {id} is behind: {} which it needs {}",
                    path(folder, file.number).display(),
                    if is_over { "is removed" } else { "will soon be removed" }
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
            tracing::info!("update log: {} removed", path.display());
            bytes -= file.bytes;
        }
        Ok(())
    }
}

/// A file that is no longer written.
struct OldFile {
    number: u64,
    bytes: u64,
    age: Duration,
    /// Its entries have time stamps below this.
    ends_before_us: u64,
}

impl OldFile {
    fn look(folder: &Path, number: u64, next: u64) -> Result<Self> {
        let path_of = path(folder, number);
        let failed = |source| Error::Io { operation: "look at", path: path_of.clone(), source };
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

    /// A folder with ten files of one entry each, with the time stamps 1 to 10.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let mut files = Files::open(folder.path(), 1).expect("a log");
        for timestamp_us in 1..=10 {
            let entry = Entry { timestamp_us, origin: 1, master: 0, body: b"0123456789" };
            files.append(&entry).expect("room");
        }
        folder
    }

    fn kept(folder: &Path, retention: &FileRetention) -> Vec<u64> {
        retention.keep(folder, 10).expect("files");
        numbers(folder).expect("files")
    }

    fn bytes_max(bytes: u64) -> Retention {
        Retention { bytes_max: Some(bytes), age_max: None }
    }

    #[test]
    fn without_a_cap_every_file_is_kept() {
        let folder = folder();
        let retention =
            FileRetention::open(folder.path(), Retention::default()).expect("a retention");
        retention.confirm(2, 10);
        assert_eq!(kept(folder.path(), &retention).len(), 10);
    }

    #[test]
    fn a_file_goes_when_the_slowest_replica_has_passed_it() {
        let folder = folder();
        let retention =
            FileRetention::open(folder.path(), bytes_max(1 << 30)).expect("a retention");
        assert_eq!(kept(folder.path(), &retention).len(), 10);
        retention.confirm(2, 9);
        retention.confirm(3, 4);
        assert_eq!(kept(folder.path(), &retention), [4, 5, 6, 7, 8, 9, 10]);
        // What was only sent may not have come.
        retention.sent(3, 9);
        assert_eq!(kept(folder.path(), &retention).len(), 7);
        retention.confirm(3, 9);
        assert_eq!(kept(folder.path(), &retention), [9, 10]);
    }

    #[test]
    fn replicas_are_known_after_a_restart() {
        let folder = folder();
        FileRetention::open(folder.path(), bytes_max(1 << 30)).expect("a retention").confirm(3, 4);
        let retention =
            FileRetention::open(folder.path(), bytes_max(1 << 30)).expect("a retention");
        retention.confirm(2, 9);
        assert_eq!(kept(folder.path(), &retention), [4, 5, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn over_the_cap_a_file_goes_whoever_needs_it() {
        // An entry of 17 + 10 bytes a file, and the tenth is the one that is written.
        for (cap, expected) in [(9 * 27 + 1, 10), (9 * 27, 10), (9 * 27 - 1, 9), (0, 1)] {
            let folder = folder();
            let retention =
                FileRetention::open(folder.path(), bytes_max(cap)).expect("a retention");
            retention.confirm(2, 1);
            assert_eq!(kept(folder.path(), &retention).len(), expected, "{cap}");
        }
    }
}
