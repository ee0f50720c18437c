//! Kinds of requests of each protocol, and their keys, for counts and the slow log.

use crate::counters::RequestKind as Kind;
use crate::shared::slow_log::SlowRequest;
use wire::memcached::{Dialect, MetaVerb, Mode};
use wire::{Parse, Protocol, binary, http, memcached, memcached_binary};

pub(super) fn of_binary(request: &binary::Request<'_>) -> Kind {
    use binary::Request as R;
    match request {
        R::Put { .. } => Kind::TyrantPut,
        R::PutKeep { .. } => Kind::TyrantPutKeep,
        R::PutCat { .. } => Kind::TyrantPutCat,
        R::PutShift { .. } => Kind::TyrantPutShift,
        R::PutNoReply { .. } => Kind::TyrantPutNoReply,
        R::Out { .. } => Kind::TyrantOut,
        R::Get { .. } => Kind::TyrantGet,
        R::GetMany(_) => Kind::TyrantGetMany,
        R::ValueSize { .. } => Kind::TyrantValueSize,
        R::IterInit => Kind::TyrantIterInit,
        R::IterNext => Kind::TyrantIterNext,
        R::KeysWithPrefix { .. } => Kind::TyrantKeysWithPrefix,
        R::AddInt { .. } => Kind::TyrantAddInt,
        R::AddDouble { .. } => Kind::TyrantAddDouble,
        R::Ext { .. } => Kind::TyrantExt,
        R::Misc { .. } => Kind::TyrantMisc,
        R::Sync => Kind::TyrantSync,
        R::Optimize { .. } => Kind::TyrantOptimize,
        R::Vanish => Kind::TyrantVanish,
        R::Copy { .. } => Kind::TyrantCopy,
        R::Restore { .. } => Kind::TyrantRestore,
        R::SetMaster { .. } => Kind::TyrantSetMaster,
        R::Count => Kind::TyrantCount,
        R::Size => Kind::TyrantSize,
        R::Stat => Kind::TyrantStat,
        R::Replicate { .. } | R::Follow { .. } => Kind::TyrantReplicate,
    }
}

pub(super) fn of_memcached(request: &memcached::Request<'_>) -> Kind {
    use memcached::Request as R;
    match request {
        R::Store(store) => match store.mode {
            Mode::Set => Kind::TextSet,
            Mode::Add => Kind::TextAdd,
            Mode::Replace => Kind::TextReplace,
            Mode::Append => Kind::TextAppend,
            Mode::Prepend => Kind::TextPrepend,
            Mode::CompareAndSwap(_) => Kind::TextCas,
        },
        R::Get { .. } => Kind::TextGet,
        R::GetAndTouch { .. } => Kind::TextGetAndTouch,
        R::Delete { .. } => Kind::TextDelete,
        R::Increment { .. } => Kind::TextIncrement,
        R::Decrement { .. } => Kind::TextDecrement,
        R::Touch { .. } => Kind::TextTouch,
        R::Meta(meta) => match meta.verb {
            MetaVerb::Get => Kind::TextMetaGet,
            MetaVerb::Set => Kind::TextMetaSet,
            MetaVerb::Delete => Kind::TextMetaDelete,
            MetaVerb::Arithmetic => Kind::TextMetaArithmetic,
        },
        R::MetaDebug { .. } => Kind::TextMetaDebug,
        R::MetaNoOp => Kind::TextMetaNoOp,
        R::FlushAll { .. } => Kind::TextFlushAll,
        R::Verbosity { .. } => Kind::TextVerbosity,
        R::Stats { .. } => Kind::TextStats,
        R::CacheMemoryLimit { .. } => Kind::TextCacheMemoryLimit,
        R::Crawler { .. } => Kind::TextCrawler,
        R::Shutdown { .. } => Kind::TextShutdown,
        R::Version => Kind::TextVersion,
        R::Quit => Kind::TextQuit,
        R::Bad { .. } => Kind::None,
    }
}

