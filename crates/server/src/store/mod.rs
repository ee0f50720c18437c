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

pub(crate) mod events;
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
use transaction::Commits;
pub(crate) use transaction::StoreTransaction;

use crate::store::events::{Event, Events, PendingEvents};
use crate::store::gate::Gate;
use crate::store::record_operations::record_operations;
use crate::update_log::{
    ChangeGuard, KeyLockGuard, Mark, Scope, Source, UpdateLog, is_relative, now_us,
};
use cabinet::table::{IndexChange, Row, SearchAnswer, SearchRequest, Table};
use cabinet::{Change, Database, Error, Meta, RecordRef, Result, Side, Version};
use log_entries::{LogEntry, appended, is_exact, value_bytes, with_key};
use position_file::CopyPosition;
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
    /// In the store of a transaction, whether records are rows.
    rows_within: Option<bool>,
    events: Arc<Events>,
    /// In the store of a transaction, its events.
    pending_events: Option<Arc<PendingEvents>>,
    commits: Arc<Commits>,
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
        Self {
            view: View { database },
            may_wait: true,
            log,
            source,
            gate: None,
            rows_within: None,
            events: Arc::default(),
            pending_events: None,
            commits: Arc::default(),
        }
    }

    /// Returns the store for clients, whose changes have to pass the gate.
    pub(crate) fn gated(&self, gate: &Arc<Gate>) -> Self {
        Self { gate: Some(Arc::clone(gate)), ..self.clone() }
    }

    /// Returns whether records are rows.
    pub(crate) fn has_rows(&self) -> bool {
        self.rows_within.unwrap_or_else(|| self.view.has_rows())
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
            Some(gate) => gate.pass_change(self.may_wait),
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
        if self.view.database.expired_keys().is_some() && self.remove_expired(key)? {
            // The removal is logged as an operation that also succeeds on a replica without the
            // record.
            let database = View { database: self.view.database.blocking() };
            record_operations(&database, key, &mut |request| self.append(guard, request, true))?;
        }
        Ok(())
    }

    /// Removes an expired record without logging. Returns whether it was present.
    pub(crate) fn remove_expired(&self, key: &[u8]) -> Result<bool> {
        let is_removed = self.view.database.remove_expired(key)?;
        if is_removed {
            self.raise(Event::Expired, key)?;
        }
        Ok(is_removed)
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
        let Some(expired) = self.view.database.expired_keys() else { return Ok(()) };
        for key in expired.take() {
            let Some(log) = &self.log else {
                self.remove_expired(&key)?;
                continue;
            };
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

    /// Removes a record, also a damaged one. Returns whether there was one.
    pub(crate) fn remove(&self, key: &[u8]) -> Result<bool> {
        self.pass()?;
        let Some(log) = &self.log else { return self.view.database.remove(key) };
        let (guard, key) = self.begin_record(log, key)?;
        let removed = self.view.database.remove(&key)?;
        // A replica may have a record that was evicted here.
        if self.view.database.evicts() {
            self.log_whole(&guard, &key);
        } else {
            self.append(&guard, Request::Out { key: &key }, removed);
        }
        Ok(removed)
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
        self.change(key, || None, |_| None, |entry| Ok(decide(entry)))
    }

    /// Changes the record under a key as `decide` says, which gets the record as it is. Returns its
    /// answer, and the version of the record that was stored, 0 if none was. Nothing is changed if
    /// it fails.
    ///
    /// The log gets `request`, which may make a record, where it has the same effect wherever it is
    /// replayed, with its success as `succeeded` derives it, or nothing if that is `None`.
    /// Otherwise the log gets the resulting record.
    pub(crate) fn change<'r, T>(
        &self,
        key: &[u8],
        request: impl FnOnce() -> Option<Request<'r>>,
        succeeded: impl Fn(&T) -> Option<bool>,
        mut decide: impl FnMut(Option<RecordRef<'_>>) -> Result<(Change, T)>,
    ) -> Result<(T, Version)> {
        self.pass()?;
        let Some(log) = &self.log else { return self.view.database.try_modify(key, decide) };
        let request = request();
        let key = if request.is_some() { self.row_key(key)? } else { Cow::Borrowed(key) };
        let (guard, key) = self.begin_record(log, &key)?;
        let request = request.map(|request| with_key(request, &key));
        // It is logged even if it fails.
        log.check_value(request.as_ref().map_or(0, value_bytes))?;
        let mut entry_of_log = LogEntry::Nothing;
        let done = self.view.database.try_modify(&key, |entry| {
            let decided = decide(entry).and_then(|(change, answer)| {
                if let Change::Put(value, _) = &change {
                    log.check_value(value.len())?;
                }
                Ok((change, answer))
            });
            let (change, succeeded) = match &decided {
                Ok((change, answer)) => (change, succeeded(answer)),
                Err(Error::NotANumber { .. }) => (&Change::Keep, Some(false)),
                Err(_) => (&Change::Keep, None),
            };
            let exact = request.as_ref().filter(|request| {
                !self.view.database.evicts() && is_exact(request, entry.as_ref(), change)
            });
            entry_of_log = match exact {
                Some(_) => succeeded.map_or(LogEntry::Nothing, LogEntry::Request),
                None => self.resulting(entry.as_ref(), change),
            };
            decided
        });
        if done.as_ref().is_err_and(|error| !matches!(error, Error::NotANumber { .. })) {
            return done;
        }
        let key = &*key;
        match (entry_of_log, request) {
            (LogEntry::Request(succeeded), Some(request)) => {
                self.append(&guard, request, succeeded);
            }
            (LogEntry::Nothing | LogEntry::Request(_), _) => {}
            (LogEntry::Append(suffix), _) => {
                self.append(&guard, Request::PutCat { key, value: &suffix }, true);
            }
            (LogEntry::Put(value, meta), _) => self.log_put(&guard, key, &value, meta),
            (LogEntry::Removal, _) if self.logs_whole() => self.log_whole(&guard, key),
            (LogEntry::Removal, _) => self.append(&guard, Request::Out { key }, true),
        }
        done
    }

    /// Returns the entry of the log that has the result of a change.
    fn resulting(&self, entry: Option<&RecordRef<'_>>, change: &Change) -> LogEntry {
        let appends = !self.view.database.evicts() && self.has_plain_values();
        match (change, entry) {
            (Change::Keep, _) | (Change::Remove, None) => LogEntry::Nothing,
            (Change::Remove, Some(_)) => LogEntry::Removal,
            (Change::Put(value, meta), _) => {
                match entry.filter(|_| appends).and_then(|entry| appended(entry, change)) {
                    Some(from) => LogEntry::Append(value[from..].to_vec()),
                    None => LogEntry::Put(value.clone(), *meta),
                }
            }
        }
    }

    /// Adds the columns that a row lacks, which are joined by NUL. Makes the row if there is none.
    pub(crate) fn add_columns(&self, key: &[u8], joined: &[u8]) -> Result<()> {
        if let Some(log) = &self.log {
            log.check_value(joined.len())?;
        }
        let key = self.row_key(key)?;
        let request = Request::PutCat { key: &key, value: joined };
        let add = || self.view.database.put_cat(&key, joined);
        self.pass()?;
        self.logged(Scope::Key(&key), request, |()| true, add)
    }

    /// Adds to the number of a row, as an integer. Returns the sum.
    pub(crate) fn add_int_to_row(&self, key: &[u8], addend: i32) -> Result<i32> {
        let key = self.row_key(key)?;
        let request = Request::AddInt { key: &key, addend };
        let add = || self.view.database.add_int(&key, addend);
        self.pass()?;
        self.logged(Scope::Key(&key), request, |sum| is_success_of_add_int(*sum), add)
    }

    /// Adds to the number of a row. Returns the sum.
    pub(crate) fn add_double_to_row(&self, key: &[u8], addend: f64) -> Result<f64> {
        let key = self.row_key(key)?;
        let (integral, fractional) = double_to_parts(addend);
        let request = Request::AddDouble { key: &key, integral, fractional };
        let add = || self.view.database.add_double(&key, addend);
        self.pass()?;
        self.logged(Scope::Key(&key), request, |sum: &f64| !sum.is_nan(), add)
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
        self.pass()?;
        self.logged(Scope::All, Request::Vanish, |()| true, || self.view.database.clear())
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
        self.logged(Scope::Nothing, Request::Sync, |()| true, || self.view.database.sync())?;
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
            let position = CopyPosition { timestamp_us: mark.last_us, log: log.identity() };
            position_file::write_position(path, &position).inspect_err(|_| {
                // A copy without its position would be taken for one of a server without a log.
                let _ = std::fs::remove_dir_all(path);
            })?;
        }
        Ok(mark.now_us)
    }

    pub(crate) fn retune(&self, tuning: &str) -> Result<()> {
        let request = Request::Optimize { parameters: tuning.as_bytes() };
        // A lower cap removes records.
        self.pass()?;
        self.logged(Scope::Nothing, request, |()| true, || self.view.database.retune(tuning))
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
        if self.log.is_none() {
            return call();
        }
        let strings = strings(arguments)?;
        let arguments = strings.strings();
        self.logged(scope, Request::Misc { function, options: 0, arguments }, outcome, call)
    }

    /// Makes a change, which has passed the gate. Logs `request` with its success, as `outcome`
    /// derives it.
    fn logged<T>(
        &self,
        scope: Scope<'_>,
        request: Request<'_>,
        outcome: impl FnOnce(&T) -> bool,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some(log) = &self.log else { return call() };
        let guard = self.begin(log, scope)?;
        if let Scope::Key(key) = scope {
            self.expire(&guard, key)?;
        }
        let done = match call() {
            Err(error @ Error::NotANumber { .. }) if !self.view.database.evicts() => {
                self.append(&guard, request, false);
                return Err(error);
            }
            done => done?,
        };
        match scope {
            Scope::Key(key) if self.logs_whole() => self.log_whole(&guard, key),
            _ => self.append(&guard, request, outcome(&done)),
        }
        Ok(done)
    }

    /// Logs the operations that restore records, together.
    pub(crate) fn log_records(&self, keys: &[&[u8]]) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let guard = self.begin(log, Scope::Several(keys))?;
        let mut take = |request: Request<'_>| self.append(&guard, request, true);
        keys.iter().try_for_each(|key| record_operations(&self.view, key, &mut take))
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

/// Returns whether a sum is logged as a success. Tokyo Tyrant reports this one as a failure, though
/// it is stored.
pub(crate) fn is_success_of_add_int(sum: i32) -> bool {
    sum != i32::MIN
}
