//! Noting where entries are in a master's log, and going on behind such a place.

use super::places::lines;
use super::places::{Followed, Line};
use super::reader::first_timestamp;
use super::{Result, Source, UpdateLog, files, now_us};

/// Where this log goes on for a replica of the same master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resumption {
    /// The first entry whose place is behind the one that it has come to, if there is one.
    pub(crate) first_us: Option<u64>,
    /// All entries up to here have places; those behind are this server's own, or come later.
    pub(crate) switch_us: u64,
}

/// Lines of entries in the buffer.
#[derive(Default)]
pub(super) struct NewLines {
    pub(super) bytes: Vec<u8>,
    /// The master is followed: what clients change meanwhile may come back from it.
    pub(super) is_live: bool,
    /// Entries without lines have come since there were lines.
    pub(super) has_own: bool,
    /// An entry has come that they cannot tell.
    pub(super) is_broken: bool,
}

impl NewLines {
    pub(super) fn take(&mut self, source: Source, own_us: u64) {
        match source {
            Source { place_us: 0, master: 0, .. } if !self.is_live => self.has_own = true,
            Source { place_us, .. } if place_us > 0 && !self.has_own => {
                Line { own_us, place_us }.encode(&mut self.bytes);
            }
            _ => self.is_broken = true,
        }
    }
}

impl UpdateLog {
    /// From now on entries come from the master whose log is `log`, behind `from_us` there; everything
    /// before is in the database. Nothing of that may be under way.
    pub(crate) fn follow(&self, log: &str, from_us: u64) -> Result<()> {
        let mut places = self.places.lock();
        // Held all the time, so that no entry comes between.
        let mut buffer = self.buffer.lock();
        let is_followed = places.followed().is_some_and(|followed| followed.log == log);
        if is_followed
            && let Some(lines) = &mut buffer.lines
            && !lines.has_own
            && !lines.is_broken
        {
            lines.is_live = true;
            return Ok(());
        }
        buffer.lines = None;
        let own_us = now_us().max(buffer.last_timestamp_us);
        buffer.last_timestamp_us = own_us;
        places.begin(Followed { log: log.to_owned(), from_us, own_us })?;
        buffer.lines = Some(NewLines { is_live: true, ..NewLines::default() });
        Ok(())
    }

    /// No master is followed any more: what comes now is of clients.
    pub(crate) fn follow_nobody(&self) {
        if let Some(lines) = &mut self.buffer.lock().lines {
            lines.is_live = false;
        }
    }

    /// Something was executed, or will be, that is not in the log as the master's has it.
    pub(crate) fn forget_places(&self) -> Result<()> {
        let mut places = self.places.lock();
        self.buffer.lock().lines = None;
        places.forget()
    }

    pub(super) fn write_lines(&self, lines: Option<NewLines>) -> Result<()> {
        let Some(lines) = lines else { return Ok(()) };
        let mut places = self.places.lock();
        let written = if lines.is_broken { places.forget() } else { places.write(&lines.bytes) };
        if written.is_err() {
            let mut buffer = self.buffer.lock();
            match &mut buffer.lines {
                Some(later) => {
                    later.bytes.splice(..0, lines.bytes);
                }
                None => buffer.lines = Some(NewLines { is_broken: true, ..lines }),
            }
        }
        written
    }

    /// Removes lines of entries that are no longer kept.
    pub(super) fn keep_places(&self) -> Result<()> {
        let folder = &self.settings.folder;
        let Some(oldest) = files::numbers(folder)?.first().copied() else { return Ok(()) };
        if oldest == 1 {
            return Ok(());
        }
        match first_timestamp(&files::path(folder, oldest))? {
            Some(oldest_us) => self.places.lock().keep(oldest_us),
            None => Ok(()),
        }
    }

    /// Where this log goes on behind `place_us` in the log `log`; `None` if that is not known. Everything
    /// logged so far is in the files then.
    pub(crate) fn resumption(&self, log: &str, place_us: u64) -> Result<Option<Resumption>> {
        if !self.write() {
            return Ok(None);
        }
        let tail = self.tail();
        let places = self.places.lock();
        let Some(followed) = places.followed() else { return Ok(None) };
        let is_whole = self.buffer.lock().lines.as_ref().is_some_and(|lines| !lines.is_broken);
        if !is_whole || followed.log != log || followed.from_us > place_us {
            return Ok(None);
        }
        let mut switch_us = followed.own_us;
        drop(places);
        let Some(all) = lines(&self.settings.folder, place_us, tail.timestamp_us)? else {
            return Ok(None);
        };
        let mut first_us = None;
        for line in all {
            let line = line?;
            switch_us = line.own_us;
            if line.place_us > place_us {
                first_us.get_or_insert(line.own_us);
            }
        }
        Ok(Some(Resumption { first_us, switch_us }))
    }

