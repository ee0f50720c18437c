//! Signs in a log of what it is the log of: a tree, in which order, or a table.

use super::page::View;
use super::rebuild::page_bytes;
use super::redo::Operation;
use crate::log::StoredKind;
use crate::log::record::{Kind, Record};
use crate::{Compression, KeyOrder};

/// Counts over the records of a log, which show what it is the log of.
#[derive(Default)]
pub(crate) struct Signs {
    pages: u64,
    /// Pages that are sound in each of the orders.
    sound: [u64; KeyOrder::NAMES.len()],
    /// Records that only a tree has no use for.
    foreign: u64,
    changes: u64,
    tables_own: u64,
    no_tables: u64,
}

impl Signs {
    pub(crate) fn note(&mut self, record: &Record<'_>) {
        match record.kind {
            Kind::Page => self.note_page(record),
            Kind::Put if record.compression == Compression::None => {
                self.note_change(record.key, record.value);
            }
            Kind::Put | Kind::Tombstone => self.foreign += 1,
            Kind::Batch | Kind::AppendBlock | Kind::Filler | Kind::Mark => {}
        }
    }

    fn note_page(&mut self, record: &Record<'_>) {
        self.pages += 1;
        let bytes = page_bytes(record);
        let Some(view) = bytes.as_deref().and_then(View::decode) else { return };
        for (place, (_, order)) in KeyOrder::NAMES.into_iter().enumerate() {
            self.sound[place] += u64::from(view.is_sound(order));
        }
        for index in 0..view.len() {
            self.note_key(view.key(index));
        }
    }

    fn note_change(&mut self, key: &[u8], value: &[u8]) {
        self.changes += 1;
        if Operation::decode(value).is_none() {
            self.foreign += 1;
        }
        self.note_key(key);
    }

    fn note_key(&mut self, key: &[u8]) {
        if crate::table_keys::is_own_key(key) {
            self.tables_own += 1;
        } else if !crate::table_keys::is_key(key) {
            self.no_tables += 1;
        }
    }

    /// The kind of database; `None` if it cannot be told.
    pub(crate) fn kind(&self) -> Option<StoredKind> {
        match () {
            () if self.pages > 0 && self.tables_own > 0 && self.no_tables == 0 => {
                Some(StoredKind::Table)
            }
            () if self.pages > 0 => Some(StoredKind::Tree),
            // Hash and fixed-length databases have the same records.
            () if self.foreign > 0 => Some(StoredKind::Hash),
            // Values that may be redo by chance.
            () => None,
        }
    }

    /// The order in which most pages are sound, if there are pages.
    pub(crate) fn order(&self) -> Option<KeyOrder> {
        let sound = |place: &usize| (self.sound[*place], std::cmp::Reverse(*place));
        let best = (0..self.sound.len()).max_by_key(sound)?;
        (self.sound[best] > 0).then_some(KeyOrder::NAMES[best].1)
    }
}
