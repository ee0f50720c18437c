//! Command mask: the commands that a server refuses, as Tokyo Tyrant's `-mask` and `-unmask`.
//!
//! A masked command is refused through every protocol, and as a function of `misc`. Unlike in Tokyo
//! Tyrant, `allwrite` covers every command that can remove or rewrite records. So it also covers
//! `optimize`, which may lower a cap, `restore` and `setmst`.

use crate::ops::rights::Right;
use std::fmt;
use std::str::FromStr;

/// Names of the bits from bit 0, in Tokyo Tyrant's order.
const NAMES: [&str; 34] = [
    "put",
    "putkeep",
    "putcat",
    "putshl",
    "putnr",
    "out",
    "get",
    "mget",
    "vsiz",
    "iterinit",
    "iternext",
    "fwmkeys",
    "addint",
    "adddouble",
    "ext",
    "sync",
    "optimize",
    "vanish",
    "copy",
    "restore",
    "setmst",
    "rnum",
    "size",
    "stat",
    "misc",
    "repl",
    "slave",
    "allorg",
    "allmc",
    "allhttp",
    "allread",
    "allwrite",
    "allmanage",
    "allredis",
];

/// Set of commands, protocols and classes of commands, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandMask(u64);

/// A command, as the number of its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the commands'")]
#[repr(u8)]
pub enum Command {
    Put,
    PutKeep,
    PutCat,
    PutShift,
    PutNoReply,
    Out,
    Get,
    GetMany,
    ValueSize,
    IterInit,
    IterNext,
    KeysWithPrefix,
    AddInt,
    AddDouble,
    Ext,
    Sync,
    Optimize,
    Vanish,
    Copy,
    Restore,
    SetMaster,
    Count,
    Size,
    Stat,
    Misc,
    Replicate,
}

/// A protocol, as the number of its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Protocol {
    /// Tokyo Tyrant's binary protocol.
    Binary = 27,
    /// memcached's protocols.
    Memcached = 28,
    /// HTTP/1.x.
    Http = 29,
    /// Redis's protocol.
    Redis = 33,
}

impl Command {
    /// Returns the rights for all keys that a request about the server needs. Those of operations
    /// on records are in [`crate::ops::operation::Operation::need`].
    pub(crate) fn rights(self) -> &'static [Right] {
        match self {
            Self::Copy | Self::Restore | Self::SetMaster | Self::Optimize => &[Right::Admin],
            // A replica receives every record, and its acknowledgements count.
            Self::Replicate => &[Right::Read, Right::Admin],
            _ => &[],
        }
    }

    /// Returns the name by which a mask refuses the command.
    pub(crate) fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// Returns whether the command is one of `allread`.
    #[inline]
    pub(crate) fn is_read(self) -> bool {
        class(self) == 1 << ALL_READ
    }
}

const ALL_READ: u8 = 30;
const ALL_WRITE: u8 = 31;
const ALL_MANAGE: u8 = 32;

impl CommandMask {
    /// The mask that refuses no command.
    pub const NONE: Self = Self(0);

    /// Returns the mask with these bits, which are those of a mask.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Adds the bits of `other`.
    pub fn mask(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Removes the bits of `other`. A class stays masked if only its commands are removed: a test
    /// looks at the command, its protocol and its class.
    pub fn unmask(&mut self, other: Self) {
        self.0 &= !other.0;
    }

    /// Returns the bits as Tokyo Tyrant prints them.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether a command is refused over a protocol.
    #[inline]
    pub fn refuses(self, command: Command, protocol: Protocol) -> bool {
        // Nearly every server has an empty mask.
        if self.0 == 0 {
            return false;
        }
        let bits = 1 << command as u8 | 1 << protocol as u8 | class(command);
        self.0 & bits != 0
    }
}

impl FromStr for CommandMask {
    type Err = UnknownName;

