//! Limits: what a session may take.

/// Most bytes of an incomplete record or message that a session keeps. A record has 18 KiB at most,
/// and a message of the handshake, such as a chain of certificates, is hardly longer.
pub const INCOMING_BYTES_MAX: usize = 32 << 10;

/// Memory of a session without buffers, in bytes, as measured and rounded up.
pub const SESSION_BYTES: usize = 4 << 10;

/// Longest file of certificates or keys, in bytes. All authorities of a system take 200 KB.
pub(crate) const FILE_BYTES_MAX: u64 = 8 << 20;

/// Longest name of a user in a certificate, in bytes. A longer one names no user.
pub(crate) const NAME_BYTES_MAX: usize = 255;
