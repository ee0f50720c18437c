//! Administration: users, masks, snapshots, verification and the figures of `stat`.

pub(crate) mod client_paths;
pub(crate) mod copy;
pub(crate) mod logins;
pub(crate) mod mask;
pub(crate) mod scrub;
pub(crate) mod status;
pub(crate) mod users;
