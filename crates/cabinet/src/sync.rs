//! Locks of the log, and the places where a model may interrupt a thread.
//!
//! Programs get parking_lot's locks and nothing else. The unit tests also run this code as a model
//! under shuttle: threads take turns, and a seed chooses who goes on at each lock and at each
//! [`interrupt`]. A lock that is held across such a place must be a [`Mutex`], because a thread of
//! a model that blocked in the system would stop them all.

pub(crate) use parking_lot::MutexGuard;

/// A lock of parking_lot that a model can wait for.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    #[inline]
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Waits until the lock is free, and takes it.
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

    /// Takes the lock if it is free.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        interrupt();
        let guard = self.0.try_lock();
        if guard.is_some() {
            note_taken(self);
        }
        guard
    }

    /// Returns whether a guard is that of this lock.
    pub(crate) fn is_of(&self, guard: &MutexGuard<'_, T>) -> bool {
        std::ptr::eq(MutexGuard::mutex(guard), &self.0)
    }
}

/// Marks a place where other threads of a model may go on. Does nothing elsewhere.
#[inline(always)]
pub(crate) fn interrupt() {
    #[cfg(test)]
    if model::is_running() {
        shuttle::thread::yield_now();
    }
}

/// Notes in tests that the calling thread takes a lock.
#[inline(always)]
pub(crate) fn note_taken<T>(lock: &T) {
    #[cfg(test)]
    trace::note(std::ptr::from_ref(lock).addr());
    let _ = lock;
}

/// Which locks a thread takes.
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

    /// Places at which a thread is chosen, of one run. More mean that the threads wait for each
    /// other.
    const STEPS_MAX: usize = 200_000;

    /// Bytes of stack of each thread: code that is not optimized takes much.
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

    /// Runs a model so many times, each time with other turns, which the seed chooses. A failure
    /// prints the turns, for `shuttle::replay`.
    pub(crate) fn run(seed: u64, runs: usize, model: impl Fn() + Send + Sync + 'static) {
        let mut config = Config::new();
        config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
        config.stack_size = STACK_BYTES;
        let scheduler = RandomScheduler::new_from_seed(seed, runs);
        // Threads of a model are all on the thread of the system that runs it.
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
