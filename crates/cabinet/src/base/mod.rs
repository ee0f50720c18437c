//! Base: parts that know no database, each used by several modules above.

pub(crate) mod barrier;
pub(crate) mod checksum;
pub(crate) mod clock;
pub(crate) mod column_index;
pub(crate) mod compress;
pub(crate) mod damage;
pub(crate) mod deadline;
pub(crate) mod expired;
pub mod external_sort;
pub(crate) mod heap;
pub(crate) mod key_order;
pub(crate) mod locks;
pub mod pattern;
pub(crate) mod reentry;
pub(crate) mod reported_keys;
pub(crate) mod sync;
pub(crate) mod table_keys;
pub(crate) mod usable_memory;
pub(crate) mod varint;
pub(crate) mod wait;
