//! Initial sync on the replica: its database becomes a copy of the master's.
//!
//! A marker file beside the position exists from before the first removal until the copy is
//! complete and durable. A replica that is killed meanwhile begins again. Clients may read the
//! records that have arrived, and `stat` shows that the copy is incomplete.

use super::follower::{End, State};
use super::position::Position;
use super::replica_session::out_of_place;
use crate::ops::replay::{Logged, Replayer};
use crate::ops::served::Served;
use crate::store::Store;
use crate::update_log::Source;
use std::time::{Duration, Instant};
use wire::replication::FromMaster;
use wire::update_log::Message;

/// Interval of the progress lines in the server's log.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// A copy that is not complete yet.
pub(super) struct InitialSyncReceiver<'a> {
    served: &'a Served,
    master_id: u16,
    done: u64,
    total: u64,
    reported_at: Instant,
}

impl<'a> InitialSyncReceiver<'a> {
    /// Removes all records before those of the master arrive: `records` at present, and `last_uid`
    /// is the last identifier of its table. If the database was empty when the copy was requested,
    /// as `was_empty` says, fails rather than remove records stored since.
    pub(super) fn begin(
        served: &'a Served,
        position: &mut Position,
        master_id: u16,
        (records, last_uid): (u64, u64),
        was_empty: bool,
    ) -> Result<Self, End> {
        let before = served.database.all_records();
        let must_be_empty = was_empty && !position.is_seeding();
        if must_be_empty && before > 0 {
            return Err(End::Lost(
                "an initial sync would replace records that were just stored".into(),
            ));
        }
        if before == 0 {
            tracing::info!("initial sync from server {master_id} begins: {records} records");
        } else {
            tracing::warn!(
                "initial sync from server {master_id} begins: its records ({records}) replace \
                 those here ({before})"
            );
        }
        position.begin_seeding().map_err(|error| {
            End::Lost(format!("cannot mark the initial sync as begun: {error}"))
        })?;
        if let Some(log) = &served.update_log {
            log.begin_copy().map_err(End::lost)?;
        }
        let copy = Self { served, master_id, done: 0, total: records, reported_at: Instant::now() };
        let mut store: Store = served.database.ungated();
        store.set_source(copy.source());
        // Replicas of this server may have records from its log nevertheless.
        let has_logged = served.update_log.as_ref().is_some_and(|log| log.last_entry_us() > 0);
        let cleared = match before > 0 || has_logged {
            false => Ok(()),
            // Records that clients of a writable server have stored since stay.
            true if must_be_empty => store.clear_empty().map(|_| ()),
            true => store.clear(),
        };
        let set = cleared.and_then(|()| store.set_last_uid(last_uid));
        set.map_err(End::lost)?;
        Ok(copy)
    }

    /// Returns the source of the records: for replicas of this server they come from the master.
    fn source(&self) -> Source {
        Source { origin: self.master_id, master: self.master_id, root: None }
    }

    /// Executes an operation that restores a record, or an entry of the master's log. The record of
    /// an entry may not have arrived yet.
    pub(super) fn take(
        &mut self,
        replayer: &mut Replayer<'_>,
        message: FromMaster<'_>,
    ) -> Result<(), End> {
        match message {
            FromMaster::Record { body } => {
                self.done += 1;
                self.execute(replayer, self.source(), body)
            }
            FromMaster::Log(Message::Update { origin, body, .. })
            | FromMaster::Rooted { message: Message::Update { origin, body, .. }, .. } => {
                if origin == self.served.settings.server_id {
                    return Ok(());
                }
                let origin = u16::try_from(origin)
                    .map_err(|_| End::Halted(format!("{origin} is not a server id")))?;
                self.execute(replayer, Source { origin, master: self.master_id, root: None }, body)
            }
            _ => Err(out_of_place()),
        }
    }

    fn execute(&self, replayer: &mut Replayer<'_>, source: Source, body: &[u8]) -> Result<(), End> {
        let Ok(logged) = Logged::parse(body, self.served.model) else {
            return Err(End::Lost("the initial sync contains an invalid operation".into()));
        };
        let replayed = replayer.replay(source, &logged);
        replayed.map(|_| ()).map_err(End::lost)
    }

    /// Updates the shown progress.
    pub(super) fn show(&mut self, state: &mut State) -> Result<(), End> {
        let Self { done, total, .. } = *self;
        *state = State::Seeding { done, total };
        if self.reported_at.elapsed() >= REPORT_INTERVAL {
            self.reported_at = Instant::now();
            tracing::info!(
                "initial sync from server {}: {done} of {total} records",
                self.master_id
            );
        }
        self.flush()
    }

    fn flush(&self) -> Result<(), End> {
        if self.served.flush_update_log() {
            Ok(())
        } else {
            Err(End::Lost("the update log cannot be written".into()))
        }
    }

    /// Completes the copy, which contains all changes up to `timestamp_us`.
    pub(super) fn end(&self, position: &mut Position, timestamp_us: u64) -> Result<(), End> {
        self.flush()?;
        self.served.database.make_durable().map_err(End::lost)?;
        // A log without entries ends at 0, which is not a valid position.
        let ended = position.end_seeding(timestamp_us.max(1), !self.served.settings.is_writable);
        ended.map_err(|error| {
            End::Lost(format!("cannot mark the initial sync as complete: {error}"))
        })?;
        tracing::info!(
            "initial sync from server {} is complete: {} records",
            self.master_id,
            self.done
        );
        Ok(())
    }
}
