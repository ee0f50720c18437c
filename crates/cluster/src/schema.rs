//! Tables of a database.
//!
//! `meta` has one row: kind, mode, format and number of buckets of the database. `records` has a
//! row for each record:
//!
//! | column | content |
//! | --- | --- |
//! | `k` | byte 0 and the key (see `keys.rs`), since Cassandra refuses an empty partition key |
//! | `v` | version, expiry, flags and value, see [`crate::cell`] |
//! | `ver` | the version, for conditions: a number above 0 that no other change has |
//! | `e` | the expiry, for lists |
//! | `c` | name of the entry in the order of the keys, unless this is a hash database |
//! | `g` | never set: `IF g = null` is a condition that each row meets |
//!
//! In plain mode, `e` may be that of another write of the same microsecond. Then a list may have an
//! expired record, or lack a record until the other one's time to live is over.
//!
//! Readers decide by the expiry whether a record has expired. The time to live of the cells, which
//! ends later, removes it.
//!
//! Row 0 of `value_limit` has the greatest `value` of the names by which the database was used, so
//! that servers know how long values are.
//!
//! `migration` has the state of the last copy into the database in row 0.
//!
//! In all but hash databases, `key_order` has a row for each record: `s`, the XXH3 hash of `k`
//! modulo the number of buckets; `k`; and `c`. The other tables of a table database are in
//! `table/cassandra.rs`.
//!
//! In a fixed-length database, row 0 of `id_limits` has the width of values, and the bytes of Tokyo
//! Cabinet's file from which the greatest id follows.

use crate::name::{Kind, Name};
use cabinet::ids::IdLimits;

/// Default of the number of replicas of each record.
pub const REPLICATION_DEFAULT: u8 = 3;

/// Format of the tables.
pub(crate) const FORMAT: i32 = 3;

/// Time for which the cluster remembers that an entry of an order or an index was removed, in
/// seconds: above the three hours for which nodes keep hints. An entry that comes back after it has
/// a name that no record has, so it does no harm.
const ENTRY_GRACE_SECONDS: u32 = 4 * 60 * 60;

/// How far a copy has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Into an empty database, which cannot be served yet.
    Filling,
    /// Into a database with records.
    Adding,
    /// Complete.
    Done,
}

impl Stage {
    const NAMES: [(Self, &'static str); 3] =
        [(Self::Filling, "filling"), (Self::Adding, "adding"), (Self::Done, "done")];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(stage, _)| *stage == self).map_or("", |(_, name)| name)
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, own)| *own == name).map(|(stage, _)| *stage)
    }
}

/// Returns the keyspace as it is written in statements: some names are words of the language.
pub(crate) fn quoted(name: &Name) -> String {
    format!("\"{}\"", name.keyspace)
}

/// Returns the statements that make the keyspace and the tables of a database. Each one may be
/// executed again.
pub fn statements(name: &Name, replication: u8) -> Vec<String> {
    let keyspace = quoted(name);
    let of_rows = if name.kind == Kind::Table { ", d int, n blob" } else { "" };
    let mut statements = vec![
        format!(
            "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = \
             {{'class': 'NetworkTopologyStrategy', 'replication_factor': {replication}}}"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.meta \
             (id int PRIMARY KEY, kind text, mode text, format int, buckets int)"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.records \
             (k blob PRIMARY KEY, v blob, ver bigint, e bigint, c bigint, g boolean{of_rows})"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.key_order \
             (s int, k blob, c bigint, PRIMARY KEY (s, k, c)) \
             WITH gc_grace_seconds = {ENTRY_GRACE_SECONDS}"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.migration (id int PRIMARY KEY, stage text, \
             source text, place blob, copied bigint, expiring bigint)"
        ),
    ];
    statements.push(format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.value_limit (id int PRIMARY KEY, bytes bigint)"
    ));
    statements.push(raise_value_limit(name));
    if name.kind == Kind::Table {
        statements.extend(table_statements(&keyspace));
    }
    if let Some(ids) = name.ids {
        statements.extend(id_statements(&keyspace, ids));
    }
    // The kind is recorded once everything is there.
    statements.push(format!(
        "INSERT INTO {keyspace}.meta (id, kind, mode, format, buckets) \
         VALUES (0, '{}', '{}', {FORMAT}, {}) IF NOT EXISTS",
        name.kind.name(),
        name.mode.name(),
        name.buckets
    ));
    statements
}

/// Returns the statement that records the longest value of a name, unless a longer one is recorded.
pub(crate) fn raise_value_limit(name: &Name) -> String {
    let (keyspace, bytes) = (quoted(name), name.value_bytes_max);
    // The time of the write is the value, so the greatest one wins.
    format!(
        "INSERT INTO {keyspace}.value_limit (id, bytes) VALUES (0, {bytes}) USING TIMESTAMP {bytes}"
    )
}

/// Returns the statements that record the limits of a fixed-length database.
fn id_statements(keyspace: &str, ids: IdLimits) -> [String; 2] {
    // Databases of earlier versions have no columns for them in `meta`.
    [
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.id_limits \
             (id int PRIMARY KEY, width bigint, limsiz bigint)"
        ),
        format!(
            "INSERT INTO {keyspace}.id_limits (id, width, limsiz) VALUES (0, {}, {}) IF NOT EXISTS",
            ids.width().cast_signed(),
            ids.limit_bytes().cast_signed()
        ),
    ]
}

/// Returns the statements that make the tables of a table database. `records` has two columns more
/// in it.
fn table_statements(keyspace: &str) -> Vec<String> {
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.index_entries \
             (i int, s int, val blob, k blob, ver bigint, PRIMARY KEY ((i, s), val, k, ver)) \
             WITH gc_grace_seconds = {ENTRY_GRACE_SECONDS}"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.definitions \
             (id int PRIMARY KEY, number int, \
             indexes frozen<list<frozen<tuple<int, blob, text, boolean>>>>)"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.identifiers \
             (id int PRIMARY KEY, reserved bigint)"
        ),
        format!("INSERT INTO {keyspace}.definitions (id, number) VALUES (0, 0) IF NOT EXISTS"),
        format!("INSERT INTO {keyspace}.identifiers (id, reserved) VALUES (0, 0) IF NOT EXISTS"),
    ]
}
