//! Authentication over memcached's binary protocol: the mechanism PLAIN of SASL.

use super::Stop;
use crate::access::logins::Login;
use crate::protocol::Context;
use wire::memcached_binary::reply::{self, Status};
use wire::memcached_binary::{Echo, plain_credentials};

/// The only mechanism.
const MECHANISM: &[u8] = b"PLAIN";

/// Longest name of a mechanism, in bytes, as in memcached.
const MECHANISM_BYTES_MAX: usize = 32;

/// Lists the mechanisms.
pub(super) fn list_mechanisms(
    context: &Context<'_>,
    echo: Echo,
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    check_users(context)?;
    reply::text(output, echo, MECHANISM);
    Ok(())
}

/// Checks name and password. Without them, expects them with the next step.
pub(super) fn authenticate(
    context: &mut Context<'_>,
    echo: Echo,
    mechanism: &[u8],
    data: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    begin(context, mechanism)?;
    context.session.expects_credentials = mechanism == MECHANISM && data.is_empty();
    if context.session.expects_credentials {
        reply::authentication_continues(output, echo);
        return Ok(());
    }
    let credentials = plain_credentials(data).filter(|_| mechanism == MECHANISM);
    conclude(context, credentials, echo, output)
}

/// Checks name and password that come in a step of their own.
pub(super) fn go_on(
    context: &mut Context<'_>,
    echo: Echo,
    mechanism: &[u8],
    data: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    begin(context, mechanism)?;
    let is_expected = context.session.expects_credentials;
    let credentials = plain_credentials(data).filter(|_| is_expected);
    conclude(context, credentials, echo, output)
}

/// Ends the earlier login of the connection.
fn begin(context: &mut Context<'_>, mechanism: &[u8]) -> Result<(), Stop> {
    check_users(context)?;
    if mechanism.len() > MECHANISM_BYTES_MAX {
        return Err(Status::InvalidArguments.into());
    }
    context.log_out();
    Ok(())
}

fn conclude(
    context: &mut Context<'_>,
    credentials: Option<(&[u8], &[u8])>,
    echo: Echo,
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    let login = context.authenticate("memcached's binary protocol", credentials)?;
    context.session.expects_credentials = false;
    match login {
        Login::User(_) => reply::text(output, echo, b"Authenticated"),
        Login::Denied => return Err(Status::NotAuthenticated.into()),
        Login::TooSoon { .. } => {
            let text = "too many failed logins, retry later";
            reply::failure_with(output, echo, Status::NotAuthenticated, text);
        }
    }
    Ok(())
}

/// Fails on a server without users.
fn check_users(context: &Context<'_>) -> Result<(), Stop> {
    if context.shared.users.is_none() {
        return Err(Status::UnknownCommand.into());
    }
    Ok(())
}
