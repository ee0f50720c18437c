//! Places of scans: a number for each, by which a client continues its scan.
//!
//! If the order of the database is one of numbers, the number is the place itself, and nothing is
//! kept. Otherwise the place is a key, and the last ones are kept.

use super::execute::Stop;
use cabinet::{Error, ScanCursor};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

/// Most places that are kept.
const PLACES_MAX: usize = 16_384;

/// Most bytes of their keys.
const KEY_BYTES_MAX: usize = 4 << 20;

/// Places in databases that are in the order of their keys, by numbers that rise. The oldest ones
/// are forgotten.
#[derive(Debug, Default)]
pub(crate) struct ScanPlaces(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    /// Number of the first place.
    first: u64,
    keys: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl ScanPlaces {
    /// Returns the place of a number, which is not 0. `like` is any place in the database.
    pub(super) fn place(&self, number: u64, like: ScanCursor) -> Result<ScanCursor, Stop> {
        match like {
            ScanCursor::Hash(_) => Ok(ScanCursor::Hash(number)),
            ScanCursor::Id(_) => Ok(ScanCursor::Id(number)),
            ScanCursor::Start | ScanCursor::Key(_) => {
                let places = self.0.lock();
                let index =
                    number.checked_sub(places.first).and_then(|index| index.try_into().ok());
                let key = index.and_then(|index: usize| places.keys.get(index));
                let key = key.ok_or_else(|| {
                    Error::InvalidArgument(
                        "invalid cursor: begin again with 0, the scan was too slow, or the server \
                         was started again"
                            .into(),
                    )
                })?;
                Ok(ScanCursor::Key(key.to_vec()))
            }
        }
    }

    /// Returns the number of a place, 0 for the beginning alone.
    pub(super) fn number(&self, place: ScanCursor) -> u64 {
        let key = match place {
            ScanCursor::Hash(number) | ScanCursor::Id(number) => return number,
            ScanCursor::Start => return 0,
            ScanCursor::Key(key) => key.into_boxed_slice(),
        };
        let places = &mut *self.0.lock();
        if places.first == 0 {
            // No number is that of another place in a server before this one. All of them have up
            // to 53 bits, which are exact in languages whose numbers have a floating point.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            places.first = (now.as_micros() as u64).max(1);
        }
        places.bytes += key.len();
        places.keys.push_back(key);
        while places.keys.len() > PLACES_MAX || places.bytes > KEY_BYTES_MAX {
            let Some(oldest) = places.keys.pop_front() else { break };
            places.bytes -= oldest.len();
            places.first += 1;
        }
        places.first + places.keys.len() as u64 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> ScanCursor {
        ScanCursor::Key(number.to_string().into_bytes())
    }

    #[test]
    fn the_places_of_a_tree_are_kept_up_to_a_limit() {
        let places = ScanPlaces::default();
        let first = places.number(key(0));
        let kept = (1..PLACES_MAX).map(|number| places.number(key(number)));
        let last = kept.last().expect("some");
        assert!(first > 0 && last < 1 << 53);
        assert_eq!(places.place(first, key(0)).ok(), Some(key(0)));
        let next = places.number(key(PLACES_MAX));
        assert!(places.place(first, key(0)).is_err() && places.place(next + 1, key(0)).is_err());
        assert_eq!(places.place(first + 1, key(0)).ok(), Some(key(1)));
        assert_eq!(places.place(last, key(0)).ok(), Some(key(PLACES_MAX - 1)));
    }

    #[test]
    fn the_bytes_of_the_places_are_limited() {
        let places = ScanPlaces::default();
        let long = ScanCursor::Key(vec![1; KEY_BYTES_MAX / 2]);
        let numbers = [0; 3].map(|_| places.number(long.clone()));
        assert!(places.place(numbers[0], key(0)).is_err());
        assert_eq!(places.place(numbers[1], key(0)).ok(), Some(long));
    }

    #[test]
    fn places_in_the_order_of_numbers_are_their_own_places() {
        let places = ScanPlaces::default();
        for place in [ScanCursor::Hash(5 << 32 | 7), ScanCursor::Id(3)] {
            let cursor = places.number(place.clone());
            assert_eq!(places.place(cursor, place.clone()).ok(), Some(place));
        }
    }
}
