//! `tyrant inspect`: prints the properties of a database or file.

use crate::errors::require_database;
use crate::output::{AsJson, value_of, write_json};
use crate::plural::counted;
use crate::time::format_time;
use crate::transfer::to_read;
use crate::transfer::whole_file::Output;
use anyhow::{Context, Result, bail, ensure};
use cabinet::legacy::{ByteOrder, File, Shape, is_legacy};
use cabinet::name::Kind;
use cabinet::table::IndexDescription;
use cabinet::{Database, KeyOrder};
use serde_json::{Map, Value as Json};
use server::OwnMediaTypes;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Name of the property of an index.
const INDEX: &str = "index";

/// First bytes of a manifest.
const MAGIC: &[u8; 8] = b"tyrantdb";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Print the kind, the number of records, the tuning, ...
  tyrant inspect casket.tch
  # Print the properties of a record as an object of JSON
  tyrant inspect casket.tch session:1 --json")]
pub(super) struct Inspect {
    /// Folder of a database, which must not be open, or a Tokyo Cabinet file
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Print the length, the flags and the expiry of the records with these keys instead
    #[arg(value_name = "KEY")]
    keys: Vec<OsString>,
    #[command(flatten)]
    form: AsJson,
}

impl Inspect {
    pub(super) fn run(&self) -> Result<()> {
        if !self.keys.is_empty() {
            return self.inspect_records();
        }
        let mut lines = Properties(Vec::new());
        lines.add("path", self.path.display());
        if is_legacy(&self.path) {
            inspect_file(&File::open(&self.path)?, &mut lines)?;
        } else {
            require_database(&self.path)?;
            inspect_database(&self.path, &mut lines)?;
        }
        let mut output = Output::standard();
        if self.form.json {
            return write_json(&Json::Object(lines.members()), &mut output);
        }
        self.form.write_properties(&lines.0, &mut output)
    }
}

impl Inspect {
    /// Prints the properties of some records.
    fn inspect_records(&self) -> Result<()> {
        ensure!(
            !is_legacy(&self.path),
            "records of Tokyo Cabinet have no flags and no expiry: tyrant export prints them"
        );
        let database = open(self.path.to_str().context("the path is not UTF-8")?)?;
        let media_types = OwnMediaTypes::of(&database)?;
        let mut output = Output::standard();
        let mut absent = None;
        for key in &self.keys {
            let key = key.as_bytes();
            let Some((bytes, meta)) =
                database.read(key, |entry| (entry.value.len(), entry.meta))?
            else {
                absent.get_or_insert(key);
                continue;
            };
            let (flags, time_ms) = (meta.flags, meta.expires_at_ms);
            let media_type = media_types.name(flags);
            if self.form.json {
                let mut members = Map::new();
                members.insert("key".into(), crate::bytes::escaped(key).into());
                members.insert("bytes".into(), bytes.into());
                members.insert("flags".into(), flags.into());
                members.extend(media_type.map(|name| ("media_type".into(), name.into())));
                if time_ms != 0 {
                    members.insert("expires_at_ms".into(), time_ms.into());
                }
                write_json(&Json::Object(members), &mut output)?;
                continue;
            }
            let mut lines = Properties(Vec::new());
            lines.add("key", String::from_utf8_lossy(key));
            lines.add("bytes", bytes);
            lines.add("flags", flags);
            if let Some(name) = media_type {
                lines.add("media type", name);
            }
            match time_ms {
                0 => lines.add("expires", "never"),
                time_ms => lines.add("expires", format_time(time_ms.saturating_mul(1000))),
            }
            self.form.write_properties(&lines.0, &mut output)?;
        }
        match absent {
            Some(key) => bail!("no record has the key {}", crate::bytes::quoted(key)),
            None => Ok(()),
        }
    }
}

/// Opens a database to read it.
fn open(name: &str) -> Result<Database> {
    Database::open_specification(&to_read(name)?).with_context(|| format!("cannot open {name}"))
}

