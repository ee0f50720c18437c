//! POSIX extended regular expressions on bytes, over the `regex` crate.

use crate::{Error, Result};
use regex::bytes::{Regex, RegexBuilder};

/// Most memory a compiled pattern may take, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Compiles a pattern of the original's: extended syntax, a leading `*` ignores case.
pub(crate) fn compile(pattern: &[u8]) -> Result<Regex> {
    let (pattern, ignore_case) = match pattern.strip_prefix(b"*") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let pattern = std::str::from_utf8(pattern)
        .map_err(|_| Error::BadPattern("it is not UTF-8".into()))?;
    RegexBuilder::new(pattern)
        .case_insensitive(ignore_case)
        .dot_matches_new_line(true)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| Error::BadPattern(error.to_string()))
}
