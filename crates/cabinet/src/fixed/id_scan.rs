//! Scans of ids in ascending order, and the edges of the id range.

use super::interval::Interval;
use super::page_index::{first_of, page_of, shard_of};
use super::{FixedDatabase, FixedIndex, Key};
use crate::base::{deadline, reentry};
use crate::keyed::Stretch;
use crate::{Numbered, RecordRef, Result, ScanCursor, Wait};
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::atomic::Ordering;

/// Approximate number of records that one step of a scan visits.
const SCAN_STEP: usize = 256;

impl FixedDatabase {
    /// Returns the least id at or after `from`.
    fn next_id(&self, mut from: u64, wait: Wait) -> Result<Option<u64>> {
        let directory = &self.engine.index.directory;
        while let Some(page) = directory.at_or_after(page_of(from)) {
            let table = self.engine.table_for(shard_of(page), wait)?;
            if let Some(id) = table.next_of(page, from) {
                return Ok(Some(id));
            }
            from = first_of(page + 1);
        }
        Ok(None)
    }

    /// Returns the greatest id at or before `from`.
    fn previous_id(&self, from: u64, wait: Wait) -> Result<Option<u64>> {
        let directory = &self.engine.index.directory;
        let mut upto = page_of(from);
        while let Some(page) = directory.at_or_before(upto) {
            let table = self.engine.table_for(shard_of(page), wait)?;
            let ids = table.entries_of(page).into_iter().map(|(id, _)| id);
            if let Some(id) = ids.rev().find(|id| *id <= from) {
                return Ok(Some(id));
            }
            let Some(before) = page.checked_sub(1) else { break };
            upto = before;
        }
        Ok(None)
    }

    /// Returns the id at an edge, expired or not. Returns `None` in a callback of this database,
    /// which may run under the lock of the edge's shard.
    pub(super) fn edge(&self, edge: Key, wait: Wait) -> Result<Option<u64>> {
        if reentry::is_within(reentry::engine_id_of(self)) {
            return Ok(None);
        }
        match edge {
            Key::Min => self.next_id(1, wait),
            _ => self.previous_id(u64::MAX, wait),
        }
    }

    /// Like `edge`, but waits for locks.
    fn edge_at_last(&self, edge: Key) -> Option<u64> {
        self.edge(edge, Wait::Block).unwrap_or(None)
    }

    /// Returns the next id inward from an edge.
    pub(super) fn inward(&self, edge: Key, id: u64, wait: Wait) -> Result<Option<u64>> {
        match edge {
            Key::Min => self.next_id(id + 1, wait),
            _ => self.previous_id(id - 1, wait),
        }
    }

    /// Returns the id beyond an edge; 0 if there is none.
    pub(super) fn beyond(&self, beyond: Key, wait: Wait) -> Result<u64> {
        Ok(match beyond {
            Key::Prev => self.edge(Key::Min, wait)?.unwrap_or(0).saturating_sub(1),
            _ => self.edge(Key::Max, wait)?.unwrap_or(0) + 1,
        })
    }

    /// Does one step of a scan: visits as many pages as have some records. Returns the next cursor.
    pub(super) fn some_stretches(
        &self,
        from: &ScanCursor,
        mut visit: impl FnMut(&Stretch<FixedIndex>) -> Result<()>,
    ) -> Result<Option<ScanCursor>> {
        let mut from = match from {
            ScanCursor::Start => 1,
            ScanCursor::Id(id) => *id,
            other => return Err(other.foreign()),
        };
        let mut records = 0;
        while records < SCAN_STEP {
            let Some((stretch, next)) = self.step(from, u64::MAX) else { return Ok(None) };
            visit(&stretch)?;
            records += stretch.entries.len();
            from = next;
        }
        Ok(Some(ScanCursor::Id(from)))
    }

    /// Returns the records of one page from an id on, up to another, and the next id.
    pub(super) fn step(&self, mut from: u64, upto: u64) -> Option<(Stretch<FixedIndex>, u64)> {
        let directory = &self.engine.index.directory;
        while let Some(page) = directory.at_or_after(page_of(from))
            && first_of(page) <= upto
        {
            let shard = shard_of(page);
            let table = self.engine.table(shard);
            let entries = table.entries_of(page).into_iter();
            let entries: Vec<_> = entries.filter(|(id, _)| (from..=upto).contains(id)).collect();
            let next = first_of(page + 1);
            if !entries.is_empty() {
                let segments = self.engine.log.segments();
                return Some((Stretch { shard, entries, segments }, next));
            }
            from = next;
        }
        None
    }

    /// Visits the records with these ids page by page, until `visit` breaks the flow.
    fn each_stretch(
        &self,
        ids: RangeInclusive<u64>,
        mut visit: impl FnMut(&Stretch<FixedIndex>, &mut ControlFlow<()>) -> Result<()>,
    ) -> Result<()> {
        let mut from = *ids.start();
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue()
            && let Some((stretch, next)) = self.step(from, *ids.end())
        {
            deadline::check()?;
            visit(&stretch, &mut flow)?;
            from = next;
        }
        Ok(())
    }

    /// Returns the id of an end of an interval; 0 if there is none.
    fn end(&self, key: Key) -> u64 {
        match key {
            Key::Id(id) => id,
            edge @ (Key::Min | Key::Max) => self.edge_at_last(edge).unwrap_or(0),
            beyond => self.beyond(beyond, Wait::Block).unwrap_or(0),
        }
    }
}

impl Numbered for FixedDatabase {
    fn width(&self) -> u64 {
        self.width.load(Ordering::Relaxed)
    }

    fn id_max(&self) -> u64 {
        self.id_max.load(Ordering::Relaxed)
    }

    fn min(&self) -> Option<u64> {
        self.edge_at_last(Key::Min)
    }

    fn max(&self) -> Option<u64> {
        self.edge_at_last(Key::Max)
    }

    fn id(&self, key: &[u8]) -> Option<u64> {
        match Key::parse(key) {
            Key::Id(id) => self.check(id, key).ok(),
            Key::Prev | Key::Next => None,
            edge => self.edge_at_last(edge),
        }
    }

    fn interval(&self, text: &[u8]) -> Option<RangeInclusive<u64>> {
        let interval = Interval::parse(text)?;
        Some(interval.ids(self.end(interval.from.key), self.end(interval.to.key)))
    }

    fn for_each_in(
        &self,
        ids: RangeInclusive<u64>,
        visit: &mut dyn FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let engine_id = reentry::engine_id_of(self);
        reentry::check(engine_id)?;
        self.each_stretch(ids, |stretch, flow| {
            self.engine.visit_entries(stretch, &mut |entry| {
                if flow.is_continue() {
                    *flow = reentry::in_record_callback(engine_id, || visit(entry));
                }
            })
        })
    }

    fn for_each_key_in(
        &self,
        ids: RangeInclusive<u64>,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let engine_id = reentry::engine_id_of(self);
        reentry::check(engine_id)?;
        self.each_stretch(ids, |stretch, flow| {
            self.engine.visit_keys(stretch, &mut |key| {
                if flow.is_continue() {
                    *flow = reentry::in_record_callback(engine_id, || visit(key));
                }
            })
        })
    }
}
