//! Floats of 80 bits, in which Redis adds: 64 bits of mantissa, as the x87 processor has them.
//!
//! A sum is exact before it is rounded to the nearest float, of two to the even one. Texts are read
//! as C's `strtold` reads them, and printed by `%.17Lf` without zeros at the end.

use super::natural::Natural;

/// Longest text that is read, in bytes, as in Redis.
const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;

/// Number of bits of a mantissa.
const MANTISSA_BITS: u32 = 64;

/// Power of two of the last bit of the least float.
const POWER_MIN: i64 = -16_445;

/// Power of two that all floats are less than.
const POWER_LIMIT: i64 = 16_384;

/// Powers of ten that the first digit of a text may have: above it there is no float, and below it
/// the nearest is 0.
const TEN_POWERS: std::ops::RangeInclusive<i64> = -4951..=4932;

/// Bound of the exponents of texts, far from that of floats.
const EXPONENT_MAX: i64 = 1 << 40;

/// Digits after the point.
const FRACTION_DIGITS: u32 = 17;

/// A float: `mantissa * 2^power`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LongDouble {
    Finite { is_negative: bool, mantissa: u64, power: i32 },
    Infinite,
}

impl LongDouble {
    pub(super) const ZERO: Self = Self::Finite { is_negative: false, mantissa: 0, power: 0 };

    /// Returns the float that a text is; `None` if it is none, or is too large, or so small that
    /// the nearest float is 0.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (is_negative, text) = match text {
            [b'-', text @ ..] => (true, text),
            [b'+', text @ ..] => (false, text),
            text => (false, text),
        };
        if [&b"inf"[..], b"infinity"].iter().any(|name| text.eq_ignore_ascii_case(name)) {
            return Some(Self::Infinite);
        }
        let magnitude = match text {
            [b'0', b'x' | b'X', text @ ..] => read_hexadecimal(text)?,
            text => read_decimal(text)?,
        };
        magnitude.round(is_negative)
    }

    /// Returns the sum; `None` if it is too large or infinite.
    pub(super) fn plus(self, other: Self) -> Option<Self> {
        let (mut larger, mut smaller) = (self.normal()?, other.normal()?);
        if smaller.1.bits != 0 && (larger.1.bits == 0 || larger.1.power < smaller.1.power) {
            (larger, smaller) = (smaller, larger);
        }
        let ((is_negative, larger), (is_other_negative, smaller)) = (larger, smaller);
        if smaller.bits == 0 {
            return larger.round(is_negative);
        }
        // Room for a carry above, and for 63 bits of the smaller number below.
        let power = larger.power - 63;
        let larger_bits = larger.bits << 63;
        let distance = u32::try_from(larger.power - smaller.power).unwrap_or(u32::MAX);
        let smaller_bits = (smaller.bits << 63).checked_shr(distance).unwrap_or(0);
        let is_cut = distance > 63 + smaller.bits.trailing_zeros();
        // The bits that are cut off count as one at the end: far below those that stay.
        let smaller_bits = smaller_bits | u128::from(is_cut);
        let (bits, is_negative) = match is_negative == is_other_negative {
            true => (larger_bits + smaller_bits, is_negative),
            false if larger_bits >= smaller_bits => (larger_bits - smaller_bits, is_negative),
            false => (smaller_bits - larger_bits, is_other_negative),
        };
        Magnitude { bits, power, has_more: false }.round(is_negative)
    }

    /// Returns the sign, and the magnitude with a first bit of 1 of 64 bits, or 0.
    fn normal(self) -> Option<(bool, Magnitude)> {
        let Self::Finite { is_negative, mantissa, power } = self else { return None };
        let zeros = if mantissa == 0 { 0 } else { mantissa.leading_zeros() };
        let bits = u128::from(mantissa << zeros);
        let power = i64::from(power) - i64::from(zeros);
        Some((is_negative, Magnitude { bits, power, has_more: false }))
    }

    /// Returns the number in decimal, as Redis prints it.
    pub(super) fn text(self) -> String {
        let Self::Finite { is_negative, mantissa, power } = self else { return "inf".into() };
        let (whole, fraction) = match u32::try_from(-power) {
            Err(_) | Ok(0) => (Natural::shifted(mantissa, power.unsigned_abs()).into_decimal(), 0),
            Ok(places) => {
                let (whole, fraction) = split(mantissa, places);
                (whole.to_string(), fraction)
            }
        };
        let digits = format!("{fraction:0width$}", width = FRACTION_DIGITS as usize);
        let text = format!("{whole}.{digits}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let sign = if is_negative && text != "0" { "-" } else { "" };
        format!("{sign}{text}")
    }
}

