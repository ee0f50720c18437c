//! `CLIENT`: the connections, as they are listed and ended, and settings of the own one.

use super::{Failed, NO_INTEGER, Replies, SYNTAX, integer, reply, too_many};
use crate::ops::command_mask;
use crate::ops::rights::{Need, Right};
use crate::protocol::{Context, Next};
use crate::shared::clients::{Activity, Client};
use std::sync::Arc;
use std::time::Instant;
use wire::redis::{Arguments, ArgumentsIter, Command};
use wire::{PROTOCOLS, RequestKind};

/// Longest name of a client, of its library, and of that one's version, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Connections from which on a list is made on a thread that may wait.
const INLINE_CLIENTS_MAX: usize = 256;

/// Name of the user of a connection that has none.
const DEFAULT_USER: &str = "default";

/// Executes `CLIENT`.
pub(super) fn execute(
    context: &mut Context<'_>,
    part: &str,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Failed> {
    let mut strings = arguments.iter();
    strings.next();
    let given = strings.clone().next().unwrap_or_default();
    match part {
        "id" => reply::integer(output, id(context)),
        "info" => {
            show_present(context);
            let own = context.session.listed.as_ref();
            let line = own.map_or_else(String::new, |client| line(context, client));
            reply::verbatim(output, context.session.redis.version, &line);
        }
        "list" => list(context, strings, output)?,
        "kill" => return kill(context, strings, output),
        "reply" => set_replies(context, given, output)?,
        "unblock" | "pause" if strings.len() > 2 => {
            return Err(too_many(Command::Client, arguments));
        }
        "unblock" => unblock(context, strings, output)?,
        "pause" => pause(context, strings, output)?,
        "unpause" => {
            require_admin(context)?;
            context.shared.pause.end();
            reply::simple(output, "OK");
        }
        "getredir" => reply::integer(output, -1),
        "trackinginfo" => append_tracking(context, output),
        "getname" => append_name(context, output),
        "setname" => {
            check_name("Client names", given)?;
            set_name(context, given);
            reply::simple(output, "OK");
        }
        "setinfo" => {
            set_library(context, strings)?;
            reply::simple(output, "OK");
        }
        // "no-evict" and "no-touch".
        _ if [&b"ON"[..], b"OFF"].iter().any(|one| one.eq_ignore_ascii_case(given)) => {
            reply::simple(output, "OK");
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(Next::GoOn)
}

/// Returns the number of the connection, which no other one of this server has had.
pub(super) fn id(context: &Context<'_>) -> i64 {
    let id = context.session.listed.as_ref().map_or(0, |client| client.id);
    i64::try_from(id).unwrap_or(i64::MAX)
}

/// Ends the request if the user may not see or end the connections of others.
pub(super) fn require_admin(context: &mut Context<'_>) -> Result<(), Failed> {
    Ok(context.require(command_mask::Command::Stat, Need::of_all(Right::Admin))?)
}

pub(super) fn check_name(what: &str, name: &[u8]) -> Result<(), Failed> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Failed::Text(format!("ERR {what} are at most 256 bytes long")));
    }
    if !name.iter().all(u8::is_ascii_graphic) {
        return Err(Failed::Text(format!(
            "ERR {what} cannot contain spaces, newlines or special characters."
        )));
    }
    Ok(())
}

/// Sets the name of the own connection.
pub(super) fn set_name(context: &Context<'_>, name: &[u8]) {
    if let Some(client) = &context.session.listed {
        client.rename(|names| names.name = name.into());
    }
}

fn append_name(context: &Context<'_>, output: &mut Vec<u8>) {
    let names = context.session.listed.as_ref().map(|client| client.names());
    match names.as_ref().map_or(&b""[..], |names| &names.name) {
        [] => reply::null(output, context.session.redis.version),
        name => reply::string(output, name),
    }
}

