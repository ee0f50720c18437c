//! Reader of a B+ tree file: a hash file whose values are pages.
//!
//! The key of a leaf is its id in hexadecimal; that of an inner node has a leading `#`. A leaf is
//!
//! ```text
//! v      id of the previous leaf, 0 if there is none
//! v      id of the next leaf
//!        records: v bytes of the key, v bytes of the value, v further values, key, value,
//!        and for each further value v bytes of it and the value
//! ```
//!
//! where `v` is a number of variable width. One pass over the file finds all leaves. Then they are
//! read along their chain. The inner nodes and the hash table are not needed. Leaves that are not
//! on the chain, as in a damaged file, are read afterwards.

use super::block::{Layout, Record};
use super::codec::Codec;
use super::hash::{Scan, Shortened, contents};
use super::number::{ByteOrder, Rest};
use super::source::{ReadAt, Window};
use super::{Item, Output};
use crate::KeyOrder;
use crate::limits::KEY_BYTES_MAX;
use std::borrow::Cow;
use std::io;
use std::ops::ControlFlow;

/// Most leaves of a file that can be read. Each takes 17 bytes of memory.
pub(super) const LEAVES_MAX: usize = 1 << 27;

/// Bytes that are read at a time along the chain, which is not in file order.
const WINDOW_BYTES: usize = 16 << 10;

/// Id that marks the end of the chain of leaves.
const NO_LEAF: u64 = 0;

/// First fields of a leaf: its neighbours in the chain.
struct Links {
    next: u64,
}

/// A leaf of the file.
#[derive(Clone, Copy)]
struct Leaf {
    id: u64,
    offset: u64,
}

/// Reads a B+ tree file, given the id of its first leaf.
pub(super) fn read(
    source: &dyn ReadAt,
    layout: Layout,
    coding: (Codec, ByteOrder),
    (order, first_leaf): (Option<KeyOrder>, u64),
    output: &mut Output<'_>,
) -> io::Result<ControlFlow<()>> {
    let leaves = collect(LEAVES_MAX, source, layout, output)?;
    let mut tree = Tree {
        layout,
        window: Window::new(source, layout.end, WINDOW_BYTES),
        coding,
        is_read: vec![false; leaves.len()],
        leaves,
    };
    let mut id = first_leaf;
    while id != NO_LEAF {
        let Some(place) = tree.unread(id) else {
            output.damage(layout.first, format!("leaf {id:x} is missing, or follows itself"));
            break;
        };
        let (flow, next) = tree.show(place, output)?;
        if flow.is_break() {
            return Ok(flow);
        }
        id = next;
    }
    tree.show_unread(order, output)
}

/// Returns all leaves, sorted by id.
fn collect(
    leaves_max: usize,
    source: &dyn ReadAt,
    layout: Layout,
    output: &mut Output<'_>,
) -> io::Result<Vec<Leaf>> {
    let mut leaves = Vec::new();
    let mut scan = Scan::new(source, layout);
    while let Some(record) = scan.next_record(output)? {
        // Names of leaves are short; longer keys are no names.
        let named = Record { key_bytes: record.key_bytes.min(32), value_bytes: 0, ..record };
        let (name, _) = scan.contents(&named)?;
        if name.starts_with(b"#") {
            continue;
        }
        let Some(id) = leaf_id(name) else {
            output.damage(record.offset, format!("a page named {:?}", Shortened(name)));
            continue;
        };
        if leaves.len() == leaves_max {
            let what = format!("more than {leaves_max} leaves");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        leaves.push(Leaf { id, offset: record.offset });
    }
    leaves.sort_by_key(|leaf| leaf.id);
    leaves.dedup_by(|second, first| {
        let is_double = second.id == first.id;
        if is_double {
            output.damage(second.offset, format!("leaf {:x} a second time", second.id));
        }
        is_double
    });
    Ok(leaves)
}

/// Returns the id in a leaf's name: hexadecimal, without leading zeros.
fn leaf_id(name: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(name).ok()?;
    let id = u64::from_str_radix(text, 16).ok().filter(|id| *id != NO_LEAF)?;
    (format!("{id:x}") == text).then_some(id)
}

struct Tree<'a> {
    layout: Layout,
    window: Window<'a>,
    coding: (Codec, ByteOrder),
    leaves: Vec<Leaf>,
    is_read: Vec<bool>,
}

