//! Lines about what a command does, on the standard output, which may be closed or full.

use parking_lot::Mutex;
use std::fmt::{self, Display};
use std::io::{self, Write};

/// Name of the standard output in errors.
pub(crate) const STANDARD_OUTPUT: &str = "the standard output";

/// First failure to print a line.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints a line about what the command does, as `println!` does, which panics if that fails.
macro_rules! say {
    ($($text:tt)*) => { $crate::say::print_line(format_args!($($text)*)) };
}

pub(crate) use say;

/// Prints a line. A command whose output is closed or full goes on to its end, and fails there.
pub(crate) fn print_line(line: fmt::Arguments<'_>) {
    if let Err(error) = writeln!(io::stdout(), "{line}") {
        FAILED.lock().get_or_insert_with(|| named(STANDARD_OUTPUT, error));
    }
}

/// Fails if a line could not be printed.
pub(crate) fn check_printed() -> io::Result<()> {
    FAILED.lock().take().map_or(Ok(()), Err)
}

/// Returns an error of writing with the name of the output.
pub(crate) fn named(output: impl Display, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {output}: {error}"))
}
