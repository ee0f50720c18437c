//! Records: the interface of a server for a front end that is a crate of its own.
//!
//! All methods may wait for the disk, and for the durability that the database promises. Changes
//! are logged and replicated as those of any client, and commands that are masked over HTTP are
//! refused.

pub(crate) mod draft;

use crate::counters::{Count, Counters, slot_of};
use crate::ops::command_mask::{Command, Protocol};
use crate::ops::conditional::{Action, Counting, Precondition, Presence, Write, Written};
use crate::ops::execute::{Lend, NoReply, Number, Outcome, Reply, Stop, execute};
use crate::ops::long::PIECE_BYTES;
use crate::ops::number::Arithmetic;
use crate::ops::operation::Operation;
use crate::ops::rights::{Right, Rights};
use crate::protocol::records::draft::{Base, Draft};
use crate::shared::Shared;
use crate::store::reserved::{FRONT_END_RECORDS, PREFIX};
use crate::{Config, Login, Peer, User};
use cabinet::{Error, KeyOrder, LargeValue, Meta, RecordRef, Version};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use wire::http::{Conditions, WebDavKind};

/// Number of attempts to rename or to change a record that other clients change meanwhile.
const ATTEMPTS_MAX: usize = 100;

/// Reason why a method failed.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The database has failed, or refused the operation.
    #[error(transparent)]
    Database(#[from] cabinet::Error),
    /// The command is masked.
    #[error("forbidden")]
    Masked,
    /// The user lacks a right: the reason.
    #[error("{0}")]
    Lacking(String),
    /// The record does not meet the precondition.
    #[error("the record has changed")]
    Unmet,
    /// The record has several values, and a file can have only one.
    #[error("the key has several values")]
    Several,
    /// The value is over the limit.
    #[error("the value is too long")]
    TooLong,
    /// All values that are being received exceed their budget.
    #[error("no memory or disk space for another received value")]
    NoRoom,
    /// The file of a value that is being received has failed.
    #[error("a value on its way: {0}")]
    Spool(io::Error),
    /// The update log could not be written.
    #[error("the update log cannot be written")]
    NotLogged,
    /// Replicas did not acknowledge the change in time.
    #[error("not confirmed by replicas")]
    Unconfirmed,
}

impl From<io::Error> for RecordsError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::QuotaExceeded => Self::NoRoom,
            _ => Self::Spool(error),
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, RecordsError>;

/// Metadata of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Length of the value, in bytes.
    pub bytes: u64,
    /// Entity tag, in quotes.
    pub tag: String,
    /// Media type, if a client has named one.
    pub media_type: Option<String>,
    /// Expiry in milliseconds since 1970; 0 is never.
    pub expires_at_ms: u64,
}

/// Options of a client's put.
#[derive(Clone, Debug, Default)]
pub struct Saying {
    /// Media type.
    pub media_type: Vec<u8>,
    /// `If-Match`: the record must have one of these entity tags.
    pub matching: Option<Vec<u8>>,
    /// `If-None-Match`: the record must have none of these entity tags.
    pub none_matching: Option<Vec<u8>>,
}

impl Saying {
    fn conditions(&self) -> Conditions<'_> {
        Conditions {
            matching: self.matching.as_deref().map(Cow::Borrowed),
            none_matching: self.none_matching.as_deref().map(Cow::Borrowed),
        }
    }
}

/// The records of a server.
pub struct Records {
    shared: Arc<Shared>,
    /// Counters, which only one thread may change at a time.
    counters: Arc<Mutex<Arc<Counters>>>,
    /// Rights of the client, unless it has all.
    rights: Option<Arc<Rights>>,
}

