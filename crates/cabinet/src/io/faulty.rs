//! Faulty storage: in memory, with a disk that fills up, reads and syncs that fail, and losses of
//! power.
//!
//! Each file has a live image, which the process sees, and a durable one, with the synced bytes.
//! [`FaultyStorage::kill`] kills the process: the live images stay. [`FaultyStorage::lose_power`]
//! stops the machine. Each sector that was not synced is then on the disk or not. So is each name
//! that was added or removed since the directory was synced. In this fault model a disk writes
//! sectors whole.

use super::{File, Map, Open, Storage};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Bytes that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// Bytes that the operating system reads at a time.
const PAGE_BYTES: u64 = 4096;

/// Failures to inject. All are off at first.
#[derive(Debug)]
pub struct Faults {
    /// Bytes that the disk has left for new files and growing ones.
    pub space_bytes: AtomicU64,
    /// Whether every sync fails with an input/output error.
    pub fail_syncs: AtomicBool,
    /// Number of syncs after which every one fails.
    pub syncs_left: AtomicU64,
    /// Whether every read of a file (not of a mapping) fails, though not because of the medium.
    pub fail_reads: AtomicBool,
    /// Maximum number of bytes that a read of a file returns; 0 is no limit.
    pub short_reads: AtomicU64,
    /// Whether reads that must not wait fail as if they would.
    pub cold: AtomicBool,
    /// Whether reads that may wait block until this is reset.
    stalled: AtomicBool,
    /// Number of reads that wait.
    waiting: AtomicU64,
    /// Whether links fail, as they do across file systems.
    pub refuse_links: AtomicBool,
    /// Whether the disk reports free space though it is full, as under a quota.
    pub hide_shortage: AtomicBool,
    /// Whether a failed allocation keeps the space that there was, as on ext4.
    pub keep_parts: AtomicBool,
    /// Number of bytes that were written to files, not through a mapping.
    pub written_bytes: AtomicU64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            space_bytes: AtomicU64::new(u64::MAX),
            fail_syncs: AtomicBool::new(false),
            syncs_left: AtomicU64::new(u64::MAX),
            fail_reads: AtomicBool::new(false),
            short_reads: AtomicU64::new(0),
            cold: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            refuse_links: AtomicBool::new(false),
            hide_shortage: AtomicBool::new(false),
            keep_parts: AtomicBool::new(false),
            written_bytes: AtomicU64::new(0),
        }
    }
}

/// Faulty storage. See the module.
#[derive(Clone, Default)]
pub struct FaultyStorage {
    state: Arc<Mutex<State>>,
    faults: Arc<Faults>,
    /// Number of losses of power.
    boots: u128,
}

#[derive(Default)]
struct State {
    live: BTreeMap<PathBuf, Arc<FaultyFile>>,
    durable: BTreeMap<PathBuf, Arc<FaultyFile>>,
    locks: BTreeSet<PathBuf>,
    /// Files that no longer have a name.
    nameless: Vec<Weak<FaultyFile>>,
}

struct FaultyFile {
    image: Mutex<Image>,
    faults: Arc<Faults>,
    /// Number of bytes that were read, not through a mapping.
    read_bytes: AtomicU64,
}

impl FaultyFile {
    fn new(image: Image, faults: &Arc<Faults>) -> Self {
        Self { image: Mutex::new(image), faults: Arc::clone(faults), read_bytes: AtomicU64::new(0) }
    }
}

#[derive(Default)]
struct Image {
    /// Bytes that were not written through the map.
    contents: Vec<u8>,
    map: Option<Map>,
    allocated: u64,
    durable: Vec<u8>,
    /// Bytes that the disk cannot read.
    unreadable: Vec<Range<u64>>,
}

impl Image {
    fn length(&self) -> usize {
        let mapped = self.map.as_ref().map_or(0, Map::written);
        let allocated = usize::try_from(self.allocated).unwrap_or(usize::MAX);
        self.contents.len().max(mapped).max(allocated)
    }