fn set_library(context: &Context<'_>, mut strings: ArgumentsIter<'_>) -> Result<(), Failed> {
    let (option, value) = (strings.next().unwrap_or_default(), strings.next().unwrap_or_default());
    let is_name = option.eq_ignore_ascii_case(b"LIB-NAME");
    if !is_name && !option.eq_ignore_ascii_case(b"LIB-VER") {
        let option = String::from_utf8_lossy(option);
        return Err(Failed::Text(format!("ERR Unrecognized option '{option}'")));
    }
    check_name(if is_name { "lib-name" } else { "lib-ver" }, value)?;
    if let Some(client) = &context.session.listed {
        client.rename(|names| match is_name {
            true => names.library = value.into(),
            false => names.library_version = value.into(),
        });
    }
    Ok(())
}

/// Executes `CLIENT REPLY`.
fn set_replies(
    context: &mut Context<'_>,
    given: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let replies = &mut context.session.redis.replies;
    if given.eq_ignore_ascii_case(b"ON") {
        *replies = Replies::On;
        reply::simple(output, "OK");
    } else if given.eq_ignore_ascii_case(b"OFF") {
        *replies = Replies::Off;
    } else if !given.eq_ignore_ascii_case(b"SKIP") {
        return Err(SYNTAX.into());
    } else if *replies != Replies::Off {
        *replies = Replies::SkipNext;
    }
    Ok(())
}

/// Executes `CLIENT UNBLOCK`: no connection waits for another client.
fn unblock(
    context: &mut Context<'_>,
    mut strings: ArgumentsIter<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let (id, reason) = (strings.next().unwrap_or_default(), strings.next());
    let is_reason = |given: &[u8]| {
        given.eq_ignore_ascii_case(b"TIMEOUT") || given.eq_ignore_ascii_case(b"ERROR")
    };
    if reason.is_some_and(|reason| !is_reason(reason)) {
        return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into());
    }
    integer(id).ok_or(NO_INTEGER)?;
    require_admin(context)?;
    reply::integer(output, 0);
    Ok(())
}

/// Executes `CLIENT PAUSE`.
fn pause(
    context: &mut Context<'_>,
    mut strings: ArgumentsIter<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let (timeout, mode) = (strings.next().unwrap_or_default(), strings.next());
    let is_of_all = match mode {
        Some(mode) if mode.eq_ignore_ascii_case(b"WRITE") => false,
        Some(mode) if !mode.eq_ignore_ascii_case(b"ALL") => {
            return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into());
        }
        _ => true,
    };
    let timeout_ms = integer(timeout).ok_or("ERR timeout is not an integer or out of range")?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| "ERR timeout is negative")?;
    require_admin(context)?;
    let now_ms = context.shared.milliseconds_at(Instant::now());
    context.shared.pause.begin(now_ms, timeout_ms, is_of_all);
    reply::simple(output, "OK");
    Ok(())
}

fn append_tracking(context: &Context<'_>, output: &mut Vec<u8>) {
    let version = context.session.redis.version;
    reply::map(output, version, 3);
    reply::string(output, b"flags");
    reply::set(output, version, 1);
    reply::string(output, b"off");
    reply::string(output, b"redirect");
    reply::integer(output, -1);
    reply::string(output, b"prefixes");
    reply::array(output, 0);
}

/// Type of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    Master,
    Replica,
    PubSub,
}

impl Kind {
    fn of(client: &Client) -> Self {
        match client.activity().subscriptions {
            _ if client.is_replica() => Self::Replica,
            [0, 0, 0] => Self::Normal,
            _ => Self::PubSub,
        }
    }

    fn parse(name: &[u8]) -> Result<Self, Failed> {
        let kinds: [(&[u8], Self); 5] = [
            (b"normal", Self::Normal),
            (b"master", Self::Master),
            (b"replica", Self::Replica),
            (b"slave", Self::Replica),
            (b"pubsub", Self::PubSub),
        ];
        let found = kinds.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, kind)| *kind).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Failed::Text(format!("ERR Unknown client type '{name}'"))
        })
    }
}

