//! `tyrant cluster`: databases in a cluster of Apache Cassandra.

use crate::cluster::{self, Migration};
use crate::say::say;
use anyhow::Result;
use clap::Subcommand;
use std::time::Duration;

/// Number of replicas of each record, unless another one is given.
const REPLICATION: u8 = 3;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Make a database in a cluster, and serve it
  tyrant cluster init 'cassandra://10.0.0.1/tyrant#kind=tch'
  tyrant serve 'cassandra://10.0.0.1/tyrant#kind=tch'")]
pub(super) struct Cluster {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make the keyspace and the tables of a database
    #[command(after_help = "\
Examples:
  # Make the keyspace and the tables of a database
  tyrant cluster init 'cassandra://10.0.0.1/tyrant#kind=tch'
  # Print the statements that would do that
  tyrant cluster init 'cassandra://10.0.0.1/tyrant#kind=tch' --print")]
    Init {
        /// Name of the database, as for `tyrant serve`
        #[arg(value_name = "cassandra://HOSTS/KEYSPACE#...")]
        database: String,
        /// Set the number of replicas of each record in each data centre
        #[arg(long, value_name = "N", default_value_t = REPLICATION,
            value_parser = clap::value_parser!(u8).range(1..))]
        replication: u8,
        /// Print the statements, and execute none
        #[arg(long)]
        print: bool,
    },
    /// Copy a local database into the cluster, or one of the cluster into a local database
    ///
    /// After an interruption the same command goes on where the copy was. Clients
    /// should change neither database meanwhile.
    Migrate(Migrate),
    /// Check that a database can be used as its name says
    #[command(after_help = "\
Examples:
  # Check that a database can be served
  tyrant cluster check 'cassandra://10.0.0.1/tyrant#kind=tch'")]
    Check {
        /// Name of the database, as for `tyrant serve`
        #[arg(value_name = "cassandra://HOSTS/KEYSPACE#...")]
        database: String,
    },
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Copy a local database into a cluster
  tyrant cluster migrate casket.tch 'cassandra://10.0.0.1/tyrant#kind=tch'")]
struct Migrate {
    /// Name of the database to copy, which must not be open
    #[arg(value_name = "FROM")]
    from: String,
    /// Name of the database to copy it into, of the same kind
    #[arg(value_name = "TO")]
    to: String,
    /// Copy into a database that has records; those under the same keys are replaced
    #[arg(long)]
    into_existing: bool,
    /// Compare all records after the copy, beside their number
    #[arg(long)]
    verify: bool,
    /// Give up once the cluster has not answered for N seconds
    #[arg(long, value_name = "N", default_value_t = 300)]
    wait: u64,
}

impl Cluster {
    pub(super) fn run(self) -> Result<()> {
        match self.action {
            Action::Init { database, replication, print: true } => {
                for statement in cluster::statements(&database, replication)? {
                    say!("{statement};");
                }
            }
            Action::Init { database, replication, print: false } => {
                cluster::init(&database, replication)?;
            }
            Action::Migrate(Migrate { from, to, into_existing, verify, wait }) => {
                let wait = Duration::from_secs(wait);
                cluster::migrate(&from, &to, Migration { into_existing, verify, wait })?;
            }
            Action::Check { database } => {
                for warning in cluster::connect(&database)?.warnings {
                    eprintln!("warning: {warning}");
                }
                say!("{database} can be used");
            }
        }
        Ok(())
    }
}
