//! Shared mappings of append-only files.
//!
//! A [`Map`] may be longer than its file. Bytes below `written` never change and may be borrowed,
//! but for those of an open [`AppendBlock`] that its holder has not appended yet: [`OpenBlocks`]
//! knows these. Bytes from `written` on belong to the one [`Appender`].
//!
//! That split makes plain slices sound, whatever range is requested: no thread of this process
//! writes where another reads. The database's lock file keeps other processes from writing.
#![expect(unsafe_code, reason = "memory maps cannot be had without it; see each SAFETY line")]

use super::open_blocks::OpenBlocks;
use crate::base::sync::{interrupt, is_model};
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

/// Shared state, aligned to its own cache lines, because appends change it. A read needs the first
/// line only.
#[repr(C, align(64))]
struct Shared {
    raw: MmapRaw,
    /// Number of bytes that are final, but for those of open append blocks.
    written: AtomicUsize,
    open_blocks: OpenBlocks,
    /// Number of bytes that the file has, and that may be touched.
    backed: AtomicUsize,
    appender_taken: AtomicBool,
    /// Number of live appenders and append blocks.
    writers: AtomicUsize,
    /// Whether the operating system reports which pages are in memory.
    reports_residency: bool,
}

impl Map {
    /// Maps the first `capacity` bytes of a file, of which `written` (at most its length) are
    /// final.
    pub(super) fn of_file(file: &fs::File, capacity: usize, written: usize) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let raw = MmapOptions::new().len(capacity.max(1)).map_raw(file)?;
        // Records are read at random: read-ahead would only push other pages out of memory.
        raw.advise(memmap2::Advice::Random)?;
        Ok(Self::new(raw, written.min(length), length, true))
    }

    /// Like `of_file`, for a file that is only open for reading. The map has no appender.
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
        let map = Self::new(raw, written.min(length), 0, reports_residency(file));
        map.0.appender_taken.store(true, Ordering::Release);
        Ok(map)
    }

    /// Maps the first `written` bytes of a file that is only open for reading, followed by memory.
    /// So appends do not reach the file.
    pub(super) fn of_file_before_memory(
        file: &fs::File,
        capacity: usize,
        written: usize,
    ) -> io::Result<Self> {
        let written = written.min(capacity);
        // The page in which appends begin is in memory.
        let mapped = written - written % rustix::param::page_size();
        let mut tail = vec![0; written - mapped];
        file.read_exact_at(&mut tail, mapped as u64)?;
        let map = Self::of_zeros(capacity, reports_residency(file))?;
        let address = map.0.raw.as_mut_ptr();
        if mapped > 0 {
            // SAFETY: the range consists of whole pages of a mapping that this map owns and that no
            // other code has seen yet.
            unsafe {
                rustix::mm::mmap(
                    address.cast(),
                    mapped,
                    rustix::mm::ProtFlags::READ,
                    rustix::mm::MapFlags::SHARED | rustix::mm::MapFlags::FIXED,
                    file,
                    0,
                )?;
                // A failure only costs speed.
                let _ = rustix::mm::madvise(address.cast(), mapped, rustix::mm::Advice::Random);
            }
        }
        // SAFETY: the mapping is at least `written` bytes long, its pages from `mapped` on are
        // memory that no other code has seen yet, and the vector is elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(tail.as_ptr(), address.add(mapped), tail.len()) };
        map.0.written.store(written, Ordering::Release);
        map.set_backed(written);
        Ok(map)
    }

    /// Creates a map of memory that behaves like one of a file with `contents`.
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

    fn of_zeros(capacity: usize, reports_residency: bool) -> io::Result<Self> {
        let raw = MmapRaw::from(MmapOptions::new().len(capacity.max(1)).map_anon()?);
        Ok(Self::new(raw, 0, 0, reports_residency))
    }

    fn new(raw: MmapRaw, written: usize, backed: usize, reports_residency: bool) -> Self {
        let backed = backed.min(raw.len());
        let (written, backed) = (AtomicUsize::new(written), AtomicUsize::new(backed));
        Self(Arc::new(Shared {
            raw,
            written,
            open_blocks: OpenBlocks::default(),
            backed,
            appender_taken: AtomicBool::new(false),
            writers: AtomicUsize::new(0),
            reports_residency,
        }))
    }

    /// Returns the number of bytes that may be read.
    pub(crate) fn written(&self) -> usize {
        self.0.written.load(Ordering::Acquire)
    }

    /// Returns the bytes from `start` up to `end`, or `None` if they are not all written.
    #[inline]
    pub(crate) fn get(&self, start: usize, end: usize) -> Option<&[u8]> {
        let is_written = start <= end && end <= self.written();
        if !is_written || !self.0.open_blocks.are_final(start..end) {
            return None;
        }
        // SAFETY: `start..end` is within the mapping and, being below `written`, within the file
        // and beyond the reach of the appender: it is not written while the slice lives, because
        // `written` never falls. Nor does the holder of an append block write there: blocks that
        // are opened later are above, and a block's end never falls.
        Some(unsafe { std::slice::from_raw_parts(self.0.raw.as_ptr().add(start), end - start) })
    }

    /// Copies the written bytes from `start` on into the buffer, and zeros for those that are not
    /// appended to an open block yet. Leaves the rest of the buffer as it is.
    pub(super) fn copy(&self, start: usize, buffer: &mut [u8]) {
        let end = start.saturating_add(buffer.len()).min(self.written());
        if is_model() && start < end {
            // SAFETY: the range is below `written`, so it is within the mapping. Threads of a model
            // take turns, so none writes to it meanwhile.
            let bytes =
                unsafe { std::slice::from_raw_parts(self.0.raw.as_ptr().add(start), end - start) };
            // A killed process leaves records that were partly written.
            buffer[..end - start].copy_from_slice(bytes);
            return;
        }
        let mut next = start;
        while next < end {
            let unwritten = self.0.open_blocks.next_unwritten(&(next..end)).unwrap_or(end..end);
            if let Some(bytes) = self.get(next, unwritten.start) {
                buffer[next - start..][..bytes.len()].copy_from_slice(bytes);
            }
            buffer[unwritten.start - start..unwritten.end - start].fill(0);
            next = unwritten.end;
        }
    }

    /// Prefetches the cache line at `offset`.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        prefetch(self.0.raw.as_ptr().wrapping_add(offset.min(self.0.raw.len())));
    }

    /// Records that the file has grown to `bytes`.
    pub(super) fn set_backed(&self, bytes: usize) {
        self.0.backed.store(bytes.min(self.0.raw.len()), Ordering::Release);
    }

    /// Returns the number of bytes that the file has.
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
        // A failure (an old kernel) only costs speed.
        // SAFETY: the range is within the mapping; populating changes no contents.
        let _ = unsafe {
            rustix::mm::madvise(
                self.0.raw.as_mut_ptr().add(start).cast(),
                end - start,
                rustix::mm::Advice::LinuxPopulateWrite,
            )
        };
    }

    /// Maps the written bytes of `file`, whose map this is, for reading only, at the same address.
    /// Those that are in memory stay there, and no others are read. Does nothing before there was
    /// an appender, or while a writer exists.
    pub(super) fn freeze(&self, file: &fs::File) {
        let had_appender = self.0.appender_taken.load(Ordering::Acquire);
        let is_written_to = self.0.writers.load(Ordering::Acquire) > 0;
        if !had_appender || is_written_to || self.written() == 0 {
            return;
        }
        let (address, bytes) = (self.0.raw.as_mut_ptr(), self.written());
        // Pages that the system has dropped are not to be read again.
        let was_resident = self.is_resident();
        // SAFETY: the range is within a mapping that this map owns. It is replaced, in one step, by
        // one of the same bytes of the same file, so slices of it stay valid. It is not written to:
        // the one appender and its blocks are gone.
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
            let populate = was_resident.then_some(rustix::mm::Advice::LinuxPopulateRead);
            for advice in [rustix::mm::Advice::Random].into_iter().chain(populate) {
                // A failure only costs speed.
                // SAFETY: the range was mapped above; neither advice changes its contents.
                let _ = unsafe { rustix::mm::madvise(address.cast(), bytes, advice) };
            }
        }
    }

    /// Announces that the bytes will be read from the first to the last.
    #[cfg(feature = "internals")]
    pub(crate) fn expect_reading_in_order(&self) {
        // A failure only costs speed.
        let _ = self.0.raw.advise(memmap2::Advice::Sequential);
    }

    /// Returns whether every page of the written part is in memory.
    pub(crate) fn is_resident(&self) -> bool {
        self.residency().is_some_and(|pages| pages.iter().all(|page| page & 1 == 1))
    }

    /// Returns which pages of the written part of a range are in memory; `None` if that is unknown.
    pub(crate) fn resident_pages_within(&self, start: u64, end: u64) -> Option<Vec<bool>> {
        let end = usize::try_from(end).unwrap_or(usize::MAX).min(self.written());
        let start = usize::try_from(start).unwrap_or(usize::MAX).min(end);
        let pages = self.residency_of(start & !(page_bytes() - 1), end)?;
        Some(pages.into_iter().map(|page| page & 1 == 1).collect())
    }

    /// Returns which pages of the written part are in memory; an empty list if that is unknown.
    pub(crate) fn resident_pages(&self) -> Vec<bool> {
        self.residency().unwrap_or_default().into_iter().map(|page| page & 1 == 1).collect()
    }

    /// Returns a byte for each page of the written part; its lowest bit is set if the page is in
    /// memory.
    fn residency(&self) -> Option<Vec<u8>> {
        // The length is read once, because an appender may change it meanwhile.
        self.residency_of(0, self.written())
    }

    /// Like `residency`, for a range that begins at a page and ends within the written part.
    fn residency_of(&self, start: usize, end: usize) -> Option<Vec<u8>> {
        let bytes = end.checked_sub(start).filter(|_| end <= self.0.raw.len())?;
        if !self.0.reports_residency {
            return None;
        }
        let pages = bytes.div_ceil(page_bytes());
        if pages == 0 {
            return Some(Vec::new());
        }
        let mut resident = vec![0u8; pages];
        // SAFETY: the range is within the mapping, see above, and the vector has a byte for each of
        // its pages: both numbers follow from `bytes`.
        let status = unsafe {
            let first = self.0.raw.as_mut_ptr().add(start);
            libc::mincore(first.cast(), bytes, resident.as_mut_ptr())
        };
        (status == 0).then_some(resident)
    }
}

