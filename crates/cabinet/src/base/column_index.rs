//! Indices of columns, as names, options and requests describe them.

/// Index of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDescription {
    /// Name of the column; empty is the primary key.
    pub column: Vec<u8>,
    /// How the column is indexed.
    pub kind: IndexKind,
}

/// How a column is indexed. The numbers are Tokyo Cabinet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum IndexKind {
    /// By the bytes of the value.
    Lexical = 0,
    /// By the value as a number.
    Decimal = 1,
    /// By each of the tokens of the value.
    Token = 2,
    /// By every three characters of the normalised text, for search in full text.
    Gram = 3,
}

/// Kinds with their names.
const KINDS: [(IndexKind, &[&str]); 4] = [
    (IndexKind::Lexical, &["LEXICAL", "LEX", "STR"]),
    (IndexKind::Decimal, &["DECIMAL", "DEC", "NUM"]),
    (IndexKind::Token, &["TOKEN", "TOK"]),
    (IndexKind::Gram, &["QGRAM", "QGR", "FTS"]),
];

impl IndexKind {
    /// Returns Tokyo Cabinet's name for the kind, in lower case.
    pub fn name(self) -> &'static str {
        ["lexical", "decimal", "token", "qgram"][self as usize]
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        KINDS.get(usize::from(number)).map(|(kind, _)| *kind)
    }

    fn parse(text: &str) -> Option<Self> {
        let known = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(text));
        KINDS.iter().find(|(_, names)| known(names)).map(|(kind, _)| *kind)
    }
}

/// Change of the index of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexChange {
    /// Build an index, in place of any existing one.
    Set(IndexKind),
    /// Build an index, and fail with [`crate::Error::IndexExists`] if there is one.
    SetNew(IndexKind),
    /// Rebuild the existing index.
    Optimize,
    /// Remove the index.
    Remove,
}

/// Numbers of [`IndexChange`] in Tokyo Cabinet.
const OPTIMIZE: u32 = 9998;
const REMOVE: u32 = 9999;
const KEEP: u32 = 1 << 24;

impl IndexChange {
    /// Parses Tokyo Cabinet's text: a name in either case, with `+` in front to keep an index that
    /// exists, or a number with flags. Returns `None` if it is neither.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let is_kept = text.starts_with('+');
        let text = text.strip_prefix('+').unwrap_or(text);
        let is_named = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(text));
        if is_named(&["OPTIMIZE", "OPT"]) {
            return Some(Self::Optimize);
        }
        if is_named(&["VOID", "NULL"]) {
            return Some(Self::Remove);
        }
        let (kind, is_kept) = match IndexKind::parse(text) {
            Some(kind) => (kind, is_kept),
            None => {
                let number = text.parse::<u32>().ok()?;
                match number & !KEEP {
                    OPTIMIZE => return Some(Self::Optimize),
                    REMOVE => return Some(Self::Remove),
                    kind => {
                        let kind = IndexKind::from_number(u8::try_from(kind).ok()?)?;
                        (kind, is_kept || number & KEEP != 0)
                    }
                }
            }
        };
        Some(if is_kept { Self::SetNew(kind) } else { Self::Set(kind) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_parsed_as_tokyo_cabinet_writes_them() {
        use IndexChange::{Optimize, Remove, Set, SetNew};
        use IndexKind::{Decimal, Gram, Lexical, Token};
        for (text, change) in [
            ("LEX", Some(Set(Lexical))),
            ("str", Some(Set(Lexical))),
            ("0", Some(Set(Lexical))),
            ("1", Some(Set(Decimal))),
            ("+decimal", Some(SetNew(Decimal))),
            ("16777217", Some(SetNew(Decimal))),
            ("Token", Some(Set(Token))),
            ("FTS", Some(Set(Gram))),
            ("9998", Some(Optimize)),
            ("opt", Some(Optimize)),
            ("9999", Some(Remove)),
            ("NULL", Some(Remove)),
            ("4", None),
            ("256", None),
            ("zzz", None),
            ("", None),
            ("-1", None),
        ] {
            assert_eq!(IndexChange::parse(text.as_bytes()), change, "{text}");
        }
    }
}
