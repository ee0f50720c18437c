//! Which commands a server refuses: the original's `-mask` and `-unmask`.

/// Names of the bits, from bit 0 up, as the original numbers them.
const NAMES: [&str; 33] = [
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
];

/// Bits of commands and of classes of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask(u64);

/// A command, by the number of its bit.
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

/// A protocol, by the number of its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Protocol {
    /// The original's own.
    Binary = 27,
    /// memcached's text protocol.
    Memcached = 28,
    /// HTTP/1.x.
    Http = 29,
}

const ALL_READ: u8 = 30;
const ALL_WRITE: u8 = 31;
const ALL_MANAGE: u8 = 32;

impl Mask {
    /// Refuses nothing.
    pub const NONE: Self = Self(0);

    /// Sets the bits that `expression` names: names between spaces and commas, `all`, or
    /// hexadecimal `0x...`. As with the original, what is unknown is ignored.
    pub fn mask(&mut self, expression: &str) {
        self.0 |= parse(expression);
    }

    /// Clears the bits that `expression` names. A class stays masked if only its commands are
    /// named: every test looks at the command, its protocol and its class.
    pub fn unmask(&mut self, expression: &str) {
        self.0 &= !parse(expression);
    }

    /// The bits as the original prints them.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Whether a command is refused.
    #[inline]
    pub fn refuses(self, command: Command, protocol: Protocol) -> bool {
        // Nearly every server masks nothing.
        if self.0 == 0 {
            return false;
        }
        let bits = 1 << command as u8 | 1 << protocol as u8 | class(command);
        self.0 & bits != 0
    }
}

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
        C::Sync | C::Optimize | C::Copy | C::Restore | C::SetMaster => 1 << ALL_MANAGE,
        C::Ext | C::Replicate => 0,
    }
}

fn parse(expression: &str) -> u64 {
    expression
        .split([' ', ','])
        .map(|name| {
            if let Some(digits) = name.strip_prefix("0x") {
                u64::from_str_radix(digits, 16).unwrap_or(0)
            } else if name == "all" {
                u64::MAX
            } else {
                NAMES.iter().position(|known| *known == name).map_or(0, |bit| 1 << bit)
            }
        })
        .fold(0, |bits, more| bits | more)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(expression: &str) -> Mask {
        let mut mask = Mask::NONE;
        mask.mask(expression);
        mask
    }

    #[test]
    fn bits_are_numbered_as_the_original_numbers_them() {
        assert_eq!(masked("allwrite").bits(), 0x8000_0000);
        assert_eq!(masked("put,out get").bits(), 0b110_0001);
        assert_eq!(masked("0x41").bits(), 0x41);
        assert_eq!(masked("repl").bits(), 1 << Command::Replicate as u8);
        assert_eq!(masked("allmc").bits(), 1 << Protocol::Memcached as u8);
    }

    #[test]
    fn a_class_stays_masked_when_one_of_its_commands_is_unmasked() {
        let mut mask = masked("all");
        mask.unmask("get");
        assert_eq!(mask.bits(), 0xffff_ffff_ffff_ffbf);
        assert!(mask.refuses(Command::Get, Protocol::Binary));
        mask.unmask("allread,allorg");
        assert!(!mask.refuses(Command::Get, Protocol::Binary));
        assert!(mask.refuses(Command::Get, Protocol::Http));
    }

    #[test]
    fn misc_is_a_write_and_ext_is_of_no_class() {
        assert!(masked("allwrite").refuses(Command::Misc, Protocol::Binary));
        assert!(!masked("allread,allwrite,allmanage").refuses(Command::Ext, Protocol::Binary));
    }

    #[test]
    fn unknown_names_are_ignored() {
        assert_eq!(masked("bogus,0xzz"), Mask::NONE);
    }
}