/// Bytes of memory that are compared with zeros together: the smallest page size.
const PAGE_BYTES: usize = 4096;

/// Returns the size of a page of memory, and of the page cache, in bytes: a power of two, 4 KiB or
/// more.
#[inline]
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Returns whether `mincore` reports which pages of a file are in memory. Since Linux 5.2 it
/// reports all pages as resident to a user who neither owns the file nor may write to it.
fn reports_residency(file: &fs::File) -> bool {
    let user = rustix::process::geteuid();
    let is_owner = rustix::fs::fstat(file).is_ok_and(|stat| stat.st_uid == user.as_raw());
    let may_write = || {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let (access, flags) = (rustix::fs::Access::WRITE_OK, rustix::fs::AtFlags::EACCESS);
        rustix::fs::accessat(rustix::fs::CWD, path, access, flags).is_ok()
    };
    is_owner || user.is_root() || may_write()
}

/// Prefetches the cache line that holds `place`.
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
    /// Returns the appender of a map, or `None` if the map has had one already.
    pub(crate) fn of(map: &Map) -> Option<Self> {
        // Counted before the flag is set, so that no thread takes the appender for dropped.
        map.0.writers.fetch_add(1, Ordering::AcqRel);
        if map.0.appender_taken.swap(true, Ordering::AcqRel) {
            map.0.writers.fetch_sub(1, Ordering::Release);
            return None;
        }
        Some(Self { map: map.clone(), end: map.written() })
    }

    /// Returns the number of bytes written so far, which is the offset of the next append.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Appends the parts one after the other, then zeros up to `total` bytes. Returns false, and
    /// changes nothing, if the file has no space for them.
    #[inline]
    #[must_use]
    pub(crate) fn append(&mut self, parts: &[&[u8]], total: usize) -> bool {
        let Some(end) = self.end.checked_add(total) else { return false };
        if end > self.map.backed() {
            return false;
        }
        // SAFETY: the target is within the mapping and the file (`end <= backed <= len`),
        // above `written`, where only this appender, which is borrowed mutably, has access.
        if !unsafe { write(&self.map, self.end, end, parts) } {
            return false;
        }
        self.end = end;
        self.map.0.written.store(end, Ordering::Release);
        true
    }

    /// Like `append`, for a long record. `each` is called after every `piece_bytes` bytes with the
    /// offsets at which the piece begins and ends.
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
            let piece_end = place + piece.len();
            // SAFETY: the target is within `self.end..end`, which is within the mapping and the
            // file, above `written`, where only this appender, borrowed mutably, has access.
            if !unsafe { write(&self.map, place, piece_end, &[piece]) } {
                return false;
            }
            each(place, piece_end);
            place = piece_end;
        }
        // SAFETY: as above.
        if !unsafe { write(&self.map, place, end, &[]) } {
            return false;
        }
        self.end = end;
        self.map.0.written.store(end, Ordering::Release);
        true
    }

    /// Gives away the next `bytes` bytes as a block that another thread fills, while appends
    /// continue after it. Returns `None`, and changes nothing, if the file has no space for them or
    /// too many blocks are open.
    pub(crate) fn give_append_block(&mut self, bytes: usize) -> Option<AppendBlock> {
        let limit = self.end.checked_add(bytes)?;
        if limit > self.map.backed() {
            return None;
        }
        let number = self.map.0.open_blocks.open(self.end..limit)?;
        self.map.0.writers.fetch_add(1, Ordering::AcqRel);
        let block = AppendBlock { map: self.map.clone(), number, end: self.end, limit };
        self.end = limit;
        self.map.0.written.store(limit, Ordering::Release);
        Some(block)
    }
}

