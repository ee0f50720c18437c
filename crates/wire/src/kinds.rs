//! The kinds of all protocols' requests.

use crate::kind::{Class, Commands, Effect, RequestKind};
use crate::{binary, http, memcached, memcached_binary, redis};

/// The commands of all protocols, by their numbers.
pub const PROTOCOLS: [&Commands; 6] = [
    &binary::Kind::COMMANDS,
    &memcached::Kind::COMMANDS,
    &memcached_binary::Kind::COMMANDS,
    &http::Kind::COMMANDS,
    &http::WebDavKind::COMMANDS,
    &redis::Command::COMMANDS,
];

/// Number of the first kind of each protocol.
const FIRST: [u8; PROTOCOLS.len()] = {
    let (mut first, mut place, mut count) = ([0; PROTOCOLS.len()], 0, 1);
    while place < PROTOCOLS.len() {
        assert!(PROTOCOLS[place].number as usize == place + 1, "the list is by numbers");
        first[place] = count as u8;
        count += PROTOCOLS[place].commands.len();
        place += 1;
    }
    assert!(count == RequestKind::COUNT && count <= u8::MAX as usize, "a number is a byte");
    first
};

impl RequestKind {
    /// Bytes that are not a request, or one that is not counted.
    pub const NONE: Self = Self { protocol: 0, command: 0 };

    /// Number of kinds, with [`RequestKind::NONE`].
    pub const COUNT: usize = {
        let (mut place, mut count) = (0, 1);
        while place < PROTOCOLS.len() {
            count += PROTOCOLS[place].commands.len();
            place += 1;
        }
        count
    };

    /// Returns all kinds but [`RequestKind::NONE`], in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        PROTOCOLS.iter().flat_map(|protocol| {
            let commands = 0..protocol.commands.len() as u8;
            commands.map(|command| Self { protocol: protocol.number, command })
        })
    }

    /// Returns the number of the kind, below [`RequestKind::COUNT`].
    #[inline]
    pub fn number(self) -> usize {
        self.place().map_or(0, |place| usize::from(FIRST[place] + self.command))
    }

    /// Returns the place of the protocol among [`PROTOCOLS`].
    #[inline]
    pub fn place(self) -> Option<usize> {
        usize::from(self.protocol).checked_sub(1)
    }

    fn row(self) -> Option<&'static (&'static str, Class, Effect)> {
        PROTOCOLS.get(self.place()?)?.commands.get(usize::from(self.command))
    }

    /// Returns the class of the command.
    pub fn class(self) -> Class {
        self.row().map_or(Class::Other, |(_, class, _)| *class)
    }

    /// Returns the effect of the command.
    pub fn effect(self) -> Effect {
        self.row().map_or(Effect::None, |(_, _, effect)| *effect)
    }

    /// Returns the name of the protocol.
    pub fn protocol(self) -> &'static str {
        self.place().map_or("none", |place| PROTOCOLS[place].protocol)
    }

    /// Returns the name of the command.
    pub fn command(self) -> &'static str {
        self.row().map_or("none", |(name, ..)| name)
    }
}

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
        let numbers = RequestKind::all().map(RequestKind::number);
        assert!(numbers.eq(1..RequestKind::COUNT));
        assert_eq!(RequestKind::NONE.number(), 0);
        let commands = PROTOCOLS.iter().flat_map(|protocol| {
            protocol
                .commands
                .iter()
                .map(|(command, class, _)| (protocol.protocol, *command, *class))
        });
        assert_eq!(all, commands.collect::<Vec<_>>());
        let order = Class::ALL.iter().enumerate();
        assert!(order.clone().all(|(index, (class, _))| *class as usize == index));
    }
}
