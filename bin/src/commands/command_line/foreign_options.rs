//! Options of other programs, and commands below another one than was meant.

use super::unknown_command;
use crate::commands::export::OF_SERVER;
use crate::commands::import::FILES_INTO_SERVER;
use crate::errors::nearest;
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
/// The place of users.
const USERS: &str = "a password belongs to a user: \"tyrant user add NAME\", and --users FILE";
/// The place of a database's durability.
const DURABILITY: &str = "a database on disk is durable: casket.tch#durability=always syncs each \
    change, and *, in memory, keeps nothing";
/// The place of several databases.
const SEVERAL: &str = "several databases have a section [[database]] each in the file of --config";
/// Tuning of memcached.
const TUNING: &str = "leave it out: it tunes memcached itself";
/// The place of a record's expiry.
const EXPIRE: &str = "--expire SECONDS";
/// The place of patterns of keys.
const PATTERN: &str = "--prefix PREFIX, or \"tyrant find PATTERN\" for a regular expression";
/// A word in place of an option, whatever it is.
const WORD: &str = "";

/// Options of other programs, each with an option of a command, and what is written here in its
/// place. The first one that the command has counts.
const MEANINGS: &[(&str, &str, &str)] = &[
    ("-A", "shutdown-command", "--shutdown-command"),
    ("-a", "socket-mode", "--socket-mode MODE"),
    ("-B", "port", "leave it out: every protocol is recognised by itself"),
    ("-b", "port", TUNING),
    ("-C", "port", TUNING),
    ("-c", "config", "--config FILE; memcached's -c is --connections-max N"),
    ("-d", "run-as", DAEMON),
    ("-e", "database", NAME),
    ("-F", "mask", "--mask vanish"),
    ("-f", "to-end", "leave it out: tail waits for further changes by itself"),
    ("-f", "port", TUNING),
    ("-H", "host", "--host ADDRESS"),
    ("-I", "request-bytes-max", "--request-bytes-max N"),
    ("-k", "port", TUNING),
    ("-L", "port", TUNING),
    ("-l", "host", "--host ADDRESS"),
    ("-M", "database", "leave it out: nothing is evicted without #capsiz= in the database's name"),
    ("-m", "buffer-bytes-max", SIZE),
    ("-n", "port", TUNING),
    ("-n", "max", "--max N"),
    ("-o", "port", TUNING),
    ("-P", "pid", "--pid FILE"),
    ("-p", "port", "--port PORT"),
    ("-p", "server", "--server HOST:PORT"),
    ("-R", "port", TUNING),
    ("-S", "users", USERS),
    ("-s", "unix", "--unix PATH"),
    ("-s", "server", "--server PATH, that of the socket"),
    ("-t", "threads", "--threads N"),
    ("-U", "port", "leave it out: there is no UDP"),
    ("-u", "run-as", "--run-as USER"),
    ("-u", "user", "--user NAME"),
    ("-v", "log-level", "--log-level debug"),
    ("-Y", "users", USERS),
    ("-Z", "tls-cert", "--tls-cert FILE --tls-key FILE"),
    ("--aclfile", "users", "--users FILE"),
    ("--addr", "server", "--server HOST:PORT"),
    ("--address", "host", "--host ADDRESS"),
    ("--address", "server", "--server HOST:PORT"),
    ("--all", "prefix", "leave it out: all keys are listed without --prefix"),
    ("--appendfsync", "database", DURABILITY),
    ("--appendonly", "database", DURABILITY),
    ("--bind", "host", "--host ADDRESS"),
    ("--by", "initial", "the number needs no option: tyrant incr KEY N"),
    ("--ca", "tls-ca", "--tls-ca FILE"),
    ("--cacert", "tls-ca", "--tls-ca FILE"),
    ("--cert", "tls-cert", "--tls-cert FILE"),
    ("--count", "max", "--max N"),
    ("--daemon", "run-as", DAEMON),
    ("--daemonize", "run-as", DAEMON),
    ("--data", "database", NAME),
    ("--data-dir", "database", NAME),
    ("--database", "database", NAME),
    ("--databases", "database", SEVERAL),
    ("--db", "database", NAME),
    ("--dbfilename", "database", NAME),
    ("--debug", "log-level", "--log-level debug"),
    ("--dir", "database", NAME),
    ("--ex", "expire", EXPIRE),
    ("--follow", "to-end", "leave it out: tail waits for further changes by itself"),
    ("--force", "replace", "--replace"),
    ("--force", "yes", "--yes"),
    ("--force", "no-check", "leave it out: the records of a file replace those with their keys"),
    ("--host", "server", "--server HOST:PORT"),
    ("--insecure", "tls-insecure", "--tls-insecure"),
    ("--key", "tls-key", "--tls-key FILE"),
    ("--limit", "max", "--max N"),
    ("--listen", "host", "--host ADDRESS and --port PORT"),
    ("--logfile", "log", "--log FILE"),
    ("--loglevel", "log-level", "--log-level LEVEL"),
    ("--masterauth", "master-credentials", "--master-credentials FILE"),
    ("--masteruser", "master-credentials", "--master-credentials FILE"),
    ("--match", "prefix", PATTERN),
    ("--maxclients", "connections-max", "--connections-max N"),
    ("--maxmemory", "buffer-bytes-max", SIZE),
    ("--maxmemory-policy", "buffer-bytes-max", SIZE),
    ("--metrics", "admin", "--admin HOST:PORT"),
    ("--notify-keyspace-events", "keyspace-events", "--keyspace-events LETTERS"),
    ("--nx", "keep", "--keep"),
    ("--overwrite", "replace", "--replace"),
    (
        "--overwrite",
        "no-check",
        "leave it out: the records of a file replace those with their keys",
    ),
    ("--pass", "credentials", PASSWORD),
    (
        "--password",
        "no-password",
        "the password is typed, or is the first line of the standard input",
    ),
    ("--password", "credentials", PASSWORD),
    ("--pattern", "prefix", PATTERN),
    ("--pattern", "pattern", "the pattern needs no option: tyrant find PATTERN"),
    ("--pidfile", "pid", "--pid FILE"),
    ("--port", "server", "--server HOST:PORT"),
    ("--protected-mode", "host", "leave it out: without --host only this machine can connect"),
    ("--px", "expire", EXPIRE),
    ("--rename-command", "mask", "--mask NAME refuses a command"),
    ("--replicaof", "master", "--master HOST:PORT"),
    ("--requirepass", "users", USERS),
    ("--save", "database", DURABILITY),
    ("--server", "any-order", OF_SERVER),
    ("--server", "no-check", FILES_INTO_SERVER),
    ("--slaveof", "master", "--master HOST:PORT"),
    ("--slowlog-log-slower-than", "slow-log-threshold", "--slow-log-threshold SECONDS"),
    ("--socket", "unix", "--unix PATH"),
    ("--socket", "server", "--server PATH, that of the socket"),
    ("--tls-ca-cert-file", "tls-client-ca", "--tls-client-ca FILE"),
    ("--tls-cert-file", "tls-cert", "--tls-cert FILE"),
    ("--tls-key-file", "tls-key", "--tls-key FILE"),
    ("--ttl", "expire", EXPIRE),
    ("--ttl", "seconds", "the seconds need no option: tyrant touch KEY SECONDS"),
    ("--unix", "server", "--server PATH, that of the socket"),
    ("--unixsocket", "unix", "--unix PATH"),
    ("--unixsocketperm", "socket-mode", "--socket-mode MODE"),
    ("--username", "user", "--user NAME"),
    ("--verbose", "log-level", "--log-level debug"),
    ("--workers", "threads", "--threads N"),
    ("EX", "expire", EXPIRE),
    ("NX", "keep", "--keep"),
    ("PX", "expire", EXPIRE),
    (WORD, "pipeline", "leave it out: bench sends gets and sets, and has no commands of its own"),
    (WORD, "prefix", PATTERN),
    (WORD, "duplicate", "a value with blanks needs quotes"),
    (WORD, "rights", "rights follow --rights, with commas: --rights read,admin"),
];