/// Executes `CLIENT LIST`.
fn list(
    context: &mut Context<'_>,
    mut strings: ArgumentsIter<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let (count, option) = (strings.len(), strings.next().unwrap_or_default());
    let (mut kind, mut ids) = (None, None);
    if count == 2 && option.eq_ignore_ascii_case(b"TYPE") {
        kind = Some(Kind::parse(strings.next().unwrap_or_default())?);
    } else if count > 1 && option.eq_ignore_ascii_case(b"ID") {
        let given: Option<Vec<i64>> = strings.map(integer).collect();
        ids = Some(given.ok_or("ERR Invalid client ID")?);
    } else if count > 0 {
        return Err(SYNTAX.into());
    }
    require_admin(context)?;
    show_present(context);
    let clients = &context.shared.clients;
    if clients.len().max(ids.as_ref().map_or(0, Vec::len)) > INLINE_CLIENTS_MAX {
        context.wait()?;
    }
    let found = match ids {
        Some(ids) => {
            let ids = ids.into_iter().filter_map(|id| u64::try_from(id).ok());
            ids.filter_map(|id| clients.get(id)).collect()
        }
        None => clients.all(),
    };
    let mut text = String::new();
    for client in found.iter().filter(|client| kind.is_none_or(|kind| Kind::of(client) == kind)) {
        text.push_str(&line(context, client));
        context.check_length(text.len())?;
    }
    reply::verbatim(output, context.session.redis.version, &text);
    Ok(())
}

/// Conditions that a connection meets which is to end.
#[derive(Default)]
struct Conditions<'i> {
    id: Option<u64>,
    kind: Option<Kind>,
    address: Option<&'i [u8]>,
    local: Option<&'i [u8]>,
    user: Option<&'i [u8]>,
    is_own_included: bool,
}

impl<'i> Conditions<'i> {
    fn parse(context: &Context<'_>, mut strings: ArgumentsIter<'i>) -> Result<Self, Failed> {
        let mut conditions = Self::default();
        while let Some(option) = strings.next() {
            let value = strings.next().ok_or(SYNTAX)?;
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            if is("ID") {
                let id = integer(value).and_then(|id| u64::try_from(id).ok());
                let id = id.filter(|id| *id > 0);
                conditions.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
            } else if is("TYPE") {
                conditions.kind = Some(Kind::parse(value)?);
            } else if is("ADDR") {
                conditions.address = Some(value);
            } else if is("LADDR") {
                conditions.local = Some(value);
            } else if is("USER") {
                check_user(context, value)?;
                conditions.user = Some(value);
            } else if is("SKIPME") && value.eq_ignore_ascii_case(b"NO") {
                conditions.is_own_included = true;
            } else if is("SKIPME") && value.eq_ignore_ascii_case(b"YES") {
                conditions.is_own_included = false;
            } else {
                return Err(SYNTAX.into());
            }
        }
        Ok(conditions)
    }

    fn are_met_by(&self, client: &Client) -> bool {
        let names = self.user.map(|_| client.names());
        let user = names.as_ref().and_then(|names| names.user.as_deref());
        self.id.is_none_or(|id| id == client.id)
            && self.kind.is_none_or(|kind| kind == Kind::of(client))
            && self.address.is_none_or(|address| client.ends.text(false).as_bytes() == address)
            && self.local.is_none_or(|local| client.ends.text(true).as_bytes() == local)
            && self.user.is_none_or(|name| name == user.unwrap_or(DEFAULT_USER).as_bytes())
    }
}

fn check_user(context: &Context<'_>, name: &[u8]) -> Result<(), Failed> {
    let is_known = match &context.shared.users {
        Some(users) => users.load().find(name).is_some(),
        None => name == DEFAULT_USER.as_bytes(),
    };
    if is_known {
        return Ok(());
    }
    Err(Failed::Text(format!("ERR No such user '{}'", String::from_utf8_lossy(name))))
}

