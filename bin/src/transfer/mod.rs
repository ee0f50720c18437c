//! Moving records between databases and files: the parts shared by `import`, `export` and `serve
//! --import`.

pub(crate) mod ids;
pub(crate) mod import_once;
pub(crate) mod import_text;
mod json;
pub(crate) mod legacy;
pub(crate) mod progress;
pub(crate) mod target;
pub(crate) mod text;
pub(crate) mod whole_file;
