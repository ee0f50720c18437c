//! Store: the one place where records change. It consists of the database and its update log, if
//! any.
//!
//! It has each method of [`Database`] that changes something, under the same name; methods that
//! only read are those of [`View`]. With a log, each change is made and logged under the lock of
//! its key, as the equivalent request of the binary protocol. Without a log the store adds nothing.
//!
//! As in Tokyo Tyrant, an operation is logged with its success if it only found a record, no record
//! or no number. Any other failure has changed nothing here, and is not logged.
//!
//! A change that the protocol cannot express is logged as the resulting record. Flags and expiry
//! follow the value in a third argument of `misc put`, which Tokyo Tyrant ignores.
//!
//! In a database with a cap, every change is logged as the resulting record. Evictions are not
//! logged: replicas have caps of their own. An addition to a record that will expire is logged as
//! the resulting record too. A later replay would find no record, and would store the addition for
//! ever.

pub(crate) mod gate;
mod log_entries;
pub(crate) mod position_file;
pub(crate) mod record_operations;
pub(crate) mod reserved;
pub(crate) mod resolve;
#[cfg(test)]
mod tests;
mod transaction;
pub(crate) mod view;

pub(crate) use log_entries::{meta_in, put_request, strings};
pub(crate) use transaction::StoreTransaction;

use crate::store::gate::Gate;
use crate::store::record_operations::{record_operations, removal};
use crate::update_log::{
    ChangeGuard, KeyLockGuard, Mark, Scope, Source, UpdateLog, is_relative, now_us,
};
use cabinet::table::{IndexChange, Row, SearchAnswer, SearchRequest, Table};
use cabinet::{Change, Database, Error, Meta, RecordRef, Result, Side, Swap, Version};
use log_entries::{added_to, appended, with_key};
use std::borrow::Cow;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use view::View;
use wire::binary::{Function, Request, double_to_parts};
use wire::update_log::Operation;

/// Effect of a new row on the row that is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowMode {
    /// The new row replaces it.
    Replace,
    /// The new row is not stored.
    Keep,
    /// The columns of the new row are added to it.
    Merge,
}

/// A database whose changes are logged. The methods that only read are those of its [`View`].
#[derive(Clone)]
pub(crate) struct Store {
    view: View,
    /// Whether the thread may wait for the disk.
    may_wait: bool,
    log: Option<Arc<UpdateLog>>,
    source: Source,
    /// Write gate, for the handles of clients.
    gate: Option<Arc<Gate>>,
}

impl Deref for Store {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl Store {
    /// Returns a store that logs its changes as those of the server `id`.
    pub(crate) fn new(database: Database, log: Option<Arc<UpdateLog>>, id: u16) -> Self {
        let source = Source { origin: id, master: 0, root: None };
        Self { view: View { database }, may_wait: true, log, source, gate: None }
    }

    /// Returns the store for clients, whose changes have to pass the gate.
    pub(crate) fn gated(&self, gate: &Arc<Gate>) -> Self {
        Self { gate: Some(Arc::clone(gate)), ..self.clone() }
    }

    /// Returns the store for changes that bypass the gate.
    pub(crate) fn ungated(&self) -> Self {
        Self { gate: None, ..self.clone() }
    }

    /// Fails if the gate is closed.
    #[inline]
    fn pass(&self) -> Result<()> {
        // A match builds the large result in place, where `map_or` copies it.
        match &self.gate {
            Some(gate) => gate.pass(),
            None => Ok(()),
        }
    }

    /// Returns the store for threads that must not wait for the disk.
    pub(crate) fn nonblocking(&self) -> Self {
        Self {
            view: View { database: self.view.database.nonblocking() },
            may_wait: false,
            ..self.clone()
        }
    }

    /// Returns the store without the log.
    pub(crate) fn unlogged(&self) -> Self {
        Self { log: None, ..self.clone() }
    }

    /// Sets the source with which further changes are logged.
    pub(crate) fn set_source(&mut self, source: Source) {
        self.source = source;
    }

