//! The manifest of an open database: decides which copy is written when.
//!
//! One copy is whole on the disk at all times, and is not touched until the other one is too. A new
//! segment is written to the other copy at once, without a sync, which survives a killed process.
//! After a loss of power the segment is known by its header. A background sync, or a removal of
//! segments, makes this copy durable, and then writes the next one without a sync. A loss of power
//! may tear that one, and leaves the durable one alone. Closing syncs both.
//!
//! `flushing` is held while copies are synced. `inner` never is, because writers that begin a
//! segment lock it. Their changes during a sync are written when the sync is done.

use super::super::error_at;
use super::super::segments::{Segment, SegmentOffset};
use super::super::writer::End;
use super::codec::{Contents, FILE_BYTES_MIN, LINE_BYTES, State};
use super::{Found, NAMES, write, write_copy};
use crate::Result;
use crate::base::sync::Mutex;
use crate::io::{File, Open, Storage};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The manifest of an open database. See the module.
pub(in crate::log) struct Manifest {
    copies: [(PathBuf, Arc<dyn File>); 2],
    flushing: Mutex<()>,
    inner: Mutex<Inner>,
}

/// Copies that a durable change syncs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Synced {
    One,
    Both,
}

struct Inner {
    contents: Contents,
    /// Index of the copy that is whole on the disk.
    durable: usize,
    /// Whether both copies are being written and synced.
    is_busy: bool,
    /// Whether there is a change that no copy has on the disk.
    is_dirty: bool,
    /// Size of each copy's file, in bytes.
    allocated: [u64; 2],
}

impl Inner {
    /// Records that a copy was written up to `bytes`.
    fn note_allocated(&mut self, index: usize, bytes: u64) {
        self.allocated[index] = self.allocated[index].max(bytes);
    }

    /// Returns the size that each copy needs to name one more segment, in bytes.
    fn needed_bytes(&self) -> u64 {
        (self.contents.encoded_bytes() + LINE_BYTES) as u64
    }

    fn has_space(&self) -> bool {
        self.allocated.iter().all(|bytes| *bytes >= self.needed_bytes())
    }

    /// Records that segments up to this one are on the disk.
    fn note_synced(&mut self, number: u64) {
        if self.contents.synced_through < number {
            self.contents.synced_through = number;
            self.is_dirty = true;
        }
    }
}

impl Manifest {
    /// Opens the manifest that was found, with new `contents`, and rewrites bad copies.
    pub(in crate::log) fn open(
        storage: &dyn Storage,
        directory: &Path,
        found: &Found,
        mut contents: Contents,
    ) -> Result<Self> {
        let mut durable = found.best;
        contents.generation = found.contents.generation;
        contents.is_paired = true;
        match found.to_heal {
            [false, false] => {}
            [true, true] => {
                contents = write(storage, directory, contents)?;
                durable = 0;
            }
            [first, _] => {
                let index = usize::from(!first);
                contents.generation += 1;
                write_copy(storage, directory, index, &contents)?;
                durable = index;
            }
        }
        let open = |name: &str| {
            let path = directory.join(name);
            match storage.open(&path, Open::Existing) {
                Ok(file) => Ok((path, file)),
                Err(error) => Err(error_at("open", &path, error)),
            }
        };
        let copies = [open(NAMES[0])?, open(NAMES[1])?];
        let mut allocated = [0; 2];
        for (bytes, (path, file)) in allocated.iter_mut().zip(&copies) {
            let written = contents.encoded_bytes() as u64;
            let length = file.length().map_err(|error| error_at("read", path, error))?;
            *bytes = length.max(written);
        }
        let inner = Inner { contents, durable, is_busy: false, is_dirty: true, allocated };
        let manifest = Self { copies, flushing: Mutex::default(), inner: Mutex::new(inner) };
        // This must happen before anything is appended. The segment that is appended to again has
        // no length in the manifest any more. Otherwise records after its old length, which a later
        // sync promises, would be cut off after a loss of power.
        manifest.write_durably(Synced::One)?;
        Ok(manifest)
    }

    /// Changes the contents, and writes them to the copy that may be torn. No sync.
    fn change(&self, change: impl FnOnce(&mut Contents)) -> Result<()> {
        let mut inner = self.inner.lock();
        change(&mut inner.contents);
        inner.is_dirty = true;
        if inner.is_busy {
            return Ok(());
        }
        self.write_other(&mut inner)
    }

    fn write_other(&self, inner: &mut Inner) -> Result<()> {
        inner.contents.generation += 1;
        let bytes = inner.contents.encode();
        let index = 1 - inner.durable;
        let (path, file) = &self.copies[index];
        file.write_at(&bytes, 0).map_err(|error| error_at("write", path, error))?;
        inner.note_allocated(index, bytes.len() as u64);
        Ok(())
    }

    /// Writes both copies, one after the other, and syncs the first or both.
    fn write_durably(&self, synced: Synced) -> Result<()> {
        self.change_durably(synced, |_| |_: &mut Contents| ())
    }

