//! URLs of servers of Redis's protocol: `redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]`, with
//! TLS `rediss://`.

use super::{SecurityArgument, cannot_connect, has_port, identify, login};
use anyhow::{Context, Result, anyhow, bail, ensure};
use client::{Address, Credentials, Error, RedisConnection, Settings};
use std::fmt;
use wire::http::decode;

/// Beginnings of the URLs, without and with TLS.
const SCHEMES: [&str; 2] = ["redis://", "rediss://"];

/// Form of a URL, for errors.
const FORM: &str = "redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]";

/// Port without another one in the URL.
const DEFAULT_PORT: u16 = 6379;

/// Part of the reply of a tyrant server that takes TLS alone.
const REQUIRES_TLS: &str = "requires TLS";
/// Part of the error of a handshake with a port without TLS.
const NO_TLS: &str = "does not speak TLS";
/// URL of a server of Redis's protocol. `Display` shows no password.
pub(crate) struct RedisUrl {
    is_tls: bool,
    /// User as the URL has it.
    user: Option<String>,
    password: Option<String>,
    address: Address,
    database: u16,
}

impl RedisUrl {
    /// Returns whether a word of the command line is meant as such a URL.
    pub(crate) fn is_url(text: &str) -> bool {
        SCHEMES.iter().any(|scheme| text.starts_with(scheme))
    }

    /// Returns the end of a text that may be such a URL, without the login in it.
    pub(crate) fn without_login(text: &str) -> &str {
        text.rsplit_once('@').map_or(text, |(_, place)| place)
    }

    /// Returns the URL that a text without one may stand for: a host with a port, or another URL.
    /// Shows no password.
    pub(crate) fn meant_by(text: &str) -> Option<String> {
        if let Some((_, rest)) = text.split_once("://") {
            let host = Self::without_login(rest.split('/').next().unwrap_or_default());
            return (!Self::is_url(text)).then(|| format!("redis://{host}"));
        }
        let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        let is_address = matches!(port, Some(Ok(_))) && !text.contains(['/', '#']);
        is_address.then(|| format!("redis://{}", Self::without_login(text)))
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let is_tls = text.starts_with(SCHEMES[1]);
        let rest = text.strip_prefix(SCHEMES[usize::from(is_tls)]).unwrap_or(text);
        // An error shows no password.
        let shown = Self::without_login(rest);
        let wrong = || format!("{shown:?} is not the end of a URL of the form {FORM}");
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        ensure!(Self::is_url(text) || !text.contains("://"), wrong());
        let database = match database {
            "" => 0,
            number => number.parse().ok().with_context(wrong)?,
        };
        let (user, password, place) = match place.rsplit_once('@') {
            None => (None, None, place),
            Some((login, place)) => match login.split_once(':') {
                None => (Some(login.to_owned()), None, place),
                Some((user, password)) => (Some(user.to_owned()), Some(decoded(password)?), place),
            },
        };
        ensure!(!place.is_empty() && !place.starts_with(':'), wrong());
        let has_login = user.as_deref() != Some("") || password.is_some();
        ensure!(has_login, "the URL has neither a user nor a password before the @");
        let port = if has_port(place) { String::new() } else { format!(":{DEFAULT_PORT}") };
        let address = format!("{place}{port}").parse().ok().with_context(wrong)?;
        Ok(Self { is_tls, user, password, address, database })
    }

