//! `tyrant`: the server, and commands for a running one.

mod backup;
mod bench;
mod cluster;
mod config;
mod csv;
mod export;
mod follow;
mod import;
mod inspect;
mod manage;
mod pages;
mod promote;
mod queries;
mod records;
mod reload;
mod repair;
mod replicas;
mod restore;
mod rows;
mod serve;
mod shell;
mod slow;
mod tail;
mod top;
mod ttl;
mod user;

use crate::remote::{Need, Server, ServerArgument};
use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
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
    /// Print the settings of a server with their defaults, or check a configuration file
    Config(config::Config),
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
    /// Show what a server does, live
    Top(top::Top),
    /// Run commands for a server that are typed, or read from the standard input
    Shell(shell::Shell),
    /// Manage the file of users
    User(user::User),
    /// Make and check databases in a cluster of Apache Cassandra
    Cluster(cluster::Cluster),
    /// Run benchmarks on this machine
    Bench(bench::Bench),
    /// Print the completions of a shell
    Completions(pages::Completions),
    /// Write manual pages into a folder
    Man(pages::Man),
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
    /// Set when a record expires
    Touch(At<records::Touch>),
    /// Print how many seconds records have left
    Ttl(At<ttl::Ttl>),
    /// Add to a decimal number, and print the sum
    Incr(At<records::Incr>),
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
    /// Store the rows of a CSV file in a table
    PutRows(At<csv::PutRows>),
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
    /// Print the last slow requests, and where their time went
    Slow(At<slow::Slow>),
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
    /// Make a server follow a master
    Follow(At<follow::Follow>),
    /// Make a replica stop following its master
    Unfollow(At<follow::Unfollow>),
    /// End a replica's replication, and let clients write to it
    Promote(At<promote::Promote>),
    /// Copy the database to a path on the server's machine
    Copy(At<manage::Copy>),
    /// Call a versatile function and print the elements it returns
    Misc(At<manage::Misc>),
    /// Call a function of the server's script
    Ext(At<manage::Ext>),
    /// Read the server's users and its script again; if one has an error, the present ones stay
    Reload(At<reload::Reload>),
}

/// A command with the server it is sent to.
#[derive(Debug, clap::Args)]
struct At<T: clap::Args> {
    #[command(flatten)]
    server: ServerArgument,
    #[command(flatten)]
    command: T,
}

/// Execution of a command on a server, which writes results to the output.
trait Run {
    /// Returns what the command needs of the database.
    fn needs(&self) -> Need {
        Need::Nothing
    }

    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()>;

    /// Runs the command if it needs no server.
    fn run_alone(&self) -> Option<Result<()>> {
        None
    }
}

impl Remote {
    /// Returns the name of the command, its server and its execution.
    fn parts(&self) -> (&'static str, &ServerArgument, &dyn Run) {
        match self {
            Self::Get(At { server, command }) => ("get", server, command),
            Self::Put(At { server, command }) => ("put", server, command),
            Self::Touch(At { server, command }) => ("touch", server, command),
            Self::Ttl(At { server, command }) => ("ttl", server, command),
            Self::Incr(At { server, command }) => ("incr", server, command),
            Self::Out(At { server, command }) => ("out", server, command),
            Self::List(At { server, command }) => ("list", server, command),
            Self::Range(At { server, command }) => ("range", server, command),
            Self::Find(At { server, command }) => ("find", server, command),
            Self::PutRow(At { server, command }) => ("put-row", server, command),
            Self::PutRows(At { server, command }) => ("put-rows", server, command),
            Self::GetRow(At { server, command }) => ("get-row", server, command),
            Self::Search(At { server, command }) => ("search", server, command),
            Self::SetIndex(At { server, command }) => ("set-index", server, command),
            Self::Uid(At { server, command }) => ("uid", server, command),
            Self::Stat(At { server, command }) => ("stat", server, command),
            Self::Count(At { server, command }) => ("count", server, command),
            Self::Size(At { server, command }) => ("size", server, command),
            Self::Vanish(At { server, command }) => ("vanish", server, command),
            Self::Sync(At { server, command }) => ("sync", server, command),
            Self::Optimize(At { server, command }) => ("optimize", server, command),
            Self::Follow(At { server, command }) => ("follow", server, command),
            Self::Unfollow(At { server, command }) => ("unfollow", server, command),
            Self::Promote(At { server, command }) => ("promote", server, command),
            Self::Copy(At { server, command }) => ("copy", server, command),
            Self::Misc(At { server, command }) => ("misc", server, command),
            Self::Ext(At { server, command }) => ("ext", server, command),
            Self::Slow(At { server, command }) => ("slow", server, command),
            Self::Reload(At { server, command }) => ("reload", server, command),
        }
    }

    /// Returns whether the command reads the standard input.
    fn reads_input(&self) -> bool {
        match self {
            Self::Put(At { command, .. }) => command.reads_input(),
            Self::PutRows(At { command, .. }) => command.reads_input(),
            _ => false,
        }
    }

    /// Connects to the server of the command, and runs it.
    fn run(&self) -> Result<()> {
        let (_, server, command) = self.parts();
        if let Some(done) = command.run_alone() {
            return done;
        }
        let mut output = io::BufWriter::new(io::stdout().lock());
        self.run_on(&server.connect()?, &mut output)
    }

    /// Runs the command on this server.
    fn run_on(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let (name, _, command) = self.parts();
        server.expect(name, command.needs())?;
        let done = command.run(server, output);
        // Results before an error are printed too.
        output.flush()?;
        done.map_err(|error| server.explain(name, error))
    }
}

/// Runs the program. Returns its exit code: 0, 1 on failure, 2 for a wrong command line.
pub fn run() -> ExitCode {
    let done = match Arguments::parse().command {
        None => serve::Arguments::default().run(),
        Some(Command::Serve(serve)) => serve.run(),
        Some(Command::Config(config)) => config.run(),
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
        Some(Command::Top(top)) => top.run(),
        Some(Command::Shell(shell)) => shell.run(),
        Some(Command::User(user)) => user.run(),
        Some(Command::Cluster(cluster)) => cluster.run(),
        Some(Command::Bench(bench)) => bench.run(),
        Some(Command::Completions(completions)) => completions.run(Arguments::command()),
        Some(Command::Man(man)) => man.run(Arguments::command()),
        Some(Command::Version) => {
            println!("{}", crate::version_line());
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !crate::is_broken_pipe(&error) {
                eprintln!("tyrant: {}", crate::describe(&error));
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
