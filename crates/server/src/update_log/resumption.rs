//! Noting where entries were made first, and going on for a replica that has executed some of them.

use super::reader::first_timestamp;
use super::roots::{RootLine, RootState, first_beyond};
use super::{Result, Source, UpdateLog, files, identity};
use std::collections::BTreeMap;
use wire::replication::Had as Executed;
use xxhash_rust::xxh3::xxh3_64;

/// What is to be noted of the entries in the buffer.
#[derive(Default)]
pub(super) struct PendingRootLines {
    pub(super) bytes: Vec<u8>,
    /// Entries that come with their root get lines.
    pub(super) is_recording: bool,
    /// One has come without, that is no client's.
    pub(super) is_broken: bool,
    /// The first entry of a client, which may be noted by now; 0 without any.
    pub(super) own_us: u64,
    /// The first one since entries get lines; 0 without any.
    pub(super) since_us: u64,
}

impl PendingRootLines {
    pub(super) fn take(&mut self, source: Source, own_us: u64) {
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

/// What roots name the log of this identity.
pub(crate) fn name_of(identity: &str) -> u64 {
    xxh3_64(identity.as_bytes()).max(1)
}

impl UpdateLog {
    /// What roots name this log; `None` if it has no identity.
    pub(crate) fn name(&self) -> Option<u64> {
        self.identity().map(|identity| name_of(&identity))
    }

    /// Whether entries get lines.
    pub(crate) fn is_recording(&self) -> bool {
        self.buffer.lock().lines.is_recording
    }

    /// From now on entries get lines that come with their roots. The database has executed of each
    /// log what is before a time stamp, and maybe some up to it; nothing of any other. Nothing may
    /// be under way.
    pub(crate) fn record_roots(&self, logs: Vec<(u64, u64)>) -> Result<()> {
        if !self.write() {
            return Ok(());
        }
        let mut roots = self.roots.lock();
        // ChangeGuard all the time, so that no entry comes between.
        let mut buffer = self.buffer.lock();
        let (floor_us, own_us) = (Some(buffer.last_entry_us), buffer.lines.own_us);
        roots.save(RootState { floor_us, own_us, since_us: 0, logs })?;
        let lines = &mut buffer.lines;
        (lines.is_recording, lines.is_broken, lines.since_us) = (true, false, 0);
        Ok(())
    }

    /// The same of a server that follows nobody: whatever is in its log counts as made first here,
    /// if that was not known.
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

    /// Something was executed, or will be, that is not in the log as it is elsewhere.
    pub(crate) fn invalidate_roots(&self) -> Result<()> {
        let own_us = self.buffer.lock().lines.own_us;
        self.break_roots(own_us)
    }

    /// Nothing of what is in the log is in the database any more, which becomes a copy of another.
    /// The log is another one from then on: what its replicas have executed is no part of it.
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

    /// Notes what is known of entries before they are written. Lines can be given again after an
    /// error.
    pub(super) fn write_lines(&self, lines: &[u8]) -> Result<()> {
        let mut roots = self.roots.lock();
        let (is_broken, own_us, since_us) = {
            let lines = &self.buffer.lock().lines;
            (lines.is_broken, lines.own_us, lines.since_us)
        };
        match roots.had() {
            Some(had)
                if is_broken && had.floor_us.is_some()
                    || (had.own_us, had.since_us) != (own_us, since_us) =>
            {
                let before = if is_broken { RootState::default() } else { had.clone() };
                roots.save(RootState { own_us, since_us, ..before })?;
            }
            None if is_broken => {
                roots.save(RootState { own_us, since_us, ..RootState::default() })?
            }
            _ => {}
        }
        roots.write(lines)
    }

    /// Removes lines of entries that are no longer kept.
    pub(super) fn remove_old_roots(&self) -> Result<()> {
        let folder = &self.settings.folder;
        let Some(oldest) = files::numbers(folder)?.first().copied() else { return Ok(()) };
        if oldest == 1 {
            return Ok(());
        }
        match first_timestamp(&files::path(folder, oldest))? {
            Some(oldest_us) => self.roots.lock().keep(oldest_us),
            None => Ok(()),
        }
    }

    /// The logs that entries here were made first in, with time stamps up to which the database has
    /// executed everything of them, as `had` says of it; `None` if that is not known. This log is
    /// one of them if it has entries of clients, with everything up to `own_us`.
    pub(crate) fn bases(&self, had: &[Executed], own_us: u64) -> Option<Vec<(u64, u64)>> {
        let own = (self.name()?, own_us.max(1));
        let roots = self.roots.lock();
        if self.buffer.lock().lines.is_broken {
            return None;
        }
        let Some(noted) = roots.had() else { return Some(vec![own]) };
        noted.floor_us?;
        let is_had =
            |log: u64, at_us: u64| had.iter().any(|had| had.log == log && had.base_us >= at_us);
        let mut logs = noted.logs.iter().filter(|(log, _)| *log != own.0);
        let is_whole =
            logs.all(|(log, at_us)| is_had(*log, *at_us)) && roots.logs().all(|log| is_had(log, 0));
        let others = had.iter().map(|had| (had.log, had.base_us)).filter(|(log, _)| *log != own.0);
        let has_own = self.buffer.lock().lines.own_us > 0;
        is_whole.then(|| others.chain(has_own.then_some(own)).collect())
    }

    /// Up to where this log has nothing that a replica lacks that has executed `had`; `None` if
    /// that is not known. Everything logged so far is in the files then.
    pub(crate) fn resumption(&self, had: &[Executed]) -> Result<Option<u64>> {
        let (Some(own), true) = (self.name(), self.write()) else { return Ok(None) };
        let tail_us = self.tail().timestamp_us;
        let bases: BTreeMap<u64, u64> = had.iter().map(|had| (had.log, had.base_us)).collect();
        let base_of = |log: u64| bases.get(&log).copied().unwrap_or_default();
        let own_base_us = base_of(own);
        // Writers wait for this lock, so it is not change while files are read.
        let (noted, is_broken, own_us, since_us) = {
            let roots = self.roots.lock();
            let lines = &self.buffer.lock().lines;
            (roots.had().cloned(), lines.is_broken, lines.own_us, lines.since_us)
        };
        if is_broken {
            return Ok(None);
        }
        let Some(noted) = noted else {
            return Ok((own_base_us > 0).then_some(own_base_us.min(tail_us)));
        };
        let Some(floor_us) = noted.floor_us else { return Ok(None) };
        // What clients had made before a master was followed is no part of what others have.
        let has_old =
            own_base_us == 0 || own_us == 0 || own_us > floor_us || own_base_us >= floor_us;
        if !has_old || noted.logs.iter().any(|(log, at_us)| base_of(*log) < *at_us) {
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

    /// Returns the time stamp of the entry.
    fn append(log: &UpdateLog, source: Source) -> u64 {
        let memory = Database::open("*").expect("memory");
        let change = log.begin(&memory, source, Scope::Key(b"key"), true).expect("no failure");
        let request = Request::Put { key: b"key", value: b"v" };
        change.append(source, &Operation { request, succeeded: true });
        log.last_entry_us()
    }

    /// Where it goes on for one that has executed everything of the other log up to a time stamp.
    fn resumed(log: &UpdateLog, base_us: u64) -> Option<u64> {
        log.resumption(&[Executed::up_to(7, base_us)]).expect("files")
    }

    #[test]
    fn it_is_known_where_a_replica_goes_on_also_when_the_server_is_a_master_by_now() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        append(&log, UNKNOWN);
        log.record_roots(vec![(7, 10)]).expect("room");
        let placed = [11, 13, 12].map(|timestamp_us| append(&log, at(timestamp_us)));
        assert_eq!(resumed(&log, 9), None);
        // Up to 12 the entry of 13 is missing: the one behind it comes again, and is left out.
        let found = [10, 11, 12, 13].map(|base_us| resumed(&log, base_us));
        assert_eq!(found, [placed[0] - 1, placed[1] - 1, placed[1] - 1, placed[2]].map(Some));
        let own_us = append(&log, OWN);
        append(&log, at(14));
        assert_eq!(resumed(&log, 14), Some(own_us - 1));
        let own = Executed::up_to(log.name().expect("an identity"), own_us);
        let both = [Executed::up_to(7, 14), own];
        assert_eq!(log.resumption(&both).expect("files"), Some(own_us));
        drop(log);
        assert_eq!(resumed(&open(folder.path()).0, 14), Some(own_us - 1));
    }

    #[test]
    fn what_clients_change_here_after_a_master_was_followed_is_not_missed_for_what_they_had_before()
    {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        append(&log, OWN);
        log.record_roots(vec![(7, 10)]).expect("room");
        let placed_us = append(&log, at(11));
        assert_eq!(resumed(&log, 11), Some(placed_us));
        let own_us = append(&log, OWN);
        append(&log, at(12));
        assert_eq!(resumed(&log, 12), Some(own_us - 1));
        drop(log);
        assert_eq!(resumed(&open(folder.path()).0, 12), Some(own_us - 1));
    }

    #[test]
    fn writers_do_not_wait_while_it_is_looked_up_where_a_replica_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        log.record_roots(vec![(7, 10)]).expect("room");
        append(&log, at(11));
        assert!(log.write());
        // An open of it waits until the other end is open too.
        let slow = folder.path().join("ulog/roots.00000002");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &slow, rustix::fs::FileType::Fifo, mode, 0)
            .expect("a pipe");
        let (written, is_written) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| log.resumption(&[Executed::up_to(7, 11)]).is_err());
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(!looking.is_finished());
            scope.spawn(|| {
                append(&log, OWN);
                written.send(log.write())
            });
            let in_time = is_written.recv_timeout(std::time::Duration::from_secs(10));
            // That is none to be read.
            let end = std::fs::OpenOptions::new().read(true).write(true).open(&slow);
            std::fs::remove_file(&slow).expect("a pipe");
            while !looking.is_finished() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            drop(end);
            assert_eq!(in_time, Ok(true));
        });
    }

    #[test]
    fn logs_of_entries_before_the_notes_began_again_do_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        log.record_roots(vec![(7, 10)]).expect("room");
        append(&log, at(11));
        assert!(log.write());
        log.begin_copy().expect("room");
        log.record_roots(vec![(8, 5)]).expect("room");
        let other = Source { root: Some(Root { log: 8, timestamp_us: 6 }), ..UNKNOWN };
        let known = Some(vec![(8, 6)]);
        assert_eq!(log.bases(&[Executed::up_to(8, 6)], 5), known);
        drop(log);
        let (log, _) = open(folder.path());
        assert_eq!(log.bases(&[Executed::up_to(8, 6)], 5), known);
        append(&log, other);
        assert_eq!(log.bases(&[Executed::up_to(8, 6)], 5), known);
        assert!(log.write());
        drop(log);
        let (log, _) = open(folder.path());
        assert_eq!(log.bases(&[Executed::up_to(8, 6)], 5), known);
    }

    #[test]
    fn what_comes_without_its_root_ends_that_it_is_known_until_it_counts_as_the_servers_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        log.record_roots(vec![(7, 10)]).expect("room");
        append(&log, at(11));
        let had = [Executed::up_to(7, 11)];
        assert!(resumed(&log, 11).is_some() && log.bases(&had, 5).is_some());
        let last_us = append(&log, UNKNOWN);
        assert!(!log.is_recording());
        assert_eq!((resumed(&log, 11), log.bases(&had, 5)), (None, None));
        drop(log);
        let (log, _) = open(folder.path());
        assert_eq!((resumed(&log, 11), log.bases(&had, 5)), (None, None));
        log.adopt_entries().expect("room");
        assert_eq!(resumed(&log, 11), None);
        let own = Executed::up_to(log.name().expect("an identity"), last_us);
        assert_eq!(log.resumption(&[own]).expect("files"), Some(last_us));
    }

    #[test]
    fn a_log_whose_database_becomes_a_copy_is_another_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        let name = log.name();
        log.begin_copy().expect("room");
        assert_eq!(log.name(), name);
        append(&log, OWN);
        log.begin_copy().expect("room");
        assert_ne!(log.name(), name);
        log.record_roots(vec![(7, 10)]).expect("room");
        // What its clients had made has gone.
        assert_eq!(log.bases(&[Executed::up_to(7, 12)], 5), Some(vec![(7, 12)]));
        assert_eq!(log.bases(&[Executed::up_to(7, 9)], 5), None);
    }

    #[test]
    fn a_killed_master_knows_it_again_and_a_killed_replica_only_what_is_in_files() {
        // First the last entry, which is in the journal only; then a change that was under way.
        for (last, is_under_way, expected) in
            [(OWN, false, true), (at(12), false, false), (OWN, true, true), (at(12), true, false)]
        {
            let folder = tempfile::tempdir().expect("a folder");
            let (log, _) = open(folder.path());
            log.record_roots(vec![(7, 10)]).expect("room");
            append(&log, at(11));
            assert!(resumed(&log, 10).is_some());
            if is_under_way {
                let memory = Database::open("*").expect("memory");
                let change = log.begin(&memory, last, Scope::Key(b"key"), true);
                std::mem::forget(change.expect("no failure"));
            } else {
                append(&log, last);
            }
            // As a process that is killed.
            drop(log);
            let (log, unfinished) = open(folder.path());
            unfinished.iter().for_each(|one| log.resolved(one.id));
            assert_eq!(resumed(&log, 10).is_some(), expected, "{last:?} {is_under_way}");
        }
    }
}
