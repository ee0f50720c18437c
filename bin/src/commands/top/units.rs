//! Numbers as people read them.

/// Formats a part of 1.
pub(super) fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}

/// Formats a time of a request.
pub(super) fn latency(seconds: f64) -> String {
    let (number, unit) = match seconds {
        1.0.. => (seconds, "s"),
        1e-3.. => (seconds * 1e3, "ms"),
        _ => (seconds * 1e6, "us"),
    };
    let decimals = usize::from(number < 9.95 && unit != "us");
    format!("{number:.decimals$} {unit}")
}

/// Formats a number with separators, and one decimal if it is small.
pub(super) fn count(number: f64) -> String {
    if number < 10.0 && number.fract() >= 0.05 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of bytes with a binary unit.
pub(super) fn bytes(number: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut number = number;
    let mut unit = 0;
    while number >= 1024.0 && unit + 1 < units.len() {
        number /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && number < 100.0);
    format!("{number:.decimals$} {}", units[unit])
}

/// Formats seconds as days, hours, minutes and seconds.
pub(super) fn duration(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let rest = format!("{hours:02}:{:02}:{:02}", seconds / 60 % 60, seconds % 60);
    if days > 0 { format!("{days}d {rest}") } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, expected) in
            [(0.0, "0"), (0.26, "0.3"), (9.0, "9"), (999.9, "1,000"), (1_234_567.0, "1,234,567")]
        {
            assert_eq!(count(number), expected);
        }
        for (number, expected) in
            [(0.0, "0 B"), (1023.0, "1023 B"), (1536.0, "1.5 KiB"), (1e18, "888 PiB")]
        {
            assert_eq!(bytes(number), expected);
        }
        for (seconds, expected) in
            [(12e-6, "12 us"), (1.25e-3, "1.2 ms"), (0.0312, "31 ms"), (8.39, "8.4 s")]
        {
            assert_eq!(latency(seconds), expected);
        }
        assert_eq!(duration(3661.9), "01:01:01");
        assert_eq!(duration(90_000.0), "1d 01:00:00");
    }
}
