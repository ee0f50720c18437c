//! Connections to a running server: the only place where a command opens one.

mod explain;
mod identify;
mod login;
mod need;
mod own_options;
mod redis;
mod security;
mod variables;

pub(crate) use explain::{NO_PERMISSION, last_failure};
pub(crate) use need::Need;
pub(crate) use own_options::OwnOptions;
pub(crate) use redis::RedisUrl;
pub(crate) use security::SecurityArgument;
pub(crate) use variables::VARIABLES;

use crate::errors::wrong_command_line;
use anyhow::{Context, Result, anyhow, bail};
use cabinet::name::Kind;
use clap::builder::NonEmptyStringValueParser;
use client::{Address, Client, Credentials, Error, Settings, TlsSettings};
use std::ffi::OsStr;
use std::fmt;
use std::io::ErrorKind;
use std::net::Ipv6Addr;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
pub(crate) use variables::SERVER as SERVER_VARIABLE;

/// Part of the error of a connection that the server ends with an alert of TLS.
const ALERT: &str = "the alert";

/// Heading of the options of the connection in the help of a command.
pub(crate) const CONNECTION: &str = "Connection";

/// Address of the server if neither an option nor the environment names one.
const DEFAULT_ADDRESS: &str = "127.0.0.1:1978";

/// Longest wait for the first reply before the server is asked in other protocols what it is.
const FIRST_REPLY: Duration = Duration::from_secs(1);

/// Longest wait for the first reply of a server that did not reveal itself as another one.
const SLOW_FIRST_REPLY: Duration = Duration::from_secs(60);

/// Option that names the server of a command.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServerArgument {
    /// Connect to this server: HOST:PORT, or the path of its Unix socket [env: TYRANT_SERVER]
    /// [default: 127.0.0.1:1978]
    #[arg(long, help_heading = CONNECTION, value_name = "ADDRESS")]
    server: Option<String>,
    /// Connect with TLS, and verify the server by the authorities of the system or of --tls-ca
    /// [env: TYRANT_TLS=true]
    #[arg(long, help_heading = CONNECTION)]
    tls: bool,
    #[command(flatten)]
    security: SecurityArgument,
    /// Log in as this user, with the password of TYRANT_PASSWORD, or one that is typed
    /// [env: TYRANT_USER]
    #[arg(
        long,
        help_heading = CONNECTION,
        value_name = "NAME",
        value_parser = NonEmptyStringValueParser::new(),
        conflicts_with = "credentials"
    )]
    user: Option<String>,
    /// Log in with the name and the password in this file, a line name:password
    /// [env: TYRANT_CREDENTIALS]
    #[arg(long, help_heading = CONNECTION, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// TLS is not used, whatever the environment has.
    #[arg(skip)]
    is_plain: bool,
    /// The login, once it is known.
    #[arg(skip)]
    login: OnceLock<Option<Credentials>>,
}

impl ServerArgument {
    /// Returns the address: that of the option, of the environment, or the default.
    pub(crate) fn address(&self) -> String {
        let variable = || variables::text(SERVER_VARIABLE);
        self.server.clone().or_else(variable).unwrap_or_else(|| DEFAULT_ADDRESS.to_owned())
    }

    /// Returns the settings of connections to the server, with default timeouts.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let tls = (!self.is_plain).then(|| self.tls_settings()).transpose()?.flatten();
        let tls = tls.map(|tls| tls.read()).transpose()?;
        let login = match self.login.get() {
            Some(login) => login.clone(),
            None => {
                let login = login::find(self.user.as_deref(), self.credentials.as_deref())?;
                self.login.get_or_init(|| login).clone()
            }
        };
        let allows_plain_login = self.security.allows_plain_login()?;
        Ok(Settings { tls, login, allows_plain_login, ..Settings::default() })
    }

    /// Returns how the server is connected to with TLS, by options or the environment, if it is.
    fn tls_settings(&self) -> Result<Option<TlsSettings>> {
        let (tls, is_used) = self.security.tls_settings()?;
        let is_used = is_used || self.tls || variables::switch(variables::TLS)?;
        Ok(is_used.then_some(tls))
    }

    /// Returns whether an option is about TLS.
    fn has_tls(&self) -> bool {
        self.tls || self.security.has_tls()
    }

    /// Returns whether the command line has one of these options.
    pub(crate) fn is_given(&self) -> bool {
        self.server.is_some()
            || self.tls
            || self.security.is_given()
            || self.user.is_some()
            || self.credentials.is_some()
    }

    /// Connects to the server.
    pub(crate) fn connect(&self) -> Result<Server> {
        let address = self.address();
        if let Err(flaw) = parse(&address) {
            let place = if self.server.is_some() { "--server" } else { SERVER_VARIABLE };
            return Err(flaw.context(place));
        }
        Server::connect(&address, &self.settings()?)
    }
}

