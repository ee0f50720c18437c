//! Intervals of ids, as text: `[min,10]`, `(5,max]`.

use super::id::Key;
use std::ops::RangeInclusive;

/// Two ends, each inclusive or exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The lower end.
    pub from: End,
    /// The upper end.
    pub to: End,
}

/// One end of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The key of the end.
    pub key: Key,
    /// Whether the end belongs to the interval.
    pub inclusive: bool,
}

impl Interval {
    /// Returns the ids of the interval, given the current ids of its ends; 0 for an end that names
    /// no record.
    pub fn ids(&self, from: u64, to: u64) -> RangeInclusive<u64> {
        let first = from.saturating_add(u64::from(!self.from.inclusive));
        // A lower end of 0 starts at 1, and an upper end of 0 makes the interval empty.
        first.max(1)..=to.saturating_sub(u64::from(!self.to.inclusive))
    }

    /// Parses an interval: `[` or `(`, an id, a comma, an id, `)` or `]`. Returns `None` for any
    /// other text.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (&open, rest) = text.split_first()?;
        let (&close, inner) = rest.split_last()?;
        let comma = inner.iter().position(|byte| *byte == b',')?;
        let end = |text: &[u8], inclusive| End { key: Key::parse(text.trim_ascii()), inclusive };
        let inclusive = |bracket, closed, open| match bracket {
            _ if bracket == closed => Some(true),
            _ if bracket == open => Some(false),
            _ => None,
        };
        Some(Self {
            from: end(&inner[..comma], inclusive(open, b'[', b'(')?),
            to: end(&inner[comma + 1..], inclusive(close, b']', b')')?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_say_whether_the_ends_belong_to_it() {
        for (text, from, to) in [
            ("[1,13]", (Key::Id(1), true), (Key::Id(13), true)),
            ("(4,max]", (Key::Id(4), false), (Key::Max, true)),
            ("[min,9)", (Key::Min, true), (Key::Id(9), false)),
            ("( prev , next )", (Key::Prev, false), (Key::Next, false)),
            ("[4,]", (Key::Id(4), true), (Key::Id(0), true)),
        ] {
            let interval = Interval::parse(text.as_bytes()).unwrap();
            assert_eq!((interval.from.key, interval.from.inclusive), from, "{text}");
            assert_eq!((interval.to.key, interval.to.inclusive), to, "{text}");
        }
        for text in ["", "[", "[]", "1", "1,2", "[1,2", "1,2]", "{1,2}", "]1,2["] {
            assert_eq!(Interval::parse(text.as_bytes()), None, "{text}");
        }
    }
}
