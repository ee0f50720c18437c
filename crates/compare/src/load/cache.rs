//! Cache comparison: hit rates of servers with the same memory, in front of something slower.
//!
//! Each server gets the same sequence of reads, and the record after each miss, as a program does
//! that fills its cache after misses. The first part of the sequence fills the cache and does not
//! count.

use super::protocol::{Expect, Kind, Protocol, Reply};
use super::server::{Recipe, Server};
use crate::folder;
use crate::random::{Random, Zipfian, mix};
use crate::records::Records;
use crate::report::{Table, figure};
use anyhow::{Context as _, Result, bail};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

/// Reads in flight at a time.
const BATCH: usize = 64;

const READ_BYTES: usize = 256 << 10;

const MEBIBYTE: f64 = (1 << 20) as f64;

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Different records.
    pub keys: u64,
    /// Skew of the Zipf distribution, 0 to 1.
    pub theta: f64,
    /// Bytes of the shortest and the longest value.
    pub value_bytes: (usize, usize),
    /// Reads that fill the cache.
    pub fill: u64,
    /// Reads that count.
    pub reads: u64,
}

/// Result of a server.
#[derive(Clone, Debug)]
struct Outcome {
    name: String,
    hits: u64,
    reads: u64,
    /// Most bytes of its memory, and bytes of it without mapped files at the end.
    memory_bytes: u64,
    anonymous_bytes: u64,
    /// Most bytes of its files.
    disk_bytes: u64,
}

/// Records whose values are of different lengths.
struct Values {
    records: Records,
    shortest: usize,
    longest: usize,
}

impl Expect for Values {
    fn value(&self, number: u64) -> &[u8] {
        let spread = (self.longest - self.shortest + 1) as u64;
        let bytes = self.shortest + (mix(number ^ 0x5bd1) % spread) as usize;
        self.records.value(number, 0, bytes)
    }
}

/// Runs every server through the plan, one after the other. Returns a table.
pub fn run(recipes: &[Recipe], plan: &Plan, folder: &Path) -> Result<Table> {
    let (shortest, longest) = plan.value_bytes;
    let values = Values { records: Records::new(), shortest, longest };
    let heads = ["server", "hits, %", "most memory, MiB", "without files, MiB", "most disk, MiB"];
    let mut table = Table::new(heads);
    let zipfian = Zipfian::new(plan.keys, plan.theta);
    for recipe in recipes {
        let outcome = run_one(recipe, plan, &zipfian, &values, folder)
            .with_context(|| format!("with {}", recipe.name))?;
        let mebibytes = |bytes: u64| figure(bytes as f64 / MEBIBYTE);
        table.row([
            outcome.name,
            format!("{:.2}", 100.0 * outcome.hits as f64 / outcome.reads as f64),
            mebibytes(outcome.memory_bytes),
            mebibytes(outcome.anonymous_bytes),
            mebibytes(outcome.disk_bytes),
        ]);
    }
    Ok(table)
}

fn run_one(
    recipe: &Recipe,
    plan: &Plan,
    zipfian: &Zipfian,
    values: &Values,
    folder: &Path,
) -> Result<Outcome> {
    let server = Server::start(recipe, folder)?;
    let mut client = Client::connect(&server)?;
    let mut random = Random::new(plan.keys);
    let (mut hits, mut disk_bytes) = (0, 0);
    let batches = (plan.fill + plan.reads) / BATCH as u64;
    for batch in 0..batches {
        let numbers: Vec<u64> = (0..BATCH).map(|_| zipfian.next(&mut random)).collect();
        let missed = client.read(&numbers, values)?;
        if batch >= plan.fill / BATCH as u64 {
            hits += (BATCH - missed.len()) as u64;
        }
        client.store(&missed, values)?;
        if batch.is_multiple_of(256) {
            disk_bytes = disk_bytes.max(folder::usage(server.folder())?.allocated);
        }
    }
    let memory = server.memory()?;
    Ok(Outcome {
        name: recipe.name.clone(),
        hits,
        reads: (batches - plan.fill / BATCH as u64) * BATCH as u64,
        memory_bytes: memory.peak_resident,
        anonymous_bytes: memory.anonymous,
        disk_bytes,
    })
}

struct Client {
    stream: TcpStream,
    protocol: Protocol,
    received: Vec<u8>,
}

impl Client {
    fn connect(server: &Server) -> Result<Self> {
        let stream = TcpStream::connect(server.address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, protocol: server.recipe.protocol, received: Vec::new() })
    }

    /// Reads records. Returns the missing ones.
    fn read(&mut self, numbers: &[u64], values: &Values) -> Result<Vec<u64>> {
        let mut request = Vec::new();
        for number in numbers {
            self.protocol.encode_get(*number, &mut request);
        }
        self.stream.write_all(&request)?;
        let mut missed = Vec::new();
        for number in numbers {
            match self.reply(Kind::Get, *number, values)? {
                Reply::Values { found: 1, wrong: 0 } => {}
                Reply::Values { found: 0, .. } => missed.push(*number),
                reply => bail!("a get returned {reply:?}"),
            }
        }
        Ok(missed)
    }

    fn store(&mut self, numbers: &[u64], values: &Values) -> Result<()> {
        let mut request = Vec::new();
        for number in numbers {
            self.protocol.encode_set(*number, values.value(*number), &mut request);
        }
        self.stream.write_all(&request)?;
        for number in numbers {
            match self.reply(Kind::Set, *number, values)? {
                Reply::Stored => {}
                reply => bail!("a set returned {reply:?}"),
            }
        }
        Ok(())
    }

    fn reply(&mut self, kind: Kind, number: u64, values: &Values) -> Result<Reply> {
        loop {
            let parsed = self.protocol.parse(kind, &[number], &self.received, values);
            if let Some((bytes, reply)) = parsed.map_err(|garbled| anyhow::anyhow!(garbled.0))? {
                self.received.drain(..bytes);
                return Ok(reply);
            }
            let start = self.received.len();
            self.received.resize(start + READ_BYTES, 0);
            let count = self.stream.read(&mut self.received[start..])?;
            self.received.truncate(start + count);
            if count == 0 {
                bail!("the server has closed the connection");
            }
        }
    }
}
