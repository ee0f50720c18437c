//! Rights: the operations that a user may execute, and the keys that these may be about.
//!
//! An operation names what it needs ([`Operation::need`]), and [`super::execute()`] checks it for
//! every protocol. A right is for all keys, or for those with one of some prefixes. An operation on
//! a list of keys needs it for each of them. One on the keys with a prefix needs it for a prefix of
//! that prefix. One that may reach any key, such as an iterator, needs it for all keys.
//!
//! In a fixed-length database a key has many spellings: `7`, `007` and `a7` are one record. There a
//! prefix is compared with the id as text, decimal without leading zeros. `min`, `max`, `prev` and
//! `next` name another record after each change, so they need the right for all keys.

use super::operation::{Operation, OperationKeys};
use cabinet::ids::{Key, text_of};
use std::fmt;
use std::str::FromStr;

/// Most rights of a user, each with a prefix.
pub const RIGHTS_MAX: usize = 256;

/// Kind of a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Read records.
    Read,
    /// Store and remove records.
    Write,
    /// Administer the server.
    Admin,
    /// Call functions of the extension.
    Scripts,
}

impl Right {
    /// Every right.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Admin, Self::Scripts];

    /// Returns the name in a file of users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
            Self::Scripts => "scripts",
        }
    }
}

/// Keys for which a right is needed.
pub(crate) enum Reach<'a> {
    /// Each of these.
    Keys(OperationKeys<'a>),
    /// All with this prefix.
    Prefix(&'a [u8]),
    /// All.
    All,
    /// Any: the operation is about no key.
    Any,
}

/// A right that an operation needs.
pub(crate) struct Need<'a> {
    pub(crate) right: Right,
    pub(crate) reach: Reach<'a>,
}

impl<'a> Need<'a> {
    /// Returns the need of a right for one key.
    pub(crate) fn of_key(right: Right, key: &'a [u8]) -> Self {
        Self { right, reach: Reach::Keys(OperationKeys::One(Some(key))) }
    }

    /// Returns the need of a right for all keys.
    pub(crate) fn of_all(right: Right) -> Self {
        Self { right, reach: Reach::All }
    }
}

/// Keys for which a user has a right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Grant {
    #[default]
    None,
    /// Those with one of these prefixes.
    Prefixes(Vec<Box<[u8]>>),
    All,
}

impl Grant {
    fn has(&self, key: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::Prefixes(prefixes) => prefixes.iter().any(|prefix| key.starts_with(prefix)),
            Self::All => true,
        }
    }

    /// Returns whether the right is for the record that a key of a fixed-length database names.
    fn has_id(&self, key: &[u8]) -> bool {
        match Key::parse(key) {
            Key::Id(id) => self.has(&text_of(id)),
            Key::Min | Key::Max | Key::Prev | Key::Next => *self == Self::All,
        }
    }

    /// Returns whether the right is for all ids that begin with these digits. Any other text, such
    /// as an interval, may reach any id.
    fn has_ids(&self, digits: &[u8]) -> bool {
        digits.iter().all(u8::is_ascii_digit) && self.has(digits)
    }
}

/// Rights of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights([Grant; Right::ALL.len()]);

/// A text that is no right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RightError {
    /// There is no such right.
    #[error("is none of read, write, admin and scripts")]
    Unknown,
    /// The prefix is empty.
    #[error("has an empty prefix; leave out the colon")]
    EmptyPrefix,
    /// The prefix has an escape that is none.
    #[error("has a backslash that begins neither \\\\ nor \\xHH, a byte in hexadecimal")]
    Escape,
    /// The right is about the server.
    #[error("has a prefix, but admin is about the server as a whole")]
    AdminPrefix,
    /// The user has too many.
    #[error("is one more than {RIGHTS_MAX}")]
    TooMany,
}

/// A right and the prefix of its keys, if it is not for all.
struct Granted(Right, Option<Box<[u8]>>);

