//! Ranges of tokens that a scan reads one after the other.
//!
//! A node ends a read with an error that meets too many cells of removed and expired records. So a
//! range is halved after such an error, until it has few enough of them, and ranges grow again
//! after some that were read.

/// The first token that a key can have.
const FIRST: i64 = i64::MIN + 1;

/// Narrowest range. On average, each of these has one of a trillion keys.
const WIDTH_MIN: u64 = 1 << 24;

/// Ranges that are read before they grow.
const READ_BEFORE_GROWTH: u32 = 8;

/// The present range, and the rest.
#[derive(Debug)]
pub(crate) struct TokenRanges {
    from: i64,
    /// Tokens of the range after the first one, as far as there are so many.
    width: u64,
    /// Ranges of this width that were read.
    read: u32,
}

impl TokenRanges {
    /// Begins with the range of all tokens from one on.
    pub(crate) fn from(token: Option<i64>) -> Self {
        Self { from: token.unwrap_or(FIRST).max(FIRST), width: u64::MAX, read: 0 }
    }

    /// Returns the first and the last token of the range.
    pub(crate) fn present(&self) -> (i64, i64) {
        (self.from, self.from.saturating_add_unsigned(self.width))
    }

    /// Makes the range half of itself from a token on, after a failure there. Returns `false` if it
    /// cannot be narrower.
    pub(crate) fn halve(&mut self, at: i64) -> bool {
        let (_, last) = self.present();
        self.from = at;
        self.width = last.abs_diff(at) / 2;
        self.read = 0;
        self.width >= WIDTH_MIN
    }

    /// Goes on to the next range. Returns `false` after the last one.
    pub(crate) fn advance(&mut self) -> bool {
        let (_, last) = self.present();
        let Some(next) = last.checked_add(1) else { return false };
        self.from = next;
        self.read += 1;
        if self.read >= READ_BEFORE_GROWTH {
            self.width = self.width.saturating_mul(2);
            self.read = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_are_halved_have_each_token_once_and_grow_again() {
        let mut ranges = TokenRanges::from(None);
        assert_eq!(ranges.present(), (FIRST, i64::MAX));
        // Pages until this token were read before the failure.
        assert!(ranges.halve(-1000));
        let (from, mut last) = ranges.present();
        assert_eq!(from, -1000);
        assert!(last < i64::MAX / 2 + 1);
        for _ in 0..20 {
            assert!(ranges.halve(from));
            assert!(ranges.present().1 < last);
            last = ranges.present().1;
        }
        let mut count = 0;
        while ranges.advance() {
            assert_eq!(ranges.present().0, last + 1);
            last = ranges.present().1;
            count += 1;
        }
        assert_eq!(last, i64::MAX);
        // 2 to the power of 21 without growth.
        assert!(count < 300, "{count}");
    }

    #[test]
    fn a_range_is_not_halved_without_end() {
        let mut ranges = TokenRanges::from(Some(i64::MIN));
        let halved = (0..).take_while(|_| ranges.halve(5)).count();
        assert!((30..50).contains(&halved), "{halved}");
        let mut ranges = TokenRanges::from(Some(i64::MAX));
        assert_eq!(ranges.present(), (i64::MAX, i64::MAX));
        assert!(!ranges.halve(i64::MAX));
        assert!(!ranges.advance());
    }
}
