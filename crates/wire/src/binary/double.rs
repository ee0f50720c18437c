//! Doubles on the wire: an integral and a fractional part, both signed.

/// Number of units of the fractional part in 1.
const FRACTION_UNITS: f64 = 1e12;

/// Returns the integral part and the fractional part (in units of 1e-12, truncated) of a double.
///
/// Infinities are the largest and the smallest integral part, not-a-number is the smallest of
/// both. A finite number beyond the range of the integral part becomes an infinity.
pub fn double_to_parts(number: f64) -> (i64, i64) {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0; // 2^63
    if number.is_nan() {
        (i64::MIN, i64::MIN)
    } else if number >= LIMIT {
        (i64::MAX, 0)
    } else if number <= -LIMIT {
        (i64::MIN, 0)
    } else {
        // Both casts are exact or truncate, because the parts are within range here.
        (number.trunc() as i64, (number.fract() * FRACTION_UNITS) as i64)
    }
}

/// Returns the double with the parts that [`double_to_parts`] returns.
pub fn double_from_parts(integral: i64, fractional: i64) -> f64 {
    match (integral, fractional) {
        (i64::MIN, i64::MIN) => f64::NAN,
        (i64::MAX, _) => f64::INFINITY,
        (i64::MIN, _) => f64::NEG_INFINITY,
        _ => integral as f64 + fractional as f64 / FRACTION_UNITS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_the_original_sent() {
        assert_eq!(double_to_parts(1.5), (1, 0x74_6a52_8800));
        assert_eq!(double_to_parts(-3.25), (-3, 0xffff_ffc5_cad6_bc00_u64 as i64));
        assert_eq!(double_to_parts(-1.75), (-1, 0xffff_ff51_6084_3400_u64 as i64));
        assert_eq!(double_from_parts(-1, 0xffff_ff51_6084_3400_u64 as i64), -1.75);
        assert_eq!(double_to_parts(0.0), (0, 0));
    }

    #[test]
    fn infinities_and_nan_have_their_own_parts() {
        assert_eq!(double_to_parts(f64::INFINITY), (i64::MAX, 0));
        assert_eq!(double_to_parts(f64::NEG_INFINITY), (i64::MIN, 0));
        assert_eq!(double_to_parts(f64::NAN), (i64::MIN, i64::MIN));
        assert_eq!(double_from_parts(i64::MAX, 0), f64::INFINITY);
        assert_eq!(double_from_parts(i64::MIN, 0), f64::NEG_INFINITY);
        assert!(double_from_parts(i64::MIN, i64::MIN).is_nan());
    }

    #[test]
    fn a_number_beyond_the_integral_part_becomes_an_infinity() {
        let limit = 2f64.powi(63);
        assert_eq!(double_to_parts(limit), (i64::MAX, 0));
        assert_eq!(double_to_parts(-limit), (i64::MIN, 0));
        let below = f64::from_bits(limit.to_bits() - 1);
        assert_eq!(double_to_parts(below), (i64::MAX - 1023, 0));
        assert_eq!(double_to_parts(-below), (i64::MIN + 1024, 0));
    }
}
