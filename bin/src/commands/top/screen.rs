//! Screen of `top`: shows lines, and sends a slow terminal only those that changed.

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
    _restore: Restore,
}

impl Screen {
    pub(super) fn open() -> Result<Self> {
        enable_raw_mode().context("cannot use the terminal")?;
        let restore = Restore;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(Self { shown: Vec::new(), _restore: restore })
    }

    /// Shows lines from the top, and a footer in the last row.
    pub(super) fn show(&mut self, lines: &[String], footer: &str) -> Result<()> {
        let (columns, rows) = size()?;
        let wanted = layout(lines, footer, usize::from(columns), usize::from(rows));
        let mut output = io::stdout().lock();
        draw(&self.shown, &wanted, &mut output)?;
        output.flush()?;
        self.shown = wanted;
        Ok(())
    }

    /// Shows lines on a screen whose size or content has changed.
    pub(super) fn show_again(&mut self, lines: &[String], footer: &str) -> Result<()> {
        self.shown.clear();
        execute!(io::stdout(), Clear(ClearType::All))?;
        self.show(lines, footer)
    }
}

/// Returns the rows of the screen: as many lines as fit, cut to its width, and the footer.
fn layout(lines: &[String], footer: &str, columns: usize, rows: usize) -> Vec<String> {
    let cut = |line: &str| line.chars().take(columns).collect::<String>();
    let body = rows.saturating_sub(1);
    let mut wanted: Vec<String> = lines.iter().take(body).map(|line| cut(line)).collect();
    wanted.resize(body, String::new());
    if rows > 0 {
        wanted.push(cut(footer));
    }
    wanted
}

/// Writes the rows that differ from those on the screen.
fn draw(shown: &[String], wanted: &[String], output: &mut impl Write) -> io::Result<()> {
    for (row, line) in wanted.iter().enumerate() {
        let before = shown.get(row).map_or("", String::as_str);
        if before != line {
            let row = u16::try_from(row).unwrap_or(u16::MAX);
            queue!(output, MoveTo(0, row), Print(line), Clear(ClearType::UntilNewLine))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(lines: &[&str]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_are_cut_to_the_screen_and_the_footer_is_last() {
        let lines = strings(&["one", "twenty", "3"]);
        assert_eq!(layout(&lines, "end", 4, 3), strings(&["one", "twen", "end"]));
        assert_eq!(layout(&lines, "end", 9, 5), strings(&["one", "twenty", "3", "", "end"]));
        assert_eq!(layout(&lines, "end", 9, 1), strings(&["end"]));
        assert!(layout(&lines, "end", 9, 0).is_empty());
    }

    #[test]
    fn only_changed_rows_are_sent() {
        let sent = |shown: &[&str], wanted: &[&str]| {
            let mut output = Vec::new();
            draw(&strings(shown), &strings(wanted), &mut output).unwrap();
            String::from_utf8(output).unwrap()
        };
        assert_eq!(sent(&["a", "b"], &["a", "b"]), "");
        let changed = sent(&["a", "b", "c"], &["a", "x", "c"]);
        assert_eq!(changed, "\x1b[2;1Hx\x1b[K");
        assert!(sent(&[], &["a"]).contains('a'));
    }
}
