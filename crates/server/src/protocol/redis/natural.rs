//! Natural numbers of any length, with what reading and printing of floats needs.

use std::cmp::Ordering;

/// The greatest power of ten of 64 bits, and its exponent.
const TEN_POWER: (u64, u32) = (10_000_000_000_000_000_000, 19);

/// A natural number: digits of 64 bits, the lowest first, and the last is not 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Natural(Vec<u64>);

impl Natural {
    /// Returns `number * 2^power`.
    pub(super) fn shifted(number: u64, power: u32) -> Self {
        let mut natural = Self(Vec::new());
        natural.multiply_and_add(0, number);
        natural.shift_left(power as usize);
        natural
    }

    /// Returns the number that decimal digits are.
    pub(super) fn from_decimal(digits: impl Iterator<Item = u8>) -> Self {
        let mut natural = Self(Vec::new());
        let (mut factor, mut sum) = (1, 0);
        for digit in digits {
            factor *= 10;
            sum = 10 * sum + u64::from(digit - b'0');
            if factor == TEN_POWER.0 {
                natural.multiply_and_add(factor, sum);
                (factor, sum) = (1, 0);
            }
        }
        natural.multiply_and_add(factor, sum);
        natural
    }

    /// Multiplies with a power of ten.
    pub(super) fn multiply_by_ten_to(&mut self, power: u32) {
        for _ in 0..power / TEN_POWER.1 {
            self.multiply_and_add(TEN_POWER.0, 0);
        }
        self.multiply_and_add(10_u64.pow(power % TEN_POWER.1), 0);
    }

    fn multiply_and_add(&mut self, factor: u64, addend: u64) {
        let mut carry = addend;
        for digit in &mut self.0 {
            let product = u128::from(*digit) * u128::from(factor) + u128::from(carry);
            *digit = product as u64;
            carry = (product >> 64) as u64;
        }
        if carry > 0 {
            self.0.push(carry);
        }
    }

    fn shift_left(&mut self, power: usize) {
        if self.0.is_empty() {
            return;
        }
        self.multiply_and_add(1 << (power % 64), 0);
        self.0.splice(..0, std::iter::repeat_n(0, power / 64));
    }

    /// Returns the number of bits.
    fn bits(&self) -> usize {
        self.0.last().map_or(0, |last| 64 * self.0.len() - last.leading_zeros() as usize)
    }

    /// Returns the first bits of a quotient, from 65 to 66, the power of two by which they are to
    /// be multiplied, and whether a remainder is left. Neither number may be 0.
    pub(super) fn divided_by(mut self, mut divisor: Self) -> (u128, i64, bool) {
        const BITS: usize = 65;
        let wanted = divisor.bits() + BITS;
        let power = wanted as i64 - self.bits() as i64;
        match usize::try_from(power) {
            Ok(power) => self.shift_left(power),
            Err(_) => divisor.shift_left(power.unsigned_abs() as usize),
        }
        divisor.shift_left(BITS);
        let mut quotient = 0;
        for _ in 0..=BITS {
            quotient <<= 1;
            if self.compare(&divisor) != Ordering::Less {
                self.subtract(&divisor);
                quotient |= 1;
            }
            self.shift_left(1);
        }
        (quotient, -power, !self.0.is_empty())
    }

    fn compare(&self, other: &Self) -> Ordering {
        let by_length = self.0.len().cmp(&other.0.len());
        by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Subtracts a number that is not greater.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (place, digit) in self.0.iter_mut().enumerate() {
            let other = other.0.get(place).copied().unwrap_or(0);
            let (difference, first) = digit.overflowing_sub(other);
            let (difference, second) = difference.overflowing_sub(u64::from(borrow));
            (*digit, borrow) = (difference, first || second);
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// Returns the number in decimal.
    pub(super) fn into_decimal(mut self) -> String {
        let mut groups = Vec::new();
        while !self.0.is_empty() {
            let mut remainder = 0;
            for digit in self.0.iter_mut().rev() {
                let dividend = u128::from(remainder) << 64 | u128::from(*digit);
                *digit = (dividend / u128::from(TEN_POWER.0)) as u64;
                remainder = (dividend % u128::from(TEN_POWER.0)) as u64;
            }
            groups.push(remainder);
            while self.0.last() == Some(&0) {
                self.0.pop();
            }
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        for group in groups.iter().rev() {
            text.push_str(&format!("{group:019}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_digits_come_back() {
        for text in ["0", "7", "18446744073709551616", "100000000000000000000000000000000000001"] {
            let number = Natural::from_decimal(text.bytes());
            assert_eq!(number.clone().into_decimal(), text);
            let mut product = number;
            product.multiply_by_ten_to(40);
            let zeros = if text == "0" { "" } else { "0000000000000000000000000000000000000000" };
            assert_eq!(product.into_decimal(), format!("{text}{zeros}"));
        }
        assert_eq!(Natural::shifted(3, 70).into_decimal(), "3541774862152233910272");
        assert_eq!(Natural::shifted(0, 70), Natural::from_decimal("000".bytes()));
    }

    #[test]
    fn quotients_have_65_or_66_bits() {
        let quotient = |one: &str, other: &str| {
            let one = Natural::from_decimal(one.bytes());
            one.divided_by(Natural::from_decimal(other.bytes()))
        };
        assert_eq!(quotient("1", "1"), (1 << 65, -65, false));
        assert_eq!(quotient("3", "1"), (3 << 64, -64, false));
        assert_eq!(quotient("1", "3"), ((1 << 66) / 3, -66, true));
        assert_eq!(quotient("340282366920938463463374607431768211456", "1"), (1 << 65, 63, false));
        let (bits, power, has_more) = quotient("340282366920938463463374607431768211457", "1");
        assert_eq!((bits, power, has_more), (1 << 65, 63, true));
    }
}
