//! Rows of a table, its indices and searches.

use crate::client::Pair;
use crate::functions::{UNLOGGED, found, pairs};
use crate::{Client, Error, Result};
use std::io;

/// Names of the operators, in the order of their numbers, and others that they are known by.
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

/// Names of the kinds of order, likewise.
const ORDERS: [&[&str]; 4] =
    [&["STRASC", "STR", "ASC"], &["STRDESC", "DESC"], &["NUMASC", "NUM"], &["NUMDESC"]];

/// Which rows of a table are meant, in which order, and how many.
///
/// Operators, kinds of order and numbers are the server's text: `STREQ`, `NUMGE`, `!STRINC`;
/// `STRASC`, `NUMDESC`. The column with the empty name is the key. Servers leave out a condition
/// that they do not understand, and find more than was meant. So a search with an unknown operator
/// or kind of order, or with NUL in one of its parts, is never sent: whatever it is given to fails
/// with [`Error::BadSearch`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    arguments: Vec<Vec<u8>>,
    /// The first part that means nothing.
    flaw: Option<String>,
    is_combined: bool,
}

impl Search {
    /// All rows.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only rows whose column is as the operator has it. All conditions have to hold.
    #[must_use]
    pub fn condition(mut self, column: &[u8], operator: &[u8], operand: &[u8]) -> Self {
        if !is_operator(operator) {
            self.note(format!("there is no operator \"{}\"", operator.escape_ascii()));
        }
        self.with(&[b"addcond", column, operator, operand])
    }

    /// Orders the rows by a column.
    #[must_use]
    pub fn order_by(mut self, column: &[u8], kind: &[u8]) -> Self {
        if number_of(&ORDERS, kind).is_none() {
            self.note(format!("there is no order \"{}\"", kind.escape_ascii()));
        }
        self.with(&[b"setorder", column, kind])
    }

    /// At most `max` rows (`None`: all), without the first `skip`.
    #[must_use]
    pub fn limit(self, max: Option<u64>, skip: u64) -> Self {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX).to_string();
        let max = max.map_or("-1".to_owned(), number);
        self.with(&[b"setlimit", max.as_bytes(), number(skip).as_bytes()])
    }

    /// Puts the rows that another search means together with those of this one. Order and limit
    /// are this one's. Of several operations the last one counts, for all.
    #[must_use]
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
            self.note(format!("a part of the search has NUL in it: \"{}\"", word.escape_ascii()));
        }
        self.arguments.push(words.join(&0));
        self
    }

    /// The arguments of the function, if all of them mean something.
    fn arguments(&self) -> Result<&[Vec<u8>]> {
        match &self.flaw {
            None => Ok(&self.arguments),
            Some(flaw) => Err(Error::BadSearch(flaw.clone())),
        }
    }
}

/// Number of a name among these, or of a number.
fn number_of(names: &[&[&str]], text: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(text).ok()?;
    let is_known = |names: &&[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(text));
    names.iter().position(is_known).or_else(|| {
        let number = text.parse().ok()?;
        (number < names.len()).then_some(number)
    })
}

/// Whether servers know an operator: in front of it `~` or `!` negates, and then `+` uses no index.
fn is_operator(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"~").or_else(|| text.strip_prefix(b"!")).unwrap_or(text);
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let number = || std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    number_of(&OPERATORS, text).is_some()
        || number().is_some_and(|number| number & !OPERATOR_FLAGS < OPERATORS.len() as u64)
}

