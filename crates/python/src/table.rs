//! Operations of tables: indices, identifiers, queries. Rows are values of a codec in Python.

use crate::bytes::of_key;
use crate::operation::Operation;
use crate::query::{Given, Outcome};
use crate::store::Store;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

#[pymethods]
impl Store {
    /// Returns the primary keys of the results of queries, combined by an operation, and a report.
    fn _search<'py>(
        &self,
        py: Python<'py>,
        queries: Vec<Given>,
        operation: &str,
    ) -> PyResult<(Vec<Bound<'py, PyAny>>, Outcome)> {
        let search = Operation::Search(queries, operation.into(), true);
        let (keys, outcome): (Vec<Vec<u8>>, _) = self.shared.wait(py, &search)?;
        let keys = keys.iter().map(|key| self.codecs.key(py, key)).collect::<PyResult<_>>()?;
        Ok((keys, outcome))
    }

    /// Returns the report of queries, without their results.
    fn _count(&self, py: Python<'_>, queries: Vec<Given>, operation: &str) -> PyResult<Outcome> {
        let search = Operation::Search(queries, operation.into(), false);
        let (_, outcome): (Vec<Vec<u8>>, _) = self.shared.wait(py, &search)?;
        Ok(outcome)
    }

    /// Removes the rows of a query's results. Returns the report, whose count is that of the rows.
    fn _search_out(&self, py: Python<'_>, query: Given) -> PyResult<Outcome> {
        let (_, outcome): (Vec<Vec<u8>>, _) = self.shared.wait(py, &Operation::SearchOut(query))?;
        Ok(outcome)
    }

    /// Builds an index of a column ("lex", "dec", "tok" or "qgr"), rebuilds it ("opt"), or removes
    /// it ("void"). An empty name is the primary key.
    fn _set_index(&self, py: Python<'_>, column: &Bound<'_, PyAny>, kind: &str) -> PyResult<()> {
        let column = of_key(column)?;
        let set = Operation::SetIndex(column.as_bytes().into(), kind.into());
        Ok(self.shared.wait(py, &set)?)
    }

    /// Returns the types of the indices by column.
    fn _indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let indices: Vec<(Vec<u8>, String)> = self.shared.wait(py, &Operation::Indices)?;
        let dict = PyDict::new(py);
        for (column, kind) in indices {
            dict.set_item(PyBytes::new(py, &column), kind)?;
        }
        Ok(dict)
    }

    /// Returns a number that the table has not returned before.
    fn _new_id(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.shared.wait(py, &Operation::NewId)?)
    }
}
