//! Errors of values on the command line and in the environment.

use crate::settings;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use std::error::Error as _;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};

/// Adds to an error about a value the variable that it is about, if the command line has no such
/// option, and a value that would be right; and says what a number or a switch has to be.
pub(super) fn explain(mut error: Error, command: &clap::Command, words: &[OsString]) -> Error {
    if !matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) {
        return error;
    }
    let example = add_place_and_example(&mut error, command, words);
    let shown = [ContextKind::InvalidValue, ContextKind::InvalidArg].map(|kind| error.get(kind));
    let [Some(ContextValue::String(value)), Some(ContextValue::String(place))] = shown else {
        return error;
    };
    let Some(requirement) = error.source().and_then(requirement) else { return error };
    let tip = example.map_or_else(String::new, |example| format!("\n\n  tip: {example}"));
    let message = format!(
        "invalid value '{value}' for '{place}': {requirement}{tip}\n\n\
         For more information, try '--help'.\n"
    );
    Error::raw(error.kind(), message)
}

/// Adds the variable and the example. Returns the example.
fn add_place_and_example(
    error: &mut Error,
    command: &clap::Command,
    words: &[OsString],
) -> Option<String> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let name = shown.strip_prefix("--")?.split([' ', '=', '[']).next()?.to_owned();
    let invoked = command.find_subcommand(words.get(1)?)?;
    let option = invoked.get_arguments().find(|option| option.get_long() == Some(&name))?;
    let aliases = option.get_all_aliases().unwrap_or_default();
    let is_given = words.iter().filter_map(|word| word.to_str()?.strip_prefix("--")).any(|word| {
        let word = word.split('=').next().unwrap_or_default();
        word == name || aliases.contains(&word)
    });
    let variable = option.get_env().filter(|_| !is_given).map(|name| name.to_string_lossy());
    if let Some(variable) = &variable {
        let place = format!("{variable} of the environment");
        error.insert(ContextKind::InvalidArg, ContextValue::String(place));
    }
    let example = settings::example(&name)?;
    let example = match variable {
        Some(variable) => format!("for example {variable}={example}"),
        None if option.is_require_equals_set() => format!("for example --{name}={example}"),
        None => format!("for example --{name} {example}"),
    };
    let tips = vec![StyledStr::from(&example)];
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    Some(example)
}

/// Returns what is required in place of a value that the parser's own checks refuse.
fn requirement(source: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(error) = source.downcast_ref::<ParseIntError>() {
        let requirement = match error.kind() {
            IntErrorKind::PosOverflow => "a smaller number is required",
            IntErrorKind::NegOverflow => "a larger number is required",
            _ => "a whole number is required",
        };
        return Some(requirement.to_owned());
    }
    let reason = source.to_string();
    if reason == "value was not a boolean" {
        return Some("true or false is required".to_owned());
    }
    let (least, most) = reason.split_once(" is not in ")?.1.split_once("..")?;
    Some(match most.strip_prefix('=') {
        Some(most) => format!("a number from {least} to {most} is required"),
        None => format!("a number of at least {least} is required"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::parsed;

    #[test]
    fn a_value_that_is_no_number_or_switch_is_told_what_is_required() {
        let rows = [
            ("tyrant list --max x", "'x' for '--max <N>': a whole number is required\n"),
            ("tyrant list --max ", "'' for '--max <N>': a whole number is required\n"),
            ("tyrant list --max 99999999999999999999", "a smaller number is required\n"),
            ("tyrant incr a x", "'x' for '[N]': a whole number is required\n"),
            ("tyrant backup prune --keep 0 r", "'0' for '--keep <N>': a number of at least 1 is"),
            (
                "tyrant serve --webdav=maybe",
                ": true or false is required\n\n  tip: for example --webdav=",
            ),
            (
                "tyrant serve --server-id 70000",
                ": a number from 1 to 65535, or 0 for none, is required\n\n  tip: for example \
                 --server-id 1\n",
            ),
            ("tyrant serve --idle-timeout x", "tip: for example --idle-timeout 300\n"),
            ("tyrant serve --webdav=x", "tip: for example --webdav=true\n"),
            (
                "tyrant serve --users ",
                "a path is required; without one, leave it out\n\n  tip: for ",
            ),
            ("tyrant serve --run-as ", ": a text is required"),
            ("tyrant serve ", "'' for '[DB]': the name of a database is required"),
            ("tyrant --port 0 ", "'' for '[DB]': the name of a database is required"),
            ("tyrant serve --host ", "'' for '--host <ADDRESS>': an address is required"),
            ("tyrant serve --host localhost:31001", "give localhost as host, and 31001 as"),
            ("tyrant copy ", "a value is required for '<PATH>'"),
            ("tyrant get a --user ", "a value is required for '--user <NAME>'"),
            ("tyrant import x.tsv --into ", "a value is required for '--into <NAME>'"),
        ];
        for (line, part) in rows {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
            assert!(error.ends_with("\n\nFor more information, try '--help'.\n"), "{error}");
        }
    }
}
