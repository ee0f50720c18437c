//! Recovery: opens a table that has lost a part, repairs what rows define, and reports the rest.
//!
//! All postings can be computed from rows. If damage has lost changes of the tree, the blocks may
//! not agree with the remaining rows, so all blocks are removed and rebuilt. The tree stores a note
//! for this, which stays until it is done.

use super::cursor::{KeyRange, remove_range};
use super::{Table, keys, meta};
use crate::{Engine, Error, Result, ScanCursor};
use std::path::Path;

/// Number of identifiers that are skipped if the record of the last one may be outdated.
pub(super) const UIDS_LEFT_OUT: u64 = 1 << 20;

/// Returns the error of a table that does not open, with advice.
pub(super) fn with_way_out(path: &Path, error: Error) -> Error {
    match error {
        Error::Corrupted { file, offset, what } if !what.contains("tyrant salvage") => {
            let path = path.display();
            let what = format!(
                "{what}; the table does not open, but `tyrant salvage {path} --into NEW` copies \
                 what can be read"
            );
            Error::Corrupted { file, offset, what }
        }
        error => error,
    }
}

/// Maximum identifier that is recognised in the keys of rows. A table would need centuries to reach
/// a greater one, and as a seed it would leave few identifiers.
const RECOGNISED_UID_MAX: u64 = u64::MAX / 2;

/// Returns the identifier that may be the origin of a row's key; `None` if the key is not an
/// identifier.
pub(super) fn uid_of(primary: &[u8]) -> Option<u64> {
    let digits = primary.iter().all(u8::is_ascii_digit) && primary.first() != Some(&b'0');
    let uid = std::str::from_utf8(primary).ok().filter(|_| digits)?.parse().ok()?;
    (uid <= RECOGNISED_UID_MAX).then_some(uid)
}

/// Number of rows and greatest identifier, found from the keys of all rows.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) rows: u64,
    /// Greatest key that may be an identifier; 0 if there is none.
    pub(super) uid: u64,
}

/// Reads the keys of all rows. Rows that cannot be read are not counted, which is logged.
pub(super) fn survey_rows(engine: &dyn Engine) -> Result<Survey> {
    let rows = KeyRange::of_prefix(vec![keys::ROWS]);
    let mut survey = Survey::default();
    let mut next = Some(ScanCursor::Key(rows.start.clone()));
    while let Some(position) = next {
        let counted = engine.scan_keys(&position, &mut |key| {
            if rows.contains(key) {
                survey.rows += 1;
                survey.uid = survey.uid.max(uid_of(&key[1..]).unwrap_or(0));
            }
        });
        let beyond = match (counted, &position) {
            (Err(error @ Error::Corrupted { .. }), ScanCursor::Key(key)) => {
                tracing::error!("damaged rows are not counted: {error}");
                engine.as_ordered().and_then(|ordered| ordered.beyond(key)).map(ScanCursor::Key)
            }
            (beyond, _) => beyond?,
        };
        next = beyond.filter(|next| match next {
            ScanCursor::Key(key) => rows.is_before_end(key),
            _ => false,
        });
    }
    Ok(survey)
}

/// Removes the postings of all indices, and the pending-change log, which may not agree with the
/// remaining rows.
pub(super) fn forget_postings(engine: &dyn Engine, is_read_only: bool) -> Result<()> {
    if is_read_only {
        return Err(Error::ReadOnly(format!(
            "the indices of {} must be rebuilt after damage: open it for writing once",
            engine.medium().path().display()
        )));
    }
    remove_range(engine, KeyRange::of_prefix(vec![keys::POSTINGS]))?;
    remove_range(engine, KeyRange::of_prefix(meta::pending_change(b"")))
}

