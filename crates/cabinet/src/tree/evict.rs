//! The cap on bytes: over it go the records that were neither read nor written lately.
//!
//! The cap bounds the bytes of all pages, before compression. The files exceed it by the dead pages
//! and the redo that checkpoints remove, which come the sooner the lower the cap is.
//!
//! Eviction is CLOCK: a hand goes through the leaves in the order of keys, around and around. A
//! leaf of which a record was read or overwritten since the hand last came by is spared. From the
//! others go the keys of the older half, with all their duplicates: those last written before the
//! horizon of the round, which is the median of some leaves. A leaf that was found to have nothing
//! so old is passed without its page being read. One batch of the log removes the keys of a leaf,
//! so that replaying brings none of them back.
//!
//! A writer that finds the tree over its cap evicts before it writes, and a little more than it has
//! to, so that one write in many waits. Work that an event loop may not wait for goes to another
//! thread.
//! The hand's lock comes before those of leaves.
//!
//! The records of a table depend on each other, so a table keeps its tree to the cap: the hand goes
//! through the rows only and names them to the table ([`crate::Ordered::evict`]), which removes
//! each with its entries. Then the hand's lock comes before those of the table.
//!
//! If the hand has come around and found too little that can go, as where leaves are damaged, it
//! rests until the excess has changed by about as much as eviction leaves free. So writers far over
//! the cap do not each go through all leaves in vain.
//!
//! The redo is bounded, too: where checkpoints cannot keep up, a writer waits for one or writes it.

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

/// The records of a key, or a batch, take this part of the cap at most.
const RECORDS_OF_CAP: u64 = 4;

/// Eviction leaves this part of the cap free, but no more bytes than the bound below.
const FREE_OF_CAP: u64 = 64;

/// Most bytes that eviction leaves free: they are what one write may have to wait for.
const FREE_BYTES_MAX: u64 = 256 << 10;

/// A checkpoint is due after this part of the cap was appended, or earlier.
const REDO_OF_CAP: u64 = 2;

/// Leaves that the horizon of a round is found by.
const SAMPLED_LEAVES: usize = 32;

/// Rounds after which leaves that are read all the time are no longer spared.
const SPARING_ROUNDS: u32 = 2;

/// Rounds after which there is nothing more to evict.
const ROUNDS_MAX: u32 = 4;

/// If more than the cap divided by this is evicted at once, a checkpoint gives the space back.
const LOWERED_OF_CAP: u64 = 4;

/// See [`Eviction::remove`].
type Remove<'r> = dyn FnMut(&[u8], Version) -> Result<bool> + 'r;

/// A cap on the bytes of all pages, and how many they are.
pub(super) struct ByteCap {
    /// `u64::MAX` if there is none.
    bytes_max: AtomicU64,
    /// Bytes of all pages, counted where there is a cap.
    bytes: AtomicU64,
    evicted: AtomicU64,
    hand: Mutex<Hand>,
    /// The owner of the tree, a table, evicts.
    is_owned: bool,
}

/// Position of eviction in the tree, and its progress.
#[derive(Default)]
struct Hand {
    /// Lower bound of the leaf; none is the first one.
    at: Option<Vec<u8>>,
    /// Keys last written with this version or a later one are spared in this round.
    horizon: Version,
    /// Bytes in excess when all rounds were done.
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

    /// Whether the tree has to evict.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.is_capped() && !self.is_owned && self.bytes() > self.bytes_max.load(Ordering::Relaxed)
    }

    /// Bytes of all pages and their cap, if the owner of the tree keeps to it.
    pub(super) fn owned(&self) -> Option<(u64, u64)> {
        (self.is_owned && self.is_capped()).then(|| (self.bytes(), self.limit_bytes()))
    }

    /// The cap, or 0.
    pub(super) fn limit_bytes(&self) -> u64 {
        if self.is_capped() { self.bytes_max.load(Ordering::Relaxed) } else { 0 }
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Bytes of all pages, where there is a cap.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes by which there are more than eviction leaves.
    fn excess_bytes(&self) -> u64 {
        self.bytes().saturating_sub(bytes_kept(self.bytes_max.load(Ordering::Relaxed)))
    }

    /// Most bytes of the records of a key, or of a batch. An owner sees to it itself.
    fn records_bytes_max(&self) -> usize {
        if !self.is_capped() || self.is_owned {
            return usize::MAX;
        }
        records_bytes_max(self.bytes_max.load(Ordering::Relaxed))
    }

    /// Bytes after which a checkpoint is due because of the cap.
    pub(super) fn due_bytes_max(&self) -> u64 {
        if self.is_capped() {
            self.bytes_max.load(Ordering::Relaxed) / REDO_OF_CAP
        } else {
            u64::MAX
        }
    }
}

/// Bytes down to which eviction goes.
pub(crate) fn bytes_kept(bytes_max: u64) -> u64 {
    bytes_max - bytes_free(bytes_max)
}

/// Bytes that eviction leaves free.
fn bytes_free(bytes_max: u64) -> u64 {
    (bytes_max / FREE_OF_CAP).min(FREE_BYTES_MAX)
}

/// Most bytes of the records of a key, or of a batch.
pub(crate) fn records_bytes_max(bytes_max: u64) -> usize {
    usize::try_from(bytes_max / RECORDS_OF_CAP).unwrap_or(usize::MAX)
}

/// Bytes that a record takes in a page.
fn record_bytes(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + page::PLACE_BYTES + cell::OVERHEAD_BYTES_MAX
}

