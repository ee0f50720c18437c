//! Results file: the measurements, with the machine and the versions. The pages are written from it
//! alone.

use crate::measurement::{Measurement, Round};
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Version of the file, checked when it is read.
const FORMAT: u32 = 1;

/// All results, the experiments in the order in which they were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Results {
    format: u32,
    pub(super) runs: Vec<Run>,
}

/// A run of one experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    pub(super) machine: Machine,
    /// Versions of tyrant and of the programs compared with it.
    pub(super) versions: BTreeMap<String, String>,
    /// Reason why there are no measurements.
    pub(super) failure: Option<String>,
    pub(super) measurements: Vec<Measurement>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Measure {
    OperationsPerSecond,
    P50Us,
    P99Us,
    P999Us,
    CpuUsPerOperation,
    MemoryBytes,
    DiskBytes,
}

impl Measure {
    pub(super) const ALL: [Self; 7] = [
        Self::OperationsPerSecond,
        Self::P50Us,
        Self::P99Us,
        Self::P999Us,
        Self::CpuUsPerOperation,
        Self::MemoryBytes,
        Self::DiskBytes,
    ];

    /// Returns the head of the column, with its unit.
    pub(super) fn head(self) -> &'static str {
        match self {
            Self::OperationsPerSecond => "op/s",
            Self::P50Us => "p50 us",
            Self::P99Us => "p99 us",
            Self::P999Us => "p99.9 us",
            Self::CpuUsPerOperation => "CPU us/op",
            Self::MemoryBytes => "memory MB",
            Self::DiskBytes => "disk MB",
        }
    }

    /// Returns the name and unit for the axis of a plot.
    pub(super) fn axis(self) -> &'static str {
        match self {
            Self::OperationsPerSecond => "operations per second",
            Self::P50Us => "median latency, microseconds",
            Self::P99Us => "99th percentile of the latency, microseconds",
            Self::P999Us => "99.9th percentile of the latency, microseconds",
            Self::CpuUsPerOperation => "CPU time, microseconds per operation",
            Self::MemoryBytes => "memory, MB",
            Self::DiskBytes => "disk, MB",
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
            Self::MemoryBytes => round.memory_bytes.map(|bytes| bytes / 1e6),
            Self::DiskBytes => round.disk_bytes.map(|bytes| bytes / 1e6),
        }
    }

    fn is_better_when_higher(self) -> bool {
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
        for run in &results.runs {
            for Measurement { experiment, .. } in &run.measurements {
                ensure!(
                    *experiment == run.experiment,
                    "a record of {experiment:?} is in the run of {:?}",
                    run.experiment
                );
            }
        }
        Ok(results)
    }

    /// Writes the file completely or not at all.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let temporary = path.with_extension("new");
        let text = serde_json::to_string_pretty(self)? + "\n";
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
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ratio {
    /// Name of the peer.
    pub(super) peer: String,
    /// Median over the rounds of the ratio within a round.
    pub(super) ratio: f64,
}

impl Run {
    /// Returns the names of the cases in their order.
    pub(super) fn cases(&self) -> Vec<&str> {
        distinct(self.measurements.iter().map(|one| one.case.as_str()))
    }

    /// Returns the names of the servers in their order.
    pub(super) fn servers(&self) -> Vec<&str> {
        distinct(self.measurements.iter().map(|one| one.server.as_str()))
    }

    pub(super) fn of_case<'a>(&'a self, case: &'a str) -> impl Iterator<Item = &'a Measurement> {
        self.measurements.iter().filter(move |one| one.case == case)
    }