impl Granted {
    fn parse(text: &str) -> Result<Self, RightError> {
        let (name, prefix) = match text.split_once(':') {
            Some((name, prefix)) => (name, Some(prefix)),
            None => (text, None),
        };
        let right = Right::ALL.into_iter().find(|right| right.name() == name);
        match (right.ok_or(RightError::Unknown)?, prefix) {
            (_, Some("")) => Err(RightError::EmptyPrefix),
            (Right::Admin, Some(_)) => Err(RightError::AdminPrefix),
            (right, prefix) => Ok(Self(right, prefix.map(unescaped).transpose()?)),
        }
    }
}

/// Returns the bytes of a prefix: `\xHH` is a byte, for keys that are no text in UTF-8, and `\\` is
/// a backslash.
fn unescaped(prefix: &str) -> Result<Box<[u8]>, RightError> {
    let mut bytes = Vec::with_capacity(prefix.len());
    let mut rest = prefix.as_bytes();
    while let [first, others @ ..] = rest {
        rest = match (first, others) {
            (b'\\', [b'\\', others @ ..]) => {
                bytes.push(b'\\');
                others
            }
            (b'\\', [b'x', high, low, others @ ..]) => {
                let digit = |digit: &u8| char::from(*digit).to_digit(16).ok_or(RightError::Escape);
                bytes.push((digit(high)? << 4 | digit(low)?) as u8);
                others
            }
            (b'\\', _) => return Err(RightError::Escape),
            (byte, others) => {
                bytes.push(*byte);
                others
            }
        };
    }
    Ok(bytes.into())
}

/// Parses one right: `read`, or `read:PREFIX`.
impl FromStr for Rights {
    type Err = RightError;

    fn from_str(text: &str) -> Result<Self, RightError> {
        let mut rights = Self::default();
        rights.add(Granted::parse(text)?);
        Ok(rights)
    }
}

impl Rights {
    /// Returns the rights of these texts, or the first that is invalid.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, (&str, RightError)> {
        let mut rights = Self::default();
        for (index, text) in texts.iter().map(AsRef::as_ref).enumerate() {
            if index >= RIGHTS_MAX {
                return Err((text, RightError::TooMany));
            }
            rights.add(Granted::parse(text).map_err(|error| (text, error))?);
        }
        Ok(rights)
    }

    fn add(&mut self, Granted(right, prefix): Granted) {
        let grant = &mut self.0[right as usize];
        match (&mut *grant, prefix) {
            (Grant::All, _) => {}
            (_, None) => *grant = Grant::All,
            (Grant::None, Some(prefix)) => *grant = Grant::Prefixes(vec![prefix]),
            (Grant::Prefixes(prefixes), Some(prefix)) => prefixes.push(prefix),
        }
    }

    /// Returns whether nothing is refused.
    pub(crate) fn are_all(&self) -> bool {
        self.0.iter().all(|grant| *grant == Grant::All)
    }

    /// Returns the right that an operation needs and that is missing, if one is.
    /// `has_ids` is whether the keys of the database are numbers.
    #[cold]
    pub(crate) fn missing(&self, operation: &Operation<'_>, has_ids: bool) -> Option<Right> {
        let [first, second] = operation.need();
        [first, second].into_iter().flatten().find_map(|need| {
            let grant = &self.0[need.right as usize];
            match need.reach {
                Reach::Keys(mut keys) if has_ids && *grant != Grant::None => {
                    (!keys.all(|key| grant.has_id(key))).then_some(need.right)
                }
                Reach::Prefix(digits) if has_ids && *grant != Grant::All => {
                    (!grant.has_ids(digits)).then_some(need.right)
                }
                reach => self.lacks(Need { right: need.right, reach }),
            }
        })
    }

    /// Returns the right of a need if it is missing.
    pub(crate) fn lacks(&self, need: Need<'_>) -> Option<Right> {
        let grant = &self.0[need.right as usize];
        let has = match need.reach {
            _ if *grant == Grant::All => true,
            Reach::All => false,
            Reach::Any => *grant != Grant::None,
            Reach::Prefix(prefix) => grant.has(prefix),
            Reach::Keys(mut keys) => *grant != Grant::None && keys.all(|key| grant.has(key)),
        };
        (!has).then_some(need.right)
    }
}