/// How the rows of several searches are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    /// Those of any.
    Union,
    /// Those of all.
    Intersection,
    /// Those of the first and none of the others.
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
    /// Stores a row of columns, whatever was there. An empty key is replaced by a new identifier.
    /// Fails on a server whose database is no table. (Tokyo Tyrant stores the name of the first
    /// column there: [`Client::stat`] says what its database is.)
    pub fn put_row<C: AsRef<[u8]>>(&self, key: &[u8], columns: &[(C, C)]) -> Result<()> {
        self.misc(b"put", 0, &row(key, columns)).map(drop)
    }

    /// Stores a row if there is none under the key; whether it did. A failure for another reason
    /// looks the same.
    pub fn put_row_keep<C: AsRef<[u8]>>(&self, key: &[u8], columns: &[(C, C)]) -> Result<bool> {
        Ok(found(self.misc(b"putkeep", 0, &row(key, columns)))?.is_some())
    }

    /// Adds the columns that a row lacks, and stores it if there is none.
    pub fn put_row_cat<C: AsRef<[u8]>>(&self, key: &[u8], columns: &[(C, C)]) -> Result<()> {
        self.misc(b"putcat", 0, &row(key, columns)).map(drop)
    }

    /// Names and values of the columns of a row. Fails with [`Error::Receive`] on what are none.
    pub fn get_row(&self, key: &[u8]) -> Result<Option<Vec<Pair>>> {
        match found(self.misc(b"get", UNLOGGED, &[key]))? {
            Some(elements) if elements.len() % 2 == 1 => Err(Error::Receive(io::Error::new(
                io::ErrorKind::InvalidData,
                "the record is not a row of a table",
            ))),
            elements => Ok(elements.map(pairs)),
        }
    }

    /// Builds an index on a column, or removes it. `kind` is the server's text: `LEX`, `DEC`,
    /// `TOK`, `QGR`, `OPT` to build it anew, `VOID` to remove it; with `+` in front an index that
    /// is there is a failure.
    pub fn set_index(&self, column: &[u8], kind: &[u8]) -> Result<()> {
        self.misc(b"setindex", 0, &[column, kind]).map(drop)
    }

    /// A number that was not given out before.
    pub fn generate_uid(&self) -> Result<u64> {
        number(&self.misc::<&[u8]>(b"genuid", 0, &[])?)
    }

    /// Keys of the rows that are meant.
    pub fn search(&self, search: &Search) -> Result<Vec<Vec<u8>>> {
        self.misc(b"search", UNLOGGED, search.arguments()?)
    }

    /// The rows that are meant, with these columns or (an empty list) all of them. Values that have
    /// NUL in them cannot be told apart.
    pub fn search_rows<C: AsRef<[u8]>>(&self, search: &Search, columns: &[C]) -> Result<Vec<Row>> {
        let mut words: Vec<&[u8]> = vec![b"get"];
        if !columns.is_empty() {
            // The key.
            words.push(b"");
        }
        words.extend(columns.iter().map(AsRef::as_ref));
        let asked = search.clone().with(&words);
        let rows = self.misc(b"search", UNLOGGED, asked.arguments()?)?;
        Ok(rows.iter().map(|row| parse(row)).collect())
    }

    /// How many rows are meant.
    pub fn search_count(&self, search: &Search) -> Result<u64> {
        let asked = search.clone().with(&[b"count"]);
        number(&self.misc(b"search", UNLOGGED, asked.arguments()?)?)
    }

    /// Removes the rows that are meant; answers how many there were. Fails if searches are put
    /// together: servers would remove what the last of them means.
    pub fn search_out(&self, search: &Search) -> Result<u64> {
        if search.is_combined {
            let what = "rows are removed by one search: several cannot be put together for it";
            return Err(Error::BadSearch(what.into()));
        }
        let asked = search.clone().with(&[b"out"]).with(&[b"count"]);
        number(&self.misc(b"search", 0, asked.arguments()?)?)
    }

    /// What the server does to find the rows, a line each; it finds them for that.
    pub fn search_hint(&self, search: &Search) -> Result<Vec<u8>> {
        let asked = search.clone().with(&[b"count"]).with(&[b"hint"]);
        let elements = self.misc(b"search", UNLOGGED, asked.arguments()?)?;
        let hint = elements.last().and_then(|last| last.strip_prefix(HINT_MARK));
        Ok(hint.ok_or(Error::Miscellaneous)?.to_vec())
    }
}

/// What stands in front of the hint.
const HINT_MARK: &[u8] = b"\0\0[[HINT]]\n";

/// A key with names and values, as the functions take a row.
fn row<'a, C: AsRef<[u8]>>(key: &'a [u8], columns: &'a [(C, C)]) -> Vec<&'a [u8]> {
    let columns = columns.iter().flat_map(|(name, value)| [name.as_ref(), value.as_ref()]);
    std::iter::once(key).chain(columns).collect()
}

/// The one number of an answer.
fn number(elements: &[Vec<u8>]) -> Result<u64> {
    let text = elements.first().and_then(|text| std::str::from_utf8(text).ok());
    text.and_then(|text| text.parse().ok()).ok_or(Error::Miscellaneous)
}

/// Names and values joined by NUL, of which the one with the empty name is the key.
fn parse(joined: &[u8]) -> Row {
    let parts = joined.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
    let mut columns = pairs(parts);
    let key = match columns.first() {
        Some((name, _)) if name.is_empty() => columns.remove(0).1,
        _ => Vec::new(),
    };
    Row { key, columns }
}
