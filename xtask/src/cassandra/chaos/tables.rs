//! Load on a table, and the comparison of its rows and indexes afterwards.

use super::{Outcome, Told};
use crate::memcached::{self, Connection};
use crate::misc::Misc;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows that each client changes again and again.
const ROWS: usize = 60;

/// One of so many changes removes the row.
const REMOVALS: usize = 9;

/// Columns with their indexes.
const INDEXES: [(&str, &str); 3] = [("n", "DEC"), ("words", "TOK"), ("name", "LEX")];

/// Different words and names.
const WORDS: usize = 7;
const NAMES: usize = 11;

/// Width of a range of numbers that is searched.
const NUMBERS_AT_ONCE: usize = 64;

/// Columns of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    number: usize,
    word: usize,
    name: usize,
}

impl Row {
    fn of(client: usize, round: usize) -> Self {
        Self { number: round, word: (client + round) % WORDS, name: round * 3 % NAMES }
    }

    /// Returns names and values in turn.
    fn parts(&self) -> [String; 6] {
        let words = format!("all w{}", self.word);
        let [n, name] = [self.number.to_string(), format!("name-{}", self.name)];
        ["n".into(), n, "words".into(), words, "name".into(), name]
    }
}

/// Each row as it may be: the last acknowledged change, and those after it of unknown outcome.
#[derive(Default)]
pub(super) struct Rows(BTreeMap<String, Vec<Option<Row>>>);

impl Rows {
    fn note(&mut self, key: String, row: Option<Row>, answer: Answer) -> Result<()> {
        let states = self.0.entry(key.clone()).or_insert_with(|| vec![None]);
        match answer {
            Answer::Outcome(Outcome::Done) => *states = vec![row],
            Answer::Outcome(Outcome::Unknown) => states.push(row),
            Answer::Outcome(Outcome::Unavailable) => {}
            Answer::Absent => {
                ensure!(states.contains(&None), "{key} is lost: it may be {states:?}");
                // Changes with an unknown outcome may be made still: nothing was written.
                states[0] = None;
            }
        }
        Ok(())
    }
}

/// Answer to a change.
#[derive(Clone, Copy)]
enum Answer {
    Outcome(Outcome),
    /// There was no row to be removed.
    Absent,
}

pub(super) fn set_indexes(port: u16) -> Result<()> {
    let mut client = Misc::connect(port)?;
    for (column, kind) in INDEXES {
        client.call("setindex", &[column.as_bytes(), kind.as_bytes()])?;
    }
    Ok(())
}

/// Changes rows until the load stops. `change` changes one, or removes it if no row is given.
fn change_rows(
    prefix: &str,
    number: usize,
    told: &Mutex<Told>,
    stops: &AtomicBool,
    mut change: impl FnMut(&str, Option<&Row>) -> Result<Answer>,
) -> Result<()> {
    for round in 0.. {
        if stops.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("{prefix}-{number}-{}", round % ROWS);
        let row = (round % REMOVALS > 0).then(|| Row::of(number, round));
        let answer = change(&key, row.as_ref())?;
        let mut told = told.lock().map_err(|_| anyhow::anyhow!("another client has panicked"))?;
        told.note(match answer {
            Answer::Outcome(outcome) => outcome,
            Answer::Absent => Outcome::Done,
        });
        told.rows.note(key, row, answer)?;
    }
    Ok(())
}

/// Changes rows through memcached's protocol, with joined columns.
pub(super) fn text_client(
    port: u16,
    number: usize,
    told: &Mutex<Told>,
    stops: &AtomicBool,
) -> Result<()> {
    let mut connection = Connection::open(port)?;
    change_rows("m", number, told, stops, |key, row| {
        let request = match row {
            Some(row) => memcached::set_request(key, row.parts().join("\0").as_bytes()),
            None => memcached::delete_request(key),
        };
        connection.send(&request)?;
        Ok(Answer::Outcome(match connection.line()?.as_str() {
            "NOT_FOUND" if row.is_none() => return Ok(Answer::Absent),
            "STORED" | "DELETED" => Outcome::Done,
            "SERVER_ERROR the store is unavailable: nothing was done" => Outcome::Unavailable,
            "SERVER_ERROR the store has not answered: it is unknown what was done" => {
                Outcome::Unknown
            }
            line => bail!("a failure that is no failure: {line}"),
        }))
    })
}

