//! The records of a server, for a front end that is a crate of its own.
//!
//! All methods may wait: for the disk, for the durability that the database promises. What they change is
//! logged and replicated as what any client changes, and what is masked over HTTP is refused.

use crate::budget::Charge;
use crate::counters::{Count, Counters};
use crate::mask::{Command, Protocol};
use crate::reserved::{PREFIX, is_reserved};
use crate::shared::Shared;
use crate::spool::Spool;
use crate::{Config, media_types};
use cabinet::{Change, LongValue, Meta, Order, Position};
use parking_lot::Mutex;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use wire::http::{BasicCredentials, Conditions};

/// Length of a value from which it goes through a file, or is read in pieces, in bytes.
const LONG_BYTES_MIN: usize = 1 << 20;

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 256 << 10;

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

type Result<T> = std::result::Result<T, RecordsError>;

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

/// The records of a server.
pub struct Records {
    shared: Arc<Shared>,
    /// Counters are for one thread at a time.
    counters: Mutex<Arc<Counters>>,
}

impl Records {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let counters = Mutex::new(shared.new_counters());
        Self { shared, counters }
    }

    /// Settings of the server.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Whether the client of a request with this header `Authorization` may use the server.
    pub fn admits(&self, authorization: Option<&[u8]>) -> bool {
        let Some(users) = &self.shared.config.users else { return true };
        let credentials = authorization.and_then(BasicCredentials::decode);
        let is_user = credentials.is_some_and(|credentials| {
            let (name, password) = credentials.parts();
            users.admit(name, password)
        });
        let counters = self.counters.lock();
        counters.count(Count::Authentication);
        if !is_user {
            counters.count(Count::AuthenticationError);
            tracing::debug!("authentication failed");
        }
        is_user
    }

    /// Whether keys are in the order of their bytes, so that those with a prefix stand together.
    pub fn is_sorted(&self) -> bool {
        self.shared.database.order() == Some(Order::Lexical)
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.shared.database.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the database takes.
    pub fn size_bytes(&self) -> u64 {
        self.shared.database.size_bytes()
    }

    /// What is known of the record under a key, if there is one.
    pub fn facts(&self, key: &[u8]) -> Result<Option<Facts>> {
        self.begin(Command::ValueSize, Count::ValueSize)?;
        Ok(self.look(key, |_| ())?.map(|(facts, _)| facts))
    }

    /// Opens a value to be read, if there is one.
    pub fn open(&self, key: &[u8]) -> Result<Option<(Facts, Value)>> {
        self.begin(Command::Get, Count::Get)?;
        let long = absent(self.shared.database.long_value(key, LONG_BYTES_MIN))?.flatten();
        if let Some(long) = long {
            let facts = self.facts_of(long.bytes(), long.meta(), long.version())?;
            return Ok(Some((facts, Value(Kept::Long(long)))));
        }
        let mut charge = Charge::none(&self.shared.budget);
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
        Ok(self.shared.database.get(&own_key(name))?)
    }

    /// Changes a record that the front end keeps for itself. Without a value there is none.
    pub fn change_own<T>(
        &self,
        name: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> (Option<Vec<u8>>, T),
    ) -> Result<T> {
        self.begin(Command::Put, Count::Put)?;
        let answer = self.shared.database.modify(&own_key(name), |entry| {
            let (value, answer) = change(entry.map(|entry| entry.value));
            (value.map_or(Change::Remove, |value| Change::Put(value, Meta::NONE)), answer)
        })?;
        self.commit()?;
        Ok(answer)
    }

    /// A place for a value that is on its way.
    pub fn draft(&self) -> Draft {
        Draft {
            shared: Arc::clone(&self.shared),
            kept: Vec::new(),
            spool: None,
            charge: Charge::none(&self.shared.budget),
        }
    }

    /// Stores a value; answers what is known of it then.
    pub fn put(&self, key: &[u8], draft: Draft, saying: &Saying) -> Result<Facts> {
        self.begin(Command::Put, Count::Put)?;
        let flags = media_types::flags(&self.shared.database, &saying.media_type)?;
        let bytes = draft.bytes();
        let meta = Meta { flags, expires_at_ms: 0 };
        let Draft { kept, spool, .. } = draft;
        let spooled = spool.map(Spool::finish).transpose()?;
        let value = spooled.as_ref().map_or(&kept[..], |spooled| spooled.value());
        let conditions = Conditions {
            matching: saying.matching.as_deref(),
            none_matching: saying.none_matching.as_deref(),
        };
        let tags = self.shared.entity_tags;
        let version = if conditions.is_empty() {
            self.shared.database.put_with(key, value, meta)?
        } else {
            // The database makes a copy of it.
            let mut charge = Charge::none(&self.shared.budget);
            if value.len() >= LONG_BYTES_MIN && !charge.set(value.len()) {
                return Err(RecordsError::NoRoom);
            }
            let (met, version) = self.shared.database.modify_versioned(key, |entry| {
                let tag = entry.map(|entry| tags.of(entry.version));
                match conditions.check(tag.as_deref()) {
                    Ok(()) => (Change::Put(value.to_vec(), meta), true),
                    Err(_) => (Change::Keep, false),
                }
            })?;
            if !met {
                return Err(RecordsError::Unmet);
            }
            version
        };
        self.commit()?;
        self.facts_of(bytes, meta, version)
    }

    /// Stores an empty value if there is no record; says whether it did.
    pub fn put_empty(&self, key: &[u8]) -> Result<bool> {
        self.begin(Command::PutKeep, Count::PutKeep)?;
        let stored = self.shared.database.put_keep(key, &[], Meta::NONE)?;
        self.commit()?;
        Ok(stored)
    }

    /// Removes a record; says whether there was one.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.begin(Command::Out, Count::Out)?;
        let removed = absent(self.shared.database.remove(key))?.unwrap_or(false);
        self.commit()?;
        Ok(removed)
    }

    /// Stores the value of one record, with its type and time, under another key; says whether there
    /// was one.
    pub fn copy(&self, from: &[u8], to: &[u8]) -> Result<bool> {
        let copied = self.copy_here(from, to)?;
        self.commit()?;
        Ok(copied)
    }

    /// Gives a record another key, in two steps; says whether there was one. Who does this to many
    /// calls [`Records::commit`] after the last.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<bool> {
        self.begin(Command::Out, Count::Out)?;
        Ok(self.copy_here(from, to)? && self.shared.database.remove(from)?)
    }

    fn copy_here(&self, from: &[u8], to: &[u8]) -> Result<bool> {
        self.begin(Command::Put, Count::Put)?;
        let database = &self.shared.database;
        if let Some(long) = absent(database.long_value(from, LONG_BYTES_MIN))?.flatten() {
            long.verify()?;
            let mut draft = self.draft();
            let mut place = 0;
            let mut piece = vec![0; PIECE_BYTES];
            while place < long.bytes() {
                let left = usize::try_from(long.bytes() - place).unwrap_or(usize::MAX);
                let piece = &mut piece[..left.min(PIECE_BYTES)];
                long.read(place, piece)?;
                draft.write(place, piece)?;
                place += piece.len() as u64;
            }
            let spooled = draft.spool.map(Spool::finish).transpose()?;
            let value = spooled.as_ref().map_or(&draft.kept[..], |spooled| spooled.value());
            database.put_with(to, value, long.meta())?;
            return Ok(true);
        }
        let found = database.read(from, |entry| (entry.value.to_vec(), entry.meta));
        let Some((value, meta)) = absent(found)?.flatten() else { return Ok(false) };
        database.put_with(to, &value, meta)?;
        Ok(true)
    }

    /// Visits keys from `from` on, those with `prefix` among them, until `visit` breaks; in the order of
    /// their bytes where [`Records::is_sorted`], else all keys from the first one on. Keys that the
    /// server keeps for itself are left out.
    pub fn for_each_key(
        &self,
        prefix: &[u8],
        from: &[u8],
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.begin(Command::KeysWithPrefix, Count::KeysWithPrefix)?;
        let database = &self.shared.database;
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
        if !self.shared.flush_update_log() {
            return Err(RecordsError::NotLogged);
        }
        if self.shared.holds_replies && !self.shared.wait_for(self.shared.awaited())? {
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
        let found = self.shared.database.read(key, |entry| {
            (entry.value.len() as u64, entry.meta, entry.version, see(entry.value))
        });
        let Some((bytes, meta, version, seen)) = absent(found)?.flatten() else { return Ok(None) };
        Ok(Some((self.facts_of(bytes, meta, version)?, seen)))
    }

    fn facts_of(&self, bytes: u64, meta: Meta, version: cabinet::Version) -> Result<Facts> {
        let name = media_types::name(&self.shared.database, meta.flags)?;
        Ok(Facts {
            bytes,
            tag: self.shared.entity_tags.of(version),
            media_type: (name != media_types::UNKNOWN).then(|| name.into_owned()),
            expires_at_ms: meta.expires_at_ms,
        })
    }
}

