//! Ring: reads into the page cache that a thread has under way without waiting for any, by
//! `io_uring`.
//!
//! An operation on a nonblocking handle fails with [`crate::Error::WouldBlock`] if bytes are not in
//! memory. The thread of a [`Ring`] has these bytes read, serves others meanwhile, and repeats the
//! operation, which finds them in the page cache. The ring itself passes no bytes on. So none of
//! its reads can give a wrong byte to anybody, and each engine reads as it does without a ring.
#![expect(unsafe_code, reason = "the kernel gets pointers; see each SAFETY line")]

use super::misses::{self, Miss, READ_BYTES_MAX};
use io_uring::types::Fd;
use io_uring::{EnterFlags, IoUring, opcode};
use memmap2::{MmapOptions, MmapRaw};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Longest read that a try to read from the page cache begins as a whole, in bytes.
const BEGUN_BYTES_MAX: usize = 64 << 10;

/// Most reads that are under way.
const READS_MAX: u32 = 256;

/// Areas into which reads are copied. Each ring has one, so that few processors share one.
const AREAS: usize = 16;

/// Number of rings that were made.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns the memory of all areas, which is kept for ever: the kernel may write into it after a
/// ring was dropped. An area that is not used takes none.
fn scratch() -> io::Result<&'static MmapRaw> {
    static SCRATCH: OnceLock<MmapRaw> = OnceLock::new();
    if SCRATCH.get().is_none() {
        let map = MmapOptions::new().len(AREAS * READ_BYTES_MAX).map_anon()?;
        // Another thread may have been faster.
        let _ = SCRATCH.set(map.into());
    }
    SCRATCH.get().ok_or_else(|| io::Error::other("no memory for reads"))
}

/// Reads of one thread. It can be watched: its descriptor is ready once reads have ended.
pub struct Ring {
    ring: IoUring,
    signal: OwnedFd,
    /// Bytes into which all reads are copied, and that nobody reads.
    scratch: &'static MmapRaw,
    /// Its beginning in `scratch`, of [`READ_BYTES_MAX`] bytes.
    offset: usize,
    /// Files of the reads that are not submitted yet, in their order.
    files: VecDeque<Arc<fs::File>>,
    /// Reads of which the end was not taken.
    under_way: usize,
}

impl Ring {
    /// Makes a ring for the calling thread, which alone may use it. Its operations on nonblocking
    /// handles note from now on what they miss. Fails if the kernel is older than Linux 6.1, or
    /// does not let this process have a ring.
    pub fn new() -> io::Result<Self> {
        let signal = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let scratch = scratch()?;
        let offset = COUNT.fetch_add(1, Ordering::Relaxed) % AREAS * READ_BYTES_MAX;
        let mut builder = IoUring::builder();
        // The completions wait for this thread to ask for them: nothing interrupts it.
        builder.setup_single_issuer().setup_defer_taskrun().setup_cqsize(2 * READS_MAX).dontfork();
        let ring = builder.build(READS_MAX)?;
        ring.submitter().register_eventfd(signal.as_raw_fd())?;
        misses::set_noted(true);
        let files = VecDeque::new();
        Ok(Self { ring, signal, scratch, offset, files, under_way: 0 })
    }

    /// Returns how often operations of this thread have missed bytes since the last call of
    /// [`Self::queue`] or [`Self::forget_missed`].
    pub fn missed() -> usize {
        misses::count()
    }

    /// Forgets the bytes that operations of this thread have missed.
    pub fn forget_missed() {
        misses::take(|_| ());
    }

