//! Opening a log: what the last process left behind becomes a log again.
//!
//! 1. The manifest says whose segments these are.
//! 2. Segments are opened, oldest first; those before the last one that clears are removed.
//! 3. A checkpoint, if there is a good one, gives the engine its index as it was at some
//!    position; the log is replayed from there. Otherwise it is replayed from the beginning.
//! 4. In the last segment, what is left of blocks is filled, and what follows the last good record,
//!    which was never acknowledged as durable, is cut off and said so. A bad record in an earlier
//!    segment is damage: it is reported with its place, and the segment is kept as it is.

use super::capacity::Capacity;
use super::checkpoint::Checkpoint;
use super::commit::Commit;
use super::read::FirstRead;
use super::record::{Prepared, RECORD_BYTES_MIN, Record};
use super::scan::{ScanError, Scanner, Stop};
use super::segment::{
    LiveBytes, Location, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, Segments, read_header,
    segment_number, segment_path,
};
use super::used::Used;
use super::{
    Figures, Identity, Log, Nature, Settings, Tail, background, error_at, lane, manifest,
    new_segment,
};
use crate::io::{Appender, Open, Storage};
use crate::{Error, Result};
use arc_swap::ArcSwap;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Bytes between two messages on the progress of a replay.
const PROGRESS_BYTES: u64 = 4 << 30;

/// A log being opened.
pub(crate) struct Recovery {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    settings: Settings,
    pub(crate) identity: Identity,
    /// What the database was created with; differs from what was asked for in the parameters only.
    pub(crate) nature: Nature,
    lock: Box<dyn Any + Send + Sync>,
    pub(crate) segments: Segments,
    pub(crate) checkpoint: Option<Checkpoint>,
    next_sequence: u64,
    replayed: bool,
    replay_from: (u64, u64),
    /// Segments whose end the header of the next one tells.
    known_ends: BTreeSet<u64>,
    /// Number of the oldest segment, if the log began with it or was cleared by it: then replaying
    /// all of the log gives the whole index, and a checkpoint from before it is void.
    pub(crate) whole_from: Option<u64>,
    /// Segments that end before the header of the next one says they did.
    pub(crate) short: BTreeSet<u64>,
}

