//! Formula: combines lists of primary keys from indices, in the order of the keys.
//!
//! Postings of one value (a token, a gram, a number) are in the order of primary keys. So the lists
//! of several values are united, intersected and subtracted by reading them in parallel. Each list
//! skips to the position of the others, and nothing is collected in memory.

use super::cursor::{Cursor, KeyRange, count_up_to};
use super::index::gram;
use super::postings::View;
use super::sort::{Sorted, Sorter};
use crate::Result;
use std::path::Path;

/// Set of rows, in terms of the postings of indices.
pub(super) enum Formula {
    /// No rows.
    Nothing,
    /// Rows with a posting whose key is this prefix and the primary key.
    Term(Term),
    /// Rows with all of these grams at these offsets from the beginning of a phrase, in characters.
    Phrase(Vec<(u32, Term)>),
    /// Rows with a gram in this range: the grams that begin with some characters.
    GramBeginning(KeyRange),
    /// Rows that are in all of these sets.
    All(Vec<Formula>),
    /// Rows that are in at least one of these sets.
    Any(Vec<Formula>),
    /// Rows that are in the first set, and in none of the others.
    Without(Box<Formula>, Vec<Formula>),
}

/// Postings with one prefix.
pub(super) struct Term {
    /// Bytes of the postings' keys before the primary key.
    pub(super) prefix: Vec<u8>,
    /// Range of their keys: all keys with the prefix, or fewer.
    pub(super) range: KeyRange,
    /// Whether each posting is certainly a row of the set, or only a candidate.
    pub(super) is_exact: bool,
}

impl Term {
    pub(super) fn new(prefix: Vec<u8>, is_exact: bool) -> Self {
        Self { range: KeyRange::of_prefix(prefix.clone()), prefix, is_exact }
    }
}

/// A row of a set or, if not `is_exact`, a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Posting {
    pub(super) primary: Vec<u8>,
    pub(super) is_exact: bool,
}

/// A list of postings in the order of primary keys.
pub(super) trait Postings {
    /// Returns the first posting at or after a primary key; `None` if there is none. The key must
    /// not be less than that of the last call.
    fn seek(&mut self, primary: &[u8]) -> Result<Option<Posting>>;
}

/// Parameters for opening a formula.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) view: View<'a>,
    /// Folder for the temporary files of lists that must be sorted.
    pub(super) folder: &'a Path,
    /// Memory budget of one list, in bytes.
    pub(super) budget_bytes: usize,
}

impl Formula {
    /// Returns an upper bound of the number of rows. If there are many, it is at least `max`.
    pub(super) fn estimate(&self, view: View<'_>, max: u64) -> Result<u64> {
        Ok(match self {
            Self::Nothing => 0,
            Self::Term(term) => count_up_to(view, &term.range, max)?,
            Self::GramBeginning(range) => count_up_to(view, range, max)?,
            Self::Phrase(terms) => {
                let mut least = max;
                for (_, term) in terms {
                    least = least.min(count_up_to(view, &term.range, least)?);
                }
                least
            }
            Self::All(parts) => {
                let mut least = max;
                for part in parts {
                    least = least.min(part.estimate(view, least)?);
                }
                least
            }
            Self::Any(parts) => {
                let mut sum = 0;
                for part in parts {
                    sum += part.estimate(view, max.saturating_sub(sum))?;
                }
                sum
            }
            Self::Without(positive, _) => positive.estimate(view, max)?,
        })
    }

    /// Returns the number of lists that must be sorted to open the formula.
    pub(super) fn sorted_lists(&self) -> usize {
        let of_all = |parts: &[Self]| parts.iter().map(Self::sorted_lists).sum();
        match self {
            Self::GramBeginning(_) => 1,
            Self::Nothing | Self::Term(_) | Self::Phrase(_) => 0,
            Self::All(parts) | Self::Any(parts) => of_all(parts),
            Self::Without(positive, negative) => positive.sorted_lists() + of_all(negative),
        }
    }

    /// Returns whether the formula is a single list that is empty, as the list of partly indexed
    /// rows often is.
    fn is_absent(&self, view: View<'_>) -> Result<bool> {
        match self {
            Self::Nothing => Ok(true),
            Self::Term(term) => Ok(Cursor::of_keys(view, term.range.clone()).next()?.is_none()),
            _ => Ok(false),
        }
    }

