//! Parts of a list whose items are in several buckets, each of which is in order.

/// An item of a list. Items of different buckets differ.
pub(crate) trait Item: Clone + Ord {
    /// Returns the memory that it takes, in bytes.
    fn bytes(&self) -> usize;
}

impl Item for Vec<u8> {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.len()
    }
}

/// The items of buckets, up to the one after which a bucket may have further ones, and in bounded
/// memory.
pub(crate) struct Merged<T> {
    items: Vec<T>,
    bytes: usize,
    bytes_max: usize,
    /// Item after which some are missing.
    last: Option<T>,
    is_descending: bool,
}

impl<T: Item> Merged<T> {
    pub(crate) fn new(is_descending: bool, bytes_max: usize) -> Self {
        Self { items: Vec::new(), bytes: 0, bytes_max, last: None, is_descending }
    }

    fn is_before(&self, one: &T, other: &T) -> bool {
        if self.is_descending { one > other } else { one < other }
    }

    /// Adds items of a bucket, in their order. `is_all` tells that there are no further ones in it.
    pub(crate) fn add(&mut self, mut items: Vec<T>, is_all: bool) {
        if let Some(last) = items.last().filter(|_| !is_all) {
            self.end_at(last.clone());
        }
        self.bytes += bytes_of(&items);
        self.items.append(&mut items);
        if self.bytes > self.bytes_max {
            self.sort();
            // At least one item stays, so that each part is further on.
            self.items.truncate(self.items.len().div_ceil(2));
            if let Some(last) = self.items.last() {
                self.end_at(last.clone());
            }
            self.bytes = bytes_of(&self.items);
        }
    }

    fn end_at(&mut self, item: T) {
        if self.last.as_ref().is_none_or(|last| self.is_before(&item, last)) {
            self.last = Some(item);
        }
    }

    /// Sorts the items, without those after the last one.
    fn sort(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        if let Some(last) = &self.last {
            items.retain(|item| !self.is_before(last, item));
        }
        items.sort_unstable();
        if self.is_descending {
            items.reverse();
        }
        items.dedup();
        self.items = items;
    }

    /// Returns the items of this part, and the one after which the next part begins, unless this is
    /// the last one.
    pub(crate) fn finish(mut self) -> (Vec<T>, Option<T>) {
        self.sort();
        (self.items, self.last)
    }
}

fn bytes_of<T: Item>(items: &[T]) -> usize {
    items.iter().map(T::bytes).sum()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fmt::Debug;

    /// Lists items, which are in their order, from ten buckets in parts of 30 items of each.
    pub(crate) fn assert_parts_have_all<T: Item + Debug>(all: &[T], bytes_max_if_small: usize) {
        let small = bytes_max_if_small;
        for (is_descending, bytes_max) in [(false, 1 << 20), (false, small), (true, small)] {
            let (mut listed, mut from) = (Vec::new(), None::<T>);
            loop {
                let mut merged = Merged::new(is_descending, bytes_max);
                for bucket in 0..10 {
                    let mut own: Vec<_> = all.iter().skip(bucket).step_by(10).cloned().collect();
                    if is_descending {
                        own.reverse();
                    }
                    let is_after =
                        |item: &T| from.as_ref().is_none_or(|from| merged.is_before(from, item));
                    let items: Vec<_> = own.into_iter().filter(is_after).take(30).collect();
                    let is_all = items.len() < 30;
                    let most = bytes_max + bytes_of(&items);
                    merged.add(items, is_all);
                    assert!(merged.bytes <= most);
                }
                let (mut items, next) = merged.finish();
                listed.append(&mut items);
                from = next;
                if from.is_none() {
                    break;
                }
            }
            if is_descending {
                listed.reverse();
            }
            assert_eq!(listed, all, "{is_descending} {bytes_max}");
        }
    }

    #[test]
    fn parts_of_many_buckets_have_each_key_once_and_little_memory() {
        let all: Vec<Vec<u8>> = (0..1000).map(|number| format!("{number:05}").into()).collect();
        assert_parts_have_all(&all, 2000);
    }
}
