//! The page `docs/benchmarks.html`: one static file with its style and its plots, without scripts.

use super::experiments::EXPERIMENTS;
use super::goals::Goal;
use super::results::{Measure, Results};
use super::svg::{self, FAMILIES};
use super::table::{self, Table};
use std::fmt::Write as _;

const STYLE: &str = "
:root { color-scheme: light dark; --text: #1c1c1c; --soft: #666; --line: #ddd; --back: #fff;
  --other: #777; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e6; --soft: #a0a0a0; --line: #3a3a3a; --back: #161616; --other: #999; }
}
body { margin: 0 auto; max-width: 64rem; padding: 1rem; color: var(--text);
  background: var(--back); font: 1rem/1.5 system-ui, sans-serif; }
a { color: inherit; }
h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; }
.soft { color: var(--soft); }
.wide { overflow-x: auto; }
pre { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
figure { margin: 1.5rem 0; }
svg { width: 100%; max-width: 760px; height: auto; }
svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
svg .axis, svg .tick { fill: var(--soft); }
svg .case { font-weight: bold; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .base { stroke: var(--soft); stroke-width: 1; }
svg .line { fill: none; stroke: var(--mark); stroke-width: 2; }
svg .range { stroke: var(--mark); stroke-width: 1.5; }
svg .mark, svg .bar { fill: var(--mark); stroke: var(--mark); }
svg .bar.durable { fill-opacity: .35; }
svg .line.durable { stroke-dasharray: 6 4; }
";

/// Returns text in which no character has a meaning in HTML or SVG.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Other control characters are in no HTML.
            c if c.is_control() && !c.is_whitespace() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns the page.
pub(super) fn page(results: &Results, goals: &[Goal]) -> String {
    let mut out = String::new();
    out += "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n";
    out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n";
    out += "<title>Benchmarks of tyrant</title>\n<style>";
    out += STYLE;
    out += &colours();
    out += "</style>\n</head>\n<body>\n<h1>Benchmarks of tyrant</h1>\n";
    out += "<p>Written by <code>cargo xtask benchmark</code> from its results file. All servers of \
            an experiment take turns in each round; figures are medians over the rounds, and \
            vertical marks in the plots reach from the least to the most. Ratios are taken within a \
            round, to the best peer of the row. Clients share the processors with the servers. \
            Memory is heap, stacks and private mappings. <a href=\"benchmarks.md\">The same as \
            text</a>, <a href=\"benchmarks/method.md\">the method</a>.</p>\n<ul>\n";
    for experiment in EXPERIMENTS {
        let title = escaped(experiment.title);
        let _ = writeln!(out, "<li><a href=\"#{}\">{title}</a></li>", experiment.name);
    }
    out += "<li><a href=\"#asked\">Asked, reached, why not</a></li>\n</ul>\n";
    out += "<h2 id=\"machine\">Machine and versions</h2>\n";
    push_table(&table::machines(results), &mut out);
    push_table(&table::versions(results), &mut out);
    for experiment in EXPERIMENTS {
        let _ = writeln!(
            out,
            "<h2 id=\"{}\">{}</h2>\n<p>{}</p>",
            experiment.name,
            escaped(experiment.title),
            escaped(experiment.text)
        );
        let Some(run) = results.run(experiment.name) else {
            out += "<p><strong>Not measured.</strong></p>\n";
            continue;
        };
        if let Some(failure) = &run.failure {
            let failure = escaped(failure);
            let _ = writeln!(out, "<p><strong>Not measured</strong>: {failure}</p>");
            continue;
        }
        for note in table::notes(run) {
            let _ = writeln!(out, "<p><strong>{}</strong></p>", escaped(&note));
        }
        let _ = writeln!(
            out,
            "<p class=\"soft\">{}</p>\n<pre>{}</pre>",
            escaped(&table::sizes(run)),
            escaped(&run.command)
        );
        for measure in Measure::ALL {
            if let Some(plot) = svg::plot(run, measure) {
                let _ = writeln!(out, "<figure>\n{plot}</figure>");
            }
        }
        push_table(&table::figures(run), &mut out);
    }
    out += "<h2 id=\"asked\">Asked, reached, why not</h2>\n";
    push_table(&table::asked(results, goals), &mut out);
    out + "</body>\n</html>\n"
}

/// Returns the rules that give each family its colour, light and dark.
fn colours() -> String {
    let mut out = String::from("svg .of-other { --mark: var(--other); }\n");
    for (family, light, _) in FAMILIES {
        let _ = writeln!(out, "svg .of-{family} {{ --mark: {light}; }}");
    }
    out += "@media (prefers-color-scheme: dark) {\n";
    for (family, _, dark) in FAMILIES {
        let _ = writeln!(out, "  svg .of-{family} {{ --mark: {dark}; }}");
    }
    out + "}\n"
}

fn push_table(table: &Table, out: &mut String) {
    let push_row = |element: &str, row: &[String], out: &mut String| {
        *out += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            let class = if column < table.text_columns { "" } else { " class=\"number\"" };
            let _ = write!(out, "<{element}{class}>{}</{element}>", escaped(cell));
        }
        *out += "</tr>\n";
    };
    *out += "<div class=\"wide\"><table>\n<thead>\n";
    push_row("th", &table.heads, out);
    *out += "</thead>\n<tbody>\n";
    for row in &table.rows {
        push_row("td", row, out);
    }
    *out += "</tbody>\n</table></div>\n";
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{goals, sample};
    use super::*;

    /// Checks that elements are closed in order, attributes quoted, and references known.
    pub(in super::super) fn assert_well_formed(text: &str) {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = text.strip_prefix("<!DOCTYPE html>").unwrap_or(text);
        while let Some((words, after)) = rest.split_once('<') {
            assert_words(words);
            let (tag, after) = after.split_once('>').expect("the end of a tag");
            rest = after;
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "</{name}>");
                continue;
            }
            let (inner, is_closed) = match tag.strip_suffix('/') {
                Some(inner) => (inner, true),
                None => (tag, false),
            };
            let name = inner.split_whitespace().next().expect("a name");
            let mut attributes = inner[name.len()..].trim();
            while !attributes.is_empty() {
                let (attribute, value) = attributes.split_once("=\"").expect("an attribute");
                assert!(attribute.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{tag}");
                let (value, after) = value.split_once('"').expect("the end of an attribute");
                assert_words(value);
                attributes = after.trim_start();
            }
            if !is_closed {
                open.push(name);
            }
        }
        assert_words(rest);
        assert!(open.is_empty(), "{open:?} are open");
    }

    fn assert_words(words: &str) {
        assert!(!words.contains('>'), "{words}");
        for reference in words.split('&').skip(1) {
            let (name, _) = reference.split_once(';').expect("the end of a reference");
            assert!(["amp", "lt", "gt", "quot", "#39"].contains(&name), "&{name};");
        }
    }

    #[test]
    #[should_panic = "</b>"]
    fn elements_that_cross_are_not_well_formed() {
        assert_well_formed("<a><b></a></b>".replace("</a></b>", "</b></b>").as_str());
    }

    #[test]
    #[should_panic = "are open"]
    fn an_open_element_is_not_well_formed() {
        assert_well_formed("<a><b></b>");
    }

    #[test]
    #[should_panic = "the end of a reference"]
    fn a_bare_ampersand_is_not_well_formed() {
        assert_well_formed("<a>b & c</a>");
    }

    #[test]
    fn the_page_is_well_formed_and_escaped_and_needs_nothing_else() {
        let goals = goals::goals().expect("goals");
        let page = page(&sample::results(), &goals);
        assert_well_formed(&page);
        assert!(page.contains("a &lt;b&gt; &amp; &quot;c&quot; | d"));
        assert!(page.contains("words ended with &lt;1&gt;"));
        assert!(page.contains("<pre>load --suite &lt;all&gt; --rounds 2</pre>"));
        assert!(page.contains("prefers-color-scheme: dark"));
        for foreign in ["<script", "src=", "http:", "https:", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_page_without_results_has_no_figure() {
        let page = page(&Results::new(), &goals::goals().expect("goals"));
        assert_well_formed(&page);
        assert_eq!(page.matches("<strong>Not measured.</strong>").count(), EXPERIMENTS.len());
        assert!(!page.contains("<svg"));
    }
}
