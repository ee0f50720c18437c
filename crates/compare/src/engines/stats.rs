//! Stats: named numbers, as a child prints them.

use std::collections::BTreeMap;

/// Numbers by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats(BTreeMap<String, f64>);

impl Stats {
    /// Sets a stat.
    pub fn set(&mut self, name: impl Into<String>, number: f64) {
        self.0.insert(name.into(), number);
    }

    /// Returns a stat; NaN if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(f64::NAN)
    }

    /// Adds all stats of `other`.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Prints one line per stat, for [`Stats::read`].
    pub fn print(&self) {
        for (name, number) in &self.0 {
            println!("{name} {number}");
        }
    }

    /// Parses the lines of [`Stats::print`]. Ignores other lines.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| {
            let (name, number) = line.split_once(' ')?;
            Some((name.to_owned(), number.parse().ok()?))
        });
        Self(pairs.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_no_stats_are_ignored() {
        let stats = Stats::read("put.us 0.5\nsome warning of a library\n\nget.us 1e3\n");
        assert_eq!(stats.get("put.us"), 0.5);
        assert_eq!(stats.get("get.us"), 1000.0);
        assert!(stats.get("some").is_nan());
    }
}
