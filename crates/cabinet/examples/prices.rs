//! The program of the README.

use cabinet::{Database, Result};

fn main() -> Result<()> {
    // The suffix names the kind: .tch hash, .tcb B+ tree, .tcf fixed-length, .tct table, * and +
    // in memory. Settings follow behind #.
    let database = Database::open("prices.tcb#durability=always")?;
    database.put(b"apple", b"120")?;
    database.put(b"banana", b"95")?;
    database.put(b"cherry", b"310")?;

    assert_eq!(database.get(b"banana")?.as_deref(), Some(&b"95"[..]));
    for record in database.range("b"..)? {
        let record = record?;
        println!("{}", String::from_utf8_lossy(&record.key));
    }

    // A change that depends on the present value, and changes that belong together.
    database.entry(b"apple").and_modify(|value| value.push(b'0')).or_insert(b"120")?;
    let transaction = database.transaction();
    transaction.remove(b"banana")?;
    transaction.put(b"bananas", b"95")?;
    transaction.commit()?;

    // A consistent copy, whatever other threads write meanwhile. It must not exist yet.
    let copy = std::path::Path::new("backup.tcb");
    if !copy.exists() {
        database.copy_to(copy)?;
    }
    Ok(())
}

#[test]
fn the_program_of_the_readme_works() {
    let program = include_str!("prices.rs").split("\n#[test]").next().unwrap();
    let program = program.split_once("\n\n").unwrap().1;
    assert!(include_str!("../README.md").contains(program));
    let folder = tempfile::tempdir().unwrap();
    std::env::set_current_dir(&folder).unwrap();
    main().unwrap();
    assert_eq!(Database::open("backup.tcb").unwrap().len(), 3);
}
