//! SVG plots, coloured by the style sheet of the page: lines over the number of connections, and a
//! group of bars per case.

use super::figure::{figure, tick};
use super::html::escaped;
use super::results::{Measure, Run, family, is_durable, median_of, range_of};
use std::fmt::Write as _;

/// Width of all plots, in units of the drawing.
const WIDTH: f64 = 760.0;

/// Families of servers and stores that have a colour of their own. It is the same in all plots.
pub(super) const FAMILIES: &[(&str, &str, &str)] = &[
    ("tyrant", "#1f5fbf", "#6ea8ff"),
    ("cabinet", "#1f5fbf", "#6ea8ff"),
    ("memcached", "#2e7d32", "#7bc67e"),
    ("redis", "#c62828", "#ff7b72"),
    ("mariadb", "#b26a00", "#f0b429"),
    ("tc", "#6a3fa0", "#c29bff"),
    ("lmdb", "#00778a", "#4dd0e1"),
    ("rocksdb", "#8d6e63", "#c7a69a"),
    ("redb", "#ad1457", "#ff80ab"),
    ("fjall", "#5d7000", "#c0ca33"),
];

/// Returns the classes of the marks of a server.
fn classes(server: &str) -> String {
    let family = family(server);
    let known = FAMILIES.iter().any(|(name, _, _)| *name == family);
    let colour = if known { family } else { "other" };
    let variant = if is_durable(server) { " durable" } else { "" };
    format!("of-{colour}{variant}")
}

/// Returns a plot of a figure in all cases, or `None` if no server has it.
pub(super) fn plot(run: &Run, measure: Measure) -> Option<String> {
    let has_any = run.measurements.iter().any(|one| median_of(one, measure).is_some());
    has_any.then(|| if is_sweep(run) { lines(run, measure) } else { bars(run, measure) })
}

/// Returns whether the cases differ only in the number of connections.
pub(super) fn is_sweep(run: &Run) -> bool {
    let mut counts: Vec<f64> = Vec::new();
    for case in run.cases() {
        let Some(one) = run.of_case(case).next() else { return false };
        let Some(count) = one.parameters.get("connections") else { return false };
        counts.push(*count);
    }
    counts.len() > 2 && counts.windows(2).all(|pair| pair[0] < pair[1]) && counts[0] >= 1.0
}

/// Returns the step between the lines of a grid, a round number: about five up to `most`.
fn grid_step(most: f64) -> f64 {
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power);
    step.into_iter().find(|step| *step >= rough).unwrap_or(rough)
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, class: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{words}</text>"
    );
}

fn begin(height: f64, label: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(label)
    )
}

/// Draws lines over the number of connections, with marks from the least to the greatest value of
/// the rounds.
fn lines(run: &Run, measure: Measure) -> String {
    const HEIGHT: f64 = 330.0;
    const LEFT: f64 = 80.0;
    const TOP: f64 = 44.0;
    let (right, bottom) = (WIDTH - 20.0, HEIGHT - 46.0);
    let highest = run.measurements.iter().filter_map(|one| range_of(one, measure));
    let highest = highest.map(|(_, most)| most).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let step = grid_step(highest);
    let top_figure = (highest / step).ceil() * step;
    let y = |figure: f64| bottom - (bottom - TOP) * figure / top_figure;
    let connections = |case: &str| {
        let one = run.of_case(case).next();
        one.and_then(|one| one.parameters.get("connections").copied()).unwrap_or(1.0)
    };
    let counts: Vec<f64> = run.cases().into_iter().map(connections).collect();
    let (first, last) = (counts[0].log2(), counts[counts.len() - 1].log2());
    let x =
        |count: f64| LEFT + 16.0 + (right - LEFT - 32.0) * (count.log2() - first) / (last - first);

    let mut out = begin(HEIGHT, &format!("{} by number of connections", measure.axis()));
    text(&mut out, 4.0, 14.0, "start", "axis", measure.axis());
    for line in 0..=(top_figure / step).round() as u32 {
        let value = f64::from(line) * step;
        let y = y(value);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\" class=\"grid\"/>"
        );
        text(&mut out, LEFT - 8.0, y + 4.0, "end", "tick", &tick(value));
    }
    for count in &counts {
        text(&mut out, x(*count), bottom + 18.0, "middle", "tick", &format!("{count}"));
    }
    text(&mut out, (LEFT + right) / 2.0, HEIGHT - 8.0, "middle", "axis", "connections");

    let mut legend_x = LEFT + 16.0;
    for server in run.servers() {
        let class = classes(server);
        let mut points = Vec::new();
        for (case, count) in run.cases().into_iter().zip(&counts) {
            let Some(one) = run.get(case, server) else { continue };
            let Some(middle) = median_of(one, measure) else { continue };
            let (x, middle_y) = (x(*count), y(middle));
            points.push(format!("{x:.1},{middle_y:.1}"));
            if let Some((least, most)) = range_of(one, measure) {
                let (low, high) = (y(least), y(most));
                let _ = writeln!(
                    out,
                    "<line x1=\"{x:.1}\" y1=\"{low:.1}\" x2=\"{x:.1}\" y2=\"{high:.1}\" \
                     class=\"range {class}\"/>"
                );
            }
            let title = format!("{server}, {count} connections: {}", figure(middle));
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{middle_y:.1}\" r=\"4\" class=\"mark {class}\">\
                 <title>{}</title></circle>",
                escaped(&title)
            );
        }
        if points.is_empty() {
            continue;
        }
        let points = points.join(" ");
        let _ = writeln!(out, "<polyline points=\"{points}\" class=\"line {class}\"/>");
        let _ = writeln!(
            out,
            "<circle cx=\"{legend_x:.1}\" cy=\"28\" r=\"5\" class=\"mark {class}\"/>"
        );
        text(&mut out, legend_x + 10.0, 32.0, "start", "name", server);
        legend_x += 36.0 + 7.5 * server.chars().count() as f64;
    }
    out + "</svg>\n"
}

