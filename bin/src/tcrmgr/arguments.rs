//! The command line of Tokyo Tyrant's tool: `tcrmgr SUBCOMMAND [options] operands`. Options have
//! one dash and come before the operands.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Options and operands of a sub-command, as the usage shows them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) name: &'static str,
    /// Options, each followed by the names of its values.
    pub(super) options: &'static [&'static str],
    /// Operands; those in brackets are optional, one with dots may be repeated.
    pub(super) operands: &'static [&'static str],
}

impl Shape {
    /// Returns the usage line.
    pub(super) fn usage(&self) -> String {
        let mut line = self.name.to_owned();
        for option in self.options {
            line.push_str(&format!(" [{option}]"));
        }
        for operand in self.operands {
            line.push_str(&format!(" {operand}"));
        }
        line
    }

    /// Returns the option with this name, and the number of its values.
    fn option(&self, name: &str) -> Option<(&'static str, usize)> {
        self.options.iter().find_map(|option| {
            let mut words = option.split(' ');
            (words.next() == Some(name)).then(|| (&option[..name.len()], words.count()))
        })
    }

    fn operand_count(&self) -> RangeInclusive<usize> {
        let optional = self.operands.iter().filter(|operand| operand.starts_with('[')).count();
        let repeated = self.operands.iter().any(|operand| operand.contains("..."));
        let most = if repeated { usize::MAX } else { self.operands.len() };
        self.operands.len() - optional..=most
    }
}

/// A parsed sub-command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invocation {
    options: Vec<(&'static str, Vec<OsString>)>,
    pub(super) operands: Vec<Vec<u8>>,
}

impl Invocation {
    /// Parses the arguments after the name of the sub-command. The error is the reason why they do
    /// not fit.
    pub(super) fn parse(
        shape: &Shape,
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, String> {
        let mut options = Vec::new();
        let mut operands = Vec::new();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if operands.is_empty() && argument.as_bytes().starts_with(b"-") {
                let option = argument.to_str().and_then(|name| shape.option(name));
                let (name, count) =
                    option.ok_or_else(|| format!("unknown option {}", argument.display()))?;
                let values: Vec<_> = arguments.by_ref().take(count).collect();
                if values.len() < count {
                    return Err(format!("a value of {name} is missing"));
                }
                options.push((name, values));
            } else {
                operands.push(argument.into_vec());
            }
        }
        let count = shape.operand_count();
        if operands.len() < *count.start() {
            return Err(format!("{} is missing", shape.operands[operands.len()]));
        }
        if operands.len() > *count.end() {
            let first = String::from_utf8_lossy(&operands[*count.end()]);
            return Err(format!("{first} is too much"));
        }
        Ok(Self { options, operands })
    }

    /// Returns whether an option was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(given, _)| *given == name)
    }

    /// Returns the value of an option, the last one if it was repeated.
    pub(super) fn value(&self, name: &str) -> Option<&OsStr> {
        let (_, values) = self.options.iter().rfind(|(given, _)| *given == name)?;
        values.first().map(OsString::as_os_str)
    }

    /// Returns the values of all occurrences of an option.
    pub(super) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [OsString]> {
        self.options.iter().filter(move |(given, _)| *given == name).map(|(_, values)| &values[..])
    }
}

#[cfg(test)]
mod tests {
    use super::{Invocation, Shape};

    const SHAPE: Shape = Shape {
        name: "get",
        options: &["-port num", "-px", "-ah name value"],
        operands: &["host", "key", "[value]"],
    };

    fn parse(line: &str) -> Result<Invocation, String> {
        Invocation::parse(&SHAPE, line.split(' ').map(Into::into))
    }

    #[test]
    fn options_come_before_the_operands() {
        let invocation = parse("-port 1 -px -port 2 -ah a b -ah c d host -px").unwrap();
        assert_eq!(invocation.operands, [b"host".to_vec(), b"-px".to_vec()]);
        assert_eq!(invocation.value("-port").unwrap(), "2");
        assert!(invocation.has("-px"));
        assert!(!invocation.has("-pz"));
        assert_eq!(invocation.values("-ah").collect::<Vec<_>>(), [["a", "b"], ["c", "d"]]);
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for (line, reason) in [
            ("host", "key is missing"),
            ("host key value more", "more is too much"),
            ("-p host key", "unknown option -p"),
            ("-pz host key", "unknown option -pz"),
            ("-port", "a value of -port is missing"),
            ("-ah a", "a value of -ah is missing"),
        ] {
            assert_eq!(parse(line), Err(reason.into()), "{line}");
        }
        let no_end = Shape { operands: &["host", "[key...]"], ..SHAPE };
        let many = Invocation::parse(&no_end, "h k k k k".split(' ').map(Into::into));
        assert_eq!(many.unwrap().operands.len(), 5);
    }

    #[test]
    fn the_usage_shows_the_shape() {
        assert_eq!(SHAPE.usage(), "get [-port num] [-px] [-ah name value] host key [value]");
    }
}
