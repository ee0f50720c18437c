//! Cursors: read a range of keys of the engine in bounded steps.

use super::postings::View;
use crate::base::deadline;
use crate::{Batch, Engine, Error, Ordered, Result, ScanCursor, Seek, Wait};

/// Maximum number of records that are removed in one batch.
const REMOVED_MAX: usize = 1024;

/// A range of keys, from `start` on and before `end`. An empty end is no bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRange {
    pub(super) start: Vec<u8>,
    pub(super) end: Vec<u8>,
}

impl KeyRange {
    /// Returns the range of all keys that begin with `prefix`.
    pub(super) fn of_prefix(prefix: Vec<u8>) -> Self {
        Self { end: super::keys::end_of_prefix(&prefix), start: prefix }
    }

    pub(super) fn is_before_end(&self, key: &[u8]) -> bool {
        self.end.is_empty() || key < &self.end[..]
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.is_before_end(key)
    }
}

/// Records of one step, concatenated.
#[derive(Default)]
pub(super) struct Step {
    bytes: Vec<u8>,
    /// For each record, the offsets in `bytes` of its key, its value and its end.
    records: Vec<(usize, usize, usize)>,
}

impl Step {
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.records.push((start, start + key.len(), self.bytes.len()));
    }

    /// Like `push`, if there is a value.
    pub(super) fn push_some(&mut self, key: &[u8], value: Option<&[u8]>) {
        if let Some(value) = value {
            self.push(key, value);
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let &(key, value, end) = self.records.get(index)?;
        Some((&self.bytes[key..value], &self.bytes[value..end]))
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }
}

/// Reads the records of a range in the order of their keys. Copies the records of one step at a
/// time, so that the caller may change the database in between.
pub(super) struct Cursor<'a> {
    view: View<'a>,
    range: KeyRange,
    /// Whether values are not read.
    keys_only: bool,
    step: Step,
    /// Index of the next record in the step.
    at: usize,
    /// Scan cursor of the next step; `None` after the last one.
    next: Option<ScanCursor>,
    /// Number of records to seek one by one before the next step reads many.
    singles: u32,
    /// Number of sought keys that were within the step.
    found_in_step: u32,
    /// Number of sought keys that were after the step.
    jumps: u32,
}

/// Number of records that are sought one by one at first. Often there is only one.
const SINGLES_AT_FIRST: u32 = 2;

/// Number of records up to which seeking one by one costs less than reading a leaf.
const FEW: u32 = 16;

/// One in this number of jumps reads many records, to find out whether the next sought keys are
/// among them.
const JUMPS_PER_STEP: u32 = 16;

impl<'a> Cursor<'a> {
    pub(super) fn new(view: View<'a>, range: KeyRange) -> Self {
        let next = Some(ScanCursor::Key(range.start.clone()));
        Self {
            view,
            range,
            keys_only: false,
            step: Step::default(),
            at: 0,
            next,
            singles: SINGLES_AT_FIRST,
            found_in_step: 0,
            jumps: 0,
        }
    }

    /// Returns a cursor that does not read values: all but postings have empty ones.
    pub(super) fn of_keys(view: View<'a>, range: KeyRange) -> Self {
        Self { keys_only: true, ..Self::new(view, range) }
    }

    /// Tunes the cursor for a caller that probably stops after `records` records.
    pub(super) fn for_few(mut self, records: u64) -> Self {
        self.singles = u32::try_from(records).unwrap_or(u32::MAX).clamp(SINGLES_AT_FIRST, FEW);
        self
    }