    /// Queues the reads that operations of this thread have missed since the last call, under a
    /// tag. Returns how many there are: 0 if operations have missed none, or there is no room. The
    /// operations have begun the short ones, which the device ends nearly in their order: only the
    /// last of them is queued.
    pub fn queue(&mut self, tag: u64) -> usize {
        misses::take(|missed| {
            if self.under_way + missed.len() > READS_MAX as usize {
                return 0;
            }
            let before = self.under_way;
            let last = missed.len().saturating_sub(1);
            for (place, Miss { file, offset, bytes }) in missed.enumerate() {
                if bytes <= BEGUN_BYTES_MAX && place < last {
                    continue;
                }
                let Some(file) = file.upgrade() else { continue };
                let length = u32::try_from(bytes.min(READ_BYTES_MAX)).unwrap_or(u32::MAX);
                let area = self.scratch.as_mut_ptr().wrapping_add(self.offset);
                let read = opcode::Read::new(Fd(file.as_raw_fd()), area, length);
                let read = read.offset(offset).build().user_data(tag);
                // SAFETY: the file is in `files` until the kernel has its own reference. The area
                // has `length` bytes, which no reference borrows, and is never freed.
                let pushed = unsafe { self.ring.submission().push(&read) };
                if pushed.is_err() {
                    // There is an entry for each read that may be under way.
                    break;
                }
                self.files.push_back(file);
                self.under_way += 1;
            }
            self.under_way - before
        })
    }

    /// Returns whether reads are under way, or queued.
    pub fn is_busy(&self) -> bool {
        self.under_way > 0
    }

    /// Returns whether reads are queued that are not submitted.
    pub fn has_queued(&self) -> bool {
        !self.files.is_empty()
    }

