//! Statistics of the functions that were called.

use crate::limits::FUNCTIONS_MAX;
use parking_lot::Mutex;
use server::FunctionStatistics;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Name under which functions count that are too many.
const OTHERS: &str = "(others)";

/// Statistics of the functions of one state, which has an own one so that threads do not share
/// cache lines.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    functions: Mutex<BTreeMap<String, Arc<CallStatistics>>>,
}

/// Counts and time of the calls of one function.
#[derive(Debug, Default)]
pub(crate) struct CallStatistics {
    calls: AtomicU64,
    failures: AtomicU64,
    nanoseconds: AtomicU64,
}

impl CallStatistics {
    /// Counts a call.
    pub(crate) fn add(&self, time: Duration, has_failed: bool) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.failures.fetch_add(has_failed.into(), Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

impl Statistics {
    /// Returns the statistics of a function, to count its calls.
    pub(crate) fn of(&self, name: &str) -> Arc<CallStatistics> {
        let mut functions = self.functions.lock();
        let is_new = !functions.contains_key(name);
        let name = if is_new && functions.len() >= FUNCTIONS_MAX { OTHERS } else { name };
        Arc::clone(functions.entry(name.to_string()).or_default())
    }

    /// Adds the statistics to those of other states.
    pub(crate) fn add_to(&self, sums: &mut BTreeMap<String, FunctionStatistics>) {
        for (name, statistics) in self.functions.lock().iter() {
            let sum = sums.entry(name.clone()).or_insert_with(|| FunctionStatistics {
                name: name.clone(),
                ..FunctionStatistics::default()
            });
            sum.calls += statistics.calls.load(Ordering::Relaxed);
            sum.failures += statistics.failures.load(Ordering::Relaxed);
            sum.time += Duration::from_nanos(statistics.nanoseconds.load(Ordering::Relaxed));
        }
    }
}
