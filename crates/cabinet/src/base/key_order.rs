//! Key orders: comparison of keys in a tree.
//!
//! Two keys that an order calls equal are one key. The bytes that were stored first stay.

use std::cmp::Ordering;

/// How a tree compares keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    /// By unsigned bytes. If one key is a prefix of the other, the shorter comes first.
    #[default]
    Lexical,
    /// As decimal numbers: white space, an optional `-`, digits, and a fraction after a point, of
    /// which 16 digits count. Keys that do not begin with a number are 0. Equal numbers are ordered
    /// by their bytes, so `1` and `1.0` are two keys.
    Decimal,
    /// As little-endian 32-bit integers. Shorter keys are extended by zeros, longer ones cut.
    Int32,
    /// As little-endian 64-bit integers. Shorter keys are extended by zeros, longer ones cut.
    Int64,
}

/// Digits of a fraction that count.
const FRACTION_DIGITS_MAX: usize = 16;

impl KeyOrder {
    /// All orders, by their names in tuning.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("lexical", Self::Lexical),
        ("decimal", Self::Decimal),
        ("int32", Self::Int32),
        ("int64", Self::Int64),
    ];

    /// Returns the order's name in tuning.
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, order)| *order == self).map_or("", |(name, _)| name)
    }

    /// Compares two keys.
    #[inline]
    pub fn compare(self, left: &[u8], right: &[u8]) -> Ordering {
        match self {
            Self::Lexical => left.cmp(right),
            Self::Decimal => compare_decimal(left, right),
            Self::Int32 => int32(left).cmp(&int32(right)),
            Self::Int64 => int64(left).cmp(&int64(right)),
        }
    }

    /// Returns a number that does not decrease as the key increases. Keys with different numbers
    /// need not be compared.
    #[inline]
    pub(crate) fn head(self, key: &[u8]) -> u64 {
        match self {
            Self::Lexical => head_of_bytes(key),
            Self::Decimal => from_signed(Decimal::parse(key).whole),
            Self::Int32 => from_signed(int32(key).into()),
            Self::Int64 => from_signed(int64(key)),
        }
    }

    /// Returns a key that is after `left`, and not after `right`, and short if the order allows it.
    /// `left` must come before `right`.
    pub(crate) fn separator<'a>(self, left: &[u8], right: &'a [u8]) -> &'a [u8] {
        if self != Self::Lexical {
            return right;
        }
        let common = left.iter().zip(right).take_while(|(left, right)| left == right).count();
        &right[..right.len().min(common + 1)]
    }
}

/// Returns the first eight bytes, as a number with the same order.
#[inline]
fn head_of_bytes(key: &[u8]) -> u64 {
    if let Some(bytes) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}

fn from_signed(number: i64) -> u64 {
    (number as u64) ^ 1 << 63
}

fn int32(key: &[u8]) -> i32 {
    i32::from_le_bytes(extended(key))
}

fn int64(key: &[u8]) -> i64 {
    i64::from_le_bytes(extended(key))
}

fn extended<const WIDTH: usize>(key: &[u8]) -> [u8; WIDTH] {
    let mut bytes = [0; WIDTH];
    let length = key.len().min(WIDTH);
    bytes[..length].copy_from_slice(&key[..length]);
    bytes
}

/// A key read as a decimal number.
struct Decimal<'a> {
    whole: i64,
    negative: bool,
    /// Bytes after the digits of the whole part.
    rest: &'a [u8],
}

impl<'a> Decimal<'a> {
    fn parse(key: &'a [u8]) -> Self {
        let blanks = key.iter().take_while(|byte| **byte <= b' ' || **byte == 0x7f).count();
        let mut rest = &key[blanks..];
        let negative = rest.first() == Some(&b'-');
        if negative {
            rest = &rest[1..];
        }
        let mut whole = 0i64;
        while let [digit @ b'0'..=b'9', after @ ..] = rest {
            whole = whole.wrapping_mul(10).wrapping_add(i64::from(digit - b'0'));
            rest = after;
        }
        let whole = if negative { whole.wrapping_neg() } else { whole };
        Self { whole, negative, rest }
    }

