//! Fault suite: damaged files, detached volumes, kills, losses of power, full disks and small
//! memory.
//!
//! Random choices come from a seed that a failure reports. `docs/reliability.md` lists the faults
//! and the results.

mod damage;
mod detach;
mod history;

use crate::programs::{Profile, build, run_with};
use crate::{crash, full_disk, small_memory};
use anyhow::Result;

/// Number of seeds of the library's suites per damaged database.
const SEEDS_PER_ROUND: u64 = 10;

/// Number of damaged databases per detached volume of each file system.
const DAMAGES_PER_DETACHED: u64 = 20;

/// Runs all suites: `rounds` damaged databases, and the other suites at the same scale.
pub(crate) fn run(profile: Profile, seed: u64, rounds: u64) -> Result<()> {
    let programs = build(profile)?;
    damage::run(&programs, seed, rounds)?;
    detach::run(&programs, seed, (rounds / DAMAGES_PER_DETACHED).max(1))?;
    let kills = u32::try_from(rounds / 2).unwrap_or(u32::MAX).max(1);
    crash::run(profile, crash::Rounds { rounds: kills, transactions: kills, replicated: kills })?;
    let seeds = seed..seed + rounds * SEEDS_PER_ROUND;
    library(&["corruptions"], "CORRUPTIONS", &format!("{}..{}", seeds.start, seeds.end))?;
    library(&["append_blocks"], "CRASH_SEEDS", &(seeds.end - seeds.start).to_string())?;
    library(&["model"], "PROPTEST_CASES", &rounds.to_string())?;
    full_disk::run(profile, full_disk::SIZE_MIB)?;
    small_memory::run(profile)
}

/// Damages `rounds` databases, from `seed` on.
pub(crate) fn damage(profile: Profile, seed: u64, rounds: u64) -> Result<()> {
    damage::run(&build(profile)?, seed, rounds)
}

/// Loses `rounds` volumes of each file system, from `seed` on.
pub(crate) fn detach(profile: Profile, seed: u64, rounds: u64) -> Result<()> {
    detach::run(&build(profile)?, seed, rounds)
}

/// Runs test files of the library with the number of seeds in `variable`.
fn library(files: &[&str], variable: &str, seeds: &str) -> Result<()> {
    let mut arguments = vec!["test", "--package", "tyrant-cabinet", "--release"];
    for file in files {
        arguments.extend(["--test", file]);
    }
    run_with(&arguments, (variable, seeds))
}