    /// Returns the key and the value of the next record; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.fill()?;
        let at = self.at;
        self.at += 1;
        Ok(self.step.get(at))
    }

    /// Returns the first remaining record at or after `key`; `None` if there is none. The record
    /// stays the next one.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<Option<(&[u8], &[u8])>> {
        let is_in_step = self.step.records.last().is_some_and(|&(start, end, _)| {
            self.at < self.step.records.len() && &self.step.bytes[start..end] >= key
        });
        let is_next = self.step.get(self.at).is_some_and(|(next, _)| next >= key);
        if is_next {
            self.found_in_step += 1;
        } else if is_in_step {
            let ahead = self.step.records[self.at..]
                .partition_point(|&(start, end, _)| &self.step.bytes[start..end] < key);
            self.at += ahead;
            self.found_in_step += 1;
        } else {
            self.at = self.step.records.len();
            if let Some(ScanCursor::Key(next)) = &mut self.next
                && &next[..] < key
            {
                key.clone_into(next);
                self.jumps += 1;
                let are_near = self.found_in_step > 1 || self.jumps.is_multiple_of(JUMPS_PER_STEP);
                self.singles = u32::from(!are_near);
            }
        }
        self.fill()?;
        Ok(self.step.get(self.at))
    }

    fn fill(&mut self) -> Result<()> {
        while self.at >= self.step.records.len() {
            let Some(position) = self.next.take() else { break };
            self.step.clear();
            self.at = 0;
            self.found_in_step = 0;
            match (&position, self.view.engine.as_ordered()) {
                (ScanCursor::Key(key), _) if self.view.has_postings_at(key) => {
                    deadline::check()?;
                    let next = self.view.step(key, &self.range, &mut self.step)?;
                    self.next = next.map(ScanCursor::Key);
                }
                (ScanCursor::Key(key), Some(engine)) if self.singles > 0 => {
                    self.view.check_deadline()?;
                    self.singles -= 1;
                    self.fill_one(engine, key)?;
                }
                _ => {
                    self.view.check_deadline()?;
                    self.fill_many(&position)?;
                }
            }
        }
        Ok(())
    }

    fn fill_one(&mut self, engine: &dyn Ordered, from: &[u8]) -> Result<()> {
        let (range, step, keys_only) = (&self.range, &mut self.step, self.keys_only);
        engine.seek(Seek::AtOrAfter(from), Wait::Block, &mut |entry, _| {
            if range.is_before_end(entry.key) {
                step.push(entry.key, if keys_only { b"" } else { entry.value });
            }
        })?;
        // The least key after the record's.
        self.next = step.get(0).map(|(key, _)| ScanCursor::Key([key, &[0]].concat()));
        Ok(())
    }

    fn fill_many(&mut self, position: &ScanCursor) -> Result<()> {
        let mut is_past = false;
        let (range, step) = (&self.range, &mut self.step);
        let mut take = |key: &[u8], value: &[u8]| {
            is_past = is_past || !range.is_before_end(key);
            if !is_past {
                step.push(key, value);
            }
        };
        let next = if self.keys_only {
            self.view.engine.scan_keys(position, &mut |key| take(key, b""))?
        } else {
            self.view.engine.scan_records(position, &mut |entry| take(entry.key, entry.value))?
        };
        self.next = match next {
            Some(ScanCursor::Key(key)) if !is_past && self.range.is_before_end(&key) => {
                Some(ScanCursor::Key(key))
            }
            Some(ScanCursor::Key(_)) | None => None,
            Some(_) => return Err(not_in_order()),
        };
        Ok(())
    }
}

/// Counts the records of a range, and stops soon after `max`.
pub(super) fn count_up_to(view: View<'_>, range: &KeyRange, max: u64) -> Result<u64> {
    let mut count = 0;
    if view.has_postings_at(&range.start) {
        let mut next = Some(range.start.clone());
        let mut step = Step::default();
        while count < max
            && let Some(from) = next
        {
            step.clear();
            next = view.step(&from, range, &mut step)?;
            count += step.len() as u64;
        }
        return Ok(count);
    }
    let mut next = Some(ScanCursor::Key(range.start.clone()));
    while count < max
        && let Some(position) = next
    {
        let mut is_past = false;
        next = view.engine.scan_keys(&position, &mut |key| {
            is_past = is_past || !range.is_before_end(key);
            count += u64::from(!is_past);
        })?;
        if is_past {
            break;
        }
    }
    Ok(count)
}

