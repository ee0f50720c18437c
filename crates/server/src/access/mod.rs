//! Access: who may use the server, and which paths its clients may name.

pub(crate) mod client_paths;
pub(crate) mod logins;
pub(crate) mod users;
