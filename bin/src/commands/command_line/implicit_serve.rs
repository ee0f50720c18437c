//! `serve` without its name: `tyrant --port 2000 casket.tcb`.

use super::unknown_command;
use crate::settings::is_file_of_settings;
use cabinet::name::Kind;
use clap::error::{Error, ErrorKind};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Options of the program itself.
const OWN: [&str; 4] = ["-h", "--help", "-V", "--version"];

/// Returns the command line with the word `serve`, if it was left out. Fails if it is unclear
/// whether it was.
pub(super) fn complete(
    command: &mut clap::Command,
    mut words: Vec<OsString>,
) -> Result<Vec<OsString>, Error> {
    if let Some(first) = words.get(1) {
        if is_command(command, first) || OWN.iter().any(|own| first == own) {
            return Ok(words);
        }
        if let Some((place, word)) = first_operand(command, &words) {
            if is_command(command, word) {
                let message = misplaced(command, &words, place);
                return Err(command.error(ErrorKind::UnknownArgument, message));
            }
            if !is_database(word) {
                let message = format!(
                    "{}\n\n  tip: a database to serve has a suffix (.tch, .tcb, .tcf, .tct), or is * or +",
                    unknown_command(command, &word.to_string_lossy())
                );
                return Err(command.error(ErrorKind::InvalidSubcommand, message));
            }
        }
    }
    words.insert(words.len().min(1), "serve".into());
    Ok(words)
}

fn is_command(command: &clap::Command, word: &OsStr) -> bool {
    word == "help" || command.find_subcommand(word).is_some()
}

/// Returns whether a word looks like the name of a database, or is what `serve` gives better advice
/// on.
fn is_database(word: &OsStr) -> bool {
    if word.is_empty() || is_file_of_settings(Path::new(word)) {
        return true;
    }
    let path = word.as_bytes().split(|byte| *byte == b'#').next().unwrap_or_default();
    path.len() < word.len()
        || path.contains(&b'/')
        || Kind::of_path(Path::new(OsStr::from_bytes(path))).is_some()
}

/// Returns the first word that is neither an option nor the value of one, and its place.
fn first_operand<'a>(command: &clap::Command, words: &'a [OsString]) -> Option<(usize, &'a OsStr)> {
    let mut rest = words.iter().enumerate().skip(1);
    while let Some((place, word)) = rest.next() {
        // The rest is for serve, whatever it looks like.
        if word == "--" {
            return None;
        }
        if !word.as_bytes().starts_with(b"-") {
            return Some((place, word));
        }
        let name = word.to_str()?.strip_prefix("--")?;
        let (name, has_value) = match name.split_once('=') {
            Some((name, _)) => (name, true),
            None => (name, false),
        };
        // An option of another command is an error, but its value is not a command. The parser
        // reports an unknown one.
        let of_serve = command.find_subcommand("serve").and_then(|serve| option(serve, name));
        let of_others = || command.get_subcommands().find_map(|other| option(other, name));
        if takes_value(of_serve.or_else(of_others)?) && !has_value {
            rest.next();
        }
    }
    None
}

/// Returns the option of a command with a long name.
fn option<'a>(command: &'a clap::Command, name: &str) -> Option<&'a clap::Arg> {
    command.get_arguments().find(|argument| {
        let is_alias = |aliases: Vec<&str>| aliases.contains(&name);
        argument.get_long() == Some(name) || argument.get_all_aliases().is_some_and(is_alias)
    })
}

/// Returns whether the word after an option is its value.
fn takes_value(option: &clap::Arg) -> bool {
    option.get_action().takes_values() && !option.is_require_equals_set()
}

/// Returns the error of options before the command at `place`.
fn misplaced(command: &clap::Command, words: &[OsString], place: usize) -> String {
    let shown = |words: &[OsString]| -> String {
        words.iter().map(|word| format!(" {}", word.to_string_lossy())).collect()
    };
    let name = words[place].to_string_lossy();
    let found = command.find_subcommand(&words[place]);
    let options = &words[1..place];
    let is_known = |word: &OsString| match word.to_str().and_then(|word| word.strip_prefix("--")) {
        Some(name) => {
            let name = name.split('=').next().unwrap_or_default();
            found.is_some_and(|found| option(found, name).is_some())
        }
        None => true,
    };
    let remedy = if options.iter().all(is_known) {
        format!("tyrant{}{}", shown(&words[place..]), shown(options))
    } else if found.is_some_and(|found| option(found, "server").is_some()) {
        format!("tyrant{} --server HOST:PORT", shown(&words[place..]))
    } else {
        format!("tyrant{}", shown(&words[place..]))
    };
    format!(
        "{name:?} is a command, and options before it are those of serve\n\n  \
         tip: begin with the command: {remedy}"
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::parsed;
    use crate::commands::Command;

    #[test]
    fn serve_needs_no_name_before_its_options_and_its_database() {
        for line in [
            "tyrant",
            "tyrant --host 0.0.0.0",
            "tyrant --port 2000 casket.tcb",
            "tyrant --port=2000 --webdav casket.tch",
            "tyrant --sid 2 *",
            "tyrant casket.tch#opts=l --port 2000",
            "tyrant +",
            "tyrant *#capnum=10",
            "tyrant folder/casket.TCF",
            "tyrant --log get casket.tch",
            "tyrant --mask put -- casket.tct",
            "tyrant cassandra://h/k#kind=tct",
            "tyrant serve casket.tch",
        ] {
            let command = parsed(line).expect(line);
            assert!(matches!(command, Command::Serve(_)), "{line}");
        }
    }

    #[test]
    fn a_command_after_options_of_serve_is_refused_with_what_to_write() {
        for (line, parts) in [
            (
                "tyrant --port 2 get a",
                &[
                    "\"get\" is a command",
                    "begin with the command: tyrant get a --server HOST:PORT",
                ][..],
            ),
            ("tyrant --server h:1 get a", &["tyrant get a --server h:1\n"]),
            ("tyrant --server=h:1 --tls rm a", &["tyrant rm a --server=h:1 --tls\n"]),
            ("tyrant --webdav inspect x", &["tyrant inspect x\n"]),
            ("tyrant --port 2 dele a", &["no command \"dele\"; did you mean out (alias delete)?"]),
            ("tyrant casket", &["no command \"casket\"", "a database to serve has a suffix"]),
            ("tyrant inof", &["did you mean stat (alias info)?"]),
            ("tyrant --prot 2", &["unexpected argument '--prot'", "'--port'"]),
            ("tyrant casket.tch get", &["unexpected argument 'get'"]),
        ] {
            let error = parsed(line).expect_err(line);
            for part in parts {
                assert!(error.contains(part), "{line}: {part}: {error}");
            }
        }
    }
}
