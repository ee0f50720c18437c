//! Shared mappings of append-only files.
//!
//! A [`Map`] may be longer than its file. Bytes below `written` never change and may be lent
//! out; bytes from there on belong to the one [`Appender`], but for the [`AppendBlock`]s that it
//! has given away: those lie below `written`, and what of one is not appended yet belongs to its
//! holder. That split is what makes handing out plain slices sound: nobody in this process writes
//! where somebody reads. Within a block that rests on readers asking for no more than the records
//! that they were told of. That no other process writes is what the database's lock file is for.
#![expect(unsafe_code, reason = "memory maps cannot be had without it; see each SAFETY line")]

use crate::sync::interrupt;
use memmap2::{MmapOptions, MmapRaw};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A mapping of a file (or, for tests, of memory) that only grows. Clones share it.
#[derive(Clone)]
pub struct Map(Arc<Shared>);

/// On a cache line of its own, which appends change.
#[repr(align(64))]
struct Shared {
    raw: MmapRaw,
    /// Bytes that are final and may be read.
    written: AtomicUsize,
    /// Bytes that the file has, and so may be touched.
    backed: AtomicUsize,
    appender_taken: AtomicBool,
    /// The appender and the blocks that are there.
    writers: AtomicUsize,
    /// Whether the system tells which pages are in memory.
    tells_residency: bool,
}