impl Table {
    /// Rebuilds the postings of all indices, after [`forget_postings`].
    pub(super) fn rebuild_postings(&self) -> Result<()> {
        let structure = self.structure.read().clone();
        for index in structure {
            let column = String::from_utf8_lossy(&index.column).into_owned();
            tracing::warn!(
                "{}: the index of column {column:?} is rebuilt after damage",
                self.engine.medium().path().display()
            );
            self.build(&index)?;
        }
        self.postings.flush()?;
        let last = self.uid.lock().last;
        self.set_uid_seed(last.saturating_add(UIDS_LEFT_OUT))?;
        meta::remove_suspicion(&*self.engine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{FaultyStorage, Open, Storage};
    use crate::table::{IndexChange, IndexKind, Operator, Query, Row};
    use crate::{Batch, Maintenance, MemoryTree, Meta, Options, TreeDatabase, Wait};
    use std::sync::Arc;

    #[test]
    fn a_suspect_table_gets_postings_that_agree_with_its_rows() {
        let options = Options::default();
        let engine = Arc::new(MemoryTree::new(&options));
        let table = Table::new(Arc::clone(&engine) as _, &options).unwrap();
        table.set_index(b"text", IndexChange::Set(IndexKind::Lexical)).unwrap();
        let row = |text: &str| Row::new().with(b"text", text.as_bytes()).unwrap();
        for number in 0..500 {
            table.put(format!("{number}").as_bytes(), &row(&format!("old {number}"))).unwrap();
        }
        let uid = table.generate_uid().unwrap();
        drop(table);
        // The rows change, but not their postings.
        for number in (0..500).step_by(3) {
            let key = keys::row(format!("{number}").as_bytes());
            let value = row(&format!("new {number}")).encode().unwrap();
            engine.put(&key, &value, Meta::NONE, Wait::Block).unwrap();
        }
        let mut batch = Batch::new();
        batch.remove(&keys::row(b"7"));
        engine.write(&batch, Wait::Block).unwrap();
        engine.put(&crate::base::table_keys::suspicion(), b"", Meta::NONE, Wait::Block).unwrap();

        let read_only = Options { read_only: true, ..Options::default() };
        let refused = Table::new(Arc::clone(&engine) as _, &read_only);
        assert!(matches!(refused, Err(Error::ReadOnly(_))));
        for _ in 0..2 {
            let table = Table::new(Arc::clone(&engine) as _, &options).unwrap();
            assert_eq!(table.len(), 499);
            table.check_indices().unwrap();
            let query = Query::new().with(b"text", Operator::StringEqual, b"new 9");
            assert_eq!(table.search(&query).unwrap().0, [b"9"]);
            assert!(table.generate_uid().unwrap() > uid + UIDS_LEFT_OUT);
            assert!(!meta::is_suspect(&*engine).unwrap());
        }
    }

    #[test]
    fn identifiers_are_not_reused_if_the_note_of_the_last_one_is_lost_or_outdated() {
        let options = Options::default();
        for (is_lost, is_old) in [(true, false), (false, true)] {
            let engine = Arc::new(MemoryTree::new(&options));
            let table = Table::new(Arc::clone(&engine) as _, &options).unwrap();
            table.set_uid_seed(70_000).unwrap();
            let uid = table.generate_uid().unwrap();
            for key in [&uid.to_string()[..], "+99999999", "099999999", "18446744073709551615"] {
                table.put(key.as_bytes(), &Row::new()).unwrap();
            }
            drop(table);
            let mut batch = Batch::new();
            if is_lost {
                meta::remove_uid(&mut batch);
            }
            batch.put(&crate::base::table_keys::suspicion(), b"", Meta::NONE);
            engine.write(&batch, Wait::Block).unwrap();
            if is_old {
                meta::write_uid(&*engine, 5).unwrap();
            }
            let table = Table::new(Arc::clone(&engine) as _, &options).unwrap();
            assert_eq!(table.generate_uid().unwrap(), uid + UIDS_LEFT_OUT + 1);
        }
    }

    /// Returns the names of the first segment that contains these bytes, and of the last segment.
    fn segments(storage: &FaultyStorage, path: &Path, wanted: &[u8]) -> (String, String) {
        let mut names = storage.list(path).unwrap();
        names.retain(|name| name.ends_with(".log"));
        names.sort();
        let has = |name: &&String| {
            let file = storage.open(&path.join(name), Open::Existing).unwrap();
            let mut bytes = vec![0; usize::try_from(file.length().unwrap()).unwrap()];
            file.read_at(&mut bytes, 0).unwrap();
            bytes.windows(wanted.len()).any(|bytes| bytes == wanted)
        };
        (names.iter().find(has).unwrap().clone(), names.last().unwrap().clone())
    }

    #[test]
    fn a_table_without_a_segment_of_its_changes_gets_postings_that_agree_with_its_rows() {
        let path = Path::new("casket.tct");
        let options = Options { segment_bytes: Some(64 << 10), ..Options::default() };
        let open = |storage: &FaultyStorage| {
            let storage = Arc::new(storage.clone());
            let tree = TreeDatabase::open_table_on(storage, path, &options, false).unwrap();
            let tree = Arc::new(tree);
            (Table::new(Arc::clone(&tree) as _, &options).unwrap(), tree)
        };
        let storage = FaultyStorage::new();
        let (table, tree) = open(&storage);
        let row = |text: &[u8]| Row::new().with(b"text", text).unwrap();
        // Writes more than one segment.
        let fill = || (0..100).for_each(|_| table.put(b"filling", &row(&[b'f'; 1000])).unwrap());
        table.put(b"key", &row(b"of the checkpoint")).unwrap();
        table.set_index(b"text", IndexChange::Set(IndexKind::Lexical)).unwrap();
        tree.checkpoint().unwrap();
        fill();
        table.put(b"key", &row(b"of the missing segment")).unwrap();
        fill();
        table.put(b"key", &row(b"of the last segment")).unwrap();
        let storage = storage.kill();
        drop((table, tree));
        let (missing, last) = segments(&storage, path, b"of the missing segment");
        assert_ne!(missing, last);
        storage.remove(&path.join(missing)).unwrap();
        for _ in 0..2 {
            let (table, tree) = open(&storage);
            assert!(!tree.persistence().unwrap().damages().is_empty());
            table.check_indices().unwrap();
            for (text, expected) in [(&b"of the checkpoint"[..], 0), (b"of the last segment", 1)] {
                let query = Query::new().with(b"text", Operator::StringEqual, text);
                assert_eq!(table.search(&query).unwrap().0.len(), expected);
            }
        }
    }
}
