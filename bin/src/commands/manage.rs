//! Commands on the whole database and on the server.

use super::Run;
use crate::bytes::{self, Kept};
use crate::output::{AsJson, Form};
use crate::remote::Server;
use crate::transfer::import_once::suffix;
use crate::transfer::progress::Progress;
use anyhow::{Result, bail};
use cabinet::name::{Kind, Specification};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Advice after a request that a server still executes.
pub(super) const SERVER_GOES_ON: &str = "the server goes on with it, and its log tells if it fails";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print the whole status
  tyrant stat
  # Print two values of it
  tyrant stat rnum size")]
pub(super) struct Stat {
    /// Print only the values with these names
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    form: AsJson,
}

impl Run for Stat {
    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let text = server.stat()?;
        let text = String::from_utf8_lossy(&text);
        let all: Vec<(&str, String)> = text
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(name, value)| (name, value.to_owned()))
            .collect();
        if self.names.is_empty() {
            return self.form.write_properties(&all, output);
        }
        let (mut chosen, mut missing) = (Vec::new(), Vec::new());
        for name in &self.names {
            match all.iter().find(|(other, _)| other == name) {
                Some(found) => chosen.push(found.clone()),
                None => missing.push(bytes::quoted(name.as_bytes()).to_string()),
            }
        }
        self.form.write_properties(&chosen, output)?;
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(" and ");
        Err(server.failure(format_args!(
            "its status has no value {missing} at present; \"tyrant stat\" lists them all"
        )))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print the number of records
  tyrant count")]
pub(super) struct Count {
    #[command(flatten)]
    form: AsJson,
}

impl Run for Count {
    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let count = server.count()?;
        if count == 0 {
            server.confirm_none("count")?;
        }
        self.form.write_number("count", count, output)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print the size of the database
  tyrant size")]
pub(super) struct Size {
    #[command(flatten)]
    form: AsJson,
}

impl Run for Size {
    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let bytes = server.size()?;
        if bytes == 0 {
            server.confirm_none("size")?;
        }
        self.form.write_number("bytes", bytes, output)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Remove all records of another server; a terminal is asked first
  tyrant vanish --server 10.0.0.2:1978
  # Remove them without a question
  tyrant vanish --yes")]
pub(super) struct Vanish {
    /// Ask no question on a terminal
    #[arg(long, short = 'y')]
    yes: bool,
}

impl Run for Vanish {
    fn question(&self, server: &Server) -> Result<Option<String>> {
        if self.yes {
            return Ok(None);
        }
        // A database in a cluster has no number of records, and one in memory no path.
        let number = server.stat_value("rnum")?;
        let number = number
            .map_or(String::new(), |number| format!(" ({})", bytes::escaped(number.as_bytes())));
        let path = server.stat_value("path")?;
        let of =
            path.map_or(String::new(), |path| format!(" of {}", bytes::escaped(path.as_bytes())));
        Ok(Some(format!("Remove all records{number}{of} on {}?", server.address())))
    }

