//! Engine: access to a table like to any other database. Keys are primary keys, and values are the
//! columns, joined by NUL.
//!
//! Records have no flags and no expiry. A value that is put under the empty key becomes a row under
//! the next identifier.

use super::cursor::KeyRange;
use super::write::RowChange;
use super::{Row, RowView, Table, keys};
use crate::{
    Batch, BatchChange, Change, Decide, Engine, Error, Family, FullScan, KeyOrder, KeyReports,
    Maintenance, Medium, Meta, Options, Ordered, Persistence, RecordRef, Result, ScanCursor,
    Version, Visit, VisitKey, Visitor, Wait, Wanted,
};
use std::collections::BTreeMap;

impl Table {
    /// Does one step of a scan of the stored rows, with the engine's keys.
    pub(super) fn scan_rows(
        &self,
        from: &ScanCursor,
        visit: &mut Visit<'_>,
    ) -> Result<Option<ScanCursor>> {
        let range = KeyRange::of_prefix(vec![keys::ROWS]);
        let next = self.engine.scan_records(&beneath(from)?, &mut |entry| {
            if range.is_before_end(entry.key) {
                visit(entry);
            }
        })?;
        Ok(above(next, &range))
    }

    /// Begins a scan of the stored rows, in the order of primary keys or in the fastest order.
    pub(super) fn scan_all_rows(&self, is_in_order: bool) -> Box<dyn FullScan + '_> {
        let (start, end) = ([keys::ROWS], [keys::ROWS + 1]);
        let ordered = self.engine.as_ordered();
        let scan = ordered.and_then(|tree| tree.scan_range(Some(&start), Some(&end), is_in_order));
        scan.unwrap_or_else(|| Box::new(RowSteps { table: self, next: Some(ScanCursor::Start) }))
    }

    /// Like `scan_rows`, for primary keys only.
    fn scan_primaries(
        &self,
        from: &ScanCursor,
        visit: &mut VisitKey<'_>,
    ) -> Result<Option<ScanCursor>> {
        let range = KeyRange::of_prefix(vec![keys::ROWS]);
        let next = self.engine.scan_keys(&beneath(from)?, &mut |key| {
            if range.is_before_end(key) {
                visit(&key[1..]);
            }
        })?;
        Ok(above(next, &range))
    }

    /// Returns the key under which to put a row: the next identifier if `key` is empty.
    pub(crate) fn key_to_put(&self, key: &[u8], wait: Wait) -> Result<Vec<u8>> {
        if key.is_empty() && wait == Wait::Never {
            // An identifier would be lost with each further attempt.
            return Err(Error::WouldBlock);
        }
        Ok(if key.is_empty() { self.next_uid()?.to_string().into_bytes() } else { key.to_vec() })
    }

    fn version_of(&self, key: &[u8]) -> Result<Version> {
        let mut version = 0;
        let mut note = |entry: RecordRef<'_>| version = entry.version;
        self.engine.read(&keys::row(key), Wait::Block, &mut note)?;
        Ok(version)
    }

    fn update_row(&self, key: &[u8], wait: Wait, decide: &mut Decide<'_>) -> Result<Version> {
        let (is_put, version) = self.change_version(key, wait, &mut |old| {
            let joined = old.map(|(row, version)| (row, row.to_joined(), version));
            let entry = joined.as_ref().map(|(_, value, version)| RecordRef {
                key,
                value,
                meta: Meta::NONE,
                version: *version,
            });
            Ok(match decide(entry) {
                Change::Keep => (RowChange::Keep, false),
                Change::Remove => (RowChange::Remove, false),
                Change::Put(value, _) => {
                    let old = joined.as_ref().map(|(row, old, _)| (*row, &old[..]));
                    (RowChange::Put(changed_row(old, &value)?.encode()?), true)
                }
            })
        })?;
        match version {
            _ if !is_put => Ok(0),
            Some(version) => Ok(version),
            None => self.version_of(key),
        }
    }
}

/// Scan of the stored rows, by the steps of [`Table::scan_rows`].
struct RowSteps<'t> {
    table: &'t Table,
    next: Option<ScanCursor>,
}

impl FullScan for RowSteps<'_> {
    fn step(&mut self, visit: &mut Visit<'_>) -> Result<bool> {
        let Some(from) = self.next.take() else { return Ok(false) };
        self.next = self.table.scan_rows(&from, visit)?;
        Ok(self.next.is_some())
    }

    fn step_keys(&mut self, visit: &mut VisitKey<'_>) -> Result<bool> {
        self.step(&mut |entry| visit(entry.key))
    }
}

/// Scan of rows that converts each into a record.
struct JoinedRows<'t> {
    rows: Box<dyn FullScan + 't>,
}

impl FullScan for JoinedRows<'_> {
    fn step(&mut self, visit: &mut Visit<'_>) -> Result<bool> {
        self.rows.step(&mut |entry| {
            let value = RowView::new(entry.value).to_joined();
            let (key, version) = (&entry.key[1..], entry.version);
            visit(RecordRef { key, value: &value, meta: Meta::NONE, version });
        })
    }

    fn step_keys(&mut self, visit: &mut VisitKey<'_>) -> Result<bool> {
        self.rows.step_keys(&mut |key| visit(&key[1..]))
    }

    fn passes_damage(&self) -> bool {
        self.rows.passes_damage()
    }
}

