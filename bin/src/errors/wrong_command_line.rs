//! Errors of command lines and environments that are wrong by themselves, whatever the machine, the
//! server and the files are. They have an exit code of their own.

use anyhow::{Error, Result};
use cabinet::name::NameError;
use std::fmt;

/// Error of a wrong command line: options that exclude or require each other, or a value that no
/// option of that name may have. Nothing was done.
#[derive(Debug)]
struct WrongCommandLine(String);

impl fmt::Display for WrongCommandLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for WrongCommandLine {}

/// Returns the error of a wrong command line or variable of the environment.
pub(crate) fn wrong_command_line(text: impl fmt::Display) -> Error {
    WrongCommandLine(text.to_string()).into()
}

/// Fails as a wrong command line unless a condition holds.
pub(crate) fn require(holds: bool, text: impl fmt::Display) -> Result<()> {
    if holds { Ok(()) } else { Err(wrong_command_line(text)) }
}

/// Returns the error of a name that is to be that of a database on disk, without the names of those
/// in memory.
pub(crate) fn name_on_disk(error: Error) -> Error {
    match error.downcast_ref() {
        Some(name @ NameError::UnknownKind(_)) => {
            wrong_command_line(name.to_string().replace(": it is *, +, or ends in", ": it ends in"))
        }
        _ => error,
    }
}

/// Returns whether the error is one of a wrong command line. The names of databases that commands
/// open are on their command lines.
pub(crate) fn is_wrong_command_line(error: &Error) -> bool {
    error.is::<WrongCommandLine>()
        || error.is::<NameError>()
        || matches!(error.downcast_ref(), Some(cabinet::Error::Name(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use cabinet::name::Specification;

    #[test]
    fn the_error_of_a_wrong_command_line_remains_one_with_a_context() {
        let wrong = wrong_command_line("--all takes a single key");
        assert_eq!(wrong.to_string(), "--all takes a single key");
        assert!(is_wrong_command_line(&wrong.context("get")));
        let name = Error::from(Specification::parse("nameless").map(drop).expect_err("an error"));
        assert!(is_wrong_command_line(&name.context("cannot open")));
        assert!(!is_wrong_command_line(&anyhow!("no record")));
    }
}
