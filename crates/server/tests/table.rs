//! Tables through the server, beyond the exchanges that were captured from Tokyo Tyrant.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod suite;
mod support;

use support::{MISC_FAILURE, Running, list, memory, misc, named, start, table};

const DONE: &[u8] = b"\0\0\0\0\0";

/// Runs a part of the suite over an empty table on the disk.
fn over_a_table(test: impl Fn(&Running)) {
    let folder = tempfile::tempdir().unwrap();
    test(&start(table(folder.path())));
}

#[test]
fn values_with_nul_bytes_stay_separate() {
    over_a_table(suite::tables::nul_bytes);
}

#[test]
fn an_empty_key_becomes_the_next_id_in_every_command() {
    over_a_table(suite::tables::identifiers);
}

#[test]
fn memcached_stores_and_reads_columns() {
    over_a_table(suite::tables::memcached);
}

#[test]
fn a_value_without_columns_is_refused_by_every_protocol_and_loses_nothing() {
    over_a_table(suite::tables::refused_values);
}

#[test]
fn an_append_does_not_split_a_column_with_a_nul_byte() {
    over_a_table(suite::tables::appends);
}

#[test]
fn a_row_is_refused_by_a_database_that_is_not_a_table() {
    let server = start(memory());
    let mut client = server.connect();
    for name in ["put", "putkeep", "putcat"] {
        client.exchange(misc(name, &["k", "name", "ann"]), MISC_FAILURE);
        client.exchange(misc(name, &["k", "name", "ann", "age", "30"]), MISC_FAILURE);
    }
    client.exchange(b"\xc8\x80", b"\0\0\0\0\0\0\0\0\0");
    client.exchange(misc("put", &["k", "v"]), DONE);
}

#[test]
fn a_malformed_search_removes_nothing() {
    over_a_table(suite::tables::malformed_searches);
}

#[test]
fn indexes_are_set_together_or_not_at_all() {
    over_a_table(suite::tables::index_changes);
}

#[test]
fn http_stores_reads_and_searches_rows() {
    over_a_table(suite::tables::http);
}

#[test]
fn a_search_removes_its_rows_and_their_index_entries() {
    over_a_table(suite::tables::removals);
}

#[test]
fn functions_that_a_kind_of_database_does_not_have_fail() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    let mut client = server.connect();
    for name in ["range", "putdup", "put", "putkeep", "putcat", "get", "setindex"] {
        client.exchange(misc(name, &[]), MISC_FAILURE);
    }
    client.exchange(misc("setindex", &["a"]), MISC_FAILURE);
    let server = start(memory());
    let mut client = server.connect();
    for name in ["search", "metasearch", "genuid", "setindex"] {
        client.exchange(misc(name, &["a", "DEC"]), MISC_FAILURE);
    }
}

#[test]
fn durable_rows_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let open = || named(folder.path(), "casket.tct#durability=always");
    let server = start(open());
    let mut client = server.connect();
    client.exchange(misc("setindex", &["a", "DEC"]), DONE);
    client.exchange(misc("put", &["k", "a", "1"]), DONE);
    client.exchange(misc("putcat", &["k", "b", "\0"]), DONE);
    drop(server);
    let server = start(open());
    let mut client = server.connect();
    client.exchange(misc("search", &["addcond\0a\0=\x001"]), list(&["k"]));
    client.exchange(misc("get", &["k"]), list(&["a", "1", "b", "\0"]));
}

#[test]
fn a_table_opened_for_reading_is_searched_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(table(folder.path()));
    server.connect().exchange(misc("put", &["k", "a", "1"]), DONE);
    drop(server);
    let server = start(named(folder.path(), "casket.tct#mode=r"));
    let mut client = server.connect();
    client.exchange(misc("search", &["addcond\0a\0=\x001"]), list(&["k"]));
    for (name, arguments) in [
        ("put", &["k", "a", "2"][..]),
        ("put", &["k", "a", "\0"]),
        ("putcat", &["l", "a", "2"]),
        ("out", &["k"]),
        ("search", &["out"]),
        ("setindex", &["a", "DEC"]),
        ("genuid", &[]),
        ("vanish", &[]),
    ] {
        client.exchange(misc(name, arguments), MISC_FAILURE);
    }
    client.exchange(misc("get", &["k"]), list(&["a", "1"]));
}

#[test]
fn concurrent_changes_of_one_row_are_all_kept() {
    over_a_table(suite::tables::concurrent_changes);
}
