//! Charts in SVG, light and dark: lines over the number of connections, and rows of marks on a
//! logarithmic axis. A text of 16 units has 12 pixels on a screen of 390.

use super::figure::short;
use super::results::{Measure, Record, Run, family, is_durable};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Width of all charts.
const WIDTH: f64 = 450.0;

/// Distance of two lines of text.
const LINE: f64 = 22.0;

/// Space at both sides.
const SIDE: f64 = 16.0;

/// Families of servers and stores, with their colours, light and dark: the same in all charts.
const FAMILIES: &[(&str, &str, &str)] = &[
    ("tyrant", "#1f5fbf", "#6ea8ff"),
    ("cabinet", "#1f5fbf", "#6ea8ff"),
    ("memcached", "#2e7d32", "#7bc67e"),
    ("redis", "#c62828", "#ff7b72"),
    ("valkey", "#8e24aa", "#e0a3f0"),
    ("mariadb", "#b26a00", "#f0b429"),
    ("tc", "#6a3fa0", "#c29bff"),
    ("lmdb", "#00778a", "#4dd0e1"),
    ("rocksdb", "#8d6e63", "#c7a69a"),
    ("redb", "#ad1457", "#ff80ab"),
    ("fjall", "#5d7000", "#c0ca33"),
];

/// Colours of servers of no family.
const OTHER: (&str, &str) = ("#777", "#999");

/// Shapes of marks around a point, in the order of the servers.
const SHAPES: &[&str] = &[
    "m-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0",
    "m-5,-5h10v10h-10z",
    "m0,-6l6,6l-6,6l-6,-6z",
    "m0,-6l6,10h-12z",
    "m0,6l6,-10h-12z",
];

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

/// Figures of a row by server, in the order of the chart's servers.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) figures: Vec<Option<Vec<f64>>>,
}

/// A chart as a file.
pub(super) struct Chart {
    /// Name without its end.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) svg: String,
}

/// Returns the charts of a measure: one of the cases that differ only in the number of connections,
/// and one of the others. No server has a chart without figures.
pub(super) fn charts(run: &Run, measure: Measure) -> Vec<Chart> {
    let measures: &[Measure] = match measure {
        Measure::P50Us => &[Measure::P50Us, Measure::P99Us, Measure::P999Us],
        _ => &[measure],
    };
    // A server that lost records did less work.
    let has_lost =
        |server: &str| run.records.iter().any(|one| one.server == server && one.missing > 0);
    let servers: Vec<&str> = run.servers().into_iter().filter(|server| !has_lost(server)).collect();
    let figures = |one: &Record| -> Option<Vec<f64>> {
        measures.iter().map(|measure| one.figures.get(measure).copied()).collect()
    };
    let row = |case: &str| {
        let of = |server: &&str| run.of_case(case).find(|one| one.server == *server);
        let figures = servers.iter().map(|server| figures(of(server)?)).collect();
        Row { name: case.to_owned(), figures }
    };
    let is_any = |row: &Row| row.figures.iter().any(Option::is_some);
    let rows: Vec<Row> = run.cases().into_iter().map(row).filter(is_any).collect();
    let sweep = if measures.len() == 1 { sweep(run) } else { None };
    let (swept, others): (Vec<Row>, Vec<Row>) = rows
        .into_iter()
        .partition(|row| sweep.as_ref().is_some_and(|(_, cases)| cases.contains(&&*row.name)));
    let name = format!("{}-{}", run.experiment, measure.name());
    let mut charts = Vec::new();
    if let Some((start, _)) = &sweep
        && !swept.is_empty()
    {
        let title = format!("{}, {start}", measure.question());
        let name = format!("{name}-lines");
        let counts = swept.iter().filter_map(|row| run.of_case(&row.name).next()?.connections);
        let svg = lines(measure.question(), start, &servers, &counts.collect::<Vec<_>>(), &swept);
        charts.push(Chart { name, title, svg });
    }
    if !others.is_empty() {
        let title = measure.question().to_owned();
        let svg = marks(&title, "", &servers, &others);
        charts.push(Chart { name, title, svg });
    }
    charts
}

