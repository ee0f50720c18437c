//! Measurements of a run of one experiment, and the ratios between servers.

use super::results::{Measure, Ratio, Record, family, is_durable, is_ours};
use crate::measurement::Measurement;

/// Measures whose ratio to the best peer is stored.
pub(super) const COMPARED: [Measure; 2] =
    [Measure::OperationsPerSecond, Measure::CpuUsPerOperation];

/// Digits that a stored figure keeps.
const DIGITS: i32 = 5;

/// Measurements of one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) measurements: Vec<Measurement>,
}

impl Measured {
    /// Returns the medians and ratios, as they are stored.
    pub(super) fn records(&self) -> Vec<Record> {
        let record = |one: &Measurement| Record {
            case: one.case.clone(),
            server: one.server.clone(),
            connections: one.parameters.get("connections").copied(),
            figures: Measure::ALL
                .into_iter()
                .filter_map(|measure| Some((measure, rounded(median_of(one, measure)?))))
                .collect(),
            ratios: COMPARED
                .into_iter()
                .filter_map(|measure| Some((measure, self.ratio(one, measure, &[])?)))
                .collect(),
            errors: one.errors,
            missing: one.missing,
        };
        self.measurements.iter().map(record).collect()
    }

    /// Returns the sizes common to all cases, as text.
    pub(super) fn sizes(&self) -> String {
        let Some(first) = self.measurements.first() else { return String::new() };
        let common = first.parameters.iter().filter(|(name, value)| {
            self.measurements.iter().all(|one| one.parameters.get(*name) == Some(value))
        });
        let words = common.map(|(name, value)| format!("{} {value}", name.replace('_', " ")));
        words.collect::<Vec<_>>().join(", ")
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
            .measurements
            .iter()
            .filter(|peer| peer.case == one.case)
            .filter(counts)
            .filter_map(|peer| Some((peer, median_of(peer, measure)? * sign)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let ratio = rounded(ratio_within_rounds(one, best, measure)?);
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

/// Returns the median over the rounds of a figure, if it was measured.
pub(super) fn median_of(one: &Measurement, measure: Measure) -> Option<f64> {
    median(one.rounds.iter().filter_map(|round| measure.of(round)).collect())
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

/// Returns a number with the digits that are stored.
pub(super) fn rounded(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    let places = DIGITS - 1 - number.abs().log10().floor() as i32;
    let power = 10f64.powi(places.abs());
    if places >= 0 { (number * power).round() / power } else { (number / power).round() * power }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn ratios_are_to_the_best_peer_within_a_round() {
        let run = sample::inserts();
        let ours = run.get("insert, 2 conn", "tyrant").expect("a record");
        let ratio = |measure, peers: &[String]| run.ratio(ours, measure, peers);
        let to = |peer: &str, ratio| Some(Ratio { peer: peer.into(), ratio });
        // The second round was twice as slow for all.
        assert_eq!(ratio(Measure::OperationsPerSecond, &[]), to("memcached", 1.5));
        assert_eq!(ratio(Measure::CpuUsPerOperation, &[]), to("redis", 0.5));
        let memcached = ["memcached".to_owned()];
        assert_eq!(ratio(Measure::CpuUsPerOperation, &memcached), to("memcached", 0.25));
        assert_eq!(ratio(Measure::DiskMb, &[]), None);
        let theirs = run.get("insert, 2 conn", "redis").expect("a record");
        assert_eq!(run.ratio(theirs, Measure::OperationsPerSecond, &[]), None);
    }

    #[test]
    fn a_peer_with_errors_or_without_the_records_does_not_count() {
        let best = |places, spoil: fn(&mut Measurement)| {
            let mut run = sample::inserts();
            let memcached = run.measurements.iter_mut().filter(|one| one.server == "memcached");
            // The spoiled record of the first case is of another case than the ratio.
            memcached.take(places).for_each(spoil);
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
        let run = sample::beyond_memory();
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
