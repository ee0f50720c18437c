//! Changes of rows with the entries of their indexes, and indexes that are added meanwhile.
//!
//! # Entries
//!
//! A row is found in an index by entries of its values there. Each has a *name*: the version of the
//! change that gave the row this value. A change adds the new entries, changes the row in one
//! transaction, and then removes those that are stale. So whoever sees the row finds its entries.
//! A stale entry is skipped by readers, since the row has another name for its entries there. No
//! version comes back, so an entry that was removed as stale is no entry of a later change, however
//! late the removal is.
//!
//! # Indexes that are added
//!
//! A server may not know yet of an index that another one has added. Its changes must not leave a
//! row without entries there:
//!
//! - The definitions have a number, which grows with each change of them, and an index has the
//!   number with which it was added. A row has the number of the definitions that its last writer
//!   knew: it has its entries in all indexes up to this number. A server that reads a row with a
//!   greater number than it knows reads the definitions again.
//! - To fill a new index, its server goes through the order of the keys after the new definitions
//!   were acknowledged. It adds the entries that a row lacks, and raises the number of the row in a
//!   transaction. A change that was begun before, by a server that does not know the index, has
//!   its condition on the old number and fails, however late it is executed.
//! - A new row has its entry in the order of the keys first. Then its server reads the
//!   definitions, and then it puts the row. If it does not see the index, its entry in the order
//!   was acknowledged before the filling began. So the filling meets the key: it raises the number
//!   of the row, or, if there is no row yet, puts a version without a row, and the transaction that
//!   puts the row fails.
//!
//! - A row that is removed leaves its version and its number behind. Otherwise a transaction that
//!   puts a new row could still be executed after another client has put the row and removed it.
//!   Cassandra removes the version after a day, and no transaction is executed that late.
//!
//! So once all keys were met, each row has its entries in the index, and each later change knows of
//! it. Only then the definitions tell that the index is ready for queries. But for the day above,
//! nothing of this depends on clocks or on the time that a statement takes.
//!
//! # Indexes that are removed
//!
//! Its definition goes first, and then the entries. A query reads the definitions when it begins
//! and when it ends: an index that was ready then was complete all the time.

use super::definitions::{Definition, Definitions};
use super::tables::{Entries, Names, StoredRow, Tables};
use crate::records::{Changed, now_ms};
use crate::session::Failure;
use crate::version;
use cabinet::table::RowView;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::{Instant, timeout_at};

/// Rows of a table, with the indexes that this server knows.
#[derive(Debug)]
pub(crate) struct Upkeep<T> {
    pub(crate) tables: T,
    known: Mutex<Arc<Definitions>>,
    /// Number of tasks that have asked for the definitions.
    asked: AtomicU64,
    /// Number of those whose question came before the last read began. Held while one reads.
    answered: tokio::sync::Mutex<u64>,
}

/// New content of a row.
#[derive(Clone, Debug)]
pub(crate) struct NewRow {
    /// Version of the change, which no other has.
    pub(crate) version: i64,
    /// The row, encoded, unless it is removed.
    pub(crate) value: Option<Vec<u8>>,
}

/// Most attempts to complete a row that others change meanwhile.
const ATTEMPTS_MAX: usize = 100;

/// Entries of a change.
#[derive(Debug, Default)]
struct Plan {
    added: Vec<Entries>,
    stale: Vec<Entries>,
    names: Names,
}

impl<T: Tables> Upkeep<T> {
    pub(crate) fn new(tables: T) -> Self {
        let (known, asked, answered) = Default::default();
        Self { tables, known, asked, answered }
    }

    /// Returns the definitions as they were at some time.
    pub(crate) fn known(&self) -> Arc<Definitions> {
        Arc::clone(&self.known.lock())
    }

    /// Reads the definitions, after this call has begun. Callers share a read that begins after
    /// all of them have called.
    pub(crate) async fn fresh(&self) -> Result<Arc<Definitions>, Failure> {
        let own = self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answered = self.answered.lock().await;
        if *answered <= own {
            let asked = self.asked.load(Ordering::SeqCst);
            let read = self.tables.definitions().await?;
            self.learn(read);
            *answered = asked;
        }
        Ok(self.known())
    }

    /// Takes note of definitions, unless later ones are known.
    pub(crate) fn learn(&self, read: Definitions) {
        let mut known = self.known.lock();
        if read.number > known.number {
            *known = Arc::new(read);
        }
    }

    /// Puts or removes a row that was read, if it has not changed since. No statement begins later
    /// than `until`. The caller does not remove a row that is not there.
    pub(crate) async fn change(
        &self,
        until: Instant,
        key: &[u8],
        read: Option<&StoredRow>,
        new: &NewRow,
    ) -> Changed {
        let old = read.filter(|row| row.value.is_some());
        let is_new = old.is_none();
        if is_new && self.tables.add_key(until, key, new.version).await.is_err() {
            return Changed::NotDone;
        }
        let (changed, mut useless) = self.change_row(until, key, read, new).await;
        let mut stale = match (changed, old) {
            (Changed::Done, Some(old)) if new.value.is_none() => old.entry,
            (Changed::Conflict | Changed::NotDone, None) => Some(new.version),
            _ => None,
        };
        if changed != Changed::Done && (stale.is_some() || !useless.is_empty()) {
            // Two changes of one millisecond have the same version once in a million times. The
            // entries of the one that was made stay.
            match self.tables.read(key).await {
                Ok(Some(row)) => {
                    stale = stale.filter(|name| row.entry != Some(*name));
                    useless.retain(|entries| row.name(entries.index) != entries.name);
                }
                Ok(None) => {}
                // Those that stay cost readers time.
                Err(_) => return changed,
            }
        }
        if !useless.is_empty() {
            self.tables.remove_entries(key, &useless).await;
        }
        if let Some(name) = stale {
            self.tables.remove_key(key, name).await;
        }
        changed
    }

