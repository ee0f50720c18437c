//! `tyrant replicas`: prints the replication tree and the lag of each server.

use crate::bytes::escaped;
use crate::output::{AsJson, object, value_of, write_json};
use crate::plural::{counted, unit};
use crate::remote::{self, OwnOptions, Server, ServerArgument, Unreachable};
use crate::time::format_time;
use crate::transfer::whole_file::Output;
use anyhow::{Result, ensure};
use client::{Address, Settings};
use serde_json::{Map, Value as Json};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;
use wire::binary::{Function, NOT_LOGGED};
use wire::replication::FORGET;

/// Longest wait for another server.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);

/// Most levels from the server up to the first master, and from that down to a replica.
const DEPTH_MAX: usize = 64;

/// Print the replication tree from the first master on, with the lag of each server.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print all servers that replicate each other, from any of them
  tyrant replicas --server 10.0.0.2:1978
  # Let a master forget a replica that is not to return
  tyrant replicas --server 10.0.0.1:1978 --forget 2")]
pub(super) struct Replicas {
    #[command(flatten)]
    server: ServerArgument,
    /// Connect to the server with this address, as it is printed, with options of its own:
    /// at=HOST:PORT (where it is reached instead), plain, tls, tls-ca=FILE, tls-name=NAME,
    /// tls-insecure, tls-cert=FILE, tls-key=FILE, credentials=FILE, no-login, allow-plain-login;
    /// may be repeated
    #[arg(long = "for", value_name = "HOST:PORT,OPTION[,OPTION...]")]
    own_options: Vec<OwnOptions>,
    /// Let the server forget its replica with this server id, which is not connected
    #[arg(long, value_name = "ID", conflicts_with_all = ["own_options", "json"])]
    forget: Option<u16>,
    #[command(flatten)]
    form: AsJson,
}

/// Settings of the connections to each server.
struct Connections {
    common: Settings,
    own: Vec<OwnConnection>,
}

/// Connection to the server that is printed as `printed`.
struct OwnConnection {
    printed: Address,
    at: Address,
    settings: Settings,
    is_used: Cell<bool>,
}

impl Connections {
    fn new(common: &ServerArgument, own: &[OwnOptions]) -> Result<Self> {
        let of_common = common.settings()?;
        let connection = |own: &OwnOptions| {
            let printed = own.address.clone();
            let at = own.at.clone().unwrap_or_else(|| printed.clone());
            let settings = own.over(common).settings()?;
            Ok(OwnConnection { printed, at, settings, is_used: Cell::new(false) })
        };
        Ok(Self { common: of_common, own: own.iter().map(connection).collect::<Result<_>>()? })
    }

    /// Returns where the server that is printed as `address` is reached, and how.
    fn of(&self, address: Address) -> (Address, &Settings) {
        match self.own.iter().find(|own| own.printed == address) {
            Some(own) => {
                own.is_used.set(true);
                (own.at.clone(), &own.settings)
            }
            None => (address, &self.common),
        }
    }

    /// Prints which options were those of no server.
    fn report_unused(&self) {
        for own in self.own.iter().filter(|own| !own.is_used.get()) {
            let printed = &own.printed;
            eprintln!("--for {printed} had no effect: the output has no server of that address");
        }
    }
}

impl Replicas {
    pub(super) fn run(&self) -> Result<()> {
        match self.forget {
            Some(id) => self.forget(id),
            None => self.show(),
        }
    }

    /// Lets the server forget a replica.
    fn forget(&self, id: u16) -> Result<()> {
        let server = self.server.connect()?;
        let text = id.to_string();
        let arguments = [FORGET, text.as_bytes()];
        let reply = server.misc(Function::Replication.name(), NOT_LOGGED, &arguments);
        let reply = reply.map_err(|error| server.explain("replicas --forget", error.into()))?;
        server.confirm("replicas --forget")?;
        let address = reply.first().map_or_else(String::new, |address| escaped(address));
        Ok(writeln!(Output::standard(), "{} forgets replica {id} at {address}", server.address())?)
    }