    /// Changes the contents, writes both copies, one after the other, and syncs the first or both.
    /// `change` returns a function that undoes it: a change that does not become durable must not
    /// be in a later write.
    fn change_durably<U: FnOnce(&mut Contents)>(
        &self,
        synced: Synced,
        change: impl FnOnce(&mut Contents) -> U,
    ) -> Result<()> {
        let _one_at_a_time = self.flushing.lock();
        let (bytes, first, undo) = {
            let mut inner = self.inner.lock();
            let undo = change(&mut inner.contents);
            inner.contents.generation += 1;
            inner.is_busy = true;
            inner.is_dirty = false;
            (inner.contents.encode(), 1 - inner.durable, undo)
        };
        let mut result = Ok(());
        for index in [first, 1 - first] {
            let (path, file) = &self.copies[index];
            let is_synced = index == first || synced == Synced::Both;
            result = file
                .write_at(&bytes, 0)
                .and_then(|()| if is_synced { file.sync() } else { Ok(()) })
                .map_err(|error| error_at("write", path, error));
            if result.is_err() {
                break;
            }
            let mut inner = self.inner.lock();
            inner.note_allocated(index, bytes.len() as u64);
            if is_synced {
                inner.durable = index;
            }
        }
        let mut inner = self.inner.lock();
        inner.is_busy = false;
        if result.is_err() {
            undo(&mut inner.contents);
            inner.is_dirty = true;
        }
        let written = if inner.is_dirty { self.write_other(&mut inner) } else { Ok(()) };
        result.and(written)
    }

    fn is_dirty(&self) -> bool {
        self.inner.lock().is_dirty
    }

    /// Returns the current contents.
    pub(in crate::log) fn contents(&self) -> Contents {
        self.inner.lock().contents.clone()
    }
}

/// Changes that an open log makes.
impl Manifest {
    /// Changes the parameters that the engine was created with.
    pub(in crate::log) fn change_parameters(&self, parameters: [u8; 24]) -> Result<()> {
        self.change_durably(Synced::One, |contents| {
            let before = std::mem::replace(&mut contents.parameters.encoded, parameters);
            move |contents: &mut Contents| contents.parameters.encoded = before
        })
    }

    /// Allocates space in both copies for the name of another segment. If the disk is full later,
    /// names can still be removed from both copies, which writes them whole.
    pub(in crate::log) fn allocate(&self) -> Result<()> {
        if self.inner.lock().has_space() {
            return Ok(());
        }
        // While this is locked, no other thread writes to the copies.
        let _one_at_a_time = self.flushing.lock();
        let mut inner = self.inner.lock();
        let padded = inner.needed_bytes().next_multiple_of(FILE_BYTES_MIN as u64);
        for (index, (path, file)) in self.copies.iter().enumerate() {
            let length = file.length().map_err(|error| error_at("read", path, error))?;
            // No contents are after the end of the list.
            let bytes = inner.allocated[index].max(length);
            if bytes < padded {
                let more = vec![0; usize::try_from(padded - bytes).unwrap_or(0)];
                file.write_at(&more, bytes).map_err(|error| error_at("write", path, error))?;
            }
            inner.note_allocated(index, padded);
        }
        Ok(())
    }

    /// Records that a segment is begun, and the final length of the one before it. The caller holds
    /// the tail. If that fails, the segment is known by its header.
    pub(in crate::log) fn note_begun(
        &self,
        number: u64,
        clears: bool,
        sealed: &Segment,
        next: u64,
    ) {
        let length = sealed.bytes();
        let written = self.change(|contents| {
            if let Some(line) = contents.segments.get_mut(&sealed.number) {
                *line = length;
            }
            contents.segments.insert(number, 0);
            contents.next_sequence = contents.next_sequence.max(next);
            if clears {
                contents.clears = number;
            } else if contents.clears >= number {
                contents.clears = 0;
            }
        });
        if let Err(error) = written {
            tracing::warn!("segment {number} is not in the manifest yet: {error}");
        }
    }

    /// Removes the names of segments from both copies, durably from the one that counts after a
    /// loss of power. Their files may be removed then. If that fails, the names stay: the segments
    /// are still read, and an opening would remove a file without a name.
    pub(in crate::log) fn forget_names(&self, segments: &[Arc<Segment>]) -> Result<()> {
        if segments.is_empty() {
            return Ok(());
        }
        self.change_durably(Synced::One, |contents| {
            let numbers = segments.iter().map(|segment| segment.number);
            let removed: Vec<_> =
                numbers.filter_map(|number| contents.segments.remove_entry(&number)).collect();
            move |contents: &mut Contents| contents.segments.extend(removed)
        })
    }

    /// Records that segments up to this one are on the disk. [`Manifest::flush`] writes it.
    pub(in crate::log) fn note_synced(&self, number: u64) {
        self.inner.lock().note_synced(number);
    }

    /// Records that the log is on the disk up to this place, and so are the segments before.
    /// [`Manifest::flush`] writes both together.
    pub(in crate::log) fn note_synced_to(&self, place: SegmentOffset) {
        let mut inner = self.inner.lock();
        inner.note_synced(place.0 - 1);
        if inner.contents.synced_to < place {
            inner.contents.synced_to = place;
            inner.is_dirty = true;
        }
    }

    /// Makes changes durable, if there are any.
    pub(in crate::log) fn flush(&self) -> Result<()> {
        if self.is_dirty() { self.write_durably(Synced::One) } else { Ok(()) }
    }

    /// Records the final end of the log. Everything is synced, and nothing is appended later.
    pub(in crate::log) fn note_closed(&self, end: End) -> Result<()> {
        let End { place: (number, offset), next_sequence, .. } = end;
        if self.is_dirty() {
            // After this, only the first sector changes, which no crash can tear. A sequence number
            // that is too high does no harm.
            self.change_durably(Synced::Both, |contents| {
                contents.next_sequence = next_sequence;
                |_: &mut Contents| ()
            })?;
        }
        self.change_durably(Synced::Both, |contents| {
            contents.next_sequence = contents.next_sequence.max(next_sequence);
            let before = std::mem::replace(&mut contents.state, State::Closed { number, offset });
            move |contents: &mut Contents| contents.state = before
        })
    }
}
