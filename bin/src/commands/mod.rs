//! `tyrant`: the server, and commands for a running one.

mod backup;
mod bench;
mod cluster;
mod command_line;
mod config;
mod csv;
mod export;
mod follow;
mod import;
mod inspect;
mod manage;
mod pages;
mod probe;
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

use crate::errors::is_wrong_command_line;
use crate::output::Quiet;
use crate::remote::{Need, Server, ServerArgument};
use crate::say::check_printed;
use crate::transfer::progress::without_bars;
use crate::transfer::whole_file::Output;
use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use command_line::groups::{
    ADMINISTRATION, COPIES, LOOK, OTHER, RECORDS, REPLICATION, SERVE, TABLES,
};
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

/// A small, fast, persistent key-value server that speaks memcached, Redis's
/// strings, HTTP and Tokyo Tyrant.
///
/// Without a command it serves the database casket.tch of the current folder on
/// port 1978.
#[derive(Debug, Parser)]
#[command(name = "tyrant", version, verbatim_doc_comment)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Examples of the command without arguments.
const VERSION_EXAMPLES: &str = "\
Examples:
  # Print the version, and the versions of Tokyo Tyrant that it is compatible with
  tyrant version";

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Remote(Remote),
    /// Serve a database until SIGTERM or SIGINT
    #[command(display_order = SERVE)]
    Serve(Box<serve::Arguments>),
    /// Print the settings of a server with their defaults, or check a configuration file
    #[command(display_order = SERVE)]
    Config(config::Config),
    /// Verify every checksum of a database, served or not
    #[command(display_order = COPIES)]
    Check(repair::Check),
    /// Copy the readable records of a damaged database into a new one
    #[command(display_order = COPIES)]
    Salvage(repair::Salvage),
    /// Keep backups of a database in a folder
    #[command(display_order = COPIES)]
    Backup(backup::Backup),
    /// Restore a database from a backup, as it was then or at a later time
    #[command(display_order = COPIES)]
    Restore(restore::Restore),
    /// Import Tokyo Cabinet files, TSV, JSON lines or a Redis server (redis://HOST) into a database
    #[command(display_order = COPIES)]
    Import(import::Import),
    /// Write the records of a database as TSV or JSON lines, or to a Redis server
    #[command(display_order = COPIES)]
    Export(export::Export),
    /// Print the properties of a database or of a Tokyo Cabinet file
    #[command(display_order = COPIES)]
    Inspect(inspect::Inspect),
    /// Print the changes on a server, line by line, as they happen
    #[command(display_order = LOOK)]
    Tail(tail::Tail),
    /// Print the replication tree from the first master on, with the lag of each server
    #[command(display_order = REPLICATION)]
    Replicas(replicas::Replicas),
    /// Show what a server does, live
    #[command(display_order = LOOK)]
    Top(top::Top),
    /// Run commands for a server that are typed, or read from the standard input
    #[command(display_order = OTHER)]
    Shell(shell::Shell),
    /// Manage the file of users
    #[command(display_order = ADMINISTRATION)]
    User(user::User),
    /// Make and check databases in a cluster of Apache Cassandra
    #[command(display_order = ADMINISTRATION)]
    Cluster(cluster::Cluster),
    /// Send gets and sets to a server, and print rates and latencies
    #[command(display_order = OTHER)]
    Bench(Box<bench::Bench>),
    /// Print the completions of a shell
    #[command(display_order = OTHER)]
    Completions(pages::Completions),
    /// Write manual pages into a folder
    #[command(display_order = OTHER)]
    Man(pages::Man),
    /// Print the version of this program
    #[command(display_order = OTHER, after_help = VERSION_EXAMPLES)]
    Version,
}

