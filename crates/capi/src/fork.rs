//! Forks: a child has the memory of its parent, but not the threads of its databases. A write in
//! the child would go to the files that the parent has open. The child also has copies of the locks
//! of those databases, which would keep them locked after the parent was killed.

use crate::border::at_fork;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks between the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

static REGISTERED: Once = Once::new();

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    cabinet_rs::files::release_locks();
}

/// Returns the generation of this process, and from now on notices forks.
pub(crate) fn watched() -> u32 {
    REGISTERED.call_once(|| at_fork(in_child));
    generation()
}

/// Returns the generation of this process.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}
