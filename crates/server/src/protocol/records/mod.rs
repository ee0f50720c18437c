//! The records of a server, for a front end that is a crate of its own.
//!
//! All methods may wait: for the disk, for the durability that the database promises. What they
//! change is logged and replicated as what any client changes, and what is masked over HTTP is
//! refused.

pub(crate) mod draft;
pub(crate) mod value;

use crate::budget::Charge;
use crate::counters::{Count, Counters};
use crate::ops::command_mask::{Command, Protocol};
use crate::ops::conditional::{Action, Outcome, Precondition, Presence, Write, Written};
use crate::ops::long::{LONG_BYTES_MIN, PIECE_BYTES};
use crate::ops::media_types;
use crate::ops::reserved::{PREFIX, is_reserved};
use crate::protocol::records::draft::{Base, Draft};
use crate::protocol::records::value::{Kept, Value};
use crate::shared::Shared;
use crate::{Config, Login, Peer};
use cabinet::{Change, Meta, Order, Position, Version};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use wire::http::Conditions;

/// How often a record is looked at again that others change while it is given another key.
const RENAMES_MAX: usize = 100;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// The database has failed, or refused.
    #[error(transparent)]
    Database(#[from] cabinet::Error),
    /// The command is masked.
    #[error("forbidden")]
    Masked,
    /// The record is not as it was to be.
    #[error("the record is another by now")]
    Unmet,
    /// The record has several values, of which a file would be one.
    #[error("there are several values under the key")]
    Several,
    /// The value is over the limit.
    #[error("the value is too long")]
    TooLong,
    /// All values on their way take too much already.
    #[error("no room for values on their way")]
    NoRoom,
    /// A file that a value is in on its way has failed.
    #[error("a value on its way: {0}")]
    Spool(io::Error),
    /// The update log could not be written.
    #[error("the update log does not take what was changed")]
    NotLogged,
    /// Replicas that are waited for did not confirm it in time.
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

/// What is known of a record beside its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Length of the value.
    pub bytes: u64,
    /// Entity tag, in quotes.
    pub tag: String,
    /// Media type, if a client has named one.
    pub media_type: Option<String>,
    /// Milliseconds since 1970 at which it ceases to exist; 0 is never.
    pub expires_at_ms: u64,
}

/// What a client says of a value that it puts.
#[derive(Clone, Debug, Default)]
pub struct Saying {
    /// Media type.
    pub media_type: Vec<u8>,
    /// `If-Match`: the record has to have one of these entity tags.
    pub matching: Option<Vec<u8>>,
    /// `If-None-Match`: it must have none of these.
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
    /// Counters are for one thread at a time.
    counters: Mutex<Arc<Counters>>,
}

