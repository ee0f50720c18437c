//! Options: the arguments of `cabinet.open`, beside the settings in the name.

use crate::bytes::of_key;
use crate::errors;
use cabinet::name::Specification;
use cabinet::{
    Compression, Database, Durability, Error, IndexChange, IndexKind, KeyOrder, Kind, Options,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::path::PathBuf;

/// Names of the options, for the error that lists them.
const NAMES: &str = "kind, create, read_only, truncate, durability, compression, \
    dead_percent_max, compaction_bytes_per_second, segment_bytes, order, cache_bytes, index_bytes, \
    leaf_bytes, query_memory_bytes, indices, capacity_records, capacity_bytes, memory_bytes, \
    width, limit_bytes";

/// Database to open: its path and its options.
pub(crate) struct Opening {
    path: PathBuf,
    options: Options,
}

impl Opening {
    /// Parses a name (`str` or a path) and the arguments beside it, which take precedence.
    pub(crate) fn new(
        name: &Bound<'_, PyAny>,
        arguments: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let path: PathBuf = name.extract()?;
        let Some(name) = path.to_str() else {
            let text = "the name of a database is UTF-8: open it by another path";
            return Err(errors::new(py_of(arguments, name), "BadNameError", text));
        };
        let kind = match arguments {
            Some(arguments) => arguments.get_item("kind")?,
            None => None,
        };
        let kind = kind.filter(|kind| !kind.is_none()).map(|kind| kind_of(&kind)).transpose()?;
        let (path, mut options) = parse(name, kind).map_err(errors::library)?;
        for (name, value) in arguments.into_iter().flatten() {
            let name = name.cast::<PyString>()?.to_cow()?.into_owned();
            set(&mut options, &name, &value)?;
        }
        Ok(Self { path, options })
    }

    /// Opens the database.
    pub(crate) fn open(&self) -> cabinet::Result<Database> {
        self.options.open(&self.path)
    }
}

fn py_of<'py>(arguments: Option<&Bound<'py, PyDict>>, name: &Bound<'py, PyAny>) -> Python<'py> {
    arguments.map_or(name.py(), |arguments| arguments.py())
}

/// Parses a name with its tuning. The kind is needed if the suffix names none.
fn parse(name: &str, kind: Option<Kind>) -> cabinet::Result<(PathBuf, Options)> {
    let (path, tuning) = name.split_once('#').unwrap_or((name, ""));
    let Some(kind) = kind.filter(|_| Kind::of_path(path.as_ref()).is_none()) else {
        let specification = Specification::parse(name)?;
        return Ok((specification.path, specification.options.kind_if_absent(kind)));
    };
    // Tuning is read by the kind, which a path names by its suffix.
    let stand_in = match kind {
        Kind::Hash => "a.tch",
        Kind::Tree => "a.tcb",
        Kind::Fixed => "a.tcf",
        Kind::Table => "a.tct",
        Kind::MemoryHash => "*",
        Kind::MemoryTree => "+",
    };
    let specification = Specification::parse(&format!("{stand_in}#{tuning}"))?;
    Ok((path.into(), specification.options.kind(kind)))
}

/// Sets the kind of options, where one was given.
trait KindIfAbsent {
    fn kind_if_absent(self, kind: Option<Kind>) -> Self;
}

impl KindIfAbsent for Options {
    fn kind_if_absent(self, kind: Option<Kind>) -> Self {
        match kind {
            Some(kind) => self.kind(kind),
            None => self,
        }
    }
}

fn set(options: &mut Options, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if value.is_none() {
        return Ok(());
    }
    match name {
        "kind" => {}
        "create" => options.create = value.extract()?,
        "read_only" => {
            options.read_only = value.extract()?;
            options.create &= !options.read_only;
        }
        "truncate" => options.truncate = value.extract()?,
        "durability" => options.durability = durability_of(value)?,
        "compression" => {
            options.compression = chosen(
                name,
                value,
                &[
                    ("none", Compression::None),
                    ("lz4", Compression::Lz4),
                    ("zstd", Compression::Zstd),
                ],
            )?;
        }
        "dead_percent_max" => options.dead_percent_max = value.extract()?,
        "compaction_bytes_per_second" => options.compaction_bytes_per_second = value.extract()?,
        "segment_bytes" => options.segment_bytes = Some(value.extract()?),
        "order" => options.order = Some(chosen(name, value, &KeyOrder::NAMES)?),
        "cache_bytes" => options.cache_bytes = Some(value.extract()?),
        "index_bytes" => options.index_bytes = Some(value.extract()?),
        "leaf_bytes" => options.leaf_bytes = Some(value.extract()?),
        "query_memory_bytes" => options.query_memory_bytes = value.extract()?,
        "indices" => {
            for (column, kind) in value.cast::<PyDict>()? {
                let column = of_key(&column)?.as_bytes().to_vec();
                *options = std::mem::take(options).column_index(column, index_kind_of(&kind)?);
            }
        }
        "capacity_records" => options.capacity_records = value.extract()?,
        "capacity_bytes" => options.capacity_bytes = value.extract()?,
        "memory_bytes" => options.memory_bytes = Some(value.extract()?),
        "width" => options.width = Some(value.extract()?),
        "limit_bytes" => options.limit_bytes = Some(value.extract()?),
        _ => {
            let text = format!("there is no option {name:?}: known are {NAMES}, codec, keys");
            return Err(PyTypeError::new_err(text));
        }
    }
    Ok(())
}

/// Returns the kind that a text names.
pub(crate) fn kind_of(value: &Bound<'_, PyAny>) -> PyResult<Kind> {
    let kinds = [
        ("hash", Kind::Hash),
        ("tree", Kind::Tree),
        ("fixed", Kind::Fixed),
        ("table", Kind::Table),
    ];
    chosen("kind", value, &kinds)
}

/// Returns the name of a kind, as `kind` takes it.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Hash => "hash",
        Kind::Tree => "tree",
        Kind::Fixed => "fixed",
        Kind::Table => "table",
        Kind::MemoryHash => "memory-hash",
        Kind::MemoryTree => "memory-tree",
    }
}

