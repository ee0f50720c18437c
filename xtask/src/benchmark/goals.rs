//! Goals, from `xtask/src/benchmark/goals.toml`, and whether the results reach them.

use super::experiments::named;
use super::measured::{Measured, data_bytes, median_of, ratio_within_rounds, rounded};
use super::results::{Measure, Missed, Outcome};
use crate::measurement::Measurement;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// A goal: a bound of a ratio in each case. The ratio is that to the best peer, unless another
/// divisor is named.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Goal {
    pub(super) asked: String,
    pub(super) experiment: String,
    case: String,
    server: String,
    measure: Measure,
    #[serde(default)]
    peers: Vec<String>,
    /// Divides by the same server's figure in this case.
    times_case: Option<String>,
    /// Divides bytes by those of keys and values.
    #[serde(default)]
    times_data: bool,
    at_least: Option<f64>,
    at_most: Option<f64>,
    pub(super) why_not: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Goals {
    goal: Vec<Goal>,
}

/// Returns all goals.
pub(super) fn goals() -> Result<Vec<Goal>> {
    parse(include_str!("goals.toml"))
}

/// Compares the measurements of an experiment with its goals.
pub(super) fn outcomes(goals: &[Goal], experiment: &str, run: &Measured) -> Vec<Outcome> {
    let of_experiment = goals.iter().filter(|goal| goal.experiment == experiment);
    of_experiment.map(|goal| goal.outcome(run)).collect()
}

fn parse(text: &str) -> Result<Vec<Goal>> {
    let Goals { goal: goals } = toml::from_str(text).context("goals.toml")?;
    for goal in &goals {
        let Goal { asked, experiment, at_least, at_most, times_case, times_data, .. } = goal;
        let divisors = [times_case.is_some(), *times_data, !goal.peers.is_empty()];
        let divisors = divisors.into_iter().filter(|is_named| *is_named).count();
        ensure!(divisors <= 1, "{asked}: peers, times_case or times_data");
        let is_of_bytes = goal.measure == Measure::DiskMb;
        ensure!(is_of_bytes || !times_data, "{asked}: times_data is of disk MB");
        ensure!(at_least.is_some() != at_most.is_some(), "{asked}: either at_least or at_most");
        ensure!(named(experiment).is_some(), "{asked}: no experiment {experiment}");
    }
    Ok(goals)
}

impl Goal {
    /// Compares the goal with the measurements of its experiment.
    fn outcome(&self, run: &Measured) -> Outcome {
        let ours = run.measurements.iter();
        let ours = ours.filter(|one| one.server == self.server && one.case.contains(&self.case));
        let ratios: Vec<_> =
            ours.filter_map(|one| Some((one, rounded(self.ratio(run, one)?)))).collect();
        let bound = |choose: fn(f64, f64) -> f64| {
            ratios.iter().map(|(_, ratio)| *ratio).reduce(choose).unwrap_or_default()
        };
        let is_missed =
            |(one, ratio): &&(&Measurement, f64)| one.errors > 0 || !self.is_reached(*ratio);
        let missed =
            |(one, ratio): &(&Measurement, f64)| Missed { case: one.case.clone(), ratio: *ratio };
        Outcome {
            asked: self.asked.clone(),
            cases: ratios.len(),
            least: bound(f64::min),
            most: bound(f64::max),
            missed: ratios.iter().filter(is_missed).map(missed).collect(),
        }
    }

    /// Returns the ratio that the goal bounds, if both figures were measured.
    fn ratio(&self, run: &Measured, one: &Measurement) -> Option<f64> {
        if let Some(case) = &self.times_case {
            return ratio_within_rounds(one, run.get(case, &one.server)?, self.measure);
        }
        if self.times_data {
            // The figure is in MB.
            return Some(median_of(one, self.measure)? * 1e6 / data_bytes(one)?);
        }
        run.ratio(one, self.measure, &self.peers).map(|ratio| ratio.ratio)
    }

    fn is_reached(&self, ratio: f64) -> bool {
        self.at_least.is_none_or(|bound| ratio >= bound)
            && self.at_most.is_none_or(|bound| ratio <= bound)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn goal(rest: &str) -> Goal {
        let text = format!("[[goal]]\nasked = \"a\"\ncase = \"\"\nserver = \"tyrant\"\n{rest}\n");
        parse(&text).expect("a goal").remove(0)
    }

    const RATE: &str = "experiment = \"inserts\"\nmeasure = \"op/s\"\n";

    /// Returns the least and greatest ratio of a goal, and the cases that miss it.
    fn outcome(rest: &str, run: &Measured) -> (f64, f64, Vec<String>) {
        let Outcome { least, most, missed, .. } = goal(rest).outcome(run);
        (least, most, missed.into_iter().map(|one| one.case).collect())
    }

    #[test]
    fn the_goals_are_consistent() {
        let goals = goals().expect("goals");
        assert!(goals.len() > 10);
    }

    #[test]
    fn a_goal_is_reached_if_each_case_reaches_it() {
        let one = || vec!["insert, 1 conn".to_owned()];
        let mut run = sample::inserts();
        assert_eq!(outcome(&format!("{RATE}at_least = 0.9"), &run), (0.9, 1.5, vec![]));
        assert_eq!(outcome(&format!("{RATE}at_least = 1.0"), &run), (0.9, 1.5, one()));
        let redis = format!("{RATE}at_least = 2.0\npeers = [\"redis\"]");
        assert_eq!(outcome(&redis, &run), (1.8, 3.0, one()));
        run.measurements[0].errors = 1;
        assert_eq!(outcome(&format!("{RATE}at_least = 0.9"), &run), (0.9, 1.5, one()));
    }

    #[test]
    fn a_goal_can_be_a_ratio_to_another_case_or_to_the_data() {
        let mut run = sample::inserts();
        let times = format!("{RATE}at_least = 1.0\ntimes_case = \"insert, 1 conn\"");
        assert_eq!(outcome(&times, &run), (1.0, 6.6667, vec![]));
        let ours = &mut run.measurements[0];
        ours.parameters.extend(
            [("records", 1000.0), ("key_bytes", 100.0)]
                .map(|(name, value)| (name.to_owned(), value)),
        );
        ours.rounds.iter_mut().for_each(|round| round.disk_bytes = Some(3e5));
        let disk =
            "experiment = \"inserts\"\nmeasure = \"disk MB\"\nat_most = 1.5\ntimes_data = true";
        assert_eq!(outcome(disk, &run), (1.5, 1.5, vec![]));
    }

    #[test]
    fn without_measurements_no_case_is_compared() {
        let goal = goal(&format!("{RATE}at_least = 1.0"));
        assert_eq!(goal.outcome(&Measured::default()).cases, 0);
    }

    #[test]
    fn goals_without_bound_or_experiment_are_refused() {
        let text = |rest: &str| {
            let goal = format!("[[goal]]\nasked = \"a\"\ncase = \"\"\nserver = \"t\"\n{rest}\n");
            parse(&goal)
        };
        assert!(text(RATE).is_err());
        assert!(text(&format!("{RATE}at_least = 1.0\nat_most = 1.0")).is_err());
        assert!(text(&format!("{}at_least = 1.0", RATE.replace("inserts", "x"))).is_err());
        assert!(text(&format!("{RATE}at_least = 1.0\ntimes_data = true")).is_err());
        let two = "peers = [\"redis\"]\ntimes_case = \"insert, 1 conn\"";
        assert!(text(&format!("{RATE}at_least = 1.0\n{two}")).is_err());
    }
}
