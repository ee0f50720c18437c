//! Database names with tuning: `casket.tch#mode=wc#compression=lz4`.
//!
//! The part before the first `#` is the path of the database; its suffix names the kind. Every
//! further part sets one thing. Keys, words as values, and suffixes may be in either case. Numbers
//! take the suffixes k, m, g, t, p and e, for powers of 1024.
//!
//! | key | value | meaning |
//! | --- | --- | --- |
//! | `mode` | letters: `w`rite, `r`ead, `c`reate, `t`runcate, `e`, `f` | `wc` if not given; only
//! with `w` does it write, create and truncate |
//! | `opts` | letters: `l`, `d`, `b`, `t` | `d` and `b` compress with Zstandard, `t` with LZ4, `l`
//! needs no asking |
//! | `compression` | `none`, `lz4`, `zstd` | how values are stored; takes precedence over `opts` |
//! | `durability` | `none`, `always`, `interval:MS` | when a write counts as acknowledged |
//! | `dead` | 10 to 90 | percent of dead bytes in the files above which compaction works |
//! | `compaction` | a number | bytes per second that compaction reads while there is no hurry |
//! | `order` | `lexical`, `decimal`, `int32`, `int64` | trees: the order of keys, chosen when the
//! database is created |
//! | `cache` | a number, at least 64k | trees: maximum bytes of pages in memory |
//! | `index` | a number, at least 64k | hash: maximum bytes of the index in memory |
//! | `idx` | `COLUMN:TYPE`, with `lex`, `dec`, `tok` or `qgr` | tables: an index to build where the
//! column has none; may be given again |
//! | `query_memory` | a number | tables: bytes that a query holds in memory, about |
//! | `capnum` | a number | on-memory kinds and trees: maximum number of records |
//! | `capsiz` | a number | on-memory kinds: maximum bytes; hash and fixed-length: maximum bytes on
//! the disk, at least 4m; trees and tables: maximum bytes of all pages, at least 4m |
//! | `memory` | a number | on-memory kinds without `capsiz`: bytes in memory over which writes are
//! refused; 0 is unlimited |
//! | `width` | a number | fixed-length, on creation: bytes of the longest value; 255 if not given |
//! | `limsiz` | a number | fixed-length, on creation: bytes of Tokyo Cabinet's file, which limit
//! the ids; 256 MiB if not given |
//!
//! Other settings of Tokyo Cabinet (`bnum`, `apow`, ...) have no meaning here. They are accepted,
//! so that old names still work, and listed in [`Specification::notices`]. So are settings that
//! have no meaning for the kind of database. Unknown settings are errors.
//!
//! A program that knows the settings at compile time uses [`Options`] instead, whose methods set
//! the same.

pub use crate::error::NameError;
pub use crate::kind::Kind;
use crate::limits::{
    CACHE_BYTES_MIN, CAPACITY_BYTES_MIN, DEAD_PERCENT_ALLOWED, FIXED_WIDTH_BYTES_MAX,
    INDEX_BYTES_MIN,
};

use crate::base::column_index::{IndexChange, IndexDescription, IndexKind};
use crate::{Compression, Durability, KeyOrder, Options};
use std::path::{Path, PathBuf};

pub use crate::limits::INTERVAL_MS_MAX;

/// Numeric tuning of Tokyo Cabinet that has no meaning here.
const IDLE_NUMBERS: &[&str] = &[
    "bnum", "apow", "fpow", "rcnum", "xmsiz", "dfunit", "lmemb", "nmemb", "lcnum", "ncnum",
    "lsmax", "dbgfd",
];

const NUMBER: &str =
    "a whole number, with an optional suffix k, m, g, t, p or e for powers of 1024";

/// Parsed name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specification {
    /// Kind of database.
    pub kind: Kind,
    /// Path of the database; `*` and `+` for the on-memory kinds.
    pub path: PathBuf,
    /// Options for opening.
    pub options: Options,
    /// Lines for the log: settings that were accepted but have no effect.
    pub notices: Vec<String>,
}

impl Specification {
    /// Parses a name with its tuning.
    pub fn parse(name: &str) -> Result<Self, NameError> {
        let mut parts = name.split('#');
        let path = Path::new(parts.next().unwrap_or_default());
        let kind = Kind::of_path(path)
            .ok_or_else(|| NameError::UnknownKind(path.display().to_string()))?;
        let mut tuning =
            Tuning { kind, options: Options::default(), compression: None, idle: vec![] };
        for part in parts.filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| NameError::NotAPair(part.to_string()))?;
            tuning.apply(&Pair { key: key.trim().to_ascii_lowercase(), value: value.trim() })?;
        }
        if let Some(compression) = tuning.compression {
            tuning.options.compression = compression;
        }
        let mut notices = Vec::new();
        if !tuning.idle.is_empty() {
            let idle = tuning.idle.join(", ");
            notices.push(format!("tuning without effect on {}: {idle}", path.display()));
        }
        Ok(Self { kind, path: path.to_path_buf(), options: tuning.options, notices })
    }
}

