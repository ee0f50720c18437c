//! Word counts over all records: map-reduce in the server, and clients that read all records.
//!
//! The client of Redis reads with SCAN and MGET, and counts by the same functions in Lua, or in
//! Rust. All results are the same text: one line per word, in order.

use super::protocol::Protocol;
use super::server::Server;
use crate::process;
use crate::random::{Random, mix};
use anyhow::{Context as _, Result, bail, ensure};
use mlua::{Function, Lua};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Functions that count words, for the server and for the client in Lua.
pub const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lua/word_count.lua");

/// Words of a record.
const WORDS_PER_RECORD: usize = 10;

/// Distinct words.
const VOCABULARY: u64 = 10_000;

/// Records per request for storing or reading.
const BATCH: u64 = 1000;

/// Functions of a server that the script calls, for the client in Lua.
const CLIENT: &str = "
local groups = {}
function emit(key, value)
  local group = groups[key]
  if group then group[#group + 1] = value else groups[key] = {value} end
end
tyrant = {}
function tyrant.map_reduce(names)
  _G[names.finish](emit)
  local results = {}
  for key, values in pairs(groups) do results[key] = _G[names.reduce](key, values) end
  return results
end
";

/// Method of counting words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// By map-reduce in the server.
    Server,
    /// By a client of Redis, with the same functions in Lua.
    ClientInLua,
    /// By a client of Redis in Rust.
    ClientInRust,
}

/// Result of a count.
#[derive(Clone, Debug)]
pub struct Counted {
    /// A line for each word.
    pub lines: String,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// CPU time of the server.
    pub server_cpu: Duration,
    /// CPU time of the client.
    pub client_cpu: Duration,
}

/// Returns the text of a record.
fn text(number: u64) -> String {
    let mut random = Random::new(mix(number));
    let words: Vec<String> = (0..WORDS_PER_RECORD)
        .map(|_| {
            // Low numbers are frequent, like common words in texts.
            let (one, other) = (random.next_u64() % VOCABULARY, random.next_u64() % VOCABULARY);
            format!("w{}", one * other / VOCABULARY)
        })
        .collect();
    words.join(" ")
}

/// Stores `count` records.
pub fn fill(server: &Server, count: u64) -> Result<()> {
    let protocol = server.recipe.protocol;
    let reply_bytes = match protocol {
        Protocol::Binary => 1,
        Protocol::Redis => "+OK\r\n".len(),
        _ => bail!("words are stored by the binary protocol or by that of Redis"),
    };
    let mut stream = TcpStream::connect(server.address)?;
    for first in (0..count).step_by(BATCH as usize) {
        let numbers = first..(first + BATCH).min(count);
        let mut request = Vec::new();
        numbers.clone().for_each(|number| {
            protocol.encode_set(number, text(number).as_bytes(), &mut request);
        });
        stream.write_all(&request)?;
        let mut replies = vec![0; numbers.count() * reply_bytes];
        stream.read_exact(&mut replies)?;
        let is_stored = |reply: &[u8]| matches!(reply, [0] | b"+OK\r\n");
        let stored = replies.chunks(reply_bytes).all(is_stored);
        ensure!(stored, "{} has refused a record", server.recipe.name);
        if first % (count / 10).next_multiple_of(BATCH).max(BATCH) == 0 {
            eprintln!("{}: {first} of {count} records stored", server.recipe.name);
        }
    }
    Ok(())
}

/// Counts the words of all records.
pub fn count(server: &Server, counter: Counter) -> Result<Counted> {
    let (server_before, client_before) = (server.cpu_time()?, process::own_cpu_time());
    let start = Instant::now();
    let lines = match counter {
        Counter::Server => count_in_server(server)?,
        Counter::ClientInLua => count_in_lua(server)?,
        Counter::ClientInRust => count_in_rust(server)?,
    };
    let elapsed = start.elapsed();
    let server_cpu = server.cpu_time()?.saturating_sub(server_before);
    let client_cpu = process::own_cpu_time().saturating_sub(client_before);
    Ok(Counted { lines, elapsed, server_cpu, client_cpu })
}

