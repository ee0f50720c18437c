//! Upkeep: operations on the files of a database that is not open: check, salvage, inventory.

pub(crate) mod check;
pub(crate) mod inventory;
pub(crate) mod salvage;