    /// Prints the tree.
    fn show(&self) -> Result<()> {
        let mut address = self.server.address();
        let connections = Connections::new(&self.server, &self.own_options)?;
        let mut status = Status::of(&address, &connections)?;
        let asked = (address.clone(), status.clone());
        let mut seen = BTreeSet::from([status.process()]);
        let mut silent = 0;
        let mut output = Output::standard();
        for _ in 0..DEPTH_MAX {
            let Some(master) = status.master() else { break };
            match Status::of(&master, &connections) {
                // Two masters of each other: either may be the first.
                Ok(above) if !seen.insert(above.process()) => break,
                Ok(above) => (address, status) = (master, above),
                Err(error) => {
                    let line = Line {
                        address: &master,
                        error: Some(silence(&master, &error)),
                        ..Line::default()
                    };
                    line.write(self.form, &mut output)?;
                    silent += 1;
                    break;
                }
            }
        }
        let seen = BTreeSet::new();
        let (connections, form, asked) = (&connections, self.form, &asked);
        let mut tree = Tree { output: &mut output, connections, form, asked, seen, silent };
        tree.show(&address, &status, None, 0)?;
        // Its master may not have it: it is refused, or not connected.
        if !tree.seen.contains(&asked.1.process()) {
            tree.show(&asked.0, &asked.1, None, 0)?;
        }
        let silent = tree.silent;
        connections.report_unused();
        ensure!(
            silent == 0,
            "{}, as the output has it",
            counted(silent, "server does not answer", "servers do not answer")
        );
        Ok(())
    }
}

/// Printer of the replication tree.
struct Tree<'o> {
    output: &'o mut dyn Write,
    connections: &'o Connections,
    form: AsJson,
    /// The server that the command was given, and its status.
    asked: &'o (String, Status),
    /// Servers printed so far.
    seen: BTreeSet<[String; 3]>,
    /// Servers that do not answer.
    silent: u64,
}

impl Tree<'_> {
    /// Returns the status of a replica that its master has described.
    fn status_of(&self, described: &ReplicaStatus<'_>) -> Result<Status> {
        let (address, status) = self.asked;
        let answer = Status::of(described.address(), self.connections);
        // A host may have several addresses, of which the certificate of the server has one.
        let is_asked = described.id == status.id() && port(described.address()) == port(address);
        answer.or_else(|error| if is_asked { Ok(status.clone()) } else { Err(error) })
    }

    /// Prints a server, described by its master as `seen_above`, and its replicas.
    fn show(
        &mut self,
        address: &str,
        status: &Status,
        seen_above: Option<&ReplicaStatus<'_>>,
        depth: usize,
    ) -> Result<()> {
        let id = status.id();
        let mut line = Line { address, depth, id: Some(&id), ..Line::default() };
        match (seen_above, status.master()) {
            (Some(described), master) => {
                line.describe(described);
                match described.since_us() {
                    Some(_) => line.state.push_str(&format!(", {}", own_state(master, &status.0))),
                    None => line.state.push_str(&difference(&status.0)),
                }
            }
            (None, Some(master)) => {
                line.state = own_state(Some(master), &status.0);
                line.executed_us = status.0.get("rts").cloned();
                if !is_without_master(&status.0) {
                    line.lag_operations = status.0.get("replication_lag_operations").cloned();
                    let has_received = status.value("rts") != "0";
                    line.lag_seconds = status.0.get("delay").filter(|_| has_received).cloned();
                }
            }
            (None, None) => line.state = own_state(None, &status.0),
        }
        line.write(self.form, self.output)?;
        if !self.seen.insert(status.process()) || depth >= DEPTH_MAX {
            return Ok(());
        }
        let mut shown = 0;
        for described in status.replicas() {
            shown += u64::from(described.since_us().is_none());
            match self.status_of(&described) {
                // Another server may have its address by now.
                Ok(replica) if described.since_us().is_some() && replica.id() != described.id => {
                    Line::of(&described, depth + 1).write(self.form, self.output)?;
                }
                Ok(replica) => {
                    self.show(described.address(), &replica, Some(&described), depth + 1)?;
                }
                Err(error) => {
                    let mut line = Line::of(&described, depth + 1);
                    line.error = Some(silence(described.address(), &error));
                    line.write(self.form, self.output)?;
                    self.silent += 1;
                }
            }
        }
        let count = status.value("replicas").parse().unwrap_or(0);
        if shown < count && self.form.json {
            let members =
                [("depth", (depth + 1).into()), ("replicas_not_described", (count - shown).into())];
            write_json(&object(members), self.output)?;
        } else if shown < count {
            let place = "  ".repeat(depth + 1);
            writeln!(self.output, "{place}and {} more without a description", count - shown)?;
        }
        Ok(())
    }
}

