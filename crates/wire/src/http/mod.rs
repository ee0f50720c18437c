//! HTTP/1.x requests and responses in Tokyo Tyrant's form.
//!
//! The target of a request is a key, its body a value. Other parameters are in `X-TT-` headers. The
//! head of a request can be parsed before its body has arrived ([`head`]), because a client that
//! expects `100 Continue` sends no body before it has it.
//!
//! Responses to [`Invalid`](crate::Invalid): [`Status::BadRequest`] to `BadParameters`,
//! [`Status::PayloadTooLarge`] to `TooLarge`, and [`Status::NotImplemented`] to `UnknownCommand`,
//! which is a transfer coding other than chunked. The connection is closed afterwards, because the
//! end of the request is unknown.

mod authorization;
mod body;
mod condition;
pub mod form;
mod head;
mod host;
mod kind;
pub mod path;
pub mod range;
pub mod reply;
mod rest;
mod url;

pub use authorization::BasicCredentials;
pub use body::{BodyLength, Progress, Request, parse, parse_resuming};
pub use condition::{Conditions, FailedCondition};
pub use head::{Head, Method, head, is_identity};
pub use host::{Addressing, Foreign, HostNames, is_same_authority};
pub use kind::{Kind, WebDavKind};
pub use reply::Status;
pub use rest::RestOfBody;
pub use url::{decode, encode};