/// Executes `CLIENT KILL`.
fn kill(
    context: &mut Context<'_>,
    mut strings: ArgumentsIter<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Failed> {
    let is_old_form = strings.len() == 1;
    let conditions = match is_old_form {
        true => {
            Conditions { address: strings.next(), is_own_included: true, ..Conditions::default() }
        }
        false => Conditions::parse(context, strings)?,
    };
    require_admin(context)?;
    let clients = &context.shared.clients;
    if clients.len() > INLINE_CLIENTS_MAX && conditions.id.is_none() {
        context.wait()?;
    }
    if let Some(own) = context.session.listed.as_ref() {
        context.session.show(own);
    }
    let (own, mut killed, mut next) = (id(context), 0, Next::GoOn);
    let found = conditions.id.map(|id| clients.get(id).into_iter().collect());
    for client in found.unwrap_or_else(|| clients.all()).iter() {
        let is_own = i64::try_from(client.id) == Ok(own);
        if is_own && !conditions.is_own_included || !conditions.are_met_by(client) {
            continue;
        }
        killed += 1;
        match is_own && !context.session.redis.transaction.is_executing() {
            // Its reply is sent first.
            true => next = Next::Close,
            false => clients.kill(client),
        }
    }
    match (is_old_form, killed) {
        (true, 0) => return Err("ERR No such client".into()),
        (true, _) => reply::simple(output, "OK"),
        (false, _) => reply::integer(output, killed),
    }
    Ok(next)
}

/// Shows in the list what the own connection does: the present request.
fn show_present(context: &mut Context<'_>) {
    context.session.last.0 = RequestKind::from(Command::Client);
    if let Some(own) = context.session.listed.as_ref() {
        context.session.show(own);
    }
}

/// Returns the line of a connection.
fn line(context: &Context<'_>, client: &Arc<Client>) -> String {
    let now = Instant::now();
    let (names, bytes, activity) = (client.names(), client.buffers(), client.activity());
    let Activity { queued, subscriptions: [channels, patterns, shards], .. } = activity;
    let idle_s = context.shared.milliseconds_at(now) / 1000;
    let idle_s = idle_s.saturating_sub(client.moved_at_s().max(started_s(context, client)));
    let (name, library) = (text(&names.name), text(&names.library));
    format!(
        "id={} addr={} laddr={} fd={} name={name} age={} idle={idle_s} flags={} db=0 \
         sub={channels} psub={patterns} ssub={shards} multi={} qbuf={} qbuf-free=0 argv-mem=0 \
         multi-mem={} rbs=0 rbp=0 obl={} oll=0 omem=0 tot-mem={} events={} cmd={} user={} redir=-1 \
         resp={} lib-name={library} lib-ver={}\n",
        client.id,
        client.ends.text(false),
        client.ends.text(true),
        client.descriptor,
        now.saturating_duration_since(client.since).as_secs(),
        flags(client, &activity),
        queued.map_or(-1, |count| i64::try_from(count).unwrap_or(i64::MAX)),
        bytes.input,
        activity.queued_bytes,
        bytes.output,
        bytes.total,
        if bytes.output > 0 { "rw" } else { "r" },
        command(activity.last),
        names.user.as_deref().unwrap_or(DEFAULT_USER),
        activity.version.max(2),
        text(&names.library_version),
    )
}

/// Returns when the connection began, in seconds since the server started.
fn started_s(context: &Context<'_>, client: &Client) -> u64 {
    context.shared.milliseconds_at(client.since) / 1000
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn flags(client: &Client, activity: &Activity) -> String {
    let flags = [
        ('S', client.is_replica()),
        ('P', activity.subscriptions != [0; 3]),
        ('b', client.is_waiting()),
        ('x', activity.queued.is_some()),
        ('c', client.is_killed()),
        ('U', client.ends.is_unix()),
    ];
    let set: String = flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).collect();
    if set.is_empty() { "N".to_owned() } else { set }
}

/// Returns the name of a request, with that of its subcommand.
fn command((kind, part): (RequestKind, u8)) -> String {
    if kind == RequestKind::NONE {
        return "NULL".to_owned();
    }
    let name = kind.command();
    let is_redis = kind.place().is_some_and(|place| PROTOCOLS[place].protocol == "redis");
    let command = Command::of_name(name.as_bytes()).filter(|_| is_redis);
    let parts = command.map_or(&[][..], Command::subcommands);
    match usize::from(part).checked_sub(1).and_then(|place| parts.get(place)) {
        Some(part) => format!("{name}|{}", part.name),
        None => name.to_owned(),
    }
}
