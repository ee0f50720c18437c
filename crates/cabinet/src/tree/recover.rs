//! Opening a tree: the leaves that the last checkpoint lists, and the redo after it.
//!
//! While the log is replayed, only the places of redo records are noted. They are applied once
//! the log can be appended to, since that may push other pages out of memory.

use super::cache::Cache;
use super::checkpoint::{Line, unpack};
use super::directory::Directory;
use super::leaf::{Content, GONE, Handle, State};
use super::page::Page;
use super::redo::Operation;
use super::{LEAF_BYTES, NEVER_MS, Shared, cache_bytes};
use crate::expired::ExpiryStats;
use crate::io::Storage;
use crate::log::record::Kind;
use crate::log::{Check, Location, Nature, Recovery, Segments, Settings, StoredKind, with_record};
use crate::{Error, Options, Order, Result, Wait};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Bounds of the size of leaves, in bytes.
const LEAF_BYTES_ALLOWED: std::ops::RangeInclusive<usize> = 256..=64 << 10;

/// What an error about the list of leaves ends with.
const WAY_OUT: &str = "without the list of its leaves the tree does not open, but `tyrant salvage` \
                       copies what can be read";

/// Opens or creates a tree, which may be all there is of another kind of database.
pub(super) fn open(
    storage: Arc<dyn Storage>,
    path: &Path,
    options: &Options,
    kind: StoredKind,
) -> Result<Shared> {
    let nature = nature(kind, options.order.unwrap_or_default());
    let mut recovery = Recovery::open(storage, path, Settings::of(options), options, nature)?;
    let order = order_of(&recovery.nature).ok_or_else(|| Error::Corrupted {
        file: path.join("manifest"),
        offset: 36,
        what: "an order of keys that this program does not know".into(),
    })?;
    if let Some(asked) = options.order
        && asked != order
    {
        return Err(Error::NotSupported(format!(
            "{} is in {} order, not in {} order",
            path.display(),
            order.name(),
            asked.name(),
        )));
    }
    recovery.goes_on_behind_holes = false;
    let lines = load(&mut recovery, order, path)?;
    let mut redo = Vec::new();
    let (mut replayed_bytes, mut skipped) = (0, 0u64);
    let mut holes = Holes::of(&recovery);
    recovery.replay(&mut |segments, segment, location, record| {
        replayed_bytes += record.total as u64;
        if record.kind == Kind::Put {
            if holes.lie_before(segments, segment.number) {
                skipped += 1;
            } else {
                redo.push(location);
            }
        }
        Ok(())
    })?;
    let last = recovery.segments.iter().map(|segment| segment.number).max().unwrap_or(0);
    let has_holes = holes.lie_before(&recovery.segments, last);
    for line in &lines {
        if let Some(segment) = recovery.segments.get(line.home.location) {
            segment.add_live(line.home.total as usize);
        }
    }
    let is_new = recovery.segments.iter().next().is_none();
    let log = recovery.finish()?;
    let records = lines.iter().map(|line| u64::from(line.records)).sum();
    let next_id = lines.iter().map(|line| line.id).max().unwrap_or(0).saturating_add(1);
    let next_expiry_ms = lines.iter().map(|line| line.expires_at_ms).min().unwrap_or(NEVER_MS);
    let cache = Cache::new(cache_bytes(options));
    let directory = directory_of(order, lines, &cache);
    let shared = Shared {
        order,
        compression: options.compression,
        clock: options.clock.clone(),
        expired: ExpiryStats::default(),
        leaf_bytes: options.leaf_bytes.map_or(LEAF_BYTES, |bytes| {
            (bytes as usize).clamp(*LEAF_BYTES_ALLOWED.start(), *LEAF_BYTES_ALLOWED.end())
        }),
        capacity_records: match (kind, options.capacity_records) {
            (StoredKind::Tree, 1..) => options.capacity_records,
            _ => u64::MAX,
        },
        directory_bytes: AtomicU64::new(directory.memory_bytes() as u64),
        directory: RwLock::new(directory),
        cache,
        records: AtomicU64::new(records),
        next_id: AtomicU64::new(next_id),
        next_expiry_ms: AtomicU64::new(next_expiry_ms),
        replayed_bytes: AtomicU64::new(replayed_bytes),
        structure: Mutex::default(),
        is_tended: AtomicBool::new(false),
        behind_bytes: AtomicU64::new(u64::MAX),
        paused: AtomicU32::new(0),
        pages_read: AtomicU64::new(0),
        pages_written: AtomicU64::new(0),
        evictions: AtomicU64::new(0),
        log,
    };
    for location in redo {
        shared.replay(location)?;
    }
    if has_holes {
        let path = path.display();
        tracing::error!("{path}: {skipped} changes behind a hole in the log are left out");
        // What is appended from here on must not stand behind the hole.
        shared.checkpoint(false)?;
    } else if is_new {
        // From here on there always is one, so that a log of which the power has taken the
        // beginning is told from one whose checkpoint is lost.
        shared.checkpoint(false)?;
    }
    Ok(shared)
}

/// Where the part of the log that is replayed has a hole: a segment that is damaged, short or
/// missing. A change may rest on one that is lost (and an index entry on its row), so nothing
/// behind a hole is applied. After a loss of power that is what was not acknowledged as durable.
struct Holes {
    /// The segment that is replayed from, or the oldest.
    first: u64,
    short: BTreeSet<u64>,
    /// The segment that was looked at last, and what was found.
    looked_at: (u64, bool),
}

