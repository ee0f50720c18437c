//! Every limit of the client, named in one place.

/// Most memory that the response to one request, or all the responses to one pipeline, may take,
/// in bytes, unless [`Settings`](crate::Settings) say otherwise: a value of 1 GiB and what comes
/// with it.
pub const RESPONSE_BYTES_MAX: usize = (1 << 30) + (1 << 20);

/// Most bytes of requests a pipeline sends before it reads their responses. So many fit into the
/// smallest socket buffers, so that a server that reads no further until its responses are taken
/// cannot stop the client from sending.
pub const PIPELINE_CHUNK_BYTES_MAX: usize = 16 << 10;
