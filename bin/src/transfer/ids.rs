//! Imports into fixed-length databases: only records that such a database can have as they are.
//!
//! The engine takes the digits of any key for an id, and cuts long values, as Tokyo Cabinet does.
//! An import would lose records by that: `user10` and `cart10` are both 10. So it takes each id in
//! one form only, and names the other records.

use crate::bytes::quoted;
use crate::plural::counted;
use cabinet::Numbered;

/// Refused records that are named; the others are only counted.
const NAMED_MAX: u64 = 20;

/// Keys with a meaning of their own.
const RELATIVE: [&[u8]; 4] = [b"min", b"max", b"prev", b"next"];

/// Requirements of a fixed-length database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdLimits {
    id_max: u64,
    width: u64,
}

impl IdLimits {
    pub(crate) fn of(database: &dyn Numbered) -> Self {
        Self { id_max: database.id_max(), width: database.width() }
    }

    /// Returns why the database cannot have a record, or `None` if it can.
    pub(crate) fn refusal(&self, key: &[u8], value: &[u8]) -> Option<String> {
        let shown = || quoted(key);
        let is_number = !key.is_empty() && key.iter().all(u8::is_ascii_digit);
        if RELATIVE.contains(&key) {
            return Some(format!("the key {} is not the id of one record", shown()));
        }
        if !is_number {
            return Some(format!("the key {} is not an id", shown()));
        }
        // A number of more digits is too great.
        let id = std::str::from_utf8(key).ok().and_then(|text| text.parse().ok());
        let id = id.unwrap_or(u64::MAX);
        if !(1..=self.id_max).contains(&id) {
            return Some(format!("the key {} is not an id from 1 to {}", shown(), self.id_max));
        }
        if key.starts_with(b"0") {
            return Some(format!("the key {} would become the id {id}", shown()));
        }
        if value.len() as u64 > self.width {
            return Some(format!(
                "the value of the key {} has {} bytes, and the width is {}",
                shown(),
                value.len(),
                self.width
            ));
        }
        None
    }

    /// Describes the records that the database takes.
    pub(crate) fn describe(&self) -> String {
        let (id_max, width) = (self.id_max, counted(self.width, "byte", "bytes"));
        format!(
            "a fixed-length database takes keys that are ids, decimal numbers from 1 to {id_max} \
             without leading zeros, and values of at most {width}; a hash database (.tch) takes \
             any key"
        )
    }
}

/// Records that were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) count: u64,
}

impl Refused {
    /// Counts a record, and passes the first ones to `print`.
    pub(crate) fn note(&mut self, place: &str, reason: &str, print: impl FnOnce(&str)) {
        self.count += 1;
        if self.count <= NAMED_MAX {
            print(&format!("{place}: {reason}"));
        } else if self.count == NAMED_MAX + 1 {
            print("further records that cannot be imported are only counted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_has_one_form_and_nothing_else_is_one() {
        let limits = IdLimits { id_max: 1000, width: 3 };
        for (key, value, is_taken) in [
            ("1", "", true),
            ("7", "abc", true),
            ("1000", "", true),
            ("7", "abcd", false),
            ("1001", "", false),
            ("0", "", false),
            ("007", "", false),
            ("00", "", false),
            ("k1", "", false),
            ("1k", "", false),
            ("+1", "", false),
            ("-1", "", false),
            (" 1", "", false),
            ("1.0", "", false),
            ("", "", false),
            ("min", "", false),
            ("max", "", false),
            ("prev", "", false),
            ("next", "", false),
            ("99999999999999999999999", "", false),
            ("\u{661}", "", false),
        ] {
            let refusal = limits.refusal(key.as_bytes(), value.as_bytes());
            assert_eq!(refusal.is_none(), is_taken, "{key}: {refusal:?}");
        }
        assert!(limits.refusal(b"007", b"").is_some_and(|reason| reason.contains("the id 7")));
    }

    #[test]
    fn the_first_refused_records_are_named() {
        let mut refused = Refused::default();
        let mut lines = Vec::new();
        for number in 0..NAMED_MAX + 5 {
            refused.note("f", &number.to_string(), |line| lines.push(line.to_owned()));
        }
        assert_eq!(refused.count, NAMED_MAX + 5);
        assert_eq!(lines.len() as u64, NAMED_MAX + 1);
        assert_eq!(lines[0], "f: 0");
    }
}
