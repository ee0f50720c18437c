//! Restart: opening after the process was killed.

use super::stats::Stats;
use super::work::{Bench, FIRST_EDITION};
use crate::records::Records;
use crate::stores::{self, Purpose};
use anyhow::{Result, bail};
use rustix::process::{Signal, getpid, kill_process};
use std::path::Path;
use std::time::Instant;

/// Child: a new database; puts all records, then kills itself with SIGKILL.
pub fn load_and_die(name: &str, folder: &Path, purpose: &Purpose) -> Result<Stats> {
    let records = Records::new();
    let store = stores::open(name, folder, purpose)?;
    let bench = Bench { store: &*store, records: &records, purpose: *purpose };
    bench.put_all(&mut Stats::default())?;
    kill_process(getpid(), Signal::KILL)?;
    bail!("outlived SIGKILL")
}

/// Child: opens the database that was left, and checks every record.
pub fn reopen(name: &str, folder: &Path, purpose: &Purpose) -> Result<Stats> {
    let records = Records::new();
    let mut stats = Stats::default();
    let start = Instant::now();
    let store = stores::open(name, folder, purpose)?;
    stats.set("open_killed.ms", start.elapsed().as_secs_f64() * 1e3);
    let bench = Bench { store: &*store, records: &records, purpose: *purpose };
    let lost = std::sync::atomic::AtomicU64::new(0);
    bench.phase("check", &mut stats, |worker, numbers| {
        for number in numbers {
            if worker.get(number, Some(FIRST_EDITION)).is_err() {
                lost.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        Ok(())
    })?;
    stats.set("lost", lost.into_inner() as f64);
    store.close()?;
    Ok(stats)
}
