//! Writes: changes of rows, together with the postings of their indices.
//!
//! A row changes in one batch of the engine with a pending-change record, from which its postings
//! are restored after a crash. The batch expects the row at the version from which the postings
//! were computed. Writers of one row first queue at one of [`STRIPES`] locks, chosen by the hash of
//! the primary key. So the expectation seldom fails, and the postings of a row change in the order
//! of its changes.

use super::Table;
use super::index::Index;
use super::postings::{Changes, RowPostings};
use super::row::RowView;
use super::{keys, meta};
use crate::limits::{
    BATCH_BYTES_MAX, PRIMARY_KEY_BYTES_MAX, ROW_POSTINGS_BYTES_MAX, VALUE_BYTES_MAX,
};
use crate::{Batch, Change, Error, Meta, Result, Version, Wait, engine::batch_plan};
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use xxhash_rust::xxh3::xxh3_64;

/// Number of stripes: the locks at which writers of rows queue.
pub(super) const STRIPES: usize = 256;

/// Change of a row.
pub(super) enum RowChange {
    Keep,
    /// The encoded row.
    Put(Vec<u8>),
    Remove,
}

/// Callback that gets a row and its version, or `None`. Returns the change of the row, and a result
/// for the caller.
pub(super) type Decide<'d, T> =
    dyn FnMut(Option<(RowView<'_>, Version)>) -> Result<(RowChange, T)> + 'd;

pub(super) fn check_primary(primary: &[u8]) -> Result<()> {
    if primary.len() > PRIMARY_KEY_BYTES_MAX {
        return Err(Error::KeyTooLong { bytes: primary.len(), max: PRIMARY_KEY_BYTES_MAX });
    }
    Ok(())
}

fn stripe(primary: &[u8]) -> usize {
    xxh3_64(primary) as usize % STRIPES
}

impl Table {
    /// Changes a row atomically as `decide` returns. Returns the result of `decide`.
    pub(super) fn change<T>(
        &self,
        primary: &[u8],
        wait: Wait,
        decide: &mut Decide<'_, T>,
    ) -> Result<T> {
        self.change_version(primary, wait, decide).map(|(answer, _)| answer)
    }

    /// Like `change`. Also returns the new version of the row, if it is known.
    pub(super) fn change_version<T>(
        &self,
        primary: &[u8],
        wait: Wait,
        decide: &mut Decide<'_, T>,
    ) -> Result<(T, Option<Version>)> {
        self.check_writable()?;
        check_primary(primary)?;
        self.evict_for_writer(wait)?;
        self.change_within_cap(primary, wait, decide)
    }

    /// Like `change_version`, without evicting first.
    pub(super) fn change_within_cap<T>(
        &self,
        primary: &[u8],
        wait: Wait,
        decide: &mut Decide<'_, T>,
    ) -> Result<(T, Option<Version>)> {
        let structure = self.structure.read();
        if structure.is_empty() {
            return self.change_row(primary, wait, decide);
        }
        if wait == Wait::Never {
            // Reading and flushing postings may wait for the disk.
            return Err(Error::WouldBlock);
        }
        let is_full = self.postings.flush_over_budget_if_possible()?;
        let _stripe = self.stripes[stripe(primary)].lock();
        loop {
            match self.change_with_postings(&structure, primary, is_full, decide) {
                Err(Error::Conflict) => {}
                result => return result.map(|answer| (answer, None)),
            }
        }
    }

    /// Changes a row of a table without indices.
    fn change_row<T>(
        &self,
        primary: &[u8],
        wait: Wait,
        decide: &mut Decide<'_, T>,
    ) -> Result<(T, Option<Version>)> {
        let mut answer = None;
        let mut more = 0;
        let version = self.engine.update(&keys::row(primary), wait, &mut |entry| {
            let existed = entry.is_some();
            let decided = decide(entry.map(|entry| (RowView::new(entry.value), entry.version)));
            let (change, result) = match decided.and_then(|decided| self.checked(decided)) {
                Ok((change, result)) => (change, Ok(result)),
                Err(error) => (RowChange::Keep, Err(error)),
            };
            more = growth(&change, existed);
            answer = Some(result);
            match change {
                RowChange::Keep => Change::Keep,
                RowChange::Put(row) => Change::Put(row, Meta::NONE),
                RowChange::Remove => Change::Remove,
            }
        })?;
        self.rows.fetch_add(more, Ordering::AcqRel);
        // `update` calls its closure when it succeeds.
        let answer = answer
            .unwrap_or_else(|| Err(Error::Internal("an update has called no closure".into())))?;
        Ok((answer, Some(version)))
    }

    fn change_with_postings<T>(
        &self,
        indices: &[Arc<Index>],
        primary: &[u8],
        is_full: bool,
        decide: &mut Decide<'_, T>,
    ) -> Result<T> {
        let old = self.stored(primary)?;
        let seen = old.as_ref().map(|(row, version)| (RowView::new(row), *version));
        let (change, answer) = decide(seen).and_then(|decided| self.checked(decided))?;
        let row = match &change {
            RowChange::Keep => return Ok(answer),
            RowChange::Remove if old.is_none() => return Ok(answer),
            RowChange::Put(row) => Some(&row[..]),
            RowChange::Remove => None,
        };
        self.postings.check_full(is_full, row.is_none())?;
        let mut batch = Batch::new();
        let old_row = old.as_ref().map(|(row, _)| &row[..]);
        put_row(&mut batch, primary, old.as_ref().map(|(_, version)| *version), row);
        batch.removes = row.is_none();
        let changes = postings_changes(&mut batch, indices, primary, old_row, row)?;
        self.postings.write(batch, &[RowPostings { primary, before: old_row, changes }])?;
        self.rows.fetch_add(growth(&change, old.is_some()), Ordering::AcqRel);
        Ok(answer)
    }

    /// Fails if a row is too long.
    fn checked<T>(&self, (change, answer): (RowChange, T)) -> Result<(RowChange, T)> {
        if let RowChange::Put(row) = &change {
            check_row(row.len(), VALUE_BYTES_MAX.min(self.rows_bytes_max()))?;
        }
        Ok((change, answer))
    }

    /// Returns the encoded row under a primary key, and its version.
    pub(super) fn stored(&self, primary: &[u8]) -> Result<Option<(Vec<u8>, Version)>> {
        let mut row = None;
        self.engine.read(&keys::row(primary), Wait::Block, &mut |entry| {
            row = Some((entry.value.to_vec(), entry.version));
        })?;
        Ok(row)
    }

    /// Changes several rows atomically, if the rows in `expected` have their expected versions.
    /// `None` removes a row.
    pub(super) fn change_many(
        &self,
        rows: &BTreeMap<&[u8], Option<Vec<u8>>>,
        expected: &[(Vec<u8>, Option<Version>)],
    ) -> Result<()> {
        self.check_writable()?;
        let mut bytes = 0;
        for (primary, row) in rows {
            check_primary(primary)?;
            let row = row.as_deref().unwrap_or_default();
            bytes += row.len();
            check_row(row.len(), VALUE_BYTES_MAX)?;
        }
        check_row(bytes, self.rows_bytes_max())?;
        self.evict_for_writer(Wait::Block)?;
        let structure = self.structure.read();
        let is_full = self.postings.flush_over_budget_if_possible()?;
        self.postings.check_full(is_full, rows.values().all(Option::is_none))?;
        let _stripes = self.lock_stripes(rows.keys().copied());
        loop {
            let mut batch = Batch::new();
            batch.removes = rows.values().all(Option::is_none);
            batch_plan::check_expected(expected, |primary| {
                Ok(self.stored(primary)?.map(|(_, version)| version))
            })?;
            for (primary, version) in expected {
                batch.expect(&keys::row(primary), *version);
            }
            let mut more = 0;
            let mut olds = Vec::with_capacity(rows.len());
            for primary in rows.keys() {
                olds.push(self.stored(primary)?);
            }
            let mut postings = Vec::with_capacity(rows.len());
            for ((primary, row), old) in rows.iter().zip(&olds) {
                let new = row.as_deref();
                more += i64::from(new.is_some()) - i64::from(old.is_some());
                if old.is_none() && new.is_none() {
                    continue;
                }
                let old_row = old.as_ref().map(|(row, _)| &row[..]);
                put_row(&mut batch, primary, old.as_ref().map(|(_, version)| *version), new);
                let changes = postings_changes(&mut batch, &structure, primary, old_row, new)?;
                postings.push(RowPostings { primary, before: old_row, changes });
            }
            match self.postings.write(batch, &postings) {
                // Another writer changed a row of a table without indices, or one that was only
                // expected.
                Err(Error::Conflict) => {}
                result => {
                    result?;
                    self.rows.fetch_add(more, Ordering::AcqRel);
                    return Ok(());
                }
            }
        }
    }

    /// Locks the stripes of rows. The ascending order prevents deadlocks.
    fn lock_stripes<'k>(&self, rows: impl Iterator<Item = &'k [u8]>) -> Vec<MutexGuard<'_, ()>> {
        let stripes = batch_plan::lock_order(rows.map(stripe).collect(), usize::cmp);
        stripes.into_iter().map(|stripe| self.stripes[stripe].lock()).collect()
    }

    /// Adds the postings of rows to one index, each under the row's stripe.
    pub(super) fn add_postings(&self, index: &Arc<Index>, primaries: &[Vec<u8>]) -> Result<()> {
        let indices = std::slice::from_ref(index);
        for primary in primaries {
            // Each row may have megabytes of postings.
            self.postings.flush_over_budget()?;
            let _stripe = self.stripes[stripe(primary)].lock();
            if let Some((row, _)) = self.stored(primary)? {
                let mut batch = Batch::new();
                let changes = postings_changes(&mut batch, indices, primary, None, Some(&row))?;
                // The batch may mark the index as having cut values.
                if !batch.is_empty() {
                    self.engine.write(&batch, Wait::Block)?;
                }
                self.postings.add(&changes);
            }
        }
        Ok(())
    }
}

