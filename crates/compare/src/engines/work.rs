//! Work on a store by threads that share it, checked and measured.

use super::stats::Stats;
use crate::process;
use crate::random::Random;
use crate::records::{Records, fill_id, fill_key};
use crate::stores::{Purpose, Session, Store};
use anyhow::{Context as _, Result, ensure};
use std::time::Instant;

/// Editions of values: the first and the one that overwrites it.
pub(super) const FIRST_EDITION: u64 = 0;
/// See [`FIRST_EDITION`].
pub(super) const SECOND_EDITION: u64 = 1;

/// Makes the records of one purpose and passes them to a session.
pub(super) struct Worker<'a> {
    pub(super) session: Box<dyn Session + 'a>,
    pub(super) random: Random,
    records: &'a Records,
    value_bytes: usize,
    /// Records, if their keys are ids.
    ids: Option<u64>,
    key: Vec<u8>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        store: &'a dyn Store,
        records: &'a Records,
        purpose: &Purpose,
        seed: u64,
    ) -> Result<Self> {
        Ok(Self {
            session: store.session()?,
            random: Random::new(seed),
            records,
            value_bytes: purpose.value_bytes,
            ids: purpose.numbered.then_some(purpose.records),
            key: vec![0; purpose.key_bytes],
        })
    }

    fn fill_key(&mut self, number: u64) {
        match self.ids {
            Some(records) => fill_id(number, records, &mut self.key),
            None => fill_key(number, &mut self.key),
        }
    }

    pub(super) fn put(&mut self, number: u64, edition: u64) -> Result<()> {
        self.fill_key(number);
        self.session.put(&self.key, self.records.value(number, edition, self.value_bytes))
    }

    /// Reads a record and checks that it exists with the bytes of `edition`, or, if that is
    /// unknown, with a value of the right size.
    pub(super) fn get(&mut self, number: u64, edition: Option<u64>) -> Result<()> {
        self.fill_key(number);
        let mut right = false;
        let (records, value_bytes) = (self.records, self.value_bytes);
        let found = self.session.get(&self.key, &mut |value| {
            right = match edition {
                Some(edition) => value == records.value(number, edition, value_bytes),
                None => value.len() == value_bytes,
            };
        })?;
        ensure!(found, "record {number} is missing");
        ensure!(right, "record {number} has another value than was stored");
        Ok(())
    }
}

/// State shared by the phases of a measurement.
pub(super) struct Bench<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) records: &'a Records,
    pub(super) purpose: Purpose,
}

impl Bench<'_> {
    /// Runs `work` on every thread, each with its share of the records' numbers. Sets the stats
    /// `NAME.us` and `NAME.cpu_us`: wall-clock and CPU microseconds per operation.
    pub(super) fn phase(
        &self,
        name: &str,
        stats: &mut Stats,
        work: impl Fn(&mut Worker<'_>, std::ops::Range<u64>) -> Result<()> + Sync,
    ) -> Result<()> {
        let Purpose { records, threads, .. } = self.purpose;
        let share = |thread: usize| records * thread as u64 / threads as u64;
        let (cpu_before, start) = (process::own_cpu_time(), Instant::now());
        let run = |thread: usize| -> Result<()> {
            let seed = thread as u64 + 1;
            let mut worker = Worker::new(self.store, self.records, &self.purpose, seed)?;
            work(&mut worker, share(thread)..share(thread + 1))?;
            worker.session.finish()
        };
        if threads == 1 {
            run(0).with_context(|| name.to_owned())?;
        } else {
            std::thread::scope(|scope| {
                let run = &run;
                let running: Vec<_> =
                    (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
                for thread in running {
                    let outcome = thread.join();
                    outcome.map_err(|_| anyhow::anyhow!("{name}: a thread panicked"))??;
                }
                anyhow::Ok(())
            })
            .with_context(|| name.to_owned())?;
        }
        let (elapsed, cpu) = (start.elapsed(), process::own_cpu_time() - cpu_before);
        stats.set(format!("{name}.us"), elapsed.as_secs_f64() * 1e6 / records as f64);
        stats.set(format!("{name}.cpu_us"), cpu.as_secs_f64() * 1e6 / records as f64);
        Ok(())
    }

    /// Stores every record. Keys look random, so their order does, too.
    pub(super) fn put_all(&self, stats: &mut Stats) -> Result<()> {
        self.phase("put", stats, |worker, numbers| {
            for number in numbers {
                worker.put(number, FIRST_EDITION)?;
            }
            Ok(())
        })
    }
}
