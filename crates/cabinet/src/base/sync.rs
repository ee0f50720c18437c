//! Locks of the log, and the points at which a model may interrupt a thread.
//!
//! Programs get parking_lot's locks and nothing else. The unit tests also run this code as a model
//! under shuttle: threads take turns, and a seed chooses which one continues at each lock and at
//! each [`interrupt`]. A lock that is held across such a point must be a [`Mutex`]. Otherwise one
//! blocked thread of a model would stop all others.

pub(crate) use parking_lot::MutexGuard;

/// A lock of parking_lot that a model can wait for.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    #[inline]
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Locks the mutex, waiting until it is free.
    #[inline(always)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(test)]
        while model::is_running() {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
        }
        note_taken(self);
        self.0.lock()
    }

    /// Locks the mutex if it is free.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        interrupt();
        let guard = self.0.try_lock();
        if guard.is_some() {
            note_taken(self);
        }
        guard
    }

    /// Returns whether a guard belongs to this lock.
    pub(crate) fn is_of(&self, guard: &MutexGuard<'_, T>) -> bool {
        std::ptr::eq(MutexGuard::mutex(guard), &self.0)
    }
}

/// Marks a point at which a model may switch threads. Does nothing in programs.
#[inline(always)]
pub(crate) fn interrupt() {
    #[cfg(test)]
    if model::is_running() {
        shuttle::thread::yield_now();
    }
}

/// Returns whether the calling thread is one of a model, whose threads take turns. False in
/// programs.
#[inline(always)]
pub(crate) fn is_model() -> bool {
    #[cfg(test)]
    if model::is_running() {
        return true;
    }
    false
}

/// Records in tests that the calling thread takes a lock.
#[inline(always)]
pub(crate) fn note_taken<T>(lock: &T) {
    #[cfg(test)]
    trace::note(std::ptr::from_ref(lock).addr());
    let _ = lock;
}

/// Trace of the locks that a thread takes.
#[cfg(test)]
pub(crate) mod trace {
    use std::cell::RefCell;

    thread_local! {
        static TAKEN: RefCell<Option<Vec<usize>>> = const { RefCell::new(None) };
    }

    pub(super) fn note(address: usize) {
        TAKEN.with_borrow_mut(|taken| taken.iter_mut().for_each(|taken| taken.push(address)));
    }

    /// Returns the addresses of the locks that this thread takes in a call, in their order.
    pub(crate) fn of(call: impl FnOnce()) -> Vec<usize> {
        TAKEN.set(Some(Vec::new()));
        call();
        TAKEN.take().unwrap_or_default()
    }
}

/// Models: code whose threads take turns.
#[cfg(test)]
pub(crate) mod model {
    use shuttle::scheduler::RandomScheduler;
    use shuttle::{Config, MaxSteps, Runner};
    use std::cell::Cell;

    /// Maximum number of points in one run at which a thread is chosen. More mean that the threads
    /// wait for each other.
    const STEPS_MAX: usize = 200_000;

    /// Stack size of each thread, in bytes: code that is not optimized needs much.
    const STACK_BYTES: usize = 1 << 20;

    thread_local! {
        static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
    }

    /// Returns whether the calling thread is one of a model.
    pub(crate) fn is_running() -> bool {
        IS_RUNNING.get()
    }

    /// Returns the number of the calling thread, if it is one of a model.
    pub(crate) fn thread() -> Option<usize> {
        is_running().then(|| shuttle::current::me().into())
    }

    /// Runs a model `runs` times, each time with another interleaving, which the seed chooses. A
    /// failure prints the interleaving, for `shuttle::replay`.
    pub(crate) fn run(seed: u64, runs: usize, model: impl Fn() + Send + Sync + 'static) {
        let mut config = Config::new();
        config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
        config.stack_size = STACK_BYTES;
        let scheduler = RandomScheduler::new_from_seed(seed, runs);
        // All threads of a model run on this thread of the operating system.
        IS_RUNNING.set(true);
        let _ended = Ended;
        Runner::new(scheduler, config).run(model);
    }

    struct Ended;

    impl Drop for Ended {
        fn drop(&mut self) {
            IS_RUNNING.set(false);
        }
    }
}
