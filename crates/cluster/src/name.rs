//! Names of databases in a cluster: `cassandra://host1,host2:9042/keyspace#mode=strict`.
//!
//! | key | value | default |
//! | --- | --- | --- |
//! | `kind` | `tch`, `tcb`, `tcf`, `tct` | `tch` |
//! | `mode` | `strict`, `plain` | `strict` |
//! | `buckets` | all but hash: number of partitions with the order of the keys | 16 |
//! | `width` | fixed-length: bytes of the longest value | 255 |
//! | `limsiz` | fixed-length: bytes of Tokyo Cabinet's file, which limit the ids | 256 MiB |
//! | `dc` | name of the data centre whose nodes are asked first | none |
//! | `user`, `password` | user of the cluster, path of a file with the password | none |
//! | `plainlogin` | `true` sends the password without TLS, which is refused otherwise | `false` |
//! | `ca` | path of the authorities of the nodes' certificates, `system` for the system's; switches TLS on | without TLS |
//! | `cert`, `key` | paths of the certificate of this client and of its key | none |
//! | `timeout` | longest time of a request, in milliseconds | 5000 |
//! | `inflight` | most statements that wait for the cluster | 1024 |
//! | `speculative` | milliseconds after which a read is sent to another node too, 0 for never | 100 |
//! | `value` | most bytes of a value | 2 MiB |

use cabinet::ids::IdLimits;
use cabinet::limits::FIXED_WIDTH_BYTES_MAX;
use std::path::PathBuf;
use std::time::Duration;

/// Beginning of all names.
const SCHEME: &str = "cassandra://";

/// Port of nodes without one in the name.
const PORT: u16 = 9042;

/// Every key, for errors.
const KEYS: &str = "kind, mode, buckets, width, limsiz, dc, user, password, plainlogin, ca, \
                    cert, key, timeout, startwait, inflight, speculative, value";

/// Longest name of a keyspace, in bytes: Cassandra's own limit.
const KEYSPACE_BYTES_MAX: usize = 48;

/// Bounds of `timeout` and `speculative`, in milliseconds.
const TIMEOUT_MS: (u64, u64) = (100, 60_000);

/// Bounds of `buckets`.
const BUCKETS: (u64, u64) = (1, 4096);

/// Bounds of `startwait`, in seconds.
const START_WAIT_S: (u64, u64) = (0, 3600);

/// Bounds of `inflight`.
const IN_FLIGHT: (u64, u64) = (1, 32_768);

/// Bounds of `value`, in bytes. Cassandra's frames have 16 MiB at most, and a node refuses a write
/// of more than half a segment of its commit log.
const VALUE_BYTES: (u64, u64) = (1024, 15 << 20);

/// Returns whether a name is that of a database in a cluster.
pub fn is_cluster_name(name: &str) -> bool {
    name.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

/// Kind of a database in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `tch`: records without an order.
    Hash,
    /// `tcb`: records in the order of their keys' bytes.
    Tree,
    /// `tcf`: values under ids, in the order of the ids.
    Fixed,
    /// `tct`: rows with indexes, in the order of their keys' bytes.
    Table,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Hash, Self::Tree, Self::Fixed, Self::Table];

    /// Returns the name of the kind, as in names of databases.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hash => "tch",
            Self::Tree => "tcb",
            Self::Fixed => "tcf",
            Self::Table => "tct",
        }
    }
}

/// Way in which records are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By lightweight transactions: every operation is exact.
    Strict,
    /// By quorum writes: operations that depend on the record are refused.
    Plain,
}

impl Mode {
    /// Returns the name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Plain => "plain",
        }
    }
}

/// Name of a database in a cluster, in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Hosts and ports of nodes, from which the driver learns the others.
    pub contact_points: Vec<String>,
    /// The keyspace, in lower case.
    pub keyspace: String,
    /// Kind of the database.
    pub kind: Kind,
    /// Mode of its changes.
    pub mode: Mode,
    /// Number of partitions with the order of the keys.
    pub buckets: i32,
    /// Limits of ids and values, in a fixed-length database.
    pub ids: Option<IdLimits>,
    /// Data centre whose nodes are asked first.
    pub data_centre: Option<String>,
    /// User of the cluster, and the file with the password.
    pub login: Option<(String, PathBuf)>,
    /// Authorities of the nodes' certificates, with TLS.
    pub tls: Option<tls::ClientSettings>,
    /// Longest time of a request.
    pub timeout: Duration,
    /// Longest time for which a server that starts waits for the first node.
    pub start_wait: Duration,
    /// Most statements that wait for the cluster.
    pub in_flight_max: usize,
    /// Time after which a read is sent to another node too.
    pub speculative_after: Option<Duration>,
    /// Longest value, in bytes.
    pub value_bytes_max: usize,
}

