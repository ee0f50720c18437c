//! Warnings about what other machines can do with a server.

use client::is_this_machine;
use server::{Command, Config, Endpoint, Protocol};
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};

/// Returns the warnings of [`exposure`] for a server that is not started. Addresses of names are
/// looked up.
pub(super) fn exposure_to_be(config: &Config) -> Vec<String> {
    let with = |is_tls| move |address| (address, is_tls);
    let tls = config.tls.iter().flat_map(|tls| &tls.listen).flat_map(addresses).map(with(true));
    exposure(config, config.listen.iter().flat_map(addresses).map(with(false)).chain(tls))
}

/// Returns the addresses of an endpoint that other machines may reach.
pub(super) fn addresses(endpoint: &Endpoint) -> Vec<SocketAddr> {
    match endpoint {
        Endpoint::Tcp { host: Some(host), port } => {
            (host.as_str(), *port).to_socket_addrs().map_or(Vec::new(), Iterator::collect)
        }
        Endpoint::Tcp { host: None, port } => vec![(Ipv6Addr::UNSPECIFIED, *port).into()],
        Endpoint::Loopback { .. } | Endpoint::Unix(_) => Vec::new(),
    }
}

/// Returns a warning about the admin listener at these addresses, which has no TLS, if users of a
/// database log in there over a network.
pub(crate) fn admin_exposure<'c>(
    configs: impl IntoIterator<Item = &'c Config>,
    addresses: &[SocketAddr],
) -> Option<String> {
    let far = addresses.iter().find(|address| !is_this_machine(address.ip()))?;
    let has_users = configs.into_iter().any(|config| config.users.is_some());
    has_users.then(|| {
        format!(
            "users who log in at the admin listener {far} send passwords that anyone in between \
             can read, as it has no TLS: set admin to an address of this machine, such as \
             127.0.0.1:{}, and put a proxy with TLS before it",
            far.port()
        )
    })
}