/// Returns the row of a joined value that replaces another row. Fails with [`Error::BadColumn`] if
/// the value is derived from a row with NUL in its columns, whose ends are lost.
pub(super) fn changed_row(old: Option<(RowView<'_>, &[u8])>, value: &[u8]) -> Result<Row> {
    if let Some((row, joined)) = old {
        check_derived(row, joined, value)?;
    }
    Row::from_joined(value)
}

/// Fails if a joined value is derived from a row with NUL in its columns: their ends are lost.
fn check_derived(row: RowView<'_>, joined: &[u8], value: &[u8]) -> Result<()> {
    let is_derived = value.starts_with(joined) || value.ends_with(joined);
    let parts = row.columns().flat_map(|(name, column)| [name, column]);
    if is_derived && parts.into_iter().any(|part| part.contains(&0)) {
        return Err(Error::BadColumn(
            "a column of the row has NUL in it: change the row by its columns".into(),
        ));
    }
    Ok(())
}

/// Converts a cursor over rows to a cursor of the engine.
fn beneath(position: &ScanCursor) -> Result<ScanCursor> {
    match position {
        ScanCursor::Start => Ok(ScanCursor::Key(vec![keys::ROWS])),
        ScanCursor::Key(key) => Ok(ScanCursor::Key(keys::row(key))),
        ScanCursor::Hash(_) | ScanCursor::Id(_) => Err(position.foreign()),
    }
}

/// Converts a cursor of the engine to a cursor over rows; `None` after the last row.
fn above(position: Option<ScanCursor>, rows: &KeyRange) -> Option<ScanCursor> {
    match position {
        Some(ScanCursor::Key(key)) if rows.contains(&key) => {
            Some(ScanCursor::Key(key[1..].to_vec()))
        }
        _ => None,
    }
}

impl Engine for Table {
    fn read(&self, key: &[u8], wait: Wait, visit: &mut Visit<'_>) -> Result<bool> {
        self.engine.read(&keys::row(key), wait, &mut |entry| {
            let value = RowView::new(entry.value).to_joined();
            visit(RecordRef { key, value: &value, meta: Meta::NONE, version: entry.version });
        })
    }

    fn prefetch(&self, keys: &[&[u8]]) {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| keys::row(key)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        self.engine.prefetch(&keys);
    }

    fn put(&self, key: &[u8], value: &[u8], _meta: Meta, wait: Wait) -> Result<Version> {
        let key = self.key_to_put(key, wait)?;
        let row = Row::from_joined(value)?.encode()?;
        let (_, version) =
            self.change_version(&key, wait, &mut |_| Ok((RowChange::Put(row.clone()), ())))?;
        version.map_or_else(|| self.version_of(&key), Ok)
    }

    fn update(&self, key: &[u8], wait: Wait, decide: &mut Decide<'_>) -> Result<Version> {
        if !key.is_empty() {
            return self.update_row(key, wait, decide);
        }
        // There is never a row under the empty key, but a new one may be put there.
        match decide(None) {
            Change::Put(value, meta) => Engine::put(self, key, &value, meta, wait),
            Change::Keep | Change::Remove => Ok(0),
        }
    }

    fn write(&self, batch: &Batch, wait: Wait) -> Result<()> {
        if wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        let mut rows: BTreeMap<&[u8], Option<Vec<u8>>> = BTreeMap::new();
        for (key, change) in batch.changes() {
            let row = match change {
                BatchChange::Put(value, _) => Some(Row::from_joined(value)?.encode()?),
                BatchChange::Remove => None,
            };
            rows.insert(key, row);
        }
        self.change_many(&rows, &batch.expected)
    }

    fn scan(&self, from: &ScanCursor, visitor: Visitor<'_>) -> Result<Option<ScanCursor>> {
        match visitor {
            Visitor::Records(visit) => self.scan_rows(from, &mut |entry| {
                let value = RowView::new(entry.value).to_joined();
                let (key, version) = (&entry.key[1..], entry.version);
                visit(RecordRef { key, value: &value, meta: Meta::NONE, version });
            }),
            Visitor::Keys(visit) => self.scan_primaries(from, visit),
        }
    }

    fn full_scan(&self, _wanted: Wanted, is_in_order: bool) -> Result<Box<dyn FullScan + '_>> {
        Ok(Box::new(JoinedRows { rows: self.scan_all_rows(is_in_order) }))
    }

    fn scan_cursor_of(&self, key: &[u8]) -> ScanCursor {
        ScanCursor::Key(key.to_vec())
    }

    fn family(&self) -> Family<'_> {
        Family::Sorted(KeyOrder::Lexical)
    }
}

impl Maintenance for Table {
    fn len(&self) -> u64 {
        Self::len(self)
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn evicts(&self) -> bool {
        self.engine.evicts()
    }

    fn reports(&self) -> Option<&KeyReports> {
        self.engine.reports()
    }

    fn stats(&self) -> Vec<(&'static str, String)> {
        let mut stats = self.engine.stats();
        stats.retain(|(name, _)| *name != "type");
        stats.insert(0, ("type", "table".into()));
        stats.push(("indices", self.indices().len().to_string()));
        stats
    }

    /// Also enforces a cap on bytes, if the options set one.
    fn optimize(&self, options: Option<&Options>) -> Result<()> {
        self.check_writable()?;
        self.engine.optimize(options)?;
        if options.is_some()
            && let Some((_, max)) = self.engine.as_ordered().and_then(Ordered::owned_cap)
        {
            self.postings.set_cap(max);
            self.evict_for_writer(Wait::Block)?;
        }
        Ok(())
    }

    fn replace_all(&self, batch: &Batch) -> Result<()> {
        self.clear_rows()?;
        if batch.is_empty() { Ok(()) } else { self.write(batch, Wait::Block) }
    }

    fn medium(&self) -> &dyn Medium {
        self.engine.medium()
    }

    fn persistence(&self) -> Option<&dyn Persistence> {
        self.engine.persistence()
    }
}
