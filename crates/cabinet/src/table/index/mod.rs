//! Indices: entries that lead from what is in a column to the rows that have it there.
//!
//! All entries of an index are in blocks, which are records of the table's one engine under the
//! number of the index (`docs/formats/table.md`). With a row changes, in one batch, the note from
//! which its entries would be made again after a crash; the entries follow by way of memory
//! (`super::entries`).

pub(super) mod build;
mod check;
mod decimal;
pub(super) mod gram;
pub(super) mod lexical;
pub(super) mod token;

pub(super) use decimal::prefix as decimal_prefix;

use super::entries::Changes;
use super::keys;
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Kinds with the names they are known by.
const KINDS: [(IndexKind, &[&str]); 4] = [
    (IndexKind::Lexical, &["LEXICAL", "LEX", "STR"]),
    (IndexKind::Decimal, &["DECIMAL", "DEC", "NUM"]),
    (IndexKind::Token, &["TOKEN", "TOK"]),
    (IndexKind::Gram, &["QGRAM", "QGR", "FTS"]),
];

impl IndexKind {
    /// The name that Tokyo Cabinet gives it, in lower case.
    pub fn name(self) -> &'static str {
        ["lexical", "decimal", "token", "qgram"][self as usize]
    }

    pub(super) fn from_number(number: u8) -> Option<Self> {
        KINDS.get(usize::from(number)).map(|(kind, _)| *kind)
    }

    fn parse(text: &str) -> Option<Self> {
        let known = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(text));
        KINDS.iter().find(|(_, names)| known(names)).map(|(kind, _)| *kind)
    }
}

/// What is to be done about the index of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexChange {
    /// Build one, in place of any that there is.
    Set(IndexKind),
    /// Build one, and fail with [`crate::Error::IndexExists`] if there is one.
    SetNew(IndexKind),
    /// Rebuild the present one.
    Optimize,
    /// Remove it.
    Remove,
}

/// Numbers of [`IndexChange`] in Tokyo Cabinet.
const OPTIMIZE: u32 = 9998;
const REMOVE: u32 = 9999;
const KEEP: u32 = 1 << 24;

impl IndexChange {
    /// Reads Tokyo Cabinet's text: a name in either case, with `+` in front to keep an index that
    /// exists, or a number with flags. `None` if it means nothing.
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

/// An index as the table has it in memory.
#[derive(Debug)]
pub(super) struct Index {
    /// What its entries are stored under; never used twice.
    pub(super) id: u32,
    /// The column; empty is the primary key.
    pub(super) column: Vec<u8>,
    pub(super) kind: IndexKind,
    /// Whether all rows have their entries. Before that only writers know it.
    pub(super) is_ready: AtomicBool,
    /// Whether it has entries of values that were too long to be in them whole.
    pub(super) has_cut_values: AtomicBool,
    /// Held for reading by queries that walk it, for writing by who removes its entries.
    pub(super) in_use: RwLock<()>,
}

impl Index {
    pub(super) fn new(id: u32, column: &[u8], kind: IndexKind, is_ready: bool) -> Self {
        Self {
            id,
            column: column.to_vec(),
            kind,
            is_ready: AtomicBool::new(is_ready),
            has_cut_values: AtomicBool::new(false),
            in_use: RwLock::new(()),
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Whether the rows themselves, being in the order of primary keys, are this index.
    pub(super) fn is_rows(&self) -> bool {
        self.kind == IndexKind::Lexical && self.column.is_empty()
    }

    /// What the keys of its entries begin with.
    pub(super) fn prefix(&self) -> Vec<u8> {
        if self.is_rows() { vec![keys::ROWS] } else { keys::entries(self.id) }
    }

    /// Puts the entries of a row with this value in the column; says whether the value is in them
    /// whole.
    pub(super) fn put_entries(&self, primary: &[u8], value: &[u8], entries: &mut Changes) -> bool {
        match self.kind {
            _ if self.is_rows() => {}
            IndexKind::Lexical => return lexical::put(self, primary, value, entries),
            IndexKind::Decimal => decimal::put(self, primary, value, entries),
            IndexKind::Token => token::put(self, primary, value, entries),
            IndexKind::Gram => gram::put(self, primary, value, entries),
        }
        true
    }
}

/// Puts an entry without a value under a prefix and the primary key.
fn put_bare(entries: &mut Changes, prefix: &[u8], primary: &[u8]) {
    let key = |bytes: &mut Vec<u8>| {
        bytes.extend_from_slice(prefix);
        bytes.extend_from_slice(primary);
    };
    entries.put(key, |_| {});
}

/// `prefix` with more behind it.
pub(super) fn key(mut prefix: Vec<u8>, parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().for_each(|part| prefix.extend_from_slice(part));
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_as_the_original_writes_them() {
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
