//! Kind of a request: protocol, command, and class, by which requests are counted and timed.

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

/// Effect of requests that is seen outside of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None: they read records, or nothing that others change.
    None,
    /// They change records or send messages, or may do so.
    Change,
    /// They concern their connection alone, and may be executed again.
    Connection,
    /// They read or change the state of the server.
    Server,
}

/// The commands of a protocol.
pub struct Commands {
    /// Number of the protocol, from 1 on.
    pub(crate) number: u8,
    /// Name of the protocol, as labels and lines have it.
    pub protocol: &'static str,
    /// Names of the commands, which are the protocol's own, their classes and effects.
    pub commands: &'static [(&'static str, Class, Effect)],
}

/// Kind of a request of any protocol. [`RequestKind::NONE`] is none that is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestKind {
    /// Number of the protocol, 0 for none.
    pub(crate) protocol: u8,
    pub(crate) command: u8,
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

/// Returns the effect of a class. That of the class `Other` has to be given.
macro_rules! effect {
    (Read) => {
        $crate::kind::Effect::None
    };
    (List) => {
        $crate::kind::Effect::None
    };
    (Write) => {
        $crate::kind::Effect::Change
    };
    (Script) => {
        $crate::kind::Effect::Change
    };
    (Other $effect:ident) => {
        $crate::kind::Effect::$effect
    };
}

/// Declares the kinds of a protocol's requests: name, class, and the effect of one of the class
/// `Other`. The number is that of the protocol, from 1 on.
macro_rules! kinds {
    (
        $(#[$doc:meta])*
        $name:ident $number:literal $protocol:literal {
            $($kind:ident $command:literal $class:ident $($effect:ident)?;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "the commands of the protocol, by their full names")]
        pub enum $name {
            $($kind,)*
        }

        impl $name {
            pub(crate) const COMMANDS: $crate::kind::Commands = $crate::kind::Commands {
                number: $number,
                protocol: $protocol,
                commands: &[$((
                    $command,
                    $crate::kind::Class::$class,
                    $crate::kind::effect!($class $($effect)?),
                ),)*],
            };
        }

        impl From<$name> for $crate::kind::RequestKind {
            #[inline]
            fn from(kind: $name) -> Self {
                Self { protocol: $number, command: kind as u8 }
            }
        }
    };
}

pub(crate) use {effect, kinds};
