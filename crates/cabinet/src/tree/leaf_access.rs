//! Leaf access: reads the page of a leaf in place, or changes it in memory.
//!
//! The directory's lock is released before the leaf is locked, so the leaf's bounds may change in
//! between. Then its generation changes, too, and the directory is searched again.

use super::TreeEngine;
use super::directory::Directory;
use super::leaf::{Content, GONE, Handle, Home, Leaf, Loaded, State, StoredPage};
use super::page::{Page, View};
use super::redo::Operation;
use crate::base::{compress, locks};
use crate::limits::VALUE_BYTES_MAX;
use crate::log::record::{Kind, Record};
use crate::log::{
    Check, LARGE_CHANGE_BYTES, Location, Purpose, Segments, with_record, with_record_of,
};
use crate::{Compression, Error, Meta, Result, Version, Wait};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Divisor of the maximum leaf size: bytes of changed pages are rounded up to about that step.
const UNWRITTEN_STEPS: usize = 8;

/// Maximum number of leaves that one call considers for eviction.
const EVICTION_LOOKS_MAX: usize = 64;

impl TreeEngine {
    /// Calls `visit` with the page of the leaf that `locate` returns, and with the bounds that it
    /// returns. The directory does not change these bounds until `visit` returns. The leaf counts
    /// as read if `is_read` returns true for the result.
    #[inline]
    pub(super) fn look<B, T>(
        &self,
        wait: Wait,
        locate: impl Fn(&Directory<Handle>) -> (Handle, B),
        visit: impl FnMut(View<'_>, &B) -> T,
        is_read: impl Fn(&T) -> bool,
    ) -> Result<T> {
        self.look_as::<B, T, true>(wait, locate, visit, is_read)
    }

    /// Like `look`, for walks through many leaves: the page is not kept in memory, and the leaf
    /// counts neither as used nor as read.
    pub(super) fn look_in_passing<B, T>(
        &self,
        wait: Wait,
        locate: impl Fn(&Directory<Handle>) -> (Handle, B),
        visit: impl FnMut(View<'_>, &B) -> T,
    ) -> Result<T> {
        self.look_as::<B, T, false>(wait, locate, visit, |_| false)
    }

    #[inline]
    fn look_as<B, T, const KEEPS: bool>(
        &self,
        wait: Wait,
        locate: impl Fn(&Directory<Handle>) -> (Handle, B),
        mut visit: impl FnMut(View<'_>, &B) -> T,
        is_read: impl Fn(&T) -> bool,
    ) -> Result<T> {
        let note = |state: &State, result: T| {
            if is_read(&result) {
                state.note_read();
            }
            Ok(result)
        };
        let mut fetched: Option<(Home, Page)> = None;
        loop {
            let (handle, bounds) = locate(&self.directory.read());
            let state = locks::read(&handle.leaf, wait)?;
            if state.generation != handle.generation {
                continue;
            }
            let home = match &state.content {
                Content::Loaded(loaded) => {
                    if KEEPS {
                        state.note_access();
                    }
                    return note(&state, visit(loaded.page.view(), &bounds));
                }
                Content::Stored { home, .. } => *home,
            };
            if !KEEPS && let Some((_, page)) = fetched.take_if(|(of, _)| *of == home) {
                return note(&state, visit(page.view(), &bounds));
            }
            let segments = self.log.segments();
            let mut visit_view = |view: View<'_>| visit(view, &bounds);
            if let Some(result) = self.visit_in_place(&segments, &state, home, &mut visit_view)? {
                return note(&state, result);
            }
            let page = StoredPage::of(&state, home);
            drop(state);
            match fetched.take() {
                Some((of, page)) if of == home => {
                    let mut state = locks::write(&handle.leaf, wait)?;
                    if state.generation == handle.generation
                        && let Some(loaded) = self.install(&handle.leaf, &mut state, home, page)
                    {
                        let result = visit(loaded.page.view(), &bounds);
                        let result = note(&state, result);
                        drop(state);
                        self.evict_for(wait);
                        return result;
                    }
                }
                _ => fetched = Some((home, self.fetch(&segments, page, wait)?)),
            }
        }
    }

    /// Calls `act` with the leaf of a key, locked and with its page in memory.
    pub(super) fn change<T>(
        &self,
        key: &[u8],
        wait: Wait,
        act: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        let mut fetched = None;
        loop {
            let handle = self.handle_of(key);
            let mut state = locks::write(&handle.leaf, wait)?;
            if state.generation != handle.generation {
                continue;
            }
            if let Some(home) = stored_home(&state) {
                let page = match fetched.take() {
                    Some((of, page)) if of == home => page,
                    _ => {
                        let segments = self.log.segments();
                        let page = StoredPage::of(&state, home);
                        match self.fetch(&segments, page, Wait::Never) {
                            // Read without the lock, so that other threads do not wait for the
                            // disk.
                            Err(Error::WouldBlock) if wait == Wait::Block => {
                                drop(state);
                                let page = self.fetch(&segments, page, wait)?;
                                fetched = Some((home, page));
                                continue;
                            }
                            page => page?,
                        }
                    }
                };
                self.install(&handle.leaf, &mut state, home, page);
            }
            state.note_access();
            let result = act(&mut state);
            let is_divided = self.complete_change(&mut state);
            drop(state);
            self.evict_for(wait);
            if is_divided {
                self.enforce_capacity(wait);
            }
            return result;
        }
    }

    #[inline]
    pub(super) fn handle_of(&self, key: &[u8]) -> Handle {
        let directory = self.directory.read();
        directory.leaf(directory.find(key)).clone()
    }

    /// Brings the page of a locked leaf into memory. May wait for the disk.
    pub(super) fn load(&self, leaf: &Arc<Leaf>, state: &mut State) -> Result<()> {
        if let Some(home) = stored_home(state) {
            let page = StoredPage::of(state, home);
            let page = self.fetch(&self.log.segments(), page, Wait::Block)?;
            self.install(leaf, state, home, page);
        }
        Ok(())
    }

    /// Returns the indices of the records with a key in the leaf, which is in memory.
    #[inline]
    pub(super) fn group(&self, state: &mut State, key: &[u8]) -> Range<usize> {
        state.loaded().map_or(0..0, |loaded| loaded.page.view().group(self.order, key))
    }

    /// Logs a change of a leaf that is in memory, then applies it. `group` has the indices of the
    /// records with the key. Returns the version of the change.
    pub(super) fn make(
        &self,
        state: &mut State,
        operation: Operation,
        group: Range<usize>,
        key: &[u8],
        value: &[u8],
        meta: Meta,
    ) -> Result<Version> {
        self.check_cap(state, operation, &group, key, value)?;
        let operation = operation.on(group.len());
        let purpose = if operation.removes() { Purpose::Remove } else { Purpose::Store };
        let appended = operation.encode(value, |bytes| {
            let record = self.log.prepare(Kind::Put, key, bytes, meta, Compression::None);
            self.log.append(record, purpose)
        })?;
        self.apply_at(state, operation, group, key, value, meta, appended.sequence);
        Ok(appended.sequence)
    }

    /// Applies a change that is in the log to a leaf that is in memory.
    pub(super) fn apply(
        &self,
        state: &mut State,
        operation: Operation,
        key: &[u8],
        value: &[u8],
        meta: Meta,
        version: Version,
    ) {
        let group = self.group(state, key);
        self.apply_at(state, operation, group, key, value, meta, version);
    }

    /// Like `apply`, with the indices of the records with the key.
    #[expect(clippy::too_many_arguments, reason = "a change and its destination")]
    fn apply_at(
        &self,
        state: &mut State,
        operation: Operation,
        group: Range<usize>,
        key: &[u8],
        value: &[u8],
        meta: Meta,
        version: Version,
    ) {
        if meta.expires_at_ms != 0 {
            state.expires_at_ms = state.expires_at_ms.min(meta.expires_at_ms);
            self.next_expiry_ms.fetch_min(meta.expires_at_ms, Ordering::Relaxed);
        }
        if !group.is_empty() && !operation.removes() {
            state.note_read();
        }
        let Some(loaded) = state.loaded() else { return };
        self.forget_home(loaded);
        let (grown, at) =
            operation.apply(&mut loaded.page, self.order, group, key, value, meta, version);
        loaded.inserted = at;
        if grown != 0 {
            self.records.fetch_add(grown as u64, Ordering::Relaxed);
        }
    }

    /// Notes that the page changes: its record in the log, if there is one, is dead.
    pub(super) fn forget_home(&self, loaded: &mut Loaded) {
        if let Some(home) = loaded.home.take() {
            self.log.segments().remove_live(home.location, home.total as usize);
        }
    }

    /// Completes a change: divides a leaf that has become too large, and counts its bytes. Returns
    /// whether the leaf was divided.
    pub(super) fn complete_change(&self, state: &mut State) -> bool {
        let expires_at_ms = state.expires_at_ms;
        let mut is_divided = false;
        let Some(loaded) = state.loaded() else { return false };
        if loaded.page.bytes() > self.leaf_bytes {
            let mut pages = Vec::new();
            self.divide(&mut loaded.page, loaded.inserted, &mut pages);
            if !pages.is_empty() {
                self.forget_home(loaded);
                let generation = self.add_leaves(&loaded.page, pages, expires_at_ms);
                state.generation = generation;
                is_divided = true;
            }
        }
        if let Some(loaded) = state.loaded() {
            self.charge(loaded);
        }
        self.count(state);
        is_divided
    }

    /// Counts the bytes of a page in memory, and those that the next checkpoint must write.
    #[inline]
    pub(super) fn charge(&self, loaded: &mut Loaded) {
        let memory_bytes = loaded.memory_bytes();
        self.cache.charge(&mut loaded.charged, memory_bytes);
        // Rounded, so that few changes update the quota. A power of two needs no division.
        let step = (self.leaf_bytes / UNWRITTEN_STEPS).next_power_of_two();
        let rounded = || (loaded.page.bytes() + step - 1) & !(step - 1);
        let bytes = if loaded.home.is_some() { 0 } else { rounded() };
        self.log.space().quota().charge_unwritten(&mut loaded.unwritten, bytes);
    }

    /// Removes the bytes of a page from the counts, because it leaves memory.
    pub(super) fn discharge(&self, loaded: &mut Loaded) {
        self.cache.charge(&mut loaded.charged, 0);
        self.log.space().quota().charge_unwritten(&mut loaded.unwritten, 0);
    }

    /// Divides a page until its parts are small enough or have one key. Adds the parts after the
    /// first to `pages`, in order.
    fn divide(&self, page: &mut Page, inserted: usize, pages: &mut Vec<Page>) {
        if page.bytes() <= self.leaf_bytes {
            return;
        }
        let Some(point) = page.view().split_point(self.order, inserted) else { return };
        let mut right = page.split_off(self.order, point);
        self.divide(page, 0, pages);
        let own = pages.len();
        self.divide(&mut right, 0, pages);
        pages.insert(own, right);
    }

    /// Makes leaves of the pages after `left`, whose leaf is locked. Returns the new generation of
    /// that leaf.
    fn add_leaves(&self, left: &Page, pages: Vec<Page>, expires_at_ms: u64) -> u32 {
        let mut last = left.view().key(left.len() - 1).to_vec();
        let mut places = Vec::with_capacity(pages.len());
        for page in pages {
            let lower: Box<[u8]> = self.order.separator(&last, page.view().key(0)).into();
            last = page.view().key(page.len() - 1).to_vec();
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let mut state = State::fresh(id, page, expires_at_ms);
            self.note_oldest(&mut state);
            if let Some(loaded) = state.loaded() {
                self.charge(loaded);
            }
            self.count(&mut state);
            places.push((lower, Handle::new(state)));
        }
        for (_, handle) in &places {
            self.cache.enter(Arc::clone(&handle.leaf));
        }
        let mut directory = self.directory.write();
        let index = directory.find_before(&places[0].0);
        let handle = directory.leaf_mut(index);
        handle.generation = (handle.generation + 1) % GONE;
        let generation = handle.generation;
        for (lower, handle) in places {
            directory.insert(lower, handle);
        }
        self.cache.note_directory(&directory);
        generation
    }

    /// Writes the page to the log, unless the log has it in its current state. Returns its home.
    pub(super) fn write_out(&self, state: &mut State) -> Result<Home> {
        if let Some(home) = state.home() {
            return Ok(home);
        }
        let id = state.id.to_le_bytes();
        let Some(loaded) = state.loaded() else {
            return Err(Error::Internal("a page is neither in memory nor in the log".into()));
        };
        let bytes = loaded.page.encode();
        let smaller = if bytes.len() <= VALUE_BYTES_MAX {
            compress::compress(&bytes, self.compression)
        } else {
            None
        };
        let (stored, compression) = match &smaller {
            Some(smaller) => (smaller, self.compression),
            None => (&bytes, Compression::None),
        };
        let home = self.store_page(&id, stored, compression)?;
        loaded.home = Some(home);
        self.log.space().quota().charge_unwritten(&mut loaded.unwritten, 0);
        *state.checked.get_mut() = self.period_of(home);
        Ok(home)
    }

    /// Appends a page to the log. Returns its home.
    pub(super) fn store_page(
        &self,
        id: &[u8],
        stored: &[u8],
        compression: Compression,
    ) -> Result<Home> {
        let record = self.log.prepare(Kind::Page, id, stored, Meta::NONE, compression);
        let total = record.total();
        let appended = self.log.append(record, Purpose::Move)?;
        if let Some(segment) = self.log.segments().get(appended.location) {
            segment.add_live(total);
        }
        self.pages_written.fetch_add(1, Ordering::Relaxed);
        self.passed_bytes.fetch_add(total as u64, Ordering::Relaxed);
        Ok(Home { location: appended.location, total: total as u32 })
    }

    /// Evicts pages from memory until they are within their budget. Changed pages are written to
    /// the log.
    pub(super) fn evict(&self) {
        self.evict_for(Wait::Block);
    }

    /// Like `evict`. If the caller must not wait, long pages that would have to be written are left
    /// to other threads.
    #[inline]
    fn evict_for(&self, wait: Wait) {
        if self.cache.is_over() {
            self.evict_some(wait);
        }
    }

    #[inline(never)]
    fn evict_some(&self, wait: Wait) {
        for _ in 0..EVICTION_LOOKS_MAX {
            if !self.cache.is_over() {
                return;
            }
            let Some(leaf) = self.cache.pop() else { return };
            let kept = match leaf.try_write() {
                Some(mut state) => self.evict_one(&mut state, wait),
                None => true,
            };
            if kept {
                self.cache.enter(leaf);
            }
        }
    }

    /// Evicts the page of a leaf, unless it was used, cannot be written, or must not be waited for.
    /// Returns whether the page stays in memory.
    fn evict_one(&self, state: &mut State, wait: Wait) -> bool {
        if state.generation == GONE {
            return false;
        }
        if wait == Wait::Never && state.home().is_none() && state.bytes() >= LARGE_CHANGE_BYTES {
            return true;
        }
        if state.take_access() {
            return true;
        }
        // Pages will change again. The last space on a full disk is not spent on them.
        if state.home().is_none() && self.log.space().is_wanted() && !self.cache.is_far_over() {
            return true;
        }
        let home = match self.write_out(state) {
            Ok(home) => home,
            Err(error) => {
                tracing::debug!("a page stays in memory: {error}");
                return true;
            }
        };
        let (applied, records) = (state.applied(), state.records() as u32);
        let bytes = state.bytes() as u32;
        if let Some(loaded) = state.loaded() {
            self.discharge(loaded);
        }
        state.content = Content::Stored { home, applied, records, bytes };
        self.evictions.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Calls `visit` with a page in the log's mapping, if it is resident there and uncompressed.
    #[inline]
    fn visit_in_place<T>(
        &self,
        segments: &Segments,
        state: &State,
        home: Home,
        visit: &mut impl FnMut(View<'_>) -> T,
    ) -> Result<Option<T>> {
        let location = home.location;
        let Some(segment) =
            segments.get(location).filter(|one| one.resident.load(Ordering::Relaxed))
        else {
            return Ok(None);
        };
        let period = segment.period();
        let is_checked = period != 0 && state.checked.load(Ordering::Relaxed) == period;
        let check = if is_checked { Check::Lengths } else { Check::Whole };
        with_record(segments, location, Wait::Never, check, |record| {
            if record.compression != Compression::None {
                return Ok(None);
            }
            let view = View::decode(record.value)
                .filter(|view| is_checked || is_page(record, state.id) && view.is_sound(self.order))
                .ok_or_else(|| not_a_page(segments, location))?;
            if !is_checked {
                state.checked.store(period, Ordering::Relaxed);
            }
            Ok(Some(visit(view)))
        })?
    }

    /// Returns a verified copy of a leaf's page in the log.
    pub(super) fn fetch(
        &self,
        segments: &Segments,
        wanted: StoredPage,
        wait: Wait,
    ) -> Result<Page> {
        let location = wanted.home.location;
        // The checksum shows whether the page has changed since.
        let was_sound = wanted.checked != 0
            && segments.get(location).is_some_and(|segment| segment.period() == wanted.checked);
        let at = (location, wanted.home.total as usize);
        with_record_of(segments, at, wait, Check::Whole, |record| {
            let bytes;
            let value = match record.compression {
                Compression::None => record.value,
                compression => {
                    bytes = compress::decompress(record.value, compression).map_err(|error| {
                        error.or_damage(|what| corrupted(segments, location, what))
                    })?;
                    &bytes
                }
            };
            self.pages_read.fetch_add(1, Ordering::Relaxed);
            View::decode(value)
                .filter(|view| was_sound || is_page(record, wanted.id) && view.is_sound(self.order))
                .map(Page::copy_of)
                .ok_or_else(|| not_a_page(segments, location))
        })?
    }

    /// Gives a leaf its page from the log. Returns `None` if the leaf has another home or a page in
    /// memory by now.
    pub(super) fn install<'a>(
        &self,
        leaf: &Arc<Leaf>,
        state: &'a mut State,
        home: Home,
        page: Page,
    ) -> Option<&'a mut Loaded> {
        if stored_home(state) != Some(home) {
            return None;
        }
        let mut loaded = Loaded { page, home: Some(home), charged: 0, unwritten: 0, inserted: 0 };
        let memory_bytes = loaded.memory_bytes();
        self.cache.charge(&mut loaded.charged, memory_bytes);
        state.content = Content::Loaded(Box::new(loaded));
        *state.checked.get_mut() = self.period_of(home);
        state.note_access();
        self.cache.enter(Arc::clone(leaf));
        state.loaded()
    }
}

impl TreeEngine {
    /// Returns the period of the segment that a page is in; 0 if there is no such segment.
    fn period_of(&self, home: Home) -> u32 {
        self.log.segments().get(home.location).map_or(0, |segment| segment.period())
    }
}

/// Returns the home of the page, if the page is not in memory.
pub(super) fn stored_home(state: &State) -> Option<Home> {
    match &state.content {
        Content::Stored { home, .. } => Some(*home),
        Content::Loaded(_) => None,
    }
}

/// Returns whether a record is a page of the leaf with this id.
pub(super) fn is_page(record: &Record<'_>, id: u64) -> bool {
    record.kind == Kind::Page && record.key == id.to_le_bytes()
}

pub(super) fn not_a_page(segments: &Segments, location: Location) -> Error {
    corrupted(segments, location, "it is not a page of this tree".into())
}

pub(super) fn corrupted(segments: &Segments, location: Location, what: String) -> Error {
    let offset = location.offset() as u64;
    match segments.get(location) {
        Some(segment) => segment.corrupted(offset, what),
        None => Error::Corrupted { file: PathBuf::new(), offset, what },
    }
}
