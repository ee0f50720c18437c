//! Imports a hash or B+ tree file of Tokyo Cabinet: `import_tokyo_cabinet OLD.tch NEW.tch`.
//!
//! The old file is only read. `tyrant import` does more: tables, progress, comparison.

use cabinet::legacy::{File, Item, Visit};
use cabinet::{Damage, Database, Side};
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;

struct Import {
    database: Database,
    records: u64,
    damages: Vec<Damage>,
    failed: Option<cabinet::Error>,
}

impl Import {
    fn store(&mut self, item: &Item<'_>) -> cabinet::Result<()> {
        match item {
            Item::Record { key, value } => {
                self.database.put(key, value)?;
            }
            Item::Duplicates { key, values } => {
                for value in *values {
                    self.database.put_duplicate(key, value, Side::After)?;
                }
            }
            _ => {
                return Err(cabinet::Error::Unsupported {
                    operation: "rows",
                    kind: "this example",
                    advice: "import them by `tyrant import`",
                });
            }
        }
        self.records += item.records();
        Ok(())
    }
}

impl Visit for Import {
    fn item(&mut self, item: &Item<'_>) -> ControlFlow<()> {
        match self.store(item) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn damage(&mut self, damage: Damage) {
        self.damages.push(damage);
    }
}

/// Returns the number of records, and the damaged places of the file.
fn import(old: &Path, new: &str) -> cabinet::Result<(u64, Vec<Damage>)> {
    let database = Database::open(new)?;
    let mut import = Import { database, records: 0, damages: Vec::new(), failed: None };
    File::open(old)?.read(&mut import)?;
    match import.failed {
        Some(error) => Err(error),
        None => Ok((import.records, import.damages)),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let [old, new] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("usage: import_tokyo_cabinet OLD NEW".into());
    };
    let (records, damages) = import(old.as_ref(), new)?;
    println!("{records} records");
    for damage in damages {
        eprintln!("{damage}");
    }
    Ok(())
}

#[test]
fn records_of_a_real_file_are_imported() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokyocabinet");
    let folder = tempfile::tempdir().unwrap();
    for (file, suffix) in FIXTURES {
        let new = folder.path().join(format!("new.{suffix}")).display().to_string();
        let old = fixtures.join(file);
        let (records, damages) = import(&old, &new).unwrap();
        assert!(damages.is_empty(), "{file}");
        assert_eq!(records, File::open(&old).unwrap().header().records, "{file}");
        assert_eq!(records, Database::open(&new).unwrap().len(), "{file}");
        assert!(records > 0, "{file}");
    }
}

#[cfg(test)]
const FIXTURES: [(&str, &str); 2] = [("be/hash-numbers.tch", "tch"), ("be/btree-dups.tcb", "tcb")];
