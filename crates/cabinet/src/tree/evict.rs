//! Byte cap: evicts records that were neither read nor written lately.
//!
//! The cap bounds the bytes of all pages, before compression. The files exceed it by dead pages and
//! redo, until a checkpoint removes these. Checkpoints are the more frequent the lower the cap is.
//!
//! Eviction is CLOCK: a hand visits the leaves in the order of keys, in rounds. It spares a leaf if
//! one of its records was read or overwritten since the last visit. From other leaves it removes
//! the keys of the older half, with all their duplicates. These are the keys last written before
//! the horizon of the round, the median version of a sample of leaves. If a leaf is known to have
//! only newer keys, its page is not read. One batch of the log removes the keys of a leaf, so
//! replay restores none of them.
//!
//! A writer that finds the tree over its cap evicts before it writes. It evicts a little more than
//! necessary, so that only one write in many waits. A write that would make an event loop wait is
//! refused, and repeated on another thread.
//!
//! The hand's lock is taken before those of leaves.
//!
//! The records of a table depend on each other, so a table enforces the cap of its tree. The hand
//! then visits only the rows, and passes their keys to the table ([`crate::Ordered::evict`]), which
//! removes each row with its postings. In that case the hand's lock is taken before those of the
//! table.
//!
//! If all rounds find too little to evict, for example because leaves are damaged, the hand rests.
//! It continues when the excess has changed by about the bytes that eviction leaves free. So if the
//! tree is far over the cap, writers do not all search it in vain.
//!
//! The redo is bounded, too: if checkpoints cannot keep up, a writer waits for one or writes it.

use super::leaf::{GONE, Handle, State};
use super::redo::Operation;
use super::{TreeEngine, cell, page};
use crate::engine::ordered::Eviction;
use crate::limits::CAPACITY_BYTES_MIN;
use crate::log::Purpose;
use crate::log::record::{Kind, Prepared};
use crate::{Batch, BatchChange, Compression, Error, Meta, Result, Version, Wait};
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Divisor of the cap: the maximum share of a key's records, or of a batch.
const RECORDS_OF_CAP: u64 = 4;

/// Divisor of the cap: the share that eviction leaves free, up to [`FREE_BYTES_MAX`].
const FREE_OF_CAP: u64 = 64;

/// Maximum bytes that eviction leaves free. One write may have to wait until so many are evicted.
const FREE_BYTES_MAX: u64 = 256 << 10;

/// Divisor of the cap: a checkpoint is due at the latest when this share was appended.
const REDO_OF_CAP: u64 = 2;

/// Number of leaves that are sampled for the horizon of a round.
const SAMPLED_LEAVES: usize = 32;

/// Number of rounds that spare leaves which were read.
const SPARING_ROUNDS: u32 = 2;

/// Maximum number of rounds of one eviction.
const ROUNDS_MAX: u32 = 4;

/// Divisor of the cap: if more than this share is evicted at once, a checkpoint frees the space.
const LOWERED_OF_CAP: u64 = 4;

/// See [`Eviction::remove`].
type Remove<'r> = dyn FnMut(&[u8], Version) -> Result<bool> + 'r;

/// A cap on the bytes of all pages, and the current count of these bytes.
pub(super) struct ByteCap {
    /// Cap in bytes; `u64::MAX` if there is none.
    bytes_max: AtomicU64,
    /// Bytes of all pages, counted only if there is a cap.
    bytes: AtomicU64,
    evicted: AtomicU64,
    hand: Mutex<Hand>,
    /// Whether the owner of the tree, a table, evicts.
    is_owned: bool,
}

/// Position of eviction in the tree, and its progress.
#[derive(Default)]
struct Hand {
    /// Lower bound of the next leaf; `None` for the first one.
    at: Option<Vec<u8>>,
    /// Keys whose version is this or later are spared in this round.
    horizon: Version,
    /// Bytes in excess after the last eviction, if it has done all its rounds and some were left.
    left_bytes: Option<u64>,
}

impl ByteCap {
    pub(super) fn none(is_owned: bool) -> Self {
        Self {
            bytes_max: AtomicU64::new(u64::MAX),
            bytes: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            hand: Mutex::default(),
            is_owned,
        }
    }

    #[inline]
    pub(super) fn is_capped(&self) -> bool {
        self.bytes_max.load(Ordering::Relaxed) != u64::MAX
    }