impl Map {
    /// Maps the first `capacity` bytes of a file, of which `written` (at most its length) count.
    pub(super) fn of_file(file: &fs::File, capacity: usize, written: usize) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let raw = MmapOptions::new().len(capacity.max(1)).map_raw(file)?;
        // Records are read at random: read-ahead would only push other pages out of memory.
        raw.advise(memmap2::Advice::Random)?;
        Ok(Self::new(raw, written.min(length), length, true))
    }

    /// The same of a file that is only open for reading. There is to be no appender.
    pub(super) fn of_file_to_read(
        file: &fs::File,
        capacity: usize,
        written: usize,
    ) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if length.min(capacity) == 0 {
            return Self::of_memory(&[], capacity);
        }
        let raw = MmapOptions::new().len(capacity).map_raw_read_only(file)?;
        raw.advise(memmap2::Advice::Random)?;
        let map = Self::new(raw, written.min(length), 0, tells_residency(file));
        map.0.appender_taken.store(true, Ordering::Release);
        Ok(map)
    }

    /// Maps the first `written` bytes of a file, which is only open for reading, and from there on
    /// memory. So appends do not reach the file.
    pub(super) fn of_file_before_memory(
        file: &fs::File,
        capacity: usize,
        written: usize,
    ) -> io::Result<Self> {
        let written = written.min(capacity);
        // The page in which appends begin is memory.
        let mapped = written - written % rustix::param::page_size();
        let mut tail = vec![0; written - mapped];
        file.read_exact_at(&mut tail, mapped as u64)?;
        let map = Self::of_zeros(capacity, tells_residency(file))?;
        let address = map.0.raw.as_mut_ptr();
        if mapped > 0 {
            // SAFETY: the range consists of whole pages of a mapping that this map owns and that
            // nobody has seen yet.
            unsafe {
                rustix::mm::mmap(
                    address.cast(),
                    mapped,
                    rustix::mm::ProtFlags::READ,
                    rustix::mm::MapFlags::SHARED | rustix::mm::MapFlags::FIXED,
                    file,
                    0,
                )?;
                // A refusal costs speed only.
                let _ = rustix::mm::madvise(address.cast(), mapped, rustix::mm::Advice::Random);
            }
        }
        // SAFETY: the mapping is at least `written` bytes long, its pages from `mapped` on are
        // memory that nobody has seen yet, and the vector lies elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(tail.as_ptr(), address.add(mapped), tail.len()) };
        map.0.written.store(written, Ordering::Release);
        map.set_backed(written);
        Ok(map)
    }

    /// Memory that behaves like a mapping of a file that begins with `contents`.
    pub(super) fn of_memory(contents: &[u8], capacity: usize) -> io::Result<Self> {
        let map = Self::of_zeros(capacity, true)?;
        let bytes = contents.len().min(capacity);
        for (index, page) in contents[..bytes].chunks(PAGE_BYTES).enumerate() {
            // Pages of zeros are not in memory until they are touched.
            if page.iter().any(|byte| *byte != 0) {
                // SAFETY: the mapping is at least `bytes` long, is ours alone, and does not overlap
                // a slice from elsewhere.
                unsafe {
                    let to = map.0.raw.as_mut_ptr().add(index * PAGE_BYTES);
                    std::ptr::copy_nonoverlapping(page.as_ptr(), to, page.len());
                }
            }
        }
        map.0.written.store(bytes, Ordering::Release);
        map.set_backed(bytes);
        Ok(map)
    }

    fn of_zeros(capacity: usize, tells_residency: bool) -> io::Result<Self> {
        let raw = MmapRaw::from(MmapOptions::new().len(capacity.max(1)).map_anon()?);
        Ok(Self::new(raw, 0, 0, tells_residency))
    }

    fn new(raw: MmapRaw, written: usize, backed: usize, tells_residency: bool) -> Self {
        let backed = backed.min(raw.len());
        let (written, backed) = (AtomicUsize::new(written), AtomicUsize::new(backed));
        Self(Arc::new(Shared {
            raw,
            written,
            backed,
            appender_taken: AtomicBool::new(false),
            writers: AtomicUsize::new(0),
            tells_residency,
        }))
    }

    /// Bytes that may be read.
    pub(crate) fn written(&self) -> usize {
        self.0.written.load(Ordering::Acquire)
    }

    /// The bytes from `start` up to `end`, or `None` if they are not all written. If blocks may be
    /// open, the range has to be within a record that was appended.
    #[inline]
    pub(crate) fn get(&self, start: usize, end: usize) -> Option<&[u8]> {
        if start > end || end > self.written() {
            return None;
        }
        // SAFETY: `start..end` lies within the mapping and, being below `written`, within the
        // file and beyond the reach of the appender: it is not written while the slice lives,
        // because `written` never falls. Nor does the holder of a block write to a record that
        // it has appended.
        Some(unsafe { std::slice::from_raw_parts(self.0.raw.as_ptr().add(start), end - start) })
    }

    /// Asks the processor to fetch the cache line at `offset`.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        prefetch(self.0.raw.as_ptr().wrapping_add(offset.min(self.0.raw.len())));
    }

    /// Tells the map that its file has grown to `bytes`.
    pub(super) fn set_backed(&self, bytes: usize) {
        self.0.backed.store(bytes.min(self.0.raw.len()), Ordering::Release);
    }

    /// Bytes that the file has.
    pub(crate) fn backed(&self) -> usize {
        self.0.backed.load(Ordering::Acquire)
    }

    /// Maps the pages of `start..end`, which the file must have, for writing, so that appends
    /// there do not fault.
    pub(super) fn populate(&self, start: usize, end: usize) {
        let end = end.min(self.0.raw.len());
        let start = start & !(page_bytes() - 1);
        if start >= end {
            return;
        }
        // A refusal (an old kernel) costs speed only.
        // SAFETY: the range lies within the mapping; populating changes no contents.
        let _ = unsafe {
            rustix::mm::madvise(
                self.0.raw.as_mut_ptr().add(start).cast(),
                end - start,
                rustix::mm::Advice::LinuxPopulateWrite,
            )
        };
    }

    /// Maps the written bytes of `file`, whose map this is, for reading only, at the place where
    /// they are. Does nothing before there was an appender, or while somebody may write.
    pub(super) fn freeze(&self, file: &fs::File) {
        let had_appender = self.0.appender_taken.load(Ordering::Acquire);
        let is_written_to = self.0.writers.load(Ordering::Acquire) > 0;
        if !had_appender || is_written_to || self.written() == 0 {
            return;
        }
        let (address, bytes) = (self.0.raw.as_mut_ptr(), self.written());
        // SAFETY: the range lies within a mapping that this map owns, and is replaced, in one
        // step, by one of the same bytes of the same file; so slices of it stay good. It is
        // not written to: the one appender is gone, and so are its blocks.
        let mapped = unsafe {
            rustix::mm::mmap(
                address.cast(),
                bytes,
                rustix::mm::ProtFlags::READ,
                rustix::mm::MapFlags::SHARED | rustix::mm::MapFlags::FIXED,
                file,
                0,
            )
        };
        if mapped.is_ok() {
            for advice in [rustix::mm::Advice::Random, rustix::mm::Advice::LinuxPopulateRead] {
                // A refusal costs speed only.
                // SAFETY: the range was mapped above; neither advice changes its contents.
                let _ = unsafe { rustix::mm::madvise(address.cast(), bytes, advice) };
            }
        }
    }

    /// Says that its bytes will be read from the first to the last.
    #[cfg(feature = "internals")]
    pub(crate) fn expect_reading_in_order(&self) {
        // A refusal costs speed only.
        let _ = self.0.raw.advise(memmap2::Advice::Sequential);
    }

    /// Whether every page of the written part is in memory.
    pub(crate) fn is_resident(&self) -> bool {
        self.residency().is_some_and(|pages| pages.iter().all(|page| page & 1 == 1))
    }

    /// Which pages with bytes of a range are in memory, as far as it is written; `None` if the
    /// system does not tell.
    pub(crate) fn resident_pages_within(&self, start: u64, end: u64) -> Option<Vec<bool>> {
        let end = usize::try_from(end).unwrap_or(usize::MAX).min(self.written());
        let start = usize::try_from(start).unwrap_or(usize::MAX).min(end);
        let pages = self.residency_of(start & !(page_bytes() - 1), end)?;
        Some(pages.into_iter().map(|page| page & 1 == 1).collect())
    }

    /// Which pages of the written part are in memory; none of them where the system does not tell.
    pub(crate) fn resident_pages(&self) -> Vec<bool> {
        self.residency().unwrap_or_default().into_iter().map(|page| page & 1 == 1).collect()
    }

    /// A byte for each page of the written part, of which the lowest bit tells.
    fn residency(&self) -> Option<Vec<u8>> {
        // Asked once: an appender may be at work meanwhile.
        self.residency_of(0, self.written())
    }

    /// A byte for each page of a range that begins with a page and ends within the written part.
    fn residency_of(&self, start: usize, end: usize) -> Option<Vec<u8>> {
        let bytes = end.checked_sub(start).filter(|_| end <= self.0.raw.len())?;
        if !self.0.tells_residency {
            return None;
        }
        let pages = bytes.div_ceil(page_bytes());
        if pages == 0 {
            return Some(Vec::new());
        }
        let mut resident = vec![0u8; pages];
        // SAFETY: the range lies within the mapping, see above, and the vector has a byte for each
        // of its pages, of which `bytes` tells the number both here and there.
        let answer = unsafe {
            let first = self.0.raw.as_mut_ptr().add(start);
            libc::mincore(first.cast(), bytes, resident.as_mut_ptr())
        };
        (answer == 0).then_some(resident)
    }
}

