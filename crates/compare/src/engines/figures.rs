//! Figures: numbers with names, as a child prints them.

use std::collections::BTreeMap;

/// Numbers by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures(BTreeMap<String, f64>);

impl Figures {
    /// Sets a figure.
    pub fn set(&mut self, name: impl Into<String>, number: f64) {
        self.0.insert(name.into(), number);
    }

    /// A figure; NaN if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(f64::NAN)
    }

    /// Takes over all figures of `other`.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Prints a line for each, to be read by [`Figures::read`].
    pub fn print(&self) {
        for (name, number) in &self.0 {
            println!("{name} {number}");
        }
    }

    /// Figures from the lines of [`Figures::print`]. Other lines are passed over.
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
    fn lines_that_are_no_figures_are_passed_over() {
        let figures = Figures::read("put.us 0.5\nsome warning of a library\n\nget.us 1e3\n");
        assert_eq!(figures.get("put.us"), 0.5);
        assert_eq!(figures.get("get.us"), 1000.0);
        assert!(figures.get("some").is_nan());
    }
}