impl Records {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let counters = Arc::new(Mutex::new(shared.counters.add_thread()));
        Self { shared, counters, rights: None }
    }

    /// Returns the records as far as a user has rights.
    pub fn limited_to(&self, user: &User) -> Self {
        let (shared, counters) = (Arc::clone(&self.shared), Arc::clone(&self.counters));
        Self { shared, counters, rights: user.rights().cloned() }
    }

    /// Fails if the client may not change the record under a key.
    pub fn check_write(&self, key: &[u8]) -> Result<()> {
        self.check(&Operation::remove(key))
    }

    /// Fails if the client may not read the record under a key.
    pub fn check_read(&self, key: &[u8]) -> Result<()> {
        self.check(&Operation::Get { key })
    }

    fn check(&self, operation: &Operation<'_>) -> Result<()> {
        let has_ids = self.shared.served.model.has_ids;
        let missing = self.rights.as_ref().and_then(|rights| rights.missing(operation, has_ids));
        missing.map_or(Ok(()), |right| Err(lacking(operation, right)))
    }

    /// Returns the settings of the server.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Returns the present limits of the time within a request, and of the wait for the next one.
    pub fn time_limits(&self) -> (Option<Duration>, Option<Duration>) {
        (self.shared.live.timeout(), self.shared.live.idle_timeout())
    }

    /// Returns the longest time in which pending replies are sent when the server stops.
    pub fn stop_wait(&self) -> Duration {
        self.shared.live.stop_wait()
    }

    /// Returns whether clients have to log in.
    pub fn has_users(&self) -> bool {
        self.shared.users.is_some()
    }

    /// Checks the header `Authorization` of a request. Returns whether its client may use the
    /// server, or `None` if `may_wait` is not set and the check takes long.
    pub fn log_in(
        &self,
        peer: &mut Peer,
        authorization: Option<&[u8]>,
        may_wait: bool,
    ) -> Option<Login> {
        let Some(users) = &self.shared.users else { return Some(Login::Denied) };
        let logins = &self.shared.logins;
        let login = match logins.check_header(users, peer, authorization, None) {
            Ok(login) => login,
            Err(_) if !may_wait => return None,
            Err(attempt) => logins.check(&users.load(), &attempt),
        };
        login.count(&self.counters.lock());
        Some(login)
    }

    /// Counts a request of WebDAV by its method, and the time that it took.
    pub fn count_webdav(&self, method: &str, time: Duration) {
        let counters = self.counters.lock();
        let kind = WebDavKind::of(method).into();
        counters.count_request(kind);
        counters.durations[slot_of(kind)].add(time, 1);
    }

    /// Returns whether keys are in the order of their bytes, so that those with a prefix are
    /// adjacent.
    pub fn is_sorted(&self) -> bool {
        self.shared.served.database.order() == Some(KeyOrder::Lexical)
    }

    /// Returns the number of records.
    pub fn len(&self) -> u64 {
        self.shared.served.database.len()
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of the database, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.shared.served.database.size_bytes()
    }

    /// Returns the metadata of the record under a key, if there is one.
    pub fn facts(&self, key: &[u8]) -> Result<Option<Facts>> {
        self.begin(Command::ValueSize, Count::ValueSize)?;
        Ok(self.look(key, |_| ())?.map(|found| self.facts_of(found.base)))
    }

    /// Returns a short value of a record that is reserved for the front end, if there is one.
    pub fn own(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if !self.keeps_own() {
            return Ok(None);
        }
        Ok(self.read(&own_key(name))?.map(|(value, _)| value))
    }

    /// Returns whether the database can have reserved records: keys may be ids, and records rows.
    fn keeps_own(&self) -> bool {
        let database = &self.shared.served.database;
        database.as_numbered().is_none() && !database.has_rows()
    }

    /// Changes a record that is reserved for the front end. Without a value the record is removed.
    pub fn change_own<T>(
        &self,
        name: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> (Option<Vec<u8>>, T),
    ) -> Result<T> {
        self.begin(Command::Put, Count::Put)?;
        if !self.keeps_own() {
            return Err(cabinet::Error::Unsupported {
                operation: "records of the front end",
                kind: "a fixed-length database or a table",
                advice: "serve a hash database (.tch) or a B+ tree (.tcb)",
            }
            .into());
        }
        let key = own_key(name);
        for _ in 0..ATTEMPTS_MAX {
            let found = self.read(&key)?;
            let (value, answer) = change(found.as_ref().map(|(value, _)| &value[..]));
            if found.is_none() && value.is_none() {
                // A removal now could remove a record that another client has made meanwhile.
                self.commit()?;
                return Ok(answer);
            }
            let presence = if found.is_some() { Presence::Present } else { Presence::Absent };
            let action = match &value {
                Some(value) => Action::put(presence, &value[..], Meta::NONE),
                None => Action::Remove,
            };
            let mut write = Write::new(&key, action);
            if let Some((_, version)) = found {
                write.precondition = Precondition::Version(version);
            }
            let written = self.execute_own(&Operation::Write(write), &mut NoReply)?;
            if written == Outcome::Done && found.is_some() != value.is_some() {
                self.count_own(value.is_some())?;
            }
            if written == Outcome::Done || value.is_none() && written == Outcome::NoRecord {
                self.commit()?;
                return Ok(answer);
            }
        }
        Err(RecordsError::Unmet)
    }

    /// Counts a record that is reserved for the front end and was made, or else removed.
    fn count_own(&self, is_new: bool) -> Result<()> {
        let (arithmetic, create) = match is_new {
            true => (Arithmetic::Add(1), Some((1, 0))),
            false => (Arithmetic::Subtract(1), None),
        };
        let counting = Counting { arithmetic, create, expires_at_ms: None };
        let write = Write::new(FRONT_END_RECORDS, Action::Count(counting));
        self.execute_own(&Operation::Write(write), &mut NoReply).map(drop)
    }

    /// Returns an empty draft.
    pub fn draft(&self) -> Draft {
        Draft::new(&self.shared.served)
    }

    /// Returns a draft with the present value of a key, if there is one, to change parts of it. It
    /// can be put as long as the record does not change, and keeps media type and expiry.
    pub fn draft_of(&self, key: &[u8]) -> Result<Option<Draft>> {
        self.begin(Command::Get, Count::Get)?;
        Ok(self.draft_with(key)?.map(|(mut draft, base)| {
            draft.base = Some(base);
            draft
        }))
    }

    fn draft_with(&self, key: &[u8]) -> Result<Option<(Draft, Base)>> {
        let mut draft = self.draft();
        let mut short = Vec::new();
        let Some(Found { base, long }) = self.look(key, |value| short = value.to_vec())? else {
            return Ok(None);
        };
        if let Some(long) = long {
            long.verify()?;
            let mut piece = vec![0; PIECE_BYTES];
            while draft.bytes() < long.bytes() {
                let left = usize::try_from(long.bytes() - draft.bytes()).unwrap_or(usize::MAX);
                let piece = &mut piece[..left.min(PIECE_BYTES)];
                long.read(draft.bytes(), piece)?;
                draft.write(draft.bytes(), piece)?;
            }
        } else {
            draft.write(0, &short)?;
        }
        Ok(Some((draft, base)))
    }

    /// Stores a value. Returns the metadata of the record.
    pub fn put(&self, key: &[u8], draft: Draft, saying: &Saying) -> Result<Facts> {
        self.begin(Command::Put, Count::Put)?;
        let (bytes, mut base) = (draft.bytes(), draft.base.clone());
        let fair = draft.finish()?;
        let (meta, media_type) = match &mut base {
            Some(Base { meta, media_type, .. }) if *meta != Meta::NONE => {
                (*meta, media_type.take())
            }
            _ => self.meta_of(&saying.media_type)?,
        };
        let version = self.store(key, fair.value(), meta, base, saying)?;
        self.commit()?;
        Ok(self.facts_of(Base { bytes, version, meta, media_type }))
    }

    /// Returns the flags of a value of a media type, and its name if it has flags.
    fn meta_of(&self, media_type: &[u8]) -> Result<(Meta, Option<String>)> {
        let mut flags = None;
        self.execute(&Operation::NameMediaType { name: media_type }, &mut flags)?;
        let Some(Number::Flags(flags @ 1..)) = flags else { return Ok((Meta::NONE, None)) };
        let name = String::from_utf8_lossy(media_type.trim_ascii()).into_owned();
        Ok((Meta { flags, expires_at_ms: 0 }, Some(name)))
    }

    /// Stores a value, if the record meets the conditions and is still the base of the draft, if it
    /// has one.
    fn store(
        &self,
        key: &[u8],
        value: &[u8],
        meta: Meta,
        base: Option<Base>,
        saying: &Saying,
    ) -> Result<Version> {
        let conditions = saying.conditions();
        let mut write = Write::new(key, Action::put(Presence::Any, value, meta));
        write.precondition = (&conditions).into();
        if let Some(Base { version, .. }) = base {
            // A record of this version has this entity tag.
            if conditions.check(Some(&self.shared.entity_tags.of(version))).is_err() {
                return Err(RecordsError::Unmet);
            }
            write.action = Action::put(Presence::Present, value, meta);
            write.precondition = Precondition::Version(version);
        }
        let _charge = write.charge(&self.shared.served.budget).ok_or(RecordsError::NoRoom)?;
        let mut written = Written::default();
        match self.execute(&Operation::Write(write), &mut written)? {
            Outcome::Done => Ok(written.version),
            _ => Err(RecordsError::Unmet),
        }
    }

    /// Stores an empty value if there is no record. Returns whether it was stored.
    pub fn put_empty(&self, key: &[u8]) -> Result<bool> {
        self.begin(Command::PutKeep, Count::PutKeep)?;
        let stored = self.execute(&Operation::put(key, &[], Presence::Absent), &mut NoReply)?;
        self.commit()?;
        Ok(stored == Outcome::Done)
    }

    /// Removes a record with all of its values. Returns whether there was one.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.begin(Command::Out, Count::Out)?;
        let has_duplicates = self.shared.served.database.has_duplicates();
        let remove_all = Operation::RemoveAll { key };
        let operation = if has_duplicates { remove_all } else { Operation::remove(key) };
        let removed = absent(self.execute(&operation, &mut NoReply))?;
        self.commit()?;
        Ok(removed == Outcome::Done)
    }

    /// Copies the value of one record to another key, with media type and expiry. Returns whether
    /// there was one. Copies the first value if there are several.
    pub fn copy(&self, from: &[u8], to: &[u8]) -> Result<bool> {
        let copied = self.copy_here(from, to)?;
        self.commit()?;
        Ok(copied.is_some())
    }

    /// Fails with [`RecordsError::Several`] if a key has several values.
    pub fn check_single(&self, key: &[u8]) -> Result<()> {
        let mut values = None;
        if self.shared.served.database.has_duplicates() {
            absent(self.execute(&Operation::CountValues { key }, &mut values))?;
        }
        match values {
            Some(Number::Count(2..)) => Err(RecordsError::Several),
            _ => Ok(()),
        }
    }

    /// Renames a record, in two steps. Returns whether there was one. Changes of others meanwhile
    /// are included. Callers that rename many records call [`Records::commit`] after the last.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<bool> {
        self.begin(Command::Out, Count::Out)?;
        self.check_single(from)?;
        for _ in 0..ATTEMPTS_MAX {
            let Some(version) = self.copy_here(from, to)? else { return Ok(false) };
            let precondition = Precondition::Version(version);
            let write = Write { precondition, ..Write::new(from, Action::Remove) };
            let removed = self.execute(&Operation::Write(write), &mut NoReply)?;
            if let Outcome::Done | Outcome::NoRecord = removed {
                return Ok(true);
            }
        }
        Err(RecordsError::Unmet)
    }

    /// Copies a record. Returns the version that was copied.
    fn copy_here(&self, from: &[u8], to: &[u8]) -> Result<Option<Version>> {
        self.begin(Command::Put, Count::Put)?;
        let Some((draft, base)) = self.draft_with(from)? else { return Ok(None) };
        let fair = draft.finish()?;
        let put = Action::put(Presence::Any, fair.value(), base.meta);
        self.execute(&Operation::Write(Write::new(to, put)), &mut NoReply)?;
        Ok(Some(base.version))
    }

    /// Visits the keys with `prefix` until `visit` breaks. If [`Records::is_sorted`], visits those
    /// from `from` on in the order of their bytes, otherwise all.
    pub fn for_each_key(
        &self,
        prefix: &[u8],
        from: &[u8],
        visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.begin(Command::KeysWithPrefix, Count::KeysWithPrefix)?;
        let mut visitor = Visitor { visit, flow: ControlFlow::Continue(()) };
        self.execute(&Operation::KeysFrom { prefix, from }, &mut visitor).map(drop)
    }

    /// Blocks until all changes so far are as durable as a reply promises.
    pub fn commit(&self) -> Result<()> {
        if !self.shared.served.flush_update_log() {
            return Err(RecordsError::NotLogged);
        }
        if self.shared.delays_replies
            && !self.shared.wait_for(self.shared.acknowledgement_point())?
        {
            return Err(RecordsError::Unconfirmed);
        }
        Ok(())
    }

    /// Executes an operation of the client on this thread, which may wait.
    fn execute(&self, operation: &Operation<'_>, reply: &mut impl Reply) -> Result<Outcome> {
        self.execute_with(self.rights.as_deref(), operation, reply)
    }

    /// Executes an operation on a record of the front end, to which no user has rights.
    fn execute_own(&self, operation: &Operation<'_>, reply: &mut impl Reply) -> Result<Outcome> {
        self.execute_with(None, operation, reply)
    }

    fn execute_with(
        &self,
        rights: Option<&Rights>,
        operation: &Operation<'_>,
        reply: &mut impl Reply,
    ) -> Result<Outcome> {
        let store = &self.shared.served.database;
        let mut charge = None;
        let mut executor = self.shared.executor(store, true, &mut charge, None, rights);
        execute(&mut executor, operation, reply).map_err(|stop| match stop {
            Stop::Failed(error) => {
                self.counters.lock().count_denial(&error);
                error.into()
            }
            Stop::Forbidden(right) => {
                self.counters.lock().count(Count::DeniedByRight);
                lacking(operation, right)
            }
            Stop::TooLong | Stop::Blocked => RecordsError::TooLong,
        })
    }

    fn begin(&self, command: Command, count: Count) -> Result<()> {
        if self.shared.live.mask().refuses(command, Protocol::Http) {
            self.counters.lock().count(Count::DeniedByMask);
            return Err(RecordsError::Masked);
        }
        self.counters.lock().count(count);
        Ok(())
    }

    /// Reads a record. Calls `see` with the value, unless it is too long.
    fn look(&self, key: &[u8], see: impl FnMut(&[u8])) -> Result<Option<Found>> {
        let mut opened = Opened { see, found: None };
        absent(self.execute(&Operation::Open { key, in_pieces: true }, &mut opened))?;
        Ok(opened.found)
    }

    /// Returns the value and the version of a short record of the front end.
    fn read(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Version)>> {
        let mut found = None;
        let mut lend =
            Lend(|entry: &RecordRef<'_>| found = Some((entry.value.to_vec(), entry.version)));
        self.execute_own(&Operation::Get { key }, &mut lend)?;
        Ok(found)
    }

    fn facts_of(&self, base: Base) -> Facts {
        let Base { bytes, version, meta, media_type } = base;
        let tag = self.shared.entity_tags.of(version);
        Facts { bytes, tag, media_type, expires_at_ms: meta.expires_at_ms }
    }
}

