//! Every limit of the protocols, named in one place.

/// Most bytes of one key, value, path or argument of the binary protocol, as the original.
pub const BINARY_ARGUMENT_BYTES_MAX: usize = 256 << 20;

/// Most keys or arguments of one binary request, as the original.
pub const BINARY_COUNT_MAX: usize = 1 << 20;

/// Names of `ext` and `misc` functions are shorter than this, in bytes, as the original.
pub const FUNCTION_NAME_BYTES_LIMIT: usize = 1024;

/// Longest command line of the memcached protocol, in bytes, its line end included. A multi-get
/// of tens of thousands of keys fits.
pub const LINE_BYTES_MAX: usize = 1 << 20;

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
