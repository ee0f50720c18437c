//! `tyrant top`: a live view of a server, from two readings of its status.

mod figures;
mod screen;

use crate::output::write_json;
use crate::remote::{Server, ServerArgument};
use crate::signals::Handling;
use anyhow::{Result, ensure};
use client::Settings;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use figures::{Figures, Reading};
use screen::Screen;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Limits of the interval, in seconds.
const INTERVAL_MIN: f64 = 0.1;
const INTERVAL_MAX: f64 = 3600.0;

/// Longest wait for the status.
const PATIENCE: Duration = Duration::from_secs(3);

/// Longest time until a signal is noticed.
const NOTICE: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Show the server on this machine, every 2 seconds
  tyrant top
  # Print the figures of ten seconds once, as JSON
  tyrant top --once --interval 10 --json")]
pub(super) struct Top {
    #[command(flatten)]
    server: ServerArgument,
    /// Read the status every S seconds
    #[arg(long, short = 'i', value_name = "S", default_value = "2", value_parser = interval)]
    interval: Duration,
    /// Print the figures of one interval, and end
    #[arg(long)]
    once: bool,
    /// Print JSON, one object for each interval
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (INTERVAL_MIN..=INTERVAL_MAX).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("not between {INTERVAL_MIN} and {INTERVAL_MAX}"))
    }
}

/// End of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    Time,
    Resize,
    Quit,
}

impl Top {
    pub(super) fn run(&self) -> Result<()> {
        let mut source = Source::connect(&self.server.address(), self.server.settings()?)?;
        if self.once || self.json {
            return self.print(&mut source);
        }
        ensure!(
            io::stdout().is_terminal() && io::stdin().is_terminal(),
            "top needs a terminal; --once or --json print the figures for a script"
        );
        self.show(&mut source)
    }

    /// Prints the figures of one interval, or of all until the output is closed.
    fn print(&self, source: &mut Source) -> Result<()> {
        let mut before = source.read()?;
        loop {
            std::thread::sleep(self.interval);
            let now = source.read()?;
            let figures = Figures::between(Some(&before), &now);
            let mut output = io::stdout().lock();
            if self.json {
                write_json(&figures.json(), &mut output)?;
            } else {
                for line in figures.lines(source.address()) {
                    writeln!(output, "{line}")?;
                }
            }
            output.flush()?;
            if self.once {
                return Ok(());
            }
            before = now;
        }
    }

    /// Shows the figures until the user or a signal ends it. A server that stopped is awaited.
    fn show(&self, source: &mut Source) -> Result<()> {
        let is_ended = Arc::new(AtomicBool::new(false));
        let _handling = Handling::begin()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&is_ended))?;
        }
        let mut screen = Screen::open()?;
        let mut before: Option<Reading> = None;
        loop {
            let lines = match source.read() {
                Ok(now) => {
                    let lines = Figures::between(before.as_ref(), &now).lines(source.address());
                    before = Some(now);
                    lines
                }
                Err(error) => {
                    before = None;
                    vec![crate::describe(&error), String::new(), "trying again ...".to_owned()]
                }
            };
            let seconds = self.interval.as_secs_f64();
            let mut footer = format!("every {seconds} s; space reads now, q ends");
            if before.is_none() {
                footer.insert_str(0, "no figures; ");
            }
            screen.show(&lines, &footer)?;
            let until = Instant::now() + self.interval;
            loop {
                match wait(until, &is_ended)? {
                    Wake::Time => break,
                    Wake::Resize => screen.show_again(&lines, &footer)?,
                    Wake::Quit => return Ok(()),
                }
            }
        }
    }
}

/// Waits for a key, a signal, or until a time.
fn wait(until: Instant, is_ended: &AtomicBool) -> Result<Wake> {
    loop {
        if is_ended.load(Ordering::Relaxed) {
            return Ok(Wake::Quit);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Wake::Time);
        }
        if !event::poll(left.min(NOTICE))? {
            continue;
        }
        match event::read()? {
            Event::Resize(..) => return Ok(Wake::Resize),
            Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) => match code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(Wake::Quit),
                KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => {
                    return Ok(Wake::Quit);
                }
                KeyCode::Char(' ') => return Ok(Wake::Time),
                _ => {}
            },
            _ => {}
        }
    }
}

/// Source of readings: the server, to which it connects again after it was lost.
struct Source {
    address: String,
    settings: Settings,
    server: Option<Server>,
}

impl Source {
    fn connect(address: &str, settings: Settings) -> Result<Self> {
        let server = Server::connect_within(address, &settings, PATIENCE)?;
        Ok(Self { address: address.to_owned(), settings, server: Some(server) })
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn read(&mut self) -> Result<Reading> {
        let server = match self.server.take() {
            Some(server) => server,
            None => Server::connect_within(&self.address, &self.settings, PATIENCE)?,
        };
        let stat = server.stat().map_err(|error| server.explain("stat", error.into()))?;
        self.server = Some(server);
        Ok(Reading::new(&String::from_utf8_lossy(&stat)))
    }
}

#[cfg(test)]
mod tests {
    use super::interval;

    #[test]
    fn an_interval_is_within_its_limits() {
        for text in ["0.1", "2", "3600"] {
            interval(text).unwrap();
        }
        for text in ["0.09", "3600.1", "-1", "nan", "x", ""] {
            interval(text).unwrap_err();
        }
    }
}
