//! Operations: a request on records as a value, from any protocol or log.
//!
//! A request is decoded once ([`super::decode`]). The mask and the event loop inspect the
//! operation, [`super::execute()`] carries it out, and a replica assigns it to a worker by
//! [`Operation::scope`].

use super::conditional::{Action, Presence, Write};
use super::decode::Sender;
use super::rights::{Need, Reach, Right};
use super::touch::Touch;
use crate::ops::command_mask::Command;
use crate::store::RowMode;
use crate::update_log::Scope;
use cabinet::name::Kind;
use cabinet::table::SearchRequest;
use cabinet::{Database, Side};
use std::iter::Take;
use wire::binary::{Strings, StringsIter};
use wire::memcached::{Keys, KeysIter};

/// Names and values of the columns of a row in turn.
pub(crate) type Columns<'a> = Take<StringsIter<'a>>;

/// Properties of a database that change the meaning of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    /// Kind of the engine. An engine from outside of `cabinet` counts as a hash.
    pub(crate) kind: Kind,
    /// A key may have several values.
    pub(crate) has_duplicates: bool,
    /// Records are rows.
    pub(crate) has_rows: bool,
    /// Keys are numbers.
    pub(crate) has_ids: bool,
}

impl Model {
    /// Properties of a table.
    pub(crate) const TABLE: Self =
        Self { kind: Kind::Table, has_duplicates: false, has_rows: true, has_ids: false };

    /// Properties of a fixed-length database.
    pub(crate) const FIXED: Self =
        Self { kind: Kind::Fixed, has_duplicates: false, has_rows: false, has_ids: true };

    /// Returns the properties of `database`.
    pub(crate) fn of(database: &Database) -> Self {
        Self {
            kind: Kind::of_path(&database.path()).unwrap_or(Kind::Hash),
            has_duplicates: database.has_duplicates(),
            has_rows: database.table().is_some(),
            has_ids: database.as_numbered().is_some(),
        }
    }

    /// Returns whether a database keeps every record that one of another kind can have.
    pub(crate) fn keeps_records_of(self, other: Kind) -> bool {
        self.has_rows == (other == Kind::Table)
            && (self.has_duplicates || other != Kind::Tree)
            && (!self.has_ids || other == Kind::Fixed)
    }
}

