//! Limits of the protocols.

/// Most bytes of one key, value, path or argument of the binary protocol, as Tokyo Tyrant.
pub const BINARY_ARGUMENT_BYTES_MAX: usize = 256 << 20;

/// Most keys or arguments of one binary request, as Tokyo Tyrant.
pub const BINARY_COUNT_MAX: usize = 1 << 20;

/// Names of `ext` and `misc` functions are shorter than this, in bytes, as Tokyo Tyrant.
pub const FUNCTION_NAME_BYTES_LIMIT: usize = 1024;

/// Longest body of an entry of the update log, in bytes: a request with the longest key and the
/// longest value fits, and one of many arguments has as much room.
pub const UPDATE_BODY_BYTES_MAX: usize = 1 << 30;

/// Longest identity of an update log, in bytes.
pub const LOG_IDENTITY_BYTES_MAX: usize = 64;

/// Longest compressed block of replication messages, in bytes before compression.
pub const REPLICATION_BLOCK_BYTES_MAX: usize = 4 << 20;

/// Longest reason of a master's refusal, in bytes.
pub const REPLICATION_REASON_BYTES_MAX: usize = 1 << 10;

/// Longest command line of the memcached protocol, in bytes, its line end included. A multi-get
/// of tens of thousands of keys fits.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Longest key of the memcached protocol, in bytes, as memcached.
pub const MEMCACHED_KEY_BYTES_MAX: usize = 250;

/// Longest value that a line of the memcached protocol can announce, in bytes, as memcached.
pub const MEMCACHED_VALUE_BYTES_MAX: usize = i32::MAX as usize - 2;

/// Most flags of a meta command, as memcached.
pub const META_FLAGS_MAX: usize = 17;

/// Longest opaque token of a meta command, in bytes, as memcached.
pub const META_OPAQUE_BYTES_MAX: usize = 31;

/// Most strings of one request of Redis's protocol, as Redis.
pub const REDIS_STRINGS_MAX: usize = 1 << 20;

/// Longest string of a request of Redis's protocol, in bytes, as Redis.
pub const REDIS_STRING_BYTES_MAX: usize = 512 << 20;

/// Longest line of words of Redis's protocol, in bytes, as Redis.
pub const REDIS_LINE_BYTES_MAX: usize = 64 << 10;

/// Most replies of Redis's protocol in an array, which a client accepts.
pub const REDIS_REPLIES_MAX: usize = 1 << 20;

/// Most arrays of Redis's protocol in one another, which a client accepts.
pub const REDIS_REPLY_DEPTH_MAX: usize = 8;

/// Longest head of an HTTP request, in bytes. A key of 64 KiB fits with every byte
/// percent-encoded.
pub const HTTP_HEAD_BYTES_MAX: usize = 256 << 10;

/// Most header lines of an HTTP request.
pub const HTTP_HEADERS_MAX: usize = 128;

/// Longest line that announces a chunk of an HTTP body, in bytes, its line end included.
pub const HTTP_CHUNK_LINE_BYTES_MAX: usize = 256;

/// Longest trailer after the last chunk of an HTTP body, in bytes.
pub const HTTP_TRAILER_BYTES_MAX: usize = 8 << 10;

/// Most fields of an HTTP form, as many as a binary request may have arguments.
pub const HTTP_FORM_FIELDS_MAX: usize = BINARY_COUNT_MAX;
