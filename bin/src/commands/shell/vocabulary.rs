//! Vocabulary of the shell: its commands with their aliases, options and arguments, as the parser
//! has them.

use super::words;

/// An argument of a command by its place.
struct Argument {
    name: String,
    is_required: bool,
    is_repeated: bool,
}

/// A command.
struct Command {
    names: Vec<String>,
    /// Long options and short ones, and whether each takes a value.
    options: Vec<(String, bool)>,
    arguments: Vec<Argument>,
}

impl Command {
    fn of(command: &clap::Command) -> Self {
        let mut names = vec![command.get_name().to_owned()];
        names.extend(command.get_visible_aliases().map(str::to_owned));
        let mut options = Vec::new();
        for option in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let takes_value = option.get_action().takes_values();
            let long = option.get_long().map(|long| format!("--{long}"));
            let short = option.get_short().map(|short| format!("-{short}"));
            options.extend(long.into_iter().chain(short).map(|name| (name, takes_value)));
        }
        let arguments = command.get_positionals().map(|argument| Argument {
            name: argument
                .get_value_names()
                .and_then(|names| names.first())
                .map_or_else(|| argument.get_id().as_str().to_uppercase(), ToString::to_string),
            is_required: argument.is_required_set(),
            is_repeated: argument.get_num_args().is_some_and(|number| number.max_values() > 1)
                || matches!(argument.get_action(), clap::ArgAction::Append),
        });
        Self { names, options, arguments: arguments.collect() }
    }

    /// Returns how many arguments these words are, or `None` if the value of an option is next.
    fn arguments_in<'w>(&self, words: impl Iterator<Item = &'w str>) -> Option<usize> {
        let (mut count, mut is_value, mut has_ended) = (0, false, false);
        for word in words {
            if std::mem::take(&mut is_value) {
                continue;
            }
            match word {
                "--" if !has_ended => has_ended = true,
                _ if word.starts_with('-') && word.len() > 1 && !has_ended => {
                    let option = self.options.iter().find(|(name, _)| name == word);
                    is_value = option.is_some_and(|(_, takes_value)| *takes_value);
                }
                _ => count += 1,
            }
        }
        (!is_value).then_some(count)
    }

    /// Returns the argument at a place.
    fn argument(&self, place: usize) -> Option<&Argument> {
        let last = self.arguments.last().filter(|last| last.is_repeated);
        self.arguments.get(place).or(last)
    }

    /// Returns the arguments from a place on, as a help shows them.
    fn usage_from(&self, place: usize) -> String {
        let mut parts = Vec::new();
        for (number, argument) in self.arguments.iter().enumerate() {
            let Argument { name, is_required, is_repeated } = argument;
            if number < place && !is_repeated {
                continue;
            }
            let repeated = if *is_repeated { "..." } else { "" };
            parts.push(match *is_required && number >= place {
                true => format!("{name}{repeated}"),
                false => format!("[{name}{repeated}]"),
            });
        }
        parts.join(" ")
    }
}

/// Kind of word that may be at the end of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expected<'v> {
    /// One of these names.
    Names(Vec<&'v str>),
    /// A key.
    Key,
    /// Anything else.
    Other,
}

/// The commands of the shell.
pub(super) struct Vocabulary(Vec<Command>);

impl Vocabulary {
    pub(super) fn of(parser: &clap::Command) -> Self {
        let mut parser = parser.clone();
        parser.build();
        Self(parser.get_subcommands().map(Command::of).collect())
    }

    /// Returns the command of this name or alias, in any case.
    fn command(&self, word: &str) -> Option<&Command> {
        let is_it = |name: &String| name.eq_ignore_ascii_case(word);
        self.0.iter().find(|command| command.names.iter().any(is_it))
    }

    /// Returns whether there is a command of this name or alias, in any case.
    pub(super) fn has(&self, word: &str) -> bool {
        self.command(word).is_some()
    }