/// Bytes of memory that are looked at for zeros together, and of the shortest page there is.
const PAGE_BYTES: usize = 4096;

/// Bytes of a page of memory, and of the page cache: a power of two, 4 KiB or more.
#[inline]
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Whether `mincore` tells which pages of a file are in memory. Since Linux 5.2 it says that all
/// are to a user who neither owns the file nor may write to it.
fn tells_residency(file: &fs::File) -> bool {
    let user = rustix::process::geteuid();
    let is_owner = rustix::fs::fstat(file).is_ok_and(|stat| stat.st_uid == user.as_raw());
    let may_write = || {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let (access, flags) = (rustix::fs::Access::WRITE_OK, rustix::fs::AtFlags::EACCESS);
        rustix::fs::accessat(rustix::fs::CWD, path, access, flags).is_ok()
    };
    is_owner || user.is_root() || may_write()
}

/// Asks the processor to fetch the cache line that holds `place`.
#[inline]
pub(crate) fn prefetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; it never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// The one writer of a [`Map`].
pub(crate) struct Appender {
    map: Map,
    end: usize,
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.map.0.writers.fetch_sub(1, Ordering::Release);
    }
}

impl Appender {
    /// The appender of a map, or `None` if it has had one already.
    pub(crate) fn of(map: &Map) -> Option<Self> {
        // Before it is said that there is one: nobody shall think that it has gone.
        map.0.writers.fetch_add(1, Ordering::AcqRel);
        if map.0.appender_taken.swap(true, Ordering::AcqRel) {
            map.0.writers.fetch_sub(1, Ordering::Release);
            return None;
        }
        Some(Self { map: map.clone(), end: map.written() })
    }

    /// Bytes written so far; where the next append goes.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Appends the parts one behind the other, then zeros up to `total` bytes. Answers false,
    /// having changed nothing, if the file has no room for them.
    #[inline]
    #[must_use]
    pub(crate) fn append(&mut self, parts: &[&[u8]], total: usize) -> bool {
        let Some(end) = self.end.checked_add(total) else { return false };
        if end > self.map.backed() {
            return false;
        }
        // SAFETY: the target lies within the mapping and the file (`end <= backed <= len`),
        // above `written`, where only this appender, which is borrowed mutably, has access.
        if !unsafe { write(&self.map, self.end, end, parts) } {
            return false;
        }
        self.end = end;
        self.map.0.written.store(end, Ordering::Release);
        true
    }