    /// The places of entries up to `switch_us`; `None` if some behind `place_us` have been removed.
    pub(crate) fn places(
        &self,
        place_us: u64,
        switch_us: u64,
    ) -> Result<Option<impl Iterator<Item = Result<Line>>>> {
        lines(&self.settings.folder, place_us, switch_us)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Scope, Settings, Unfinished};
    use super::*;
    use cabinet::Database;
    use std::path::Path;
    use wire::binary::Request;
    use wire::update_log::Operation;

    const OWN: Source = Source { origin: 1, master: 0, place_us: 0 };

    fn at(place_us: u64) -> Source {
        Source { origin: 2, master: 2, place_us }
    }

    fn open(folder: &Path) -> (UpdateLog, Vec<Unfinished>) {
        let path = folder.join("casket.tch");
        let database = Database::open(path.to_str().expect("a name")).expect("a database");
        UpdateLog::open(Settings::new(folder.join("ulog")), &database).expect("a log")
    }

    fn append(log: &UpdateLog, source: Source) {
        let memory = Database::open("*").expect("memory");
        let held = log.begin(&memory, source, Scope::Key(b"key"), true).expect("no failure");
        let request = Request::Put { key: b"key", value: b"v" };
        held.append(source, &Operation { request, succeeded: true });
    }

    /// How many places are known behind one.
    fn behind(log: &UpdateLog, place_us: u64) -> Option<usize> {
        let found = log.resumption("log", place_us).expect("files")?;
        let places = log.places(place_us, found.switch_us).expect("files").expect("lines");
        let places: Vec<Line> = places.collect::<Result<_>>().expect("files");
        assert!(places.last().is_none_or(|last| last.own_us == found.switch_us));
        Some(places.iter().filter(|line| line.place_us > place_us).count())
    }

    #[test]
    fn places_are_known_behind_where_they_begin_also_when_the_server_is_a_master_by_now() {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, _) = open(folder.path());
        append(&log, OWN);
        log.follow("log", 10).expect("room");
        for place_us in [11, 13, 12] {
            append(&log, at(place_us));
        }
        assert_eq!(
            [9, 10, 12, 13].map(|from| behind(&log, from)),
            [None, Some(3), Some(1), Some(0)]
        );
        assert_eq!(log.resumption("other", 10).expect("files"), None);
        log.follow_nobody();
        append(&log, OWN);
        assert_eq!(behind(&log, 10), Some(3));
        log.follow("log", 13).expect("room");
        assert_eq!(behind(&log, 12), None);
    }

    #[test]
    fn what_has_no_place_ends_that_they_are_known() {
        let unknown = Source { place_us: 0, ..at(1) };
        for (is_live, sources) in
            [(true, &[unknown][..]), (false, &[unknown]), (true, &[OWN]), (false, &[OWN, at(12)])]
        {
            let folder = tempfile::tempdir().expect("a folder");
            let (log, _) = open(folder.path());
            log.follow("log", 10).expect("room");
            append(&log, at(11));
            assert_eq!(behind(&log, 10), Some(1));
            if !is_live {
                log.follow_nobody();
            }
            sources.iter().for_each(|source| append(&log, *source));
            assert_eq!(behind(&log, 10), None);
            drop(log);
            assert_eq!(behind(&open(folder.path()).0, 10), None);
        }
    }

    #[test]
    fn a_killed_master_knows_the_places_again_and_a_killed_replica_only_those_that_are_in_files() {
        // Of the last entry, which is in the journal only; then of a change that was under way.
        for (last, is_under_way, expected) in [
            (OWN, false, Some(1)),
            (at(12), false, None),
            (OWN, true, Some(1)),
            (at(12), true, None),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let (log, _) = open(folder.path());
            log.follow("log", 10).expect("room");
            append(&log, at(11));
            assert_eq!(behind(&log, 10), Some(1));
            if last == OWN {
                log.follow_nobody();
            }
            if is_under_way {
                let memory = Database::open("*").expect("memory");
                let held = log.begin(&memory, last, Scope::Key(b"key"), true);
                std::mem::forget(held.expect("no failure"));
            } else {
                append(&log, last);
            }
            // As a process that is killed.
            drop(log);
            let (log, unfinished) = open(folder.path());
            unfinished.iter().for_each(|one| log.settled(one.id));
            assert_eq!(behind(&log, 10), expected, "{last:?} {is_under_way}");
        }
    }
}
