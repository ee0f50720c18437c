//! Measurements as machine-readable records, and progress lines.
//!
//! With `--json FILE` a program writes one record per line for each case and server, and lines of
//! progress to the standard error. `cargo xtask benchmark` reads both. A figure that was not
//! measured is absent.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Beginning of a line of progress.
const PROGRESS: &str = "progress ";

/// One case, measured on one server or store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Name of the experiment; a program leaves it empty.
    #[serde(default)]
    pub experiment: String,
    /// Name of the case; with one name all servers are given the same work.
    pub case: String,
    /// Name of the server or store.
    pub server: String,
    /// Parameters of the case: connections, records, lengths in bytes, shares.
    pub parameters: BTreeMap<String, f64>,
    /// Figures of each round, in order. Round n of all servers is of the same time.
    pub rounds: Vec<Round>,
    /// Requests that failed, of all rounds.
    #[serde(default)]
    pub errors: u64,
    /// Records read that no longer existed, of all rounds.
    #[serde(default)]
    pub missing: u64,
}

/// Figures of one case on one server in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Throughput, in operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations_per_second: Option<f64>,
    /// Median latency, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// Latency that 99% of the operations did not exceed, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Latency that 99.9% of the operations did not exceed, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999_us: Option<f64>,
    /// CPU time of the server or of the store's process, in microseconds per operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_operation: Option<f64>,
    /// Heap, stacks and private mappings in memory after the round, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<f64>,
    /// Blocks allocated on the disk after the round, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<f64>,
}

/// Returns a number if it is finite.
#[must_use]
pub fn finite(number: f64) -> Option<f64> {
    number.is_finite().then_some(number)
}

/// Writes records to a file, one per line.
pub fn write(path: &Path, measurements: &[Measurement]) -> Result<()> {
    let mut text = String::new();
    for measurement in measurements {
        text += &serde_json::to_string(measurement)?;
        text.push('\n');
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Parses the text that [`write`] wrote.
pub fn read(text: &str) -> Result<Vec<Measurement>> {
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            serde_json::from_str(line).with_context(|| format!("line {number} is no record"))
        })
        .collect()
}

/// Prints that `done` of `total` steps are done, and the next or current one.
pub fn print_progress(done: usize, total: usize, what: &str) {
    eprintln!("{PROGRESS}{done}/{total} {what}");
}

/// Returns the steps done, their total and the current one, if a line reports progress.
#[must_use]
pub fn parse_progress(line: &str) -> Option<(u64, u64, &str)> {
    let (steps, what) = line.strip_prefix(PROGRESS)?.split_once(' ')?;
    let (done, total) = steps.split_once('/')?;
    Some((done.parse().ok()?, total.parse().ok()?, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let round = Round { operations_per_second: Some(1.5), ..Round::default() };
        let one = Measurement {
            case: "get \"x\"".into(),
            server: "tyrant".into(),
            parameters: [("connections".to_owned(), 8.0)].into(),
            rounds: vec![round, Round::default()],
            errors: 1,
            ..Measurement::default()
        };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("records");
        write(&path, &[one.clone(), Measurement::default()]).expect("written");
        let text = std::fs::read_to_string(&path).expect("a file");
        assert_eq!(text.lines().count(), 2);
        assert!(!text.contains("p50_us"), "{text}");
        assert_eq!(read(&text).expect("records"), [one, Measurement::default()]);
    }

    #[test]
    fn a_line_that_is_no_record_is_an_error_with_its_number() {
        let good = r#"{"case": "a", "server": "b", "parameters": {}, "rounds": []}"#;
        let error = read(&format!("{good}\n\n{{}}\n")).expect_err("no case");
        assert_eq!(error.to_string(), "line 3 is no record");
        assert!(read(&good.replace("\"b\"", "1")).is_err());
    }

    #[test]
    fn progress_is_distinguished_from_other_lines() {
        assert_eq!(parse_progress("progress 2/30 get on b"), Some((2, 30, "get on b")));
        for other in ["progress", "progress 2 of 3", "progress 2/x y", "2/3 y"] {
            assert_eq!(parse_progress(other), None, "{other}");
        }
    }

    #[test]
    fn numbers_that_are_not_finite_are_absent() {
        assert_eq!([finite(1.0), finite(f64::NAN), finite(1.0 / 0.0)], [Some(1.0), None, None]);
    }
}