fn check_row(bytes: usize, max: usize) -> Result<()> {
    if bytes > max { Err(Error::ValueTooLong { bytes, max }) } else { Ok(()) }
}

/// Returns the number of rows by which the table grows through a change.
fn growth(change: &RowChange, existed: bool) -> i64 {
    match change {
        RowChange::Put(_) if !existed => 1,
        RowChange::Remove if existed => -1,
        _ => 0,
    }
}

fn put_row(batch: &mut Batch, primary: &[u8], expected: Option<Version>, row: Option<&[u8]>) {
    let key = keys::row(primary);
    batch.expect(&key, expected);
    match row {
        Some(row) => batch.put(&key, row, Meta::NONE),
        None => batch.remove(&key),
    }
}

/// Returns the changes of postings when the row `old` becomes `new`. Adds to the batch the marks of
/// indices in which a value is cut.
fn postings_changes(
    batch: &mut Batch,
    indices: &[Arc<Index>],
    primary: &[u8],
    old: Option<&[u8]>,
    new: Option<&[u8]>,
) -> Result<Changes> {
    let (mut before, mut after) = (Changes::default(), Changes::of_row());
    for index in indices {
        // For the empty column, the value is the primary key.
        let value = |row| RowView::new(row).get_or_primary(&index.column, primary);
        let (old, new) = (old.and_then(value), new.and_then(value));
        if old == new {
            continue;
        }
        if let Some(old) = old {
            index.put_postings(primary, old, &mut before);
        }
        if let Some(new) = new
            && !index.put_postings(primary, new, &mut after)
        {
            index.has_cut_values.store(true, Ordering::Release);
            meta::put_cut(batch, index.id);
        }
        // The old row may have more postings than the limit for new rows: an index may have been
        // added since.
        for (bytes, max) in [
            (before.content_bytes(), BATCH_BYTES_MAX),
            (after.content_bytes(), ROW_POSTINGS_BYTES_MAX),
        ] {
            if bytes > max {
                return Err(Error::BatchTooLong { bytes, max });
            }
        }
    }
    Ok(Changes::between(before, after))
}