/// Changes rows through functions of Tokyo Tyrant's protocol.
pub(super) fn binary_client(
    port: u16,
    number: usize,
    told: &Mutex<Told>,
    stops: &AtomicBool,
) -> Result<()> {
    let mut client = Misc::connect(port)?;
    change_rows("b", number, told, stops, |key, row| {
        let parts = row.map(Row::parts);
        let mut arguments = vec![key.as_bytes()];
        arguments.extend(parts.iter().flatten().map(String::as_bytes));
        let name = if row.is_some() { "put" } else { "out" };
        match client.try_to_call(name, &arguments) {
            Ok(Some(_)) => Ok(Answer::Outcome(Outcome::Done)),
            Ok(None) if row.is_none() => Ok(Answer::Absent),
            Ok(None) => bail!("{key} was refused"),
            // A failure closes the connection, and does not say whether anything was done.
            Err(_) => {
                client = Misc::connect(port)?;
                Ok(Answer::Outcome(Outcome::Unknown))
            }
        }
    })
}

/// Compares all rows with the acknowledged changes, and searches by each index with the rows.
pub(super) fn check(ports: [u16; 2], rows: &Rows) -> Result<()> {
    let mut client = Misc::connect(ports[1])?;
    let mut found: BTreeMap<&str, &Row> = BTreeMap::new();
    let mut lost = Vec::new();
    for (key, states) in &rows.0 {
        let parts = client.try_to_call("get", &[key.as_bytes()]).context("cannot read a row")?;
        let is_found = |state: &&Option<Row>| {
            let expected = state.as_ref().map(|row| row.parts().map(String::into_bytes).to_vec());
            expected == parts
        };
        match states.iter().find(is_found) {
            Some(Some(row)) => drop(found.insert(key, row)),
            Some(None) => {}
            None => lost.push(format!("{key} is {parts:?}, and may be {states:?}")),
        }
    }
    ensure!(lost.is_empty(), "{} acknowledged changes are lost: {lost:?}", lost.len());
    println!(
        "{} keys have their acknowledged rows, {} of them have one",
        rows.0.len(),
        found.len()
    );
    for port in ports {
        let searches = check_indexes(port, &found)?;
        println!("{searches} searches by indexes have found all rows and no others");
    }
    Ok(())
}

/// Compares searches by each index with the rows, and with the same search without an index.
/// Returns the number of searches.
fn check_indexes(port: u16, rows: &BTreeMap<&str, &Row>) -> Result<usize> {
    let mut client = Misc::connect(port)?;
    let mut searches = 0;
    let mut compare =
        |column: &str, operator: &str, operand: &str, is_meant: &dyn Fn(&Row) -> bool| {
            let of = |flag: &str| format!("addcond\0{column}\0{flag}{operator}\0{operand}");
            let expected: BTreeSet<&str> =
                rows.iter().filter(|(_, row)| is_meant(row)).map(|(key, _)| *key).collect();
            for (condition, hint) in [
                (of(""), format!("using an index: \"{column}\"")),
                (of("+"), "scanning".to_owned()),
            ] {
                let (found, told) = client.search(&[condition.as_bytes()])?;
                ensure!(told.contains(&hint), "{condition:?}: {told}");
                let count = found.len();
                // Each is NUL, key, NUL and columns.
                let key = |row: &Vec<u8>| {
                    let key = row.split(|byte| *byte == 0).nth(1).unwrap_or_default();
                    String::from_utf8_lossy(key).into_owned()
                };
                let keys: BTreeSet<String> = found.iter().map(key).collect();
                ensure!(keys.len() == count, "{condition:?}: a row is found twice");
                let keys: BTreeSet<&str> = keys.iter().map(String::as_str).collect();
                let differing: Vec<_> = expected.symmetric_difference(&keys).collect();
                ensure!(differing.is_empty(), "{condition:?} differs from the rows: {differing:?}");
            }
            searches += 1;
            anyhow::Ok(())
        };
    let last = rows.values().map(|row| row.number).max().context("no row is left")?;
    for first in (0..=last).step_by(NUMBERS_AT_ONCE) {
        let range = first..first + NUMBERS_AT_ONCE;
        let operand = format!("{} {}", range.start, range.end - 1);
        compare("n", "NUMBT", &operand, &|row| range.contains(&row.number))?;
    }
    for word in 0..WORDS {
        compare("words", "STRAND", &format!("w{word}"), &|row| row.word == word)?;
    }
    compare("words", "STRAND", "all", &|_| true)?;
    for name in 0..NAMES {
        compare("name", "STREQ", &format!("name-{name}"), &|row| row.name == name)?;
    }
    Ok(searches)
}