/// A connection to a server, with what is known about it.
pub(crate) struct Server {
    client: Client,
    address: String,
    settings: Settings,
    /// Kind of the database, unless the server does not reveal it.
    kind: Option<Kind>,
}

impl Deref for Server {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Server {
    /// Connects to the server at `HOST:PORT`, or at a path that contains a slash.
    pub(crate) fn connect(address: &str, settings: &Settings) -> Result<Self> {
        // Some replies take very long, such as that to optimizing a large database.
        Self::open(address, settings, SLOW_FIRST_REPLY, None)
    }

    /// Does the same, with a longest wait for the connection and for each reply.
    pub(crate) fn connect_within(
        address: &str,
        settings: &Settings,
        patience: Duration,
    ) -> Result<Self> {
        let settings = Settings {
            connect_timeout: patience,
            read_timeout: Some(patience),
            write_timeout: Some(patience),
            ..settings.clone()
        };
        Self::open(address, &settings, patience, Some(patience))
    }

    fn open(
        address: &str,
        settings: &Settings,
        first_reply: Duration,
        each_reply: Option<Duration>,
    ) -> Result<Self> {
        let parsed = parse(address)?;
        let greet = |wait| Self::greet(address, &parsed, settings, wait);
        let (mut client, stat) = match greet(FIRST_REPLY)? {
            Some(greeted) => greeted,
            None => greet(first_reply)?.with_context(|| {
                let seconds = first_reply.as_secs();
                format!("the server at {address} does not answer within {seconds} s")
            })?,
        };
        client.set_read_timeout(each_reply)?;
        let kind = line_of(&stat, "type").and_then(Kind::of_title);
        Ok(Self { client, address: address.to_owned(), settings: settings.clone(), kind })
    }

    /// Connects and requests the status. Returns `None` if the server is silent for so long.
    fn greet(
        address: &str,
        parsed: &Address,
        settings: &Settings,
        patience: Duration,
    ) -> Result<Option<(Client, String)>> {
        let settings = Settings { read_timeout: Some(patience), ..settings.clone() };
        let user = settings.login.as_ref().map(|login| login.name().to_owned());
        let has_tls = settings.tls.is_some();
        let certified = settings.tls.as_ref().and_then(|tls| tls.user()).map(str::to_owned);
        let cause = match Client::connect_with(parsed.clone(), settings) {
            Ok(client) => match client.stat() {
                Ok(stat) => {
                    return Ok(Some((client, String::from_utf8_lossy(&stat).into_owned())));
                }
                // The status has no other reason to fail.
                Err(Error::Miscellaneous) => bail!(
                    "the server at {address} requires a user: name one with --user, --credentials \
                     or TYRANT_USER{}",
                    certified.map_or(String::new(), |name| format!(
                        "; it has no user {name}, whom the certificate of --tls-cert names, or asks \
                         for no certificates (--tls-client-ca)"
                    ))
                ),
                Err(Error::Receive(cause) | Error::Send(cause)) => cause,
                Err(error) => return Err(error.into()),
            },
            Err(Error::LoginRefused(refusal)) => {
                return Err(login::refused(address, &user.unwrap_or_default(), refusal));
            }
            // A login comes before the status.
            Err(Error::Receive(cause) | Error::Send(cause))
                if cause.kind() != ErrorKind::TimedOut =>
            {
                cause
            }
            Err(error) => return Err(cannot_connect(address, &error)),
        };
        // A server of TLS 1.3 judges the client's certificate after the handshake.
        if has_tls && cause.to_string().contains(ALERT) {
            return Err(cannot_connect(address, &Error::Handshake(cause)));
        }
        // Over TLS that answer would tell nothing new.
        let other = identify::other_server(parsed);
        if let Some(other) = other.filter(|other| !has_tls || *other != identify::EXPECTS_TLS) {
            if other == identify::EXPECTS_TLS {
                bail!("{address} is {other}: add --tls, or --tls-ca FILE with its authority");
            }
            if other == identify::ADMIN_LISTENER {
                bail!(
                    "{address} is {other}, which has no records: name the port of a database with \
                     --server or {SERVER_VARIABLE}"
                );
            }
            bail!("{address} is {other}: name a tyrant server with --server or {SERVER_VARIABLE}");
        }
        match cause.kind() {
            ErrorKind::TimedOut => Ok(None),
            ErrorKind::InvalidData => bail!(
                "{address} does not speak the protocol of tyrant ({cause}): name a tyrant server with \
                 --server or {SERVER_VARIABLE}"
            ),
            ErrorKind::UnexpectedEof => bail!(
                "the server at {address} closed the connection at once: it may have too many \
                 (--connections-max), or speak another protocol"
            ),
            _ => bail!("the connection to {address} failed: {cause}"),
        }
    }

