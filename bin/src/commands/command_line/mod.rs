//! The command line of `tyrant`: `serve` without its name, groups of commands in the help, and
//! errors with what to do.

mod errors;
mod examples;
mod foreign_options;
pub(super) mod groups;
mod implicit_serve;
mod similar;

pub(super) use examples::{AfterHelp, after_help};
pub(super) use similar::unknown_command;

use super::Arguments;
use clap::error::Error;
use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;

/// The forms of a command line.
const USAGE: &str = "tyrant [OPTIONS OF SERVE] [DB]\n       tyrant COMMAND [ARGUMENTS]";

/// The end of the help.
const AFTER_HELP: &str = "\
\"tyrant COMMAND --help\" has the options of a command, with examples.
\"tyrant serve --help\" has those of the server, which need no \"serve\".

Examples:
  # Serve casket.tch of the current folder on port 1978
  tyrant
  # Serve a tree to every machine that reaches port 2000
  tyrant --host 0.0.0.0 --port 2000 casket.tcb
  # Store a record, and print it
  tyrant put greeting hello
  tyrant get greeting";

/// Returns the parser.
pub(super) fn command() -> clap::Command {
    let command = Arguments::command().override_usage(USAGE).after_help(AFTER_HELP);
    let help = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{}\n{{options}}{{after-help}}\n",
        groups::listing(&command),
        heading(&command, "Options:")
    );
    command.help_template(help).mut_subcommands(with_aliases)
}

/// Returns whether the program has a command of this name.
pub(super) fn is_command(name: &str) -> bool {
    Arguments::command().find_subcommand(name).is_some()
}

/// Returns a command whose help shows its other names too, and so those below it.
pub(super) fn with_aliases(command: clap::Command) -> clap::Command {
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    let command = match aliases.is_empty() {
        true => command,
        false => {
            let aliases = format!("Also called: {}", aliases.join(", "));
            command.before_help(aliases)
        }
    };
    command.mut_subcommands(with_aliases)
}

/// Returns a heading in the style of the others.
fn heading(command: &clap::Command, title: &str) -> String {
    let style = command.get_styles().get_header();
    format!("{}{title}{}", style.render(), style.render_reset())
}

/// Parses a command line, which begins with the name of the program.
pub(super) fn parse(words: Vec<OsString>) -> Result<Arguments, Error> {
    let mut command = command();
    let words = implicit_serve::complete(&mut command, words)?;
    let parsed = command.try_get_matches_from_mut(&words);
    let parsed = parsed.and_then(|matches| Arguments::from_arg_matches(&matches));
    parsed.map_err(|error| explain(error, &mut command, &words))
}

/// Adds to an error of a command line, which begins with the name of the program, what is meant.
pub(super) fn explain(error: Error, command: &mut clap::Command, words: &[OsString]) -> Error {
    let error = errors::explain(error.format(command), command, words);
    foreign_options::explain(error, command, words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Command;

    pub(super) fn parsed(line: &str) -> Result<Command, String> {
        let words = line.split(' ').map(OsString::from).collect();
        parse(words).map(|arguments| arguments.command).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn the_help_has_each_command_in_its_group_on_80_columns() {
        let help = command().render_long_help().to_string();
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        assert!(help.contains("\n\nRecords:\n  get "), "{help}");
        assert!(help.contains("\n\nOptions:\n  -h, --help"), "{help}");
        for command in command().get_subcommands() {
            let line = format!("\n  {} ", command.get_name());
            assert_eq!(help.matches(&line).count(), 1, "{line}: {help}");
        }
    }

    #[test]
    fn the_help_of_a_command_shows_its_aliases() {
        let mut command = command();
        command.build();
        let out = command.find_subcommand_mut("delete").expect("the command");
        assert_eq!(out.get_name(), "out");
        let help = out.render_help().to_string();
        assert!(help.contains("Also called: del, delete, rm"), "{help}");
    }
}
