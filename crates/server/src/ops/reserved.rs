//! Records that the server keeps for itself among those of its clients.
//!
//! Their keys begin with a zero byte, which no line of text has. So they are copied,
//! logged and replicated as any other record. Over HTTP and WebDAV they are in no listing, and
//! refused. To other protocols, and to functions of `misc`, they are records.

/// What their keys begin with.
pub(crate) const PREFIX: &[u8] = b"\0tyrant ";

/// Media types that clients have named beside the known ones; see [`crate::ops::media_types`].
pub(crate) const MEDIA_TYPES: &[u8] = b"\0tyrant media types";

/// Whether a key is that of such a record.
pub(crate) fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(PREFIX)
}
