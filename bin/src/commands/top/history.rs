//! Past figures of a server, for the lines that show them.

use super::figures::Figures;
use std::collections::VecDeque;

/// Values that are kept of each figure: the columns of a wide terminal.
const VALUES_MAX: usize = 512;

/// The last values of some figures, by their names.
#[derive(Debug, Default)]
pub(super) struct History(Vec<(&'static str, VecDeque<f64>)>);

impl History {
    /// Adds the values of a reading.
    pub(super) fn add(&mut self, figures: &Figures<'_>) {
        let rates = figures.kinds().into_iter().map(|kind| (kind.name, kind.per_second));
        let memory = ("memory", figures.now.number("memrss"));
        for (name, value) in rates.chain([memory]) {
            let Some(value) = value else { continue };
            let place = self.0.iter().position(|(other, _)| *other == name);
            let place = place.unwrap_or_else(|| {
                self.0.push((name, VecDeque::new()));
                self.0.len() - 1
            });
            let values = &mut self.0[place].1;
            if values.len() == VALUES_MAX {
                values.pop_front();
            }
            values.push_back(value);
        }
    }

    /// Returns the values of a figure, the last one at the end.
    pub(super) fn of(&self, name: &str) -> impl DoubleEndedIterator<Item = f64> {
        let found = self.0.iter().find(|(other, _)| *other == name);
        found.into_iter().flat_map(|(_, values)| values.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Reading;
    use super::*;

    #[test]
    fn a_history_keeps_the_last_values_of_each_figure() {
        let mut history = History::default();
        for memory in 0..=VALUES_MAX {
            let reading = [Reading::new(&format!("memrss\t{memory}\n"), None)];
            history.add(&Figures::of(&reading).expect("figures"));
        }
        let values: Vec<f64> = history.of("memory").collect();
        assert_eq!(values.len(), VALUES_MAX);
        assert_eq!((values[0], values.last()), (1.0, Some(&(VALUES_MAX as f64))));
        // There are no rates without two readings.
        assert_eq!(history.of("reads").count(), 0);
    }
}
