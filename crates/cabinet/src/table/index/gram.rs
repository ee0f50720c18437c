//! Q-gram index: one posting per different sequence of three characters in the normalised text of a
//! row, with the places where it occurs. The last two characters and the last one are grams, too.
//!
//! A phrase of three or more characters occurs where its grams are at the right distances from each
//! other. A shorter phrase occurs where a gram begins with it. Only the first part of a very long
//! text is indexed. A posting of another kind marks that there is more.

use super::token::PART;
use super::{Index, key, put_bare};
use crate::base::varint;
use crate::limits::INDEXED_CHARACTERS_MAX;
use crate::table::keys;
use crate::table::normalise::for_each_character;
use crate::table::postings::Changes;
use crate::table::tokens::before_nul;

pub(in crate::table) use super::token::more;

/// Characters of a gram.
pub(in crate::table) const WIDTH: usize = 3;

/// Ends the gram in a key. Normalised text has no NUL.
const END: u8 = 0;

pub(super) fn put(index: &Index, primary: &[u8], value: &[u8], postings: &mut Changes) {
    let mut text = Vec::with_capacity(value.len().min(INDEXED_CHARACTERS_MAX));
    let mut has_more = false;
    for_each_character(before_nul(value), |letter, _| {
        has_more = text.len() == INDEXED_CHARACTERS_MAX;
        if !has_more {
            text.push(letter);
        }
        !has_more
    });
    // Grams as numbers, each with its place.
    let number = |at: usize| {
        let letter = |offset: usize| text.get(at + offset).map_or(0, |&letter| letter as u64);
        (letter(0) << 42 | letter(1) << 21 | letter(2), at as u32)
    };
    let mut grams: Vec<(u64, u32)> = (0..text.len()).map(number).collect();
    grams.sort_unstable();
    let prefix = key(index.prefix(), &[&[PART]]);
    for places in grams.chunk_by(|one, other| one.0 == other.0) {
        let at = places[0].1 as usize;
        let gram = &text[at..text.len().min(at + WIDTH)];
        let push_key = |bytes: &mut Vec<u8>| {
            bytes.extend_from_slice(&prefix);
            for letter in gram {
                bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
            bytes.push(END);
            bytes.extend_from_slice(primary);
        };
        postings.put(push_key, |bytes| push_places(bytes, places.iter().map(|place| place.1)));
    }
    if has_more {
        put_bare(postings, &more(index), primary);
    }
}

/// Returns the prefix of the keys of a gram's postings.
pub(in crate::table) fn whole(index: &Index, gram: &[char]) -> Vec<u8> {
    key(beginning(index, gram), &[&[END]])
}

/// Returns the prefix of the keys of postings of all grams that begin with these characters.
pub(in crate::table) fn beginning(index: &Index, characters: &[char]) -> Vec<u8> {
    let text: String = characters.iter().collect();
    key(index.prefix(), &[&[PART], text.as_bytes()])
}

/// Returns the primary key in the key of a gram's posting.
pub(in crate::table) fn primary(posting: &[u8]) -> Option<&[u8]> {
    let rest = keys::after_prefix(posting)?.get(1..)?;
    let end = rest.iter().position(|&byte| byte == END)?;
    Some(&rest[end + 1..])
}

/// Appends ascending places, each as its distance from the previous one.
fn push_places(bytes: &mut Vec<u8>, places: impl Iterator<Item = u32>) {
    let mut last = 0;
    for place in places {
        varint::push(bytes, u64::from(place - last));
        last = place;
    }
}

/// Returns the places in the value of a posting. Ends at bytes that do not parse.
pub(in crate::table) fn places(mut bytes: &[u8]) -> impl Iterator<Item = u32> {
    let mut place = 0u32;
    std::iter::from_fn(move || {
        let distance = u32::try_from(varint::take(&mut bytes)?).ok()?;
        place = place.checked_add(distance)?;
        Some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::column_index::IndexKind;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn postings(index: &Index, primary: &[u8], value: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut postings = Changes::default();
        put(index, primary, value, &mut postings);
        let some = |(key, value): (&[u8], Option<&[u8]>)| (key.to_vec(), value.unwrap().to_vec());
        postings.iter().map(some).collect()
    }

    #[test]
    fn every_place_of_a_text_has_a_gram() {
        let index = Index::new(7, b"text", IndexKind::Gram, true);
        let postings = postings(&index, b"pk", "Ab ab".as_bytes());
        let places = |gram: &str| {
            let gram: Vec<char> = gram.chars().collect();
            postings
                .get(&key(whole(&index, &gram), &[b"pk"]))
                .map(|value| super::places(value).collect::<Vec<_>>())
        };
        assert_eq!(places("ab "), Some(vec![0]));
        assert_eq!(places("b a"), Some(vec![1]));
        assert_eq!(places(" ab"), Some(vec![2]));
        assert_eq!(places("ab"), Some(vec![3]));
        assert_eq!(places("b"), Some(vec![4]));
        assert_eq!(postings.len(), 5);
        for posting in postings.keys() {
            assert_eq!(primary(posting), Some(&b"pk"[..]));
        }
    }

    #[test]
    fn text_after_the_limit_is_marked() {
        let index = Index::new(7, b"text", IndexKind::Gram, true);
        for (len, is_marked) in [
            (INDEXED_CHARACTERS_MAX - 1, false),
            (INDEXED_CHARACTERS_MAX, false),
            (INDEXED_CHARACTERS_MAX + 1, true),
        ] {
            let postings = postings(&index, b"pk", "a".repeat(len).as_bytes());
            assert_eq!(postings.contains_key(&key(more(&index), &[b"pk"])), is_marked);
        }
    }

    proptest! {
        #[test]
        fn decoded_places_equal_the_encoded_ones(
            places in proptest::collection::btree_set(any::<u32>(), 0..20),
        ) {
            let places: Vec<u32> = places.into_iter().collect();
            let mut bytes = Vec::new();
            push_places(&mut bytes, places.iter().copied());
            prop_assert_eq!(super::places(&bytes).collect::<Vec<_>>(), places);
        }
    }
}
