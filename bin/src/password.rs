//! Passwords from a terminal or the standard input, never from the command line.

use crate::signals::Cleanup;
use anyhow::{Context, Result, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use server::CREDENTIAL_BYTES_MAX;
use std::io::{BufRead, IsTerminal, Read, Stdin, stdin};

/// Reads a new password: twice from a terminal, which does not show it, or the first line of the
/// standard input.
pub(crate) fn read_new(user: &str) -> Result<String> {
    let input = stdin();
    let password = if input.is_terminal() {
        let terminal = Terminal::of(input)?;
        let first = terminal.ask(&format!("New password of {user}: "))?;
        if terminal.ask("The same again: ")? != first {
            bail!("the two passwords differ; nothing was changed");
        }
        first
    } else {
        line(&input)?
    };
    check(password)
}

/// Reads the password of a user from the terminal, which does not show it. Fails without a
/// terminal: the standard input belongs to the command.
pub(crate) fn read(user: &str) -> Result<String> {
    let input = stdin();
    if !input.is_terminal() {
        bail!("there is no terminal on which the password can be typed");
    }
    check(Terminal::of(input)?.ask(&format!("Password of {user}: "))?)
}

fn check(password: String) -> Result<String> {
    match flaw(&password) {
        Some(flaw) => bail!(
            "the password {flaw}; type another, or give it as the first line of the standard input"
        ),
        None => Ok(password),
    }
}

/// Returns why a password cannot be one, if it cannot.
pub(crate) fn flaw(password: &str) -> Option<String> {
    if password.is_empty() {
        return Some("is empty".into());
    }
    if password.len() > CREDENTIAL_BYTES_MAX {
        return Some(format!("is longer than {CREDENTIAL_BYTES_MAX} bytes"));
    }
    password.contains('\0').then(|| "has a zero byte, which SASL cannot send".into())
}

/// Returns the first line of the input, without its end.
fn line(input: &Stdin) -> Result<String> {
    let mut line = String::new();
    // A line break of two bytes may follow the longest password.
    let limit = CREDENTIAL_BYTES_MAX as u64 + 3;
    input.lock().take(limit).read_line(&mut line).context("cannot read the password")?;
    let end = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(end);
    Ok(line)
}

/// A terminal that asks for passwords.
struct Terminal {
    input: Stdin,
    before: Termios,
    cleanup: Cleanup,
}

impl Terminal {
    fn of(input: Stdin) -> Result<Self> {
        let before = tcgetattr(&input).context("cannot hide what is typed")?;
        let shown = before.clone();
        let cleanup = Cleanup::on_signals(move || show(&stdin(), &shown))?;
        Ok(Self { input, before, cleanup })
    }

    /// Asks for a line that the terminal does not show.
    fn ask(&self, prompt: &str) -> Result<String> {
        let hidden = self.hide().context("cannot hide what is typed")?;
        eprint!("{prompt}");
        let line = line(&self.input);
        drop(hidden);
        eprintln!();
        line
    }

    fn hide(&self) -> rustix::io::Result<Hidden<'_>> {
        let mut hidden = self.before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // A signal that has shown it ends the program before this hides it.
        let _signals = self.cleanup.hold();
        tcsetattr(&self.input, OptionalActions::Flush, &hidden)?;
        Ok(Hidden(self))
    }
}

/// A terminal that does not show what is typed, until this is dropped.
struct Hidden<'a>(&'a Terminal);

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        show(&self.0.input, &self.0.before);
    }
}

fn show(terminal: &Stdin, before: &Termios) {
    // It was possible a moment ago.
    let _ = tcsetattr(terminal, OptionalActions::Now, before);
}
