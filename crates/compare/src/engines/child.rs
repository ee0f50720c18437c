//! Child: one measurement of one store, in a process of its own.

use super::churn::Pace;
use super::stats::Stats;
use super::{churn, durable, restart, speed};
use crate::records::{KEY_BYTES_MIN, VALUE_BYTES_MAX};
use crate::stores::Purpose;
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Measurement of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Task {
    /// Put, get and scan in a new database.
    Load,
    /// Open it again, mixed work, overwriting.
    Change,
    /// Put in a new database, then SIGKILL.
    LoadAndDie,
    /// Open it again and check every record.
    Reopen,
    /// Puts from many clients for a time.
    Clients,
    /// Overwrite everything many times, with a concurrent reader.
    Churn,
}

/// A measurement, as the parent passes it to a child.
#[derive(Args, Clone, Debug)]
pub struct Assignment {
    /// The store.
    #[arg(long)]
    pub store: String,
    /// Measurement to make.
    #[arg(long)]
    pub task: Task,
    /// Folder of the database.
    #[arg(long)]
    pub folder: PathBuf,
    /// Records.
    #[arg(long)]
    pub records: u64,
    /// Bytes of a key.
    #[arg(long)]
    pub key_bytes: usize,
    /// Bytes of a value.
    #[arg(long)]
    pub value_bytes: usize,
    /// Threads or clients.
    #[arg(long)]
    pub threads: usize,
    /// Whether each put waits for the disk.
    #[arg(long)]
    pub durable: bool,
    /// Passes of overwriting.
    #[arg(long)]
    pub passes: u64,
    /// Most overwrites per second; 0 has no limit.
    #[arg(long)]
    pub writes_per_second: u64,
    /// Seconds that clients put, and that a reader is alone.
    #[arg(long)]
    pub seconds: f64,
}

impl Assignment {
    /// Returns the arguments for a child.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let task = self.task.to_possible_value();
        let mut arguments: Vec<String> = [
            ("--store", self.store.clone()),
            ("--task", task.map_or_else(String::new, |task| task.get_name().to_owned())),
            ("--folder", self.folder.display().to_string()),
            ("--records", self.records.to_string()),
            ("--key-bytes", self.key_bytes.to_string()),
            ("--value-bytes", self.value_bytes.to_string()),
            ("--threads", self.threads.to_string()),
            ("--passes", self.passes.to_string()),
            ("--writes-per-second", self.writes_per_second.to_string()),
            ("--seconds", self.seconds.to_string()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
        if self.durable {
            arguments.push("--durable".into());
        }
        arguments
    }

    /// Returns the purpose for which the store is opened.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        Purpose {
            records: self.records,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            threads: self.threads,
            durable: self.durable,
            numbered: crate::stores::is_numbered(&self.store),
        }
    }

    /// Fails if the measurement is not possible.
    pub fn check(&self) -> Result<()> {
        ensure!((1..=1 << 32).contains(&self.records), "1 to 2^32 records");
        ensure!((KEY_BYTES_MIN..=511).contains(&self.key_bytes), "keys of 8 to 511 bytes");
        ensure!(self.value_bytes <= VALUE_BYTES_MAX, "values of at most {VALUE_BYTES_MAX} bytes");
        ensure!((1..=1024).contains(&self.threads), "1 to 1024 threads");
        ensure!((0.01..=3600.0).contains(&self.seconds), "0.01 to 3600 seconds");
        Ok(())
    }
}

/// Runs the measurement in this process and prints the stats.
pub fn run(assignment: &Assignment) -> Result<()> {
    assignment.check()?;
    measure(assignment, &assignment.folder)?.print();
    Ok(())
}

fn measure(assignment: &Assignment, folder: &Path) -> Result<Stats> {
    let (store, purpose) = (assignment.store.as_str(), assignment.purpose());
    let duration = Duration::from_secs_f64(assignment.seconds);
    match assignment.task {
        Task::Load => speed::load(store, folder, &purpose),
        Task::Change => speed::change(store, folder, &purpose),
        Task::LoadAndDie => restart::load_and_die(store, folder, &purpose),
        Task::Reopen => restart::reopen(store, folder, &purpose),
        Task::Clients => durable::put(store, folder, &purpose, duration),
        Task::Churn => {
            let pace = Pace { passes: assignment.passes, per_second: assignment.writes_per_second };
            churn::churn(store, folder, &purpose, pace, duration)
        }
    }
}
