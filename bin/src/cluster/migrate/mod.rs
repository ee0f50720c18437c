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
use ::cluster::{Kind, Name, is_cluster_name};
use anyhow::{Result, bail, ensure};
use cabinet::name::Specification;
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
        (false, false) => bail!("{from} and {to} are local: tyrant export and import copy these"),
        (true, true) => {
            bail!("{from} and {to} are both in a cluster: copy through a local database")
        }
    }
}

/// Parses the name of a database in a cluster, and checks that the local one is of the same kind.
fn name(cluster: &str, local: &str) -> Result<Name> {
    let name = Name::parse(cluster)?;
    let specification = Specification::parse(local)?;
    ensure!(
        name.kind != Kind::Table,
        "{cluster} is a table, which is not copied: put its rows with a client"
    );
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
        Kind::Table => false,
    }
}

/// Checks the number of records of a copy. Those that expire may be missing.
fn check_number(found: u64, copied: u64, expiring: u64, may_have_more: bool) -> Result<()> {
    let is_enough = found.saturating_add(expiring) >= copied;
    ensure!(
        is_enough && (may_have_more || found <= copied),
        "the copy has {found} records, and {copied} were copied: one of the databases was changed \
         meanwhile; --verify shows a record that differs"
    );
    Ok(())
}

/// Returns the error for records that differ after a copy.
fn differing(number: u64, first: &[u8]) -> anyhow::Error {
    anyhow::anyhow!(
        "{number} records differ or are missing, the first one is {}",
        first.escape_ascii()
    )
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
    fn one_of_the_names_is_in_a_cluster_and_both_are_of_one_kind() {
        let options =
            Migration { into_existing: false, verify: false, wait: Duration::from_secs(1) };
        for (from, to, reason) in [
            ("a.tch", "b.tch", "are local"),
            ("cassandra://a/b", "cassandra://a/c", "both in a cluster"),
            ("a.tcb", "cassandra://a/b", "is a B+ tree database"),
            ("*", "cassandra://a/b", "is a on-memory hash database"),
            ("cassandra://a/b#kind=tcb", "a.tch", "has kind=tcb"),
            ("a.txt", "cassandra://a/b", "a.txt"),
        ] {
            let error = migrate(from, to, options).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
