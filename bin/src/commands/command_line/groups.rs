//! Groups of commands in the help. A command names its group as its `display_order`.

use std::fmt::Write as _;

/// Lowest group. Commands without one have lower places.
const FIRST: usize = 1000;
pub(crate) const SERVE: usize = FIRST;
pub(crate) const RECORDS: usize = FIRST + 1;
pub(crate) const TABLES: usize = FIRST + 2;
pub(crate) const LOOK: usize = FIRST + 3;
pub(crate) const COPIES: usize = FIRST + 4;
pub(crate) const REPLICATION: usize = FIRST + 5;
pub(crate) const ADMINISTRATION: usize = FIRST + 6;
pub(crate) const OTHER: usize = FIRST + 7;

/// Headings of the groups, in their order.
const TITLES: [&str; 8] = [
    "Serve",
    "Records",
    "Tables",
    "Look at a server",
    "Files and copies",
    "Replication",
    "Administration",
    "Other",
];

/// Widest line.
const COLUMNS_MAX: usize = 80;

/// A group with its commands.
pub(crate) struct Group<'a> {
    pub(crate) title: &'static str,
    pub(crate) commands: Vec<&'a clap::Command>,
}

/// Returns the groups that have commands.
pub(crate) fn groups(parser: &clap::Command) -> Vec<Group<'_>> {
    let group = |(place, title): (usize, &'static str)| {
        let is_in = |command: &&clap::Command| {
            command.get_display_order() == FIRST + place && !command.is_hide_set()
        };
        Group { title, commands: parser.get_subcommands().filter(is_in).collect() }
    };
    let groups = TITLES.into_iter().enumerate().map(group);
    groups.filter(|group| !group.commands.is_empty()).collect()
}

/// Returns the commands with what they do, in groups with an empty line after each.
pub(crate) fn listing(parser: &clap::Command) -> String {
    let names = parser.get_subcommands().map(|command| command.get_name().len());
    let width = names.max().unwrap_or(0) + 4;
    let mut text = String::new();
    for Group { title, commands } in groups(parser) {
        text.push_str(&super::heading(parser, &format!("{title}:")));
        text.push('\n');
        for command in commands {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let mut line = format!("  {}", command.get_name());
            let mut column = line.len();
            for (number, word) in about.split(' ').enumerate() {
                if number > 0 && column + 1 + word.len() <= COLUMNS_MAX {
                    line.push(' ');
                    column += 1;
                } else {
                    if number > 0 {
                        line.push('\n');
                        column = 0;
                    }
                    line.push_str(&" ".repeat(width - column));
                    column = width;
                }
                line.push_str(word);
                column += word.len();
            }
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_a_group_and_every_group_has_commands() {
        let parser = super::super::command();
        let last = FIRST + TITLES.len();
        for command in parser.get_subcommands() {
            let place = command.get_display_order();
            assert!((FIRST..last).contains(&place), "{} is in no group", command.get_name());
        }
        assert_eq!(groups(&parser).len(), TITLES.len());
        assert_eq!(OTHER + 1, last);
    }
}