    /// Returns the digits after the point in units of 10^-16, with the sign.
    fn fraction(&self) -> i64 {
        let [b'.', digits @ ..] = self.rest else { return 0 };
        let digits = digits.iter().take(FRACTION_DIGITS_MAX).take_while(|d| d.is_ascii_digit());
        let mut fraction = 0i64;
        let mut unit = 10i64.pow(FRACTION_DIGITS_MAX as u32 - 1);
        for digit in digits {
            fraction += i64::from(digit - b'0') * unit;
            unit /= 10;
        }
        if self.negative { -fraction } else { fraction }
    }
}

fn compare_decimal(left: &[u8], right: &[u8]) -> Ordering {
    let (left_number, right_number) = (Decimal::parse(left), Decimal::parse(right));
    left_number
        .whole
        .cmp(&right_number.whole)
        .then_with(|| left_number.fraction().cmp(&right_number.fraction()))
        .then_with(|| left.cmp(right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ORDERS: [KeyOrder; 4] =
        [KeyOrder::Lexical, KeyOrder::Decimal, KeyOrder::Int32, KeyOrder::Int64];

    #[test]
    fn odd_decimals_are_ordered_as_by_tokyo_cabinet() {
        let expected = ["-1", "-0.5", "+1", "abc", "0.25", " 1", "01", "1", "1.0", "1e3", "2"];
        let mut keys = expected;
        keys.reverse();
        keys.sort_by(|left, right| KeyOrder::Decimal.compare(left.as_bytes(), right.as_bytes()));
        assert_eq!(keys, expected);
    }

    #[test]
    fn integers_are_extended_by_zeros_and_cut() {
        use Ordering::{Equal, Greater, Less};
        for (order, left, right, expected) in [
            (KeyOrder::Int32, &[1][..], &[1, 0, 0, 0][..], Equal),
            (KeyOrder::Int32, &[1, 0, 0, 0, 9], &[1, 0, 0, 0], Equal),
            (KeyOrder::Int32, &[], &[0], Equal),
            (KeyOrder::Int32, &[0xff; 4], &[0], Less),
            (KeyOrder::Int32, &[0, 1], &[1], Greater),
            (KeyOrder::Int64, &[0xff; 8], &[0], Less),
            (KeyOrder::Int64, &[0xff; 4], &[0], Greater),
            (KeyOrder::Int64, &[1, 0, 0, 0, 0, 0, 0, 0, 9], &[1], Equal),
        ] {
            assert_eq!(order.compare(left, right), expected, "{order:?} {left:?} {right:?}");
        }
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..12),
            proptest::collection::vec(0u8..3, 0..6),
            "[ ]{0,2}[-+]{0,1}[0-9]{0,20}[.]{0,1}[0-9]{0,18}".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #[test]
        fn every_order_is_total_and_its_heads_rise_with_it(
            a in key(), b in key(), c in key(),
        ) {
            for order in ORDERS {
                prop_assert_eq!(order.compare(&a, &b), order.compare(&b, &a).reverse());
                prop_assert_eq!(order.compare(&a, &a), Ordering::Equal);
                let mut keys = [&a, &b, &c];
                keys.sort_by(|left, right| order.compare(left, right));
                prop_assert!(order.compare(keys[0], keys[2]) != Ordering::Greater);
                prop_assert!(order.head(keys[0]) <= order.head(keys[1]));
                prop_assert!(order.head(keys[1]) <= order.head(keys[2]));
            }
        }

        #[test]
        fn a_separator_is_between_its_keys(a in key(), b in key()) {
            for order in ORDERS {
                let (left, right) = match order.compare(&a, &b) {
                    Ordering::Less => (&a, &b),
                    Ordering::Greater => (&b, &a),
                    Ordering::Equal => continue,
                };
                let separator = order.separator(left, right);
                prop_assert_eq!(order.compare(left, separator), Ordering::Less);
                prop_assert!(order.compare(separator, right) != Ordering::Greater);
            }
        }
    }
}
