//! Replica session: follows one master over one connection.

use super::SILENCE_MAX;
use super::apply::{Applier, Names};
use super::follower::{End, Follower, Master, Progress, Seeding, State};
use super::initial_sync_receiver::InitialSyncReceiver;
use super::position::{Inexact, Position};
use super::replica_progress::ReplicaProgress;
use crate::ops::replay::Replayer;
use crate::ops::served::Served;
use crate::update_log::name_of;
use cabinet::name::Kind;
use client::{Address, Credentials, ReplicaLink, Settings, SubscribeRequest};
use std::error::Error as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread::Builder;
use std::time::Duration;
use wire::replication::{
    COMPRESS, FromMaster, LogProgress, RESUME, Resume, SEED, SEED_IF_TOO_OLD, SEND_ROOTS,
};

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest silence of a master of Tokyo Tyrant, and of any master before its kind is known. It
/// sends a heartbeat every second, but not while it searches its log, and it finishes all other
/// work before it executes a function of `misc`.
const TOKYO_TYRANT_SILENCE_MAX: Duration = Duration::from_secs(60);

/// How a replica that has other records than its master becomes equal to it.
const EXACT_COPY: &str =
    ". For an exact copy start this server again with --seed always, which replaces its records";

/// The same for one that clients write to.
const EXACT_COPY_IF_WRITABLE: &str =
    ". For an exact copy stop this server, move its database away, and start it again";

/// Session with one master, under one configuration of the follower.
pub(super) struct ReplicaSession<'f> {
    pub(super) follower: &'f Follower,
    pub(super) served: &'f Served,
    /// Generation of the configuration.
    pub(super) generation: u64,
    pub(super) check: bool,
    /// Whether the database had no records when the session began.
    pub(super) was_empty: bool,
}

/// Returns why a master was not reached, with the settings that may change it.
fn not_connected(error: client::Error, credentials: Option<&Path>, has_tls: bool) -> End {
    use client::Error;
    if let (Error::LoginRefused(_), Some(path)) = (&error, credentials) {
        return End::Lost(format!(
            "{error}; the login is that of master-credentials, {}",
            path.display()
        ));
    }
    let says = |part| error.source().is_some_and(|source| source.to_string().contains(part));
    let advice = match &error {
        Error::PlainLogin => {
            "; the login of master-credentials needs master-tls, or master-plain-login on a private \
             network"
        }
        // The reply is none of this protocol.
        Error::InvalidOperation if !has_tls => {
            return End::Lost(
                "the master does not speak the protocol of replication, or requires TLS: master-tls"
                    .into(),
            );
        }
        Error::Receive(_) if says("requires TLS\\r") => {
            return End::Lost("the master requires TLS: master-tls".into());
        }
        Error::Handshake(_) if says("does not speak TLS") => {
            "; leave out master-tls if it is to be followed without"
        }
        Error::Receive(_) if has_tls && credentials.is_none() && says("before its first reply") => {
            "; master-credentials names a login for a master with users, master-tls-cert and \
             master-tls-key the certificate that it may ask for"
        }
        // With TLS 1.3 the master judges the certificate that it is shown after the handshake.
        Error::Handshake(_) if says("not valid for any names") => {
            "; the master needs another certificate, made with subjectAltName=DNS:NAME or IP:ADDRESS"
        }
        Error::Handshake(_) if says("not valid for name") => "; give --master one of these names",
        Error::Handshake(_) | Error::Receive(_) if has_tls => {
            "; master-tls-ca names the authority of the master's certificate, master-tls-cert and \
             master-tls-key the certificate that it is shown"
        }
        _ => "",
    };
    match End::from(error) {
        End::Lost(reason) => End::Lost(reason + advice),
        end => end,
    }
}

