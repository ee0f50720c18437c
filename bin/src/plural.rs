//! Words for one thing and for many.

use std::fmt;

/// Returns the word for this number of things.
pub(crate) fn unit<'w, N: PartialEq + From<u8>>(count: N, one: &'w str, many: &'w str) -> &'w str {
    if count == N::from(1) { one } else { many }
}

/// Returns a number and the word for that many things.
pub(crate) fn counted<N>(count: N, one: &str, many: &str) -> String
where
    N: Copy + PartialEq + From<u8> + fmt::Display,
{
    format!("{count} {}", unit(count, one, many))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_has_the_singular() {
        let records = |count: u64| counted(count, "record is", "records are");
        assert_eq!([0, 1, 2].map(records), ["0 records are", "1 record is", "2 records are"]);
        assert_eq!(unit(1.0, "record", "records"), "record");
    }
}
