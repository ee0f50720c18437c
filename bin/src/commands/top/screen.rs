//! Screen of `top`: shows lines, and sends a slow terminal only those that changed.

use crate::paint::Line;
use anyhow::{Context, Result};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::Print;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use crossterm::{execute, queue};
use std::io::{self, Write};

/// The terminal as it was before, restored when this is dropped.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // There is nothing else to try if the terminal is gone.
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// A terminal that shows lines.
pub(super) struct Screen {
    /// Lines on the screen, by row.
    shown: Vec<String>,
    has_colours: bool,
    _restore: Restore,
}

impl Screen {
    pub(super) fn open(has_colours: bool) -> Result<Self> {
        enable_raw_mode().context("cannot use the terminal")?;
        let restore = Restore;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(Self { shown: Vec::new(), has_colours, _restore: restore })
    }

    /// Returns its columns and rows.
    pub(super) fn size() -> Result<(usize, usize)> {
        let (columns, rows) = size()?;
        Ok((columns.into(), rows.into()))
    }

    /// Shows lines from the top, which fit.
    pub(super) fn show(&mut self, lines: &[Line]) -> Result<()> {
        let wanted: Vec<String> = lines.iter().map(|line| line.paint(self.has_colours)).collect();
        let mut output = io::stdout().lock();
        draw(&self.shown, &wanted, &mut output)?;
        output.flush()?;
        self.shown = wanted;
        Ok(())
    }

    /// Forgets what is on the screen, whose size or content has changed.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.shown.clear();
        Ok(execute!(io::stdout(), Clear(ClearType::All))?)
    }
}

/// Writes the rows that differ from those on the screen.
fn draw(shown: &[String], wanted: &[String], output: &mut impl Write) -> io::Result<()> {
    for (row, line) in wanted.iter().enumerate() {
        let before = shown.get(row).map_or("", String::as_str);
        if before != line {
            let row = u16::try_from(row).unwrap_or(u16::MAX);
            // A line of all columns leaves the cursor on its last one, which clearing would remove.
            queue!(output, MoveTo(0, row), Clear(ClearType::UntilNewLine), Print(line))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_rows_are_sent() {
        let sent = |shown: &[&str], wanted: &[&str]| {
            let strings =
                |lines: &[&str]| lines.iter().map(ToString::to_string).collect::<Vec<_>>();
            let mut output = Vec::new();
            draw(&strings(shown), &strings(wanted), &mut output).unwrap();
            String::from_utf8(output).unwrap()
        };
        assert_eq!(sent(&["a", "b"], &["a", "b"]), "");
        assert_eq!(sent(&["a", "b", "c"], &["a", "x", "c"]), "\x1b[2;1H\x1b[Kx");
        assert!(sent(&[], &["a"]).contains('a'));
    }
}