/// Returns the port of an address, if it has one.
fn port(address: &str) -> Option<u16> {
    match remote::parse(address) {
        Ok(Address::Tcp { port, .. }) => Some(port),
        _ => None,
    }
}

/// Options for a server alone, and a part of the errors that each of them is a remedy for.
const REMEDIES: [(&str, &str); 7] = [
    ("leave out --tls", "plain"),
    ("--tls-name", "tls-name=NAME"),
    ("--tls-cert", "tls-cert=FILE,tls-key=FILE"),
    ("--tls-ca", "tls-ca=FILE"),
    ("requires a user", "credentials=FILE"),
    ("refused the login", "credentials=FILE"),
    ("has no users", "no-login"),
];

/// Returns why a server does not answer that another one has named, and what to do.
fn silence(address: &str, error: &anyhow::Error) -> String {
    match error.downcast_ref::<Unreachable>() {
        Some(Unreachable { what, .. }) => {
            format!(
                "{what}; check that it runs, and that this machine reaches it there, or give its \
                 address: --for {address},at=HOST:PORT"
            )
        }
        None => {
            let text = error.to_string();
            let remedy = REMEDIES.iter().find(|(part, _)| text.contains(part));
            let option = remedy.map_or("OPTION (--help lists them)", |(_, option)| *option);
            format!("{text}; for this server alone: --for {address},{option}")
        }
    }
}

/// Line about one server.
#[derive(Default)]
struct Line<'a> {
    address: &'a str,
    /// Number of masters above it.
    depth: usize,
    id: Option<&'a str>,
    /// Role or state, and lag, as text.
    state: String,
    lag_operations: Option<String>,
    lag_seconds: Option<String>,
    /// Time stamp of the last operation that a replica has executed.
    executed_us: Option<String>,
    /// Reason why the server does not answer.
    error: Option<String>,
}

impl<'a> Line<'a> {
    /// Returns the line about a server of which only the description by its master is known.
    fn of(status: &'a ReplicaStatus<'_>, depth: usize) -> Self {
        let (address, id) = (status.address(), Some(status.id));
        let mut line = Self { address, depth, id, ..Self::default() };
        line.describe(status);
        line
    }

    /// Takes the description of the server by its master.
    fn describe(&mut self, status: &ReplicaStatus<'_>) {
        self.state = status.lag();
        let word = |name| status.words.get(name).map(|word| (*word).to_owned());
        self.lag_operations = word("lag_operations");
        self.lag_seconds = word("lag_seconds");
        self.executed_us = word("executed_us");
    }

    fn write(&self, form: AsJson, output: &mut dyn Write) -> Result<()> {
        let Self { address, depth, id, state, lag_operations, lag_seconds, executed_us, error } =
            self;
        if form.json {
            let mut members = Map::new();
            members.insert("address".to_owned(), (*address).into());
            members.insert("depth".to_owned(), (*depth).into());
            let optional = [
                ("server_id", id.map(value_of)),
                ("state", (!state.is_empty()).then(|| state.as_str().into())),
                ("lag_operations", lag_operations.as_deref().map(value_of)),
                ("lag_seconds", lag_seconds.as_deref().map(value_of)),
                ("executed_us", executed_us.as_deref().map(value_of)),
                ("error", error.as_deref().map(Into::into)),
            ];
            for (name, value) in optional {
                members.extend(value.map(|value| (name.to_owned(), value)));
            }
            return write_json(&Json::Object(members), output);
        }
        let mut line = format!("{}{}", "  ".repeat(*depth), escaped(address.as_bytes()));
        if let Some(id) = id {
            line.push_str(&format!("\tsid {}", escaped(id.as_bytes())));
        }
        if !state.is_empty() || error.is_some() {
            line.push_str(&format!("\t{}", escaped(state.as_bytes())));
        }
        if let Some(error) = error {
            let comma = if state.is_empty() { "" } else { ", " };
            line.push_str(&format!("{comma}does not answer: {}", escaped(error.as_bytes())));
        }
        Ok(writeln!(output, "{line}")?)
    }
}