/// A value that is being read. It stays what it was when it was opened.
pub struct Value(Kept);

enum Kept {
    Long(LongValue),
    /// The charge is for the bytes.
    Whole(Vec<u8>, #[expect(dead_code, reason = "given back when dropped")] Charge),
}

impl Value {
    /// Reads all of it to see whether it is what was written.
    pub fn verify(&self) -> Result<()> {
        match &self.0 {
            // It was verified when it was opened.
            Kept::Whole(..) => Ok(()),
            Kept::Long(long) => Ok(long.verify()?),
        }
    }

    /// Up to `count` bytes from `offset` on; none at the end.
    pub fn read(&self, offset: u64, count: usize) -> Result<Vec<u8>> {
        match &self.0 {
            Kept::Whole(value, _) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(value.len());
                Ok(value[start..value.len().min(start.saturating_add(count))].to_vec())
            }
            Kept::Long(long) => {
                let left = usize::try_from(long.bytes().saturating_sub(offset));
                let mut piece = vec![0; count.min(left.unwrap_or(usize::MAX))];
                if !piece.is_empty() {
                    long.read(offset, &mut piece)?;
                }
                Ok(piece)
            }
        }
    }
}

/// A value that is on its way, in memory as long as it is short, then in a file.
pub struct Draft {
    shared: Arc<Shared>,
    kept: Vec<u8>,
    spool: Option<Spool>,
    charge: Charge,
}

