//! A manual page: text with the marks of `man`.

use crate::VERSION;
use clap_mangen::roff::{Roff, bold, roman};

/// Returns a document without the lines that begin each.
fn without_beginning(document: &str) -> &str {
    document.strip_prefix(&Roff::new().render()).unwrap_or(document)
}

/// A manual page that is being written.
pub(super) struct Page {
    name: String,
    section: u8,
    /// Complete part, without the lines that begin each document.
    done: String,
    /// Part after it.
    roff: Roff,
}

impl Page {
    /// Begins the page of `name` in a section of the manual, with a line about it.
    pub(super) fn new(name: &str, section: u8, about: &str) -> Self {
        let mut roff = Roff::new();
        let (number, source) = (section.to_string(), format!("tyrant {VERSION}"));
        roff.control("TH", [name, &number, "", &source, "Tyrant"]);
        roff.control("SH", ["NAME"]);
        roff.text([roman(format!("{name} - {about}"))]);
        Self { name: name.to_owned(), section, done: String::new(), roff }
    }

    /// Returns the name of the file.
    pub(super) fn file(&self) -> String {
        format!("{}.{}", self.name, self.section)
    }

    pub(super) fn text(&self) -> String {
        format!("{}{}{}", Roff::new().render(), self.done, without_beginning(&self.roff.render()))
    }

    /// Appends a document that other code has written.
    pub(super) fn append(&mut self, document: &str) {
        self.done.push_str(without_beginning(&std::mem::take(&mut self.roff).render()));
        self.done.push_str(without_beginning(document));
    }

    pub(super) fn section(&mut self, title: &str) {
        self.roff.control("SH", [title]);
    }

    pub(super) fn subsection(&mut self, title: &str) {
        self.roff.control("SS", [title]);
    }

    pub(super) fn paragraph(&mut self, text: &str) {
        self.roff.control("PP", []);
        self.lines(text);
    }

    /// Appends a term with what it means.
    pub(super) fn entry(&mut self, term: &str, text: &str) {
        self.roff.control("TP", []);
        self.roff.text([bold(term)]);
        self.lines(text);
    }

    fn lines(&mut self, text: &str) {
        for line in text.lines() {
            if line.trim().is_empty() {
                self.roff.control("PP", []);
                continue;
            }
            if line.starts_with(' ') {
                self.roff.control("br", []);
            }
            self.roff.text([roman(line.trim_start())]);
        }
    }

    /// Appends command lines, each after comments (`# ...`) about it.
    pub(super) fn examples<S: AsRef<str>>(&mut self, lines: &[S]) {
        self.section("EXAMPLES");
        for line in lines {
            let line = line.as_ref();
            if let Some(comment) = line.strip_prefix("# ") {
                self.paragraph(&format!("{comment}:"));
                continue;
            }
            self.roff.control("PP", []);
            self.roff.control("RS", ["4"]);
            self.roff.control("nf", []);
            for part in line.lines() {
                self.roff.text([roman(part)]);
            }
            self.roff.control("fi", []);
            self.roff.control("RE", []);
        }
    }

    /// Appends the exit codes of a program; a wrong command line has its own in `tyrant` alone.
    pub(super) fn exit_status(&mut self, of_wrong_command_line: u8) {
        self.section("EXIT STATUS");
        self.entry("0", "It is done.");
        match of_wrong_command_line {
            1 => self.entry(
                "1",
                "It failed, or the command line is wrong; the standard error has the reason.",
            ),
            other => {
                self.entry("1", "It failed; the standard error has the reason.");
                self.entry(&other.to_string(), "The command line is wrong; nothing was done.");
            }
        }
        self.entry(
            "more than 128",
            "It was ended by a signal, whose number the shell adds to 128: 130 after Ctrl-C.",
        );
    }

    pub(super) fn files(&mut self, files: &[(&str, &str)]) {
        if files.is_empty() {
            return;
        }
        self.section("FILES");
        for (path, text) in files {
            self.entry(path, text);
        }
    }

    /// Ends the page with the names of others, such as `tyrant(1)`.
    pub(super) fn see_also(mut self, references: &[String]) -> Self {
        self.section("SEE ALSO");
        self.roff.text([roman(references.join(", "))]);
        self
    }
}
