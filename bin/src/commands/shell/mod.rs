//! `tyrant shell`: the commands for a server, typed or read from the standard input.

mod assistant;
mod editor;
mod vocabulary;
mod words;

#[cfg(test)]
pub(super) use words::split;

use super::command_line::groups::{self, LOOK, OTHER};
use super::command_line::{
    AfterHelp, after_help, explain, is_command, unknown_command, with_aliases,
};
use super::{Negative, Remote, UNCHANGED, tail, top};
use crate::bytes::escaped;
use crate::paint::{self, Tone};
use crate::plural::counted;
use crate::remote::{CONNECTION, Server, ServerArgument};
use crate::say::say;
use crate::signals::Flag;
use crate::transfer::whole_file::Output;
use anyhow::{Result, anyhow, bail, ensure};
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use editor::Editor;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::rc::Rc;

/// Longest line of a script: four bytes for each byte of the longest record.
const LINE_BYTES_MAX: u64 =
    4 * (cabinet::limits::KEY_BYTES_MAX as u64 + cabinet::limits::VALUE_BYTES_MAX as u64);

/// Begins the advice in an error of a command line.
const TIP: &str = "tip: ";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Type commands
  tyrant shell
  # Run a script of commands, one per line
  tyrant shell --server 10.0.0.2:1978 < commands.txt")]
pub(super) struct Shell {
    #[command(flatten)]
    server: ServerArgument,
    /// Continue a script after a command that fails, other than connect
    #[arg(long)]
    keep_going: bool,
}

/// A line of the shell.
#[derive(Debug, Parser)]
#[command(name = "", no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Connect to another server
    #[command(display_order = OTHER)]
    Connect {
        /// HOST:PORT, or the path of a Unix socket
        #[arg(value_name = "ADDRESS")]
        address: String,
    },
    /// Leave the shell
    #[command(display_order = OTHER, visible_alias = "quit")]
    Exit,
    /// Print the changes on the server, line by line, until Ctrl-C
    #[command(display_order = LOOK)]
    Tail(Box<tail::Tail>),
    /// Show what the server does, live, until q
    #[command(display_order = LOOK)]
    Top(Box<top::Top>),
    #[command(flatten)]
    Remote(Box<Remote>),
}

/// Whether the shell goes on after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Line,
    End,
}

impl Shell {
    pub(super) fn run(&self) -> Result<()> {
        let mut session = Session { server: Rc::new(self.server.connect()?), parser: parser() };
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            return session.converse();
        }
        session.run_script(BufReader::new(io::stdin().lock()), self.keep_going)
    }
}

/// Returns the parser of lines. The commands have no options of a connection: the shell is
/// connected. Their examples have no name of the program.
fn parser() -> clap::Command {
    let line = Line::command();
    let listing = groups::listing(&line);
    line.help_template(listing.trim_end().to_owned()).mut_subcommands(|command| {
        let help = after_help_of_line(&command);
        let command = with_aliases(command.after_help(help));
        command.mut_args(|argument| match argument.get_help_heading() {
            Some(CONNECTION) => argument.hide(true),
            _ => argument,
        })
    })
}

/// Returns the text after the options of a command: its notes, and the examples that are lines of
/// this shell.
fn after_help_of_line(command: &clap::Command) -> String {
    let AfterHelp { mut notes, examples } = after_help(command);
    let mut comment = None;
    let mut lines = String::new();
    for line in &examples {
        if line.starts_with("# ") {
            comment = Some(line);
        } else if let Some(line) = line.strip_prefix("tyrant ")
            && !["--server", "--tls", "--user", " | ", " < ", " > "]
                .iter()
                .any(|part| line.contains(part))
        {
            for line in comment.take().map(String::as_str).into_iter().chain([line]) {
                lines.push_str(&format!("\n  {line}"));
            }
        }
    }
    if !lines.is_empty() {
        notes.push_str(&format!("\n\nExamples:{lines}"));
    }
    notes.trim_start().to_owned()
}

/// A connection and the parser of the commands for it.
struct Session {
    server: Rc<Server>,
    parser: clap::Command,
}