/// Reason why a name does not say which database is meant.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is not of the form `cassandra://HOSTS/KEYSPACE`.
    #[error("{0:?} is not of the form cassandra://HOST,HOST.../KEYSPACE#key=value")]
    Form(String),
    /// A keyspace has another name.
    #[error(
        "{0:?} is no name of a keyspace: letters, digits and _, at most {KEYSPACE_BYTES_MAX} \
         of them, a letter first"
    )]
    Keyspace(String),
    /// A part after a `#` is not of the form `key=value`.
    #[error("{0:?} is not of the form key=value")]
    NotAPair(String),
    /// There is no such key.
    #[error("unknown key {0:?} in the name of a database in a cluster: known are {KEYS}")]
    UnknownKey(String),
    /// The value does not fit the key.
    #[error("{key}={value} is wrong: {key} takes {allowed}")]
    BadValue {
        /// The key.
        key: &'static str,
        /// The value given.
        value: String,
        /// Values that it takes.
        allowed: String,
    },
    /// A key needs another one.
    #[error("{0} needs {1}")]
    Needs(&'static str, &'static str),
}

impl Name {
    /// Parses a name.
    pub fn parse(name: &str) -> Result<Self, NameError> {
        let form = || NameError::Form(name.to_owned());
        if !is_cluster_name(name) {
            return Err(form());
        }
        let mut parts = name[SCHEME.len()..].split('#');
        let (hosts, keyspace) =
            parts.next().and_then(|part| part.split_once('/')).ok_or_else(form)?;
        if hosts.split(',').any(str::is_empty) {
            return Err(form());
        }
        let mut parsed = Self {
            contact_points: hosts.split(',').map(with_port).collect(),
            keyspace: keyspace_name(keyspace)?,
            kind: Kind::Hash,
            mode: Mode::Strict,
            buckets: 16,
            ids: None,
            data_centre: None,
            login: None,
            tls: None,
            timeout: Duration::from_secs(5),
            start_wait: Duration::from_secs(60),
            in_flight_max: 1024,
            speculative_after: Some(Duration::from_millis(100)),
            value_bytes_max: 2 << 20,
        };
        let (mut user, mut password, mut certificate, mut key_file) = (None, None, None, None);
        let (mut width, mut limit_bytes) = (None, None);
        let mut allows_plain_login = false;
        for part in parts.filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| NameError::NotAPair(part.to_owned()))?;
            match key.to_ascii_lowercase().as_str() {
                "kind" => {
                    let kinds = Kind::ALL.map(|kind| (kind.name(), kind));
                    parsed.kind = one_of("kind", value, &kinds)?;
                }
                "mode" => {
                    let modes = [Mode::Strict, Mode::Plain].map(|mode| (mode.name(), mode));
                    parsed.mode = one_of("mode", value, &modes)?;
                }
                "buckets" => {
                    let buckets = number("buckets", value, BUCKETS)?;
                    parsed.buckets = i32::try_from(buckets).unwrap_or(i32::MAX);
                }
                "width" => width = Some(bytes("width", value, FIXED_WIDTH_BYTES_MAX)?),
                "limsiz" => limit_bytes = Some(bytes("limsiz", value, u64::MAX)?),
                "dc" => parsed.data_centre = Some(value.to_owned()),
                "user" => user = Some(value.to_owned()),
                "password" => password = Some(PathBuf::from(value)),
                "plainlogin" => {
                    let words = [("true", true), ("false", false)];
                    allows_plain_login = one_of("plainlogin", value, &words)?;
                }
                "ca" => {
                    let authorities = (value != "system").then(|| PathBuf::from(value));
                    parsed.tls =
                        Some(tls::ClientSettings { authorities, ..tls::ClientSettings::default() });
                }
                "cert" => certificate = Some(PathBuf::from(value)),
                "key" => key_file = Some(PathBuf::from(value)),
                "timeout" => {
                    parsed.timeout = Duration::from_millis(number("timeout", value, TIMEOUT_MS)?);
                }
                "startwait" => {
                    let seconds = number("startwait", value, START_WAIT_S)?;
                    parsed.start_wait = Duration::from_secs(seconds);
                }
                "inflight" => {
                    let most = number("inflight", value, IN_FLIGHT)?;
                    parsed.in_flight_max = usize::try_from(most).unwrap_or(usize::MAX);
                }
                "speculative" => {
                    let after = number("speculative", value, (0, TIMEOUT_MS.1))?;
                    parsed.speculative_after = (after > 0).then_some(Duration::from_millis(after));
                }
                "value" => {
                    let most = number("value", value, VALUE_BYTES)?;
                    parsed.value_bytes_max = usize::try_from(most).unwrap_or(usize::MAX);
                }
                _ => return Err(NameError::UnknownKey(key.to_owned())),
            }
        }
        match (parsed.kind, parsed.mode) {
            (Kind::Tree, Mode::Plain) => return Err(NameError::Needs("kind=tcb", "mode=strict")),
            (Kind::Fixed, Mode::Plain) => return Err(NameError::Needs("kind=tcf", "mode=strict")),
            (Kind::Table, Mode::Plain) => return Err(NameError::Needs("kind=tct", "mode=strict")),
            _ => {}
        }
        parsed.ids = match (parsed.kind, width, limit_bytes) {
            // Both are within their limits.
            (Kind::Fixed, ..) => IdLimits::new(width, limit_bytes).ok(),
            (_, Some(_), _) => return Err(NameError::Needs("width", "kind=tcf")),
            (_, _, Some(_)) => return Err(NameError::Needs("limsiz", "kind=tcf")),
            _ => None,
        };
        parsed.login = match (user, password) {
            (Some(user), Some(password)) => Some((user, password)),
            (Some(_), None) => return Err(NameError::Needs("user", "password")),
            (None, Some(_)) => return Err(NameError::Needs("password", "user")),
            (None, None) => None,
        };
        // The driver logs in at all nodes, also where the contact points are on this machine.
        if parsed.login.is_some() && parsed.tls.is_none() && !allows_plain_login {
            let other = "ca, so that the password is encrypted, or plainlogin=true on a \
                         private network";
            return Err(NameError::Needs("user", other));
        }
        match (certificate, key_file, &mut parsed.tls) {
            (None, None, _) => {}
            (Some(certificate), Some(key), Some(tls)) => tls.identity = Some((certificate, key)),
            (Some(_), None, _) => return Err(NameError::Needs("cert", "key")),
            (None, Some(_), _) => return Err(NameError::Needs("key", "cert")),
            (Some(_), Some(_), None) => return Err(NameError::Needs("cert", "ca")),
        }
        Ok(parsed)
    }
}

