//! Rows of columns, an index, and a query: `table_query [FILE.tct]`.

use cabinet::Database;
use cabinet::table::{IndexChange, IndexKind, Operator, Query, Row, SortKind};
use std::error::Error;

const PEOPLE: [(&str, &str, &str); 4] =
    [("p1", "Ann", "34"), ("p2", "Bob", "9"), ("p3", "Cleo", "71"), ("p4", "Dan", "18")];

fn adults(path: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let database = Database::open(path)?;
    let table = database.table().ok_or("the name of a table ends in .tct")?;
    table.set_index(b"age", IndexChange::Set(IndexKind::Decimal))?;
    for (key, name, age) in PEOPLE {
        let row = Row::new().with(b"name", name.as_bytes())?.with(b"age", age.as_bytes())?;
        table.put(key.as_bytes(), &row)?;
    }
    let query = Query::new()
        .with(b"age", Operator::NumberGreaterEqual, b"18")
        .order_by(b"age", SortKind::NumberDescending)
        .limit(10);
    let (keys, report) = table.search(&query)?;
    eprintln!("{}", report.hint);
    let mut names = Vec::new();
    for key in keys {
        let row = table.get(&key)?.ok_or("the row was removed meanwhile")?;
        names.push(String::from_utf8(row.get(b"name").unwrap_or_default().to_vec())?);
    }
    Ok(names)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("people.tct").display().to_string();
    for name in adults(&std::env::args().nth(1).unwrap_or(path))? {
        println!("{name}");
    }
    Ok(())
}

#[test]
fn the_oldest_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("people.tct").display().to_string();
    assert_eq!(adults(&path).unwrap(), ["Cleo", "Ann", "Dan"]);
}
