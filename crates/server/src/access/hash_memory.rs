//! Hash memory: the blocks in which Argon2id computes, a few buffers for all threads.
//!
//! A hash takes 19 MiB. Memory of that size stays with the allocator of each thread that has
//! computed one, so all threads of the process share [`BUFFERS_MAX`] buffers. A buffer that is not
//! used for [`IDLE`] is given back to the system, by a thread that lives until then.
//!
//! Lock order: one lock, under which no other is taken. It is not held while a hash is computed.

use argon2::Block;
use parking_lot::{Condvar, Mutex};
use std::thread::Builder;
use std::time::Duration;

/// Buffers at the same time. Further hashes wait for one of them.
pub(super) const BUFFERS_MAX: usize = 2;

/// Time without a use after which buffers are given back.
const IDLE: Duration = Duration::from_secs(10);

/// Blocks that a buffer has room for at least: 33 MiB. An allocation above 32 MiB always is a
/// mapping of its own in glibc, which goes back to the system when it is freed. Blocks that are not
/// used take no memory.
const BLOCKS_MIN: usize = 33 << 10;

/// The buffers.
pub(super) struct HashMemory {
    state: Mutex<State>,
    /// Signals that a buffer was returned.
    returned: Condvar,
    idle: Duration,
}

struct State {
    /// Buffers that are not in use.
    free: Vec<Vec<Block>>,
    in_use: usize,
    /// Number of uses so far.
    uses: u64,
    /// Whether a thread waits to give buffers back.
    is_watched: bool,
}

/// A buffer in use, returned when this is dropped.
struct Lent {
    memory: &'static HashMemory,
    blocks: Vec<Block>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.memory.put_back(std::mem::take(&mut self.blocks));
    }
}

impl HashMemory {
    /// Returns the memory of all hashes of this process.
    pub(super) fn of_process() -> &'static Self {
        static MEMORY: HashMemory = HashMemory::new(IDLE);
        &MEMORY
    }

    const fn new(idle: Duration) -> Self {
        let state = State { free: Vec::new(), in_use: 0, uses: 0, is_watched: false };
        Self { state: Mutex::new(state), returned: Condvar::new(), idle }
    }

    /// Calls `compute` with this many blocks. Waits for a buffer while all are in use.
    pub(super) fn with<T>(
        &'static self,
        blocks: usize,
        compute: impl FnOnce(&mut [Block]) -> T,
    ) -> T {
        let mut state = self.state.lock();
        while state.in_use >= BUFFERS_MAX {
            self.returned.wait(&mut state);
        }
        state.in_use += 1;
        state.uses += 1;
        let buffer = state.free.pop().unwrap_or_default();
        drop(state);
        let mut lent = Lent { memory: self, blocks: buffer };
        if lent.blocks.len() < blocks {
            // Nothing of it is copied, so it is not there at the same time.
            lent.blocks = Vec::new();
            lent.blocks = Vec::with_capacity(blocks.max(BLOCKS_MIN));
            lent.blocks.resize(blocks, Block::new());
        }
        compute(&mut lent.blocks[..blocks])
    }

    fn put_back(&'static self, buffer: Vec<Block>) {
        let mut state = self.state.lock();
        state.in_use -= 1;
        state.free.push(buffer);
        let begins = !std::mem::replace(&mut state.is_watched, true);
        drop(state);
        self.returned.notify_one();
        if begins {
            let watch = || self.give_back_when_idle();
            if Builder::new().name("hash-memory".into()).spawn(watch).is_err() {
                self.give_back(&mut self.state.lock());
            }
        }
    }

    /// Waits until no buffer was used for long, and gives all back.
    fn give_back_when_idle(&self) {
        let mut seen = self.state.lock().uses;
        loop {
            std::thread::sleep(self.idle);
            let mut state = self.state.lock();
            if state.uses == seen && state.in_use == 0 {
                return self.give_back(&mut state);
            }
            seen = state.uses;
        }
    }

    fn give_back(&self, state: &mut State) {
        state.is_watched = false;
        state.free = Vec::new();
    }

    /// Returns the number of buffers.
    #[cfg(test)]
    pub(super) fn buffers(&self) -> usize {
        let state = self.state.lock();
        state.in_use + state.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::time::Instant;

    #[test]
    fn any_number_of_hashes_has_two_buffers_which_are_given_back_when_idle() {
        static MEMORY: HashMemory = HashMemory::new(Duration::from_millis(1));
        const THREADS: usize = 8;
        let start = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    for blocks in 1..50 {
                        MEMORY.with(blocks, |found| {
                            assert_eq!(found.len(), blocks);
                            assert!((1..=BUFFERS_MAX).contains(&MEMORY.buffers()));
                        });
                    }
                });
            }
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        while MEMORY.buffers() > 0 {
            assert!(Instant::now() < deadline, "{} buffers stay", MEMORY.buffers());
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_hash_that_panics_returns_its_buffer() {
        static MEMORY: HashMemory = HashMemory::new(Duration::from_secs(3600));
        for _ in 0..=BUFFERS_MAX {
            let failed = std::panic::catch_unwind(|| MEMORY.with(1, |_| panic!("as a test")));
            assert!(failed.is_err());
        }
        assert_eq!(MEMORY.buffers(), 1);
        assert_eq!(MEMORY.state.lock().in_use, 0);
    }
}
