//! Options: the arguments of `cabinet.open`, beside the settings in the name.

use crate::bytes::{class_name, of_key};
use crate::errors;
use cabinet::ids::IdLimits;
use cabinet::name::{NameError, Specification};
use cabinet::{
    Compression, Database, Durability, Error, IndexChange, IndexDescription, IndexKind, KeyOrder,
    Kind, Options,
};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// Names of the options, for the error that lists them.
const NAMES: &str = "kind, create, read_only, truncate, durability, compression, \
    dead_percent_max, compaction_bytes_per_second, segment_bytes, order, cache_bytes, index_bytes, \
    leaf_bytes, query_memory_bytes, indices, capacity_records, capacity_bytes, memory_bytes, \
    width, limit_bytes";

/// Database to open: its path and its options.
pub(crate) struct Opening {
    path: PathBuf,
    options: Options,
    /// Options of the arguments alone.
    asked: Options,
}

impl Opening {
    /// Parses a name (`str` or a path) and the arguments beside it, which take precedence.
    pub(crate) fn new(
        name: &Bound<'_, PyAny>,
        arguments: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let py = name.py();
        let path: PathBuf = name.extract()?;
        let Some(name) = path.to_str() else {
            let text = format!("the name {path:?} is not UTF-8: open the database by another path");
            return Err(errors::new(py, "BadNameError", &text));
        };
        let kind = match arguments {
            Some(arguments) => arguments.get_item("kind")?,
            None => None,
        };
        let kind = kind.filter(|kind| !kind.is_none()).map(|kind| kind_of(&kind)).transpose()?;
        let (path, mut options) = parse(py, name, kind)?;
        let kind = options.kind.or_else(|| Kind::of_path(&path));
        let mut asked = Options::default();
        let mut is_created = false;
        for (name, value) in arguments.into_iter().flatten() {
            let name = name.cast::<PyString>()?.to_cow()?.into_owned();
            set(&mut options, &name, &value, kind)?;
            set(&mut asked, &name, &value, None)?;
            is_created |= name == "create" && options.create;
        }
        if options.read_only {
            let refused = [
                ("create=True", is_created),
                ("truncate=True", options.truncate),
                ("indices", !options.indices.is_empty()),
            ];
            if let Some((name, _)) = refused.iter().find(|(_, is_given)| *is_given) {
                let text = format!(
                    "{name}: a database that is opened for reading only stays as it is: leave it \
                     out, or open it for writing"
                );
                return Err(errors::new(py, "InvalidArgumentError", &text));
            }
            options.create = false;
        }
        Ok(Self { path, options, asked })
    }

    /// Returns the path of the database.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the database is in memory.
    pub(crate) fn is_on_memory(&self) -> bool {
        self.options.kind.or_else(|| Kind::of_path(&self.path)).is_some_and(Kind::is_on_memory)
    }

    /// Returns whether it is opened for reading only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    /// Returns whether it is made if it is not there.
    pub(crate) fn is_created(&self) -> bool {
        self.options.create
    }

    /// Returns whether all records are removed first.
    pub(crate) fn is_truncated(&self) -> bool {
        self.options.truncate
    }

    /// Returns the options that all processes which share the database give, one in each line.
    pub(crate) fn fingerprint(&self) -> String {
        let kind = self.options.kind.or_else(|| Kind::of_path(&self.path));
        let mut options = self.options.clone();
        options.kind = kind;
        (options.create, options.read_only, options.truncate) = (true, false, false);
        format!("{options:?}").replace(", ", "\n")
    }

    /// Opens the database. Fails if it exists and keeps another shape than the arguments ask for.
    pub(crate) fn open(&self) -> cabinet::Result<Database> {
        let database = self.options.open(&self.path)?;
        match self.kept_shape(&database)? {
            None => Ok(database),
            Some(kept) => Err(Error::InvalidArgument(format!("{} {kept}", self.path.display()))),
        }
    }

