//! `ttulmgr`: Tokyo Tyrant's tool for update log files.

use crate::plural::counted;
use crate::updates::{Line, write_line};
use crate::version_line;
use anyhow::{Context, Result, bail};
use server::update_log::{FILE_BYTES_MAX, Files, Reader};
use std::ffi::OsString;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Usage of each command.
pub(crate) const USAGES: [&str; 3] =
    ["export [-ts num] [-sid num] upath", "import upath", "version"];

/// Runs the program. Returns its exit code, 0 or 1.
pub fn run() -> ExitCode {
    let (program, arguments) = crate::arguments("ttulmgr");
    let arguments: Vec<OsString> = arguments.collect();
    let usages = || USAGES.iter().map(|usage| format!("  {program} {usage}\n"));
    if arguments.first().is_some_and(|name| name == "--help") {
        print!("usage:\n{}", usages().collect::<String>());
        return ExitCode::SUCCESS;
    }
    let name = arguments.first().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let Some(command) = Command::parse(arguments) else {
        match USAGES.iter().find(|usage| usage.split(' ').next() == Some(&name)) {
            Some(usage) => eprintln!("usage: {program} {usage}"),
            None => eprint!("usage:\n{}", usages().collect::<String>()),
        }
        return ExitCode::FAILURE;
    };
    match command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !crate::is_broken_pipe(&error) {
                eprintln!("{program}: {}", crate::describe(&error));
            }
            ExitCode::FAILURE
        }
    }
}

/// A command of the command line.
#[derive(Debug, PartialEq, Eq)]
enum Command {
    /// Print the log entries since a time stamp, without those that came from or through a server.
    Export {
        from_us: u64,
        without: Option<u16>,
        folder: PathBuf,
    },
    /// Append log entries read as lines.
    Import {
        folder: PathBuf,
    },
    Version,
}

impl Command {
    fn parse(arguments: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut arguments = arguments.into_iter();
        let name = arguments.next()?;
        let mut options = [None, None];
        let mut folder = None;
        while let Some(argument) = arguments.next() {
            let option = match argument.to_str() {
                _ if folder.is_some() => return None,
                Some("-ts") if name == "export" => 0,
                Some("-sid") if name == "export" => 1,
                Some(option) if option.starts_with('-') => return None,
                _ => {
                    folder = Some(PathBuf::from(argument));
                    continue;
                }
            };
            options[option] = Some(arguments.next()?.to_str()?.parse().ok()?);
        }
        match (name.to_str()?, folder) {
            ("export", Some(folder)) => {
                let [from_us, without] = options;
                let without = without.map(u16::try_from).transpose().ok()?;
                Some(Self::Export { from_us: from_us.unwrap_or(0), without, folder })
            }
            ("import", Some(folder)) => Some(Self::Import { folder }),
            ("version" | "--version", None) => Some(Self::Version),
            _ => None,
        }
    }

    fn run(&self) -> Result<()> {
        match self {
            Self::Export { from_us, without, folder } => {
                let mut output = BufWriter::new(io::stdout().lock());
                let done = export(folder, *from_us, *without, &mut output);
                // Lines read before an error are printed too.
                output.flush()?;
                done
            }
            Self::Import { folder } => import(folder, &mut io::stdin().lock()),
            Self::Version => Ok(writeln!(io::stdout(), "{}", version_line())?),
        }
    }
}

fn export(folder: &Path, from_us: u64, without: Option<u16>, output: &mut dyn Write) -> Result<()> {
    let Some(mut reader) = Reader::open(folder, from_us)? else {
        bail!("there is no update log in {}", folder.display());
    };
    while let Some(entry) = reader.next(None)? {
        if !without.is_some_and(|id| entry.origin == id || entry.master == id) {
            write_line(&entry, output)?;
        }
    }
    Ok(())
}

/// Appends lines to a log. Invalid lines are skipped, as in Tokyo Tyrant, but counted.
fn import(folder: &Path, input: &mut dyn BufRead) -> Result<()> {
    let mut files = Files::open(folder, FILE_BYTES_MAX)?;
    let mut bad = 0_u64;
    let mut text = Vec::new();
    loop {
        text.clear();
        if input.read_until(b'\n', &mut text).context("cannot read the lines")? == 0 {
            break;
        }
        match std::str::from_utf8(&text).ok().and_then(Line::parse) {
            Some(line) => files.append(&line.entry())?,
            None => bad += 1,
        }
    }
    files.sync()?;
    if bad > 0 {
        eprintln!("{} skipped", counted(bad, "invalid line was", "invalid lines were"));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) fn is_valid<'a>(arguments: impl Iterator<Item = &'a str>) -> bool {
    Command::parse(arguments.map(Into::into)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Command> {
        Command::parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn tokyo_tyrants_command_line_is_parsed() {
        let folder = PathBuf::from("d");
        let export = |from_us, without| {
            Some(Command::Export { from_us, without, folder: PathBuf::from("d") })
        };
        assert_eq!(parse("export d"), export(0, None));
        assert_eq!(parse("export -ts 12 -sid 3 d"), export(12, Some(3)));
        assert_eq!(parse("import d"), Some(Command::Import { folder }));
        assert_eq!(parse("version"), Some(Command::Version));
        for line in ["", "export", "export -ts d", "export -sid 70000 d", "import -ts 1 d", "x d"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
