//! Tables of both pages, independent of their format.

use super::experiments::{EXPERIMENTS, Experiment};
use super::figure::{NONE, figure, or_none};
use super::goals::Goal;
use super::results::{Measure, Results, Run, is_durable, median_of};

/// Most characters shown of a failure.
const FAILURE_CHARS_MAX: usize = 300;

/// A table. The first columns are text, the others figures.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) heads: Vec<String>,
    pub(super) text_columns: usize,
    pub(super) rows: Vec<Vec<String>>,
}

/// Measures whose ratio to the best peer has a column.
const COMPARED: [(Measure, &str); 2] = [
    (Measure::OperationsPerSecond, "op/s, times best peer"),
    (Measure::CpuUsPerOperation, "CPU, times best peer"),
];

/// Returns the figures of a run: a row per case and server, medians over the rounds.
pub(super) fn figures(run: &Run) -> Table {
    let measures: Vec<Measure> = Measure::ALL
        .into_iter()
        .filter(|measure| run.measurements.iter().any(|one| median_of(one, *measure).is_some()))
        .collect();
    let has_errors = run.measurements.iter().any(|one| one.errors > 0);
    let has_missing = run.measurements.iter().any(|one| one.missing > 0);
    let mut heads: Vec<String> = vec!["case".into(), "server".into()];
    heads.extend(measures.iter().map(|measure| measure.head().to_owned()));
    heads.extend(COMPARED.map(|(_, head)| head.to_owned()));
    heads.extend(has_errors.then(|| "errors".to_owned()));
    heads.extend(has_missing.then(|| "missing records".to_owned()));
    let mut rows = Vec::new();
    for case in run.cases() {
        for one in run.of_case(case) {
            let mut row = vec![one.case.clone(), one.server.clone()];
            row.extend(measures.iter().map(|measure| or_none(median_of(one, *measure))));
            for (measure, _) in COMPARED {
                row.push(match run.ratio(one, measure, &[]) {
                    Some(ratio) => format!("{} ({})", figure(ratio.ratio), ratio.peer),
                    None => String::new(),
                });
            }
            row.extend(has_errors.then(|| one.errors.to_string()));
            row.extend(has_missing.then(|| one.missing.to_string()));
            rows.push(row);
        }
    }
    Table { heads, text_columns: 2, rows }
}

/// Returns the sizes common to all cases of a run, as text.
pub(super) fn sizes(run: &Run) -> String {
    let Some(first) = run.measurements.first() else { return String::new() };
    let common = first.parameters.iter().filter(|(name, value)| {
        run.measurements.iter().all(|one| one.parameters.get(*name) == Some(value))
    });
    let words = common.map(|(name, value)| {
        let value = if value.fract() == 0.0 { format!("{value:.0}") } else { figure(*value) };
        format!("{} {value}", name.replace('_', " "))
    });
    let mut words: Vec<String> = words.collect();
    words.push(format!("rounds {}", first.rounds.len()));
    words.join(", ")
}

/// Returns the notes on a run that limit the meaning of its figures.
pub(super) fn notes(run: &Run) -> Vec<String> {
    let mut notes = Vec::new();
    if run.is_quick {
        notes.push(
            "A quick run: it shows that the programs work. Its sizes are too small for \
                    figures to count."
                .to_owned(),
        );
    }
    if run.is_debug {
        notes.push("tyrant was an unoptimized build.".to_owned());
    }
    if run.measurements.iter().any(|one| one.errors > 0 || one.missing > 0) {
        notes.push(
            "A peer that had errors in a case is not compared in it, one that had lost records is \
             not compared at all."
                .to_owned(),
        );
    }
    if run.servers().into_iter().any(is_durable) {
        notes
            .push("Servers that wait for the disk are compared with peers that do too.".to_owned());
    }
    notes
}

/// Returns the machine and the date of each run.
pub(super) fn machines(results: &Results) -> Table {
    let heads = ["experiment", "date, UTC", "machine", "load before", "seconds"];
    let rows = EXPERIMENTS.iter().map(|experiment| {
        let name = experiment.name.to_owned();
        match results.run(experiment.name) {
            None => vec![name, "not measured".into(), NONE.into(), NONE.into(), NONE.into()],
            Some(run) => {
                let machine = &run.machine;
                let gibibytes = machine.memory_bytes as f64 / f64::from(1 << 30);
                vec![
                    name,
                    run.date.clone(),
                    format!(
                        "{} processors, {}; {} GiB; Linux {}; {}",
                        machine.processors,
                        machine.processor,
                        figure(gibibytes),
                        machine.kernel,
                        machine.file_system
                    ),
                    or_none(machine.load_average),
                    format!("{:.0}", run.seconds),
                ]
            }
        }
    });
    let heads = heads.map(str::to_owned).into();
    Table { heads, text_columns: 3, rows: rows.collect() }
}

