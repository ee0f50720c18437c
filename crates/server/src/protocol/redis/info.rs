//! Commands that describe the server.

use super::pattern::{check, matches};
use super::{Failed, SYNTAX, reply};
use crate::ops::command_mask;
use crate::protocol::Context;
use crate::store::events::ChosenEvents;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::Class;
use wire::RequestKind;
use wire::redis::{Arguments, ArgumentsIter, Command};

/// A setting of Redis that clients ask for.
struct Setting {
    name: &'static str,
    value: &'static str,
    /// The setting of this server that is meant.
    advice: &'static str,
}

const SETTINGS: [Setting; 6] = [
    setting(
        "appendonly",
        "yes",
        "durability in the database's name says when a change is on the disk",
    ),
    setting("databases", "1", "a section [[database]] of the configuration for each"),
    setting(
        "maxmemory",
        "0",
        "capsiz in the database's name, or memory if it is in memory, and a restart",
    ),
    setting(
        "maxmemory-policy",
        "noeviction",
        "capsiz in the database's name evicts, and a restart",
    ),
    setting("save", "", "tyrant backup makes copies"),
    setting("timeout", "0", "idle-timeout in the configuration, and tyrant reload"),
];

const fn setting(name: &'static str, value: &'static str, advice: &'static str) -> Setting {
    Setting { name, value, advice }
}

impl Setting {
    fn value(&self, context: &Context<'_>) -> &'static str {
        match self.name {
            "appendonly" if context.shared.served.is_on_memory() => "no",
            _ => self.value,
        }
    }
}

/// Name of the setting of keyspace events.
const EVENTS: &str = "notify-keyspace-events";

/// Most patterns of one `CONFIG GET`.
const PATTERNS_MAX: usize = 16;

/// Executes `CONFIG`.
pub(super) fn settings(
    context: &mut Context<'_>,
    part: &str,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let mut strings = arguments.iter();
    strings.next();
    match part {
        "set" => return set(context, strings, output),
        "resetstat" => {
            context.permit_command(command_mask::Command::Optimize)?;
            context.shared.counters.reset_totals();
            reply::simple(output, "OK");
            return Ok(());
        }
        _ => {}
    }
    if strings.len() > PATTERNS_MAX {
        return Err("ERR CONFIG GET takes at most 16 patterns here".into());
    }
    let patterns: Vec<Vec<u8>> = strings.map(<[u8]>::to_ascii_lowercase).collect();
    patterns.iter().try_for_each(|pattern| check(pattern))?;
    let is_asked = |name: &str| patterns.iter().any(|pattern| matches(pattern, name.as_bytes()));
    let events = context.shared.served.events().to_string();
    let all = SETTINGS.iter().map(|setting| (setting.name, setting.value(context)));
    let all = all.chain([(EVENTS, &*events)]);
    let found: Vec<_> = all.filter(|(name, _)| is_asked(name)).collect();
    reply::map(output, context.session.redis.version, found.len());
    for (name, value) in found {
        reply::string(output, name.as_bytes());
        reply::string(output, value.as_bytes());
    }
    Ok(())
}

/// Executes `CONFIG SET`, which chooses events, and otherwise may set what is set already.
fn set(
    context: &mut Context<'_>,
    mut strings: ArgumentsIter<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    if !strings.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let mut chosen = None;
    while let Some(name) = strings.next() {
        if name.eq_ignore_ascii_case(EVENTS.as_bytes()) {
            let letters = String::from_utf8_lossy(strings.next().unwrap_or_default());
            let parsed = letters.parse::<ChosenEvents>();
            chosen = Some(parsed.map_err(|error| {
                Failed::Text(format!("ERR CONFIG SET failed - {EVENTS}: {error}"))
            })?);
            continue;
        }
        let is_known = |known: &&Setting| known.name.as_bytes().eq_ignore_ascii_case(name);
        let known = SETTINGS.iter().find(is_known);
        let (Some(known), Some(value)) = (known, strings.next()) else {
            let name = String::from_utf8_lossy(name);
            return Err(Failed::Text(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            )));
        };
        let (present, Setting { name, advice, .. }) = (known.value(context), known);
        if present.as_bytes() != value {
            return Err(Failed::Text(format!("ERR {name} is {present:?} here: {advice}")));
        }
    }
    if let Some(chosen) = chosen {
        context.permit_command(command_mask::Command::Optimize)?;
        context.local("keyspace events")?;
        context.shared.served.choose_events(chosen);
    }
    reply::simple(output, "OK");
    Ok(())
}

/// Executes `COMMAND`.
pub(super) fn commands(
    context: &mut Context<'_>,
    part: &str,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let mut strings = arguments.iter();
    strings.next();
    match part {
        "count" => reply::integer(output, Command::ALL.len() as i64),
        "info" if strings.len() > 0 => {
            let start = output.len();
            reply::array(output, strings.len());
            for name in strings {
                context.check_length(output.len() - start)?;
                match Command::of_name(name) {
                    Some(command) => append_command(command, output),
                    None => reply::null(output, context.session.redis.version),
                }
            }
        }
        // The page of the commands is in the documentation.
        "docs" => reply::map(output, context.session.redis.version, 0),
        "getkeys" => append_keys(context, strings, output)?,
        "list" if strings.len() > 0 => return Err(SYNTAX.into()),
        "list" => {
            reply::array(output, Command::ALL.len());
            for command in Command::ALL {
                reply::string(output, command.name().as_bytes());
            }
        }
        _ => {
            reply::array(output, Command::ALL.len());
            Command::ALL.iter().for_each(|command| append_command(*command, output));
        }
    }
    Ok(())
}

/// Appends the keys of a request.
fn append_keys(
    context: &mut Context<'_>,
    mut strings: ArgumentsIter<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let command = Command::of_name(strings.next().unwrap_or_default());
    let command = command.ok_or("ERR Invalid command specified")?;
    let shape = command.shape();
    if shape.first_key == 0 && !command.counts_keys() {
        return Err("ERR The command has no key arguments".into());
    }
    if !shape.takes(strings.len() + 1) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let keys = || command.keys(strings.rest());
    let (start, count) = (output.len(), keys().count());
    reply::array(output, count);
    for key in keys() {
        context.check_length(output.len() - start + key.len())?;
        reply::string(output, key);
    }
    Ok(())
}

fn append_command(command: Command, output: &mut Vec<u8>) {
    let shape = command.shape();
    reply::array(output, 10);
    reply::string(output, command.name().as_bytes());
    reply::integer(output, shape.arity.into());
    reply::array(output, 1);
    reply::simple(
        output,
        match RequestKind::from(command).class() {
            Class::Write => "write",
            Class::Read | Class::List => "readonly",
            Class::Script | Class::Other => "loading",
        },
    );
    for number in [shape.first_key, shape.last_key, shape.step] {
        reply::integer(output, number.into());
    }
    // Categories, hints, places of keys and subcommands, which only clients of clusters use.
    (0..4).for_each(|_| reply::array(output, 0));
}

/// Executes `TIME`.
pub(super) fn time(output: &mut Vec<u8>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    reply::array(output, 2);
    reply::string(output, now.as_secs().to_string().as_bytes());
    reply::string(output, now.subsec_micros().to_string().as_bytes());
}