/// A record, and its value if that is too long to be read at once.
struct Found {
    base: Base,
    long: Option<LargeValue>,
}

/// Takes a record, and lends its value to a closure.
struct Opened<F> {
    see: F,
    found: Option<Found>,
}

impl<F: FnMut(&[u8])> Reply for Opened<F> {
    fn typed(&mut self, record: &RecordRef<'_>, media_type: &str) {
        (self.see)(record.value);
        let bytes = record.value.len() as u64;
        let base = Base::new(bytes, record.version, record.meta, media_type);
        self.found = Some(Found { base, long: None });
    }

    fn large_value(&mut self, long: LargeValue, media_type: &str) {
        let base = Base::new(long.bytes(), long.version(), long.meta(), media_type);
        self.found = Some(Found { base, long: Some(long) });
    }
}

/// Lends keys to a closure, until it breaks.
struct Visitor<F> {
    visit: F,
    flow: ControlFlow<()>,
}

impl<F: FnMut(&[u8]) -> ControlFlow<()>> Reply for Visitor<F> {
    fn element(&mut self, key: &[u8]) {
        self.flow = (self.visit)(key);
    }

    fn is_full(&self) -> bool {
        self.flow.is_break()
    }
}

impl std::fmt::Debug for Records {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Records").finish_non_exhaustive()
    }
}

fn own_key(name: &[u8]) -> Vec<u8> {
    [PREFIX, name].concat()
}

/// Returns the error of an operation that the user lacks a right for.
fn lacking(operation: &Operation<'_>, right: Right) -> RecordsError {
    let reason = right.lacking();
    tracing::debug!("{}: {reason}", operation.name());
    RecordsError::Lacking(reason)
}

/// Returns no record for a key that is invalid in the database.
fn absent(result: Result<Outcome>) -> Result<Outcome> {
    match result {
        Err(RecordsError::Database(Error::NoId { .. } | Error::KeyTooLong { .. })) => {
            Ok(Outcome::NoRecord)
        }
        result => result,
    }
}
