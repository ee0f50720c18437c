//! `CLIENT`: the connections, as they are listed and ended, and settings of the own one.

use super::{Failed, NO_INTEGER, Replies, SYNTAX, integer, reply, saturated, shortened, too_many};
use crate::ops::command_mask;
use crate::ops::rights::{Need, Right};
use crate::protocol::session::Session;
use crate::protocol::{Context, Next};
use crate::shared::clients::{Client, ClientState, Names, Unblock};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use wire::redis::{Arguments, ArgumentsIter, Command};
use wire::{PROTOCOLS, RequestKind};

/// Longest name of a client, of its library, and of that one's version, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Least bytes of the line of a connection.
const LINE_BYTES_MIN: usize = 200;

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
            let own = context.session.id;
            let lines = lines_of(context, move |client| client.state.id == own)?;
            reply::verbatim(output, context.session.redis.version, &lines);
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
            set_name(context.session, given);
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
    saturated(context.session.id)
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

/// Changes the names of the own connection.
fn rename(session: &mut Session, change: impl FnOnce(&mut Names)) {
    change(Arc::make_mut(session.names.get_or_insert_default()));
}

/// Sets the name of the own connection, or removes it.
pub(super) fn set_name(session: &mut Session, name: &[u8]) {
    if session.names.is_some() || !name.is_empty() {
        rename(session, |names| names.name = name.into());
    }
}

fn append_name(context: &Context<'_>, output: &mut Vec<u8>) {
    match context.session.names.as_ref().map_or(&b""[..], |names| &names.name) {
        [] => reply::null(output, context.session.redis.version),
        name => reply::string(output, name),
    }
}

fn set_library(context: &mut Context<'_>, mut strings: ArgumentsIter<'_>) -> Result<(), Failed> {
    let (option, value) = (strings.next().unwrap_or_default(), strings.next().unwrap_or_default());
    let is_name = option.eq_ignore_ascii_case(b"LIB-NAME");
    if !is_name && !option.eq_ignore_ascii_case(b"LIB-VER") {
        let option = String::from_utf8_lossy(shortened(option));
        return Err(Failed::Text(format!("ERR Unrecognized option '{option}'")));
    }
    check_name(if is_name { "lib-name" } else { "lib-ver" }, value)?;
    rename(context.session, |names| match is_name {
        true => names.lib_name = value.into(),
        false => names.lib_version = value.into(),
    });
    Ok(())
}