/// Returns all postings of a row, one element per index.
pub(super) fn postings_of(
    indices: &[Arc<Index>],
    primary: &[u8],
    row: Option<&[u8]>,
) -> Vec<Changes> {
    let of_index = |index: &Arc<Index>| {
        let mut postings = Changes::default();
        let value = row.and_then(|row| RowView::new(row).get_or_primary(&index.column, primary));
        if let Some(value) = value {
            index.put_postings(primary, value, &mut postings);
        }
        postings
    };
    indices.iter().map(of_index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{IndexChange, IndexKind, Row};
    use crate::{MemoryTree, Options};

    /// Returns a row with `bytes` bytes of postings in a token index.
    fn row_of(index: &Arc<Index>, primary: &[u8], bytes: usize) -> Row {
        let row = |tokens: &str| Row::new().with(b"text", tokens.as_bytes()).unwrap();
        let bytes_of = |tokens: &str| {
            let row = row(tokens).encode().unwrap();
            let indices = std::slice::from_ref(index);
            postings_of(indices, primary, Some(&row))[0].content_bytes()
        };
        let one = bytes_of("10000");
        let mut tokens: Vec<String> =
            (10_000..10_000 + bytes / one - 3).map(|number| number.to_string()).collect();
        // Three long tokens take the rest.
        let rest = bytes - tokens.len() * one - 3 * (one - 5);
        let lengths = [rest / 3, rest / 3, rest - 2 * (rest / 3)];
        tokens.extend(["x", "y", "z"].iter().zip(lengths).map(|(letter, len)| letter.repeat(len)));
        let tokens = tokens.join(" ");
        assert_eq!(bytes_of(&tokens), bytes);
        row(&tokens)
    }

    #[test]
    fn a_row_with_too_many_postings_is_refused_and_the_table_remains_usable() {
        let options = Options::default();
        let table = Table::new(Arc::new(MemoryTree::new(&options)), &options).unwrap();
        table.set_index(b"text", IndexChange::Set(IndexKind::Token)).unwrap();
        let index = Arc::clone(&table.structure.read()[0]);
        // The key is part of every posting. It is so long that the tokens of one row reach the
        // limit.
        let primary = vec![b'p'; 2100];
        for bytes in ROW_POSTINGS_BYTES_MAX - 1..=ROW_POSTINGS_BYTES_MAX + 1 {
            let row = row_of(&index, &primary, bytes);
            let result = table.put(&primary, &row);
            if bytes <= ROW_POSTINGS_BYTES_MAX {
                result.unwrap();
            } else {
                let expected = (bytes, ROW_POSTINGS_BYTES_MAX);
                assert!(
                    matches!(result, Err(Error::BatchTooLong { bytes, max }) if (bytes, max) == expected)
                );
            }
        }
        table.put(b"other", &Row::new().with(b"text", b"a b").unwrap()).unwrap();
        assert!(table.remove(&primary).unwrap());
        table.postings.flush().unwrap();
        assert_eq!(table.len(), 1);
    }
}
