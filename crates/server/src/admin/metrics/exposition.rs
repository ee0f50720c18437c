//! Exposition: samples of all families as text, in Prometheus' format 0.0.4 or as OpenMetrics 1.0.

use super::families::{Kind, Metric};
use crate::counters::HistogramTotal;
use std::fmt::Write;

/// Text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus' text format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// Media type of [`Format::OpenMetrics`], without parameters.
const OPEN_METRICS: &str = "application/openmetrics-text";

impl Format {
    /// Returns the format that an `Accept` header prefers; without one, Prometheus' own.
    pub(crate) fn preferred(accept: &[u8]) -> Self {
        let accept = String::from_utf8_lossy(accept).to_ascii_lowercase();
        let (mut open_metrics, mut text) = (0.0, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let place = match parts.next() {
                Some(OPEN_METRICS) => &mut open_metrics,
                Some("text/plain" | "text/*" | "*/*") => &mut text,
                _ => continue,
            };
            let quality = parts.find_map(|part| part.strip_prefix("q=")).unwrap_or("1");
            *place = quality.parse().unwrap_or(0.0_f64).max(*place);
        }
        if open_metrics > 0.0 && open_metrics >= text {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Returns the value of the header `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

#[derive(Clone, Debug)]
enum Value {
    Number(f64),
    Histogram(Box<HistogramTotal>),
}

#[derive(Clone, Debug)]
struct Sample {
    /// Labels as the formats have them, separated by commas.
    labels: String,
    value: Value,
}

/// Samples of all families.
#[derive(Debug)]
pub(crate) struct Samples(Vec<Vec<Sample>>);

impl Samples {
    pub(crate) fn new() -> Self {
        Self(vec![Vec::new(); Metric::ALL.len()])
    }

    /// Adds a sample. `values` are those of the labels of the family, in its order.
    pub(crate) fn add(&mut self, metric: Metric, values: &[&str], value: f64) {
        debug_assert_ne!(metric.family().kind, Kind::Histogram, "{metric:?}");
        self.push(metric, values, Value::Number(value));
    }

    /// Adds the samples of a histogram, as [`Samples::add`] does.
    pub(crate) fn add_histogram(&mut self, metric: Metric, values: &[&str], total: HistogramTotal) {
        debug_assert_eq!(metric.family().kind, Kind::Histogram, "{metric:?}");
        self.push(metric, values, Value::Histogram(Box::new(total)));
    }

    fn push(&mut self, metric: Metric, values: &[&str], value: Value) {
        let names = metric.family().labels;
        debug_assert_eq!(names.len(), values.len(), "labels of {metric:?}");
        let pairs = names.iter().zip(values);
        let pairs: Vec<String> =
            pairs.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        self.0[metric as usize].push(Sample { labels: pairs.join(","), value });
    }

    /// Returns labels and values of the samples of a family that have a label, or all without one.
    pub(crate) fn rows(&self, metric: Metric, label: &str) -> impl Iterator<Item = (&str, f64)> {
        self.0[metric as usize].iter().filter_map(move |sample| match sample.value {
            Value::Number(value) if sample.labels.contains(label) => Some((&*sample.labels, value)),
            _ => None,
        })
    }

    /// Returns the sum of these samples, if there is one.
    pub(crate) fn sum(&self, metric: Metric, label: &str) -> Option<f64> {
        self.rows(metric, label).map(|(_, value)| value).reduce(|sum, value| sum + value)
    }

    /// Returns the sum of the histograms of a family that have a label.
    pub(crate) fn histogram(&self, metric: Metric, label: &str) -> HistogramTotal {
        let mut total = HistogramTotal::default();
        for Sample { labels, value } in &self.0[metric as usize] {
            if let Value::Histogram(histogram) = value
                && labels.contains(label)
            {
                total.add(histogram);
            }
        }
        total
    }

    /// Returns the text.
    pub(crate) fn text(&self, format: Format) -> String {
        let mut text = String::new();
        for (family, samples) in Metric::ALL.iter().zip(&self.0) {
            let name = match format {
                Format::Prometheus => family.name,
                // The samples of a counter have a suffix that its family does not have.
                Format::OpenMetrics => family.name.strip_suffix("_total").unwrap_or(family.name),
            };
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "# HELP {name} {}", family.help());
            let _ = writeln!(text, "# TYPE {name} {}", family.kind.name());
            for Sample { labels, value } in samples {
                match value {
                    Value::Number(value) => line(&mut text, family.name, labels, *value),
                    Value::Histogram(histogram) => {
                        histogram_lines(&mut text, family.name, labels, histogram);
                    }
                }
            }
        }
        if format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

fn line(text: &mut String, name: &str, labels: &str, value: f64) {
    let _ = match labels {
        "" => writeln!(text, "{name} {value}"),
        labels => writeln!(text, "{name}{{{labels}}} {value}"),
    };
}

fn histogram_lines(text: &mut String, name: &str, labels: &str, histogram: &HistogramTotal) {
    let comma = if labels.is_empty() { "" } else { "," };
    let mut below = 0;
    for (bound, count) in histogram.buckets() {
        below += count;
        // OpenMetrics requires a point in the number.
        let point = if bound.fract() == 0.0 { ".0" } else { "" };
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}{point}\"}} {below}");
    }
    let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", histogram.count());
    line(text, &format!("{name}_sum"), labels, histogram.seconds);
    line(text, &format!("{name}_count"), labels, histogram.count() as f64);
}

/// Returns the value of a label as it is between quotation marks.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::AllCounters;
    use std::time::Duration;

    #[test]
    fn the_format_is_the_one_that_the_client_prefers() {
        let both = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3,*/*;q=0.1";
        for (accept, format) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/plain", Format::Prometheus),
            ("application/openmetrics-text", Format::OpenMetrics),
            (both, Format::OpenMetrics),
            ("Application/OpenMetrics-Text; q=0.2, text/*; q=0.3", Format::Prometheus),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("application/openmetrics-text;q=x, */*;q=0.1", Format::Prometheus),
        ] {
            assert_eq!(Format::preferred(accept.as_bytes()), format, "{accept}");
        }
    }

    #[test]
    fn labels_are_escaped_and_counters_have_their_suffix_in_both_formats() {
        let mut samples = Samples::new();
        samples.add(Metric::Evictions, &["a\"b\\c\nd"], 3.0);
        let line = "\ntyrant_evictions_total{database=\"a\\\"b\\\\c\\nd\"} 3\n";
        let text = samples.text(Format::Prometheus);
        assert!(text.contains(line) && text.contains("# TYPE tyrant_evictions_total counter\n"));
        let text = samples.text(Format::OpenMetrics);
        assert!(text.contains(line) && text.contains("# TYPE tyrant_evictions counter\n"));
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn the_buckets_of_a_histogram_add_up() {
        let counters = AllCounters::default();
        let own = counters.add_thread();
        own.acknowledgement.add(Duration::from_micros(1), 2);
        own.acknowledgement.add(Duration::from_micros(3), 3);
        own.acknowledgement.add(Duration::from_secs(9), 1);
        let total = counters.histogram(|own| &own.acknowledgement);
        let mut text = String::new();
        histogram_lines(&mut text, "t", "a=\"b\"", &total);
        for line in [
            "t_bucket{a=\"b\",le=\"0.000001\"} 2\n",
            "t_bucket{a=\"b\",le=\"0.000002\"} 2\n",
            "t_bucket{a=\"b\",le=\"0.000004\"} 5\n",
            "t_bucket{a=\"b\",le=\"8.388608\"} 5\n",
            "t_bucket{a=\"b\",le=\"+Inf\"} 6\n",
            "t_sum{a=\"b\"} 9.000011\n",
            "t_count{a=\"b\"} 6\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn families_follow_the_conventions() {
        for family in Metric::ALL {
            let is_counter = family.kind == Kind::Counter;
            assert_eq!(family.name.ends_with("_total"), is_counter, "{}", family.name);
            let help = family.help();
            assert!(help.ends_with('.') && !help.contains(['\n', '\\']), "{help}");
        }
    }
}