/// Returns the cases whose names begin alike and that differ in the number of connections, if there
/// are more than two, with this beginning.
fn sweep(run: &Run) -> Option<(&str, Vec<&str>)> {
    let mut by_start: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for case in run.cases() {
        let connections = run.of_case(case).next()?.connections?;
        if let Some(start) = case.strip_suffix(&format!(", {connections} conn")) {
            by_start.entry(start).or_default().push(case);
        }
    }
    by_start.into_iter().max_by_key(|(_, cases)| cases.len()).filter(|(_, cases)| cases.len() > 2)
}

/// A chart that is drawn from top to bottom. Marks are over all else, the grid is below it.
struct Drawing {
    y: f64,
    /// Paths of the grid.
    grid: String,
    /// Texts and lines.
    body: String,
    /// Classes of each server, the shape of its marks, and their paths.
    marks: Vec<(String, &'static str, String)>,
}

impl Drawing {
    /// Begins with the title, and the marks of the servers.
    fn new(title: &str, servers: &[&str]) -> Self {
        let mark = |(place, server): (usize, &&str)| {
            let variant = if is_durable(server) { " hollow" } else { "" };
            let classes = format!("{}{variant}", colour(server).0);
            (classes, SHAPES[place % SHAPES.len()], String::new())
        };
        let marks = servers.iter().enumerate().map(mark).collect();
        let mut drawing = Self { y: LINE, grid: String::new(), body: String::new(), marks };
        drawing.text(SIDE, "start", "bold", title);
        let mut x = SIDE;
        drawing.y += LINE;
        for (place, server) in servers.iter().enumerate() {
            let width = 32.0 + 10.5 * server.chars().count() as f64;
            if x > SIDE && x + width > WIDTH {
                x = SIDE;
                drawing.y += LINE;
            }
            drawing.mark(place, x + 6.0, drawing.y - 6.0);
            drawing.text(x + 16.0, "start", "", server);
            x += width;
        }
        drawing
    }

    fn text(&mut self, x: f64, anchor: &str, class: &str, words: &str) {
        let _ = write!(self.body, "<text x=\"{x:.0}\" y=\"{:.0}\"", self.y);
        for (name, value) in [("text-anchor", anchor), ("class", class)] {
            if !["", "start"].contains(&value) {
                let _ = write!(self.body, " {name}=\"{value}\"");
            }
        }
        let _ = writeln!(self.body, ">{}</text>", escaped(words));
    }

    fn mark(&mut self, server: usize, x: f64, y: f64) {
        let (_, shape, path) = &mut self.marks[server];
        let _ = write!(path, "M{x:.1},{y:.1}{shape}");
    }

    /// Draws a line of a server through points.
    fn line(&mut self, server: &str, points: &[(f64, f64)]) {
        let class = colour(server).0;
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        let _ = writeln!(self.body, "<polyline class=\"{class}\" points=\"{points}\"/>");
    }

    fn grid(&mut self, (x, y): (f64, f64), (to_x, to_y): (f64, f64)) {
        let _ = write!(self.grid, "M{x:.1},{y:.1}L{to_x:.1},{to_y:.1}");
    }