impl TreeEngine {
    /// Sets the cap, and counts what there is. The background, or the next writer, evicts.
    pub(super) fn set_cap(&self, bytes_max: u64) -> Result<()> {
        let was_capped = self.cap.is_capped();
        self.cap.bytes_max.store(bytes_max.max(CAPACITY_BYTES_MIN), Ordering::Relaxed);
        self.cap.hand.lock().left_bytes = None;
        if !was_capped {
            // Those that change meanwhile count themselves.
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

    /// Counts the bytes of a leaf, in place of those it had.
    #[inline]
    pub(super) fn count(&self, state: &mut State) {
        if self.cap.is_capped() {
            // Empty leaves go with the next checkpoint.
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

    /// Notes how old the records of a new leaf are.
    pub(super) fn note_oldest(&self, state: &mut State) {
        if self.cap.is_capped()
            && let Some(loaded) = state.loaded()
        {
            let view = loaded.page.view();
            let versions = (0..view.len()).map(|index| view.record(index).version);
            state.oldest = versions.min().unwrap_or(0);
        }
    }

    /// Fails if what a key has after a change would take more of the cap than it may.
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

    /// Fails if a batch would take more of the cap than it may.
    pub(super) fn check_batch_cap(&self, batch: &Batch) -> Result<()> {
        let max = self.cap.records_bytes_max();
        if max == usize::MAX {
            return Ok(());
        }
        let bytes_of = |(key, change): (&[u8], &BatchChange)| match change {
            BatchChange::Put(value, _) => record_bytes(key, value),
            BatchChange::Remove => 0,
        };
        let bytes = batch.changes().map(bytes_of).sum();
        if bytes > max {
            return Err(Error::ValueTooLong { bytes, max });
        }
        Ok(())
    }

    /// Has a writer evict first, if the tree is over its cap.
    pub(super) fn evict_for_writer(&self, wait: Wait) -> Result<()> {
        if !self.cap.is_over() {
            return Ok(());
        }
        if wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        match self.evict_to_cap() {
            // Then the write itself says so, if it needs space.
            Err(Error::NoSpace { .. }) => Ok(()),
            result => result,
        }
    }

    /// Evicts what is over the cap. After much, which a lowered cap brings about, a checkpoint
    /// gives the space back.
    pub(super) fn enforce_byte_cap(&self) -> Result<()> {
        if !self.cap.is_over() {
            return Ok(());
        }
        let before = self.cap.bytes();
        self.evict_to_cap()?;
        self.give_back(before.saturating_sub(self.cap.bytes()))
    }

    /// Writes a checkpoint after so many bytes were evicted that it is worth one.
    fn give_back(&self, evicted_bytes: u64) -> Result<()> {
        if evicted_bytes > self.cap.limit_bytes() / LOWERED_OF_CAP {
            // So that what is appended to now can be given back, too.
            self.log.seal()?;
            self.checkpoint(false)?;
        }
        Ok(())
    }

    fn evict_to_cap(&self) -> Result<()> {
        let hand = self.cap.hand.lock();
        // Another may have evicted while this one waited for the hand.
        if !self.cap.is_over() {
            return Ok(());
        }
        self.turn(hand, &|| self.cap.excess_bytes(), None).map(drop)
    }

    /// As [`crate::Ordered::evict`].
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

    /// Moves the hand on until nothing is in excess. False if it rests.
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
            // The last resort is for the call that had to take it.
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
                    // The owner has read what it removes.
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

    /// The version before which the older half of all bytes was written, or as much as has to go,
    /// as far as some leaves can tell. Only these keys count.
    fn horizon(&self, keys: Option<Range<&[u8]>>, excess_bytes: u64) -> Result<Version> {
        let handles = self.directory.read().sample(SAMPLED_LEAVES, keys.clone());
        let mut written = Vec::new();
        for handle in &handles {
            let mut state = handle.leaf.write();
            if state.generation == GONE || !self.load_for_care(&handle.leaf, &mut state)? {
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

    /// The keys of a locked leaf of which nothing was written since a version, with the version of
    /// what was written last.
    fn old_keys(
        &self,
        handle: &Handle,
        state: &mut State,
        horizon: Version,
    ) -> Result<Vec<(Vec<u8>, Version)>> {
        let mut keys = Vec::new();
        if !self.load_for_care(&handle.leaf, state)? {
            // It is damaged, and cannot be given up for others: it does not count.
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

    /// Removes keys of a locked leaf.
    fn evict_keys(&self, state: &mut State, keys: &[(Vec<u8>, Version)]) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let redo = Operation::RemoveAll.encode(&[], <[u8]>::to_vec);
        let mut records: Vec<Prepared<'_>> = keys
            .iter()
            .map(|(key, _)| self.log.prepare(Kind::Put, key, &redo, Meta::NONE, Compression::None))
            .collect();
        let mut sequences = vec![0; keys.len()];
        self.log.append_batch(&mut records, Purpose::Remove, |index, appended| {
            sequences[index] = appended.sequence;
        })?;
        let before = state.records();
        for ((key, _), sequence) in keys.iter().zip(sequences) {
            self.apply(state, Operation::RemoveAll, key, &[], Meta::NONE, sequence);
        }
        let removed = before.saturating_sub(state.records());
        self.cap.evicted.fetch_add(removed as u64, Ordering::Relaxed);
        self.complete_change(state);
        Ok(())
    }
}
