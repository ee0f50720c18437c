//! Benchmark: mailings by address, stored as a table with a column per date, and as a hash database
//! whose values are lines. It is a workload that users of Tokyo Cabinet described.

use crate::clients::{check_clients, in_parallel};
use crate::{Servers, connect};
use anyhow::{Result, bail, ensure};
use client::Client;
use compare::folder;
use compare::load::mailings::mailing::{Mailing, address, date, first_date, looked_up};

#[derive(Debug, clap::Args)]
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
    #[command(flatten)]
    servers: Servers,
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
            Self::Table => "{dir}/mailings.tct",
            Self::Hash => "{dir}/mailings.tch",
        }
    }
}

impl Mailings {
    pub(super) fn run(&self) -> Result<()> {
        ensure!(self.rows > 0, "no rows");
        check_clients(&self.clients)?;
        ensure!(
            self.cluster.is_none() || self.kinds.len() == 1,
            "a database in a cluster has one kind: give --kinds"
        );
        println!("kind\tclients\tload rows/s\tload s\tlookups/s\tlookup s\trows\tbytes on disk");
        for kind in &self.kinds {
            for &clients in &self.clients {
                self.measure(*kind, clients)?;
            }
        }
        Ok(())
    }

    fn measure(&self, kind: Kind, clients: usize) -> Result<()> {
        let database = self.cluster.as_deref().unwrap_or(kind.database());
        let mut server = self.servers.start(database)?;
        let client = connect(&server)?;
        // Records that are there are not the experiment's to remove.
        ensure!(client.count()? == 0, "{database} has records");
        let mailings = Mailing::count(self.rows);
        let load = in_parallel(&server, clients, |client, own| {
            for number in 0..mailings {
                let mailing = Mailing::of(number, self.rows);
                // One client sends all mailings to an address.
                if own(mailing.address) {
                    send(kind, client, &mailing)?;
                }
            }
            Ok(())
        })?;
        let lookup = in_parallel(&server, clients, |client, own| {
            for number in (0..self.lookups).filter(|number| own(*number)) {
                look_up(kind, client, looked_up(number, self.rows))?;
            }
            Ok(())
        })?;
        let rows = client.count()?;
        ensure!(rows == self.rows, "rows: {rows} were found, and {} loaded", self.rows);
        let bytes = if self.cluster.is_some() {
            client.vanish()?;
            "-".to_owned()
        } else {
            server.stop()?;
            folder::usage(server.folder())?.allocated.to_string()
        };
        println!(
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
