//! Commands that an unknown word may mean.

use std::collections::BTreeMap;

/// Words of other programs, each with the command that does the same or is nearest.
const MEANINGS: &[(&str, &str)] = &[
    ("add", "put"),
    ("append", "put"),
    ("benchmark", "bench"),
    ("clear", "vanish"),
    ("cli", "shell"),
    ("compact", "optimize"),
    ("console", "shell"),
    ("dbsize", "count"),
    ("decr", "incr"),
    ("defrag", "optimize"),
    ("dump", "export"),
    ("erase", "out"),
    ("eval", "ext"),
    ("expire", "touch"),
    ("failover", "promote"),
    ("fetch", "get"),
    ("flush", "vanish"),
    ("flush_all", "vanish"),
    ("flushall", "vanish"),
    ("flushdb", "vanish"),
    ("fsck", "check"),
    ("grep", "find"),
    ("incrby", "incr"),
    ("index", "set-index"),
    ("inform", "stat"),
    ("insert", "put"),
    ("load", "import"),
    ("ls", "list"),
    ("mget", "get"),
    ("monitor", "tail"),
    ("mset", "put"),
    ("query", "search"),
    ("read", "get"),
    ("remove", "out"),
    ("repair", "salvage"),
    ("replicaof", "follow"),
    ("run", "serve"),
    ("save", "backup"),
    ("scan", "list"),
    ("select", "search"),
    ("server", "serve"),
    ("setmst", "follow"),
    ("slaveof", "follow"),
    ("slowlog", "slow"),
    ("snapshot", "backup"),
    ("start", "serve"),
    ("status", "stat"),
    ("store", "put"),
    ("truncate", "vanish"),
    ("unset", "out"),
    ("update", "put"),
    ("vacuum", "optimize"),
    ("verify", "check"),
    ("watch", "tail"),
    ("write", "put"),
];

/// Words of other programs that end a server.
const ENDS: [&str; 5] = ["halt", "kill", "shutdown", "stop", "terminate"];

/// Most commands that are proposed.
const PROPOSALS_MAX: usize = 3;

/// Returns the error of a word that is not a command, with the commands that it may mean.
pub(in crate::commands) fn unknown_command(parser: &clap::Command, word: &str) -> String {
    let unknown = format!("there is no command {word:?}");
    if ENDS.contains(&word) {
        return format!("{unknown}; SIGTERM, or Ctrl-C where it runs, ends a server");
    }
    match &similar(parser, word)[..] {
        [] => unknown,
        [only] => format!("{unknown}; did you mean {only}?"),
        [others @ .., last] => format!("{unknown}; did you mean {} or {last}?", others.join(", ")),
    }
}

/// Returns the commands nearest to a word by meaning or spelling, those found by an alias with it.
fn similar(parser: &clap::Command, word: &str) -> Vec<String> {
    let word = word.to_ascii_lowercase();
    // By command, the best spelling: its distance, and whether it is an alias.
    let mut found: BTreeMap<&str, (usize, Option<&str>)> = BTreeMap::new();
    let mut consider = |command, alias, spelling: &str| {
        let Some(distance) = distance(&word, spelling) else { return };
        let best = found.entry(command).or_insert((usize::MAX, None));
        if distance < best.0 {
            *best = (distance, alias);
        }
    };
    for command in parser.get_subcommands().filter(|command| !command.is_hide_set()) {
        consider(command.get_name(), None, command.get_name());
        for alias in command.get_all_aliases() {
            consider(command.get_name(), Some(alias), alias);
        }
    }
    for (meaning, name) in MEANINGS {
        if let Some(command) = parser.find_subcommand(name) {
            consider(command.get_name(), None, meaning);
        }
    }
    let nearest = found.values().map(|(distance, _)| *distance).min();
    let nearest = found.into_iter().filter(|(_, (distance, _))| Some(*distance) == nearest);
    let shown = nearest.map(|(command, (_, alias))| match alias {
        Some(alias) => format!("{command} (alias {alias})"),
        None => command.to_owned(),
    });
    shown.take(PROPOSALS_MAX).collect()
}

/// Returns how far a word is from a spelling, or `None` if it is another word. One that was not
/// typed to its end is nearer than one with errors.
fn distance(word: &str, spelling: &str) -> Option<usize> {
    let typing_errors_max = match word.len() {
        0..=1 => 0,
        2..=4 => 1,
        5..=8 => 2,
        _ => 3,
    };
    if word.len() >= 2 && spelling.starts_with(word) {
        return Some(usize::from(spelling != word));
    }
    let distance = strsim::osa_distance(word, spelling);
    (distance <= typing_errors_max).then_some(distance + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_meaning_is_that_of_a_command_and_is_not_one_itself() {
        let parser = super::super::command();
        for (meaning, name) in MEANINGS {
            assert!(parser.find_subcommand(name).is_some(), "{meaning}: {name}");
            assert!(parser.find_subcommand(meaning).is_none(), "{meaning} is a command");
        }
    }

    #[test]
    fn the_nearest_commands_by_meaning_or_spelling_are_proposed() {
        let parser = super::super::command();
        for (word, expected) in [
            ("dele", "out (alias delete)"),
            ("inof", "stat (alias info)"),
            ("flushall", "vanish"),
            ("FLUSHAL", "vanish"),
            ("serv", "serve"),
            ("sevre", "serve"),
            ("lst", "list"),
            ("expotr", "export"),
            ("remove", "out"),
            ("snapshto", "backup"),
            ("setindx", "set-index (alias setindex)"),
            ("put-r", "put-row or put-rows"),
            ("nonsense", ""),
            ("x", ""),
        ] {
            let said = unknown_command(&parser, word);
            let expected = match expected {
                "" => format!("there is no command {word:?}"),
                some => format!("there is no command {word:?}; did you mean {some}?"),
            };
            assert_eq!(said, expected);
        }
    }
}
