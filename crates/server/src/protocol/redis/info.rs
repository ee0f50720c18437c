//! Commands that describe the server.

use super::connection::{REDIS_VERSION, role};
use super::keys::records;
use super::pattern::{check, matches};
use super::{Failed, SYNTAX, reply};
use crate::admin::server_stats::{Process, uptime_seconds};
use crate::counters::Count;
use crate::ops::channels::Topic;
use crate::ops::command_mask;
use crate::protocol::Context;
use crate::store::events::ChosenEvents;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::Class;
use wire::RequestKind;
use wire::redis::{Arguments, ArgumentsIter, Command};

/// Settings of Redis that clients ask for, with what they mean here.
const SETTINGS: [(&str, &str); 6] = [
    ("appendonly", "yes"),
    ("databases", "1"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("save", ""),
    ("timeout", "0"),
];

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
    if part == "set" {
        return set(context, strings, output);
    }
    if strings.len() > PATTERNS_MAX {
        return Err("ERR CONFIG GET takes at most 16 patterns here".into());
    }
    let patterns: Vec<Vec<u8>> = strings.map(<[u8]>::to_ascii_lowercase).collect();
    patterns.iter().try_for_each(|pattern| check(pattern))?;
    let is_asked = |name: &str| patterns.iter().any(|pattern| matches(pattern, name.as_bytes()));
    let events = context.shared.served.events().to_string();
    let all = SETTINGS.into_iter().chain([(EVENTS, &*events)]);
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
        let known = SETTINGS.iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name));
        let (Some((name, present)), Some(value)) = (known, strings.next()) else {
            let name = String::from_utf8_lossy(name);
            return Err(Failed::Text(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            )));
        };
        if present.as_bytes() != value {
            return Err(Failed::Text(format!(
                "ERR {name} is {present:?} here: set what is to change in the server's \
                 configuration, and reload it"
            )));
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
        "getkeys" => append_keys(strings, output)?,
        "list" if strings.len() > 0 => return Err(SYNTAX.into()),
        "list" => {
            reply::array(output, Command::ALL.len());
            for command in Command::ALL {
                reply::string(output, command.name().as_bytes());
            }
        }
        "help" => {
            let lines =
                ["COMMAND [COUNT | DOCS | GETKEYS NAME ... | INFO [NAME ...] | LIST | HELP]"];
            reply::array(output, lines.len());
            lines.iter().for_each(|line| reply::simple(output, line));
        }
        _ => {
            reply::array(output, Command::ALL.len());
            Command::ALL.iter().for_each(|command| append_command(*command, output));
        }
    }
    Ok(())
}

/// Appends the keys of a request.
fn append_keys(mut strings: ArgumentsIter<'_>, output: &mut Vec<u8>) -> Result<(), Failed> {
    let command = Command::of_name(strings.next().unwrap_or_default());
    let command = command.ok_or("ERR Invalid command specified")?;
    let shape = command.shape();
    if shape.first_key == 0 && !command.counts_keys() {
        return Err("ERR The command has no key arguments".into());
    }
    if !shape.takes(strings.len() + 1) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let keys: Vec<_> = command.keys(strings.rest()).collect();
    reply::array(output, keys.len());
    keys.iter().for_each(|key| reply::string(output, key));
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

/// Executes `INFO`: all of it, whichever section is asked for.
pub(super) fn describe(context: &mut Context<'_>, output: &mut Vec<u8>) -> Result<(), Failed> {
    context.counters.count(Count::Stat);
    let records = records(context)?;
    let shared = context.shared;
    let (process, uptime_s) = (Process::now(), uptime_seconds(shared) as u64);
    let total = |what: Count| shared.counters.total(what);
    let role = role(context);
    let text = format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\narch_bits:64\r\n\
         process_id:{}\r\ntcp_port:{}\r\nuptime_in_seconds:{uptime_s}\r\nuptime_in_days:{}\r\n\
         \r\n# Clients\r\nconnected_clients:{}\r\nblocked_clients:0\r\n\
         \r\n# Memory\r\nused_memory:{}\r\nused_memory_rss:{}\r\nmaxmemory:0\r\n\
         maxmemory_policy:noeviction\r\n\
         \r\n# Persistence\r\nloading:0\r\naof_enabled:1\r\n\
         \r\n# Stats\r\ntotal_connections_received:{}\r\nkeyspace_hits:{}\r\nkeyspace_misses:{}\r\n\
         pubsub_channels:{}\r\npubsub_patterns:{}\r\n\
         \r\n# Replication\r\nrole:{role}\r\nconnected_slaves:{}\r\n\
         \r\n# CPU\r\nused_cpu_sys:{:.6}\r\nused_cpu_user:{:.6}\r\n\
         \r\n# Cluster\r\ncluster_enabled:0\r\n\
         \r\n# Keyspace\r\n",
        std::process::id(),
        shared.served.settings.port,
        uptime_s / 86_400,
        shared.connections(),
        process.resident_bytes,
        process.resident_bytes,
        total(Count::Accepted),
        total(Count::Get).saturating_sub(total(Count::GetMiss)),
        total(Count::GetMiss),
        shared.channels.number_of_names(Topic::Channel),
        shared.channels.number_of_names(Topic::Pattern),
        shared.replication.replicas(),
        process.system_seconds,
        process.user_seconds,
    );
    let keyspace = match records {
        0 => String::new(),
        records => format!("db0:keys={records},expires=0,avg_ttl=0\r\n"),
    };
    reply::verbatim(output, context.session.redis.version, &(text + &keyspace));
    Ok(())
}

/// Executes `TIME`.
pub(super) fn time(output: &mut Vec<u8>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    reply::array(output, 2);
    reply::string(output, now.as_secs().to_string().as_bytes());
    reply::string(output, now.subsec_micros().to_string().as_bytes());
}
