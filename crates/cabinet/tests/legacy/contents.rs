//! Contents of a file, as the library reads them and as they are expected.

use cabinet::Damage;
use cabinet::legacy::{File, Item, Visit};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// A value, or the columns of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    Bytes(Vec<u8>),
    Columns(Vec<(Vec<u8>, Vec<u8>)>),
}

/// Everything a file was read to hold.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) records: Vec<(Vec<u8>, Value)>,
    pub(crate) damages: Vec<Damage>,
}

impl Contents {
    pub(crate) fn of(file: &File) -> Self {
        let mut contents = Self::default();
        file.read(&mut contents).unwrap();
        contents
    }

    /// Sorted, as those of files in no order are compared. Columns are sorted too: what is
    /// expected does not have them in their order.
    pub(crate) fn sorted(mut records: Vec<(Vec<u8>, Value)>) -> Vec<(Vec<u8>, Value)> {
        for (_, value) in &mut records {
            if let Value::Columns(columns) = value {
                columns.sort();
            }
        }
        records.sort();
        records
    }
}

impl Visit for Contents {
    fn item(&mut self, item: &Item<'_>) -> ControlFlow<()> {
        let key = item.key().to_vec();
        match item {
            Item::Record { value, .. } => self.records.push((key, Value::Bytes(value.to_vec()))),
            Item::Duplicates { values, .. } => {
                let values = values.iter().map(|value| Value::Bytes(value.to_vec()));
                self.records.extend(values.map(|value| (key.clone(), value)));
            }
            Item::Row { columns, .. } => {
                let columns =
                    columns.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
                self.records.push((key, Value::Columns(columns)));
            }
            other => panic!("unexpected {other:?}"),
        }
        ControlFlow::Continue(())
    }

    fn damage(&mut self, damage: Damage) {
        self.damages.push(damage);
    }
}

/// The folder of real files.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokyocabinet")
}

/// All files of databases in both byte orders, by path.
pub(crate) fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for order in ["le", "be"] {
        for entry in fs::read_dir(folder().join(order)).unwrap() {
            let path = entry.unwrap().path();
            let suffix = path.extension().unwrap().to_str().unwrap();
            if ["tch", "tcb", "tcf", "tct"].contains(&suffix) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Returns the contents that a file is expected to have.
pub(crate) fn expected(path: &Path) -> Vec<(Vec<u8>, Value)> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let dump = |suffix: &str| fs::read(folder().join("expected").join(format!("{name}.{suffix}")));
    if let Ok(rows) = dump("jsonl") {
        return lines(&rows).map(row).collect();
    }
    let hex = dump("hex.tsv");
    let is_hex = hex.is_ok();
    let text = hex.or_else(|_| dump("tsv")).unwrap();
    let pair = |line: &[u8]| {
        let tab = line.iter().position(|byte| *byte == b'\t').unwrap();
        let read = |text: &[u8]| if is_hex { from_hex(text) } else { text.to_vec() };
        (read(&line[..tab]), Value::Bytes(read(&line[tab + 1..])))
    };
    lines(&text).map(pair).collect()
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n')
}

fn row(line: &[u8]) -> (Vec<u8>, Value) {
    let row: serde_json::Value = serde_json::from_slice(line).unwrap();
    let columns = row["cols"].as_object().unwrap().iter();
    let columns = columns
        .map(|(name, value)| (name.clone().into_bytes(), value.as_str().unwrap().into()))
        .collect();
    (row["pk"].as_str().unwrap().into(), Value::Columns(columns))
}

fn from_hex(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    text.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
