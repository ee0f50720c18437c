//! Variables of the environment that begin as those of the settings, and are none: a warning, since
//! a server that overlooks a setting does not do what it should.

use super::SETTINGS;
use crate::errors::nearest;
use crate::remote::VARIABLES;
use std::collections::BTreeSet;

/// Beginning of all variables of these programs.
const PREFIX: &str = "TYRANT_";

/// Variables beside those of settings and of connections to a server.
const FURTHER: [&str; 2] = ["TYRANT_CONFIG", crate::daemon::MARK];

/// Returns a warning for each of these variables that begins as those of the programs, and is none.
pub(crate) fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut known: BTreeSet<String> = SETTINGS.iter().map(|setting| setting.variable()).collect();
    known.extend(VARIABLES.into_iter().chain(FURTHER).map(str::to_owned));
    let mut unknown: Vec<String> =
        names.filter(|name| name.starts_with(PREFIX) && !known.contains(name)).collect();
    unknown.sort();
    let warning = |name: String| {
        let advice = match nearest(&name, known.iter().map(String::as_str)) {
            Some(like) => format!("did you mean {like}?"),
            None => "`tyrant config --defaults` lists the settings".to_owned(),
        };
        format!("the variable {name} is not of a setting, and has no effect: {advice}")
    };
    unknown.into_iter().map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
