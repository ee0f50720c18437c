//! `tcrmgr`: Tokyo Tyrant's tool to talk to a running server, with its command line, output and
//! exit codes.

mod arguments;
mod functions;
mod http;
mod import;
mod manage;
mod records;
mod replicate;
mod text;

use anyhow::Result;
use arguments::{Invocation, Shape};
use std::io::{self, Write};
use std::process::ExitCode;

/// Executes an invocation and writes the results to the output.
type Command = fn(&Invocation, &mut dyn Write) -> Result<()>;

/// Every sub-command. Each has its own output; options with the same name mean the same.
const COMMANDS: &[(Shape, Command)] = &[
    (Shape { name: "inform", options: &["-port num", "-st"], operands: &["host"] }, manage::inform),
    (
        Shape {
            name: "put",
            options: &["-port num", "-sx", "-sep chr", "-dk", "-dc", "-dai", "-dad", "-ds width"],
            operands: &["host", "key", "value"],
        },
        records::put,
    ),
    (
        Shape {
            name: "out",
            options: &["-port num", "-sx", "-sep chr"],
            operands: &["host", "key"],
        },
        records::out,
    ),
    (
        Shape {
            name: "get",
            options: &["-port num", "-sx", "-sep chr", "-px", "-pz"],
            operands: &["host", "key"],
        },
        records::get,
    ),
    (
        Shape {
            name: "mget",
            options: &["-port num", "-sx", "-sep chr", "-px"],
            operands: &["host", "[key...]"],
        },
        records::get_many,
    ),
    (
        Shape {
            name: "list",
            options: &["-port num", "-sep chr", "-m num", "-pv", "-px", "-fm str"],
            operands: &["host"],
        },
        records::list,
    ),
    (
        Shape {
            name: "ext",
            options: &["-port num", "-xlr", "-xlg", "-sx", "-sep chr", "-px"],
            operands: &["host", "func", "[key]", "[value]"],
        },
        functions::ext,
    ),
    (Shape { name: "sync", options: &["-port num"], operands: &["host"] }, manage::sync),
    (
        Shape { name: "optimize", options: &["-port num"], operands: &["host", "[params]"] },
        manage::optimize,
    ),
    (Shape { name: "vanish", options: &["-port num"], operands: &["host"] }, manage::vanish),
    (Shape { name: "copy", options: &["-port num"], operands: &["host", "dpath"] }, manage::copy),
    (
        Shape {
            name: "misc",
            options: &["-port num", "-mnu", "-sx", "-sep chr", "-px"],
            operands: &["host", "func", "[arg...]"],
        },
        functions::misc,
    ),
    (
        Shape {
            name: "importtsv",
            options: &["-port num", "-nr", "-sc", "-sep chr"],
            operands: &["host", "[file]"],
        },
        import::tab_separated,
    ),
    (
        Shape {
            name: "restore",
            options: &["-port num", "-ts num", "-rcc"],
            operands: &["host", "upath"],
        },
        manage::restore,
    ),
    (
        Shape {
            name: "setmst",
            options: &["-port num", "-mport num", "-ts num", "-rcc"],
            operands: &["host", "[mhost]"],
        },
        manage::set_master,
    ),
    (
        Shape {
            name: "repl",
            options: &["-port num", "-ts num", "-sid num", "-ph"],
            operands: &["host"],
        },
        replicate::replicate,
    ),
    (Shape { name: "http", options: &["-ah name value", "-ih"], operands: &["url"] }, http::fetch),
    (Shape { name: "version", options: &[], operands: &[] }, manage::version),
];

/// Runs the program. Returns its exit code, 0 or 1.
pub fn run() -> ExitCode {
    let (program, mut arguments) = crate::arguments("tcrmgr");
    let name = arguments.next().unwrap_or_default();
    if name == "--help" {
        print!("{}", usage(&program));
        return ExitCode::SUCCESS;
    }
    // Both forms work, as in Tokyo Tyrant's programs.
    let name = if name == "--version" { "version".into() } else { name };
    let Some((shape, command)) = COMMANDS.iter().find(|(shape, _)| name == shape.name) else {
        let names: Vec<&str> = COMMANDS.iter().map(|(shape, _)| shape.name).collect();
        if !name.is_empty() {
            eprintln!("{program}: there is no sub-command {}", name.display());
        }
        eprintln!("usage: {program} SUBCOMMAND ...; they are {}", names.join(" "));
        eprintln!("\"{program} --help\" has their arguments");
        return ExitCode::FAILURE;
    };
    let invocation = match Invocation::parse(shape, arguments) {
        Ok(invocation) => invocation,
        Err(reason) => {
            eprintln!("{program}: {}: {reason}", shape.name);
            eprintln!("usage: {program} {}", shape.usage());
            eprintln!("\"{program} --help\" has all sub-commands");
            return ExitCode::FAILURE;
        }
    };
    let mut output = io::BufWriter::new(io::stdout().lock());
    let done = command(&invocation, &mut output).and_then(|()| Ok(output.flush()?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Results before an error are printed too, if the output is still open.
            let _ = output.flush();
            if !crate::is_broken_pipe(&error) {
                eprintln!("{program}: error: {}", text::error(&error));
            }
            ExitCode::FAILURE
        }
    }
}

/// Returns the usage of each sub-command, without the name of the program.
pub(crate) fn usages() -> impl Iterator<Item = String> {
    COMMANDS.iter().map(|(shape, _)| shape.usage())
}

fn usage(program: &str) -> String {
    let lines = usages().map(|usage| format!("  {program} {usage}\n"));
    std::iter::once("usage:\n".to_owned()).chain(lines).collect()
}

#[cfg(test)]
pub(crate) fn is_valid<'a>(mut arguments: impl Iterator<Item = &'a str>) -> bool {
    let name = arguments.next().unwrap_or_default();
    let found = COMMANDS.iter().find(|(shape, _)| name == shape.name);
    found.is_some_and(|(shape, _)| Invocation::parse(shape, arguments.map(Into::into)).is_ok())
}
