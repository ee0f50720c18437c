//! A database and everything that can be done with one, whatever its engine.
//!
//! The named operations are written here once, over the few that an [`Engine`] has.

use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::name::{Kind, options_of};
use crate::ordered::ordered;
use crate::table::{Row, RowView, Table};
use crate::{
    Batch, Change, Cursor, Cut, Damage, Durability, DurableListener, Engine, Entry, Error,
    ExpiredKeys, FullScan, GoOn, LogPosition, LongValue, Meta, Numbered, Order, Ordered, Position,
    Result, Seek, Side, Verified, Version, Wait, Wanted, deadline, reentry,
};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Handle of an open database. Clones share it; the last one to go closes it.
///
/// Writes return when they are acknowledged as the database's [`Durability`] has it, unless the
/// handle is one of [`Database::deferred`].
///
/// # Callbacks
///
/// Several operations lend records to a callback of the caller's, such as [`Database::read`],
/// [`Database::modify`] and [`Database::for_each`]. Such a callback must not call the database that
/// called it, neither through this handle nor through a clone, [`Cursor`], [`Transaction`] or
/// [`Table`] of it: whatever returns a [`Result`] fails with [`Error::Reentrant`] there, of every
/// kind of database, and does nothing. What else there is may be called: it tells
/// [`Database::len`], [`Database::path`] and [`Database::appended`], for example, without waiting.
/// Other databases may be called too; two threads that do so in opposite orders may wait for each
/// other. Visitors of the results of a query are lent copies and may do more, see
/// [`Table::for_each_result`].
///
/// [`Transaction`]: crate::Transaction
#[derive(Clone)]
pub struct Database {
    engine: Arc<dyn Engine>,
    /// As the engine has it: whose callbacks may not call this handle, see [`reentry`].
    identity: usize,
    wait: Wait,
    deferred: bool,
}

/// Whether what is equal to a bound is within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inclusion {
    /// It is.
    Included,
    /// It is not.
    Excluded,
}

/// How a compare-and-swap ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// Stored, as this version.
    Stored(Version),
    /// The record has another version by now.
    Changed,
    /// There is no such record.
    Missing,
}

/// A scan of all records under way, see [`Database::full_scan`]. A record that exists throughout
/// is visited exactly once. Where a step fails, the scan ends.
pub struct ScanCursor<'d> {
    database: &'d Database,
    scan: Box<dyn FullScan + 'd>,
}

impl ScanCursor<'_> {
    /// Visits some records, if any are left; returns whether there may be more.
    pub fn step(&mut self, mut visit: impl FnMut(Entry<'_>)) -> Result<bool> {
        self.database.enter()?;
        deadline::check()?;
        // Once around the step: around each record it was a seventh of the time of a scan.
        self.database.call(|| self.scan.step(&mut visit))
    }

    /// Visits some keys, if any are left; returns whether there may be more.
    pub fn step_keys(&mut self, mut visit: impl FnMut(&[u8])) -> Result<bool> {
        self.database.enter()?;
        deadline::check()?;
        self.database.call(|| self.scan.step_keys(&mut visit))
    }
}

/// The keys of a scan that begin with a prefix, each once.
struct KeysWithPrefix<'p, V> {
    prefix: &'p [u8],
    /// The last one, where a key is met once for each of its values.
    previous: Option<Option<Vec<u8>>>,
    /// Another key was met.
    is_past: bool,
    flow: ControlFlow<()>,
    visit: V,
}

impl<V: FnMut(&[u8]) -> ControlFlow<()>> KeysWithPrefix<'_, V> {
    fn take(&mut self, key: &[u8]) {
        if !key.starts_with(self.prefix) {
            self.is_past = true;
        } else if self.flow.is_continue() {
            if let Some(previous) = &mut self.previous {
                if previous.as_deref() == Some(key) {
                    return;
                }
                let previous = previous.get_or_insert_default();
                previous.clear();
                previous.extend_from_slice(key);
            }
            self.flow = (self.visit)(key);
        }
    }
}

impl Database {
    /// Wraps an engine of the caller's.
    pub fn from_engine(engine: Arc<dyn Engine>) -> Self {
        let identity = engine.identity();
        Self { engine, identity, wait: Wait::Block, deferred: false }
    }

