//! Colours and marks for a terminal, and lines of text in them.

use std::env::VarError;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Colour of a text, by its meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Title,
    Label,
    Faint,
    Good,
    Warning,
    Bad,
    /// Series of figures, to tell them apart.
    First,
    Second,
    Third,
}

impl Tone {
    /// Returns the parameters of the escape sequence that selects it.
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Title => "1",
            Self::Label | Self::First => "36",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Warning => "33",
            Self::Bad => "1;31",
            Self::Second => "35",
            Self::Third => "34",
        }
    }

    /// Returns a text in this colour, if there are colours.
    pub(crate) fn paint(self, text: &str, colours: bool) -> String {
        match self.code() {
            code if colours && !code.is_empty() => format!("\x1b[{code}m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }
}

/// Returns whether the terminal `TERM` moves its cursor and has attributes of text.
pub(crate) fn is_capable() -> bool {
    std::env::var("TERM").as_deref() != Ok("dumb")
}

/// Returns whether an output is to have colours: it is a terminal that can show them, and the user
/// has not refused them (<https://no-color.org>).
pub(crate) fn has_colours(is_terminal: bool) -> bool {
    let refusal = std::env::var_os("NO_COLOR");
    is_terminal && is_capable() && refusal.is_none_or(|text| text.is_empty())
}

/// Marks of bars and of sparklines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Heights of a sparkline, the lowest first.
    heights: [char; 8],
    full: char,
    empty: char,
    /// End of a text that was cut.
    more: char,
}

impl Marks {
    pub(crate) const UNICODE: Self = Self {
        heights: ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        full: '█',
        empty: '░',
        more: '…',
    };
    pub(crate) const ASCII: Self = Self {
        heights: ['_', '.', ',', ':', '-', '=', '+', '#'],
        full: '#',
        empty: '.',
        more: '>',
    };

    /// Returns the marks that the terminal shows: those of ASCII on the console of Linux, whose
    /// fonts lack the others, and where the locale has another encoding than UTF-8.
    pub(crate) fn of_terminal() -> Self {
        Self::of(|name| std::env::var(name))
    }

    fn of(variable: impl Fn(&str) -> Result<String, VarError>) -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"];
        let locale =
            locale.iter().find_map(|name| variable(name).ok().filter(|text| !text.is_empty()));
        let is_other = locale.is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            !locale.contains("utf-8") && !locale.contains("utf8")
        });
        match is_other || variable("TERM").as_deref() == Ok("linux") {
            true => Self::ASCII,
            false => Self::UNICODE,
        }
    }

    /// Returns the last values as columns whose heights are parts of the highest one, the last at
    /// the end. Fewer values than columns begin with blanks.
    pub(crate) fn sparkline(
        self,
        values: impl DoubleEndedIterator<Item = f64>,
        columns: usize,
    ) -> String {
        let mut last: Vec<f64> = values.rev().take(columns).collect();
        last.reverse();
        let most = last.iter().copied().fold(0.0, f64::max);
        let height = |value: &f64| {
            // The lowest is that of nothing at all.
            let height = if most > 0.0 { (value / most * 7.0).ceil() } else { 0.0 };
            self.heights[(height as usize).min(7)]
        };
        let blanks = columns - last.len();
        std::iter::repeat_n(' ', blanks).chain(last.iter().map(height)).collect()
    }

    /// Returns a bar of a share from 0 to 1.
    pub(crate) fn bar(self, share: f64, columns: usize) -> String {
        let full = (share.clamp(0.0, 1.0) * columns as f64).round() as usize;
        let mark = |column| if column < full { self.full } else { self.empty };
        (0..columns).map(mark).collect()
    }
}

/// A line of text in several colours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line(Vec<(Tone, String)>);

impl Line {
    pub(crate) fn of(tone: Tone, text: impl Into<String>) -> Self {
        Self::default().with(tone, text)
    }

    /// Returns the line with a text after it.
    pub(crate) fn with(mut self, tone: Tone, text: impl Into<String>) -> Self {
        self.add(tone, text);
        self
    }

    /// Adds a text. Control characters, which would command the terminal, become question marks.
    pub(crate) fn add(&mut self, tone: Tone, text: impl Into<String>) {
        self.0.push((tone, text.into().replace(char::is_control, "?")));
    }

