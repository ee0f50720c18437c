//! Protocols: requests and replies, encoded by hand as a lean client would.

mod binary;
pub(crate) mod mariadb;
mod memcached;
mod memcached_binary;
mod memcached_meta;
mod redis;

use crate::records::text_key;

/// A protocol that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// memcached's text protocol.
    Memcached,
    /// memcached's text protocol with meta commands.
    MemcachedMeta,
    /// memcached's binary protocol.
    MemcachedBinary,
    /// Tokyo Tyrant's binary protocol.
    Binary,
    /// Redis's RESP, version 2.
    Redis,
    /// MariaDB's, with prepared statements.
    MariaDb {
        /// Number of the connection's first statement; 0 before there is a connection.
        first_statement: u32,
    },
}

/// Script that a request calls, with the key of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Returns an empty value.
    Empty,
    /// Adds 1 to a counter of its own for each key, and returns the sum.
    Increment,
}

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Store one record.
    Set,
    /// Read one record.
    Get,
    /// Read several records with one request.
    MultiGet,
    /// Call a script.
    Call(Script),
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The record was stored.
    Stored,
    /// Values were read: the number found, and the number of wrong ones among them.
    Values {
        /// Records that exist.
        found: usize,
        /// Records whose value differs from the expected one.
        wrong: usize,
    },
    /// A script was called, and returned a result.
    Called,
    /// The server refused with this text. The next reply follows.
    Refused(String),
}

/// The bytes are no reply to the request, so nothing after them can be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbled(pub String);

/// Result of parsing the bytes received so far.
pub type Parsed = Result<Option<(usize, Reply)>, Garbled>;

/// Source of the expected values.
pub trait Expect {
    /// Returns the value of record `number`.
    fn value(&self, number: u64) -> &[u8];
}

impl Protocol {
    /// MariaDB's protocol before a connection exists.
    pub const MARIADB: Self = Self::MariaDb { first_statement: 0 };

    /// Returns whether the protocol is MariaDB's.
    #[must_use]
    pub fn is_mariadb(self) -> bool {
        matches!(self, Self::MariaDb { .. })
    }

    /// Returns the protocol of this name: `memcached`, `memcached-meta`, `memcached-binary`,
    /// `binary`, `redis` or `mariadb`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "memcached" => Some(Self::Memcached),
            "memcached-meta" => Some(Self::MemcachedMeta),
            "memcached-binary" => Some(Self::MemcachedBinary),
            "binary" => Some(Self::Binary),
            "redis" => Some(Self::Redis),
            "mariadb" => Some(Self::MARIADB),
            _ => None,
        }
    }

    /// Appends the request that stores record `number`.
    pub fn encode_set(self, number: u64, value: &[u8], out: &mut Vec<u8>) {
        let key = text_key(number);
        match self {
            Self::Memcached => memcached::encode_set(&key, value, out),
            Self::MemcachedMeta => memcached_meta::encode_set(&key, value, out),
            Self::MemcachedBinary => memcached_binary::encode_set(&key, value, out),
            Self::Binary => binary::encode_set(&key, value, out),
            Self::Redis => redis::encode_set(&key, value, out),
            Self::MariaDb { first_statement } => {
                mariadb::encode_set(first_statement, &key, value, out);
            }
        }
    }

    /// Appends the request that reads record `number`.
    pub fn encode_get(self, number: u64, out: &mut Vec<u8>) {
        let key = text_key(number);
        match self {
            Self::Memcached => memcached::encode_get(&[number], out),
            Self::MemcachedMeta => memcached_meta::encode_get(&key, out),
            Self::MemcachedBinary => memcached_binary::encode_get(&key, out),
            Self::Binary => binary::encode_get(&key, out),
            Self::Redis => redis::encode_get(&key, out),
            Self::MariaDb { first_statement } => {
                mariadb::encode_get(first_statement, &key, out);
            }
        }
    }

    /// Returns whether one request can read several records.
    #[must_use]
    pub fn has_multi_get(self) -> bool {
        !self.is_mariadb()
    }

    /// Appends the request that reads the records `numbers`. Only for protocols that have such
    /// requests.
    pub fn encode_multi_get(self, numbers: &[u64], out: &mut Vec<u8>) {
        match self {
            Self::Memcached => memcached::encode_get(numbers, out),
            Self::MemcachedMeta => memcached_meta::encode_multi_get(numbers, out),
            Self::MemcachedBinary => memcached_binary::encode_multi_get(numbers, out),
            Self::Binary => binary::encode_multi_get(numbers, out),
            Self::Redis => redis::encode_multi_get(numbers, out),
            Self::MariaDb { .. } => unreachable!("the suite checks has_multi_get first"),
        }
    }

    /// Returns whether the protocol has requests that call scripts.
    #[must_use]
    pub fn has_scripts(self) -> bool {
        matches!(self, Self::Binary | Self::Redis)
    }

    /// Appends the request that calls a script with the key of record `number`. Only for protocols
    /// that have such requests.
    pub fn encode_call(self, script: Script, number: u64, out: &mut Vec<u8>) {
        let key = text_key(number);
        match self {
            Self::Binary => binary::encode_call(script, &key, out),
            Self::Redis => redis::encode_call(script, &key, out),
            Self::Memcached
            | Self::MemcachedMeta
            | Self::MemcachedBinary
            | Self::MariaDb { .. } => {
                unreachable!("the suite checks has_scripts first")
            }
        }
    }

    /// Appends the request that loads a script into a Redis server.
    pub fn encode_load(script: Script, out: &mut Vec<u8>) {
        redis::encode_load(script, out);
    }

    /// Parses the reply to a request of `kind` for `numbers` at the start of `bytes`. Returns its
    /// length in bytes and the reply. `None` if it is incomplete.
    pub fn parse(self, kind: Kind, numbers: &[u64], bytes: &[u8], expect: &impl Expect) -> Parsed {
        match self {
            Self::Memcached => memcached::parse(kind, numbers, bytes, expect),
            Self::MemcachedMeta => memcached_meta::parse(kind, numbers, bytes, expect),
            Self::MemcachedBinary => memcached_binary::parse(kind, numbers, bytes, expect),
            Self::Binary => binary::parse(kind, numbers, bytes, expect),
            Self::Redis => redis::parse(kind, numbers, bytes, expect),
            Self::MariaDb { .. } => mariadb::parse(kind, numbers, bytes, expect),
        }
    }
}

