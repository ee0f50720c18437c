//! Reference of the settings: a configuration file with every default, and the table of the page.

use super::SETTINGS;
use super::definition::{Default as DefaultValue, Scope, Setting};
use std::fmt::Write as _;

/// Widest line of a comment in the file.
const COLUMNS_MAX: usize = 78;

const HEAD: &str = "\
# Configuration of `tyrant serve --config FILE`. Every setting is here as a
# comment, with its default, or with an example if the default is not a value.
# `tyrant config --check FILE` checks a changed file.
#
# An option of the command line and a variable of the environment override a
# setting: --connections-max, TYRANT_CONNECTIONS_MAX. Those with [live] change
# at a reload (SIGHUP), the others at a restart. Relative paths are relative to
# the folder of this file, or to that of the setting folder. Bytes take the
# suffixes k, m, g and t.
#
# A server of several databases has a section for each at the end of the file:
#
#   [[database]]
#   name = \"sessions.tch\"
#   port = 1979
#
# The settings with [own] belong into the sections then. All others that are
# not of the process may be in a section too, which overrides them.
";

/// Returns a configuration file in which every setting is a comment.
pub(crate) fn defaults_file() -> String {
    let mut file = HEAD.to_owned();
    let mut group = "";
    // Writing to a `String` cannot fail.
    for Described { group: of, line, text } in described() {
        if of != group {
            group = of;
            let _ = write!(file, "\n# {group}\n# {}\n", "-".repeat(group.len()));
        }
        let _ = writeln!(file);
        for line in wrapped(&text) {
            let _ = writeln!(file, "# {line}");
        }
        let _ = writeln!(file, "#{line}");
    }
    file
}

/// A setting as a file has it.
pub(crate) struct Described {
    pub(crate) group: &'static str,
    /// `name = value`, with the default or an example.
    pub(crate) line: String,
    pub(crate) text: String,
}

/// Returns all settings in the order of a file.
pub(crate) fn described() -> impl Iterator<Item = Described> {
    SETTINGS.iter().map(|setting| {
        let mut text = format!("{}.", setting.help());
        // Writing to a `String` cannot fail.
        if let DefaultValue::Words(words) = setting.default {
            let _ = write!(text, " The value is an example; by default: {words}.");
        }
        for note in notes(setting) {
            let _ = write!(text, " [{note}]");
        }
        let line = format!("{} = {}", setting.name(), setting.example);
        Described { group: setting.group, line, text }
    })
}

/// Returns what a file of settings is.
pub(crate) fn introduction() -> String {
    let line = |line: &str| line.trim_start_matches('#').strip_prefix(' ').map(str::to_owned);
    HEAD.lines().map(|text| line(text).unwrap_or_default() + "\n").collect()
}

/// Returns a value of the setting with this name, as the command line takes it.
pub(crate) fn example(name: &str) -> Option<String> {
    let setting = SETTINGS.iter().find(|setting| setting.name() == name)?;
    let value = setting.likely.unwrap_or(setting.example);
    let first = value.trim_matches(['[', ']']).split(", ").next()?;
    Some(first.trim_matches('"').to_owned())
}

fn notes(setting: &Setting) -> Vec<&'static str> {
    let live = setting.is_live.then_some("live");
    let own = (setting.scope == Scope::OneDatabase).then_some("own");
    live.into_iter().chain(own).collect()
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        if let Some(line) = lines.last_mut() {
            if line.is_empty() {
                line.push_str(word);
                continue;
            }
            if line.len() + 1 + word.len() <= COLUMNS_MAX {
                line.push(' ');
                line.push_str(word);
                continue;
            }
        }
        lines.push(word.to_owned());
    }
    lines
}

/// Returns the tables of the page about the configuration, in Markdown.
pub(crate) fn markdown() -> String {
    let mut page = String::new();
    let mut group = "";
    for setting in SETTINGS {
        if setting.group != group {
            group = setting.group;
            let _ = write!(page, "\n### {group}\n\n");
            page.push_str("| setting | default | meaning | changes at |\n|---|---|---|---|\n");
        }
        let name = match setting.value_name {
            _ if setting.is_positional => format!("`{}`", setting.name()),
            "true|false" => format!("`{}`", setting.name()),
            value => format!("`{}` `{}`", setting.name(), value.replace('|', "\\|")),
        };
        let aliases: Vec<String> =
            setting.aliases.iter().map(|alias| format!("`--{alias}`")).collect();
        let also = match aliases.join(", ") {
            aliases if aliases.is_empty() => String::new(),
            aliases => format!("; also {aliases}"),
        };
        let default = match setting.default {
            DefaultValue::Example => format!("`{}`", setting.default_text()),
            DefaultValue::Words(words) => words.to_owned(),
        };
        let help = setting.help().replace('|', "\\|");
        let change = if setting.is_live { "reload" } else { "restart" };
        let change = match setting.scope {
            Scope::Process => format!("{change}; of the process"),
            Scope::OneDatabase => format!("{change}; own"),
            Scope::Database => change.to_owned(),
        };
        let _ = writeln!(page, "| {name}{also} | {default} | {help} | {change} |");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::super::{Launch, Settings};
    use super::*;

    #[test]
    fn every_line_of_the_file_of_defaults_is_a_comment_that_can_be_uncommented() {
        let file = defaults_file();
        assert!(file.lines().all(|line| line.is_empty() || line.starts_with('#')), "{file}");
        assert!(file.lines().all(|line| line.len() <= 80), "{file}");
        let settings: Vec<&str> = file
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
            .collect();
        assert_eq!(settings.len(), SETTINGS.len());
        let settings: Settings = toml::from_str(&settings.join("\n")).expect("settings");
        assert!(settings.shown().iter().all(Option::is_some));
    }

    #[test]
    fn the_defaults_of_the_file_are_those_of_no_file() {
        let defaults = Launch::default().load().expect("the defaults");
        for (setting, value) in SETTINGS.iter().zip(defaults.databases[0].shown()) {
            assert_eq!(setting.default == DefaultValue::Example, value.is_some(), "{setting:?}");
        }
    }

    #[test]
    fn names_are_unique_and_of_one_form() {
        let mut names: Vec<String> = SETTINGS.iter().map(Setting::name).collect();
        let form = |name: &String| name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        assert!(names.iter().all(form), "{names:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), SETTINGS.len());
    }
}
