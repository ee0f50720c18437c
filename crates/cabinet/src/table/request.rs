//! Requests: searches as text, in the form of Tokyo Cabinet's clients. A search is a list of
//! arguments, each a verb and its words, joined by NUL.
//!
//! | verb | words |
//! | --- | --- |
//! | `addcond`, `cond` | column, operator, operand: a condition |
//! | `setorder`, `order` | column, kind |
//! | `setlimit`, `limit`, `setmax`, `max` | maximum results (negative: all), number to skip |
//! | `get`, `columns` | names of columns, or none for all: return rows instead of keys |
//! | `sized` | return rows that have NUL in a column with the sizes of their parts |
//! | `out`, `remove` | remove the rows found |
//! | `count` | return the number of results instead of the results |
//! | `hint` | return the steps of the search after the results |
//! | `next` | begin another query |
//! | `mstype` | operation that combines the results of several queries |
//!
//! Tokyo Tyrant ignores invalid arguments, such as a condition with an unknown operator. So does a
//! search that only reads. A search that removes rows would remove too many, so it fails:
//! [`SearchRequest::flaw`].

use super::condition::Condition;
use super::number::Number;
use super::query::{Query, Report, SetOperation};
use super::sort_order::{SortKind, SortOrder};
use super::{Row, Table};
use crate::limits::VALUE_BYTES_MAX;
use crate::{Error, Result};
use std::ops::ControlFlow;

/// Bytes before the hint, which is the last element of an answer.
const HINT_MARK: &[u8] = b"\0\0[[HINT]]\n";

/// Bytes before a row with the sizes of its parts. A row without them begins with a name.
const SIZED_MARK: &[u8] = b"\0\0[[ROW]]\n";

/// A search, and the action on its results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchRequest {
    /// Queries, at least one.
    pub queries: Vec<Query>,
    /// Operation that combines the results of several queries.
    pub operation: SetOperation,
    /// Columns of the rows that are returned instead of keys; an empty list is all columns. The
    /// empty name is the primary key.
    pub columns: Option<Vec<Vec<u8>>>,
    /// Whether rows in which a joined form would be ambiguous have the sizes of their parts.
    pub sized: bool,
    /// Whether the rows found are removed.
    pub out: bool,
    /// Whether only the number of results is returned.
    pub count: bool,
    /// Whether the hint is returned after the results.
    pub hint: bool,
    /// Description of the first invalid argument. If there is one, a search with `out` fails.
    pub flaw: Option<String>,
}

/// Answer to a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchAnswer {
    /// Keys, rows ([`SearchRequest::row_element`]) or a number, and then the hint, if it was
    /// requested.
    pub elements: Vec<Vec<u8>>,
    /// Outcome and cost of the search.
    pub report: Report,
}

