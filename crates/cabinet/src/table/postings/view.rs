//! View: the current postings, read from blocks and from the changes that are not in blocks yet.

use super::block::Reader;
use super::changes::{Changes, Merged};
use super::physical;
use crate::base::deadline;
use crate::table::cursor::{KeyRange, Step};
use crate::table::keys;
use crate::{Engine, Error, Result, ScanCursor, Seek, Wait};
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of changes of one run in a step, so that steps stay short.
const CHANGES_MAX: usize = 256;

/// View of a table's engine for a query.
#[derive(Clone, Copy)]
pub(in crate::table) struct View<'a> {
    pub(in crate::table) engine: &'a dyn Engine,
    /// Changes of postings, oldest run first. `None` for a raw view, which only has the records of
    /// the engine.
    runs: Option<&'a [Arc<Changes>]>,
}

/// Range of keys of a step: from the first on and before the second.
type Window<'w> = (&'w [u8], &'w [u8]);

impl<'a> View<'a> {
    pub(in crate::table) fn new(engine: &'a dyn Engine, runs: &'a [Arc<Changes>]) -> Self {
        Self { engine, runs: Some(runs) }
    }

    /// Returns a raw view: the records of the engine, without postings in memory.
    pub(in crate::table) fn raw(engine: &'a dyn Engine) -> Self {
        Self { engine, runs: None }
    }

    /// Returns whether the keys from this one on are postings, which [`View::step`] reads.
    pub(in crate::table) fn has_postings_at(&self, key: &[u8]) -> bool {
        self.runs.is_some() && key.first() == Some(&keys::POSTINGS)
    }

    /// Fails if the query has exceeded its deadline. The table's own scans have none.
    pub(in crate::table) fn check_deadline(&self) -> Result<()> {
        if self.runs.is_some() { deadline::check() } else { Ok(()) }
    }

    /// Adds the next few postings of a range to a step. Returns the key from which the next step
    /// begins; `None` at the end.
    pub(in crate::table) fn step(
        &self,
        from: &[u8],
        range: &KeyRange,
        step: &mut Step,
    ) -> Result<Option<Vec<u8>>> {
        let Some(index) = keys::index_of(from) else { return Ok(None) };
        let mut result = None;
        let mut take = |name: &[u8], block: &[u8]| {
            if let Some(last) = physical::last(index, name) {
                result = Some(self.step_block(from, range, index, last, block, step));
            }
        };
        first_at_or_after(self.engine, &physical::name(index, from), &mut take)?;
        match result {
            Some(result) => result,
            // After the last block, there are only changes.
            None => self.step_block(from, range, index, None, &[], step),
        }
    }

    /// Like `step`, for a block whose last possible key is `last`.
    fn step_block(
        &self,
        from: &[u8],
        range: &KeyRange,
        index: &[u8],
        last: Option<Vec<u8>>,
        block: &[u8],
        step: &mut Step,
    ) -> Result<Option<Vec<u8>>> {
        // The least key after the last one.
        let mut next = last.map(|last| [&last, &[0][..]].concat());
        next = next.filter(|next| range.is_before_end(next));
        let mut slices = self.slices((from, next.as_deref().unwrap_or(&range.end)));
        let many = slices.iter().filter(|(_, slice)| slice.len() > CHANGES_MAX);
        if let Some(limit) = many.map(|(run, slice)| run.key_at(slice.start + CHANGES_MAX)).min() {
            for (run, slice) in &mut slices {
                slice.end = slice.end.min(run.lower_bound(limit));
            }
            next = Some(limit.to_vec());
        }
        let end = next.as_deref().unwrap_or(&range.end);
        self.weave(Reader::new(block, index), (from, end), slices, step)?;
        Ok(next)
    }

