//! Goals, from `xtask/src/benchmark/goals.toml`, and whether the results reach them.

use super::experiments::named;
use super::figure::figure;
use super::results::{Measure, Results, Run, data_bytes, median_of, ratio_within_rounds};
use crate::measurement::Measurement;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// A goal: a bound of a ratio in each case. The ratio is that to the best peer, unless another
/// divisor is named.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Goal {
    pub(super) asked: String,
    experiment: String,
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
    why_not: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Goals {
    goal: Vec<Goal>,
}

/// Outcome of a goal, as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) reached: String,
    pub(super) why_not: String,
}

/// Returns all goals.
pub(super) fn goals() -> Result<Vec<Goal>> {
    parse(include_str!("goals.toml"))
}

fn parse(text: &str) -> Result<Vec<Goal>> {
    let Goals { goal: goals } = toml::from_str(text).context("goals.toml")?;
    for goal in &goals {
        let Goal { asked, experiment, at_least, at_most, times_case, times_data, .. } = goal;
        let divisors = [times_case.is_some(), *times_data, !goal.peers.is_empty()];
        let divisors = divisors.into_iter().filter(|is_named| *is_named).count();
        ensure!(divisors <= 1, "{asked}: peers, times_case or times_data");
        let is_of_bytes = goal.measure == Measure::DiskBytes;
        ensure!(is_of_bytes || !times_data, "{asked}: times_data is of disk_bytes");
        ensure!(at_least.is_some() != at_most.is_some(), "{asked}: either at_least or at_most");
        ensure!(named(experiment).is_some(), "{asked}: no experiment {experiment}");
    }
    Ok(goals)
}

impl Goal {
    /// Compares the goal with the results.
    pub(super) fn outcome(&self, results: &Results) -> Outcome {
        let outcome = |reached: String, why_not: &str| Outcome { reached, why_not: why_not.into() };
        let Some(run) = results.run(&self.experiment) else {
            return outcome("not measured".into(), "the experiment was not run");
        };
        if let Some(failure) = &run.failure {
            return outcome("not measured".into(), failure);
        }
        let ratios: Vec<_> = run
            .measurements
            .iter()
            .filter(|one| one.server == self.server && one.case.contains(&self.case))
            .filter_map(|one| Some((one, self.ratio(run, one)?)))
            .collect();
        let least = ratios.iter().map(|(_, ratio)| *ratio).reduce(f64::min);
        let most = ratios.iter().map(|(_, ratio)| *ratio).reduce(f64::max);
        let (Some(least), Some(most)) = (least, most) else {
            return outcome("not measured".into(), "no peer that kept all records");
        };
        let missed: Vec<String> = ratios
            .iter()
            .filter(|(_, ratio)| !self.is_reached(*ratio))
            .map(|(one, ratio)| format!("{} {}", one.case, figure(*ratio)))
            .collect();
        let span = if ratios.len() == 1 {
            figure(least)
        } else {
            format!("{} to {}", figure(least), figure(most))
        };
        let errors = ratios.iter().any(|(one, _)| one.errors > 0);
        let errors = if errors { "; with errors" } else { "" };
        if missed.is_empty() {
            return outcome(format!("yes: {span} times{errors}"), "");
        }
        let count = format!("{} of {} cases", missed.len(), ratios.len());
        let reached = format!("not in {count}: {}; {span} times{errors}", missed.join("; "));
        outcome(reached, self.why_not.as_deref().unwrap_or("not examined"))
    }

    /// Returns the ratio that the goal bounds, if both figures were measured.
    fn ratio(&self, run: &Run, one: &Measurement) -> Option<f64> {
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

    fn outcome(rest: &str) -> (String, String) {
        let Outcome { reached, why_not } = goal(rest).outcome(&sample::results());
        (reached, why_not)
    }

    const RATE: &str = "experiment = \"inserts\"\nmeasure = \"operations_per_second\"\n";

    #[test]
    fn the_goals_are_consistent() {
        let goals = goals().expect("goals");
        assert!(goals.len() > 10);
    }

    #[test]
    fn a_goal_is_reached_if_each_case_reaches_it() {
        let (reached, why_not) = outcome(&format!("{RATE}at_least = 0.9"));
        assert_eq!((reached.as_str(), why_not.as_str()), ("yes: 0.90 to 1.50 times", ""));
        let (reached, why_not) = outcome(&format!("{RATE}at_least = 1.0"));
        assert_eq!(reached, "not in 1 of 3 cases: insert, 1 conn 0.90; 0.90 to 1.50 times");
        assert_eq!(why_not, "not examined");
        let (_, why_not) = outcome(&format!("{RATE}at_least = 1.0\nwhy_not = \"wakes\""));
        assert_eq!(why_not, "wakes");
        let (reached, _) = outcome(&format!("{RATE}at_least = 2.0\npeers = [\"redis\"]"));
        assert_eq!(reached, "not in 1 of 3 cases: insert, 1 conn 1.80; 1.80 to 3.00 times");
    }

    #[test]
    fn a_goal_can_be_a_ratio_to_another_case_or_to_the_data() {
        let (reached, _) =
            outcome(&format!("{RATE}at_least = 1.9\ntimes_case = \"insert, 1 conn\""));
        assert_eq!(reached, "not in 1 of 3 cases: insert, 1 conn 1.00; 1.00 to 6.67 times");
        let mut results = sample::results();
        let ours = results.runs[0].measurements.iter_mut().find(|one| one.server == "tyrant");
        let ours = ours.expect("a record");
        ours.parameters.extend(
            [("records", 1000.0), ("key_bytes", 100.0)]
                .map(|(name, value)| (name.to_owned(), value)),
        );
        ours.rounds.iter_mut().for_each(|round| round.disk_bytes = Some(3e5));
        let disk =
            "experiment = \"inserts\"\nmeasure = \"disk_bytes\"\nat_most = 1.5\ntimes_data = true";
        assert_eq!(goal(disk).outcome(&results).reached, "yes: 1.50 times");
    }

    #[test]
    fn an_experiment_that_was_not_run_or_failed_reaches_nothing() {
        let rate = |experiment: &str| {
            outcome(&format!("{}at_least = 1.0", RATE.replace("inserts", experiment)))
        };
        assert_eq!(rate("embedded").0, "not measured");
        let (reached, why_not) = rate("scans");
        assert_eq!((reached.as_str(), why_not.as_str()), ("not measured", "words ended with <1>"));
        // The only record is ours.
        assert_eq!(rate("queries").0, "not measured");
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