impl SearchRequest {
    /// Parses the arguments of `search` and `metasearch`. Ignores invalid arguments, and describes
    /// the first one in [`SearchRequest::flaw`].
    pub fn parse<'a>(arguments: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut request = Self { queries: vec![Query::new()], ..Self::default() };
        for argument in arguments {
            let words: Vec<&[u8]> = argument.split(|&byte| byte == 0).collect();
            if let Err(flaw) = request.add(&words[0].to_ascii_lowercase(), &words[1..]) {
                request.flaw.get_or_insert(flaw);
            }
        }
        if request.queries.len() > 1 {
            request.flaw.get_or_insert("it has several queries".into());
        }
        request
    }

    /// Returns a row as an element of an answer: the names and values of the requested columns,
    /// joined by NUL. The primary key has the empty name. If a part has NUL in it and `sized` is
    /// set, each part follows its size, of 4 bytes in network byte order, after a mark.
    pub fn row_element(&self, primary: &[u8], row: &Row) -> Vec<u8> {
        let columns = self.columns.as_deref().unwrap_or_default();
        let mut parts: Vec<&[u8]> = Vec::new();
        if columns.is_empty() {
            parts.extend([&b""[..], primary]);
            parts.extend(row.columns().flat_map(|(name, value)| [name, value]));
        }
        for column in columns {
            let value = if column.is_empty() { Some(primary) } else { row.get(column) };
            parts.extend(value.into_iter().flat_map(|value| [&column[..], value]));
        }
        if !self.sized || parts.iter().all(|part| !part.contains(&0)) {
            return parts.join(&0);
        }
        let mut element = SIZED_MARK.to_vec();
        for part in parts {
            // A row is shorter than 4 GiB.
            element.extend((part.len() as u32).to_be_bytes());
            element.extend(part);
        }
        element
    }

    /// Returns a hint as an element of an answer.
    pub fn hint_element(hint: &str) -> Vec<u8> {
        [HINT_MARK, hint.as_bytes()].concat()
    }

    /// Adds an argument. Returns a description if a part of it is invalid, and still adds the valid
    /// parts.
    fn add(&mut self, verb: &[u8], words: &[&[u8]]) -> Result<(), String> {
        if verb == b"next" {
            self.queries.push(Query::new());
        }
        let Some(query) = self.queries.last_mut() else { return Ok(()) };
        match (verb, words) {
            (b"addcond" | b"cond", [column, operator, operand, rest @ ..]) => {
                let condition = Condition::parse(column, operator, operand)
                    .ok_or_else(|| format!("there is no operator {}", shown(operator)))?;
                let flaw = condition.flaw();
                query.conditions.push(condition);
                if !rest.is_empty() {
                    return Err(format!("the operand {} has NUL in it", shown(operand)));
                }
                flaw.map_or(Ok(()), Err)
            }
            (b"setorder" | b"order", [column, rest @ ..]) => {
                let kind = match rest.first() {
                    None => SortKind::StringAscending,
                    Some(kind) => SortKind::parse(kind)
                        .ok_or_else(|| format!("there is no order {}", shown(kind)))?,
                };
                query.order = Some(SortOrder { column: column.to_vec(), kind });
                Ok(())
            }
            (b"setlimit" | b"limit" | b"setmax" | b"max", [max, rest @ ..]) => {
                query.max = u64::try_from(integer(max)).ok();
                let skip = rest.first().map_or(0, |skip| integer(skip));
                query.skip = u64::try_from(skip).unwrap_or(0);
                let odd = std::iter::once(max).chain(rest).find(|text| !is_integer(text));
                odd.map_or(Ok(()), |text| Err(format!("the limit {} is not a number", shown(text))))
            }
            (b"get" | b"columns", columns) => {
                self.columns = Some(columns.iter().map(|column| column.to_vec()).collect());
                Ok(())
            }
            (b"mstype", [operation, ..]) => {
                self.operation = SetOperation::parse(operation)
                    .ok_or_else(|| format!("there is no operation {}", shown(operation)))?;
                Ok(())
            }
            (b"addcond" | b"cond" | b"setorder" | b"order" | b"mstype", _)
            | (b"setlimit" | b"limit" | b"setmax" | b"max", _) => {
                Err(format!("{} lacks words", shown(verb)))
            }
            (b"out" | b"remove", _) => {
                self.out = true;
                Ok(())
            }
            (b"count", _) => {
                self.count = true;
                Ok(())
            }
            (b"hint", _) => {
                self.hint = true;
                Ok(())
            }
            (b"sized", _) => {
                self.sized = true;
                Ok(())
            }
            (b"next" | b"", _) => Ok(()),
            _ => Err(format!("{} is not a verb of a search", shown(verb))),
        }
    }
}

/// Maximum bytes of an argument that an error shows.
const SHOWN_BYTES_MAX: usize = 40;

fn shown(text: &[u8]) -> String {
    format!("\"{}\"", text[..text.len().min(SHOWN_BYTES_MAX)].escape_ascii())
}

/// Returns whether a text is an integer and nothing else.
fn is_integer(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.trim().parse::<i64>().is_ok())
}

/// Returns the integer that a text begins with, or 0.
fn integer(text: &[u8]) -> i64 {
    Number::parse(text).to_double() as i64
}

impl Table {
    /// Executes a search. Fails with [`Error::BadSearch`] if it removes rows and has a flaw. Fails
    /// with [`Error::ValueTooLong`] if the elements exceed [`VALUE_BYTES_MAX`] together; rows that
    /// were removed until then stay removed.
    pub fn answer(&self, request: &SearchRequest) -> Result<SearchAnswer> {
        self.answer_removing(request, |_| ())
    }

