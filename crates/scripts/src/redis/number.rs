//! Numbers as texts of C: `%.14g` and `%.17g`, and `strtod`.

/// Appends a number with up to `digits` significant digits, as `%.*g`.
pub(super) fn append_general(out: &mut Vec<u8>, number: f64, digits: usize) {
    if !number.is_finite() {
        if number.is_sign_negative() {
            out.push(b'-');
        }
        out.extend_from_slice(if number.is_nan() { b"nan" } else { b"inf" });
        return;
    }
    let scientific = format!("{number:.*e}", digits.saturating_sub(1));
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if exponent < -4 || exponent >= digits as i32 {
        out.extend_from_slice(without_zeros(mantissa).as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.unsigned_abs()).as_bytes());
    } else {
        let places = (digits as i32 - 1 - exponent).max(0) as usize;
        out.extend_from_slice(without_zeros(&format!("{number:.places$}")).as_bytes());
    }
}

/// Returns a number without the zeros at the end of its fraction.
fn without_zeros(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

/// Reads the number at the beginning of a text, as `strtod`. Returns it and its length in bytes.
pub(super) fn read(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let is_negative = text.first() == Some(&b'-');
    let rest = &text[sign..];
    let begins_with =
        |word: &[u8]| rest.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    let (number, length) = if begins_with(b"infinity") {
        (f64::INFINITY, 8)
    } else if begins_with(b"inf") {
        (f64::INFINITY, 3)
    } else if begins_with(b"nan") {
        (f64::NAN, 3)
    } else if begins_with(b"0x") && rest.get(2).is_some_and(u8::is_ascii_hexdigit) {
        read_hex(rest)
    } else {
        read_decimal(rest)?
    };
    Some((if is_negative { -number } else { number }, sign + length))
}

fn digits(text: &[u8], is_digit: impl Fn(&u8) -> bool) -> usize {
    text.iter().take_while(|byte| is_digit(byte)).count()
}

/// Returns the length of an exponent after this letter, with its number; 0 without one.
fn exponent(text: &[u8], letter: u8) -> (usize, i32) {
    if text.first().map(u8::to_ascii_lowercase) != Some(letter) {
        return (0, 0);
    }
    let sign = usize::from(matches!(text.get(1), Some(b'-' | b'+')));
    let count = digits(&text[1 + sign..], u8::is_ascii_digit);
    let number = std::str::from_utf8(&text[1..1 + sign + count]).unwrap_or_default();
    match count {
        0 => (0, 0),
        // One of too many digits saturates.
        _ => {
            let limit = if number.starts_with('-') { -99_999 } else { 99_999 };
            (1 + sign + count, number.parse().unwrap_or(limit))
        }
    }
}

fn read_decimal(text: &[u8]) -> Option<(f64, usize)> {
    let whole = digits(text, u8::is_ascii_digit);
    let mut length = whole;
    if text.get(length) == Some(&b'.') {
        let fraction = digits(&text[length + 1..], u8::is_ascii_digit);
        if whole + fraction > 0 {
            length += 1 + fraction;
        }
    }
    if length == 0 {
        return None;
    }
    length += exponent(&text[length..], b'e').0;
    let number = std::str::from_utf8(&text[..length]).ok()?.parse().ok()?;
    Some((number, length))
}

/// Reads a number in hexadecimal, after `0x` and at least one digit.
fn read_hex(text: &[u8]) -> (f64, usize) {
    let digit = |byte: u8| f64::from(char::from(byte).to_digit(16).unwrap_or_default());
    let whole = digits(&text[2..], u8::is_ascii_hexdigit);
    let mut length = 2 + whole;
    let mut number = text[2..length].iter().fold(0.0, |sum, byte| sum * 16.0 + digit(*byte));
    if text.get(length) == Some(&b'.') {
        let fraction = digits(&text[length + 1..], u8::is_ascii_hexdigit);
        let mut unit = 1.0;
        for byte in &text[length + 1..length + 1 + fraction] {
            unit /= 16.0;
            number += unit * digit(*byte);
        }
        length += 1 + fraction;
    }
    let (bytes, power) = exponent(&text[length..], b'p');
    (number * 2f64.powi(power), length + bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: f64, digits: usize) -> String {
        let mut out = Vec::new();
        append_general(&mut out, number, digits);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn numbers_are_written_as_by_c() {
        let cases = [
            (0.0, "0", "0"),
            (-0.0, "-0", "-0"),
            (1.0, "1", "1"),
            (0.1, "0.1", "0.10000000000000001"),
            (1e14, "1e+14", "100000000000000"),
            (123_456_789_012_345.0, "1.2345678901234e+14", "123456789012345"),
            (1e-5, "1e-05", "1.0000000000000001e-05"),
            (0.0001, "0.0001", "0.0001"),
            (1e300, "1e+300", "1.0000000000000001e+300"),
            (f64::INFINITY, "inf", "inf"),
            (-f64::INFINITY, "-inf", "-inf"),
        ];
        for (number, short, long) in cases {
            assert_eq!((text(number, 14).as_str(), text(number, 17).as_str()), (short, long));
        }
    }

    #[test]
    fn numbers_are_read_as_by_c() {
        let cases = [
            ("12", 12.0, 2),
            ("-1.5e3x", -1500.0, 6),
            ("1e", 1.0, 1),
            ("1.", 1.0, 2),
            (".5", 0.5, 2),
            ("+7", 7.0, 2),
            ("0x1F", 31.0, 4),
            ("0x.8", 0.0, 1),
            ("0x1.8p1", 3.0, 7),
            ("-Infinity!", f64::NEG_INFINITY, 9),
            ("1e99999999999999", f64::INFINITY, 16),
        ];
        for (given, number, length) in cases {
            assert_eq!(read(given.as_bytes()), Some((number, length)), "{given}");
        }
        for given in ["", "-", ".", "x", "e1"] {
            assert_eq!(read(given.as_bytes()), None, "{given}");
        }
    }
}