/// Draws a group of bars per case, with its own scale, each bar with its name and figure.
fn bars(run: &Run, measure: Measure) -> String {
    const LEFT: f64 = 230.0;
    const BAR: f64 = 18.0;
    const HEAD: f64 = 30.0;
    const TOP: f64 = 24.0;
    let longest = WIDTH - LEFT - 90.0;
    let mut body = String::new();
    let mut y = TOP;
    for case in run.cases() {
        let bars: Vec<_> = run
            .of_case(case)
            .filter_map(|one| Some((one.server.as_str(), median_of(one, measure)?)))
            .collect();
        let most = bars.iter().map(|(_, figure)| *figure).fold(0.0, f64::max);
        if bars.is_empty() {
            continue;
        }
        text(&mut body, 4.0, y + 18.0, "start", "case", case);
        y += HEAD;
        let start = y;
        for (server, number) in bars {
            let length = if most > 0.0 { longest * number / most } else { 0.0 };
            text(&mut body, LEFT - 8.0, y + BAR - 5.0, "end", "name", server);
            let _ = writeln!(
                body,
                "<rect x=\"{LEFT:.1}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{:.1}\" \
                 class=\"bar {}\"/>",
                y + 1.0,
                BAR - 2.0,
                classes(server)
            );
            text(&mut body, LEFT + length + 6.0, y + BAR - 5.0, "start", "tick", &figure(number));
            y += BAR;
        }
        let _ = writeln!(
            body,
            "<line x1=\"{LEFT:.1}\" y1=\"{start:.1}\" x2=\"{LEFT:.1}\" y2=\"{y:.1}\" \
             class=\"base\"/>"
        );
        y += 6.0;
    }
    let mut out = begin(y + 8.0, &format!("{} by case and server", measure.axis()));
    let axis = format!("{}; each group has its own scale from 0", measure.axis());
    text(&mut out, 4.0, 14.0, "start", "axis", &axis);
    out + &body + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::super::html::tests::assert_well_formed;
    use super::super::sample;
    use super::*;

    fn sample(experiment: &str, measure: Measure) -> Option<String> {
        plot(sample::results().run(experiment).expect("a run"), measure)
    }

    #[test]
    fn a_sweep_has_a_line_and_a_mark_per_server() {
        let plot = sample("inserts", Measure::OperationsPerSecond).expect("a plot");
        assert_well_formed(&plot);
        assert_eq!(plot.matches("<polyline").count(), 3);
        // Three connections, and one in the legend.
        assert_eq!(plot.matches("class=\"mark of-redis\"").count(), 4);
        assert!(plot.contains(">operations per second</text>"), "{plot}");
        assert!(plot.contains(">connections</text>"), "{plot}");
    }

    #[test]
    fn other_experiments_have_bars_with_names_and_figures() {
        let plot = sample("beyond-memory", Measure::OperationsPerSecond).expect("a plot");
        assert_well_formed(&plot);
        assert_eq!(plot.matches("<rect").count(), 4);
        assert!(plot.contains("class=\"bar of-mariadb durable\""), "{plot}");
        // The median of 1234 and half of it.
        assert!(plot.contains(">926</text>"), "{plot}");
    }

    #[test]
    fn names_are_escaped() {
        let plot = sample("queries", Measure::CpuUsPerOperation).expect("a plot");
        assert_well_formed(&plot);
        assert!(plot.contains("a &lt;b&gt; &amp; &quot;c&quot; | d"), "{plot}");
    }

    #[test]
    fn a_figure_that_was_not_measured_has_no_plot() {
        assert_eq!(sample("inserts", Measure::DiskBytes), None);
        assert_eq!(sample("scans", Measure::OperationsPerSecond), None);
    }

    #[test]
    fn the_steps_of_a_grid_are_round() {
        assert_eq!([1000.0, 7.0, 0.3, 43.0].map(grid_step), [200.0, 2.0, 0.1, 10.0]);
    }

    #[test]
    fn unknown_servers_have_a_colour_too() {
        assert_eq!(classes("kvrocks"), "of-other");
        assert_eq!(classes("tyrant-durable"), "of-tyrant durable");
    }
}
