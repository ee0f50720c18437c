//! The memcached text protocol.
