//! Benchmark: mailings by address, stored as a table with a column per date, and as a hash database
//! whose values are lines. It is a workload that users of Tokyo Cabinet described.

use super::clients::{check_clients, in_parallel, scatter};
use super::own_server::OwnServer;
use anyhow::{Result, bail, ensure};
use client::Client;
use std::path::PathBuf;

/// One of this many addresses gets a second mailing.
const SECOND_MAILINGS: u64 = 8;

/// Number of dates.
const DATES: u64 = 30;

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

/// A mailing to one address.
struct Mailing {
    address: u64,
    date: u64,
}

impl Mailings {
    pub(super) fn run(&self) -> Result<()> {
        ensure!(self.rows > 0, "no rows");
        check_clients(&self.clients)?;
        if let Some(name) = &self.cluster {
            crate::cluster::check(name)?;
            ensure!(self.kinds.len() == 1, "a database in a cluster has one kind: give --kinds");
        }
        println!("kind\tclients\tload rows/s\tload s\tlookups/s\tlookup s\trows\tbytes on disk");
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
        let mailings = self.rows + self.rows / SECOND_MAILINGS;
        let load = in_parallel(&server, clients, "load", mailings, &|client, own, done| {
            for number in 0..mailings {
                let mailing = self.mailing(number);
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
                        let address = scatter(number ^ 0x5eed) % self.rows;
                        look_up(kind, client, address)?;
                        done();
                    }
                }
                Ok(())
            })?;
        let rows = server.connect()?.count()?;
        ensure!(rows == self.rows, "{rows} rows were found, {} were loaded", self.rows);
        let bytes = match &self.cluster {
            None => server.close(kind.database())?.to_string(),
            Some(_) => {
                server.connect()?.vanish()?;
                "-".to_owned()
            }
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

    /// The first mailings go to every address once, the others to some a second time.
    fn mailing(&self, number: u64) -> Mailing {
        let scattered = scatter(number);
        let address = if number < self.rows { number } else { scattered % self.rows };
        // A different date than the first one's.
        let again = u64::from(number >= self.rows) * (DATES / 2);
        Mailing { address, date: (address + again) % DATES }
    }
}

fn send(kind: Kind, client: &Client, mailing: &Mailing) -> Result<()> {
    let (key, date) = (address(mailing.address), date(mailing.date));
    match kind {
        Kind::Table => {
            client.misc(b"putcat", 0, &[&key[..], date.as_bytes(), b"1"])?;
        }
        Kind::Hash => {
            let line = format!("{date}\t1\n");
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
    let first = date(number % DATES);
    ensure!(
        value.windows(first.len()).any(|part| part == first.as_bytes()),
        "the {kind:?} has another value under {}",
        String::from_utf8_lossy(&key)
    );
    Ok(())
}

fn address(number: u64) -> Vec<u8> {
    // Scattered, so that addresses are not in order.
    format!("{:07x}.{number}@example.com", scatter(number) >> 36).into_bytes()
}

fn date(number: u64) -> String {
    format!("2026-11-{:02}", number + 1)
}
