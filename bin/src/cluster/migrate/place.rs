//! Place of a scan, as the state of a copy has it.
//!
//! | bytes | content |
//! | --- | --- |
//! | 8 | mark of the database: the place of a key that depends on the seed of its hashes |
//! | 1 | 0: the beginning; 1: hash; 2: key; 3: id |
//! | n | the hash or the id, 8 bytes big-endian; or the key |

use cabinet::{Database, ScanCursor};

/// Key whose place tells hash databases with other seeds apart.
const MARK: &[u8] = b"tyrant cluster migrate";

/// Returns a place in a database as bytes.
pub(super) fn encode(database: &Database, position: &ScanCursor) -> Vec<u8> {
    let mut bytes = mark(database).to_be_bytes().to_vec();
    match position {
        ScanCursor::Start => bytes.push(0),
        ScanCursor::Hash(hash) => {
            bytes.push(1);
            bytes.extend(hash.to_be_bytes());
        }
        ScanCursor::Key(key) => {
            bytes.push(2);
            bytes.extend(key);
        }
        ScanCursor::Id(id) => {
            bytes.push(3);
            bytes.extend(id.to_be_bytes());
        }
    }
    bytes
}

/// Returns the place, unless it is that of another database.
pub(super) fn decode(database: &Database, bytes: &[u8]) -> Option<ScanCursor> {
    let (mark_bytes, rest) = bytes.split_first_chunk()?;
    let (kind, place) = rest.split_first()?;
    let number = || place.try_into().ok().map(u64::from_be_bytes);
    let position = match kind {
        0 => ScanCursor::Start,
        1 => ScanCursor::Hash(number()?),
        2 => ScanCursor::Key(place.to_vec()),
        3 => ScanCursor::Id(number()?),
        _ => return None,
    };
    (u64::from_be_bytes(*mark_bytes) == mark(database)).then_some(position)
}

fn mark(database: &Database) -> u64 {
    match database.scan_cursor_of(MARK) {
        ScanCursor::Hash(hash) => hash,
        ScanCursor::Start | ScanCursor::Key(_) | ScanCursor::Id(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cabinet::name::Specification;
    use std::path::Path;

    fn open(path: &Path) -> Database {
        let specification = Specification::parse(path.to_str().unwrap()).unwrap();
        Database::open_specification(&specification).unwrap()
    }

    #[test]
    fn a_place_is_that_of_its_own_database_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["a.tch", "b.tch"].map(|name| open(&folder.path().join(name)));
        for position in [
            ScanCursor::Start,
            ScanCursor::Hash(5),
            ScanCursor::Key(Vec::new()),
            ScanCursor::Key(b"k".to_vec()),
            ScanCursor::Id(u64::MAX),
        ] {
            let bytes = encode(&first, &position);
            assert_eq!(decode(&first, &bytes), Some(position));
            assert_eq!(decode(&second, &bytes), None);
        }
        let bytes = encode(&first, &ScanCursor::Hash(5));
        for length in 0..bytes.len() {
            assert_eq!(decode(&first, &bytes[..length]), None);
        }
        assert_eq!(decode(&first, &[&bytes[..8], &[4]].concat()), None);
    }
}