    /// A handle whose operations answer [`Error::WouldBlock`] rather than wait for a disk read.
    pub fn nonblocking(&self) -> Self {
        Self { wait: Wait::Never, ..self.clone() }
    }

    /// A handle whose operations wait for disk reads, as those of a new one do.
    pub fn blocking(&self) -> Self {
        Self { wait: Wait::Block, ..self.clone() }
    }

    /// A handle whose writes return before they are durable. Its user asks [`Database::appended`]
    /// after a write, and acknowledges it once [`Database::durable`] has come that far.
    pub fn deferred(&self) -> Self {
        Self { deferred: true, ..self.clone() }
    }

    /// Removes the record under a key if it has expired, of several all that have; says whether it
    /// was there. Only of use where [`Database::expired_keys`] names such keys.
    pub fn remove_expired(&self, key: &[u8]) -> Result<bool> {
        self.enter()?;
        self.engine.remove_expired(key, self.wait)
    }

    /// Looks for expired records, where only writes do so by themselves.
    pub fn find_expired(&self) {
        if !reentry::is_within(self.identity) {
            self.engine.find_expired();
        }
    }

    /// Keys of expired records that others are to remove, if the database was opened with a clock
    /// that [hands over](crate::Clock::handing_over).
    pub fn expired_keys(&self) -> Option<&ExpiredKeys> {
        self.engine.expired_keys()
    }