/// Words below a command that are none of it, each with the one that is meant. They count before
/// the commands of their own that some of them are.
const BELOW: &[(&str, &str, &str)] = &[
    ("backup", "check", "verify"),
    ("backup", "ls", "list"),
    ("backup", "new", "create"),
    ("backup", "show", "list"),
    ("user", "create", "add"),
    ("user", "get", "list"),
    ("user", "grant", "rights"),
    ("user", "info", "list"),
    ("user", "ls", "list"),
    ("user", "new", "add"),
    ("user", "password", "passwd"),
    ("user", "set", "rights"),
    ("user", "show", "list"),
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
        let name = invoked.get_name();
        let known = BELOW.iter().find(|(one, word, _)| *one == name && *word == given);
        match command.find_subcommand(given) {
            _ if known.is_some() => {
                let meant = known.map_or("", |(_, _, meant)| *meant);
                format!("{name} has no command {given:?}\n\n  tip: tyrant {name} {meant}")
            }
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
                match nearest(given, below.iter().copied()) {
                    Some(meant) => {
                        format!("{name} has no command {given:?}\n\n  tip: tyrant {name} {meant}")
                    }
                    None => {
                        format!("{name} has no command {given:?}; it has {}", below.join(", "))
                    }
                }
            }
        }
    } else {
        let is_meant = |word: &str| word == given || word == WORD && !given.starts_with('-');
        let meant = MEANINGS.iter().find(|(word, name, _)| is_meant(word) && has(name));
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
            ("tyrant serve -c 100", "tip: --config FILE; memcached's -c is --connections-max N\n"),
            ("tyrant serve -P f", "tip: --pid FILE\n"),
            ("tyrant -Z", "tip: --tls-cert FILE --tls-key FILE\n"),
            ("tyrant serve -U 0", "tip: leave it out: there is no UDP\n"),
            ("tyrant serve -I 1m", "tip: --request-bytes-max N\n"),
            ("tyrant serve -M", "tip: leave it out: nothing is evicted without #capsiz="),
            ("tyrant serve -vv", "tip: --log-level debug\n"),
            ("tyrant serve --requirepass x", "\"tyrant user add NAME\", and --users FILE\n"),
            ("tyrant serve --save 60", "casket.tch#durability=always"),
            ("tyrant serve --appendonly yes", "casket.tch#durability=always"),
            ("tyrant serve --databases 16", "a section [[database]] each in the file of --config"),
            ("tyrant put a b --ttl 5", "tip: --expire SECONDS\n"),
            ("tyrant incr a --ttl 5", "tip: --expire SECONDS\n"),
            ("tyrant touch a --ttl 5", "tip: the seconds need no option: tyrant touch KEY SECONDS"),
            ("tyrant put a b --nx", "tip: --keep\n"),
            ("tyrant put a b NX", "tip: --keep\n"),
            ("tyrant put a b EX 5", "tip: --expire SECONDS\n"),
            ("tyrant set a b c", "tip: a value with blanks needs quotes\n"),
            ("tyrant list --pattern x", "tip: --prefix PREFIX, or \"tyrant find PATTERN\""),
            ("tyrant bench load --pipeline 16", "tip: leave it out: bench sends gets and sets"),
            ("tyrant list x*", "tip: --prefix PREFIX, or \"tyrant find PATTERN\""),
            ("tyrant find --pattern x", "tip: the pattern needs no option"),
            ("tyrant restore a --force", "tip: --replace\n"),
            ("tyrant export a b --force", "tip: --replace\n"),
            ("tyrant vanish --force", "tip: --yes\n"),
            ("tyrant tail -f", "tip: leave it out: tail waits for further changes"),
            ("tyrant tail -n 5", "tip: --max N\n"),
            ("tyrant export --server h:1", "\"tyrant import redis://HOST:PORT --into NAME\""),
            ("tyrant import f --server h:1", "export NAME --to redis://HOST:PORT\""),
            ("tyrant user rights ann admin", "tip: rights follow --rights, with commas"),
            ("tyrant user add ann read admin", "tip: rights follow --rights, with commas"),
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
            ("tyrant backup lst a", "backup has no command \"lst\"\n\n  tip: tyrant backup list\n"),
            ("tyrant backup check a", "tip: tyrant backup verify\n"),
            ("tyrant user show ann", "user has no command \"show\"\n\n  tip: tyrant user list\n"),
            ("tyrant user get ann", "tip: tyrant user list\n"),
            ("tyrant user right ann", "tip: tyrant user rights\n"),
            ("tyrant user password ann", "tip: tyrant user passwd\n"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(tip), "{line}: {error}");
        }
    }
}
