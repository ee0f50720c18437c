//! The log: one event per line, `<time>\t<LEVEL>\t<message>`, in Tokyo Tyrant's format.
//!
//! Times are UTC in the W3C's format. Levels are DEBUG, INFO, WARN, ERROR and SYSTEM. SYSTEM marks
//! the few lines about the life of the process, which every verbosity includes.

use parking_lot::Mutex;
use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

/// Target of the events logged as SYSTEM; see [`system`].
const SYSTEM_TARGET: &str = "system";

/// Longest line, in bytes; longer messages are truncated.
const LINE_BYTES_MAX: usize = 8192;

/// Logs a line about the life of the process, whatever the verbosity.
pub(crate) fn system(message: impl fmt::Display) {
    tracing::error!(target: SYSTEM_TARGET, "{message}");
}

/// Verbosity of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Verbosity {
    /// Log every connection.
    Debug,
    /// Log what an operator needs.
    #[default]
    Info,
    /// Log errors, start and stop.
    Error,
}

impl From<Verbosity> for LevelFilter {
    fn from(verbosity: Verbosity) -> Self {
        match verbosity {
            Verbosity::Debug => Self::DEBUG,
            Verbosity::Info => Self::INFO,
            Verbosity::Error => Self::ERROR,
        }
    }
}

/// Destination of the log. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    path: Option<PathBuf>,
    output: Arc<Mutex<Output>>,
    /// Filter of the installed log.
    filter: Arc<OnceLock<reload::Handle<LevelFilter, Registry>>>,
}

#[derive(Debug)]
enum Output {
    Standard,
    File(File),
}

impl Log {
    /// Appends to the file at `path`; without one, writes to the standard output.
    pub(crate) fn open(path: Option<&Path>) -> io::Result<Self> {
        let output = match path {
            None => Output::Standard,
            Some(path) => Output::File(append(path)?),
        };
        Ok(Self {
            path: path.map(Path::to_owned),
            output: Arc::new(Mutex::new(output)),
            filter: Arc::default(),
        })
    }

    /// Makes this the log of the process, for events and for panics of any thread.
    pub(crate) fn install(&self, verbosity: Verbosity) {
        let (filter, handle) = reload::Layer::new(LevelFilter::from(verbosity));
        let _ = self.filter.set(handle);
        let lines = tracing_subscriber::fmt::layer().with_writer(self.clone()).event_format(Lines);
        tracing_subscriber::registry().with(filter).with(lines).init();
        std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    }

    /// Changes the verbosity of the installed log.
    pub(crate) fn set_verbosity(&self, verbosity: Verbosity) {
        if let Some(filter) = self.filter.get()
            && let Err(error) = filter.reload(LevelFilter::from(verbosity))
        {
            tracing::error!("cannot change the verbosity of the log: {error}");
        }
    }

    /// Opens the file by its name again, after a log rotation may have renamed it. If that fails,
    /// the log continues in the old file.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        if let Some(path) = &self.path {
            let file = append(path)?;
            *self.output.lock() = Output::File(file);
        }
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Writer of one line.
#[derive(Debug)]
pub(crate) struct Line<'a>(&'a Log);

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *self.0.output.lock() {
            Output::Standard => io::stdout().lock().write(bytes),
            Output::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut *self.0.output.lock() {
            Output::Standard => io::stdout().lock().flush(),
            Output::File(file) => file.flush(),
        }
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Line(self)
    }
}

/// Formatter of the lines.
struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let level = match *metadata.level() {
            _ if metadata.target() == SYSTEM_TARGET => "SYSTEM",
            Level::ERROR => "ERROR",
            Level::WARN => "WARN",
            Level::INFO => "INFO",
            _ => "DEBUG",
        };
        let mut message = Message(String::new());
        event.record(&mut message);
        writeln!(writer, "{}\t{level}\t{}", seconds_now()?, one_line(&message.0))
    }
}

/// Returns the time to the second: `2026-11-21T01:24:19Z`.
fn seconds_now() -> Result<String, fmt::Error> {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    if let Some((seconds, _fraction)) = time.split_once('.') {
        return Ok(format!("{seconds}Z"));
    }
    Ok(time)
}

/// Replaces the characters that would break the line: clients choose some of a message's bytes.
fn one_line(message: &str) -> String {
    let mut line = String::with_capacity(message.len());
    for character in message.chars() {
        if line.len() >= LINE_BYTES_MAX {
            line.push_str("...");
            break;
        }
        line.push(if character.is_control() { ' ' } else { character });
    }
    line
}

/// The message of an event, followed by its other fields as ` name=value`.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a `String` cannot fail.
        let _ = if field.name() == "message" {
            write!(self.0, "{value:?}")
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, one_line, seconds_now};

    #[test]
    fn control_characters_never_break_a_line() {
        assert_eq!(one_line("a\nb\r\tc\u{1b}[0m"), "a b  c [0m");
    }

    #[test]
    fn messages_over_the_limit_are_truncated() {
        for length in [LINE_BYTES_MAX - 1, LINE_BYTES_MAX] {
            assert_eq!(one_line(&"x".repeat(length)).len(), length);
        }
        let cut = one_line(&"x".repeat(LINE_BYTES_MAX + 1));
        assert_eq!(cut, "x".repeat(LINE_BYTES_MAX) + "...");
    }

    #[test]
    fn the_time_has_tokyo_tyrants_format() {
        let time = seconds_now().unwrap();
        let shape: String =
            time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00Z");
    }
}
