//! Tables: rows, indices and searches.

use crate::client::Pair;
use crate::functions::{none_if_failed, pairs};
use crate::{Client, Error, Result};
use std::io;
use wire::binary::NOT_LOGGED;

/// Names of the operators, in the order of their numbers, each with its aliases.
const OPERATORS: [&[&str]; 19] = [
    &["STREQ", "STR", "EQ"],
    &["STRINC", "INC"],
    &["STRBW", "BW"],
    &["STREW", "EW"],
    &["STRAND", "AND"],
    &["STROR", "OR"],
    &["STROREQ", "OREQ"],
    &["STRRX", "RX"],
    &["NUMEQ", "NUM", "=", "=="],
    &["NUMGT", ">"],
    &["NUMGE", ">="],
    &["NUMLT", "<"],
    &["NUMLE", "<="],
    &["NUMBT"],
    &["NUMOREQ"],
    &["FTSPH", "FTS"],
    &["FTSAND"],
    &["FTSOR"],
    &["FTSEX"],
];

/// Flags in the number of an operator: negated, without an index.
const OPERATOR_FLAGS: u64 = 1 << 24 | 1 << 25;

/// Names of the sort orders, in the order of their numbers, each with its aliases.
const SORT_ORDERS: [&[&str]; 4] =
    [&["STRASC", "STR", "ASC"], &["STRDESC", "DESC"], &["NUMASC", "NUM"], &["NUMDESC"]];

/// A search: conditions on the rows of a table, their order and number.
///
/// Operators, sort orders and numbers are the server's text: `STREQ`, `NUMGE`, `!STRINC`; `STRASC`,
/// `NUMDESC`. The column with the empty name is the key. Servers ignore a condition that they do
/// not understand, and so find too many rows. So a search with an unknown operator or sort order,
/// or with NUL in a part, is never sent: every method that takes it fails with
/// [`Error::BadSearch`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    arguments: Vec<Vec<u8>>,
    /// Description of the first invalid part.
    flaw: Option<String>,
    is_combined: bool,
}

impl Search {
    /// Creates a search for all rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the names of the operators, without their aliases.
    pub fn operators() -> impl Iterator<Item = &'static str> {
        OPERATORS.iter().map(|names| names[0])
    }

    /// Returns the names of the sort orders, without their aliases.
    pub fn sort_orders() -> impl Iterator<Item = &'static str> {
        SORT_ORDERS.iter().map(|names| names[0])
    }

    /// Adds a condition on a column. A row must meet all conditions.
    pub fn condition(mut self, column: &[u8], operator: &[u8], operand: &[u8]) -> Self {
        if !is_operator(operator) {
            self.note(format!("unknown operator \"{}\"", operator.escape_ascii()));
        }
        self.with(&[b"addcond", column, operator, operand])
    }

    /// Sorts the rows by a column.
    pub fn order_by(mut self, column: &[u8], kind: &[u8]) -> Self {
        if number_of(&SORT_ORDERS, kind).is_none() {
            self.note(format!("unknown sort order \"{}\"", kind.escape_ascii()));
        }
        self.with(&[b"setorder", column, kind])
    }

    /// Limits the result to `max` rows (`None`: all) after the first `skip`.
    pub fn limit(self, max: Option<u64>, skip: u64) -> Self {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX).to_string();
        let max = max.map_or("-1".to_owned(), number);
        self.with(&[b"setlimit", max.as_bytes(), number(skip).as_bytes()])
    }

    /// Combines the rows of another search with those of this one. Sort order and limit are those
    /// of this search. If several searches are combined, the last operation applies to all.
    pub fn combine(self, operation: SetOperation, other: Search) -> Self {
        let mut both = self.with(&[b"next"]);
        both.arguments.extend(other.arguments);
        both.is_combined = true;
        if let Some(flaw) = other.flaw {
            both.note(flaw);
        }
        both.with(&[b"mstype", operation.name()])
    }

    fn note(&mut self, flaw: String) {
        self.flaw.get_or_insert(flaw);
    }

    fn with(mut self, words: &[&[u8]]) -> Self {
        if let Some(word) = words.iter().find(|word| word.contains(&0)) {
            self.note(format!("the search contains NUL: \"{}\"", word.escape_ascii()));
        }
        self.arguments.push(words.join(&0));
        self
    }

    /// Returns the arguments of the function, if all parts are valid.
    fn arguments(&self) -> Result<&[Vec<u8>]> {
        match &self.flaw {
            None => Ok(&self.arguments),
            Some(flaw) => Err(Error::BadSearch(flaw.clone())),
        }
    }
}

