//! Values of settings: one type for each form, read alike from the command line, the environment
//! and a configuration file.

use super::database_name::DatabaseName;
use crate::logging::{LogFormat, Verbosity};
use crate::remote;
use crate::scripting::periodic;
use crate::sizes;
use clap::builder::{BoolishValueParser, EnumValueParser};
use clap::{Arg, ArgAction, ArgMatches, ValueEnum};
use client::Address;
use serde::de::{Deserializer, SeqAccess, Visitor};
use server::{ChosenEvents, ColdReads, CommandMask, Endpoint, Master, Periodic, UnknownLetter};
use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::num::{NonZeroUsize, ParseIntError};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Longest time, in seconds: more would not fit a duration of the event loops.
const SECONDS_MAX: f64 = 1e9;

/// A value as a configuration file has it.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    /// `"text"`
    Text(String),
    /// `10` or `0.5`, as text.
    Number(String),
    /// `true` or `false`
    Switch(bool),
    /// `["a", "b"]`
    List(Vec<String>),
}

impl Written {
    /// Returns the error for a value of another form than `expected`.
    fn unlike(&self, expected: &str) -> String {
        let found = match self {
            Self::Text(_) => "a text",
            Self::Number(_) => "a number",
            Self::Switch(_) => "true or false",
            Self::List(_) => "a list",
        };
        format!("{expected} is required here, not {found}")
    }
}

/// Type of a setting.
pub(crate) trait Value: Clone + Send + Sync + 'static {
    /// Returns the option of the command line for this type.
    fn option(option: Arg) -> Arg;

    /// Returns the value that the command line or the environment gives, if any.
    fn take(matches: &ArgMatches, id: &str) -> Option<Self> {
        matches.get_one(id).cloned()
    }

    /// Returns the value that a file has.
    fn from_written(written: Written) -> Result<Self, String>;

    /// Returns the value as a file would have it.
    fn show(&self) -> String;

    /// Replaces the path in the value, if it has one, by the result of `place`.
    fn place_path(&mut self, _place: &mut dyn FnMut(&Path) -> PathBuf) {}
}