impl ReplicaSession<'_> {
    fn is_over(&self) -> bool {
        !self.follower.is_under(self.generation)
    }

    /// Returns the end for a master of this project that has the id of this server, and an update
    /// log with this identity, if any.
    fn same_id(&self, server_id: u32, identity: Option<String>) -> End {
        let own = self.served.update_log.as_ref().and_then(|log| log.identity());
        if identity.is_some() && identity == own {
            // The address may move to another machine.
            return End::Lost(
                "it is this server itself, by the identity of its update log: name the server to \
                 follow, or no master"
                    .into(),
            );
        }
        End::Lost(format!(
            "the master has the id of this server, {server_id}: give one of them another \
             --server-id, or name another master if it is this server itself"
        ))
    }

    /// Returns the options to request from a master of this project.
    fn options(
        &self,
        position: &Position,
        is_other_log: bool,
        sends_roots: bool,
    ) -> Result<u32, End> {
        let has_nothing = self.was_empty && position.timestamp_us() == 0;
        let is_allowed = self.follower.seeding != Seeding::Never;
        if position.is_seeding() && !is_allowed {
            return Err(End::Halted("the initial sync of the database is incomplete, and --seed does not allow another one".into()));
        }
        let mut options = 0;
        let is_always = self.follower.seeding == Seeding::Always;
        // Records that clients store here may be nowhere else yet.
        let may_replace = is_always && !self.served.settings.is_writable;
        // The master may have received what clients have changed here, and can look that up.
        let may_resume = sends_roots && position.partitions().is_complete();
        let inexact = position.inexact();
        let is_asked = may_resume && self.own_progress(inexact).is_some();
        let is_other = self.has_other_records(position) || inexact.is_some() && !is_asked;
        if is_allowed && (has_nothing || position.is_seeding()) || may_replace && is_other {
            options |= SEED;
        }
        if is_always || is_allowed && self.was_empty {
            options |= SEED_IF_TOO_OLD;
        }
        if sends_roots {
            options |= SEND_ROOTS;
        }
        if (is_other_log || is_asked) && options & SEED == 0 {
            match may_resume {
                true => options |= RESUME,
                // The position in that master's log is unknown.
                false if options & SEED_IF_TOO_OLD != 0 => options |= SEED,
                false => {}
            }
        }
        if self.follower.compresses {
            options |= COMPRESS;
        }
        Ok(options)
    }

    /// Returns whether there are records, and none of them is from the log of a master.
    fn has_other_records(&self, position: &Position) -> bool {
        position.timestamp_us() == 0 && !self.was_empty
    }

    /// Returns the progress in the own log, if the records differ from the master's because of what
    /// clients changed while this server was not a replica.
    fn own_progress(&self, inexact: Option<Inexact>) -> Option<LogProgress> {
        if inexact != Some(Inexact::ChangedHere) || self.served.settings.is_writable {
            return None;
        }
        let log = self.served.update_log.as_ref()?;
        Some(LogProgress::up_to(log.name()?, log.last_entry_us().max(1)))
    }

    /// Follows the master until there is a reason to stop. If the configuration was changed, the
    /// reason does not matter.
    pub(super) fn follow(&self, master: &Master, position: &mut Position) -> End {
        match self.connect(master, position) {
            Ok(end) | Err(end) => end,
        }
    }

    fn connect(&self, master: &Master, position: &mut Position) -> Result<End, End> {
        let Master { host, port } = master;
        let tls = match self.follower.tls.as_ref().map(tls::ClientSettings::read).transpose() {
            Ok(tls) => tls,
            Err(error) => return Err(End::Lost(format!("cannot use TLS: {error}"))),
        };
        let login = self.follower.credentials.as_deref().map(Credentials::read).transpose();
        let settings = Settings {
            tls,
            login: login.map_err(|error| End::Lost(error.to_string()))?,
            allows_plain_login: self.follower.allows_plain_login,
            connect_timeout: CONNECT_TIMEOUT,
            read_timeout: Some(TOKYO_TYRANT_SILENCE_MAX),
            ..Settings::default()
        };
        let address = Address::from((&**host, *port));
        let from_us = position.timestamp_us().saturating_add(1);
        let config = &self.served.settings;
        let (server_id, port) = (config.server_id, config.port);
        let credentials = self.follower.credentials.as_deref();
        let not_connected = |error| not_connected(error, credentials, settings.tls.is_some());
        let mut link = ReplicaLink::open(&address, &settings).map_err(not_connected)?;
        self.follower.connected(link.interrupter()?);
        if self.is_over() {
            return Ok(End::Changed);
        }
        let title = link.kind().map_err(not_connected)?;
        let kind = title.and_then(|title| Kind::of_title(&title));
        if let Some(kind) = kind.filter(|kind| !self.served.model.keeps_records_of(*kind)) {
            return Err(End::Halted(format!(
                "its database is {}, and the one here is {}, which would lose values: serve a \
                 database of that kind here",
                kind.title(),
                self.served.model.kind.title()
            )));
        }
        let identity = link.identity().map_err(not_connected)?;
        let is_extended = link.is_extended();
        let own_spread = self.served.database.partitioning().name();
        let spread = identity.as_ref().map(|_| link.spread()).transpose()?.flatten();
        let sends_roots = spread.is_some_and(|spread| spread == own_spread);
        let is_other_log = position.is_of_another_log(identity.as_deref());
        let options = self.options(position, is_other_log && is_extended, sends_roots)?;
        link.subscribe(SubscribeRequest { timestamp_us: from_us, server_id, options, port })?;
        if is_extended {
            link.set_read_timeout(SILENCE_MAX)?;
        } else if position.is_seeding() {
            return Err(End::Halted(
                "the initial sync of the database is incomplete, and this master cannot repeat it"
                    .into(),
            ));
        }
        let master_id = u16::try_from(link.server_id()?)
            .map_err(|_| End::Halted("the id of the master is not a server id".into()))?;
        if is_extended && u32::from(master_id) == server_id {
            return Err(self.same_id(server_id, identity));
        }
        let own = self.own_progress(position.inexact());
        if options & RESUME != 0 {
            let own = own.clone();
            let mut progress = position.log_progress();
            progress.retain(|progress| own.as_ref().is_none_or(|own| own.log != progress.log));
            progress.extend(own);
            link.resume(&Resume { progress })?;
        }
        let log = match &identity {
            Some(identity) => name_of(identity),
            None => name_of(&format!("server {master_id}")),
        };
        let names = Names { log, sends_roots };
        let acknowledger = link.acknowledger()?;
        tracing::info!(
            "replicating from server {master_id} ({master}) after time stamp {}",
            from_us - 1
        );
        let replica_progress = &self.follower.progress.replica_progress;
        replica_progress.begin(if options & RESUME == 0 { position.timestamp_us() } else { 0 });
        std::thread::scope(|scope| {
            let _end = EndOnDrop(replica_progress);
            if let Some(acknowledger) = acknowledger {
                let send = || replica_progress.send_acknowledgements(acknowledger);
                let sync = || replica_progress.make_durable(&self.served.database);
                let thread = |name: &str| Builder::new().name(name.into());
                thread("acknowledge").spawn_scoped(scope, send).map_err(no_thread)?;
                thread("replica-sync").spawn_scoped(scope, sync).map_err(no_thread)?;
            }
            let end = loop {
                let identity = identity.as_deref();
                let followed =
                    self.seed(&mut link, position, master_id, options).and_then(|switch_us| {
                        match (switch_us, identity) {
                            (Some(switch_us), Some(identity)) => {
                                self.switch(position, switch_us, identity, own.as_ref())?;
                            }
                            _ => self.adopt(position, master, identity, is_extended, names)?,
                        }
                        // A master that waits for this replica may take no change before that.
                        replica_progress.execute(0, position.timestamp_us());
                        Ok(self.apply(&mut link, position, master_id, names))
                    });
                match followed {
                    Ok(End::SeedBegins) => {}
                    Ok(end) | Err(end) => break end,
                }
            };
            // The thread that sends acknowledgements may be blocked.
            self.follower.interrupt();
            Ok(end)
        })
    }

    /// Continues after a time stamp of the master's log, and skips operations that were executed.
    /// The master has the own log up to `known`.
    fn switch(
        &self,
        position: &mut Position,
        timestamp_us: u64,
        identity: &str,
        known: Option<&LogProgress>,
    ) -> Result<(), End> {
        // A kill after the position is written must not hide why it is another one.
        tracing::info!("continuing in another log after time stamp {timestamp_us}");
        let own = self.own_progress(position.inexact());
        let switched = position.switch(timestamp_us, identity).and_then(|()| match own {
            // The master has what clients have changed here, unless one has ended only now.
            Some(own) if Some(&own) == known => position.note_exact(),
            _ => Ok(()),
        });
        switched.map_err(|error| End::Lost(format!("cannot write the position: {error}")))?;
        self.follower.progress.executed_us.store(timestamp_us, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the position one of the master's log.
    fn adopt(
        &self,
        position: &mut Position,
        master: &Master,
        identity: Option<&str>,
        is_extended: bool,
        names: Names,
    ) -> Result<(), End> {
        let advice = match self.served.settings.is_writable {
            _ if !is_extended => "",
            true => EXACT_COPY_IF_WRITABLE,
            false => EXACT_COPY,
        };
        let has_other_records = self.has_other_records(position);
        let inexact = position.inexact().filter(|_| !self.served.settings.is_writable);
        if position.is_of_another_log(identity) || has_other_records {
            let noted = position.note_inexact();
            noted.map_err(|error| End::Lost(format!("cannot write the position: {error}")))?;
        }
        if position.is_of_another_log(identity) {
            tracing::warn!(
                "the position {} belongs to another log than that of {master}. Replication continues by \
                 time stamps: operations around it may be executed twice or missed{advice}",
                position.timestamp_us()
            );
        } else if has_other_records {
            tracing::warn!(
                "there are records already, and no position in the log of {master}: the log is executed \
                 on top of them, and what only they have stays{advice}"
            );
        } else if let Some(inexact) = inexact
            && self.follower.tells_inexact(self.generation)
        {
            tracing::warn!("the records may differ from those of {master}: {inexact}{advice}");
        }
        if !names.sends_roots {
            position.partitions().keep_only(names.log);
        } else if position.log() != identity {
            position.partitions().clear();
            if position.timestamp_us() == 0 {
                // There are no operations of other logs.
                position.partitions().learn(&[]);
            } else if let Some(own) = &self.served.update_log {
                own.invalidate_roots().map_err(End::lost)?;
            }
        }
        let adopted = match identity {
            Some(identity) => position.adopt_log(identity),
            None => position.forget_log(),
        };
        adopted.map_err(|error| {
            End::Lost(format!("cannot store the identity of the master's log: {error}"))
        })
    }

    /// Receives an initial sync, if it was requested and the master begins one. Returns the
    /// position in the master's log to continue at, if the master sends it.
    fn seed(
        &self,
        link: &mut ReplicaLink,
        position: &mut Position,
        master_id: u16,
        options: u32,
    ) -> Result<Option<u64>, End> {
        let may_be_seeded = options & (SEED | SEED_IF_TOO_OLD) != 0;
        let Progress { executed_us, replica_progress, .. } = &self.follower.progress;
        let mut replayer = Replayer::new(&self.served.database, &self.served.budget);
        let mut receiver: Option<InitialSyncReceiver<'_>> = None;
        while link.is_extended() {
            match (link.next()?, &mut receiver) {
                (FromMaster::SeedBegin { records, last_uid }, None) if may_be_seeded => {
                    replica_progress.begin_sync();
                    let (announced, was_empty) = ((records, last_uid), self.was_empty);
                    let begun = InitialSyncReceiver::begin(
                        self.served,
                        position,
                        master_id,
                        announced,
                        was_empty,
                    )?;
                    receiver.insert(begun).show(&mut self.follower.state.lock())?;
                }
                (FromMaster::Switch { timestamp_us }, None) if options & RESUME != 0 => {
                    return Ok(Some(timestamp_us));
                }
                // The sync was not requested.
                (FromMaster::SeedBegin { .. }, None) => return Err(out_of_place()),
                (FromMaster::SeedEnd { timestamp_us }, Some(whole)) => {
                    whole.end(position, timestamp_us)?;
                    executed_us.store(position.timestamp_us(), Ordering::Relaxed);
                    break;
                }
                (FromMaster::Position(at), Some(receiver)) => {
                    replica_progress.note_position(at, 0);
                    receiver.show(&mut self.follower.state.lock())?;
                }
                (FromMaster::Refused { is_final, reason }, _) => {
                    return Err(refused(is_final, reason));
                }
                (message, Some(receiver)) => {
                    replica_progress.receive(1);
                    receiver.take(&mut replayer, message)?;
                    replica_progress.execute(1, 0);
                }
                (_, None) => {
                    link.put_back();
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Applies the log on all cores.
    fn apply(
        &self,
        link: &mut ReplicaLink,
        position: &mut Position,
        master_id: u16,
        names: Names,
    ) -> End {
        let Self { follower, served, check, .. } = *self;
        *follower.state.lock() = State::Following;
        let interrupt = || follower.interrupt();
        let progress = &follower.progress;
        let applier = Applier::new(served, progress, position, master_id, names, check, &interrupt);
        if let Err(end) = applier.note_roots() {
            return end;
        }
        let end = std::thread::scope(|scope| {
            let _guard = applier.guard();
            let applier = &applier;
            for number in 0..applier.workers() {
                let thread = Builder::new().name(format!("apply-{number}"));
                if let Err(error) = thread.spawn_scoped(scope, move || applier.work(number)) {
                    applier.close();
                    return no_thread(error);
                }
            }
            let end = self.receive(link, applier);
            applier.close();
            end
        });
        applier.finish().unwrap_or(end)
    }

    /// Passes received messages to the applier, until the connection ends.
    fn receive(&self, link: &mut ReplicaLink, applier: &Applier<'_>) -> End {
        let mut replayer = Replayer::new(&self.served.database, &self.served.budget);
        let mut batch = applier.batch();
        while !self.is_over() && !applier.has_failed() {
            if let Err(error) = link.wait() {
                return error.into();
            }
            let mut end = None;
            while end.is_none() && !batch.is_full() {
                end = match link.next_received() {
                    Ok(Some(message)) => applier.take(&mut batch, message, &mut replayer).err(),
                    Ok(None) => break,
                    Err(error) => Some(error.into()),
                };
            }
            if let Some(End::SeedBegins) = end {
                link.put_back();
            }
            applier.submit(&mut batch, &mut replayer);
            if let Some(end) = end {
                return end;
            }
        }
        End::Changed
    }
}

/// Stops the acknowledgements when dropped.
struct EndOnDrop<'t>(&'t ReplicaProgress);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Returns the end for a violation of the protocol.
pub(super) fn out_of_place() -> End {
    End::Lost("the master sent a message out of order".into())
}

/// Returns the end for a refusal.
pub(super) fn refused(is_final: bool, reason: &[u8]) -> End {
    let text = format!("the master refuses this replica: {}", String::from_utf8_lossy(reason));
    if is_final { End::Halted(text) } else { End::Lost(text) }
}

fn no_thread(error: std::io::Error) -> End {
    End::Lost(format!("cannot start a thread: {error}"))
}
