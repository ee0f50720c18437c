//! Reserved records: records that the server stores among those of its clients.
//!
//! Their keys begin with a zero byte, which no line of text contains. They are copied, logged and
//! replicated as any other record. Over HTTP and WebDAV they are not listed, and requests on them
//! are refused. For other protocols and for functions of `misc` they are ordinary records.

/// Prefix of their keys.
pub(crate) const PREFIX: &[u8] = b"\0tyrant ";

/// Media types that clients have named in addition to the known ones; see
/// [`crate::ops::media_types`].
pub(crate) const MEDIA_TYPES: &[u8] = b"\0tyrant media types";

/// Returns whether a key is reserved.
pub(crate) fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(PREFIX)
}
