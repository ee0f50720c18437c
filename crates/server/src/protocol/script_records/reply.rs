//! Results of operations for a function: lent to a closure, or collected.

use crate::ops::execute::Reply;

/// Bytes that an element takes in addition to its length.
const ELEMENT_BYTES: usize = size_of::<Vec<u8>>() + 16;

/// A result whose one element is lent to a closure.
pub(super) struct Lent<'v>(pub(super) &'v mut dyn FnMut(&[u8]));

impl Reply for Lent<'_> {
    fn len(&self) -> usize {
        0
    }

    fn element(&mut self, element: &[u8]) {
        (self.0)(element);
    }
}

/// A list of results.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) elements: Vec<Vec<u8>>,
    bytes: usize,
}

impl Reply for Collected {
    fn len(&self) -> usize {
        self.bytes
    }

    fn element(&mut self, element: &[u8]) {
        self.bytes += element.len() + ELEMENT_BYTES;
        self.elements.push(element.to_vec());
    }
}