impl Right {
    /// Returns why an operation that needs the right is refused.
    pub(crate) fn lacking(self) -> String {
        match self {
            Self::Admin => format!("the user lacks the right {self}"),
            _ => format!("the user lacks the right {self}, or has it for other keys only"),
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::conditional::{Action, Counting, Presence, Write};
    use crate::ops::number::Arithmetic;
    use crate::ops::touch::Touch;
    use crate::store::strings;

    fn rights(texts: &[&str]) -> Rights {
        Rights::parse(texts).expect("rights")
    }

    #[test]
    fn texts_are_rights_or_tell_their_flaw() {
        for (text, error) in [
            ("", RightError::Unknown),
            ("reads", RightError::Unknown),
            ("Read", RightError::Unknown),
            (":a", RightError::Unknown),
            ("read:", RightError::EmptyPrefix),
            ("admin:a", RightError::AdminPrefix),
            ("read:\\", RightError::Escape),
            ("read:\\n", RightError::Escape),
            ("read:\\x", RightError::Escape),
            ("read:\\xf", RightError::Escape),
            ("read:\\xfg", RightError::Escape),
        ] {
            assert_eq!(Rights::parse(&["write", text]), Err((text, error)));
            assert_eq!(text.parse::<Rights>(), Err(error));
        }
        assert!(rights(&["read", "write", "admin", "scripts"]).are_all());
        assert!(!rights(&["read", "write:a", "admin", "scripts"]).are_all());
        assert_eq!(rights(&["read:a", "read"]), rights(&["read", "read:a"]));
        let many: Vec<String> = (0..=RIGHTS_MAX).map(|number| format!("read:{number}")).collect();
        assert!(Rights::parse(&many[1..]).is_ok());
        let last = many[RIGHTS_MAX].as_str();
        assert_eq!(Rights::parse(&many), Err((last, RightError::TooMany)));
    }

    #[test]
    fn a_key_needs_a_prefix_and_a_list_one_for_each() {
        let limited = rights(&["read:a:", "read:b:", "write:a:"]);
        let get = |key: &'static [u8]| limited.missing(&Operation::Get { key }, false);
        assert_eq!((get(b"a:1"), get(b"b:"), get(b"a")), (None, None, Some(Right::Read)));
        let put =
            |key: &'static [u8]| limited.missing(&Operation::put(key, b"", Presence::Any), false);
        assert_eq!((put(b"a:1"), put(b"b:1")), (None, Some(Right::Write)));
        let list = |keys: &[&[u8]]| {
            let keys = strings(keys).expect("keys");
            limited.missing(&Operation::GetList { keys: keys.strings(), every_value: false }, false)
        };
        assert_eq!(list(&[b"a:1", b"b:1"]), None);
        assert_eq!(list(&[b"a:1", b"c:1"]), Some(Right::Read));
        assert_eq!(list(&[]), None);
        let pairs = strings(&[b"a:1", b"x", b"b:1", b"x"]).expect("pairs");
        let put = Operation::PutList { pairs: pairs.strings(), adds: false, rows: None };
        assert_eq!(limited.missing(&put, false), Some(Right::Write));
    }

    #[test]
    fn prefixes_are_any_bytes() {
        let limited = rights(&["read:\\xff\\x00a", "read:\\\\x"]);
        let get = |key: &'static [u8]| limited.missing(&Operation::Get { key }, false);
        assert_eq!((get(b"\xff\0ab"), get(b"\\x1")), (None, None));
        assert_eq!((get(b"\xff\0"), get(b"x")), (Some(Right::Read), Some(Right::Read)));
    }

    #[test]
    fn a_range_needs_a_prefix_within_or_the_right_for_all_keys() {
        let limited = rights(&["read:a:", "write:a:"]);
        let prefix = |prefix: &'static [u8]| {
            limited.missing(&Operation::KeysWithPrefix { prefix, max: 1 }, false)
        };
        assert_eq!((prefix(b"a:1"), prefix(b"a:"), prefix(b"a")), (None, None, Some(Right::Read)));
        let read = [
            Operation::IterBegin { from: Some(b"a:1") },
            Operation::IterKey,
            Operation::IterRecord,
            Operation::Records,
            Operation::Match { pattern: b"^a:", max: 1 },
            Operation::Range { begin: Some(b"a:1"), max: 1, end: Some(b"a:2") },
            Operation::KeyPage { prefix: b"", after: Some(b"a:1"), max: 1 },
        ];
        for operation in &read {
            assert_eq!(limited.missing(operation, false), Some(Right::Read), "{operation:?}");
            assert_eq!(rights(&["read"]).missing(operation, false), None, "{operation:?}");
        }
        for operation in &[Operation::Clear, Operation::Sync] {
            assert_eq!(limited.missing(operation, false), Some(Right::Write), "{operation:?}");
            assert_eq!(rights(&["write"]).missing(operation, false), None, "{operation:?}");
        }
        assert_eq!(limited.missing(&Operation::Retune { tuning: b"" }, false), Some(Right::Admin));
        assert_eq!(limited.missing(&Operation::Count, false), None);
        assert_eq!(limited.missing(&Operation::GenerateUid, false), None);
        assert_eq!(rights(&["read"]).missing(&Operation::GenerateUid, false), Some(Right::Write));
    }

    #[test]
    fn a_count_needs_both_rights_since_it_returns_the_sum() {
        let arithmetic = Arithmetic::Add(0);
        let counting = Counting { arithmetic, create: None, expires_at_ms: None };
        for operation in [
            Operation::write(b"a", Action::AddInt(0)),
            Operation::write(b"a", Action::AddDouble(0.0)),
            Operation::Write(Write::new(b"a", Action::Count(counting))),
        ] {
            assert_eq!(rights(&["write"]).missing(&operation, false), Some(Right::Read));
            assert_eq!(rights(&["read"]).missing(&operation, false), Some(Right::Write));
            assert_eq!(rights(&["read:a", "write:a"]).missing(&operation, false), None);
        }
    }

    #[test]
    fn a_read_that_changes_its_record_needs_both_rights() {
        let touch = Touch { expires_at_ms: Some(0), shows_value: true, ..Touch::default() };
        let operation = Operation::Touch { key: b"a", touch };
        assert_eq!(rights(&["write"]).missing(&operation, false), Some(Right::Read));
        assert_eq!(rights(&["read"]).missing(&operation, false), Some(Right::Write));
        assert_eq!(rights(&["read", "write"]).missing(&operation, false), None);
        let hidden = Touch { expires_at_ms: Some(0), ..Touch::default() };
        assert_eq!(
            rights(&["write"]).missing(&Operation::Touch { key: b"a", touch: hidden }, false),
            None
        );
        let read = Touch { shows_value: true, ..Touch::default() };
        assert_eq!(
            rights(&["read"]).missing(&Operation::Touch { key: b"a", touch: read }, false),
            None
        );
    }

    #[test]
    fn a_prefix_of_ids_is_that_of_the_record_however_its_key_is_spelt() {
        let limited = rights(&["read:7", "read:0", "read:m", "read:n", "read:p", "read:a"]);
        let get = |key: &str| limited.missing(&Operation::Get { key: key.as_bytes() }, true);
        for key in ["7", "007", "70", "a7", "-7", "7x0"] {
            assert_eq!(get(key), None, "{key}");
        }
        for key in ["17", "0017", "a17", "00001", "m1", "a1", "min", "max", "prev", "next"] {
            assert_eq!(get(key), Some(Right::Read), "{key}");
            let all = rights(&["read"]).missing(&Operation::Get { key: key.as_bytes() }, true);
            assert_eq!(all, None, "{key}");
        }
        let limited = rights(&["read:7", "read:[", "read:("]);
        let list = |prefix: &'static [u8]| {
            limited.missing(&Operation::KeysWithPrefix { prefix, max: 1 }, true)
        };
        assert_eq!((list(b"7"), list(b"71")), (None, None));
        for prefix in [&b""[..], b"1", b"07", b"[1,9]", b"[min,max]", b"(0,9)", b"7,"] {
            assert_eq!(list(prefix), Some(Right::Read));
        }
    }
}
