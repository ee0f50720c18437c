//! Tables and medians.

use std::fmt;

/// Returns the median; for an even count, the mean of the middle two; NaN for no values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// Formats a number with about three significant digits; `-` if it is not finite.
#[must_use]
pub fn figure(number: f64) -> String {
    if !number.is_finite() {
        return "-".into();
    }
    let decimals = match number.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 || size == 0.0 => 2,
        _ => 4,
    };
    format!("{number:.decimals$}")
}

/// Markdown table with columns aligned for the terminal.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table with these column heads.
    pub fn new<T: Into<String>>(heads: impl IntoIterator<Item = T>) -> Self {
        Self { rows: vec![heads.into_iter().map(Into::into).collect()] }
    }

    /// Adds a row with one cell per column.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Returns whether the table has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (place, row) in self.rows.iter().enumerate() {
            for (column, width) in widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                // The first column names the row, the others have numbers.
                if column == 0 {
                    write!(out, "| {cell:<width$} ")?;
                } else {
                    write!(out, "| {cell:>width$} ")?;
                }
            }
            writeln!(out, "|")?;
            if place == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let end = if column == 0 { "-" } else { ":" };
                    write!(out, "|{}{end}", "-".repeat(width + 1))?;
                }
                writeln!(out, "|")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn figures_keep_about_three_digits() {
        let texts = [1234.6, 12.34, 1.234, 0.1234, 0.00321, 0.0, f64::NAN].map(figure);
        assert_eq!(texts, ["1235", "12.3", "1.23", "0.12", "0.0032", "0.00", "-"]);
    }

    #[test]
    fn table_is_markdown_with_aligned_columns() {
        let mut table = Table::new(["store", "us"]);
        table.row(["a", "12.5"]);
        assert_eq!(table.to_string(), "| store |   us |\n|-------|-----:|\n| a     | 12.5 |\n");
    }
}