/// Status of a server, as it reports it.
#[derive(Clone)]
struct Status(BTreeMap<String, String>);

impl Status {
    fn of(address: &str, connections: &Connections) -> Result<Self> {
        let (address, settings) = connections.of(remote::parse(address)?);
        // Its errors tell what the server is, and what it requires.
        let text = Server::connect_within(&address.to_string(), settings, TIMEOUT)?.stat()?;
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

    /// Returns what tells the server from others: two may have the same id by mistake.
    fn process(&self) -> [String; 3] {
        ["sid", "pid", "path"].map(|name| self.value(name).to_owned())
    }

    fn master(&self) -> Option<String> {
        let host: &str = self.0.get("mhost")?;
        Some(Address::from((host, self.value("mport").parse().ok()?)).to_string())
    }

    /// Returns the replicas that it serves.
    fn replicas(&self) -> impl Iterator<Item = ReplicaStatus<'_>> {
        replicas_of(&self.0)
    }
}

/// Returns the replicas of a server, as its `stat` describes them.
pub(super) fn replicas_of(
    stat: &BTreeMap<String, String>,
) -> impl Iterator<Item = ReplicaStatus<'_>> {
    stat.iter().filter_map(|(name, text)| {
        let id = name.strip_prefix("replica_")?;
        // Greater ids belong to tools.
        id.parse::<u16>().ok()?;
        let words = text.split(' ').filter_map(|word| word.split_once('=')).collect();
        Some(ReplicaStatus { id, words })
    })
}

/// A replica, as its master describes it.
pub(super) struct ReplicaStatus<'s> {
    pub(super) id: &'s str,
    words: BTreeMap<&'s str, &'s str>,
}

impl ReplicaStatus<'_> {
    fn word(&self, name: &str) -> &str {
        self.words.get(name).copied().unwrap_or("")
    }

    pub(super) fn address(&self) -> &str {
        self.word("address")
    }

    /// Returns the time since which it is not connected, in microseconds since 1970.
    fn since_us(&self) -> Option<u64> {
        self.words.get("since_us")?.parse().ok()
    }

    pub(super) fn lag(&self) -> String {
        let state = self.word("state");
        let seconds = self.word("lag_seconds").parse().unwrap_or(f64::NAN);
        match self.words.get("lag_operations") {
            _ if state == "seeding" => {
                let all = self.word("seeding");
                let records = unit_of(all, "record", "records");
                format!("seeding, {} of {all} {records}", self.word("seeded"))
            }
            Some(operations) => {
                let state = match self.since_us() {
                    Some(since_us) => format!("not connected since {}", format_time(since_us)),
                    None => state.to_owned(),
                };
                format!("{state}, {}", lag_text(operations, seconds))
            }
            // A Tokyo Tyrant replica does not report its progress.
            None => format!("{state}, sent up to {}", self.word("sent_us")),
        }
    }
}

/// Returns the role of a server, and how far it is behind its master, if it has one.
fn own_state(master: Option<String>, stat: &BTreeMap<String, String>) -> String {
    match master {
        Some(master) => format!("replica of {master}, {}", own_lag(stat)),
        None => "master".to_owned(),
    }
}

