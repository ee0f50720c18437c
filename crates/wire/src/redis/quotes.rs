//! Lines of words with quotes.
//!
//! `"a b\n\x41"` is a word with escapes, `'a b'` one in which only `\'` is an escape. Quotes may
//! begin within a word, and a space or the end of the line follows them.

use super::parse::{is_space, next_word, skip_spaces};
use super::reply;

/// Appends the request of a line with quotes as an array. Returns whether its quotes are closed.
#[must_use]
pub fn unquote(line: &[u8], out: &mut Vec<u8>) -> bool {
    let (mut rest, mut words, mut strings) = (skip_spaces(line), Vec::new(), Vec::new());
    while !rest.is_empty() {
        let start = strings.len();
        let Some(left) = append_word(rest, &mut strings) else { return false };
        words.push(start..strings.len());
        rest = skip_spaces(left);
    }
    reply::array(out, words.len());
    words.into_iter().for_each(|word| reply::string(out, &strings[word]));
    true
}

/// Appends the word at the beginning of a line. Returns the rest of the line, or `None` if quotes
/// are not closed.
fn append_word<'l>(line: &'l [u8], out: &mut Vec<u8>) -> Option<&'l [u8]> {
    let mut after = line;
    let word = next_word(&mut after).unwrap_or_default();
    let plain = word.iter().position(|byte| is_quote(*byte)).unwrap_or(word.len());
    out.extend_from_slice(&word[..plain]);
    let rest = match &line[plain..] {
        [b'"', quoted @ ..] => append_escaped(quoted, out)?,
        [b'\'', quoted @ ..] => append_literal(quoted, out)?,
        _ => return Some(after),
    };
    rest.first().is_none_or(|byte| is_space(*byte)).then_some(rest)
}

/// Returns whether a byte begins quotes.
pub(super) fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'')
}

/// Appends bytes up to a double quote. Returns those after it.
fn append_escaped<'l>(mut line: &'l [u8], out: &mut Vec<u8>) -> Option<&'l [u8]> {
    loop {
        let (byte, rest) = match line {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', b'x', high, low, rest @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (digit(*high) << 4 | digit(*low), rest)
            }
            [b'\\', escaped, rest @ ..] => (escape(*escaped), rest),
            [byte, rest @ ..] => (*byte, rest),
            [] => return None,
        };
        out.push(byte);
        line = rest;
    }
}

/// Appends bytes up to a single quote. Returns those after it.
fn append_literal<'l>(mut line: &'l [u8], out: &mut Vec<u8>) -> Option<&'l [u8]> {
    loop {
        let (byte, rest) = match line {
            [b'\'', rest @ ..] => return Some(rest),
            [b'\\', b'\'', rest @ ..] => (b'\'', rest),
            [byte, rest @ ..] => (*byte, rest),
            [] => return None,
        };
        out.push(byte);
        line = rest;
    }
}

/// Returns the value of a digit in hexadecimal.
fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        letter => letter.to_ascii_lowercase().wrapping_sub(b'a').wrapping_add(10),
    }
}

/// Returns the byte that a backslash and this one stand for.
fn escape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        byte => byte,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<String> {
        let mut out = Vec::new();
        let is_closed = unquote(line.as_bytes(), &mut out);
        is_closed.then(|| String::from_utf8_lossy(&out).replace("\r\n", "|"))
    }

    #[test]
    fn quotes_join_words_and_have_escapes() {
        for (line, expected) in [
            ("a 'b c'", "*2|$1|a|$3|b c|"),
            (r#" "\x41\xg\n\"\\" ''"#, "*2|$6|Axg\n\"\\|$0||"),
            (r"'a\'b\n'", r"*1|$5|a'b\n|"),
            ("a\"b c\" \r", "*1|$4|ab c|"),
            ("\"'\" '\"'", "*2|$1|'|$1|\"|"),
        ] {
            assert_eq!(words(line).as_deref(), Some(expected), "{line}");
        }
    }

    #[test]
    fn quotes_are_closed_and_end_their_word() {
        for line in ["'a", "\"a", "a '", "'a'b", "\"a\"b", "\"a\\", r"'a\'", "''a", "\"\"''"] {
            assert_eq!(words(line), None, "{line}");
        }
    }
}
