//! Resumption: records the roots of received entries, and finds where a replica resumes that has
//! executed some of them elsewhere.

use super::reader::first_timestamp;
use super::roots::{RootLine, RootState, first_beyond};
use super::{Result, Source, UpdateLog, files, identity};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use wire::replication::LogProgress;
use xxhash_rust::xxh3::xxh3_64;

/// Roots of the entries in the buffer, before they are written.
#[derive(Default)]
pub(super) struct PendingRootLines {
    pub(super) bytes: Vec<u8>,
    /// Whether the roots of received entries are recorded.
    pub(super) is_recording: bool,
    /// Whether an entry was received without its root.
    pub(super) is_broken: bool,
    /// Time stamp of the first own entry, which may be recorded already; 0 without any.
    pub(super) own_us: u64,
    /// Time stamp of the first own entry since roots are recorded; 0 without any.
    pub(super) since_us: u64,
}

impl PendingRootLines {
    pub(super) fn add(&mut self, source: Source, own_us: u64) {
        match source {
            Source { master: 0, .. } => {
                for first_us in [&mut self.own_us, &mut self.since_us] {
                    if *first_us == 0 {
                        *first_us = own_us;
                    }
                }
            }
            Source { root: Some(root), .. } if self.is_recording => {
                RootLine { own_us, root }.encode(&mut self.bytes);
            }
            _ => (self.is_recording, self.is_broken) = (false, true),
        }
    }
}

/// Returns the name by which roots refer to the log of this identity.
pub(crate) fn name_of(identity: &str) -> u64 {
    xxh3_64(identity.as_bytes()).max(1)
}

impl UpdateLog {
    /// Returns the name by which roots refer to this log; `None` if it has no identity.
    pub(crate) fn name(&self) -> Option<u64> {
        self.identity().map(|identity| name_of(&identity))
    }

    /// Returns whether the roots of received entries are recorded.
    pub(crate) fn is_recording(&self) -> bool {
        self.buffer.lock().lines.is_recording
    }

    /// Records the roots of received entries from now on. `logs` has, per log, the time stamp
    /// before which the database has executed all of its entries, and maybe some up to it. It has
    /// executed none of any other log. No change may be in progress.
    pub(crate) fn record_roots(&self, logs: Vec<(u64, u64)>) -> Result<()> {
        if !self.write() {
            return Ok(());
        }
        let mut roots = self.roots.lock();
        // The lock is held throughout, so that no entry is appended in between.
        let mut buffer = self.buffer.lock();
        let (floor_us, own_us) = (Some(buffer.last_entry_us), buffer.lines.own_us);
        roots.save(RootState { floor_us, own_us, since_us: 0, logs })?;
        let lines = &mut buffer.lines;
        (lines.is_recording, lines.is_broken, lines.since_us) = (true, false, 0);
        Ok(())
    }

    /// Records roots on a server without a master. If the roots of earlier entries are unknown,
    /// they count as made here first.
    pub(crate) fn adopt_entries(&self) -> Result<()> {
        let Some(own) = self.name() else { return Ok(()) };
        if self.buffer.lock().lines.is_broken && self.write() {
            let mut roots = self.roots.lock();
            let mut buffer = self.buffer.lock();
            let (floor_us, own_us) = (Some(buffer.last_entry_us), buffer.lines.own_us.max(1));
            let logs = vec![(own, buffer.last_entry_us)];
            roots.save(RootState { floor_us, own_us, since_us: 0, logs })?;
            let bytes = std::mem::take(&mut buffer.lines.bytes);
            buffer.lines = PendingRootLines {
                bytes,
                is_recording: true,
                is_broken: false,
                own_us,
                since_us: 0,
            };
        }
        Ok(())
    }

    /// Stops recording roots: the database executes operations that the log does not contain as
    /// they were first made.
    pub(crate) fn invalidate_roots(&self) -> Result<()> {
        let own_us = self.buffer.lock().lines.own_us;
        self.break_roots(own_us)
    }

    /// Begins a copy of another database, which replaces every record. The log gets a new identity:
    /// entries that its replicas have executed are no part of it.
    pub(crate) fn begin_copy(&self) -> Result<()> {
        if self.last_entry_us() > 0 {
            let identity = identity::renew(&self.settings.folder)?;
            *self.identity.lock() = Some(identity);
        }
        self.break_roots(0)
    }

