//! Tables of the pages, independent of their format.

use super::figure::{figure, or_none};
use super::goals::Goal;
use super::measured::COMPARED;
use super::results::{Machine, Measure, Outcome, Ratio, Record, Results, Run, is_durable};

/// Most characters shown of a failure.
const FAILURE_CHARS_MAX: usize = 300;

/// Reason of a goal that has none.
const NOT_EXAMINED: &str = "not examined";

/// A table. The first columns are text, the others figures.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) heads: Vec<String>,
    pub(super) text_columns: usize,
    pub(super) rows: Vec<Vec<String>>,
}

/// Returns the figures of a run: a row per case and server, medians over the rounds.
pub(super) fn figures(run: &Run) -> Table {
    let measures: Vec<Measure> = Measure::ALL
        .into_iter()
        .filter(|measure| run.records.iter().any(|one| one.figures.contains_key(measure)))
        .collect();
    let has_errors = run.records.iter().any(|one| one.errors > 0);
    let has_missing = run.records.iter().any(|one| one.missing > 0);
    let mut heads: Vec<String> = vec!["case".into(), "server".into()];
    heads.extend(measures.iter().map(|measure| measure.head().to_owned()));
    heads.extend(COMPARED.map(|measure| format!("{}, times best peer", measure.head())));
    heads.extend(has_errors.then(|| "errors".to_owned()));
    heads.extend(has_missing.then(|| "missing records".to_owned()));
    let row = |one: &Record| {
        let mut row = vec![one.case.clone(), one.server.clone()];
        row.extend(measures.iter().map(|measure| or_none(one.figures.get(measure).copied())));
        row.extend(COMPARED.map(|measure| match one.ratios.get(&measure) {
            Some(Ratio { peer, ratio }) => format!("{} ({peer})", figure(*ratio)),
            None => String::new(),
        }));
        row.extend(has_errors.then(|| one.errors.to_string()));
        row.extend(has_missing.then(|| one.missing.to_string()));
        row
    };
    Table { heads, text_columns: 2, rows: run.records.iter().map(row).collect() }
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
    if run.records.iter().any(|one| one.errors > 0 || one.missing > 0) {
        notes.push(
            "A peer that had errors in a case is not compared in it, one that had lost records is \
             not compared at all, and in no chart."
                .to_owned(),
        );
    }
    if run.servers().into_iter().any(is_durable) {
        notes
            .push("Servers that wait for the disk are compared with peers that do too.".to_owned());
    }
    notes
}

/// Returns the machine of the runs, and the versions of the programs.
pub(super) fn machine(results: &Results) -> Table {
    let names = ["machine", "tyrant", "others"];
    let mut rows = names.map(|name| vec![name.to_owned(), String::new()]);
    let mut push = |row: usize, text: &str| {
        let texts = &mut rows[row][1];
        if !texts.split("; ").any(|there| there == text) {
            *texts += if texts.is_empty() { "" } else { "; " };
            *texts += text;
        }
    };
    for run in &results.runs {
        let Machine { processor, processors, memory_bytes, kernel, file_system, .. } = &run.machine;
        let gibibytes = figure(*memory_bytes as f64 / f64::from(1 << 30));
        let text = format!(
            "{processors} processors, {processor}, {gibibytes} GiB, Linux {kernel}, {file_system}"
        );
        push(0, &text);
        for (name, version) in &run.versions {
            match name.as_str() {
                "tyrant" => push(1, version),
                name if version.to_lowercase().contains(name) => push(2, version),
                name => push(2, &format!("{name}: {version}")),
            }
        }
    }
    let heads = ["", ""].map(str::to_owned).into();
    Table { heads, text_columns: 2, rows: rows.into() }
}

/// Verdict: the goals that are reached, and those that are not.
pub(super) struct Verdict {
    pub(super) reached: Table,
    pub(super) missed: Table,
}

