//! Commands on tables: `put-row`, `get-row`, `search`, `set-index`, `uid`.

use super::Run;
use super::queries::Queries;
use crate::remote;
use anyhow::{Context, Result, bail, ensure};
use cabinet::table::{IndexChange, OrderKind};
use client::{Client, Pair, Search as Query};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// Writes names and values, each after a TAB, and a newline.
fn write_columns(columns: &[Pair], output: &mut dyn Write) -> Result<()> {
    for part in columns.iter().flat_map(|(name, value)| [name, value]) {
        output.write_all(b"\t")?;
        output.write_all(part)?;
    }
    Ok(output.write_all(b"\n")?)
}

/// Type of a table in a server's `stat`.
const TABLE: &str = "table";

/// Fails if the server's database is not a table. Some servers would store the row as something
/// else.
fn expect_table(client: &Client, command: &str) -> Result<()> {
    // If the client may not read the status, the server decides.
    let Some(kind) = remote::stat_value(client, "type")? else { return Ok(()) };
    ensure!(
        kind == TABLE,
        "{command} is for tables (.tct), and the database of the server is of the kind {kind}: use put, \
         get, list"
    );
    Ok(())
}

/// Fails if the server's database is a table and the value is not the columns of a row: alternating
/// names and values, separated by NUL.
pub(super) fn expect_columns(client: &Client, value: &[u8]) -> Result<()> {
    let is_even = value.iter().filter(|byte| **byte == 0).count() % 2 == 1;
    if value.is_empty() || is_even {
        return Ok(());
    }
    let kind = remote::stat_value(client, "type")?;
    ensure!(
        kind.as_deref() != Some(TABLE),
        "the database of the server is a table, and the value has no columns: use put-row KEY \
         NAME=VALUE"
    );
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(super) struct PutRow {
    /// Key of the row; an empty one is replaced by a new id
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
    fn run(&self, client: &Client, _output: &mut dyn Write) -> Result<()> {
        let column = |text: &OsString| {
            let text = text.as_bytes();
            let middle = text.iter().position(|byte| *byte == b'=');
            let middle = middle.filter(|middle| *middle > 0).with_context(|| {
                format!("{:?} is not of the form NAME=VALUE", String::from_utf8_lossy(text))
            })?;
            Ok((text[..middle].to_vec(), text[middle + 1..].to_vec()))
        };
        let columns: Vec<Pair> = self.columns.iter().map(column).collect::<Result<_>>()?;
        expect_table(client, "put-row")?;
        let key = self.key.as_bytes();
        if self.add {
            client.put_row_cat(key, &columns)?;
        } else if !self.keep {
            client.put_row(key, &columns)?;
        } else if !client.put_row_keep(key, &columns)? {
            bail!(client::Error::ExistingRecord);
        }
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct GetRow {
    /// Keys; rows are printed as key, TAB, name, TAB, value, TAB, name, ...
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,
}

impl Run for GetRow {
    fn run(&self, client: &Client, output: &mut dyn Write) -> Result<()> {
        expect_table(client, "get-row")?;
        let mut found = 0;
        for key in &self.keys {
            if let Some(columns) = client.get_row(key.as_bytes())? {
                output.write_all(key.as_bytes())?;
                write_columns(&columns, output)?;
                found += 1;
            }
        }
        if found == 0 {
            bail!(client::Error::NoRecordFound);
        }
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
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
    #[arg(long, group = "what")]
    count: bool,
    /// Remove the rows, and print their number
    #[arg(long, group = "what")]
    out: bool,
    /// Print how the server finds the rows
    #[arg(long, group = "what")]
    explain: bool,
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
            OrderKind::parse(kind).with_context(|| {
                format!("unknown sort order {:?}", String::from_utf8_lossy(kind))
            })?;
            query = query.order_by(column, kind);
        }
        Ok(query)
    }
}

impl Run for Search {
    fn run(&self, client: &Client, output: &mut dyn Write) -> Result<()> {
        let query = self.query()?;
        expect_table(client, "search")?;
        if self.count {
            writeln!(output, "{}", client.search_count(&query)?)?;
        } else if self.out {
            writeln!(output, "{}", client.search_out(&query)?)?;
        } else if self.explain {
            output.write_all(&client.search_hint(&query)?)?;
        } else if self.rows || !self.columns.is_empty() {
            let columns: Vec<_> = self.columns.iter().map(|name| name.as_bytes()).collect();
            for row in client.search_rows(&query, &columns)? {
                output.write_all(&row.key)?;
                write_columns(&row.columns, output)?;
            }
        } else {
            for key in client.search(&query)? {
                output.write_all(&key)?;
                output.write_all(b"\n")?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
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
    fn run(&self, client: &Client, _output: &mut dyn Write) -> Result<()> {
        let kind = self.kind.as_bytes();
        IndexChange::parse(kind)
            .with_context(|| format!("unknown kind of index {:?}", self.kind))?;
        expect_table(client, "set-index")?;
        Ok(client.set_index(self.column.as_bytes(), kind)?)
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Uid {}

impl Run for Uid {
    fn run(&self, client: &Client, output: &mut dyn Write) -> Result<()> {
        expect_table(client, "uid")?;
        Ok(writeln!(output, "{}", client.generate_uid()?)?)
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
