//! Passwords from a terminal or the standard input, never from the command line.

use anyhow::{Context, Result, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use server::CREDENTIAL_BYTES_MAX;
use std::io::{BufRead, IsTerminal, Read, Stdin, stdin};

/// Reads a new password: twice from a terminal, which does not show it, or the first line of the
/// standard input.
pub(crate) fn read_new(user: &str) -> Result<String> {
    let input = stdin();
    let password = if input.is_terminal() {
        let first = ask(&input, &format!("New password of {user}: "))?;
        if ask(&input, "The same again: ")? != first {
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
    check(ask(&input, &format!("Password of {user}: "))?)
}

fn check(password: String) -> Result<String> {
    if password.is_empty() {
        bail!("the password is empty; type it, or give it as the first line of the standard input");
    }
    if password.len() > CREDENTIAL_BYTES_MAX {
        bail!("the password is longer than {CREDENTIAL_BYTES_MAX} bytes");
    }
    if password.contains('\0') {
        bail!("the password has a zero byte, which SASL cannot send");
    }
    Ok(password)
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

/// Asks for a line that the terminal does not show.
fn ask(input: &Stdin, prompt: &str) -> Result<String> {
    eprint!("{prompt}");
    let _hidden = Hidden::begin(input).context("cannot hide what is typed")?;
    let line = line(input);
    eprintln!();
    line
}

/// A terminal that does not show what is typed, until this is dropped.
struct Hidden<'a> {
    terminal: &'a Stdin,
    before: Termios,
}

impl<'a> Hidden<'a> {
    fn begin(terminal: &'a Stdin) -> rustix::io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(terminal, OptionalActions::Flush, &hidden)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        // It was possible a moment ago.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}