/// Appends a decimal number without the cost of a formatter.
fn push_decimal(mut number: usize, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut place = digits.len();
    loop {
        place -= 1;
        digits[place] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[place..]);
}

/// Returns the line at the start of `bytes` without its CR LF, and its length with it. Fails if the
/// line does not end within 64 KiB.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Garbled> {
    const LINE_BYTES_MAX: usize = 64 * 1024;
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            let line = &bytes[..end];
            Ok(Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1)))
        }
        None if bytes.len() > LINE_BYTES_MAX => Err(garbled("a line without end", bytes)),
        None => Ok(None),
    }
}

fn decimal<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn garbled(what: &str, bytes: &[u8]) -> Garbled {
    Garbled(format!("{what}: \"{}\"", bytes[..bytes.len().min(60)].escape_ascii()))
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every record's value is `abc`.
    struct Abc;

    impl Expect for Abc {
        fn value(&self, _number: u64) -> &[u8] {
            b"abc"
        }
    }

    fn reply(protocol: Protocol, kind: Kind, numbers: &[u64], bytes: &[u8]) -> Reply {
        for end in 0..bytes.len() {
            let parsed = protocol.parse(kind, numbers, &bytes[..end], &Abc);
            assert_eq!(parsed, Ok(None), "after {end} bytes");
        }
        let longer = [bytes, b"next"].concat();
        let parsed = protocol.parse(kind, numbers, &longer, &Abc).unwrap().unwrap();
        assert_eq!(parsed.0, bytes.len());
        parsed.1
    }

    fn found(found: usize, wrong: usize) -> Reply {
        Reply::Values { found, wrong }
    }

    fn keyed(parts: &[&[u8]], number: u64) -> Vec<u8> {
        parts.join(&text_key(number)[..])
    }

    #[test]
    fn memcached_replies_are_understood_and_checked() {
        let parse =
            |kind, numbers: &[u64], bytes: &[u8]| reply(Protocol::Memcached, kind, numbers, bytes);
        assert_eq!(parse(Kind::Set, &[1], b"STORED\r\n"), Reply::Stored);
        let refusal = parse(Kind::Set, &[1], b"SERVER_ERROR out of memory\r\n");
        assert_eq!(refusal, Reply::Refused("SERVER_ERROR out of memory".into()));
        assert_eq!(parse(Kind::Get, &[1], b"END\r\n"), found(0, 0));
        let right = keyed(&[b"VALUE ", b" 0 3\r\nabc\r\nEND\r\n"], 1);
        assert_eq!(parse(Kind::Get, &[1], &right), found(1, 0));
        let wrong = keyed(&[b"VALUE ", b" 0 3\r\nabd\r\nEND\r\n"], 1);
        assert_eq!(parse(Kind::Get, &[1], &wrong), found(1, 1));
        let second = keyed(&[b"VALUE ", b" 0 3\r\nabc\r\nEND\r\n"], 2);
        assert_eq!(parse(Kind::MultiGet, &[1, 2, 3], &second), found(1, 0));
    }

    #[test]
    fn memcached_replies_for_other_keys_are_garbled() {
        let other = keyed(&[b"VALUE ", b" 0 3\r\nabc\r\nEND\r\n"], 9);
        assert!(Protocol::Memcached.parse(Kind::Get, &[1], &other, &Abc).is_err());
        assert!(Protocol::Memcached.parse(Kind::Set, &[1], b"END\r\n", &Abc).is_err());
    }

    #[test]
    fn meta_replies_are_understood_and_checked() {
        let parse = |kind, numbers: &[u64], bytes: &[u8]| {
            reply(Protocol::MemcachedMeta, kind, numbers, bytes)
        };
        assert_eq!(parse(Kind::Set, &[1], b"HD\r\n"), Reply::Stored);
        let refusal = parse(Kind::Set, &[1], b"SERVER_ERROR out of memory\r\n");
        assert_eq!(refusal, Reply::Refused("SERVER_ERROR out of memory".into()));
        assert_eq!(parse(Kind::Get, &[1], b"EN\r\n"), found(0, 0));
        assert_eq!(parse(Kind::Get, &[1], b"VA 3\r\nabc\r\n"), found(1, 0));
        assert_eq!(parse(Kind::Get, &[1], b"VA 3\r\nabd\r\n"), found(1, 1));
        let second = keyed(&[b"VA 3 k", b"\r\nabc\r\nMN\r\n"], 2);
        assert_eq!(parse(Kind::MultiGet, &[1, 2, 3], &second), found(1, 0));
        let other = keyed(&[b"VA 3 k", b"\r\nabc\r\nMN\r\n"], 9);
        assert!(Protocol::MemcachedMeta.parse(Kind::MultiGet, &[1], &other, &Abc).is_err());
    }

    #[test]
    fn memcached_binary_replies_are_understood_and_checked() {
        let parse = |kind, numbers: &[u64], bytes: &[u8]| {
            reply(Protocol::MemcachedBinary, kind, numbers, bytes)
        };
        let packet = |opcode: u8, status: u8, extras: u8, key: &[u8], value: &[u8]| {
            let body = extras as usize + key.len() + value.len();
            let mut packet = vec![0x81, opcode, 0, key.len() as u8, extras, 0, 0, status];
            packet.extend_from_slice(&[0, 0, 0, body as u8]);
            packet.resize(24 + usize::from(extras), 0);
            [&packet, key, value].concat()
        };
        assert_eq!(parse(Kind::Set, &[1], &packet(1, 0, 0, b"", b"")), Reply::Stored);
        let refusal = parse(Kind::Set, &[1], &packet(1, 3, 0, b"", b"Too large."));
        assert_eq!(refusal, Reply::Refused("status 3: Too large.".into()));
        assert_eq!(parse(Kind::Get, &[1], &packet(0, 1, 0, b"", b"Not found")), found(0, 0));
        assert_eq!(parse(Kind::Get, &[1], &packet(0, 0, 4, b"", b"abc")), found(1, 0));
        assert_eq!(parse(Kind::Get, &[1], &packet(0, 0, 4, b"", b"abd")), found(1, 1));
        let many = |number| {
            let record = packet(13, 0, 4, &text_key(number), b"abc");
            [record, packet(10, 0, 0, b"", b"")].concat()
        };
        assert_eq!(parse(Kind::MultiGet, &[1, 2, 3], &many(2)), found(1, 0));
        assert!(Protocol::MemcachedBinary.parse(Kind::MultiGet, &[1], &many(9), &Abc).is_err());
    }

    #[test]
    fn binary_replies_are_understood_and_checked() {
        let parse =
            |kind, numbers: &[u64], bytes: &[u8]| reply(Protocol::Binary, kind, numbers, bytes);
        assert_eq!(parse(Kind::Set, &[1], b"\0"), Reply::Stored);
        assert_eq!(parse(Kind::Set, &[1], b"\x01"), Reply::Refused("status 1".into()));
        assert_eq!(parse(Kind::Get, &[1], b"\x01"), found(0, 0));
        assert_eq!(parse(Kind::Get, &[1], b"\0\0\0\0\x03abc"), found(1, 0));
        assert_eq!(parse(Kind::Get, &[1], b"\0\0\0\0\x03abd"), found(1, 1));
        assert_eq!(parse(Kind::MultiGet, &[1, 2], b"\0\0\0\0\0"), found(0, 0));
        let second = keyed(&[b"\0\0\0\0\x01\0\0\0\x10\0\0\0\x03", b"abc"], 2);
        assert_eq!(parse(Kind::MultiGet, &[1, 2], &second), found(1, 0));
        let other = keyed(&[b"\0\0\0\0\x01\0\0\0\x10\0\0\0\x03", b"abc"], 9);
        assert!(Protocol::Binary.parse(Kind::MultiGet, &[1, 2], &other, &Abc).is_err());
    }

    #[test]
    fn redis_replies_are_understood_and_checked() {
        let parse =
            |kind, numbers: &[u64], bytes: &[u8]| reply(Protocol::Redis, kind, numbers, bytes);
        assert_eq!(parse(Kind::Set, &[1], b"+OK\r\n"), Reply::Stored);
        assert_eq!(parse(Kind::Set, &[1], b"-OOM no\r\n"), Reply::Refused("-OOM no".into()));
        assert_eq!(parse(Kind::Get, &[1], b"$-1\r\n"), found(0, 0));
        assert_eq!(parse(Kind::Get, &[1], b"$3\r\nabc\r\n"), found(1, 0));
        assert_eq!(parse(Kind::Get, &[1], b"$3\r\nabd\r\n"), found(1, 1));
        assert_eq!(parse(Kind::MultiGet, &[1, 2], b"*2\r\n$-1\r\n$3\r\nabc\r\n"), found(1, 0));
        assert!(Protocol::Redis.parse(Kind::MultiGet, &[1], b"*2\r\n", &Abc).is_err());
    }

    #[test]
    fn mariadb_replies_are_understood_and_checked() {
        let parse =
            |kind, numbers: &[u64], bytes: &[u8]| reply(Protocol::MARIADB, kind, numbers, bytes);
        let packets = |bodies: &[&[u8]]| {
            let packets = bodies.iter().zip(1..);
            packets.flat_map(|(body, n)| [&[body.len() as u8, 0, 0, n], *body].concat()).collect()
        };
        let end = [0xfe, 0, 0, 2, 0];
        let result = |rows: &[&[u8]]| -> Vec<u8> {
            packets(&[&[&[1][..], b"\x03defv", &end], rows, &[&end]].concat())
        };
        let stored: Vec<u8> = packets(&[&[0, 1, 0, 2, 0, 0, 0]]);
        assert_eq!(parse(Kind::Set, &[1], &stored), Reply::Stored);
        let refused: Vec<u8> = packets(&[b"\xff\x28\x04#42000No."]);
        for kind in [Kind::Set, Kind::Get] {
            assert_eq!(parse(kind, &[1], &refused), Reply::Refused("error 1064: No.".into()));
        }
        assert_eq!(parse(Kind::Get, &[1], &result(&[])), found(0, 0));
        assert_eq!(parse(Kind::Get, &[1], &result(&[b"\0\0\x0babc12345678"])), found(1, 0));
        assert_eq!(parse(Kind::Get, &[1], &result(&[b"\0\0\x0babd12345678"])), found(1, 1));
        let row: &[u8] = b"\0\0\x0babc12345678";
        for wrong in [result(&[row, row]), result(&[b"\0\x04"]), packets(&[&[2]])] {
            assert!(Protocol::MARIADB.parse(Kind::Get, &[1], &wrong, &Abc).is_err());
        }
        assert!(Protocol::MARIADB.parse(Kind::Set, &[1], &result(&[]), &Abc).is_err());
    }

    #[test]
    fn replies_of_scripts_are_understood() {
        let call = Kind::Call(Script::Increment);
        for (protocol, bytes) in [
            (Protocol::Binary, &b"\0\0\0\0\x0212"[..]),
            (Protocol::Redis, b":12\r\n"),
            (Protocol::Redis, b"$2\r\n12\r\n"),
        ] {
            let whole = Ok(Some((bytes.len(), Reply::Called)));
            assert_eq!(protocol.parse(call, &[1], bytes, &Abc), whole);
            assert_eq!(protocol.parse(call, &[1], &bytes[..bytes.len() - 1], &Abc), Ok(None));
        }
        let failed = Protocol::Binary.parse(call, &[1], b"\x01", &Abc);
        assert_eq!(failed, Ok(Some((1, Reply::Refused("status 1".into())))));
        let failed = Protocol::Redis.parse(call, &[1], b"-NOSCRIPT No\r\n", &Abc);
        assert!(matches!(failed, Ok(Some((_, Reply::Refused(_))))));
    }
}