    /// Returns the postings of the formula's rows.
    pub(super) fn open<'a>(self, source: Source<'a>) -> Result<Box<dyn Postings + 'a>> {
        let open_all = |parts: Vec<Formula>| {
            parts.into_iter().map(|part| part.open(source).map(Peeked::new)).collect::<Result<_>>()
        };
        Ok(match self {
            Self::Nothing => Box::new(Nothing),
            Self::Term(term) => Box::new(TermPostings::new(source.view, term, false)),
            Self::Phrase(terms) => Box::new(PhrasePostings {
                terms: terms
                    .into_iter()
                    .map(|(at, term)| (at, TermPostings::new(source.view, term, true)))
                    .collect(),
                beginnings: Vec::new(),
            }),
            Self::GramBeginning(range) => collected(source, range)?,
            Self::All(parts) => Box::new(AllPostings(open_all(parts)?)),
            Self::Any(mut parts) => {
                let mut present = Vec::with_capacity(parts.len());
                for part in parts.drain(..) {
                    if !part.is_absent(source.view)? {
                        present.push(part);
                    }
                }
                match present.pop() {
                    None => Box::new(Nothing),
                    Some(only) if present.is_empty() => only.open(source)?,
                    Some(last) => {
                        present.push(last);
                        Box::new(AnyPostings(open_all(present)?))
                    }
                }
            }
            Self::Without(positive, negative) => Box::new(WithoutPostings {
                positive: positive.open(source)?,
                negative: open_all(negative)?,
            }),
        })
    }
}

struct Nothing;

impl Postings for Nothing {
    fn seek(&mut self, _primary: &[u8]) -> Result<Option<Posting>> {
        Ok(None)
    }
}

struct TermPostings<'a> {
    cursor: Cursor<'a>,
    prefix: Vec<u8>,
    is_exact: bool,
    /// Prefix and sought primary key. Kept to save an allocation.
    sought: Vec<u8>,
}

impl<'a> TermPostings<'a> {
    fn new(view: View<'a>, term: Term, with_values: bool) -> Self {
        let make = if with_values { Cursor::new } else { Cursor::of_keys };
        let cursor = make(view, term.range);
        Self { cursor, prefix: term.prefix, is_exact: term.is_exact, sought: Vec::new() }
    }

    /// Returns the first posting at or after a primary key: its primary key and its value.
    fn seek_posting(&mut self, primary: &[u8]) -> Result<Option<(&[u8], &[u8])>> {
        self.sought.clear();
        self.sought.extend_from_slice(&self.prefix);
        self.sought.extend_from_slice(primary);
        let found = self.cursor.seek(&self.sought)?;
        Ok(found.map(|(key, value)| (key.get(self.prefix.len()..).unwrap_or_default(), value)))
    }
}

impl Postings for TermPostings<'_> {
    fn seek(&mut self, primary: &[u8]) -> Result<Option<Posting>> {
        let is_exact = self.is_exact;
        let found = self.seek_posting(primary)?;
        Ok(found.map(|(primary, _)| {
            // The next sought key is longer by one byte.
            let mut copy = Vec::with_capacity(primary.len() + 1);
            copy.extend_from_slice(primary);
            Posting { primary: copy, is_exact }
        }))
    }
}

/// Rows in which all terms occur, each at its offset from the beginning of the phrase.
struct PhrasePostings<'a> {
    terms: Vec<(u32, TermPostings<'a>)>,
    /// Offsets at which the phrase may begin in the current row, in characters of the normalised
    /// text.
    beginnings: Vec<u32>,
}