    /// Returns the address as the user named it.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the settings of the connection.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the kind of the database, if it is known.
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// Returns a value of the server's status, if it has that name.
    pub(crate) fn stat_value(&self, name: &str) -> Result<Option<String>> {
        stat_value(&self.client, name)
    }

    /// Returns an error about the records or the settings of this server.
    pub(crate) fn failure(&self, what: impl std::fmt::Display) -> anyhow::Error {
        match self.kind {
            Some(kind) => anyhow!("{} ({}): {what}", self.address, kind.title()),
            None => anyhow!("{}: {what}", self.address),
        }
    }
}

/// Parses the address of a server.
pub(crate) fn parse(address: &str) -> Result<Address> {
    refuse_other_forms(address)?;
    address.parse().map_err(|_| {
        wrong_command_line(format_args!(
            "{address:?} is not an address: give HOST:PORT, or a path that contains a slash"
        ))
    })
}

/// Parses the address of a master: its host and port.
pub(crate) fn parse_master(address: &str) -> Result<(String, u16)> {
    refuse_other_forms(address)?;
    match address.parse() {
        Ok(Address::Tcp { host, port }) if has_port(address) => Ok((host, port)),
        _ => Err(wrong_command_line(format_args!(
            "{address:?} is not the address of a master: a master is named as HOST:PORT"
        ))),
    }
}

/// Fails for texts that would be taken for the name of a host, and are not meant as one.
fn refuse_other_forms(address: &str) -> Result<()> {
    other_form(address).map_or(Ok(()), |flaw| Err(wrong_command_line(flaw)))
}

/// Returns what is wrong with a text that is not meant as the name of a host.
fn other_form(address: &str) -> Option<String> {
    if address.is_empty() {
        return Some("the address is empty: name the server as HOST:PORT".to_owned());
    }
    if let Some((scheme, rest)) = address.split_once("://") {
        let host = rest.split('/').next().unwrap_or_default();
        let port = if has_port(host) { "" } else { ":1978" };
        let tls = if scheme.ends_with('s') { " --tls" } else { "" };
        return Some(format!(
            "{address:?} is a URL, and a server is named without one: {host}{port}{tls}"
        ));
    }
    if address.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(format!(
            "{address:?} is a port without a host: give 127.0.0.1:{address} for this machine"
        ));
    }
    if !address.contains('[') && address.parse::<Ipv6Addr>().is_ok() {
        return Some(format!("{address:?} needs brackets, and may have a port: [{address}]:1978"));
    }
    let is_socket = [".sock", ".socket"].into_iter().any(|suffix| address.ends_with(suffix));
    (is_socket && !address.contains('/')).then(|| {
        format!(
            "{address:?} would be a host, since it has no slash: give ./{address} for a Unix socket"
        )
    })
}

/// Returns whether the address of a host has a port.
pub(crate) fn has_port(address: &str) -> bool {
    address.rsplit(']').next().is_some_and(|end| end.contains(':'))
}

/// Error of a server that cannot be reached.
#[derive(Debug)]
pub(crate) struct Unreachable {
    /// The server and the cause.
    pub(crate) what: String,
    /// Advice for the person who has named the server.
    advice: &'static str,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.what, self.advice)
    }
}

