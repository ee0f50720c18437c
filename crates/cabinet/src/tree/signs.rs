//! Signs: recognise the kind and the key order of a log's database from its records.

use super::page::View;
use super::rebuild::page_bytes;
use super::redo::Operation;
use crate::log::StoredKind;
use crate::log::record::{Kind, Record};
use crate::{Compression, KeyOrder};

/// Counts over the records of a log, which show the kind of its database.
#[derive(Default)]
pub(crate) struct Signs {
    pages: u64,
    /// Number of pages that are sound in each of the orders.
    sound: [u64; KeyOrder::NAMES.len()],
    /// Records that a tree never has.
    foreign: u64,
    /// Keys that only a table has.
    own_keys: u64,
    /// Keys that no table has.
    non_table_keys: u64,
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
        if Operation::decode(value).is_none() {
            self.foreign += 1;
        }
        self.note_key(key);
    }

    fn note_key(&mut self, key: &[u8]) {
        if crate::base::table_keys::is_own_key(key) {
            self.own_keys += 1;
        } else if !crate::base::table_keys::is_key(key) {
            self.non_table_keys += 1;
        }
    }

    /// Returns the kind of the database; `None` if the records do not show it.
    pub(crate) fn kind(&self) -> Option<StoredKind> {
        match () {
            () if self.pages > 0 && self.own_keys > 0 && self.non_table_keys == 0 => {
                Some(StoredKind::Table)
            }
            () if self.pages > 0 => Some(StoredKind::Tree),
            // Hash and fixed-length databases have the same records.
            () if self.foreign > 0 => Some(StoredKind::Hash),
            // The values of another kind of database may look like redo by chance.
            () => None,
        }
    }

    /// Returns the order in which most pages are sound; `None` if no page is.
    pub(crate) fn order(&self) -> Option<KeyOrder> {
        let sound = |place: &usize| (self.sound[*place], std::cmp::Reverse(*place));
        let best = (0..self.sound.len()).max_by_key(sound)?;
        (self.sound[best] > 0).then_some(KeyOrder::NAMES[best].1)
    }
}