/// Returns the whole part of `mantissa / 2^places`, and its fraction in units of the last digit
/// after the point.
fn split(mantissa: u64, places: u32) -> (u64, u64) {
    const UNITS: u64 = 10_u64.pow(FRACTION_DIGITS);
    let whole = mantissa.checked_shr(places).unwrap_or(0);
    let fraction = mantissa - whole.checked_shl(places).unwrap_or(0);
    // Less than 2^121, which is less than half a unit from here on.
    if places >= u128::BITS {
        return (whole, 0);
    }
    let product = u128::from(fraction) * u128::from(UNITS);
    let (units, rest) = (product >> places, product & ((1 << places) - 1));
    let half = 1 << (places - 1);
    let units = units as u64 + u64::from(rest > half || rest == half && units & 1 == 1);
    if units == UNITS { (whole + 1, 0) } else { (whole, units) }
}

/// A number before it is rounded: `bits * 2^power`, and less than one more bit if `has_more`.
#[derive(Debug)]
struct Magnitude {
    bits: u128,
    power: i64,
    has_more: bool,
}

impl Magnitude {
    const ZERO: Self = Self { bits: 0, power: 0, has_more: false };

    /// Returns the nearest float; `None` if the number is too large, or is not 0 and the nearest
    /// float is.
    fn round(self, is_negative: bool) -> Option<LongDouble> {
        let Self { bits, power, has_more } = self;
        let length = u128::BITS - bits.leading_zeros();
        let too_many = i64::from(length) - i64::from(MANTISSA_BITS);
        let cut = u32::try_from(too_many.max(POWER_MIN.saturating_sub(power)).max(0));
        let cut = cut.unwrap_or(u32::MAX);
        let kept = bits.checked_shr(cut).unwrap_or(0);
        let rest = bits - kept.checked_shl(cut).unwrap_or(0);
        let is_up = match 1_u128.checked_shl(cut.wrapping_sub(1)) {
            Some(half) if cut > 0 => rest > half || rest == half && (has_more || kept & 1 == 1),
            _ => false,
        };
        let kept = kept + u128::from(is_up);
        let power = power + i64::from(cut);
        if kept == 0 {
            let is_zero = bits == 0 && !has_more;
            return is_zero.then_some(LongDouble::Finite { is_negative, mantissa: 0, power: 0 });
        }
        let (kept, power) = if kept >> 64 == 1 { (kept >> 1, power + 1) } else { (kept, power) };
        let length = u128::BITS - kept.leading_zeros();
        if power + i64::from(length) > POWER_LIMIT {
            return None;
        }
        let power = i32::try_from(power).ok()?;
        Some(LongDouble::Finite { is_negative, mantissa: kept as u64, power })
    }
}

/// A number's parts: the digits before and after the point, and the exponent.
struct Parts<'t> {
    whole: &'t [u8],
    fraction: &'t [u8],
    exponent: i64,
}

impl<'t> Parts<'t> {
    /// Returns the parts of a text, whose exponent is after the letter `mark`.
    fn of(text: &'t [u8], is_digit: fn(&u8) -> bool, mark: u8) -> Option<Self> {
        let split = |text: &'t [u8]| {
            let end = text.iter().position(|byte| !is_digit(byte)).unwrap_or(text.len());
            text.split_at(end)
        };
        let (whole, rest) = split(text);
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => split(rest),
            rest => (&[][..], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let exponent = match rest.split_first() {
            None => 0,
            Some((letter, rest)) if letter.eq_ignore_ascii_case(&mark) => read_exponent(rest)?,
            Some(_) => return None,
        };
        Some(Self { whole, fraction, exponent })
    }