/// Returns the prompt for a server: its address, and the name, the kind and the role of its
/// database, as far as it tells them.
fn prompt(server: &Server) -> String {
    let mut prompt = escaped(server.address().as_bytes());
    if let Ok(Some(path)) = server.stat_value("path") {
        let name =
            Path::new(&path).file_name().map_or(path.clone(), |name| name.display().to_string());
        prompt.push_str(&format!(" {}", escaped(name.as_bytes())));
    }
    let role = server
        .stat_value("mhost")
        .map(|master| if master.is_some() { "replica" } else { "master" });
    let about = server.kind().map(|kind| kind.title()).into_iter().chain(role.ok());
    let about: Vec<&str> = about.collect();
    if !about.is_empty() {
        prompt.push_str(&format!(" ({})", about.join(", ")));
    }
    format!("{prompt}> ")
}

impl Session {
    /// Executes lines that are typed, until the end or `exit`.
    fn converse(&mut self) -> Result<()> {
        let mut editor = Editor::new(&self.parser, &self.server)?;
        say!("connected to {}; \"help\" lists the commands", self.server.address());
        let has_colours = paint::has_colours(io::stderr().is_terminal());
        let mut shown = prompt(&self.server);
        while let Some(typed) = editor.line(&shown)? {
            // Lines that are pasted may come as one.
            for line in typed.lines() {
                match self.execute(line.as_bytes(), Some(&mut editor)) {
                    Ok(Next::Line) => {}
                    Ok(Next::End) => return Ok(()),
                    Err(error) => {
                        eprintln!("{}", Tone::Bad.paint(&crate::describe(&error), has_colours));
                        if is_connect(line.as_bytes()) {
                            break;
                        }
                    }
                }
            }
            if !self.server.is_broken() {
                // A command may have changed the role, or the server.
                shown = prompt(&self.server);
            }
            editor.set_server(&self.server);
        }
        Ok(())
    }

