//! Extension module of the Python package `cabinet`: databases of `tyrant-cabinet`.
//!
//! The package's own modules, in `python/cabinet`, build its public face on these classes.

mod batch;
mod buffer;
mod bytes;
mod client;
mod codec;
mod context;
mod cursor;
mod errors;
mod expiry;
mod fork;
mod in_use;
mod operation;
mod options;
mod portion;
mod query;
mod rules;
mod scan;
mod server;
mod shared;
mod signals;
mod store;
mod table;
mod upkeep;
mod whole;
mod wire;

use pyo3::prelude::*;

/// The classes and functions of the extension.
#[pymodule(gil_used = false)]
mod _cabinet {
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::context::Context;
    #[pymodule_export]
    use crate::cursor::Cursor;
    #[pymodule_export]
    use crate::expiry::RecordMeta;
    #[pymodule_export]
    use crate::scan::Scan;
    #[pymodule_export]
    use crate::server::Server;
    #[pymodule_export]
    use crate::store::Store;
    #[pymodule_export]
    use crate::upkeep::{check, import_tokyo_cabinet, salvage};
}