/// Returns the options that tuning without a path sets. Unknown parts are left out.
pub(crate) fn options_of(kind: Kind, tuning: &str) -> Options {
    let mut known =
        Tuning { kind, options: Options::default(), compression: None, idle: Vec::new() };
    for part in tuning.split('#') {
        if let Some((key, value)) = part.split_once('=') {
            let pair = Pair { key: key.trim().to_ascii_lowercase(), value: value.trim() };
            if let Err(error) = known.apply(&pair) {
                tracing::debug!("ignored: {error}");
            }
        }
    }
    known.options
}

/// One `key=value`.
struct Pair<'a> {
    key: String,
    value: &'a str,
}

impl Pair<'_> {
    fn bad(&self, allowed: impl Into<String>) -> NameError {
        NameError::BadValue {
            key: self.key.clone(),
            value: self.value.to_string(),
            allowed: allowed.into(),
        }
    }

    fn number(&self) -> Result<u64, NameError> {
        number(self.value).ok_or_else(|| self.bad(NUMBER))
    }

    /// Parses a number. Returns `None` for one that asks for the default: it is negative, or 0.
    fn number_or_default(&self) -> Result<Option<u64>, NameError> {
        match self.value.strip_prefix('-') {
            Some(digits) => number(digits).map(|_| None).ok_or_else(|| self.bad(NUMBER)),
            None => self.number().map(|number| Some(number).filter(|number| *number > 0)),
        }
    }

    /// Returns the letters in lower case, if all of them are allowed.
    fn letters(&self, allowed: &str) -> Result<String, NameError> {
        let letters = self.value.to_ascii_lowercase();
        if letters.is_empty() || letters.contains(|letter| !allowed.contains(letter)) {
            return Err(self.bad(format!("letters out of {allowed}")));
        }
        Ok(letters)
    }
}

/// The settings parsed so far.
struct Tuning {
    kind: Kind,
    options: Options,
    /// Compression set by its own key, which takes precedence over `opts`.
    compression: Option<Compression>,
    /// Settings that have no effect: a key, or a key with its value.
    idle: Vec<String>,
}

impl Tuning {
    fn apply(&mut self, pair: &Pair<'_>) -> Result<(), NameError> {
        let on_memory = self.kind.is_on_memory();
        let has_effect = match pair.key.as_str() {
            "mode" => self.mode(pair)?,
            "opts" => self.opts(pair)?,
            "compression" => {
                self.compression = Some(compression(pair)?);
                self.kind != Kind::Fixed
            }
            "durability" => {
                self.options.durability = durability(pair)?;
                !on_memory
            }
            "dead" => {
                let percent = number(pair.value)
                    .filter(|percent| DEAD_PERCENT_ALLOWED.contains(percent))
                    .ok_or_else(|| pair.bad("a percentage from 10 to 90"))?;
                self.options.dead_percent_max = percent as u8;
                !on_memory
            }
            "compaction" => {
                let bytes = pair.number()?;
                if bytes == 0 {
                    return Err(pair.bad("bytes per second, more than 0"));
                }
                self.options.compaction_bytes_per_second = bytes;
                matches!(self.kind, Kind::Hash | Kind::Fixed)
            }
            "order" => {
                self.options.order = Some(order(pair)?);
                self.kind == Kind::Tree
            }
            "cache" => {
                let bytes = pair.number()?;
                if bytes < CACHE_BYTES_MIN {
                    return Err(pair.bad(format!("bytes, at least {CACHE_BYTES_MIN}")));
                }
                self.options.cache_bytes = Some(bytes);
                matches!(self.kind, Kind::Tree | Kind::Table)
            }
            "index" => {
                let bytes = pair.number()?;
                if bytes < INDEX_BYTES_MIN {
                    return Err(pair.bad(format!("bytes, at least {INDEX_BYTES_MIN}")));
                }
                self.options.index_bytes = Some(bytes);
                self.kind == Kind::Hash
            }
            "capnum" => {
                self.options.capacity_records = pair.number()?;
                on_memory || self.kind == Kind::Tree
            }
            "capsiz" => {
                let bytes = pair.number()?;
                if !on_memory && (1..CAPACITY_BYTES_MIN).contains(&bytes) {
                    return Err(pair.bad(format!("0, or bytes, at least {CAPACITY_BYTES_MIN}")));
                }
                self.options.capacity_bytes = bytes;
                true
            }
            "memory" => {
                self.options.memory_bytes = Some(pair.number()?);
                on_memory
            }
            "width" => {
                self.options.width = pair.number_or_default()?;
                if self.options.width.is_some_and(|width| width > FIXED_WIDTH_BYTES_MAX) {
                    return Err(pair.bad(format!("at most {FIXED_WIDTH_BYTES_MAX} bytes")));
                }
                self.kind == Kind::Fixed
            }
            "limsiz" => {
                self.options.limit_bytes = pair.number_or_default()?;
                self.kind == Kind::Fixed
            }
            "idx" => {
                self.options.indices.push(index(pair)?);
                self.kind == Kind::Table
            }
            "query_memory" => {
                self.options.query_memory_bytes = pair.number()?;
                self.kind == Kind::Table
            }
            key if IDLE_NUMBERS.contains(&key) => {
                pair.number_or_default()?;
                false
            }
            _ => return Err(NameError::UnknownKey(pair.key.clone())),
        };
        if !has_effect {
            self.idle.push(pair.key.clone());
        }
        Ok(())
    }