/// Returns the error of a connection that was not made, with what to do.
pub(crate) fn cannot_connect(address: &str, error: &Error) -> anyhow::Error {
    // The port may be the default.
    let address =
        address.parse().map_or_else(|_| address.to_owned(), |whole: Address| whole.to_string());
    match error {
        Error::HostNotFound(cause) => {
            let what = format!("cannot find the host of {address}: {cause}");
            let advice = "; check the name, and that this machine resolves it";
            anyhow::Error::msg(Unreachable { what, advice })
        }
        Error::ConnectionRefused(cause) => {
            let advice = match cause.kind() {
                ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
                    "; start a server with \"tyrant serve\", or name one with --server or TYRANT_SERVER"
                }
                ErrorKind::PermissionDenied => {
                    "; the owner and mode of the socket decide who may connect"
                }
                ErrorKind::TimedOut => "; a firewall may drop the packets",
                _ => "",
            };
            let what = format!("cannot connect to {address}: {cause}");
            anyhow::Error::msg(Unreachable { what, advice })
        }
        Error::Handshake(cause) => {
            let text = cause.to_string();
            let advice = [
                (
                    "does not speak TLS",
                    "; leave out --tls and the options that begin with it, or name the port of the \
                     server that has TLS",
                ),
                (" authority is not in ", "; name the file that has it with --tls-ca FILE"),
                (" authority", "; name the file of its authority with --tls-ca FILE"),
                ("CA:TRUE", ": the server needs another one, made with basicConstraints=CA:FALSE"),
                (
                    "not valid for any names",
                    ": the server needs another one, made with subjectAltName=DNS:NAME or IP:ADDRESS",
                ),
                ("not valid for name", "; name one that it has with --tls-name NAME"),
                ("expired", "; the server needs a new certificate"),
                ("not valid yet", "; compare the clocks of both machines"),
                (
                    "certificate required",
                    "; show the server a certificate with --tls-cert FILE and --tls-key FILE",
                ),
                (ALERT, "; the server's log tells why it refuses this client"),
            ];
            let advice = advice.iter().find(|(part, _)| text.contains(part));
            let advice = advice.map_or("", |(_, advice)| *advice);
            anyhow!("cannot connect to {address} with TLS: {text}{advice}")
        }
        Error::Send(cause) | Error::Receive(cause) => {
            anyhow!("the connection to {address} failed: {cause}")
        }
        Error::PlainLogin => anyhow!(
            "the connection to {address} is not encrypted, so the login is not sent: add --tls, or \
             --tls-ca FILE, or --allow-plain-login on a private network"
        ),
        error => anyhow!("cannot connect to {address}: {error}"),
    }
}

/// Returns the address of the server at `host` and `port`. With a port of 0 or less, `host` is the
/// path of a Unix socket.
pub(crate) fn address(host: &[u8], port: i32) -> Result<Address> {
    if port <= 0 {
        return Ok(Path::new(OsStr::from_bytes(host)).into());
    }
    let port = u16::try_from(port).with_context(|| format!("invalid port {port}"))?;
    let host = std::str::from_utf8(host).context("the host is not UTF-8")?;
    Ok((host, port).into())
}

/// Returns the settings of connections of Tokyo Tyrant's command lines. The environment may name a
/// user, and TLS.
pub(crate) fn settings_of_environment() -> Result<Settings> {
    ServerArgument::default().settings()
}

/// Returns a value of a server's `stat`, if it has that name.
pub(crate) fn stat_value(client: &Client, name: &str) -> Result<Option<String>> {
    let text = String::from_utf8(client.stat()?).context("the status is not UTF-8")?;
    Ok(line_of(&text, name).map(str::to_owned))
}

pub(crate) fn line_of<'s>(stat: &'s str, name: &str) -> Option<&'s str> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_comes_before_the_default() {
        let given = ServerArgument { server: Some("a:1".into()), ..ServerArgument::default() };
        assert_eq!(given.address(), "a:1");
    }

    #[test]
    fn an_invalid_address_is_named() {
        for (address, advice) in [
            ("a:b", "give HOST:PORT"),
            ("1978", "give 127.0.0.1:1978"),
            ("tyrant.sock", "give ./tyrant.sock"),
            ("https://[::1]/", ": [::1]:1978 --tls"),
        ] {
            let error = parse(address).unwrap_err().to_string();
            assert!(error.contains(&format!("{address:?}")) && error.contains(advice), "{error}");
        }
        for address in ["localhost", ":1978", "./tyrant.sock", "/1978", "1978.example"] {
            parse(address).unwrap();
        }
    }

    #[test]
    fn a_server_that_cannot_be_reached_is_named_with_its_port() {
        let refused = || Error::ConnectionRefused(ErrorKind::ConnectionRefused.into());
        for (address, shown) in [
            ("localhost", "localhost:1978"),
            (":1979", "127.0.0.1:1979"),
            ("[::1]", "[::1]:1978"),
            ("./socket", "./socket"),
        ] {
            let error = cannot_connect(address, &refused()).to_string();
            assert!(error.starts_with(&format!("cannot connect to {shown}: ")), "{error}");
        }
    }

    #[test]
    fn a_line_of_the_status_is_found_by_its_whole_name() {
        assert_eq!(line_of("typed\tx\ntype\thash\n", "type"), Some("hash"));
        assert_eq!(line_of("typed\tx\n", "type"), None);
    }
}
