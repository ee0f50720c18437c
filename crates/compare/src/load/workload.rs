//! Workloads: requests to a server, and the records of the requests.

use super::protocol::{Expect, Kind, Script};
use crate::random::{Random, Zipfian};
use crate::records::Records;
use std::sync::atomic::{AtomicU64, Ordering};

/// Choice of the records of requests.
#[derive(Clone, Debug)]
pub enum Choice {
    /// Each request creates records that did not exist. Only for workloads that do not read.
    New,
    /// Each record of the space once, in order.
    Each,
    /// Any existing record, uniformly.
    Uniform,
    /// Any existing record, a few of them often.
    Zipfian(Zipfian),
    /// Any of this many records, at equal distances in the space.
    Scattered(u64),
}

/// The records of one value size that a workload works on: numbers `first..first + count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Number of the first record.
    pub first: u64,
    /// Number of records.
    pub count: u64,
    /// Size of their values, in bytes.
    pub value_bytes: usize,
}

/// A stream of requests.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The records.
    pub space: Space,
    /// Choice of the records.
    pub choice: Choice,
    /// Share of requests that read, in 0..=1.
    pub read_share: f64,
    /// Records per reading request.
    pub keys_per_get: usize,
    /// Script that each request calls in place of reading or writing.
    pub script: Option<Script>,
    /// Requests sent at once; all their replies are awaited before the next ones.
    pub pipeline: usize,
}

/// First number of the records that [`Choice::New`] creates, above every space.
const FIRST_NEW: u64 = 1 << 41;

/// Source of the requests of one driver.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) workload: &'a Workload,
    pub(super) records: &'a Records,
    random: Random,
    created: &'a AtomicU64,
}

impl<'a> Source<'a> {
    /// `created` counts the records used by [`Choice::New`] or [`Choice::Each`] so far.
    pub(super) fn new(
        workload: &'a Workload,
        records: &'a Records,
        created: &'a AtomicU64,
        seed: u64,
    ) -> Self {
        Self { workload, records, random: Random::new(seed), created }
    }

    /// Returns the kind of the next request, and appends its records to `numbers`.
    pub(super) fn next(&mut self, numbers: &mut Vec<u64>) -> Kind {
        if let Some(script) = self.workload.script {
            let number = self.number();
            numbers.push(number);
            return Kind::Call(script);
        }
        let share = self.workload.read_share;
        let reads = share >= 1.0 || (share > 0.0 && self.random.fraction() < share);
        let (kind, count) = match (reads, self.workload.keys_per_get) {
            (false, _) => (Kind::Set, 1),
            (true, 1) => (Kind::Get, 1),
            (true, count) => (Kind::MultiGet, count),
        };
        for _ in 0..count {
            let number = self.number();
            numbers.push(number);
        }
        kind
    }

    fn number(&mut self) -> u64 {
        let Space { first, count, .. } = self.workload.space;
        match &self.workload.choice {
            Choice::New => FIRST_NEW + self.created.fetch_add(1, Ordering::Relaxed),
            Choice::Each => first + self.created.fetch_add(1, Ordering::Relaxed) % count,
            Choice::Uniform => first + self.random.below(count),
            Choice::Zipfian(zipfian) => first + zipfian.next(&mut self.random),
            Choice::Scattered(few) => first + self.random.below(*few) * (count / few),
        }
    }
}

impl Expect for Source<'_> {
    fn value(&self, number: u64) -> &[u8] {
        self.records.value(number, 0, self.workload.space.value_bytes)
    }
}
