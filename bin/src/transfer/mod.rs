//! Moving records between databases and files: the parts shared by `import`, `export` and `serve
//! --import`.

pub(crate) mod ids;
pub(crate) mod import_once;
pub(crate) mod import_text;
mod json;
pub(crate) mod legacy;
pub(crate) mod progress;
pub(crate) mod redis;
pub(crate) mod target;
pub(crate) mod text;
pub(crate) mod whole_file;

use cabinet::name::Specification;

/// Returns the specification of the database with this name for reading: it must exist, and is not
/// changed.
pub(crate) fn to_read(name: &str) -> cabinet::Result<Specification> {
    let mut specification = Specification::parse(name)?;
    specification.options.create = false;
    specification.options.read_only = true;
    Ok(specification)
}