/// Commands for a running server.
#[derive(Debug, Subcommand)]
enum Remote {
    /// Print values
    #[command(display_order = RECORDS)]
    Get(At<records::Get>),
    /// Store a record
    #[command(display_order = RECORDS, visible_alias = "set")]
    Put(At<records::Put>),
    /// Set when a record expires
    #[command(display_order = RECORDS)]
    Touch(At<records::Touch>),
    /// Print how many seconds records have left
    #[command(display_order = RECORDS)]
    Ttl(At<ttl::Ttl>),
    /// Add to a decimal number, and print the sum
    #[command(display_order = RECORDS)]
    Incr(At<records::Incr>),
    /// Print 1 if a key has a record, or 0 and exit with 1
    #[command(display_order = RECORDS)]
    Exists(At<Quietly<probe::Exists>>),
    /// Remove records
    #[command(display_order = RECORDS, visible_aliases = ["del", "delete", "rm"])]
    Out(At<records::Out>),
    /// Print keys, with --values also values
    #[command(display_order = RECORDS, visible_alias = "keys")]
    List(At<records::List>),
    /// Print the records between two keys, if keys are ordered
    #[command(display_order = RECORDS)]
    Range(At<records::Range>),
    /// Print the records whose key matches a regular expression
    #[command(display_order = RECORDS)]
    Find(At<records::Find>),
    /// Store a row of a table
    #[command(display_order = TABLES)]
    PutRow(At<rows::PutRow>),
    /// Store the rows of a CSV file in a table
    #[command(display_order = TABLES)]
    PutRows(At<csv::PutRows>),
    /// Print rows of a table
    #[command(display_order = TABLES)]
    GetRow(At<rows::GetRow>),
    /// Print the rows of a table that meet conditions
    #[command(display_order = TABLES)]
    Search(At<rows::Search>),
    /// Build or remove the index of a column of a table
    #[command(display_order = TABLES, visible_alias = "setindex")]
    SetIndex(At<rows::SetIndex>),
    /// Print a number that the table has not returned before
    #[command(display_order = TABLES, visible_alias = "genuid")]
    Uid(At<rows::Uid>),
    /// Check that a server replies, and print how fast
    #[command(display_order = LOOK)]
    Ping(At<Quietly<probe::Ping>>),
    /// Print the server's status
    #[command(display_order = LOOK, visible_aliases = ["info", "stats"])]
    Stat(At<manage::Stat>),
    /// Print the last slow requests, and where their time went
    #[command(display_order = LOOK)]
    Slow(At<slow::Slow>),
    /// Print the number of records
    #[command(display_order = LOOK, visible_alias = "rnum")]
    Count(At<manage::Count>),
    /// Print the size of the database in bytes
    #[command(display_order = LOOK)]
    Size(At<manage::Size>),
    /// Remove all records
    #[command(display_order = ADMINISTRATION)]
    Vanish(At<Quietly<manage::Vanish>>),
    /// Make everything written so far durable
    #[command(display_order = ADMINISTRATION)]
    Sync(At<Quietly<manage::Sync>>),
    /// Reclaim all dead space now
    #[command(display_order = ADMINISTRATION)]
    Optimize(At<Quietly<manage::Optimize>>),
    /// Make a server follow a master
    #[command(display_order = REPLICATION)]
    Follow(At<follow::Follow>),
    /// Make a replica stop following its master
    #[command(display_order = REPLICATION)]
    Unfollow(At<follow::Unfollow>),
    /// End a replica's replication, and let clients write to it
    #[command(display_order = REPLICATION)]
    Promote(At<Quietly<promote::Promote>>),
    /// Copy the database to a path on the server's machine
    #[command(display_order = COPIES)]
    Copy(At<Quietly<manage::Copy>>),
    /// Call a versatile function and print the elements it returns
    #[command(display_order = OTHER)]
    Misc(At<manage::Misc>),
    /// Call a function of the server's script
    #[command(display_order = OTHER)]
    Ext(At<manage::Ext>),
    /// Make the server read its settings, users, certificates and script again, as SIGHUP does;
    /// with an error in settings, users or certificates, all of these stay as they were
    #[command(display_order = ADMINISTRATION)]
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

/// A command that may print nothing but errors.
#[derive(Debug, clap::Args)]
struct Quietly<T: clap::Args> {
    #[command(flatten)]
    command: T,
    #[command(flatten)]
    quiet: Quiet,
}

impl<T: Run + clap::Args> Run for Quietly<T> {
    fn needs(&self) -> Need {
        self.command.needs()
    }

    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        match self.quiet.is_set() {
            true => without_bars(|| self.command.run(server, &mut io::sink())),
            false => self.command.run(server, output),
        }
    }