/// Parses a name of `names`, or a number, into a number.
fn number_of(names: &[&[&str]], text: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(text).ok()?;
    let is_known = |names: &&[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(text));
    names.iter().position(is_known).or_else(|| {
        let number = text.parse().ok()?;
        (number < names.len()).then_some(number)
    })
}

/// Returns whether servers know an operator. A leading `~` or `!` negates it; a `+` after that
/// avoids indices.
fn is_operator(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"~").or_else(|| text.strip_prefix(b"!")).unwrap_or(text);
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let number = || std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    number_of(&OPERATORS, text).is_some()
        || number().is_some_and(|number| number & !OPERATOR_FLAGS < OPERATORS.len() as u64)
}

/// Set operation that combines several searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    /// Rows of any search.
    Union,
    /// Rows of all searches.
    Intersection,
    /// Rows of the first search and of no other.
    Difference,
}

impl SetOperation {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Union => b"UNION",
            Self::Intersection => b"INTERSECTION",
            Self::Difference => b"DIFFERENCE",
        }
    }
}

/// A row with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: Vec<u8>,
    /// Names and values of the columns.
    pub columns: Vec<Pair>,
}

impl Client {
    /// Stores a row of columns, or replaces it. An empty key is replaced by a new id. Fails on a
    /// server whose database is not a table. (Tokyo Tyrant stores the name of the first column as a
    /// value there; [`Client::stat`] returns the type of its database.)
    pub fn put_row<C: AsRef<[u8]>>(&self, key: &[u8], columns: &[(C, C)]) -> Result<()> {
        self.misc(b"put", 0, &row(key, columns)).map(drop)
    }

    /// Stores a row if the key is new. Returns whether it was stored; any other failure returns
    /// `false` too.
    pub fn put_row_keep<C: AsRef<[u8]>>(&self, key: &[u8], columns: &[(C, C)]) -> Result<bool> {
        Ok(none_if_failed(self.misc(b"putkeep", 0, &row(key, columns)))?.is_some())
    }

    /// Adds the columns that a row lacks, or creates the row.
    pub fn put_row_cat<C: AsRef<[u8]>>(&self, key: &[u8], columns: &[(C, C)]) -> Result<()> {
        self.misc(b"putcat", 0, &row(key, columns)).map(drop)
    }

    /// Returns the names and values of a row's columns. Fails with [`Error::Receive`] if the record
    /// is not a row.
    pub fn get_row(&self, key: &[u8]) -> Result<Option<Vec<Pair>>> {
        match none_if_failed(self.misc(b"get", NOT_LOGGED, &[key]))? {
            Some(elements) if elements.len() % 2 == 1 => Err(Error::Receive(io::Error::new(
                io::ErrorKind::InvalidData,
                "the record is not a row of a table",
            ))),
            elements => Ok(elements.map(pairs)),
        }
    }

    /// Builds an index on a column, or removes it. `kind` is the server's text: `LEX`, `DEC`,
    /// `TOK`, `QGR`, `OPT` to rebuild it, `VOID` to remove it. With a leading `+` an existing index
    /// is a failure.
    pub fn set_index(&self, column: &[u8], kind: &[u8]) -> Result<()> {
        self.misc(b"setindex", 0, &[column, kind]).map(drop)
    }

    /// Returns a number that was not returned before.
    pub fn generate_uid(&self) -> Result<u64> {
        number(&self.misc::<&[u8]>(b"genuid", 0, &[])?)
    }

