//! Commands on records: `get`, `put`, `out`, `list`, `range`, `find`.

use super::Run;
use crate::{bytes, listing};
use anyhow::{Context, Result, bail};
use client::Client;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;

/// Text form of keys and values.
#[derive(Debug, clap::Args)]
pub(super) struct Form {
    /// Read and print keys and values in hexadecimal
    #[arg(long)]
    hex: bool,
}

impl Form {
    pub(super) fn read(&self, text: &OsString) -> Result<Vec<u8>> {
        if self.hex {
            return bytes::from_hex(text.to_str().context("not hexadecimal")?);
        }
        Ok(text.as_bytes().to_vec())
    }

    pub(super) fn write(&self, bytes: &[u8], output: &mut dyn Write) -> Result<()> {
        if self.hex {
            write!(output, "{}", bytes::to_hex(bytes))?;
        } else {
            output.write_all(bytes)?;
        }
        Ok(())
    }

    pub(super) fn write_pair(
        &self,
        key: &[u8],
        value: &[u8],
        output: &mut dyn Write,
    ) -> Result<()> {
        self.write(key, output)?;
        output.write_all(b"\t")?;
        self.write(value, output)?;
        output.write_all(b"\n")?;
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Get {
    /// Keys; the value of a single one is printed, several are printed as key, TAB, value
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,
    /// Print no newline after the value of a single key
    #[arg(long, short = 'n')]
    no_newline: bool,
    /// Print all values of one key of a tree, one per line
    #[arg(long, conflicts_with = "no_newline")]
    all: bool,
    #[command(flatten)]
    form: Form,
}

impl Run for Get {
    fn run(&self, client: &Client, output: &mut dyn Write) -> Result<()> {
        let keys: Vec<_> =
            self.keys.iter().map(|key| self.form.read(key)).collect::<Result<_>>()?;
        if self.all {
            let [key] = &keys[..] else { bail!("--all takes a single key") };
            let values = client.get_all(key)?;
            if values.is_empty() {
                bail!(client::Error::NoRecordFound);
            }
            for value in values {
                self.form.write(&value, output)?;
                output.write_all(b"\n")?;
            }
            return Ok(());
        }
        if let [key] = &keys[..] {
            let Some(value) = client.get(key)? else { bail!(client::Error::NoRecordFound) };
            self.form.write(&value, output)?;
            if !self.no_newline {
                output.write_all(b"\n")?;
            }
            return Ok(());
        }
        for (key, value) in client.get_many(&keys)? {
            self.form.write_pair(&key, &value, output)?;
        }
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Put {
    /// The key
    #[arg(value_name = "KEY")]
    key: OsString,
    /// The value; - reads it from the standard input, as it is
    #[arg(value_name = "VALUE")]
    value: OsString,
    /// Fail if the record exists
    #[arg(long, group = "way")]
    keep: bool,
    /// Append to the record, if it exists
    #[arg(long, group = "way")]
    append: bool,
    /// Add the value after the existing values of the key, in a tree
    #[arg(long, group = "way")]
    duplicate: bool,
    /// Add the value before the existing values of the key, in a tree
    #[arg(long, group = "way")]
    duplicate_front: bool,
    #[command(flatten)]
    form: Form,
}

impl Run for Put {
    fn run(&self, client: &Client, _output: &mut dyn Write) -> Result<()> {
        let key = self.form.read(&self.key)?;
        let value = if self.value == "-" {
            let mut value = Vec::new();
            // One byte over every server's limit is enough to detect a value that is too large.
            let most = cabinet::limits::VALUE_BYTES_MAX as u64 + 1;
            std::io::stdin().lock().take(most).read_to_end(&mut value)?;
            value
        } else {
            self.form.read(&self.value)?
        };
        super::rows::expect_columns(client, &value)?;
        if self.append {
            client.put_cat(&key, &value)?;
        } else if self.duplicate {
            client.put_duplicate(&key, &value)?;
        } else if self.duplicate_front {
            client.put_duplicate_front(&key, &value)?;
        } else if !self.keep {
            client.put(&key, &value)?;
        } else if !client.put_keep(&key, &value)? {
            bail!(client::Error::ExistingRecord);
        }
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Out {
    /// Keys of the records; a missing one is a failure
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,
    /// Remove all values of each key of a tree; missing keys are ignored
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    form: Form,
}

impl Run for Out {
    fn run(&self, client: &Client, _output: &mut dyn Write) -> Result<()> {
        if self.all {
            let keys: Vec<_> =
                self.keys.iter().map(|key| self.form.read(key)).collect::<Result<_>>()?;
            return Ok(client.out_all(&keys)?);
        }
        let mut missing = 0;
        for key in &self.keys {
            if !client.out(&self.form.read(key)?)? {
                missing += 1;
            }
        }
        if missing > 0 {
            bail!("no record found for {missing} of {} keys", self.keys.len());
        }
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Print only keys that begin with this
    #[arg(long)]
    prefix: Option<OsString>,
    /// Print at most N
    #[arg(long, value_name = "N")]
    max: Option<usize>,
    /// Print key, TAB, value
    #[arg(long)]
    values: bool,
    #[command(flatten)]
    form: Form,
}

impl Run for List {
    fn run(&self, client: &Client, output: &mut dyn Write) -> Result<()> {
        let prefix = self.prefix.as_ref().map(|prefix| self.form.read(prefix)).transpose()?;
        listing::list(client, prefix.as_deref(), self.max, |keys| {
            if self.values {
                return listing::with_values(client, keys, |key, value| match value {
                    Some(value) => self.form.write_pair(key, &value, output),
                    None => Ok(()),
                });
            }
            for key in keys {
                self.form.write(key, output)?;
                output.write_all(b"\n")?;
            }
            Ok(())
        })
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Range {
    /// First key [default: the first of all]
    #[arg(value_name = "BEGIN", default_value = "")]
    begin: OsString,
    /// Stop before this key [default: print up to the last]
    #[arg(value_name = "END")]
    end: Option<OsString>,
    /// Print at most N
    #[arg(long, value_name = "N")]
    max: Option<usize>,
    #[command(flatten)]
    form: Form,
}

impl Run for Range {
    fn run(&self, client: &Client, output: &mut dyn Write) -> Result<()> {
        let begin = self.form.read(&self.begin)?;
        let end = self.end.as_ref().map(|end| self.form.read(end)).transpose()?;
        for (key, value) in client.range(&begin, end.as_deref(), self.max)? {
            self.form.write_pair(&key, &value, output)?;
        }
        Ok(())
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Find {
    /// POSIX extended regular expression; a leading * ignores case
    #[arg(value_name = "PATTERN")]
    pattern: OsString,
    /// Print at most N
    #[arg(long, value_name = "N")]
    max: Option<usize>,
    #[command(flatten)]
    form: Form,
}

impl Run for Find {
    fn run(&self, client: &Client, output: &mut dyn Write) -> Result<()> {
        for (key, value) in client.find(self.pattern.as_bytes(), self.max)? {
            self.form.write_pair(&key, &value, output)?;
        }
        Ok(())
    }
}
