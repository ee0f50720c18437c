//! Access: users and their logins, and the paths that clients may name.

pub(crate) mod client_paths;
pub(crate) mod logins;
pub(crate) mod users;