impl Holes {
    fn of(recovery: &Recovery) -> Self {
        let oldest = recovery.segments.iter().map(|segment| segment.number).min().unwrap_or(1);
        let from = recovery.checkpoint.as_ref().map(|checkpoint| checkpoint.replay_segment);
        let first = from.or(recovery.whole_from).unwrap_or(oldest);
        Self { first, short: recovery.short.clone(), looked_at: (0, false) }
    }

    fn lie_before(&mut self, segments: &Segments, number: u64) -> bool {
        if self.looked_at.0 != number {
            let before = self.first..number;
            let good = segments.iter().filter(|one| {
                before.contains(&one.number)
                    && !one.is_damaged()
                    && !self.short.contains(&one.number)
            });
            let all = number.saturating_sub(self.first);
            self.looked_at = (number, (good.count() as u64) < all);
        }
        self.looked_at.1
    }
}

fn directory_of(order: Order, lines: Vec<Line>, cache: &Cache) -> Directory<Handle> {
    if lines.is_empty() {
        let handle = Handle::new(State::fresh(0, Page::default(), NEVER_MS));
        cache.enter(Arc::clone(&handle.leaf));
        return Directory::new(order, handle);
    }
    let places = lines.into_iter().map(|line| {
        let Line { lower, id, home, records, bytes, applied, expires_at_ms } = line;
        let content = Content::Stored { home, applied, records, bytes };
        (lower, Handle::new(State::stored(id, content, expires_at_ms)))
    });
    Directory::from_sorted(order, places.collect())
}

/// The leaves of the checkpoint, if there is one. Without one the whole log must be there.
fn load(recovery: &mut Recovery, order: Order, path: &Path) -> Result<Vec<Line>> {
    let is_void = |replay_segment| recovery.whole_from.is_some_and(|whole| whole > replay_segment);
    if recovery.checkpoint.as_ref().is_some_and(|checkpoint| is_void(checkpoint.replay_segment)) {
        recovery.forget_checkpoint();
    }
    let lines = match lines_of(recovery, order) {
        Err(Error::Corrupted { file, offset, what }) if recovery.whole_from.is_none() => {
            return Err(Error::Corrupted { file, offset, what: format!("{what}; {WAY_OUT}") });
        }
        Err(error @ Error::Corrupted { .. }) => {
            recovery.distrust_checkpoint(&error);
            Vec::new()
        }
        lines => lines?,
    };
    if recovery.checkpoint.is_none() && recovery.whole_from.is_none() {
        return Err(Error::Corrupted {
            file: path.join("checkpoint"),
            offset: 0,
            what: format!("it is missing or damaged; {WAY_OUT}"),
        });
    }
    for segment in recovery.segments.iter() {
        // The lines say it better.
        segment.live_bytes.set(0);
    }
    Ok(lines)
}

fn lines_of(recovery: &mut Recovery, order: Order) -> Result<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    let Some(checkpoint) = &mut recovery.checkpoint else { return Ok(lines) };
    while let Some(block) = checkpoint.next_block()? {
        let corrupted = |what| checkpoint.corrupted(what);
        for line in unpack(&block).ok_or_else(|| corrupted("a block that is no list of leaves"))? {
            let follows = |previous: &Line| order.compare(&previous.lower, &line.lower).is_lt();
            // The first has no lower bound.
            if lines.len() > 1 && !lines.last().is_none_or(follows) {
                return Err(corrupted("leaves that are in no order"));
            }
            if recovery.segments.get(line.home.location).is_none() {
                return Err(corrupted("a leaf in a segment that is missing"));
            }
            lines.push(line);
        }
    }
    if lines.is_empty() {
        return Err(checkpoint.corrupted("a list without any leaf"));
    }
    Ok(lines)
}

/// What a tree in this order is, as the manifest has it.
fn nature(kind: StoredKind, order: Order) -> Nature {
    let mut nature = Nature::of(kind);
    nature.parameters[0] = order as u8;
    nature
}

pub(crate) fn order_of(nature: &Nature) -> Option<Order> {
    Order::NAMES.into_iter().map(|(_, order)| order).find(|o| *o as u8 == nature.parameters[0])
}

impl Shared {
    /// Applies the redo record at a place of the log, unless its leaf has seen it.
    fn replay(&self, location: Location) -> Result<()> {
        let segments = self.log.segments();
        let salt = self.log.identity().salt;
        with_record(&segments, salt, location, Wait::Block, Check::Whole, |record| {
            let Some((operation, value)) = Operation::decode(record.value) else {
                let what = "it is not a change of a tree".into();
                return Err(super::access::corrupted(&segments, location, what));
            };
            let (key, meta, sequence) = (record.key, record.meta, record.sequence);
            let handle = self.handle_of(key);
            let applied = {
                let state = handle.leaf.read();
                debug_assert!(state.generation != GONE);
                state.applied()
            };
            if applied >= sequence {
                return Ok(());
            }
            self.change(key, Wait::Block, |state| {
                self.apply(state, operation, key, value, meta, sequence);
                Ok(())
            })
        })?
    }
}
