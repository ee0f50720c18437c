//! Pages of the programs with Tokyo Tyrant's command lines, from their usages.

use super::page::Page;
use crate::{tcrmgr, ttserver, ttulmgr};

/// Examples of each program.
const TTSERVER: &[&str] = &[
    "# Serve records in memory on port 1978",
    "ttserver",
    "# Serve a hash database as a daemon, with an update log",
    "ttserver -dmn -pid /var/run/ttserver.pid -log ttserver.log -ulog ulog -sid 1 casket.tch",
    "# Serve a tree that follows another server",
    "ttserver -ulog ulog -sid 2 -mhost 10.0.0.1 casket.tcb",
];
const TCRMGR: &[&str] = &[
    "# Store a record",
    "tcrmgr put 127.0.0.1 greeting hello",
    "# Print all records, as key, TAB, value",
    "tcrmgr list -pv 127.0.0.1",
    "# Print the status of a server on another port",
    "tcrmgr inform -port 1979 -st 127.0.0.1",
];
const TTULMGR: &[&str] = &[
    "# Print the operations of an update log since a time, in microseconds since 1970",
    "ttulmgr export -ts 1795264208000000 ulog",
    "# Copy an update log",
    "ttulmgr export ulog | ttulmgr import copy",
];

/// Returns the pages.
pub(super) fn pages() -> Vec<Page> {
    vec![ttserver(), tcrmgr(), ttulmgr()]
}

fn ttserver() -> Page {
    let mut page = Page::new("ttserver", 1, "the server with Tokyo Tyrant's command line");
    let usage = ttserver::usage("ttserver");
    let (synopsis, options) = usage.split_once("\n\n").unwrap_or((&usage, ""));
    page.section("SYNOPSIS");
    page.paragraph(synopsis.trim_start_matches("usage: "));
    page.section("DESCRIPTION");
    page.paragraph(
        "Serves a database to clients of Tokyo Tyrant, of memcached and of HTTP, with the options \
         of Tokyo Tyrant's server of this name. The database is *, one in memory, unless its name \
         is given. tyrant-serve(1) has more options.",
    );
    page.section("OPTIONS");
    for line in options.lines() {
        match line.strip_prefix("  ").and_then(|line| line.split_once("  ")) {
            Some((option, text)) => page.entry(option, text.trim()),
            None => page.paragraph(line),
        }
    }
    page.examples(TTSERVER);
    page.exit_status(1);
    page.files(&[("ttserver.pid", "Id of the process, with -dmn and without -pid.")]);
    page.see_also(&names(&["tyrant-serve", "tcrmgr", "ttulmgr"]))
}

fn tcrmgr() -> Page {
    let mut page = Page::new("tcrmgr", 1, "Tokyo Tyrant's tool to talk to a server");
    let usages: Vec<String> = tcrmgr::usages().collect();
    synopsis(&mut page, "tcrmgr", usages.iter().map(String::as_str));
    page.section("DESCRIPTION");
    page.paragraph(
        "Has the sub-commands, options and output of Tokyo Tyrant's tool of this name, for scripts \
         that use it. Options come before the other arguments. -port names the port (1978), -sx and \
         -px take and print hexadecimal, -sep names the character that stands for NUL. \
         tyrant(1) has the same commands with longer names, and more of them.",
    );
    page.examples(TCRMGR);
    page.exit_status(1);
    page.see_also(&names(&["tyrant", "ttserver", "ttulmgr"]))
}

fn ttulmgr() -> Page {
    let mut page = Page::new("ttulmgr", 1, "Tokyo Tyrant's tool for update logs");
    synopsis(&mut page, "ttulmgr", ttulmgr::USAGES);
    page.section("DESCRIPTION");
    page.paragraph(
        "export prints the operations in the update log of the folder upath, one per line, from \
         the time of -ts on and without those of the server of -sid. import appends the lines of \
         the standard input to such a log.",
    );
    page.examples(TTULMGR);
    page.exit_status(1);
    page.see_also(&names(&["tyrant-tail", "ttserver", "tcrmgr"]))
}

fn synopsis<'a>(page: &mut Page, program: &str, usages: impl IntoIterator<Item = &'a str>) {
    page.section("SYNOPSIS");
    for usage in usages {
        page.paragraph(&format!("{program} {usage}"));
    }
}

fn names(programs: &[&str]) -> Vec<String> {
    programs.iter().map(|program| format!("{program}(1)")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_a_valid_command_line() {
        let lines = [TTSERVER, TCRMGR, TTULMGR].concat();
        let lines = lines.iter().filter(|line| !line.starts_with("# "));
        for command in lines.flat_map(|line| line.split(" | ")) {
            let (program, arguments) = command.split_once(' ').unwrap_or((command, ""));
            let arguments = arguments.split_whitespace();
            let is_valid = match program {
                "ttserver" => ttserver::is_valid(arguments),
                "tcrmgr" => tcrmgr::is_valid(arguments),
                "ttulmgr" => ttulmgr::is_valid(arguments),
                other => panic!("{other}"),
            };
            assert!(is_valid, "{command}");
        }
    }
}
