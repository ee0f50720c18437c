//! Metrics of a server, read from Prometheus' text format.

use std::collections::BTreeMap;

/// A sample: its labels and its value.
#[derive(Debug)]
pub(super) struct Sample {
    labels: Vec<(String, String)>,
    pub(super) value: f64,
}

impl Sample {
    /// Returns the value of a label, empty if the sample lacks it.
    pub(super) fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(other, _)| other == name);
        found.map_or("", |(_, value)| value)
    }
}

/// Labels that a sample must have, with their values.
pub(super) type Wanted<'a> = &'a [(&'a str, &'a str)];

/// Samples by their names.
#[derive(Debug, Default)]
pub(super) struct Metrics(BTreeMap<String, Vec<Sample>>);

impl Metrics {
    /// Reads a text. Lines that are not samples are left out.
    pub(super) fn parse(text: &str) -> Self {
        let mut samples: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some((name, sample)) = sample(line) {
                samples.entry(name.to_owned()).or_default().push(sample);
            }
        }
        Self(samples)
    }

    /// Returns the samples with a name and these labels.
    pub(super) fn rows<'s>(
        &'s self,
        name: &str,
        wanted: Wanted<'s>,
    ) -> impl Iterator<Item = &'s Sample> {
        let all = self.0.get(name).into_iter().flatten();
        all.filter(|sample| wanted.iter().all(|(label, value)| sample.label(label) == *value))
    }

    /// Returns the sum of these samples, if there are any.
    pub(super) fn sum(&self, name: &str, wanted: Wanted<'_>) -> Option<f64> {
        self.rows(name, wanted).map(|sample| sample.value).reduce(|sum, value| sum + value)
    }

    /// Returns the cumulated counts of a histogram, by the ends of its buckets in ascending order.
    fn buckets(&self, histogram: &str, wanted: Wanted<'_>) -> Vec<(f64, f64)> {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for sample in self.rows(&format!("{histogram}_bucket"), wanted) {
            // This reads +Inf too.
            let Ok(end) = sample.label("le").parse::<f64>() else { continue };
            match buckets.iter_mut().find(|(other, _)| *other == end) {
                Some((_, count)) => *count += sample.value,
                None => buckets.push((end, sample.value)),
            }
        }
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        buckets
    }
}

/// Times between two readings of a histogram, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Times {
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// End of the highest bucket that has a time, or the beginning of the one without an end.
    pub(super) max: f64,
}

impl Times {
    /// Returns the times that were added between two readings, unless there are none.
    pub(super) fn between(
        before: &Metrics,
        now: &Metrics,
        histogram: &str,
        wanted: Wanted<'_>,
    ) -> Option<Self> {
        let earlier = before.buckets(histogram, wanted);
        let mut buckets = now.buckets(histogram, wanted);
        for (end, count) in &mut buckets {
            let before = earlier.iter().find(|(other, _)| other == end);
            *count -= before.map_or(0.0, |(_, count)| *count);
        }
        let all = buckets.last()?.1;
        let max = highest(&buckets);
        (all > 0.0).then(|| Self {
            p50: quantile(&buckets, 0.5 * all).min(max),
            p99: quantile(&buckets, 0.99 * all).min(max),
            max,
        })
    }
}

/// Returns the time below which `wanted` of the times are, interpolated within its bucket.
fn quantile(buckets: &[(f64, f64)], wanted: f64) -> f64 {
    let (mut from, mut count) = (0.0, 0.0);
    for (end, next) in buckets {
        if *next >= wanted {
            if end.is_infinite() || *next == count {
                return from;
            }
            return from + (end - from) * (wanted - count) / (next - count);
        }
        (from, count) = (*end, *next);
    }
    from
}

/// Returns the end of the highest bucket that has a time.
fn highest(buckets: &[(f64, f64)]) -> f64 {
    let all = buckets.last().map_or(0.0, |(_, count)| *count);
    let end = buckets.iter().find(|(_, count)| *count >= all).map_or(0.0, |(end, _)| *end);
    match end.is_finite() {
        true => end,
        false => {
            buckets.iter().rev().map(|(end, _)| *end).find(|end| end.is_finite()).unwrap_or(0.0)
        }
    }
}

/// Returns the name, the labels and the value of a line.
fn sample(line: &str) -> Option<(&str, Sample)> {
    let (place, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let Some((name, rest)) = place.split_once('{') else {
        return Some((place, Sample { labels: Vec::new(), value }));
    };
    let mut rest = rest.strip_suffix('}')?;
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (label, quoted) = rest.split_once("=\"")?;
        let (text, after) = unquoted(quoted)?;
        labels.push((label.trim_start_matches(',').to_owned(), text));
        rest = after;
    }
    Some((name, Sample { labels, value }))
}

/// Returns a text up to its closing quotation mark, without escapes, and what is after it.
fn unquoted(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut characters = quoted.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '"' => return Some((text, &quoted[place + 1..])),
            '\\' => text.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => text.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_labels() {
        let metrics = Metrics::parse(
            "# TYPE a counter\na{x=\"1\",y=\"q\\\"\\\\\\n}\"} 2\na{x=\"1\",y=\"\"} 3.5\nb 1e3\n\
             broken{x=\"1} 2\nc nothing\n",
        );
        assert_eq!(metrics.sum("a", &[]), Some(5.5));
        assert_eq!(metrics.sum("a", &[("y", "q\"\\\n}")]), Some(2.0));
        assert_eq!(metrics.sum("b", &[]), Some(1000.0));
        for (name, wanted) in [("b", &[("x", "1")][..]), ("broken", &[]), ("c", &[])] {
            assert_eq!(metrics.sum(name, wanted), None, "{name}");
        }
    }

    fn histogram(counts: [u32; 4]) -> Metrics {
        let ends = ["0.001", "0.002", "0.004", "+Inf"];
        let line = |(end, count)| format!("t_bucket{{class=\"read\",le=\"{end}\"}} {count}\n");
        Metrics::parse(&ends.iter().zip(counts).map(line).collect::<String>())
    }

    #[test]
    fn times_are_those_between_two_readings() {
        let between = |before, now| Times::between(&histogram(before), &histogram(now), "t", &[]);
        let times = between([5, 5, 5, 5], [5, 105, 105, 105]).expect("times");
        assert!((times.p50 - 0.0015).abs() < 1e-9 && (times.p99 - 0.00199).abs() < 1e-9);
        assert_eq!(times.max, 0.002);
        // The bucket without an end begins at 4 ms.
        let times = between([0; 4], [0, 0, 0, 1]).expect("times");
        assert_eq!((times.p50, times.max), (0.004, 0.004));
        assert_eq!(between([1, 2, 3, 4], [1, 2, 3, 4]), None);
        assert_eq!(Times::between(&Metrics::default(), &Metrics::default(), "t", &[]), None);
    }
}
