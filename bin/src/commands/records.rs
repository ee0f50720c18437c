//! Commands on records: `get`, `put`, `touch`, `incr`, `out`, `list`, `range`, `find`.

use super::Run;
use super::ttl::Expiries;
use crate::bytes::quoted;
use crate::errors::wrong_command_line;
use crate::listing;
use crate::output::{Form, Reading};
use crate::plural::counted;
use crate::remote::{Need, Server};
use crate::time::parse_expiry;
use anyhow::Result;
use client::{Error, Pair};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;

/// Most keys that an error of several names.
const UNREAD_NAMED_MAX: usize = 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print a value
  tyrant get greeting
  # Print several records, as key, TAB, value
  tyrant get a b c")]
pub(super) struct Get {
    /// Keys; the value of a single one is printed, several are printed as key, TAB, value; a
    /// missing one is a failure
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
    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let keys: Vec<_> =
            self.keys.iter().map(|key| self.form.read(key)).collect::<Result<_>>()?;
        if self.all {
            let [key] = &keys[..] else {
                return Err(wrong_command_line("--all takes a single key"));
            };
            let values = server.get_all(key)?;
            if values.is_empty() {
                server.confirm("get")?;
                return Err(server.missing("get", key));
            }
            return values
                .iter()
                .try_for_each(|value| self.form.write_line("value", value, output));
        }
        if let [key] = &keys[..] {
            let Some(value) = server.get(key)? else { return Err(server.missing("get", key)) };
            if !self.form.shows_expiry() {
                return self.form.write_value(key, &value, !self.no_newline, output);
            }
            let expiries = Expiries::of(server, self.form, &keys)?;
            return self.form.write_record(key, &value, expiries.of_key(key), output);
        }
        let (records, unread) = get_many(server, &keys)?;
        let expiries = Expiries::of(server, self.form, &keys)?;
        records.iter().try_for_each(|(key, value)| {
            self.form.write_record(key, value, expiries.of_key(key), output)
        })?;
        if let Some(unread) = unread {
            return Err(unread);
        }
        let found: HashSet<&[u8]> = records.iter().map(|(key, _)| &**key).collect();
        let absent: Vec<_> = keys.iter().filter(|key| !found.contains(&***key)).collect();
        server.expect_all("get", keys.len(), &absent)
    }
}

/// Returns the records of several keys, and the error of those that cannot be read, which do not
/// keep the others from being printed.
fn get_many(server: &Server, keys: &[Vec<u8>]) -> Result<(Vec<Pair>, Option<anyhow::Error>)> {
    let error = match server.get_many(keys) {
        Ok(records) => return Ok((records, None)),
        Err(error) => error,
    };
    // The server may close the connection for a record that it cannot read.
    let is_closed = matches!(error, Error::Send(_) | Error::Receive(_));
    if is_closed && server.reconnect().is_err() || !server.has_met_damage() {
        return Err(error.into());
    }
    let mut records = Vec::new();
    let (mut unread, mut first) = (Vec::new(), None);
    for key in keys {
        match server.get(key) {
            Ok(value) => records.extend(value.map(|value| (key.clone(), value))),
            Err(error) => {
                unread.push(quoted(key).to_string());
                let error = server.explain("get", error.into());
                first.get_or_insert(error);
                server.reconnect()?;
            }
        }
    }
    let named = unread[..unread.len().min(UNREAD_NAMED_MAX)].join(", ");
    let count = counted(unread.len() as u64, "key", "keys");
    Ok((records, first.map(|first| first.context(format!("{count} without a result: {named}")))))
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Store a record
  tyrant put greeting \"hello world\"
  # Store a file
  tyrant put page - < page.html
  # Store a record for an hour
  tyrant put session 4711 --expire 3600")]
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
    /// Let the record expire after this many seconds, below 0 at once; over 30 days it is a time
    /// since 1970
    #[arg(
        long,
        value_name = "SECONDS",
        group = "way",
        allow_negative_numbers = true,
        value_parser = parse_expiry
    )]
    expire: Option<i64>,
    #[command(flatten)]
    form: Reading,
}

impl Put {
    /// Returns whether the value is read from the standard input.
    pub(super) fn reads_input(&self) -> bool {
        self.value == "-"
    }
}

impl Run for Put {
    fn needs(&self) -> Need {
        match self.expire {
            Some(_) => Need::Values,
            None if self.duplicate || self.duplicate_front => Need::Duplicates,
            None => Need::Nothing,
        }
    }