    /// Changes a row, which has its entry in the order of the keys, and adds its entries. Returns
    /// the entries that are of no use after it.
    async fn change_row(
        &self,
        until: Instant,
        key: &[u8],
        read: Option<&StoredRow>,
        new: &NewRow,
    ) -> (Changed, Vec<Entries>) {
        let old = read.filter(|row| row.value.is_some());
        let is_behind = |known: &Definitions| read.is_some_and(|row| row.number > known.number);
        let mut definitions = self.known();
        if old.is_none() || is_behind(&definitions) {
            match timeout_at(until, self.fresh()).await {
                Ok(Ok(fresh)) if !is_behind(&fresh) => definitions = fresh,
                _ => return (Changed::NotDone, Vec::new()),
            }
        }
        let Plan { added, stale, names } = plan(&definitions, key, old, new);
        let row = StoredRow {
            version: new.version,
            number: definitions.number,
            names,
            entry: old.map_or(Some(new.version), |old| old.entry).filter(|_| new.value.is_some()),
            value: new.value.clone(),
        };
        let changed = match self.tables.add_entries(until, key, &added).await {
            Ok(()) => self.tables.swap(until, key, read, &row).await,
            Err(_) => Changed::NotDone,
        };
        let useless = match changed {
            Changed::Done => stale,
            Changed::Conflict | Changed::NotDone => added,
            Changed::Unknown => Vec::new(),
        };
        (changed, useless)
    }

    /// Gives a row the entries that it lacks of the indexes known here, and its number. Under a key
    /// without a row, lets a change fail that would put one without knowing these indexes.
    pub(crate) async fn complete(&self, until: Instant, key: &[u8]) -> Result<(), Failure> {
        for _ in 0..ATTEMPTS_MAX {
            let definitions = self.known();
            let read = self.tables.read(key).await?;
            let incomplete = definitions.indexes.iter().filter(|index| !index.is_ready);
            let needed = incomplete.map(|index| index.id).max();
            // A row that an earlier filling has met has its entries.
            if read.as_ref().is_some_and(|row| needed.is_none_or(|needed| row.number >= needed)) {
                return Ok(());
            }
            let mut added = Vec::new();
            let raised = match &read {
                None => StoredRow {
                    version: version::next(0, now_ms()),
                    number: definitions.number,
                    names: Names::default(),
                    entry: None,
                    value: None,
                },
                Some(row) => {
                    let missing = definitions.indexes.iter().filter(|index| index.id > row.number);
                    for index in missing {
                        let value = row.value.as_deref();
                        let values =
                            value.map_or_else(Vec::new, |row| index_values(index, key, row));
                        added.push(Entries { index: index.id, name: row.version, values });
                    }
                    StoredRow { number: definitions.number, ..row.clone() }
                }
            };
            added.retain(|entries| !entries.values.is_empty());
            self.tables.add_entries(until, key, &added).await?;
            match self.tables.swap(until, key, read.as_ref(), &raised).await {
                Changed::Done => return Ok(()),
                Changed::NotDone => return Err(Failure::NotDone),
                Changed::Conflict | Changed::Unknown => {}
            }
            // The row has changed, unless another server has completed it.
            if let Some(row) = self.tables.read(key).await? {
                added.retain(|entries| row.name(entries.index) != entries.name);
            }
            if !added.is_empty() {
                self.tables.remove_entries(key, &added).await;
            }
        }
        Err(Failure::GivenUp)
    }
}

/// Returns the values that have entries.
fn index_values(index: &Definition, key: &[u8], stored: &[u8]) -> Vec<Vec<u8>> {
    if index.is_of_keys() { Vec::new() } else { index.values(key, stored) }
}

/// Returns the entries that a change adds and leaves stale.
fn plan(definitions: &Definitions, key: &[u8], old: Option<&StoredRow>, new: &NewRow) -> Plan {
    let old = old.and_then(|old| Some((old, old.value.as_deref()?)));
    let new_value = new.value.as_deref();
    let mut plan = Plan::default();
    for index in definitions.indexes.iter().filter(|index| !index.is_of_keys()) {
        if let (Some((old, before)), Some(after)) = (old, new_value) {
            let value = |stored| index.value(key, RowView::new(stored));
            if old.number >= index.id && value(before) == value(after) {
                plan.names.0.push((index.id, old.name(index.id)));
                continue;
            }
        }
        let entries = |name, stored: Option<&[u8]>| {
            let values = stored.map_or_else(Vec::new, |stored| index.values(key, stored));
            Entries { index: index.id, name, values }
        };
        plan.added.push(entries(new.version, new_value));
        if let Some((old, before)) = old {
            plan.stale.push(entries(old.name(index.id), Some(before)));
        }
    }
    plan.added.retain(|entries| !entries.values.is_empty());
    plan.stale.retain(|entries| !entries.values.is_empty());
    plan
}
