//! A backup of a database that is written meanwhile: `backup_while_writing [FOLDER]`.
//!
//! The copy shares its files with the database until they are compacted, so it takes little time
//! and space. It holds all changes before one moment and none after it.

use cabinet::{Database, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Writes numbers one after the other, copies the database meanwhile, and returns how many the
/// copy has.
fn back_up(folder: &Path) -> Result<u64> {
    let copy = folder.join("backup.tch");
    let database = Database::open(&folder.join("live.tch").display().to_string())?;
    database.put(b"0", b"first")?;
    let is_copied = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0_u64;
            while !is_copied.load(Ordering::Relaxed) {
                number += 1;
                database.put(number.to_string().as_bytes(), b"a value")?;
            }
            Ok(())
        });
        let copied = database.copy_to(&copy);
        is_copied.store(true, Ordering::Relaxed);
        writer.join().expect("the writer").and(copied)
    })?;
    let copy = Database::open(&copy.display().to_string())?;
    let numbers = copy.len();
    // All records up to the last one are there.
    assert!(
        (0..numbers).all(|number| matches!(copy.get(number.to_string().as_bytes()), Ok(Some(_))))
    );
    Ok(numbers)
}

fn main() -> Result<()> {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let folder = std::env::args().nth(1).map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| temporary.path().to_owned());
    println!("the copy has {} records", back_up(&folder)?);
    Ok(())
}

#[test]
fn a_copy_has_all_records_before_a_moment() {
    let folder = tempfile::tempdir().unwrap();
    assert!(back_up(folder.path()).unwrap() > 0);
}