/// Compares the results with the goals.
pub(super) fn verdict(results: &Results, goals: &[Goal]) -> Verdict {
    let table = |heads: &[&str], text_columns| Table {
        heads: heads.iter().map(|head| (*head).to_owned()).collect(),
        text_columns,
        rows: Vec::new(),
    };
    let mut reached = table(&["reached", "times"], 1);
    let mut missed = table(&["not reached", "times, in cases", "why not"], 3);
    for goal in goals {
        let asked = goal.asked.clone();
        let run = results.run(&goal.experiment);
        let outcome = run.and_then(|run| run.outcomes.iter().find(|one| one.asked == asked));
        match outcome {
            Some(Outcome { cases: 1.., least, most, missed: cases, .. }) if cases.is_empty() => {
                reached.rows.push(vec![asked, span(*least, *most)]);
            }
            Some(Outcome { cases: 1, most, .. }) => {
                let why_not = goal.why_not.as_deref().unwrap_or(NOT_EXAMINED);
                missed.rows.push(vec![asked, figure(*most), why_not.to_owned()]);
            }
            Some(Outcome { cases: count @ 1.., least, most, missed: cases, .. }) => {
                let names: Vec<String> =
                    cases.iter().map(|one| format!("{} {}", one.case, figure(one.ratio))).collect();
                let count = format!("in {} of {count} cases", cases.len());
                let times = format!("{}; {count}: {}", span(*least, *most), names.join("; "));
                let why_not = goal.why_not.as_deref().unwrap_or(NOT_EXAMINED);
                missed.rows.push(vec![asked, shortened(&times), why_not.to_owned()]);
            }
            _ => {
                let why_not = match run {
                    None => "the experiment was not run",
                    Some(Run { failure: Some(failure), .. }) => failure,
                    Some(_) => "no peer that kept all records",
                };
                missed.rows.push(vec![asked, "not measured".into(), shortened(why_not)]);
            }
        }
    }
    Verdict { reached, missed }
}

fn span(least: f64, most: f64) -> String {
    match [least, most].map(figure) {
        [least, most] if least == most => least,
        [least, most] => format!("{least} to {most}"),
    }
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
        assert_eq!(sample::inserts().sizes(), "value bytes 100");
        let sizes = sample::beyond_memory().sizes();
        assert_eq!(sizes, "connections 32, value bytes 100");
    }

    #[test]
    fn goals_are_reached_or_missed_with_their_cases_and_reasons() {
        let goals = goals::goals().expect("goals");
        let Verdict { reached, missed } = verdict(&sample::results(), &goals);
        assert_eq!(reached.rows, [[sample::REACHED, "0.90 to 1.50"]]);
        assert_eq!(reached.rows.len() + missed.rows.len(), goals.len());
        let row = |asked: &str| missed.rows.iter().find(|row| row[0] == asked).expect("a row");
        let times = "0.90 to 1.50; in 1 of 3 cases: insert, 1 conn 0.90";
        assert_eq!(row(sample::MISSED)[1..], [times, NOT_EXAMINED]);
        let of = |experiment: &str| {
            let goal = goals.iter().find(|goal| goal.experiment == experiment).expect("a goal");
            row(&goal.asked)[1..].join(": ")
        };
        assert_eq!(of("scans"), "not measured: words ended with <1>");
        assert_eq!(of("embedded"), "not measured: the experiment was not run");
        assert_eq!(of("beyond-memory"), "not measured: no peer that kept all records");
    }

    #[test]
    fn the_machine_of_several_runs_is_there_once() {
        let rows = machine(&sample::results()).rows;
        let machine = "2 processors, A & B, 24.0 GiB, Linux 6.1, ext2/ext3";
        assert_eq!(rows, [["machine", machine], ["tyrant", "commit abc"], ["others", ""]]);
    }

    #[test]
    fn a_long_text_is_one_short_line() {
        let long = shortened(&"a\nb ".repeat(300));
        assert!(long.starts_with("a b a b") && long.ends_with(" ..."));
        assert!(long.chars().count() <= FAILURE_CHARS_MAX + 4);
    }
}