    /// Returns whether the tree itself must evict.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.is_capped() && !self.is_owned && self.bytes() > self.bytes_max.load(Ordering::Relaxed)
    }

    /// Returns the bytes of all pages and their cap, if the owner of the tree enforces it.
    pub(super) fn owned(&self) -> Option<(u64, u64)> {
        (self.is_owned && self.is_capped()).then(|| (self.bytes(), self.limit_bytes()))
    }

    /// Returns the cap in bytes; 0 if there is none.
    pub(super) fn limit_bytes(&self) -> u64 {
        if self.is_capped() { self.bytes_max.load(Ordering::Relaxed) } else { 0 }
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Returns the bytes of all pages if there is a cap, and else 0.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes that eviction must remove.
    fn excess_bytes(&self) -> u64 {
        self.bytes().saturating_sub(bytes_kept(self.bytes_max.load(Ordering::Relaxed)))
    }

    /// Returns the maximum bytes of the records of a key, or of a batch. An owner checks this
    /// itself.
    fn records_bytes_max(&self) -> usize {
        if !self.is_capped() || self.is_owned {
            return usize::MAX;
        }
        records_bytes_max(self.bytes_max.load(Ordering::Relaxed))
    }

    /// Returns the bytes of redo after which a checkpoint is due because of the cap.
    pub(super) fn due_bytes_max(&self) -> u64 {
        if self.is_capped() {
            self.bytes_max.load(Ordering::Relaxed) / REDO_OF_CAP
        } else {
            u64::MAX
        }
    }
}

/// Returns the bytes at which eviction ends.
pub(crate) fn bytes_kept(bytes_max: u64) -> u64 {
    bytes_max - bytes_free(bytes_max)
}

/// Returns the bytes that eviction leaves free.
fn bytes_free(bytes_max: u64) -> u64 {
    (bytes_max / FREE_OF_CAP).min(FREE_BYTES_MAX)
}

/// Returns the maximum bytes of the records of a key, or of a batch.
pub(crate) fn records_bytes_max(bytes_max: u64) -> usize {
    usize::try_from(bytes_max / RECORDS_OF_CAP).unwrap_or(usize::MAX)
}

/// Returns the maximum bytes that a record takes in a page.
fn record_bytes(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + page::PLACE_BYTES + cell::OVERHEAD_BYTES_MAX
}

impl TreeEngine {
    /// Sets the cap, and counts the bytes of all pages. A background thread or the next writer
    /// evicts.
    pub(super) fn set_cap(&self, bytes_max: u64) -> Result<()> {
        let was_capped = self.cap.is_capped();
        self.cap.bytes_max.store(bytes_max.max(CAPACITY_BYTES_MIN), Ordering::Relaxed);
        self.cap.hand.lock().left_bytes = None;
        if !was_capped {
            // Leaves that change meanwhile are counted by their change.
            let _structure = self.structure.lock();
            self.scan_leaves(&mut |_, _, _| Ok(()))?;
        }
        Ok(())
    }

    /// Sets the cap of a tree that is in use.
    pub(super) fn retune(&self, bytes_max: u64) -> Result<()> {
        self.set_cap(bytes_max)?;
        self.note_due_bytes();
        self.log.maintenance().wake();
        Ok(())
    }

