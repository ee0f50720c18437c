//! `tyrant cluster migrate`: copies a local database into a cluster, or one of a cluster into a
//! local database.
//!
//! The place of a copy is recorded beside its target: in the keyspace, or in a file beside the
//! local database. The record is never ahead of what is stored, so a copy that was killed goes on
//! with the same command, and copies at most a few records twice.

mod from_cluster;
mod into_cluster;
mod place;

use super::Migration;
use crate::errors::wrong_command_line;
use crate::plural::counted;
use ::cluster::{Kind, Name, is_cluster_name};
use anyhow::{Result, bail, ensure};
use cabinet::name::Specification;
use cabinet::table::{IndexDescription, Row, RowView};
use std::time::Duration;

/// Interval at which the place of a copy is recorded.
const SAVE_INTERVAL: Duration = Duration::from_millis(500);

/// Advice after a copy that ended early.
const GO_ON: &str = "the same command goes on where the copy was";

/// Copies a database. One of the names is that of a database in a cluster.
pub(crate) fn migrate(from: &str, to: &str, options: Migration) -> Result<()> {
    let _advice = crate::signals::Cleanup::on_signals(|| eprintln!("tyrant: {GO_ON}"))?;
    match (is_cluster_name(from), is_cluster_name(to)) {
        (false, true) => into_cluster::run(from, &name(to, from)?, options),
        (true, false) => from_cluster::run(&name(from, to)?, to, options),
        (false, false) => Err(wrong_command_line(format_args!(
            "{from} and {to} are local: tyrant export and import copy these"
        ))),
        (true, true) => Err(wrong_command_line(format_args!(
            "{from} and {to} are both in a cluster: copy through a local database"
        ))),
    }
}

/// Parses the name of a database in a cluster, and checks that the local one is of the same kind.
fn name(cluster: &str, local: &str) -> Result<Name> {
    let name = super::connected::parse(cluster)?;
    let specification = Specification::parse(local)?;
    ensure!(
        is_same_kind(name.kind, specification.kind),
        "{local} is a {} database, and {cluster} has kind={}: both must be of the same kind",
        specification.kind.title(),
        name.kind.name()
    );
    Ok(name)
}

fn is_same_kind(kind: Kind, local: cabinet::name::Kind) -> bool {
    match kind {
        Kind::Hash => local == cabinet::name::Kind::Hash,
        Kind::Tree => local == cabinet::name::Kind::Tree,
        Kind::Fixed => local == cabinet::name::Kind::Fixed,
        Kind::Table => local == cabinet::name::Kind::Table,
    }
}

/// Returns the row of stored bytes.
fn row_of(key: &[u8], stored: &[u8]) -> Result<Row> {
    let row = RowView::new(stored).to_row();
    ensure!(row.encode()? == stored, "row {} is damaged", key.escape_ascii());
    Ok(row)
}

/// Checks that a table has all indexes of its source, and no others unless it may have more.
fn check_indexes(
    found: &[IndexDescription],
    copied: &[IndexDescription],
    may_have_more: bool,
) -> Result<()> {
    let lacking = |those: &[IndexDescription], of: &[IndexDescription]| {
        let index = those.iter().find(|index| !of.contains(index))?;
        Some(format!("the {} index of column {:?}", index.kind.name(), shown(&index.column)))
    };
    if let Some(index) = lacking(copied, found) {
        bail!("the copy lacks {index}: one of the databases was changed meanwhile");
    }
    match lacking(found, copied).filter(|_| !may_have_more) {
        Some(index) => bail!("the copy has {index}, and its source has not"),
        None => Ok(()),
    }
}

fn shown(column: &[u8]) -> String {
    column.escape_ascii().to_string()
}

/// Prints that a copy goes on.
fn going_on(copied: u64) {
    eprintln!("going on after {}", counted(copied, "record", "records"));
}

/// Checks the number of records of a copy. Those that expire may be missing.
fn check_number(found: u64, copied: u64, expiring: u64, may_have_more: bool) -> Result<()> {
    let has = counted(found, "record", "records");
    ensure!(
        found.saturating_add(expiring) >= copied,
        "the copy has {has}, and its source {copied}: one of the databases was changed \
         meanwhile; --verify shows a record that differs"
    );
    ensure!(
        may_have_more || found <= copied,
        "the copy has {has}, and its source {copied}: one of the databases was changed \
         meanwhile; remove all records of the copy, or go on with --into-existing"
    );
    Ok(())
}

/// Returns the error for records that differ after a copy.
fn differing(number: u64, first: &[u8]) -> anyhow::Error {
    let differ = counted(number, "record differs or is", "records differ or are");
    anyhow::anyhow!("{differ} missing, the first one is {}", first.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_number_of_its_records_but_for_those_that_expire() {
        for (found, copied, expiring, may_have_more, is_right) in [
            (10, 10, 0, false, true),
            (9, 10, 0, false, false),
            (11, 10, 0, false, false),
            (11, 10, 0, true, true),
            (9, 10, 0, true, false),
            (9, 10, 1, false, true),
            (8, 10, 1, false, false),
        ] {
            assert_eq!(check_number(found, copied, expiring, may_have_more).is_ok(), is_right);
        }
    }

    #[test]
    fn a_copy_has_the_indexes_of_its_source_and_more_only_beside_other_rows() {
        use cabinet::table::IndexKind::{Decimal, Lexical};
        let index = |column: &[u8], kind| IndexDescription { column: column.to_vec(), kind };
        let (one, other) = (index(b"a", Lexical), index(b"a", Decimal));
        for (found, copied, may_have_more, is_right) in [
            (vec![], vec![], false, true),
            (vec![one.clone()], vec![one.clone()], false, true),
            (vec![], vec![one.clone()], true, false),
            (vec![other.clone()], vec![one.clone()], true, false),
            (vec![one.clone()], vec![], false, false),
            (vec![one.clone()], vec![], true, true),
        ] {
            assert_eq!(check_indexes(&found, &copied, may_have_more).is_ok(), is_right);
        }
    }

    #[test]
    fn a_row_that_does_not_parse_to_its_end_is_damaged() {
        let stored = Row::new().with(b"c", b"1").unwrap().encode().unwrap();
        assert_eq!(row_of(b"k", &stored).unwrap().get(b"c"), Some(&b"1"[..]));
        let error = row_of(b"k", &stored[..stored.len() - 1]).unwrap_err().to_string();
        assert_eq!(error, "row k is damaged");
        assert!(row_of(b"k", b"").unwrap().is_empty());
    }

    #[test]
    fn one_of_the_names_is_in_a_cluster_and_both_are_of_one_kind() {
        let options =
            Migration { into_existing: false, verify: false, wait: Duration::from_secs(1) };
        for (from, to, reason) in [
            ("a.tch", "b.tch", "are local"),
            ("cassandra://a/b", "cassandra://a/c", "both in a cluster"),
            ("a.tcb", "cassandra://a/b", "is a B+ tree database"),
            ("*", "cassandra://a/b", "is a on-memory hash database"),
            ("cassandra://a/b#kind=tcb", "a.tch", "has kind=tcb"),
            ("a.tcb", "cassandra://a/b#kind=tct", "has kind=tct"),
            ("cassandra://a/b#kind=tcb", "a.tct", "is a table database"),
            ("cassandra://a/b#kind=tcf", "a.tcb", "has kind=tcf"),
            ("a.txt", "cassandra://a/b", "a.txt"),
        ] {
            let error = migrate(from, to, options).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