/// A stretch of a [`Map`] that has a writer of its own. It holds zeros until it is written.
pub(crate) struct AppendBlock {
    map: Map,
    /// Number of the block among the map's open ones.
    number: usize,
    end: usize,
    limit: usize,
}

impl Drop for AppendBlock {
    fn drop(&mut self) {
        self.map.0.open_blocks.close(self.number);
        self.map.0.writers.fetch_sub(1, Ordering::Release);
    }
}

impl AppendBlock {
    /// Returns the offset of the next append in the file, in bytes.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Returns the number of bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.limit - self.end
    }

    /// Like [`Appender::append`], within the block.
    #[inline]
    #[must_use]
    pub(crate) fn append(&mut self, parts: &[&[u8]], total: usize) -> bool {
        if total > self.left() {
            return false;
        }
        let end = self.end + total;
        // SAFETY: the target is within the file, as the whole block was when it was given away
        // (files that are mapped do not get shorter than `written`). No other block and no appender
        // reaches there, this block is borrowed mutably, and readers are refused these bytes until
        // the block's end is behind them.
        if !unsafe { write(&self.map, self.end, end, parts) } {
            return false;
        }
        self.end = end;
        self.map.0.open_blocks.set_end(self.number, end);
        true
    }
}

/// Writes the parts one after the other from `start` on, then zeros up to `end`. Returns false, and
/// changes nothing, if the parts are longer.
///
/// # Safety
///
/// `start..end` is within the map and its file, and no other thread has access to it.
#[inline]
unsafe fn write(map: &Map, start: usize, end: usize, parts: &[&[u8]]) -> bool {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    if bytes > end - start {
        return false;
    }
    let mut place = start;
    for part in parts {
        interrupt();
        // SAFETY: the target is within `start..end`, see above.
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
    use super::super::open_blocks::OPEN_BLOCKS_MAX;
    use super::*;

    #[test]
    fn a_file_of_unknown_residency_counts_as_not_in_memory() {
        let bytes = 3 * page_bytes();
        for is_known in [true, false] {
            let map = Map::of_zeros(bytes, is_known).expect("a map");
            map.set_backed(bytes);
            let mut appender = Appender::of(&map).expect("the first appender");
            assert!(appender.append(&[&vec![1; bytes]], bytes));
            assert_eq!(map.is_resident(), is_known);
            assert_eq!(map.resident_pages().len(), if is_known { 3 } else { 0 });
            let within = map.resident_pages_within(page_bytes() as u64 + 1, bytes as u64 - 1);
            assert_eq!(within, is_known.then(|| vec![true, true]));
        }
    }

    /// Regression: after a fast load in little memory, each segment was read from the disk again.
    #[test]
    fn freezing_reads_no_page_that_is_not_in_memory() {
        let program = std::env::current_exe().expect("a program");
        let folder = program.parent().expect("its folder");
        let folder = tempfile::tempdir_in(folder).expect("a folder on a disk");
        let bytes = 8 * page_bytes();
        for is_dropped in [true, false] {
            let path = folder.path().join(is_dropped.to_string());
            fs::write(&path, vec![1; bytes]).expect("a file");
            let file = fs::File::options().read(true).write(true).open(&path).expect("the file");
            file.sync_all().expect("to sync");
            if is_dropped {
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
            }
            let map = Map::of_file(&file, bytes, bytes).expect("a map");
            drop(Appender::of(&map).expect("the first appender"));
            let before = map.resident_pages();
            map.freeze(&file);
            assert_eq!(map.resident_pages(), before);
            assert_eq!(before, vec![!is_dropped; 8]);
            assert_eq!(map.get(0, bytes), Some(&vec![1; bytes][..]));
        }
    }

    /// Regression: reading the length of the map twice corrupted the heap.
    #[test]
    fn checking_residency_stays_in_bounds_while_the_map_grows() {
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

    /// Creates a map of memory, and its appender.
    fn appended(bytes: usize) -> (Map, Appender) {
        let map = Map::of_zeros(bytes, true).expect("a map");
        map.set_backed(bytes);
        let appender = Appender::of(&map).expect("the first appender");
        (map, appender)
    }

    #[test]
    fn bytes_of_an_open_block_are_refused_until_they_are_appended() {
        let (map, mut appender) = appended(200);
        assert!(appender.append(&[&[1; 10]], 10));
        let mut first = appender.give_append_block(20).expect("a block");
        let mut second = appender.give_append_block(20).expect("a block");
        assert!(appender.append(&[&[4; 10]], 10));
        assert!(first.append(&[&[2; 5]], 5) && second.append(&[&[3; 20]], 20));
        for (start, end, is_final) in
            [(0, 15, true), (0, 16, false), (15, 16, false), (30, 60, true), (29, 60, false)]
        {
            assert_eq!(map.get(start, end).is_some(), is_final, "{start}..{end}");
        }
        assert_eq!((map.get(15, 15), map.get(59, 61)), (Some(&[][..]), None));
        let mut copy = [9; 70];
        map.copy(0, &mut copy);
        let parts: [&[u8]; 6] = [&[1; 10], &[2; 5], &[0; 15], &[3; 20], &[4; 10], &[9; 10]];
        assert_eq!(copy[..], parts.concat());
        drop(first);
        assert_eq!(map.get(0, 60).expect("closed blocks"), &copy[..60]);
    }

    #[test]
    fn a_limited_number_of_blocks_is_open() {
        let (_map, mut appender) = appended(2 * OPEN_BLOCKS_MAX);
        let give = |appender: &mut Appender| appender.give_append_block(1);
        let mut blocks: Vec<_> = std::iter::from_fn(|| give(&mut appender)).collect();
        assert_eq!((blocks.len(), appender.end()), (OPEN_BLOCKS_MAX, OPEN_BLOCKS_MAX));
        drop(blocks.swap_remove(7));
        assert!(give(&mut appender).is_some());
    }

    /// A tool that watches each access finds a read beside a write.
    #[test]
    fn threads_that_read_any_bytes_do_not_meet_writers() {
        const BYTES: usize = 1 << 20;
        let (map, mut appender) = appended(BYTES);
        let check = |start: usize, end: usize| {
            let bytes = map.get(start, end).unwrap_or_default();
            assert!(bytes.iter().all(|byte| *byte == 1), "a byte that is not final");
        };
        // Blocks to be filled, and whether all were given. A channel of the standard library is not
        // built with such a tool.
        let blocks = Arc::new(parking_lot::Mutex::new((Vec::<AppendBlock>::new(), false)));
        // Each writer holds the blocks until it returns or panics.
        let writing = Arc::downgrade(&blocks);
        std::thread::scope(|scope| {
            for blocks in [Arc::clone(&blocks), Arc::clone(&blocks)] {
                let map = &map;
                scope.spawn(move || {
                    loop {
                        let (block, is_last) = {
                            let mut blocks = blocks.lock();
                            (blocks.0.pop(), blocks.1)
                        };
                        let Some(mut block) = block else {
                            if is_last {
                                break;
                            }
                            std::thread::yield_now();
                            continue;
                        };
                        while block.left() > 0 {
                            let (start, bytes) = (block.end(), block.left().min(24));
                            assert!(block.append(&[&vec![1; bytes]], bytes));
                            assert!(map.get(start, start + bytes).is_some(), "bytes are refused");
                        }
                    }
                });
            }
            scope.spawn(move || {
                for bytes in (64..2048).step_by(40).cycle() {
                    let Some(block) = appender.give_append_block(bytes) else { break };
                    blocks.lock().0.push(block);
                    if !appender.append(&[&[1; 9]], 9) {
                        break;
                    }
                    while blocks.lock().0.len() > 4 && Arc::strong_count(&blocks) > 1 {
                        std::thread::yield_now();
                    }
                }
                blocks.lock().1 = true;
            });
            for step in [3, 7] {
                let (map, writing, check) = (&map, &writing, &check);
                scope.spawn(move || {
                    let mut at = 0;
                    while writing.strong_count() > 0 {
                        let written = map.written().max(1);
                        at = (at + step * 7919) % written;
                        check(at, at + step * 20);
                        check(written.saturating_sub(step * 100), written);
                    }
                });
            }
        });
        check(0, map.written());
        assert!(map.written() > BYTES / 2);
    }
}
