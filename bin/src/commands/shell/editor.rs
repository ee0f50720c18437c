//! Line editor of the shell: colours, completes and hints while a line is typed, and keeps a
//! history in a file that only its owner reads.

use super::assistant::Assistant;
use crate::commands::{YES_OR_NO, is_yes};
use crate::paint::{self, Tone};
use crate::remote::Server;
use anyhow::{Context, Result};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{ColorMode, CompletionType, Config};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Lines that the history keeps.
const HISTORY_LINES_MAX: usize = 1000;

/// Editor of typed lines.
pub(super) struct Editor {
    lines: rustyline::Editor<Assistant, FileHistory>,
    /// File of the history, if there is a folder for it.
    history: Option<PathBuf>,
    /// Text that was typed before the next prompt, and read by another part of the program.
    ahead: String,
}

impl Editor {
    /// Returns an editor that completes the sub-commands of `parser`.
    pub(super) fn new(parser: &clap::Command, server: &Rc<Server>) -> Result<Self> {
        let has_colours = paint::has_colours(true);
        let config = Config::builder()
            .max_history_size(HISTORY_LINES_MAX)?
            // A line with a secret can be kept out of the history.
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .color_mode(if has_colours { ColorMode::Enabled } else { ColorMode::Disabled })
            .build();
        let mut lines = rustyline::Editor::with_config(config)?;
        lines.set_helper(Some(Assistant::new(parser, server, has_colours)));
        let history = history_file(|name| std::env::var_os(name).map(PathBuf::from));
        if let Some(path) = &history {
            make_folder(path)?;
            // The first time there is none.
            let _ = lines.load_history(path);
        }
        Ok(Self { lines, history, ahead: String::new() })
    }

    /// Completes keys of this server from now on.
    pub(super) fn set_server(&mut self, server: &Rc<Server>) {
        if let Some(assistant) = self.lines.helper_mut() {
            assistant.set_server(server);
        }
    }

    /// Adds what was typed before the next prompt.
    pub(super) fn add_ahead(&mut self, typed: &str) {
        self.ahead.push_str(typed);
    }

    /// Returns the next line, `None` at the end of the input.
    pub(super) fn line(&mut self, prompt: &str) -> Result<Option<String>> {
        loop {
            match self.read(prompt) {
                Ok(line) => {
                    self.lines.add_history_entry(&line)?;
                    if let Some(path) = &self.history {
                        let saved = self.lines.append_history(path);
                        saved.with_context(|| format!("cannot write {}", path.display()))?;
                    }
                    return Ok(Some(line));
                }
                Err(ReadlineError::Eof) => return Ok(None),
                // Ctrl-C drops the line.
                Err(ReadlineError::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns whether a question is answered with yes. The answer is not a part of the history.
    pub(super) fn confirms(&mut self, question: &str) -> Result<bool> {
        match self.read(&format!("{question}{YES_OR_NO}")) {
            Ok(answer) => Ok(is_yes(&answer)),
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn read(&mut self, prompt: &str) -> rustyline::Result<String> {
        let ahead = std::mem::take(&mut self.ahead);
        match ahead.split_once('\n') {
            Some((line, rest)) => {
                self.ahead = rest.to_owned();
                println!("{prompt}{line}");
                Ok(line.to_owned())
            }
            None => {
                let styled = Tone::Title.paint(prompt, paint::has_colours(true));
                self.lines.readline_with_initial(&(prompt, styled), (&ahead, ""))
            }
        }
    }
}

/// Returns the file of the history in the folder for state of the user.
fn history_file(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let state = variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    Some(state.join("tyrant").join("history"))
}

fn make_folder(file: &Path) -> Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot make the folder of the history {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_in_the_folder_for_state() {
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/h"));
        assert_eq!(history_file(home), Some("/h/.local/state/tyrant/history".into()));
        let state = |name: &str| (name == "XDG_STATE_HOME").then(|| PathBuf::from("/s"));
        assert_eq!(history_file(state), Some("/s/tyrant/history".into()));
        assert_eq!(history_file(|_| None), None);
    }
}