/// Deserializes a setting. The error gets its line from the deserializer.
pub(crate) fn deserialize<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Value,
{
    let written = deserializer.deserialize_any(AnyValue)?;
    T::from_written(written).map(Some).map_err(serde::de::Error::custom)
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Written;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text, a number, true or false, or a list of texts")
    }

    fn visit_str<E>(self, text: &str) -> Result<Written, E> {
        Ok(Written::Text(text.to_owned()))
    }

    fn visit_bool<E>(self, is_on: bool) -> Result<Written, E> {
        Ok(Written::Switch(is_on))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Written, E> {
        Ok(Written::Number(number.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Written, E> {
        Ok(Written::Number(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Written, E> {
        Ok(Written::Number(number.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Written, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Written::List(list))
    }
}

/// Implements [`Value`] for a type with `FromStr` and a function that shows it.
macro_rules! values {
    ($($type:ty: $($form:ident)|+, $expected:expr, $show:expr $(, $place:expr)?;)*) => { $(
        impl Value for $type {
            fn option(option: Arg) -> Arg {
                option.value_parser(|text: &str| parse_given::<Self>(text, $expected))
            }

            fn from_written(written: Written) -> Result<Self, String> {
                match written {
                    $(Written::$form(text))|+ => parse_as(&text, $expected),
                    other => Err(other.unlike($expected)),
                }
            }

            fn show(&self) -> String {
                let show: fn(&Self) -> String = $show;
                show(self)
            }

            $(fn place_path(&mut self, place: &mut dyn FnMut(&Path) -> PathBuf) {
                let replace: fn(&mut Self, &mut dyn FnMut(&Path) -> PathBuf) = $place;
                replace(self, place);
            })?
        }
    )* };
}

/// Forms of a text that an empty one does not have.
const NAMES: [&str; 3] = [TEXT, NAME, PATH];
const TEXT: &str = "a text";
const NAME: &str = "the name of a database";
const PATH: &str = "a path";

values! {
    String: Text, TEXT, |text| quoted(text);
    DatabaseName: Text, NAME, |name| quoted(name), DatabaseName::place;
    PathBuf: Text, PATH, |path| quoted(&path.display().to_string()), |path, place| {
        *path = place(path);
    };
    u16: Number, "a number from 0 to 65535", u16::to_string;
    ServerId: Number, "a number from 1 to 65535, or 0 for none,", |id| id.0.to_string();
    u64: Number, "a number of at least 0", u64::to_string;
    Percent: Number, "a number from 0 to 100", |percent| percent.0.to_string();
    Count: Number, "a number of at least 1", |count| count.0.to_string();
    Bytes: Number | Text, "a number of bytes", |bytes| bytes.0.to_string();
    Rate: Number | Text, "a number of bytes per second", |rate| rate.0.to_string();
    Seconds: Number, "a number of seconds", |seconds| seconds.0.as_secs_f64().to_string();
    Listen: Text, "HOST:PORT or a path", |listen| quoted(&listen.0.to_string()), |listen, place| {
        if let Endpoint::Unix(path) = &mut listen.0 {
            *path = place(path);
        }
    };
    SocketMode: Text, "permission bits such as \"0660\"", |mode| quoted(&format!("{:04o}", mode.0));
    ChosenEvents: Text, "letters of events", |events| quoted(&events.to_string());
    Server: Text, "HOST:PORT", |server| quoted(&format!("{}:{}", server.0.host, server.0.port));
}

/// Reason why a text is not a value of a type.
trait Reason {
    /// Returns the reason, in which `expected` is what the type takes.
    fn describe(&self, expected: &str) -> String;
}

impl Reason for ParseIntError {
    fn describe(&self, expected: &str) -> String {
        format!("{expected} is required")
    }
}

impl Reason for String {
    fn describe(&self, _expected: &str) -> String {
        self.clone()
    }
}

impl Reason for &str {
    fn describe(&self, _expected: &str) -> String {
        (*self).to_owned()
    }
}

impl Reason for UnknownLetter {
    fn describe(&self, _expected: &str) -> String {
        self.to_string()
    }
}

impl Reason for Infallible {
    fn describe(&self, _expected: &str) -> String {
        match *self {}
    }
}

fn parse_as<T: FromStr<Err: Reason>>(text: &str, expected: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.describe(expected))
}

/// Returns the value of an option or a variable. A name that is empty is that of a variable of a
/// script that is not set.
fn parse_given<T: FromStr<Err: Reason>>(text: &str, expected: &str) -> Result<T, String> {
    match text.is_empty() && NAMES.contains(&expected) {
        true => Err(format!("{expected} is required; without one, leave it out")),
        false => parse_as(text, expected),
    }
}

fn parse<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Returns a text as TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A switch: `--webdav`, or `--webdav=false` against a file or the environment.
impl Value for bool {
    fn option(option: Arg) -> Arg {
        option
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .hide_possible_values(true)
            .value_parser(BoolishValueParser::new())
    }

    fn from_written(written: Written) -> Result<Self, String> {
        match written {
            Written::Switch(is_on) => Ok(is_on),
            other => Err(other.unlike("true or false")),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// A number from 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Percent(pub(crate) u8);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let percent = text.parse().ok().filter(|percent| *percent <= 100);
        percent.map(Self).ok_or_else(|| "a number from 0 to 100 is required, such as 5".to_owned())
    }
}

/// A number of at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) usize);

impl FromStr for Count {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(|number: NonZeroUsize| Self(number.get()))
    }
}

/// Id of a server among those that replicate each other; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerId(pub(crate) u16);

impl FromStr for ServerId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Address or name of a host to listen on, without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host(pub(crate) String);

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_address = text.parse::<IpAddr>().is_ok();
        let inner = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = match inner {
            Some((host, end)) => (host, end.strip_prefix(':')),
            None => match text.split_once(':') {
                Some((host, port)) if !is_address && !port.contains(':') => (host, Some(port)),
                _ => (text, None),
            },
        };
        match port {
            _ if text.is_empty() => Err("an address is required; without one, leave it out".into()),
            _ if text.contains("://") => {
                Err("it is a URL: give the address alone, and the port as the setting port".into())
            }
            _ if text.contains('/') => {
                Err("it is a path: the setting unix listens on a Unix socket".into())
            }
            Some(port) if host.is_empty() => Err(format!(
                "it is a port without a host: give {port} as the setting port, and leave host out \
                 for this machine alone"
            )),
            Some("") => Err(format!("it ends with a colon: give {host}")),
            Some(port) => {
                Err(format!("it has a port: give {host} as host, and {port} as the setting port"))
            }
            None if inner.is_some() => Err(format!("it has brackets: give {host}")),
            None => Ok(Self(text.to_owned())),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A number of bytes, with an optional suffix k, m, g, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        sizes::bytes(text).map(Self)
    }
}

impl Bytes {
    /// Returns the number, or the most that an address can have.
    pub(crate) fn in_memory(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Bytes per second, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate(pub(crate) u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        sizes::rate(text).map(Self)
    }
}

/// A time in seconds, with an optional fraction; 0 has the meaning that the setting gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seconds(pub(crate) Duration);

impl Seconds {
    /// Returns the time, or `None` for 0.
    pub(crate) fn unless_zero(self) -> Option<Duration> {
        Some(self.0).filter(|time| !time.is_zero())
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
        if !(0.0..=SECONDS_MAX).contains(&seconds) {
            return Err(format!("not between 0 and {SECONDS_MAX} seconds"));
        }
        Ok(Self(Duration::from_secs_f64(seconds)))
    }
}

/// Host and port of another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server(pub(crate) Master);

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = remote::parse_master(text).map_err(|error| error.to_string());
        parsed.map(|(host, port)| Self(Master { host, port }))
    }
}

/// An address or a Unix socket to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) Endpoint);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match remote::parse(text).map_err(|error| error.to_string())? {
            Address::Unix(path) => Ok(Self(Endpoint::Unix(path))),
            // The default port is that of the database.
            Address::Tcp { .. } if !remote::has_port(text) => {
                Err(format!("{text:?} has no port: give {text}:PORT"))
            }
            Address::Tcp { host, port } => Ok(Self(Endpoint::Tcp { host: Some(host), port })),
        }
    }
}

/// Names of commands to refuse, or to allow again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commands(String, CommandMask);

impl Commands {
    pub(crate) fn mask(&self) -> CommandMask {
        self.1
    }
}

impl FromStr for Commands {
    type Err = server::UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(|mask| Self(text.to_owned(), mask))
    }
}

