//! Access: certificates, users and their logins, and the paths that clients may name.

pub(crate) mod certificates;
pub(crate) mod client_paths;
mod failures;
mod hash_memory;
mod log_limit;
pub(crate) mod logins;
pub(crate) mod password;
pub(crate) mod user_file;
pub(crate) mod users;
