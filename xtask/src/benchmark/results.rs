//! Results file: medians over the rounds, with the machine and the versions. The pages and the
//! charts are written from it alone.

use crate::measurement::Round;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Version of the file, checked when it is read.
const FORMAT: u32 = 2;

/// All results, the experiments in the order in which they were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Results {
    format: u32,
    pub(super) runs: Vec<Run>,
}

/// A run of one experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    pub(super) experiment: String,
    /// Date and time of the start, UTC.
    pub(super) date: String,
    pub(super) seconds: f64,
    /// Whether the run had the small sizes of `--quick`.
    pub(super) is_quick: bool,
    /// Whether tyrant was an unoptimized build.
    pub(super) is_debug: bool,
    pub(super) command: String,
    /// Sizes that all cases have, as text.
    pub(super) sizes: String,
    pub(super) machine: Machine,
    /// Versions of tyrant and of the programs compared with it.
    pub(super) versions: BTreeMap<String, String>,
    /// Reason why there are no records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) records: Vec<Record>,
}

/// Figures of one case on one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) case: String,
    pub(super) server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) connections: Option<f64>,
    /// Medians over the rounds.
    pub(super) figures: BTreeMap<Measure, f64>,
    /// Ratios of our servers to the best peer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) ratios: BTreeMap<Measure, Ratio>,
    /// Requests that failed, of all rounds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) errors: u64,
    /// Records read that no longer existed, of all rounds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) missing: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Comparison of a run with a goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Outcome {
    pub(super) asked: String,
    /// Number of cases that were compared.
    pub(super) cases: usize,
    /// Least and greatest ratio.
    pub(super) least: f64,
    pub(super) most: f64,
    /// Cases that do not reach the goal.
    pub(super) missed: Vec<Missed>,
}

/// A case that does not reach a goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Missed {
    pub(super) case: String,
    pub(super) ratio: f64,
}

/// The machine at the start of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) processors: u64,
    pub(super) memory_bytes: u64,
    pub(super) kernel: String,
    pub(super) file_system: String,
    /// Load average of the minute before: other work on the machine.
    pub(super) load_average: Option<f64>,
}

/// A kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Measure {
    #[serde(rename = "op/s")]
    OperationsPerSecond,
    #[serde(rename = "p50 us")]
    P50Us,
    #[serde(rename = "p99 us")]
    P99Us,
    #[serde(rename = "p99.9 us")]
    P999Us,
    #[serde(rename = "CPU us/op")]
    CpuUsPerOperation,
    #[serde(rename = "memory MB")]
    MemoryMb,
    #[serde(rename = "disk MB")]
    DiskMb,
}

impl Measure {
    pub(super) const ALL: [Self; 7] = [
        Self::OperationsPerSecond,
        Self::P50Us,
        Self::P99Us,
        Self::P999Us,
        Self::CpuUsPerOperation,
        Self::MemoryMb,
        Self::DiskMb,
    ];

    /// Returns the head of the column, with its unit.
    pub(super) fn head(self) -> &'static str {
        match self {
            Self::OperationsPerSecond => "op/s",
            Self::P50Us => "p50 us",
            Self::P99Us => "p99 us",
            Self::P999Us => "p99.9 us",
            Self::CpuUsPerOperation => "CPU us/op",
            Self::MemoryMb => "memory MB",
            Self::DiskMb => "disk MB",
        }
    }

    /// Returns the figure of a round, in the unit of [`Self::head`].
    pub(super) fn of(self, round: &Round) -> Option<f64> {
        match self {
            Self::OperationsPerSecond => round.operations_per_second,
            Self::P50Us => round.p50_us,
            Self::P99Us => round.p99_us,
            Self::P999Us => round.p999_us,
            Self::CpuUsPerOperation => round.cpu_us_per_operation,
            Self::MemoryMb => round.memory_bytes.map(|bytes| bytes / 1e6),
            Self::DiskMb => round.disk_bytes.map(|bytes| bytes / 1e6),
        }
    }

    /// Returns the name in the file of a chart.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OperationsPerSecond => "rate",
            Self::P50Us => "latency",
            Self::P99Us => "p99",
            Self::P999Us => "p999",
            Self::CpuUsPerOperation => "cpu",
            Self::MemoryMb => "memory",
            Self::DiskMb => "disk",
        }
    }

    /// Returns the title of a chart. The first percentile has all of them.
    pub(super) fn question(self) -> &'static str {
        match self {
            Self::OperationsPerSecond => "Operations per second: more is better",
            Self::P50Us => "p50, p99, p99.9 in us: less is better",
            Self::P99Us => "p99 in us: less is better",
            Self::P999Us => "p99.9 in us: less is better",
            Self::CpuUsPerOperation => "CPU us per operation: less is better",
            Self::MemoryMb => "Memory in MB: less is better",
            Self::DiskMb => "Disk in MB: less is better",
        }
    }

    pub(super) fn is_better_when_higher(self) -> bool {
        self == Self::OperationsPerSecond
    }
}

