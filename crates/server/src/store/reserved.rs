//! Reserved records: records that the server stores among those of its clients.
//!
//! Their keys begin with a zero byte, which no line of text contains. They are copied, logged and
//! replicated as any other record, but no client sees them: [`View`](super::view::View) leaves them
//! out of lists, scans and the number of records. HTTP and WebDAV also refuse requests on them.
//!
//! | key, after the prefix | value |
//! |---|---|
//! | `media types` | names of media types, a line each; see `ops/media_types.rs` |
//! | `records of front ends` | number of the records below, in decimal |
//! | other | records of front ends, such as `webdav properties KEY` |
//!
//! A database without an order of keys could count the records of front ends only by a scan of all
//! keys, so their number is stored. Tables and fixed-length databases have no reserved records, and
//! trees of numbers hide none: they compare only the first bytes of a key, which these share.

use cabinet::{Database, KeyOrder, Result};

/// Prefix of their keys.
pub(crate) const PREFIX: &[u8] = b"\0tyrant ";

/// Media types that clients have named in addition to the known ones.
pub(crate) const MEDIA_TYPES: &[u8] = b"\0tyrant media types";

/// Number of the records of front ends. Without the record there are none.
pub(crate) const FRONT_END_RECORDS: &[u8] = b"\0tyrant records of front ends";

/// Returns whether a key is reserved.
#[inline]
pub(crate) fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(PREFIX)
}

/// Returns whether the reserved records of a database are hidden.
fn hides_reserved(database: &Database) -> bool {
    let is_of_numbers = matches!(database.order(), Some(KeyOrder::Int32 | KeyOrder::Int64));
    !is_of_numbers && database.as_numbered().is_none() && database.table().is_none()
}

/// Returns a test of whether a key of this database is that of a hidden record.
pub fn hidden_in(database: &Database) -> impl Fn(&[u8]) -> bool + use<> {
    let hides = hides_reserved(database);
    move |key| hides && is_reserved(key)
}

/// Returns the name of a record of a front end, without the prefix.
pub fn front_end_name(key: &[u8]) -> Option<&[u8]> {
    let name = key.strip_prefix(PREFIX)?;
    (key != MEDIA_TYPES && key != FRONT_END_RECORDS).then_some(name)
}

/// Stores a record of a front end in a database that is not served.
pub fn put_of_front_end(database: &Database, name: &[u8], value: &[u8]) -> Result<()> {
    let key = [PREFIX, name].concat();
    let is_new = database.value_size(&key)?.is_none();
    database.put(&key, value)?;
    if is_new {
        let number = of_front_ends(database)?.unwrap_or(0).saturating_add(1);
        database.put(FRONT_END_RECORDS, number.to_string().as_bytes())?;
    }
    Ok(())
}

/// Returns the number of records of front ends, if it is stored.
fn of_front_ends(database: &Database) -> Result<Option<u64>> {
    let number = |value: &[u8]| std::str::from_utf8(value).ok()?.parse().ok();
    database.read(FRONT_END_RECORDS, |entry| number(entry.value).unwrap_or(0))
}

/// Returns the number of records in a database without the reserved ones.
pub fn count_records(database: &Database) -> Result<u64> {
    let all = database.len();
    if all == 0 || !hides_reserved(database) {
        return Ok(all);
    }
    let names = u64::from(database.value_size(MEDIA_TYPES)?.is_some());
    let of_front_ends = of_front_ends(database)?.map_or(0, |number| number.saturating_add(1));
    let reserved = names.saturating_add(of_front_ends);
    // More than there are were not counted by this server.
    Ok(all.checked_sub(reserved).unwrap_or(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_numbers_hides_no_record_of_a_client() {
        let folder = tempfile::tempdir().expect("a folder");
        for order in ["int32", "int64"] {
            let name = format!("{}/{order}.tcb#order={order}", folder.path().display());
            let database = Database::open(&name).expect("a database");
            for (key, value) in
                [(&b"\0tyr"[..], &b"1000000"[..]), (b"\0tyrant ", b"1"), (b"k", b"")]
            {
                database.put(key, value).expect("stored");
            }
            assert!(!hides_reserved(&database), "{order}");
            assert_eq!(count_records(&database).expect("counted"), database.len(), "{order}");
        }
    }

    #[test]
    fn a_number_of_records_that_a_client_has_made_up_hides_none() {
        let database = Database::open("*").expect("a database");
        database.put(b"k", b"").expect("stored");
        database.put(FRONT_END_RECORDS, b"18446744073709551615").expect("stored");
        assert_eq!(count_records(&database).expect("counted"), 2);
    }

    #[test]
    fn the_number_of_records_is_that_of_the_clients_in_every_kind() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["*", "+", "a.tch", "a.tcb"] {
            let path = folder.path().join(name).display().to_string();
            let name = if name.len() == 1 { name } else { &path };
            let database = Database::open(name).expect("a database");
            assert_eq!(count_records(&database).expect("counted"), 0);
            database.put(b"k", b"").expect("stored");
            database.put(MEDIA_TYPES, b"a/b\n").expect("stored");
            for _ in 0..2 {
                put_of_front_end(&database, b"webdav properties k", b"[]").expect("stored");
                put_of_front_end(&database, b"webdav properties l", b"[]").expect("stored");
            }
            assert_eq!(database.len(), 5, "{name}");
            assert_eq!(count_records(&database).expect("counted"), 1, "{name}");
        }
        assert_eq!(front_end_name(MEDIA_TYPES), None);
        assert_eq!(front_end_name(FRONT_END_RECORDS), None);
        assert_eq!(front_end_name(b"\0tyrant x"), Some(&b"x"[..]));
    }
}
