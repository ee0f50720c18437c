//! Scans of all records, or those of a prefix or a pattern, with a function.

use super::Database;
use crate::base::deadline;
use crate::scan::{step_past_damage, step_until_break};
use crate::{Error, FullScan, KeyOrder, RecordRef, Result, ScanCursor, Visit, Wanted};
use std::ops::ControlFlow;

/// Scan of all records in steps, see [`Database::full_scan`]. A record that exists throughout is
/// visited exactly once. A failed step ends the scan.
pub struct SteppedScan<'d> {
    database: &'d Database,
    scan: Box<dyn FullScan + 'd>,
}

impl SteppedScan<'_> {
    /// Calls `visit` with some records, perhaps none. Returns whether there may be more.
    pub fn step(&mut self, mut visit: impl FnMut(RecordRef<'_>)) -> Result<bool> {
        self.database.enter()?;
        deadline::check()?;
        // Once per step: once per record took a seventh of the time of a scan.
        self.database.call(|| self.scan.step(&mut visit))
    }

    /// Calls `visit` with some keys, perhaps none. Returns whether there may be more.
    pub fn step_keys(&mut self, mut visit: impl FnMut(&[u8])) -> Result<bool> {
        self.database.enter()?;
        deadline::check()?;
        self.database.call(|| self.scan.step_keys(&mut visit))
    }
}

/// Filter of a scan for the keys with a prefix, which visits each key once.
struct KeysWithPrefix<'p, V> {
    prefix: &'p [u8],
    /// Last key, if the scan visits a key once for each of its values.
    previous: Option<Option<Vec<u8>>>,
    /// Whether the scan has passed the keys with the prefix.
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
    /// Calls `visit` with each record until it breaks, in the fastest order for the kind of
    /// database. In a tree that is the order of keys. A record that exists throughout is visited
    /// once. Writers are not delayed.
    pub fn for_each(&self, visit: impl FnMut(RecordRef<'_>) -> ControlFlow<()>) -> Result<()> {
        self.each_of(self.begin_scan(Wanted::Records)?, visit)
    }

    /// Like [`for_each`](Self::for_each), in the fastest order. If the database is larger than
    /// memory, a tree is read in the order of its bytes on the disk instead of the order of keys.
    pub fn for_each_in_any_order(
        &self,
        visit: impl FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.enter()?;
        let scan = self.engine.full_scan(Wanted::Records, false)?;
        self.each_of(SteppedScan { database: self, scan }, visit)
    }

    /// Like [`for_each`](Self::for_each), or with `in_any_order` like
    /// [`for_each_in_any_order`](Self::for_each_in_any_order), also in a damaged database: passes
    /// the error of each part that cannot be read to `report`, and goes on after it. Fails if it
    /// cannot go on.
    pub fn for_each_readable(
        &self,
        in_any_order: bool,
        visit: impl FnMut(RecordRef<'_>) -> ControlFlow<()>,
        report: &mut dyn FnMut(Error),
    ) -> Result<()> {
        self.enter()?;
        let mut scan = self.engine.full_scan(Wanted::Records, !in_any_order)?;
        let step = |take: &mut Visit<'_>| {
            self.enter()?;
            deadline::check()?;
            self.call(|| step_past_damage(&mut *scan, take, report))
        };
        step_until_break(step, visit)
    }

    fn each_of(
        &self,
        mut cursor: SteppedScan<'_>,
        visit: impl FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        step_until_break(|take| cursor.step(take), visit)
    }

    pub(super) fn begin_scan(&self, wanted: Wanted) -> Result<SteppedScan<'_>> {
        self.enter()?;
        Ok(SteppedScan { database: self, scan: self.engine.full_scan(wanted, true)? })
    }

    /// Returns at most `max` keys that begin with `prefix`, or all of them for `None`.
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

    /// Calls `visit` with each key that begins with `prefix` until it breaks.
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
        let order = self.order();
        let mut keys = KeysWithPrefix {
            prefix,
            previous: order.is_some().then_some(None),
            is_past: false,
            flow: ControlFlow::Continue(()),
            visit,
        };
        // In other orders, the keys with a prefix are not contiguous.
        if order != Some(KeyOrder::Lexical) {
            let mut scan = self.engine.full_scan(Wanted::Keys, true)?;
            while keys.flow.is_continue() && scan.step_keys(&mut |key| keys.take(key))? {
                deadline::check()?;
            }
            return Ok(());
        }
        let mut position = self.engine.scan_cursor_of(prefix);
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

    /// Returns the keys and values of at most `max` records (all for `None`) whose key matches a
    /// POSIX extended regular expression. A leading `*` ignores case.
    pub fn find(&self, pattern: &[u8], max: Option<usize>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let max = max.unwrap_or(usize::MAX);
        let mut found = Vec::new();
        let mut take = |entry: RecordRef<'_>| {
            if found.len() < max {
                found.push((entry.key.to_vec(), entry.value.to_vec()));
            }
            if found.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        self.for_each_match(pattern, &mut take)?;
        Ok(found)
    }

    /// Calls `visit` with each record whose key matches a POSIX extended regular expression, until
    /// it breaks. A leading `*` ignores case.
    pub fn for_each_match(
        &self,
        pattern: &[u8],
        mut visit: impl FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let pattern = crate::base::pattern::compile(pattern)?;
        self.for_each(|entry| {
            if pattern.is_match(entry.key) { visit(entry) } else { ControlFlow::Continue(()) }
        })
    }

    /// Calls `visit` with some records from a position on. Returns the position after them, or
    /// `None` at the end. See [`Engine::scan`](crate::Engine::scan).
    pub fn scan(
        &self,
        from: &ScanCursor,
        mut visit: impl FnMut(RecordRef<'_>),
    ) -> Result<Option<ScanCursor>> {
        self.enter()?;
        self.call(|| self.engine.scan_records(from, &mut visit))
    }

    /// Like [`scan`](Self::scan), with keys only.
    pub fn scan_keys(
        &self,
        from: &ScanCursor,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<Option<ScanCursor>> {
        self.enter()?;
        self.call(|| self.engine.scan_keys(from, &mut visit))
    }

    /// Returns the position of a scan that begins at `key`.
    pub fn scan_cursor_of(&self, key: &[u8]) -> ScanCursor {
        self.engine.scan_cursor_of(key)
    }
}