fn count_in_server(server: &Server) -> Result<String> {
    let mut stream = TcpStream::connect(server.address)?;
    stream.write_all(b"POST / HTTP/1.1\r\nHost: localhost\r\nX-TT-XNAME: count_words\r\nContent-Length: 0\r\n\r\n")?;
    let mut reader = BufReader::new(stream);
    let (mut length, mut line) = (None, String::new());
    reader.read_line(&mut line)?;
    ensure!(line.starts_with("HTTP/1.1 200"), "{} has replied {line}", server.recipe.name);
    while line != "\r\n" {
        line.clear();
        ensure!(reader.read_line(&mut line)? > 0, "a reply without an end");
        let header = line.to_ascii_lowercase();
        length = header
            .strip_prefix("content-length:")
            .map_or(length, |bytes| bytes.trim().parse().ok());
    }
    let mut lines = vec![0; length.context("a reply without a length")?];
    reader.read_exact(&mut lines)?;
    Ok(String::from_utf8(lines)?)
}

fn count_in_lua(server: &Server) -> Result<String> {
    let failed = |error: mlua::Error| anyhow::anyhow!("{error}");
    let lua = Lua::new();
    lua.load(CLIENT).exec().map_err(failed)?;
    lua.load(std::fs::read_to_string(SCRIPT)?).exec().map_err(failed)?;
    let global = |name: &str| lua.globals().get::<Function>(name).map_err(failed);
    let (map, emit) = (global("map_words")?, global("emit")?);
    read_all(server, |key, value| {
        let arguments = || Ok((lua.create_string(key)?, lua.create_string(value)?, &emit));
        arguments().and_then(|arguments| map.call::<()>(arguments)).map_err(failed)
    })?;
    global("count_words")?.call(()).map_err(failed)
}

fn count_in_rust(server: &Server) -> Result<String> {
    let mut counts: HashMap<Vec<u8>, u64> = HashMap::new();
    read_all(server, |_, value| {
        let words = value.split(|byte| !byte.is_ascii_alphanumeric());
        for word in words.filter(|word| !word.is_empty()) {
            match counts.get_mut(word) {
                Some(count) => *count += 1,
                None => {
                    counts.insert(word.to_ascii_lowercase(), 1);
                }
            }
        }
        Ok(())
    })?;
    let line =
        |(word, count): (&Vec<u8>, &u64)| format!("{}\t{count}", String::from_utf8_lossy(word));
    let mut lines: Vec<String> = counts.iter().map(line).collect();
    lines.sort();
    Ok(lines.join("\n"))
}

/// Reads all records of Redis.
fn read_all(server: &Server, mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let mut stream = TcpStream::connect(server.address)?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(1 << 18, stream.try_clone()?);
    let mut cursor = b"0".to_vec();
    loop {
        let mut request = Vec::new();
        push_command(&[b"SCAN", &cursor, b"COUNT", BATCH.to_string().as_bytes()], &mut request);
        stream.write_all(&request)?;
        ensure!(read_head(&mut reader, b'*')? == 2, "no reply to SCAN");
        cursor = read_bulk(&mut reader)?;
        let count = read_head(&mut reader, b'*')?;
        let keys: Vec<_> = (0..count).map(|_| read_bulk(&mut reader)).collect::<Result<_>>()?;
        if !keys.is_empty() {
            let words: Vec<&[u8]> =
                [&b"MGET"[..]].into_iter().chain(keys.iter().map(Vec::as_slice)).collect();
            request.clear();
            push_command(&words, &mut request);
            stream.write_all(&request)?;
            ensure!(read_head(&mut reader, b'*')? == count, "no reply to MGET");
            for key in &keys {
                visit(key, &read_bulk(&mut reader)?)?;
            }
        }
        if cursor == b"0" {
            return Ok(());
        }
    }
}

fn push_command(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Reads a line of a kind with a number.
fn read_head(reader: &mut BufReader<TcpStream>, kind: u8) -> Result<usize> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    let number = line.strip_prefix(&[kind]).and_then(|rest| rest.strip_suffix(b"\r\n"));
    let number = number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    number.with_context(|| format!("unexpected reply {}", line.escape_ascii()))
}

fn read_bulk(reader: &mut BufReader<TcpStream>) -> Result<Vec<u8>> {
    let bytes = read_head(reader, b'$')?;
    let mut bulk = vec![0; bytes + 2];
    reader.read_exact(&mut bulk)?;
    bulk.truncate(bytes);
    Ok(bulk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_same_ten_words_each_time() {
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
        assert_eq!(text(7).split(' ').count(), WORDS_PER_RECORD);
    }
}
