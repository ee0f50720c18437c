//! Speed: put, get, scan, mixed, overwrite; memory, bytes on disk, and opening again.

use super::stats::Stats;
use super::work::{Bench, FIRST_EDITION, SECOND_EDITION};
use crate::folder;
use crate::process;
use crate::records::Records;
use crate::stores::{self, Purpose};
use anyhow::{Result, ensure};
use std::path::Path;
use std::time::Instant;

/// Child: a new database; puts, gets and scans all records.
pub fn load(name: &str, folder: &Path, purpose: &Purpose) -> Result<Stats> {
    let records = Records::new();
    let mut stats = Stats::default();
    let process_id = std::process::id();
    let before = process::memory(process_id)?;
    stats.set("base_bytes", before.anonymous as f64);
    let store = stores::open(name, folder, purpose)?;
    let bench = Bench { store: &*store, records: &records, purpose: *purpose };
    bench.put_all(&mut stats)?;
    let after = process::memory(process_id)?;
    let grown = after.anonymous.saturating_sub(before.anonymous);
    stats.set("put.anonymous_per_key", grown as f64 / purpose.records as f64);
    let used = folder::usage(folder)?;
    stats.set("put.disk_allocated", used.allocated as f64);
    if name != "none" {
        bench.phase("get", &mut stats, |worker, numbers| {
            for _ in numbers {
                let number = worker.random.below(purpose.records);
                worker.get(number, Some(FIRST_EDITION))?;
            }
            Ok(())
        })?;
        let alone = Purpose { threads: 1, ..*purpose };
        let bench = Bench { store: &*store, records: &records, purpose: alone };
        bench.phase("scan", &mut stats, |worker, _| {
            let mut count = 0;
            worker.session.scan(&mut |key, value| {
                let is_whole = purpose.numbered || key.len() == purpose.key_bytes;
                count += u64::from(is_whole && value.len() == purpose.value_bytes);
            })?;
            ensure!(count == purpose.records, "{count} of {} records", purpose.records);
            Ok(())
        })?;
    }
    let memory = process::memory(process_id)?;
    stats.set("peak_resident", memory.peak_resident as f64);
    let start = Instant::now();
    store.close()?;
    stats.set("close.ms", start.elapsed().as_secs_f64() * 1e3);
    stats.set("load.cpu_s", process::own_cpu_time().as_secs_f64());
    Ok(stats)
}

/// Child: opens the database that [`load`] left; reads and overwrites.
pub fn change(name: &str, folder: &Path, purpose: &Purpose) -> Result<Stats> {
    let records = Records::new();
    let mut stats = Stats::default();
    let start = Instant::now();
    let store = stores::open(name, folder, purpose)?;
    stats.set("open_clean.ms", start.elapsed().as_secs_f64() * 1e3);
    let bench = Bench { store: &*store, records: &records, purpose: *purpose };
    if name != "none" {
        bench.phase("mixed", &mut stats, |worker, numbers| {
            for _ in numbers {
                let number = worker.random.below(purpose.records);
                if worker.random.below(10) == 0 {
                    worker.put(number, SECOND_EDITION)?;
                } else {
                    worker.get(number, None)?;
                }
            }
            Ok(())
        })?;
        bench.phase("overwrite", &mut stats, |worker, numbers| {
            for _ in numbers {
                let number = worker.random.below(purpose.records);
                worker.put(number, SECOND_EDITION)?;
            }
            Ok(())
        })?;
    }
    store.close()?;
    Ok(stats)
}