    /// Returns a text about an argument that an existing database does not follow.
    fn kept_shape(&self, database: &Database) -> cabinet::Result<Option<String>> {
        if let Some(numbered) = database.as_numbered() {
            let (width, wanted) = (numbered.width(), self.asked.width);
            if let Some(wanted) = wanted.filter(|wanted| *wanted != width) {
                return Ok(Some(format!(
                    "keeps its width of {width} bytes: leave width={wanted} out, and change it by \
                     optimize(\"width={wanted}\")"
                )));
            }
            if let Some(wanted) = self.asked.limit_bytes {
                let id_max = IdLimits::new(Some(width), Some(wanted))?.id_max();
                if id_max != numbered.id_max() {
                    return Ok(Some(format!(
                        "keeps its greatest id of {}, in place of {id_max}: leave \
                         limit_bytes={wanted} out, and change it by optimize(\"limsiz={wanted}\")",
                        numbered.id_max()
                    )));
                }
            }
        }
        let indices = database.table().map(|table| table.indices()).unwrap_or_default();
        let other = |wanted: &&IndexDescription| {
            indices.iter().any(|index| index.column == wanted.column && index.kind != wanted.kind)
        };
        Ok(self.asked.indices.iter().find(other).map(|wanted| {
            let column = String::from_utf8_lossy(&wanted.column);
            format!(
                "has an index of the column {column:?} with another type: leave it out of indices, \
                 or remove_index({column:?}) first"
            )
        }))
    }
}

/// Parses a name with its tuning. The kind is needed if the suffix names none. Warns of settings
/// without an effect.
fn parse(py: Python<'_>, name: &str, kind: Option<Kind>) -> PyResult<(PathBuf, Options)> {
    let (path, tuning) = name.split_once('#').unwrap_or((name, ""));
    let Some(kind) = kind.filter(|_| Kind::of_path(path.as_ref()).is_none()) else {
        let specification = Specification::parse(name).map_err(of_name)?;
        warn(py, &specification.notices)?;
        return Ok((specification.path, specification.options.kind_if_absent(kind)));
    };
    let specification = tuning_of(kind, tuning)?;
    warn(py, &specification.notices)?;
    Ok((path.into(), specification.options.kind(kind)))
}

/// Parses tuning, which is read by the kind.
pub(crate) fn tuning_of(kind: Kind, tuning: &str) -> PyResult<Specification> {
    // A path names the kind by its suffix.
    let stand_in = match kind {
        Kind::Hash => "a.tch",
        Kind::Tree => "a.tcb",
        Kind::Fixed => "a.tcf",
        Kind::Table => "a.tct",
        Kind::MemoryHash => "*",
        Kind::MemoryTree => "+",
    };
    Specification::parse(&format!("{stand_in}#{tuning}")).map_err(of_name)
}

fn of_name(error: NameError) -> PyErr {
    errors::library(Error::Name(error))
}

fn warn(py: Python<'_>, notices: &[String]) -> PyResult<()> {
    for notice in notices {
        let text = CString::new(notice.as_str()).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 2)?;
    }
    Ok(())
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

/// Sets an option by its name. Fails if databases of the kind do not have it.
fn set(
    options: &mut Options,
    name: &str,
    value: &Bound<'_, PyAny>,
    kind: Option<Kind>,
) -> PyResult<()> {
    if value.is_none() {
        return Ok(());
    }
    match name {
        "kind" => {}
        "create" => options.create = flag(name, value)?,
        "read_only" => options.read_only = flag(name, value)?,
        "truncate" => options.truncate = flag(name, value)?,
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
        "dead_percent_max" => options.dead_percent_max = number(name, value)?,
        "compaction_bytes_per_second" => options.compaction_bytes_per_second = number(name, value)?,
        "segment_bytes" => options.segment_bytes = Some(number(name, value)?),
        "order" => options.order = Some(chosen(name, value, &KeyOrder::NAMES)?),
        "cache_bytes" => options.cache_bytes = Some(number(name, value)?),
        "index_bytes" => options.index_bytes = Some(number(name, value)?),
        "leaf_bytes" => options.leaf_bytes = Some(number(name, value)?),
        "query_memory_bytes" => options.query_memory_bytes = number(name, value)?,
        "indices" => {
            let allowed = "a dict of the types of indices by column";
            for (column, kind) in value.cast::<PyDict>().map_err(|_| wrong(name, value, allowed))? {
                let column = of_key(&column)?.as_bytes().to_vec();
                *options = std::mem::take(options).column_index(column, index_kind_of(&kind)?);
            }
        }
        "capacity_records" => options.capacity_records = number(name, value)?,
        "capacity_bytes" => options.capacity_bytes = number(name, value)?,
        "memory_bytes" => options.memory_bytes = Some(number(name, value)?),
        "width" => options.width = Some(number(name, value)?),
        "limit_bytes" => options.limit_bytes = Some(number(name, value)?),
        _ => {
            let text = format!("there is no option {name:?}: known are {NAMES}, codec, keys");
            return Err(PyTypeError::new_err(text));
        }
    }
    match kind {
        Some(kind) if !has_option(kind, name, options) => {
            let text = format!(
                "{name}={}: a database of the kind {:?} does not have this option: leave it out",
                value.repr()?,
                kind_name(kind)
            );
            Err(errors::new(value.py(), "UnsupportedError", &text))
        }
        _ => Ok(()),
    }
}

