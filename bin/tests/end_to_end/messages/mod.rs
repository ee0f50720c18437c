//! The table of messages: what a person did, and what the program says then. Each row runs the real
//! program. A message has the cause, the name of the thing and what to do, in one line, and no word
//! of those who wrote the program.

mod access;
mod connection;
mod files;
mod programs;
mod server;
mod start;

use crate::process::{feed_in, run_bound};
use std::path::Path;

/// A row: the command line, the exit code, and parts that the message has. A name of the table
/// stands for its value in both.
type Row<'r> = (&'r str, i32, &'r [&'r str]);

/// Texts that only a programmer reads.
const JARGON: [&str; 14] = [
    " { ",
    "Err(",
    "Some(",
    "handle",
    "None",
    "panicked",
    "unwrap",
    "Os ",
    "ErrorKind",
    "::",
    "failed to fill",
    "invalid digit",
    "target type",
    "InvalidContentType",
];

/// Rows that share a folder, in which the programs run, and names.
struct Table<'a> {
    folder: &'a Path,
    names: &'a [(&'a str, &'a str)],
    /// Whether the modes of files bind the programs.
    is_bound: bool,
}

impl<'a> Table<'a> {
    fn new(folder: &'a Path, names: &'a [(&'a str, &'a str)]) -> Self {
        Self { folder, names, is_bound: false }
    }

    /// Runs each row, and fails with all that say something else.
    fn check(&self, rows: &[Row<'_>]) {
        let wrong: Vec<String> = rows.iter().filter_map(|row| self.flaw(row)).collect();
        assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    }

    /// Returns what is wrong with the message of a row.
    fn flaw(&self, (line, code, parts): &Row<'_>) -> Option<String> {
        let line = self.with_values(line);
        let (program, arguments) = line.split_once(' ').expect("a program and its arguments");
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let output = match self.is_bound {
            true => run_bound(self.folder, program, &arguments),
            false => feed_in(self.folder, program, &arguments, ""),
        };
        let message = String::from_utf8_lossy(&output.stderr);
        let mut flaws = Vec::new();
        if output.status.code() != Some(*code) {
            flaws.push(format!("the exit code is {:?}", output.status.code()));
        }
        for part in parts.iter().map(|part| self.with_values(part)) {
            if !message.contains(&part) {
                flaws.push(format!("there is no {part:?}"));
            }
        }
        if *code == 1 && message.lines().count() != 1 {
            flaws.push("it is not one line".to_owned());
        }
        let words =
            JARGON.into_iter().filter(|word| message.contains(word) && !line.contains(word));
        flaws.extend(words.map(|word| format!("it has the word {word:?}")));
        let flaws = flaws.join(", ");
        (!flaws.is_empty()).then(|| format!("{line}\n    {message}    {flaws}"))
    }

    fn with_values(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }
}