    /// Connects to the server. Strings of more than `string_bytes_max` bytes are not read.
    pub(crate) fn connect(
        &self,
        security: &SecurityArgument,
        string_bytes_max: usize,
    ) -> Result<RedisConnection> {
        let (tls, is_asked_for) = security.tls_settings()?;
        ensure!(
            self.is_tls || !is_asked_for,
            "{self} is without TLS, and options or variables of TLS are given: begin the URL with \
             rediss://, or leave them out"
        );
        let settings = Settings {
            tls: self.is_tls.then(|| tls.read()).transpose()?,
            login: self.login()?,
            allows_plain_login: security.allows_plain_login()?,
            ..Settings::default()
        };
        let address = self.address.to_string();
        let mut connection = RedisConnection::open(&self.address, &settings, string_bytes_max)
            .map_err(|error| match error {
                Error::Replied(text) => anyhow!("{self} refuses the login: {text}"),
                Error::PlainLogin => anyhow!(
                    "the connection to {address} is not encrypted, so the login is not sent: begin \
                     the URL with rediss://, or give --allow-plain-login on a private network"
                ),
                Error::ConnectionRefused(cause) => anyhow!("cannot connect to {self}: {cause}"),
                // A server without TLS may wait for the rest of a request.
                Error::Handshake(cause)
                    if cause.to_string().contains(NO_TLS)
                        || identify::speaks_redis(&self.address) =>
                {
                    anyhow!("{self} does not speak TLS: begin the URL with redis://")
                }
                error => cannot_connect(&address, &error),
            })?;
        // A server that requires a login, or speaks another protocol, fails here.
        let database = self.database.to_string();
        match connection.call(&[b"SELECT", database.as_bytes()]) {
            Ok(()) => Ok(connection),
            Err(Error::Replied(text)) if text.starts_with("NOAUTH") => {
                bail!(
                    "{self} requires a user: name one in the URL, redis://USER@HOST, which is \
                     `default` for a password alone ({text})"
                )
            }
            Err(Error::Replied(text)) if text.contains(REQUIRES_TLS) => {
                bail!(self.requires_tls())
            }
            Err(Error::Replied(text)) => bail!("{self} cannot be used: {text}"),
            Err(Error::Send(cause) | Error::Receive(cause)) => {
                // Over TLS that question would tell nothing.
                match identify::other_server(&self.address).filter(|_| !self.is_tls) {
                    Some(identify::EXPECTS_TLS) => bail!(self.requires_tls()),
                    Some(other) => bail!("{self} is {other}, not one of Redis's protocol"),
                    None => bail!("{self} does not reply as a server of Redis's protocol: {cause}"),
                }
            }
            Err(error) => Err(error).context(format!("cannot use {self}")),
        }
    }

    fn requires_tls(&self) -> String {
        format!(
            "{self} requires TLS: begin the URL with rediss://, and name the file of its authority with \
             --tls-ca FILE unless the system has it"
        )
    }

    fn login(&self) -> Result<Option<Credentials>> {
        let Some(user) = &self.user else { return Ok(None) };
        let user = decoded(user)?;
        match &self.password {
            Some(password) => Ok(Some(Credentials::new(user, password))),
            None => login::find(Some(&user), None),
        }
    }
}

/// Decodes a percent-encoded part of a URL.
fn decoded(text: &str) -> Result<String> {
    let text = text.replace('+', "%2B");
    let decoded = String::from_utf8(decode(text.as_bytes()).into_owned());
    decoded.ok().context("the user and the password of the URL must be UTF-8")
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(SCHEMES[usize::from(self.is_tls)])?;
        if let Some(user) = self.user.as_ref().filter(|user| !user.is_empty()) {
            write!(formatter, "{user}@")?;
        }
        write!(formatter, "{}/{}", self.address, self.database)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_parts_with_defaults_and_is_shown_without_its_password() {
        for (text, shown, user, password) in [
            ("redis://h", "redis://h:6379/0", None, None),
            ("rediss://h:1/", "rediss://h:1/0", None, None),
            ("redis://[::1]/3", "redis://[::1]:6379/3", None, None),
            ("redis://ann@h:7/0", "redis://ann@h:7/0", Some("ann"), None),
            ("redis://:p%40+x:y@h", "redis://h:6379/0", Some(""), Some("p@+x:y")),
            ("redis://a%3Ab:p@h", "redis://a%3Ab@h:6379/0", Some("a%3Ab"), Some("p")),
        ] {
            let url = RedisUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), shown, "{text}");
            assert_eq!((url.user.as_deref(), url.password.as_deref()), (user, password), "{text}");
            assert!(RedisUrl::is_url(text));
        }
        for (text, meant) in [
            ("localhost:6379", Some("redis://localhost:6379")),
            ("[::1]:1", Some("redis://[::1]:1")),
            ("http://h:1/x", Some("redis://h:1")),
            ("redis://h:1", None),
            ("casket.tch", None),
            ("./a:1", None),
            ("a:b.tsv", None),
        ] {
            assert_eq!(RedisUrl::meant_by(text).as_deref(), meant, "{text}");
        }
        let login = RedisUrl::parse("redis://a%3Ab:p@h").unwrap().login().unwrap();
        assert_eq!(login, Some(Credentials::new("a:b", "p")));
        assert!(!RedisUrl::is_url("redis.tch") && !RedisUrl::is_url("./redis://x"));
    }

    #[test]
    fn a_url_that_is_none_is_an_error_without_its_password() {
        for text in [
            "redis://",
            "redis://:6379",
            "redis://u:secret@",
            "redis://@h",
            "redis://u:secret@h:x",
            "redis://u:secret@h/name",
            "redis://h/-1",
            "redis://h/65536",
            "redis://h/0?x=1",
            "redis://h:65536",
            "http://u:secret@h",
        ] {
            let error = format!("{:#}", RedisUrl::parse(text).err().unwrap());
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
