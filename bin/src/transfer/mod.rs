//! Moving records between databases and files: what `import`, `export` and `serve --import` share.

pub(crate) mod beside;
pub(crate) mod legacy;
pub(crate) mod progress;
pub(crate) mod target;
pub(crate) mod text;
pub(crate) mod whole_file;
