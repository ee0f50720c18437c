//! Options that secure a connection: how TLS is used, and whether a login may do without it.

use super::{CONNECTION, variables};
use crate::errors::wrong_command_line;
use anyhow::Result;
use client::TlsSettings;
use std::path::PathBuf;

/// Options that secure a connection.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SecurityArgument {
    /// Connect with TLS, and verify the server by the authorities in this file (PEM)
    /// [env: TYRANT_TLS_CA]
    #[arg(long, help_heading = CONNECTION, value_name = "FILE")]
    pub(super) tls_ca: Option<PathBuf>,
    /// With TLS: expect this name in the server's certificate [env: TYRANT_TLS_NAME]
    /// [default: the host]
    #[arg(long, help_heading = CONNECTION, value_name = "NAME")]
    pub(super) tls_name: Option<String>,
    /// Connect with TLS without a check of the server's certificate; then a machine in between can
    /// read and change all [env: TYRANT_TLS_INSECURE=true]
    #[arg(long, help_heading = CONNECTION)]
    pub(super) tls_insecure: bool,
    /// With TLS: show the server this certificate (PEM) [env: TYRANT_CLIENT_CERT]
    #[arg(long, help_heading = CONNECTION, value_name = "FILE", requires = "tls_key")]
    pub(super) tls_cert: Option<PathBuf>,
    /// With TLS: the key of that certificate (PEM) [env: TYRANT_CLIENT_KEY]
    #[arg(long, help_heading = CONNECTION, value_name = "FILE", requires = "tls_cert")]
    pub(super) tls_key: Option<PathBuf>,
    /// Send the login without TLS to another machine too; then anyone in between can read the
    /// password [env: TYRANT_ALLOW_PLAIN_LOGIN=true]
    #[arg(long, help_heading = CONNECTION)]
    pub(super) allow_plain_login: bool,
}

impl SecurityArgument {
    /// Returns how TLS is used, by options or the environment, and whether one of them asks for it.
    pub(super) fn tls_settings(&self) -> Result<(TlsSettings, bool)> {
        let path = |option: &Option<PathBuf>, variable| {
            option.clone().or_else(|| variables::text(variable).map(PathBuf::from))
        };
        let identity = match &self.tls_cert {
            // An option and a variable do not make a pair.
            Some(certificate) => self.tls_key.clone().map(|key| (certificate.clone(), key)),
            None => match [variables::CLIENT_CERT, variables::CLIENT_KEY].map(variables::text) {
                [None, None] => None,
                [Some(certificate), Some(key)] => Some((certificate.into(), key.into())),
                _ => {
                    return Err(wrong_command_line(format_args!(
                        "{} and {} require each other",
                        variables::CLIENT_CERT,
                        variables::CLIENT_KEY
                    )));
                }
            },
        };
        let tls = TlsSettings {
            authorities: path(&self.tls_ca, variables::TLS_CA),
            server_name: self.tls_name.clone().or_else(|| variables::text(variables::TLS_NAME)),
            accepts_any_server: self.tls_insecure || variables::switch(variables::TLS_INSECURE)?,
            identity,
        };
        let is_used = tls.authorities.is_some()
            || tls.server_name.is_some()
            || tls.accepts_any_server
            || tls.identity.is_some();
        Ok((tls, is_used))
    }

    /// Returns whether a login may be sent without TLS to another machine.
    pub(super) fn allows_plain_login(&self) -> Result<bool> {
        Ok(self.allow_plain_login || variables::switch(variables::ALLOW_PLAIN_LOGIN)?)
    }

    /// Returns whether an option is about TLS.
    pub(super) fn has_tls(&self) -> bool {
        let files = [&self.tls_ca, &self.tls_cert, &self.tls_key];
        self.tls_insecure || self.tls_name.is_some() || files.into_iter().any(Option::is_some)
    }

    /// Returns whether the command line has one of these options.
    pub(crate) fn is_given(&self) -> bool {
        self.has_tls() || self.allow_plain_login
    }
}
