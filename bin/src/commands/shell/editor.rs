//! Line editor of the shell: completes commands and their options, and keeps a history in a file
//! that only its owner reads.

use anyhow::{Context, Result};
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Helper};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Lines that the history keeps.
const HISTORY_LINES_MAX: usize = 1000;

/// Editor of typed lines.
pub(super) struct Editor {
    lines: rustyline::Editor<Commands, FileHistory>,
    /// File of the history, if there is a folder for it.
    history: Option<PathBuf>,
}

impl Editor {
    /// Returns an editor that completes the sub-commands of `parser`.
    pub(super) fn new(parser: &clap::Command) -> Result<Self> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES_MAX)?
            // A line with a secret can be kept out of the history.
            .history_ignore_space(true)
            .build();
        let mut lines = rustyline::Editor::with_config(config)?;
        lines.set_helper(Some(Commands::of(parser)));
        let history = history_file(|name| std::env::var_os(name).map(PathBuf::from));
        if let Some(path) = &history {
            make_folder(path)?;
            // The first time there is none.
            let _ = lines.load_history(path);
        }
        Ok(Self { lines, history })
    }

    /// Returns the next line, `None` at the end of the input.
    pub(super) fn line(&mut self, prompt: &str) -> Result<Option<String>> {
        loop {
            match self.lines.readline(prompt) {
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

/// Names of the commands, each with its long options.
struct Commands(Vec<(String, Vec<String>)>);

impl Commands {
    fn of(parser: &clap::Command) -> Self {
        let mut parser = parser.clone();
        parser.build();
        let commands = parser.get_subcommands().map(|command| {
            let options = command.get_arguments().filter(|argument| !argument.is_hide_set());
            let options =
                options.filter_map(|argument| Some(format!("--{}", argument.get_long()?)));
            (command.get_name().to_owned(), options.collect())
        });
        Self(commands.collect())
    }

    /// Returns where the word before `position` begins, and the words that begin with it.
    fn complete_word(&self, line: &str, position: usize) -> (usize, Vec<&str>) {
        let before = line.get(..position).unwrap_or(line);
        let start = before.rfind(char::is_whitespace).map_or(0, |blank| blank + 1);
        let word = &before[start..];
        let mut earlier = before[..start].split_whitespace();
        let names: Vec<&str> = match earlier.next() {
            None | Some("help") => self.0.iter().map(|(name, _)| name.as_str()).collect(),
            Some(command) if word.starts_with('-') => {
                let found = self.0.iter().find(|(name, _)| name == command);
                found
                    .map_or(Vec::new(), |(_, options)| options.iter().map(String::as_str).collect())
            }
            Some(_) => Vec::new(),
        };
        (start, names.into_iter().filter(|name| name.starts_with(word)).collect())
    }
}

impl Helper for Commands {}

impl Highlighter for Commands {}

impl Validator for Commands {}

impl Hinter for Commands {
    type Hint = String;
}

impl Completer for Commands {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, names) = self.complete_word(line, position);
        let pair = |name: &str| Pair { display: name.to_owned(), replacement: format!("{name} ") };
        Ok((start, names.into_iter().map(pair).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_their_options_are_completed() {
        let commands = Commands::of(&super::super::parser());
        let complete = |line: &str| {
            let (start, names) = commands.complete_word(line, line.len());
            (start, names.join(" "))
        };
        assert_eq!(complete("get-"), (0, "get-row".into()));
        assert_eq!(complete("help get-"), (5, "get-row".into()));
        assert_eq!(complete("list --v"), (5, "--values".into()));
        assert_eq!(complete("list --se"), (5, String::new()));
        assert_eq!(complete("get a"), (4, String::new()));
        assert_eq!(complete("nonsense --"), (9, String::new()));
        assert!(complete("").1.contains("exit"));
    }

    #[test]
    fn the_history_is_in_the_folder_for_state() {
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/h"));
        assert_eq!(history_file(home), Some("/h/.local/state/tyrant/history".into()));
        let state = |name: &str| (name == "XDG_STATE_HOME").then(|| PathBuf::from("/s"));
        assert_eq!(history_file(state), Some("/s/tyrant/history".into()));
        assert_eq!(history_file(|_| None), None);
    }
}
