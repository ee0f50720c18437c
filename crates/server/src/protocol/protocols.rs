//! The protocols of the shared port: what the rest of the server needs of each, and the list of
//! all.
//!
//! All that is a protocol's own is in its folder. A protocol that is added to the list, or a
//! request that is added to one, does not compile until everything here is answered for it.

use super::memcached::Memcached;
use super::memcached_binary::MemcachedBinary;
use super::redis::Redis;
use super::tokyo_tyrant::TokyoTyrant;
use super::{Context, Next, Step, http::Http};
use crate::access::users::CurrentUsers;
use crate::ops::acknowledgement::RefusalReason;
use crate::shared::slow_log::SlowRequest;
use wire::memcached::Dialect;
use wire::{Described, Parse};

/// A protocol.
pub(super) trait Protocol {
    /// Executes the request at the beginning of `input`.
    fn step(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step;

    /// Does the same on a server that has `users`, if the request's user may execute it.
    fn step_as_user(
        context: &mut Context<'_>,
        users: &CurrentUsers,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Step;

    /// Returns whether `input`, which is incomplete, can be complete only after another line feed.
    fn awaits_line(_: &[u8]) -> bool {
        false
    }

    /// Appends the error for a request that begins with `head`, whose change was made here but is
    /// not acknowledged.
    fn refuse(head: &[u8], reason: RefusalReason, output: &mut Vec<u8>);

    /// Appends the error for a request that begins with `head` and has no answer, unless a client
    /// would take it for an answer: then its connection is closed.
    fn refuse_or_close(head: &[u8], reason: RefusalReason, output: &mut Vec<u8>) -> Next {
        Self::refuse(head, reason, output);
        Next::GoOn
    }

    /// Appends the error for a client that does not begin with TLS, although the port requires it.
    fn require_tls(text: &str, output: &mut Vec<u8>);
}

/// A protocol whose requests are decoded ahead, so that the lookups of their keys overlap.
pub(super) trait Pipelined: Protocol {
    /// Decoded request.
    type Request<'i>: Described<'i>;

    /// Decodes the request at the beginning of `input`.
    fn decode(dialect: Dialect, input: &[u8]) -> Parse<Self::Request<'_>>;

    /// Executes a request of this length in bytes.
    fn perform(
        context: &mut Context<'_>,
        request: Self::Request<'_>,
        bytes: usize,
        output: &mut Vec<u8>,
    ) -> Step;

    /// Describes the request at the beginning of `input`, if it is complete.
    fn describe(dialect: Dialect, input: &[u8]) -> Option<SlowRequest> {
        let Parse::Complete(request, _) = Self::decode(dialect, input) else { return None };
        Some(SlowRequest::new(request.kind(), request.name().unwrap_or_default()))
    }
}

/// Evaluates an expression with `$type` as the type of a protocol.
macro_rules! of_protocol {
    ($protocol:expr, $type:ident => $value:expr) => {
        match $protocol {
            wire::Protocol::Memcached => of_protocol!(Memcached, $type, $value),
            wire::Protocol::MemcachedBinary => of_protocol!(MemcachedBinary, $type, $value),
            wire::Protocol::Binary => of_protocol!(TokyoTyrant, $type, $value),
            wire::Protocol::Redis => of_protocol!(Redis, $type, $value),
            wire::Protocol::Http => of_protocol!(Http, $type, $value),
        }
    };
    ($one:ident, $type:ident, $value:expr) => {{
        type $type = $one;
        $value
    }};
}

/// Calls [`Protocol::step`].
#[inline(always)]
pub(super) fn step(
    protocol: wire::Protocol,
    context: &mut Context<'_>,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Step {
    of_protocol!(protocol, P => P::step(context, input, output))
}

/// Calls [`Protocol::step_as_user`].
pub(super) fn step_as_user(
    protocol: wire::Protocol,
    context: &mut Context<'_>,
    users: &CurrentUsers,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Step {
    of_protocol!(protocol, P => P::step_as_user(context, users, input, output))
}

/// Calls [`Protocol::awaits_line`].
pub(super) fn awaits_line(protocol: wire::Protocol, input: &[u8]) -> bool {
    of_protocol!(protocol, P => P::awaits_line(input))
}

/// Describes the request at the beginning of `input`, if it is complete.
#[cold]
pub(super) fn describe(
    protocol: wire::Protocol,
    dialect: Dialect,
    input: &[u8],
) -> Option<SlowRequest> {
    of_protocol!(protocol, P => P::describe(dialect, input))
}

/// Calls [`Protocol::refuse`].
#[cold]
pub(super) fn refuse(
    protocol: wire::Protocol,
    head: &[u8],
    reason: RefusalReason,
    output: &mut Vec<u8>,
) {
    of_protocol!(protocol, P => P::refuse(head, reason, output));
}

/// Calls [`Protocol::refuse_or_close`].
#[cold]
pub(super) fn refuse_or_close(
    protocol: wire::Protocol,
    head: &[u8],
    reason: RefusalReason,
    output: &mut Vec<u8>,
) -> Next {
    of_protocol!(protocol, P => P::refuse_or_close(head, reason, output))
}

/// Calls [`Protocol::require_tls`].
#[cold]
pub(super) fn require_tls(protocol: wire::Protocol, text: &str, output: &mut Vec<u8>) {
    of_protocol!(protocol, P => P::require_tls(text, output));
}

/// Declares the requests that are decoded ahead.
macro_rules! decoded {
    ($($ahead:ident: $ahead_type:ident,)*) => {
        /// A request that is decoded.
        pub(super) enum Decoded<'i> {
            $($ahead(<$ahead_type as Pipelined>::Request<'i>),)*
        }

        impl<'i> Decoded<'i> {
            /// Decodes the request at the beginning of `input`, if it is complete, and of a
            /// protocol whose requests are decoded ahead. Returns its length in bytes with it.
            #[inline]
            pub(super) fn of(
                protocol: wire::Protocol,
                dialect: Dialect,
                input: &'i [u8],
            ) -> Option<(Self, usize)> {
                match protocol {
                    $(wire::Protocol::$ahead => match $ahead_type::decode(dialect, input) {
                        Parse::Complete(request, bytes) => Some((Self::$ahead(request), bytes)),
                        Parse::Incomplete(_) | Parse::Invalid(_) => None,
                    },)*
                    wire::Protocol::Http => None,
                }
            }

            /// Returns the only key of the request, or `None` if it is not to be decoded ahead.
            #[inline]
            pub(super) fn only_key(&self) -> Option<&'i [u8]> {
                match self {
                    $(Self::$ahead(request) => request.only_key(),)*
                }
            }

            /// Executes the request, which has this length in bytes.
            #[inline]
            pub(super) fn perform(
                self,
                context: &mut Context<'_>,
                bytes: usize,
                output: &mut Vec<u8>,
            ) -> Step {
                match self {
                    $(Self::$ahead(request) => {
                        $ahead_type::perform(context, request, bytes, output)
                    })*
                }
            }
        }
    }
}

decoded! {
    Memcached: Memcached,
    MemcachedBinary: MemcachedBinary,
    Binary: TokyoTyrant,
    Redis: Redis,
}
