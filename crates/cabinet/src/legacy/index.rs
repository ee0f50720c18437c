//! Index files of a table: `X.idx.NAME.TYPE`.
//!
//! Only their names are read, since their contents can be rebuilt from the rows.

use crate::base::column_index::{IndexDescription, IndexKind};
use crate::io::directory_of;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Lists the indices of the table in a file, by column.
pub(super) fn list(path: &Path) -> io::Result<Vec<IndexDescription>> {
    let Some(name) = path.file_name() else { return Ok(Vec::new()) };
    let mut prefix = OsString::from(name);
    prefix.push(".idx.");
    let mut indices = Vec::new();
    for entry in std::fs::read_dir(directory_of(path))? {
        let name = entry?.file_name();
        indices.extend(name.as_bytes().strip_prefix(prefix.as_bytes()).and_then(parse));
    }
    indices.sort_by(|one: &IndexDescription, other| one.column.cmp(&other.column));
    Ok(indices)
}

/// Parses `NAME.TYPE`. `None` if there is no type or an unknown one.
fn parse(rest: &[u8]) -> Option<IndexDescription> {
    let dot = rest.iter().rposition(|byte| *byte == b'.')?;
    let kind = match &rest[dot + 1..] {
        b"lex" => IndexKind::Lexical,
        b"dec" => IndexKind::Decimal,
        b"tok" => IndexKind::Token,
        b"qgr" => IndexKind::Gram,
        _ => return None,
    };
    Some(IndexDescription { column: unescape(&rest[..dot]), kind })
}

/// Decodes bytes of which some are written as `%` and two hexadecimal digits.
fn unescape(mut text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = Vec::with_capacity(text.len());
    while let [first, rest @ ..] = text {
        text = rest;
        let escaped = match rest {
            [high, low, behind @ ..] if *first == b'%' => {
                digit(*high).zip(digit(*low)).map(|(high, low)| ((high << 4 | low) as u8, behind))
            }
            _ => None,
        };
        match escaped {
            Some((byte, behind)) => {
                bytes.push(byte);
                text = behind;
            }
            None => bytes.push(*first),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_columns_are_unescaped() {
        for (escaped, name) in [
            ("", ""),
            ("age", "age"),
            ("odd%20col%2F%25", "odd col/%"),
            ("%e6%9d%b1", "東"),
            ("100%", "100%"),
            ("%4", "%4"),
            ("%zz", "%zz"),
        ] {
            assert_eq!(unescape(escaped.as_bytes()), name.as_bytes(), "{escaped}");
        }
    }

    #[test]
    fn only_names_with_a_known_type_are_indices() {
        let parsed = |text: &str| parse(text.as_bytes());
        assert_eq!(parsed(".lex").unwrap().column, b"");
        let dotted = parsed("a.b.dec").unwrap();
        assert_eq!((&dotted.column[..], dotted.kind), (&b"a.b"[..], IndexKind::Decimal));
        assert_eq!(parsed("a.lex.wal"), None);
        assert_eq!(parsed("lex"), None);
    }
}
