//! Login of a command: the user and the password from options, the environment or the terminal.

use super::variables::{CREDENTIALS, PASSWORD, USER, text};
use crate::password;
use anyhow::{Context, Result};
use client::Credentials;
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
