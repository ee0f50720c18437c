//! Initial sync on the master: sends a copy of all records while they change.
//!
//! The records are read one by one, each under its key lock, together with the time stamp of the
//! last log entry. The log is sent along, from its end at the beginning of the copy. Each record
//! follows the entries that it includes, and overwrites their results on the replica. Later entries
//! are executed on top of it. When all records have been sent, the replica has the master's state.
//! No client waits longer than the read of one record takes, and nothing is written to disk.
//!
//! The thread has a low priority, because it would use a whole core.

use super::feed::Feed;
use super::link::Link;
use super::replica::Phase;
use super::sender::{Failure, retained_id};
use crate::store::record_operations::record_operations;
use crate::store::strings;
use crate::update_log::Scope;
use cabinet::Wanted;
use std::collections::VecDeque;
use std::thread::Builder;
use wire::binary::{Function, Request};
use wire::replication::FromMaster;
use wire::update_log::Operation;

/// Bytes of records that are read before they are sent, unless a record is longer or reading takes
/// long.
const BATCH_BYTES: usize = 256 << 10;

/// Longest part of a key in the server's log, in bytes.
const NAMED_BYTES_MAX: usize = 100;

/// Niceness of the thread.
const NICENESS: i32 = 10;

/// Sends a copy, and the log meanwhile. Returns the feed of the entries after it.
pub(super) fn seed<'l>(link: &mut Link<'l>) -> Result<Feed<'l>, Failure> {
    // The niceness of a thread cannot be lowered again.
    std::thread::scope(|scope| {
        let thread = Builder::new().name(format!("seed-{}", link.request.replica));
        let sending = thread.spawn_scoped(scope, || {
            let thread = rustix::thread::gettid();
            if let Err(error) = rustix::process::setpriority_process(Some(thread), NICENESS) {
                tracing::debug!("cannot lower the priority of a thread: {error}");
            }
            Seeding::begin(link)?.run()
        })?;
        sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

struct Seeding<'a, 'l> {
    link: &'a mut Link<'l>,
    feed: Feed<'l>,
    /// Operations that restore records, each with the time stamp of the entry that it follows.
    records: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    done: u64,
    total: u64,
}

impl<'a, 'l> Seeding<'a, 'l> {
    fn begin(link: &'a mut Link<'l>) -> Result<Self, Failure> {
        let (log, database) = (link.log, &link.replication.served.database);
        let guard = database.lock_keys(log, Scope::All);
        if !log.write() {
            return Err(Failure::Unwritten);
        }
        let tail = log.tail();
        let total = database.all_records();
        drop(guard);
        let replica = link.request.replica;
        tracing::info!("replica {replica}: initial sync of {total} records begins");
        if let Some(id) = retained_id(replica) {
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
        let replication = self.link.replication;
        let mut scan = replication.served.database.scan_all(Wanted::Keys)?;
        // If the database was empty at the beginning, all records have been logged since.
        let mut is_over = self.total == 0;
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while !is_over {
            keys.clear();
            is_over = !scan.step_keys(|key| {
                // A key is visited once per value.
                if keys.last().is_none_or(|last| last != key) {
                    keys.push(key.to_vec());
                }
            })?;
            for key in &keys {
                self.read(key)?;
                // Heartbeats and the state of the connection are checked even if records are read
                // slowly.
                if self.bytes >= BATCH_BYTES || self.link.outlet.is_due() {
                    self.send()?;
                }
            }
        }
        self.send()?;
        let timestamp_us = self.feed.read_us();
        self.link.outlet.push(&FromMaster::SeedEnd { timestamp_us })?;
        self.link.outlet.flush()?;
        tracing::info!(
            "replica {}: initial sync is complete: {} records",
            self.link.request.replica,
            self.done
        );
        Ok(self.feed)
    }

    /// Reads the indexes of a table.
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
        let guard = replication.served.database.lock_keys(log, Scope::Key(key));
        let at_us = guard.timestamp_us();
        let mut taken = Ok(());
        record_operations(&replication.served.database, key, &mut |request| {
            if taken.is_ok() {
                taken = self.take(at_us, request);
            }
        })?;
        taken.inspect_err(|_| {
            let key = key[..key.len().min(NAMED_BYTES_MAX)].escape_ascii();
            tracing::error!("the record {key} is too long for an initial sync");
        })?;
        drop(guard);
        self.done += 1;
        Ok(())
    }

    fn take(&mut self, at_us: u64, request: Request<'_>) -> Result<(), Failure> {
        let mut body = Vec::new();
        // A record stored without a log may be longer than a log entry can be.
        let encoded = Operation { request, succeeded: true }.encode(&mut body);
        encoded.map_err(|_| Failure::TooLong)?;
        self.bytes += body.len();
        self.records.push_back((at_us, body));
        Ok(())
    }

    /// Sends the log so far, and each record after the entries that it includes.
    fn send(&mut self) -> Result<(), Failure> {
        let Self { link, feed, records, .. } = self;
        if !link.log.write() {
            return Err(Failure::Unwritten);
        }
        if link.is_over() {
            return Err(Failure::Disconnected);
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