    /// Adds the last few postings of a range before `end` to a step. Returns the end of the next
    /// step; `None` at the beginning of the range, or if the engine is not ordered.
    pub(in crate::table) fn step_back(
        &self,
        end: &[u8],
        range: &KeyRange,
        step: &mut Step,
    ) -> Result<Option<Vec<u8>>> {
        let (Some(index), Some(ordered)) = (keys::index_of(&range.start), self.engine.as_ordered())
        else {
            return Ok(None);
        };
        // The greatest key before one that ends with a NUL is the same key without the NUL.
        let mut name = physical::name(index, end.strip_suffix(&[0]).unwrap_or(end));
        let mut block = Vec::new();
        ordered.seek(Seek::AtOrAfter(&name.clone()), Wait::Block, &mut |posting, _| {
            if posting.key.starts_with(index) {
                posting.key.clone_into(&mut name);
                posting.value.clone_into(&mut block);
            }
        })?;
        let mut before = None;
        ordered.seek(Seek::Before(&name, 0), Wait::Block, &mut |posting, _| {
            before = physical::last(index, posting.key).flatten();
        })?;
        // The least key after those of the previous block.
        let start = before.map(|before| [&before, &[0][..]].concat());
        let mut start = start.filter(|start| *start > range.start);
        let mut slices = self.slices((start.as_deref().unwrap_or(&range.start), end));
        let many = slices.iter().filter(|(_, slice)| slice.len() > CHANGES_MAX);
        if let Some(limit) = many.map(|(run, slice)| run.key_at(slice.end - CHANGES_MAX)).max() {
            for (run, slice) in &mut slices {
                slice.start = slice.start.max(run.lower_bound(limit));
            }
            start = Some(limit.to_vec());
        }
        let first = start.as_deref().unwrap_or(&range.start);
        self.weave(Reader::new(&block, index), (first, end), slices, step)?;
        Ok(start)
    }

    /// Returns the parts of the runs within a window that are not empty.
    fn slices(&self, (start, end): Window<'_>) -> Vec<(&'a Changes, Range<usize>)> {
        let slice = |run: &'a Arc<Changes>| {
            let stop = if end.is_empty() { run.len() } else { run.lower_bound(end) };
            (&**run, run.lower_bound(start).min(stop)..stop)
        };
        let all = self.runs.unwrap_or_default().iter().map(slice);
        all.filter(|(_, slice)| !slice.is_empty()).collect()
    }

    /// Adds the postings of a block that are in the window to a step, merged with the changes.
    fn weave(
        &self,
        mut block: Reader<'_>,
        (start, end): Window<'_>,
        slices: Vec<(&Changes, Range<usize>)>,
        step: &mut Step,
    ) -> Result<()> {
        let mut changes = Merged::new(slices);
        let mut change = changes.next();
        let mut is_begun = false;
        while let Some((key, value)) = block.next() {
            if !is_begun && key < start {
                continue;
            }
            is_begun = true;
            if !end.is_empty() && key >= end {
                break;
            }
            if change.is_none() {
                step.push(key, value);
                continue;
            }
            while let Some((changed, value)) = change.filter(|(changed, _)| *changed < key) {
                step.push_some(changed, value);
                change = changes.next();
            }
            match change {
                Some((changed, value)) if changed == key => {
                    step.push_some(changed, value);
                    change = changes.next();
                }
                _ => step.push(key, value),
            }
        }
        if block.is_damaged() {
            return Err(damaged(self.engine));
        }
        while let Some((changed, value)) = change {
            step.push_some(changed, value);
            change = changes.next();
        }
        Ok(())
    }

    /// Returns the value of a posting; `None` if there is no such posting.
    pub(in crate::table) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let range = KeyRange { start: key.to_vec(), end: [key, &[0]].concat() };
        let mut step = Step::default();
        self.step(key, &range, &mut step)?;
        Ok(step.get(0).map(|(_, value)| value.to_vec()))
    }
}

/// Calls `visit` with the first record at or after a key, if there is one.
pub(super) fn first_at_or_after(
    engine: &dyn Engine,
    key: &[u8],
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<()> {
    if let Some(ordered) = engine.as_ordered() {
        let seek = Seek::AtOrAfter(key);
        return ordered
            .seek(seek, Wait::Block, &mut |posting, _| visit(posting.key, posting.value))
            .map(|_| ());
    }
    let mut next = Some(ScanCursor::Key(key.to_vec()));
    let mut is_found = false;
    while !is_found && let Some(position) = next {
        next = engine.scan_records(&position, &mut |posting| {
            if !is_found {
                is_found = true;
                visit(posting.key, posting.value);
            }
        })?;
    }
    Ok(())
}

pub(super) fn damaged(engine: &dyn Engine) -> Error {
    let what = "in the table: a block of postings does not parse".into();
    Error::Corrupted { file: engine.medium().path(), offset: 0, what }
}
