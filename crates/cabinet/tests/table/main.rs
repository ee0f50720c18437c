//! Promises of a table, over each engine that it can be built on.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cap;
mod clear;
mod model;
mod naive;
#[path = "../support/observed_storage.rs"]
mod observed_storage;
mod operations;
mod postings;
mod queries;

use cabinet::table::{Row, Table};
use cabinet::{MemoryTree, Options};
use std::sync::Arc;

/// A table that is nowhere else but in memory.
fn in_memory() -> Table {
    in_memory_with(&Options::default())
}

fn in_memory_with(options: &Options) -> Table {
    Table::new(Arc::new(MemoryTree::new(options)), options).unwrap()
}

/// A row of columns given as `name=value`, with spaces between.
fn row(columns: &str) -> Row {
    let parts = columns.split_terminator(' ').flat_map(|column| {
        let (name, value) = column.split_once('=').unwrap();
        [name.as_bytes(), value.as_bytes()]
    });
    Row::from_parts(parts).unwrap()
}