    /// Returns where the last word of a line begins, and what it may be.
    pub(super) fn expected(&self, line: &str) -> (usize, Expected<'_>) {
        let (earlier, start) = words::before_last(line);
        let word = &line[start..];
        let all_names = || {
            let names = self.0.iter().flat_map(|command| &command.names);
            let is_begun = |name: &&str| {
                name.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word))
            };
            Expected::Names(names.map(String::as_str).filter(is_begun).collect())
        };
        let Some((first, rest)) = earlier.split_first() else { return (start, all_names()) };
        if first.eq_ignore_ascii_case("help") {
            return (start, if rest.is_empty() { all_names() } else { Expected::Other });
        }
        let Some(command) = self.command(first) else { return (start, Expected::Other) };
        let place = command.arguments_in(rest.iter().copied());
        let expected = match place {
            None => Expected::Other,
            Some(_) if word.starts_with('-') => {
                let options = command.options.iter().map(|(name, _)| name.as_str());
                let is_begun = |name: &&str| name.starts_with(word) && name.starts_with("--");
                Expected::Names(options.filter(is_begun).collect())
            }
            Some(place) => match command.argument(place) {
                Some(argument) if argument.name == "KEY" => Expected::Key,
                _ => Expected::Other,
            },
        };
        (start, expected)
    }

    /// Returns the arguments that may follow a line, if its command is known.
    pub(super) fn hint(&self, line: &str) -> Option<String> {
        let (mut words, start) = words::before_last(line);
        let last = &line[start..];
        if !last.is_empty() {
            words.push(last);
        }
        let (first, rest) = words.split_first()?;
        let command = self.command(first)?;
        let usage = command.usage_from(command.arguments_in(rest.iter().copied())?);
        let blank = if last.is_empty() { "" } else { " " };
        (!usage.is_empty()).then(|| format!("{blank}{usage}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary() -> Vocabulary {
        Vocabulary::of(&super::super::parser())
    }

    #[test]
    fn commands_with_aliases_their_options_and_keys_are_expected() {
        let vocabulary = vocabulary();
        let names = |line: &str| match vocabulary.expected(line) {
            (start, Expected::Names(names)) => (start, names.join(" ")),
            (start, other) => (start, format!("{other:?}")),
        };
        for (line, start, expected) in [
            ("get-", 0, "get-row"),
            ("GET-", 0, "get-row"),
            ("help get-", 5, "get-row"),
            ("dele", 0, "delete"),
            ("list --v", 5, "--values"),
            ("list --se", 5, ""),
            ("vanish --y", 7, "--yes"),
            ("get a", 4, "Key"),
            ("Set ", 4, "Key"),
            ("get one tw", 8, "Key"),
            ("put a ", 6, "Other"),
            (r"put a\ b c", 9, "Other"),
            ("put 'a b", 4, "Key"),
            ("put --expire 7", 13, "Other"),
            ("put --expire 7 k", 15, "Key"),
            ("nonsense --", 9, "Other"),
        ] {
            assert_eq!(names(line), (start, expected.to_owned()), "{line}");
        }
        assert!(names("").1.contains("exit"));
        assert!(vocabulary.has("DEL") && vocabulary.has("tail") && !vocabulary.has("serve"));
    }

    #[test]
    fn arguments_that_may_follow_are_hinted() {
        let vocabulary = vocabulary();
        for (line, expected) in [
            ("pu", None),
            ("put", Some(" KEY VALUE")),
            ("PUT ", Some("KEY VALUE")),
            ("put k", Some(" VALUE")),
            ("put k ", Some("VALUE")),
            ("put k v", None),
            ("put --expire", None),
            ("put --expire 7 ", Some("KEY VALUE")),
            ("get ", Some("KEY...")),
            ("get a ", Some("[KEY...]")),
            ("count ", None),
            ("", None),
        ] {
            assert_eq!(vocabulary.hint(line).as_deref(), expected, "{line:?}");
        }
    }
}
