//! `tyrant cluster`: databases in a cluster of Apache Cassandra.

use crate::cluster;
use anyhow::Result;
use clap::Subcommand;

/// Number of replicas of each record, unless another one is given.
const REPLICATION: u8 = 3;

#[derive(Debug, clap::Args)]
pub(super) struct Cluster {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make the keyspace and the tables of a database
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
    /// Check that a database can be used as its name says
    Check {
        /// Name of the database, as for `tyrant serve`
        #[arg(value_name = "cassandra://HOSTS/KEYSPACE#...")]
        database: String,
    },
}

impl Cluster {
    pub(super) fn run(self) -> Result<()> {
        match self.action {
            Action::Init { database, replication, print: true } => {
                for statement in cluster::statements(&database, replication)? {
                    println!("{statement};");
                }
            }
            Action::Init { database, replication, print: false } => {
                cluster::init(&database, replication)?;
            }
            Action::Check { database } => {
                cluster::connect(&database)?;
                println!("{database} can be used");
            }
        }
        Ok(())
    }
}
