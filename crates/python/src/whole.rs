//! Operations on a database as a whole.

use crate::errors::{self, Failure};
use crate::options::{kind_name, tuning_of};
use crate::shared::go_on;
use crate::store::Store;
use crate::upkeep::{checked_dict, damage_texts};
use cabinet::{Durability, Kind};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

#[pymethods]
impl Store {
    /// Makes everything that was written so far durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.shared.wait(py, cabinet::Database::sync)?)
    }

    /// End of the log, which is after each operation that has returned.
    #[getter]
    fn appended(&self) -> PyResult<u64> {
        Ok(self.shared.enter()?.slow.appended())
    }

    /// Position in the log before which everything is durable.
    #[getter]
    fn durable(&self) -> PyResult<u64> {
        Ok(self.shared.enter()?.slow.durable())
    }

    /// Waits until a position in the log is durable, or everything that was written so far.
    #[pyo3(signature = (position=None))]
    fn wait_durable(&self, py: Python<'_>, position: Option<u64>) -> PyResult<()> {
        let handle = self.shared.enter()?;
        let position = position.unwrap_or_else(|| handle.slow.appended());
        let is_durable = handle.slow.durable() >= position;
        drop(handle);
        if is_durable {
            return Ok(());
        }
        Ok(self.shared.wait(py, |database| database.wait_durable(position))?)
    }

    /// When a write is acknowledged: "none", "always", or "interval:MS".
    #[getter]
    fn durability(&self) -> PyResult<String> {
        Ok(match self.shared.enter()?.slow.durability() {
            Durability::None => "none".into(),
            Durability::Always => "always".into(),
            Durability::Interval(milliseconds) => format!("interval:{milliseconds}"),
        })
    }

    /// Writes a consistent copy to a path that does not exist yet, while others write.
    fn backup(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        Ok(self.shared.wait(py, |database| database.copy_to(&path))?)
    }

    /// Verifies every checksum of the files while they are in use, and reads at most
    /// `bytes_per_second`. Returns counts, and the texts of all damage under "damages".
    #[pyo3(signature = (*, bytes_per_second=None))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        bytes_per_second: Option<u64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (mut damages, mut raised) = (Vec::new(), None);
        let verified = self.shared.wait(py, |database| {
            let rate = bytes_per_second.unwrap_or(u64::MAX);
            let mut go_on = |_: &_| go_on(&mut raised).then_some(rate);
            database.verify(&mut go_on, &mut |damage| damages.push(damage))
        });
        match raised {
            Some(raised) => Err(raised),
            None => checked_dict(py, &verified?.checked, &damages),
        }
    }

    /// Reclaims dead space, after it has applied tuning such as "capsiz=1g", if any is given.
    #[pyo3(signature = (tuning=None))]
    fn optimize(&self, py: Python<'_>, tuning: Option<&str>) -> PyResult<()> {
        if let Some(tuning) = tuning {
            // The library passes over settings that it does not know.
            let kind = self.shared.enter()?.slow.kind().unwrap_or(Kind::Hash);
            let notices = tuning_of(kind, tuning)?.notices;
            if let Some(notice) = notices.first() {
                let parts = notice.rsplit_once(": ").map_or("", |(_, parts)| parts);
                let kind = kind_name(kind);
                let text = format!(
                    "tuning without effect on a database of the kind {kind:?}: {parts}: leave it out"
                );
                return Err(errors::new(py, "UnsupportedError", &text));
            }
        }
        let optimized = self.shared.wait(py, |database| match tuning {
            Some(tuning) => database.retune(tuning),
            None => database.optimize(),
        });
        Ok(optimized?)
    }

    /// Returns the stats of the library by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.shared.wait(py, |database| Ok(database.stats()))?;
        let dict = PyDict::new(py);
        for (name, value) in stats {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    /// Texts of the damage that was found on opening, and of that which was set aside before.
    #[getter]
    fn damages(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let damages = self.shared.wait(py, |database| Ok(database.damages()))?;
        Ok(damage_texts(&damages))
    }

    /// Bytes on the disk, or in memory for an on-memory database.
    #[getter]
    fn size_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.shared.wait(py, |database| Ok(database.size_bytes()))?)
    }

    /// Path of the database; `*` or `+` for the on-memory kinds.
    #[getter]
    fn path(&self) -> PyResult<String> {
        Ok(self.shared.enter()?.slow.path().display().to_string())
    }

    /// "hash", "tree", "fixed", "table", "memory-hash" or "memory-tree".
    #[getter]
    fn kind(&self) -> PyResult<Option<&'static str>> {
        Ok(self.shared.enter()?.slow.kind().map(kind_name))
    }

    /// Whether changes are refused.
    #[getter]
    fn read_only(&self) -> PyResult<bool> {
        Ok(self.shared.enter()?.slow.is_read_only())
    }

    /// Bytes of the longest value of a fixed-length database; `None` for other kinds.
    #[getter]
    fn width(&self) -> Result<Option<u64>, Failure> {
        Ok(self.shared.enter()?.slow.as_numbered().map(cabinet::Numbered::width))
    }
}
