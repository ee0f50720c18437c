//! Kind of a request, for counts, and its key, for lookups ahead and the slow log.

use super::{Command, Mode, Request};
use crate::kind::{Described, RequestKind, kinds};

kinds! {
    /// Kinds of requests of memcached's binary protocol.
    Kind 3 "memcached_binary" {
        Get "get" Read;
        GetAndTouch "gat" Write;
        Touch "touch" Write;
        Set "set" Write;
        Add "add" Write;
        Replace "replace" Write;
        Append "append" Write;
        Prepend "prepend" Write;
        Delete "delete" Write;
        Increment "incr" Write;
        Decrement "decr" Write;
        Flush "flush" Other Change;
        NoOp "noop" Other None;
        Version "version" Other None;
        Stat "stat" Other Server;
        Verbosity "verbosity" Other Server;
        Quit "quit" Other Connection;
        SaslMechanisms "sasl_list_mechs" Other Connection;
        SaslAuthenticate "sasl_auth" Other Connection;
        SaslStep "sasl_step" Other Connection;
    }
}

impl<'i> Described<'i> for Request<'i> {
    fn kind(&self) -> RequestKind {
        let kind = match self.command {
            Command::Get { .. } => Kind::Get,
            Command::GetAndTouch { .. } => Kind::GetAndTouch,
            Command::Touch { .. } => Kind::Touch,
            Command::Store { mode: Mode::Set, .. } => Kind::Set,
            Command::Store { mode: Mode::Add, .. } => Kind::Add,
            Command::Store { mode: Mode::Replace, .. } => Kind::Replace,
            Command::Append { .. } => Kind::Append,
            Command::Prepend { .. } => Kind::Prepend,
            Command::Delete { .. } => Kind::Delete,
            Command::Increment(_) => Kind::Increment,
            Command::Decrement(_) => Kind::Decrement,
            Command::Flush { .. } => Kind::Flush,
            Command::NoOp => Kind::NoOp,
            Command::Version => Kind::Version,
            Command::Stat { .. } => Kind::Stat,
            Command::Verbosity => Kind::Verbosity,
            Command::Quit => Kind::Quit,
            Command::SaslMechanisms => Kind::SaslMechanisms,
            Command::SaslAuthenticate { .. } => Kind::SaslAuthenticate,
            Command::SaslStep { .. } => Kind::SaslStep,
            Command::Unknown | Command::Malformed | Command::BadLengths => {
                return RequestKind::NONE;
            }
        };
        kind.into()
    }

    #[inline]
    fn only_key(&self) -> Option<&'i [u8]> {
        match self.command {
            Command::Get { key, .. }
            | Command::GetAndTouch { key, .. }
            | Command::Touch { key, .. }
            | Command::Store { key, .. }
            | Command::Append { key, .. }
            | Command::Prepend { key, .. }
            | Command::Delete { key } => Some(key),
            Command::Increment(sum) | Command::Decrement(sum) => Some(sum.key),
            Command::Flush { .. }
            | Command::NoOp
            | Command::Version
            | Command::Stat { .. }
            | Command::Verbosity
            | Command::Quit
            | Command::SaslMechanisms
            | Command::SaslAuthenticate { .. }
            | Command::SaslStep { .. }
            | Command::Unknown
            | Command::Malformed
            | Command::BadLengths => None,
        }
    }

    fn name(&self) -> Option<&'i [u8]> {
        self.only_key()
    }
}
