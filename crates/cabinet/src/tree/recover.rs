//! Recovery: opens a tree from the leaves that the last checkpoint lists and the redo after it.
//!
//! The replay of the log only notes the locations of redo records. They are applied when the log
//! can be appended to, because applying them may evict other pages to the log.

use super::admission::{Admission, Losses};
use super::cache::Cache;
use super::capacity::RecordCap;
use super::checkpoint::{Line, list_bytes, unpack};
use super::directory::Directory;
use super::evict::ByteCap;
use super::leaf::{Content, GONE, Handle, State};
use super::page::Page;
use super::redo::Operation;
use super::{LEAF_BYTES, NEVER_MS, TreeEngine};
use crate::base::expired::ExpiryStats;
use crate::io::Storage;
use crate::log::record::Kind;
use crate::log::{
    Check, EngineParameters, Location, Recovery, Segments, Settings, StoredKind, with_record,
};
use crate::{Damage, Error, KeyOrder, Meta, Options, Result, Wait};
use parking_lot::{Mutex, RwLock};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Allowed maximum sizes of leaves, in bytes.
const LEAF_BYTES_ALLOWED: std::ops::RangeInclusive<usize> = 256..=64 << 10;

/// Opens or creates a tree, of which a database of another kind may consist. If promised changes
/// were lost, stores a record with the key `note`.
pub(super) fn open(
    storage: Arc<dyn Storage>,
    path: &Path,
    options: &Options,
    kind: StoredKind,
    note: Option<&[u8]>,
) -> Result<TreeEngine> {
    match recover(storage, path, options, kind, note) {
        Err(Error::Corrupted { file, offset, what }) if !what.contains("tyrant salvage") => {
            let path = path.display();
            let what = format!(
                "{what}; the tree does not open, but `tyrant salvage {path} --into NEW` copies what can \
                 be read"
            );
            Err(Error::Corrupted { file, offset, what })
        }
        result => result,
    }
}

