//! `tyrant top`: a live view of a server, from readings of its status and its metrics.

mod figures;
mod history;
mod metrics;
mod parts;
mod screen;
mod source;
mod units;
mod view;

use crate::output::write_json;
use crate::paint::{self, Marks};
use crate::remote::ServerArgument;
use crate::signals::Flag;
use anyhow::Result;
use client::Settings;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use screen::Screen;
use serde_json::Value as Json;
use source::Source;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};
use view::{Choices, Content, Form, Page};

/// Limits of the interval, in seconds.
const INTERVAL_MIN: f64 = 0.1;
const INTERVAL_MAX: f64 = 3600.0;

/// Longest time between the first two readings of the view.
const FIRST_INTERVAL: Duration = Duration::from_millis(500);

/// Longest time until a signal is noticed.
const NOTICE: Duration = Duration::from_millis(200);

/// Lines that PgUp and PgDn scroll.
const PAGE_LINES: usize = 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
On a terminal, ? shows the keys. Otherwise the figures of each interval are printed as lines.

Examples:
  # Show the server on this machine, every 2 seconds
  tyrant top
  # Print the figures of ten seconds once, as JSON
  tyrant top --once --interval 10 --json
  # Write the figures of each minute to a file
  tyrant top --interval 60 > top.txt")]
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

impl Top {
    pub(super) fn run(&self) -> Result<()> {
        self.run_on(&self.server.address(), self.server.settings()?).map(|_ahead| ())
    }

    /// Shows or prints the figures of the server at an address. Returns what was typed after the
    /// key that ended it.
    pub(super) fn run_on(&self, address: &str, settings: Settings) -> Result<String> {
        let mut source = Source::connect(address, settings)?;
        let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        match self.once || self.json || !is_terminal || !paint::is_capable() {
            true => self.print(&mut source).map(|()| String::new()),
            false => show(&mut source, self.interval),
        }
    }

    /// Returns the options of the connection.
    pub(super) fn server(&self) -> &ServerArgument {
        &self.server
    }

    /// Returns whether only a user or a signal ends it.
    pub(super) fn is_endless(&self) -> bool {
        !self.once
    }

    /// Prints the figures of one interval, or of all until the output is closed.
    fn print(&self, source: &mut Source) -> Result<()> {
        source.read()?;
        loop {
            std::thread::sleep(self.interval);
            source.read()?;
            let mut output = io::stdout().lock();
            match source.figures() {
                Some(figures) if self.json => write_json(&figures.json(), &mut output)?,
                _ => {
                    let content = content(source, None, None, self.interval);
                    for line in view::lines(&content, Choices::default(), Form::PLAIN) {
                        writeln!(output, "{}", line.paint(false).trim_end())?;
                    }
                    if !self.once {
                        writeln!(output)?;
                    }
                }
            }
            output.flush()?;
            if self.once {
                return Ok(());
            }
        }
    }
}

fn content<'s>(
    source: &'s Source,
    slow: Option<&'s Result<Vec<Json>, String>>,
    error: Option<&'s str>,
    interval: Duration,
) -> Content<'s> {
    Content {
        address: source.address(),
        place: source.place(),
        figures: source.figures(),
        history: source.history(),
        slow,
        error,
        interval: interval.as_secs_f64(),
    }
}

/// Shows the figures until the user or a signal ends it. A server that stopped is awaited. Returns
/// what was typed after the key that ended it.
fn show(source: &mut Source, mut interval: Duration) -> Result<String> {
    let ending = Flag::watch()?;
    let mut screen = Screen::open(paint::has_colours(true))?;
    let marks = Marks::of_terminal();
    let mut choices = Choices::default();
    let mut slow = None;
    loop {
        let read = source.read();
        let error = read.err().map(|error| crate::describe(&error));
        if choices.page == Page::Slow && error.is_none() {
            slow = Some(source.slow_requests().map_err(|error| crate::describe(&error)));
        }
        // There are no rates before the second reading.
        let has_rates = source.history().of("reads").next().is_some();
        let pause = if has_rates { interval } else { interval.min(FIRST_INTERVAL) };
        let mut until = Instant::now() + pause;
        loop {
            let (columns, rows) = Screen::size()?;
            let form = Form { columns, rows, marks, is_live: true };
            let content = content(source, slow.as_ref(), error.as_deref(), interval);
            screen.show(&view::lines(&content, choices, form))?;
            let until_now = (!choices.is_paused).then_some(until);
            match wait(until_now, &ending)? {
                Wake::Time => break,
                Wake::Signal => return Ok(String::new()),
                Wake::Resize => screen.clear()?,
                Wake::Key(key) => match press(&mut choices, key) {
                    Action::None => {}
                    Action::Quit => return typed_ahead(),
                    Action::Read => break,
                    Action::Turn(is_forward) => {
                        source.turn(is_forward);
                        (choices.scroll, slow) = (0, None);
                        break;
                    }
                    Action::Interval(factor) => {
                        let seconds = interval.as_secs_f64() * factor;
                        let seconds = seconds.clamp(INTERVAL_MIN, INTERVAL_MAX);
                        interval = Duration::from_secs_f64(seconds);
                        until = Instant::now() + interval;
                    }
                },
            }
        }
    }
}

