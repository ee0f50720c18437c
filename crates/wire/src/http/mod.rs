//! HTTP/1.x requests and responses as Tokyo Tyrant has them.
//!
//! The target of a request is a key, its body a value; what else there is to say stands in
//! `X-TT-` headers. The head of a request is readable before its body has come ([`head`]), since
//! a client that expects `100 Continue` sends no body before it has it.
//!
//! How to answer [`Invalid`](crate::Invalid): `BadParameters` with [`Status::BadRequest`],
//! `TooLarge` with [`Status::PayloadTooLarge`], `UnknownCommand` (a transfer coding other than
//! chunked) with [`Status::NotImplemented`]; and then close, for the end of the request is
//! unknown.

mod authorization;
mod body;
mod condition;
pub mod form;
mod head;
pub mod path;
pub mod range;
pub mod reply;
mod rest;
mod url;

pub use authorization::BasicCredentials;
pub use body::{BodyLength, Progress, Request, parse, parse_resuming};
pub use condition::{Conditions, Unmet};
pub use head::{Head, Method, head};
pub use reply::Status;
pub use rest::RestOfBody;
pub use url::decode;