/// An operation on records.
#[derive(Clone, Debug)]
pub(crate) enum Operation<'a> {
    /// Returns the value of a record, the first one if there are several.
    Get { key: &'a [u8] },
    /// Returns a record with its media type. With `in_pieces`, a long value is opened and not read.
    Open { key: &'a [u8], in_pieces: bool },
    /// Returns a record, and sets its expiry, makes it or claims it.
    Touch { key: &'a [u8], touch: Touch },
    /// Returns all values of a key.
    GetAll { key: &'a [u8] },
    /// Returns the columns of a row.
    GetRow { key: &'a [u8] },
    /// Returns at most `length` bytes of a value from byte `start` on.
    GetPart { key: &'a [u8], start: usize, length: usize },
    /// Returns the records under those of the keys that have one. Keys that are invalid in the
    /// database are skipped.
    GetMany { keys: KeyList<'a> },
    /// Returns the records under keys, but fails on a key that is invalid in the database.
    GetList { keys: Strings<'a>, every_value: bool },
    /// Returns the length of a value, in bytes.
    ValueSize { key: &'a [u8] },
    /// Returns the number of values of a key.
    CountValues { key: &'a [u8] },
    /// Stores, extends, counts or removes one record, under a precondition.
    Write(Write<'a>),
    /// Adds a value beside those that the key has.
    PutDuplicate { key: &'a [u8], value: &'a [u8], side: Side },
    /// Removes all values of a key.
    RemoveAll { key: &'a [u8] },
    /// Stores a row. Under an empty key it gets the next identifier.
    PutRow { key: &'a [u8], columns: Columns<'a>, mode: RowMode },
    /// Stores records, given as keys and values in turn. With `adds`, they are stored beside the
    /// values that their keys have. `rows` is the sender of values that are rows.
    PutList { pairs: Strings<'a>, adds: bool, rows: Option<Sender> },
    /// Removes the records under keys.
    RemoveList { keys: Strings<'a>, every_value: bool },
    /// Starts the iterator, at a key if one is given.
    IterBegin { from: Option<&'a [u8]> },
    /// Returns the next key of the iterator.
    IterKey,
    /// Returns the next record of the iterator.
    IterRecord,
    /// Returns at most `max` keys that begin with a prefix.
    KeysWithPrefix { prefix: &'a [u8], max: usize },
    /// Returns the keys that begin with a prefix. If keys are in the order of their bytes, returns
    /// those from `from` on.
    KeysFrom { prefix: &'a [u8], from: &'a [u8] },
    /// Returns a page of at most `max` keys that begin with a prefix: those after `after` in the
    /// order of the database.
    KeyPage { prefix: &'a [u8], after: Option<&'a [u8]>, max: usize },
    /// Returns some keys that begin with a prefix from a place on, and the number of the next
    /// place. That of the beginning is 0. Visits at least `min` keys, if there are that many, and
    /// may return a key more than once.
    KeyScan { prefix: &'a [u8], from: u64, min: usize },
    /// Returns any key.
    RandomKey,
    /// Returns all records.
    Records,
    /// Returns at most `max` records whose key matches a regular expression.
    Match { pattern: &'a [u8], max: usize },
    /// Returns at most `max` records from the key `begin` on, until `end`.
    Range { begin: Option<&'a [u8]>, max: usize, end: Option<&'a [u8]> },
    /// Sets or removes indexes: names of columns and kinds of index in turn.
    SetIndices { pairs: Strings<'a> },
    /// Searches rows, and removes them if the request asks for that.
    Search(Box<SearchRequest>),
    /// Returns the flags of values of a media type, which gets a number if it has none.
    NameMediaType { name: &'a [u8] },
    /// Returns the number of records.
    Count,
    /// Returns an identifier that the table has not generated before.
    GenerateUid,
    /// Makes all changes so far durable.
    Sync,
    /// Changes the tuning.
    Retune { tuning: &'a [u8] },
    /// Removes all records.
    Clear,
    /// Does nothing: the database compacts itself.
    Defragment,
    /// Does nothing: the database manages its caches itself.
    ClearCache,
}

/// Keys of a request, as its protocol lists them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyList<'a> {
    Strings(Strings<'a>),
    Words(Keys<'a>),
}

/// Keys of an operation.
pub(crate) enum OperationKeys<'a> {
    /// At most one.
    One(Option<&'a [u8]>),
    /// Every `step`th of some strings.
    List(std::iter::StepBy<StringsIter<'a>>),
    Words(KeysIter<'a>),
}

impl<'a> Iterator for OperationKeys<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Self::One(key) => key.take(),
            Self::List(keys) => keys.next(),
            Self::Words(keys) => keys.next(),
        }
    }
}

impl<'a> Operation<'a> {
    /// Returns a write without a precondition.
    #[inline]
    pub(crate) fn write(key: &'a [u8], action: Action<&'a [u8]>) -> Self {
        Self::Write(Write::new(key, action))
    }

    /// Returns the operation that stores a value without flags and expiry.
    #[inline]
    pub(crate) fn put(key: &'a [u8], value: &'a [u8], presence: Presence) -> Self {
        Self::Write(Write::put(key, value, presence))
    }

    /// Returns the operation that adds to the end of a value, or stores it.
    #[inline]
    pub(crate) fn append(key: &'a [u8], part: &'a [u8]) -> Self {
        Self::Write(Write::append(key, part))
    }

    /// Returns the operation that removes a record, the first value if there are several.
    #[inline]
    pub(crate) fn remove(key: &'a [u8]) -> Self {
        Self::write(key, Action::Remove)
    }

    /// Returns the one key that the operation is about, if it is about one.
    #[inline]
    pub(crate) fn key(&self) -> Option<&'a [u8]> {
        match self {
            Self::Write(Write { key, .. })
            | Self::Get { key }
            | Self::Open { key, .. }
            | Self::Touch { key, .. }
            | Self::GetAll { key }
            | Self::GetRow { key }
            | Self::GetPart { key, .. }
            | Self::ValueSize { key }
            | Self::CountValues { key }
            | Self::RemoveAll { key }
            | Self::PutDuplicate { key, .. }
            | Self::PutRow { key, .. } => Some(key),
            _ => None,
        }
    }

    /// Returns the keys that the operation names.
    pub(crate) fn keys(&self) -> OperationKeys<'a> {
        match self {
            Self::GetMany { keys: KeyList::Words(keys) } => OperationKeys::Words(keys.iter()),
            Self::GetMany { keys: KeyList::Strings(keys) }
            | Self::GetList { keys, .. }
            | Self::RemoveList { keys, .. } => OperationKeys::List(keys.iter().step_by(1)),
            Self::PutList { pairs, .. } => OperationKeys::List(pairs.iter().step_by(2)),
            _ => OperationKeys::One(self.key()),
        }
    }

    /// Returns the length of the value that the operation stores or adds, in bytes.
    pub(crate) fn value_bytes(&self) -> usize {
        match self {
            Self::Write(write) => write.action.bytes().map_or(0, |bytes| bytes.len()),
            _ => 0,
        }
    }

    /// Returns whether an event loop should not copy the keys and values of the operation: a list
    /// with this many keys, or with more bytes.
    pub(crate) fn is_longer(&self, keys_max: usize, bytes_max: usize) -> bool {
        let has_many = self.keys().nth(keys_max).is_some();
        match self {
            Self::PutList { pairs, .. } => {
                has_many || pairs.iter().map(<[u8]>::len).sum::<usize>() > bytes_max
            }
            _ => has_many,
        }
    }

    /// Returns which records the operation changes.
    pub(crate) fn scope(&self) -> Scope<'a> {
        if self.is_read() {
            return Scope::Nothing;
        }
        match self {
            Self::PutList { .. } | Self::RemoveList { .. } => {
                // A list is mostly about the values of one key.
                let mut keys = self.keys();
                match keys.next() {
                    None => Scope::Nothing,
                    Some(first) if keys.all(|key| key == first) => Scope::Key(first),
                    Some(_) => Scope::All,
                }
            }
            Self::Search(_) | Self::Clear => Scope::All,
            _ => self.key().map_or(Scope::Nothing, Scope::Key),
        }
    }

    /// Returns whether the operation changes no record and no setting.
    #[inline]
    pub(crate) fn is_read(&self) -> bool {
        match self {
            Self::Defragment => true,
            _ => self.access().is_none_or(Command::is_read),
        }
    }

    /// Returns whether a client has to wait until the operation is in the update log.
    #[inline]
    pub(crate) fn changes_records(&self) -> bool {
        match self {
            Self::Sync | Self::Retune { .. } => false,
            // It is known which of these have changed something.
            Self::NameMediaType { .. } => false,
            Self::PutList { pairs, .. } => pairs.len() > 1,
            Self::RemoveList { keys, .. } => !keys.is_empty(),
            operation => !operation.is_read(),
        }
    }

    /// Returns whether the operation always goes to the pool: it reads many records, waits for the
    /// disk, or cannot be begun a second time.
    #[inline]
    pub(crate) fn needs_pool(&self) -> bool {
        match self {
            Self::PutList { pairs, .. } => pairs.len() > 3,
            Self::RemoveList { keys, .. } => keys.len() > 1,
            Self::IterBegin { from } => from.is_some(),
            Self::IterRecord
            | Self::KeysWithPrefix { .. }
            | Self::KeysFrom { .. }
            | Self::KeyPage { .. }
            | Self::KeyScan { .. }
            | Self::RandomKey
            | Self::Records
            | Self::Match { .. }
            | Self::Range { .. }
            | Self::SetIndices { .. }
            | Self::Search(_)
            | Self::GenerateUid
            | Self::Sync
            | Self::Retune { .. }
            | Self::Clear => true,
            _ => false,
        }
    }

    /// Returns the rights that a user needs for the operation.
    pub(crate) fn need(&self) -> [Option<Need<'a>>; 2] {
        use Right::{Admin, Read, Write};
        let keys = || Reach::Keys(self.keys());
        let (right, reach) = match self {
            Self::Get { .. }
            | Self::Open { .. }
            | Self::GetAll { .. }
            | Self::GetRow { .. }
            | Self::GetPart { .. }
            | Self::GetMany { .. }
            | Self::GetList { .. }
            | Self::ValueSize { .. }
            | Self::CountValues { .. } => (Read, keys()),
            Self::Touch { touch, .. } if touch.is_read() => (Read, keys()),
            // It changes the record, and returns it.
            Self::Touch { touch, key } if touch.shows_value => {
                return [Read, Write].map(|right| Some(Need::of_key(right, key)));
            }
            // The reply has the sum.
            Self::Write(write) if write.action.is_arithmetic() => {
                return [Read, Write].map(|right| Some(Need::of_key(right, write.key)));
            }
            Self::Touch { .. }
            | Self::Write(_)
            | Self::PutDuplicate { .. }
            | Self::RemoveAll { .. }
            | Self::PutRow { .. }
            | Self::PutList { .. }
            | Self::RemoveList { .. } => (Write, keys()),
            Self::KeysWithPrefix { prefix, .. }
            | Self::KeysFrom { prefix, .. }
            | Self::KeyPage { prefix, .. }
            | Self::KeyScan { prefix, .. } => (Read, Reach::Prefix(prefix)),
            Self::IterBegin { .. }
            | Self::IterKey
            | Self::IterRecord
            | Self::RandomKey
            | Self::Records
            | Self::Match { .. }
            | Self::Range { .. } => (Read, Reach::All),
            Self::Search(request) if request.out => {
                return [Read, Write].map(|right| Some(Need::of_all(right)));
            }
            Self::Search(_) => (Read, Reach::All),
            Self::Sync | Self::Clear => (Write, Reach::All),
            Self::NameMediaType { .. } | Self::GenerateUid => (Write, Reach::Any),
            Self::SetIndices { .. } | Self::Retune { .. } | Self::Defragment | Self::ClearCache => {
                (Admin, Reach::All)
            }
            // The status shows it too.
            Self::Count => return [None, None],
        };
        [Some(Need { right, reach }), None]
    }

    /// Returns the command that does the same, by which a mask refuses the operation, or `None` if
    /// there is none.
    #[inline]
    pub(crate) fn access(&self) -> Option<Command> {
        Some(match self {
            Self::Write(write) => match write.action {
                Action::Put { presence: Presence::Absent, .. } => Command::PutKeep,
                Action::Put { .. } | Action::Invalidate { .. } => Command::Put,
                Action::Extend { .. } => Command::PutCat,
                Action::Shift { .. } => Command::PutShift,
                Action::Count(_) | Action::AddInt(_) => Command::AddInt,
                Action::AddDouble(_) => Command::AddDouble,
                Action::Remove => Command::Out,
            },
            Self::PutDuplicate { .. }
            | Self::PutRow { mode: RowMode::Replace, .. }
            | Self::PutList { .. }
            | Self::NameMediaType { .. }
            | Self::GenerateUid => Command::Put,
            Self::PutRow { mode: RowMode::Keep, .. } => Command::PutKeep,
            Self::PutRow { mode: RowMode::Merge, .. } => Command::PutCat,
            Self::RemoveAll { .. } | Self::RemoveList { .. } => Command::Out,
            Self::Search(request) if request.out => Command::Out,
            Self::Touch { touch, .. } if !touch.is_read() => Command::Put,
            Self::Get { .. }
            | Self::Open { .. }
            | Self::Touch { .. }
            | Self::GetAll { .. }
            | Self::GetRow { .. }
            | Self::GetPart { .. } => Command::Get,
            Self::GetMany { .. }
            | Self::GetList { .. }
            | Self::Search(_)
            | Self::Records
            | Self::Match { .. }
            | Self::Range { .. } => Command::GetMany,
            Self::ValueSize { .. } | Self::CountValues { .. } => Command::ValueSize,
            Self::IterBegin { .. } => Command::IterInit,
            Self::IterKey | Self::IterRecord => Command::IterNext,
            Self::KeysWithPrefix { .. }
            | Self::KeysFrom { .. }
            | Self::KeyPage { .. }
            | Self::KeyScan { .. }
            | Self::RandomKey => Command::KeysWithPrefix,
            Self::SetIndices { .. } | Self::Retune { .. } | Self::Defragment => Command::Optimize,
            Self::Count => Command::Count,
            Self::Sync => Command::Sync,
            Self::Clear => Command::Vanish,
            Self::ClearCache => return None,
        })
    }

    /// Returns the name of the command that does the same.
    pub(crate) fn name(&self) -> &'static str {
        self.access().map_or("cacheclear", Command::name)
    }
}