/// Returns the versions of all runs.
pub(super) fn versions(results: &Results) -> Table {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (name, version) in results.runs.iter().flat_map(|run| &run.versions) {
        let row = vec![name.clone(), version.clone()];
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows.sort();
    Table { heads: ["program", "version"].map(str::to_owned).into(), text_columns: 2, rows }
}

/// Returns the table of requirements, whether each is reached, and why not: first the experiments,
/// then the goals.
pub(super) fn asked(results: &Results, goals: &[Goal]) -> Table {
    let mut rows = Vec::new();
    for experiment in EXPERIMENTS {
        rows.push(asked_of(experiment, results.run(experiment.name)));
    }
    for goal in goals {
        let outcome = goal.outcome(results);
        rows.push(vec![goal.asked.clone(), shortened(&outcome.reached), outcome.why_not]);
    }
    for row in &mut rows {
        row[2] = shortened(&row[2]);
    }
    Table {
        heads: ["asked", "reached", "why not"].map(str::to_owned).into(),
        text_columns: 3,
        rows,
    }
}

fn asked_of(experiment: &Experiment, run: Option<&Run>) -> Vec<String> {
    let absent: Vec<String> =
        experiment.absent.iter().map(|(name, why)| format!("no {name}: {why}")).collect();
    let (reached, why_not) = match run {
        None => ("not measured".to_owned(), "the experiment was not run".to_owned()),
        Some(Run { failure: Some(failure), .. }) => ("not measured".to_owned(), failure.clone()),
        Some(run) => {
            let quick = if run.is_quick { " (quick)" } else { "" };
            (format!("measured{quick}: {}", run.servers().join("; ")), absent.join("; "))
        }
    };
    vec![experiment.title.to_owned(), reached, why_not]
}

/// Returns a text as one line, shortened if it is long.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(FAILURE_CHARS_MAX) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{goals, sample};
    use super::*;

    #[test]
    fn a_row_has_medians_and_ratios_to_the_best_peer() {
        let results = sample::results();
        let table = figures(results.run("inserts").expect("a run"));
        let heads = "case server op/s p99-us CPU-us/op memory-MB";
        let known: Vec<String> = heads.split(' ').map(|head| head.replace('-', " ")).collect();
        assert_eq!(table.heads[..6], known);
        assert_eq!(table.heads.len(), 8);
        assert_eq!(table.rows.len(), 9);
        let row = table.rows[3].join(" | ");
        let expected = "insert, 2 conn | tyrant | 2,250 | 500 | 3.00 | 5.00 | \
                        1.50 (memcached) | 0.50 (redis)";
        assert_eq!(row, expected);
        assert_eq!(table.rows[4][6], "");
    }

    #[test]
    fn missing_records_have_a_column_where_there_are_any() {
        let results = sample::results();
        let table = figures(results.run("queries").expect("a run"));
        assert_eq!(table.heads.last().map(String::as_str), Some("missing records"));
        assert_eq!(table.rows[0].last().map(String::as_str), Some("3"));
    }

    #[test]
    fn sizes_are_those_of_all_cases() {
        let results = sample::results();
        let of = |name| sizes(results.run(name).expect("a run"));
        assert_eq!(of("inserts"), "value bytes 100, rounds 2");
        assert_eq!(of("beyond-memory"), "connections 32, value bytes 100, rounds 2");
    }

    #[test]
    fn experiments_that_were_not_run_or_failed_are_listed() {
        let goals = goals::goals().expect("goals");
        let table = asked(&sample::results(), &goals);
        assert_eq!(table.rows.len(), EXPERIMENTS.len() + goals.len());
        let row = |title: &str| {
            let row = table.rows.iter().find(|row| row[0] == title).expect("a row");
            row[1..].join(" | ")
        };
        assert_eq!(row("Full scans"), "not measured | words ended with <1>");
        assert_eq!(row("Embedded stores"), "not measured | the experiment was not run");
        let inserts = row("Inserts with 1 to 128 connections");
        assert!(inserts.starts_with("measured: tyrant; memcached; redis | no MariaDB: "));
        let machines = machines(&sample::results()).rows;
        let embedded = machines.iter().find(|row| row[0] == "embedded").expect("a row");
        assert_eq!(embedded[1], "not measured");
    }

    #[test]
    fn without_results_nothing_is_reached() {
        let goals = goals::goals().expect("goals");
        let table = asked(&Results::new(), &goals);
        assert!(table.rows.iter().all(|row| row[1] == "not measured"));
    }

    #[test]
    fn a_long_text_is_one_short_line() {
        let long = shortened(&"a\nb ".repeat(300));
        assert!(long.starts_with("a b a b") && long.ends_with(" ..."));
        assert!(long.chars().count() <= FAILURE_CHARS_MAX + 4);
    }
}
