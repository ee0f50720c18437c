//! Examples at the end of each command's help, which its manual page has too.

use clap::Command;

/// Line before the examples.
const HEADING: &str = "Examples:\n";

/// The text after the options in the help of a command.
pub(in crate::commands) struct AfterHelp {
    /// Paragraphs before the examples.
    pub(in crate::commands) notes: String,
    /// Lines of the examples: comments, which begin with `#`, and command lines.
    pub(in crate::commands) examples: Vec<String>,
}

/// Returns the parts of the text after the options.
pub(in crate::commands) fn after_help(command: &Command) -> AfterHelp {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (notes, examples) = text.split_once(HEADING).unwrap_or((&text, ""));
    let mut lines: Vec<String> = Vec::new();
    for line in examples.lines().map(str::trim) {
        match lines.last_mut() {
            Some(last) if last.ends_with('\\') => last.push_str(&format!("\n    {line}")),
            _ => lines.push(line.to_owned()),
        }
    }
    AfterHelp { notes: notes.trim_end().to_owned(), examples: lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::command_line;
    use crate::commands::shell::split;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    /// Calls `visit` with each command below this one, and its full name.
    fn each_command(command: &Command, name: &str, visit: &mut impl FnMut(&Command, &str)) {
        for below in command.get_subcommands().filter(|command| command.get_name() != "help") {
            let name = format!("{name} {}", below.get_name());
            visit(below, &name);
            each_command(below, &name, visit);
        }
    }

    #[test]
    fn every_help_has_examples_with_comments_and_each_is_a_valid_command_line() {
        let mut command = command_line::command();
        command.build();
        let mut lines = 0;
        each_command(&command, "tyrant", &mut |command, name| {
            let AfterHelp { examples, .. } = after_help(command);
            assert!(examples.len() >= 2, "{name} has no example");
            assert!(examples.iter().any(|line| line.contains(name)), "{name}: {examples:?}");
            assert!(examples[0].starts_with("# "), "{name}: {}", examples[0]);
            for line in examples.iter().filter(|line| !line.starts_with("# ")) {
                assert!(line.lines().all(|line| line.len() <= 78), "{name}: {line} is too long");
                check(&line.replace("\\\n", ""));
                lines += 1;
            }
        });
        assert!(lines > 60, "{lines} lines");
    }

    fn check(line: &str) {
        // The rest of the line is for the shell.
        let start = line.find("tyrant").expect(line);
        let ends = [" | ", " < ", " > ", " && ", "; "];
        let end = ends.iter().filter_map(|end| line.find(end)).min().unwrap_or(line.len());
        let words = split(&line.as_bytes()[start..end]).expect(line);
        let words: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
        if let Err(error) = command_line::parse(words) {
            panic!("{line}: {error}");
        }
    }
}
