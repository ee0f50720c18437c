//! Keys and values on the command line: as given, escaped, or in hexadecimal.

use crate::errors::wrong_command_line;
use anyhow::Result;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Parses pairs of hexadecimal digits, with or without spaces between them.
pub(crate) fn from_hex(text: &str) -> Result<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()
        .ok_or_else(|| wrong_command_line(format_args!("{text:?} is not hexadecimal")))?;
    let (pairs, []) = digits.as_chunks::<2>() else {
        let flaw = format!("{text:?} has an odd number of hexadecimal digits");
        return Err(wrong_command_line(flaw));
    };
    Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// Formats bytes as upper-case pairs separated by spaces: `66 69 72`.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(3 * bytes.len());
    for byte in bytes {
        let space = if text.is_empty() { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{space}{byte:02X}");
    }
    text
}

/// Bytes that are written as they are, of those that a terminal could take for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// None: the text is one field of a line, and can be read back.
    Nothing,
    /// Backslashes, in a text for people.
    Backslashes,
    /// Line ends and TABs, so that a text of several lines looks like one.
    Lines,
}

/// Writes bytes as text without control characters and invalid UTF-8.
///
/// With [`Kept::Nothing`] the text can be read back: backslash, TAB, line feed, carriage return and
/// NUL are `\\`, `\t`, `\n`, `\r`, `\0`, and each byte of other control characters and of
/// invalid UTF-8 is `\x` with two digits.
pub(crate) fn escape(bytes: &[u8], kept: Kept, output: &mut dyn Write) -> io::Result<()> {
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        let is_special = |c: char| c == '\\' || is_unsafe(c);
        while let Some(place) = rest.find(is_special) {
            output.write_all(&rest.as_bytes()[..place])?;
            let special = rest[place..].chars().next().map_or(1, char::len_utf8);
            let (special, after) = rest[place..].split_at(special);
            match (special, kept) {
                ("\\", Kept::Backslashes) | ("\\" | "\n" | "\t", Kept::Lines) => {
                    output.write_all(special.as_bytes())?
                }
                ("\\", _) => output.write_all(br"\\")?,
                ("\t", _) => output.write_all(br"\t")?,
                ("\n", _) => output.write_all(br"\n")?,
                ("\r", _) => output.write_all(br"\r")?,
                ("\0", _) => output.write_all(br"\0")?,
                _ => write_bytes(special.as_bytes(), output)?,
            }
            rest = after;
        }
        output.write_all(rest.as_bytes())?;
        write_bytes(chunk.invalid(), output)?;
    }
    Ok(())
}

/// Returns whether a terminal may take a character for a command, or show later ones in another
/// direction so that they look like something else.
pub(crate) fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn write_bytes(bytes: &[u8], output: &mut dyn Write) -> io::Result<()> {
    bytes.iter().try_for_each(|byte| write!(output, "\\x{byte:02x}"))
}

/// Returns bytes as [`escape`] writes them for one field.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = escape(bytes, Kept::Nothing, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns a text for people on one line.
pub(crate) fn one_line(text: &[u8]) -> String {
    let mut line = Vec::new();
    // Writing to memory cannot fail.
    let _ = escape(text, Kept::Backslashes, &mut line);
    String::from_utf8_lossy(&line).into_owned()
}

/// Returns the byte of an escape that [`escape`] writes for one field, from the byte after its
/// backslash and the bytes that follow; `None` if there is no such escape.
pub(crate) fn unescaped(kind: u8, rest: &mut impl Iterator<Item = u8>) -> Option<u8> {
    Some(match kind {
        b'\\' => b'\\',
        b't' => b'\t',
        b'n' => b'\n',
        b'r' => b'\r',
        b'0' => 0,
        b'x' => {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            (high << 4 | low) as u8
        }
        _ => return None,
    })
}

/// Returns bytes in quotation marks, for messages.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", escaped(bytes))
}

#[cfg(test)]
mod tests {
    use super::{Kept, escape, escaped, from_hex, one_line, quoted, to_hex};

    fn lines(bytes: &[u8]) -> String {
        let mut text = Vec::new();
        escape(bytes, Kept::Lines, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn no_control_character_and_no_invalid_text_is_left() {
        for (bytes, expected) in [
            (&b"plain text"[..], "plain text"),
            ("東京 é".as_bytes(), "東京 é"),
            (b"a\\b\tc\nd\re\0", r"a\\b\tc\nd\re\0"),
            (b"\x1b[2J\x07\x7f", r"\x1b[2J\x07\x7f"),
            ("\u{9b}31m".as_bytes(), r"\xc2\x9b31m"),
            ("a\u{202e}b".as_bytes(), r"a\xe2\x80\xaeb"),
            (b"a\xffb\xe6\x9d", r"a\xffb\xe6\x9d"),
            (b"", ""),
        ] {
            assert_eq!(escaped(bytes), expected);
        }
        let all: Vec<u8> = (0..=255).collect();
        assert!(!escaped(&all).contains(char::is_control));
        assert_eq!(quoted(b"a\n"), r#""a\n""#);
        assert_eq!(one_line(b"a\\b\n"), r"a\b\n");
    }

    #[test]
    fn lines_of_text_keep_their_ends() {
        assert_eq!(lines(b"a\\b\n\tc\r\n\x1b\xff"), "a\\b\n\tc\\r\n\\x1b\\xff");
    }

    #[test]
    fn hexadecimal_round_trips() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&all)).unwrap(), all);
        assert_eq!(to_hex(b"\x0afi"), "0A 66 69");
        assert_eq!(from_hex("0a66 69").unwrap(), b"\x0afi");
        assert_eq!(from_hex("").unwrap(), b"");
    }

    #[test]
    fn invalid_hexadecimal_is_refused() {
        for text in ["0", "0g", "0x10", "1 2 3", "é0"] {
            from_hex(text).unwrap_err();
        }
    }
}
