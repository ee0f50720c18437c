//! Salvage: copies the readable rows of a damaged table.

use super::recover::{UIDS_LEFT_OUT, uid_of};
use super::row::RowView;
use super::{Table, keys, meta};
use crate::base::column_index::IndexChange;
use crate::log::remains::Remains;
use crate::tree::{Rebuilt, Target, rebuild};
use crate::{Damage, KeyOrder, Result};

impl Table {
    /// Stores the readable rows of a damaged table, rebuilds its indices, and continues its
    /// identifiers. Indices whose definition cannot be read are not built.
    pub(crate) fn salvage(
        &self,
        remains: &Remains<'_>,
        report: &mut dyn FnMut(Damage),
    ) -> Result<Rebuilt> {
        let mut notes = meta::Notes::default();
        let (mut is_damaged, mut greatest) = (false, 0);
        let mut set = |key: &[u8], value: Option<(&[u8], _)>| match (key.split_first(), value) {
            (Some((&keys::ROWS, primary)), Some((row, _))) => {
                greatest = uid_of(primary).unwrap_or(0).max(greatest);
                self.put(primary, &RowView::new(row).to_row())
            }
            (Some((&keys::ROWS, primary)), None) => self.remove(primary).map(|_| ()),
            (_, value) => {
                notes.set(key, value.map(|(value, _)| value));
                Ok(())
            }
        };
        let rebuilt =
            rebuild(remains, KeyOrder::Lexical, Target::Single(&mut set), &mut |damage| {
                is_damaged = true;
                report(damage);
            })?;
        // The note of the last identifier may be lost or outdated.
        let greatest_key = is_damaged.then_some(greatest);
        if let Some(uid) = notes.uid().max(greatest_key) {
            let left_out = if is_damaged { UIDS_LEFT_OUT } else { 0 };
            self.set_uid_seed(uid.saturating_add(left_out))?;
        }
        for (column, kind) in notes.indices() {
            self.set_index(column, IndexChange::Set(kind))?;
        }
        self.acknowledge()?;
        Ok(rebuilt)
    }
}
