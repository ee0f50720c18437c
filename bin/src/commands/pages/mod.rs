//! `tyrant completions` and `tyrant man`: files for shells and `man`, from the definition of the
//! command line.

mod command;
mod page;
mod programs;
mod settings;

use crate::transfer::whole_file::Output;
use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use page::Page;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Complete commands and options in this bash
  tyrant completions bash > ~/.local/share/bash-completion/completions/tyrant")]
pub(super) struct Completions {
    /// Shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self, mut command: Command) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "tyrant", &mut script);
        Ok(Output::standard().write_all(&script)?)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Make \"man tyrant-get\" work for this user
  tyrant man ~/.local/share/man/man1")]
pub(super) struct Man {
    /// Folder for the pages, one per command; created if it does not exist
    folder: PathBuf,
}

impl Man {
    pub(super) fn run(&self, command: Command) -> Result<()> {
        std::fs::create_dir_all(&self.folder)
            .with_context(|| format!("cannot create the folder {}", self.folder.display()))?;
        for page in pages(command) {
            let path = self.folder.join(page.file());
            std::fs::write(&path, page.text())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// Returns the pages of all programs and commands, and of the configuration file.
fn pages(command: Command) -> Vec<Page> {
    let mut pages = command::pages(command);
    pages.extend(programs::pages());
    pages.push(settings::page());
    pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::command_line;

    #[test]
    fn every_page_has_its_sections_and_refers_to_pages_that_are_there() {
        let pages = pages(command_line::command());
        let names: Vec<String> = pages.iter().map(Page::file).collect();
        for name in ["tyrant.1", "tyrant-get.1", "tyrant-backup-create.1", "ttserver.1", "tcrmgr.1"]
        {
            assert!(names.iter().any(|other| other == name), "{name}: {names:?}");
        }
        for name in ["ttulmgr.1", "tyrant.toml.5"] {
            assert!(names.iter().any(|other| other == name), "{name}: {names:?}");
        }
        for page in &pages {
            let (file, text) = (page.file(), page.text());
            for section in
                ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "EXIT STATUS", "SEE ALSO"]
            {
                // A file has neither.
                if file == "tyrant.toml.5" && ["SYNOPSIS", "EXIT STATUS"].contains(&section) {
                    continue;
                }
                let heading = match section.contains(' ') {
                    true => format!("\n.SH \"{section}\"\n"),
                    false => format!("\n.SH {section}\n"),
                };
                assert!(text.contains(&heading), "{file} has no {section}: {text}");
            }
            let (_, references) = text.rsplit_once("\n.SH \"SEE ALSO\"\n").expect("references");
            for reference in references.replace('\\', "").trim_end().split(", ") {
                let (name, section) = reference.split_once('(').expect("a section");
                let other = format!("{name}.{}", section.trim_end_matches(')'));
                assert!(names.contains(&other), "{reference} of {file}");
            }
        }
    }
}
