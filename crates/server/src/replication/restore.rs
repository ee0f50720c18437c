//! Restore: executes the update log in a folder.

use crate::ops::replay::{Logged, Replayer};
use crate::ops::served::{Served, ServedSettings};
use crate::ops::stop_signal::StopSignal;
use crate::store::position_file::CopyPosition;
use crate::update_log::identity::present_identity;
use crate::update_log::{Reader, Source};
use cabinet::Database;
use std::path::Path;
use std::sync::Arc;

/// Result of [`replay`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Number of executed operations.
    pub operations: u64,
    /// Number of operations among them that ended otherwise than when they were logged.
    pub differing: u64,
    /// Time stamp of the last operation, in microseconds since 1970.
    pub last_us: Option<u64>,
}

/// Reason why an update log is not replayed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReplayError(String);

/// Executes the update log in a folder on a database that is not served: the entries after the
/// position of the database up to `until_us`, in microseconds since 1970. Fails if the folder has
/// another log than that of the position, if the log begins later or ends earlier, if a file is
/// missing, or if it cannot be read. Earlier entries have been executed then.
pub fn replay(
    database: Database,
    folder: &Path,
    position: &CopyPosition,
    until_us: u64,
) -> Result<Replayed, ReplayError> {
    check_identity(folder, position.log.as_deref()).map_err(ReplayError)?;
    let after_us = position.timestamp_us;
    let stop = StopSignal::new().map_err(|error| ReplayError(error.to_string()))?;
    let served = Served::new(database, ServedSettings::default(), None, None, Arc::new(stop));
    let served = served.map_err(|error| ReplayError(error.to_string()))?;
    reaches(folder, after_us).map_err(ReplayError)?;
    let span = Span { from_us: after_us.saturating_add(1), until_us };
    let done = execute(&served, folder, span, false).map_err(ReplayError)?;
    served.database.sync().map_err(|error| ReplayError(error.to_string()))?;
    Ok(done)
}

/// Fails if the log in a folder is known to be another one than `expected`.
fn check_identity(folder: &Path, expected: Option<&str>) -> Result<(), String> {
    let present = present_identity(folder).map_err(|error| error.to_string())?;
    match (expected, present) {
        (Some(expected), Some(present)) if expected != present => Err(format!(
            "it is another log, {present}, than that of the backup, {expected}, so changes between \
             them would be missing: name the folder of that log, or a backup that was made with \
             this one"
        )),
        _ => Ok(()),
    }
}

/// Fails unless the log in a folder has the time stamp, or has no entry yet.
fn reaches(folder: &Path, timestamp_us: u64) -> Result<(), String> {
    let words = |error: crate::update_log::Error| error.to_string();
    let Some(mut reader) = Reader::open(folder, timestamp_us).map_err(words)? else {
        return Err("there is no update log".into());
    };
    let end = crate::update_log::end_of(folder).map_err(words)?;
    let is_empty = end.offset == 0 && end.file == reader.file();
    match reader.next(Some(end)).map_err(words)? {
        None if !is_empty => Err(format!("the log ends before {timestamp_us} us")),
        _ => Ok(()),
    }
}

/// Executes the entries from `from_us` on, in microseconds since 1970, that are in the folder at
/// the beginning. Returns whether it came to their end. The entries are logged with their original
/// servers. With `check`, stops at an entry that ends otherwise than when it was logged.
pub(crate) fn restore(served: &Served, folder: &Path, from_us: u64, check: bool) -> bool {
    match execute(served, folder, Span { from_us, until_us: u64::MAX }, check) {
        Ok(done) => {
            tracing::info!(
                "restore: {} operations of {} executed",
                done.operations,
                folder.display()
            );
            true
        }
        Err(error) => {
            tracing::error!("cannot restore {}: {error}", folder.display());
            false
        }
    }
}

/// Range of time stamps of the entries to execute, both included.
#[derive(Clone, Copy, Debug)]
struct Span {
    from_us: u64,
    until_us: u64,
}

fn execute(served: &Served, folder: &Path, span: Span, check: bool) -> Result<Replayed, String> {
    let words = |error: crate::update_log::Error| error.to_string();
    // If the folder is that of the server's own log, entries added meanwhile are left out.
    let end = crate::update_log::end_of(folder).map_err(words)?;
    let mut done = Replayed::default();
    let Some(mut reader) = Reader::open(folder, span.from_us).map_err(words)? else {
        return Ok(done);
    };
    reader.expect_all_files().map_err(words)?;
    let mut replayer = Replayer::new(&served.database, &served.budget);
    while let Some(entry) = reader.next(Some(end)).map_err(words)? {
        let timestamp_us = entry.timestamp_us;
        if timestamp_us > span.until_us {
            let next = reader.next(Some(end)).ok().flatten();
            if next.is_some_and(|next| next.timestamp_us <= span.until_us) {
                return Err(format!(
                    "the entry with the time stamp {timestamp_us} is before earlier ones: its time \
                     stamp is damaged, or the clock was set back"
                ));
            }
            break;
        }
        if served.is_stopping() {
            return Err("the server is stopping".into());
        }
        let logged = Logged::parse(entry.body, served.model).map_err(|_| {
            format!(
                "the entry at time stamp {timestamp_us} is damaged; to have all before it, end at \
                 {}",
                timestamp_us.saturating_sub(1)
            )
        })?;
        let source = Source { origin: entry.origin, master: entry.master, root: None };
        let replayed = replayer.replay(source, &logged);
        let succeeded = replayed
            .map_err(|error| format!("the log entry at time stamp {timestamp_us}: {error}"))?;
        if replayer.differs(&logged, succeeded) {
            let what = format!(
                "the log entry at time stamp {timestamp_us} ended differently than when it was logged"
            );
            if check {
                return Err(what);
            }
            tracing::warn!("restore of {}: {what}", folder.display());
            done.differing += 1;
        }
        done.operations += 1;
        done.last_us = Some(timestamp_us);
    }
    Ok(done)
}