impl Tree<'_> {
    /// Returns the index of a leaf that was not read yet.
    fn unread(&self, id: u64) -> Option<usize> {
        let place = self.leaves.binary_search_by_key(&id, |leaf| leaf.id).ok()?;
        (!self.is_read[place]).then_some(place)
    }

    /// Returns the page of a leaf, or the reason why it cannot be read.
    fn page(&mut self, place: usize) -> io::Result<Result<Cow<'_, [u8]>, &'static str>> {
        let offset = self.leaves[place].offset;
        let record = match self.layout.block(&mut self.window, offset)? {
            Ok(super::block::Block::Record(record)) => record,
            Ok(super::block::Block::Free { .. }) => return Ok(Err("a leaf that was removed")),
            Err(what) => return Ok(Err(what)),
        };
        let (_, stored) = contents(&mut self.window, &record)?;
        let (codec, order) = self.coding;
        Ok(codec.decode(stored, order))
    }

    /// Passes on the records of a leaf. Returns the leaf that follows.
    fn show(
        &mut self,
        place: usize,
        output: &mut Output<'_>,
    ) -> io::Result<(ControlFlow<()>, u64)> {
        self.is_read[place] = true;
        let Leaf { id, offset } = self.leaves[place];
        let page = match self.page(place)? {
            Ok(page) => page,
            Err(what) => {
                output.damage(offset, format!("leaf {id:x}: {what}"));
                return Ok((ControlFlow::Continue(()), NO_LEAF));
            }
        };
        let mut rest = Rest(&page);
        let links = links(&mut rest);
        let mut values = Vec::new();
        while !rest.is_empty() {
            let Some(key) = record(&mut rest, &mut values) else {
                output.damage(offset, format!("leaf {id:x}: records that do not fit it"));
                break;
            };
            if key.len() > KEY_BYTES_MAX {
                output.damage(offset, format!("leaf {id:x}: a key over the limit"));
                continue;
            }
            let flow = output.item(&Item::Duplicates { key, values: &values });
            if flow.is_break() {
                return Ok((flow, NO_LEAF));
            }
        }
        Ok((ControlFlow::Continue(()), links.map_or(NO_LEAF, |links| links.next)))
    }

    /// Passes on the leaves that are not on the chain: along chains of their own, in the order of
    /// their first keys.
    fn show_unread(
        &mut self,
        order: Option<KeyOrder>,
        output: &mut Output<'_>,
    ) -> io::Result<ControlFlow<()>> {
        let unread: Vec<usize> =
            (0..self.leaves.len()).filter(|place| !self.is_read[*place]).collect();
        if unread.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let what = format!("{} leaves that are not on the chain of leaves", unread.len());
        output.damage(self.layout.first, what);
        let mut following = Vec::new();
        for &place in &unread {
            if let Ok(page) = self.page(place)?
                && let Some(links) = links(&mut Rest(&page))
            {
                following.push(links.next);
            }
        }
        following.sort_unstable();
        let mut heads = Vec::new();
        for &place in &unread {
            if following.binary_search(&self.leaves[place].id).is_err() {
                heads.push((self.first_key(place)?, place));
            }
        }
        if let Some(order) = order {
            heads.sort_by(|(one, _), (other, _)| order.compare(one, other));
        }
        // The leaves left after the chains with a head form rings.
        for place in heads.into_iter().map(|(_, place)| place).chain(unread) {
            let mut next = Some(place).filter(|place| !self.is_read[*place]);
            while let Some(place) = next {
                let (flow, id) = self.show(place, output)?;
                if flow.is_break() {
                    return Ok(flow);
                }
                next = self.unread(id);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the first key of a leaf, empty if it cannot be read.
    fn first_key(&mut self, place: usize) -> io::Result<Vec<u8>> {
        let Ok(page) = self.page(place)? else { return Ok(Vec::new()) };
        let mut rest = Rest(&page);
        let key = links(&mut rest).and_then(|_| record(&mut rest, &mut Vec::new()));
        let key = key.unwrap_or_default();
        Ok(key[..key.len().min(KEY_BYTES_MAX)].to_vec())
    }
}

fn links(rest: &mut Rest<'_>) -> Option<Links> {
    let _previous = rest.number()?;
    Some(Links { next: rest.number()? })
}

/// Returns the next key of a leaf, and puts its values into `values`.
fn record<'a>(rest: &mut Rest<'a>, values: &mut Vec<&'a [u8]>) -> Option<&'a [u8]> {
    values.clear();
    let (key_bytes, value_bytes, further) = (rest.number()?, rest.number()?, rest.number()?);
    let key = rest.bytes(key_bytes)?;
    values.push(rest.bytes(value_bytes)?);
    for _ in 0..further {
        values.push(rest.counted()?);
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leafs_name_is_its_identity_in_hexadecimal() {
        assert_eq!(leaf_id(b"1a"), Some(0x1a));
        assert_eq!(leaf_id(b"ffffffffffffffff"), Some(u64::MAX));
        for name in [&b""[..], b"0", b"01", b"1A", b"+1", b"1g", b"10000000000000000", b"\xff"] {
            assert_eq!(leaf_id(name), None, "{name:?}");
        }
    }

    #[test]
    fn the_number_of_leaves_of_a_file_is_limited() {
        struct Nothing;

        impl super::super::Visit for Nothing {
            fn item(&mut self, _item: &Item<'_>) -> ControlFlow<()> {
                ControlFlow::Continue(())
            }

            fn damage(&mut self, damage: crate::Damage) {
                panic!("{damage}");
            }
        }

        let bytes = include_bytes!("../../tests/fixtures/tokyocabinet/be/btree-dups.tcb");
        let file = super::super::File::from_bytes(bytes.to_vec(), None).unwrap();
        let layout = Layout::of(&file.header, file.length);
        let collected = |max| {
            let visit = &mut Nothing;
            let mut output = Output { path: &file.path, visit, records: 0, damages: 0 };
            collect(max, &file.source, layout, &mut output).map(|leaves| leaves.len())
        };
        let leaves = collected(LEAVES_MAX).unwrap();
        assert_eq!(collected(leaves + 1).unwrap(), leaves);
        assert_eq!(collected(leaves).unwrap(), leaves);
        assert_eq!(collected(leaves - 1).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_record_has_a_value_and_may_have_further_ones() {
        let page = b"\x01\x02\x00kv1\x01\x00\x02l\x02w2\x00";
        let (mut rest, mut values) = (Rest(page), Vec::new());
        assert_eq!(record(&mut rest, &mut values), Some(&b"k"[..]));
        assert_eq!(values, [b"v1"]);
        assert_eq!(record(&mut rest, &mut values), Some(&b"l"[..]));
        assert_eq!(values, [&b""[..], b"w2", b""]);
        assert!(rest.is_empty());
    }

    #[test]
    fn a_truncated_record_is_refused() {
        let page = b"\x01\x02\x01kv1\x02w2";
        for cut in 0..page.len() {
            assert_eq!(record(&mut Rest(&page[..cut]), &mut Vec::new()), None, "{cut}");
        }
    }
}