    /// Returns the keys of the rows found.
    pub fn search(&self, search: &Search) -> Result<Vec<Vec<u8>>> {
        self.misc(b"search", NOT_LOGGED, search.arguments()?)
    }

    /// Returns the rows found, with these columns, or with all if `columns` is empty. Tokyo Tyrant
    /// does not tell a value with NUL in it from several columns.
    pub fn search_rows<C: AsRef<[u8]>>(&self, search: &Search, columns: &[C]) -> Result<Vec<Row>> {
        let mut words: Vec<&[u8]> = vec![b"get"];
        if !columns.is_empty() {
            // The key.
            words.push(b"");
        }
        words.extend(columns.iter().map(AsRef::as_ref));
        let search = search.clone().with(&words).with(&[b"sized"]);
        let rows = self.misc(b"search", NOT_LOGGED, search.arguments()?)?;
        rows.iter().map(|row| parse(row)).collect()
    }

    /// Returns the number of rows found.
    pub fn search_count(&self, search: &Search) -> Result<u64> {
        let search = search.clone().with(&[b"count"]);
        number(&self.misc(b"search", NOT_LOGGED, search.arguments()?)?)
    }

    /// Removes the rows found and returns their number. Fails on combined searches, of which
    /// servers would remove the rows of the last one.
    pub fn search_out(&self, search: &Search) -> Result<u64> {
        if search.is_combined {
            let what = "combined searches cannot remove rows; run one search at a time";
            return Err(Error::BadSearch(what.into()));
        }
        let search = search.clone().with(&[b"out"]).with(&[b"count"]);
        number(&self.misc(b"search", 0, search.arguments()?)?)
    }

    /// Returns how the server executes the search, one step per line. The server runs the search
    /// for it.
    pub fn search_hint(&self, search: &Search) -> Result<Vec<u8>> {
        let search = search.clone().with(&[b"count"]).with(&[b"hint"]);
        let elements = self.misc(b"search", NOT_LOGGED, search.arguments()?)?;
        let hint = elements.last().and_then(|last| last.strip_prefix(HINT_MARK));
        Ok(hint.ok_or(Error::Miscellaneous)?.to_vec())
    }
}

/// Bytes before the hint.
const HINT_MARK: &[u8] = b"\0\0[[HINT]]\n";

/// Returns a row as the functions take it: the key, then names and values.
fn row<'a, C: AsRef<[u8]>>(key: &'a [u8], columns: &'a [(C, C)]) -> Vec<&'a [u8]> {
    let columns = columns.iter().flat_map(|(name, value)| [name.as_ref(), value.as_ref()]);
    std::iter::once(key).chain(columns).collect()
}

/// Parses the single number of a response.
fn number(elements: &[Vec<u8>]) -> Result<u64> {
    let text = elements.first().and_then(|text| std::str::from_utf8(text).ok());
    text.and_then(|text| text.parse().ok()).ok_or(Error::Miscellaneous)
}

/// Bytes before a row with the sizes of its parts.
const SIZED_MARK: &[u8] = b"\0\0[[ROW]]\n";

/// Parses names and values joined by NUL, or with their sizes. The first is the key if its name is
/// empty.
fn parse(row: &[u8]) -> Result<Row> {
    let parts = match row.strip_prefix(SIZED_MARK) {
        Some(sized) => sized_parts(sized).ok_or_else(|| {
            let what = "a row of a search has a size beyond its end";
            Error::Receive(io::Error::new(io::ErrorKind::InvalidData, what))
        })?,
        None => row.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect(),
    };
    let mut columns = pairs(parts);
    let key = match columns.first() {
        Some((name, _)) if name.is_empty() => columns.remove(0).1,
        _ => Vec::new(),
    };
    Ok(Row { key, columns })
}

/// Returns parts that follow their sizes, of 4 bytes each in network byte order.
fn sized_parts(mut sized: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    while !sized.is_empty() {
        let (size, rest) = sized.split_first_chunk()?;
        let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*size) as usize)?;
        parts.push(part.to_vec());
        sized = rest;
    }
    Some(parts)
}
