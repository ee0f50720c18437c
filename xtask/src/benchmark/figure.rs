//! Figures as text.

/// Text for a missing figure.
pub(super) const NONE: &str = "-";

/// Returns a number with about three significant digits, and commas between thousands.
pub(super) fn figure(number: f64) -> String {
    if !number.is_finite() {
        return NONE.into();
    }
    let decimals = match number.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 || size == 0.0 => 2,
        _ => 4,
    };
    let text = format!("{number:.decimals$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

/// Returns a figure, or the text for none.
pub(super) fn or_none(number: Option<f64>) -> String {
    number.map_or(NONE.into(), figure)
}

/// Returns a round number for an axis, with `k` for thousands and `M` for millions.
pub(super) fn short(number: f64) -> String {
    match number {
        size if size >= 1e6 => format!("{}M", size / 1e6),
        size if size >= 1e3 => format!("{}k", size / 1e3),
        // A step may be a sum of parts that are not exact.
        size => format!("{}", (size * 1e6).round() / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_about_three_digits_and_group_thousands() {
        let numbers = [1_234_567.8, 999.6, 12.34, 1.234, 0.00321, 0.0, -4321.0, f64::NAN];
        let texts = ["1,234,568", "1,000", "12.3", "1.23", "0.0032", "0.00", "-4,321", "-"];
        assert_eq!(numbers.map(figure), texts);
        let short = [0.0, 0.1 + 0.2, 5.0, 1500.0, 2e7].map(short);
        assert_eq!(short, ["0", "0.3", "5", "1.5k", "20M"]);
        assert_eq!([or_none(None), or_none(Some(1.0))], ["-", "1.00"]);
    }
}
