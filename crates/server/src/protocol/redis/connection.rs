//! Commands about the connection.

use super::{Failed, NO_INTEGER, RedisSession, SYNTAX, clients, integer, reply};
use crate::access::logins::Login;
use crate::protocol::Context;
use wire::redis::Arguments;
use wire::redis::reply::Version;

/// Version of Redis whose commands these are. Clients and frameworks ask for it.
pub const REDIS_VERSION: &str = "7.2.4";

/// Executes `PING`. The reply to a subscriber of version 2 has the form of a message.
pub(super) fn ping(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let is_message =
        context.session.subscriptions.is_some() && context.session.redis.version == Version::Two;
    match arguments.len() {
        0 | 1 if is_message => {
            reply::array(output, 2);
            reply::string(output, b"pong");
            echo(context, arguments, output)?;
        }
        0 => reply::simple(output, "PONG"),
        1 => echo(context, arguments, output)?,
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(())
}

/// Executes `ECHO`.
pub(super) fn echo(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let text = arguments.iter().next().unwrap_or_default();
    context.check_length(text.len())?;
    reply::string(output, text);
    Ok(())
}

/// Logs in the user of a name and a password.
fn log_in(context: &mut Context<'_>, name: &[u8], password: &[u8]) -> Result<(), Failed> {
    let before = context.session.peer.as_ref().and_then(|peer| peer.user().cloned());
    let login = context.authenticate("Redis's protocol", Some((name, password)))?;
    if !matches!(login, Login::User(_)) {
        // A login that fails leaves the one before.
        context.session.peer.get_or_insert_default().set_user(before);
    }
    match login {
        Login::User(_) => Ok(()),
        Login::Denied => {
            Err("WRONGPASS invalid username-password pair or user is disabled.".into())
        }
        Login::TooSoon { wait_s } => {
            Err(Failed::Text(format!("ERR too many failed logins: retry in {wait_s} s")))
        }
    }
}

/// Executes `AUTH`.
pub(super) fn authenticate(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    if arguments.len() > 2 {
        return Err(SYNTAX.into());
    }
    if context.shared.users.is_none() {
        return Err("ERR this server has no users: connect without a password".into());
    }
    let Some([name, password]) = arguments.exactly() else {
        return Err("WRONGPASS this server has users with names: AUTH NAME PASSWORD".into());
    };
    log_in(context, name, password)?;
    reply::simple(output, "OK");
    Ok(())
}

/// Executes `HELLO`.
pub(super) fn hello(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let mut strings = arguments.iter();
    let version = match strings.next() {
        None => context.session.redis.version,
        Some(text) => match integer(text) {
            Some(2) => Version::Two,
            Some(3) => Version::Three,
            Some(_) => return Err("NOPROTO unsupported protocol version".into()),
            None => return Err("ERR Protocol version is not an integer or out of range".into()),
        },
    };
    let (mut name, mut login) = (None, None);
    let has_users = context.shared.users.is_some();
    while let Some(option) = strings.next() {
        let (first, second) = (strings.next(), option.eq_ignore_ascii_case(b"AUTH"));
        match (second, first) {
            (true, Some(user)) if has_users => {
                login = Some((user, strings.next().ok_or(SYNTAX)?));
            }
            (true, Some(_)) => {
                return Err("ERR this server has no users: connect without a password".into());
            }
            (false, Some(given)) if option.eq_ignore_ascii_case(b"SETNAME") => {
                clients::check_name("Client names", given)?;
                name = Some(given);
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(Failed::Text(format!("ERR Syntax error in HELLO option '{option}'")));
            }
        }
    }
    if let Some((user, password)) = login {
        log_in(context, user, password)?;
    } else if !context.is_authenticated() {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                    HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
                    select the RESP protocol version at the same time"
            .into());
    }
    context.session.redis.version = version;
    if let Some(subscriptions) = &context.session.subscriptions {
        subscriptions.set_form(version as u8);
    }
    if let Some(name) = name {
        clients::set_name(context.session, name);
    }
    let pairs: [(&str, &str); 3] =
        [("server", "redis"), ("version", REDIS_VERSION), ("mode", "standalone")];
    reply::map(output, version, 7);
    for (name, value) in pairs {
        reply::string(output, name.as_bytes());
        reply::string(output, value.as_bytes());
    }
    reply::string(output, b"proto");
    reply::integer(output, if version == Version::Three { 3 } else { 2 });
    reply::string(output, b"id");
    reply::integer(output, clients::id(context));
    reply::string(output, b"role");
    reply::string(output, role(context).as_bytes());
    reply::string(output, b"modules");
    reply::array(output, 0);
    Ok(())
}

pub(super) fn role(context: &Context<'_>) -> &'static str {
    if context.shared.replication.followed().is_some() { "slave" } else { "master" }
}

/// Executes `RESET`.
pub(super) fn reset(context: &mut Context<'_>, output: &mut Vec<u8>) {
    let has_sent_array = context.session.redis.has_sent_array;
    context.session.redis = RedisSession { has_sent_array, ..RedisSession::default() };
    clients::set_name(context.session, b"");
    context.session.subscriptions = None;
    if context.shared.users.is_some() {
        context.log_out();
    }
    reply::simple(output, "RESET");
}

/// Executes `SELECT`.
pub(super) fn select(arguments: Arguments<'_>, output: &mut Vec<u8>) -> Result<(), Failed> {
    select_number(arguments.iter().next().unwrap_or_default())?;
    reply::simple(output, "OK");
    Ok(())
}

/// Fails for any number of a database but 0, which is that of the only one.
pub(super) fn select_number(number: &[u8]) -> Result<(), Failed> {
    match integer(number) {
        Some(0) => Ok(()),
        Some(_) => Err("ERR DB index is out of range".into()),
        None => Err(NO_INTEGER.into()),
    }
}
