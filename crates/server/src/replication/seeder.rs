//! Seeding a replica: a copy of all records, while they change.
//!
//! The records are read one by one, each while nobody changes it, together with the time stamp of
//! the last entry of the log. The log is sent along, from where it was when the copy began, and
//! each record comes behind the entries that it has in it: it makes good whatever the replica
//! made of them. Entries behind it are executed upon it. So when all have been read, the replica
//! has what the master has; nobody was held up for longer than it takes to read a record, and
//! nothing was written down.
//!
//! It is done on a thread of low priority, because it takes as much of a processor as it is given.

use super::feed::Feed;
use super::link::Link;
use super::replica::Phase;
use super::sender::{Failure, keeps};
use crate::store::record_operations::record_operations;
use crate::store::strings;
use crate::update_log::Scope;
use cabinet::Position;
use std::collections::VecDeque;
use std::thread::Builder;
use wire::binary::{Function, Request};
use wire::replication::FromMaster;
use wire::update_log::Operation;

/// Bytes of records that are read before they are sent, unless one is longer, or it takes long.
const BATCH_BYTES: usize = 256 << 10;

/// Bytes of a key that the log of the server names.
const NAMED_BYTES_MAX: usize = 100;

/// How nice the thread is to others.
const NICENESS: i32 = 10;

/// Sends a copy, and the log meanwhile. Answers the feed of what comes behind.
pub(super) fn seed<'l>(link: &mut Link<'l>) -> Result<Feed<'l>, Failure> {
    // A thread that has become nice stays so.
    std::thread::scope(|scope| {
        let thread = Builder::new().name(format!("seed-{}", link.ask.replica));
        let copying = thread.spawn_scoped(scope, || {
            let thread = rustix::thread::gettid();
            if let Err(error) = rustix::process::setpriority_process(Some(thread), NICENESS) {
                tracing::debug!("a thread cannot be made nice: {error}");
            }
            Seeding::begin(link)?.run()
        })?;
        copying.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

struct Seeding<'a, 'l> {
    link: &'a mut Link<'l>,
    feed: Feed<'l>,
    /// Operations that make records as they are, each with the time stamp that it comes behind.
    records: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    done: u64,
    total: u64,
}

impl<'a, 'l> Seeding<'a, 'l> {
    fn begin(link: &'a mut Link<'l>) -> Result<Self, Failure> {
        let (log, database) = (link.log, &link.replication.served.database);
        let stand = database.lock_keys(log, Scope::All);
        if !log.write() {
            return Err(Failure::Unwritten);
        }
        let tail = log.tail();
        let total = database.len();
        drop(stand);
        let replica = link.ask.replica;
        tracing::info!("seeding sid={replica} with {total} records");
        if let Some(id) = keeps(replica) {
            log.retention().confirm(id, tail.timestamp_us);
        }
        let feed = Feed::at(log, replica, tail)?;
        let last_uid = database.last_uid();
        link.replica.set_phase(Phase::Seeding { done: 0, total });
        link.outlet.push(&FromMaster::SeedBegin { records: total, last_uid })?;
        Ok(Self { link, feed, records: VecDeque::new(), bytes: 0, done: 0, total })
    }

    fn run(mut self) -> Result<Feed<'l>, Failure> {
        self.read_indices()?;
        // Nothing was there when it began: all that there is has been logged since.
        let mut position = (self.total > 0).then_some(Position::Start);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while let Some(from) = position {
            keys.clear();
            position = self.link.replication.served.database.scan_keys(&from, |key| {
                // One that has several values comes as often.
                if keys.last().is_none_or(|last| last != key) {
                    keys.push(key.to_vec());
                }
            })?;
            for key in &keys {
                self.read(key)?;
                // The replica hears of this server, and this server that it has gone, also where
                // records are read slowly.
                if self.bytes >= BATCH_BYTES || self.link.outlet.is_due() {
                    self.send()?;
                }
            }
        }
        self.send()?;
        let timestamp_us = self.feed.read_us();
        self.link.outlet.push(&FromMaster::SeedEnd { timestamp_us })?;
        self.link.outlet.flush()?;
        tracing::info!("seeding sid={} finished: {} records", self.link.ask.replica, self.done);
        Ok(self.feed)
    }

    /// The indices of a table.
    fn read_indices(&mut self) -> Result<(), Failure> {
        let at_us = self.link.log.last_entry_us();
        for index in self.link.replication.served.database.indices() {
            let arguments = [&index.column[..], index.kind.name().as_bytes()];
            let strings = strings(&arguments).unwrap_or_default();
            let arguments = strings.strings();
            self.take(
                at_us,
                Request::Misc { function: Function::SetIndex, options: 0, arguments },
            )?;
        }
        Ok(())
    }

    /// Reads the record under a key.
    fn read(&mut self, key: &[u8]) -> Result<(), Failure> {
        let Link { replication, log, .. } = *self.link;
        let stand = replication.served.database.lock_keys(log, Scope::Key(key));
        let at_us = stand.timestamp_us();
        let mut taken = Ok(());
        record_operations(&replication.served.database, key, &mut |request| {
            if taken.is_ok() {
                taken = self.take(at_us, request);
            }
        })?;
        taken.inspect_err(|_| {
            let key = key[..key.len().min(NAMED_BYTES_MAX)].escape_ascii();
            tracing::error!("the record under {key} is too long for a copy");
        })?;
        drop(stand);
        self.done += 1;
        Ok(())
    }

    fn take(&mut self, at_us: u64, request: Request<'_>) -> Result<(), Failure> {
        let mut body = Vec::new();
        // A record may have been stored without a log, and be longer than that has room for.
        let encoded = Operation { request, succeeded: true }.encode(&mut body);
        encoded.map_err(|_| Failure::TooLong)?;
        self.bytes += body.len();
        self.records.push_back((at_us, body));
        Ok(())
    }

    /// Sends the log so far, and each record behind the entries that it has in it.
    fn send(&mut self) -> Result<(), Failure> {
        let Self { link, feed, records, .. } = self;
        if !link.log.write() {
            return Err(Failure::Unwritten);
        }
        if link.is_over() {
            return Err(Failure::Over);
        }
        let end = link.log.end();
        let operations = records.len() as u64;
        link.send_up_to(feed, end, |outlet, entry_us| {
            while records.front().is_some_and(|(at_us, _)| *at_us < entry_us)
                && let Some((_, body)) = records.pop_front()
            {
                outlet.push(&FromMaster::Record { body: &body })?;
            }
            Ok(())
        })?;
        for (_, body) in records.drain(..) {
            link.outlet.push(&FromMaster::Record { body: &body })?;
        }
        feed.count_records(operations);
        link.push_position(feed.read_us(), feed.remaining())?;
        link.outlet.flush()?;
        feed.report(link.replica);
        link.replica.set_phase(Phase::Seeding { done: self.done, total: self.total });
        self.bytes = 0;
        Ok(())
    }
}