    /// Like [`Table::answer`]. Calls `removed` with the primary key of each removed row.
    pub fn answer_removing(
        &self,
        request: &SearchRequest,
        mut removed: impl FnMut(&[u8]),
    ) -> Result<SearchAnswer> {
        if request.out
            && let Some(flaw) = &request.flaw
        {
            return Err(Error::BadSearch(flaw.clone()));
        }
        let mut elements = Vec::new();
        let mut bytes = 0;
        let mut push = |element: Vec<u8>| {
            bytes += element.len();
            elements.push(element);
            if bytes > VALUE_BYTES_MAX {
                return Err(Error::ValueTooLong { bytes, max: VALUE_BYTES_MAX });
            }
            Ok(())
        };
        let wants_results = !request.count;
        let wants_rows = request.columns.is_some();
        let report = if request.out {
            let none = Query::new();
            let query = request.queries.last().unwrap_or(&none);
            let mut pushed = Ok(());
            let report = self.search_out(query, |primary, row| {
                removed(primary);
                // Without `get`, removed rows are not returned.
                if wants_results && wants_rows && pushed.is_ok() {
                    pushed = push(request.row_element(primary, &row));
                }
            })?;
            pushed?;
            report
        } else {
            self.for_each_set_result(&request.queries, request.operation, |primary| {
                if !wants_results {
                } else if !wants_rows {
                    push(primary.to_vec())?;
                } else if let Some(row) = self.get(primary)? {
                    push(request.row_element(primary, &row))?;
                }
                Ok(ControlFlow::Continue(()))
            })?
        };
        if request.count {
            elements.push(report.count.to_string().into_bytes());
        }
        if request.hint {
            elements.push(SearchRequest::hint_element(&report.hint));
        }
        Ok(SearchAnswer { elements, report })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Operator;

    #[test]
    fn arguments_are_parsed_as_clients_of_tokyo_cabinet_write_them() {
        let request = SearchRequest::parse([
            &b"addcond\0age\0>=\x0020"[..],
            b"cond\0name\0BOGUS\0x",
            b"order\0age\0NUMDESC",
            b"limit\x005\x002",
            b"get\0\0name",
            b"next",
            b"addcond\0\0STRBW\0p",
            b"setlimit\0-1",
            b"mstype\0DIFF",
            b"hint",
            b"sized",
            b"nonsense",
            b"",
        ]);
        let first = Query::new()
            .with(b"age", Operator::NumberGreaterEqual, b"20")
            .order_by(b"age", SortKind::NumberDescending)
            .limit(5)
            .skip(2);
        let second = Query::new().with(b"", Operator::StringBegins, b"p");
        let expected = SearchRequest {
            queries: vec![first, second],
            operation: SetOperation::Difference,
            columns: Some(vec![vec![], b"name".to_vec()]),
            sized: true,
            out: false,
            count: false,
            hint: true,
            flaw: Some("there is no operator \"BOGUS\"".into()),
        };
        assert_eq!(request, expected);
        assert_eq!(SearchRequest::parse([]).queries, [Query::new()]);
    }

    #[test]
    fn invalid_arguments_are_flaws() {
        let flaw = |arguments: &[&str]| {
            SearchRequest::parse(arguments.iter().map(|argument| argument.as_bytes())).flaw
        };
        for sound in [
            &["addcond\0a\0NUMEQ\x001", "setorder\0a", "setlimit\x005\x002", "out", "count", ""][..],
            &["cond\0\0STRRX\0^a+$", "order\0a\0DESC", "max\0-1", "remove", "get", "hint"],
            &["addcond\0a\0NUMBT\x001,-.5", "addcond\0a\0NUMOREQ\0", "addcond\0a\0>\0 +3x"],
        ] {
            assert_eq!(flaw(sound), None, "{sound:?}");
        }
        for bad in [
            "addcond\0a\0BOGUS\x001",
            "addcond\0a\0STREQ",
            "addcond",
            "addcon\0a\0STREQ\x001",
            "addcond\0a\0STRBW\x001\x002",
            "addcond\0a\0!STRRX\0[",
            "addcond\0a\0NUMLT\0",
            "addcond\0a\0NUMGE\0x",
            "addcond\0a\0NUMBT\x001",
            "addcond\0a\0NUMBT\x001 x",
            "addcond\0a\0NUMOREQ\x001,x",
            "setorder",
            "setorder\0a\0UP",
            "setlimit",
            "setlimit\0x",
            "setlimit\x005x",
            "setlimit\x005\0x",
            "mstype",
            "mstype\x007",
            "next",
        ] {
            assert!(flaw(&[bad]).is_some(), "{bad:?}");
        }
    }
}