impl PhrasePostings<'_> {
    /// Returns whether the phrase is in a row. If it is not, sets `next` to the next key at which
    /// it may be. Returns `None` if no row is left.
    fn look(&mut self, primary: &[u8], next: &mut Vec<u8>) -> Result<Option<bool>> {
        let beginnings = &mut self.beginnings;
        for (number, (offset, term)) in self.terms.iter_mut().enumerate() {
            let Some((found, value)) = term.seek_posting(primary)? else { return Ok(None) };
            if found != primary {
                found.clone_into(next);
                return Ok(Some(false));
            }
            let mut here = gram::places(value).filter_map(|place| place.checked_sub(*offset));
            if number == 0 {
                beginnings.clear();
                beginnings.extend(here);
            } else {
                // Both lists are in ascending order.
                let mut place = here.next();
                beginnings.retain(|beginning| {
                    while place.is_some_and(|place| place < *beginning) {
                        place = here.next();
                    }
                    place == Some(*beginning)
                });
            }
            if beginnings.is_empty() {
                primary.clone_into(next);
                next.push(0);
                return Ok(Some(false));
            }
        }
        Ok(Some(true))
    }
}

impl Postings for PhrasePostings<'_> {
    fn seek(&mut self, primary: &[u8]) -> Result<Option<Posting>> {
        let mut sought = Vec::with_capacity(primary.len() + 1);
        sought.extend_from_slice(primary);
        let mut next = Vec::new();
        loop {
            match self.look(&sought, &mut next)? {
                None => return Ok(None),
                Some(true) => return Ok(Some(Posting { primary: sought, is_exact: true })),
                Some(false) => std::mem::swap(&mut sought, &mut next),
            }
        }
    }
}

/// Postings with the next one read ahead.
struct Peeked<'a> {
    postings: Box<dyn Postings + 'a>,
    /// `None` before the first seek, `Some(None)` after the last posting.
    next: Option<Option<Posting>>,
}

impl<'a> Peeked<'a> {
    fn new(postings: Box<dyn Postings + 'a>) -> Self {
        Self { postings, next: None }
    }

    fn seek(&mut self, primary: &[u8]) -> Result<Option<&Posting>> {
        let is_there = match &self.next {
            None => false,
            Some(None) => true,
            Some(Some(next)) => &next.primary[..] >= primary,
        };
        if !is_there {
            self.next = Some(self.postings.seek(primary)?);
        }
        Ok(self.next.as_ref().and_then(Option::as_ref))
    }
}

struct AllPostings<'a>(Vec<Peeked<'a>>);

impl Postings for AllPostings<'_> {
    fn seek(&mut self, primary: &[u8]) -> Result<Option<Posting>> {
        let mut sought = primary.to_vec();
        'rows: loop {
            let mut is_exact = true;
            for (at, part) in self.0.iter_mut().enumerate() {
                let Some(found) = part.seek(&sought)? else { return Ok(None) };
                is_exact = is_exact && found.is_exact;
                if found.primary != sought {
                    sought.clone_from(&found.primary);
                    if at > 0 {
                        continue 'rows;
                    }
                }
            }
            return Ok(Some(Posting { primary: sought, is_exact }));
        }
    }
}

struct AnyPostings<'a>(Vec<Peeked<'a>>);

impl Postings for AnyPostings<'_> {
    fn seek(&mut self, primary: &[u8]) -> Result<Option<Posting>> {
        let mut least: Option<Posting> = None;
        for part in &mut self.0 {
            let Some(found) = part.seek(primary)? else { continue };
            match &mut least {
                Some(least) if least.primary < found.primary => {}
                Some(least) if least.primary == found.primary => least.is_exact |= found.is_exact,
                least => *least = Some(found.clone()),
            }
        }
        Ok(least)
    }
}

struct WithoutPostings<'a> {
    positive: Box<dyn Postings + 'a>,
    negative: Vec<Peeked<'a>>,
}

impl Postings for WithoutPostings<'_> {
    fn seek(&mut self, primary: &[u8]) -> Result<Option<Posting>> {
        let mut sought = primary.to_vec();
        'rows: loop {
            let Some(mut posting) = self.positive.seek(&sought)? else { return Ok(None) };
            for part in &mut self.negative {
                let found = part.seek(&posting.primary)?;
                if let Some(found) = found.filter(|found| found.primary == posting.primary) {
                    if found.is_exact {
                        sought = posting.primary;
                        sought.push(0);
                        continue 'rows;
                    }
                    posting.is_exact = false;
                }
            }
            return Ok(Some(posting));
        }
    }
}