impl fmt::Display for Commands {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Name of this server in `Host`, or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostName(pub(crate) String);

impl FromStr for HostName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let text = text.strip_suffix('.').unwrap_or(text);
        if text == "*" || (!text.is_empty() && text.bytes().all(is_of_name)) {
            return Ok(Self(text.to_owned()));
        }
        Err("not the name of a host, without port, or *")
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A function that is called periodically: `NAME=SECONDS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Every(pub(crate) Periodic);

impl FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (function, seconds) = text.rsplit_once('=').ok_or("not NAME=SECONDS")?;
        periodic(function, seconds).map(Self)
    }
}

impl fmt::Display for Every {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.0.function, self.0.every.as_secs_f64())
    }
}

/// Permission bits of a socket's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketMode(pub(crate) u32);

impl FromStr for SocketMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits =
            (3..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= 0o777);
        mode.map(Self)
            .ok_or_else(|| format!("{text:?} is no mode; write 3 or 4 octal digits, as 0660"))
    }
}

/// Values of an option that may be repeated; a file has one text or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Many<T>(pub(crate) Vec<T>);

impl<T> Value for Many<T>
where
    T: FromStr<Err: fmt::Display> + fmt::Display + Clone + Send + Sync + 'static,
{
    fn option(option: Arg) -> Arg {
        option.action(ArgAction::Append).value_parser(parse::<T>)
    }

    fn take(matches: &ArgMatches, id: &str) -> Option<Self> {
        matches.get_many(id).map(|values| Self(values.cloned().collect()))
    }

    fn from_written(written: Written) -> Result<Self, String> {
        let texts = match written {
            Written::Text(text) => vec![text],
            Written::List(texts) => texts,
            other => return Err(other.unlike("a text or a list of texts")),
        };
        texts.iter().map(|text| parse(text)).collect::<Result<_, _>>().map(Self)
    }

    fn show(&self) -> String {
        let texts: Vec<String> = self.0.iter().map(|value| quoted(&value.to_string())).collect();
        format!("[{}]", texts.join(", "))
    }
}

/// Implements [`Value`] for enums, whose words clap and files share.
macro_rules! words {
    ($($type:ty)*) => { $(
        impl Value for $type {
            fn option(option: Arg) -> Arg {
                option.value_parser(EnumValueParser::<Self>::new())
            }

            fn from_written(written: Written) -> Result<Self, String> {
                match written {
                    Written::Text(word) => word_of(&word),
                    other => Err(other.unlike(&words_of::<Self>())),
                }
            }

            fn show(&self) -> String {
                self.to_possible_value().map(|word| quoted(word.get_name())).unwrap_or_default()
            }
        }
    )* };
}

words!(Verbosity LogFormat Expiry Seed TimeoutAction Reads);

fn word_of<T: ValueEnum>(word: &str) -> Result<T, String> {
    T::from_str(word, false).map_err(|_| format!("{word:?} is not {}", words_of::<T>()))
}

fn words_of<T: ValueEnum>() -> String {
    let words = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let words: Vec<String> = words.map(|word| format!("{:?}", word.get_name())).collect();
    words.join(" or ")
}

/// Handling of the flags and expiry of memcached clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Expiry {
    /// Store flags, and expire records
    Keep,
    /// Ignore both, like Tokyo Tyrant
    Ignore,
}

/// When a replica becomes a copy of its master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Seed {
    /// Never
    Never,
    /// If there are no records
    Empty,
    /// Also replacing records from which the master's log does not continue
    Always,
}

/// Way in which records are read that are not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reads {
    /// By `io_uring` if the kernel allows it
    Auto,
    /// By `io_uring`
    Ring,
    /// By threads
    Pool,
}

impl From<Reads> for ColdReads {
    fn from(reads: Reads) -> Self {
        match reads {
            Reads::Auto => Self::Auto,
            Reads::Ring => Self::Ring,
            Reads::Pool => Self::Pool,
        }
    }
}

/// Reaction to replicas that do not acknowledge in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimeoutAction {
    /// Refuse changes
    Error,
    /// Acknowledge them anyway
    Fallback,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_a_port() {
        let expected = Master { host: "example.org".into(), port: 1979 };
        assert_eq!("example.org:1979".parse(), Ok(Server(expected)));
        for text in ["example.org:x", "/tmp/socket", "1978"] {
            text.parse::<Server>().unwrap_err();
        }
    }

    #[test]
    fn a_listener_is_a_host_and_a_port_or_a_path() {
        let tcp = Endpoint::Tcp { host: Some("::1".into()), port: 9178 };
        assert_eq!("[::1]:9178".parse(), Ok(Listen(tcp)));
        assert_eq!("/run/admin.sock".parse(), Ok(Listen(Endpoint::Unix("/run/admin.sock".into()))));
        for text in ["host:x", "host", "[::1]", "9178", "admin.sock"] {
            text.parse::<Listen>().unwrap_err();
        }
    }

    #[test]
    fn a_host_is_an_address_or_a_name_without_a_port() {
        for text in ["0.0.0.0", "::", "fe80::1%eth0", "localhost", "db.example.com"] {
            assert_eq!(text.parse(), Ok(Host(text.to_owned())));
        }
        for (text, reason) in [
            (
                "localhost:31001",
                "it has a port: give localhost as host, and 31001 as the setting port",
            ),
            ("127.0.0.1:1", "give 127.0.0.1 as host, and 1 as"),
            ("[::1]:1", "give ::1 as host, and 1 as"),
            ("[::1]", "it has brackets: give ::1"),
            ("db:", "it ends with a colon: give db"),
            (":1", "it is a port without a host: give 1 as the setting port"),
            ("http://h", "it is a URL"),
            ("./tyrant.sock", "the setting unix listens on a Unix socket"),
            ("", "an address is required"),
        ] {
            let error = text.parse::<Host>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn seconds_are_within_their_limits() {
        assert_eq!("0.5".parse(), Ok(Seconds(Duration::from_millis(500))));
        assert_eq!("1000000000".parse(), Ok(Seconds(Duration::from_secs(1_000_000_000))));
        assert_eq!(Seconds(Duration::ZERO).unless_zero(), None);
        for text in ["-1", "1000000001", "NaN", "inf", "x"] {
            text.parse::<Seconds>().unwrap_err();
        }
    }

    #[test]
    fn counts_and_rates_are_at_least_1() {
        assert_eq!("1".parse(), Ok(Count(1)));
        assert_eq!("8m".parse(), Ok(Rate(8 << 20)));
        assert_eq!(("0".parse(), "100".parse()), (Ok(Percent(0)), Ok(Percent(100))));
        assert!("101".parse::<Percent>().is_err() && "-1".parse::<Percent>().is_err());
        for text in ["0", "-1", "x"] {
            text.parse::<Count>().unwrap_err();
            text.parse::<Rate>().unwrap_err();
        }
    }

    #[test]
    fn a_periodic_function_has_a_name_and_an_interval() {
        let parsed: Every = "expire=0.5".parse().unwrap();
        assert_eq!(parsed.0.function, "expire");
        assert_eq!(parsed.0.every, Duration::from_millis(500));
        assert_eq!(parsed.to_string(), "expire=0.5");
        assert_eq!("a=b=2".parse::<Every>().unwrap().0.function, "a=b");
        assert_eq!("f=0.001".parse::<Every>().unwrap().0.every, Duration::from_millis(1));
        for text in ["f", "f=", "f=x", "f=0.0009", "f=-1", "f=NaN"] {
            text.parse::<Every>().unwrap_err();
        }
    }

    #[test]
    fn a_value_of_another_form_is_refused_with_the_form_that_is_required() {
        let text = || Written::Text("1978".into());
        let error = u16::from_written(text()).unwrap_err();
        assert_eq!(error, "a number from 0 to 65535 is required here, not a text");
        assert!(bool::from_written(Written::Number("1".into())).is_err());
        assert!(String::from_written(Written::Number("1".into())).is_err());
        assert_eq!(Bytes::from_written(text()), Ok(Bytes(1978)));
        let error = Expiry::from_written(Written::Text("kep".into())).unwrap_err();
        assert_eq!(error, r#""kep" is not "keep" or "ignore""#);
    }
}
