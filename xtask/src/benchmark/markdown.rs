//! The page `docs/benchmarks.md`.

use super::experiments::EXPERIMENTS;
use super::goals::Goal;
use super::results::Results;
use super::table::{self, Table};
use std::fmt::Write as _;

/// Columns of a line.
const COLUMNS_MAX: usize = 100;

/// Pages written by hand, and the questions that they answer.
const PAGES: &[(&str, &str)] = &[
    (
        "benchmarks/requests.md",
        "how much does a request cost in each protocol, over TLS, and as a script?",
    ),
    (
        "benchmarks/embedded.md",
        "memory, disk, opening, B+ trees and a second thread of embedded stores",
    ),
    ("benchmarks/durable.md", "how much does it cost to wait for the disk?"),
    ("benchmarks/beyond-memory.md", "how much do reads of the disk cost, and what do they delay?"),
    ("benchmarks/tables.md", "how long do puts and look-ups of rows take, and how much disk?"),
    ("benchmarks/caches.md", "how many hits has a cache of one size?"),
    ("benchmarks/copies.md", "how much do replicas and backups cost the server?"),
    ("benchmarks/cluster.md", "how fast is a server over a cluster?"),
    ("benchmarks/method.md", "how the programs measure"),
];

/// Returns the page.
pub(super) fn page(results: &Results, goals: &[Goal]) -> String {
    let mut out = String::from("# Benchmarks\n\n");
    out += "<!-- Written by cargo xtask benchmark: change its sources, not this page. -->\n\n";
    push_text(
        "`cargo xtask benchmark` measures, and writes this page and \
         [the same with plots](benchmarks.html). All servers of an experiment take turns in each \
         round; figures are medians over the rounds. A ratio is taken within a round, to the best \
         peer of the row, which is named beside it. Clients share the processors with the servers. \
         Memory is heap, stacks and private mappings; disk is blocks allocated. A figure that was \
         not measured is `-`.",
        &mut out,
    );
    push_text("Pages written by hand have the questions that this one does not answer:", &mut out);
    out += "| page | question |\n|---|---|\n";
    for (path, question) in PAGES {
        let _ = writeln!(out, "| [{path}]({path}) | {question} |");
    }
    out += "\n## Machine and versions\n\n";
    push_table(&table::machines(results), &mut out);
    let versions = table::versions(results);
    if !versions.rows.is_empty() {
        push_table(&versions, &mut out);
    }
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
        for note in table::notes(run) {
            push_text(&format!("**{note}**"), &mut out);
        }
        push_text(&format!("Sizes: {}.", table::sizes(run)), &mut out);
        let _ = writeln!(out, "```sh\n{}\n```\n", run.command);
        push_table(&table::figures(run), &mut out);
    }
    out += "## Asked, reached, why not\n\n";
    push_text(
        "The first rows are the experiments, and the servers that each has. The others are ratios \
         to the best peer.",
        &mut out,
    );
    push_table(&table::asked(results, goals), &mut out);
    out.truncate(out.trim_end().len());
    out + "\n"
}

/// Appends a paragraph, its lines wrapped.
fn push_text(text: &str, out: &mut String) {
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
    use crate::programs::workspace;

    fn written(results: &Results) -> String {
        page(results, &goals::goals().expect("goals"))
    }

    #[test]
    fn rows_have_as_many_cells_as_their_heads() {
        let page = written(&sample::results());
        let mut cells = None;
        let mut rows = 0;
        for line in page.lines() {
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
        assert!(page.lines().any(|line| line == row), "{page}");
    }

    #[test]
    fn what_has_a_meaning_in_markdown_is_escaped() {
        let page = written(&sample::results());
        assert!(page.contains("| a &lt;b> &amp; \"c\" \\| d | cabinet |"), "{page}");
        assert!(page.contains("```text\nwords ended with <1>\n```"));
    }

    #[test]
    fn the_table_of_what_was_asked_is_the_last_and_text_is_wrapped() {
        for results in [Results::new(), sample::results()] {
            let page = written(&results);
            let (_, end) = page.rsplit_once("\n## ").expect("headings");
            assert!(end.starts_with("Asked, reached, why not\n"), "{end}");
            assert!(end.trim_end().ends_with('|'));
            let text = page.lines().filter(|line| !line.starts_with('|'));
            assert!(text.clone().all(|line| line.chars().count() <= COLUMNS_MAX));
        }
    }

    #[test]
    fn a_page_without_results_says_so_for_each_experiment() {
        let page = written(&Results::new());
        assert_eq!(page.matches("**Not measured.**").count(), EXPERIMENTS.len());
    }

    #[test]
    fn the_pages_written_by_hand_are_all_linked() {
        let folder = workspace().join("docs/benchmarks");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .expect("a folder")
            .map(|file| format!("benchmarks/{}", file.expect("a file").file_name().display()))
            .collect();
        files.sort();
        let mut linked: Vec<&str> = PAGES.iter().map(|(path, _)| *path).collect();
        linked.sort_unstable();
        assert_eq!(files, linked);
    }
}
