//! `tyrant replicas`: prints the replication tree and the lag of each server.

use anyhow::{Context, Result};
use client::{Address, Client, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

/// Longest wait for one of the servers.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Most levels from the server up to the first master, and from that down to a replica.
const DEPTH_MAX: usize = 64;

/// Print the replication tree from the first master on, with the lag of each server.
#[derive(Debug, clap::Args)]
pub(super) struct Replicas {
    /// Start at this master or replica: HOST:PORT, or the path of its Unix socket
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:1978")]
    server: String,
}

impl Replicas {
    pub(super) fn run(&self) -> Result<()> {
        let mut address = self.server.clone();
        let mut status = Status::of(&address).with_context(|| address.clone())?;
        let mut seen = BTreeSet::from([status.id()]);
        let mut output = std::io::stdout().lock();
        for _ in 0..DEPTH_MAX {
            let Some(master) = status.master() else { break };
            match Status::of(&master) {
                // Two masters of each other: either may be the first.
                Ok(above) if !seen.insert(above.id()) => break,
                Ok(above) => (address, status) = (master, above),
                Err(error) => {
                    writeln!(output, "{master}\tunreachable: {error:#}")?;
                    break;
                }
            }
        }
        Tree { output: &mut output, seen: BTreeSet::new() }.show(&address, &status, None, 0)
    }
}

/// Printer of the replication tree.
struct Tree<'o> {
    output: &'o mut dyn Write,
    /// Ids of the servers printed so far.
    seen: BTreeSet<String>,
}

impl Tree<'_> {
    /// Prints a server, described by its master as `seen_above`, and its replicas.
    fn show(
        &mut self,
        address: &str,
        status: &Status,
        seen_above: Option<&ReplicaStatus<'_>>,
        depth: usize,
    ) -> Result<()> {
        let place = "  ".repeat(depth);
        let role = match (seen_above, status.master()) {
            (Some(described), _) => described.lag(),
            (None, Some(master)) => format!("replica of {master}, {}", status.own_lag()),
            (None, None) => "master".to_owned(),
        };
        writeln!(self.output, "{place}{address}\tsid {}\t{role}", status.id())?;
        if !self.seen.insert(status.id()) || depth >= DEPTH_MAX {
            return Ok(());
        }
        let mut shown = 0;
        for described in status.replicas() {
            shown += 1;
            match Status::of(described.address()) {
                Ok(replica) => {
                    self.show(described.address(), &replica, Some(&described), depth + 1)?;
                }
                Err(error) => writeln!(
                    self.output,
                    "{place}  {}\tsid {}\t{}, does not answer: {error:#}",
                    described.address(),
                    described.id,
                    described.lag()
                )?,
            }
        }
        let count = status.value("replicas").parse().unwrap_or(0);
        if shown < count {
            writeln!(self.output, "{place}  and {} more without a description", count - shown)?;
        }
        Ok(())
    }
}

/// Status of a server, as it reports it.
struct Status(BTreeMap<String, String>);

impl Status {
    fn of(address: &str) -> Result<Self> {
        let address: Address =
            address.parse().context("neither HOST:PORT nor the path of a socket")?;
        let settings = Settings {
            connect_timeout: TIMEOUT,
            read_timeout: Some(TIMEOUT),
            write_timeout: Some(TIMEOUT),
            ..Settings::default()
        };
        let text = Client::connect_with(address, settings)?.stat()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let figures = text.lines().filter_map(|line| line.split_once('\t'));
        Ok(Self(figures.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }

    fn value(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn id(&self) -> String {
        self.value("sid").to_owned()
    }

    fn master(&self) -> Option<String> {
        let host = self.0.get("mhost")?;
        let port = self.value("mport");
        Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
    }

    /// Returns the lag that the server knows of.
    fn own_lag(&self) -> String {
        let seconds = self.value("delay").parse().unwrap_or(f64::NAN);
        match self.0.get("replication_lag_operations") {
            Some(operations) => lag_text(operations, seconds),
            None => format!("{seconds:.3} s behind"),
        }
    }

    /// Returns the replicas that it serves.
    fn replicas(&self) -> impl Iterator<Item = ReplicaStatus<'_>> {
        self.0.iter().filter_map(|(name, text)| {
            let id = name.strip_prefix("replica_")?;
            // Greater ids belong to tools.
            id.parse::<u16>().ok()?;
            let words = text.split(' ').filter_map(|word| word.split_once('=')).collect();
            Some(ReplicaStatus { id, words })
        })
    }
}

/// A replica, as its master describes it.
struct ReplicaStatus<'s> {
    id: &'s str,
    words: BTreeMap<&'s str, &'s str>,
}

impl ReplicaStatus<'_> {
    fn word(&self, name: &str) -> &str {
        self.words.get(name).copied().unwrap_or("")
    }

    fn address(&self) -> &str {
        self.word("address")
    }

    fn lag(&self) -> String {
        let state = self.word("state");
        let seconds = self.word("lag_seconds").parse().unwrap_or(f64::NAN);
        match self.words.get("lag_operations") {
            _ if state == "seeding" => {
                format!("seeding, {} of {} records", self.word("seeded"), self.word("seeding"))
            }
            Some(operations) => format!("{state}, {}", lag_text(operations, seconds)),
            // A Tokyo Tyrant replica does not report its progress.
            None => format!("{state}, sent up to {}", self.word("sent_us")),
        }
    }
}

fn lag_text(operations: &str, seconds: f64) -> String {
    format!("{operations} operations, {seconds:.3} s behind")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(lines: &[(&str, &str)]) -> Status {
        Status(
            lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        )
    }

    #[test]
    fn the_status_of_replicas_is_parsed() {
        let text = "address=h:1 state=streaming lag_operations=3 lag_seconds=0.25 executed_us=7";
        let seeding = "address=h:2 state=seeding seeded=5 seeding=9";
        let original = "address=h:3 state=streaming sent_us=7";
        let status = status(&[
            ("replica_2", text),
            ("replica_3", seeding),
            ("replica_4", original),
            ("replica_2147483647", original),
            ("replicas", "4"),
        ]);
        let lines: Vec<_> = status
            .replicas()
            .map(|described| {
                format!("{} {}: {}", described.id, described.address(), described.lag())
            })
            .collect();
        assert_eq!(
            lines,
            [
                "2 h:1: streaming, 3 operations, 0.250 s behind",
                "3 h:2: seeding, 5 of 9 records",
                "4 h:3: streaming, sent up to 7",
            ]
        );
    }

    #[test]
    fn a_replica_knows_its_master_and_its_lag() {
        assert_eq!(status(&[]).master(), None);
        let status = status(&[("mhost", "::1"), ("mport", "1978"), ("delay", "0.5")]);
        assert_eq!(status.master().as_deref(), Some("[::1]:1978"));
        assert_eq!(status.own_lag(), "0.500 s behind");
    }
}