/// Reads the keys of a range in descending order. The engine must be ordered.
pub(super) struct BackCursor<'a> {
    view: View<'a>,
    range: KeyRange,
    step: Step,
    /// Number of records of the step that are left.
    left: usize,
    /// Key before which the next step ends; `None` after the last step. Empty is no bound.
    end: Option<Vec<u8>>,
}

impl<'a> BackCursor<'a> {
    pub(super) fn new(view: View<'a>, range: KeyRange) -> Self {
        let end = Some(range.end.clone());
        Self { view, range, step: Step::default(), left: 0, end }
    }

    /// Returns the key of the next record; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        while self.left == 0 {
            let Some(end) = self.end.take() else { return Ok(None) };
            self.step.clear();
            if self.view.has_postings_at(&self.range.start) {
                deadline::check()?;
                self.end = self.view.step_back(&end, &self.range, &mut self.step)?;
            } else {
                self.view.check_deadline()?;
                self.fill_one(&end)?;
            }
            self.left = self.step.len();
        }
        self.left -= 1;
        Ok(self.step.get(self.left).map(|(key, _)| key))
    }

    fn fill_one(&mut self, end: &[u8]) -> Result<()> {
        let seek = if end.is_empty() { Seek::Last } else { Seek::Before(end, 0) };
        let engine = self.view.engine.as_ordered().ok_or_else(not_in_order)?;
        let (range, step) = (&self.range, &mut self.step);
        engine.seek(seek, Wait::Block, &mut |entry, _| {
            if range.contains(entry.key) {
                step.push(entry.key, b"");
            }
        })?;
        self.end = self.step.get(0).map(|(key, _)| key.to_vec());
        Ok(())
    }
}

fn not_in_order() -> Error {
    Error::Internal("a table over an engine without an order of keys".into())
}

/// Removes all records of the engine with these keys.
pub(super) fn remove_range(engine: &dyn Engine, range: KeyRange) -> Result<()> {
    let mut cursor = Cursor::of_keys(View::raw(engine), range);
    loop {
        let mut batch = Batch::new();
        while batch.changes().len() < REMOVED_MAX
            && let Some((key, _)) = cursor.next()?
        {
            batch.remove(key);
        }
        if batch.is_empty() {
            return Ok(());
        }
        engine.write(&batch, Wait::Block)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, MemoryTree, Meta, Options, Wait};

    fn engine() -> MemoryTree {
        let engine = MemoryTree::new(&Options::default());
        for number in 0..1000u32 {
            engine.put(&(number * 2).to_be_bytes(), b"v", Meta::NONE, Wait::Block).unwrap();
        }
        engine
    }

    fn range(start: u32, end: u32) -> KeyRange {
        KeyRange { start: start.to_be_bytes().to_vec(), end: end.to_be_bytes().to_vec() }
    }

    #[test]
    fn a_cursor_reads_the_records_of_its_range_and_no_others() {
        let engine = engine();
        let mut cursor = Cursor::new(View::raw(&engine), range(100, 1001));
        let mut met = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            assert_eq!(value, b"v");
            met.push(u32::from_be_bytes(key.try_into().unwrap()));
        }
        assert_eq!(met, (50..=500).map(|number| number * 2).collect::<Vec<_>>());
        assert_eq!(count_up_to(View::raw(&engine), &range(100, 1001), u64::MAX).unwrap(), 451);
        assert!(count_up_to(View::raw(&engine), &range(0, 2000), 10).unwrap() < 200);
    }

    #[test]
    fn seeking_never_moves_backward() {
        let engine = engine();
        let mut cursor = Cursor::of_keys(View::raw(&engine), range(0, 1500));
        for (sought, found) in [
            (3, Some(4)),
            (4, Some(4)),
            (900, Some(900)),
            (7, Some(900)),
            (901, Some(902)),
            (1499, None),
            (5, None),
        ] {
            let at = cursor.seek(&u32::to_be_bytes(sought)).unwrap();
            let at = at.map(|(key, _)| u32::from_be_bytes(key.try_into().unwrap()));
            assert_eq!(at, found, "{sought}");
        }
    }
}