    /// Returns the file.
    fn end(self, label: &str, servers: &[&str]) -> String {
        let mut families: Vec<(&str, &str, &str)> =
            servers.iter().map(|server| colour(server)).collect();
        families.sort_unstable();
        families.dedup();
        let rules =
            |of: fn(&(&str, &str, &str)) -> String| -> String { families.iter().map(of).collect() };
        let light = rules(|(name, light, _)| format!(".{name}{{color:{light}}}"));
        // The marks of the first server are over the others.
        let mark = |(classes, _, path): &(String, &str, String)| {
            format!("<path class=\"{classes}\" d=\"{path}\"/>\n")
        };
        let marks: String = self.marks.iter().rev().map(mark).collect();
        let dark = rules(|(name, _, dark)| format!(".{name}{{color:{dark}}}"));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{label}\">\n<style>\
             text{{font:16px system-ui,sans-serif;fill:#1c1c1c}}.bold{{font-weight:bold}}\
             .soft{{fill:#666}}.back{{fill:#fff}}.grid{{color:#ddd}}path{{fill:currentColor}}\
             path,polyline{{stroke:currentColor;stroke-width:1.5}}polyline,.hollow{{fill:none}}\
             {light}\
             @media(prefers-color-scheme:dark){{text{{fill:#e6e6e6}}.soft{{fill:#a0a0a0}}\
             .back{{fill:#161616}}.grid{{color:#3a3a3a}}{dark}}}</style>\n\
             <rect class=\"back\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n\
             <path class=\"grid\" d=\"{grid}\"/>\n{body}{marks}</svg>\n",
            height = self.y + 12.0,
            label = escaped(label),
            grid = self.grid,
            body = self.body,
        )
    }
}

/// Returns the family of a server with its colours.
fn colour(server: &str) -> (&'static str, &'static str, &'static str) {
    let known = FAMILIES.iter().find(|(name, _, _)| *name == family(server));
    known.copied().unwrap_or(("other", OTHER.0, OTHER.1))
}

/// Returns the step between the lines of a grid, a round number: about five up to `most`.
fn grid_step(most: f64) -> f64 {
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power);
    step.into_iter().find(|step| *step >= rough).unwrap_or(rough)
}

/// Draws lines over the numbers of connections of a case.
fn lines(title: &str, case: &str, servers: &[&str], counts: &[f64], rows: &[Row]) -> String {
    const HEIGHT: f64 = 210.0;
    const LEFT: f64 = 56.0;
    let mut drawing = Drawing::new(title, servers);
    let top = drawing.y + LINE;
    let (right, bottom) = (WIDTH - SIDE, top + HEIGHT);
    let most = all(rows).fold(f64::MIN_POSITIVE, f64::max);
    let step = grid_step(most);
    let steps = (most / step).ceil();
    let y = |figure: f64| bottom - HEIGHT * figure / (steps * step);
    let [first, last] = [counts[0], counts[counts.len() - 1]].map(f64::log2);
    let x = |count: f64| {
        LEFT + SIDE + (right - LEFT - 2.0 * SIDE) * (count.log2() - first) / (last - first)
    };
    for line in 0..=steps as u32 {
        let value = f64::from(line) * step;
        drawing.grid((LEFT, y(value)), (right, y(value)));
        drawing.y = y(value) + 5.0;
        drawing.text(LEFT - 6.0, "end", "soft", &short(value));
    }
    drawing.y = bottom + LINE;
    for count in counts {
        drawing.text(x(*count), "middle", "soft", &short(*count));
    }
    for (place, server) in servers.iter().enumerate() {
        let figures = rows.iter().map(|row| row.figures[place].as_ref());
        let points: Vec<(f64, f64)> = counts
            .iter()
            .zip(figures)
            .filter_map(|(count, figures)| Some((x(*count), y(*figures?.first()?))))
            .collect();
        drawing.line(server, &points);
        for (x, y) in points {
            drawing.mark(place, x, y);
        }
    }
    drawing.y = bottom + 2.0 * LINE;
    drawing.text((LEFT + right) / 2.0, "middle", "soft", &format!("connections, {case}"));
    drawing.end(&format!("{title}, by number of connections"), servers)
}

