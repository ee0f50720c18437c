//! Benchmark: mailings by address, stored as a table with a column per date, and as a hash database
//! whose values are lines. It is a workload that users of Tokyo Cabinet described.

use super::clients::{check_clients, in_parallel};
use super::mailing::{Mailing, address, date, first_date, looked_up};
use super::own_server::OwnServer;
use crate::errors::require;
use crate::plural::counted;
use crate::say::say;
use anyhow::{Result, bail, ensure};
use client::Client;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Load 100,000 rows, on a disk of your choice
  tyrant bench mailings --rows 100000 --lookups 100000 --dir /data")]
pub(super) struct Mailings {
    /// Load N addresses, one row each
    #[arg(long, value_name = "N", default_value_t = 3_760_000)]
    rows: u64,
    /// Look up N random rows after loading
    #[arg(long, value_name = "N", default_value_t = 3_600_000)]
    lookups: u64,
    /// Measure with each of these numbers of clients
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,8")]
    clients: Vec<usize>,
    /// Measure these kinds of database
    #[arg(long, value_enum, value_delimiter = ',', default_value = "table,hash")]
    kinds: Vec<Kind>,
    /// Create the databases in a temporary folder below this one
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// Serve this database of a cluster, which must be empty and of the only kind measured; its
    /// records are removed afterwards
    #[arg(long, value_name = "cassandra://HOSTS/KEYSPACE#...")]
    cluster: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// A column per date; adding one is one request
    Table,
    /// A line per date; the value is read, then stored or appended to
    Hash,
}

impl Kind {
    fn database(self) -> &'static str {
        match self {
            Self::Table => "mailings.tct",
            Self::Hash => "mailings.tch",
        }
    }
}

impl Mailings {
    pub(super) fn run(&self) -> Result<()> {
        require(self.rows > 0, "no rows")?;
        check_clients(&self.clients)?;
        if let Some(name) = &self.cluster {
            require(self.kinds.len() == 1, "a database in a cluster has one kind: give --kinds")?;
            let has_rows = crate::cluster::is_table(name)?;
            ensure!(
                has_rows == (self.kinds[0] == Kind::Table),
                "{name} is {} table: give --kinds {}",
                if has_rows { "a" } else { "no" },
                if has_rows { "table" } else { "hash" }
            );
        }
        say!("kind\tclients\tload rows/s\tload s\tlookups/s\tlookup s\trows\tbytes on disk");
        for kind in &self.kinds {
            for &clients in &self.clients {
                self.measure(*kind, clients)?;
            }
        }
        Ok(())
    }

    fn measure(&self, kind: Kind, clients: usize) -> Result<()> {
        let parent = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let database = self.cluster.as_deref().unwrap_or(kind.database());
        let mut server = OwnServer::start(&parent, database, &[])?;
        // Records that are there are not the benchmark's to remove.
        ensure!(server.connect()?.count()? == 0, "{database} has records");
        let mailings = Mailing::count(self.rows);
        let load = in_parallel(&server, clients, "load", mailings, &|client, own, done| {
            for number in 0..mailings {
                let mailing = Mailing::of(number, self.rows);
                // One client sends all mailings to an address.
                if own(mailing.address) {
                    send(kind, client, &mailing)?;
                    done();
                }
            }
            Ok(())
        })?;
        let lookup =
            in_parallel(&server, clients, "look up", self.lookups, &|client, own, done| {
                for number in 0..self.lookups {
                    if own(number) {
                        look_up(kind, client, looked_up(number, self.rows))?;
                        done();
                    }
                }
                Ok(())
            })?;
        let rows = server.connect()?.count()?;
        let found = counted(rows, "row was found", "rows were found");
        ensure!(rows == self.rows, "{found}, and {} loaded", self.rows);
        let bytes = match &self.cluster {
            None => server.close(kind.database())?.to_string(),
            Some(_) => {
                server.connect()?.vanish()?;
                "-".to_owned()
            }
        };
        say!(
            "{kind:?}\t{clients}\t{:.0}\t{:.1}\t{:.0}\t{:.1}\t{rows}\t{bytes}",
            mailings as f64 / load.as_secs_f64(),
            load.as_secs_f64(),
            self.lookups as f64 / lookup.as_secs_f64(),
            lookup.as_secs_f64(),
        );
        Ok(())
    }
}

fn send(kind: Kind, client: &Client, mailing: &Mailing) -> Result<()> {
    let key = address(mailing.address);
    match kind {
        Kind::Table => {
            let date = date(mailing.date);
            client.misc(b"putcat", 0, &[&key[..], date.as_bytes(), b"1"])?;
        }
        Kind::Hash => {
            let line = mailing.line();
            match client.get(&key)? {
                None => client.put(&key, line.as_bytes())?,
                Some(_) => client.put_cat(&key, line.as_bytes())?,
            }
        }
    }
    Ok(())
}

fn look_up(kind: Kind, client: &Client, number: u64) -> Result<()> {
    let key = address(number);
    let Some(value) = client.get(&key)? else {
        bail!("{} is missing", String::from_utf8_lossy(&key));
    };
    let first = first_date(number);
    ensure!(
        value.windows(first.len()).any(|part| part == first.as_bytes()),
        "the {kind:?} has another value under {}",
        String::from_utf8_lossy(&key)
    );
    Ok(())
}