/// Names and values in the order of the output. Indices share one name.
struct Properties(Vec<(&'static str, String)>);

impl Properties {
    fn add(&mut self, name: &'static str, value: impl Display) {
        self.0.push((name, value.to_string()));
    }

    /// Returns the members of a JSON object. Values of one name become an array.
    fn members(&self) -> Map<String, Json> {
        let mut members = Map::new();
        for (name, text) in &self.0 {
            match *name {
                INDEX => {
                    let indices = members.entry("indices").or_insert_with(|| Json::Array(vec![]));
                    if let Json::Array(indices) = indices {
                        indices.push(text.as_str().into());
                    }
                }
                name => {
                    members.insert(name.replace(' ', "_"), value_of(text));
                }
            }
        }
        members
    }
}

fn inspect_file(file: &File, lines: &mut Properties) -> Result<()> {
    let header = file.header();
    lines.add("made by", format_args!("Tokyo Cabinet, format {}", header.version));
    lines.add("kind", header.kind.title());
    let order = match header.byte_order {
        ByteOrder::Little => "little-endian",
        ByteOrder::Big => "big-endian",
    };
    lines.add("numbers", order);
    let state = match (file.was_open(), header.is_fatal) {
        (false, false) => "closed",
        (true, false) => "not closed",
        (false, true) => "closed after a fatal error",
        (true, true) => "not closed, after a fatal error",
    };
    lines.add("state", state);
    if let Some(changes) = file.undone_changes() {
        let undone = counted(changes, "change is undone", "changes are undone");
        lines.add("transaction log", undone);
    }
    lines.add("record offsets", if header.is_large { "64 bits" } else { "32 bits" });
    lines.add("values", header.codec.name());
    lines.add("records", header.records);
    lines.add("bytes", header.used_bytes);
    if header.kind != Kind::Fixed {
        lines.add("buckets", header.buckets);
        lines.add("alignment", 1u64 << header.alignment_power);
        lines.add("free block pool", 1u64 << header.free_pool_power.min(63));
        lines.add("first record", header.first_record);
    }
    match &header.shape {
        Shape::Tree { order, leaf_members, node_members, root, first_leaf, last_leaf } => {
            lines.add("order of keys", order.map_or("custom", order_name));
            lines.add("pages", header.hash_records);
            lines.add("records per leaf", leaf_members);
            lines.add("entries per node", node_members);
            lines.add("root page", root);
            lines.add("first leaf", first_leaf);
            lines.add("last leaf", last_leaf);
        }
        Shape::Fixed { width, limit_bytes, least, greatest } => {
            lines.add("width", width);
            lines.add("limit in bytes", limit_bytes);
            lines.add("least number", least);
            lines.add("greatest number", greatest);
        }
        Shape::Table { last_unique_id } => {
            lines.add("last unique id", last_unique_id);
            add_indices(&file.indices()?, lines);
        }
        _ => {}
    }
    Ok(())
}

fn add_indices(indices: &[IndexDescription], lines: &mut Properties) {
    for index in indices {
        let column = index.column.escape_ascii();
        lines.add(INDEX, format_args!("\"{column}\" {}", index.kind.name()));
    }
}

fn order_name(order: KeyOrder) -> &'static str {
    KeyOrder::NAMES.iter().find(|(_, other)| *other == order).map_or("unknown", |(name, _)| name)
}

fn inspect_database(path: &Path, lines: &mut Properties) -> Result<()> {
    let (version, kind) = manifest(path)?;
    lines.add("made by", format_args!("tyrant, format {version}"));
    lines.add("kind", kind.title());
    let name = path.to_str().context("the path is not UTF-8")?;
    let database = open(name)?;
    lines.add("records", server::count_records(&database)?);
    lines.add("bytes", database.size_bytes());
    for (name, value) in database.stats() {
        lines.add(name, value);
    }
    if let Some(table) = database.table() {
        lines.add("last unique id", table.last_uid());
        add_indices(&table.indices(), lines);
    }
    Ok(())
}

/// Reads the version of the format and the kind of a database, at the offsets in
/// `docs/formats/log.md`.
fn manifest(path: &Path) -> Result<(u32, Kind)> {
    let mut bytes = [0; 16];
    let manifest = path.join("manifest");
    std::fs::File::open(&manifest).and_then(|mut file| file.read_exact(&mut bytes)).with_context(
        || {
            format!(
                "the folder {} is not a database, or one that `tyrant salvage` may save: cannot \
                 read its manifest",
                path.display()
            )
        },
    )?;
    let (magic, numbers) = bytes.split_at(MAGIC.len());
    ensure!(magic == MAGIC, "{} is not a manifest", manifest.display());
    let [version, kind] = [0, 4].map(|at| {
        let number = numbers[at..].first_chunk().copied().unwrap_or_default();
        u32::from_le_bytes(number)
    });
    let kind = match kind {
        1 => Kind::Hash,
        2 => Kind::Tree,
        3 => Kind::Fixed,
        4 => Kind::Table,
        other => anyhow::bail!("unknown kind of database: {other}"),
    };
    Ok((version, kind))
}
