//! Functions for files of databases that are not open, and for files of Tokyo Cabinet.

use crate::errors;
use crate::operation::{Counts, counts, damage_texts};
use crate::options::kind_of;
use crate::rules::is_id;
use crate::signals::go_on;
use crate::store::Store;
use cabinet::legacy::{File, Item, Visit};
use cabinet::table::Row;
use cabinet::{Damage, Database, Durability, Error, Side};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Items of a file between two checks for signals.
const ITEMS_PER_CHECK: u64 = 1024;

/// Verifies every checksum of a database that no process has open. Returns counts, and the texts of
/// all damage under "damages".
#[pyfunction]
pub(crate) fn check(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let mut damages = Vec::new();
    let checked = py.detach(|| cabinet::check(&path, &mut |damage| damages.push(damage)));
    let checked = checked.map_err(errors::library)?;
    checked_dict(py, counts(&checked), damage_texts(&damages))
}

/// Copies all readable records of a damaged database, which no process may have open, into another
/// one. The kind is needed only if the files do not show it. Returns counts, and the texts of all
/// damage under "damages".
#[pyfunction]
#[pyo3(signature = (path, into, *, kind=None))]
pub(crate) fn salvage<'py>(
    py: Python<'py>,
    path: PathBuf,
    into: &Bound<'py, Store>,
    kind: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let kind = kind.map(kind_of).transpose()?;
    let mut damages = Vec::new();
    let salvaged = into.get().shared.wait_here(py, |database| {
        cabinet::salvage_as(&path, kind, database, &mut |damage| damages.push(damage))
    })?;
    let dict = PyDict::new(py);
    dict.set_item("changes", salvaged.changes)?;
    dict.set_item("unreadable", salvaged.unreadable)?;
    dict.set_item("doubtful", salvaged.doubtful)?;
    dict.set_item("may_be_stale", salvaged.may_be_stale)?;
    dict.set_item("is_rebuilt", salvaged.is_rebuilt)?;
    dict.set_item("damages", damage_texts(&damages))?;
    Ok(dict)
}

/// Stores all records of a file of Tokyo Cabinet in a database, which must be a table for a table.
/// The file is only read. Returns the number of records, and the texts of all damage under
/// "damages". `assume_plain` reads values as they are stored where the file says that functions of
/// its application have encoded them.
#[pyfunction]
#[pyo3(signature = (path, into, *, assume_plain=false))]
pub(crate) fn import_tokyo_cabinet<'py>(
    py: Python<'py>,
    path: PathBuf,
    into: &Bound<'py, Store>,
    assume_plain: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let (mut damages, mut raised, mut records) = (Vec::new(), None, 0);
    let imported = into.get().shared.wait_here(py, |database| {
        let mut file = File::open(&path)?;
        if assume_plain {
            file.assume_plain();
        }
        let deferred = database.deferred();
        let mut import = Import {
            database: &deferred,
            items: 0,
            records: 0,
            damages: Vec::new(),
            failed: None,
            raised: None,
        };
        file.read(&mut import)?;
        damages = import.damages;
        records = import.records;
        raised = import.raised;
        import.failed.map_or(Ok(()), Err)?;
        match database.durability() {
            Durability::Always => database.wait_durable(database.appended()),
            Durability::None | Durability::Interval(_) => Ok(()),
        }
    });
    if let Some(raised) = raised {
        return Err(raised);
    }
    imported?;
    let dict = PyDict::new(py);
    dict.set_item("records", records)?;
    dict.set_item("damages", damage_texts(&damages))?;
    Ok(dict)
}

struct Import<'d> {
    database: &'d Database,
    items: u64,
    records: u64,
    damages: Vec<Damage>,
    failed: Option<Error>,
    raised: Option<PyErr>,
}

impl Import<'_> {
    fn store(&mut self, item: &Item<'_>) -> cabinet::Result<()> {
        if let Item::Record { key, value } = item {
            check_fixed(self.database, key, value)?;
        }
        match item {
            Item::Record { key, value } => {
                self.database.put(key, value)?;
            }
            Item::Duplicates { key, values } if self.database.has_duplicates() => {
                for value in *values {
                    self.database.put_duplicate(key, value, Side::After)?;
                }
            }
            Item::Row { key, columns } if self.database.table().is_some() => {
                let mut row = Row::new();
                for (name, value) in *columns {
                    row.set(name, value)?;
                }
                self.database.table().map_or(Ok(()), |table| table.put(key, &row))?;
            }
            _ => {
                return Err(Error::InvalidArgument(
                    "a B+ tree is imported into a B+ tree (.tcb), and a table into a table (.tct)"
                        .into(),
                ));
            }
        }
        self.records += item.records();
        Ok(())
    }
}

/// Fails if a fixed-length database would store a part of a record only, or under another key.
fn check_fixed(database: &Database, key: &[u8], value: &[u8]) -> cabinet::Result<()> {
    let Some(numbered) = database.as_numbered() else { return Ok(()) };
    if !is_id(key) {
        let key = String::from_utf8_lossy(key).into_owned();
        return Err(Error::NoId { key, max: numbered.id_max() });
    }
    let width = usize::try_from(numbered.width()).unwrap_or(usize::MAX);
    let bytes = value.len();
    if bytes <= width {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "a value of {bytes} bytes, under the key {}, is longer than the width of {width}: import \
         into a database with a greater width",
        String::from_utf8_lossy(key)
    )))
}

impl Visit for Import<'_> {
    fn item(&mut self, item: &Item<'_>) -> ControlFlow<()> {
        if let Err(error) = self.store(item) {
            self.failed = Some(error);
            return ControlFlow::Break(());
        }
        self.items += 1;
        if self.items.is_multiple_of(ITEMS_PER_CHECK) && !go_on(&mut self.raised) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn damage(&mut self, damage: Damage) {
        self.damages.push(damage);
    }
}

/// Returns the counts of a check by name, and the texts of damage.
pub(crate) fn checked_dict(
    py: Python<'_>,
    counts: Counts,
    damages: Vec<String>,
) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, count) in counts {
        dict.set_item(name, count)?;
    }
    dict.set_item("damages", damages)?;
    Ok(dict)
}