    fn begin<'s>(&'s self, log: &'s UpdateLog, scope: Scope<'_>) -> Result<ChangeGuard<'s>> {
        log.begin(&self.view.database, self.source, scope, self.may_wait)
    }

    fn append(&self, guard: &ChangeGuard<'_>, request: Request<'_>, succeeded: bool) {
        guard.append(self.source, &Operation { request, succeeded });
    }

    /// Begins a change of the record under a key. Returns also the key to change and to log. In a
    /// fixed-length database, that is the id that `next`, `prev`, `min` or `max` means now, so that
    /// it means the same record wherever the operation is replayed.
    fn begin_record<'s, 'k>(
        &'s self,
        log: &'s UpdateLog,
        key: &'k [u8],
    ) -> Result<(ChangeGuard<'s>, Cow<'k, [u8]>)> {
        if self.view.database.as_numbered().is_none() || !is_relative(key) {
            let guard = self.begin(log, Scope::Key(key))?;
            self.expire(&guard, key)?;
            return Ok((guard, Cow::Borrowed(key)));
        }
        loop {
            let id = self.resolve(key)?;
            let resolved = id.map_or(Cow::Borrowed(key), |id| id.to_string().into_bytes().into());
            let guard = self.begin(log, Scope::Key(&resolved))?;
            // Another change may have taken the id before this one got its lock.
            if self.resolve(key)? == id {
                self.expire(&guard, &resolved)?;
                return Ok((guard, resolved));
            }
        }
    }

    /// Removes an expired record before its key is changed, and logs the removal: a replica may
    /// ignore expiry, or have another clock.
    fn expire(&self, guard: &ChangeGuard<'_>, key: &[u8]) -> Result<()> {
        if self.view.database.expired_keys().is_some() && self.view.database.remove_expired(key)? {
            // The removal is logged as an operation that also succeeds on a replica without the
            // record.
            let database = View { database: self.view.database.blocking() };
            record_operations(&database, key, &mut |request| self.append(guard, request, true))?;
        }
        Ok(())
    }

    /// Removes an expired record without logging. Returns whether it was present.
    pub(crate) fn remove_expired(&self, key: &[u8]) -> Result<bool> {
        self.view.database.remove_expired(key)
    }

    /// Searches for expired records, in engines that otherwise search only during writes.
    pub(crate) fn find_expired(&self) {
        self.view.database.find_expired();
    }

    /// Makes the table generate only identifiers above `last_uid`.
    pub(crate) fn set_last_uid(&self, last_uid: u64) -> Result<()> {
        self.rows().map_or(Ok(()), |table| table.set_uid_seed(last_uid))
    }

    /// Locks the key, or all keys, until the guard is dropped.
    pub(crate) fn lock_keys<'l>(&self, log: &'l UpdateLog, scope: Scope<'_>) -> KeyLockGuard<'l> {
        log.lock_keys(&self.view.database, scope)
    }

    /// Removes the expired records that the database has reported, and logs the removals. Stops
    /// once `is_over` returns true, when a master decides what has expired.
    pub(crate) fn collect_expired(&self, is_over: impl Fn() -> bool) -> Result<()> {
        let (Some(log), Some(expired)) = (&self.log, self.view.database.expired_keys()) else {
            return Ok(());
        };
        for key in expired.take() {
            let guard = self.begin(log, Scope::Key(&key))?;
            // A master may have been set while this thread waited for the lock.
            if is_over() {
                break;
            }
            self.expire(&guard, &key)?;
        }
        Ok(())
    }

    /// Returns the id that a keyword of a fixed-length database means now. It is `None` if there is
    /// none, so that the change fails, or finds no record.
    fn resolve(&self, key: &[u8]) -> Result<Option<u64>> {
        let Some(numbered) = self.view.database.as_numbered() else { return Ok(None) };
        let id = match key {
            b"next" => Some(numbered.max().unwrap_or(0).saturating_add(1)),
            b"prev" => Some(numbered.min().unwrap_or(0).saturating_sub(1)),
            b"min" | b"max" => {
                self.view.database.read(key, |entry| numbered.id(entry.key))?.flatten()
            }
            _ => None,
        };
        Ok(id.filter(|id| (1..=numbered.id_max()).contains(id)))
    }

    /// Changes the record under a key. Logs `request` with its success, as `outcome` derives it.
    fn change_record<T>(
        &self,
        key: &[u8],
        request: Request<'_>,
        outcome: impl FnOnce(&T) -> bool,
        change: impl FnOnce(&Database, &[u8]) -> Result<T>,
    ) -> Result<T> {
        self.pass()?;
        let Some(log) = &self.log else { return change(&self.view.database, key) };
        let (guard, key) = self.begin_record(log, key)?;
        let request = with_key(request, &key);
        let mut logs_record = self.view.database.evicts();
        if let Some((added, width)) = added_to(&request) {
            let (bytes, expires) = self.present(&key)?;
            log.check_value((bytes + added).min(width))?;
            logs_record |= expires;
        }
        let result = change(&self.view.database, &key);
        match &result {
            Ok(_) if logs_record => self.log_result(&guard, &key),
            Ok(done) => self.append(&guard, request, outcome(done)),
            Err(Error::NotANumber { .. }) if !logs_record => self.append(&guard, request, false),
            Err(_) => {}
        }
        result
    }

    /// Makes a change that is not of one record. Logs `request` if it succeeds.
    fn change(
        &self,
        scope: Scope<'_>,
        request: Request<'_>,
        change: impl FnOnce(&Database) -> Result<()>,
    ) -> Result<()> {
        // A change of no record needs no permission.
        if !matches!(scope, Scope::Nothing) {
            self.pass()?;
        }
        let Some(log) = &self.log else { return change(&self.view.database) };
        let guard = self.begin(log, scope)?;
        change(&self.view.database)?;
        self.append(&guard, request, true);
        Ok(())
    }

    /// Returns the length of the present value in bytes, and whether it will expire. Both are 0 for
    /// rows: these do not expire, and their columns are logged one by one.
    fn present(&self, key: &[u8]) -> Result<(usize, bool)> {
        if self.view.database.table().is_some() {
            return Ok((0, false));
        }
        let look = |entry: RecordRef<'_>| (entry.value.len(), entry.meta.expires_at_ms != 0);
        match self.view.database.read(key, look) {
            Ok(found) => Ok(found.unwrap_or_default()),
            // The change itself fails.
            Err(Error::NoId { .. }) => Ok((0, false)),
            Err(error) => Err(error),
        }
    }

    /// Logs the resulting record. A replica may have a record that was evicted or has expired here,
    /// or lack one, so that the same operation would have another result there.
    fn log_result(&self, guard: &ChangeGuard<'_>, key: &[u8]) {
        // The change is made, so a thread that may wait cannot execute it again.
        if self.logs_whole() {
            return self.log_whole(guard, key);
        }
        let database = self.view.database.blocking();
        let logged = database.read(key, |entry| self.log_put(guard, key, entry.value, entry.meta));
        // A record that cannot be read is removed from the replicas, rather than left outdated
        // there.
        if !matches!(logged, Ok(Some(())))
            && let Err(error) = removal(key, &mut |request| self.append(guard, request, true))
        {
            tracing::error!("update log: cannot log a removal: {error}");
        }
    }

    /// Calls `execute` to replay an operation that was logged elsewhere. Logs its request with its
    /// success here.
    pub(crate) fn replay(
        &self,
        request: &Request<'_>,
        scope: Scope<'_>,
        execute: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        let Some(log) = &self.log else { return execute() };
        let guard = self.begin(log, scope)?;
        let succeeded = execute()?;
        self.append(&guard, request.clone(), succeeded);
        Ok(succeeded)
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<Version> {
        self.put_with(key, value, Meta::NONE)
    }

    pub(crate) fn put_with(&self, key: &[u8], value: &[u8], meta: Meta) -> Result<Version> {
        self.pass()?;
        let Some(log) = &self.log else { return self.view.database.put_with(key, value, meta) };
        let key = self.row_key(key)?;
        log.check_value(value.len())?;
        let (guard, key) = self.begin_record(log, &key)?;
        let version = self.view.database.put_with(&key, value, meta)?;
        self.log_put(&guard, &key, value, meta);
        Ok(version)
    }

    pub(crate) fn put_keep(&self, key: &[u8], value: &[u8], meta: Meta) -> Result<bool> {
        self.pass()?;
        let Some(log) = &self.log else { return self.view.database.put_keep(key, value, meta) };
        let key = self.row_key(key)?;
        log.check_value(value.len())?;
        let (guard, key) = self.begin_record(log, &key)?;
        let (_, expires) = self.present(&key)?;
        let logs_record = self.view.database.evicts() || expires;
        let stored = self.view.database.put_keep(&key, value, meta)?;
        if stored && (meta != Meta::NONE || logs_record) {
            self.log_put(&guard, &key, value, meta);
        } else if !logs_record {
            self.append(&guard, Request::PutKeep { key: &key, value }, stored);
        }
        Ok(stored)
    }

    pub(crate) fn replace(&self, key: &[u8], value: &[u8], meta: Meta) -> Result<bool> {
        self.pass()?;
        let Some(log) = &self.log else { return self.view.database.replace(key, value, meta) };
        log.check_value(value.len())?;
        let (guard, key) = self.begin_record(log, key)?;
        let key = &*key;
        let stored = self.view.database.replace(key, value, meta)?;
        if stored {
            self.log_put(&guard, key, value, meta);
        }
        Ok(stored)
    }

    pub(crate) fn put_cat(&self, key: &[u8], suffix: &[u8]) -> Result<()> {
        let key = self.row_key(key)?;
        let request = Request::PutCat { key: &key, value: suffix };
        self.change_record(&key, request, |()| true, |database, key| database.put_cat(key, suffix))
    }

    pub(crate) fn put_shift(&self, key: &[u8], suffix: &[u8], width: usize) -> Result<()> {
        let in_request = u32::try_from(width).unwrap_or(u32::MAX).min(i32::MAX as u32);
        let request = Request::PutShift { key, value: suffix, width: in_request };
        let shift = |database: &Database, key: &[u8]| database.put_shift(key, suffix, width);
        self.change_record(key, request, |()| true, shift)
    }

    pub(crate) fn extend(&self, key: &[u8], part: &[u8], front: bool) -> Result<bool> {
        self.pass()?;
        let Some(log) = &self.log else { return self.view.database.extend(key, part, front) };
        if front {
            // The protocol has no operation that prepends.
            return self.modify(key, |entry| match entry {
                None => (Change::Keep, false),
                Some(entry) => (Change::Put([part, entry.value].concat(), entry.meta), true),
            });
        }
        let (guard, key) = self.begin_record(log, key)?;
        let key = &*key;
        let (bytes, expires) = self.present(key)?;
        log.check_value(bytes + part.len())?;
        let logs_record = self.view.database.evicts() || expires || !self.has_plain_values();
        let extended = self.view.database.extend(key, part, front)?;
        if extended && logs_record {
            self.log_result(&guard, key);
        } else if extended {
            self.append(&guard, Request::PutCat { key, value: part }, true);
        }
        Ok(extended)
    }

    pub(crate) fn remove(&self, key: &[u8]) -> Result<bool> {
        let request = Request::Out { key };
        self.change_record(key, request, |removed| *removed, Database::remove)
    }

    pub(crate) fn add_int(&self, key: &[u8], addend: i32) -> Result<i32> {
        let key = self.row_key(key)?;
        let request = Request::AddInt { key: &key, addend };
        // Tokyo Tyrant reports this sum as a failure, though it is stored.
        let outcome = |sum: &i32| *sum != i32::MIN;
        self.change_record(&key, request, outcome, |database, key| database.add_int(key, addend))
    }

    pub(crate) fn add_double(&self, key: &[u8], addend: f64) -> Result<f64> {
        let key = self.row_key(key)?;
        let (integral, fractional) = double_to_parts(addend);
        let request = Request::AddDouble { key: &key, integral, fractional };
        let add = |database: &Database, key: &[u8]| database.add_double(key, addend);
        self.change_record(&key, request, |sum: &f64| !sum.is_nan(), add)
    }

    pub(crate) fn compare_and_swap(
        &self,
        key: &[u8],
        version: Version,
        value: &[u8],
        meta: Meta,
    ) -> Result<Swap> {
        self.pass()?;
        let Some(log) = &self.log else {
            return self.view.database.compare_and_swap(key, version, value, meta);
        };
        log.check_value(value.len())?;
        let (guard, key) = self.begin_record(log, key)?;
        let key = &*key;
        let swap = self.view.database.compare_and_swap(key, version, value, meta)?;
        if matches!(swap, Swap::Stored(_)) {
            self.log_put(&guard, key, value, meta);
        }
        Ok(swap)
    }

    pub(crate) fn modify<T>(
        &self,
        key: &[u8],
        decide: impl FnMut(Option<RecordRef<'_>>) -> (Change, T),
    ) -> Result<T> {
        self.modify_versioned(key, decide).map(|(answer, _)| answer)
    }

    pub(crate) fn modify_versioned<T>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<RecordRef<'_>>) -> (Change, T),
    ) -> Result<(T, Version)> {
        self.pass()?;
        let Some(log) = &self.log else { return self.view.database.modify_versioned(key, decide) };
        let (guard, key) = self.begin_record(log, key)?;
        let key = &*key;
        let mut changed = Change::Keep;
        let mut appended_from = None;
        let mut checked = Ok(());
        let answer = self.view.database.modify_versioned(key, |entry| {
            let (mut change, answer) = decide(entry);
            if let Change::Put(value, _) = &change {
                checked = log.check_value(value.len());
                if checked.is_err() {
                    change = Change::Keep;
                }
            }
            appended_from = entry
                .filter(|_| !self.view.database.evicts() && self.has_plain_values())
                .and_then(|entry| appended(&entry, &change));
            changed = match &change {
                Change::Remove if entry.is_none() => Change::Keep,
                change => change.clone(),
            };
            (change, answer)
        })?;
        checked?;
        match (changed, appended_from) {
            (Change::Keep, _) => {}
            (Change::Put(value, _), Some(from)) => {
                self.append(&guard, Request::PutCat { key, value: &value[from..] }, true);
            }
            (Change::Put(value, meta), None) => self.log_put(&guard, key, &value, meta),
            (Change::Remove, _) if self.logs_whole() => self.log_whole(&guard, key),
            (Change::Remove, _) => self.append(&guard, Request::Out { key }, true),
        }
        Ok(answer)
    }

    pub(crate) fn put_duplicate(&self, key: &[u8], value: &[u8], side: Side) -> Result<Version> {
        let function = match side {
            Side::After => Function::PutDuplicate,
            Side::Before => Function::PutDuplicateBack,
        };
        let put = || self.view.database.put_duplicate(key, value, side);
        self.function(Scope::Key(key), function, &[key, value], |_| true, put)
    }

    pub(crate) fn remove_all(&self, key: &[u8]) -> Result<usize> {
        let remove = || self.view.database.remove_all(key);
        self.function(Scope::Key(key), Function::OutList, &[key], |_| true, remove)
    }

    pub(crate) fn clear(&self) -> Result<()> {
        self.change(Scope::All, Request::Vanish, Database::clear)
    }

    /// Logs that all records are removed, if there is none while no change is in progress. Returns
    /// whether there is none.
    pub(crate) fn clear_empty(&self) -> Result<bool> {
        let Some(log) = &self.log else { return Ok(self.is_empty()) };
        let guard = self.begin(log, Scope::All)?;
        let is_empty = self.is_empty();
        if is_empty {
            self.append(&guard, Request::Vanish, true);
        }
        Ok(is_empty)
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.change(Scope::Nothing, Request::Sync, Database::sync)?;
        if let Some(log) = &self.log
            && !log.sync()
        {
            return Err(Error::Poisoned("update log: cannot be made durable".into()));
        }
        Ok(())
    }

    /// Copies the database to `path` as of some moment of the call. Returns that moment in
    /// microseconds since 1970. With a log, the copy contains exactly the changes logged by then,
    /// and a file with the last time stamp, see [`crate::POSITION_FILE`].
    pub(crate) fn copy_to(&self, path: &Path) -> Result<u64> {
        let Some(log) = &self.log else {
            self.view.database.copy_to(path)?;
            return Ok(now_us());
        };
        let mut mark = Mark::default();
        self.view.database.copy_at(path, &mut |cut| {
            let Some(_guard) = log.block_changes() else { return Ok(false) };
            cut()?;
            mark = log.mark();
            Ok(true)
        })?;
        if path.is_dir() {
            position_file::write_position(path, mark.last_us)?;
        }
        Ok(mark.now_us)
    }

    pub(crate) fn retune(&self, tuning: &str) -> Result<()> {
        let request = Request::Optimize { parameters: tuning.as_bytes() };
        // A lower cap removes records.
        self.pass()?;
        self.change(Scope::Nothing, request, |database| database.retune(tuning))
    }

    /// Returns an identifier that the table has not generated before.
    pub(crate) fn generate_uid(&self) -> Result<u64> {
        let table = self.rows()?;
        self.function(Scope::Nothing, Function::GenerateUid, &[], |_| true, || table.generate_uid())
    }

    /// Stores `row`, which has these columns, under the next identifier if the key is empty.
    /// Returns whether it was stored.
    pub(crate) fn put_row(
        &self,
        key: &[u8],
        columns: &[&[u8]],
        row: &Row,
        mode: RowMode,
    ) -> Result<bool> {
        let table = self.rows()?;
        let key = match key {
            b"" => self.generate_uid()?.to_string().into_bytes(),
            key => key.to_vec(),
        };
        let arguments = [&[&key[..]], columns].concat();
        let function = match mode {
            RowMode::Replace => Function::Put,
            RowMode::Keep => Function::PutKeep,
            RowMode::Merge => Function::PutCat,
        };
        let stored = |stored: &bool| *stored;
        self.function(Scope::Key(&key), function, &arguments, stored, || match mode {
            RowMode::Replace => table.put(&key, row).map(|()| true),
            RowMode::Keep => table.put_keep(&key, row),
            RowMode::Merge => table.put_cat(&key, row).map(|()| true),
        })
    }

    /// Sets or removes the index of a column. `kind` is the name of the change.
    pub(crate) fn set_index(&self, column: &[u8], kind: &[u8], change: IndexChange) -> Result<()> {
        let table = self.rows()?;
        let set = || table.set_index(column, change);
        self.function(Scope::Nothing, Function::SetIndex, &[column, kind], |()| true, set)
    }

    /// Returns the results of a search, or removes them if the request says so. Removed rows are
    /// logged one by one, since a replica may find others.
    pub(crate) fn search(&self, request: &SearchRequest) -> Result<SearchAnswer> {
        let table = self.rows()?;
        if !request.out {
            return table.answer(request);
        }
        self.pass()?;
        let Some(log) = &self.log else { return table.answer(request) };
        // The search may find any row, so no other change may be made meanwhile.
        let guard = self.begin(log, Scope::All)?;
        table.answer_removing(request, |key| self.append(&guard, Request::Out { key }, true))
    }

    /// Returns the table.
    fn rows(&self) -> Result<&Table> {
        let missing = || Error::Unsupported {
            operation: "rows",
            kind: "a database that is no table",
            advice: "serve a table (.tct)",
        };
        self.view.database.table().ok_or_else(missing)
    }

    /// Makes a change that is logged as a call of `misc`, with its success as `outcome` derives it.
    fn function<T>(
        &self,
        scope: Scope<'_>,
        function: Function<'_>,
        arguments: &[&[u8]],
        outcome: impl FnOnce(&T) -> bool,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.pass()?;
        let Some(log) = &self.log else { return call() };
        let strings = strings(arguments)?;
        let guard = self.begin(log, scope)?;
        if let Scope::Key(key) = scope {
            self.expire(&guard, key)?;
        }
        let done = call()?;
        if let Scope::Key(key) = scope
            && self.logs_whole()
        {
            self.log_whole(&guard, key);
            return Ok(done);
        }
        let arguments = strings.strings();
        self.append(&guard, Request::Misc { function, options: 0, arguments }, outcome(&done));
        Ok(done)
    }

    /// Logs the operations that restore a record.
    pub(crate) fn log_record(&self, key: &[u8]) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let guard = self.begin(log, Scope::Key(key))?;
        record_operations(&self.view, key, &mut |request| self.append(&guard, request, true))
    }

    /// Returns the key to store a row under. In a table an empty key becomes the next identifier,
    /// so that the log contains it.
    fn row_key<'k>(&self, key: &'k [u8]) -> Result<Cow<'k, [u8]>> {
        if !key.is_empty() || self.log.is_none() {
            return Ok(Cow::Borrowed(key));
        }
        match self.view.database.table() {
            None => Ok(Cow::Borrowed(key)),
            Some(_) if !self.may_wait => Err(Error::WouldBlock),
            Some(_) => Ok(self.generate_uid()?.to_string().into_bytes().into()),
        }
    }

    /// Returns whether `putcat` appends to a value. In a table it adds columns to a row.
    fn has_plain_values(&self) -> bool {
        self.view.database.table().is_none()
    }

    /// Returns whether a change of a duplicate or of columns is logged as all duplicates of the
    /// key, or as the whole row. A replica may have parts that were evicted here, so that the same
    /// change would have another result there.
    fn logs_whole(&self) -> bool {
        let has_parts = self.view.database.has_duplicates() || self.view.database.table().is_some();
        self.view.database.evicts() && has_parts
    }

    /// Logs all duplicates of a key, or its row.
    fn log_whole(&self, guard: &ChangeGuard<'_>, key: &[u8]) {
        // The change is made, so a thread that may wait cannot execute it again.
        let database = View { database: self.view.database.blocking() };
        if let Err(error) =
            record_operations(&database, key, &mut |request| self.append(guard, request, true))
        {
            // An error leaves the key without a record in the log, rather than with an outdated
            // one.
            tracing::error!(
                "update log: cannot read a changed record, so replicas will lack it: {error}"
            );
        }
    }

    fn log_put(&self, guard: &ChangeGuard<'_>, key: &[u8], value: &[u8], meta: Meta) {
        if self.logs_whole() {
            return self.log_whole(guard, key);
        }
        // A row has neither flags nor an expiry; the argument that carries them would be a column.
        let meta = if self.has_plain_values() { meta } else { Meta::NONE };
        put_request(key, value, meta, |request| self.append(guard, request, true));
    }
}