    fn run(&self, server: &Server, _output: &mut dyn Write) -> Result<()> {
        Ok(server.vanish()?)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Wait until everything written is on the disk
  tyrant sync")]
pub(super) struct Sync {}

impl Run for Sync {
    fn run(&self, server: &Server, _output: &mut dyn Write) -> Result<()> {
        Ok(server.sync()?)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Reclaim dead space, from cron
  tyrant optimize --quiet
  # Limit an on-memory database to a million records
  tyrant optimize capnum=1000000")]
pub(super) struct Optimize {
    /// Change this tuning: key=value#key=value
    #[arg(value_name = "PARAMETERS", default_value = "")]
    parameters: String,
}

impl Optimize {
    /// Fails if a parameter is unknown. A server ignores those, as Tokyo Tyrant.
    fn check(&self, kind: Kind) -> Result<()> {
        let name = match kind {
            Kind::MemoryHash => "*".to_owned(),
            Kind::MemoryTree => "+".to_owned(),
            kind => format!("x.{}", suffix(kind)),
        };
        Specification::parse(&format!("{name}#{}", self.parameters))?;
        Ok(())
    }
}

impl Run for Optimize {
    fn run(&self, server: &Server, _output: &mut dyn Write) -> Result<()> {
        self.check(server.kind().unwrap_or(Kind::Hash))?;
        let _progress = Progress::of_time("optimizing").explain(SERVER_GOES_ON);
        Ok(server.optimize(self.parameters.as_bytes())?)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Copy the database, to a path on the machine of the server
  tyrant copy casket-monday.tch")]
pub(super) struct Copy {
    /// Path of the copy; nothing may exist there
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

impl Run for Copy {
    fn run(&self, server: &Server, _output: &mut dyn Write) -> Result<()> {
        self.check_name(server)?;
        let _progress = Progress::of_time("copying").explain(SERVER_GOES_ON);
        Ok(server.copy(self.path.as_os_str().as_bytes())?)
    }
}

impl Copy {
    /// Fails if the copy could not be opened under its name. A command has no such name.
    fn check_name(&self, server: &Server) -> Result<()> {
        let served = server.stat_value("path")?.and_then(|path| Kind::of_path(Path::new(&path)));
        let Some(kind) = served.filter(|kind| !kind.is_on_memory()) else { return Ok(()) };
        let path = &self.path;
        if path.as_os_str().as_bytes().starts_with(b"@") || Kind::of_path(path) == Some(kind) {
            return Ok(());
        }
        let name = path.with_extension(suffix(kind));
        bail!("a copy of a {} database needs its suffix: name it {}", kind.title(), name.display())
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Call the function that returns several records
  tyrant misc getlist a b c")]
pub(super) struct Misc {
    /// Name of the function
    #[arg(value_name = "NAME")]
    name: String,
    /// Arguments of the function
    #[arg(value_name = "ARGUMENT", allow_negative_numbers = true)]
    arguments: Vec<OsString>,
    #[command(flatten)]
    form: Form,
}

impl Run for Misc {
    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let arguments: Vec<_> =
            self.arguments.iter().map(|text| self.form.read(text)).collect::<Result<_>>()?;
        let elements = server.misc(self.name.as_bytes(), 0, &arguments)?;
        for element in &elements {
            self.form.write_line("element", element, output)?;
        }
        if elements.is_empty() { server.confirm("misc") } else { Ok(()) }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Call a function of the script with a key and a value
  tyrant ext limit user:7 10
  # Check a script before the server reads it
  tyrant ext --check functions.lua")]
pub(super) struct Ext {
    /// Name of the function
    #[arg(value_name = "NAME", required_unless_present = "check", default_value = "")]
    name: String,
    /// Key passed to the function
    #[arg(value_name = "KEY", default_value = "")]
    key: OsString,
    /// Value passed to the function
    #[arg(value_name = "VALUE", default_value = "")]
    value: OsString,
    /// Let no other locked call on the same key run meanwhile
    #[arg(long, conflicts_with = "lock_all")]
    lock_record: bool,
    /// Let no other locked call run meanwhile
    #[arg(long)]
    lock_all: bool,
    /// Check the syntax of a script instead, without a server
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "lock_record", "lock_all"])]
    check: Option<String>,
    #[command(flatten)]
    form: Form,
}

impl Run for Ext {
    fn run_alone(&self) -> Option<Result<()>> {
        let source = scripts::Source::from_argument(self.check.as_deref()?);
        Some(source.check().map_err(anyhow::Error::from))
    }

    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let (key, value) = (self.form.read(&self.key)?, self.form.read(&self.value)?);
        let options = match (self.lock_record, self.lock_all) {
            (_, true) => client::LOCK_ALL,
            (true, false) => client::LOCK_RECORD,
            (false, false) => 0,
        };
        let result = server.ext(self.name.as_bytes(), options, &key, &value)?;
        self.form.write_value(&key, &result, true, output)
    }
}

/// Writes a text of several lines.
pub(super) fn write_text(text: &[u8], output: &mut dyn Write) -> Result<()> {
    Ok(bytes::escape(text, Kept::Lines, output)?)
}
