//! Login of a command: the user and the password from options, the environment or the terminal.

use crate::password;
use anyhow::{Context, Result};
use client::Credentials;
use std::path::{Path, PathBuf};

/// Environment variable with the name of the user.
const USER_VARIABLE: &str = "TYRANT_USER";

/// Environment variable with the password of the user.
const PASSWORD_VARIABLE: &str = "TYRANT_PASSWORD";

/// Environment variable with the file of both.
const CREDENTIALS_VARIABLE: &str = "TYRANT_CREDENTIALS";

/// Returns the login of a command with these options, if it has one. The command line has no
/// password, as other users of the machine see it.
pub(super) fn find(user: Option<&str>, file: Option<&Path>) -> Result<Option<Credentials>> {
    let variable = |name| std::env::var(name).ok().filter(|text: &String| !text.is_empty());
    // An option comes before the environment.
    let user = match file {
        Some(_) => None,
        None => user.map(str::to_owned).or_else(|| variable(USER_VARIABLE)),
    };
    if let Some(user) = user {
        let password = match variable(PASSWORD_VARIABLE) {
            Some(password) => password,
            None => password::read(&user).with_context(|| {
                format!("give the password of {user} with --credentials or {PASSWORD_VARIABLE}")
            })?,
        };
        return Ok(Some(Credentials::new(user, password)));
    }
    let file =
        file.map(Path::to_owned).or_else(|| variable(CREDENTIALS_VARIABLE).map(PathBuf::from));
    Ok(file.map(|file| Credentials::read(&file)).transpose()?)
}
