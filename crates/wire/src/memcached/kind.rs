//! Kind of a request, for counts, and its keys, for lookups ahead and the slow log.

use super::{MetaVerb, Mode, Request};
use crate::kind::{Described, RequestKind, kinds};

kinds! {
    /// Kinds of requests of memcached's text protocol.
    Kind 2 "memcached" {
        Set "set" Write;
        Add "add" Write;
        Replace "replace" Write;
        Append "append" Write;
        Prepend "prepend" Write;
        Cas "cas" Write;
        Get "get" Read;
        GetAndTouch "gat" Write;
        Delete "delete" Write;
        Increment "incr" Write;
        Decrement "decr" Write;
        Touch "touch" Write;
        MetaGet "mg" Read;
        MetaSet "ms" Write;
        MetaDelete "md" Write;
        MetaArithmetic "ma" Write;
        MetaDebug "me" Other None;
        MetaNoOp "mn" Other None;
        FlushAll "flush_all" Other Change;
        Verbosity "verbosity" Other Server;
        Stats "stats" Other Server;
        CacheMemoryLimit "cache_memlimit" Other Server;
        Crawler "lru_crawler" Other Server;
        Shutdown "shutdown" Other Server;
        Version "version" Other None;
        Quit "quit" Other Connection;
    }
}

impl<'i> Described<'i> for Request<'i> {
    fn kind(&self) -> RequestKind {
        let kind = match self {
            Self::Store(store) => match store.mode {
                Mode::Set => Kind::Set,
                Mode::Add => Kind::Add,
                Mode::Replace => Kind::Replace,
                Mode::Append => Kind::Append,
                Mode::Prepend => Kind::Prepend,
                Mode::CompareAndSwap(_) => Kind::Cas,
            },
            Self::Get { .. } => Kind::Get,
            Self::GetAndTouch { .. } => Kind::GetAndTouch,
            Self::Delete { .. } => Kind::Delete,
            Self::Increment { .. } => Kind::Increment,
            Self::Decrement { .. } => Kind::Decrement,
            Self::Touch { .. } => Kind::Touch,
            Self::Meta(meta) => match meta.verb {
                MetaVerb::Get => Kind::MetaGet,
                MetaVerb::Set => Kind::MetaSet,
                MetaVerb::Delete => Kind::MetaDelete,
                MetaVerb::Arithmetic => Kind::MetaArithmetic,
            },
            Self::MetaDebug { .. } => Kind::MetaDebug,
            Self::MetaNoOp => Kind::MetaNoOp,
            Self::FlushAll { .. } => Kind::FlushAll,
            Self::Verbosity { .. } => Kind::Verbosity,
            Self::Stats { .. } => Kind::Stats,
            Self::CacheMemoryLimit { .. } => Kind::CacheMemoryLimit,
            Self::Crawler { .. } => Kind::Crawler,
            Self::Shutdown { .. } => Kind::Shutdown,
            Self::Version => Kind::Version,
            Self::Quit => Kind::Quit,
            Self::Bad { .. } => return RequestKind::NONE,
        };
        kind.into()
    }

    fn only_key(&self) -> Option<&'i [u8]> {
        match self {
            Self::Store(store) => Some(store.key),
            Self::Get { keys, .. } | Self::GetAndTouch { keys, .. } => {
                let mut keys = keys.iter();
                let first = keys.next()?;
                keys.next().is_none().then_some(first)
            }
            Self::Delete { key, .. }
            | Self::Increment { key, .. }
            | Self::Decrement { key, .. }
            | Self::Touch { key, .. } => Some(key),
            Self::Meta(meta) => (!meta.key.is_base64).then_some(meta.key.token),
            Self::MetaDebug { .. }
            | Self::MetaNoOp
            | Self::FlushAll { .. }
            | Self::Verbosity { .. }
            | Self::Stats { .. }
            | Self::CacheMemoryLimit { .. }
            | Self::Crawler { .. }
            | Self::Shutdown { .. }
            | Self::Version
            | Self::Quit
            | Self::Bad { .. } => None,
        }
    }

    fn name(&self) -> Option<&'i [u8]> {
        match self {
            Self::Get { keys, .. } | Self::GetAndTouch { keys, .. } => keys.iter().next(),
            request => request.only_key(),
        }
    }
}
