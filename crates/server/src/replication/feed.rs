//! Feed: the update log for one replica, without the entries that come from the replica or its own
//! sources.

use super::replica::{Amount, Replica};
use super::sender::Failure;
use crate::update_log::{LogOffset, Reader, Tail, UpdateLog};
use wire::update_log::{Entry, Message};

/// Returns whether an entry is for a replica, which has neither executed it first nor sent it here.
fn is_for(entry: &Entry<'_>, replica: u32) -> bool {
    u32::from(entry.origin) != replica && u32::from(entry.master) != replica
}

/// Reader of the log for a replica, with counters.
pub(super) struct Feed<'l> {
    log: &'l UpdateLog,
    reader: Reader,
    replica: u32,
    /// Entries read minus entries written to the log since it was opened.
    read_less_written: Amount,
    /// Time stamp of the last entry read, in microseconds since 1970.
    read_us: u64,
    /// Operations sent. Records of a copy have no bytes of the log.
    sent: Amount,
}

impl<'l> Feed<'l> {
    /// Returns a feed from a time stamp on, or `None` if there is no log.
    pub(super) fn of(
        log: &'l UpdateLog,
        replica: u32,
        from_us: u64,
    ) -> Result<Option<Self>, Failure> {
        let reader = Reader::open(log.folder(), from_us)?;
        Ok(reader.map(|reader| Self::new(log, reader, replica, Amount::default(), from_us - 1)))
    }

    /// Returns a feed from a time stamp on after counting all of its entries, which may take
    /// minutes. Calls `go_on` with the count at each entry, and ends if that fails.
    pub(super) fn counted(
        log: &'l UpdateLog,
        replica: u32,
        from_us: u64,
        mut go_on: impl FnMut(u64) -> Result<(), Failure>,
    ) -> Result<Option<Self>, Failure> {
        let tail = log.tail();
        let Some(mut counting) = Reader::open(log.folder(), from_us)? else { return Ok(None) };
        let mut backlog = Amount::default();
        while let Some(entry) = counting.next(Some(tail.end))? {
            backlog = backlog.plus(Amount::of(&entry));
            go_on(backlog.operations)?;
        }
        let mut feed = Self::of(log, replica, from_us)?;
        if let Some(feed) = &mut feed {
            feed.read_less_written = Amount::up_to(tail).minus(backlog);
        }
        Ok(feed)
    }

    /// Returns a feed from the end of the log on, as of a moment when all entries were in the file.
    pub(super) fn at(log: &'l UpdateLog, replica: u32, tail: Tail) -> Result<Self, Failure> {
        let reader = Reader::open_at(log.folder(), tail.end, 0)?;
        Ok(Self::new(log, reader, replica, Amount::up_to(tail), tail.timestamp_us))
    }

    fn new(
        log: &'l UpdateLog,
        reader: Reader,
        replica: u32,
        read_less_written: Amount,
        read_us: u64,
    ) -> Self {
        Self { log, reader, replica, read_less_written, read_us, sent: Amount::default() }
    }

    /// Returns the time stamp of the last entry read, in microseconds since 1970.
    pub(super) fn read_us(&self) -> u64 {
        self.read_us
    }

    /// Returns the next message for the replica before `end`.
    pub(super) fn next(&mut self, end: LogOffset) -> Result<Option<Message<'_>>, Failure> {
        // A return from within the loop would borrow the reader until the end of the function.
        let amount = loop {
            let Some(entry) = self.reader.next(Some(end))? else { return Ok(None) };
            let amount = Amount::of(&entry);
            self.read_less_written = self.read_less_written.plus(amount);
            self.read_us = entry.timestamp_us;
            if is_for(&entry, self.replica) {
                break amount;
            }
        };
        self.sent = self.sent.plus(amount);
        let message = self.reader.last().map(|entry| Message::Update {
            timestamp_us: entry.timestamp_us,
            origin: entry.origin.into(),
            body: entry.body,
        });
        Ok(message)
    }

    /// Counts operations that were sent without being in a log.
    pub(super) fn count_records(&mut self, operations: u64) {
        self.sent = self.sent.plus(Amount { operations, bytes: 0 });
    }

    /// Returns the number of log entries that were not read yet.
    pub(super) fn remaining(&self) -> u64 {
        Amount::up_to(self.log.tail()).minus(self.read_less_written).operations
    }

    /// Reports the progress of the feed for `stat`.
    pub(super) fn report(&self, replica: &Replica) {
        replica.sent(self.sent, self.read_us, self.read_less_written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::update_log::{Scope, Settings, Source};
    use wire::binary::Request;
    use wire::update_log::Operation;

    #[test]
    fn counting_can_be_ended_at_each_entry() {
        let folder = tempfile::tempdir().expect("a folder");
        let database = cabinet::Database::open("*").expect("memory");
        let (log, _) = UpdateLog::open(Settings::new(folder.path()), &database).expect("room");
        for key in [b"a", b"b", b"c"] {
            let request = Request::Put { key, value: b"v" };
            let operation = Operation { request, succeeded: true };
            let source = Source { origin: 1, master: 0, root: None };
            let held = log.begin(&database, source, Scope::Key(key), true).expect("no failure");
            held.append(source, &operation);
        }
        assert!(log.write());
        let mut counts = Vec::new();
        let counted = Feed::counted(&log, 2, 1, |count| {
            counts.push(count);
            Ok(())
        });
        assert_eq!(counted.expect("files").expect("a file").remaining(), 3);
        assert_eq!(counts, [1, 2, 3]);
        let ended = Feed::counted(&log, 2, 1, |count| match count {
            1 => Ok(()),
            _ => Err(Failure::Disconnected),
        });
        assert!(matches!(ended, Err(Failure::Disconnected)));
    }
}