fn with_port(host: &str) -> String {
    let has_port = match host.rsplit_once(':') {
        // An address of IPv6 has colons of its own.
        Some((before, _)) => !before.contains(':') || before.ends_with(']'),
        None => false,
    };
    if has_port { host.to_owned() } else { format!("{host}:{PORT}") }
}

fn keyspace_name(name: &str) -> Result<String, NameError> {
    let is_valid = name.len() <= KEYSPACE_BYTES_MAX
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_valid { Ok(name.to_ascii_lowercase()) } else { Err(NameError::Keyspace(name.to_owned())) }
}

fn one_of<T: Copy>(key: &'static str, value: &str, allowed: &[(&str, T)]) -> Result<T, NameError> {
    let found = allowed.iter().find(|(name, _)| name.eq_ignore_ascii_case(value));
    found.map(|(_, found)| *found).ok_or_else(|| NameError::BadValue {
        key,
        value: value.to_owned(),
        allowed: allowed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or "),
    })
}

fn number(key: &'static str, value: &str, (least, most): (u64, u64)) -> Result<u64, NameError> {
    let found = value.parse().ok().filter(|number| (least..=most).contains(number));
    found.ok_or_else(|| NameError::BadValue {
        key,
        value: value.to_owned(),
        allowed: format!("a whole number from {least} to {most}"),
    })
}

