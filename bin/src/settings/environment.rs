//! Variables of the environment that begin as those of the settings, and are none: a warning, since
//! a server that overlooks a setting does not do what it should.

use super::SETTINGS;
use crate::remote::VARIABLES;
use std::collections::BTreeSet;

/// Beginning of all variables of these programs.
const PREFIX: &str = "TYRANT_";

/// Variables beside those of settings and of connections to a server.
const FURTHER: [&str; 2] = ["TYRANT_CONFIG", crate::daemon::MARK];

/// Most changes of a letter between a name and one that may be meant.
const CHANGES_MAX: usize = 3;

/// Returns a warning for each of these variables that begins as those of the programs, and is none.
pub(crate) fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut known: BTreeSet<String> = SETTINGS.iter().map(|setting| setting.variable()).collect();
    known.extend(VARIABLES.into_iter().chain(FURTHER).map(str::to_owned));
    let mut unknown: Vec<String> =
        names.filter(|name| name.starts_with(PREFIX) && !known.contains(name)).collect();
    unknown.sort();
    let warning = |name: String| {
        let like = known.iter().map(|one| (changes(one, &name), one)).min();
        let advice = match like.filter(|(changes, _)| *changes <= CHANGES_MAX) {
            Some((_, like)) => format!("did you mean {like}?"),
            None => "`tyrant config --defaults` lists the settings".to_owned(),
        };
        format!("the variable {name} is not of a setting, and has no effect: {advice}")
    };
    unknown.into_iter().map(warning).collect()
}

/// Returns the least number of letters to insert, remove or replace that makes one word of another.
fn changes(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (number, letter) in one.chars().enumerate() {
        let mut above_left = std::mem::replace(&mut row[0], number + 1);
        for (column, other) in other.iter().enumerate() {
            let replaced = above_left + usize::from(letter != *other);
            above_left = row[column + 1];
            row[column + 1] = replaced.min(above_left + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_letters_are_counted() {
        for (one, other, expected) in
            [("", "", 0), ("a", "", 1), ("", "ab", 2), ("port", "prot", 2), ("log", "logs", 1)]
        {
            assert_eq!(changes(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn a_variable_that_is_none_of_the_programs_is_named_with_the_one_that_is_meant() {
        let all = SETTINGS.iter().map(|setting| setting.variable());
        let all = all.chain(VARIABLES.into_iter().chain(FURTHER).map(str::to_owned));
        assert!(unknown_variables(all.chain(["PATH".to_owned()])).is_empty());
        let names = ["TYRANT_LOGLEVEL", "TYRANT_SOMETHING_ELSE"].map(str::to_owned);
        let warnings = unknown_variables(names.into_iter());
        let [first, second] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(first.starts_with("the variable TYRANT_LOGLEVEL is not of a setting"), "{first}");
        assert!(first.ends_with("did you mean TYRANT_LOG_LEVEL?"), "{first}");
        assert!(second.ends_with("lists the settings"), "{second}");
    }
}