    /// Returns whether only a part of a page with unreadable bytes would be written: the operating
    /// system then reads the page first.
    fn is_unreadable_beside(&self, written: Range<u64>) -> bool {
        let pages = [written.start, written.end].map(|at| (at / PAGE_BYTES, at % PAGE_BYTES));
        pages.into_iter().filter(|(_, within)| *within != 0).any(|(page, _)| {
            let page = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
            self.unreadable.iter().any(|bad| bad.start < page.end && page.start < bad.end)
        })
    }

    /// Fills the buffer from `start` on; all of it is within the length.
    fn read(&self, buffer: &mut [u8], start: usize) {
        buffer.fill(0);
        let contents = self.contents.get(start..).unwrap_or_default();
        let count = contents.len().min(buffer.len());
        buffer[..count].copy_from_slice(&contents[..count]);
        if let Some(map) = &self.map {
            map.copy(start, buffer);
        }
    }

    fn live(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length()];
        self.read(&mut bytes, 0);
        bytes
    }
}

impl FaultyStorage {
    /// Creates an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the failures to inject.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Makes reads of these bytes of a file fail with an input/output error until they are
    /// completely overwritten. A mapping shows zeros there.
    pub fn lose_sectors(&self, path: &Path, bytes: Range<u64>) -> io::Result<()> {
        let state = self.state.lock();
        let file = state.live.get(path).ok_or_else(not_found)?;
        file.image.lock().unreadable.push(bytes);
        Ok(())
    }

    /// Makes every opening of a file fail with an input/output error.
    pub fn lose_file(&self, path: &Path) -> io::Result<()> {
        self.lose_sectors(path, 0..u64::MAX)
    }

    /// Returns the number of bytes of a file that were read so far, not through a mapping.
    pub fn read_bytes(&self, path: &Path) -> io::Result<u64> {
        let state = self.state.lock();
        let file = state.live.get(path).ok_or_else(not_found)?;
        Ok(file.read_bytes.load(Ordering::Relaxed))
    }

    /// Returns the number of bytes of files that no longer have a name but are still open.
    pub fn nameless_bytes(&self) -> u64 {
        let mut state = self.state.lock();
        state.nameless.retain(|file| file.strong_count() > 0);
        let durable: Vec<_> = state.durable.values().map(Arc::as_ptr).collect();
        let open = state.nameless.iter().filter(|file| !durable.contains(&file.as_ptr()));
        open.filter_map(Weak::upgrade).map(|file| file.image.lock().length() as u64).sum()
    }

    /// Returns the disk for a process that starts after this one was killed.
    pub fn kill(&self) -> Self {
        let state = self.state.lock();
        self.restart(
            self.boots,
            state.live.iter().map(|(path, file)| {
                let image = file.image.lock();
                (path.clone(), image.live(), image.durable.clone(), image.unreadable.clone())
            }),
        )
    }

    /// Returns the disk for a machine that starts after this one lost its power. `chance` returns
    /// random numbers.
    pub fn lose_power(&self, mut chance: impl FnMut() -> u64) -> Self {
        let state = self.state.lock();
        let paths: BTreeSet<&PathBuf> = state.live.keys().chain(state.durable.keys()).collect();
        let mut found = Vec::new();
        for path in paths {
            let (live, durable) = (state.live.get(path), state.durable.get(path));
            let same = match (live, durable) {
                (Some(live), Some(durable)) => Arc::ptr_eq(live, durable),
                _ => false,
            };
            let file = if same || chance().is_multiple_of(2) { live } else { durable };
            if let Some(file) = file {
                let image = file.image.lock();
                let bytes = torn(&image.live(), &image.durable, &mut chance);
                found.push((path.clone(), bytes.clone(), bytes, image.unreadable.clone()));
            }
        }
        self.restart(self.boots + 1, found.into_iter())
    }

    fn restart(
        &self,
        boots: u128,
        files: impl Iterator<Item = (PathBuf, Vec<u8>, Vec<u8>, Vec<Range<u64>>)>,
    ) -> Self {
        let faults = Arc::new(Faults::default());
        let live: BTreeMap<_, _> = files
            .map(|(path, contents, durable, unreadable)| {
                let allocated = contents.len() as u64;
                let image = Image { contents, map: None, allocated, durable, unreadable };
                let file = FaultyFile::new(image, &faults);
                (path, Arc::new(file))
            })
            .collect();
        let durable = live.clone();
        let state = State { durable, live, locks: BTreeSet::new(), nameless: Vec::new() };
        Self { state: Arc::new(Mutex::new(state)), faults, boots }
    }
}