    fn digits(&self) -> impl Iterator<Item = u8> + Clone {
        self.whole.iter().chain(self.fraction).copied().skip_while(|digit| *digit == b'0')
    }
}

fn read_exponent(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number: i64, digit| {
        number.saturating_mul(10).saturating_add(i64::from(digit - b'0')).min(EXPONENT_MAX)
    });
    Some(if is_negative { -number } else { number })
}

fn read_decimal(text: &[u8]) -> Option<Magnitude> {
    let parts = Parts::of(text, u8::is_ascii_digit, b'e')?;
    let digits = parts.digits();
    let count = digits.clone().count();
    if count == 0 {
        return Some(Magnitude::ZERO);
    }
    let ten_power = parts.exponent - parts.fraction.len() as i64;
    if !TEN_POWERS.contains(&(ten_power + count as i64 - 1)) {
        return None;
    }
    let (mut number, mut divisor) = (Natural::from_decimal(digits), Natural::shifted(1, 0));
    let power = u32::try_from(ten_power.unsigned_abs()).ok()?;
    if ten_power < 0 { &mut divisor } else { &mut number }.multiply_by_ten_to(power);
    let (bits, power, has_more) = number.divided_by(divisor);
    Some(Magnitude { bits, power, has_more })
}

fn read_hexadecimal(text: &[u8]) -> Option<Magnitude> {
    let parts = Parts::of(text, u8::is_ascii_hexdigit, b'p')?;
    let mut magnitude = Magnitude::ZERO;
    for digit in parts.digits() {
        let digit = char::from(digit).to_digit(16)?;
        if magnitude.bits >> 124 == 0 {
            magnitude.bits = magnitude.bits << 4 | u128::from(digit);
        } else {
            magnitude.has_more |= digit != 0;
            magnitude.power += 4;
        }
    }
    if magnitude.bits != 0 {
        magnitude.power += parts.exponent - 4 * parts.fraction.len() as i64;
    }
    Some(magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sum as Redis prints it, or which of its errors it is.
    fn sum(one: &str, other: &str) -> String {
        let read = |text: &str| LongDouble::read(text.as_bytes());
        match (read(one), read(other)) {
            (Some(one), Some(other)) => one.plus(other).map_or("infinite".into(), LongDouble::text),
            _ => "no float".into(),
        }
    }

    /// Pairs of texts, and their sums from Redis 7.0.15.
    const SUMS: &[(&str, &str, &str)] = &[
        ("0", "0", "0"),
        ("10.50", "0.1", "10.6"),
        ("5.0e3", "200", "5200"),
        ("3", "1.1", "4.1"),
        ("0.1", "0.2", "0.3"),
        ("1", "-1", "0"),
        ("-0", "-0", "0"),
        ("-1", "0.9", "-0.1"),
        ("1e17", "0.1", "100000000000000000.1015625"),
        ("9223372036854775807", "1", "9223372036854775808"),
        ("18446744073709551615", "1", "18446744073709551616"),
        ("18446744073709551615", "0.5", "18446744073709551616"),
        ("18446744073709551616", "1", "18446744073709551616"),
        ("36893488147419103232", "1", "36893488147419103232"),
        ("36893488147419103232", "3", "36893488147419103236"),
        ("1e-17", "0", "0.00000000000000001"),
        ("5e-18", "0", "0"),
        ("4.9e-18", "0", "0"),
        ("-5e-18", "0", "0"),
        ("1.5e-17", "0", "0.00000000000000002"),
        ("2.5e-17", "0", "0.00000000000000002"),
        ("0.99999999999999999", "0.00000000000000001", "1"),
        ("0.999999999999999999", "0", "1"),
        ("1e-4950", "0", "0"),
        ("3.6e-4951", "-3.6e-4951", "0"),
        ("123456789.123456789", "0.000000000000000001", "123456789.12345678899873747"),
        ("0x1.8p1", "0", "3"),
        ("0X10", "0xA.8", "26.5"),
        ("0x1p-3", "-0x.2p0", "0"),
        ("0x10000000000000001", "0", "18446744073709551616"),
        ("0x10000000000000000800", "0", "75557863725914323419136"),
        (
            "0x8000000000000000800000000000000000001",
            "0",
            "178405961588244985151628559295020958843142144",
        ),
        ("1e25", "1", "10000000000000000000000000"),
        ("1e30", "-1e30", "0"),
        ("1e30", "1e12", "1000000000000000001055488212992"),
        ("+5", "+.5", "5.5"),
        ("5.", "1", "6"),
        ("12345678901234567890.12345", "0", "12345678901234567890"),
        ("123456789012345678901234567890", "0", "123456789012345678899921813504"),
        ("9007199254740993", "0.0000000000000005", "9007199254740993"),
        ("4611686018427387904", "0.25", "4611686018427387904"),
        ("4611686018427387904", "0.125", "4611686018427387904"),
        ("1e-10", "1e10", "10000000000"),
        (
            "3.141592653589793238462643383279",
            "2.718281828459045235360287471352",
            "5.85987448204883847",
        ),
        ("-7.25", "7.125", "-0.125"),
        ("99999999999999999999999.9", "0.1", "100000000000000000000000"),
        ("1", "1e-30", "1"),
        ("1", "-1e-30", "1"),
        ("0.5", "1e-20", "0.5"),
        ("000000000000000000000000000000001", "0", "1"),
        ("0e9999999999999999999", "1", "1"),
        ("1e0000000000000000000000001", "0", "10"),
        ("2e+2", "0", "200"),
        ("100000000000000000000000000000e-28", "0", "10"),
        ("1", "0x1p-16445", "1"),
        ("9.5367431640625e-07", "0", "0.00000095367431641"),
    ];

    #[test]
    fn sums_are_those_of_redis() {
        for (one, other, expected) in SUMS {
            assert_eq!(sum(one, other), *expected, "{one} + {other}");
            assert_eq!(sum(other, one), *expected, "{other} + {one}");
        }
    }

    #[test]
    fn what_redis_does_not_read_is_no_float() {
        for text in [
            "",
            " 1",
            "+",
            "--1",
            "-1e5000",
            ".",
            "0b1",
            "0x",
            "0x.p1",
            "0x1p",
            "0x1p-16446",
            "0x1p16384",
            "1\0",
            "1 ",
            "1.2.3",
            "1.8e-4951",
            "1_0",
            "1e",
            "1e+",
            "1e-5000",
            "1e1.5",
            "1e5000",
            "abc",
            "e5",
            "infinit",
            "nan",
            "nan(1)",
        ] {
            assert_eq!(LongDouble::read(text.as_bytes()), None, "{text}");
        }
        let digits = |count| "1".repeat(count);
        assert!(LongDouble::read(digits(4000).as_bytes()).is_some());
        let long = |count| LongDouble::read(format!("{}1", "0".repeat(count - 1)).as_bytes());
        assert!(long(TEXT_BYTES_MAX).is_some() && long(TEXT_BYTES_MAX + 1).is_none());
    }

    #[test]
    fn infinite_sums_are_none() {
        assert_eq!(sum("inf", "1"), "infinite");
        assert_eq!(sum("1", "-Infinity"), "infinite");
        assert_eq!(sum("1.18973149535723176502e4932", "1e4932"), "infinite");
    }

    #[test]
    fn the_greatest_and_the_least_float_are_read() {
        const GREATEST: &str = "0x1.fffffffffffffffep16383";
        assert_eq!(sum(GREATEST, "-0x1.fffffffffffffffcp16383").len(), 4913);
        assert_eq!(sum(GREATEST, "0x1p16319"), "infinite");
        assert_eq!(sum(GREATEST, "0x1p16318"), sum(GREATEST, "0"));
        assert_eq!(sum(GREATEST, "-0x1p16384"), "no float");
        let least = LongDouble::Finite { is_negative: false, mantissa: 1, power: -16_445 };
        for text in ["0x1p-16445", "3.6e-4951", "0x1.8p-16446", "2e-4951"] {
            assert_eq!(LongDouble::read(text.as_bytes()), Some(least), "{text}");
        }
    }
}