impl Records {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let counters = Mutex::new(shared.counters.add_thread());
        Self { shared, counters }
    }

    /// Settings of the server.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Checks whether a client may use the server whose request has this header `Authorization`.
    pub fn log_in(&self, peer: &mut Peer, authorization: Option<&[u8]>) -> Login {
        let Some(users) = &self.shared.config.users else { return Login::User };
        let login = self.shared.logins.check_header(users, peer, authorization);
        login.count(&self.counters.lock());
        login
    }

    /// Whether keys are in the order of their bytes, so that those with a prefix stand together.
    pub fn is_sorted(&self) -> bool {
        self.shared.served.database.order() == Some(Order::Lexical)
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.shared.served.database.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the database takes.
    pub fn size_bytes(&self) -> u64 {
        self.shared.served.database.size_bytes()
    }

    /// What is known of the record under a key, if there is one.
    pub fn facts(&self, key: &[u8]) -> Result<Option<Facts>> {
        self.begin(Command::ValueSize, Count::ValueSize)?;
        Ok(self.look(key, |_| ())?.map(|(facts, _)| facts))
    }

    /// Opens a value to be read, if there is one.
    pub fn open(&self, key: &[u8]) -> Result<Option<(Facts, Value)>> {
        self.begin(Command::Get, Count::Get)?;
        let long = absent(self.shared.served.database.long_value(key, LONG_BYTES_MIN))?.flatten();
        if let Some(long) = long {
            let facts = self.facts_of(long.bytes(), long.meta(), long.version())?;
            return Ok(Some((facts, Value(Kept::Long(long)))));
        }
        let mut charge = Charge::none(&self.shared.served.budget);
        let found = self.look(key, |value| {
            (value.len() < LONG_BYTES_MIN || charge.set(value.len())).then(|| value.to_vec())
        })?;
        match found {
            None => Ok(None),
            Some((_, None)) => Err(RecordsError::NoRoom),
            Some((facts, Some(value))) => Ok(Some((facts, Value(Kept::Whole(value, charge))))),
        }
    }

    /// A short value, if there is one: of a record that the front end keeps for itself.
    pub fn own(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if !self.keeps_own() {
            return Ok(None);
        }
        Ok(self.shared.served.database.get(&own_key(name))?)
    }

    /// Whether the database has room for names and bytes of the front end's: keys may be ids, and
    /// records rows.
    fn keeps_own(&self) -> bool {
        let database = &self.shared.served.database;
        database.as_numbered().is_none() && !database.has_rows()
    }

    /// Changes a record that the front end keeps for itself. Without a value there is none.
    pub fn change_own<T>(
        &self,
        name: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> (Option<Vec<u8>>, T),
    ) -> Result<T> {
        self.begin(Command::Put, Count::Put)?;
        if !self.keeps_own() {
            return Err(cabinet::Error::NotSupported("records of the front end".into()).into());
        }
        let answer = self.shared.served.database.modify(&own_key(name), |entry| {
            let (value, answer) = change(entry.map(|entry| entry.value));
            (value.map_or(Change::Remove, |value| Change::Put(value, Meta::NONE)), answer)
        })?;
        self.commit()?;
        Ok(answer)
    }

    /// A place for a value that is on its way.
    pub fn draft(&self) -> Draft {
        Draft::new(&self.shared.served)
    }

    /// A draft of the value that there is under a key, to change parts of it, if there is one. It
    /// can be put while the record is what it is now, and keeps type and time if it has any.
    pub fn draft_of(&self, key: &[u8]) -> Result<Option<Draft>> {
        self.begin(Command::Get, Count::Get)?;
        Ok(self.draft_with(key)?.map(|(mut draft, base)| {
            draft.base = Some(base);
            draft
        }))
    }

    fn draft_with(&self, key: &[u8]) -> Result<Option<(Draft, Base)>> {
        let database = &self.shared.served.database;
        let mut draft = self.draft();
        if let Some(long) = absent(database.long_value(key, LONG_BYTES_MIN))?.flatten() {
            long.verify()?;
            let mut piece = vec![0; PIECE_BYTES];
            while draft.bytes() < long.bytes() {
                let left = usize::try_from(long.bytes() - draft.bytes()).unwrap_or(usize::MAX);
                let piece = &mut piece[..left.min(PIECE_BYTES)];
                long.read(draft.bytes(), piece)?;
                draft.write(draft.bytes(), piece)?;
            }
            return Ok(Some((draft, Base { version: long.version(), meta: long.meta() })));
        }
        let found = database.read(key, |entry| {
            (entry.value.to_vec(), Base { version: entry.version, meta: entry.meta })
        });
        let Some((value, base)) = absent(found)?.flatten() else { return Ok(None) };
        draft.write(0, &value)?;
        Ok(Some((draft, base)))
    }

    /// Stores a value; answers what is known of it then.
    pub fn put(&self, key: &[u8], draft: Draft, saying: &Saying) -> Result<Facts> {
        self.begin(Command::Put, Count::Put)?;
        let (bytes, base) = (draft.bytes(), draft.base);
        let fair = draft.finish()?;
        let meta = match base {
            Some(Base { meta, .. }) if meta != Meta::NONE => meta,
            _ => {
                let flags = media_types::flags(&self.shared.served.database, &saying.media_type)?;
                Meta { flags, expires_at_ms: 0 }
            }
        };
        let version = self.store(key, fair.value(), meta, base, saying)?;
        self.commit()?;
        self.facts_of(bytes, meta, version)
    }

    /// Stores a value if the record is still the base of its draft, if that has one, and meets the
    /// conditions.
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
            // A record of this version has this tag.
            if conditions.check(Some(&self.shared.entity_tags.of(version))).is_err() {
                return Err(RecordsError::Unmet);
            }
            write.action = Action::put(Presence::Present, value, meta);
            write.precondition = Precondition::Version(version);
        }
        let _charge = write.charge(&self.shared.served.budget).ok_or(RecordsError::NoRoom)?;
        let mut written = Written::default();
        match self.shared.writer(&self.shared.served.database).write(write, Some(&mut written))? {
            Outcome::Done => Ok(written.version),
            _ => Err(RecordsError::Unmet),
        }
    }

    /// Stores an empty value if there is no record; says whether it did.
    pub fn put_empty(&self, key: &[u8]) -> Result<bool> {
        self.begin(Command::PutKeep, Count::PutKeep)?;
        let stored = self.shared.served.database.put_keep(key, &[], Meta::NONE)?;
        self.commit()?;
        Ok(stored)
    }

    /// Removes a record, with all values that it has; says whether there was one.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.begin(Command::Out, Count::Out)?;
        let database = &self.shared.served.database;
        let removed = if database.has_duplicates() {
            absent(database.remove_all(key))?.is_some_and(|values| values > 0)
        } else {
            absent(database.remove(key))?.unwrap_or(false)
        };
        self.commit()?;
        Ok(removed)
    }

    /// Stores the value of one record, with its type and time, under another key; says whether
    /// there was one. The first is taken if there are several.
    pub fn copy(&self, from: &[u8], to: &[u8]) -> Result<bool> {
        let copied = self.copy_here(from, to)?;
        self.commit()?;
        Ok(copied.is_some())
    }

    /// Fails with [`RecordsError::Several`] if a key has several values.
    pub fn check_single(&self, key: &[u8]) -> Result<()> {
        let database = &self.shared.served.database;
        if database.has_duplicates() && absent(database.count(key))?.unwrap_or(0) > 1 {
            return Err(RecordsError::Several);
        }
        Ok(())
    }

    /// Gives a record another key, in two steps; says whether there was one. What others store
    /// meanwhile is taken along. Callers that rename many call [`Records::commit`] after the last.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<bool> {
        self.begin(Command::Out, Count::Out)?;
        self.check_single(from)?;
        for _ in 0..RENAMES_MAX {
            let Some(version) = self.copy_here(from, to)? else { return Ok(false) };
            let precondition = Precondition::Version(version);
            let write = Write { precondition, ..Write::new(from, Action::Remove) };
            let writer = self.shared.writer(&self.shared.served.database);
            if let Outcome::Done | Outcome::Missing = writer.write(write, None)? {
                return Ok(true);
            }
        }
        Err(RecordsError::Unmet)
    }

    /// Answers the version that was copied.
    fn copy_here(&self, from: &[u8], to: &[u8]) -> Result<Option<Version>> {
        self.begin(Command::Put, Count::Put)?;
        let Some((draft, base)) = self.draft_with(from)? else { return Ok(None) };
        self.shared.served.database.put_with(to, draft.finish()?.value(), base.meta)?;
        Ok(Some(base.version))
    }

    /// Visits keys from `from` on, those with `prefix` among them, until `visit` breaks; in the
    /// order of their bytes where [`Records::is_sorted`], else all keys from the first one on. Keys
    /// that the server keeps for itself are left out.
    pub fn for_each_key(
        &self,
        prefix: &[u8],
        from: &[u8],
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.begin(Command::KeysWithPrefix, Count::KeysWithPrefix)?;
        let database = &self.shared.served.database;
        let is_sorted = self.is_sorted();
        let mut position =
            if is_sorted { database.position_of(from.max(prefix)) } else { Position::Start };
        loop {
            let mut flow = ControlFlow::Continue(());
            let next = database.scan_keys(&position, |key| {
                if flow.is_break() || is_reserved(key) {
                    return;
                }
                if key.starts_with(prefix) {
                    flow = visit(key);
                } else if is_sorted {
                    flow = ControlFlow::Break(());
                }
            })?;
            match next {
                Some(next) if flow.is_continue() => position = next,
                _ => return Ok(()),
            }
        }
    }

    /// Waits until all that was changed so far is as safe as a reply says.
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

    fn begin(&self, command: Command, count: Count) -> Result<()> {
        if self.shared.config.mask.refuses(command, Protocol::Http) {
            return Err(RecordsError::Masked);
        }
        self.counters.lock().count(count);
        Ok(())
    }

    fn look<T>(&self, key: &[u8], mut see: impl FnMut(&[u8]) -> T) -> Result<Option<(Facts, T)>> {
        let found = self.shared.served.database.read(key, |entry| {
            (entry.value.len() as u64, entry.meta, entry.version, see(entry.value))
        });
        let Some((bytes, meta, version, seen)) = absent(found)?.flatten() else { return Ok(None) };
        Ok(Some((self.facts_of(bytes, meta, version)?, seen)))
    }

    fn facts_of(&self, bytes: u64, meta: Meta, version: Version) -> Result<Facts> {
        let name = media_types::name(&self.shared.served.database, meta.flags)?;
        Ok(Facts {
            bytes,
            tag: self.shared.entity_tags.of(version),
            media_type: (name != media_types::UNKNOWN).then(|| name.into_owned()),
            expires_at_ms: meta.expires_at_ms,
        })
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

/// Under a key that a database cannot have there is no record.
fn absent<T>(result: cabinet::Result<T>) -> cabinet::Result<Option<T>> {
    match result {
        Err(cabinet::Error::NoId { .. } | cabinet::Error::KeyTooLong { .. }) => Ok(None),
        result => result.map(Some),
    }
}