fn recover(
    storage: Arc<dyn Storage>,
    path: &Path,
    options: &Options,
    kind: StoredKind,
    note: Option<&[u8]>,
) -> Result<TreeEngine> {
    let parameters = parameters(kind, options.order.unwrap_or_default());
    let mut settings = Settings::of(options);
    // Otherwise the log would evict whole segments.
    settings.capacity_bytes = 0;
    let mut recovery = Recovery::open(storage, path, settings, options, parameters)?;
    let order = order_of(&recovery.parameters).ok_or_else(|| Error::Corrupted {
        file: path.join("manifest"),
        offset: 36,
        what: "unknown key order".into(),
    })?;
    if let Some(asked) = options.order
        && asked != order
    {
        return Err(Error::WrongKind {
            path: path.to_owned(),
            found: format!("in {} order", order.name()),
            wanted: format!("in {} order", asked.name()),
        });
    }
    let lines = load(&mut recovery, order, path)?;
    let mut redo = Vec::new();
    let (mut replayed_bytes, mut passed_bytes) = (0, 0);
    recovery.replay(&mut |_, _, location, record| {
        replayed_bytes += record.total as u64;
        match record.kind {
            Kind::Put => redo.push(location),
            Kind::Page => passed_bytes += record.total as u64,
            _ => {}
        }
        Ok(())
    })?;
    let losses = Losses::of(&recovery)?;
    for line in &lines {
        if let Some(segment) = recovery.segments.get(line.home.location) {
            segment.add_live(line.home.total as usize);
        }
    }
    let is_new = recovery.segments.iter().next().is_none();
    let log = recovery.finish()?;
    // Without a checkpoint at its end, a log counts its last segment as appended since. That is
    // among what was replayed.
    passed_bytes += log.since_checkpoint();
    let records = lines.iter().map(|line| u64::from(line.records)).sum();
    let next_id = lines.iter().map(|line| line.id).max().unwrap_or(0).saturating_add(1);
    let next_expiry_ms = lines.iter().map(|line| line.expires_at_ms).min().unwrap_or(NEVER_MS);
    let cache = Cache::new(options.cache_bytes_max());
    let directory = directory_of(order, lines, &cache);
    cache.note_directory(&directory);
    let engine = TreeEngine {
        order,
        compression: options.compression,
        clock: options.clock.clone(),
        expired: ExpiryStats::default(),
        leaf_bytes: options.leaf_bytes.map_or(LEAF_BYTES, |bytes| {
            (bytes as usize).clamp(*LEAF_BYTES_ALLOWED.start(), *LEAF_BYTES_ALLOWED.end())
        }),
        record_cap: RecordCap::new(match (kind, options.capacity_records) {
            (StoredKind::Tree, 1..) => options.capacity_records,
            _ => u64::MAX,
        }),
        cap: ByteCap::none(kind == StoredKind::Table),
        list_bytes: AtomicU64::new(list_bytes(&directory)),
        directory: RwLock::new(directory),
        cache,
        records: AtomicU64::new(records),
        next_id: AtomicU64::new(next_id),
        next_expiry_ms: AtomicU64::new(next_expiry_ms),
        replayed_bytes: AtomicU64::new(replayed_bytes),
        passed_bytes: AtomicU64::new(passed_bytes),
        structure: Mutex::default(),
        is_maintained: AtomicBool::new(false),
        is_scratch: AtomicBool::new(false),
        behind_bytes: AtomicU64::new(u64::MAX),
        paused: AtomicU32::new(0),
        pages_read: AtomicU64::new(0),
        pages_written: AtomicU64::new(0),
        evictions: AtomicU64::new(0),
        brought: Default::default(),
        reclaimed: Default::default(),
        log,
    };
    let left_out = engine.replay(redo, &losses, kind)?;
    if left_out > 0 {
        tracing::error!(
            "{}: {left_out} changes after the ones lost with the power are left out",
            path.display()
        );
    }
    if let (Some(key), false) = (note, losses.damages.is_empty()) {
        engine.put(key, b"", Meta::NONE, Wait::Block)?;
    }
    if is_new || losses.are_any() {
        // Records that are appended from now on must not be after a loss. And from now on there is
        // always a list, which distinguishes a log that has lost its beginning with the power from
        // one whose list is lost.
        engine.checkpoint(false)?;
    }
    if options.capacity_bytes != 0 {
        engine.set_cap(options.capacity_bytes)?;
    }
    Ok(engine)
}

