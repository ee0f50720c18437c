//! HTTP/1.x requests and responses as the original had them.