/// Draws a row of marks for each case, on one logarithmic axis, with a text below it. Several
/// figures of a server have a line of their own.
pub(super) fn marks(title: &str, axis: &str, servers: &[&str], rows: &[Row]) -> String {
    const STEP: f64 = 15.0;
    let is_spread = rows.iter().flat_map(|row| row.figures.iter().flatten()).any(|of| of.len() > 1);
    let mut drawing = Drawing::new(title, servers);
    let top = drawing.y + 8.0;
    let (least, most) = all(rows)
        .filter(|figure| *figure > 0.0)
        .fold((f64::MAX, f64::MIN_POSITIVE), |(a, b), figure| (a.min(figure), b.max(figure)));
    let ticks = ticks(least, most);
    let (first, last) = (ticks[0].log10(), ticks[ticks.len() - 1].log10());
    let x =
        |figure: f64| 2.0 * SIDE + (WIDTH - 4.0 * SIDE) * (figure.log10() - first) / (last - first);
    drawing.y = top;
    for row in rows {
        drawing.y += LINE + 2.0;
        drawing.text(SIDE, "start", "", &row.name);
        drawing.y += 12.0;
        if !is_spread {
            drawing.grid((SIDE, drawing.y), (WIDTH - SIDE, drawing.y));
        }
        for (place, figures) in row.figures.iter().enumerate() {
            let Some(figures) = figures else { continue };
            let y = drawing.y;
            let points: Vec<(f64, f64)> = figures.iter().map(|one| (x(*one), y)).collect();
            if is_spread {
                drawing.grid((SIDE, y), (WIDTH - SIDE, y));
                drawing.line(servers[place], &points);
                drawing.y += STEP;
            }
            for (x, y) in points {
                drawing.mark(place, x, y);
            }
        }
        drawing.y -= if is_spread { STEP } else { 0.0 };
    }
    let bottom = drawing.y + 12.0;
    drawing.y = bottom + 18.0;
    for tick in &ticks {
        drawing.grid((x(*tick), top), (x(*tick), bottom));
        drawing.text(x(*tick), "middle", "soft", &short(*tick));
    }
    if !axis.is_empty() {
        drawing.y += LINE;
        drawing.text(WIDTH / 2.0, "middle", "soft", axis);
    }
    drawing.end(&format!("{title}, by case and server"), servers)
}

fn all(rows: &[Row]) -> impl Iterator<Item = f64> {
    rows.iter().flat_map(|row| row.figures.iter().flatten().flatten().copied())
}

