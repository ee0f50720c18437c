//! Every limit of the protocols, named in one place.

/// Most bytes of one key, value, path or argument of the binary protocol, as the original.
pub const BINARY_ARGUMENT_BYTES_MAX: usize = 256 << 20;

/// Most keys or arguments of one binary request, as the original.
pub const BINARY_COUNT_MAX: usize = 1 << 20;

/// Names of `ext` and `misc` functions are shorter than this, in bytes, as the original.
pub const FUNCTION_NAME_BYTES_LIMIT: usize = 1024;

/// Longest command line of the memcached protocol, in bytes.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Longest head of an HTTP request, in bytes.
pub const HTTP_HEAD_BYTES_MAX: usize = 64 << 10;

/// Most header lines of an HTTP request.
pub const HTTP_HEADERS_MAX: usize = 128;