    /// Submits the queued reads, and finds out which have ended. Fails if the ring cannot be used
    /// any more.
    pub fn submit(&mut self) -> io::Result<()> {
        let (flags, queued) = (EnterFlags::GETEVENTS.bits(), self.files.len());
        // SAFETY: there is no argument behind the flags. For the reads see `queue`.
        let entered = unsafe {
            let submitter = self.ring.submitter();
            submitter.enter::<()>(u32::try_from(queued).unwrap_or(u32::MAX), 0, flags, None)
        };
        match entered {
            Ok(submitted) => drop(self.files.drain(..submitted.min(queued))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes a read that has ended. Returns its tag, and whether it has succeeded.
    pub fn take_ended(&mut self) -> Option<(u64, bool)> {
        let ended = self.ring.completion().next()?;
        self.under_way -= 1;
        Some((ended.user_data(), ended.result() >= 0))
    }

    /// Repeats an operation that had missed bytes `missed` times.
    pub fn repeat<T>(missed: usize, operation: impl FnOnce() -> T) -> T {
        misses::repeat(missed, operation)
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel ends the reads that are under way some time later.
        misses::set_noted(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Open, RealStorage, Storage as _};
    use rustix::event::{PollFd, PollFlags, poll};
    use std::path::Path;

    const BYTES: usize = 40 << 10;

    /// Returns a ring, or `None` with a message if the kernel allows none.
    fn ring() -> Option<Ring> {
        let refused = |error: &io::Error| println!("ring: SKIPPED, {error}");
        Ring::new().inspect_err(refused).ok()
    }

    /// Returns a file with nothing in the page cache.
    fn cold_file(folder: &Path) -> Arc<dyn crate::io::File> {
        let file = RealStorage.open(&folder.join("cold"), Open::New).unwrap();
        let bytes: Vec<u8> = (0..BYTES).map(|at| (at / 4096) as u8).collect();
        file.write_at(&bytes, 0).unwrap();
        file.sync().unwrap();
        file.forget(0, BYTES as u64);
        file
    }

    /// Returns a folder beside the program: the usual one may be in memory.
    fn folder() -> tempfile::TempDir {
        let program = std::env::current_exe().unwrap();
        tempfile::tempdir_in(program.parent().unwrap()).unwrap()
    }

    fn is_cached(file: &dyn crate::io::File, buffer: &mut [u8], offset: u64) -> bool {
        match file.read_cached_at(buffer, offset) {
            Ok(bytes) => bytes == buffer.len(),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                false
            }
        }
    }

    /// Waits for the ends of reads, and returns them.
    fn ends(ring: &mut Ring, count: usize) -> Vec<(u64, bool)> {
        let mut ended = Vec::new();
        ring.submit().unwrap();
        while ended.len() < count {
            match ring.take_ended() {
                Some(end) => ended.push(end),
                None => {
                    poll(&mut [PollFd::new(ring, PollFlags::IN)], None).unwrap();
                    ring.submit().unwrap();
                }
            }
        }
        assert_eq!(ring.take_ended(), None);
        ended
    }

    #[test]
    fn an_operation_finds_in_memory_what_it_had_missed() {
        let Some(mut ring) = ring() else { return };
        let folder = folder();
        let file = cold_file(folder.path());
        let (mut first, mut second) = ([0; 4096], [0; 8000]);
        // Once: the device may end the read at any time after it was begun.
        assert!(!is_cached(&*file, &mut first, 8192));
        assert!(!is_cached(&*file, &mut second, 20_000));
        // The last one is waited for.
        assert_eq!((Ring::missed(), ring.queue(7)), (2, 1));
        assert_eq!((Ring::missed(), ring.queue(8)), (0, 0));
        assert!(ring.has_queued());
        assert_eq!(ends(&mut ring, 1), [(7, true)]);
        assert!(!ring.has_queued() && !ring.is_busy());
        assert!(is_cached(&*file, &mut second, 20_000));
        // It was begun before.
        while !is_cached(&*file, &mut first, 8192) {
            assert_eq!(ring.queue(7), 1);
            assert_eq!(ends(&mut ring, 1), [(7, true)]);
        }
        assert_eq!((first[0], second[0], second[7999]), (2, 4, 6));
        assert_eq!(Ring::missed(), 0);
    }

    #[test]
    fn a_file_that_is_gone_is_not_read_and_a_thread_without_a_ring_notes_nothing() {
        let Some(mut ring) = ring() else { return };
        let folder = folder();
        let file = cold_file(folder.path());
        assert!(!is_cached(&*file, &mut [0; 100], 0));
        drop(file);
        assert_eq!((Ring::missed(), ring.queue(1)), (1, 0));
        assert!(!ring.has_queued());
        drop(ring);
        std::fs::remove_file(folder.path().join("cold")).unwrap();
        let file = cold_file(folder.path());
        assert!(!is_cached(&*file, &mut [0; 100], 0));
        assert_eq!(misses::count(), 0);
    }

    #[test]
    fn a_read_that_fails_is_told_and_a_ring_has_a_limit() {
        let Some(mut ring) = ring() else { return };
        let folder = folder();
        let directory = Arc::new(fs::File::open(folder.path()).unwrap());
        misses::note(&directory, 0, 100);
        assert_eq!(ring.queue(3), 1);
        assert_eq!(ends(&mut ring, 1), [(3, false)]);
        let mut queued = 0;
        for number in 0..=u64::from(READS_MAX) / 64 {
            // A long miss is several reads, of which a limited number is noted.
            misses::note(&directory, number << 32, 65 * READ_BYTES_MAX);
            queued += ring.queue(number);
            assert_eq!(Ring::missed(), 0);
        }
        assert_eq!(queued, READS_MAX as usize);
        assert_eq!(ends(&mut ring, queued).iter().filter(|(_, is_read)| *is_read).count(), 0);
    }

    #[test]
    fn a_ring_may_be_dropped_while_reads_are_under_way() {
        let folder = folder();
        let file = cold_file(folder.path());
        for _ in 0..20 {
            let Some(mut ring) = ring() else { return };
            file.forget(0, BYTES as u64);
            for page in 0..10 {
                is_cached(&*file, &mut [0; 100], page * 4096);
            }
            ring.queue(1);
            ring.submit().unwrap();
        }
        let mut buffer = [0; 4096];
        assert_eq!(file.read_at(&mut buffer, 36_864).unwrap(), 4096);
        assert_eq!(buffer, [9; 4096]);
    }

    #[test]
    fn as_many_records_as_were_missed_count_as_read() {
        assert!(!misses::was_missed());
        let count = || (0..5).filter(|_| misses::was_missed()).count();
        assert_eq!(Ring::repeat(2, count), 2);
        assert_eq!(Ring::repeat(7, count), 5);
        assert!(!misses::was_missed());
    }

    #[test]
    fn misses_can_be_forgotten() {
        let Some(_ring) = ring() else { return };
        let file = Arc::new(fs::File::open("/").unwrap());
        misses::note(&file, 0, 1);
        // The same miss twice is one read.
        misses::note(&file, 0, 1);
        assert_eq!(Ring::missed(), 1);
        Ring::forget_missed();
        assert_eq!(Ring::missed(), 0);
    }
}
