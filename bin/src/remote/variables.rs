//! Variables of the environment with which the commands connect to a server. Those of `serve` have
//! the names of its settings, so a client's certificate has another name than the server's.

use crate::errors::wrong_command_line;
use anyhow::Result;

/// Address of the server.
pub(crate) const SERVER: &str = "TYRANT_SERVER";
/// Whether to connect with TLS.
pub(super) const TLS: &str = "TYRANT_TLS";
/// File of the authorities that verify the server.
pub(super) const TLS_CA: &str = "TYRANT_TLS_CA";
/// Name in the server's certificate.
pub(super) const TLS_NAME: &str = "TYRANT_TLS_NAME";
/// Whether any server is accepted.
pub(super) const TLS_INSECURE: &str = "TYRANT_TLS_INSECURE";
/// File of the certificate that the server is shown.
pub(super) const CLIENT_CERT: &str = "TYRANT_CLIENT_CERT";
/// File of its key.
pub(super) const CLIENT_KEY: &str = "TYRANT_CLIENT_KEY";
/// Name of the user.
pub(super) const USER: &str = "TYRANT_USER";
/// Password of the user.
pub(super) const PASSWORD: &str = "TYRANT_PASSWORD";
/// File of both.
pub(super) const CREDENTIALS: &str = "TYRANT_CREDENTIALS";
/// Whether the login may be sent without TLS to another machine.
pub(super) const ALLOW_PLAIN_LOGIN: &str = "TYRANT_ALLOW_PLAIN_LOGIN";

/// All of them.
pub(crate) const VARIABLES: [&str; 11] = [
    SERVER,
    TLS,
    TLS_CA,
    TLS_NAME,
    TLS_INSECURE,
    CLIENT_CERT,
    CLIENT_KEY,
    USER,
    PASSWORD,
    CREDENTIALS,
    ALLOW_PLAIN_LOGIN,
];

/// Returns the text of a variable. An empty one counts as not set.
pub(super) fn text(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|text| !text.is_empty())
}

/// Returns whether a variable is on.
pub(super) fn switch(variable: &str) -> Result<bool> {
    match text(variable).unwrap_or_default().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "" | "false" | "no" | "off" | "0" => Ok(false),
        other => Err(wrong_command_line(format_args!(
            "the variable {variable} is {other:?}: set it to true or false"
        ))),
    }
}
