//! Source of readings: the databases of a server's process, to which it connects again after a
//! connection was lost.

use super::figures::{Figures, Reading, seconds_between};
use super::history::History;
use crate::commands::slow;
use crate::remote::{self, Server};
use crate::serving::TLS_ONLY;
use anyhow::Result;
use client::{Address, Settings};
use serde_json::Value as Json;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use wire::binary::Function;

/// Longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(3);

/// Time that times of requests and counts of events span.
const SPAN_SECONDS: f64 = 10.0;

/// A database with its readings.
struct Database {
    address: String,
    server: Option<Server>,
    /// Whether the server refuses its metrics, which it counts as a denied request.
    lacks_metrics: bool,
    /// The last readings of one process, the first one at least [`SPAN_SECONDS`] ago if there was
    /// one.
    readings: Vec<Reading>,
    history: History,
}

impl Database {
    fn new(address: String) -> Self {
        let history = History::default();
        Self { address, server: None, lacks_metrics: false, readings: Vec::new(), history }
    }

    /// Adds a reading.
    fn add(&mut self, reading: Reading) {
        if self.readings.last().is_some_and(|last| seconds_between(last, &reading).is_none()) {
            self.readings.clear();
        }
        self.readings.push(reading);
        while let [_, second, .., last] = &self.readings[..]
            && seconds_between(second, last).is_none_or(|seconds| seconds >= SPAN_SECONDS)
        {
            self.readings.remove(0);
        }
        if let Some(figures) = Figures::of(&self.readings) {
            self.history.add(&figures);
        }
    }
}

pub(super) struct Source {
    settings: Settings,
    databases: Vec<Database>,
    /// Index of the one that is read.
    current: usize,
}

impl Source {
    /// Connects to a server, and finds the other databases of its process. A user without the right
    /// `admin` sees this database alone.
    pub(super) fn connect(address: &str, settings: Settings) -> Result<Self> {
        let server = Server::connect_within(address, &settings, PATIENCE)?;
        let listed = server.misc(Function::Metrics.name(), 0, &["databases"]).unwrap_or_default();
        let listed: Vec<String> =
            listed.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        let parsed = remote::parse(address)?;
        let (addresses, current) = addresses(address, &parsed, settings.tls.is_some(), &listed);
        let mut databases: Vec<Database> = addresses.into_iter().map(Database::new).collect();
        databases[current].server = Some(server);
        Ok(Self { settings, databases, current })
    }

    /// Returns the number of the database that is read, from 1 on, and that of all.
    pub(super) fn place(&self) -> (usize, usize) {
        (self.current + 1, self.databases.len())
    }

    /// Chooses the next database, or the one before.
    pub(super) fn turn(&mut self, is_forward: bool) {
        let all = self.databases.len();
        self.current = (self.current + if is_forward { 1 } else { all - 1 }) % all;
    }

    pub(super) fn address(&self) -> &str {
        &self.databases[self.current].address
    }

    pub(super) fn figures(&self) -> Option<Figures<'_>> {
        Figures::of(&self.databases[self.current].readings)
    }

    pub(super) fn history(&self) -> &History {
        &self.databases[self.current].history
    }

    /// Reads the present figures.
    pub(super) fn read(&mut self) -> Result<()> {
        let lacks_metrics = self.databases[self.current].lacks_metrics;
        let reading = self.with_server(|server| {
            let stat = server.stat().map_err(|error| server.explain("stat", error.into()))?;
            let nothing: [&[u8]; 0] = [];
            // A server that lacks the function, or masks it, has its `stat`.
            let metrics = match lacks_metrics {
                true => Err(client::Error::Miscellaneous),
                false => server.misc(Function::Metrics.name(), 0, &nothing),
            };
            let metrics = match metrics {
                Err(client::Error::Miscellaneous) => None,
                metrics => {
                    let metrics =
                        metrics.map_err(|error| server.explain("metrics", error.into()))?;
                    metrics.into_iter().next()
                }
            };
            let metrics = metrics.as_deref().map(String::from_utf8_lossy);
            let reading = Reading::new(&String::from_utf8_lossy(&stat), metrics.as_deref());
            Ok((reading, metrics.is_none()))
        });
        let database = &mut self.databases[self.current];
        match reading {
            Ok((reading, lacks_metrics)) => {
                database.lacks_metrics = lacks_metrics;
                database.add(reading);
                Ok(())
            }
            Err(error) => {
                // Another process may have taken its place.
                database.lacks_metrics = false;
                database.readings.clear();
                Err(error)
            }
        }
    }

    /// Returns the last slow requests.
    pub(super) fn slow_requests(&mut self) -> Result<Vec<Json>> {
        self.with_server(|server| {
            slow::requests(server).map_err(|error| server.explain("slow", error))
        })
    }

    /// Calls `ask` with a connection to the database, which is kept unless it broke.
    fn with_server<T>(&mut self, ask: impl FnOnce(&Server) -> Result<T>) -> Result<T> {
        let database = &mut self.databases[self.current];
        let server = match database.server.take() {
            Some(server) => server,
            None => Server::connect_within(&database.address, &self.settings, PATIENCE)?,
        };
        let result = ask(&server);
        if !server.is_broken() {
            database.server = Some(server);
        }
        result
    }
}