/// Parses a number of bytes as in names of local databases: with a suffix for a power of 1024.
fn bytes(key: &'static str, value: &str, most: u64) -> Result<u64, NameError> {
    let found = cabinet::name::number(value).filter(|bytes| (1..=most).contains(bytes));
    found.ok_or_else(|| NameError::BadValue {
        key,
        value: value.to_owned(),
        allowed: format!("a number of bytes from 1 to {most}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(name: &str) -> String {
        Name::parse(name).unwrap_err().to_string()
    }

    #[test]
    fn a_name_has_hosts_a_keyspace_and_options() {
        let name = Name::parse("cassandra://a,b:1,[::1]:2,::1/Mail").unwrap();
        assert_eq!(name.contact_points, ["a:9042", "b:1", "[::1]:2", "::1:9042"]);
        assert_eq!((&*name.keyspace, name.mode), ("mail", Mode::Strict));
        assert_eq!((name.login, name.tls, name.data_centre), (None, None, None));
        let name = Name::parse(
            "Cassandra://a/k#mode=plain#dc=x#user=u#password=/p#ca=/c#cert=/d#key=/e#timeout=100\
             #startwait=0#inflight=1#speculative=0#value=1024",
        )
        .unwrap();
        assert_eq!((name.mode, name.data_centre.as_deref()), (Mode::Plain, Some("x")));
        assert_eq!(name.login, Some(("u".to_owned(), "/p".into())));
        let tls = name.tls.unwrap();
        assert_eq!(tls.authorities, Some("/c".into()));
        assert_eq!(tls.identity, Some(("/d".into(), "/e".into())));
        assert_eq!((name.timeout, name.in_flight_max), (Duration::from_millis(100), 1));
        assert_eq!(name.start_wait, Duration::ZERO);
        assert_eq!((name.speculative_after, name.value_bytes_max), (None, 1024));
    }

    #[test]
    fn a_fixed_length_database_has_the_limits_of_a_local_one() {
        let limits = |options: &str| {
            let name = Name::parse(&format!("cassandra://a/k#kind=tcf{options}")).unwrap();
            name.ids.map(|ids| (ids.width(), ids.limit_bytes(), ids.id_max()))
        };
        assert_eq!(limits(""), Some((255, 256 << 20, 1_048_575)));
        assert_eq!(limits("#width=8#limsiz=1k"), Some((8, 4096, 426)));
        assert_eq!(limits("#width=64m").unwrap().0, FIXED_WIDTH_BYTES_MAX);
        assert_eq!(limits("#width=1").unwrap().0, 1);
        assert_eq!(Name::parse("cassandra://a/k#kind=tcb").unwrap().ids, None);
    }

    #[test]
    fn a_wrong_name_has_an_error_that_says_what_is_wrong() {
        for name in ["casket.tch", "cassandra://a", "cassandra:///k", "cassandra://a,/k"] {
            assert!(reason(name).contains("not of the form"), "{name}");
        }
        for keyspace in ["", "1a", "a-b", "a\"b", &"a".repeat(49)] {
            assert!(reason(&format!("cassandra://a/{keyspace}")).contains("name of a keyspace"));
        }
        for (part, expected) in [
            ("x", "\"x\" is not of the form key=value"),
            ("x=1", "unknown key \"x\""),
            ("kind=tcx", "kind takes tch or tcb or tcf or tct"),
            ("kind=tcb#mode=plain", "kind=tcb needs mode=strict"),
            ("kind=tcf#mode=plain", "kind=tcf needs mode=strict"),
            ("width=8", "width needs kind=tcf"),
            ("kind=tcb#limsiz=1m", "limsiz needs kind=tcf"),
            ("kind=tcf#width=0", "a number of bytes from 1 to 67108864"),
            ("kind=tcf#width=67108865", "a number of bytes from 1 to 67108864"),
            ("kind=tcf#width=x", "a number of bytes from 1 to 67108864"),
            ("kind=tcf#limsiz=0", "a number of bytes from 1 to 18446744073709551615"),
            ("kind=tct#mode=plain", "kind=tct needs mode=strict"),
            ("buckets=0", "a whole number from 1 to 4096"),
            ("buckets=4097", "a whole number from 1 to 4096"),
            ("mode=fast", "mode takes strict or plain"),
            ("timeout=99", "a whole number from 100 to 60000"),
            ("timeout=60001", "a whole number from 100 to 60000"),
            ("startwait=3601", "a whole number from 0 to 3600"),
            ("inflight=0", "a whole number from 1 to 32768"),
            ("inflight=32769", "a whole number from 1 to 32768"),
            ("speculative=60001", "a whole number from 0 to 60000"),
            ("value=1023", "a whole number from 1024 to 15728640"),
            ("value=15728641", "a whole number from 1024 to 15728640"),
            ("user=u", "user needs password"),
            ("password=p", "password needs user"),
            ("cert=c", "cert needs key"),
            ("key=c", "key needs cert"),
            ("cert=c#key=k", "cert needs ca"),
            (
                "user=u#password=p",
                "user needs ca, so that the password is encrypted, or plainlogin",
            ),
            ("plainlogin=1", "plainlogin takes true or false"),
        ] {
            let found = reason(&format!("cassandra://a/k#{part}"));
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn a_password_without_tls_takes_a_word() {
        for hosts in ["127.0.0.1", "db1,db2"] {
            let name = format!("cassandra://{hosts}/k#user=u#password=p");
            assert!(Name::parse(&name).is_err(), "{name}");
            for allowed in ["#plainlogin=true", "#ca=system"] {
                Name::parse(&format!("{name}{allowed}")).unwrap();
            }
        }
    }
}
