//! Update log of Tokyo Tyrant, and the stream in which a master sends it to its replicas.
//!
//! An [`Entry`] is in the files of the log, a [`Message`] is on the wire. Both have the same body,
//! an [`Operation`]: a request of the binary protocol and whether it succeeded.
//! `docs/formats/update-log.md` draws the bytes.
//!
//! ```
//! use wire::Parse;
//! use wire::binary::Request;
//! use wire::update_log::{Entry, Operation};
//!
//! let operation = Operation { request: Request::Out { key: b"zz" }, succeeded: false };
//! let mut body = Vec::new();
//! operation.encode(&mut body)?;
//! let entry = Entry { timestamp_us: 1_795_226_397_331_637, origin: 3, master: 0, body: &body };
//! let mut bytes = Vec::new();
//! entry.encode(&mut bytes)?;
//! assert_eq!(Entry::parse(&bytes), Parse::Complete(entry, bytes.len()));
//! assert_eq!(Operation::parse(entry.body)?, operation);
//! # Ok::<(), wire::Invalid>(())
//! ```

mod entry;
mod operation;
mod stream;

pub use entry::{ENTRY_HEADER_BYTES, ENTRY_MAGIC, Entry};
pub(crate) use entry::{body_size, checked_size};
pub use operation::Operation;
pub use stream::{Message, NO_OPERATION};