/// Returns how far a server is behind its master, as its `stat` says, and whether it is connected.
pub(super) fn own_lag(stat: &BTreeMap<String, String>) -> String {
    let value = |name: &str| stat.get(name).map_or("", String::as_str);
    let seconds = value("delay").parse().unwrap_or(f64::NAN);
    let lag = match stat.get("replication_lag_operations") {
        // The lag is the time since 1970.
        _ if value("rts") == "0" => "nothing received yet".to_owned(),
        _ if is_without_master(stat) => match value("rts").parse() {
            // A copy without records has 1.
            Ok(executed_us) if executed_us > 1 => {
                format!("lag unknown without its master, executed up to {}", rts_text(executed_us))
            }
            _ => "lag unknown without its master".to_owned(),
        },
        Some(operations) => lag_text(operations, seconds),
        None => format!("{seconds:.3} s behind"),
    };
    let error = match value("replication_error") {
        "" => String::new(),
        error => format!(": {error}"),
    };
    let inexact = difference(stat);
    match value("replication_state") {
        "" | "following" => format!("{lag}{inexact}"),
        state => format!("{state}, {lag}{error}{inexact}"),
    }
}

/// Returns whether a replica has no connection to its master. Its lag is then that of the last
/// contact, and says nothing about what the master had, or another replica has.
fn is_without_master(stat: &BTreeMap<String, String>) -> bool {
    let state = stat.get("replication_state").map_or("", String::as_str);
    matches!(state, "connecting" | "stopped") || stat.contains_key("replication_error")
}

/// Returns a time stamp of the update log as a time, and as `rts` has it, by which replicas are
/// compared.
pub(super) fn rts_text(at_us: u64) -> String {
    format!("{} (rts {at_us})", format_time(at_us))
}

/// Returns the end of a replica's line if its records may differ from its master's.
fn difference(stat: &BTreeMap<String, String>) -> String {
    let reason = stat.get("replication_inexact");
    reason.map_or(String::new(), |reason| format!(", may differ from its master: {reason}"))
}

fn lag_text(operations: &str, seconds: f64) -> String {
    let unit = unit_of(operations, "operation", "operations");
    format!("{operations} {unit}, {seconds:.3} s behind")
}

/// Returns the word for this number, as a server writes it.
fn unit_of(number: &str, one: &'static str, many: &'static str) -> &'static str {
    unit(number.parse().unwrap_or(0_u64), one, many)
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
        let text = "address=h:1 state=streaming lag_operations=1 lag_seconds=0.25 executed_us=7";
        let seeding = "address=h:2 state=seeding seeded=5 seeding=9";
        let original = "address=h:3 state=streaming sent_us=7";
        let lost = "address=h:5 state=disconnected since_us=1795812056300000 lag_operations=2 \
                    lag_seconds=3 executed_us=7";
        let status = status(&[
            ("replica_2", text),
            ("replica_3", seeding),
            ("replica_4", original),
            ("replica_5", lost),
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
                "2 h:1: streaming, 1 operation, 0.250 s behind",
                "3 h:2: seeding, 5 of 9 records",
                "4 h:3: streaming, sent up to 7",
                "5 h:5: not connected since 2026-11-27T20:40:56.300000Z, 2 operations, 3.000 s \
                 behind",
            ]
        );
    }

    #[test]
    fn a_replica_knows_its_master_and_its_lag() {
        assert_eq!(status(&[]).master(), None);
        let status = status(&[("mhost", "::1"), ("mport", "1978"), ("delay", "0.5")]);
        assert_eq!(status.master().as_deref(), Some("[::1]:1978"));
        assert_eq!(own_lag(&status.0), "0.500 s behind");
    }

    #[test]
    fn a_replica_without_its_master_says_so() {
        let lag = |lines: &[(&str, &str)]| own_lag(&status(lines).0);
        let state = ("replication_state", "connecting");
        assert_eq!(
            lag(&[("delay", "1795812056.3"), ("rts", "0"), state]),
            "connecting, nothing received yet"
        );
        // The lag of the last contact would recommend the wrong one of two replicas.
        let operations = ("replication_lag_operations", "0");
        assert_eq!(
            lag(&[("delay", "12"), ("rts", "1795812056300000"), state, operations]),
            "connecting, lag unknown without its master, \
             executed up to 2026-11-27T20:40:56.300000Z (rts 1795812056300000)"
        );
        let following = [
            ("delay", "0.25"),
            ("rts", "7"),
            ("replication_state", "following"),
            ("replication_lag_operations", "3"),
        ];
        assert_eq!(lag(&following), "3 operations, 0.250 s behind");
    }
}