/// Returns what other machines can do at the addresses of a server, if that may be more than was
/// meant. With each address is whether it requires TLS.
pub(crate) fn exposure(
    config: &Config,
    addresses: impl IntoIterator<Item = (SocketAddr, bool)>,
) -> Vec<String> {
    let far = addresses.into_iter().filter(|(address, _)| !is_this_machine(address.ip()));
    let far: Vec<(SocketAddr, bool)> = far.collect();
    let names = |only_plain: bool| {
        let chosen = far.iter().filter(|(_, is_tls)| !(only_plain && *is_tls));
        let names: Vec<String> = chosen.map(|(address, _)| address.to_string()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let plain = names(true);
    // A certificate admits a client as a login does.
    let takes_certificates =
        config.tls.as_ref().is_some_and(|tls| tls.files.client_authorities.is_some());
    let anyone = if takes_certificates { plain.clone() } else { names(false) };
    let what = if takes_writes(config) { "read and write" } else { "read" };
    let mut warnings = Vec::new();
    match (&config.users, anyone) {
        (None, Some(addresses)) => {
            let tls = if config.tls.is_none() { ", tls-cert and tls-key" } else { "" };
            warnings.push(format!(
                "every machine that reaches {addresses} can {what} all records, as there are no \
                 users: set users (\"tyrant user add\" makes the file){tls}, or leave host out; a \
                 container keeps host, and its port is published to 127.0.0.1 alone"
            ));
        }
        (Some(_), Some(addresses)) if config.opens_tokyo_tyrant => warnings.push(format!(
            "every machine that reaches {addresses} can {what} all records over Tokyo \
             Tyrant's protocol: leave open-tokyo-tyrant out, and let replicas and tools log in"
        )),
        _ => {}
    }
    if let (Some(_), Some(addresses)) = (&config.users, plain) {
        let advice = match &config.tls {
            None => "set tls-cert and tls-key",
            Some(tls) if tls.is_optional => "leave tls-optional out, so that all need TLS",
            Some(_) => "leave tls-port out, so that all need TLS",
        };
        warnings.push(format!(
            "clients that log in at {addresses} send passwords that anyone in between can read: \
             {advice}"
        ));
    }
    warnings
}

/// Returns whether any command that changes records is accepted over any protocol.
fn takes_writes(config: &Config) -> bool {
    use Command as C;
    let writes = [C::Put, C::PutKeep, C::PutCat, C::PutShift, C::PutNoReply, C::Out];
    let writes = writes.into_iter().chain([C::AddInt, C::AddDouble, C::Vanish]);
    let protocols = [Protocol::Binary, Protocol::Memcached, Protocol::Http, Protocol::Redis];
    let is_replica = config.following.master.is_some() && !config.following.is_writable;
    let mut ways = writes.flat_map(|command| protocols.map(|protocol| (command, protocol)));
    !is_replica && ways.any(|(command, protocol)| !config.mask.refuses(command, protocol))
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::{HANDSHAKE_TIMEOUT, ServerFiles, TlsSettings, Users};
    use std::sync::Arc;

    #[test]
    fn warnings_follow_from_users_tls_and_addresses() {
        let far = |is_tls| ("192.0.2.1:7".parse::<SocketAddr>().expect("an address"), is_tls);
        let near = ("127.0.0.1:7".parse::<SocketAddr>().expect("an address"), false);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("users");
        std::fs::write(&path, "[[user]]\nname = \"ann\"\nrights = []\n").expect("a file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, mode).expect("a mode");
        let users = Arc::new(Users::read(&path).expect("users"));
        let tls = |with_authorities: bool, is_optional| TlsSettings {
            files: ServerFiles {
                certificates: "c".into(),
                key: "k".into(),
                client_authorities: with_authorities.then(|| "a".into()),
            },
            listen: Vec::new(),
            is_optional,
            handshake_timeout: HANDSHAKE_TIMEOUT,
        };
        let everyone = "every machine that reaches 192.0.2.1:7 can read and write all records";
        let clear = "clients that log in at 192.0.2.1:7 send passwords";
        let config = |has_users: bool, tls: Option<TlsSettings>| Config {
            users: has_users.then(|| Arc::clone(&users)),
            tls,
            ..Config::default()
        };
        let admin = |has_users, (address, _): (SocketAddr, bool)| {
            admin_exposure([&config(false, None), &config(has_users, None)], &[near.0, address])
        };
        assert!(admin(true, far(false)).is_some_and(|one| one.contains("192.0.2.1:7 send")));
        assert_eq!([admin(true, near), admin(false, far(false))], [None, None]);
        let open = Config { opens_tokyo_tyrant: true, ..config(true, Some(tls(false, false))) };
        for (config, addresses, expected) in [
            (config(false, None), &[near][..], &[][..]),
            (config(false, None), &[near, far(false)], &[(everyone, "tls-cert and tls-key, or")]),
            (config(false, Some(tls(false, false))), &[far(true)], &[(everyone, "file), or")]),
            (config(false, Some(tls(true, false))), &[far(true)], &[]),
            (config(false, Some(tls(true, true))), &[far(false)], &[(everyone, "users")]),
            (config(true, None), &[near], &[]),
            (config(true, None), &[far(false)], &[(clear, "set tls-cert and tls-key")]),
            (config(true, Some(tls(false, false))), &[far(true)], &[]),
            (config(true, Some(tls(false, true))), &[far(false)], &[(clear, "tls-optional")]),
            (
                config(true, Some(tls(false, false))),
                &[far(false), far(true)],
                &[(clear, "leave tls-port out")],
            ),
            (open, &[far(true)], &[(everyone, "over Tokyo Tyrant's protocol")]),
        ] {
            let warnings = exposure(&config, addresses.iter().copied());
            assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
            for (warning, (begin, part)) in warnings.iter().zip(expected) {
                assert!(warning.starts_with(begin) && warning.contains(part), "{warning}");
            }
        }
    }

    #[test]
    fn a_server_that_takes_no_writes_is_not_said_to() {
        let far = ("192.0.2.1:7".parse::<SocketAddr>().expect("an address"), false);
        let mask =
            |names: &str| Config { mask: names.parse().expect("a mask"), ..Config::default() };
        let replica = |is_writable| {
            let master = Some(server::Master { host: "h".to_owned(), port: 1 });
            let mut config = Config::default();
            (config.following.master, config.following.is_writable) = (master, is_writable);
            config
        };
        for (config, what) in [
            (Config::default(), "can read and write all"),
            (mask("put"), "can read and write all"),
            (mask("allorg,allmc,allhttp"), "can read and write all"),
            (mask("allwrite"), "can read all"),
            (replica(true), "can read and write all"),
            (replica(false), "can read all"),
        ] {
            let warnings = exposure(&config, [far]);
            assert!(warnings[0].contains(what), "{warnings:?}");
        }
    }
}