    fn mode(&mut self, pair: &Pair<'_>) -> Result<bool, NameError> {
        let letters = pair.letters("wrctef")?;
        if self.kind.is_on_memory() {
            return Ok(false);
        }
        let writes = letters.contains('w');
        self.options.read_only = !writes;
        self.options.create = writes && letters.contains('c');
        self.options.truncate = writes && letters.contains('t');
        // A database is always locked, and a second process fails at once.
        if letters.contains('e') {
            self.idle.push("mode=e".into());
        }
        Ok(true)
    }

    fn opts(&mut self, pair: &Pair<'_>) -> Result<bool, NameError> {
        let letters = pair.letters("ldbt")?;
        if !matches!(self.kind, Kind::Hash | Kind::Tree | Kind::Table) {
            return Ok(false);
        }
        if letters.contains(['d', 'b']) {
            self.options.compression = Compression::Zstd;
        } else if letters.contains('t') {
            self.options.compression = Compression::Lz4;
        }
        if letters.contains('l') {
            self.idle.push("opts=l".into());
        }
        Ok(true)
    }
}

/// Parses `COLUMN:TYPE`, or a column alone.
fn index(pair: &Pair<'_>) -> Result<IndexDescription, NameError> {
    let (column, kind) = match pair.value.rsplit_once(':') {
        Some((column, kind)) => (column, IndexChange::parse(kind.as_bytes())),
        None => (pair.value, Some(IndexChange::Set(IndexKind::Lexical))),
    };
    match kind {
        Some(IndexChange::Set(kind) | IndexChange::SetNew(kind)) => {
            Ok(IndexDescription { column: column.as_bytes().to_vec(), kind })
        }
        _ => Err(pair.bad("COLUMN:TYPE, with the type lex, dec, tok or qgr")),
    }
}

fn compression(pair: &Pair<'_>) -> Result<Compression, NameError> {
    match pair.value.to_ascii_lowercase().as_str() {
        "none" => Ok(Compression::None),
        "lz4" => Ok(Compression::Lz4),
        "zstd" => Ok(Compression::Zstd),
        _ => Err(pair.bad("none, lz4 or zstd")),
    }
}

fn order(pair: &Pair<'_>) -> Result<KeyOrder, NameError> {
    let value = pair.value.to_ascii_lowercase();
    let known = KeyOrder::NAMES.into_iter().find(|(name, _)| *name == value);
    known.map(|(_, order)| order).ok_or_else(|| pair.bad("lexical, decimal, int32 or int64"))
}

fn durability(pair: &Pair<'_>) -> Result<Durability, NameError> {
    let value = pair.value.to_ascii_lowercase();
    match value.as_str() {
        "none" => return Ok(Durability::None),
        "always" => return Ok(Durability::Always),
        _ => {}
    }
    value
        .strip_prefix("interval:")
        .and_then(number)
        .filter(|milliseconds| (1..=INTERVAL_MS_MAX).contains(milliseconds))
        .map(Durability::Interval)
        .ok_or_else(|| {
            pair.bad(format!("none, always, or interval:MS with 1 to {INTERVAL_MS_MAX} ms"))
        })
}

/// Parses a whole number with an optional suffix for a power of 1024: k, m, g, t, p or e.
pub fn number(text: &str) -> Option<u64> {
    let (digits, power) = match text.char_indices().next_back()? {
        (_, last) if last.is_ascii_digit() => (text, 0),
        (at, last) => {
            let power = "kmgtpe".find(last.to_ascii_lowercase())? as u32 + 1;
            (&text[..at], power)
        }
    };
    // `parse` would take a sign.
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1024u64.pow(power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_suffixes_for_powers_of_1024() {
        for (text, expected) in [
            ("0", Some(0)),
            ("42", Some(42)),
            ("1k", Some(1 << 10)),
            ("2M", Some(2 << 20)),
            ("3g", Some(3 << 30)),
            ("1t", Some(1 << 40)),
            ("1P", Some(1 << 50)),
            ("15e", Some(15 << 60)),
            ("16e", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("k", None),
            ("+1", None),
            ("-1", None),
            ("1x", None),
            ("1kk", None),
            ("1.5m", None),
            ("1é", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }
}
