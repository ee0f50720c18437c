//! `cargo xtask nightly`: the random crash suites of the library, kills of servers under
//! transactions, random programs in Lua, interleavings in Python and the fuzz targets, longer than
//! in `cargo test` and `.ci/run`; the library's with other seeds each day.

use crate::programs::{Profile, run, workspace};
use crate::{crash, lua_programs, python};
use anyhow::{Context, Result, ensure};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// How many times as many histories are tried as the list of suites has. It has as many as `cargo
/// test` tries, and four times as many of append blocks.
pub(crate) const TIMES: u64 = 10;

/// Rounds of transactions, without and with a replica, as many times.
const ROUNDS_OF_TRANSACTIONS: u32 = 100;

/// Time of each fuzz target, in seconds.
const FUZZ_SECONDS: u32 = 300;

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// How a suite is told what to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// The number of histories. proptest chooses the seeds, and stores one that fails.
    Cases(u64),
    /// A range of seeds, by the variable with this name.
    Seeds(&'static str, u64),
}

/// A suite: its test target, the names of its tests, and how much `cargo test` tries.
struct Suite {
    target: &'static str,
    filter: &'static str,
    size: Size,
}

const SUITES: [Suite; 6] = [
    Suite { target: "model", filter: "power_lost", size: Size::Cases(100) },
    Suite { target: "model", filter: "killed", size: Size::Cases(100) },
    Suite { target: "index_in_runs", filter: "whatever_else_happens", size: Size::Cases(50) },
    Suite { target: "eviction", filter: "nothing_old_comes_back", size: Size::Cases(12) },
    Suite { target: "append_blocks", filter: "", size: Size::Seeds("CRASH_SEEDS", 400) },
    Suite { target: "corruptions", filter: "", size: Size::Seeds("CORRUPTIONS", 40) },
];

impl Size {
    /// Returns a variable of the environment and its value.
    fn variable(self, times: u64, seed: u64) -> (&'static str, String) {
        match self {
            Self::Cases(count) => ("PROPTEST_CASES", (count * times).to_string()),
            Self::Seeds(name, count) => {
                let count = count * times;
                let first = (seed % (1 << 32)) * count;
                (name, format!("{first}..{}", first + count))
            }
        }
    }
}

/// Runs the suites, then kills servers under transactions, then runs random programs in Lua,
/// interleavings in Python and the fuzz targets. A seed of 0 is the number of the day, so that each
/// night tries other seeds.
pub(crate) fn run_all(profile: Profile, times: u64, seed: u64) -> Result<()> {
    let seed = if seed == 0 { day()? } else { seed };
    println!("--seed {seed} repeats the suites whose seeds are numbers");
    let mut failed = Vec::new();
    for suite in &SUITES {
        let (variable, value) = suite.size.variable(times, seed);
        let mut command = Command::new(env!("CARGO"));
        command.args(["test", "--quiet", "--package", super::library::PACKAGE]);
        if matches!(profile, Profile::Release) {
            command.arg("--release");
        }
        command.args(["--test", suite.target, "--", suite.filter]);
        println!("$ {variable}={value} \\");
        // The others are worth the rest of the night.
        if run(command.env(variable, value).current_dir(workspace())).is_err() {
            failed.push(suite.target);
        }
    }
    let rounds = u32::try_from(times)?.saturating_mul(ROUNDS_OF_TRANSACTIONS);
    let none = crash::Rounds { rounds: 0, transactions: 0, replicated: 0 };
    for (name, rounds) in [
        ("transactions", crash::Rounds { transactions: rounds, ..none }),
        ("replicated transactions", crash::Rounds { replicated: rounds, ..none }),
    ] {
        if let Err(error) = crash::run(profile, rounds) {
            eprintln!("{name}: {error:#}");
            failed.push(name);
        }
    }
    let programs = lua_programs::PROGRAMS_OF_A_NIGHT;
    if lua_programs::run_all(programs, (seed % (1 << 32)) * programs).is_err() {
        failed.push("the random programs in Lua");
    }
    let first = (seed % (1 << 32)) * python::INTERLEAVINGS_OF_A_NIGHT;
    if python::interleave(first, python::INTERLEAVINGS_OF_A_NIGHT).is_err() {
        failed.push("the interleavings in Python");
    }
    if crate::fuzz::run_all(FUZZ_SECONDS).is_err() {
        failed.push("the fuzz targets");
    }
    ensure!(failed.is_empty(), "failures in {}, see above", failed.join(", "));
    Ok(())
}

/// Returns the number of days since 1970.
fn day() -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(now.as_secs() / SECONDS_PER_DAY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_seed_has_a_range_of_its_own() {
        assert_eq!(Size::Cases(100).variable(10, 7), ("PROPTEST_CASES", "1000".into()));
        let seeds = Size::Seeds("S", 40);
        assert_eq!(seeds.variable(10, 1), ("S", "400..800".into()));
        assert_eq!(seeds.variable(10, 2), ("S", "800..1200".into()));
    }

    /// A suite that is renamed would run no test, and pass.
    #[test]
    fn the_suites_are_there_and_read_their_variables() {
        for suite in &SUITES {
            let tests = workspace().join(super::super::library::FOLDER).join("tests");
            let folder = tests.join(suite.target);
            let files = if folder.is_dir() {
                let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
                files.filter(|file| file.is_file()).collect()
            } else {
                vec![tests.join(suite.target).with_extension("rs")]
            };
            let text: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
            let (variable, _) = suite.size.variable(1, 1);
            for needed in [suite.filter, variable] {
                assert!(text.contains(needed), "{} without {needed}", suite.target);
            }
        }
    }
}