    /// Stores a record, whatever was there.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<Version> {
        self.put_with(key, value, Meta::NONE)
    }

    /// Stores a record with flags and expiry, whatever was there.
    pub fn put_with(&self, key: &[u8], value: &[u8], meta: Meta) -> Result<Version> {
        self.enter()?;
        check_key(key)?;
        check_value(value.len())?;
        let version = self.engine.put(key, value, meta, self.wait)?;
        self.acknowledge()?;
        Ok(version)
    }

    /// Stores a record if there is none under the key; says whether it did.
    pub fn put_keep(&self, key: &[u8], value: &[u8], meta: Meta) -> Result<bool> {
        self.update(key, |entry| match entry {
            Some(_) => (Change::Keep, false),
            None => (Change::Put(value.to_vec(), meta), true),
        })
    }

    /// Stores a record if there is one under the key already; says whether it did.
    pub fn replace(&self, key: &[u8], value: &[u8], meta: Meta) -> Result<bool> {
        self.update(key, |entry| match entry {
            Some(_) => (Change::Put(value.to_vec(), meta), true),
            None => (Change::Keep, false),
        })
    }

    /// Appends to a value; creates the record if there is none. In a table, adds the columns that
    /// the row lacks.
    pub fn put_cat(&self, key: &[u8], suffix: &[u8]) -> Result<()> {
        if let Some(table) = self.engine.as_table() {
            self.enter()?;
            check_key(key)?;
            table.cat(&table.key_to_put(key, self.wait)?, &Row::from_joined(suffix)?, self.wait)?;
            return self.acknowledge();
        }
        self.put_shift(key, suffix, usize::MAX)
    }

    /// Appends to a value and keeps the last `width` bytes of the result. A new record is stored
    /// whole, as Tokyo Cabinet does.
    pub fn put_shift(&self, key: &[u8], suffix: &[u8], width: usize) -> Result<()> {
        self.update(key, |entry| {
            let Some(entry) = entry else {
                return (Change::Put(suffix.to_vec(), Meta::NONE), Ok(()));
            };
            let whole = entry.value.len() + suffix.len();
            let kept = whole.min(width);
            if let Err(error) = check_value(kept) {
                return (Change::Keep, Err(error));
            }
            (Change::Put(concat_tail(entry.value, suffix, kept), entry.meta), Ok(()))
        })?
    }

    /// Appends to (or, with `front`, prepends to) the value of an existing record, keeping its
    /// flags and expiry; says whether there was one.
    pub fn extend(&self, key: &[u8], part: &[u8], front: bool) -> Result<bool> {
        self.update(key, |entry| {
            let Some(entry) = entry else { return (Change::Keep, Ok(false)) };
            if let Err(error) = check_value(entry.value.len() + part.len()) {
                return (Change::Keep, Err(error));
            }
            let (first, second) = if front { (part, entry.value) } else { (entry.value, part) };
            (Change::Put([first, second].concat(), entry.meta), Ok(true))
        })?
    }

    /// Removes a record; says whether there was one. In a hash or fixed-length database that need
    /// not be readable: one that is damaged is removed as well.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        match self.update(key, |entry| (Change::Remove, entry.is_some())) {
            Err(error @ Error::Corrupted { .. }) => {
                if !self.engine.remove_damaged(key, self.wait)? {
                    return Err(error);
                }
                self.acknowledge()?;
                Ok(true)
            }
            removed => removed,
        }
    }

    /// The value under a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.lend(key, |entry| entry.value.to_vec())
    }

    /// Lends the record under a key to `visit`; answers what that made of it.
    pub fn read<T>(&self, key: &[u8], visit: impl FnOnce(Entry<'_>) -> T) -> Result<Option<T>> {
        self.lend(key, |entry| self.call(|| visit(entry)))
    }

    /// As [`Database::read`], for a callback that calls nothing of the database.
    #[inline]
    fn lend<T>(&self, key: &[u8], visit: impl FnOnce(Entry<'_>) -> T) -> Result<Option<T>> {
        self.enter()?;
        check_key(key)?;
        let mut visit = Some(visit);
        let mut result = None;
        self.engine.read(key, self.wait, &mut |entry| {
            result = visit.take().map(|visit| visit(entry));
        })?;
        Ok(result)
    }

    /// Opens the value under a key to be read in pieces, if it has `bytes_min` bytes or more and
    /// the database keeps it in one piece on the disk; else `None`, and [`Database::read`] tells
    /// what there is.
    pub fn long_value(&self, key: &[u8], bytes_min: usize) -> Result<Option<LongValue>> {
        self.enter()?;
        check_key(key)?;
        self.engine.long_value(key, bytes_min, self.wait)
    }

    /// Says that these keys are about to be read or written. With several keys at hand this makes
    /// what follows faster: the cache misses of finding them overlap.
    pub fn prefetch(&self, keys: &[&[u8]]) {
        if !reentry::is_within(self.identity) {
            self.engine.prefetch(keys);
        }
    }

    /// Size of the value under a key, in bytes.
    pub fn value_size(&self, key: &[u8]) -> Result<Option<usize>> {
        self.lend(key, |entry| entry.value.len())
    }

    /// Adds to a little-endian 32-bit integer, wrapping, and answers the sum. Creates the record
    /// if there is none. Fails with [`Error::NotANumber`] if the value is not 4 bytes long. In a
    /// table, adds to the column [`crate::table::NUMBER_COLUMN`], as text.
    pub fn add_int(&self, key: &[u8], addend: i32) -> Result<i32> {
        if self.engine.as_table().is_some() {
            return Ok(self.add_double(key, f64::from(addend))? as i32);
        }
        self.add(key, move |number: Option<[u8; 4]>| {
            let sum = number.map_or(0, i32::from_le_bytes).wrapping_add(addend);
            Some((sum.to_le_bytes(), sum))
        })
    }

    /// Adds to a little-endian IEEE 754 double and answers the sum. Creates the record if there
    /// is none. Fails with [`Error::NotANumber`] if the value is not 8 bytes long, or the sum is
    /// not a number. In a table, adds to the column [`crate::table::NUMBER_COLUMN`], as text.
    pub fn add_double(&self, key: &[u8], addend: f64) -> Result<f64> {
        if let Some(table) = self.engine.as_table() {
            self.enter()?;
            check_key(key)?;
            let sum = table.add(&table.key_to_put(key, self.wait)?, addend, self.wait)?;
            self.acknowledge()?;
            return Ok(sum);
        }
        self.add(key, move |number: Option<[u8; 8]>| {
            let sum = number.map_or(0.0, f64::from_le_bytes) + addend;
            (!sum.is_nan()).then_some((sum.to_le_bytes(), sum))
        })
    }

    fn add<const WIDTH: usize, T>(
        &self,
        key: &[u8],
        add: impl Fn(Option<[u8; WIDTH]>) -> Option<([u8; WIDTH], T)>,
    ) -> Result<T> {
        self.update(key, |entry| {
            let (number, meta) = match entry {
                None => (None, Meta::NONE),
                Some(entry) => match <[u8; WIDTH]>::try_from(entry.value) {
                    Ok(number) => (Some(number), entry.meta),
                    Err(_) => return (Change::Keep, Err(Error::NotANumber { width: WIDTH })),
                },
            };
            match add(number) {
                Some((bytes, sum)) => (Change::Put(bytes.to_vec(), meta), Ok(sum)),
                None => (Change::Keep, Err(Error::NotANumber { width: WIDTH })),
            }
        })?
    }

    /// Stores a record if the present one is at `version`.
    pub fn compare_and_swap(
        &self,
        key: &[u8],
        version: Version,
        value: &[u8],
        meta: Meta,
    ) -> Result<Swap> {
        self.enter()?;
        check_value(value.len())?;
        check_key(key)?;
        let mut outcome = Swap::Missing;
        let stored = self.engine.update(key, self.wait, &mut |entry| match entry {
            None => {
                outcome = Swap::Missing;
                Change::Keep
            }
            Some(entry) if entry.version != version => {
                outcome = Swap::Changed;
                Change::Keep
            }
            Some(_) => {
                outcome = Swap::Stored(0);
                Change::Put(value.to_vec(), meta)
            }
        })?;
        self.acknowledge()?;
        Ok(if let Swap::Stored(_) = outcome { Swap::Stored(stored) } else { outcome })
    }

    /// Sets the expiry of a record, in milliseconds since the Unix epoch, 0 for never; says
    /// whether there was one.
    pub fn touch(&self, key: &[u8], expires_at_ms: u64) -> Result<bool> {
        self.update(key, |entry| match entry {
            None => (Change::Keep, false),
            Some(entry) => {
                (Change::Put(entry.value.to_vec(), Meta { expires_at_ms, ..entry.meta }), true)
            }
        })
    }

    /// Atomic read-modify-write: `decide` sees the record, says what becomes of it, and what to
    /// answer. It runs under the record's lock: no other writer of the key comes between.
    pub fn modify<T>(
        &self,
        key: &[u8],
        decide: impl FnMut(Option<Entry<'_>>) -> (Change, T),
    ) -> Result<T> {
        self.modify_versioned(key, decide).map(|(answer, _)| answer)
    }

    /// As [`Database::modify`], for a callback that calls nothing of the database.
    fn update<T>(
        &self,
        key: &[u8],
        decide: impl FnMut(Option<Entry<'_>>) -> (Change, T),
    ) -> Result<T> {
        self.update_versioned(key, decide).map(|(answer, _)| answer)
    }

    /// As [`Database::modify`]; answers also the version of the record that was put, 0 if none
    /// was.
    pub fn modify_versioned<T>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<Entry<'_>>) -> (Change, T),
    ) -> Result<(T, Version)> {
        self.update_versioned(key, |entry| self.call(|| decide(entry)))
    }

    #[inline]
    fn update_versioned<T>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<Entry<'_>>) -> (Change, T),
    ) -> Result<(T, Version)> {
        self.enter()?;
        check_key(key)?;
        let mut answer = None;
        let mut over = None;
        let version = self.engine.update(key, self.wait, &mut |entry| {
            let (change, result) = decide(entry);
            answer = Some(result);
            match change {
                Change::Put(value, _) if value.len() > VALUE_BYTES_MAX => {
                    over = Some(value.len());
                    Change::Keep
                }
                change => change,
            }
        })?;
        if let Some(bytes) = over {
            return Err(Error::ValueTooLong { bytes, max: VALUE_BYTES_MAX });
        }
        self.acknowledge()?;
        // `update` calls its closure exactly once when it succeeds.
        let answer = answer.ok_or_else(|| Error::NotSupported("update".into()))?;
        Ok((answer, version))
    }

    /// Applies all of a batch or nothing.
    pub fn write(&self, batch: &Batch) -> Result<()> {
        self.enter()?;
        for (key, change) in &batch.changes {
            check_key(key)?;
            if let crate::BatchChange::Put(value, _) = change {
                check_value(value.len())?;
            }
        }
        batch.check_length()?;
        self.engine.write(batch)?;
        self.acknowledge()
    }

    /// Visits all records, until `visit` breaks. Writers are not held up. A record that exists
    /// for the whole of it is visited once; the order is the engine's own.
    pub fn for_each(&self, mut visit: impl FnMut(Entry<'_>) -> ControlFlow<()>) -> Result<()> {
        let mut cursor = self.full_scan(Wanted::Records)?;
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue()
            && cursor.step(|entry| {
                if flow.is_continue() {
                    flow = visit(entry);
                }
            })?
        {}
        Ok(())
    }

    /// Begins a scan of all records, for callers that do something between its steps. The memory
    /// that it takes rises with the records that are changed before it has come to them, so it is
    /// not to be left alone for long.
    pub fn full_scan(&self, wanted: Wanted) -> Result<ScanCursor<'_>> {
        self.enter()?;
        Ok(ScanCursor { database: self, scan: self.engine.full_scan(wanted)? })
    }

    /// Keys that begin with `prefix`, at most `max` (`None`: all).
    pub fn keys_with_prefix(&self, prefix: &[u8], max: Option<usize>) -> Result<Vec<Vec<u8>>> {
        let max = max.unwrap_or(usize::MAX);
        let mut keys = Vec::new();
        if max > 0 {
            self.each_key_with_prefix(prefix, |key| {
                keys.push(key.to_vec());
                if keys.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok(keys)
    }

    /// Visits the keys that begin with `prefix`, each once, until `visit` breaks.
    pub fn for_each_key_with_prefix(
        &self,
        prefix: &[u8],
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.each_key_with_prefix(prefix, |key| self.call(|| visit(key)))
    }

    fn each_key_with_prefix(
        &self,
        prefix: &[u8],
        visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.enter()?;
        deadline::check()?;
        let mut keys = KeysWithPrefix {
            prefix,
            previous: self.has_duplicates().then_some(None),
            is_past: false,
            flow: ControlFlow::Continue(()),
            visit,
        };
        let order = self.engine.as_ordered().map_or(Order::Lexical, Ordered::order);
        let mut position = self.engine.position_of_prefix(prefix);
        // In another order, what begins alike does not stand together.
        if order != Order::Lexical || position == Position::Start {
            let mut scan = self.engine.full_scan(Wanted::Keys)?;
            while keys.flow.is_continue() && scan.step_keys(&mut |key| keys.take(key))? {
                deadline::check()?;
            }
            return Ok(());
        }
        // The first key without the prefix ends the range.
        while keys.flow.is_continue()
            && !keys.is_past
            && let Some(next) = self.engine.scan_keys(&position, &mut |key| keys.take(key))?
        {
            deadline::check()?;
            position = next;
        }
        Ok(())
    }

    /// Records whose key matches a POSIX extended regular expression (a leading `*` ignores
    /// case), at most `max` (`None`: all), as pairs of key and value.
    pub fn find(&self, pattern: &[u8], max: Option<usize>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let max = max.unwrap_or(usize::MAX);
        let mut found = Vec::new();
        let mut take = |entry: Entry<'_>| {
            if found.len() < max {
                found.push((entry.key.to_vec(), entry.value.to_vec()));
            }
            if found.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        self.for_each_match(pattern, &mut take)?;
        Ok(found)
    }

    /// Visits the records whose key matches a POSIX extended regular expression (a leading `*`
    /// ignores case), until `visit` breaks.
    pub fn for_each_match(
        &self,
        pattern: &[u8],
        mut visit: impl FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let pattern = crate::pattern::compile(pattern)?;
        self.for_each(|entry| {
            if pattern.is_match(entry.key) { visit(entry) } else { ControlFlow::Continue(()) }
        })
    }

    /// One step of a caller's own iteration, see [`Engine::scan`].
    pub fn scan(
        &self,
        from: &Position,
        mut visit: impl FnMut(Entry<'_>),
    ) -> Result<Option<Position>> {
        self.enter()?;
        self.call(|| self.engine.scan(from, &mut visit))
    }

    /// One step of a caller's own iteration over keys, see [`Engine::scan_keys`].
    pub fn scan_keys(
        &self,
        from: &Position,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<Option<Position>> {
        self.enter()?;
        self.call(|| self.engine.scan_keys(from, &mut visit))
    }

    /// Where an iteration that begins at `key` starts.
    pub fn position_of(&self, key: &[u8]) -> Position {
        self.engine.position_of(key)
    }

    /// The key that the record under `key` has, where several keys mean the same record.
    pub fn canonical_key<'k>(&self, key: &'k [u8]) -> Result<Cow<'k, [u8]>> {
        self.enter()?;
        self.engine.canonical_key(key)
    }

    /// What else can be done if keys are ids: a fixed-length database.
    pub fn as_numbered(&self) -> Option<&dyn Numbered> {
        self.engine.as_numbered()
    }

    /// The order of keys of an ordered database, or `None` where they are in none.
    pub fn order(&self) -> Option<Order> {
        match self.engine.as_ordered() {
            Some(engine) => Some(engine.order()),
            // An engine that goes by keys without duplicates.
            None => matches!(self.position_of(b""), Position::Key(_)).then_some(Order::Lexical),
        }
    }

    /// Stores a value beside those that a key has, before or after them. Fails with
    /// [`Error::NotSupported`] if the database has no duplicates, as do the others that speak of
    /// them.
    pub fn put_duplicate(&self, key: &[u8], value: &[u8], side: Side) -> Result<Version> {
        self.put_duplicate_with(key, value, Meta::NONE, side)
    }

    /// As [`put_duplicate`](Self::put_duplicate), with flags and expiry of this value.
    pub fn put_duplicate_with(
        &self,
        key: &[u8],
        value: &[u8],
        meta: Meta,
        side: Side,
    ) -> Result<Version> {
        self.enter()?;
        check_key(key)?;
        check_value(value.len())?;
        let engine = ordered(&*self.engine)?;
        let version = engine.add(key, value, meta, side, self.wait)?;
        self.acknowledge()?;
        Ok(version)
    }

    /// Whether a key may have several values.
    pub fn has_duplicates(&self) -> bool {
        self.engine.as_ordered().is_some()
    }

    /// Lends the duplicate number `index` of a key to `visit`; answers what that made of it.
    pub fn read_duplicate<T>(
        &self,
        key: &[u8],
        index: usize,
        visit: impl FnOnce(Entry<'_>) -> T,
    ) -> Result<Option<T>> {
        self.enter()?;
        check_key(key)?;
        let engine = ordered(&*self.engine)?;
        let seek = match index.checked_sub(1) {
            None => Seek::AtOrAfter(key),
            Some(previous) => Seek::After(key, previous),
        };
        let mut visit = Some(visit);
        let mut result = None;
        engine.seek(seek, self.wait, &mut |entry, found| {
            if found == index && engine.order().compare(entry.key, key).is_eq() {
                result = visit.take().map(|visit| self.call(|| visit(entry)));
            }
        })?;
        Ok(result)
    }

    /// All values under a key.
    pub fn get_all(&self, key: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.enter()?;
        check_key(key)?;
        let mut values = Vec::new();
        ordered(&*self.engine)?
            .read_all(key, self.wait, &mut |entry| values.push(entry.value.to_vec()))?;
        Ok(values)
    }

    /// Number of values under a key.
    pub fn count(&self, key: &[u8]) -> Result<usize> {
        self.enter()?;
        check_key(key)?;
        ordered(&*self.engine)?.read_all(key, self.wait, &mut |_| ())
    }

    /// Removes all values under a key; answers how many there were.
    pub fn remove_all(&self, key: &[u8]) -> Result<usize> {
        self.enter()?;
        check_key(key)?;
        let removed = ordered(&*self.engine)?.remove_all(key, self.wait)?;
        self.acknowledge()?;
        Ok(removed)
    }

    /// A cursor, which stands nowhere yet.
    pub fn cursor(&self) -> Result<Cursor> {
        self.enter()?;
        Cursor::new(self.clone())
    }

    /// Visits the keys between two bounds, in order, each once and with its first value, at most
    /// `max` of them, until `visit` breaks. A bound that is `None` is open. Fails with
    /// [`Error::NotSupported`] if the keys are in no order.
    pub fn range(
        &self,
        begin: Option<(&[u8], Inclusion)>,
        end: Option<(&[u8], Inclusion)>,
        max: usize,
        mut visit: impl FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.enter()?;
        let order = self
            .order()
            .ok_or_else(|| Error::NotSupported("a range, where keys are in no order".into()))?;
        let mut position = begin.map_or(Position::Start, |(key, _)| self.position_of(key));
        let mut previous: Option<Vec<u8>> = None;
        let mut left = max;
        let mut flow = if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        while flow.is_continue() {
            let next = self.engine.scan(&position, &mut |entry| {
                if flow.is_break() {
                    return;
                }
                let is_out = |bound: Option<(&[u8], Inclusion)>, side: Ordering| {
                    bound.is_some_and(|(key, inclusion)| {
                        let ordering = order.compare(entry.key, key);
                        ordering == side || ordering.is_eq() && inclusion == Inclusion::Excluded
                    })
                };
                if is_out(end, Ordering::Greater) {
                    flow = ControlFlow::Break(());
                    return;
                }
                let is_again =
                    previous.as_ref().is_some_and(|p| order.compare(p, entry.key).is_eq());
                if is_out(begin, Ordering::Less) || is_again {
                    return;
                }
                let previous = previous.get_or_insert_default();
                previous.clear();
                previous.extend_from_slice(entry.key);
                flow = self.call(|| visit(entry));
                left -= 1;
                if left == 0 {
                    flow = ControlFlow::Break(());
                }
            })?;
            match next {
                Some(next) => position = next,
                None => break,
            }
        }
        Ok(())
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// As of the engine; that of the database beneath, of a transaction.
    pub(crate) fn identity(&self) -> usize {
        self.identity
    }

    /// Fails if this thread is in a callback of this database.
    #[inline]
    pub(crate) fn enter(&self) -> Result<()> {
        reentry::check(self.identity)
    }

    /// Runs a callback of the caller's.
    #[inline]
    fn call<T>(&self, callback: impl FnOnce() -> T) -> T {
        reentry::lending(self.identity, callback)
    }

    pub(crate) fn wait(&self) -> Wait {
        self.wait
    }

    /// Number of records. Expired ones count until they are reclaimed.
    pub fn len(&self) -> u64 {
        self.engine.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.engine.is_empty()
    }

    /// Bytes on disk, or in memory for the on-memory kinds. In a callback of an on-memory hash its
    /// tables are not counted.
    pub fn size_bytes(&self) -> u64 {
        self.engine.size_bytes()
    }

    /// Path of the database; `*` and `+` for the on-memory kinds.
    pub fn path(&self) -> PathBuf {
        self.engine.path()
    }

    /// Makes everything written so far durable.
    pub fn sync(&self) -> Result<()> {
        self.enter()?;
        self.engine.sync()
    }

    /// Reclaims all dead space now.
    pub fn optimize(&self) -> Result<()> {
        self.enter()?;
        self.engine.optimize()
    }

    /// Reclaims all dead space now, after what an open database can change of itself was set as
    /// the tuning (`width=100#limsiz=1g`) says; see [`crate::name`]. Fixed-length: what is not
    /// given stays. On-memory: a cap that is not given is lifted. Hash, fixed-length and tree: a
    /// cap on bytes that is given is set and then kept to, instead of reclaiming everything now.
    /// Tuning that there is not is ignored, as Tokyo Cabinet has it.
    pub fn retune(&self, tuning: &str) -> Result<()> {
        self.enter()?;
        let path = self.path();
        let Some(kind) = Kind::of_path(&path) else { return self.optimize() };
        self.engine.retune(&options_of(kind, tuning))
    }

    /// Removes all records.
    pub fn clear(&self) -> Result<()> {
        self.enter()?;
        self.engine.clear()?;
        self.acknowledge()
    }

    /// Writes a consistent copy to `path`, which must not exist, while writes go on.
    pub fn copy_to(&self, path: &Path) -> Result<()> {
        self.enter()?;
        self.engine.copy_to(path)
    }

    /// As [`copy_to`](Self::copy_to), at a moment that `cut` chooses.
    pub fn copy_at(&self, path: &Path, cut: &mut Cut<'_>) -> Result<()> {
        self.enter()?;
        self.engine.copy_at(path, &mut |take| self.call(|| cut(take)))
    }

    /// Verifies every checksum of the database's files while it is in use, as [`crate::check`] does
    /// of one that nobody has open, and reports each place that is damaged. It holds up no other
    /// use.
    ///
    /// `go_on` is called every 256 KiB, and every 0.1 s, with what was verified so far. It returns
    /// the most bytes to read per second from then on, or `None` to stop. A segment in which damage
    /// was found is not given back any more. What is appended meanwhile may be left out; a database
    /// in memory has no files.
    pub fn verify<'r>(
        &self,
        go_on: &'r mut GoOn<'r>,
        report: &'r mut dyn FnMut(Damage),
    ) -> Result<Verified> {
        self.enter()?;
        self.engine.verify(go_on, report)
    }

    /// The durability it was opened with.
    pub fn durability(&self) -> Durability {
        self.engine.durability()
    }

    /// Whether there is a cap over which records go that were not used lately.
    pub fn evicts(&self) -> bool {
        self.engine.evicts()
    }

    /// End of the log: every operation that has returned lies before it.
    pub fn appended(&self) -> LogPosition {
        self.engine.appended()
    }

    /// Everything before this position is durable.
    pub fn durable(&self) -> LogPosition {
        self.engine.durable()
    }

    /// Waits until `position` is durable, or fails as the sync did.
    pub fn wait_durable(&self, position: LogPosition) -> Result<()> {
        self.enter()?;
        self.engine.wait_durable(position)
    }

    /// Calls `listener` whenever the durable position moves, and when syncing has failed for good.
    pub fn on_durable(&self, listener: DurableListener) -> Result<()> {
        self.enter()?;
        let identity = self.identity;
        self.engine.on_durable(Arc::new(move |position| {
            reentry::lending(identity, || listener(position));
        }));
        Ok(())
    }

    /// The table, if it is one. Its methods return before what they write is durable, see
    /// [`Table::acknowledge`].
    pub fn table(&self) -> Option<&Table> {
        self.engine.as_table()
    }

    /// As [`Table::read`], but a handle of [`Database::nonblocking`] does not wait for it.
    pub fn read_row<T>(
        &self,
        primary: &[u8],
        visit: impl FnOnce(RowView<'_>) -> T,
    ) -> Result<Option<T>> {
        let missing = || Error::NotSupported("rows, in a database that is not a table".into());
        self.enter()?;
        let table = self.engine.as_table().ok_or_else(missing)?;
        table.read_waiting(primary, self.wait, |row| self.call(|| visit(row)))
    }

    /// Places of its files that did not hold what had been promised when it was opened, or that an
    /// earlier opening has kept aside. Where there are any, records may be missing, and others may
    /// have older values; [`crate::check`] finds more, in what opening does not read.
    pub fn damages(&self) -> Vec<crate::Damage> {
        self.engine.damages()
    }

    /// Names and figures worth showing in `stat`; none in a callback of this database.
    pub fn figures(&self) -> Vec<(&'static str, String)> {
        if reentry::is_within(self.identity) {
            return Vec::new();
        }
        self.engine.figures()
    }

    pub(crate) fn acknowledge(&self) -> Result<()> {
        if self.deferred || self.engine.durability() != Durability::Always {
            return Ok(());
        }
        self.engine.wait_durable(self.engine.appended())
    }
}

/// The last `kept` bytes of `first` followed by `second`.
fn concat_tail(first: &[u8], second: &[u8], kept: usize) -> Vec<u8> {
    let from_second = second.len().min(kept);
    let from_first = kept - from_second;
    let mut value = Vec::with_capacity(kept);
    value.extend_from_slice(&first[first.len() - from_first..]);
    value.extend_from_slice(&second[second.len() - from_second..]);
    value
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::KeyTooLong { bytes: key.len(), max: KEY_BYTES_MAX });
    }
    Ok(())
}

pub(crate) fn check_value(bytes: usize) -> Result<()> {
    if bytes > VALUE_BYTES_MAX {
        return Err(Error::ValueTooLong { bytes, max: VALUE_BYTES_MAX });
    }
    Ok(())
}