/// Returns the durable image with some of the sectors that were not synced.
fn torn(live: &[u8], durable: &[u8], chance: &mut impl FnMut() -> u64) -> Vec<u8> {
    if live == durable {
        return live.to_vec();
    }
    // The length depends on the file system's journal: old, new, or in between.
    let length = match chance() % 3 {
        0 => durable.len(),
        1 => live.len(),
        _ => {
            let (low, high) = (live.len().min(durable.len()), live.len().max(durable.len()));
            low + usize::try_from(chance()).unwrap_or(0) % (high - low + 1)
        }
    };
    // Synced bytes stay, unless the file was cut since.
    let length = length.max(durable.len().min(live.len()));
    let mut bytes = durable.to_vec();
    bytes.resize(length, 0);
    let all = chance().is_multiple_of(8);
    for start in (0..length).step_by(SECTOR_BYTES) {
        let end = (start + SECTOR_BYTES).min(length).min(live.len());
        if start < end && (all || chance().is_multiple_of(2)) {
            bytes[start..end].copy_from_slice(&live[start..end]);
        }
    }
    bytes
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Storage for FaultyStorage {
    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        let names = state.live.keys().filter(|path| path.parent() == Some(directory));
        Ok(names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        if how == Open::New {
            if state.live.contains_key(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let file = Arc::new(FaultyFile::new(Image::default(), &self.faults));
            state.live.insert(path.to_owned(), file);
        }
        let file = state.live.get(path).ok_or_else(not_found)?;
        if file.image.lock().unreadable.iter().any(|bad| bad.end == u64::MAX) {
            return Err(rustix::io::Errno::IO.into());
        }
        Ok(Arc::clone(file) as Arc<dyn File>)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let file = state.live.remove(from).ok_or_else(not_found)?;
        if let Some(replaced) = state.live.insert(to.to_owned(), file) {
            self.faults.give_space(replaced.image.lock().allocated);
            state.nameless.push(Arc::downgrade(&replaced));
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let file = state.live.remove(path).ok_or_else(not_found)?;
        self.faults.give_space(file.image.lock().allocated);
        state.nameless.push(Arc::downgrade(&file));
        Ok(())
    }

    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.faults.refuse_links.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        let mut state = self.state.lock();
        let file = Arc::clone(state.live.get(from).ok_or_else(not_found)?);
        if state.live.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.live.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        self.faults.sync()?;
        let mut state = self.state.lock();
        let within = |path: &PathBuf| path.parent() == Some(directory);
        state.durable.retain(|path, _| !within(path));
        let live: Vec<_> = state
            .live
            .iter()
            .filter(|(path, _)| within(path))
            .map(|(path, file)| (path.clone(), Arc::clone(file)))
            .collect();
        state.durable.extend(live);
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        if !self.state.lock().locks.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Lock { storage: self.clone(), path: path.to_owned() }))
    }

    fn page_cache_id(&self, _directory: &Path) -> Option<[u8; 16]> {
        Some(self.boots.to_le_bytes())
    }

    fn free_bytes(&self, _directory: &Path) -> io::Result<u64> {
        if self.faults.hide_shortage.load(Ordering::Relaxed) {
            return Ok(u64::MAX);
        }
        Ok(self.faults.space_bytes.load(Ordering::Relaxed))
    }
}

struct Lock {
    storage: FaultyStorage,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.storage.state.lock().locks.remove(&self.path);
    }
}

impl Faults {
    /// Makes all reads miss the cache from now on, and block if they may wait.
    pub fn stall_all(&self) {
        self.cold.store(true, Ordering::Relaxed);
        self.stalled.store(true, Ordering::Release);
    }