    fn run(&self, server: &Server, _output: &mut dyn Write) -> Result<()> {
        let key = self.form.read(&self.key)?;
        let value = if self.reads_input() {
            let mut value = Vec::new();
            // One byte over every server's limit is enough to detect a value that is too large.
            let most = cabinet::limits::VALUE_BYTES_MAX as u64 + 1;
            std::io::stdin().lock().take(most).read_to_end(&mut value)?;
            value
        } else {
            self.form.read(&self.value)?
        };
        super::rows::expect_columns(server, &value)?;
        if self.keep {
            return if server.put_keep(&key, &value)? {
                Ok(())
            } else {
                Err(server.refused("put").unwrap_or_else(|| {
                    server.failure(format_args!("the key {} has a record", quoted(&key)))
                }))
            };
        }
        if self.append {
            return Ok(server.put_cat(&key, &value)?);
        }
        if let Some(seconds) = self.expire {
            server.put_expiring(&key, &value, seconds)?;
        } else if self.duplicate {
            server.put_duplicate(&key, &value)?;
        } else if self.duplicate_front {
            server.put_duplicate_front(&key, &value)?;
        } else {
            return Ok(server.put(&key, &value)?);
        }
        // They are functions of `misc`: a server that masks it replies without executing them.
        server.confirm("put")
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Let a record expire in an hour
  tyrant touch session 3600
  # Let it never expire
  tyrant touch session 0")]
pub(super) struct Touch {
    /// The key
    #[arg(value_name = "KEY")]
    key: OsString,
    /// Seconds until the record expires; 0 is never, below 0 at once, over 30 days it is a time
    /// since 1970
    #[arg(value_name = "SECONDS", allow_negative_numbers = true, value_parser = parse_expiry)]
    seconds: i64,
    #[command(flatten)]
    form: Reading,
}

impl Run for Touch {
    fn needs(&self) -> Need {
        Need::Values
    }

    fn run(&self, server: &Server, _output: &mut dyn Write) -> Result<()> {
        let key = self.form.read(&self.key)?;
        if server.touch(&key, self.seconds)? {
            return server.confirm("touch");
        }
        if let Some(error) = server.refused("touch") {
            return Err(error);
        }
        // The protocol has one reply for all failures.
        let failure = server.failure(server.refusal("touch"));
        Err(match server.value_size(&key)? {
            Some(_) => failure,
            None => server.missing("touch", &key),
        })
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Count visits, from 1 on
  tyrant incr visits 1 --initial 1
  # Subtract two from a number that is there
  tyrant incr stock -2")]
pub(super) struct Incr {
    /// The key
    #[arg(value_name = "KEY")]
    key: OsString,
    /// The number to add; a sum below 0 is 0
    #[arg(value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    addend: i64,
    /// Store this number if there is no record, and print it
    #[arg(long, value_name = "NUMBER")]
    initial: Option<u64>,
    /// Let a record that is made expire after this many seconds; over 30 days it is a time since
    /// 1970
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "initial",
        default_value = "0",
        allow_negative_numbers = true,
        value_parser = parse_expiry
    )]
    expire: i64,
    #[command(flatten)]
    form: Reading,
}

impl Run for Incr {
    fn needs(&self) -> Need {
        Need::Values
    }

    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let key = self.form.read(&self.key)?;
        let initial = self.initial.map(|number| (number, self.expire));
        let Some(sum) = server.increment(&key, self.addend, initial)? else {
            if let Some(error) = server.refused("incr") {
                return Err(error);
            }
            server.confirm("incr")?;
            // The protocol has one reply for all failures.
            let failure = server.failure(server.refusal("incr"));
            return Err(match initial {
                None if server.value_size(&key)?.is_none() => server.failure(format_args!(
                    "the key {} has no record; --initial makes one",
                    quoted(&key)
                )),
                _ => failure,
            });
        };
        Ok(writeln!(output, "{sum}")?)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Remove records
  tyrant out a b c
  # Remove all values of a key of a tree
  tyrant out --all a")]
pub(super) struct Out {
    /// Keys of the records; a missing one is a failure
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,
    /// Remove all values of each key of a tree; missing keys are ignored
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    form: Reading,
}

impl Run for Out {
    fn run(&self, server: &Server, _output: &mut dyn Write) -> Result<()> {
        if self.all {
            let keys: Vec<_> =
                self.keys.iter().map(|key| self.form.read(key)).collect::<Result<_>>()?;
            return Ok(server.out_all(&keys)?);
        }
        let mut absent = Vec::new();
        for key in &self.keys {
            let key = self.form.read(key)?;
            if !server.out(&key)? {
                absent.push(key);
            }
        }
        server.expect_all("out", self.keys.len(), &absent)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print ten keys
  tyrant list --max 10
  # Print the records whose keys begin with user:
  tyrant list --prefix user: --values")]
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
    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let prefix = self.prefix.as_ref().map(|prefix| self.form.read(prefix)).transpose()?;
        let mut is_empty = true;
        listing::list(server, prefix.as_deref(), self.max, |keys| {
            let expiries = Expiries::of(server, self.form, keys)?;
            if self.values {
                is_empty = true;
                listing::with_values(server, keys, |key, value| match value {
                    Some(value) => {
                        is_empty = false;
                        self.form.write_record(key, &value, expiries.of_key(key), output)
                    }
                    None => Ok(()),
                })?;
                return if is_empty { server.confirm_none("list") } else { Ok(()) };
            }
            is_empty = keys.is_empty();
            keys.iter().try_for_each(|key| self.form.write_key(key, expiries.of_key(key), output))
        })?;
        if is_empty { server.confirm_none("list") } else { Ok(()) }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print the records from a up to, but without, c
  tyrant range a c")]
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
    fn needs(&self) -> Need {
        Need::Order
    }

    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let begin = self.form.read(&self.begin)?;
        let end = self.end.as_ref().map(|end| self.form.read(end)).transpose()?;
        let found = server.range(&begin, end.as_deref(), self.max)?;
        if found.is_empty() {
            server.confirm("range")?;
        }
        found.iter().try_for_each(|(key, value)| self.form.write_pair(key, value, output))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print the records whose keys end with .png
  tyrant find '\\.png$'")]
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
    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let found = server.find(self.pattern.as_bytes(), self.max)?;
        if found.is_empty() {
            server.confirm("find")?;
        }
        found.iter().try_for_each(|(key, value)| self.form.write_pair(key, value, output))
    }
}