    fn break_roots(&self, own_us: u64) -> Result<()> {
        let mut roots = self.roots.lock();
        let mut buffer = self.buffer.lock();
        let lines = &mut buffer.lines;
        (lines.is_recording, lines.is_broken) = (false, true);
        (lines.own_us, lines.since_us) = (own_us, 0);
        roots.save(RootState { own_us, ..RootState::default() })
    }

    /// Writes the roots of entries before the entries. After an error the same bytes can be given
    /// again.
    pub(super) fn write_lines(&self, lines: &[u8]) -> Result<()> {
        let mut roots = self.roots.lock();
        let (is_broken, own_us, since_us) = {
            let lines = &self.buffer.lock().lines;
            (lines.is_broken, lines.own_us, lines.since_us)
        };
        match roots.state() {
            Some(state)
                if is_broken && state.floor_us.is_some()
                    || (state.own_us, state.since_us) != (own_us, since_us) =>
            {
                let before = if is_broken { RootState::default() } else { state.clone() };
                roots.save(RootState { own_us, since_us, ..before })?;
            }
            None if is_broken => {
                roots.save(RootState { own_us, since_us, ..RootState::default() })?
            }
            _ => {}
        }
        roots.write(lines)?;
        if !lines.is_empty() {
            self.root_writes.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Removes the roots of entries that are no longer kept.
    pub(super) fn remove_old_roots(&self) -> Result<()> {
        let folder = &self.settings.folder;
        let Some(oldest) = files::numbers(folder)?.first().copied() else { return Ok(()) };
        if oldest == 1 {
            return Ok(());
        }
        match first_timestamp(&files::path(folder, oldest))? {
            Some(oldest_us) => self.roots.lock().remove_before(oldest_us),
            None => Ok(()),
        }
    }

    /// Returns the logs in which entries of this log were first made, each with the time stamp up
    /// to which the database has executed all of its entries, according to `executed`. Returns
    /// `None` if that is unknown. This log is among them, with `own_us`, if it has own entries.
    pub(crate) fn bases(&self, executed: &[LogProgress], own_us: u64) -> Option<Vec<(u64, u64)>> {
        let own = (self.name()?, own_us.max(1));
        let roots = self.roots.lock();
        if self.buffer.lock().lines.is_broken {
            return None;
        }
        let Some(state) = roots.state() else { return Some(vec![own]) };
        state.floor_us?;
        let is_executed = |log: u64, at_us: u64| {
            executed.iter().any(|progress| progress.log == log && progress.base_us >= at_us)
        };
        let mut logs = state.logs.iter().filter(|(log, _)| *log != own.0);
        let is_whole = logs.all(|(log, at_us)| is_executed(*log, *at_us))
            && roots.logs().all(|log| is_executed(log, 0));
        let others = executed
            .iter()
            .map(|progress| (progress.log, progress.base_us))
            .filter(|(log, _)| *log != own.0);
        let has_own = self.buffer.lock().lines.own_us > 0;
        is_whole.then(|| others.chain(has_own.then_some(own)).collect())
    }

    /// Returns the time stamp up to which this log has no entry that a replica lacks, if the
    /// replica has executed `executed`. Returns `None` if that is unknown. All entries so far are
    /// in the files afterwards.
    pub(crate) fn resumption(&self, executed: &[LogProgress]) -> Result<Option<u64>> {
        let (Some(own), true) = (self.name(), self.write()) else { return Ok(None) };
        let tail_us = self.tail().timestamp_us;
        let bases: BTreeMap<u64, u64> =
            executed.iter().map(|progress| (progress.log, progress.base_us)).collect();
        let base_of = |log: u64| bases.get(&log).copied().unwrap_or_default();
        let own_base_us = base_of(own);
        // Writers wait for this lock, so it is released before files are read.
        let (state, is_broken, own_us, since_us) = {
            let roots = self.roots.lock();
            let lines = &self.buffer.lock().lines;
            (roots.state().cloned(), lines.is_broken, lines.own_us, lines.since_us)
        };
        if is_broken {
            return Ok(None);
        }
        let Some(state) = state else {
            return Ok((own_base_us > 0).then_some(own_base_us.min(tail_us)));
        };
        let Some(floor_us) = state.floor_us else { return Ok(None) };
        // Other servers do not have the own entries from before a master was followed.
        let has_old =
            own_base_us == 0 || own_us == 0 || own_us > floor_us || own_base_us >= floor_us;
        if !has_old || state.logs.iter().any(|(log, at_us)| base_of(*log) < *at_us) {
            return Ok(None);
        }
        let own_first_us = match own_base_us {
            0 if since_us > floor_us => since_us - 1,
            0 => tail_us,
            own_base_us => own_base_us.max(floor_us),
        };
        let Some(first) = first_beyond(&self.settings.folder, floor_us, &bases)? else {
            return Ok(None);
        };
        let first_us = first.map_or(tail_us, |first_us| first_us - 1);
        Ok(Some(first_us.min(own_first_us).min(tail_us).max(floor_us)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Scope, Settings, Unfinished};
    use super::*;
    use cabinet::Database;
    use std::path::Path;
    use wire::binary::Request;
    use wire::replication::Root;
    use wire::update_log::Operation;

    const OWN: Source = Source { origin: 1, master: 0, root: None };
    const UNKNOWN: Source = Source { origin: 2, master: 2, root: None };

    fn at(timestamp_us: u64) -> Source {
        Source { root: Some(Root { log: 7, timestamp_us }), ..UNKNOWN }
    }

    fn open(folder: &Path) -> (UpdateLog, Vec<Unfinished>) {
        let path = folder.join("casket.tch");
        let database = Database::open(path.to_str().expect("a name")).expect("a database");
        UpdateLog::open(Settings::new(folder.join("ulog")), &database).expect("a log")
    }

    /// Appends an entry and returns its time stamp.
    fn append(log: &UpdateLog, source: Source) -> u64 {
        let memory = Database::open("*").expect("memory");
        let change = log.begin(&memory, source, Scope::Key(b"key"), true).expect("no failure");
        let request = Request::Put { key: b"key", value: b"v" };
        change.append(source, &Operation { request, succeeded: true });
        log.last_entry_us()
    }

    /// Returns where a replica resumes that has executed the other log up to `base_us`.
    fn resumed(log: &UpdateLog, base_us: u64) -> Option<u64> {
        log.resumption(&[LogProgress::up_to(7, base_us)]).expect("files")
    }

    #[test]
    fn a_replica_resumes_at_a_server_that_was_a_replica_and_became_a_master() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        append(&log, UNKNOWN);
        log.record_roots(vec![(7, 10)]).expect("no failure");
        let placed = [11, 13, 12].map(|timestamp_us| append(&log, at(timestamp_us)));
        assert_eq!(resumed(&log, 9), None);
        // Up to 12 the entry of 13 is missing: the one after it is sent again and skipped.
        let found = [10, 11, 12, 13].map(|base_us| resumed(&log, base_us));
        assert_eq!(found, [placed[0] - 1, placed[1] - 1, placed[1] - 1, placed[2]].map(Some));
        let own_us = append(&log, OWN);
        append(&log, at(14));
        assert_eq!(resumed(&log, 14), Some(own_us - 1));
        let own = LogProgress::up_to(log.name().expect("an identity"), own_us);
        let both = [LogProgress::up_to(7, 14), own];
        assert_eq!(log.resumption(&both).expect("files"), Some(own_us));
        drop(log);
        assert_eq!(resumed(&open(folder.path()).0, 14), Some(own_us - 1));
    }

    #[test]
    fn own_entries_after_a_master_was_followed_are_not_taken_for_earlier_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        append(&log, OWN);
        log.record_roots(vec![(7, 10)]).expect("no failure");
        let placed_us = append(&log, at(11));
        assert_eq!(resumed(&log, 11), Some(placed_us));
        let own_us = append(&log, OWN);
        append(&log, at(12));
        assert_eq!(resumed(&log, 12), Some(own_us - 1));
        drop(log);
        assert_eq!(resumed(&open(folder.path()).0, 12), Some(own_us - 1));
    }

    #[test]
    fn writers_do_not_wait_for_the_search_of_a_resumption() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        log.record_roots(vec![(7, 10)]).expect("no failure");
        append(&log, at(11));
        assert!(log.write());
        // Opening this pipe blocks until the other end is open too.
        let slow = folder.path().join("ulog/roots.00000002");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &slow, rustix::fs::FileType::Fifo, mode, 0)
            .expect("a pipe");
        let (written, is_written) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let searching = scope.spawn(|| log.resumption(&[LogProgress::up_to(7, 11)]).is_err());
            // A search that has not come to the pipe by then is not finished either.
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(!searching.is_finished());
            scope.spawn(|| {
                append(&log, OWN);
                written.send(log.write())
            });
            let in_time = is_written.recv_timeout(std::time::Duration::from_secs(120));
            // Unblock the reader of the pipe.
            let end = std::fs::OpenOptions::new().read(true).write(true).open(&slow);
            std::fs::remove_file(&slow).expect("a pipe");
            while !searching.is_finished() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            drop(end);
            assert_eq!(in_time, Ok(true));
        });
    }

    #[test]
    fn logs_of_entries_before_roots_were_recorded_again_do_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        log.record_roots(vec![(7, 10)]).expect("no failure");
        append(&log, at(11));
        assert!(log.write());
        log.begin_copy().expect("no failure");
        log.record_roots(vec![(8, 5)]).expect("no failure");
        let other = Source { root: Some(Root { log: 8, timestamp_us: 6 }), ..UNKNOWN };
        let known = Some(vec![(8, 6)]);
        assert_eq!(log.bases(&[LogProgress::up_to(8, 6)], 5), known);
        drop(log);
        let (log, _) = open(folder.path());
        assert_eq!(log.bases(&[LogProgress::up_to(8, 6)], 5), known);
        append(&log, other);
        assert_eq!(log.bases(&[LogProgress::up_to(8, 6)], 5), known);
        assert!(log.write());
        drop(log);
        let (log, _) = open(folder.path());
        assert_eq!(log.bases(&[LogProgress::up_to(8, 6)], 5), known);
    }

    #[test]
    fn an_entry_without_its_root_makes_resumption_unknown_until_entries_count_as_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        log.record_roots(vec![(7, 10)]).expect("no failure");
        append(&log, at(11));
        let executed = [LogProgress::up_to(7, 11)];
        assert!(resumed(&log, 11).is_some() && log.bases(&executed, 5).is_some());
        let last_us = append(&log, UNKNOWN);
        assert!(!log.is_recording());
        assert_eq!((resumed(&log, 11), log.bases(&executed, 5)), (None, None));
        drop(log);
        let (log, _) = open(folder.path());
        assert_eq!((resumed(&log, 11), log.bases(&executed, 5)), (None, None));
        log.adopt_entries().expect("no failure");
        assert_eq!(resumed(&log, 11), None);
        let own = LogProgress::up_to(log.name().expect("an identity"), last_us);
        assert_eq!(log.resumption(&[own]).expect("files"), Some(last_us));
    }

    #[test]
    fn a_log_whose_database_becomes_a_copy_has_another_identity() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        let name = log.name();
        log.begin_copy().expect("no failure");
        assert_eq!(log.name(), name);
        append(&log, OWN);
        log.begin_copy().expect("no failure");
        assert_ne!(log.name(), name);
        log.record_roots(vec![(7, 10)]).expect("no failure");
        // The own entries are gone.
        assert_eq!(log.bases(&[LogProgress::up_to(7, 12)], 5), Some(vec![(7, 12)]));
        assert_eq!(log.bases(&[LogProgress::up_to(7, 9)], 5), None);
    }

    #[test]
    fn resumption_survives_a_kill_on_a_master_and_on_a_replica_only_for_entries_in_files() {
        // First with an entry that is only in the intent log, then with a change in progress.
        for (last, is_under_way, expected) in
            [(OWN, false, true), (at(12), false, false), (OWN, true, true), (at(12), true, false)]
        {
            let folder = tempfile::tempdir().expect("a folder");
            let (log, _) = open(folder.path());
            log.record_roots(vec![(7, 10)]).expect("no failure");
            append(&log, at(11));
            assert!(resumed(&log, 10).is_some());
            if is_under_way {
                let memory = Database::open("*").expect("memory");
                let change = log.begin(&memory, last, Scope::Key(b"key"), true);
                std::mem::forget(change.expect("no failure"));
            } else {
                append(&log, last);
            }
            // Dropping the log leaves the files as a kill does.
            drop(log);
            let (log, unfinished) = open(folder.path());
            unfinished.iter().for_each(|one| log.resolved(one.id));
            assert_eq!(resumed(&log, 10).is_some(), expected, "{last:?} {is_under_way}");
        }
    }
}
