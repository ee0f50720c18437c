//! `tyrant`: the server, and commands for a running one.

mod backup;
mod bench;
mod export;
mod import;
mod inspect;
mod manage;
mod promote;
mod queries;
mod records;
mod repair;
mod replicas;
mod replication;
mod restore;
mod rows;
mod serve;
mod tail;

use anyhow::Result;
use clap::{Parser, Subcommand};
use client::Client;
use std::io::{self, Write};
use std::process::ExitCode;

/// A small, fast, persistent key-value server that speaks memcached, HTTP and Tokyo Tyrant.
///
/// Without a command it serves the database casket.tch of the current folder on port 1978.
#[derive(Debug, Parser)]
#[command(name = "tyrant", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a database until SIGTERM or SIGINT
    Serve(Box<serve::Arguments>),
    /// Verify every checksum of a database, served or not
    Check(repair::Check),
    /// Copy the readable records of a damaged database into a new one
    Salvage(repair::Salvage),
    /// Keep backups of a database in a folder
    Backup(backup::Backup),
    /// Restore a database from a backup, as it was then or at a later time
    Restore(restore::Restore),
    /// Import Tokyo Cabinet files, TSV or JSON lines into a database
    Import(import::Import),
    /// Write the records of a database as TSV or JSON lines
    Export(export::Export),
    /// Print the properties of a database or of a Tokyo Cabinet file
    Inspect(inspect::Inspect),
    /// Print the changes on a server, line by line, as they happen
    Tail(tail::Tail),
    /// Print the replication tree from the first master on, with the lag of each server
    Replicas(replicas::Replicas),
    /// Run benchmarks on this machine
    Bench(bench::Bench),
    /// Print the version of this program
    Version,
    #[command(flatten)]
    Remote(Remote),
}

/// Commands for a running server.
#[derive(Debug, Subcommand)]
enum Remote {
    /// Print values
    Get(At<records::Get>),
    /// Store a record
    Put(At<records::Put>),
    /// Remove records
    Out(At<records::Out>),
    /// Print keys, with --values also values
    List(At<records::List>),
    /// Print the records between two keys, if keys are ordered
    Range(At<records::Range>),
    /// Print the records whose key matches a regular expression
    Find(At<records::Find>),
    /// Store a row of a table
    PutRow(At<rows::PutRow>),
    /// Print rows of a table
    GetRow(At<rows::GetRow>),
    /// Print the rows of a table that meet conditions
    Search(At<rows::Search>),
    /// Build or remove the index of a column of a table
    #[command(alias = "setindex")]
    SetIndex(At<rows::SetIndex>),
    /// Print a number that the table has not returned before
    #[command(alias = "genuid")]
    Uid(At<rows::Uid>),
    /// Print the server's status
    Stat(At<manage::Stat>),
    /// Print the number of records
    #[command(alias = "rnum")]
    Count(At<manage::Count>),
    /// Print the size of the database in bytes
    Size(At<manage::Size>),
    /// Remove all records
    Vanish(At<manage::Vanish>),
    /// Make everything written so far durable
    Sync(At<manage::Sync>),
    /// Reclaim all dead space now
    Optimize(At<manage::Optimize>),
    /// End a replica's replication, and let clients write to it
    Promote(At<promote::Promote>),
    /// Copy the database to a path on the server's machine
    Copy(At<manage::Copy>),
    /// Call a versatile function and print the elements it returns
    Misc(At<manage::Misc>),
    /// Call a script function
    Ext(At<manage::Ext>),
}

/// A command with the server it is sent to.
#[derive(Debug, clap::Args)]
struct At<T: clap::Args> {
    /// Connect to this server: HOST:PORT, or the path of its Unix socket
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:1978")]
    server: String,
    #[command(flatten)]
    command: T,
}

/// Execution of a command on a server, which writes results to the output.
trait Run {
    fn run(&self, client: &Client, output: &mut dyn Write) -> Result<()>;
}

impl<T: clap::Args + Run> At<T> {
    fn run(&self) -> Result<()> {
        let client = crate::remote::connect_to(&self.server)?;
        let mut output = io::BufWriter::new(io::stdout().lock());
        let done = self.command.run(&client, &mut output);
        // Results before an error are printed too.
        output.flush()?;
        done.map_err(|error| crate::remote::with_reason(&client, error))
    }
}

impl Remote {
    fn run(&self) -> Result<()> {
        match self {
            Self::Get(command) => command.run(),
            Self::Put(command) => command.run(),
            Self::Out(command) => command.run(),
            Self::List(command) => command.run(),
            Self::Range(command) => command.run(),
            Self::Find(command) => command.run(),
            Self::PutRow(command) => command.run(),
            Self::GetRow(command) => command.run(),
            Self::Search(command) => command.run(),
            Self::SetIndex(command) => command.run(),
            Self::Uid(command) => command.run(),
            Self::Stat(command) => command.run(),
            Self::Count(command) => command.run(),
            Self::Size(command) => command.run(),
            Self::Vanish(command) => command.run(),
            Self::Sync(command) => command.run(),
            Self::Optimize(command) => command.run(),
            Self::Promote(command) => command.run(),
            Self::Copy(command) => command.run(),
            Self::Misc(command) => command.run(),
            Self::Ext(command) => command.run(),
        }
    }
}

/// Runs the program. Returns its exit code: 0, 1 on failure, 2 for a wrong command line.
pub fn run() -> ExitCode {
    let done = match Arguments::parse().command {
        None => serve::Arguments::default().run(),
        Some(Command::Serve(serve)) => serve.run(),
        Some(Command::Remote(remote)) => remote.run(),
        Some(Command::Check(check)) => check.run(),
        Some(Command::Salvage(salvage)) => salvage.run(),
        Some(Command::Backup(backup)) => backup.run(),
        Some(Command::Restore(restore)) => restore.run(),
        Some(Command::Import(import)) => import.run(),
        Some(Command::Export(export)) => export.run(),
        Some(Command::Inspect(inspect)) => inspect.run(),
        Some(Command::Tail(tail)) => tail.run(),
        Some(Command::Replicas(replicas)) => replicas.run(),
        Some(Command::Bench(bench)) => bench.run(),
        Some(Command::Version) => {
            println!("{}", crate::version_line());
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !crate::is_broken_pipe(&error) {
                eprintln!("tyrant: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::{CommandFactory, Parser};

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn arguments_are_optional() {
        assert!(Arguments::parse_from(["tyrant"]).command.is_none());
    }
}