/// Returns whether databases of a kind have the option of a name, or it asks for what they do
/// anyway.
fn has_option(kind: Kind, name: &str, options: &Options) -> bool {
    let on_memory = kind.is_on_memory();
    match name {
        "create" => !on_memory || options.create,
        "read_only" => !on_memory || !options.read_only,
        "durability" => !on_memory || options.durability == Durability::None,
        "dead_percent_max" | "segment_bytes" => !on_memory,
        "compression" => kind != Kind::Fixed || options.compression == Compression::None,
        "compaction_bytes_per_second" => matches!(kind, Kind::Hash | Kind::Fixed),
        "order" | "leaf_bytes" => kind == Kind::Tree,
        "cache_bytes" => matches!(kind, Kind::Tree | Kind::Table),
        "index_bytes" => kind == Kind::Hash,
        "query_memory_bytes" | "indices" => kind == Kind::Table,
        "capacity_records" => on_memory || kind == Kind::Tree,
        "memory_bytes" => on_memory,
        "width" | "limit_bytes" => kind == Kind::Fixed,
        _ => true,
    }
}

/// Returns the number of an option, which is not a bool.
fn number<'py, T>(name: &str, value: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    if value.is_instance_of::<PyBool>() {
        return Err(wrong(name, value, "an int"));
    }
    value.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            PyValueError::new_err(format!("{name}={value}: it is out of the range of the option"))
        } else {
            wrong(name, value, "an int")
        }
    })
}

fn flag(name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    value.extract().map_err(|_| wrong(name, value, "True or False"))
}

fn text_of(name: &str, value: &Bound<'_, PyAny>, allowed: &str) -> PyResult<String> {
    value.extract().map_err(|_| wrong(name, value, allowed))
}

fn wrong(name: &str, value: &Bound<'_, PyAny>, allowed: &str) -> PyErr {
    let shown = value.repr().map_or_else(|_| class_name(value), |text| text.to_string());
    PyTypeError::new_err(format!("{name}={shown}: give {allowed}"))
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

/// All kinds.
const KINDS: [Kind; 6] =
    [Kind::Hash, Kind::Tree, Kind::Fixed, Kind::Table, Kind::MemoryHash, Kind::MemoryTree];

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

/// Returns the kind of a name of [`kind_name`].
pub(crate) fn kind_of_name(name: &str) -> Kind {
    KINDS.into_iter().find(|kind| kind_name(*kind) == name).unwrap_or(Kind::Hash)
}

/// Returns the durability of `"none"`, `"always"`, `"interval:MS"`, or of seconds.
fn durability_of(value: &Bound<'_, PyAny>) -> PyResult<Durability> {
    let allowed = "\"none\", \"always\", \"interval:MS\", or a number of seconds";
    let text = match value.extract::<f64>() {
        Ok(_) if value.is_instance_of::<PyBool>() => {
            return Err(wrong("durability", value, allowed));
        }
        Ok(seconds) if seconds > 0.0 => format!("interval:{}", (seconds * 1000.0).ceil() as u64),
        Ok(_) => {
            let text = format!("durability={value}: seconds are more than 0, or give \"always\"");
            return Err(PyValueError::new_err(text));
        }
        Err(_) => text_of("durability", value, allowed)?,
    };
    // Names have the same setting, and the errors for wrong ones.
    Ok(tuning_of(Kind::Hash, &format!("durability={text}"))?.options.durability)
}

/// Returns the type of an index that a text names: `lex`, `dec`, `tok` or `qgr`.
pub(crate) fn index_kind_of(value: &Bound<'_, PyAny>) -> PyResult<IndexKind> {
    let text = text_of("the type of an index", value, "a str such as \"lex\"")?;
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
    let text = text_of(option, value, "a str")?;
    if let Some((_, value)) = known.iter().find(|(name, _)| *name == text) {
        return Ok(*value);
    }
    let names: Vec<String> = known.iter().map(|(name, _)| format!("{name:?}")).collect();
    let text = format!("{option}={text:?}: choose one of {}", names.join(", "));
    Err(PyValueError::new_err(text))
}