    /// Executes the lines of a script, until one fails.
    fn run_script(&mut self, mut input: impl BufRead, keep_going: bool) -> Result<()> {
        let mut failed = 0u64;
        let mut line = Vec::new();
        for number in 1u64.. {
            line.clear();
            let bytes = input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)?;
            if bytes == 0 {
                break;
            }
            ensure!(
                bytes as u64 <= LINE_BYTES_MAX,
                "line {number} is longer than {LINE_BYTES_MAX} bytes"
            );
            match self.execute(line.trim_ascii_end(), None) {
                Ok(Next::Line) => {}
                Ok(Next::End) => break,
                Err(error) if crate::is_broken_pipe(&error) => return Err(error),
                // Later lines are for another server than the present one.
                Err(error) if is_connect(&line) && keep_going => bail!(
                    "line {number}: {}; the script ends here, as its other lines are for that server",
                    crate::describe(&error)
                ),
                Err(error) if keep_going => {
                    failed += 1;
                    eprintln!("tyrant: line {number}: {}", crate::describe(&error));
                }
                Err(error) => bail!("line {number}: {}", crate::describe(&error)),
            }
        }
        ensure!(failed == 0, "{} failed", counted(failed, "line", "lines"));
        Ok(())
    }

    /// Executes a line that was typed in an editor, or is one of a script.
    fn execute(&mut self, line: &[u8], editor: Option<&mut Editor>) -> Result<Next> {
        let mut words: Vec<OsString> =
            words::split(line)?.into_iter().map(OsString::from_vec).collect();
        // Names of commands are known in any case.
        let names =
            if words.first().is_some_and(|word| word.eq_ignore_ascii_case("help")) { 2 } else { 1 };
        words.iter_mut().take(names).for_each(|word| word.make_ascii_lowercase());
        if words.is_empty() {
            return Ok(Next::Line);
        }
        let parsed = self
            .parser
            .try_get_matches_from_mut(&words)
            .and_then(|matches| Line::from_arg_matches(&matches));
        let command = match parsed {
            Ok(line) => line.command,
            Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp) => {
                let has_colours = paint::has_colours(io::stdout().is_terminal());
                match has_colours {
                    true => write!(Output::standard(), "{}", error.render().ansi())?,
                    false => write!(Output::standard(), "{}", error.render())?,
                }
                return Ok(Next::Line);
            }
            Err(error) => {
                if matches!(error.kind(), ErrorKind::InvalidSubcommand) {
                    let is_help = words[0] == "help" && words.len() > 1;
                    let word = words.get(usize::from(is_help)).map(|word| word.to_string_lossy());
                    let word = word.unwrap_or_default();
                    if is_command(&word) {
                        bail!(
                            "{word} is no command of the shell, but one of the program: leave the \
                             shell, and run \"tyrant {word}\""
                        );
                    }
                    let unknown = unknown_command(&self.parser, &word);
                    bail!("{unknown} (\"help\" lists all)");
                }
                // The program has its name before the words.
                words.insert(0, OsString::new());
                let text = explain(error, &mut self.parser, &words).render().to_string();
                let text = text.strip_prefix("error: ").unwrap_or(&text);
                let text = text.split("\n\nFor more information").next().unwrap_or(text);
                let text = match text.split_once(TIP) {
                    Some((text, tip)) => format!("{text}{TIP}{}", tip.replace("tyrant ", "")),
                    None => text.to_owned(),
                };
                return Err(anyhow!("{}", text.trim_end()));
            }
        };
        match command {
            Command::Exit => return Ok(Next::End),
            Command::Connect { address } => {
                self.server = Rc::new(Server::connect(&address, self.server.settings())?);
            }
            Command::Top(top) => {
                refuse_connection(top.server())?;
                let is_script = editor.is_none();
                ensure!(!is_script || !top.is_endless(), "top needs --once in a script");
                let settings = self.server.settings().clone();
                let ahead = top.run_on(self.server.address(), settings)?;
                editor.into_iter().for_each(|editor| editor.add_ahead(&ahead));
            }
            Command::Tail(tail) => {
                refuse_connection(tail.server())?;
                self.connect_again()?;
                if editor.is_none() {
                    ensure!(!tail.is_endless(), "tail needs --max N or --to-end in a script");
                    tail.run_on(&self.server, || false)?;
                } else {
                    let interrupted = Flag::watch()?;
                    tail.run_on(&self.server, || interrupted.is_set())?;
                }
            }
            Command::Remote(command) => {
                refuse_connection(command.parts().1)?;
                ensure!(!command.reads_input(), "the shell reads lines, and - would read them too");
                self.connect_again()?;
                if let Some(editor) = editor
                    && let Some(question) = command.question(&self.server)?
                {
                    ensure!(editor.confirms(&question)?, UNCHANGED);
                }
                let mut output = io::BufWriter::new(Output::standard());
                match command.run_on(&self.server, &mut output) {
                    // The answer was printed, and is not a failure.
                    Err(error) if error.is::<Negative>() => {}
                    done => done?,
                }
            }
        }
        Ok(Next::Line)
    }

    /// Connects again if the connection was lost.
    fn connect_again(&mut self) -> Result<()> {
        if self.server.is_broken() {
            let again = Server::connect(self.server.address(), self.server.settings())?;
            self.server = Rc::new(again);
        }
        Ok(())
    }
}

/// Returns whether a line, valid or not, is to connect to another server.
fn is_connect(line: &[u8]) -> bool {
    let word = line.trim_ascii_start().split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let word: Vec<u8> =
        word.iter().copied().filter(|byte| !matches!(byte, b'\'' | b'"' | b'\\')).collect();
    word.eq_ignore_ascii_case(b"connect")
}

/// Fails if a command in the shell names a server or a login of its own.
fn refuse_connection(server: &ServerArgument) -> Result<()> {
    ensure!(
        !server.is_given(),
        "the shell is connected: \"connect ADDRESS\" changes the server, and the options of the \
         shell itself are for TLS and the login"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_the_shell_has_no_connection_and_no_name_of_the_program() {
        let mut parser = parser();
        parser.build();
        let mut commands = 0;
        for command in parser.get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            for part in ["--server", "--tls", "--user", "--allow-plain-login", "  tyrant "] {
                assert!(!help.contains(part), "{help}");
            }
            commands += 1;
        }
        assert!(commands > 20, "{commands}");
    }
}
