//! Forks: how a child process notices that a database was opened by its parent.
//!
//! A child has copies of the memory of its parent, but not its threads, and locks stay as they were
//! at the moment of the fork. So it must not touch a database that was opened before, not even to
//! close it. Each fork increments a number in the child, and each handle has the number of the
//! process that opened it. Comparing them costs a load, where asking for the process ID costs a
//! system call.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);
static REGISTERED: Once = Once::new();

/// Number of forks between the first process and this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u32);

extern "C" fn after_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    cabinet::files::release_locks();
}

impl Generation {
    /// Returns that of this process, which from then on notices its forks.
    pub(crate) fn of_process() -> Self {
        REGISTERED.call_once(|| {
            #[expect(unsafe_code, reason = "no crate registers a function for forks")]
            // SAFETY: the function is of the type that is asked for, stays in memory (modules of
            // Python are not unloaded), and does what is allowed after a fork alone: it adds to a
            // number and replaces descriptors. Without memory for the registration, forks are not
            // noticed.
            unsafe {
                libc::pthread_atfork(None, None, Some(after_in_child));
            }
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns whether this process is that of the generation, and not a child of it.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}