    /// Waits until a read blocks.
    pub fn await_stalled(&self) {
        while self.waiting.load(Ordering::Acquire) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets reads continue, and puts everything into the cache again.
    pub fn go_on(&self) {
        self.cold.store(false, Ordering::Relaxed);
        self.stalled.store(false, Ordering::Release);
    }

    fn sync(&self) -> io::Result<()> {
        let left = self.syncs_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            if left == u64::MAX { Some(left) } else { left.checked_sub(1) }
        });
        if left.is_err() || self.fail_syncs.load(Ordering::Relaxed) {
            return Err(io::Error::other("injected sync failure"));
        }
        Ok(())
    }

    fn stall(&self) {
        if self.stalled.load(Ordering::Acquire) {
            self.waiting.fetch_add(1, Ordering::AcqRel);
            while self.stalled.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn give_space(&self, bytes: u64) {
        let _ = self.space_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            (left != u64::MAX).then(|| left.saturating_add(bytes))
        });
    }

    fn take_space(&self, bytes: u64) -> io::Result<()> {
        self.space_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| match left {
                u64::MAX => Some(left),
                left => left.checked_sub(bytes),
            })
            .map(|_| ())
            .map_err(|_| io::ErrorKind::StorageFull.into())
    }
}

impl File for FaultyFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.image.lock().length() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.faults.stall();
        if self.faults.fail_reads.load(Ordering::Relaxed) {
            return Err(io::Error::other("injected read failure"));
        }
        let image = self.image.lock();
        let length = image.length();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(length);
        let mut bytes = buffer.len().min(length - start);
        let end = offset + bytes as u64;
        if image.unreadable.iter().any(|bad| bad.start < end && offset < bad.end) {
            return Err(rustix::io::Errno::IO.into());
        }
        let short = usize::try_from(self.faults.short_reads.load(Ordering::Relaxed)).unwrap_or(0);
        if short != 0 {
            bytes = bytes.min(short);
        }
        image.read(&mut buffer[..bytes], start);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.faults.cold.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut image = self.image.lock();
        // A map would hide the bytes written.
        image.contents = image.live();
        image.map = None;
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start + bytes.len();
        if image.is_unreadable_beside(offset..end as u64) {
            return Err(rustix::io::Errno::IO.into());
        }
        if end > image.contents.len() {
            self.faults.take_space((end - image.contents.len()) as u64)?;
            image.contents.resize(end, 0);
            image.allocated = image.allocated.max(end as u64);
        }
        image.contents[start..end].copy_from_slice(bytes);
        self.faults.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let written = start as u64..end as u64;
        image.unreadable.retain(|bad| bad.start < written.start || bad.end > written.end);
        Ok(())
    }

    fn allocate(&self, map: &Map, length: u64) -> io::Result<()> {
        let mut image = self.image.lock();
        if length > image.allocated {
            if let Err(error) = self.faults.take_space(length - image.allocated) {
                if self.faults.keep_parts.load(Ordering::Relaxed) {
                    image.allocated += self.faults.space_bytes.swap(0, Ordering::Relaxed);
                }
                return Err(error);
            }
            image.allocated = length;
        }
        map.set_backed(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(())
    }

    fn give_back(&self, map: &Map, kept: usize) -> io::Result<()> {
        let end = map.backed().min(map.written() + kept);
        map.set_backed(end);
        let mut image = self.image.lock();
        image.contents.truncate(end);
        self.faults.give_space(image.allocated.saturating_sub(end as u64));
        image.allocated = end as u64;
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut image = self.image.lock();
        let bytes = usize::try_from(length).map_err(io::Error::other)?;
        image.contents = image.live();
        image.contents.resize(bytes, 0);
        image.unreadable.retain(|bad| bad.start < length);
        self.faults.give_space(image.allocated.saturating_sub(length));
        image.allocated = length;
        // Readers borrow the bytes of the map, so the file gets its own copy here.
        image.map = None;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.sync()?;
        let mut image = self.image.lock();
        image.durable = image.live();
        Ok(())
    }

    fn will_read(&self, _offset: u64, _bytes: u64) {}

    fn map(&self, capacity: usize, written: usize) -> io::Result<Map> {
        let mut image = self.image.lock();
        let mut live = image.live();
        for bad in &image.unreadable {
            let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(live.len());
            let (start, end) = (within(bad.start), within(bad.end));
            live[start..end].fill(0);
        }
        let map = Map::of_memory(&live[..written.min(live.len())], capacity)?;
        map.set_backed(live.len());
        image.map = Some(map.clone());
        Ok(map)
    }
}
