//! Words of a line in the shell.
//!
//! Words are separated by blanks. Quotation marks keep blanks: nothing is special within `'`, and
//! within `"` and outside, a backslash begins an escape. The escapes are those that lists print, so
//! that a listed key can be typed as it is shown. A `#` before a word begins a comment.

use crate::bytes;
use anyhow::{Context, Result, bail};

/// Splits a line into words.
pub(in crate::commands) fn split(line: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut rest = line.iter().copied();
    while let Some(byte) = rest.next() {
        match (quote, byte) {
            (Some(open), byte) if byte == open => quote = None,
            (None | Some(b'"'), b'\\') => {
                word.get_or_insert_default().push(escaped(&mut rest)?);
            }
            (Some(_), byte) => word.get_or_insert_default().push(byte),
            (None, b'\'' | b'"') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (None, b'#') if word.is_none() => break,
            (None, byte) if byte.is_ascii_whitespace() => words.extend(word.take()),
            (None, byte) => word.get_or_insert_default().push(byte),
        }
    }
    if let Some(quote) = quote {
        bail!("the quotation mark {} is not closed", char::from(quote));
    }
    words.extend(word);
    Ok(words)
}

/// Returns the byte of an escape after its backslash.
fn escaped(rest: &mut impl Iterator<Item = u8>) -> Result<u8> {
    let kind = rest.next().context("a backslash ends the line")?;
    Ok(match bytes::unescaped(kind, rest) {
        Some(byte) => byte,
        None if kind == b'x' => bail!(r"two hexadecimal digits must follow \x"),
        None if kind.is_ascii_alphanumeric() => {
            bail!(r"unknown escape \{}: valid are \t \n \r \0 \xHH", char::from(kind))
        }
        None => kind,
    })
}

#[cfg(test)]
mod tests {
    use super::split;
    use crate::bytes;

    fn words(line: &str) -> Vec<String> {
        let words = split(line.as_bytes()).unwrap();
        words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn quotation_marks_and_escapes_keep_bytes_together() {
        for (line, expected) in [
            ("get a", &["get", "a"][..]),
            ("  get \t a  ", &["get", "a"]),
            ("", &[]),
            ("# comment", &[]),
            ("get a#b # c", &["get", "a#b"]),
            ("put 'a b' \"c d\"", &["put", "a b", "c d"]),
            (r#"put a'b c'd "e\"f" '\'"#, &["put", "ab cd", "e\"f", "\\"]),
            (r"put a\ b \t\n\x41\\", &["put", "a b", "\t\nA\\"]),
            ("put a ''", &["put", "a", ""]),
        ] {
            assert_eq!(words(line), expected, "{line}");
        }
    }

    #[test]
    fn a_listed_key_is_read_as_it_is_shown() {
        let all: Vec<u8> = (0..=255).collect();
        let shown = bytes::escaped(&all).replace(['"', '\'', ' ', '#'], "");
        let kept: Vec<u8> =
            all.into_iter().filter(|byte| !matches!(byte, b'"' | b'\'' | b' ' | b'#')).collect();
        assert_eq!(split(shown.as_bytes()).unwrap(), [kept]);
    }

    #[test]
    fn invalid_lines_are_refused() {
        for line in ["put 'a", "put \"a", "put a\\", r"put \x4", r"put \xzz", r"put \q"] {
            assert!(split(line.as_bytes()).is_err(), "{line}");
        }
    }
}
