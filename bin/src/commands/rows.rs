//! Commands on tables: `put-row`, `get-row`, `search`, `set-index`, `uid`.

use super::Run;
use super::csv::write_rows;
use super::manage::{SERVER_GOES_ON, write_text};
use super::queries::Queries;
use crate::bytes::quoted;
use crate::errors::wrong_command_line;
use crate::output::{AsJson, Form, object, write_json};
use crate::remote::{Need, Server};
use crate::transfer::progress::Progress;
use anyhow::Result;
use cabinet::name::Kind;
use cabinet::table::{IndexChange, SortKind};
use client::{Pair, Search as Query};
use serde_json::Value as Json;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// Fails if the server's database is a table and the value is not the columns of a row: alternating
/// names and values, separated by NUL.
pub(super) fn expect_columns(server: &Server, value: &[u8]) -> Result<()> {
    let is_even = value.iter().filter(|byte| **byte == 0).count() % 2 == 1;
    if !value.is_empty() && !is_even && server.kind() == Some(Kind::Table) {
        return Err(server.failure("a value without columns is no row: use put-row KEY NAME=VALUE"));
    }
    Ok(())
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Store a row
  tyrant put-row p1 name=Ann age=30
  # Add a column to it
  tyrant put-row --add p1 town=Ulm")]
pub(super) struct PutRow {
    /// Key of the row; an empty one is replaced by a new id, which is printed
    #[arg(value_name = "KEY")]
    key: OsString,
    /// Columns of the row; the value begins after the first =
    #[arg(value_name = "NAME=VALUE")]
    columns: Vec<OsString>,
    /// Fail if the row exists
    #[arg(long, conflicts_with = "add")]
    keep: bool,
    /// Add the columns that the row lacks, and keep the others
    #[arg(long)]
    add: bool,
}

impl Run for PutRow {
    fn needs(&self) -> Need {
        Need::Rows
    }

    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let column = |text: &OsString| {
            let text = text.as_bytes();
            let middle = text.iter().position(|byte| *byte == b'=');
            let middle = middle.filter(|middle| *middle > 0).ok_or_else(|| {
                wrong_command_line(format_args!(
                    "{:?} is not of the form NAME=VALUE",
                    String::from_utf8_lossy(text)
                ))
            })?;
            Ok((text[..middle].to_vec(), text[middle + 1..].to_vec()))
        };
        let columns: Vec<Pair> = self.columns.iter().map(column).collect::<Result<_>>()?;
        let new_key = match self.key.is_empty() {
            true => Some(server.generate_uid()?.to_string()),
            false => None,
        };
        let key = new_key.as_deref().map_or(self.key.as_bytes(), str::as_bytes);
        if self.add {
            server.put_row_cat(key, &columns)?;
        } else if !self.keep {
            server.put_row(key, &columns)?;
        } else if !server.put_row_keep(key, &columns)? {
            return Err(server.refused("put-row").unwrap_or_else(|| {
                server.failure(format_args!("the key {} has a row", quoted(key)))
            }));
        }
        server.confirm("put-row")?;
        if let Some(key) = &new_key {
            writeln!(output, "{key}")?;
        }
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print a row
  tyrant get-row p1
  # Print a column of several rows
  tyrant get-row p1 p2 --column name")]
pub(super) struct GetRow {
    /// Keys; rows are printed as key, TAB, name, TAB, value, TAB, name, ...
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,
    /// Print only the value of this column, as get does
    #[arg(long, short, value_name = "NAME")]
    column: Option<OsString>,
    #[command(flatten)]
    form: Form,
}

impl GetRow {
    /// Writes the value of the one requested column. Returns whether the row has it.
    fn write_column(
        &self,
        name: &[u8],
        (key, columns): (&[u8], &[Pair]),
        output: &mut dyn Write,
    ) -> Result<bool> {
        let Some((_, value)) = columns.iter().find(|(other, _)| other == name) else {
            return Ok(false);
        };
        if self.keys.len() == 1 {
            self.form.write_value(key, value, true, output)?;
        } else {
            self.form.write_pair(key, value, output)?;
        }
        Ok(true)
    }
}

impl Run for GetRow {
    fn needs(&self) -> Need {
        Need::Rows
    }

    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let (mut found, mut absent) = (0, Vec::new());
        for key in &self.keys {
            let key = self.form.read(key)?;
            let Some(columns) = server.get_row(&key)? else {
                absent.push(key);
                continue;
            };
            if columns.is_empty() {
                server.confirm("get-row")?;
            }
            let Some(name) = &self.column else {
                self.form.write_row(&key, &columns, output)?;
                found += 1;
                continue;
            };
            let name = name.as_bytes();
            if self.write_column(name, (&key, &columns), output)? {
                found += 1;
            } else if self.keys.len() == 1 {
                return Err(server.failure(format_args!(
                    "the row of the key {} has no column {}",
                    quoted(&key),
                    quoted(name)
                )));
            }
        }
        if found == 0 {
            server.confirm("get-row")?;
        }
        server.expect_all("get-row", self.keys.len(), &absent)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print the keys of adults, the oldest first
  tyrant search --where age NUMGE 18 --order age:NUMDESC
  # Print names and ages whose names begin with A
  tyrant search -w name STRBW A --columns name,age")]
pub(super) struct Search {
    #[command(flatten)]
    queries: Queries,
    /// Sort by a column, as text or by KIND: STRASC, STRDESC, NUMASC, NUMDESC
    #[arg(long, value_name = "COLUMN[:KIND]")]
    order: Option<OsString>,
    /// Find at most N rows
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Skip the first N rows
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// Print key, TAB, name, TAB, value, ... instead of keys
    #[arg(long, group = "what")]
    rows: bool,
    /// Print rows like --rows, but only these columns
    #[arg(long, group = "what", value_name = "NAME,...", value_delimiter = ',')]
    columns: Vec<OsString>,
    /// Print only the number of rows
    #[arg(long, group = "what", conflicts_with = "csv")]
    count: bool,
    /// Remove the rows, and print their number
    #[arg(long, group = "what", conflicts_with = "csv")]
    out: bool,
    /// Print how the server finds the rows
    #[arg(long, group = "what", conflicts_with = "csv")]
    explain: bool,
    /// Print the rows as CSV with a header, their keys in the column key
    #[arg(long, conflicts_with_all = ["hex", "raw", "json"])]
    csv: bool,
    #[command(flatten)]
    form: Form,
}

impl Search {
    fn query(&self) -> Result<Query> {
        self.queries.search(|first| self.ordered(first.limit(self.max, self.skip)))
    }

    fn ordered(&self, mut query: Query) -> Result<Query> {
        if let Some(order) = &self.order {
            let order = order.as_bytes();
            let (column, kind) = match order.iter().rposition(|byte| *byte == b':') {
                Some(colon) => (&order[..colon], &order[colon + 1..]),
                None => (order, &b"STRASC"[..]),
            };
            SortKind::parse(kind).ok_or_else(|| {
                let names: Vec<_> = client::Search::sort_orders().collect();
                let kind = String::from_utf8_lossy(kind);
                wrong_command_line(format_args!(
                    "unknown sort order {kind:?}: give {}",
                    names.join(", ")
                ))
            })?;
            query = query.order_by(column, kind);
        }
        Ok(query)
    }
}

impl Run for Search {
    fn needs(&self) -> Need {
        Need::Rows
    }

    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let query = self.query()?;
        let confirm = |is_empty: bool| if is_empty { server.confirm("search") } else { Ok(()) };
        if self.count {
            let count = server.search_count(&query)?;
            confirm(count == 0)?;
            self.form.as_json().write_number("count", count, output)?;
        } else if self.out {
            let removed = server.search_out(&query)?;
            confirm(removed == 0)?;
            self.form.as_json().write_number("removed", removed, output)?;
        } else if self.explain {
            let hint = server.search_hint(&query)?;
            if self.form.as_json().json {
                let text = String::from_utf8_lossy(&hint);
                let steps = text.lines().map(Into::into).collect();
                write_json(&object([("steps", Json::Array(steps))]), output)?;
            } else {
                write_text(&hint, output)?;
            }
        } else if self.rows || self.csv || !self.columns.is_empty() {
            let columns: Vec<_> = self.columns.iter().map(|name| name.as_bytes()).collect();
            if self.csv {
                let rows = server.search_rows(&query, &columns)?;
                confirm(rows.is_empty())?;
                return write_rows(&rows, &columns, output);
            }
            let rows = server.search_rows(&query, &columns)?;
            confirm(rows.is_empty())?;
            for row in rows {
                self.form.write_row(&row.key, &row.columns, output)?;
            }
        } else {
            let keys = server.search(&query)?;
            confirm(keys.is_empty())?;
            for key in keys {
                self.form.write_line("key", &key, output)?;
            }
        }
        Ok(())
    }
}

/// Kinds of indices, for the error that lists them.
const INDEX_KINDS: &str = "give LEX, DEC, TOK, QGR, OPT or VOID";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Index a column of numbers
  tyrant set-index age DEC
  # Remove an index
  tyrant set-index age VOID")]
pub(super) struct SetIndex {
    /// Column; an empty one is the key
    #[arg(value_name = "COLUMN")]
    column: OsString,
    /// LEX (text), DEC (numbers), TOK (tokens), QGR (parts of text), OPT (rebuild) or VOID
    /// (remove); with a leading + an existing index is a failure
    #[arg(value_name = "KIND")]
    kind: String,
}

impl Run for SetIndex {
    fn needs(&self) -> Need {
        Need::Rows
    }

    fn run(&self, server: &Server, _output: &mut dyn Write) -> Result<()> {
        let kind = self.kind.as_bytes();
        IndexChange::parse(kind).ok_or_else(|| {
            wrong_command_line(format_args!("unknown kind of index {:?}: {INDEX_KINDS}", self.kind))
        })?;
        let _progress = Progress::of_time("indexing").explain(SERVER_GOES_ON);
        server.set_index(self.column.as_bytes(), kind)?;
        server.confirm("set-index")
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print a new number
  tyrant uid")]
pub(super) struct Uid {
    #[command(flatten)]
    form: AsJson,
}

impl Run for Uid {
    fn needs(&self) -> Need {
        Need::Rows
    }

    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        self.form.write_number("uid", server.generate_uid()?, output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cabinet::table::{Condition, Operator};

    /// Returns whether the client would send a search with this operator. The address is unused.
    fn is_known_to_the_client(operator: &str) -> bool {
        let both = Query::new().condition(b"a", operator.as_bytes(), b"1");
        format!("{both:?}").contains("flaw: None")
    }

    #[test]
    fn client_and_server_know_the_same_operators() {
        let names = (0..20).filter_map(Operator::from_number).map(|operator| operator.name());
        let others = [
            "STR", "EQ", "INC", "BW", "EW", "AND", "OR", "OREQ", "RX", "NUM", "=", "==", ">", ">=",
            "<", "<=", "FTS", "0", "18", "19", "16777216", "50331666", "67108864", "", "+", "!",
            "!+=", "+!=", "BOGUS",
        ];
        for name in names.chain(others) {
            let is_known = Condition::parse(b"a", name.as_bytes(), b"1").is_some();
            assert_eq!(is_known_to_the_client(name), is_known, "{name:?}");
        }
    }
}