    /// Updates the count by the bytes of a leaf.
    #[inline]
    pub(super) fn count(&self, state: &mut State) {
        if self.cap.is_capped() {
            // The next checkpoint removes empty leaves.
            let is_none = state.generation == GONE || state.records() == 0;
            let bytes = if is_none { 0 } else { state.bytes() };
            self.count_as(state, u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    fn count_as(&self, state: &mut State, bytes: u32) {
        let grown = u64::from(bytes).wrapping_sub(u64::from(state.counted));
        if grown != 0 {
            self.cap.bytes.fetch_add(grown, Ordering::Relaxed);
            state.counted = bytes;
        }
    }

    /// Notes the oldest version of the records of a new leaf.
    pub(super) fn note_oldest(&self, state: &mut State) {
        if self.cap.is_capped()
            && let Some(loaded) = state.loaded()
        {
            let view = loaded.page.view();
            let versions = (0..view.len()).map(|index| view.record(index).version);
            state.oldest = versions.min().unwrap_or(0);
        }
    }

    /// Fails if the records of a key would exceed their share of the cap after a change.
    #[inline]
    pub(super) fn check_cap(
        &self,
        state: &mut State,
        operation: Operation,
        group: &Range<usize>,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        if !self.cap.is_capped() || operation.removes() {
            return Ok(());
        }
        self.check_capped(state, operation, group, key, value)
    }

    #[inline(never)]
    fn check_capped(
        &self,
        state: &mut State,
        operation: Operation,
        group: &Range<usize>,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let max = self.cap.records_bytes_max();
        let own = record_bytes(key, value);
        let Some(loaded) = state.loaded() else { return Ok(()) };
        if loaded.page.bytes().saturating_add(own) <= max {
            return Ok(());
        }
        let view = loaded.page.view();
        let others = group.clone().filter(|index| operation.keeps(index - group.start));
        let others = others.map(|index| view.record(index));
        let bytes = own + others.map(|entry| record_bytes(key, entry.value)).sum::<usize>();
        if bytes > max {
            return Err(Error::ValueTooLong { bytes, max });
        }
        Ok(())
    }

    /// Fails if a batch would exceed its share of the cap.
    pub(super) fn check_batch_cap(&self, batch: &Batch) -> Result<()> {
        let max = self.cap.records_bytes_max();
        if max == usize::MAX {
            return Ok(());
        }
        let bytes_of = |(key, change): (&[u8], BatchChange<'_>)| match change {
            BatchChange::Put(value, _) => record_bytes(key, value),
            BatchChange::Remove => 0,
        };
        let bytes = batch.changes().map(bytes_of).sum();
        if bytes > max {
            return Err(Error::ValueTooLong { bytes, max });
        }
        Ok(())
    }

    /// Evicts for a writer if the tree is over its cap. Fails with [`Error::WouldBlock`] if the
    /// writer must not wait.
    pub(super) fn evict_for_writer(&self, wait: Wait) -> Result<()> {
        if !self.cap.is_over() {
            return Ok(());
        }
        if wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        match self.evict_to_cap() {
            // If the write needs space, it fails itself.
            Err(Error::NoSpace { .. }) => Ok(()),
            result => result,
        }
    }

    /// Evicts the bytes over the cap. If these are many, as after the cap was lowered, a checkpoint
    /// frees the space.
    pub(super) fn enforce_byte_cap(&self) -> Result<()> {
        if !self.cap.is_over() {
            return Ok(());
        }
        let before = self.cap.bytes();
        self.evict_to_cap()?;
        self.give_back(before.saturating_sub(self.cap.bytes()))
    }

    /// Writes a checkpoint if many bytes were evicted.
    fn give_back(&self, evicted_bytes: u64) -> Result<()> {
        if evicted_bytes > self.cap.limit_bytes() / LOWERED_OF_CAP {
            // The active segment can then be removed, too.
            self.log.seal()?;
            self.checkpoint(false)?;
        }
        Ok(())
    }

    fn evict_to_cap(&self) -> Result<()> {
        let hand = self.cap.hand.lock();
        // Another thread may have evicted while this one waited for the hand.
        if !self.cap.is_over() {
            return Ok(());
        }
        self.turn(hand, &|| self.cap.excess_bytes(), None).map(drop)
    }

    /// Implements [`crate::Ordered::evict`].
    pub(super) fn evict_for_owner(&self, eviction: Eviction<'_>) -> Result<bool> {
        let hand = self.cap.hand.lock();
        let Eviction { keys, excess_bytes, remove } = eviction;
        let before = excess_bytes();
        if before == 0 {
            return Ok(true);
        }
        let is_tried = self.turn(hand, excess_bytes, Some((keys, remove)))?;
        self.give_back(before.saturating_sub(excess_bytes()))?;
        Ok(is_tried)
    }

    /// Moves the hand until nothing is in excess. Returns false if the hand rests.
    fn turn(
        &self,
        mut hand: MutexGuard<'_, Hand>,
        excess_bytes: &dyn Fn() -> u64,
        mut owner: Option<(Range<&[u8]>, &mut Remove<'_>)>,
    ) -> Result<bool> {
        let excess = excess_bytes();
        let step = bytes_free(self.cap.bytes_max.load(Ordering::Relaxed));
        if hand.left_bytes.is_some_and(|left| excess.abs_diff(left) < step) {
            return Ok(false);
        }
        let keys = owner.as_ref().map(|(keys, _)| keys.clone());
        if hand.horizon == u64::MAX {
            // An earlier call had to evict keys of any age. This one need not.
            hand.horizon = self.horizon(keys.clone(), excess_bytes())?;
        }
        let mut rounds = 0;
        while excess_bytes() > 0 && rounds < ROUNDS_MAX && !self.log.maintenance().is_stopping() {
            if hand.at.is_none() {
                rounds += 1;
                hand.horizon = if rounds > SPARING_ROUNDS {
                    u64::MAX
                } else {
                    self.horizon(keys.clone(), excess_bytes())?
                };
            }
            let at = hand.at.as_deref().or(keys.as_ref().map(|keys| keys.start));
            let handle = self.handle_at(at);
            let mut state = handle.leaf.write();
            if state.generation != handle.generation {
                rounds -= u32::from(hand.at.is_none());
                continue;
            }
            let is_spared = state.take_read() && rounds <= SPARING_ROUNDS;
            let mut old = Vec::new();
            if state.records() > 0 && !is_spared && state.oldest < hand.horizon {
                old = self.old_keys(&handle, &mut state, hand.horizon)?;
                if owner.is_none() {
                    self.evict_keys(&mut state, &old)?;
                }
            }
            // The bounds of a locked leaf do not change.
            let upper = self.upper_of(at);
            drop(state);
            if let Some((keys, remove)) = &mut owner {
                old.retain(|(key, _)| keys.contains(&&key[..]));
                for (key, version) in &old {
                    let is_removed = remove(key, *version)?;
                    self.cap.evicted.fetch_add(u64::from(is_removed), Ordering::Relaxed);
                }
                if !old.is_empty() {
                    // The owner has read the keys that it removes. This does not count.
                    handle.leaf.read().take_read();
                }
            }
            hand.at = upper.filter(|upper| keys.as_ref().is_none_or(|keys| upper[..] < *keys.end));
            self.evict();
        }
        let left = excess_bytes();
        hand.left_bytes = Some(left).filter(|left| *left > 0 && rounds == ROUNDS_MAX);
        Ok(true)
    }

    /// Returns the version before which the older half of all bytes was written, or more if more is
    /// in excess, estimated from a sample of leaves. With `keys`, only keys of this range count.
    fn horizon(&self, keys: Option<Range<&[u8]>>, excess_bytes: u64) -> Result<Version> {
        let handles = self.directory.read().sample(SAMPLED_LEAVES, keys.clone());
        let mut written = Vec::new();
        for handle in &handles {
            let mut state = handle.leaf.write();
            if state.generation == GONE || !self.load_undamaged(&handle.leaf, &mut state)? {
                continue;
            }
            let Some(loaded) = state.loaded() else { continue };
            let view = loaded.page.view();
            let entries = (0..view.len()).map(|index| view.record(index));
            let entries =
                entries.filter(|entry| keys.as_ref().is_none_or(|keys| keys.contains(&entry.key)));
            written.extend(
                entries.map(|entry| (entry.version, record_bytes(entry.key, entry.value) as u64)),
            );
        }
        self.evict();
        written.sort_unstable();
        let bytes = self.cap.bytes().max(1);
        let wanted = excess_bytes.max(bytes / 2);
        let sampled: u64 = written.iter().map(|(_, bytes)| bytes).sum();
        let share = u128::from(sampled) * u128::from(wanted) / u128::from(bytes);
        let mut before = 0;
        let horizon = written.into_iter().find(|(_, bytes)| {
            before += u128::from(*bytes);
            before > share
        });
        Ok(horizon.map_or(u64::MAX, |(version, _)| version))
    }

    /// Returns the keys of a locked leaf that were last written before `horizon`, with the version
    /// of each.
    fn old_keys(
        &self,
        handle: &Handle,
        state: &mut State,
        horizon: Version,
    ) -> Result<Vec<(Vec<u8>, Version)>> {
        let mut keys = Vec::new();
        if !self.load_undamaged(&handle.leaf, state)? {
            // A damaged leaf cannot be evicted, and is not counted.
            self.count_as(state, 0);
            return Ok(keys);
        }
        let Some(loaded) = state.loaded() else { return Ok(keys) };
        let view = loaded.page.view();
        let mut index = 0;
        while index < view.len() {
            let key = view.key(index);
            let group = view.group(self.order, key);
            index = group.end.max(index + 1);
            match group.map(|index| view.record(index).version).max() {
                Some(version) if version < horizon => keys.push((key.to_vec(), version)),
                _ => {}
            }
        }
        if horizon != u64::MAX {
            state.oldest = horizon;
        }
        Ok(keys)
    }

    /// Removes keys of a locked leaf, atomically.
    fn evict_keys(&self, state: &mut State, keys: &[(Vec<u8>, Version)]) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let redo = Operation::RemoveAll.encode(&[], <[u8]>::to_vec);
        let mut records: Vec<Prepared<'_>> = keys
            .iter()
            .map(|(key, _)| self.log.prepare(Kind::Put, key, &redo, Meta::NONE, Compression::None))
            .collect();
        let appended = self.log.append_batch(&mut records, Purpose::Remove)?;
        let before = state.records();
        for ((key, _), (appended, _)) in keys.iter().zip(appended) {
            self.apply(state, Operation::RemoveAll, key, &[], Meta::NONE, appended.sequence);
            self.clock.report_evicted(key);
        }
        let removed = before.saturating_sub(state.records());
        self.cap.evicted.fetch_add(removed as u64, Ordering::Relaxed);
        self.complete_change(state);
        Ok(())
    }
}
