//! `tyrant.*`: functions beyond those of Tokyo Tyrant. They raise an error if they fail.

mod json;
mod map_reduce;
mod records;
mod system;
mod transaction;

use crate::functions::Installer;
use mlua::Result;

/// Adds the table `tyrant` to the globals of a state.
pub(crate) fn install(installer: &Installer<'_>) -> Result<()> {
    let tyrant = installer.into(installer.lua.create_table()?);
    json::install(&tyrant)?;
    map_reduce::install(&tyrant)?;
    records::install(&tyrant)?;
    system::install(&tyrant)?;
    transaction::install(&tyrant)?;
    installer.table.raw_set("tyrant", tyrant.table)
}
