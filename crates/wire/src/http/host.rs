//! Hosts: names by which clients address the server.
//!
//! A page of any site can have its name resolve to an address of this server, and so make a browser
//! send requests to it ("DNS rebinding"). The browser names the site in `Host`, which tells such
//! requests apart. A page can also send requests to this server under its right name; then the
//! browser names the site in `Origin`.

use super::Status;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Default ports, which a host may omit.
const DEFAULT_PORTS: [&[u8]; 2] = [b":80", b":443"];

/// Names by which clients may address a server, besides addresses and `localhost`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames {
    is_any: bool,
    names: Vec<Box<str>>,
}

/// Headers of a request that tell to whom it is addressed, and by whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addressing<'a> {
    /// Value of `Host`.
    pub host: Option<&'a [u8]>,
    /// Value of `Origin`.
    pub origin: Option<&'a [u8]>,
    /// Whether the request is of HTTP/1.0, whose clients may send no `Host`. No browser does that.
    pub may_lack_host: bool,
    /// Whether the request may change something.
    pub changes: bool,
}

/// Reason why a request is not meant for this server, or not sent by its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// There is no `Host` (RFC 9112, section 3.2).
    NoHost,
    /// `Host` is a name of another server.
    Host,
    /// `Origin` is another site than `Host`.
    Origin,
}

impl Foreign {
    /// Returns the status of the refusal.
    pub fn status(self) -> Status {
        match self {
            Self::NoHost => Status::BadRequest,
            Self::Host => Status::MisdirectedRequest,
            Self::Origin => Status::Forbidden,
        }
    }

    /// Returns the text of the refusal.
    pub fn text(self) -> &'static str {
        match self {
            Self::NoHost => "a request of HTTP/1.1 needs a Host header",
            Self::Host => {
                "the Host header is not an address, localhost or this machine's name: \
                 the setting http-hosts adds names"
            }
            Self::Origin => "pages of other sites may not change records here",
        }
    }
}

impl HostNames {
    /// Returns all names, so that nothing is refused.
    pub fn any() -> Self {
        Self { is_any: true, names: Vec::new() }
    }

    /// Returns these names.
    pub fn of(names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        Self { is_any: false, names: names.into_iter().map(Into::into).collect() }
    }

    /// Returns why a request is refused, if it is.
    pub fn refusal(&self, request: Addressing<'_>) -> Option<Foreign> {
        let Addressing { host, origin, may_lack_host, changes } = request;
        match host {
            _ if self.is_any => return None,
            None if !may_lack_host => return Some(Foreign::NoHost),
            Some(host) if !self.admits(host) => return Some(Foreign::Host),
            _ => {}
        }
        let is_own = |origin: &[u8]| {
            let authority = super::path::authority(origin);
            authority.zip(host).is_some_and(|(one, other)| is_same_authority(one, other))
                || authority.and_then(without_port).is_some_and(|name| self.has(name))
        };
        (changes && origin.is_some_and(|origin| !is_own(origin))).then_some(Foreign::Origin)
    }

    fn admits(&self, host: &[u8]) -> bool {
        let Some(name) = without_port(host) else { return false };
        if let Some(address) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            return address.parse::<Ipv6Addr>().is_ok();
        }
        let name = name.strip_suffix('.').unwrap_or(name);
        name.is_empty()
            || name.parse::<Ipv4Addr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.has(name)
    }

    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| name.eq_ignore_ascii_case(known))
    }
}

/// Returns the name or the address of a host with or without a port, or `None` if it has another
/// form.
fn without_port(host: &[u8]) -> Option<&str> {
    let host = std::str::from_utf8(host).ok()?;
    let end_of_address = host.rfind(']').map_or(0, |at| at + 1);
    match host[end_of_address..].split_once(':') {
        None => Some(host),
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(&host[..end_of_address + name.len()])
        }
        Some(_) => None,
    }
}

/// Returns whether two authorities name the same host and port. Behind a proxy the scheme may
/// differ, so a default port is that of any scheme.
pub fn is_same_authority(one: &[u8], other: &[u8]) -> bool {
    let name = |authority: &[u8]| {
        let user = authority.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
        let host = &authority[user..];
        let port = DEFAULT_PORTS.into_iter().find_map(|port| host.strip_suffix(port));
        port.unwrap_or(host).to_ascii_lowercase()
    };
    name(one) == name(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(host: &[u8]) -> Addressing<'_> {
        Addressing { host: Some(host), changes: true, ..Addressing::default() }
    }

    #[test]
    fn addresses_localhost_and_configured_names_are_hosts_of_the_server() {
        let names = HostNames::of(["db1", "db.example.com"]);
        for host in [
            "127.0.0.1",
            "10.0.0.1:1978",
            "[::1]",
            "[fe80::1]:80",
            "localhost",
            "LocalHost:1978",
            "localhost.",
            "db1:1978",
            "DB.example.com.",
            "",
        ] {
            assert_eq!(names.refusal(to(host.as_bytes())), None, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:1978",
            "localhost.evil.example",
            "db1.evil.example",
            "127.0.0.1.evil.example",
            "localhost:1978:1",
            "localhost:x",
            "[::1",
            "[evil]",
            "::1",
            "a@localhost",
            "127.0.0.1/",
            "\u{131}",
        ] {
            assert_eq!(names.refusal(to(host.as_bytes())), Some(Foreign::Host), "{host}");
            assert_eq!(HostNames::any().refusal(to(host.as_bytes())), None, "{host}");
        }
        assert_eq!(names.refusal(to(b"\xff")), Some(Foreign::Host));
    }

    #[test]
    fn only_old_requests_may_lack_a_host() {
        let (names, new) = (HostNames::default(), Addressing::default());
        assert_eq!(names.refusal(new), Some(Foreign::NoHost));
        assert_eq!(HostNames::any().refusal(new), None);
        assert_eq!(names.refusal(Addressing { may_lack_host: true, ..new }), None);
    }

    #[test]
    fn pages_of_other_origins_change_nothing() {
        let names = HostNames::default();
        let refusal = |origin: &str, changes| {
            let origin = Some(origin.as_bytes());
            names.refusal(Addressing { origin, changes, ..to(b"localhost:1978") })
        };
        assert_eq!(refusal("http://localhost:1978", true), None);
        for origin in ["http://localhost:3000", "http://localhost", "https://evil.example", "null"]
        {
            assert_eq!(refusal(origin, true), Some(Foreign::Origin), "{origin}");
            assert_eq!(refusal(origin, false), None, "{origin}");
        }
        // A proxy ends TLS, and may have a name of its own.
        let named = HostNames::of(["db.example.com"]);
        let origin = Some(&b"https://db.example.com:8443"[..]);
        assert_eq!(named.refusal(Addressing { origin, ..to(b"127.0.0.1:1978") }), None);
        let origin = Some(&b"https://10.0.0.1"[..]);
        assert_eq!(names.refusal(Addressing { origin, ..to(b"10.0.0.1") }), None);
    }
}
