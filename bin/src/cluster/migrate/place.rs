//! Place of a scan, as the state of a copy has it.
//!
//! | bytes | content |
//! | --- | --- |
//! | 8 | mark of the database: the place of a key that depends on the seed of its hashes |
//! | 1 | 0: the beginning; 1: hash; 2: key; 3: id |
//! | n | the hash or the id, 8 bytes big-endian; or the key |

use cabinet::{Database, Position};

/// Key whose place tells hash databases with other seeds apart.
const MARK: &[u8] = b"tyrant cluster migrate";

/// Returns a place in a database as bytes.
pub(super) fn encode(database: &Database, position: &Position) -> Vec<u8> {
    let mut bytes = mark(database).to_be_bytes().to_vec();
    match position {
        Position::Start => bytes.push(0),
        Position::Hash(hash) => {
            bytes.push(1);
            bytes.extend(hash.to_be_bytes());
        }
        Position::Key(key) => {
            bytes.push(2);
            bytes.extend(key);
        }
        Position::Id(id) => {
            bytes.push(3);
            bytes.extend(id.to_be_bytes());
        }
    }
    bytes
}

/// Returns the place, unless it is that of another database.
pub(super) fn decode(database: &Database, bytes: &[u8]) -> Option<Position> {
    let (mark_bytes, rest) = bytes.split_first_chunk()?;
    let (kind, place) = rest.split_first()?;
    let number = || place.try_into().ok().map(u64::from_be_bytes);
    let position = match kind {
        0 => Position::Start,
        1 => Position::Hash(number()?),
        2 => Position::Key(place.to_vec()),
        3 => Position::Id(number()?),
        _ => return None,
    };
    (u64::from_be_bytes(*mark_bytes) == mark(database)).then_some(position)
}

fn mark(database: &Database) -> u64 {
    match database.position_of(MARK) {
        Position::Hash(hash) => hash,
        Position::Start | Position::Key(_) | Position::Id(_) => 0,
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
            Position::Start,
            Position::Hash(5),
            Position::Key(Vec::new()),
            Position::Key(b"k".to_vec()),
            Position::Id(u64::MAX),
        ] {
            let bytes = encode(&first, &position);
            assert_eq!(decode(&first, &bytes), Some(position));
            assert_eq!(decode(&second, &bytes), None);
        }
        let bytes = encode(&first, &Position::Hash(5));
        for length in 0..bytes.len() {
            assert_eq!(decode(&first, &bytes[..length]), None);
        }
        assert_eq!(decode(&first, &[&bytes[..8], &[4]].concat()), None);
    }
}
