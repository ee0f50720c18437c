//! Sort order: the column by which a query's results are sorted, and the comparison.

use super::keys;
use super::number::Number;
use super::tokens::before_nul;

/// Comparison of values. The numbers are Tokyo Cabinet's. Rows without the column always come last.
/// Equal rows are in the order of their primary keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SortKind {
    /// By bytes, smallest first.
    StringAscending = 0,
    /// By bytes, greatest first.
    StringDescending = 1,
    /// As numbers, smallest first.
    NumberAscending = 2,
    /// As numbers, greatest first.
    NumberDescending = 3,
}

/// Kinds by number, each with its name and its aliases.
const KINDS: [(SortKind, &[&str]); 4] = [
    (SortKind::StringAscending, &["STRASC", "STR", "ASC"]),
    (SortKind::StringDescending, &["STRDESC", "DESC"]),
    (SortKind::NumberAscending, &["NUMASC", "NUM"]),
    (SortKind::NumberDescending, &["NUMDESC"]),
];

impl SortKind {
    /// Parses a name in either case, or a number. Returns `None` if there is no such kind.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let known = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(text));
        let named = KINDS.iter().find(|(_, names)| known(names));
        let found = named.or_else(|| KINDS.get(text.parse::<usize>().ok()?));
        found.map(|(kind, _)| *kind)
    }

    /// Returns Tokyo Cabinet's name of the kind.
    pub fn name(self) -> &'static str {
        KINDS[self as usize].1[0]
    }

    /// Returns whether the greatest value comes first.
    pub fn is_descending(self) -> bool {
        matches!(self, Self::StringDescending | Self::NumberDescending)
    }

    /// Returns whether values are compared as numbers.
    pub fn is_by_number(self) -> bool {
        matches!(self, Self::NumberAscending | Self::NumberDescending)
    }
}

/// Order of results: a column, and the comparison of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortOrder {
    /// Name of the column; empty is the primary key.
    pub column: Vec<u8>,
    /// Comparison of the column's values.
    pub kind: SortKind,
}

/// First bytes of sort keys.
const PRESENT: u8 = 0;
const LACKING: u8 = 1;

impl SortOrder {
    /// Returns a key that sorts like the value of a row in this order; `None` is a row without the
    /// column. No key is a prefix of another.
    pub fn sort_key(&self, value: Option<&[u8]>) -> Vec<u8> {
        let Some(value) = value else { return vec![LACKING] };
        let mut key = vec![PRESENT];
        if self.kind.is_by_number() {
            Number::parse(before_nul(value)).encode(&mut key);
        } else {
            keys::push_escaped_whole(&mut key, value);
        }
        self.turn(key)
    }

    /// Like `sort_key`, for a value in the encoding of an index that is in this order.
    pub(super) fn sort_key_of_posting(&self, value: &[u8]) -> Vec<u8> {
        self.turn([&[PRESENT], value].concat())
    }

    fn turn(&self, mut key: Vec<u8>) -> Vec<u8> {
        if self.kind.is_descending() {
            key[1..].iter_mut().for_each(|byte| *byte = !*byte);
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(kind: SortKind, values: &[Option<&str>]) -> Vec<Option<String>> {
        let order = SortOrder { column: b"c".to_vec(), kind };
        let mut values = values.to_vec();
        values.sort_by_key(|value| order.sort_key(value.map(str::as_bytes)));
        values.into_iter().map(|value| value.map(str::to_string)).collect()
    }

    #[test]
    fn rows_without_the_column_come_last_in_every_order() {
        let values = [None, Some("10"), Some("9"), Some(""), Some("9a"), Some("-3")];
        let expect = |kind, expected: [Option<&str>; 6]| {
            assert_eq!(sorted(kind, &values), expected.map(|value| value.map(str::to_string)));
        };
        expect(
            SortKind::StringAscending,
            [Some(""), Some("-3"), Some("10"), Some("9"), Some("9a"), None],
        );
        expect(
            SortKind::StringDescending,
            [Some("9a"), Some("9"), Some("10"), Some("-3"), Some(""), None],
        );
        expect(
            SortKind::NumberAscending,
            [Some("-3"), Some(""), Some("9"), Some("9a"), Some("10"), None],
        );
        expect(
            SortKind::NumberDescending,
            [Some("10"), Some("9"), Some("9a"), Some(""), Some("-3"), None],
        );
    }

    #[test]
    fn kinds_are_parsed_by_names_and_numbers() {
        for (number, (kind, names)) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, number);
            assert_eq!(SortKind::parse(number.to_string().as_bytes()), Some(*kind));
            for name in *names {
                assert_eq!(SortKind::parse(name.to_lowercase().as_bytes()), Some(*kind));
            }
        }
        assert_eq!(SortKind::parse(b"4"), None);
        assert_eq!(SortKind::parse(b""), None);
    }
}
