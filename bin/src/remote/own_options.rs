//! Options of a command that connects to several servers, for one of them.

use super::{SecurityArgument, ServerArgument};
use client::Address;
use std::str::FromStr;
use std::sync::OnceLock;

/// Address of a server, and the options of connections to it in place of those for all servers:
/// `HOST:PORT,OPTION[,OPTION...]`.
#[derive(Clone, Debug)]
pub(crate) struct OwnOptions {
    pub(crate) address: Address,
    /// Address to connect to in place of that one.
    pub(crate) at: Option<Address>,
    options: ServerArgument,
    /// Whether there is no login, whatever the options for all servers are.
    has_no_login: bool,
}

impl FromStr for OwnOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let address = parts.next().unwrap_or_default();
        let address = super::parse(address).map_err(|error| error.to_string())?;
        let mut options = ServerArgument::default();
        let (mut is_empty, mut has_no_login, mut at) = (true, false, None);
        for part in parts {
            is_empty = false;
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name, Some(value).filter(|value| !value.is_empty())),
                None => (part, None),
            };
            match (name, value) {
                ("at", Some(other)) => {
                    at = Some(super::parse(other).map_err(|error| error.to_string())?);
                }
                ("plain", None) => options.is_plain = true,
                ("tls", None) => options.tls = true,
                ("tls-insecure", None) => options.security.tls_insecure = true,
                ("no-login", None) => has_no_login = true,
                ("allow-plain-login", None) => options.security.allow_plain_login = true,
                ("tls-ca", Some(file)) => options.security.tls_ca = Some(file.into()),
                ("tls-name", Some(name)) => options.security.tls_name = Some(name.to_owned()),
                ("tls-cert", Some(file)) => options.security.tls_cert = Some(file.into()),
                ("tls-key", Some(file)) => options.security.tls_key = Some(file.into()),
                ("credentials", Some(file)) => options.credentials = Some(file.into()),
                _ => {
                    return Err(format!(
                        "{part:?} is not an option of a server: give at=HOST:PORT, plain, tls, \
                         tls-ca=FILE, tls-name=NAME, tls-insecure, tls-cert=FILE, tls-key=FILE, \
                         credentials=FILE, no-login or allow-plain-login"
                    ));
                }
            }
        }
        if is_empty {
            return Err("give the options after the address, as in HOST:PORT,tls-ca=FILE".into());
        }
        if options.security.tls_cert.is_some() != options.security.tls_key.is_some() {
            return Err("tls-cert and tls-key require each other".into());
        }
        if options.is_plain && options.has_tls() {
            return Err("plain excludes the options of TLS".into());
        }
        if has_no_login && options.credentials.is_some() {
            return Err("no-login excludes credentials".into());
        }
        Ok(Self { address, at, options, has_no_login })
    }
}

impl OwnOptions {
    /// Returns these options, and for what they do not have those for all servers.
    pub(crate) fn over(&self, common: &ServerArgument) -> ServerArgument {
        let own = self.options.clone();
        let has_identity = own.security.tls_cert.is_some();
        let has_login = own.credentials.is_some() || self.has_no_login;
        let common = common.clone();
        let (security, others) = (own.security, common.security);
        ServerArgument {
            server: None,
            tls: own.tls || common.tls,
            security: SecurityArgument {
                tls_insecure: security.tls_insecure
                    || others.tls_insecure && security.tls_ca.is_none(),
                tls_ca: security.tls_ca.or(others.tls_ca),
                tls_name: security.tls_name.or(others.tls_name),
                tls_cert: if has_identity { security.tls_cert } else { others.tls_cert },
                tls_key: if has_identity { security.tls_key } else { others.tls_key },
                allow_plain_login: security.allow_plain_login || others.allow_plain_login,
            },
            user: common.user.filter(|_| !has_login),
            credentials: if has_login { own.credentials } else { common.credentials },
            is_plain: own.is_plain,
            login: match (self.has_no_login, has_login) {
                // Known to be none, whatever the environment has.
                (true, _) => OnceLock::from(None),
                (false, true) => OnceLock::new(),
                // A password that was typed is typed once.
                (false, false) => common.login,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn own_options_replace_those_for_all_servers() {
        let common = ServerArgument {
            security: SecurityArgument {
                tls_ca: Some("common.pem".into()),
                tls_insecure: true,
                ..SecurityArgument::default()
            },
            user: Some("ann".to_owned()),
            ..ServerArgument::default()
        };
        let over = |text: &str| {
            let own: OwnOptions = text.parse().expect("options");
            assert_eq!(own.address, Address::from(("::1", 1979)));
            own.over(&common)
        };
        let own = over("[::1]:1979,tls-ca=own.pem,credentials=file");
        assert_eq!(own.security.tls_ca.as_deref(), Some(Path::new("own.pem")));
        assert_eq!(own.credentials.as_deref(), Some(Path::new("file")));
        assert!(own.user.is_none() && !own.security.tls_insecure && !own.is_plain);
        let own = over("[::1]:1979,no-login");
        assert!(own.user.is_none() && own.credentials.is_none() && own.security.tls_insecure);
        assert!(own.login.get().is_some_and(Option::is_none), "the environment would be asked");
        let own = over("[::1]:1979,tls-name=n,allow-plain-login");
        assert_eq!(own.security.tls_ca.as_deref(), Some(Path::new("common.pem")));
        assert!(own.security.allow_plain_login && own.security.tls_insecure && own.user.is_some());
        let common = ServerArgument { tls: true, ..ServerArgument::default() };
        let plain: OwnOptions = "h:1,plain".parse().expect("options");
        assert!(plain.over(&common).settings().expect("settings").tls.is_none());
    }

    #[test]
    fn options_that_are_none_are_named() {
        for (text, reason) in [
            ("h:x,tls", "\"h:x\" is not an address"),
            ("h:1", "give the options after the address"),
            ("h:1,tls-ca", "\"tls-ca\" is not an option of a server"),
            ("h:1,at=x:y", "\"x:y\" is not an address"),
            ("h:1,tls=x", "\"tls=x\" is not"),
            ("h:1,tls-ca=", "\"tls-ca=\" is not"),
            ("h:1,tls-cert=c", "tls-cert and tls-key require each other"),
            ("h:1,plain,tls-ca=f", "plain excludes"),
            ("h:1,no-login,credentials=f", "no-login excludes"),
        ] {
            let error = text.parse::<OwnOptions>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
