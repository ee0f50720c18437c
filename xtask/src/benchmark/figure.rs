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

/// Returns a number for an axis: a figure without trailing zeros.
pub(super) fn tick(number: f64) -> String {
    let text = figure(number);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
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
        assert_eq!([0.0, 5.0, 2.5, 1000.0].map(tick), ["0", "5", "2.5", "1,000"]);
        assert_eq!([or_none(None), or_none(Some(1.0))], ["-", "1.00"]);
    }
}
