//! The log: one event per line, `<time>\t<LEVEL>\t<message>`, in Tokyo Tyrant's format, or an
//! object of JSON. A line to the journal begins with its priority, as `<3>`.
//!
//! A storm of warnings or errors of one place in the source writes [`STORM_LINES_MAX`] lines per
//! [`STORM_WINDOW`]. The others are counted, and one line at the end of the window has their number
//! and the last of them.
//!
//! Times are UTC in the W3C's format. Levels are DEBUG, INFO, WARN, ERROR and SYSTEM. SYSTEM marks
//! the few lines about the life of the process, which every verbosity includes.

use crate::plural::counted;
use parking_lot::{Condvar, Mutex};
use rustix::fs::{OFlags, fcntl_setfl};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
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

/// Time over which the lines of a storm are counted.
const STORM_WINDOW: Duration = Duration::from_secs(1);

/// Most lines of one place in the source per window.
const STORM_LINES_MAX: u32 = 10;

/// Target of the lines of the slow log, which are never left out here: the server bounds them.
const SLOW_TARGET: &str = "slow";

/// Part of a value of a library that is shown as a structure of the program.
const STRUCTURE: &str = " { ";

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

/// Format of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Time, level and message, separated by tabs.
    #[default]
    Text,
    /// An object of JSON.
    Json,
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
    pub(crate) fn install(&self, verbosity: Verbosity, format: LogFormat) {
        let (filter, handle) = reload::Layer::new(LevelFilter::from(verbosity));
        let _ = self.filter.set(handle);
        let has_priority = self.path.is_none() && is_journal();
        let storms = Arc::new(Storms::default());
        let lines = Lines { form: Form { format, has_priority }, storms: Arc::clone(&storms) };
        let (log, form) = (self.clone(), lines.form);
        // Without the thread, a storm is summed up when its next line comes.
        let _ = std::thread::Builder::new().name("log".into()).spawn(move || {
            loop {
                for summary in storms.await_summaries() {
                    let line = form.line(&summary).unwrap_or_default();
                    // There is no place to report it.
                    let _ = Line(&log).write_all(line.as_bytes());
                }
            }
        });
        let lines = tracing_subscriber::fmt::layer().with_writer(self.clone()).event_format(lines);
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
    /// the log continues in the old file. Returns whether there is a file.
    pub(crate) fn reopen(&self) -> io::Result<bool> {
        if let Some(path) = &self.path {
            let file = append(path)?;
            *self.output.lock() = Output::File(file);
        }
        Ok(self.path.is_some())
    }
}

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Without it a pipe is waited for until a program reads it.
    let file = options.custom_flags(OFlags::NONBLOCK.bits() as i32).create(true).append(true);
    let file = file.open(path)?;
    fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
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

/// Returns whether the standard output is the journal of systemd.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(output) = rustix::fs::fstat(io::stdout()) else { return false };
    stream == format!("{}:{}", output.st_dev, output.st_ino)
}

/// Level of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    Debug,
    Info,
    System,
    Warn,
    Error,
}

impl Severity {
    fn of(metadata: &Metadata<'_>) -> Self {
        match *metadata.level() {
            _ if metadata.target() == SYSTEM_TARGET => Self::System,
            Level::ERROR => Self::Error,
            Level::WARN => Self::Warn,
            Level::INFO => Self::Info,
            _ => Self::Debug,
        }
    }

    /// Returns the name, and the priority of syslog.
    fn name_and_priority(self) -> (&'static str, u8) {
        match self {
            Self::Error => ("ERROR", 3),
            Self::Warn => ("WARN", 4),
            Self::System => ("SYSTEM", 5),
            Self::Info => ("INFO", 6),
            Self::Debug => ("DEBUG", 7),
        }
    }
}

/// An event: its level, its message, and its other fields.
#[derive(Clone, Debug)]
struct Record {
    severity: Severity,
    message: String,
    fields: Map<String, Value>,
}

/// Form of the lines.
#[derive(Clone, Copy, Debug)]
struct Form {
    format: LogFormat,
    /// Whether a line begins with its priority.
    has_priority: bool,
}

impl Form {
    /// Returns the line of an event, with its end.
    fn line(self, record: &Record) -> Result<String, fmt::Error> {
        let (name, priority) = record.severity.name_and_priority();
        let time = seconds_now()?;
        let mut line = match self.has_priority {
            true => format!("<{priority}>"),
            false => String::new(),
        };
        match self.format {
            LogFormat::Text => {
                let mut message = record.message.clone();
                for (field, value) in &record.fields {
                    write!(message, " {field}={value}")?;
                }
                writeln!(line, "{time}\t{name}\t{}", one_line(&message))?;
            }
            LogFormat::Json => {
                let mut object = Map::new();
                object.insert("time".into(), time.into());
                object.insert("level".into(), name.to_ascii_lowercase().into());
                object.insert("message".into(), one_line(&record.message).into());
                object.extend(record.fields.clone());
                writeln!(line, "{}", Value::Object(object))?;
            }
        }
        Ok(line)
    }
}

/// Formatter of the lines.
struct Lines {
    form: Form,
    storms: Arc<Storms>,
}

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
        let severity = Severity::of(metadata);
        let mut record = Record { severity, message: String::new(), fields: Map::new() };
        event.record(&mut record);
        let may_storm = matches!(severity, Severity::Warn | Severity::Error)
            && metadata.target() != SLOW_TARGET;
        if !may_storm {
            return writer.write_str(&self.form.line(&record)?);
        }
        for record in self.storms.admit(
            (metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default()),
            record,
            Instant::now(),
        ) {
            writer.write_str(&self.form.line(&record)?)?;
        }
        Ok(())
    }
}

