//! Mailings by e-mail address: one line per mailing is appended to the record of its address, then
//! addresses are looked up. The load is that of `served mailings`, from clients that wait for each
//! reply.

pub mod mailing;

use super::driver::Tally;
use super::protocol::Protocol;
use super::server::Server;
use super::slice::Measured;
use crate::{folder, process};
use anyhow::{Context as _, Result, bail, ensure};
use mailing::{Mailing, address, first_date, looked_up};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Numbers of addresses, lookups and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Addresses; an eighth of them get a second mailing.
    pub addresses: u64,
    /// Lookups.
    pub lookups: u64,
    /// Clients, each with a connection and a thread.
    pub clients: u64,
}

/// Stores all mailings.
pub fn load(server: &Server, plan: &Plan) -> Result<Measured> {
    in_parallel(
        server,
        plan,
        Mailing::count(plan.addresses),
        |client, number| {
            let mailing = Mailing::of(number, plan.addresses);
            let key = address(mailing.address);
            client.store(&key, mailing.line().as_bytes(), number >= plan.addresses)
        },
        |number| Mailing::of(number, plan.addresses).address,
    )
}

/// Looks up addresses, and checks the values.
pub fn look_up(server: &Server, plan: &Plan) -> Result<Measured> {
    in_parallel(
        server,
        plan,
        plan.lookups,
        |client, turn| {
            let number = looked_up(turn, plan.addresses);
            let value = client.get(&address(number))?;
            let first = first_date(number);
            ensure!(value.starts_with(first.as_bytes()), "another value of address {number}");
            Ok(())
        },
        |turn| turn,
    )
}

/// Runs the operations `0..total`. `owner` modulo the number of clients gives the client of each.
fn in_parallel(
    server: &Server,
    plan: &Plan,
    total: u64,
    operation: impl Fn(&mut Client, u64) -> Result<()> + Sync,
    owner: impl Fn(u64) -> u64 + Sync,
) -> Result<Measured> {
    ensure!(plan.clients > 0 && plan.addresses > 0, "nothing to do");
    let clients = (0..plan.clients).map(|_| Client::connect(server)).collect::<Result<Vec<_>>>()?;
    let (server_before, client_before) = (server.cpu_time()?, process::own_cpu_time());
    let start = Instant::now();
    let mut tally = Tally::new();
    std::thread::scope(|scope| {
        let (operation, owner) = (&operation, &owner);
        let threads: Vec<_> = (0..)
            .zip(clients)
            .map(|(place, mut client)| {
                scope.spawn(move || -> Result<Tally> {
                    let mut tally = Tally::new();
                    for number in (0..total).filter(|n| owner(*n) % plan.clients == place) {
                        let start = Instant::now();
                        operation(&mut client, number)?;
                        tally.operations += 1;
                        tally.latencies.saturating_record(start.elapsed().as_nanos() as u64);
                    }
                    Ok(tally)
                })
            })
            .collect();
        for thread in threads {
            let outcome = thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?;
            tally.add(&outcome.with_context(|| server.recipe.name.clone())?);
        }
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(Measured {
        tally,
        elapsed: start.elapsed(),
        server_cpu: server.cpu_time()?.saturating_sub(server_before),
        client_cpu: process::own_cpu_time().saturating_sub(client_before),
        memory_bytes: server.memory()?.anonymous,
        disk_bytes: folder::usage(server.folder())?.allocated,
    })
}

/// Longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection that waits for each reply.
struct Client {
    protocol: Protocol,
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
}

impl Client {
    fn connect(server: &Server) -> Result<Self> {
        let protocol = server.recipe.protocol;
        if !matches!(protocol, Protocol::Memcached | Protocol::Redis) {
            bail!("mailings are sent by the protocol of memcached or of Redis");
        }
        let stream = TcpStream::connect(server.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { protocol, stream: BufReader::new(stream), request: Vec::new() })
    }

    /// Stores a record, or appends to it.
    fn store(&mut self, key: &[u8], line: &[u8], is_append: bool) -> Result<()> {
        self.request.clear();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (key, line) = (text(key), text(line));
        match self.protocol {
            Protocol::Redis => {
                let command = if is_append { "APPEND" } else { "SET" };
                let (of_command, of_key, of_line) = (command.len(), key.len(), line.len());
                write!(
                    self.request,
                    "*3\r\n${of_command}\r\n{command}\r\n${of_key}\r\n{key}\r\n\
                     ${of_line}\r\n{line}\r\n"
                )?;
            }
            _ => {
                let command = if is_append { "append" } else { "set" };
                write!(self.request, "{command} {key} 0 0 {}\r\n{line}\r\n", line.len())?;
            }
        }
        let reply = self.ask()?;
        let is_stored = match self.protocol {
            Protocol::Redis if is_append => reply.starts_with(':'),
            Protocol::Redis => reply == "+OK",
            _ => reply == "STORED",
        };
        ensure!(is_stored, "a mailing is refused: {reply}");
        Ok(())
    }

    /// Returns a value, which must exist.
    fn get(&mut self, key: &[u8]) -> Result<Vec<u8>> {
        self.request.clear();
        let key = String::from_utf8_lossy(key);
        let (end, digits) = match self.protocol {
            Protocol::Redis => {
                write!(self.request, "*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len())?;
                ("\r\n", self.ask()?.strip_prefix('$').map(str::to_owned))
            }
            _ => {
                write!(self.request, "get {key}\r\n")?;
                let reply = self.ask()?;
                let is_value = reply.starts_with("VALUE ");
                ("\r\nEND\r\n", reply.rsplit(' ').next().filter(|_| is_value).map(str::to_owned))
            }
        };
        let length = digits.and_then(|digits| digits.parse::<usize>().ok());
        let length = length.with_context(|| format!("{key} is missing"))?;
        let mut value = vec![0; length + end.len()];
        self.stream.read_exact(&mut value)?;
        ensure!(value.ends_with(end.as_bytes()), "a value without an end");
        value.truncate(length);
        Ok(value)
    }

    /// Sends the request. Returns the first line of the reply.
    fn ask(&mut self) -> Result<String> {
        self.stream.get_mut().write_all(&self.request)?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        ensure!(line.ends_with("\r\n"), "the connection has ended");
        line.truncate(line.len() - 2);
        Ok(line)
    }
}
