//! Limits: every limit of the client, named in one place.

/// Most memory for the response to one request, or for all responses to one pipeline, in bytes. It
/// fits a value of 1 GiB and its overhead. [`Settings`](crate::Settings) may override it.
pub const RESPONSE_BYTES_MAX: usize = (1 << 30) + (1 << 20);

/// Most bytes of requests that a pipeline sends before it reads their responses. They fit the
/// smallest socket buffers. So a server that stops reading until its responses are taken cannot
/// block the client's send.
pub const PIPELINE_CHUNK_BYTES_MAX: usize = 16 << 10;

/// Most bytes of a reply of Redis's protocol beside those of its longest string.
pub const REDIS_REPLY_ROOM_BYTES: usize = 1 << 20;
