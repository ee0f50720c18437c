//! Which processors the parts of a benchmark run on.

use anyhow::{Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The last processor, and the others.
pub(super) struct Processors {
    others: CpuSet,
    last: CpuSet,
}

impl Processors {
    /// Returns two or more of the processors that this thread may use.
    pub(super) fn of_this_thread() -> Result<Self> {
        let mut others = sched_getaffinity(None)?;
        ensure!(others.count() > 1, "this needs two processors");
        let mut last = CpuSet::new();
        if let Some(cpu) = (0..CpuSet::MAX_CPU).rev().find(|cpu| others.is_set(*cpu)) {
            last.set(cpu);
            others.unset(cpu);
        }
        Ok(Self { others, last })
    }

    /// This thread, and the threads and programs it starts from now on, leave the last one alone.
    pub(super) fn use_others(&self) -> Result<()> {
        Ok(sched_setaffinity(None, &self.others)?)
    }

    /// What `start` starts has the last one to itself.
    pub(super) fn on_last<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        sched_setaffinity(None, &self.last)?;
        let started = start();
        self.use_others()?;
        started
    }
}
