//! Saving what can be read of a damaged tree.

use super::TreeDatabase;
use crate::{Damage, Entry, Error, Result};

impl TreeDatabase {
    /// Shows the records of every leaf that can be read, in order, and reports the leaves that
    /// cannot.
    pub(crate) fn each_readable(
        &self,
        visit: &mut dyn FnMut(Entry<'_>) -> Result<()>,
        report: &mut dyn FnMut(Damage),
    ) -> Result<()> {
        let _structure = self.shared.structure.lock();
        self.shared.walk(&mut |leaf, state, _| {
            match self.shared.load(leaf, state) {
                Err(Error::Corrupted { file, offset, what }) => {
                    report(Damage { file, offset, what });
                    return Ok(());
                }
                loaded => loaded?,
            }
            let Some(loaded) = state.loaded() else { return Ok(()) };
            let view = loaded.page.view();
            for number in 0..view.len() {
                visit(view.record(number))?;
            }
            Ok(())
        })
    }
}
