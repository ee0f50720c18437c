//! Errors of values on the command line and in the environment.

use crate::settings;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use std::ffi::OsString;

/// Adds to an error the variable that it is about, if the command line has no such option, and a
/// value that would be right.
pub(super) fn explain(mut error: Error, command: &clap::Command, words: &[OsString]) -> Error {
    if !matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) {
        return error;
    }
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let Some(name) = shown.strip_prefix("--") else { return error };
    let name = name.split([' ', '=', '[']).next().unwrap_or_default().to_owned();
    let invoked = words.get(1).and_then(|word| command.find_subcommand(word));
    let option = invoked.and_then(|command| {
        command.get_arguments().find(|option| option.get_long() == Some(&name))
    });
    let Some(option) = option else { return error };
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
    if let Some(example) = settings::example(&name) {
        let example = match variable {
            Some(variable) => format!("for example {variable}={example}"),
            None => format!("for example --{name} {example}"),
        };
        let tips = vec![StyledStr::from(example)];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}