    fn question(&self, server: &Server) -> Result<Option<String>> {
        self.command.question(server)
    }

    fn run_alone(&self) -> Option<Result<()>> {
        self.command.run_alone()
    }
}

/// Execution of a command on a server, which writes results to the output.
trait Run {
    /// Returns what the command needs of the database.
    fn needs(&self) -> Need {
        Need::Nothing
    }

    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()>;

    /// Returns what a person on a terminal is asked before the command runs, if anything.
    fn question(&self, _server: &Server) -> Result<Option<String>> {
        Ok(None)
    }

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
            Self::Exists(At { server, command }) => ("exists", server, command),
            Self::Ping(At { server, command }) => ("ping", server, command),
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
        let server = server.connect()?;
        if io::stdin().is_terminal()
            && io::stderr().is_terminal()
            && let Some(question) = self.question(&server)?
        {
            eprint!("{question}{YES_OR_NO}");
            let mut answer = String::new();
            io::stdin().read_line(&mut answer)?;
            ensure!(is_yes(&answer), UNCHANGED);
        }
        let mut output = io::BufWriter::new(Output::standard());
        self.run_on(&server, &mut output)
    }

    /// Returns what a person on a terminal is asked before the command runs, if anything.
    fn question(&self, server: &Server) -> Result<Option<String>> {
        let (name, _, command) = self.parts();
        command.question(server).map_err(|error| server.explain(name, error))
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

/// End of a question.
const YES_OR_NO: &str = " [y/N] ";

/// Error of a command whose question was not answered with yes.
const UNCHANGED: &str = "nothing was changed";

/// Returns whether the answer to a question is yes.
fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str())
}

/// Answer of a command that is no: exit code 1 without a message.
#[derive(Debug)]
struct Negative;

impl fmt::Display for Negative {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("no")
    }
}

impl std::error::Error for Negative {}

/// Exit code of a wrong command line, which is that of its parser.
const WRONG_COMMAND_LINE: u8 = 2;

/// Runs the program. Returns its exit code: 0, 1 on failure, or [`WRONG_COMMAND_LINE`].
pub fn run() -> ExitCode {
    let command = match command_line::parse(std::env::args_os().collect()) {
        Ok(arguments) => arguments.command,
        Err(error) => error.exit(),
    };
    match command.run().and_then(|()| Ok(check_printed()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !crate::is_broken_pipe(&error) && !error.is::<Negative>() {
                eprintln!("tyrant: {}", crate::describe(&error));
            }
            match is_wrong_command_line(&error) {
                true => WRONG_COMMAND_LINE.into(),
                false => ExitCode::FAILURE,
            }
        }
    }
}

impl Command {
    fn run(self) -> Result<()> {
        match self {
            Self::Serve(serve) => serve.run(),
            Self::Config(config) => config.run(),
            Self::Remote(remote) => remote.run(),
            Self::Check(check) => check.run(),
            Self::Salvage(salvage) => salvage.run(),
            Self::Backup(backup) => backup.run(),
            Self::Restore(restore) => restore.run(),
            Self::Import(import) => import.run(),
            Self::Export(export) => export.run(),
            Self::Inspect(inspect) => inspect.run(),
            Self::Tail(tail) => tail.run(),
            Self::Replicas(replicas) => replicas.run(),
            Self::Top(top) => top.run(),
            Self::Shell(shell) => shell.run(),
            Self::User(user) => user.run(),
            Self::Cluster(cluster) => cluster.run(),
            Self::Bench(bench) => bench.run(),
            Self::Completions(completions) => completions.run(command_line::command()),
            Self::Man(man) => man.run(command_line::command()),
            Self::Version => Ok(writeln!(Output::standard(), "{}", crate::version_line())?),
        }
    }
}