/// Returns round numbers for a logarithmic axis, the first and last around all figures: seven at
/// most, unless the powers of ten are more.
fn ticks(least: f64, most: f64) -> Vec<f64> {
    for factors in [&[1.0, 2.0, 5.0][..], &[1.0]] {
        let powers = (least.log10().floor() as i32)..=(most.log10().ceil() as i32);
        let all = powers.flat_map(|power| factors.iter().map(move |one| one * 10f64.powi(power)));
        let all: Vec<f64> = all.collect();
        let first = all.iter().rposition(|tick| *tick <= least).unwrap_or(0);
        let last = all.iter().position(|tick| *tick >= most && *tick > all[first]);
        let ticks = &all[first..=last.unwrap_or(all.len() - 1)];
        if ticks.len() <= 7 || factors.len() == 1 {
            return ticks.to_vec();
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    /// Checks that elements are closed in order, attributes quoted, and references known.
    fn assert_well_formed(text: &str) {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = text;
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

    /// Returns the number of the marks of a class: those of a case, and one in the legend.
    fn marks_of(svg: &str, class: &str) -> usize {
        let start = format!("<path class=\"{class}\" d=\"");
        let (_, rest) = svg.split_once(&start).expect("a path");
        rest[..rest.find('"').expect("an end")].matches('M').count()
    }

    fn sample(experiment: &str, measure: Measure) -> Vec<Chart> {
        charts(sample::results().run(experiment).expect("a run"), measure)
    }

    #[test]
    fn cases_that_differ_in_connections_have_a_line_per_server() {
        let charts = sample("inserts", Measure::OperationsPerSecond);
        assert_eq!(charts.len(), 1);
        let svg = &charts[0].svg;
        assert_well_formed(svg);
        for server in ["tyrant", "memcached", "redis"] {
            let line = format!("<polyline class=\"{server}\"");
            assert_eq!(svg.matches(&line).count(), 1, "{svg}");
            assert_eq!(marks_of(svg, server), 4, "{svg}");
        }
        assert!(svg.contains(">Operations per second: more is better</text>"), "{svg}");
        assert!(svg.contains(">connections, insert</text>"), "{svg}");
        assert!(svg.contains("prefers-color-scheme:dark"), "{svg}");
    }

    #[test]
    fn other_cases_have_a_row_each() {
        let charts = sample("beyond-memory", Measure::OperationsPerSecond);
        let svg = &charts[0].svg;
        assert_well_formed(svg);
        assert!(svg.contains(">insert, 32 conn</text>"), "{svg}");
        assert_eq!(marks_of(svg, "tyrant hollow"), 2, "{svg}");
    }

    #[test]
    fn cases_of_both_kinds_have_two_charts() {
        let mut results = sample::results();
        let run = &mut results.runs[0];
        let mut other = run.records[0].clone();
        other.case = "get, 2 conn".into();
        run.records.push(other);
        let names = charts(run, Measure::CpuUsPerOperation);
        let names: Vec<&str> = names.iter().map(|chart| &*chart.name).collect();
        assert_eq!(names, ["inserts-cpu-lines", "inserts-cpu"]);
    }

    #[test]
    fn percentiles_are_on_a_line_per_server() {
        let mut results = sample::results();
        let run = &mut results.runs[1];
        for one in &mut run.records {
            let figures = [(Measure::P50Us, 1.0), (Measure::P99Us, 20.0), (Measure::P999Us, 300.0)];
            one.figures.extend(figures);
        }
        let svg = &charts(run, Measure::P50Us)[0].svg;
        assert_well_formed(svg);
        assert_eq!(marks_of(svg, "tyrant"), 4, "{svg}");
        assert_eq!(svg.matches("<polyline class=\"tyrant\"").count(), 2, "{svg}");
    }

    #[test]
    fn servers_that_lost_records_and_figures_that_were_not_measured_have_no_chart() {
        assert!(sample("queries", Measure::OperationsPerSecond).is_empty());
        assert!(sample("inserts", Measure::DiskMb).is_empty());
        assert!(sample("scans", Measure::OperationsPerSecond).is_empty());
    }

    #[test]
    fn names_are_escaped() {
        let rows = [Row { name: "a <b> & \"c\"".into(), figures: vec![Some(vec![1.0])] }];
        let svg = marks("d", "", &["<x>"], &rows);
        assert_well_formed(&svg);
        assert!(svg.contains("a &lt;b&gt; &amp; &quot;c&quot;"), "{svg}");
    }

    #[test]
    fn the_texts_of_a_chart_have_twelve_pixels_on_a_narrow_screen() {
        let svg = &sample("inserts", Measure::OperationsPerSecond)[0].svg;
        let number = |before: &str| -> f64 {
            let (_, rest) = svg.split_once(before).expect("an attribute");
            let end = rest.find(|c: char| !c.is_ascii_digit()).expect("an end");
            rest[..end].parse().expect("a number")
        };
        assert_eq!(svg.matches("font").count(), 2, "one size, and bold");
        // The margins of the page have 40 pixels.
        assert!(number("font:") * (390.0 - 40.0) / number("width=\"") >= 12.0);
    }

    #[test]
    fn ticks_are_round_and_around_all_figures() {
        assert_eq!(ticks(3.0, 30.0), [2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(ticks(26.5, 166_927.0), [10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
        assert_eq!(ticks(5.0, 5.0), [5.0, 10.0]);
        assert_eq!([1000.0, 7.0, 0.3, 43.0].map(grid_step), [200.0, 2.0, 0.1, 10.0]);
    }
}