fn directory_of(order: KeyOrder, lines: Vec<Line>, cache: &Cache) -> Directory<Handle> {
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

/// Returns the leaves of the checkpoint, if there is one. Fails if there is none and the log is not
/// complete.
fn load(recovery: &mut Recovery, order: KeyOrder, path: &Path) -> Result<Vec<Line>> {
    let is_void = |replay_segment| recovery.whole_from.is_some_and(|whole| whole > replay_segment);
    if recovery.checkpoint.as_ref().is_some_and(|checkpoint| is_void(checkpoint.replay_segment)) {
        recovery.forget_checkpoint();
    }
    let lines = match lines_of(recovery, order) {
        Err(error @ Error::Corrupted { .. }) if !recovery.is_whole => return Err(error),
        Err(error @ Error::Corrupted { .. }) => {
            recovery.distrust_checkpoint(&error);
            Vec::new()
        }
        lines => lines?,
    };
    if recovery.checkpoint.is_none() && !recovery.is_whole {
        return Err(Error::Corrupted {
            file: path.join("checkpoint"),
            offset: 0,
            what: "the list of the tree's leaves is missing or damaged".into(),
        });
    }
    note_short(recovery, &lines);
    for line in &lines {
        let location = line.home.location;
        if let Some(number) = recovery.segments.get(location).map(|segment| segment.number) {
            recovery.note_listed((number, location.offset() as u64));
        }
    }
    for segment in recovery.segments.iter() {
        // The lines of the list have the exact numbers.
        segment.live_bytes.set(0);
    }
    Ok(lines)
}

/// Marks and reports segments that end within a listed page as damaged. So nothing is appended
/// there that could be mistaken for the page.
fn note_short(recovery: &mut Recovery, lines: &[Line]) {
    let mut damages = Vec::new();
    for line in lines {
        let (location, bytes) = (line.home.location, u64::from(line.home.total));
        let Some(segment) = recovery.segments.get(location) else { continue };
        if location.offset() as u64 + bytes > segment.bytes() && !segment.is_damaged() {
            segment.damaged.store(true, Ordering::Relaxed);
            let what = "pages of leaves are cut off";
            let (file, offset) = (segment.path.clone(), segment.bytes());
            damages.push(Damage { file, offset, what: what.into() });
        }
    }
    damages.into_iter().for_each(|damage| recovery.report(damage));
}

fn lines_of(recovery: &mut Recovery, order: KeyOrder) -> Result<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    let Some(checkpoint) = &mut recovery.checkpoint else { return Ok(lines) };
    while let Some(block) = checkpoint.next_block()? {
        let corrupted = |what| checkpoint.corrupted(what);
        for line in unpack(&block).ok_or_else(|| corrupted("a block is not a list of leaves"))? {
            let follows = |previous: &Line| order.compare(&previous.lower, &line.lower).is_lt();
            // The first leaf has no lower bound.
            if lines.len() > 1 && !lines.last().is_none_or(follows) {
                return Err(corrupted("the leaves are out of order"));
            }
            if recovery.segments.get(line.home.location).is_none() {
                return Err(corrupted("the segment of a leaf is missing"));
            }
            lines.push(line);
        }
    }
    if lines.is_empty() {
        return Err(checkpoint.corrupted("the list of leaves is empty"));
    }
    Ok(lines)
}

/// Returns the parameters of a tree in this order, as the manifest stores them.
fn parameters(kind: StoredKind, order: KeyOrder) -> EngineParameters {
    let mut parameters = EngineParameters::of(kind);
    parameters.encoded[0] = order as u8;
    parameters
}

pub(crate) fn order_of(parameters: &EngineParameters) -> Option<KeyOrder> {
    KeyOrder::NAMES.into_iter().map(|(_, order)| order).find(|o| *o as u8 == parameters.encoded[0])
}

impl TreeEngine {
    /// Applies redo records, except those that their leaf contains. Returns the number of records
    /// that are left out because they follow a loss.
    fn replay(&self, redo: Vec<Location>, losses: &Losses, kind: StoredKind) -> Result<u64> {
        let segments = self.log.segments();
        let mut admission = Admission::new(losses, kind != StoredKind::Table);
        let mut left_out = 0;
        for location in redo {
            let number = segments.get(location).map_or(0, |segment| segment.number);
            let place = (number, location.offset() as u64);
            if losses.power_from.is_some_and(|lost| place >= lost) {
                left_out += 1;
                continue;
            }
            admission.advance_to(place);
            self.replay_one(&segments, location, &mut admission)?;
        }
        Ok(left_out)
    }

    /// Applies the redo record at a location of the log, unless its leaf contains it.
    fn replay_one(
        &self,
        segments: &Segments,
        location: Location,
        admission: &mut Admission<'_>,
    ) -> Result<()> {
        with_record(segments, location, Wait::Block, Check::Whole, |record| {
            let Some((operation, value)) = Operation::decode(record.value) else {
                let what = "it is not a change of a tree".into();
                return Err(super::leaf_access::corrupted(segments, location, what));
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
            let operation = admission.admit(key, operation, self.log.directory())?;
            let changed = self.change(key, Wait::Block, |state| {
                self.apply(state, operation, key, value, meta, sequence);
                Ok(())
            });
            match changed {
                Err(Error::Corrupted { file, offset, what }) => {
                    let what = format!("{what}: it is the page of a leaf with later changes");
                    Err(Error::Corrupted { file, offset, what })
                }
                result => result,
            }
        })?
    }
}
