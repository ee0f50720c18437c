//! Kinds of requests: protocol, command, and class, by which requests are counted and timed.

use crate::{binary, http, memcached, memcached_binary};

/// Class of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Reads records by their keys.
    Read,
    /// Changes a record.
    Write,
    /// Reads several records or keys.
    List,
    /// Calls a function.
    Script,
    /// Any other.
    Other,
}

impl Class {
    /// All classes, in the order of their numbers, with their names.
    pub const ALL: [(Self, &str); 5] = [
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::List, "list"),
        (Self::Script, "script"),
        (Self::Other, "other"),
    ];
}

/// The commands of a protocol.
pub struct Commands {
    /// Name of the protocol, as labels and lines have it.
    pub protocol: &'static str,
    /// Names of the commands, which are the protocol's own, and their classes.
    pub commands: &'static [(&'static str, Class)],
}

/// The commands of all protocols.
pub const PROTOCOLS: [&Commands; 5] = [
    &binary::Kind::COMMANDS,
    &memcached::Kind::COMMANDS,
    &memcached_binary::Kind::COMMANDS,
    &http::Kind::COMMANDS,
    &http::WebDavKind::COMMANDS,
];

/// Declares the kinds of a protocol's requests.
macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident $protocol:literal { $($kind:ident $command:literal $class:ident;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "the commands of the protocol, by their full names")]
        pub enum $name {
            $($kind,)*
        }

        impl $name {
            pub(crate) const COMMANDS: $crate::kind::Commands = $crate::kind::Commands {
                protocol: $protocol,
                commands: &[$(($command, $crate::kind::Class::$class),)*],
            };
        }

        impl From<$name> for $crate::kind::RequestKind {
            #[inline]
            fn from(kind: $name) -> Self {
                const FIRST: u8 = $crate::kind::first_of($protocol);
                Self::from_number(FIRST + kind as u8)
            }
        }
    };
}

pub(crate) use kinds;

/// Kind of a request of any protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestKind(u8);

impl RequestKind {
    /// Bytes that are no request, or one that is not counted.
    pub const NONE: Self = Self(0);

    /// Number of kinds, with [`RequestKind::NONE`].
    pub const COUNT: usize = count_before(PROTOCOLS.len());

    pub(crate) const fn from_number(number: u8) -> Self {
        Self(number)
    }

    /// Returns the number of the kind, below [`RequestKind::COUNT`].
    #[must_use]
    pub const fn number(self) -> usize {
        self.0 as usize
    }

    /// Returns all kinds but [`RequestKind::NONE`].
    pub fn all() -> impl Iterator<Item = Self> {
        (1..Self::COUNT as u8).map(Self)
    }

    /// Returns the place of the protocol among [`PROTOCOLS`], and that of the command among its own;
    /// `None` for [`RequestKind::NONE`].
    #[must_use]
    pub const fn place(self) -> Option<(usize, usize)> {
        if self.0 == 0 {
            return None;
        }
        let mut protocol = 0;
        while self.number() >= count_before(protocol + 1) {
            protocol += 1;
        }
        Some((protocol, self.number() - count_before(protocol)))
    }

    /// Returns the class of the command.
    #[must_use]
    pub const fn class(self) -> Class {
        match self.place() {
            Some((protocol, command)) => PROTOCOLS[protocol].commands[command].1,
            None => Class::Other,
        }
    }

    /// Returns the name of the protocol.
    #[must_use]
    pub const fn protocol(self) -> &'static str {
        match self.place() {
            Some((protocol, _)) => PROTOCOLS[protocol].protocol,
            None => "none",
        }
    }

    /// Returns the name of the command.
    #[must_use]
    pub const fn command(self) -> &'static str {
        match self.place() {
            Some((protocol, command)) => PROTOCOLS[protocol].commands[command].0,
            None => "none",
        }
    }
}

/// A request that can be told by its kind and its key.
pub trait Described<'i> {
    /// Returns the kind of the request.
    fn kind(&self) -> RequestKind;

    /// Returns the key of the request, if it has exactly one, whose lookup is worth a prefetch.
    fn only_key(&self) -> Option<&'i [u8]>;

    /// Returns the key, or what else names the request in a line of a log.
    fn name(&self) -> Option<&'i [u8]>;
}

/// Returns the number of the first kind of the protocol with this number.
const fn count_before(protocol: usize) -> usize {
    let (mut count, mut index) = (1, 0);
    while index < protocol {
        count += PROTOCOLS[index].commands.len();
        index += 1;
    }
    count
}

/// Returns the number of the first kind of a protocol.
pub(crate) const fn first_of(protocol: &str) -> u8 {
    let mut index = 0;
    while !is_same(PROTOCOLS[index].protocol.as_bytes(), protocol.as_bytes()) {
        index += 1;
    }
    count_before(index) as u8
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}

// A number of a kind is a byte.
const _: () = assert!(RequestKind::COUNT <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_that_of_its_protocol_and_command() {
        let named = |kind: RequestKind| (kind.protocol(), kind.command(), kind.class());
        assert_eq!(named(binary::Kind::Put.into()), ("tokyo_tyrant", "put", Class::Write));
        assert_eq!(named(memcached::Kind::Quit.into()), ("memcached", "quit", Class::Other));
        assert_eq!(
            named(memcached_binary::Kind::Get.into()),
            ("memcached_binary", "get", Class::Read)
        );
        assert_eq!(named(http::WebDavKind::Other.into()), ("webdav", "other", Class::Other));
        assert_eq!(named(RequestKind::NONE), ("none", "none", Class::Other));
        let all: Vec<_> = RequestKind::all().map(named).collect();
        assert_eq!(all.len() + 1, RequestKind::COUNT);
        let commands = PROTOCOLS.iter().flat_map(|protocol| {
            protocol.commands.iter().map(|(command, class)| (protocol.protocol, *command, *class))
        });
        assert_eq!(all, commands.collect::<Vec<_>>());
        let order = Class::ALL.iter().enumerate();
        assert!(order.clone().all(|(index, (class, _))| *class as usize == index));
    }
}
