//! Login of a command: the user and the password from options, the environment or the terminal.

use super::variables::{CREDENTIALS, PASSWORD, USER, text};
use crate::password;
use anyhow::{Context, Result, anyhow};
use client::{Credentials, LoginRefusal};
use std::path::{Path, PathBuf};

/// Returns the login of a command with these options, if it has one. The command line has no
/// password, as other users of the machine see it.
pub(super) fn find(user: Option<&str>, file: Option<&Path>) -> Result<Option<Credentials>> {
    // An option comes before the environment.
    let user = match file {
        Some(_) => None,
        None => user.map(str::to_owned).or_else(|| text(USER)),
    };
    if let Some(user) = user {
        let password = match text(PASSWORD) {
            Some(password) => password,
            None => password::read(&user).with_context(|| {
                format!("give the password of {user} with --credentials or {PASSWORD}")
            })?,
        };
        return Ok(Some(Credentials::new(user, password)));
    }
    let file = file.map(Path::to_owned).or_else(|| text(CREDENTIALS).map(PathBuf::from));
    Ok(file.map(|file| Credentials::read(&file)).transpose()?)
}

/// Returns the error of a login that the server at an address has refused.
pub(super) fn refused(address: &str, user: &str, refusal: LoginRefusal) -> anyhow::Error {
    match refusal {
        LoginRefusal::Wrong => anyhow!(
            "the server at {address} refused the login of {user}: the name or the password is wrong; \
             check both, that the server's file of users has them (tyrant user list), and that it was \
             read since they were changed (tyrant reload, or SIGHUP)"
        ),
        LoginRefusal::TooMany => anyhow!(
            "the server at {address} refused the login of {user} without a look at the password: too \
             many logins from this machine have failed; correct the password, wait up to 16 seconds, \
             and try again"
        ),
        LoginRefusal::NoUsers => anyhow!(
            "the server at {address} has no users, so {user} cannot log in: leave out --user, \
             --credentials and their variables, or start the server with --users FILE"
        ),
    }
}
