//! The pages `docs/benchmarks.md` and `docs/benchmarks/figures.md`.

use super::experiments::EXPERIMENTS;
use super::figure::figure;
use super::goals::Goal;
use super::results::Results;
use super::svg::{self, Chart};
use super::table::{self, Table, Verdict};
use std::fmt::Write as _;

/// Columns of a line.
const COLUMNS_MAX: usize = 100;

/// Line of a page that is written by this program.
const WRITTEN: &str =
    "<!-- Written by cargo xtask benchmark: change its sources, not this page. -->";

/// Returns the page with the verdict and the charts.
pub(super) fn page(results: &Results, goals: &[Goal]) -> String {
    let Verdict { reached, missed } = table::verdict(results, goals);
    let mut out = format!("# Benchmarks\n\n{WRITTEN}\n\n");
    push_text(
        &format!(
            "**{} of {} goals are reached.** A figure is a ratio to the best peer in each case, \
             unless the goal names another measure: of rates more is better, of times and bytes \
             less.",
            reached.rows.len(),
            goals.len()
        ),
        &mut out,
    );
    push_table(&missed, &mut out);
    push_table(&reached, &mut out);
    out += "## Machine and versions\n\n";
    push_table(&table::machine(results), &mut out);
    push_text(
        "`cargo xtask benchmark` measures and writes this page, its charts and \
         [all figures](benchmarks/figures.md). [Pages written by hand](README.md) have the \
         questions that it does not answer. All servers of an experiment take turns in each \
         round; figures are medians over the rounds. A ratio is taken within a round. Clients \
         share the processors with the servers. Memory is heap, stacks and private mappings; disk \
         is blocks allocated.",
        &mut out,
    );
    for experiment in EXPERIMENTS {
        let _ = writeln!(out, "## {}\n", experiment.title);
        push_text(experiment.text, &mut out);
        let Some(run) = results.run(experiment.name) else {
            push_text("**Not measured.**", &mut out);
            continue;
        };
        if let Some(failure) = &run.failure {
            push_text("**Not measured**: the program has failed.", &mut out);
            let _ = writeln!(out, "```text\n{}\n```\n", failure.replace("```", "'''"));
            continue;
        }
        let mut text = format!("{} UTC", run.date);
        let load = run.machine.load_average.map(|load| format!("load before {}", figure(load)));
        for part in load.iter().chain(Some(&run.sizes).filter(|sizes| !sizes.is_empty())) {
            let _ = write!(text, ", {part}");
        }
        text.push('.');
        for (name, why) in experiment.absent {
            let _ = write!(text, " No {name}: {why}.");
        }
        push_text(&text, &mut out);
        push_text(&table::notes(run).join(" "), &mut out);
        for measure in experiment.charts {
            for Chart { name, title, .. } in svg::charts(run, *measure) {
                let _ = writeln!(out, "![{title}](benchmarks/charts/{name}.svg)");
            }
        }
        let _ = writeln!(out, "\n```sh\n{}\n```\n", run.command);
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

/// Returns the page with all figures.
pub(super) fn figures(results: &Results) -> String {
    let mut out = format!("# All figures of the benchmarks\n\n{WRITTEN}\n\n");
    push_text(
        "[benchmarks.md](../benchmarks.md) has the experiments, their commands, and charts of \
         these figures: medians over the rounds. A ratio is taken within a round, to the best peer \
         of the row, which is named beside it. A figure that was not measured is `-`.",
        &mut out,
    );
    for experiment in EXPERIMENTS {
        let Some(run) = results.run(experiment.name) else { continue };
        let _ = writeln!(out, "## {}\n", experiment.title);
        push_text(&format!("{} UTC.", run.date), &mut out);
        push_table(&table::figures(run), &mut out);
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

/// Appends a paragraph, its lines wrapped, unless it is empty.
fn push_text(text: &str, out: &mut String) {
    if text.is_empty() {
        return;
    }
    let mut columns = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if columns > 0 && columns + 1 + length > COLUMNS_MAX {
            out.push('\n');
            columns = 0;
        } else if columns > 0 {
            out.push(' ');
            columns += 1;
        }
        *out += word;
        columns += length;
    }
    *out += "\n\n";
}

/// Returns text that is one cell of a table.
fn cell(text: &str) -> String {
    let mut cell = String::new();
    for c in text.chars() {
        match c {
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' => cell.extend(['\\', c]),
            '<' => cell.push_str("&lt;"),
            '&' => cell.push_str("&amp;"),
            c if c.is_control() => cell.push(' '),
            c => cell.push(c),
        }
    }
    cell
}

fn push_table(table: &Table, out: &mut String) {
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    *out += &row(&table.heads);
    for column in 0..table.heads.len() {
        *out += if column < table.text_columns { "|---" } else { "|---:" };
    }
    *out += "|\n";
    for cells in &table.rows {
        *out += &row(cells);
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::{goals, sample};
    use super::*;

    fn written(results: &Results) -> String {
        page(results, &goals::goals().expect("goals"))
    }

    #[test]
    fn rows_have_as_many_cells_as_their_heads() {
        let results = sample::results();
        let text = written(&results) + &figures(&results);
        let mut cells = None;
        let mut rows = 0;
        for line in text.lines() {
            if !line.starts_with('|') {
                cells = None;
                continue;
            }
            let count = line.replace("\\|", "").matches('|').count();
            assert_eq!(*cells.get_or_insert(count), count, "{line}");
            rows += 1;
        }
        assert!(rows > 40);
        let row = "| insert, 2 conn | tyrant | 2,250 | 500 | 3.00 | 5.00 | 1.50 (memcached) | \
                   0.50 (redis) |";
        assert!(text.lines().any(|line| line == row), "{text}");
    }

    #[test]
    fn what_has_a_meaning_in_markdown_is_escaped() {
        let results = sample::results();
        let page = figures(&results);
        assert!(page.contains("| a &lt;b> &amp; \"c\" \\| d | cabinet |"), "{page}");
        assert!(written(&results).contains("```text\nwords ended with <1>\n```"));
    }

    #[test]
    fn the_verdict_is_first_and_text_is_wrapped() {
        for results in [Results::new(), sample::results()] {
            let page = written(&results);
            let (first, _) = page.split_once("\n## ").expect("headings");
            assert!(first.contains("goals are reached.**"), "{first}");
            assert!(first.contains("| not reached | times, in cases | why not |"), "{first}");
            let text = page.lines().filter(|line| !line.starts_with('|'));
            assert!(text.clone().all(|line| line.chars().count() <= COLUMNS_MAX));
        }
    }

    #[test]
    fn a_page_without_results_says_so_for_each_experiment() {
        let page = written(&Results::new());
        assert_eq!(page.matches("**Not measured.**").count(), EXPERIMENTS.len());
        assert!(!page.contains(".svg"));
    }
}