    /// As `append`, of what is long: `each` is called for every `piece_bytes` of it with where in
    /// the file they begin and end, once they are there.
    #[must_use]
    pub(crate) fn append_pieces(
        &mut self,
        parts: &[&[u8]],
        total: usize,
        piece_bytes: usize,
        each: &mut dyn FnMut(usize, usize),
    ) -> bool {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let Some(end) = self.end.checked_add(total) else { return false };
        if end > self.map.backed() || bytes > total {
            return false;
        }
        let mut place = self.end;
        for piece in parts.iter().flat_map(|part| part.chunks(piece_bytes.max(1))) {
            let behind = place + piece.len();
            // SAFETY: the target lies within `self.end..end`, which is within the mapping and the
            // file, above `written`, where only this appender, borrowed mutably, has access.
            if !unsafe { write(&self.map, place, behind, &[piece]) } {
                return false;
            }
            each(place, behind);
            place = behind;
        }
        // SAFETY: as above.
        if !unsafe { write(&self.map, place, end, &[]) } {
            return false;
        }
        self.end = end;
        self.map.0.written.store(end, Ordering::Release);
        true
    }

    /// Gives the next `bytes` bytes away, to be filled by somebody else while appends go on
    /// behind them. `None`, having changed nothing, if the file has no room for them.
    pub(crate) fn give_append_block(&mut self, bytes: usize) -> Option<AppendBlock> {
        let limit = self.end.checked_add(bytes)?;
        if limit > self.map.backed() {
            return None;
        }
        self.map.0.writers.fetch_add(1, Ordering::AcqRel);
        let block = AppendBlock { map: self.map.clone(), end: self.end, limit };
        self.end = limit;
        self.map.0.written.store(limit, Ordering::Release);
        Some(block)
    }
}

/// A stretch of a [`Map`] that has a writer of its own. It holds zeros until it is written to.
pub(crate) struct AppendBlock {
    map: Map,
    end: usize,
    limit: usize,
}

impl Drop for AppendBlock {
    fn drop(&mut self) {
        self.map.0.writers.fetch_sub(1, Ordering::Release);
    }
}

impl AppendBlock {
    /// Offset in the file, in bytes, of the next append.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.limit - self.end
    }

    /// As [`Appender::append`], within the block.
    #[inline]
    #[must_use]
    pub(crate) fn append(&mut self, parts: &[&[u8]], total: usize) -> bool {
        if total > self.left() {
            return false;
        }
        let end = self.end + total;
        // SAFETY: the target lies within the file, as the whole block did when it was given away
        // (files that are mapped do not get shorter than `written`); no other block and no
        // appender reaches there, this block is borrowed mutably, and no reader was told of it.
        if !unsafe { write(&self.map, self.end, end, parts) } {
            return false;
        }
        self.end = end;
        true
    }
}

/// Writes the parts one behind the other from `start` on, then zeros up to `end`. Answers false,
/// having changed nothing, if the parts are longer.
///
/// # Safety
///
/// `start..end` lies within the map and its file, and nobody else has access to it.
#[inline]
unsafe fn write(map: &Map, start: usize, end: usize, parts: &[&[u8]]) -> bool {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    if bytes > end - start {
        return false;
    }
    let mut place = start;
    for part in parts {
        interrupt();
        // SAFETY: the target lies within `start..end`, see above.
        unsafe {
            let target = map.0.raw.as_mut_ptr().add(place);
            std::ptr::copy_nonoverlapping(part.as_ptr(), target, part.len());
        }
        place += part.len();
    }
    // SAFETY: as above; `place <= end`.
    unsafe { std::ptr::write_bytes(map.0.raw.as_mut_ptr().add(place), 0, end - place) };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_which_the_system_does_not_tell_counts_as_not_in_memory() {
        let bytes = 3 * page_bytes();
        for is_told in [true, false] {
            let map = Map::of_zeros(bytes, is_told).expect("a map");
            map.set_backed(bytes);
            let mut appender = Appender::of(&map).expect("the first appender");
            assert!(appender.append(&[&vec![1; bytes]], bytes));
            assert_eq!(map.is_resident(), is_told);
            assert_eq!(map.resident_pages().len(), if is_told { 3 } else { 0 });
            let within = map.resident_pages_within(page_bytes() as u64 + 1, bytes as u64 - 1);
            assert_eq!(within, is_told.then(|| vec![true, true]));
        }
    }

    /// Before it was asked how long the map is only once, this ended with a broken heap.
    #[test]
    fn looking_what_is_resident_stays_in_bounds_while_the_map_grows() {
        const BYTES: usize = 256 << 20;
        let map = Map::of_memory(&[], BYTES).expect("a map");
        map.set_backed(BYTES);
        let mut appender = Appender::of(&map).expect("the first appender");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let page = [1; PAGE_BYTES];
                while appender.append(&[&page], PAGE_BYTES) {}
            });
            while map.written() < BYTES {
                map.is_resident();
            }
        });
        assert!(map.is_resident());
    }
}