    /// Parses names separated by spaces or commas: commands, classes, protocols, `all`, or
    /// hexadecimal bits `0x...`.
    fn from_str(expression: &str) -> Result<Self, UnknownName> {
        let mut bits = 0;
        for name in expression.split([' ', ',']).filter(|name| !name.is_empty()) {
            let digits = name.strip_prefix("0x");
            let named = match NAMES.iter().position(|known| *known == name) {
                Some(bit) => Some(1 << bit),
                None if name == "all" => Some(u64::MAX),
                None => digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()),
            };
            bits |= named.ok_or_else(|| UnknownName(name.to_owned()))?;
        }
        Ok(Self(bits))
    }
}

/// A name in a mask that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName(String);

impl fmt::Display for UnknownName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = NAMES.join(" ");
        write!(
            formatter,
            "{:?} is not a command; name one of: {known} all, or bits as 0x...",
            self.0
        )
    }
}

impl std::error::Error for UnknownName {}

#[inline]
fn class(command: Command) -> u64 {
    use Command as C;
    match command {
        C::Get
        | C::GetMany
        | C::ValueSize
        | C::IterInit
        | C::IterNext
        | C::KeysWithPrefix
        | C::Count
        | C::Size
        | C::Stat => 1 << ALL_READ,
        C::Put
        | C::PutKeep
        | C::PutCat
        | C::PutShift
        | C::PutNoReply
        | C::Out
        | C::AddInt
        | C::AddDouble
        | C::Vanish
        | C::Misc => 1 << ALL_WRITE,
        C::Sync | C::Copy => 1 << ALL_MANAGE,
        C::Optimize | C::Restore | C::SetMaster => 1 << ALL_WRITE | 1 << ALL_MANAGE,
        C::Ext | C::Replicate => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(expression: &str) -> CommandMask {
        expression.parse().expect("known names")
    }

    #[test]
    fn bits_are_numbered_as_tokyo_tyrant_numbers_them() {
        assert_eq!(masked("allwrite").bits(), 0x8000_0000);
        assert_eq!(masked("put,out get").bits(), 0b110_0001);
        assert_eq!(masked("0x41").bits(), 0x41);
        assert_eq!(masked("repl").bits(), 1 << Command::Replicate as u8);
        assert_eq!(masked("allmc").bits(), 1 << Protocol::Memcached as u8);
    }

    #[test]
    fn a_class_stays_masked_when_one_of_its_commands_is_unmasked() {
        let mut mask = masked("all");
        mask.unmask(masked("get"));
        assert_eq!(mask.bits(), 0xffff_ffff_ffff_ffbf);
        assert!(mask.refuses(Command::Get, Protocol::Binary));
        mask.unmask(masked("allread,allorg"));
        assert!(!mask.refuses(Command::Get, Protocol::Binary));
        assert!(mask.refuses(Command::Get, Protocol::Http));
    }

    #[test]
    fn misc_is_a_write_and_ext_has_no_class() {
        assert!(masked("allwrite").refuses(Command::Misc, Protocol::Binary));
        assert!(!masked("allread,allwrite,allmanage").refuses(Command::Ext, Protocol::Binary));
    }

    #[test]
    fn commands_that_remove_or_rewrite_records_are_writes() {
        for class in ["allwrite", "allmanage"] {
            for command in [Command::Optimize, Command::Restore, Command::SetMaster] {
                assert!(masked(class).refuses(command, Protocol::Binary), "{class} {command:?}");
            }
        }
        assert!(!masked("allwrite").refuses(Command::Sync, Protocol::Binary));
        assert!(!masked("allwrite").refuses(Command::Copy, Protocol::Binary));
    }

    #[test]
    fn masks_are_added_and_removed() {
        let mut mask = CommandMask::NONE;
        mask.mask(masked("put"));
        mask.mask(masked("out"));
        assert_eq!(mask, masked("put, out"));
        mask.unmask(masked("put get"));
        assert_eq!(mask, masked("out"));
        assert_eq!(masked(""), CommandMask::NONE);
    }

    #[test]
    fn the_error_for_an_unknown_name_lists_the_known_names() {
        for expression in ["bogus", "put,bogus", "0xzz", "0x", "Put"] {
            let error = CommandMask::from_str(expression).expect_err(expression);
            let name = expression.rsplit(',').next().unwrap_or_default();
            let text = error.to_string();
            assert!(text.contains(&format!("{name:?}")) && text.contains(" vanish "), "{text}");
        }
    }
}
