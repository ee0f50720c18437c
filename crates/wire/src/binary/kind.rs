//! Kind of a request, for counts, and its keys, for lookups ahead and the slow log.

use super::Request;
use crate::kind::{Described, RequestKind, kinds};

kinds! {
    /// Kinds of requests of Tokyo Tyrant's binary protocol.
    Kind 1 "tokyo_tyrant" {
        Put "put" Write;
        PutKeep "putkeep" Write;
        PutCat "putcat" Write;
        PutShift "putshl" Write;
        PutNoReply "putnr" Write;
        Out "out" Write;
        Get "get" Read;
        GetMany "mget" List;
        ValueSize "vsiz" Read;
        IterInit "iterinit" List;
        IterNext "iternext" List;
        KeysWithPrefix "fwmkeys" List;
        AddInt "addint" Write;
        AddDouble "adddouble" Write;
        Ext "ext" Script;
        Misc "misc" Other Change;
        Sync "sync" Other Server;
        Optimize "optimize" Other Server;
        Vanish "vanish" Other Change;
        Copy "copy" Other Server;
        Restore "restore" Other Change;
        SetMaster "setmst" Other Server;
        Count "rnum" Other None;
        Size "size" Other None;
        Stat "stat" Other Server;
        Replicate "repl" Other Server;
    }
}

impl<'i> Described<'i> for Request<'i> {
    fn kind(&self) -> RequestKind {
        let kind = match self {
            Self::Put { .. } => Kind::Put,
            Self::PutKeep { .. } => Kind::PutKeep,
            Self::PutCat { .. } => Kind::PutCat,
            Self::PutShift { .. } => Kind::PutShift,
            Self::PutNoReply { .. } => Kind::PutNoReply,
            Self::Out { .. } => Kind::Out,
            Self::Get { .. } => Kind::Get,
            Self::GetMany(_) => Kind::GetMany,
            Self::ValueSize { .. } => Kind::ValueSize,
            Self::IterInit => Kind::IterInit,
            Self::IterNext => Kind::IterNext,
            Self::KeysWithPrefix { .. } => Kind::KeysWithPrefix,
            Self::AddInt { .. } => Kind::AddInt,
            Self::AddDouble { .. } => Kind::AddDouble,
            Self::Ext { .. } => Kind::Ext,
            Self::Misc { .. } => Kind::Misc,
            Self::Sync => Kind::Sync,
            Self::Optimize { .. } => Kind::Optimize,
            Self::Vanish => Kind::Vanish,
            Self::Copy { .. } => Kind::Copy,
            Self::Restore { .. } => Kind::Restore,
            Self::SetMaster { .. } => Kind::SetMaster,
            Self::Count => Kind::Count,
            Self::Size => Kind::Size,
            Self::Stat => Kind::Stat,
            Self::Replicate { .. } | Self::Follow { .. } => Kind::Replicate,
        };
        kind.into()
    }

    fn only_key(&self) -> Option<&'i [u8]> {
        match self {
            Self::Put { key, .. }
            | Self::PutKeep { key, .. }
            | Self::PutCat { key, .. }
            | Self::PutNoReply { key, .. }
            | Self::Out { key }
            | Self::Get { key }
            | Self::ValueSize { key } => Some(key),
            Self::PutShift { .. }
            | Self::AddInt { .. }
            | Self::AddDouble { .. }
            | Self::Ext { .. }
            | Self::GetMany(_)
            | Self::IterInit
            | Self::IterNext
            | Self::KeysWithPrefix { .. }
            | Self::Misc { .. }
            | Self::Sync
            | Self::Optimize { .. }
            | Self::Vanish
            | Self::Copy { .. }
            | Self::Restore { .. }
            | Self::SetMaster { .. }
            | Self::Count
            | Self::Size
            | Self::Stat
            | Self::Replicate { .. }
            | Self::Follow { .. } => None,
        }
    }

    fn name(&self) -> Option<&'i [u8]> {
        match self {
            Self::Ext { key, .. }
            | Self::AddInt { key, .. }
            | Self::AddDouble { key, .. }
            | Self::PutShift { key, .. } => Some(key),
            Self::KeysWithPrefix { prefix, .. } => Some(prefix),
            Self::Misc { function, .. } => Some(function.name()),
            request => request.only_key(),
        }
    }
}
