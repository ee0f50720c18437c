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

/// Returns the words of a line before its last one as they are written, and where the last one
/// begins. It is empty after a blank.
pub(super) fn before_last(line: &str) -> (Vec<&str>, usize) {
    let (mut words, mut start) = (Vec::new(), 0);
    let (mut quote, mut is_escaped) = (None, false);
    for (place, character) in line.char_indices() {
        match (quote, character) {
            _ if is_escaped => is_escaped = false,
            (None | Some('"'), '\\') => is_escaped = true,
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (None, blank) if blank.is_ascii_whitespace() => {
                if place > start {
                    words.push(&line[start..place]);
                }
                start = place + 1;
            }
            _ => {}
        }
    }
    (words, start)
}

/// Returns bytes as a word that [`split`] reads.
pub(super) fn quoted(bytes: &[u8]) -> String {
    let mut word = String::new();
    for character in bytes::escaped(bytes).chars() {
        if matches!(character, ' ' | '"' | '\'') || (character == '#' && word.is_empty()) {
            word.push('\\');
        }
        word.push(character);
    }
    if word.is_empty() { "''".to_owned() } else { word }
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
    use super::{before_last, quoted, split};
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
    fn a_quoted_word_is_read_as_its_bytes() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&all[..], b"", b"#a", b"a#b c", b"'\"", "\u{e4} \u{2603}".as_bytes()] {
            assert_eq!(split(quoted(bytes).as_bytes()).unwrap(), [bytes]);
        }
    }

    #[test]
    fn the_last_word_of_a_line_begins_after_the_last_blank_outside_of_quotation_marks() {
        for (line, words, start) in [
            ("", &[][..], 0),
            ("get", &[], 0),
            (" get  a", &["get"], 6),
            ("get a ", &["get", "a"], 6),
            (r"get a\ b", &["get"], 4),
            ("get 'a b' \"c d", &["get", "'a b'"], 10),
            (r#"get "a\" b" c"#, &["get", r#""a\" b""#], 12),
        ] {
            assert_eq!(before_last(line), (words.to_vec(), start), "{line}");
        }
    }

    #[test]
    fn invalid_lines_are_refused() {
        for line in ["put 'a", "put \"a", "put a\\", r"put \x4", r"put \xzz", r"put \q"] {
            assert!(split(line.as_bytes()).is_err(), "{line}");
        }
    }
}