impl Draft {
    /// Its length so far.
    pub fn bytes(&self) -> u64 {
        self.spool.as_ref().map_or(self.kept.len() as u64, Spool::bytes)
    }

    /// Puts bytes in their place, with zeros before it if it was shorter.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(RecordsError::TooLong)?;
        let config = &self.shared.config;
        if self.spool.is_none() && end >= LONG_BYTES_MIN as u64 {
            let spool = Spool::new(&self.shared.database, &self.shared.spool_budget).transpose()?;
            if let Some(mut spool) = spool {
                spool.write_at(&self.kept, 0)?;
                self.kept = Vec::new();
                self.charge.set(0);
                self.spool = Some(spool);
            }
        }
        let Some(spool) = &mut self.spool else {
            if end > config.request_bytes_max as u64 {
                return Err(RecordsError::TooLong);
            }
            let (start, end) = (offset as usize, end as usize);
            if self.kept.len() < end {
                if !self.charge.set(end) {
                    return Err(RecordsError::NoRoom);
                }
                self.kept.resize(end, 0);
            }
            self.kept[start..end].copy_from_slice(bytes);
            return Ok(());
        };
        if end > self.shared.upload_bytes_max() as u64 {
            return Err(RecordsError::TooLong);
        }
        Ok(spool.write_at(bytes, offset)?)
    }
}

impl std::fmt::Debug for Records {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Records").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Draft").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Value").finish_non_exhaustive()
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