impl Results {
    pub(super) fn new() -> Self {
        Self { format: FORMAT, runs: Vec::new() }
    }

    /// Reads the file; `None` if there is none.
    pub(super) fn read(path: &Path) -> Result<Option<Self>> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(Self::parse(&text).with_context(|| path.display().to_string())?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let results: Self = serde_json::from_str(text).context("not a results file")?;
        ensure!(results.format == FORMAT, "format {} is not {FORMAT}", results.format);
        Ok(results)
    }

    /// Writes the file completely or not at all.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let temporary = path.with_extension("new");
        // One line for each record, outcome and run. The parts of names are never these: a quote in
        // a name is escaped.
        let mut text = serde_json::to_string(self)? + "\n";
        for start in ["{\"case\":", "{\"asked\":", "{\"experiment\":"] {
            text = text.replace(start, &format!("\n{start}"));
        }
        std::fs::write(&temporary, text)
            .and_then(|()| std::fs::rename(&temporary, path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Adds a run, replacing an earlier one of its experiment.
    pub(super) fn replace(&mut self, run: Run) {
        self.runs.retain(|earlier| earlier.experiment != run.experiment);
        self.runs.push(run);
    }

    pub(super) fn run(&self, experiment: &str) -> Option<&Run> {
        self.runs.iter().find(|run| run.experiment == experiment)
    }
}

/// Returns whether a server or store is this project's.
pub(super) fn is_ours(server: &str) -> bool {
    ["tyrant", "cabinet"].contains(&family(server))
}

/// Returns the name of a server or store without its variant: `tyrant` of `tyrant-durable`.
pub(super) fn family(server: &str) -> &str {
    let end = server.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(server.len());
    &server[..end]
}

/// Returns whether a server waits for the disk.
pub(super) fn is_durable(server: &str) -> bool {
    server.ends_with("-durable")
}

/// A ratio to the best peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Ratio {
    /// Name of the peer.
    pub(super) peer: String,
    /// Median over the rounds of the ratio within a round.
    pub(super) ratio: f64,
}

impl Run {
    /// Returns the names of the cases in their order.
    pub(super) fn cases(&self) -> Vec<&str> {
        distinct(self.records.iter().map(|one| one.case.as_str()))
    }

    /// Returns the names of the servers in their order.
    pub(super) fn servers(&self) -> Vec<&str> {
        distinct(self.records.iter().map(|one| one.server.as_str()))
    }

    pub(super) fn of_case<'a>(&'a self, case: &'a str) -> impl Iterator<Item = &'a Record> {
        self.records.iter().filter(move |one| one.case == case)
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn results_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.json");
        assert_eq!(Results::read(&path).expect("no error"), None);
        let results = sample::results();
        results.write(&path).expect("written");
        assert_eq!(Results::read(&path).expect("no error"), Some(results));
    }

    #[test]
    fn another_format_and_no_json_are_refused() {
        let text = serde_json::to_string(&sample::results()).expect("text");
        let error = |text: String| format!("{:#}", Results::parse(&text).expect_err("an error"));
        assert!(error(text.replace("\"format\":2", "\"format\":3")).contains("format 3 is not 2"));
        assert!(error(text[..text.len() / 2].to_owned()).contains("not a results file"));
    }

    #[test]
    fn a_new_run_replaces_the_earlier_one() {
        let mut results = sample::results();
        let count = results.runs.len();
        results.replace(Run { experiment: "inserts".into(), ..Run::default() });
        assert_eq!(results.runs.len(), count);
        assert!(results.run("inserts").expect("a run").records.is_empty());
    }
}