/// Returns the characters of keys that have arrived.
fn typed_ahead() -> Result<String> {
    let mut text = String::new();
    while event::poll(Duration::ZERO)? {
        match event::read()? {
            Event::Key(KeyEvent { code: KeyCode::Char(character), modifiers, .. })
                if !modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
            {
                text.push(character);
            }
            Event::Key(KeyEvent { code: KeyCode::Enter, .. }) => text.push('\n'),
            // The line end of a line that was typed before the view took each key.
            Event::Key(KeyEvent { code: KeyCode::Char('j'), modifiers, .. })
                if modifiers.contains(KeyModifiers::CONTROL) =>
            {
                text.push('\n');
            }
            _ => {}
        }
    }
    Ok(text)
}

/// End of a wait.
enum Wake {
    Time,
    Resize,
    Signal,
    Key(KeyEvent),
}

/// Waits for a key, a signal, or until a time.
fn wait(until: Option<Instant>, ending: &Flag) -> Result<Wake> {
    loop {
        if ending.is_set() {
            return Ok(Wake::Signal);
        }
        let left = until.map_or(NOTICE, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(Wake::Time);
        }
        if !event::poll(left.min(NOTICE))? {
            continue;
        }
        match event::read()? {
            Event::Resize(..) => return Ok(Wake::Resize),
            Event::Key(key) if key.kind != KeyEventKind::Release => return Ok(Wake::Key(key)),
            _ => {}
        }
    }
}

/// Effect of a key beyond the choices.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    None,
    Quit,
    /// Read the figures now.
    Read,
    /// Show the next database, or the one before.
    Turn(bool),
    /// Multiply the interval.
    Interval(f64),
}

/// Changes the choices by a key.
fn press(choices: &mut Choices, key: KeyEvent) -> Action {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let page = match key.code {
        KeyCode::Char('c' | 'd') if is_control => return Action::Quit,
        KeyCode::Char('q' | 'Q') => return Action::Quit,
        KeyCode::Esc if choices.page == Page::Overview => return Action::Quit,
        // Any other key leaves the help.
        _ if choices.page == Page::Help => Page::Overview,
        KeyCode::Esc => Page::Overview,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Page::Help,
        KeyCode::Char('s') => toggled(choices.page, Page::Slow),
        KeyCode::Char('c') => toggled(choices.page, Page::Commands),
        KeyCode::Tab => return Action::Turn(true),
        KeyCode::BackTab => return Action::Turn(false),
        KeyCode::Char(' ') => return Action::Read,
        KeyCode::Char('+') => return Action::Interval(0.5),
        KeyCode::Char('-') => return Action::Interval(2.0),
        code => {
            match code {
                KeyCode::Char('o') => choices.order = choices.order.next(),
                KeyCode::Char('r') => choices.is_reversed = !choices.is_reversed,
                KeyCode::Char('p') => choices.is_paused = !choices.is_paused,
                KeyCode::Down => choices.scroll += 1,
                KeyCode::Up => choices.scroll = choices.scroll.saturating_sub(1),
                KeyCode::PageDown => choices.scroll += PAGE_LINES,
                KeyCode::PageUp => choices.scroll = choices.scroll.saturating_sub(PAGE_LINES),
                KeyCode::Home => choices.scroll = 0,
                _ => {}
            }
            return Action::None;
        }
    };
    (choices.page, choices.scroll) = (page, 0);
    // The slow requests are read only while they are shown.
    if page == Page::Slow { Action::Read } else { Action::None }
}

/// Returns the page to show after the key of a page.
fn toggled(shown: Page, page: Page) -> Page {
    if shown == page { Page::Overview } else { page }
}

#[cfg(test)]
mod tests {
    use super::*;
    use view::Order;

    #[test]
    fn an_interval_is_within_its_limits() {
        for text in ["0.1", "2", "3600"] {
            interval(text).unwrap();
        }
        for text in ["0.09", "3600.1", "-1", "nan", "x", ""] {
            interval(text).unwrap_err();
        }
    }

    #[test]
    fn keys_choose_the_page_and_the_order() {
        let mut choices = Choices::default();
        let mut press = |code| {
            let action = super::press(&mut choices, KeyEvent::new(code, KeyModifiers::NONE));
            (action, choices)
        };
        assert_eq!(press(KeyCode::Char('c')).1.page, Page::Commands);
        assert_eq!(press(KeyCode::PageDown).1.scroll, PAGE_LINES);
        let (action, choices) = press(KeyCode::Char('s'));
        assert_eq!((action, choices.page, choices.scroll), (Action::Read, Page::Slow, 0));
        assert_eq!(press(KeyCode::Char('s')).1.page, Page::Overview);
        for order in [Order::Amount, Order::Name, Order::First] {
            assert_eq!(press(KeyCode::Char('o')).1.order, order);
        }
        assert!(press(KeyCode::Char('r')).1.is_reversed);
        assert!(press(KeyCode::Char('p')).1.is_paused);
        assert_eq!(press(KeyCode::Char('?')).1.page, Page::Help);
        assert_eq!(press(KeyCode::Char('x')).1.page, Page::Overview);
        assert_eq!(press(KeyCode::Tab).0, Action::Turn(true));
        assert_eq!(press(KeyCode::BackTab).0, Action::Turn(false));
        assert_eq!(press(KeyCode::Char('+')).0, Action::Interval(0.5));
        for (code, page) in [(KeyCode::Esc, Page::Overview), (KeyCode::Char('q'), Page::Help)] {
            let mut choices = Choices { page, ..Choices::default() };
            let key = KeyEvent::new(code, KeyModifiers::NONE);
            assert_eq!(super::press(&mut choices, key), Action::Quit);
        }
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(super::press(&mut Choices::default(), control), Action::Quit);
    }
}
