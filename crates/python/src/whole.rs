//! Operations on a database as a whole.

use crate::errors::{self, Failure};
use crate::operation::{Counts, Operation};
use crate::options::{kind_of_name, tuning_of};
use crate::store::Store;
use crate::upkeep::checked_dict;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

#[pymethods]
impl Store {
    /// Makes everything that was written so far durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.shared.wait(py, &Operation::Sync)?)
    }

    /// End of the log, which is after each operation that has returned.
    #[getter]
    fn appended(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.shared.read(py, &Operation::Appended)?)
    }

    /// Position in the log before which everything is durable.
    #[getter]
    fn durable(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.shared.read(py, &Operation::Durable)?)
    }

    /// Waits until a position in the log is durable, or everything that was written so far.
    #[pyo3(signature = (position=None))]
    fn wait_durable(&self, py: Python<'_>, position: Option<u64>) -> PyResult<()> {
        let position = match position {
            Some(position) => position,
            None => self.appended(py)?,
        };
        if self.durable(py)? >= position {
            return Ok(());
        }
        Ok(self.shared.wait(py, &Operation::WaitDurable(position))?)
    }

    /// When a write is acknowledged: "none", "always", or "interval:MS".
    #[getter]
    fn durability(&self) -> PyResult<String> {
        Ok(self.shared.properties()?.durability)
    }

    /// Writes a consistent copy to a path that does not exist yet, while others write.
    fn backup(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let path = std::path::absolute(path)?;
        Ok(self.shared.wait(py, &Operation::Backup(path))?)
    }

    /// Verifies every checksum of the files while they are in use, and reads at most
    /// `bytes_per_second`. Returns counts, and the texts of all damage under "damages".
    #[pyo3(signature = (*, bytes_per_second=None))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        bytes_per_second: Option<u64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let verify = Operation::Verify(bytes_per_second);
        let (counts, damages): (Counts, _) = self.shared.wait(py, &verify)?;
        checked_dict(py, counts, damages)
    }

    /// Reclaims dead space, after it has applied tuning such as "capsiz=1g", if any is given.
    #[pyo3(signature = (tuning=None))]
    fn optimize(&self, py: Python<'_>, tuning: Option<&str>) -> PyResult<()> {
        if let Some(tuning) = tuning {
            // The library passes over settings that it does not know.
            let name = self.shared.properties()?.kind.unwrap_or_else(|| "hash".into());
            let notices = tuning_of(kind_of_name(&name), tuning)?.notices;
            if let Some(notice) = notices.first() {
                let parts = notice.rsplit_once(": ").map_or("", |(_, parts)| parts);
                let text = format!(
                    "tuning without effect on a database of the kind {name:?}: {parts}: leave it \
                     out"
                );
                return Err(errors::new(py, "UnsupportedError", &text));
            }
        }
        Ok(self.shared.wait(py, &Operation::Optimize(tuning.map(Into::into)))?)
    }

    /// Returns the stats of the library by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats: Vec<(String, String)> = self.shared.wait(py, &Operation::Stats)?;
        let dict = PyDict::new(py);
        for (name, value) in stats {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    /// Texts of the damage that was found on opening, and of that which was set aside before.
    #[getter]
    fn damages(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.shared.wait(py, &Operation::Damages)?)
    }

    /// Bytes on the disk, or in memory for an on-memory database.
    #[getter]
    fn size_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.shared.wait(py, &Operation::SizeBytes)?)
    }

    /// Path of the database; `*` or `+` for the on-memory kinds.
    #[getter]
    fn path(&self) -> PyResult<String> {
        Ok(self.shared.properties()?.path)
    }

    /// "hash", "tree", "fixed", "table", "memory-hash" or "memory-tree".
    #[getter]
    fn kind(&self) -> PyResult<Option<String>> {
        Ok(self.shared.properties()?.kind)
    }

    /// Whether changes are refused.
    #[getter]
    fn read_only(&self) -> PyResult<bool> {
        Ok(self.shared.properties()?.is_read_only)
    }

    /// Bytes of the longest value of a fixed-length database; `None` for other kinds.
    #[getter]
    fn width(&self, py: Python<'_>) -> Result<Option<usize>, Failure> {
        self.shared.read(py, &Operation::Width)
    }
}