/// Returns the addresses of the databases of a process as this client reaches them, and which of
/// them is that of the connection. `listed` are the lines of the server about them.
fn addresses(
    address: &str,
    parsed: &Address,
    has_tls: bool,
    listed: &[String],
) -> (Vec<String>, usize) {
    let reached = |line: &String| {
        let of_kind = line.split('\t').skip(1).filter_map(|one| match one.strip_suffix(TLS_ONLY) {
            Some(one) => has_tls.then_some((one, true)),
            None => Some((one, false)),
        });
        let mut all: Vec<(&str, bool)> = of_kind.collect();
        let is_tcp = matches!(parsed, Address::Tcp { .. });
        // An address that does not require TLS may take it too.
        all.sort_by_key(|(one, requires_tls)| {
            (one.parse::<SocketAddr>().is_ok() != is_tcp, *requires_tls != has_tls)
        });
        let all: Vec<&str> = all.into_iter().map(|(one, _)| one).collect();
        let is_this = |one: &&str| match parsed {
            Address::Tcp { port, .. } => {
                one.parse::<SocketAddr>().is_ok_and(|address| address.port() == *port)
            }
            // The server may have been given the path from another folder.
            Address::Unix(path) => path.file_name() == Path::new(one).file_name(),
        };
        if all.iter().any(is_this) {
            return Some((address.to_owned(), true));
        }
        let first = all.first()?;
        let other = match (parsed, first.parse::<SocketAddr>()) {
            // The address that the server is bound to may be none that leads to it from here.
            (Address::Tcp { host, .. }, Ok(bound)) => {
                Address::from((host.as_str(), bound.port())).to_string()
            }
            _ => (*first).to_owned(),
        };
        Some((other, false))
    };
    let found: Vec<(String, bool)> = listed.iter().filter_map(reached).collect();
    match found.iter().position(|(_, is_this)| *is_this) {
        Some(current) => (found.into_iter().map(|(address, _)| address).collect(), current),
        // The way to the server changes its port, so those of the others are unknown.
        None => (vec![address.to_owned()], 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_databases_are_reached_as_this_one() {
        let of = |address: &str, has_tls, listed: &[&str]| {
            let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
            addresses(address, &remote::parse(address).expect("an address"), has_tls, &listed)
        };
        let two = ["a.tch\t0.0.0.0:1\t[::1]:1", "b.tcb\t127.0.0.1:2\t127.0.0.1:3+tls\t/run/b+tls"];
        let strings = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(of("db:1", false, &two), (strings(&["db:1", "db:2"]), 0));
        assert_eq!(of("db:2", false, &two), (strings(&["db:1", "db:2"]), 1));
        assert_eq!(of("db:3", true, &two), (strings(&["db:1", "db:3"]), 1));
        assert_eq!(of("db:1", true, &two), (strings(&["db:1", "db:3"]), 0));
        // A port that is none of the listed ones is that of a proxy.
        assert_eq!(of("db:9", false, &two), (strings(&["db:9"]), 0));
        assert_eq!(of("db:1", false, &[]), (strings(&["db:1"]), 0));
        let sockets = ["a.tch\t./a.sock", "b.tch\t127.0.0.1:2\t./b.sock"];
        assert_eq!(of("./b.sock", false, &sockets), (strings(&["./a.sock", "./b.sock"]), 1));
    }

    #[test]
    fn readings_are_kept_for_some_seconds_and_those_of_another_process_are_dropped() {
        let mut database = Database::new("h:1".to_owned());
        let reading = |pid, time: f64| Reading::new(&format!("pid\t{pid}\ntime\t{time}\n"), None);
        for time in 0..100 {
            database.add(reading(1, 2.0 * f64::from(time)));
        }
        let times: Vec<_> = database.readings.iter().filter_map(Reading::time).collect();
        assert_eq!(times, [188.0, 190.0, 192.0, 194.0, 196.0, 198.0]);
        database.add(reading(2, 300.0));
        assert_eq!(database.readings.len(), 1);
    }
}