pub(super) fn of_memcached_binary(command: &memcached_binary::Command<'_>) -> Kind {
    use memcached_binary::{Command as C, Mode};
    match command {
        C::Get { .. } => Kind::BinaryGet,
        C::GetAndTouch { .. } => Kind::BinaryGetAndTouch,
        C::Touch { .. } => Kind::BinaryTouch,
        C::Store { mode: Mode::Set, .. } => Kind::BinarySet,
        C::Store { mode: Mode::Add, .. } => Kind::BinaryAdd,
        C::Store { mode: Mode::Replace, .. } => Kind::BinaryReplace,
        C::Append { .. } => Kind::BinaryAppend,
        C::Prepend { .. } => Kind::BinaryPrepend,
        C::Delete { .. } => Kind::BinaryDelete,
        C::Increment(_) => Kind::BinaryIncrement,
        C::Decrement(_) => Kind::BinaryDecrement,
        C::Flush { .. } => Kind::BinaryFlush,
        C::NoOp => Kind::BinaryNoOp,
        C::Version => Kind::BinaryVersion,
        C::Stat { .. } => Kind::BinaryStat,
        C::Verbosity => Kind::BinaryVerbosity,
        C::Quit => Kind::BinaryQuit,
        C::SaslMechanisms => Kind::BinarySaslMechanisms,
        C::SaslAuthenticate { .. } => Kind::BinarySaslAuthenticate,
        C::SaslStep { .. } => Kind::BinarySaslStep,
        C::Unknown | C::Malformed | C::BadLengths => Kind::None,
    }
}

pub(super) fn of_http(method: http::Method) -> Kind {
    use http::Method as M;
    match method {
        M::Get => Kind::HttpGet,
        M::Head => Kind::HttpHead,
        M::Put => Kind::HttpPut,
        M::Post => Kind::HttpPost,
        M::Delete => Kind::HttpDelete,
        M::Options => Kind::HttpOptions,
        // Clients choose these names.
        M::Dav | M::Other => Kind::HttpOther,
    }
}

/// Returns the slow request at the beginning of `input`. `kind` is that of input in the middle of a
/// request.
#[cold]
pub(crate) fn describe(dialect: Dialect, kind: Kind, input: &[u8]) -> SlowRequest {
    use binary::Request as R;
    match wire::sniff(input) {
        Some(Protocol::Memcached) => {
            if let Parse::Complete(request, _) = memcached::parse(dialect, input) {
                let first = match &request {
                    memcached::Request::Get { keys, .. }
                    | memcached::Request::GetAndTouch { keys, .. } => keys.iter().next(),
                    request => super::ahead::memcached_key(request),
                };
                return SlowRequest::new(of_memcached(&request), first.unwrap_or_default());
            }
        }
        Some(Protocol::Binary) => {
            if let Parse::Complete(request, _) = binary::parse(input) {
                let key = match &request {
                    R::Ext { key, .. }
                    | R::AddInt { key, .. }
                    | R::AddDouble { key, .. }
                    | R::PutShift { key, .. } => Some(*key),
                    R::KeysWithPrefix { prefix, .. } => Some(*prefix),
                    R::Misc { function, .. } => Some(function.name()),
                    request => super::ahead::binary_key(request),
                };
                return SlowRequest::new(of_binary(&request), key.unwrap_or_default());
            }
        }
        Some(Protocol::MemcachedBinary) => {
            if let Parse::Complete(request, _) = memcached_binary::parse(input) {
                let key = super::ahead::memcached_binary_key(&request).unwrap_or_default();
                return SlowRequest::new(of_memcached_binary(&request.command), key);
            }
        }
        Some(Protocol::Http) => {
            if let Parse::Complete(head, _) = http::head(input) {
                return SlowRequest::new(of_http(head.method), head.target);
            }
        }
        Some(Protocol::Redis) | None => {}
    }
    SlowRequest::new(kind, b"")
}