/// File and line of an event in the source.
type Place = (&'static str, u32);

/// Warnings and errors of the present windows, by their places in the source. These are as many as
/// the program has, so the memory is bounded.
#[derive(Debug, Default)]
struct Storms {
    storms: Mutex<HashMap<Place, Storm>>,
    left_out: Condvar,
}

/// Lines of one place in the source.
#[derive(Debug)]
struct Storm {
    began: Instant,
    lines: u32,
    /// Number of lines that were left out, and the last of them.
    left_out: u64,
    last: Option<Record>,
}

impl Storm {
    fn new(began: Instant) -> Self {
        Self { began, lines: 0, left_out: 0, last: None }
    }

    /// Ends the window. Returns the line about what was left out, if anything was.
    fn end(&mut self, now: Instant) -> Option<Record> {
        let seconds = now.saturating_duration_since(self.began).as_secs_f64();
        let Self { left_out, last, .. } = std::mem::replace(self, Self::new(now));
        let mut summary = last?;
        let times = counted(left_out, "time", "times");
        summary.message = format!("{} (repeated {times} in {seconds:.1} s)", summary.message);
        Some(summary)
    }
}

impl Storms {
    /// Returns what is to be logged when an event comes.
    fn admit(&self, place: Place, record: Record, now: Instant) -> Vec<Record> {
        let mut storms = self.storms.lock();
        let storm = storms.entry(place).or_insert_with(|| Storm::new(now));
        let is_over = now.saturating_duration_since(storm.began) >= STORM_WINDOW;
        let mut lines: Vec<Record> =
            if is_over { storm.end(now).into_iter().collect() } else { vec![] };
        if storm.lines < STORM_LINES_MAX {
            storm.lines += 1;
            lines.push(record);
        } else {
            storm.left_out += 1;
            storm.last = Some(record);
            self.left_out.notify_one();
        }
        lines
    }

    /// Blocks until the window of a storm is over. Returns the lines about what was left out.
    fn await_summaries(&self) -> Vec<Record> {
        let mut storms = self.storms.lock();
        loop {
            let now = Instant::now();
            let pending = storms.values_mut().filter(|storm| storm.left_out > 0);
            let mut next: Option<Instant> = None;
            let mut summaries = Vec::new();
            for storm in pending {
                let end = storm.began + STORM_WINDOW;
                if end <= now {
                    summaries.extend(storm.end(now));
                } else {
                    next = Some(next.map_or(end, |next| next.min(end)));
                }
            }
            if !summaries.is_empty() {
                return summaries;
            }
            match next {
                Some(end) => drop(self.left_out.wait_until(&mut storms, end)),
                None => self.left_out.wait(&mut storms),
            }
        }
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

impl Visit for Record {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else if !text.contains(STRUCTURE) {
            // Libraries log errors as their own structures; their messages say what failed.
            self.fields.insert(field.name().to_owned(), text.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(message: &str) -> Record {
        Record { severity: Severity::Error, message: message.to_owned(), fields: Map::new() }
    }

    const PLACE: Place = ("file.rs", 1);

    #[test]
    fn a_storm_is_some_lines_and_one_that_counts_the_others() {
        let storms = Storms::default();
        let now = Instant::now();
        let admit = |number: u32, at| -> Vec<String> {
            let lines = storms.admit(PLACE, record(&number.to_string()), at);
            lines.into_iter().map(|record| record.message).collect()
        };
        for number in 0..STORM_LINES_MAX {
            assert_eq!(admit(number, now), [number.to_string()]);
        }
        for number in 0..5 {
            assert!(admit(number, now).is_empty());
        }
        let later = admit(9, now + STORM_WINDOW);
        assert_eq!(later, ["4 (repeated 5 times in 1.0 s)", "9"]);
    }

    #[test]
    fn the_end_of_a_storm_is_logged_without_a_further_line() {
        let storms = Storms::default();
        for _ in 0..=STORM_LINES_MAX {
            storms.admit(PLACE, record("full"), Instant::now());
        }
        let summaries = storms.await_summaries();
        assert_eq!(summaries.len(), 1);
        assert!(summaries[0].message.starts_with("full (repeated 1 time in "), "{summaries:?}");
    }

    #[test]
    fn a_line_has_the_fields_of_its_event_in_both_formats() {
        let mut record = record("slow\nrequest");
        record.fields.insert("key".into(), "a\"b".into());
        record.fields.insert("seconds".into(), 0.5.into());
        let line = |format, has_priority| Form { format, has_priority }.line(&record).unwrap();
        let text = line(LogFormat::Text, true);
        assert!(text.starts_with("<3>2"), "{text}");
        assert!(text.ends_with("Z\tERROR\tslow request key=\"a\\\"b\" seconds=0.5\n"), "{text}");
        let json: Value = serde_json::from_str(&line(LogFormat::Json, false)).unwrap();
        assert_eq!(json["level"], "error");
        assert_eq!(json["message"], "slow request");
        assert_eq!((&json["key"], &json["seconds"]), (&"a\"b".into(), &0.5.into()));
        assert!(json["time"].as_str().is_some_and(|time| time.ends_with('Z')));
    }

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