impl Recovery {
    /// Opens what is in the directory, or makes a new log of it, of this nature. A log of another
    /// kind is refused.
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        directory: &Path,
        settings: Settings,
        options: &crate::Options,
        nature: Nature,
    ) -> Result<Self> {
        let at = |operation| move |error| error_at(operation, directory, error);
        if !options.create {
            storage.list(directory).map_err(at("open"))?;
        }
        storage.create_dir(directory).map_err(at("create"))?;
        let lock = storage.lock(&directory.join("lock")).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::InUse { path: directory.to_owned() },
            _ => error_at("lock", directory, error),
        })?;
        let names = storage.list(directory).map_err(at("list"))?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
        numbers.sort_unstable();
        let (identity, nature) = match manifest::read(storage.as_ref(), directory)? {
            Some((_, stored)) if stored.kind != nature.kind => {
                return Err(Error::NotSupported(format!(
                    "{} holds a database of kind {:?}, not {:?}",
                    directory.display(),
                    stored.kind,
                    nature.kind
                )));
            }
            Some(stored) => stored,
            None if numbers.is_empty() => {
                if !options.create && !options.truncate {
                    return Err(error_at("open", directory, io::ErrorKind::NotFound.into()));
                }
                (manifest::create(storage.as_ref(), directory, &nature)?, nature)
            }
            None => {
                return Err(Error::Corrupted {
                    file: directory.join("manifest"),
                    offset: 0,
                    what: "it is missing, but there are segments".into(),
                });
            }
        };
        let checkpoint = Checkpoint::open(storage.as_ref(), directory, &identity)?;
        let mut recovery = Self {
            storage,
            directory: directory.to_owned(),
            settings,
            identity,
            nature,
            lock,
            segments: Segments::default(),
            checkpoint,
            next_sequence: 1,
            replayed: false,
            replay_from: (0, 0),
            known_ends: BTreeSet::new(),
            whole_from: Some(1),
            short: BTreeSet::new(),
        };
        recovery.open_segments(&numbers)?;
        if let Some(checkpoint) = &recovery.checkpoint
            && !recovery.reaches(checkpoint.replay_segment, checkpoint.replay_offset)
        {
            // What it ends with was made durable before it.
            let error = checkpoint.corrupted("the log that it ends with is missing");
            recovery.distrust_checkpoint(&error);
        }
        if let Some(checkpoint) = &recovery.checkpoint {
            recovery.next_sequence = recovery.next_sequence.max(checkpoint.next_sequence);
            recovery.replay_from = (checkpoint.replay_segment, checkpoint.replay_offset);
        }
        Ok(recovery)
    }

    /// Whether the log has come to this place, be it that the segment has gone since.
    fn reaches(&self, number: u64, offset: u64) -> bool {
        let mut newer = self.segments.iter().filter(|segment| segment.number >= number).peekable();
        newer.peek().is_some()
            && newer.all(|segment| segment.number > number || segment.bytes() >= offset)
    }

    fn open_segments(&mut self, numbers: &[u64]) -> Result<()> {
        let mut found = Vec::new();
        for (index, &number) in numbers.iter().enumerate() {
            let path = segment_path(&self.directory, number);
            let failed = |error| error_at("read", &path, error);
            let file = self.storage.open(&path, Open::Existing).map_err(failed)?;
            let length = file.length().map_err(failed)?;
            let bytes = read_header(&*file).map_err(failed)?;
            match SegmentHeader::decode(&bytes, &self.identity) {
                Ok(header) if header.number == number => found.push((header, path, file, length)),
                // A segment that was just being begun when the power went holds nothing yet.
                _ if index + 1 == numbers.len() && bytes.iter().all(|byte| *byte == 0) => {
                    tracing::info!("{} was begun but holds nothing: removed", path.display());
                    self.storage.remove(&path).map_err(failed)?;
                }
                Ok(_) => self.set_aside(&path, "it has the number of another segment")?,
                Err(what) => self.set_aside(&path, what)?,
            }
        }
        let clear = found.iter().rposition(|(header, ..)| header.clears).unwrap_or(0);
        for (_, path, _, _) in found.drain(..clear) {
            self.storage.remove(&path).map_err(|error| error_at("remove", &path, error))?;
        }
        if let Some((header, ..)) = found.first() {
            self.whole_from = (header.clears || header.number == 1).then_some(header.number);
        }
        let lines = self.checkpoint.as_ref().map_or(&[][..], |checkpoint| &checkpoint.segments);
        let lines = lines.to_vec();
        // Segments that the checkpoint knows keep their slots; the others come after all those.
        let mut free = lines.iter().map(|line| line.slot + 1).max().unwrap_or(0);
        let ends: Vec<Option<u64>> = (0..found.len())
            .map(|index| {
                let next = found.get(index + 1)?;
                (next.0.number == found[index].0.number + 1).then_some(next.0.previous_bytes)
            })
            .collect();
        let last = found.len().saturating_sub(1);
        for (index, (header, path, file, length)) in found.into_iter().enumerate() {
            let end = ends[index].map_or(length, |end| end.min(length));
            if let Some(expected) = ends[index]
                && expected > length
            {
                let what = format!("{expected} bytes were written, {length} are there");
                report_damage(&path, length, &what);
                self.short.insert(header.number);
            }
            if ends[index].is_some() {
                self.known_ends.insert(header.number);
            }
            let line = lines.iter().find(|line| line.number == header.number);
            let slot = line.map_or(free, |line| line.slot);
            free = free.max(slot + 1);
            if slot >= super::segment::SEGMENTS_MAX {
                return Err(Error::NotSupported("that many segments".into()));
            }
            let written = usize::try_from(end).unwrap_or(usize::MAX);
            let map = file.map(written, written).map_err(|error| error_at("map", &path, error))?;
            let segment = new_segment(&header, slot, path, file, map);
            segment.sealed.store(index != last, Ordering::Relaxed);
            if let Some(line) = line {
                segment.live_bytes.set(line.live_bytes.min(end));
                segment.tombstone_bytes.store(line.tombstone_bytes.min(end), Ordering::Relaxed);
                segment.next_expiry_ms.store(line.next_expiry_ms, Ordering::Relaxed);
            }
            self.next_sequence = self.next_sequence.max(header.first_sequence);
            self.segments.insert(Arc::new(segment));
        }
        Ok(())
    }

    /// Keeps a file that is no segment out of the way of those to come.
    fn set_aside(&self, path: &Path, what: &str) -> Result<()> {
        let aside = path.with_extension("log.damaged");
        self.storage.rename(path, &aside).map_err(|error| error_at("rename", path, error))?;
        report_damage(&aside, 0, what);
        Ok(())
    }

    /// Forgets the checkpoint, so that the log is replayed from the beginning.
    pub(crate) fn distrust_checkpoint(&mut self, error: &Error) {
        tracing::warn!("the checkpoint is ignored: {error}");
        self.forget_checkpoint();
    }

    /// As `distrust_checkpoint`, of one that is merely too old.
    pub(crate) fn forget_checkpoint(&mut self) {
        self.checkpoint = None;
        self.replay_from = (0, 0);
        for segment in self.segments.iter() {
            segment.live_bytes.set(0);
            segment.tombstone_bytes.store(0, Ordering::Relaxed);
            segment.next_expiry_ms.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Shows the engine every record from where its index stands, in order.
    pub(crate) fn replay(
        &mut self,
        visit: &mut dyn FnMut(&Segments, &Segment, Location, &Record<'_>) -> Result<()>,
    ) -> Result<()> {
        let (first, first_offset) = self.replay_from;
        let segments = self.segments.in_order();
        let total: u64 = segments.iter().filter(|s| s.number >= first).map(|s| s.bytes()).sum();
        let (mut done, mut told) = (0, 0);
        for (index, segment) in segments.iter().enumerate() {
            if segment.number < first {
                continue;
            }
            let start = if segment.number == first { first_offset } else { 0 };
            let is_last = index + 1 == segments.len();
            let mut holes = Vec::new();
            let stop = self.replay_segment(segment, start, is_last.then_some(&mut holes), visit)?;
            let end = stop.as_ref().map_or(segment.bytes(), |stop| stop.offset);
            self.fill(segment, &holes)?;
            // A process that was killed before it had cut a sealed segment leaves zeros at its end.
            let is_blank =
                stop.as_ref().is_some_and(|stop| stop.what.is_none() && stop.block_end.is_none());
            if is_last || is_blank && !self.known_ends.contains(&segment.number) {
                self.cut(segment, end, stop)?;
            } else if let Some(stop) = stop {
                let what = stop.what.unwrap_or("nothing was written here");
                report_damage(&segment.path, end, what);
                segment.damaged.store(true, Ordering::Relaxed);
            }
            done += segment.bytes();
            if done - told >= PROGRESS_BYTES {
                told = done;
                tracing::info!("replayed {} of {} MiB of the log", done >> 20, total >> 20);
            }
        }
        Ok(())
    }

    /// Where a block is not filled, and there may be such, notes it in `holes` and goes on.
    fn replay_segment(
        &mut self,
        segment: &Arc<Segment>,
        start: u64,
        mut holes: Option<&mut Vec<Hole>>,
        visit: &mut dyn FnMut(&Segments, &Segment, Location, &Record<'_>) -> Result<()>,
    ) -> Result<Option<Stop>> {
        let file = Arc::clone(&segment.file);
        let mut scanner = Scanner::new(file, self.identity.salt, start, segment.bytes());
        loop {
            let next = scanner.next(&mut |offset, record, _| {
                self.next_sequence = self.next_sequence.max(record.sequence.saturating_add(1));
                self.replayed = true;
                visit(&self.segments, segment, segment.at(offset), record)
            });
            match next {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Ok(None),
                Ok(Err(stop)) => match (stop.block_end, &mut holes) {
                    (Some(end), Some(holes)) => {
                        holes.push(Hole { start: stop.offset, end, what: stop.what });
                        scanner.leave_block();
                    }
                    _ => return Ok(Some(stop)),
                },
                Err(ScanError::Read(error)) => {
                    return Err(error_at("read", &segment.path, error));
                }
                Err(ScanError::Visit(error)) => return Err(error),
            }
        }
    }

    /// Makes what is left of blocks mean nothing, for good.
    fn fill(&self, segment: &Segment, holes: &[Hole]) -> Result<()> {
        let failed = |error| error_at("write", &segment.path, error);
        for hole in holes {
            let bytes = usize::try_from(hole.end - hole.start).unwrap_or(usize::MAX);
            if let Some(what) = hole.what {
                let path = segment.path.display();
                tracing::warn!("{path}: {bytes} bytes at byte {} are dropped: {what}", hole.start);
            }
            let mut filling = Vec::with_capacity(bytes);
            if bytes >= RECORD_BYTES_MIN {
                let mut filler = Prepared::filler(self.identity.salt, bytes);
                for part in filler.seal_hollow(1) {
                    filling.extend_from_slice(part);
                }
            }
            filling.resize(bytes, 0);
            segment.file.write_at(&filling, hole.start).map_err(failed)?;
        }
        if holes.is_empty() { Ok(()) } else { segment.file.sync().map_err(failed) }
    }

    /// Makes a segment end where its last good record does.
    fn cut(&mut self, segment: &Arc<Segment>, end: u64, stop: Option<Stop>) -> Result<()> {
        // Behind zeros, too, there may be some.
        let is_stale = stop.is_some();
        if let Some(Stop { what: Some(what), offset, .. }) = stop {
            let path = segment.path.display();
            let bytes = segment.bytes() - offset;
            tracing::warn!("{path}: {bytes} bytes from byte {offset} on are cut off: {what}");
        }
        let failed = |error| error_at("cut", &segment.path, error);
        // Zeros beyond the end are what is appended over, but stale bytes must not be.
        segment.file.truncate(end).map_err(failed)?;
        if is_stale {
            // Nor may they come back behind what is appended now, if the power goes before a sync.
            segment.file.sync().map_err(failed)?;
        }
        let written = usize::try_from(end).unwrap_or(usize::MAX);
        let map = segment.file.map(segment.capacity.max(written), written).map_err(failed)?;
        self.segments.insert(Arc::new(rebuilt(segment, map)));
        Ok(())
    }

    /// The log, ready for appending.
    pub(crate) fn finish(self) -> Result<Log> {
        let mut segments = self.segments;
        let last = segments.in_order().last().cloned();
        let segment = match last {
            // A log whose last segment was not replayed still has to be cut to its end.
            Some(segment) if !segment.is_damaged() => segment,
            last => {
                let number = last.map_or(0, |last| last.number) + 1;
                let capacity = self.settings.segment_bytes_min as u64;
                let header = SegmentHeader {
                    number,
                    clears: false,
                    first_sequence: self.next_sequence,
                    previous_bytes: 0,
                    capacity,
                };
                let path = segment_path(&self.directory, number);
                let failed = |error| error_at("create", &path, error);
                let slot = segments
                    .free_slot()
                    .ok_or_else(|| Error::NotSupported("that many segments".into()))?;
                let file = self.storage.open(&path, Open::New).map_err(failed)?;
                let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
                let map = file.map(capacity, 0).map_err(failed)?;
                file.allocate(&map, capacity.min(super::room::ALLOCATION_BYTES_FIRST) as u64)
                    .map_err(failed)?;
                let segment = Arc::new(new_segment(&header, slot, path.clone(), file, map));
                let appender = Appender::of(&segment.map);
                let header = header.encode(&self.identity);
                let begun = appender
                    .is_some_and(|mut appender| appender.append(&[&header], SEGMENT_HEADER_BYTES));
                if !begun {
                    return Err(Error::NoSpace { path });
                }
                // The appender of the tail is taken anew below, from a map of the same bytes.
                let map = segment
                    .file
                    .map(capacity, SEGMENT_HEADER_BYTES)
                    .map_err(|error| error_at("map", &segment.path, error))?;
                let segment = Arc::new(rebuilt(&segment, map));
                segments.insert(Arc::clone(&segment));
                segment
            }
        };
        segment.sealed.store(false, Ordering::Relaxed);
        let Some(appender) = Appender::of(&segment.map) else {
            return Err(Error::NoSpace { path: segment.path.clone() });
        };
        for segment in segments.iter() {
            segment.resident.store(segment.map.is_resident(), Ordering::Relaxed);
        }
        let end = appender.end() as u64;
        let is_checkpointed = self.checkpoint.is_some() && !self.replayed;
        let older: Vec<_> =
            segments.in_order().into_iter().filter(|one| !Arc::ptr_eq(one, &segment)).collect();
        let capacity_bytes = self.settings.capacity_bytes;
        let log = Log {
            reserved: AtomicBool::new(false),
            storage: self.storage,
            directory: self.directory,
            identity: self.identity,
            nature: Mutex::new(self.nature),
            settings: self.settings,
            segments: ArcSwap::from_pointee(segments),
            active_number: AtomicU64::new(segment.number),
            checkpointed_number: AtomicU64::new(segment.number),
            tail: CachePadded::new(Mutex::new(Tail {
                segment,
                appender,
                next_sequence: self.next_sequence,
                base: 0,
            })),
            lanes: lane::Lanes::default(),
            appended: CachePadded::new(AtomicU64::new(end)),
            commit: Commit::default(),
            sync: Mutex::default(),
            structure: Mutex::default(),
            maintenance: Mutex::default(),
            checkpointed: AtomicU64::new(if is_checkpointed { end } else { 0 }),
            // Whether the last process synced them is not known.
            unsynced: Mutex::new(older),
            retired: Mutex::default(),
            directory_changed: AtomicBool::new(true),
            ahead_wanted: AtomicBool::new(true),
            space_wanted: AtomicBool::new(false),
            pressure: AtomicU8::new(0),
            capacity: Capacity::new(capacity_bytes),
            figures: Figures::default(),
            background: background::Signals::default(),
            _lock: self.lock,
        };
        if log.capacity.is_capped() {
            log.set_capacity(capacity_bytes)?;
        }
        log.keep_reserve();
        Ok(log)
    }
}

/// What is left of a block.
struct Hole {
    start: u64,
    end: u64,
    /// Why it is not a record, if it was written to.
    what: Option<&'static str>,
}

fn report_damage(file: &Path, offset: u64, what: &str) {
    tracing::error!("{} is damaged at byte {offset}: {what}", file.display());
}

/// The same segment with another map.
fn rebuilt(segment: &Segment, map: crate::io::Map) -> Segment {
    let copy = |number: &AtomicU64| AtomicU64::new(number.load(Ordering::Relaxed));
    Segment {
        number: segment.number,
        slot: segment.slot,
        path: segment.path.clone(),
        file: Arc::clone(&segment.file),
        map,
        capacity: segment.capacity,
        live_bytes: LiveBytes::of(segment.live_bytes.get()),
        tombstone_bytes: copy(&segment.tombstone_bytes),
        next_expiry_ms: copy(&segment.next_expiry_ms),
        sealed: AtomicBool::new(segment.is_sealed()),
        resident: AtomicBool::new(true),
        first_read: FirstRead::default(),
        used: Used::default(),
        damaged: AtomicBool::new(segment.is_damaged()),
    }
}
