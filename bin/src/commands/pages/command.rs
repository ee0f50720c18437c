//! Pages of `tyrant` and its commands, from the definition of the command line.

use super::page::Page;
use crate::commands::WRONG_COMMAND_LINE;
use crate::commands::command_line::groups::{Group, groups};
use crate::commands::command_line::{AfterHelp, after_help};
use clap::Command;
use clap_mangen::Man;
use std::io::{self, Write};

/// Files of the Debian package that the server uses.
const FILES_OF_SERVE: &[(&str, &str)] = &[
    ("/etc/tyrant/tyrant.toml", "Settings of the packaged service, see tyrant.toml(5)."),
    ("/etc/default/tyrant", "Variables of the environment of that service."),
    ("/var/lib/tyrant", "Its databases."),
    ("/var/log/tyrant/tyrant.log", "Its log."),
];

/// Files that a command uses beside those that the command line names.
const FILES: &[(&str, &[(&str, &str)])] = &[
    ("tyrant", FILES_OF_SERVE),
    ("tyrant-serve", FILES_OF_SERVE),
    ("tyrant-config", FILES_OF_SERVE),
    (
        "tyrant-shell",
        &[("~/.local/state/tyrant/history", "Lines that were typed; $XDG_STATE_HOME moves it.")],
    ),
    (
        "tyrant-user",
        &[("users", "Users, in the current folder unless --users names another file.")],
    ),
];

/// Returns the page of the program, and of each command.
pub(super) fn pages(command: Command) -> Vec<Page> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&command, vec!["tyrant(1)".to_owned()], &mut pages);
    pages
}

/// Adds the pages of a command and of those below it. `near` are the pages above and beside it.
fn add(command: &Command, near: Vec<String>, pages: &mut Vec<Page>) {
    let below: Vec<&Command> = command.get_subcommands().filter(|c| !c.is_hide_set()).collect();
    let own = reference(command);
    let mut references: Vec<String> = near.into_iter().filter(|other| *other != own).collect();
    let beside: Vec<String> = below.iter().map(|command| reference(command)).collect();
    references.extend(beside.iter().cloned());
    let is_program = own == "tyrant(1)";
    if is_program || ["tyrant-serve(1)", "tyrant-config(1)"].contains(&own.as_str()) {
        references.push("tyrant.toml(5)".to_owned());
    }
    if is_program {
        references.extend(["ttserver(1)", "tcrmgr(1)", "ttulmgr(1)"].map(str::to_owned));
    }
    pages.push(page(command, references));
    for &other in &below {
        let mut near = vec![own.clone()];
        match is_program {
            // Those of the same group.
            true => {
                let place = other.get_display_order();
                let is_near = |near: &&&Command| near.get_display_order() == place;
                near.extend(below.iter().filter(is_near).map(|command| reference(command)));
            }
            false => near.extend(beside.iter().cloned()),
        }
        add(other, near, pages);
    }
}

fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn reference(command: &Command) -> String {
    format!("{}(1)", name(command))
}

/// Returns a part of the page that clap writes.
fn written(man: &Man, render: fn(&Man, &mut dyn Write) -> io::Result<()>) -> String {
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = render(man, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn page(command: &Command, references: Vec<String>) -> Page {
    let name = name(command).to_owned();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut page = Page::new(&name, 1, about.replace('\n', " ").trim_end_matches('.'));
    let man = Man::new(command.clone());
    page.append(&written(&man, Man::render_synopsis_section));
    page.append(&written(&man, Man::render_description_section));
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    if !aliases.is_empty() {
        page.paragraph(&format!("Also called: {}", aliases.join(", ")));
    }
    let AfterHelp { notes, examples } = after_help(command);
    if !notes.is_empty() {
        page.paragraph(&notes);
    }
    page.append(&written(&man, Man::render_options_section));
    let groups = groups(command);
    if groups.is_empty() && command.has_subcommands() {
        page.append(&written(&man, Man::render_subcommands_section));
    }
    for (number, Group { title, commands }) in groups.iter().enumerate() {
        if number == 0 {
            page.section("COMMANDS");
        }
        page.subsection(title);
        for command in commands {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            page.entry(&reference(command), &about);
        }
    }
    page.examples(&examples);
    page.exit_status(WRONG_COMMAND_LINE);
    let files = FILES.iter().find(|(of, _)| *of == name);
    page.files(files.map_or(&[][..], |(_, files)| *files));
    page.see_also(&references)
}