/// Sorted postings, possibly with repetitions.
struct SortedPostings(Sorted);

impl Postings for SortedPostings {
    fn seek(&mut self, primary: &[u8]) -> Result<Option<Posting>> {
        while let Some((_, found)) = self.0.next()? {
            if found >= primary {
                return Ok(Some(Posting { primary: found.to_vec(), is_exact: true }));
            }
        }
        Ok(None)
    }
}

/// Returns the rows of all grams in a range. A row has a posting for each of its grams, so the rows
/// are collected and sorted.
fn collected<'a>(source: Source<'a>, range: KeyRange) -> Result<Box<dyn Postings + 'a>> {
    let mut sorter = Sorter::new(source.folder, source.budget_bytes, None);
    let mut cursor = Cursor::of_keys(source.view, range);
    while let Some((key, _)) = cursor.next()? {
        if let Some(primary) = gram::primary(key) {
            sorter.push(b"", primary)?;
        }
    }
    Ok(Box::new(SortedPostings(sorter.finish()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, MemoryTree, Meta, Options, Wait};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    type Set = BTreeSet<u8>;

    /// Returns shapes of formulas over lists named by letters.
    fn formula(depth: u32) -> BoxedStrategy<Shape> {
        let leaf = (0..4u8).prop_map(Shape::List);
        leaf.prop_recursive(depth, 12, 3, |inner| {
            let many = || proptest::collection::vec(inner.clone(), 1..4);
            prop_oneof![
                many().prop_map(Shape::All),
                many().prop_map(Shape::Any),
                (inner.clone(), proptest::collection::vec(inner.clone(), 0..3))
                    .prop_map(|(one, rest)| Shape::Without(Box::new(one), rest)),
            ]
        })
        .boxed()
    }

    #[derive(Clone, Debug)]
    enum Shape {
        List(u8),
        All(Vec<Shape>),
        Any(Vec<Shape>),
        Without(Box<Shape>, Vec<Shape>),
    }

    impl Shape {
        fn formula(&self) -> Formula {
            let all = |shapes: &[Shape]| shapes.iter().map(Shape::formula).collect();
            match self {
                Self::List(name) => Formula::Term(Term::new(vec![b'a' + name], true)),
                Self::All(shapes) => Formula::All(all(shapes)),
                Self::Any(shapes) => Formula::Any(all(shapes)),
                Self::Without(one, rest) => Formula::Without(Box::new(one.formula()), all(rest)),
            }
        }

        fn members(&self, lists: &[Set]) -> Set {
            match self {
                Self::List(name) => lists[usize::from(*name)].clone(),
                Self::All(shapes) => shapes
                    .iter()
                    .map(|shape| shape.members(lists))
                    .reduce(|one, other| &one & &other)
                    .unwrap_or_default(),
                Self::Any(shapes) => shapes.iter().flat_map(|shape| shape.members(lists)).collect(),
                Self::Without(one, rest) => rest
                    .iter()
                    .fold(one.members(lists), |left, shape| &left - &shape.members(lists)),
            }
        }
    }

    proptest! {
        #[test]
        fn lists_are_combined_like_sets(
            lists in proptest::collection::vec(proptest::collection::btree_set(0u8..40, 0..30), 4),
            shape in formula(3),
        ) {
            let engine = MemoryTree::new(&Options::default());
            for (name, list) in lists.iter().enumerate() {
                for member in list {
                    engine.put(&[b'a' + name as u8, *member], b"", Meta::NONE, Wait::Block).unwrap();
                }
            }
            let expected = shape.members(&lists);
            let estimate = shape.formula().estimate(View::raw(&engine), 1000).unwrap();
            prop_assert!(estimate >= expected.len() as u64);
            let source = Source { view: View::raw(&engine), folder: Path::new("/nowhere"), budget_bytes: 1 << 20 };
            let mut postings = shape.formula().open(source).unwrap();
            let mut met = Vec::new();
            let mut sought = Vec::new();
            while let Some(posting) = postings.seek(&sought).unwrap() {
                prop_assert!(posting.is_exact);
                met.push(posting.primary[0]);
                sought = posting.primary;
                sought.push(0);
            }
            prop_assert_eq!(met, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