/// Returns the durability of `"none"`, `"always"`, `"interval:MS"`, or of seconds.
fn durability_of(value: &Bound<'_, PyAny>) -> PyResult<Durability> {
    let text: String = match value.extract::<f64>() {
        Ok(seconds) => format!("interval:{}", (seconds * 1000.0).round() as u64),
        Err(_) => value.extract()?,
    };
    // Names have the same setting, and the errors for wrong ones.
    let specification = Specification::parse(&format!("a.tch#durability={text}"))
        .map_err(|error| errors::library(Error::Name(error)))?;
    Ok(specification.options.durability)
}

/// Returns the type of an index that a text names: `lex`, `dec`, `tok` or `qgr`.
pub(crate) fn index_kind_of(value: &Bound<'_, PyAny>) -> PyResult<IndexKind> {
    let text: String = value.extract()?;
    match IndexChange::parse(text.as_bytes()) {
        Some(IndexChange::Set(kind) | IndexChange::SetNew(kind)) => Ok(kind),
        _ => Err(PyValueError::new_err(format!(
            "{text:?} is not a type of index: choose \"lex\", \"dec\", \"tok\" or \"qgr\""
        ))),
    }
}

/// Returns the one of several values that a text names.
pub(crate) fn chosen<T: Copy>(
    option: &str,
    value: &Bound<'_, PyAny>,
    known: &[(&str, T)],
) -> PyResult<T> {
    let text: String = value.extract()?;
    if let Some((_, value)) = known.iter().find(|(name, _)| *name == text) {
        return Ok(*value);
    }
    let names: Vec<String> = known.iter().map(|(name, _)| format!("{name:?}")).collect();
    let text = format!("{option}={text:?}: choose one of {}", names.join(", "));
    Err(PyValueError::new_err(text))
}
