//! Opening a table with a lost part: what can be told is set right, and the rest is reported.
//!
//! Rows say everything. If changes of the tree beneath were lost to damage, rows that are left may
//! have other postings than the blocks of the indices, so all blocks are removed and made again.
//! The tree leaves a note for that, which stays until it is done.

use super::cursor::KeyRange;
use super::index::build::remove_blocks;
use super::{Table, keys, meta};
use crate::{Engine, Error, Result, ScanCursor};
use std::path::Path;

/// Identifiers that are left out where the record of those given out may be an old one.
pub(super) const UIDS_LEFT_OUT: u64 = 1 << 20;

/// The error of a table that does not open, with what to do.
pub(super) fn with_way_out(path: &Path, error: Error) -> Error {
    match error {
        Error::Corrupted { file, offset, what } if !what.contains("tyrant salvage") => {
            let path = path.display();
            let what = format!(
                "{what}; without it the table does not open, but `tyrant salvage {path} --into NEW` copies \
                 what can be read"
            );
            Error::Corrupted { file, offset, what }
        }
        error => error,
    }
}

/// Identifiers up to this one are told from keys of rows. A greater one would take centuries to
/// come to, and as a seed it would leave none.
const TOLD_UID_MAX: u64 = u64::MAX / 2;

/// The identifier that a row may have got for its key.
pub(super) fn uid_of(primary: &[u8]) -> Option<u64> {
    let digits = primary.iter().all(u8::is_ascii_digit) && primary.first() != Some(&b'0');
    let uid = std::str::from_utf8(primary).ok().filter(|_| digits)?.parse().ok()?;
    (uid <= TOLD_UID_MAX).then_some(uid)
}

/// Number of rows and greatest identifier, as told by the keys of all rows.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) rows: u64,
    /// The greatest key that may be an identifier, or 0.
    pub(super) uid: u64,
}

/// Goes through the keys of all rows. Those that cannot be read are left out, and the log says so.
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
                tracing::error!("rows are left out of the number of rows: {error}");
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

/// Removes the postings of all indices, and what would have them brought up to date: it may be from
/// before a loss that is later than the rows.
pub(super) fn forget_postings(engine: &dyn Engine, is_read_only: bool) -> Result<()> {
    if is_read_only {
        return Err(Error::ReadOnly(format!(
            "the indices of {} have to be made anew after damage: open it for writing once",
            engine.medium().path().display()
        )));
    }
    remove_blocks(engine, vec![keys::POSTINGS])?;
    remove_blocks(engine, meta::pending_change(b""))
}

impl Table {
    /// Makes the postings of all indices again, of which there are none.
    pub(super) fn rebuild_postings(&self) -> Result<()> {
        let structure = self.structure.read().clone();
        for index in structure {
            let column = String::from_utf8_lossy(&index.column).into_owned();
            tracing::warn!(
                "{}: the index of column {column:?} is made anew after damage",
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
        // Rows change, and their postings do not.
        for number in (0..500).step_by(3) {
            let key = keys::row(format!("{number}").as_bytes());
            let value = row(&format!("new {number}")).encode().unwrap();
            engine.put(&key, &value, Meta::NONE, Wait::Block).unwrap();
        }
        let mut batch = Batch::new();
        batch.remove(&keys::row(b"7"));
        engine.write(&batch).unwrap();
        engine.put(&crate::table_keys::suspicion(), b"", Meta::NONE, Wait::Block).unwrap();

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
    fn identifiers_are_not_given_out_again_where_the_note_of_them_is_lost_or_old() {
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
            batch.put(&crate::table_keys::suspicion(), b"", Meta::NONE);
            engine.write(&batch).unwrap();
            if is_old {
                meta::write_uid(&*engine, 5).unwrap();
            }
            let table = Table::new(Arc::clone(&engine) as _, &options).unwrap();
            assert_eq!(table.generate_uid().unwrap(), uid + UIDS_LEFT_OUT + 1);
        }
    }

    /// Returns the first segment that has these bytes, and the last segment there is.
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
        // Comes to more than a segment.
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
