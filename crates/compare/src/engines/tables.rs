//! Tables of the stats of many rounds.

use super::stats::Stats;
use crate::report::{Table, figure, median};
use std::collections::BTreeMap;

/// Stats by measurement (a store, or a store and a setting) and round. Rows keep the order in which
/// they were added.
#[derive(Debug, Default)]
pub struct Rounds {
    names: Vec<String>,
    stats: BTreeMap<(String, usize), Stats>,
}

impl Rounds {
    /// Adds stats to a round.
    pub fn add(&mut self, name: &str, round: usize, stats: Stats) {
        if !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_owned());
        }
        self.stats.entry((name.to_owned(), round)).or_default().merge(stats);
    }

    /// Returns the names of the measurements.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns a stat of one round; NaN if there is none.
    #[must_use]
    pub fn get(&self, name: &str, round: usize, wanted: &str) -> f64 {
        self.stats.get(&(name.to_owned(), round)).map_or(f64::NAN, |it| it.get(wanted))
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (usize, &'a Stats)> {
        let rounds = self.stats.iter().filter(move |((known, _), _)| known == name);
        rounds.map(|((_, round), stats)| (*round, stats))
    }

    /// Returns the median of a stat over the rounds.
    #[must_use]
    pub fn median(&self, name: &str, wanted: &str) -> f64 {
        let numbers = self.of(name).map(|(_, stats)| stats.get(wanted));
        median(&numbers.filter(|number| number.is_finite()).collect::<Vec<_>>())
    }

    /// Returns the median over the rounds of the ratio of a stat within a round.
    #[must_use]
    pub fn ratio(&self, name: &str, to: &str, wanted: &str) -> f64 {
        let ratios = self.of(name).filter_map(|(round, stats)| {
            let other = self.stats.get(&(to.to_owned(), round))?;
            Some(stats.get(wanted) / other.get(wanted))
        });
        median(&ratios.filter(|number| number.is_finite()).collect::<Vec<_>>())
    }

    /// Returns a table with a row per name. A column is the head, the stat and its divisor.
    #[must_use]
    pub fn table(&self, first_head: &str, columns: &[(&str, &str, f64)]) -> Table {
        let heads = columns.iter().map(|(head, _, _)| *head);
        let mut table = Table::new(std::iter::once(first_head).chain(heads));
        for name in &self.names {
            let cells = columns
                .iter()
                .map(|(_, wanted, divisor)| figure(self.median(name, wanted) / divisor));
            table.row(std::iter::once(name.clone()).chain(cells));
        }
        table
    }

    /// Like [`Rounds::table`], with ratios to the stats of `to`.
    #[must_use]
    pub fn ratios(&self, first_head: &str, to: &str, columns: &[(&str, &str, f64)]) -> Table {
        let heads = columns.iter().map(|(head, _, _)| *head);
        let mut table = Table::new(std::iter::once(first_head).chain(heads));
        for name in &self.names {
            let cells = columns.iter().map(|(_, wanted, _)| figure(self.ratio(name, to, wanted)));
            table.row(std::iter::once(name.clone()).chain(cells));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let mut rounds = Rounds::default();
        // In the second round both are ten times slower.
        for (round, slower) in [(0, 1.0), (1, 10.0), (2, 1.0)] {
            for (name, time) in [("a", 2.0), ("b", 6.0)] {
                let mut stats = Stats::default();
                stats.set("put.us", time * slower);
                rounds.add(name, round, stats);
            }
        }
        assert_eq!(rounds.ratio("b", "a", "put.us"), 3.0);
        assert_eq!(rounds.median("b", "put.us"), 6.0);
        assert!(rounds.median("b", "get.us").is_nan());
    }
}
