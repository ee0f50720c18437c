//! Processors: assigns the parts of an experiment to processors.

use anyhow::{Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The last processor, and the others.
pub(super) struct Processors {
    others: CpuSet,
    last: CpuSet,
}

impl Processors {
    /// Returns the processors that this thread may use, at least two.
    pub(super) fn of_this_thread() -> Result<Self> {
        let mut others = sched_getaffinity(None)?;
        ensure!(others.count() > 1, "at least two processors are required");
        let mut last = CpuSet::new();
        if let Some(cpu) = (0..CpuSet::MAX_CPU).rev().find(|cpu| others.is_set(*cpu)) {
            last.set(cpu);
            others.unset(cpu);
        }
        Ok(Self { others, last })
    }

    /// Moves this thread, and the threads and programs that it starts from now on, off the last
    /// processor.
    pub(super) fn use_others(&self) -> Result<()> {
        Ok(sched_setaffinity(None, &self.others)?)
    }

    /// Runs `start` so that what it starts has the last processor to itself.
    pub(super) fn on_last<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        sched_setaffinity(None, &self.last)?;
        let started = start();
        self.use_others()?;
        started
    }
}
