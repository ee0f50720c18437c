//! Operations of databases: what they do, whichever process runs them.
//!
//! A database that this process has open runs them itself. For one that is shared, they are sent to
//! its server, which runs them by the same function.

use crate::errors::{Failure, Fault};
use crate::expiry::RecordMeta;
use crate::options::{kind_name, kind_of_name};
use crate::portion::{Limits, Portion, Position, Wanted, fill};
use crate::query::{self, Given, Outcome};
use crate::wire::Bytes;
use cabinet::{
    Batch, BatchChange, Change, Checked, Cursor, CursorPut, Damage, Database, Durability, Error,
    KeyOrder, Meta, RecordRef, Side, Swap, Version,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::path::PathBuf;

/// Bytes of values after which the server returns no more of them at once.
const VALUES_BYTES: usize = 1 << 20;

/// A record to store.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(crate) struct Record<'a> {
    pub(crate) key: Bytes<'a>,
    pub(crate) value: Bytes<'a>,
    #[serde(with = "MetaFields")]
    pub(crate) meta: Meta,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Meta")]
struct MetaFields {
    flags: u32,
    expires_at_ms: u64,
}

/// Place of a cursor: its key, the number among the duplicates, and the value.
pub(crate) type Place = (Vec<u8>, usize, Vec<u8>);

/// Movement or change of a cursor.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(crate) enum Step<'a> {
    First,
    Last,
    Jump(Bytes<'a>),
    JumpBack(Bytes<'a>),
    Next,
    Previous,
    Put(Bytes<'a>),
    InsertBefore(Bytes<'a>),
    InsertAfter(Bytes<'a>),
    Remove,
}

/// An operation of a database or a transaction.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(crate) enum Operation<'a> {
    Get(Bytes<'a>),
    GetWithMeta(Bytes<'a>),
    Meta(Bytes<'a>),
    Size(Bytes<'a>),
    /// Values of the first keys at least, see [`VALUES_BYTES`].
    GetMany(Vec<Bytes<'a>>),
    GetAll(Bytes<'a>),
    Count(Bytes<'a>),
    Length,
    Width,
    Put(Record<'a>),
    Add(Record<'a>),
    Replace(Record<'a>),
    PutDuplicate(Record<'a>, bool),
    SwapIfVersion(Record<'a>, Version),
    /// Stores the record if the key has this value.
    SwapIfEqual(Record<'a>, Bytes<'a>),
    /// Removes the record of a key if it has this value.
    RemoveIfEqual(Bytes<'a>, Bytes<'a>),
    /// Returns the value of a key, or stores this one.
    SetDefault(Bytes<'a>, Bytes<'a>),
    /// Appends to a value, which has at most this many bytes then.
    Append(Bytes<'a>, Bytes<'a>, u64),
    AddInt {
        key: Bytes<'a>,
        by: i64,
        width: u8,
    },
    AddDouble(Bytes<'a>, f64),
    Touch(Bytes<'a>, u64),
    Remove(Bytes<'a>),
    RemoveAll(Bytes<'a>),
    Clear,
    #[serde(serialize_with = "write_batch", deserialize_with = "read_batch")]
    Write(Cow<'a, Batch>),
    Step(Option<Place>, Step<'a>),
    Scan(Cow<'a, Limits>, Wanted, Position),
    Search(Vec<Given>, Cow<'a, str>, bool),
    SearchOut(Given),
    SetIndex(Bytes<'a>, Cow<'a, str>),
    Indices,
    NewId,
    Sync,
    Appended,
    Durable,
    WaitDurable(u64),
    Backup(PathBuf),
    Verify(Option<u64>),
    Optimize(Option<Cow<'a, str>>),
    Stats,
    Damages,
    SizeBytes,
    Properties,
    /// Begins a transaction, to which the next operations of the connection belong.
    Begin,
    /// Commits it.
    Commit,
}

/// Result of an operation.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(crate) enum Reply<'a> {
    Done,
    Flag(bool),
    Number(u64),
    Size(Option<usize>),
    /// A sum, if it has not too many bits.
    Sum(Option<i64>),
    Double(f64),
    Value(Option<Bytes<'a>>),
    Values(Vec<Option<Bytes<'a>>>),
    Record(Option<(Bytes<'a>, RecordMeta)>),
    Meta(Option<RecordMeta>),
    Step(bool, Option<Place>),
    Portion(Portion, Position),
    Found(Vec<Vec<u8>>, Outcome),
    Indices(Vec<(Vec<u8>, Cow<'a, str>)>),
    Checked(Counts, Vec<String>),
    Stats(Vec<(Cow<'a, str>, String)>),
    Texts(Vec<String>),
    Properties(Properties),
}

/// Counts of a check, by name.
pub(crate) type Counts = Vec<(String, u64)>;

/// Properties that an open database keeps.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Properties {
    pub(crate) path: String,
    pub(crate) kind: Option<String>,
    pub(crate) durability: String,
    /// Name of the order of the keys.
    pub(crate) order: Option<String>,
    pub(crate) has_duplicates: bool,
    pub(crate) is_fixed: bool,
    pub(crate) is_table: bool,
    pub(crate) is_read_only: bool,
}

impl Properties {
    /// Returns those of an open database.
    pub(crate) fn of(database: &Database) -> Self {
        let order = database.order();
        let order =
            order.and_then(|order| KeyOrder::NAMES.iter().find(|(_, named)| *named == order));
        Self {
            path: database.path().display().to_string(),
            kind: database.kind().map(kind_name).map(str::to_owned),
            durability: match database.durability() {
                Durability::None => "none".into(),
                Durability::Always => "always".into(),
                Durability::Interval(milliseconds) => format!("interval:{milliseconds}"),
            },
            order: order.map(|(name, _)| (*name).to_owned()),
            has_duplicates: database.has_duplicates(),
            is_fixed: database.as_numbered().is_some(),
            is_table: database.table().is_some(),
            is_read_only: database.is_read_only(),
        }
    }
}

impl Properties {
    /// Returns the order of the keys.
    pub(crate) fn key_order(&self) -> Option<KeyOrder> {
        let order = self.order.as_deref()?;
        KeyOrder::NAMES.iter().find(|(name, _)| *name == order).map(|(_, order)| *order)
    }

    pub(crate) fn is_on_memory(&self) -> bool {
        self.kind.as_deref().is_some_and(|kind| kind_of_name(kind).is_on_memory())
    }
}

impl Operation<'_> {
    /// Returns whether it may be done again if it is unknown whether it was done. A change may not:
    /// another process may have changed the record since.
    pub(crate) fn is_repeatable(&self) -> bool {
        !self.is_change() && !matches!(self, Self::Backup(_) | Self::Commit)
    }

    /// Returns whether it leaves the same records if it is done twice, with nothing in between.
    pub(crate) fn is_idempotent(&self) -> bool {
        match self {
            Self::Put(_) => true,
            Self::Write(batch) => {
                // It leaves the versions that it expects.
                let is_changed = |key: &[u8]| batch.changes().any(|(changed, _)| changed == key);
                !batch.expected().any(|(key, _)| is_changed(key))
            }
            _ => self.is_repeatable(),
        }
    }

    /// Returns whether it is one that a database which is open for reading only refuses.
    pub(crate) fn is_change(&self) -> bool {
        match self {
            Self::Step(_, step) => step.is_change(),
            Self::Put(_)
            | Self::Add(_)
            | Self::Replace(_)
            | Self::PutDuplicate(..)
            | Self::SwapIfVersion(..)
            | Self::SwapIfEqual(..)
            | Self::RemoveIfEqual(..)
            | Self::SetDefault(..)
            | Self::Append(..)
            | Self::AddInt { .. }
            | Self::AddDouble(..)
            | Self::Touch(..)
            | Self::Remove(_)
            | Self::RemoveAll(_)
            | Self::Clear
            | Self::Write(_)
            | Self::SearchOut(_)
            | Self::SetIndex(..)
            | Self::NewId
            | Self::Optimize(_) => true,
            Self::Get(_)
            | Self::GetWithMeta(_)
            | Self::Meta(_)
            | Self::Size(_)
            | Self::GetMany(_)
            | Self::GetAll(_)
            | Self::Count(_)
            | Self::Length
            | Self::Width
            | Self::Scan(..)
            | Self::Search(..)
            | Self::Indices
            | Self::Sync
            | Self::Appended
            | Self::Durable
            | Self::WaitDurable(_)
            | Self::Backup(_)
            | Self::Verify(_)
            | Self::Stats
            | Self::Damages
            | Self::SizeBytes
            | Self::Properties
            | Self::Begin
            | Self::Commit => false,
        }
    }

    /// Runs it. Searches and checks call `is_interrupted` now and then, and end if it returns true.
    pub(crate) fn run(
        &self,
        database: &Database,
        is_interrupted: fn() -> bool,
    ) -> cabinet::Result<Reply<'static>> {
        Ok(match self {
            Self::Get(key) => Reply::Value(database.get(key)?.map(Bytes::from)),
            Self::GetWithMeta(key) => {
                let read = |record: RecordRef<'_>| (record.value.to_vec().into(), meta_of(&record));
                Reply::Record(database.read(key, read)?)
            }
            Self::Meta(key) => Reply::Meta(database.read(key, |record| meta_of(&record))?),
            Self::Size(key) => Reply::Size(database.value_size(key)?),
            Self::GetMany(keys) => Reply::Values(get_many(database, keys)?),
            Self::GetAll(key) => {
                let values = database.get_all(key)?;
                Reply::Values(values.into_iter().map(|value| Some(value.into())).collect())
            }
            Self::Count(key) => Reply::Number(database.count(key)? as u64),
            Self::Length => Reply::Number(database.len()),
            Self::Width => {
                let width = database.as_numbered().map(cabinet::Numbered::width);
                Reply::Size(width.and_then(|width| usize::try_from(width).ok()))
            }
            Self::Put(Record { key, value, meta }) => {
                Reply::Number(database.put_with(key, value, *meta)?)
            }
            Self::Add(Record { key, value, meta }) => {
                Reply::Flag(database.put_keep(key, value, *meta)?)
            }
            Self::Replace(Record { key, value, meta }) => {
                Reply::Flag(database.replace(key, value, *meta)?)
            }
            Self::PutDuplicate(Record { key, value, meta }, is_before) => {
                let side = if *is_before { Side::Before } else { Side::After };
                Reply::Number(database.put_duplicate_with(key, value, *meta, side)?)
            }
            Self::SwapIfVersion(Record { key, value, meta }, version) => {
                let swap = database.compare_and_swap(key, *version, value, *meta)?;
                Reply::Flag(matches!(swap, Swap::Stored(_)))
            }
            Self::SwapIfEqual(Record { key, value, meta }, expected) => {
                change_if_equal(database, key, expected, || Change::Put(value.to_vec(), *meta))?
            }
            Self::RemoveIfEqual(key, expected) => {
                change_if_equal(database, key, expected, || Change::Remove)?
            }
            Self::SetDefault(key, value) => {
                let decide = |record: Option<RecordRef<'_>>| match record {
                    Some(record) => (Change::Keep, Some(record.value.to_vec().into())),
                    None => (Change::Put(value.to_vec(), Meta::NONE), None),
                };
                Reply::Value(database.modify(key, decide)?)
            }
            Self::Append(key, part, u64::MAX) => {
                database.put_cat(key, part)?;
                Reply::Number(0)
            }
            Self::Append(key, part, bytes_max) => append(database, key, part, *bytes_max)?,
            Self::AddInt { key, by, width } => {
                let add = |record: Option<RecordRef<'_>>| match width {
                    4 => add_to::<4>(record, *by),
                    _ => add_to::<8>(record, *by),
                };
                Reply::Sum(database.try_modify(key, add)?.0)
            }
            Self::AddDouble(key, by) => Reply::Double(database.add_double(key, *by)?),
            Self::Touch(key, time) => Reply::Flag(database.touch(key, *time)?),
            Self::Remove(key) => Reply::Flag(database.remove(key)?),
            Self::RemoveAll(key) => Reply::Number(database.remove_all(key)? as u64),
            Self::Clear => done(database.clear())?,
            Self::Write(batch) => done(database.write(batch))?,
            Self::Step(place, step) => step.run(database, place.clone())?,
            Self::Scan(limits, wanted, position) => {
                let (mut portion, mut position) = (Portion::default(), position.clone());
                let limits = limits.prepared(database.order())?;
                fill(database, &limits, *wanted, &mut position, &mut portion)?;
                Reply::Portion(portion, position)
            }
            Self::Search(queries, operation, has_keys) => {
                let search = || query::search(database, queries, operation, *has_keys);
                let (keys, outcome) = cabinet::with_interruption(is_interrupted, search)?;
                Reply::Found(keys, outcome)
            }
            Self::SearchOut(given) => {
                let search = || query::search_out(database, given);
                Reply::Found(Vec::new(), cabinet::with_interruption(is_interrupted, search)?)
            }
            Self::SetIndex(column, kind) => done(query::set_index(database, column, kind))?,
            Self::Indices => Reply::Indices(query::indices(database)?),
            Self::NewId => Reply::Number(query::table(database)?.generate_uid()?),
            Self::Sync => done(database.sync())?,
            Self::Appended => Reply::Number(database.appended()),
            Self::Durable => Reply::Number(database.durable()),
            Self::WaitDurable(position) => done(database.wait_durable(*position))?,
            Self::Backup(path) => done(database.copy_to(path))?,
            Self::Verify(rate) => {
                let mut damages = Vec::new();
                let rate = rate.unwrap_or(u64::MAX);
                let mut go_on = |_: &_| (!is_interrupted()).then_some(rate);
                let verified = database.verify(&mut go_on, &mut |damage| damages.push(damage))?;
                Reply::Checked(counts(&verified.checked), damage_texts(&damages))
            }
            Self::Optimize(None) => done(database.optimize())?,
            Self::Optimize(Some(tuning)) => done(database.retune(tuning))?,
            Self::Stats => Reply::Stats(
                database.stats().into_iter().map(|(name, value)| (name.into(), value)).collect(),
            ),
            Self::Damages => Reply::Texts(damage_texts(&database.damages())),
            Self::SizeBytes => Reply::Number(database.size_bytes()),
            Self::Properties => Reply::Properties(Properties::of(database)),
            Self::Begin | Self::Commit => {
                return Err(Error::Internal("transactions are begun by connections".into()));
            }
        })
    }
}

impl Step<'_> {
    fn is_change(&self) -> bool {
        match self {
            Self::Put(_) | Self::InsertBefore(_) | Self::InsertAfter(_) | Self::Remove => true,
            Self::First
            | Self::Last
            | Self::Jump(_)
            | Self::JumpBack(_)
            | Self::Next
            | Self::Previous => false,
        }
    }

    fn run(&self, database: &Database, place: Option<Place>) -> cabinet::Result<Reply<'static>> {
        let mut cursor: Cursor = database.cursor_at(place)?;
        let is_there = match self {
            Self::First => cursor.first(),
            Self::Last => cursor.last(),
            Self::Jump(key) => cursor.jump(key),
            Self::JumpBack(key) => cursor.jump_back(key),
            Self::Next => cursor.next(),
            Self::Previous => cursor.prev(),
            Self::Put(value) => cursor.put(value, CursorPut::Current),
            Self::InsertBefore(value) => cursor.put(value, CursorPut::Before),
            Self::InsertAfter(value) => cursor.put(value, CursorPut::After),
            Self::Remove => cursor.remove(),
        };
        Ok(Reply::Step(is_there?, cursor.into_place()))
    }
}

fn done(done: cabinet::Result<()>) -> cabinet::Result<Reply<'static>> {
    done.map(|()| Reply::Done)
}

fn meta_of(record: &RecordRef<'_>) -> RecordMeta {
    RecordMeta::new(record.meta, record.version, record.value.len())
}

fn get_many(
    database: &Database,
    keys: &[Bytes<'_>],
) -> cabinet::Result<Vec<Option<Bytes<'static>>>> {
    let (mut values, mut bytes) = (Vec::with_capacity(keys.len()), 0);
    for key in keys {
        let value = database.get(key)?;
        bytes += value.as_ref().map_or(0, Vec::len);
        values.push(value.map(Bytes::from));
        if bytes >= VALUES_BYTES {
            break;
        }
    }
    Ok(values)
}

fn change_if_equal(
    database: &Database,
    key: &[u8],
    expected: &[u8],
    change: impl Fn() -> Change,
) -> cabinet::Result<Reply<'static>> {
    let decide = |record: Option<RecordRef<'_>>| match record {
        Some(record) if record.value == expected => (change(), true),
        _ => (Change::Keep, false),
    };
    Ok(Reply::Flag(database.modify(key, decide)?))
}

/// Appends to a value. Returns the bytes that it would have, and changes nothing, if they are too
/// many; else 0.
fn append(
    database: &Database,
    key: &[u8],
    part: &[u8],
    bytes_max: u64,
) -> cabinet::Result<Reply<'static>> {
    let append = |record: Option<RecordRef<'_>>| {
        let (old, meta) = record.map_or((&[][..], Meta::NONE), |old| (old.value, old.meta));
        let bytes = (old.len() + part.len()) as u64;
        if bytes > bytes_max {
            (Change::Keep, bytes)
        } else {
            (Change::Put([old, part].concat(), meta), 0)
        }
    };
    Ok(Reply::Number(database.modify(key, append)?))
}

/// Adds to an integer of `WIDTH` bytes. Also returns the sum; `None`, and no change, if it has
/// more.
fn add_to<const WIDTH: usize>(
    record: Option<RecordRef<'_>>,
    by: i64,
) -> cabinet::Result<(Change, Option<i64>)> {
    let (old, meta) = match &record {
        None => (0, Meta::NONE),
        Some(record) if record.value.len() == WIDTH => {
            let is_negative = record.value[WIDTH - 1] >= 0x80;
            let mut bytes = [if is_negative { 0xff } else { 0 }; 8];
            bytes[..WIDTH].copy_from_slice(record.value);
            (i64::from_le_bytes(bytes), record.meta)
        }
        Some(_) => return Err(Error::NotANumber { width: WIDTH }),
    };
    let unused_bits = 64 - 8 * WIDTH as u32;
    let fits = |sum: &i64| *sum << unused_bits >> unused_bits == *sum;
    Ok(match old.checked_add(by).filter(fits) {
        Some(sum) => (Change::Put(sum.to_le_bytes()[..WIDTH].to_vec(), meta), Some(sum)),
        None => (Change::Keep, None),
    })
}

/// Returns the counts of a check by name.
pub(crate) fn counts(checked: &Checked) -> Counts {
    let counts = [
        ("segments", checked.segments),
        ("records", checked.records),
        ("bytes", checked.bytes),
        ("torn_bytes", checked.torn_bytes),
    ];
    counts.map(|(name, count)| (name.to_owned(), count)).into()
}

/// Returns the texts of damage.
pub(crate) fn damage_texts(damages: &[Damage]) -> Vec<String> {
    damages.iter().map(ToString::to_string).collect()
}

/// Key, and value with flags and expiry to store; `None` to remove the record.
type BatchEntry<'a> = (Bytes<'a>, Option<(Bytes<'a>, u32, u64)>);

/// Key, and version that its record must have.
type Expected<'a> = (Bytes<'a>, Option<Version>);

fn entry_of<'b>((key, change): (&'b [u8], BatchChange<'b>)) -> BatchEntry<'b> {
    let put = match change {
        BatchChange::Remove => None,
        BatchChange::Put(value, Meta { flags, expires_at_ms }) => {
            Some((value.into(), flags, expires_at_ms))
        }
    };
    (key.into(), put)
}

fn write_batch<S: Serializer>(batch: &Batch, serializer: S) -> Result<S::Ok, S::Error> {
    let entries: Vec<BatchEntry<'_>> = batch.changes().map(entry_of).collect();
    let expected = batch.expected().map(|(key, version)| (Bytes::from(key), version));
    let expected: Vec<Expected<'_>> = expected.collect();
    (entries, expected).serialize(serializer)
}

fn read_batch<'de, 'a, D>(deserializer: D) -> Result<Cow<'a, Batch>, D::Error>
where
    'de: 'a,
    D: Deserializer<'de>,
{
    let (entries, expected): (Vec<BatchEntry<'de>>, Vec<Expected<'de>>) =
        Deserialize::deserialize(deserializer)?;
    let mut batch = Batch::new();
    for (key, value) in &entries {
        match value {
            Some((value, flags, time)) => {
                batch.put(key, value, Meta { flags: *flags, expires_at_ms: *time });
            }
            None => batch.remove(key),
        }
    }
    for (key, version) in &expected {
        batch.expect(key, *version);
    }
    Ok(Cow::Owned(batch))
}

/// Value that a reply stands for.
pub(crate) trait FromReply: Sized {
    /// Takes the value out of a reply; `None` if it is one of another operation.
    fn from_reply(reply: Reply<'_>) -> Option<Self>;

    /// Likewise, with an error instead.
    fn take(reply: Reply<'_>) -> Result<Self, Failure> {
        Self::from_reply(reply).ok_or_else(|| Fault::wire(&"another reply was expected").into())
    }
}

/// Implements [`FromReply`] for the types that variants of [`Reply`] stand for.
macro_rules! from_reply {
    ($($type:ty: $pattern:pat => $value:expr;)*) => {
        $(impl FromReply for $type {
            #[inline]
            fn from_reply(reply: Reply<'_>) -> Option<Self> {
                match reply {
                    $pattern => Some($value),
                    _ => None,
                }
            }
        })*
    };
}

from_reply! {
    (): Reply::Done => ();
    bool: Reply::Flag(flag) => flag;
    u64: Reply::Number(number) => number;
    Option<usize>: Reply::Size(size) => size;
    Option<i64>: Reply::Sum(sum) => sum;
    f64: Reply::Double(double) => double;
    Option<Vec<u8>>: Reply::Value(value) => value.map(|value| value.0.into_owned());
    Vec<Option<Vec<u8>>>: Reply::Values(values) =>
        values.into_iter().map(|value| value.map(|value| value.0.into_owned())).collect();
    Option<(Vec<u8>, RecordMeta)>: Reply::Record(record) =>
        record.map(|(value, meta)| (value.0.into_owned(), meta));
    Option<RecordMeta>: Reply::Meta(meta) => meta;
    (bool, Option<Place>): Reply::Step(is_there, place) => (is_there, place);
    (Portion, Position): Reply::Portion(portion, position) => (portion, position);
    (Vec<Vec<u8>>, Outcome): Reply::Found(keys, outcome) => (keys, outcome);
    Vec<(Vec<u8>, String)>: Reply::Indices(indices) =>
        indices.into_iter().map(|(column, kind)| (column, kind.into_owned())).collect();
    (Counts, Vec<String>): Reply::Checked(counts, damages) => (counts, damages);
    Vec<(String, String)>: Reply::Stats(stats) =>
        stats.into_iter().map(|(name, value)| (name.into_owned(), value)).collect();
    Vec<String>: Reply::Texts(texts) => texts;
    Properties: Reply::Properties(properties) => properties;
}