    /// Adds blanks up to a column.
    pub(crate) fn pad(&mut self, column: usize) {
        let blanks = column.saturating_sub(self.columns());
        if blanks > 0 {
            self.add(Tone::Plain, " ".repeat(blanks));
        }
    }

    /// Returns how many columns of a terminal the line takes.
    pub(crate) fn columns(&self) -> usize {
        self.0.iter().map(|(_, text)| text.width()).sum()
    }

    /// Returns the line cut to this many columns, the last of which shows that there is more.
    pub(crate) fn cut(self, columns: usize, marks: Marks) -> Self {
        if self.columns() <= columns {
            return self;
        }
        let mut left = columns.saturating_sub(1);
        let mut cut = Self::default();
        'parts: for (tone, text) in self.0 {
            let mut part = String::new();
            for character in text.chars() {
                let width = character.width().unwrap_or(0);
                if width > left {
                    cut.add(tone, part);
                    break 'parts;
                }
                left -= width;
                part.push(character);
            }
            cut.add(tone, part);
        }
        if columns > 0 {
            cut.add(Tone::Faint, marks.more);
        }
        cut
    }

    /// Returns the bytes for a terminal.
    pub(crate) fn paint(&self, colours: bool) -> String {
        self.0.iter().map(|(tone, text)| tone.paint(text, colours)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_the_columns_that_its_characters_take() {
        let line = Line::of(Tone::Label, "ab").with(Tone::Bad, "日本語");
        assert_eq!(line.columns(), 8);
        let cut = |columns| line.clone().cut(columns, Marks::UNICODE).paint(false);
        assert_eq!(cut(8), "ab日本語");
        assert_eq!(cut(7), "ab日本…");
        assert_eq!(cut(6), "ab日…");
        assert_eq!(cut(1), "…");
        assert_eq!(cut(0), "");
        assert_eq!(
            line.cut(4, Marks::ASCII).paint(true),
            "\x1b[36mab\x1b[0m\x1b[1;31m\x1b[0m\x1b[2m>\x1b[0m"
        );
    }

    #[test]
    fn a_sparkline_has_the_last_values_relative_to_the_highest() {
        let spark =
            |values: &[f64], columns| Marks::UNICODE.sparkline(values.iter().copied(), columns);
        assert_eq!(spark(&[9.0, 0.0, 0.1, 7.0], 3), "▁▂█");
        assert_eq!(spark(&[1.0], 3), "  █");
        assert_eq!(spark(&[0.0, 0.0], 2), "▁▁");
        assert_eq!(spark(&[], 2), "  ");
        assert_eq!(spark(&[f64::NAN, f64::INFINITY], 2).chars().count(), 2);
        assert_eq!(Marks::ASCII.sparkline([0.0, 4.0].into_iter(), 2), "_#");
    }

    #[test]
    fn a_bar_is_as_full_as_its_share() {
        for (share, expected) in [(0.0, "...."), (0.5, "##.."), (1.0, "####"), (7.0, "####")] {
            assert_eq!(Marks::ASCII.bar(share, 4), expected);
        }
        assert_eq!(Marks::ASCII.bar(f64::NAN, 2), "..");
    }

    #[test]
    fn marks_follow_the_locale_and_the_terminal() {
        let of = |pairs: &[(&str, &str)]| {
            Marks::of(|name| {
                let found = pairs.iter().find(|(other, _)| *other == name);
                found.map(|(_, value)| (*value).to_owned()).ok_or(VarError::NotPresent)
            })
        };
        assert_eq!(of(&[]), Marks::UNICODE);
        assert_eq!(of(&[("LANG", "de_DE.UTF-8"), ("TERM", "xterm")]), Marks::UNICODE);
        assert_eq!(of(&[("LANG", "C.utf8"), ("LC_ALL", "")]), Marks::UNICODE);
        assert_eq!(of(&[("LANG", "C.UTF-8"), ("LC_ALL", "C")]), Marks::ASCII);
        assert_eq!(of(&[("LANG", "C.UTF-8"), ("TERM", "linux")]), Marks::ASCII);
    }

    #[test]
    fn a_plain_text_has_no_escape_sequence() {
        assert_eq!(Tone::Bad.paint("x", false), "x");
        assert_eq!(Tone::Bad.paint("x", true), "\x1b[1;31mx\x1b[0m");
        assert_eq!(Tone::Plain.paint("x", true), "x");
        assert!(!has_colours(false));
    }
}
