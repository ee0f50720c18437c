//! Options of other programs, and commands below another one than was meant.

use super::unknown_command;
use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use std::ffi::OsString;

/// The way to run a server in the background.
const DAEMON: &str = "a service manager runs it in the background, or \"tyrant serve ... &\"";
/// The place of a database's largest size.
const SIZE: &str = "a limit of a database is in its name, as in casket.tch#capsiz=1g";
/// The place of a database's name.
const NAME: &str = "the name of the database needs no option: tyrant serve folder/casket.tch";
/// The place of a login's password.
const PASSWORD: &str = "the password is in TYRANT_PASSWORD or --credentials FILE, or it is typed";

/// Options of other programs, each with an option of a command, and what is written here in its
/// place. The first one that the command has counts.
const MEANINGS: &[(&str, &str, &str)] = &[
    ("-c", "config", "--config FILE"),
    ("-d", "run-as", DAEMON),
    ("-H", "host", "--host ADDRESS"),
    ("-l", "host", "--host ADDRESS"),
    ("-m", "buffer-bytes-max", SIZE),
    ("-p", "port", "--port PORT"),
    ("-p", "server", "--server HOST:PORT"),
    ("-s", "unix", "--unix PATH"),
    ("-s", "server", "--server PATH, that of the socket"),
    ("-t", "threads", "--threads N"),
    ("-u", "run-as", "--run-as USER"),
    ("-u", "user", "--user NAME"),
    ("--addr", "server", "--server HOST:PORT"),
    ("--address", "host", "--host ADDRESS"),
    ("--address", "server", "--server HOST:PORT"),
    ("--bind", "host", "--host ADDRESS"),
    ("--ca", "tls-ca", "--tls-ca FILE"),
    ("--cacert", "tls-ca", "--tls-ca FILE"),
    ("--cert", "tls-cert", "--tls-cert FILE"),
    ("--daemon", "run-as", DAEMON),
    ("--daemonize", "run-as", DAEMON),
    ("--data", "database", NAME),
    ("--data-dir", "database", NAME),
    ("--database", "database", NAME),
    ("--db", "database", NAME),
    ("--dir", "database", NAME),
    ("--host", "server", "--server HOST:PORT"),
    ("--insecure", "tls-insecure", "--tls-insecure"),
    ("--key", "tls-key", "--tls-key FILE"),
    ("--limit", "max", "--max N"),
    ("--listen", "host", "--host ADDRESS and --port PORT"),
    ("--logfile", "log", "--log FILE"),
    ("--loglevel", "log-level", "--log-level LEVEL"),
    ("--maxclients", "connections-max", "--connections-max N"),
    ("--maxmemory", "buffer-bytes-max", SIZE),
    ("--metrics", "admin", "--admin HOST:PORT"),
    ("--pass", "credentials", PASSWORD),
    (
        "--password",
        "no-password",
        "the password is typed, or is the first line of the standard input",
    ),
    ("--password", "credentials", PASSWORD),
    ("--pidfile", "pid", "--pid FILE"),
    ("--port", "server", "--server HOST:PORT"),
    ("--replicaof", "master", "--master HOST:PORT"),
    ("--slaveof", "master", "--master HOST:PORT"),
    ("--socket", "unix", "--unix PATH"),
    ("--socket", "server", "--server PATH, that of the socket"),
    ("--unix", "server", "--server PATH, that of the socket"),
    ("--unixsocket", "unix", "--unix PATH"),
    ("--username", "user", "--user NAME"),
    ("--workers", "threads", "--threads N"),
];

/// Replaces what the parser proposes for an unknown option, or for an unknown command below
/// another one, by what is meant, if that is known.
pub(super) fn explain(error: Error, command: &Command, words: &[OsString]) -> Error {
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return error,
    };
    let Some(ContextValue::String(given)) = error.get(kind) else { return error };
    let given = given.split(['=', ' ']).next().unwrap_or_default();
    let invoked = invoked(command, words);
    let has = |name: &str| {
        let mut arguments = invoked.get_arguments();
        arguments.any(|argument| argument.get_id() == name || argument.get_long() == Some(name))
    };
    let text = if error.kind() == ErrorKind::InvalidSubcommand {
        match command.find_subcommand(given) {
            // An alias of another command means something else here.
            Some(own) if own.get_name() == given => format!(
                "{} has no command {given:?}\n\n  tip: it is a command of its own: tyrant {}",
                invoked.get_name(),
                own.get_name()
            ),
            _ if invoked.get_name() == command.get_name() => unknown_command(invoked, given),
            _ => {
                let below = invoked.get_subcommands().map(Command::get_name);
                let below: Vec<&str> = below.filter(|name| *name != "help").collect();
                let (name, below) = (invoked.get_name(), below.join(", "));
                format!("{name} has no command {given:?}; it has {below}")
            }
        }
    } else {
        let meant = MEANINGS.iter().find(|(word, name, _)| *word == given && has(name));
        let Some((_, _, meant)) = meant else { return error };
        format!("unexpected argument '{given}' found\n\n  tip: {meant}")
    };
    Error::raw(error.kind(), format!("{text}\n\nFor more information, try '--help'.\n"))
}

/// Returns the innermost command of a command line.
fn invoked<'a>(command: &'a Command, words: &[OsString]) -> &'a Command {
    let mut invoked = command;
    for word in words.iter().skip(1) {
        match invoked.find_subcommand(word) {
            Some(below) => invoked = below,
            None => break,
        }
    }
    invoked
}

#[cfg(test)]
mod tests {
    use super::super::tests::parsed;
    use super::*;

    #[test]
    fn each_option_is_unknown_where_another_one_is_proposed_for_it() {
        let mut command = super::super::command();
        command.build();
        let has_long = |command: &Command, name: &str| {
            command.get_arguments().any(|argument| argument.get_long() == Some(name))
        };
        for (word, name, _) in MEANINGS {
            let mut commands = command
                .get_subcommands()
                .flat_map(|one| std::iter::once(one).chain(one.get_subcommands()));
            let is_proposed = commands.any(|command| {
                let has = command.get_arguments().any(|one| one.get_id() == name);
                (has || has_long(command, name))
                    && !word.strip_prefix("--").is_some_and(|word| has_long(command, word))
            });
            assert!(is_proposed, "{word}: {name}");
        }
    }

    #[test]
    fn an_option_of_another_program_gets_the_one_of_this() {
        for (line, tip) in [
            ("tyrant --bind 0.0.0.0", "\n\n  tip: --host ADDRESS\n"),
            ("tyrant serve --key k", "tip: --tls-key FILE\n"),
            ("tyrant serve --replicaof=h:1", "tip: --master HOST:PORT\n"),
            ("tyrant -p 2000", "tip: --port PORT\n"),
            ("tyrant get a --port 2000", "tip: --server HOST:PORT\n"),
            ("tyrant get a -p 2000", "tip: --server HOST:PORT\n"),
            ("tyrant get a --password p", "tip: the password is in TYRANT_PASSWORD"),
            ("tyrant user add ann --password p", "tip: the password is typed"),
            (
                "tyrant backup restore a",
                "backup has no command \"restore\"\n\n  tip: it is a \
              command of its own: tyrant restore\n",
            ),
            (
                "tyrant backup delete a",
                "backup has no command \"delete\"; it has create, list, verify, prune\n",
            ),
            ("tyrant backup lst a", "backup has no command \"lst\"; it has create, list"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(tip), "{line}: {error}");
        }
    }
}