/// Returns whether arguments of `CLIENT` end replies: those to a transaction could not be counted.
pub(super) fn withholds_replies(arguments: Arguments<'_>) -> bool {
    let is = |given: &[u8], name: &str| given.eq_ignore_ascii_case(name.as_bytes());
    let [part, mode] = arguments.exactly().unwrap_or_default();
    is(part, "REPLY") && (is(mode, "OFF") || is(mode, "SKIP"))
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

/// Executes `CLIENT UNBLOCK`, which ends the wait of another connection for replicas.
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
    let id = integer(id).ok_or(NO_INTEGER)?;
    require_admin(context)?;
    let unblock = match reason {
        Some(reason) if reason.eq_ignore_ascii_case(b"ERROR") => Unblock::Error,
        _ => Unblock::Timeout,
    };
    let clients = &context.shared.clients;
    let is_unblocked = u64::try_from(id).is_ok_and(|id| clients.unblock(id, unblock));
    reply::integer(output, i64::from(is_unblocked));
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
        match client.state.subscriptions {
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
            let name = String::from_utf8_lossy(shortened(name));
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
    let text = lines_of(context, move |client| {
        let id = saturated(client.state.id);
        kind.is_none_or(|kind| Kind::of(client) == kind)
            && ids.as_ref().is_none_or(|ids| ids.contains(&id))
    })?;
    reply::verbatim(output, context.session.redis.version, &text);
    Ok(())
}

/// Visits all connections, and the own one with the state that it has now. Returns once all event
/// loops have done so.
fn visit(
    context: &mut Context<'_>,
    visit: impl Fn(&Client) -> bool + Send + Sync + 'static,
) -> Result<(), Failed> {
    context.wait()?;
    context.session.last.0 = RequestKind::from(Command::Client);
    let own = context.session.state();
    let shared = context.shared;
    let is_stopping = || shared.served.is_stopping();
    let visited =
        shared.clients.visit(is_stopping, move |client| match client.state.id == own.id {
            true => visit(&Client { state: own.clone(), ..client.clone() }),
            false => visit(client),
        });
    match visited {
        true => Ok(()),
        false => Err("ERR the event loops are busy, or the server is stopping: try again".into()),
    }
}

/// Returns the lines of the connections that meet a condition, by their ids.
fn lines_of(
    context: &mut Context<'_>,
    is_shown: impl Fn(&Client) -> bool + Send + Sync + 'static,
) -> Result<String, Failed> {
    let (lines, bytes_max) = (Arc::new(Mutex::new(BTreeMap::new())), lines_max(context));
    let shown = Arc::clone(&lines);
    visit(context, move |client| {
        let mut lines = shown.lock();
        if is_shown(client) && lines.len() < bytes_max {
            lines.insert(client.state.id, line(client));
        }
        false
    })?;
    let lines = std::mem::take(&mut *lines.lock());
    let text: String = lines.into_values().collect();
    context.check_length(text.len())?;
    Ok(text)
}

/// Returns the number of lines from which on a reply is too long.
fn lines_max(context: &Context<'_>) -> usize {
    context.shared.config.reply_bytes_max / LINE_BYTES_MIN + 1
}

/// Conditions that a connection meets which is to end.
#[derive(Default)]
struct Conditions {
    id: Option<u64>,
    kind: Option<Kind>,
    address: Option<Vec<u8>>,
    local: Option<Vec<u8>>,
    user: Option<Vec<u8>>,
    is_own_included: bool,
}

impl Conditions {
    fn parse(context: &Context<'_>, mut strings: ArgumentsIter<'_>) -> Result<Self, Failed> {
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
                conditions.address = Some(value.into());
            } else if is("LADDR") {
                conditions.local = Some(value.into());
            } else if is("USER") {
                check_user(context, value)?;
                conditions.user = Some(value.into());
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
        let is = |wanted: &Option<Vec<u8>>, text: &dyn Fn() -> String| {
            wanted.as_ref().is_none_or(|wanted| *wanted == text().into_bytes())
        };
        self.id.is_none_or(|id| id == client.state.id)
            && self.kind.is_none_or(|kind| kind == Kind::of(client))
            && is(&self.address, &|| client.ends.client())
            && is(&self.local, &|| client.ends.server())
            && is(&self.user, &|| user(client).to_owned())
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
    Err(Failed::Text(format!("ERR No such user '{}'", String::from_utf8_lossy(shortened(name)))))
}

/// Executes `CLIENT KILL`.
fn kill(
    context: &mut Context<'_>,
    mut strings: ArgumentsIter<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Failed> {
    let is_old_form = strings.len() == 1;
    let conditions = match is_old_form {
        true => Conditions {
            address: strings.next().map(<[u8]>::to_vec),
            is_own_included: true,
            ..Conditions::default()
        },
        false => Conditions::parse(context, strings)?,
    };
    require_admin(context)?;
    let own = context.session.id;
    let found = Arc::new(Mutex::new(BTreeSet::new()));
    let ended = Arc::clone(&found);
    visit(context, move |client| {
        let id = client.state.id;
        let is_met = (id != own || conditions.is_own_included) && conditions.are_met_by(client);
        if is_met {
            ended.lock().insert(id);
        }
        // The reply is sent before the own connection ends.
        is_met && id != own
    })?;
    let found = found.lock();
    let killed = saturated(found.len());
    let next = if found.contains(&own) { Next::Close } else { Next::GoOn };
    match (is_old_form, killed) {
        (true, 0) => return Err("ERR No such client".into()),
        (true, _) => reply::simple(output, "OK"),
        (false, _) => reply::integer(output, killed),
    }
    Ok(next)
}

/// Returns the name of the user of a connection.
fn user(client: &Client) -> &str {
    client.state.user.as_ref().map_or(DEFAULT_USER, |user| user.name())
}

/// Returns the line of a connection.
fn line(client: &Client) -> String {
    let ClientState { id, queued, subscriptions: [channels, patterns, shards], .. } = client.state;
    let names = client.state.names.as_deref().cloned().unwrap_or_default();
    let (name, library) = (text(&names.name), text(&names.lib_name));
    format!(
        "id={id} addr={} laddr={} fd={} name={name} age={} idle={} flags={} db=0 sub={channels} \
         psub={patterns} ssub={shards} multi={} qbuf={} qbuf-free=0 argv-mem=0 multi-mem={} rbs=0 \
         rbp=0 obl={} oll=0 omem=0 tot-mem={} events={} cmd={} user={} redir=-1 resp={} \
         lib-name={library} lib-ver={}\n",
        client.ends.client(),
        client.ends.server(),
        client.descriptor,
        client.age_s,
        client.idle_s,
        flags(client),
        queued.map_or(-1, saturated),
        client.input_bytes,
        client.state.queued_bytes,
        client.output_bytes,
        client.total_bytes,
        if client.output_bytes > 0 { "rw" } else { "r" },
        command(client.state.last),
        user(client),
        client.state.version.max(2),
        text(&names.lib_version),
    )
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn flags(client: &Client) -> String {
    let ClientState { subscriptions, is_waiting, queued, .. } = client.state;
    let flags = [
        ('P', subscriptions != [0; 3]),
        ('b', is_waiting),
        ('x', queued.is_some()),
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