    pub(super) fn get(&self, case: &str, server: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|one| one.case == case && one.server == server)
    }

    fn has_lost_records(&self, server: &str) -> bool {
        self.measurements.iter().any(|one| one.server == server && one.missing > 0)
    }

    /// Returns the ratio of one of our servers to the best peer by medians. A server that waits for
    /// the disk is compared only with peers that do, too, and others with others. Ignores peers
    /// with errors in the case, or with lost records in any. Returns `None` for a peer, or if no
    /// peer counts. `peers` are the families that count; if empty, all count.
    pub(super) fn ratio(
        &self,
        one: &Measurement,
        measure: Measure,
        peers: &[String],
    ) -> Option<Ratio> {
        if !is_ours(&one.server) {
            return None;
        }
        let counts = |peer: &&Measurement| {
            !is_ours(&peer.server)
                && peer.errors == 0
                && !self.has_lost_records(&peer.server)
                && is_durable(&peer.server) == is_durable(&one.server)
                && (peers.is_empty() || peers.iter().any(|name| name == family(&peer.server)))
        };
        let sign = if measure.is_better_when_higher() { -1.0 } else { 1.0 };
        let (best, _) = self
            .of_case(&one.case)
            .filter(counts)
            .filter_map(|peer| Some((peer, median_of(peer, measure)? * sign)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let ratio = ratio_within_rounds(one, best, measure)?;
        Some(Ratio { peer: best.server.clone(), ratio })
    }
}

/// Returns the median over the rounds of the ratio of a figure of two records within a round.
pub(super) fn ratio_within_rounds(
    one: &Measurement,
    other: &Measurement,
    measure: Measure,
) -> Option<f64> {
    let rounds = one.rounds.iter().zip(&other.rounds);
    let ratios = rounds.filter_map(|(one, other)| Some(measure.of(one)? / measure.of(other)?));
    median(ratios.filter(|ratio| ratio.is_finite()).collect())
}

/// Returns the bytes of keys and values of a record's case, if its parameters have them.
pub(super) fn data_bytes(one: &Measurement) -> Option<f64> {
    let of = |name: &str| one.parameters.get(name);
    Some(of("records")? * (of("key_bytes")? + of("value_bytes")?))
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

/// Returns the median over the rounds of a figure, if it was measured.
pub(super) fn median_of(one: &Measurement, measure: Measure) -> Option<f64> {
    median(one.rounds.iter().filter_map(|round| measure.of(round)).collect())
}

/// Returns the least and the greatest value of a figure over the rounds.
pub(super) fn range_of(one: &Measurement, measure: Measure) -> Option<(f64, f64)> {
    let figures = one.rounds.iter().filter_map(|round| measure.of(round));
    figures.fold(None, |range, figure| {
        let (least, most) = range.unwrap_or((figure, figure));
        Some((least.min(figure), most.max(figure)))
    })
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        count if count % 2 == 1 => Some(figures[middle]),
        _ => Some(f64::midpoint(figures[middle - 1], figures[middle])),
    }
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
    fn another_format_a_misplaced_record_and_no_json_are_refused() {
        let text = serde_json::to_string(&sample::results()).expect("text");
        let error = |text: String| format!("{:#}", Results::parse(&text).expect_err("an error"));
        assert!(error(text.replace("\"format\":1", "\"format\":2")).contains("format 2 is not 1"));
        let misplaced = text.replacen("\"experiment\":\"inserts\"", "\"experiment\":\"reads\"", 1);
        assert!(error(misplaced).contains("is in the run of \"reads\""));
        assert!(error(text[..text.len() / 2].to_owned()).contains("not a results file"));
    }

    #[test]
    fn a_new_run_replaces_the_earlier_one() {
        let mut results = sample::results();
        let count = results.runs.len();
        results.replace(Run { experiment: "inserts".into(), ..Run::default() });
        assert_eq!(results.runs.len(), count);
        assert!(results.run("inserts").expect("a run").measurements.is_empty());
    }

    #[test]
    fn ratios_are_to_the_best_peer_within_a_round() {
        let results = sample::results();
        let run = results.run("inserts").expect("a run");
        let ours = run.get("insert, 2 conn", "tyrant").expect("a record");
        let ratio = |measure, peers: &[String]| run.ratio(ours, measure, peers);
        let to = |peer: &str, ratio| Some(Ratio { peer: peer.into(), ratio });
        // The second round was twice as slow for all.
        assert_eq!(ratio(Measure::OperationsPerSecond, &[]), to("memcached", 1.5));
        assert_eq!(ratio(Measure::CpuUsPerOperation, &[]), to("redis", 0.5));
        let memcached = ["memcached".to_owned()];
        assert_eq!(ratio(Measure::CpuUsPerOperation, &memcached), to("memcached", 0.25));
        assert_eq!(ratio(Measure::DiskBytes, &[]), None);
        let theirs = run.get("insert, 2 conn", "redis").expect("a record");
        assert_eq!(run.ratio(theirs, Measure::OperationsPerSecond, &[]), None);
    }

    #[test]
    fn a_peer_with_errors_or_without_the_records_does_not_count() {
        let best = |places, spoil: fn(&mut Measurement)| {
            let mut results = sample::results();
            let memcached =
                results.runs[0].measurements.iter_mut().filter(|one| one.server == "memcached");
            // The spoiled record of the first case is of another case than the ratio.
            memcached.take(places).for_each(spoil);
            let run = results.run("inserts").expect("a run");
            let ours = run.get("insert, 2 conn", "tyrant").expect("a record");
            run.ratio(ours, Measure::OperationsPerSecond, &[]).map(|ratio| ratio.peer)
        };
        assert_eq!(best(0, |_| {}).as_deref(), Some("memcached"));
        assert_eq!(best(1, |one| one.errors = 1).as_deref(), Some("memcached"));
        assert_eq!(best(3, |one| one.errors = 1).as_deref(), Some("redis"));
        assert_eq!(best(1, |one| one.missing = 1).as_deref(), Some("redis"));
    }

    #[test]
    fn servers_that_wait_for_the_disk_are_compared_with_each_other() {
        let results = sample::results();
        let run = results.run("beyond-memory").expect("a run");
        let peer = |server| {
            let one = run.get("insert, 32 conn", server).expect("a record");
            run.ratio(one, Measure::OperationsPerSecond, &[]).map(|ratio| ratio.peer)
        };
        assert_eq!(peer("tyrant").as_deref(), Some("mariadb"));
        assert_eq!(peer("tyrant-durable").as_deref(), Some("mariadb-durable"));
    }

    #[test]
    fn a_family_is_the_name_before_the_variant() {
        let families = ["tyrant-durable", "redis", "redis, client in Rust"].map(family);
        assert_eq!(families, ["tyrant", "redis", "redis"]);
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }
}
